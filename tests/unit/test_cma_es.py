"""CMA-ES against the `cmaes` package and by its properties."""

import math

import numpy as np
import pytest
from cmaes import CMA
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevo.optimizers.cma_es import CMAES, parameters
from bilevo.optimizers.cma_kernels import inside, roots
from bilevo.optimizers.protocol import Start


def sphere(v):
    return (v**2).sum(axis=1)


def ellipsoid(v):
    return (v**2 * np.logspace(0, 4, v.shape[1])).sum(axis=1)


def rosenbrock(v):
    return (100 * (v[:, 1:] - v[:, :-1] ** 2) ** 2 + (v[:, :-1] - 1) ** 2).sum(axis=1)


WIDE = 10.0  # functions live in [-5, 5], the optimizer in the unit box


def our_evaluations(function, d: int, seed: int, accuracy: float = 1e-8, most: int = 60_000) -> int:
    cma, rng = CMAES(), np.random.default_rng(seed)
    start = Start(rng.uniform(0.3, 0.7, d), 0.04 * np.eye(d), np.zeros(d))
    state = cma.start(start)
    used = 0
    while used < most:
        points = cma.ask(state, rng)
        values = function((points - 0.5) * WIDE)
        used += len(points)
        cma.tell(state, points, values, np.zeros(len(points)))
        if values.min() < accuracy:
            break
    return used


def their_evaluations(function, d: int, seed: int, accuracy: float = 1e-8) -> int:
    rng = np.random.default_rng(seed)
    cma = CMA(mean=(rng.uniform(0.3, 0.7, d) - 0.5) * WIDE, sigma=0.2 * WIDE, seed=seed)
    used = 0
    while used < 60_000:
        points = [cma.ask() for _ in range(cma.population_size)]
        values = function(np.array(points))
        used += len(points)
        cma.tell(list(zip(points, values.tolist(), strict=True)))
        if values.min() < accuracy:
            break
    return used


@pytest.mark.rest
@pytest.mark.parametrize(("function", "d"), [(sphere, 5), (ellipsoid, 5), (rosenbrock, 4)])
def test_needs_the_same_order_of_evaluations_as_the_cmaes_package(function, d: int) -> None:
    ours = np.median([our_evaluations(function, d, seed) for seed in range(11)])
    theirs = np.median([their_evaluations(function, d, seed) for seed in range(11)])
    assert 0.6 < ours / theirs < 1.6


def test_works_in_one_dimension() -> None:
    assert our_evaluations(sphere, 1, seed=3) < 1000


def test_population_size_and_weights_are_the_standard_ones() -> None:
    assert [CMAES().population_size(d) for d in (1, 3, 5, 10, 20, 60)] == [4, 7, 8, 10, 12, 16]
    _, (weights,), _, rates = parameters(5, 8)
    assert weights.sum() == pytest.approx(1)
    assert np.all(np.diff(weights) < 0)
    assert rates[4] >= 0  # 1 - c_1 - c_mu


def test_a_population_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4, got 3"):
        CMAES(population=3)


@settings(max_examples=60)
@given(
    d=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    function=st.sampled_from([sphere, ellipsoid, lambda v: np.zeros(len(v)), lambda v: -v[:, 0]]),
    violated=st.booleans(),
)
def test_covariance_stays_symmetric_positive_and_points_stay_inside(
    d: int, seed: int, function, violated: bool
) -> None:
    rng = np.random.default_rng(seed)
    cma = CMAES()
    state = cma.start(Start.uniform(np.full(d, 0.3), rng))
    for _ in range(60):
        points = cma.ask(state, rng)
        assert np.all(points >= 0) and np.all(points <= 1)
        violation = rng.random(len(points)) * violated
        cma.tell(state, points, function(points), violation)
        assert np.array_equal(state.C, state.C.T)
        assert np.linalg.eigvalsh(state.C)[0] > -1e-12 * np.trace(state.C)
        assert np.isfinite(state.C).all() and 0 < state.sigma < math.inf


@settings(max_examples=100)
@given(d=st.integers(1, 8), seed=st.integers(0, 2**32), spread=st.floats(0, 25))
def test_roots_of_any_covariance_are_finite(d: int, seed: int, spread: float) -> None:
    """Check that matrices that are ill-conditioned, singular or not quite positive are repaired."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    eigenvalues = 10.0 ** rng.uniform(-spread, spread / 2, d)
    eigenvalues[rng.random(d) < 0.3] = 0.0
    C = (basis * eigenvalues) @ basis.T
    C = (C + C.T) / 2
    root, inverse, _ = roots(C)
    assert np.isfinite(root).all() and np.isfinite(inverse).all()
    assert np.allclose(root @ root, C, rtol=1e-6, atol=1e-9 * np.abs(C).max())
    eigenvalues = np.linalg.eigvalsh(C)
    assert eigenvalues[-1] <= 1.1e14 * abs(eigenvalues[0]) + 1e-290


def test_points_outside_go_half_way_to_the_bound() -> None:
    mean = np.array([0.2, 0.6])
    points = inside(np.array([[-3.0, 0.5], [0.1, 1.5]]), mean)
    assert points.tolist() == [[0.1, 0.5], [0.1, 0.8]]
    outside = inside(np.array([[5.0, 0.5]]), np.array([3.0, 0.5]))  # a mean outside the box
    assert outside.tolist() == [[1.0, 0.5]]


def test_mixing_with_weights_that_add_up_to_one_keeps_equal_searches() -> None:
    cma, rng = CMAES(), np.random.default_rng(1)
    start = Start.uniform(np.full(3, 0.3), rng)
    one, two = cma.start(start), cma.start(start)
    cma.mix(one, 0.4, [two], [0.6])
    np.testing.assert_allclose(one.mean, two.mean)
    np.testing.assert_allclose(one.C, two.C)


def test_marginal_carries_the_step_size() -> None:
    cma, rng = CMAES(), np.random.default_rng(1)
    state = cma.start(Start.uniform(np.full(4, 0.3), rng))
    state.sigma, state.p_c[:] = 2.0, np.arange(4.0)
    marginal = cma.marginal(state, first=1)
    np.testing.assert_allclose(marginal.covariance, 4 * 0.09 * np.eye(3))
    np.testing.assert_allclose(marginal.path, [2.0, 4.0, 6.0])
    np.testing.assert_allclose(marginal.mean, state.mean[1:])
