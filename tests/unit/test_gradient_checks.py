"""The check of users' gradients against differences, and verification with gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gradients as made
import numpy as np
import pytest
from gradients import Descent, M, N, smooth

import bilevo
from bilevo.algorithms.shared.gradients import check_gradients, follower_slopes
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure
from bilevo.core.slopes import WrongGradient
from bilevo.core.streams import stream
from bilevo.testing import CountingProblem, Driven


@dataclass(frozen=True)
class Checking(Descent):
    """A method that checks gradients before it begins."""

    name = "checking"

    def init(self, spec: Spec) -> Procedure[Any]:
        yield from check_gradients(spec, stream(spec.seed, "check"))
        return (yield from super().init(spec))


def check(problem: bilevo.Problem, **options: Any) -> bilevo.Result:
    return bilevo.minimize(problem, method=Checking(generations=1), **options)


@pytest.mark.parametrize("seed", range(5))
def test_right_gradients_pass_at_the_price_of_four_evaluations_of_each_level(seed: int) -> None:
    counting = CountingProblem(smooth())
    result = counting.minimize(method=Checking(generations=1), rng=seed)
    assert (result.nfev_upper, result.nfev_lower) == (3 + 4, 3 + 4)
    assert (result.njev_upper, result.njev_lower) == (3 + 1, 3 + 1)


def test_gradients_along_y_alone_cost_two() -> None:
    result = check(smooth(f_jac=made.f_y, g_jac=None))
    assert (result.nfev_upper, result.nfev_lower, result.njev_lower) == (7, 3 + 2, 3 + 1)


def wrong(name: str, part: int, entry: Any, factor: float) -> Callable[..., Any]:
    """A gradient with one entry that is wrong by a factor."""

    def call(x: np.ndarray, y: np.ndarray) -> Any:
        slopes = [np.array(part, float) for part in made.GRADIENTS[name](x, y)]
        slopes[part][entry] *= factor
        return tuple(slopes)

    return call


@pytest.mark.parametrize("factor", [-1.0, 0.5, 1.1, 1e3])
@pytest.mark.parametrize(
    ("name", "part", "entry", "told"),
    [
        ("F_jac", 0, 1, r"F is wrong: its slope along x\[1\]"),
        ("F_jac", 1, 2, r"F is wrong: its slope along y\[2\]"),
        ("f_jac", 0, 0, r"f is wrong: its slope along x\[0\]"),
        ("f_jac", 1, 1, r"f is wrong: its slope along y\[1\]"),
        ("G_jac", 0, (1, 1), r"G\[1\] is wrong: its slope along x\[1\]"),
        ("G_jac", 1, (0, 0), r"G\[0\] is wrong: its slope along y\[0\]"),
        ("g_jac", 1, (0, 2), r"g\[0\] is wrong: its slope along y\[2\]"),
    ],
)
def test_a_wrong_gradient_is_told_with_function_and_variable(
    name: str, part: int, entry: Any, told: str, factor: float
) -> None:
    with pytest.raises(WrongGradient, match=told) as raised:
        check(smooth(**{name: wrong(name, part, entry, factor)}))
    error = raised.value
    assert error.given == pytest.approx(factor * error.measured, rel=1e-4)
    exact = np.ravel(made.GRADIENTS[name](error.x, error.y)[part][entry]).item()
    assert error.measured == pytest.approx(exact, rel=1e-4)  # all in the user's units


def test_the_variable_is_told_by_its_own_index_where_others_are_fixed() -> None:
    bounds = [(2.0, 2.0), *made.Y_BOUNDS[1:]]
    with pytest.raises(WrongGradient, match=r"along y\[2\] is .* y = \[2.0, "):
        check(smooth(y_bounds=bounds, f_jac=wrong("f_jac", 1, 2, 2.0)))


def test_a_gradient_of_zeros_is_wrong() -> None:
    with pytest.raises(WrongGradient, match="gradient given for f is wrong"):
        check(smooth(f_jac=lambda x, y: np.zeros(N)))


def test_gradients_that_are_not_available_are_not_wrong() -> None:
    check(smooth(F_jac=lambda x, y: (np.full(M, np.nan), 2 * y)))
    check(smooth(F_jac=lambda x, y: (None, None)))
    check(smooth(f_jac=lambda x, y: (_ for _ in ()).throw(ArithmeticError())), on_failure="worst")


def test_functions_that_fail_tell_nothing() -> None:
    check(smooth(f=lambda x, y: math.nan))


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_forgiven(seed: int) -> None:
    noise = np.random.default_rng(seed)
    f = lambda x, y: made.f(x, y) + 1e-3 * noise.standard_normal()  # noqa: E731
    check(smooth(f=f), rng=seed)


@pytest.mark.parametrize("seed", range(20))
def test_kinks_are_forgiven(seed: int) -> None:
    """A sum of absolute values, whose slopes are given as 0 at one point in sixteen."""

    def f_jac(x: np.ndarray, y: np.ndarray) -> Any:
        return np.zeros(N) if y[0] > 24 else np.sign(y)

    check(smooth(f=lambda x, y: float(np.abs(y).sum()), f_jac=f_jac, g=None, g_jac=None), rng=seed)


def test_large_constants_and_steep_walls_are_forgiven() -> None:
    check(smooth(f=lambda x, y: made.f(x, y) + 1e9))
    steep = smooth(
        f=lambda x, y: float(np.exp(3 * y).sum()), f_jac=lambda x, y: 3 * np.exp(3 * y), g_jac=None
    )
    check(steep)


def test_a_follower_that_is_a_solver_is_not_checked() -> None:
    driven = Driven(lambda level, x, y: y[:, 0], 1, 1, slopes=lambda level, x, y: (x, y))
    spec = replace(driven.spec(), step_cost=1)
    driven.run(check_gradients(spec, np.random.default_rng(1)))
    assert not driven.asked


def test_a_local_search_gets_the_followers_slopes() -> None:
    driven = Driven(
        lambda level, x, y: (y**2).sum(axis=1), 1, 2, slopes=lambda level, x, y: (x, 2 * y)
    )
    found = driven.run(follower_slopes(np.array([0.5]))(np.array([0.1, 0.2])))
    assert found is not None
    assert found[0].tolist() == [0.2, 0.4] and found[1].shape == (0, 2)


# Verification.


def answer(problem: bilevo.Problem, x: list[float], y: Any = None) -> bilevo.Result:
    """A result with an x, and the follower's answer to it, or another y."""
    result = bilevo.minimize(problem, method=Descent(generations=1, points=1))
    result.x = np.array(x)
    result.y = made.A @ result.x if y is None else np.array(y)
    F, _, f, _ = problem.evaluate(result.x, result.y)
    result.F, result.f, result.violation = float(F[0]), float(f[0]), 0.0
    return result


@pytest.mark.parametrize("vectorized", [False, True])
def test_verification_uses_gradients(vectorized: bool) -> None:
    problem, plain = smooth(vectorized), smooth(vectorized, f_jac=None, g_jac=None)
    assert problem.slopes_given.whole(Level.LOWER)
    certificates = [
        bilevo.verify(each, answer(smooth(vectorized), [1.0, 0.5]), effort="normal")
        for each in (problem, plain)
    ]
    assert all(made.confirmed and made.follower_gap < 1e-9 for made in certificates)
    given, differences = certificates
    assert given.njev_lower > 0 == differences.njev_lower
    assert given.agreeing == given.searches == differences.searches
    assert given.nfev_lower < differences.nfev_lower


def test_verification_with_gradients_finds_better_answers() -> None:
    certificate = bilevo.verify(smooth(), answer(smooth(), [1.0, 0.5], [0.0, 0.0, 0.0]))
    assert not certificate.confirmed and certificate.follower_gap > 1
    assert certificate.y == pytest.approx(made.A @ [1.0, 0.5], abs=1e-6)


def test_verification_uses_jacobians_of_constraints() -> None:
    """The follower's best answer lies on its constraint."""
    problem = smooth(g=lambda x, y: made.g(x, y) + 20.5)
    certificate = bilevo.verify(problem, answer(smooth(), [1.0, 0.5], [-0.5, -0.5, -0.5]))
    assert certificate.njev_lower > 0
    plain = smooth(g=lambda x, y: made.g(x, y) + 20.5, f_jac=None, g_jac=None)
    other = bilevo.verify(plain, answer(smooth(), [1.0, 0.5], [-0.5, -0.5, -0.5]))
    assert certificate.f == pytest.approx(other.f, rel=1e-8)


def test_verification_needs_the_gradients_of_constraints_too() -> None:
    certificate = bilevo.verify(smooth(g_jac=None), answer(smooth(), [1.0, 0.5]))
    assert certificate.confirmed and certificate.njev_lower == 0


def test_verification_refuses_a_wrong_gradient() -> None:
    problem = smooth(f_jac=wrong("f_jac", 1, 1, -1.0))
    with pytest.raises(WrongGradient, match=r"f is wrong: its slope along y\[1\] is .*x = \[1.0, "):
        bilevo.verify(problem, answer(smooth(), [1.0, 0.5]))


def test_verification_counts_gradients_that_fail() -> None:
    def f_jac(x: np.ndarray, y: np.ndarray) -> Any:
        if y[0] > 0:
            raise ArithmeticError
        return made.f_jac(x, y)

    certificate = bilevo.verify(smooth(f_jac=f_jac), answer(smooth(), [1.0, 0.5]))
    assert certificate.confirmed and certificate.failures > 0
    with pytest.raises(ArithmeticError):
        result = answer(smooth(), [1.0, 0.5])
        bilevo.verify(smooth(f_jac=f_jac), result, on_failure="raise")


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_verification_with_workers_is_the_same() -> None:
    certificates = [
        bilevo.verify(smooth(), answer(smooth(), [1.0, 0.5]), effort="low", workers=workers)
        for workers in (None, 1)
    ]
    assert repr(certificates[0]) == repr(certificates[1])
