"""DE/rand/1/bin by itself."""

import numpy as np
import pytest

from bilevo.algorithms.rivals.rand_de import RandDE
from bilevo.optimizers import Start


def test_finds_the_minimum_of_a_sphere() -> None:
    optimizer, rng = RandDE(population=20), np.random.default_rng(0)
    state = optimizer.start(Start.uniform(np.full(3, 0.3), rng), rng)
    for _ in range(100):
        points = optimizer.ask(state, rng)
        assert points.min() >= 0 and points.max() <= 1
        optimizer.tell(state, points, ((points - 0.3) ** 2).sum(axis=1), np.zeros(20))
    assert state.objective.min() < 1e-8


@pytest.mark.parametrize(("d", "size"), [(1, 5), (3, 15)])
def test_has_five_members_per_variable(d: int, size: int) -> None:
    rng = np.random.default_rng(0)
    state = RandDE().start(Start.uniform(np.full(d, 0.3), rng), rng)
    assert state.points.shape == (size, d)


def test_a_child_without_crossover_differs_from_its_parent_in_one_variable() -> None:
    optimizer, rng = RandDE(population=8, CR=0.0), np.random.default_rng(1)
    state = optimizer.start(Start.uniform(np.full(4, 0.3), rng), rng)
    optimizer.tell(state, optimizer.ask(state, rng), np.arange(8.0), np.zeros(8))
    changed = optimizer.ask(state, rng) != state.points
    assert (changed.sum(axis=1) == 1).all()
