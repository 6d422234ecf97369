"""Distances that many variables do not overflow."""

import math

import numpy as np

from bilevo.core.arrays import fractional_distances


def test_distances_are_relative_to_the_largest_whose_log_is_told() -> None:
    x = np.array([[0.0, 0.0], [0.1, 0.4], [0.9, 0.2]])
    raw = (np.abs(x[:, None] - x[None]) ** 0.5).sum(axis=2) ** 2
    relative, largest = fractional_distances(x)
    np.testing.assert_allclose(relative * math.exp(largest), raw)


def test_distances_of_many_variables_are_finite() -> None:
    relative, largest = fractional_distances(np.random.default_rng(1).random((6, 500)))
    assert np.isfinite(relative).all() and 700 < largest < math.inf


def test_equal_points_have_no_distance() -> None:
    relative, largest = fractional_distances(np.zeros((3, 2)))
    assert not relative.any() and largest == -math.inf
