"""A limit cuts the last batch: what fits is evaluated, counted, and kept for a larger limit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashes import course
from solvers import Exact
from solvers import problem as solved_problem

import bilevo

METHODS = ["nblea", "bleaq2", "mfbla", "sa-bl-imode", "bl-cma-es", "drc-cma-es", "drc-plus"]


def problem(vectorized: bool, calls: list[int] | None = None) -> bilevo.Problem:
    def counted(x: Any, y: Any) -> Any:
        if calls is not None:
            calls.append(len(x) if vectorized else 1)
        return ((y - x) ** 2).sum(axis=-1) + 0.1 * y[..., 0]

    def upper(x: Any, y: Any) -> Any:
        return ((x - 1) ** 2).sum(axis=-1) + ((y - 0.5) ** 2).sum(axis=-1)

    box = [(-5, 10), (-5, 10)]
    return bilevo.Problem(upper, counted, box, box, vectorized=vectorized, name="cut")


@pytest.mark.parametrize("method", METHODS)
def test_a_run_spends_its_whole_limit_unless_it_ends_by_itself(method: str) -> None:
    for limit in (97, 331):
        result = bilevo.minimize(problem(True), method=method, max_evals=limit, target=False)
        assert result.nfev == limit or result.status != "max_evals"
        assert "no room" not in result.message


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_larger_limit_evaluates_only_the_rest_of_a_cut_batch(
    vectorized: bool, tmp_path: Path
) -> None:
    calls: list[int] = []

    def run(limit: int, run_dir: Path | None, counter: list[int] | None = None) -> bilevo.Result:
        options = {"method": "nblea", "run_dir": run_dir, "recheck": False, "rng": 9}
        return bilevo.minimize(problem(vectorized, counter), max_evals=limit, **options)

    for limit in (150, 170, 333, 900):  # the second one is in the same batch
        result = run(limit, tmp_path, calls)
        assert result.nfev == limit and course(result) == course(run(limit, None))
        assert sum(calls) == result.nfev_lower == bilevo.load(tmp_path).nfev_lower
        assert len(result.archive().x) == limit
    size = (tmp_path / "journal.bin").stat().st_size
    for limit in (160, 900):  # an earlier limit is looked at again, and nothing is written
        result = run(limit, tmp_path)
        assert limit - 64 < result.nfev <= limit and result.status == "max_evals"
    assert (tmp_path / "journal.bin").stat().st_size == size


def test_simulations_are_cut_too() -> None:
    calls = []

    def simulate(x: Any, y: Any) -> tuple[float, float]:
        calls.append((x, y))
        F, _, f, _ = problem(False).evaluate(x, y)
        return float(F[0]), float(f[0])

    box = [(-5, 10), (-5, 10)]
    joint = bilevo.Problem.joint(simulate, box, box)
    result = bilevo.minimize(joint, method="nblea", max_evals=333)
    assert result.nfev == len(calls) == 333


def test_steps_of_a_solver_are_cut_to_what_fits(tmp_path: Path) -> None:
    for limit in (41, 67):
        result = bilevo.minimize(
            solved_problem(Exact()), method="drc-race", max_evals=limit, run_dir=tmp_path, rng=4
        )
        again = bilevo.minimize(solved_problem(Exact()), method="drc-race", max_evals=limit, rng=4)
        assert course(result) == course(again) and np.isfinite(result.F)
        assert result.nfev == limit or "no room" in result.message
