"""GO-CMA-ES: groups solved one after another, and a follower with equally good answers."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import minimize_counted

import bilevo
from bilevo import Budget, Problem
from bilevo.algorithms.rivals.go_cma_es import Context, RestartingCMAES, Window, counted_parts
from bilevo.algorithms.rivals.grouping import Group
from bilevo.core.request import Evaluate, Incumbent, Level, Values
from bilevo.optimizers import Start
from bilevo.problems import get


def test_a_window_fills_in_the_other_variables_and_leaves_out_their_constraints() -> None:
    group = Group(
        np.array([1]), np.array([0]), foreign_G=np.array([True, False]), foreign_g=np.array([False])
    )
    context = Context(np.array([0.1, 0.2]), np.array([0.3, 0.4]), np.zeros(2), spent_before=5)

    def search():
        values = yield Evaluate(Level.UPPER, np.array([[0.9]]), np.array([[0.8]]))
        assert values.violation.tolist() == [2.0] and values.spent == 2
        yield Incumbent(np.array([0.9]), np.array([0.8]), 1.0, 2.0, 2.0)
        return "end"

    steps = Window(context, group).through(search())
    request = next(steps)
    assert (request.x.tolist(), request.y.tolist()) == ([[0.1, 0.9]], [[0.8, 0.4]])
    best = steps.send(Values.of(np.ones(1), np.array([[3.0, 2.0]]), repeats=0, spent=7))
    assert (best.x.tolist(), best.y.tolist(), best.violation) == ([0.1, 0.9], [0.8, 0.4], 5.0)
    with pytest.raises(StopIteration, match="end"):
        next(steps)


def test_repeated_constraints_do_not_count() -> None:
    constraints = np.array([[1.0, -2.0, 3.0], [-1.0, -1.0, 4.0], [0.5, 0.5, 0.0]])
    values = Values.of(np.zeros(3), constraints, repeats=1, spent=3)
    assert counted_parts(values).tolist() == [[1, 0, 0], [0, 0, 0], [0.5, 0.5, 0]]


def test_a_follower_that_does_not_care_answers_as_the_leader_likes() -> None:
    result = minimize_counted(get("smd6"), method="go-cma-es", rng=1)
    assert result.status == "target"
    assert result.nfev_upper == pytest.approx(916, rel=0.25)  # as printed


def test_constraints_that_other_groups_violate_do_not_hide_an_objective() -> None:
    """Check a constraint on the sum of x[0] and y[0], which y[1] does not change."""
    problem = Problem(
        lambda x, y: ((x - 2) ** 2).sum(axis=1) + (y**2).sum(axis=1),
        lambda x, y: (y[:, 0] - x[:, 0]) ** 2 + (y[:, 1] - 1) ** 2,
        [(-3, 3)] * 2,
        [(-3, 3)] * 2,
        g=lambda x, y: 0.5 - x[:, :1] - y[:, :1],
        vectorized=True,
    )
    for seed in range(3):
        quick = Budget(upper_max=150, lower_max=100)
        result = minimize_counted(problem, method="go-cma-es", rng=seed, budget=quick)
        assert result.y[1] == pytest.approx(1, abs=1e-3)
        assert result.x[1] == pytest.approx(2, abs=1e-2) and result.feasible


def test_a_target_is_met_in_the_last_group_only() -> None:
    result = minimize_counted(get("smd1"), method="go-cma-es", rng=5, target=1e3)
    assert result.status == "target"
    assert abs(result.y[:2]).max() < 1e-3  # the follower's own variables are solved nevertheless


def test_starts_from_x0() -> None:
    problem, x0 = get("smd1"), [4.0, -3.0]
    result = minimize_counted(problem, method="go-cma-es", x0=x0, max_evals=1200, target=False)
    assert result.x[0] == 4.0  # the last group, not yet searched


def test_a_leader_alone_starts_anew_instead_of_waiting() -> None:
    optimizer, rng = RestartingCMAES(), np.random.default_rng(1)
    state = optimizer.start(Start(np.array([0.5]), np.array([[1e-18]]), np.zeros(1)))
    spread = np.ptp(optimizer.ask(state, rng))
    assert spread > 0.01 and not optimizer.exhausted(state)


def test_short_budgets_end_every_group() -> None:
    short = Budget(lower_max=10, upper_max=10)
    result = bilevo.minimize(get("smd1", 10, 10), method="go-cma-es", budget=short)
    assert result.status in ("budget", "stagnation") and np.isfinite(result.F)
