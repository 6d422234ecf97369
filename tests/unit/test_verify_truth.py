"""`verify` and the scale of f: penalties, stiff terms, offsets, ties, and results that lie."""

import dataclasses
import math

import numpy as np
import pytest
from test_verify import claim

import bilevo
from bilevo import Problem, verify
from bilevo.core import tolerances

STIFF = (1.0, 1e4, 1e8, 1e9, 1e10, 1e12)


def stiff_problem(k: float) -> Problem:
    """The follower answers y = (x, x); a mistake in y[0] is k times as bad as one in y[1]."""
    return Problem(
        lambda x, y: float((x[0] - 1) ** 2 + (y[1] - 3) ** 2),
        lambda x, y: float(k * (y[0] - x[0]) ** 2 + (y[1] - x[0]) ** 2),
        [(-5, 10)],
        [(-5, 10)] * 2,
    )


@pytest.mark.parametrize("k", STIFF)
def test_a_stiff_term_hides_no_mistake_in_a_soft_one(k: float) -> None:
    problem = stiff_problem(k)
    certificate = verify(problem, claim(problem, [1.0], [1.0, 3.0]))
    assert not certificate.confirmed
    assert certificate.follower_gap == pytest.approx(4, rel=1e-6)
    assert pytest.approx(4, abs=1e-4) == certificate.F


@pytest.mark.parametrize("k", STIFF)
def test_the_right_answer_to_a_stiff_follower_is_confirmed(k: float) -> None:
    problem = stiff_problem(k)
    assert verify(problem, claim(problem, [1.0], [1.0, 1.0])).confirmed
    off = claim(problem, [1.0], [1.0 + 1e-6, 1.0])  # the same answer to 1e-7 of the box
    certificate = verify(problem, off)
    assert certificate.confirmed and certificate.follower_gap == pytest.approx(k * 1e-12, rel=1e-3)
    if k > 1e6:
        assert "only the same one to 1e-06 of its box" in certificate.message


def rippled(penalty: float, offset: float = 0.0) -> Problem:
    """The follower answers y = x; a penalty keeps y within 2.5 of it."""

    def f(x, y):
        d = y[0] - x[0]
        outside = max(0.0, abs(d) - 2.5)
        return offset + d * d + 3 * (1 - math.cos(2 * math.pi * d)) + penalty * outside**2

    return Problem(lambda x, y: (x[0] - 1) ** 2 + (y[0] - x[0] - 2) ** 2, f, [(-5, 10)], [(-5, 10)])


@pytest.mark.parametrize("penalty", [0.0, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("offset", [0.0, -1e6])
def test_a_penalty_hides_no_better_basin(penalty: float, offset: float) -> None:
    problem = rippled(penalty, offset)
    wrong = verify(problem, claim(problem, [1.0], [1.983]))  # near a local minimum
    assert not wrong.confirmed and wrong.follower_gap == pytest.approx(0.976, abs=0.01)
    assert verify(problem, claim(problem, [1.0], [1.0])).confirmed


@pytest.mark.parametrize("offset", [1e10, -1e10, 1e13])
def test_where_rounding_hides_the_answer_nothing_is_confirmed(offset: float) -> None:
    problem = Problem(
        lambda x, y: float(y[0]), lambda x, y: offset + (y[0] - 0.5) ** 2, [(0, 1)], [(-5, 5)]
    )
    certificate = verify(problem, claim(problem, [0.5], [0.5 + 1e-3]))
    assert not certificate.confirmed
    assert "f does not resolve the follower's answer because of rounding" in certificate.message
    same = Problem(lambda x, y: 2.0, problem.f, [(0, 1)], [(-5, 5)])  # the leader does not mind
    assert verify(same, claim(same, [0.5], [0.5])).confirmed


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6, 1e12])
def test_units_of_f_do_not_matter(unit: float) -> None:
    problem = Problem(
        lambda x, y: float(y[0]), lambda x, y: unit * (y[0] - x[0]) ** 2, [(0, 1)], [(0, 1)]
    )
    assert verify(problem, claim(problem, [0.5], [0.5])).confirmed
    wrong = verify(problem, claim(problem, [0.5], [0.501]))
    assert not wrong.confirmed and wrong.follower_gap == pytest.approx(1e-6 * unit)


def test_a_follower_that_never_minds_is_indifferent_everywhere() -> None:
    problem = Problem(lambda x, y: float(y[0]), lambda x, y: 3.0, [(0, 1)], [(0, 1)])
    certificate = verify(problem, claim(problem, [0.5], [0.5]))
    assert certificate.confirmed and certificate.indifferent
    assert (certificate.F_best, certificate.F_worst) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert "the follower is indifferent: F is from" in certificate.message


def test_twins_are_both_reported() -> None:
    problem = Problem(
        lambda x, y: float(y[0]), lambda x, y: (y[0] ** 2 - x[0]) ** 2, [(0, 1)], [(-2, 2)]
    )
    for answer in (0.5, -0.5):
        certificate = verify(problem, claim(problem, [0.25], [answer]))
        assert certificate.confirmed and certificate.indifferent
        assert pytest.approx(-0.5, abs=1e-6) == certificate.F == certificate.F_best
        assert certificate.F_worst == pytest.approx(0.5, abs=1e-6)
        assert certificate.y == pytest.approx([-0.5], abs=1e-6)


def test_a_range_of_ties_is_found_from_its_middle_and_its_edge() -> None:
    def f(x, y):
        return max(0.0, abs(y[0] - x[0]) - 1) ** 2

    problem = Problem(lambda x, y: y[0] ** 2, f, [(0, 4)], [(-4, 4)])
    for answer in (1.0, 2.0, 0.0):
        certificate = verify(problem, claim(problem, [1.0], [answer]))
        assert certificate.confirmed and certificate.indifferent
        assert certificate.F_best == pytest.approx(0, abs=1e-3)
        assert certificate.F_worst == pytest.approx(4, abs=0.02)


@pytest.mark.parametrize("n", [2, 3])
def test_a_line_of_ties_that_no_axis_follows_is_confirmed(n: int) -> None:
    slope = np.random.default_rng(n).standard_normal(n)
    problem = Problem(
        lambda x, y: float(y[0]),
        lambda x, y: float((slope @ y - 0.1) ** 2),
        [(0, 1)],
        [(-5, 10)] * n,
    )
    on_it = 0.1 * slope / (slope @ slope)
    certificate = verify(problem, claim(problem, [0.5], on_it + 1e-9))
    assert certificate.confirmed and certificate.indifferent
    assert certificate.F_worst - certificate.F_best > 5


@pytest.mark.parametrize("n", [2, 3])
def test_ties_on_a_sphere_are_followed(n: int) -> None:
    problem = Problem(
        lambda x, y: float(y[0]), lambda x, y: (float(y @ y) - 1) ** 2, [(0, 1)], [(-2, 2)] * n
    )
    on_it = np.zeros(n)
    on_it[1] = 1.0
    certificate = verify(problem, claim(problem, [0.5], on_it), effort="normal")
    assert certificate.confirmed and certificate.indifferent
    assert (certificate.F_best, certificate.F_worst) == pytest.approx((-1.0, 1.0), abs=1e-3)


def test_a_follower_with_one_answer_is_not_indifferent() -> None:
    problem = stiff_problem(100.0)
    certificate = verify(problem, claim(problem, [1.0], [1.0, 1.0]))
    assert not certificate.indifferent and "indifferent" not in certificate.message
    assert certificate.F_best == certificate.F_worst == certificate.F


@pytest.mark.parametrize("name", ["F", "f"])
def test_a_result_with_other_values_than_the_functions_give_is_not_confirmed(name: str) -> None:
    problem = stiff_problem(1.0)
    stale = dataclasses.replace(claim(problem, [1.0], [1.0, 1.0]), **{name: 0.5})
    certificate = verify(problem, stale)
    assert not certificate.confirmed and not stale.certified and not stale.success
    assert f"{name} of the result is 0.5, but its x and y give" in certificate.message


@pytest.mark.parametrize("seed", range(40))
def test_a_certificate_never_contradicts_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    weights, centre = 10 ** rng.uniform(-8, 8, n), rng.uniform(-0.9, 0.9, n)
    offset = float(rng.choice([0, 1, -1e5, 1e8]))
    ripple = float(rng.choice([0, 0.3]))

    def f(x, y):
        d = y - centre
        return offset + float(weights @ (d * d + ripple * (1 - np.cos(9 * d))))

    problem = Problem(lambda x, y: float(y.sum()), f, [(0, 1)], [(-1, 1)] * n)
    away = float(rng.choice([0, 1e-9, 1e-5, 1e-2, 0.5]))
    y = np.clip(centre + away * rng.standard_normal(n), -1, 1)
    certificate = verify(problem, claim(problem, [0.5], y), effort="low")
    truth = f(None, y) - f(None, centre)
    assert certificate.follower_gap >= 0
    assert certificate.confirmed == certificate.message.startswith("confirmed")
    assert ("better by" in certificate.message) <= (not certificate.confirmed)
    if certificate.confirmed:  # then it is right: no soft variable is far from its best
        soft = weights.min()
        assert truth <= 1e-8 * soft + tolerances.rounding(offset) or away < 1e-6
    if away == 0 and offset == 0:
        assert certificate.confirmed


def test_the_effort_follows_the_cost_of_the_run() -> None:
    problem = stiff_problem(1.0)
    cheap = claim(problem, [1.0], [1.0, 1.0])
    dear = dataclasses.replace(cheap, nfev_lower=2000)
    low, normal = verify(problem, cheap), verify(problem, dear)
    high = verify(problem, dataclasses.replace(cheap, nfev_lower=20_000))
    assert [c.effort for c in (low, normal, high)] == ["low", "normal", "high"]
    assert low.nfev_lower < normal.nfev_lower < high.nfev_lower
    assert low.searches < normal.searches < high.searches
    assert 0 < low.agreeing <= low.searches


def test_a_certificate_is_stored_with_its_result(tmp_path) -> None:
    problem = stiff_problem(1.0)
    result = claim(problem, [1.0], [1.0, 1.0])
    verify(problem, result)
    result.save(tmp_path / "result.json")
    loaded = bilevo.Result.load(tmp_path / "result.json")
    assert loaded.certificate.confirmed and loaded.certificate.effort == "low"


@pytest.mark.parametrize("ctol", [1e-9, 1e-6, 1e-4])
def test_what_the_tolerance_on_constraints_gains_refutes_no_answer(ctol: float) -> None:
    problem = Problem(
        lambda x, y: float(y[0]),
        lambda x, y: float((y[0] - 2) ** 2 + (y[1] - 1) ** 2),
        [(0, 1)],
        [(-3, 3)] * 2,
        g=lambda x, y: [float(y @ y) - 1],
    )
    result = claim(problem, [0.5], np.array([2, 1]) / math.sqrt(5) * (1 - 1e-15))
    assert verify(problem, result, ctol=ctol).confirmed
    wrong = claim(problem, [0.5], [0.9, math.sqrt(0.19) - 1e-9])
    assert not verify(problem, wrong, ctol=ctol).confirmed
