"""`verify` and active constraints: the error of y violates none, and real violations are told."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bilevo
from bilevo import Certificate, Problem, Result, minimize, verify
from bilevo.testing import CountingProblem

WITHIN = "met within the error of y"
VIOLATED = "a constraint is violated"


def follows(G, scale: float = 1.0, g=None, **options) -> Problem:
    """A follower that answers y = x, with variables from 0 to 10 times `scale`."""
    box = [(0, 10 * scale)]
    return Problem(
        lambda x, y: (x[0] / scale - 4) ** 2 + (y[0] / scale - 4) ** 2,
        lambda x, y: ((y[0] - x[0]) / scale) ** 2,
        box,
        box,
        G=lambda x, y: G(x[0] / scale, y[0] / scale),
        g=g,
        **options,
    )


def total(x: float, y: float) -> list[float]:
    return [x + y - 6]


@pytest.fixture(scope="module")
def some_result() -> Result:
    return minimize(follows(total), max_evals=70)


def judged(problem: Problem, some: Result, x: float, y: Any, **options) -> Certificate:
    """Verify a result that claims this pair, and meets all constraints there."""
    point, answer = np.array([x]), np.atleast_1d(y)
    F, _, f, _ = problem.evaluate(point, answer)
    known = {"violation": 0.0, "ctol": (1e-9, 1e-9), "constraint_scales": ()}
    return verify(problem, replace(some, x=point, y=answer, F=F[0], f=f[0], **known), **options)


def active(seed: int) -> Problem:
    """One of nine problems with an active constraint of the leader: of other sizes, or curved."""
    curved = [lambda x, y: [math.exp(y) - math.e**3], lambda x, y: [y**2 + x - 12]]
    kind = seed % 9
    if kind < 6:
        size = 10.0 ** (6 * kind - 15)
        return follows(lambda x, y: [size * (x + y - 6)], scale=10.0 ** (2 * kind - 4))
    if kind < 8:
        return follows(curved[kind - 6])
    return follows(lambda x, y: [max(0.0, x + y - 6)])


@pytest.mark.parametrize("seed", range(1, 21))
def test_an_answer_on_the_leaders_constraint_is_feasible(seed: int) -> None:
    """It was feasible in about one third of these runs."""
    problem = follows(total, g=lambda x, y: [1 - y[0], y[0] - 3.5])
    result = minimize(problem, rng=seed)
    certificate = verify(problem, result)
    assert result.feasible and certificate.feasible and result.success
    assert VIOLATED not in result.message


@pytest.mark.parametrize("seed", range(1, 21))
def test_answers_on_constraints_of_all_kinds_are_feasible(seed: int) -> None:
    problem = active(seed)
    result = minimize(problem, rng=seed)
    certificate = verify(problem, result)
    assert result.feasible and certificate.feasible and VIOLATED not in certificate.message


@pytest.mark.parametrize("seed", range(1, 21))
def test_an_answer_on_constraints_of_both_levels_is_feasible(
    some_result: Result, seed: int
) -> None:
    problem = Problem(
        lambda x, y: (x[0] - 4) ** 2 + (y[0] - 4) ** 2,
        lambda x, y: (y[0] - x[0]) ** 2 + (y[1] - 5) ** 2,
        [(0, 10)],
        [(0, 10)] * 2,
        G=lambda x, y: [x[0] + y[0] + y[1] - 9],
        g=lambda x, y: [y[1] ** 2 - 9],
    )
    error = 10 ** np.random.default_rng(seed).uniform(-10, -6)
    certificate = judged(problem, some_result, 3 + error, [3 - error, 3.0])
    assert certificate.feasible and certificate.confirmed
    assert VIOLATED not in certificate.message


def test_the_message_says_by_how_much_the_constraint_is_exceeded(some_result: Result) -> None:
    certificate = judged(follows(total), some_result, 3 + 1e-8, 3 - 1e-8)
    assert certificate.feasible and certificate.confirmed
    assert f"{WITHIN} (2e-08)" in certificate.message


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("share", [1e-4, 1e-6, 1e-8])
def test_an_x_that_violates_a_constraint_is_reported(
    some_result: Result, scale: float, share: float
) -> None:
    x = (3 + 10 * share) * scale
    certificate = judged(follows(total, scale), some_result, x, x)
    assert not certificate.feasible and VIOLATED in certificate.message


@pytest.mark.parametrize("error", [1e-1, 1e-3, 2e-5])
def test_a_y_that_hides_a_violation_is_found_out(some_result: Result, error: float) -> None:
    """The claimed pair meets G, but the follower's answer is too far away to be the same one."""
    certificate = judged(follows(total), some_result, 3 + error, 3 - error)
    assert not certificate.feasible and VIOLATED in certificate.message


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_a_jump_of_the_constraint_is_no_error_of_y(some_result: Result, size: float) -> None:
    problem = follows(lambda x, y: [size * (1 if y > 3 else -1) * (1 + 0.01 * y)])
    certificate = judged(problem, some_result, 3 + 1e-8, 3 - 1e-8)
    assert not certificate.feasible and VIOLATED in certificate.message


def test_one_constraint_does_not_excuse_the_jump_of_another(some_result: Result) -> None:
    problem = follows(lambda x, y: [1e9 * (x + y - 6), 1e-3 if y > 3 else -1e-3])
    certificate = judged(problem, some_result, 3 + 1e-8, 3 - 1e-8)
    assert not certificate.feasible


def test_a_pair_that_violates_its_constraint_stays_infeasible(some_result: Result) -> None:
    """An error of y excuses nothing where the result's own y violates the constraint."""
    certificate = judged(follows(total), some_result, 3 + 1e-8, 3 - 0.9e-8)
    assert not certificate.feasible


def test_a_pessimistic_leader_is_not_refuted_by_the_error_of_y(some_result: Result) -> None:
    problem = follows(total)
    assert judged(problem, some_result, 3 + 1e-8, 3 - 1e-8, stance="pessimistic").confirmed
    hidden = judged(problem, some_result, 3 + 1e-4, 3 - 1e-4, stance="pessimistic")
    assert not hidden.feasible


def test_repeated_constraints_of_the_follower_are_left_out(some_result: Result) -> None:
    lower = {"g": lambda x, y: [y[0] - 9], "repeats_lower": 1}
    problem = follows(lambda x, y: [x + y - 6, y - 9], **lower)
    assert judged(problem, some_result, 3 + 1e-8, 3 - 1e-8).feasible


def test_whole_numbers_are_never_the_same_answer() -> None:
    """A step from one whole number to the next is short in a wide box, but no error."""
    box = [(0, 2e7)]
    problem = Problem(
        lambda x, y: x[0] + y[0],
        lambda x, y: abs(y[0] - x[0]),
        box,
        box,
        G=lambda x, y: [y[0] - 1000],
        y_integrality=[1],
    )
    some = minimize(follows(total), max_evals=70)
    assert not judged(problem, some, 1001.0, 1000.0).feasible


def test_the_evaluations_beside_an_answer_are_counted_and_kept_within_limits(
    some_result: Result,
) -> None:
    counted = CountingProblem(follows(total))
    full = judged(counted.problem, some_result, 3 + 1e-8, 3 - 1e-8)
    assert (counted.upper - 1, counted.lower - 1) == (full.nfev_upper, full.nfev_lower)
    spent = full.nfev_upper + full.nfev_lower
    cut = judged(follows(total), some_result, 3 + 1e-8, 3 - 1e-8, max_evals=spent - 1)
    assert cut.nfev_upper + cut.nfev_lower == spent - 1
    assert full.feasible and not cut.feasible and VIOLATED in cut.message


@pytest.mark.parametrize(("error", "feasible"), [(1e-8, True), (1e-3, False)])
def test_answers_of_a_solver_are_judged_in_the_same_way(
    some_result: Result, error: float, feasible: bool
) -> None:
    solver = bilevo.followers.Minimize()
    pair = 3 + error, 3 - error
    certificate = judged(follows(total), some_result, *pair, follower=solver)
    assert certificate.feasible is feasible
    assert (VIOLATED in certificate.message) is not feasible


@pytest.mark.parametrize(("error", "feasible"), [(1e-8, True), (1e-4, False)])
def test_answers_of_several_followers_are_judged_in_the_same_way(
    error: float, feasible: bool
) -> None:
    def own(i: int) -> bilevo.Follower:
        return bilevo.Follower(lambda x, y: (y[i] - x[0]) ** 2, [(0, 10)])

    problem = Problem(
        lambda x, y: (x[0] - 4) ** 2 + (y[0] - 4) ** 2,
        None,
        [(0, 10)],
        G=lambda x, y: [x[0] + y[0] + y[1] - 9],
        followers=[own(0), own(1)],
        play="independent",
    )
    x, y = np.array([3 + error]), np.array([3 - error, 3 - error])
    F, _, f, _ = problem.evaluate(x, y)
    some = minimize(problem, max_evals=70)
    known = {"violation": 0.0, "ctol": (1e-9, 1e-9), "constraint_scales": ()}
    certificate = verify(problem, replace(some, x=x, y=y, F=F[0], f=f[0], **known))
    assert certificate.feasible is feasible
    assert (VIOLATED in certificate.message) is not feasible
    assert (WITHIN in certificate.message) is feasible
