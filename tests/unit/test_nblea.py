"""NBLEA: how followers are solved, and the results of the leader."""

import numpy as np
import pytest
from conftest import minimize_counted, quadratic

from bilevo import Budget, Problem
from bilevo.algorithms import NBLEA
from bilevo.problems import get

SHORT = Budget(lower_max=100, upper_max=120)
PER_FOLLOWER = 6 + 5 * 2 + 1  # (n + 1)(n + 2) / 2 + 5 n points and the answer, n = 2


def test_a_quadratic_follower_costs_a_model_and_its_answer() -> None:
    result = minimize_counted(quadratic(), method=NBLEA(), rng=1, budget=SHORT, target=False)
    assert result.nfev_upper == 120
    assert result.nfev_lower == 120 * PER_FOLLOWER
    assert result.y == pytest.approx(result.x, abs=1e-6)
    assert all(set(row.executions) == {1} for row in result.history)


def test_without_the_models_every_follower_is_searched() -> None:
    method = NBLEA(quadratic=False)
    assert method.name != NBLEA().name
    result = minimize_counted(quadratic(), method=method, rng=1, budget=SHORT, target=False)
    assert result.nfev_lower >= 120 * 90
    assert min(result.history[-1].executions) > 20


def test_another_follower_needs_the_search() -> None:
    result = minimize_counted(get("smd1"), method="nblea", rng=1, budget=SHORT)
    assert min(result.history[-1].executions) > 20


def test_a_constrained_quadratic_follower_is_met_exactly() -> None:
    problem = Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float((y - x) @ (y - x)),
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        g=lambda x, y: np.array([1.0 - y[0]]),
    )
    result = minimize_counted(problem, method="nblea", rng=2, budget=SHORT)
    assert result.violation == 0
    assert result.y[0] == pytest.approx(max(1.0, result.x[0]), abs=1e-5)
    assert result.nfev_lower == result.nfev_upper * PER_FOLLOWER


@pytest.mark.rest
def test_open_directions_of_the_follower_serve_the_leader() -> None:
    """Check SMD6, whose follower leaves a line of answers open, of which the leader wants one."""
    runs = [
        minimize_counted(get("smd6"), method="nblea", rng=seed, max_evals=25_000)
        for seed in range(3)
    ]
    assert np.median([run.F for run in runs]) < 0.1 < np.median([run.history[0].F for run in runs])


def test_a_start_point_is_a_member_of_the_first_population() -> None:
    x0 = np.array([0.01, -0.02])
    result = minimize_counted(
        quadratic(), method="nblea", rng=1, x0=x0, budget=Budget(upper_max=50), target=False
    )
    assert 2.001 * float(x0 @ x0) > result.F


@pytest.mark.parametrize("method", ["nblea", "bleaq2"])
def test_there_is_an_answer_before_all_first_followers_are_solved(method: str) -> None:
    result = minimize_counted(get("smd1"), method=method, rng=1, max_evals=4_000)
    assert result.nit == 0 and np.isfinite(result.F)


def test_a_population_too_small_to_breed_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        NBLEA(population=3)
