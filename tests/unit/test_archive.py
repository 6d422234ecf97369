"""The archive of a run: all its evaluations, from memory or from a run directory."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gradients import Descent

import bilevo
from bilevo import Problem, minimize
from bilevo.core.archive import Archive
from bilevo.problems import get
from bilevo.run.directory import snapshots_after

COLUMNS = ("x", "y", "F", "f", "G", "g", "level", "failed")


def constrained(vectorized: bool = False, fails: bool = False) -> Problem:
    """A problem with two upper constraints and one lower; some points fail."""

    def F(x, y):
        if fails and np.any(y[..., 0] > 2.5):
            raise RuntimeError("too large")
        return (x[..., 0] - 1) ** 2 + y[..., 0] ** 2

    return Problem(
        F,
        lambda x, y: (y[..., 0] - x[..., 0]) ** 2 + y[..., 1] ** 2,
        [(-3, 3)],
        [(-3, 3), (-3, 3)],
        G=lambda x, y: np.stack([x[..., 0] - 2, y[..., 0] - 2], axis=-1),
        g=lambda x, y: np.stack([-y[..., 0] - 1], axis=-1),
        vectorized=vectorized,
    )


def same(one: Archive, other: Archive) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=name in "xyFfGg")
        for name in COLUMNS
    )


@pytest.mark.parametrize("vectorized", [False, True])
def test_an_archive_has_every_evaluation_as_it_was(vectorized: bool) -> None:
    problem = constrained(vectorized)
    result = minimize(problem, max_evals=700, keep_archive=True)
    kept = result.archive()
    upper = kept.level == "upper"
    assert (upper.sum(), (~upper).sum()) == (result.nfev_upper, result.nfev_lower)
    assert kept.left_out == 0 and len(kept) == result.nfev
    assert np.isnan(kept.f[upper]).all() and np.isnan(kept.g[upper]).all()
    assert np.isnan(kept.F[~upper]).all() and np.isnan(kept.G[~upper]).all()
    F, G, f, g = problem.evaluate(kept.x, kept.y)
    assert np.array_equal(kept.F[upper], F[upper]) and np.array_equal(kept.G[upper], G[upper])
    assert np.array_equal(kept.f[~upper], f[~upper]) and np.array_equal(kept.g[~upper], g[~upper])
    assert (np.diff(kept.time) >= 0).all() and kept.time[-1] <= result.time


@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es", "nested-cma-es"])
def test_a_stored_run_has_the_archive_of_a_live_one(method: str, tmp_path: Path) -> None:
    options = {"method": method, "rng": 3}
    live = minimize(constrained(), max_evals=900, keep_archive=True, **options)
    with snapshots_after(0.0):  # the resumed run begins at a snapshot, and the archive does not
        minimize(constrained(), max_evals=400, run_dir=tmp_path, **options)
        stored = minimize(constrained(), max_evals=900, run_dir=tmp_path, **options)
    before = (tmp_path / "journal.bin").read_bytes()
    assert same(stored.archive(), live.archive()) and stored.archive().left_out == 0
    assert (tmp_path / "journal.bin").read_bytes() == before


def test_an_archive_of_a_stored_run_calls_no_function(tmp_path: Path) -> None:
    calls = []

    def counted(x, y):
        calls.append(1)
        return float((y - x) @ (y - x))

    result = minimize(counted, counted, [(-1, 2)], [(-1, 2)], max_evals=300, run_dir=tmp_path)
    made = len(calls)
    assert len(result.archive()) == result.nfev == made == len(calls)


def test_failures_are_marked(tmp_path: Path) -> None:
    options = {"max_evals": 700, "on_failure": "worst", "x0": [2.9], "y0": [2.9, 0.0]}
    live = minimize(constrained(fails=True), keep_archive=True, **options)
    stored = minimize(constrained(fails=True), run_dir=tmp_path, **options)
    kept = live.archive()
    assert kept.failed.sum() == live.failures > 0
    assert np.isnan(kept.F[kept.failed]).all() and np.isnan(kept.G[kept.failed]).all()
    assert (kept.y[kept.failed & (kept.level == "upper"), 0] > 2.5).all()
    assert same(kept, stored.archive())


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_workers_change_nothing_in_an_archive() -> None:
    alone = minimize(get("smd1"), max_evals=500, keep_archive=True)
    with ThreadPoolExecutor(3) as pool:
        beside = minimize(get("smd1"), max_evals=500, keep_archive=True, workers=pool)
    assert same(alone.archive(), beside.archive())


def test_a_limit_keeps_the_last_evaluations() -> None:
    whole = minimize(get("smd1"), max_evals=500, keep_archive=True).archive()
    for limit in (1, 77, 1e2, 10**6):
        result = minimize(get("smd1"), max_evals=500, keep_archive=limit)
        kept, count = result.archive(), min(int(limit), len(whole))
        assert len(kept) == count and kept.left_out == len(whole) - count
        assert np.array_equal(kept.y, whole.y[-count:])


@settings(max_examples=25, deadline=None)
@given(
    limit=st.integers(1, 400),
    evals=st.integers(1, 300),
    vectorized=st.booleans(),
    seed=st.integers(0, 50),
)
def test_an_archive_and_what_it_left_out_are_all_evaluations(limit, evals, vectorized, seed):
    problem = constrained(vectorized)
    result = minimize(problem, max_evals=evals, keep_archive=limit, rng=seed)
    kept = result.archive()
    assert len(kept) + kept.left_out == result.nfev and len(kept) <= limit
    assert kept.x.shape == (len(kept), 1) and kept.y.shape == (len(kept), 2)


def test_steps_of_a_solver_are_rows(tmp_path: Path) -> None:
    problem = Problem(
        lambda x, y: float((x[0] - 1) ** 2 + y[0] ** 2),
        lambda x, y: float((y[0] - x[0]) ** 2),
        [(-3, 3)],
        [(-3, 3)],
        follower=bilevo.followers.Minimize(),
    )
    live = minimize(problem, max_evals=600, keep_archive=True)
    stored = minimize(problem, max_evals=600, run_dir=tmp_path)
    kept = live.archive()
    lower = kept.level == "lower"
    assert (~lower).sum() == live.nfev_upper and lower.any()
    assert np.isfinite(kept.f[lower]).all() and same(kept, stored.archive())
    assert kept.left_out == 0


def test_an_interrupted_run_has_an_archive_of_what_was_evaluated(tmp_path: Path) -> None:
    def stops(x, y):
        stops.calls += 1
        if stops.calls == 40:
            raise KeyboardInterrupt
        return float((y - x) @ (y - x))

    for options in ({"keep_archive": True}, {"run_dir": tmp_path}):
        stops.calls = 0
        result = minimize(stops, stops, [(-1, 2)], [(-1, 2)], **options)
        assert result.status == "interrupted" and len(result.archive()) == 39


def test_a_result_without_evaluations_says_how_to_get_them(tmp_path: Path) -> None:
    result = minimize(get("smd1"), max_evals=50, run_dir=tmp_path)
    for poor in (minimize(get("smd1"), max_evals=50), bilevo.load(tmp_path)):
        with pytest.raises(ValueError, match="or with keep_archive=True"):
            poor.archive()
    assert len(result.archive()) == result.nfev


def test_another_run_in_the_directory_is_found_out(tmp_path: Path) -> None:
    result = minimize(get("smd1"), max_evals=60, run_dir=tmp_path / "a")
    minimize(get("smd1"), max_evals=60, rng=2, run_dir=tmp_path / "b")
    (tmp_path / "a" / "journal.bin").write_bytes((tmp_path / "b" / "journal.bin").read_bytes())
    with pytest.raises(bilevo.RunMismatch, match="another course"):
        result.archive()


def travelled(result):
    return pickle.loads(pickle.dumps(result))  # noqa: S301 (ours)


def test_results_travel_with_what_is_in_memory_only(tmp_path: Path) -> None:
    kept = minimize(get("smd1"), max_evals=50, keep_archive=True)
    stored = minimize(lambda x, y: 0.0, lambda x, y: 0.0, [(0, 1)], [(0, 1)], run_dir=tmp_path)
    assert same(travelled(kept).archive(), kept.archive())
    assert same(copy.deepcopy(stored).archive(), stored.archive())
    with pytest.raises(ValueError, match="no archive"):
        travelled(stored).archive()


def test_an_archive_is_a_table() -> None:
    kept = minimize(constrained(), max_evals=200, keep_archive=True).archive()
    names = ["x0", "y0", "y1", "F", "f", "G0", "G1", "g0", "level", "time", "failed"]
    assert list(kept.to_dict()) == names == list(kept.to_pandas().columns)
    assert kept.to_dataframe().columns == names and len(kept.to_dataframe()) == len(kept)
    assert kept.to_pandas()["y1"].tolist() == kept.y[:, 1].tolist()
    assert "upper and" in repr(kept)


def test_a_run_without_an_evaluation_has_an_empty_archive() -> None:
    result = minimize(get("smd1"), method="nested-cma-es", max_evals=1, keep_archive=True)
    assert len(result.archive()) == result.nfev and result.archive().x.shape[1] == 2


def test_gradients_are_no_evaluations_and_get_extra_arguments(tmp_path: Path) -> None:
    def both(value, gradient):
        return lambda x, y, wish: (value(x, y, wish), gradient(x, y, wish))

    def run(**options):
        return minimize(
            Problem(
                both(
                    lambda x, y, wish: float((x - wish) @ (x - wish) + y @ y),
                    lambda x, y, wish: (2 * (x - wish), 2 * y),
                ),
                both(
                    lambda x, y, wish: float((y - x) @ (y - x)),
                    lambda x, y, wish: (2 * (x - y), 2 * (y - x)),
                ),
                [(-3, 3)] * 2,
                [(-3, 3)] * 2,
                jac=True,
                args=(1.0,),
            ),
            method=Descent(points=3, generations=5),
            **options,
        )

    live, stored = run(keep_archive=True), run(run_dir=tmp_path)
    assert live.njev > 0 and len(live.archive()) == live.nfev
    assert same(live.archive(), stored.archive())
