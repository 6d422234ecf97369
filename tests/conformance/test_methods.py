"""What every registered method must do; a new method is tested by being registered.

What holds for all algorithms is in `bilevo.testing`; here is what our own ones do beyond that.
Variants that run another course are tested like methods of their own: DRC for many workers, and
with a mixed pair of optimizers, of which the upper one keeps a population; BLEAQ-II with answers
from its mappings; drc-plus with descents side by side. Methods that drive solvers are tried on
these, too.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import quadratic

from bilevo import DE, PSO, Budget, Choice, Follower, Problem, minimize
from bilevo.algorithms import BLEAQ2, DRC, DRCPlus
from bilevo.core.algorithm import Algorithm, Followers
from bilevo.core.solver import cost_of
from bilevo.problems import get, names
from bilevo.registry import driving, get_method, methods
from bilevo.testing import AlgorithmTests, CountingProblem
from bilevo.testing.conformance import fingerprint, squares

SHORT = Budget(lower_max=60, upper_max=200)
VARIANTS = [
    pytest.param(BLEAQ2(prob_search=0.0), id="bleaq2-by-mappings"),
    pytest.param(DRC(parallel="rounds"), id="drc-in-rounds"),
    pytest.param(DRC(PSO(), DE(), parallel="rounds"), id="drc-mixed-in-rounds"),
    pytest.param(DRCPlus(width=4), id="drc-plus-wide"),
]


@pytest.mark.parametrize("method", methods())
def test_has_the_name_it_is_registered_under(method: str) -> None:
    assert get_method(method).name == method


class Registered(AlgorithmTests):
    """The method of a case, by its name or as it is."""

    @pytest.fixture(autouse=True)
    def choose(self, method: Any) -> None:
        self.method = method
        if method == "nested-ties":  # its first generation takes long on problems with constraints
            self.max_evals = 15_000
        elif getattr(method, "width", 1) > 1:  # its first generation has several descents
            self.max_evals = 6000

    def algorithm(self) -> Algorithm[Any]:
        return get_method(self.method)

    def handles_two_followers(self, play: str, folder: Path) -> None:
        """Limits and resuming hold, and counts are those of the functions."""
        options = {"rng": 3, "budget": SHORT, "max_evals": 2500, "method": self.algorithm()}
        result = minimize(two_followers(play), **options)
        assert 0 < result.nfev <= 2500 and len(result.y) == 2
        minimize(two_followers(play), run_dir=folder, **{**options, "max_evals": 1200})
        resumed = minimize(two_followers(play), run_dir=folder, **options)
        assert fingerprint(resumed) == fingerprint(result)


@pytest.mark.parametrize("method", driving(Followers.SOLVER))
class TestWithSolver(Registered):
    solver = True
    max_evals = 1500

    def test_improves_on_its_first_generation(self) -> None:
        result = self.run(quadratic(), rng=1, max_evals=40_000)
        assert result.feasible and result.F < result.history[0].F / 10

    def test_returns_on_every_problem_with_a_solver(self) -> None:
        for problem in (get(name) for name in names()):
            if problem.follower is not None:
                limit = max(60, 20 * cost_of(problem.follower))  # a step of a game costs more
                result = minimize(problem, method=self.algorithm(), max_evals=limit, budget=SHORT)
                assert 0 < result.nfev <= limit

    def test_handles_two_followers_in_equilibrium(self, tmp_path: Path) -> None:
        self.handles_two_followers("nash", tmp_path)


def two_followers(play: str) -> Problem:
    """Two followers whose values one function returns."""

    def f(x: Any, y: Any) -> list[float]:
        other = y[1] if play == "nash" else 0.2
        return [(y[0] - 0.5 * other - x[0]) ** 2, (y[1] + 0.3) ** 2]

    box = [(-1, 1)]
    followers = [Follower(y_bounds=box) for _ in range(2)]
    return Problem(quadratic_leader, f, box, followers=followers, play=play)


def quadratic_leader(x: Any, y: Any) -> float:
    return float((x[0] - 0.4) ** 2 + y @ y)


def whole_and_real() -> Problem:
    """A problem with whole numbers, a choice and a real number, at which some pairs fail."""

    def F(x: Any, y: Any) -> float:
        assert x[0] == round(x[0]) and y[0] == round(y[0]) and x[1] in (0, 1, 2)
        if x[0] == 13:
            raise ArithmeticError
        return float((x[0] - 6) ** 2 + abs(x[1] - 1) + y[1])

    def f(x: Any, y: Any) -> float:
        return float((y[0] - x[0]) ** 2 + (y[1] - 0.3 - 0.01 * x[0]) ** 2)

    kinds = Choice("gas", "coal", "wind")
    bounds = [(0, 20), kinds], [(-3, 25), (0, 1)]
    whole = {"x_integrality": [1, 0], "y_integrality": [1, 0]}
    return Problem(F, f, *bounds, name="whole and real", **whole)


SOLVED = 1e-6  # a method that descends may have solved a problem in its first generation


@pytest.mark.parametrize("method", [*driving(Followers.FUNCTION), *VARIANTS])
class TestMethod(Registered):
    def test_improves_on_its_first_generation(self) -> None:
        soon = Budget(upper_window=100)  # for methods that search groups one after another
        result = self.run(quadratic(), rng=1, max_evals=20_000, budget=soon)
        assert result.feasible and max(result.history[0].F / 10, SOLVED) > result.F

    @pytest.mark.parametrize("name", ["smd9", "smd10", "smd12", "tp2", "tp7", "decision-making"])
    def test_handles_constraints_at_both_levels(self, name: str) -> None:
        result = self.run(get(name), max_evals=8000, budget=SHORT)
        F, _, f, _ = get(name).evaluate(result.x, result.y)
        assert F[0] == result.F and f[0] == result.f

    @pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 1), (1, 3)])
    def test_solves_one_dimensional_levels(self, m: int, n: int) -> None:
        soon = Budget(upper_window=100)  # for methods that search groups one after another
        result = self.run(squares(m, n), max_evals=30_000, budget=soon)
        assert result.F < 0.5
        # The follower has really answered: the leader does not live on its errors.
        assert result.y == pytest.approx(result.x[0], abs=0.02)

    def test_a_leader_without_a_value_is_never_the_answer(self) -> None:
        """F fails where the follower is easiest."""
        problem = Problem(
            lambda x, y: np.nan if x[0] < 0.5 else float(x @ x + y @ y),
            lambda x, y: float(y @ y) if x[0] < 0.5 else float(y @ y + np.cos(9 * y).sum()),
            [(0, 1)],
            [(-1, 1)] * 2,
        )
        small = Budget(upper_max=60, lower_max=30, lower_window=12)
        result = self.run(problem, rng=0, budget=small, max_evals=9000)
        assert result.feasible and result.x[0] >= 0.5

    def test_ends_when_its_time_is_up(self) -> None:
        options = {"target": False, "max_time": 0.01, "max_evals": None}
        assert self.run(get("smd10"), **options).status == "max_time"

    def test_finds_an_answer_although_one_point_in_ten_fails(self) -> None:
        def f(x: Any, y: Any) -> float:
            if math.modf(1e3 * abs(y[0]))[0] < 0.1:
                raise ArithmeticError
            return float((y - x) @ (y - x))

        problem = Problem(lambda x, y: float(x @ x), f, [(-5, 10)] * 2, [(-5, 10)] * 2)
        result = self.run(problem, on_failure="worst", budget=SHORT, max_evals=20_000)
        assert result.feasible and result.failures > 0 and np.isfinite(result.F)

    def test_stops_at_a_value_that_takes_some_search(self) -> None:
        result = self.run(get("smd1"), target=20.0, max_evals=40_000)
        assert result.status == "target" and result.F <= 20 + 1e-6

    def test_counts_the_executions_of_each_task(self) -> None:
        for row in self.run(get("smd1"), budget=SHORT).history:
            assert any(row.survived) and min(row.executions) >= 1

    @pytest.mark.filterwarnings("ignore:f changes in steps")  # f of SMD14 does
    def test_returns_on_every_problem_of_the_suites(self) -> None:
        left_out = set()
        for name in names():
            if get(name).follower is None:
                assert self.run(get(name), max_evals=250, budget=SHORT).nfev <= 250
            else:
                left_out.add(name)
        games = ("roads-", "oligopoly", "cournot")
        assert left_out == {name for name in names() if name.startswith(games)}

    def test_handles_whole_numbers(self, tmp_path: Path) -> None:
        """Limits, repeats and resuming hold; functions get whole numbers only."""
        options = {"rng": 3, "budget": SHORT, "max_evals": 900, "on_failure": "worst"}
        result = self.run(whole_and_real(), **options)
        assert result.nfev <= 900 and not np.isnan(result.x).any()
        assert result.x[0] == round(result.x[0]) and result.y[0] == round(result.y[0])
        options["method"] = self.algorithm()
        minimize(whole_and_real(), run_dir=tmp_path, **{**options, "max_evals": 250})
        resumed = minimize(whole_and_real(), run_dir=tmp_path, **options)
        assert fingerprint(resumed) == fingerprint(result)

    def test_handles_two_independent_followers(self, tmp_path: Path) -> None:
        self.handles_two_followers("independent", tmp_path)

    def test_asks_for_many_points_at_once(self) -> None:
        """Searches advance together, not a point or two at a time."""
        sizes = []
        problem = CountingProblem(get("smd1")).problem

        def F(x: Any, y: Any) -> Any:
            sizes.append(len(x))
            return problem.F(x, y)

        def f(x: Any, y: Any) -> Any:
            sizes.append(len(x))
            return problem.f(x, y)

        asked = Problem(F, f, problem.x_bounds, problem.y_bounds, vectorized=True)
        self.run(asked, rng=4, budget=SHORT)
        assert np.mean(sizes) > 3
