"""Exceptions of the objective, at every call of a generation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crashes import METHODS, SMALL, F, course, f, problem

import bilevo


class BrokenError(Exception):
    """What a simulator says."""


def failing_at(call: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """F and f of which one, at that call of either, raises."""
    calls = 0

    def counted(function: Callable[..., float]) -> Callable[..., float]:
        def evaluate(x: Any, y: Any) -> float:
            nonlocal calls
            calls += 1
            if calls == call:
                raise BrokenError("no mesh")
            return function(x, y)

        return evaluate

    return counted(F), counted(f)


def run(functions: Any, method: str, **options: Any) -> bilevo.Result:
    upper, lower = functions
    made = bilevo.Problem(upper, lower, [(-5, 10)], [(-5, 10)], name="copy")
    options = {**SMALL, "method": method, **options}
    if method == "nested-cma-es":
        options["max_evals"] = 200
    return bilevo.minimize(made, **options)


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_at_any_call_is_raised_and_the_run_resumes(
    method: str, tmp_path: Path, trials, figure
) -> None:
    whole = run((F, f), method)
    first = whole.history[0].nfev_upper + whole.history[0].nfev_lower
    calls = range(1, first + 1, trials(4, 1))
    for call in calls:
        here = tmp_path / str(call)
        with pytest.raises(BrokenError, match="no mesh") as caught:
            run(failing_at(call), method, run_dir=here)
        assert any(frame.name == "evaluate" for frame in caught.traceback)
        assert bilevo.load(here).nfev == call - 1
        assert course(run((F, f), method, run_dir=here)) == course(whole)
    figure(7, len(calls), "exceptions raised and resumed from")


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_at_any_call_can_be_ranked_last_counted_and_journalled(
    method: str, tmp_path: Path, trials, figure
) -> None:
    calls = range(1, 60, trials(3, 1))
    for call in calls:
        here = tmp_path / str(call)
        result = run(failing_at(call), method, run_dir=here, on_failure="worst")
        assert result.failures == len(result.failed_points) == 1
        failed = result.failed_points[0]
        assert failed.error == "BrokenError: no mesh" and failed.level in ("upper", "lower")
        again = run((F, f), method, run_dir=here, on_failure="worst")
        assert course(again) == course(result) == course(bilevo.load(here))
    figure(7, len(calls), "exceptions ranked last and replayed")


def test_a_failed_point_tells_where_it_was() -> None:
    def lower(x: Any, y: Any) -> float:
        if y[0] > 5:
            raise BrokenError("overflow")
        return f(x, y)

    result = bilevo.minimize(problem(lower=lower), on_failure="worst", **SMALL)
    assert result.failures == len(result.failed_points) > 0
    assert {(p.level, p.error, p.y[0] > 5) for p in result.failed_points} == {
        ("lower", "BrokenError: overflow", True)
    }
    numbers = [point.evaluation for point in result.failed_points]
    assert numbers == sorted(numbers) and numbers[-1] <= result.nfev_lower


def test_a_run_that_failed_goes_on_when_failures_are_forgiven(tmp_path: Path) -> None:
    with pytest.raises(BrokenError):
        run(failing_at(20), METHODS[0], run_dir=tmp_path)
    forgiven = run(failing_at(1), METHODS[0], run_dir=tmp_path, on_failure="worst")
    assert course(forgiven) == course(run(failing_at(20), METHODS[0], on_failure="worst"))


def test_only_the_first_hundred_failures_are_listed(tmp_path: Path) -> None:
    def lower(x: Any, y: Any) -> float:
        raise BrokenError

    options = {**SMALL, "max_evals": 300, "on_failure": "worst", "run_dir": tmp_path}
    result = bilevo.minimize(problem(lower=lower), **options)
    assert result.failures > 120 and len(result.failed_points) == 100
    assert course(bilevo.load(tmp_path)) == course(result)
