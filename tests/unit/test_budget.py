"""Budgets, limits, scales and the stagnation rule."""

import math
from itertools import pairwise

import numpy as np
import pytest

from bilevo import Budget
from bilevo.core.budget import FullBudget, Limits, Scale, change_over


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        ((2, 3), (2500, 350, 250, 25)),
        ((5, 5), (3500, 500, 350, 35)),
        ((10, 10), (5000, 750, 500, 50)),
        ((30, 30), (12500, 750, 1000, 50)),
    ],
)
def test_published_sizes_get_the_published_settings(size, settings) -> None:
    assert FullBudget.for_size(*size) == FullBudget(*settings)


def test_defaults_grow_with_the_size() -> None:
    sizes = [(1, 1), (2, 2), (4, 6), (10, 20), (30, 30), (60, 60), (200, 300)]
    budgets = [FullBudget.for_size(*size) for size in sizes]
    for smaller, larger in pairwise(budgets):
        assert smaller.upper_max <= larger.upper_max
        assert smaller.lower_max <= larger.lower_max
    assert budgets[-1].upper_max > 12500


def test_any_field_can_be_overridden() -> None:
    mine = Budget(lower_max=77).over(FullBudget.for_size(2, 3))
    assert mine == FullBudget(2500, 350, 77, 25)


@pytest.mark.parametrize("bad", [0, -5, 2.5, "10", True])
def test_budgets_and_limits_refuse_what_is_no_count(bad) -> None:
    with pytest.raises(ValueError, match=r"budget\.lower_max must be a positive whole number"):
        Budget(lower_max=bad)
    with pytest.raises(ValueError, match="max_evals must be a positive whole number"):
        Limits.of(max_evals=bad)


def test_time_limits_must_be_positive() -> None:
    for bad in (0, -1, math.nan):
        with pytest.raises(ValueError, match="max_time must be a positive number"):
            Limits.of(max_time=bad)


def test_change_over_looks_back_by_the_window() -> None:
    record = [10.0, 5.0, 3.0, 2.5]
    assert change_over(record, 3) == (2.5, pytest.approx(2.5 / 12.5))
    assert change_over(record, 4) == (math.inf, math.inf)
    assert change_over([math.inf] * 5, 3) == (0.0, 0.0)
    assert not change_over([math.inf, math.inf, 1.0], 2)[0] < math.inf


def test_change_is_relative_to_the_first_finite_value() -> None:
    """A search whose first population failed has not settled because of that."""
    change, relative = change_over([math.inf, 1e6, 1e5, 1e4, 1e3], 4)
    assert change == 1e6 - 1e3
    assert relative > 0.05


@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1.0, 1e3, 1e8])
def test_tolerances_follow_the_unit_of_the_objective(unit: float) -> None:
    scale = Scale()
    scale.see(unit * np.array([1.0, 50.0, 120.0, 60.0, np.inf]))
    relative = scale.tolerance(1e-5) / unit
    assert 1e-9 <= relative <= 1e-3


def test_tolerances_are_the_published_ones_for_ordinary_objectives() -> None:
    scale = Scale()
    scale.see(np.array([1.0, 50.0, 120.0]))
    assert scale.tolerance(1e-5) == 1e-5
    scale.see(np.array([1e9, 5e9]))  # only the first values count
    assert scale.tolerance(1e-5) == 1e-5


def test_values_without_a_difference_leave_the_scale_open() -> None:
    scale = Scale()
    scale.see(np.full(5, 3.0))
    scale.see(np.full(5, np.inf))
    scale.see(20.0 + 1e-14 * np.arange(5))  # rounding
    assert scale.factor is None and scale.tolerance(1e-5) == 1e-5
