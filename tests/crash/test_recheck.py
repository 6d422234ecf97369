"""Functions that changed between two calls: a warning names the point that shows it."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from crashes import SMALL, F, course, f
from solvers import Exact, Walker
from solvers import problem as solved_problem

import bilevo
from bilevo.run import recheck
from bilevo.run.jobs import Changed

CHANGES = {
    "F": (lambda x, y: F(x, y) + 0.01, f),
    "f": (F, lambda x, y: f(x, y) + 0.01),
    "both": (lambda x, y: 2 * F(x, y) + 1, lambda x, y: 2 * f(x, y) + 1),
}


class Calls:
    """Counts how often a function is called."""

    def __init__(self, function: Any) -> None:
        self.function, self.count = function, 0

    def __call__(self, x: Any, y: Any) -> Any:
        self.count += 1
        return self.function(x, y)


def run(folder: Path, upper: Any = F, lower: Any = f, **options: Any) -> bilevo.Result:
    problem = bilevo.Problem(upper, lower, [(-5, 10)], [(-5, 10)], name="copy")
    return bilevo.minimize(problem, run_dir=folder, **{**SMALL, **options})


def resumed(folder: Path, upper: Any = F, lower: Any = f, **options: Any) -> list[str]:
    """What is warned of when a run that was cut off is resumed."""
    run(folder, max_evals=40)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(folder, upper, lower, **options)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("changed", CHANGES)
def test_a_function_that_changed_is_told_with_the_point(
    changed: str, tmp_path: Path, figure
) -> None:
    told = resumed(tmp_path, *CHANGES[changed])
    assert len(told) == (2 if changed == "both" else 1)
    assert all(" at x = [" in text and "y = [" in text and " was " in text for text in told)
    figure(25, 1, "functions changed between two calls")


def test_a_function_that_raises_now_is_told_and_ends_the_run_only_if_it_raises_again(
    tmp_path: Path,
) -> None:
    asked = []

    def fails_once(x: Any, y: Any) -> float:
        asked.append(1)
        if len(asked) == 1:
            raise ArithmeticError
        return F(x, y)

    assert "now raises ArithmeticError" in resumed(tmp_path, fails_once)[0]


def test_nothing_is_told_of_functions_that_are_the_same(tmp_path: Path) -> None:
    assert resumed(tmp_path) == []


def test_differences_of_rounding_are_none(tmp_path: Path) -> None:
    assert resumed(tmp_path, lambda x, y: F(x, y) * (1 + 1e-13)) == []


def test_evaluations_made_again_are_reported_apart_from_those_of_the_run(tmp_path: Path) -> None:
    run(tmp_path / "a", max_evals=40)
    upper, lower = Calls(F), Calls(f)
    before = bilevo.load(tmp_path / "a")
    result = run(tmp_path / "a", upper, lower)
    assert course(result) == course(run(tmp_path / "b"))
    made = upper.count + lower.count
    assert result.rechecked == 2 and made == result.nfev - before.nfev + 2


@pytest.mark.parametrize("how", ["by an option", "where an evaluation took long"])
def test_nothing_is_evaluated_again(how: str, tmp_path: Path, monkeypatch) -> None:
    if how != "by an option":
        monkeypatch.setattr(recheck, "MAX_CHECK_TIME", 0.0)
    told = resumed(tmp_path, *CHANGES["both"], recheck=how != "by an option")
    assert told == [] and bilevo.load(tmp_path).rechecked == 0


def test_a_run_that_has_ended_is_shown_without_an_evaluation(tmp_path: Path) -> None:
    run(tmp_path)
    upper, lower = Calls(F), Calls(f)
    run(tmp_path, upper, lower)
    assert upper.count == lower.count == 0


@pytest.mark.parametrize("method", ["drc-cma-es", "drc-race"])
def test_another_solver_than_before_gives_a_warning(method: str, tmp_path: Path, figure) -> None:
    """A follower that is no dataclass has no settings by which a run could know it."""

    class Offset(Walker):
        def best(self, state: Any) -> Any:
            y, *values = super().best(state)
            return y + 0.1 * self.on, *values

    Offset.__qualname__ = Walker.__qualname__
    options = {"method": method, "rng": 4}
    for on, limit in ((False, 60), (True, 120)):
        follower = Offset(6)
        follower.on = on
        with warnings.catch_warnings(record=True) as caught, suppress(Changed):  # or it ends there
            warnings.simplefilter("always")
            problem = solved_problem(follower)
            bilevo.minimize(problem, run_dir=tmp_path, max_evals=limit, **options)
    told = [str(warning.message) for warning in caught]
    assert any("the follower's first step at x = [" in text for text in told)
    figure(25, 1, "functions changed between two calls")


def test_the_same_solver_gives_no_warning(tmp_path: Path) -> None:
    for limit in (30, 60):
        result = bilevo.minimize(
            solved_problem(Exact()), run_dir=tmp_path, max_evals=limit, rng=4, method="drc-race"
        )
    assert result.rechecked == 2  # F at the best pair, and a step


def test_constraints_that_changed_give_a_warning(tmp_path: Path) -> None:
    def solve(limit: float, evals: int) -> None:
        bounds = [(-5, 10)]
        problem = bilevo.Problem(F, f, bounds, bounds, G=lambda x, y: [limit - x[0]], name="copy")
        bilevo.minimize(problem, run_dir=tmp_path, **{**SMALL, "max_evals": evals})

    solve(-9.0, 40)
    with pytest.warns(UserWarning, match=r"the violation at x = \["):
        solve(9.5, 70)


def test_a_failure_in_passing_is_called_so(tmp_path: Path) -> None:
    asked = []

    def fails_once(x: Any, y: Any) -> float:
        asked.append(1)
        if len(asked) == 1:
            raise ArithmeticError("no mesh")
        return F(x, y)

    (told,) = resumed(tmp_path, fails_once, on_failure="worst")
    assert "now fails: ArithmeticError: no mesh" in told


def test_vectorized_functions_may_round_otherwise_near_zero(tmp_path: Path) -> None:
    noise = iter([0.0] * 10_000)

    def upper(x: Any, y: Any) -> Any:
        return (x**2).sum(axis=1) * 1e-12 + next(noise)

    def lower(x: Any, y: Any) -> Any:
        return ((y - x) ** 2).sum(axis=1)

    for limit in (40, 70):
        bounds = [(-5, 10)]
        problem = bilevo.Problem(upper, lower, bounds, bounds, vectorized=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bilevo.minimize(problem, run_dir=tmp_path, **{**SMALL, "max_evals": limit})
        noise = iter([1e-13] * 10_000)
