"""Genetic operators and the steady-state search that they make up."""

import math

import numpy as np
import pytest

from bilevo.algorithms.rivals.steady_ga import SteadyGA
from bilevo.core.order import order_key
from bilevo.optimizers.variation import (
    WIDTH,
    adaptive_eta,
    distinct,
    entrants,
    parent_centric_crossover,
    polynomial_mutation,
    tournaments,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_distinct_draws_every_pair_equally_often(rng) -> None:
    draws = [tuple(distinct(rng.random(2).tolist(), 4)) for _ in range(6000)]
    counts = {pair: draws.count(pair) for pair in set(draws)}
    assert len(counts) == 12 and all(one != two for one, two in counts)
    assert all(400 < count < 600 for count in counts.values())


def test_tournaments_are_won_in_debs_order() -> None:
    keys = [order_key(5.0, 0.0), order_key(-9.0, 1.0), order_key(0.0, 2.0), order_key(4.0, 0.0)]
    assert tournaments([0, 1, 1, 2, 0, 3], keys) == [0, 1, 3]


def test_only_feasible_members_enter_when_there_are_enough(rng) -> None:
    keys = [order_key(float(i), float(i % 2)) for i in range(12)]
    among = entrants(keys, 6, rng.random(4).tolist())
    assert len(set(among)) == 4 and all(keys[i][0] == 0 for i in among)


def test_the_best_enter_when_few_are_feasible(rng) -> None:
    keys = [order_key(float(-i), 0.0 if i == 3 else 1.0 + i) for i in range(8)]
    assert entrants(keys, 7, rng.random(4).tolist()) == [3, 0, 1, 2]


def test_a_population_of_two_still_has_four_entrants(rng) -> None:
    keys = [order_key(1.0, 0.0), order_key(0.0, 0.0)]
    assert set(entrants(keys, 0, rng.random(4).tolist())) == {0, 1}


def test_crossover_stays_around_its_first_parent_with_the_stated_spread(rng) -> None:
    parents = np.array([[0.5, 0.5], [0.5, 0.4], [0.5, 0.6]])
    children = parent_centric_crossover(parents, rng, eta=0.5, children=20_000)
    assert children[:, 0] == pytest.approx(0.5)
    copies = (children[:, 1] == 0.5).mean()
    assert copies == pytest.approx(0.1, abs=0.01)
    # Half the difference of the others, 0.1, times eta.
    assert children[children[:, 1] != 0.5, 1].std() == pytest.approx(0.05, rel=0.03)


def test_the_adaptive_weight_is_the_inverse_distance_in_the_published_units() -> None:
    parents = np.array([[0.6], [0.3], [0.3]])
    assert adaptive_eta(parents) == pytest.approx(1 / (WIDTH * 0.2))
    assert adaptive_eta(np.full((3, 2), 0.4)) == 0


def test_mutation_changes_a_share_of_the_coordinates_within_its_scale(rng) -> None:
    points = np.full((4000, 5), 0.5)
    mutated = polynomial_mutation(points, rng, 0.2, index=20, scale=0.1)
    change = mutated - points
    assert (change != 0).mean() == pytest.approx(0.2, abs=0.02)
    assert np.abs(change).max() <= 0.1
    # The mean size is 1 / (index + 2), by integration.
    assert np.abs(change[change != 0]).mean() == pytest.approx(0.1 / 22, rel=0.05)
    assert (points == 0.5).all()


def test_operators_stay_in_the_box(rng) -> None:
    corner = np.array([[0.0, 1.0], [0.5, 0.2], [0.9, 0.9]])
    children = parent_centric_crossover(corner, rng, eta=5.0, children=500)
    mutated = polynomial_mutation(children, rng, 1.0)
    for points in (children, mutated):
        assert points.min() >= 0 and points.max() <= 1


def run(d: int, steps: int, f, v=lambda p: np.zeros(len(p)), seed: int = 1):
    rng = np.random.default_rng(seed)
    ga = SteadyGA()
    state = ga.start(rng.random((20, d)))
    for _ in range(steps):
        points = ga.ask(state, rng)
        ga.tell(state, points, f(points), v(points))
    return ga, state


def sphere(points):
    return ((points - 0.3) ** 2).sum(axis=1)


@pytest.mark.parametrize("d", [1, 3])
def test_the_search_finds_a_minimum_and_its_sums_agree_with_its_members(d: int) -> None:
    ga, state = run(d, 600, sphere)
    assert min(state.keys) == state.keys[state.best] and state.keys[state.best][1] < 1e-6
    assert state.members[state.best] == pytest.approx([0.3] * d, abs=1e-3)
    points = np.array(state.members)
    away = points - points.mean(axis=0)
    assert state.variance == pytest.approx((away**2).sum(), abs=1e-12)
    assert ga.exhausted(state)


def test_the_search_asks_for_its_population_once_and_then_for_two() -> None:
    ga, rng = SteadyGA(), np.random.default_rng(0)
    known = np.full(2, 0.3)
    state = ga.start(rng.random((8, 2)), [(known, (0.0, 0.0))])
    points = ga.ask(state, rng)
    assert points.shape == (8, 2)
    ga.tell(state, points, sphere(points), np.zeros(8))
    assert len(state.keys) == 9 and state.members[state.best] == known.tolist()
    assert ga.ask(state, rng).shape == (2, 2)


def test_an_infeasible_search_is_never_exhausted() -> None:
    def violation(points):
        return 1 + sphere(points)

    ga, state = run(2, 600, sphere, violation)
    assert state.infeasible == len(state.keys)
    assert state.variance < 1e-5 * state.first_variance and not ga.exhausted(state)


def test_failures_never_lead_where_something_is_finite() -> None:
    def f(points):
        return np.where(points[:, 0] < 0.5, math.inf, sphere(points))

    def violation(points):
        return np.where(points[:, 0] < 0.5, math.inf, 0.0)

    _, state = run(2, 300, f, violation)
    assert state.keys[state.best][0] == 0 and state.members[state.best][0] < 0.51
