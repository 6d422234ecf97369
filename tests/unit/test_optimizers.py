"""The one-level optimizers alone: they solve textbook problems in the box and keep its bounds."""

import numpy as np
import pytest

from bilevo import CMAES, DE, GA, PSO
from bilevo.core.streams import stream
from bilevo.optimizers import IMODE, Start

D = 5
OPTIMUM = np.array([0.37, 0.2, 1.0, 0.0, 0.71])  # two of its coordinates on a bound
OPTIMIZERS = [CMAES(20), DE(20), GA(20), IMODE(20), PSO(20)]


def sphere(points):
    return ((points - OPTIMUM) ** 2).sum(axis=1)


def ellipsoid(points):
    return (10.0 ** np.arange(D) * (points - OPTIMUM) ** 2).sum(axis=1)


def rastrigin(points):
    z = 10 * (points - OPTIMUM)
    return (z**2 - 10 * np.cos(2 * np.pi * z) + 10).sum(axis=1)


def search(optimizer, function, seed, generations=200, violation=None, extra=0):
    """Return the best value of a search, and check that every point is inside the box."""
    rng = stream(seed, "test")
    state = optimizer.start(Start.uniform(np.full(D, 0.3), rng), rng)
    best = np.inf
    for _ in range(generations):
        points = optimizer.ask(state, rng)
        assert points.min() >= 0 and points.max() <= 1
        points = np.concatenate([points, np.full((extra, D), 0.5)])
        values = function(points)
        violations = np.zeros(len(points)) if violation is None else violation(points)
        best = min(best, *values[violations == 0], np.inf)
        optimizer.tell(state, points, values, violations)
    return best


def medians(optimizer, function, **options):
    return np.median([search(optimizer, function, seed, **options) for seed in range(5)])


name = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)


@pytest.mark.rest
@name
def test_solves_the_sphere(optimizer) -> None:
    assert medians(optimizer, sphere) < 1e-6


@name
def test_solves_an_ellipsoid_of_condition_ten_thousand(optimizer) -> None:
    assert medians(optimizer, ellipsoid) < 1e-3


@name
def test_comes_near_the_best_of_rastrigins_ten_thousand_optima(optimizer) -> None:
    """Compare with about 90 at a random point and about 40 at a random local optimum."""
    assert medians(optimizer, rastrigin) < 6


@name
def test_keeps_a_constraint_that_excludes_the_optimum(optimizer) -> None:
    def beyond(points):
        return np.maximum(0.0, 0.5 - points[:, 0])

    assert medians(optimizer, sphere, violation=beyond) == pytest.approx(0.13**2, abs=1e-3)


@name
def test_learns_from_points_it_did_not_ask_for_and_from_failures(optimizer) -> None:
    def failing(points):
        values = sphere(points)
        return np.where(points[:, 0] > 0.6, np.inf, values)

    def failed(points):
        return np.where(points[:, 0] > 0.6, np.inf, 0.0)

    assert medians(optimizer, failing, violation=failed, extra=2) < 1e-4


@name
def test_a_mixture_moves_a_search_towards_others(optimizer) -> None:
    """Check that a search in one corner, mixed with one in the opposite, has points in between."""
    rng = stream(3, "test")
    near = Start(np.full(D, 0.1), 1e-4 * np.eye(D), np.zeros(D))
    far = Start(np.full(D, 0.9), 1e-4 * np.eye(D), np.zeros(D))
    own, other = optimizer.start(near, rng), optimizer.start(far, rng)
    for state in (own, other):
        points = optimizer.ask(state, rng)
        optimizer.tell(state, points, sphere(points), np.zeros(len(points)))
    alone = optimizer.ask(own, rng).mean(axis=1).max()
    optimizer.mix(own, 0.5, [other], [0.5])
    assert alone < 0.35 < optimizer.ask(own, rng).mean(axis=1).max()


@name
def test_a_search_that_has_contracted_is_exhausted(optimizer) -> None:
    rng = stream(4, "test")
    state = optimizer.start(Start(np.full(D, 0.4), 0.01 * np.eye(D), np.zeros(D)), rng)
    generations = 0
    while generations == 0 or not optimizer.exhausted(state):
        points = optimizer.ask(state, rng)
        optimizer.tell(state, points, sphere(points), np.zeros(len(points)))
        generations += 1
    assert 3 < generations < 500


@pytest.mark.parametrize("kind", [CMAES, DE, GA, IMODE, PSO])
def test_a_population_too_small_is_refused(kind) -> None:
    with pytest.raises(ValueError, match="at least 4, got 3"):
        kind(3)
    with pytest.raises(ValueError, match="positive whole number"):
        kind(2.5)


@name
@pytest.mark.parametrize("d", [1, 2])
def test_works_in_few_dimensions(optimizer, d) -> None:
    rng = stream(5, "test")
    state = optimizer.start(Start.uniform(np.full(d, 0.3), rng), rng)
    for _ in range(60):
        points = optimizer.ask(state, rng)
        values = ((points - 0.4) ** 2).sum(axis=1)
        optimizer.tell(state, points, values, np.zeros(len(points)))
    assert values.min() < 1e-3
