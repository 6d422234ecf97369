"""What every registered method must do; a new method is tested by being registered.

Variants that run another course are tested like methods of their own: DRC for many workers, and
with a mixed pair of optimisers, of which the upper one keeps a population; BLEAQ-II with answers
from its mappings.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from conftest import fingerprint, minimize_counted, quadratic

import bilevo
from bilevo import DE, PSO, Budget, Problem
from bilevo.algorithms import BLEAQ2, DRC
from bilevo.problems import get, names
from bilevo.registry import for_functions, get_method, methods

SHORT = Budget(lower_max=60, upper_max=200)
STOPS = 4  # generations after which a run is stopped and resumed, at most


def kept(method: str | DRC, run_dir: Path | None, stop_at: int | None = None) -> bilevo.Result:
    """A run of a few generations, up to one of them; a target might be met by the first."""

    def callback(result: bilevo.Result) -> None:
        if result.nit == stop_at:
            raise StopIteration

    short = Budget(lower_max=20, upper_max=1000)
    options = {"rng": 6, "budget": short, "max_evals": 6000, "run_dir": run_dir, "target": False}
    return bilevo.minimize(get("smd9"), method=method, callback=callback, **options)


VARIANTS = [
    pytest.param(BLEAQ2(prob_search=0.0), id="bleaq2-by-mappings"),
    pytest.param(DRC(parallel="rounds"), id="drc-in-rounds"),
    pytest.param(DRC(PSO(), DE(), parallel="rounds"), id="drc-mixed-in-rounds"),
]


@pytest.mark.parametrize("method", methods())
def test_has_the_name_it_is_registered_under(method: str) -> None:
    assert get_method(method).name == method


@pytest.mark.parametrize("method", [*for_functions(), *VARIANTS])
class TestMethod:
    def test_repeats_to_the_bit(self, method: str | DRC) -> None:
        runs = [minimize_counted(get("smd2"), method=method, rng=8, budget=SHORT) for _ in "ab"]
        assert fingerprint(runs[0]) == fingerprint(runs[1])

    def test_improves_on_its_first_generation(self, method: str | DRC) -> None:
        result = minimize_counted(quadratic(), method=method, rng=1, max_evals=20_000)
        assert result.success and result.F < result.history[0].F / 10

    @pytest.mark.parametrize("limit", [30, 700, 3000])
    def test_never_exceeds_its_limit(self, method: str | DRC, limit: int) -> None:
        result = minimize_counted(get("smd1"), method=method, max_evals=limit, target=False)
        assert result.nfev <= limit

    @pytest.mark.parametrize("name", ["smd9", "smd10", "smd12", "tp2", "tp7", "decision-making"])
    def test_handles_constraints_at_both_levels(self, method: str | DRC, name: str) -> None:
        result = minimize_counted(get(name), method=method, max_evals=8000, budget=SHORT)
        F, _, f, _ = get(name).evaluate(result.x, result.y)
        assert F[0] == result.F and f[0] == result.f

    @pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 1), (1, 3)])
    def test_handles_one_dimensional_levels(self, method: str | DRC, m: int, n: int) -> None:
        problem = Problem(
            lambda x, y: (x**2).sum(axis=1) + (y**2).sum(axis=1),
            lambda x, y: ((y - x[:, :1]) ** 2).sum(axis=1),
            [(-1, 3)] * m,
            [(-1, 3)] * n,
            vectorized=True,
        )
        soon = Budget(upper_window=100)  # for methods that search groups one after another
        result = minimize_counted(problem, method=method, max_evals=30_000, budget=soon)
        assert result.F < 0.5
        # The follower has really answered: the leader does not live on its errors.
        assert result.y == pytest.approx(result.x[0], abs=0.02)

    def test_survives_failures_of_one_point_in_ten(self, method: str | DRC) -> None:
        def f(x, y):
            if math.modf(1e3 * abs(y[0]))[0] < 0.1:
                raise ArithmeticError
            return float((y - x) @ (y - x))

        problem = Problem(lambda x, y: float(x @ x), f, [(-5, 10)] * 2, [(-5, 10)] * 2)
        result = minimize_counted(
            problem, method=method, on_failure="worst", budget=SHORT, max_evals=20_000
        )
        assert result.success and result.failures > 0 and np.isfinite(result.F)

    def test_a_leader_without_a_value_is_never_the_answer(self, method: str | DRC) -> None:
        """F fails where the follower is easiest."""
        problem = Problem(
            lambda x, y: math.nan if x[0] < 0.5 else float(x @ x + y @ y),
            lambda x, y: float(y @ y) if x[0] < 0.5 else float(y @ y + np.cos(9 * y).sum()),
            [(0, 1)],
            [(-1, 1)] * 2,
        )
        small = Budget(upper_max=60, lower_max=30, lower_window=12)
        result = minimize_counted(problem, method=method, rng=0, budget=small, max_evals=9000)
        assert result.success and result.x[0] >= 0.5

    def test_survives_the_smallest_budget(self, method: str | DRC) -> None:
        least = Budget(upper_max=1, upper_window=1, lower_max=1, lower_window=1)
        result = minimize_counted(quadratic(), method=method, budget=least, max_evals=5000)
        assert np.isfinite(result.F)

    def test_has_an_answer_early_on(self, method: str | DRC) -> None:
        """As soon as the first followers are solved, and not after those of a whole population."""
        result = minimize_counted(get("smd1"), method=method, max_evals=3000)
        assert np.isfinite(result.F)

    def test_stops_at_a_target_of_the_users(self, method: str | DRC) -> None:
        result = minimize_counted(get("smd1"), method=method, target=20.0, max_evals=40_000)
        assert result.status == "target" and result.F <= 20 + 1e-6

    def test_leaves_numpys_global_random_state_alone(self, method: str | DRC) -> None:
        np.random.seed(1)  # noqa: NPY002
        minimize_counted(quadratic(), method=method, budget=SHORT, max_evals=3000)
        drawn = np.random.random()  # noqa: NPY002
        np.random.seed(1)  # noqa: NPY002
        assert drawn == np.random.random()  # noqa: NPY002

    def test_ends_when_nothing_is_finite(self, method: str | DRC) -> None:
        problem = Problem(lambda x, y: math.nan, lambda x, y: math.nan, [(0, 1)], [(0, 1)])
        short = Budget(lower_max=20, upper_max=60)
        result = minimize_counted(problem, method=method, budget=short)
        assert not result.success

    def test_reports_the_values_at_the_pair_it_reports(self, method: str | DRC) -> None:
        result = minimize_counted(get("smd1"), method=method, rng=2, budget=SHORT)
        F, _, f, _ = get("smd1").evaluate(result.x, result.y)
        assert (result.F, result.f) == (F[0], f[0])
        assert (result.F, result.f) == (result.history[-1].F, result.history[-1].f)

    def test_keeps_a_history_of_its_tasks(self, method: str | DRC) -> None:
        result = minimize_counted(get("smd1"), method=method, budget=SHORT)
        assert len(result.history) == result.nit > 0
        for row in result.history:
            assert len(row.executions) == len(row.survived) > 0
            assert any(row.survived) and min(row.executions) >= 1

    def test_resumes_from_every_snapshot_to_the_same_bits(
        self, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bilevo.run.rundir.SNAPSHOT_AFTER", 0.0)
        whole = kept(method, None)
        assert whole.nit > 1
        for stop in range(1, whole.nit, math.ceil(whole.nit / STOPS)):
            kept(method, tmp_path / str(stop), stop_at=stop)
            assert (tmp_path / str(stop) / "snapshot.npz").exists()
            assert fingerprint(kept(method, tmp_path / str(stop))) == fingerprint(whole)

    def test_returns_on_every_problem_of_the_suites(self, method: str | DRC) -> None:
        for name in names():
            result = minimize_counted(get(name), method=method, max_evals=250, budget=SHORT)
            assert result.nfev <= 250

    def test_ends_when_its_time_is_up(self, method: str | DRC) -> None:
        result = bilevo.minimize(get("smd10"), method=method, target=False, max_time=0.01)
        assert result.status == "max_time"

    def test_works_by_ask_and_tell(self, method: str | DRC) -> None:
        opt = bilevo.Optimizer(get("smd1"), method=method, rng=4, max_evals=3000, budget=SHORT)
        sizes = []
        while not opt.done:
            batch = opt.ask()
            sizes.append(len(batch.x))
            F, _, f, _ = get("smd1").evaluate(batch.x, batch.y)
            opt.tell(batch, F if batch.level == "upper" else f)
        expected = bilevo.minimize(get("smd1"), method=method, rng=4, max_evals=3000, budget=SHORT)
        assert fingerprint(opt.result) == fingerprint(expected)
        assert np.mean(sizes) > 3  # searches advance together, not a point or two at a time
