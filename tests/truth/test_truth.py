"""What is said of an answer is true: success, and what `verify` confirms.

A run may give a wrong answer, but must not claim success then. A certificate of a wrong answer must
not confirm it. All problems here have known answers, but for the random ones, whose successes a
thorough `verify` must not refute.
"""

import dataclasses
import math

import numpy as np
import pytest

import bilevo
from benchmarks.known.construction import (
    Construction,
    confirms,
    judge,
    judge_certificate,
)
from benchmarks.known.constructions import NAMES, construct
from benchmarks.limited import SOLVED, error_at_limit
from benchmarks.refuted import attempt
from bilevo import Problem

SEED, MOST = 5, 30_000
SAMPLE = [  # of all kinds, and fast
    "penalty/wall-1e+12",
    "penalty/stiff-1e+10",
    "penalty/jump-1e+08",
    "scale/f-1e-08",
    "scale/exp-10",
    "offset/bowl+1e+10",
    "offset/ripples+1e+06",
    "basin/ambush-8%",
    "basin/swap-6%",
    "basin/twins-1e-02",
    "ripple/ripples-2",
    "tie/twins-1",
    "tie/plateau-2",
    "kink/cusp-and-basin",
    "kink/bent-valley",
    "valley/rosenbrock-1e+03",
    "constraint/islands-1",
    "constraint/half-space-2",
    "constraint/band-1e-02",
    "bound/concave-2",
    "rounding/rounded-1",
    "failure/ball",
    "size/bowl-3-1",
]

QUICK = (0, 2, 3, 4, 5, 6, 7, 9, 10, 11)  # random problems that take little time


def check_run(known: Construction, seed: int = 1, max_evals: int = MOST) -> bilevo.Result:
    """Minimize and verify; neither may say yes to a wrong answer."""
    result = bilevo.minimize(known.problem, rng=seed, max_evals=max_evals)
    verdict = judge(known, result)
    assert not (verdict.wrong and result.success), verdict.why
    if np.isfinite(result.x).all():
        check_certificate(known, result)
    return result


def check_certificate(known: Construction, result: bilevo.Result) -> bilevo.Certificate:
    """Verify; a wrong answer is not confirmed, and none is replaced by a wrong one."""
    certificate = bilevo.verify(known.problem, result)
    if confirms(certificate):
        assert not (why := judge(known, result).why), why
        assert not (why := judge_certificate(known, result.x, certificate).why), why
    return certificate


@pytest.mark.filterwarnings("ignore:[Ff] changes in steps")  # some functions round inside
@pytest.mark.rest
@pytest.mark.parametrize("name", SAMPLE)
def test_no_wrong_answer_is_a_success_or_confirmed(name: str) -> None:
    check_run(construct(name, SEED), max_evals=8000)


@pytest.mark.filterwarnings("ignore:[Ff] changes in steps")  # some functions round inside
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_wrong_answer_of_any_construction_is_a_success_or_confirmed(name: str) -> None:
    check_run(construct(name, SEED))


# Successes that a thorough `verify` once refuted: rounding of f, a basin among ripples, and a basin
# of 0.3% of the box.
@pytest.mark.rest
@pytest.mark.parametrize(
    ("index", "seed", "run"), [(106, 1004, 1004), (171, 1004, 1004), (43, 6003, 1), (43, 6003, 5)]
)
def test_a_success_that_was_refuted_is_no_more(index: int, seed: int, run: int) -> None:
    assert not attempt(index, seed=seed, run=run).refuted


@pytest.mark.rest
@pytest.mark.parametrize("index", QUICK)
def test_no_success_on_random_problems_is_refuted(index: int) -> None:
    outcome = attempt(index, seed=SEED, max_evals=8000)
    assert not outcome.refuted, f"{outcome.name}: {outcome.refuted}"


@pytest.mark.slow
@pytest.mark.parametrize("index", range(300))
def test_no_success_on_many_random_problems_is_refuted(index: int) -> None:
    outcome = attempt(index, seed=SEED)
    assert not outcome.refuted, f"{outcome.name}: {outcome.refuted}"


@pytest.mark.parametrize("weight", [1, 1e4, 1e6, 1e8, 1e9, 1e10, 1e12])
def test_a_stiff_term_does_not_hide_that_the_soft_one_is_unsolved(weight: float) -> None:
    """The follower answers (x, x); the result claims (x, x + 2)."""
    problem = Problem(
        lambda x, y: float((x[0] - 1) ** 2 + (y[1] - 3) ** 2),
        lambda x, y: float(weight * (y[0] - x[0]) ** 2 + (y[1] - x[0]) ** 2),
        [(-5, 10)],
        [(-5, 10)] * 2,
    )
    known = Construction("stiff", "penalty", problem, lambda x: [[x[0], x[0]]])
    made = bilevo.minimize(problem, max_evals=300)
    x, y = np.array([1.0]), np.array([1.0, 3.0])
    claim = dataclasses.replace(made, x=x, y=y, F=0.0, f=4.0)
    certificate = check_certificate(known, claim)
    assert not confirms(certificate)
    assert certificate.follower_gap == pytest.approx(4, abs=1e-3)


@pytest.mark.rest
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("weight", [1e6, 1e12])
def test_a_penalty_does_not_hide_ripples(weight: float, seed: int) -> None:
    """The follower answers y = x."""

    def f(x: np.ndarray, y: np.ndarray) -> float:
        d = float(y[0] - x[0])
        ripples = d * d + 3 * (1 - math.cos(2 * math.pi * d))
        return ripples + weight * max(0.0, abs(d) - 2.5) ** 2

    problem = Problem(
        lambda x, y: float((x[0] - 1) ** 2 + (y[0] - x[0] - 2) ** 2), f, [(-5, 10)], [(-5, 10)]
    )
    check_run(Construction("wall", "penalty", problem, lambda x: [x[0]]), seed)


@pytest.mark.rest
@pytest.mark.parametrize("seed", [1, 2])
def test_a_curved_valley_is_solved_or_not_claimed(seed: int) -> None:
    """The follower answers (x, x^2), at the bottom of Rosenbrock's valley."""
    problem = Problem(
        lambda x, y: float((x[0] - 1) ** 2 + (y[1] - 3) ** 2),
        lambda x, y: float(1e4 * (y[1] - y[0] ** 2) ** 2 + (y[0] - x[0]) ** 2),
        [(-2, 2)],
        [(-3, 3), (-5, 10)],
    )
    check_run(Construction("valley", "valley", problem, lambda x: [[x[0], x[0] ** 2]]), seed)


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_narrow_basin_that_is_far_deeper_is_found_or_success_not_claimed(seed: int) -> None:
    """The follower answers near 6 where x is near 3, and else 1."""

    def values(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        hole = np.exp(-(((x[0] - 3) / 0.4) ** 2) - ((y - 6) / 0.5) ** 2)
        return (y - 1) ** 2 - 30 * hole

    problem = Problem(
        lambda x, y: float((x[0] - 3) ** 2 + (y[0] - 1) ** 2),
        lambda x, y: float(values(x, y)[0]),
        [(-5, 10)],
        [(-5, 10)],
    )
    check_run(Construction("ambush", "basin", problem, lambda x: around(x, values)), seed)


def around(x: np.ndarray, values) -> list[float]:
    """The follower's local minima near 1 and near 6, by a fine grid."""
    grids = [np.linspace(0, 2.5, 250_001), np.linspace(4.5, 7, 250_001)]
    return [float(grid[np.argmin(values(x, grid))]) for grid in grids]


@pytest.mark.parametrize("most", [2, 3, 10, 30])
def test_a_run_that_could_not_solve_the_follower_claims_no_success(most: int) -> None:
    problem = Problem(
        lambda x, y: float((x[0] - 1) ** 2 + (y[0] - 3) ** 2),
        lambda x, y: float((y[0] + x[0]) ** 2),
        [(-5, 10)],
        [(-5, 10)],
    )
    result = bilevo.minimize(problem, max_evals=most)
    assert result.status == "max_evals" and not result.success


@pytest.mark.rest
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_scale_of_f_that_depends_on_x_does_not_hide_errors(seed: int) -> None:
    """f is 1e43 at the bounds of x and 1 in the middle; the follower answers sin(3 x)."""
    problem = Problem(
        lambda x, y: float((x[0] - 1) ** 2 + (y[0] - 1) ** 2),
        lambda x, y: math.exp(x[0] ** 2) * float(y[0] - math.sin(3 * x[0])) ** 2,
        [(-10, 10)],
        [(-10, 10)],
    )
    known = Construction(
        "scale",
        "scale",
        problem,
        lambda x: [math.sin(3 * x[0])],
        f_scale=lambda x: math.exp(x[0] ** 2),
    )
    check_run(known, seed)


@pytest.mark.rest
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cusp_is_found_or_success_not_claimed(seed: int) -> None:
    """The follower answers x / 1.5 at a cusp; a smooth basin nearby is nearly as deep."""

    def f(x: np.ndarray, y: np.ndarray) -> float:
        smooth = 0.8 * math.exp(-(((2 * y[0] + x[0] - 3) / 0.5) ** 2))
        return float(2 - math.exp(-((abs(1.5 * y[0] - x[0]) / 0.055) ** 0.4)) - smooth)

    problem = Problem(
        lambda x, y: float((x[0] - 0.5) ** 2 + (y[0] - 1) ** 2), f, [(0, 1)], [(0, 2)]
    )
    check_run(Construction("cusp", "kink", problem, lambda x: [x[0] / 1.5]), seed)


@pytest.mark.rest
@pytest.mark.parametrize("seed", [1, 3])
def test_a_limit_does_not_lose_what_a_run_had_found(seed: int) -> None:
    for limit in (5_000, 15_000):
        assert error_at_limit((limit, seed), "smd5", 10) <= SOLVED


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("size", "first"), [(10, 5_000), (20, 10_000)])
def test_no_limit_loses_what_a_run_had_found(size: int, first: int, seed: int) -> None:
    for limit in (first, 2 * first, 4 * first, 8 * first):
        assert error_at_limit((limit, seed), "smd5", size) <= SOLVED
