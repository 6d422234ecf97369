"""`verify` for simulators: limits, failures, workers and progress, as in `minimize`."""

import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_verify import claim

from bilevo import Problem, minimize, verify
from bilevo.problems import get
from bilevo.testing import CountingProblem


def rippled(**options) -> Problem:
    """The follower answers y = x; it has a local minimum at about y = x + 1."""
    return Problem(
        lambda x, y: (x[0] - 1) ** 2 + (y[0] - x[0] - 2) ** 2,
        lambda x, y: (y[0] - x[0]) ** 2 + 3 * (1 - math.cos(2 * math.pi * (y[0] - x[0]))),
        [(-5, 10)],
        [(-5, 10)],
        **options,
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 10, 60, 100, 150, 300, 10_000])
def test_max_evals_is_never_exceeded_and_stops_a_confirmation(limit: int) -> None:
    counted = CountingProblem(rippled())
    result = claim(rippled(), [1.0], [1.0])
    certificate = verify(counted.problem, result, max_evals=limit)
    assert (counted.upper, counted.lower) == (certificate.nfev_upper, certificate.nfev_lower)
    assert counted.upper + counted.lower <= limit
    assert certificate.confirmed == (limit == 10_000)
    assert ("stopped at max_evals after" in certificate.message) == (limit < 10_000)


def test_a_better_answer_found_before_a_limit_is_reported() -> None:
    counted = CountingProblem(rippled())
    result = claim(rippled(), [1.0], [1.983])
    certificate = verify(counted.problem, result, max_evals=150)
    assert certificate.follower_gap > 0.5 and math.isfinite(certificate.F)
    assert certificate.message.startswith("the follower has an answer better by")
    assert "; stopped at max_evals after " in certificate.message
    assert counted.upper + counted.lower <= 150


def test_max_time_ends_the_searches() -> None:
    def slow(x, y):
        time.sleep(0.01)
        return float((y[0] - x[0]) ** 2)

    problem = Problem(lambda x, y: 0.0, slow, [(0, 1)], [(0, 1)])
    result = claim(Problem(problem.F, lambda x, y: 0.0, [(0, 1)], [(0, 1)]), [0.5], [0.5])
    counted = CountingProblem(problem)
    certificate = verify(counted.problem, result, max_time=0.2)
    assert not certificate.confirmed and "stopped at max_time after" in certificate.message
    assert (counted.upper, counted.lower) == (certificate.nfev_upper, certificate.nfev_lower)
    assert counted.lower < 50


def test_no_time_at_all_gives_a_certificate_that_says_so() -> None:
    certificate = verify(rippled(), claim(rippled(), [1.0], [1.0]), max_time=1e-9)
    assert certificate.message.startswith("not confirmed: nothing was evaluated; stopped at max_t")
    assert not certificate.confirmed and certificate.nfev_lower == certificate.nfev_upper == 0
    assert math.isnan(certificate.follower_gap)


def test_failing_points_are_counted() -> None:
    def fails(x, y):
        if y[0] > 4:
            raise ArithmeticError("diverged")
        return (y[0] - x[0]) ** 2

    problem = Problem(lambda x, y: y[0], fails, [(0, 1)], [(-5, 5)])
    result = claim(problem, [0.5], [0.5])
    certificate = verify(problem, result)
    assert certificate.confirmed and certificate.failures > 0
    with pytest.raises(ArithmeticError, match="diverged"):
        verify(problem, result, on_failure="raise")


def test_failures_that_pass_are_repeated() -> None:
    calls = {"failed": 0}

    def flaky(x, y):
        key = y.tobytes()
        if key not in calls and calls["failed"] < 20:
            calls[key] = True
            calls["failed"] += 1
            raise OSError("no licence")
        return float((y[0] - x[0]) ** 2)

    problem = Problem(lambda x, y: y[0], flaky, [(0, 1)], [(0, 1)])
    result = claim(Problem(problem.F, lambda x, y: 0.0, [(0, 1)], [(0, 1)]), [0.5], [0.5])
    certificate = verify(problem, result, retries=1)
    assert calls["failed"] == 20 and certificate.failures == 0 and certificate.confirmed


@pytest.mark.filterwarnings("ignore:workers slow this run down")
@pytest.mark.parametrize("name", ["smd1", "tp3"])
def test_workers_change_nothing_but_the_time(name: str) -> None:
    problem = get(name)
    result = minimize(problem, max_evals=1000)
    alone = verify(problem, result)
    with ThreadPoolExecutor(3) as pool:
        together = verify(problem, result, workers=pool)
    assert repr(alone) == repr(together)


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_processes_and_a_timeout_are_taken() -> None:
    problem = rippled()
    result = claim(problem, [1.0], [1.0])
    alone = verify(problem, result)
    assert repr(verify(problem, result, workers=1, timeout=60)) == repr(alone)


def test_searches_run_side_by_side() -> None:
    batches: list[int] = []

    def f(x, y):
        batches.append(len(y))
        return (y[:, 0] - x[:, 0]) ** 2

    problem = Problem(lambda x, y: y[:, 0], f, [(0, 1)], [(0, 1)], vectorized=True)
    result = minimize(problem, max_evals=300)
    batches.clear()
    verify(problem, result, effort="normal")
    assert sum(batches) / len(batches) > 8


def test_progress_is_shown_on_standard_error(capsys) -> None:
    problem = rippled(name="ripples")
    verify(problem, claim(problem, [1.0], [1.0]), progress=True)
    captured = capsys.readouterr()
    assert "verification of ripples: " in captured.err and "evaluations" in captured.err
    assert captured.out == ""


def test_the_same_seed_gives_the_same_certificate() -> None:
    problem = get("smd2")
    result = minimize(problem, max_evals=500)
    assert repr(verify(problem, result, rng=3)) == repr(verify(problem, result, rng=3))
    assert repr(verify(problem, result, rng=3)) != repr(verify(problem, result, rng=4))
