"""`verify`: an independent second opinion on the follower."""

import dataclasses
import math

import numpy as np
import pytest

import bilevo
from bilevo import Problem, minimize, verify
from bilevo.problems import get
from bilevo.testing import CountingProblem


def claim(problem: Problem, x, y) -> bilevo.Result:
    """A result that claims this pair."""
    F, _, f, _ = problem.evaluate(x, y)
    result = minimize(problem, max_evals=70, on_failure="worst")
    return dataclasses.replace(result, x=np.array(x, float), y=np.array(y, float), F=F[0], f=f[0])


@pytest.mark.parametrize("number", range(1, 10))
def test_the_known_response_is_found(number: int) -> None:
    problem = get(f"smd{number}")
    x = np.array([0.4, 0.3])
    answer = problem.response(x[None])[0]
    certificate = verify(problem, claim(problem, x, answer + 0.01))
    F, _, f, _ = problem.evaluate(x, answer)
    assert certificate.f == pytest.approx(f[0], abs=1e-8)
    if number != 6:  # its ties are tested below
        assert pytest.approx(F[0], abs=1e-5) == certificate.F
    assert certificate.follower_gap > 0 and certificate.feasible


def test_a_true_answer_is_confirmed() -> None:
    problem = get("smd1")
    x = np.array([1.0, 2.0])
    result = claim(problem, x, problem.response(x[None])[0])
    certificate = verify(problem, result)
    assert abs(certificate.follower_gap) < 1e-9
    assert certificate.message.startswith("confirmed")
    assert result.certificate is certificate


def test_a_follower_stuck_in_a_trap_is_found_out() -> None:
    """At x = (1, 1) SMD12's follower has a poor feasible island at w = -1 and a better one."""
    problem = get("smd12")
    certificate = verify(problem, claim(problem, [1.0, 1.0], [-1.0, -1.0, 0.0]))
    assert certificate.follower_gap == pytest.approx(16, abs=1e-4)
    assert "better by 16" in certificate.message


@pytest.mark.parametrize("seed", [16, 17, 22])
def test_steps_between_basins_lead_to_the_best_one_among_ripples(seed: int) -> None:
    """Without these steps, searches with low effort miss it for each of these seeds."""
    problem = get("smd3", 6, 6)
    x = np.random.default_rng([seed, 6]).uniform(0.1, 0.3, 6)
    best = problem.response(x[None])[0]
    wrong = best.copy()
    wrong[:2] = 1.0
    certificate = verify(problem, claim(problem, x, wrong), effort="low", rng=seed)
    assert certificate.f == pytest.approx(problem.evaluate(x, best)[2][0], abs=1e-6)


def test_a_multimodal_follower_is_searched_globally() -> None:
    problem = get("smd3", 5, 6)
    x = np.full(5, 0.2)
    local = problem.response(x[None])[0].copy()
    local[:3] = 1.0  # a local minimum of the ripples
    certificate = verify(problem, claim(problem, x, local))
    assert certificate.f == pytest.approx(problem.evaluate(x, problem.response(x[None])[0])[2][0])


def test_ties_are_reported_for_the_leaders_good() -> None:
    """Along b1 = b2 SMD6's follower is indifferent; the leader wants them 0."""
    problem = get("smd6")
    x = np.zeros(2)
    certificate = verify(problem, claim(problem, x, [0.0, 0.0, 0.0]))
    assert pytest.approx(0, abs=1e-9) == certificate.F
    nearly = verify(problem, claim(problem, x, [1e-4, -1e-4, 0.0]))
    assert pytest.approx(0, abs=1e-7) == nearly.F and nearly.follower_gap > 0


TIES = {  # f, F, the claimed y, and the leader's best among the ties
    "everything": (lambda x, y: 0.0, lambda x, y: float((y - 0.3) @ (y - 0.3)), [1, 1, 1], 0.0),
    "a line": (lambda x, y: float((y[0] + y[1] - 1) ** 2), lambda x, y: y[0], [0.5, 0.5], 0.0),
    "a plateau": (lambda x, y: max(abs(y[0] - 0.5) - 0.2, 0.0), lambda x, y: -y[0], [0.5], -0.7),
    "two points": (lambda x, y: (abs(y[0] - 0.5) - 0.2) ** 2, lambda x, y: -y[0], [0.3], -0.7),
}


@pytest.mark.parametrize("ties", TIES.values(), ids=TIES.keys())
def test_the_leaders_best_is_found_among_a_continuum_of_ties(ties) -> None:
    f, F, y, best = ties
    problem = Problem(F, f, [(0, 1)], [(0, 1)] * len(y))
    certificate = verify(problem, claim(problem, [0.5], y))
    assert certificate.message.startswith("confirmed")
    assert pytest.approx(best, abs=1e-4) == certificate.F


def test_a_large_constant_in_f_hides_no_gap() -> None:
    problem = Problem(
        lambda x, y: -y[0], lambda x, y: 1e9 + (y[0] - x[0]) ** 2, [(0, 1)], [(-5, 5)]
    )
    certificate = verify(problem, claim(problem, [0.5], [0.53]))
    assert pytest.approx(-0.5, abs=2e-3) == certificate.F
    assert "better by 0.0009" in certificate.message


def test_an_infeasible_answer_has_an_infinite_gap() -> None:
    problem = Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float(y @ y),
        [(-1, 1)],
        [(-1, 1)],
        g=lambda x, y: [0.5 - y[0]],
    )
    certificate = verify(problem, claim(problem, [0.0], [0.0]))
    assert math.isinf(certificate.follower_gap)
    assert certificate.y == pytest.approx([0.5], abs=1e-6) and certificate.feasible
    assert "infeasible for the follower" in certificate.message


def test_a_leader_without_a_feasible_follower_is_said_to_be_so() -> None:
    problem = Problem(lambda x, y: 0.0, lambda x, y: 0.0, [(0, 1)], [(0, 1)], g=lambda x, y: [1.0])
    certificate = verify(problem, claim(problem, [0.5], [0.5]))
    assert not certificate.feasible and "no feasible follower answer" in certificate.message


def test_an_answer_that_breaks_the_leaders_constraint_is_not_feasible() -> None:
    problem = Problem(
        lambda x, y: float(x[0]),
        lambda x, y: float((y[0] - x[0]) ** 2),
        [(0, 1)],
        [(0, 1)],
        G=lambda x, y: [y[0] - 0.5],
    )
    certificate = verify(problem, claim(problem, [0.8], [0.4]))
    assert not certificate.feasible and "constraint is violated" in certificate.message


def test_its_evaluations_are_counted_and_repeat() -> None:
    problem = get("tp3")
    result = minimize(problem, max_evals=2000)
    counted = CountingProblem(problem)
    first = verify(counted.problem, result, rng=4)
    assert (counted.upper, counted.lower) == (first.nfev_upper, first.nfev_lower)
    again = verify(problem, result, rng=4)
    assert (again.F, again.f, again.nfev_lower) == (first.F, first.f, first.nfev_lower)


def test_failing_and_non_finite_followers_are_survived() -> None:
    def f(x, y):
        if y[0] > 0.7:
            raise ArithmeticError
        return math.nan if y[0] < 0.1 else float((y[0] - 0.3) ** 2)

    problem = Problem(lambda x, y: 0.0, f, [(0, 1)], [(0, 1)])
    certificate = verify(problem, claim(problem, [0.5], [0.5]))
    assert certificate.f == pytest.approx(0, abs=1e-9)


def test_an_exception_at_the_answer_itself_comes_through() -> None:
    good = get("smd1")
    result = minimize(good, max_evals=500)

    def broken(x, y):
        raise NameError("typo")

    with pytest.raises(NameError, match="typo"):
        verify(Problem(good.F, broken, good.x_bounds, good.y_bounds, vectorized=True), result)


def test_a_follower_without_finite_values_is_survived() -> None:
    problem = Problem(lambda x, y: 0.0, lambda x, y: math.nan, [(0, 1)], [(0, 1)])
    certificate = verify(problem, claim(problem, [0.5], [0.5]))
    assert not certificate.feasible


def test_fixed_follower_variables_stay_fixed() -> None:
    problem = Problem(
        lambda x, y: float(y @ y), lambda x, y: float(y @ y), [(0, 1)], [(0, 1), (2, 2)]
    )
    certificate = verify(problem, claim(problem, [0.5], [0.5, 2.0]))
    assert certificate.y == pytest.approx([0, 2], abs=1e-5)


def test_wrong_input_is_refused() -> None:
    result = minimize(get("smd1"), max_evals=500)
    with pytest.raises(ValueError, match="2 and 3 variables, tp1 has 2 and 2"):
        verify(get("tp1"), result)
    outside = dataclasses.replace(result, x=np.array([50.0, 0.0]))
    with pytest.raises(ValueError, match="outside its bounds"):
        verify(get("smd1"), outside)
    with pytest.raises(ValueError, match="takes a Problem and a Result"):
        verify(get("smd1"), 5)
    with pytest.raises(ValueError, match="no answer to verify"):
        verify(get("smd1"), minimize(get("smd1"), max_evals=1))
    with pytest.raises(ValueError, match='effort must be "low", "normal", "high" or None'):
        verify(get("smd1"), result, effort="thorough")
    for wrong in ({"max_evals": 0}, {"max_time": -1}, {"retries": -1}, {"workers": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            verify(get("smd1"), result, **wrong)
    with pytest.raises(ValueError, match="timeout=1 needs processes"):
        verify(get("smd1"), result, timeout=1)
    with pytest.raises(ValueError, match="on_failure must be"):
        verify(get("smd1"), result, on_failure="ignore")
    with pytest.raises(ValueError, match="progress must be"):
        verify(get("smd1"), result, progress=None)
