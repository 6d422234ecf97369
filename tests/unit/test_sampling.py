"""Points that are spread over the unit box."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilevo.core.streams import stream
from bilevo.optimizers.sampling import latin_hypercube, lattice


@given(st.integers(1, 200), st.integers(1, 8), st.integers(0, 1000))
def test_a_lattice_has_a_point_in_each_slice_of_every_coordinate(
    count: int, d: int, seed: int
) -> None:
    points = lattice(count, d, np.random.default_rng(seed))
    assert points.shape == (count, d) and points.min() >= 0 and points.max() < 1
    for column in points.T:
        gaps = np.diff(np.sort(column))
        assert gaps.max(initial=0) < 2.001 / count


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
