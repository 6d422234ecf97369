"""Feasibility within a tolerance: `ctol`."""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from solvers import Exact, F

import bilevo
from bilevo.algorithms import DRCPlus
from bilevo.core.feasibility import (
    FIRST,
    LEAST,
    REMEMBERED,
    SMALL,
    Tolerance,
    ctol_of_levels,
    level_tolerances,
)
from bilevo.core.request import Level, Values
from bilevo.registry import methods
from bilevo.run.directory import snapshots_after

BAD = [-1e-9, math.nan, math.inf, 1j, "1e-9", True, (1e-9,), (1e-9, -1.0), (0, 0, 0)]


def on_a_line(**more: Any) -> bilevo.Problem:
    """The follower's y is on the line y0 + y1 = x; F* = 0.2 at x = 2.2, y = (0.6, 1.6)."""

    def h(x: Any, y: Any) -> float:
        return float(y[0] + y[1] - x[0])

    return bilevo.Problem(
        lambda x, y: (x[0] - 2) ** 2 + (y[0] - 1) ** 2,
        lambda x, y: (y[0] - 1) ** 2 + (y[1] - 2) ** 2,
        [(-5, 5)],
        [(-5, 5)] * 2,
        g=lambda x, y: [h(x, y), -h(x, y)],
        **more,
    )


def on_a_circle() -> bilevo.Problem:
    """The follower's y is on the circle of radius x, nearest to (3, 4): y = x (0.6, 0.8)."""

    def h(x: Any, y: Any) -> float:
        return float(y @ y - x[0] ** 2)

    return bilevo.Problem(
        lambda x, y: (x[0] - 2) ** 2 + (y[0] - 0.6) ** 2,
        lambda x, y: (y[0] - 3) ** 2 + (y[1] - 4) ** 2,
        [(1, 4)],
        [(-5, 5)] * 2,
        g=lambda x, y: [h(x, y), -h(x, y)],
    )


def leader_on_a_line() -> bilevo.Problem:
    """The leader has x0 + x1 = 1, and the follower copies x0: F* = 0.75."""
    return bilevo.Problem(
        lambda x, y: x[0] ** 2 + 2 * x[1] ** 2 + (y[0] - 1) ** 2,
        lambda x, y: (y[0] - x[0]) ** 2,
        [(-2, 2)] * 2,
        [(-3, 3)],
        G=lambda x, y: [x[0] + x[1] - 1, 1 - x[0] - x[1]],
    )


def violation_at(problem: bilevo.Problem, result: bilevo.Result) -> float:
    _, G, _, g = problem.evaluate(result.x, result.y)
    return float(np.maximum(G, 0).sum() + np.maximum(g, 0).sum())


@pytest.mark.parametrize("ctol", BAD, ids=lambda value: type(value).__name__)
def test_a_bad_ctol_is_refused_before_the_first_evaluation(ctol: Any) -> None:
    def never(x: Any, y: Any) -> float:
        raise AssertionError

    problem = bilevo.Problem(never, never, [(0, 1)], [(0, 1)])
    for use in (
        lambda: bilevo.minimize(problem, ctol=ctol),
        lambda: bilevo.Optimizer(problem, ctol=ctol),
        lambda: ctol_of_levels(ctol, 0.0),
    ):
        with pytest.raises(ValueError, match=r"ctol must be None, a finite number .* got "):
            use()
    result = bilevo.minimize(on_a_line(), max_evals=200)
    with pytest.raises(ValueError, match="ctol must be"):
        bilevo.verify(on_a_line(), result, ctol=ctol)


def test_ctol_is_for_both_levels_or_for_each() -> None:
    assert ctol_of_levels(None, 1e-9) == (1e-9, 1e-9)
    assert ctol_of_levels(0, 1e-9) == (0.0, 0.0)
    assert ctol_of_levels((1e-3, 0), 1e-9) == ctol_of_levels([1e-3, 0], 1e-9) == (1e-3, 0.0)


def test_published_methods_have_no_tolerance_of_their_own() -> None:
    ours = {name: method.make() for name, method in methods().items()}
    assert {name for name, made in ours.items() if made.ctol} == {
        "drc-plus",
        "drc-race",
        "few",
        "moves",
        "nested-ties",
        "trust-region",
    }


def test_a_constraint_counts_beyond_its_tolerance_only_and_then_in_full() -> None:
    constraints = np.array([[1e-9, 2.0], [1e-9, -1.0], [-1.0, 1e-9], [np.nan, 0.0], [np.inf, 0.0]])
    values = Values.of(np.zeros(5), constraints, 0, 5, np.array([1e-9, 1e-10]))
    assert values.violation.tolist() == [2.0, 0.0, 1e-9, math.inf, math.inf]
    assert values.constraints is constraints
    repeated = Values.of(np.zeros(5), constraints, 1, 5, np.array([1e-9, 1e-10]))
    assert repeated.violation.tolist()[:3] == [0.0, 0.0, 0.0]


numbers = st.floats(-1e6, 1e6) | st.just(math.nan) | st.just(math.inf)


@given(st.lists(st.tuples(numbers, numbers), min_size=40, max_size=80), st.data())
def test_scales_are_small_sizes_at_the_first_points_in_whatever_batches(
    rows: Any, data: Any
) -> None:
    constraints = np.array(rows)
    finite = constraints[np.isfinite(constraints).all(axis=1)][:FIRST]
    tolerance, start = Tolerance(Level.LOWER, 1e-9), 0
    while start < len(rows):
        end = start + data.draw(st.integers(1, 20))
        found = tolerance.of(constraints[start:end])
        start = end
    halves = np.abs(finite) / 2
    scales = 2 * np.quantile(halves, SMALL, axis=0) if len(finite) == FIRST else np.zeros(2)
    assert found.tolist() == np.maximum(1e-9 * scales, LEAST).tolist()
    assert len(tolerance.sizes) == (0 if tolerance.seen == FIRST else len(finite))


@pytest.mark.parametrize("size", [1, 7, 40])
def test_scales_are_set_once_there_are_enough_points(size: int) -> None:
    constraints = np.random.default_rng(size).normal(size=(40, 2)) * [1e3, 1e-3]
    tolerance = Tolerance(Level.LOWER, 1e-9)
    found = [tolerance.of(constraints[i : i + size]) for i in range(0, 40, size)]
    expected = np.maximum(1e-9 * np.quantile(np.abs(constraints[:FIRST]), SMALL, axis=0), LEAST)
    np.testing.assert_allclose(found[-1], expected, rtol=1e-12)
    early = [each for i, each in enumerate(found, 1) if i * size < FIRST]
    assert all(each.tolist() == [LEAST, LEAST] for each in early)


def test_the_latest_tolerated_points_are_remembered_and_those_that_were_best() -> None:
    tolerance, y = Tolerance(Level.UPPER, 1e-9), np.zeros(1)
    for i in range(5 * REMEMBERED):
        tolerance.remember(np.array([float(i)]), y, 1e-10 * (i + 1))
        assert tolerance.forgiven(np.zeros(1), y) == 1e-10
    assert tolerance.forgiven(np.array([5.0 * REMEMBERED - 1]), y) == 5e-10 * REMEMBERED
    assert tolerance.forgiven(np.array([-1.0]), y) == 0
    assert len(tolerance.points) == len(tolerance.amounts) <= 2 * REMEMBERED


@pytest.mark.rest
@pytest.mark.parametrize(
    ("problem", "best"),
    [(on_a_line(), 0.2), (on_a_circle(), 0.36 / 1.36), (leader_on_a_line(), 0.75)],
    ids=["follower's line", "follower's circle", "leader's line"],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_equalities_written_as_two_inequalities_are_met(
    problem: bilevo.Problem, best: float, seed: int
) -> None:
    result = bilevo.minimize(problem, rng=seed, max_evals=15_000)
    assert pytest.approx(best, abs=1e-6) == result.F
    assert result.feasible and result.success
    assert result.violation == pytest.approx(violation_at(problem, result), abs=1e-18)
    assert bilevo.verify(problem, result).confirmed


def test_the_scale_of_a_constraint_is_its_own() -> None:
    def scaled(x: Any, y: Any) -> Any:
        return 1e7 * np.array(on_a_line().g(x, y)) / 3

    problem = on_a_line()
    problem.g = scaled
    result = bilevo.minimize(problem, max_evals=15_000)
    assert pytest.approx(0.2, abs=1e-6) == result.F and result.feasible
    assert all(1e6 < scale < 2e7 for scale in result.constraint_scales[1])


def test_an_answer_on_a_constraint_is_not_lost_by_rounding() -> None:
    def solve(ctol: float) -> bilevo.Result:
        opt = bilevo.Optimizer(
            x_bounds=[(0, 1)], y_bounds=[(0, 1)], n_G=1, max_evals=300, ctol=ctol
        )
        while not opt.done:
            batch = opt.ask()
            x, y = batch.x[:, 0], batch.y[:, 0]
            if batch.level == "upper":
                # The constraint is met up to the last digit, and never quite.
                opt.tell(batch, (x - 0.5) ** 2, np.full((len(x), 1), 9e-16))
            else:
                opt.tell(batch, (y - x) ** 2)
        return opt.result

    tolerant, exact = solve(1e-9), solve(0)
    assert tolerant.feasible and tolerant.violation == 9e-16 and tolerant.F < 1e-8
    assert not exact.feasible and exact.violation == 9e-16
    assert "violates" in exact.message


class Own(DRCPlus):
    """A method from outside the package: all of its requests are checked."""


def test_best_pairs_within_the_tolerance_pass_the_checks_of_foreign_methods() -> None:
    result = bilevo.minimize(on_a_line(), method=Own(), max_evals=3000)
    assert result.feasible and pytest.approx(0.2, abs=1e-6) == result.F


def test_a_resumed_run_takes_the_same_course(tmp_path: Path) -> None:
    whole = bilevo.minimize(on_a_circle(), method="drc-plus", max_evals=1200)
    with snapshots_after(0.0), warnings.catch_warnings():
        warnings.simplefilter("error")
        for limit in (20, 45, 300, 800, 1200):
            part = bilevo.minimize(
                on_a_circle(), method="drc-plus", max_evals=limit, run_dir=tmp_path / "run"
            )
    assert (tmp_path / "run" / "snapshot.npz").exists()
    for name in (
        "F",
        "f",
        "violation",
        "within_ctol",
        "nfev",
        "nit",
        "message",
        "ctol",
        "constraint_scales",
    ):
        assert getattr(part, name) == getattr(whole, name)
    loaded = bilevo.load(tmp_path / "run")
    assert loaded.violation == whole.violation and loaded.feasible == whole.feasible


def test_a_run_with_another_ctol_is_refused(tmp_path: Path) -> None:
    bilevo.minimize(on_a_line(), max_evals=50, run_dir=tmp_path)
    with pytest.raises(bilevo.RunMismatch, match=r"ctol is .* there and .* here"):
        bilevo.minimize(on_a_line(), max_evals=50, run_dir=tmp_path, ctol=(1e-9, 1e-6))


def test_results_are_stored_with_their_tolerance(tmp_path: Path) -> None:
    result = bilevo.minimize(on_a_line(), max_evals=2000)
    result.save(tmp_path / "result.json")
    again = bilevo.Result.load(tmp_path / "result.json")
    assert again.feasible == result.feasible and again.ctol == result.ctol == (1e-9, 1e-9)
    assert again.constraint_scales == result.constraint_scales
    assert not replace(again, within_ctol=False, violation=1e-15).feasible


class Nearly(Exact):
    """Reports a violation that a solver's own tolerance explains."""

    def best(self, state: Any) -> tuple[Any, float, float]:
        return 0.5 * state, 0.0, 2e-10


@pytest.mark.parametrize(("ctol", "feasible"), [(None, True), ((0, 1e-10), False), (0, False)])
def test_the_violation_that_a_solver_reports_is_tolerated_up_to_ctol(
    ctol: Any, feasible: bool
) -> None:
    problem = bilevo.Problem(F, None, [(-5, 5)], [(-5, 5)], follower=Nearly())
    result = bilevo.minimize(problem, max_evals=200, ctol=ctol)
    assert result.violation == 2e-10 and result.feasible is feasible
    assert bilevo.verify(problem, result).confirmed is feasible


def test_levels_have_tolerances_of_their_own() -> None:
    made = level_tolerances((1e-9, 0.0), ((2.0,), ()))
    assert made[Level.UPPER].of(np.array([[7.0]])).tolist() == [2e-9]
    assert made[Level.LOWER].of(np.array([[7.0]])).tolist() == [0.0]
