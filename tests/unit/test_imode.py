"""IMODE by itself."""

from collections.abc import Callable

import numpy as np
import pytest

from bilevo.optimizers import IMODE, Start
from bilevo.optimizers.imode import IMODEState, exponential, operator_chances

Function = Callable[[np.ndarray], np.ndarray]


def search(
    f: Function, d: int, budget: int, seed: int = 0, violation: Function | None = None
) -> tuple[float, IMODEState, list[int]]:
    """Return the best feasible value of a budget, the last state, and all generations' sizes."""
    optimizer, rng = IMODE(budget=budget), np.random.default_rng(seed)
    state = optimizer.start(Start.uniform(np.full(d, 0.3), rng), rng)
    best, sizes = np.inf, []
    while sum(sizes) < budget:
        points = optimizer.ask(state, rng)
        assert points.min() >= 0 and points.max() <= 1
        values, excess = (
            f(points),
            np.zeros(len(points)) if violation is None else violation(points),
        )
        optimizer.tell(state, points, values, excess)
        best = min(best, values[excess == 0].min(initial=np.inf))
        sizes.append(len(points))
    return best, state, sizes


def sphere(u: np.ndarray) -> np.ndarray:
    return ((u - 0.3) ** 2).sum(axis=1)


def ellipsoid(u: np.ndarray) -> np.ndarray:
    return ((u - 0.3) ** 2) @ 10.0 ** (6 * np.arange(u.shape[1]) / (u.shape[1] - 1))


def rastrigin(u: np.ndarray) -> np.ndarray:
    z = 10 * (u - 0.3)
    return (10 + z**2 - 10 * np.cos(2 * np.pi * z)).sum(axis=1)


@pytest.mark.parametrize(("f", "accuracy"), [(sphere, 1e-10), (ellipsoid, 1e-6), (rastrigin, 1e-3)])
def test_finds_the_minimum(f: Function, accuracy: float) -> None:
    assert np.median([search(f, 5, 5000, seed)[0] for seed in range(5)]) < accuracy


def test_finds_a_minimum_on_bounds() -> None:
    best, _, _ = search(lambda u: (u @ [1.0, -2.0, 0.0]) + (u[:, 2] - 0.4) ** 2, 3, 3000)
    assert best == pytest.approx(-2.0, abs=1e-4)


def test_finds_a_minimum_on_a_constraint() -> None:
    best, _, _ = search(sphere, 3, 3000, violation=lambda u: np.maximum(0, 1.5 - u.sum(axis=1)))
    assert best == pytest.approx(3 * 0.2**2, rel=1e-3)


def test_shrinks_its_population_to_four_within_its_budget() -> None:
    _, state, sizes = search(sphere, 2, 1000)
    assert sizes[0] == 36 and sizes[-1] <= 6
    assert sizes == sorted(sizes, reverse=True)
    assert len(state.archive) <= 3 * 36


def test_goes_on_beyond_its_budget_with_four_members() -> None:
    optimizer, rng = IMODE(budget=50), np.random.default_rng(0)
    state = optimizer.start(Start.uniform(np.full(1, 0.3), rng), rng)
    for _ in range(30):
        points = optimizer.ask(state, rng)
        optimizer.tell(state, points, sphere(points), np.zeros(len(points)))
    assert len(points) == 4


def test_better_members_are_changed_less() -> None:
    optimizer, rng = IMODE(population=20), np.random.default_rng(1)
    state = optimizer.start(Start.uniform(np.full(3, 0.3), rng), rng)
    points = optimizer.ask(state, rng)
    optimizer.tell(state, points, sphere(points), np.zeros(20))
    optimizer.ask(state, rng)
    assert (np.diff(state.CR[state.best_first]) >= 0).all()


def test_outlives_values_that_are_all_infinite() -> None:
    optimizer, rng = IMODE(), np.random.default_rng(0)
    state = optimizer.start(Start.uniform(np.full(2, 0.3), rng), rng)
    worst = np.full(36, np.inf)
    for values in (worst, worst, None):
        points = optimizer.ask(state, rng)
        failed = worst[: len(points)]
        told = failed if values is not None else sphere(points)
        optimizer.tell(state, points, told, failed if values is not None else np.zeros(len(points)))
    assert np.isfinite(state.objective).all()


def test_operators_that_gain_more_are_used_more() -> None:
    operator = np.array([0, 0, 1, 1, 2, 2])
    chances = operator_chances(operator, np.array([4.0, 4.0, 2.0, 0.0, 0.0, 0.0]))
    assert chances == pytest.approx([0.8, 0.2, 0.1])
    assert operator_chances(operator, np.zeros(6)) == pytest.approx(1 / 3)
    assert operator_chances(operator[:4], np.ones(4)) == pytest.approx(1 / 3)


def test_exponential_crossover_takes_a_run() -> None:
    rng = np.random.default_rng(0)
    crossed = exponential(200, 6, np.full(200, 0.7), rng)
    assert crossed.any(axis=1).all()
    assert (np.abs(np.diff(crossed.astype(int), axis=1)).sum(axis=1) <= 2).all()


@pytest.mark.parametrize("settings", [{"population": 3}, {"budget": 0}])
def test_refuses_settings_it_cannot_use(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        IMODE(**settings)
