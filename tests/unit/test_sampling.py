"""Points that are spread over the unit box."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilevo.algorithms.shared.blocks import spread_points
from bilevo.core.streams import stream
from bilevo.optimizers.sampling import latin_hypercube, lattice


@given(st.integers(1, 200), st.integers(1, 8), st.integers(0, 1000))
def test_a_lattice_has_a_point_in_each_slice_of_every_coordinate(
    count: int, d: int, seed: int
) -> None:
    points = lattice(count, d, np.random.default_rng(seed))
    assert points.shape == (count, d) and points.min() >= 0 and points.max() < 1
    units = sum(math.gcd(k, count) == 1 for k in range(count))
    for column in points.T:
        gaps = np.diff(np.sort(column))
        assert gaps.max(initial=0) < 2.001 / count
        assert units < 2 * d or gaps == pytest.approx(1 / count)  # else a Latin hypercube


def is_met(points: np.ndarray, place: np.ndarray, radius: float) -> bool:
    return bool((np.linalg.norm(points - place, axis=1) < radius).any())


@pytest.mark.parametrize(
    ("d", "count", "radius"), [(1, 100, 0.006), (2, 300, 0.05), (3, 300, 0.12)]
)
def test_a_small_ball_seldom_falls_between_the_points_of_a_lattice(
    d: int, count: int, radius: float
) -> None:
    met = {lattice: 0, latin_hypercube: 0}
    for seed in range(200):
        place = stream(seed, "place").uniform(radius, 1 - radius, d)
        for spread in met:
            met[spread] += is_met(spread(count, d, stream(seed, "points")), place, radius)
    assert met[lattice] >= 196 and met[lattice] > met[latin_hypercube]


def test_points_for_independent_followers_fill_the_box_of_each_one() -> None:
    blocks = (slice(0, 2), slice(2, 4), slice(4, 6))
    for seed in range(20):
        points = spread_points(448, 6, blocks, stream(seed, "points"))
        places = stream(seed, "places").uniform(0.1, 0.9, (200, 2))
        for block in blocks:
            away = np.linalg.norm(places[:, None] - points[:, block], axis=2).min(axis=1)
            assert away.max() < 0.1
        order = [points[:, block.start].argsort().tolist() for block in blocks]
        assert order[0] != order[1]
