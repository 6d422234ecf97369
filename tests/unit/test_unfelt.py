"""Leader variables that the follower does not feel: found, searched exactly, and given up."""

import math

import numpy as np
import pytest

import bilevo
from bilevo.core.arrays import FloatArray


def solved(F, f, size: int = 2, seed: int = 1, **options) -> bilevo.Result:
    problem = bilevo.Problem(F, f, [(-5, 10)] * size, [(-5, 10)])
    return bilevo.minimize(problem, rng=seed, **options)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.rest)])
def test_a_kink_in_an_unfelt_variable_is_met_exactly(seed: int) -> None:
    def F(x: FloatArray, y: FloatArray) -> float:
        return abs(x[0] - math.pi) + abs(x[2] + 1) + (x[1] - 1) ** 2 + (y[0] - 1) ** 2

    result = solved(F, lambda x, y: (y[0] - x[1]) ** 2 + x[0] ** 2 + x[2], size=3, seed=seed)
    assert abs(result.x[0] - math.pi) < 3e-6 and abs(result.x[2] + 1) < 3e-6
    assert 0 <= result.F < 3e-6 and result.success


def test_many_basins_in_unfelt_variables_cost_evaluations_of_the_leader_only() -> None:
    def F(x: FloatArray, y: FloatArray) -> float:
        return 10 - 10 * math.cos(2 * math.pi * x[0]) + x[0] ** 2 + (x[1] - y[0]) ** 2 + y[0] ** 2

    result = solved(F, lambda x, y: (y[0] - x[1]) ** 2 + x[0] ** 2, max_evals=4000, target=0.0)
    assert result.F < 1e-6 and result.status == "target"


def test_a_variable_that_is_felt_in_a_part_of_the_box_only_is_given_up() -> None:
    def answer(x: FloatArray) -> float:  # x[0] moves the answer, but only beyond 4
        return x[1] + max(0.0, x[0] - 4)

    def F(x: FloatArray, y: FloatArray) -> float:
        return -x[0] + (y[0] - 1) ** 2 + x[1] ** 2

    for seed in (1, 2, 3):
        result = solved(F, lambda x, y: (y[0] - answer(x)) ** 2, seed=seed)
        assert abs(result.y[0] - answer(result.x)) < 1e-4
        # With d = x[0] - 4 and x[1] = u, F is -4 - d + (u + d - 1)^2 + u^2, least at u = -1/2.
        assert np.allclose(result.x, [6, -0.5], atol=1e-3) and pytest.approx(-5.5) == result.F


@pytest.mark.rest
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_smd8_with_ten_variables_is_solved(seed: int) -> None:
    result = bilevo.minimize(bilevo.problems.get("smd8", 10, 10), rng=seed)
    assert result.success and result.F < 1e-6 and result.nfev < 100_000
