"""Runs with gradients that users give: counts, workers, failures, limits and resumed runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradients as made
import numpy as np
import pytest
from gradients import Descent, N, smooth, with_pairs

import bilevo
from bilevo.core.request import (
    BadRequest,
    Derive,
    Level,
)
from bilevo.core.slopes import SlopesGiven
from bilevo.run.directory import snapshots_after
from bilevo.testing import CountingProblem
from bilevo.testing.conformance import fingerprint

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("vectorized", [False, True])
def test_gradients_are_counted_and_are_no_evaluations(vectorized: bool, pairs: bool) -> None:
    counting = CountingProblem(with_pairs(vectorized) if pairs else smooth(vectorized))
    result = counting.minimize(method=Descent(points=3, generations=5))
    assert (result.nfev_upper, result.nfev_lower) == (15, 15)
    assert (result.njev_upper, result.njev_lower, result.njev) == (15, 15, 30)
    assert "njev_upper: 15" in repr(result)
    limited = counting.minimize(method=Descent(), max_evals=31)
    assert (limited.status, limited.nfev, limited.njev) == ("max_evals", 31, 30)


def test_without_gradients_nothing_is_counted_or_shown() -> None:
    result = bilevo.minimize(bilevo.problems.get("smd1"), max_evals=50)
    assert (result.njev_upper, result.njev_lower, result.njev) == (0, 0, 0)
    assert "njev" not in repr(result)


def test_a_request_for_slopes_that_are_not_there_is_refused() -> None:
    problem = smooth(f_jac=None, g_jac=None)
    with pytest.raises(BadRequest, match=r"slopes of f, and the problem gives no f_jac"):
        bilevo.minimize(problem, method=Descent())


def test_a_request_for_slopes_outside_the_box_is_refused() -> None:
    class Outside(Descent):
        def generation(self, spec: Any, state: Any) -> Any:
            yield Derive(Level.LOWER, state.x + 1, state.y)

    with pytest.raises(BadRequest, match=r"Derive.x has the coordinate 1.2 outside the unit box"):
        bilevo.minimize(smooth(), method=Outside())


def test_ask_and_tell_is_without_gradients() -> None:
    optimizer = bilevo.Optimizer(smooth(), method=Descent())
    with pytest.raises(BadRequest, match="gives no f_jac"):
        for _ in range(2):
            batch = optimizer.ask()
            F, G, f, g = smooth().evaluate(batch.x, batch.y)
            optimizer.tell(batch, *((F, G) if batch.level == "upper" else (f, g)))


@pytest.mark.filterwarnings("ignore:workers slow this run down")
@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_workers_give_the_same_result(vectorized: bool, pairs: bool) -> None:
    problem = with_pairs(vectorized) if pairs else smooth(vectorized)
    alone = bilevo.minimize(smooth(vectorized), method=Descent())
    with ThreadPoolExecutor(2) as threads:
        threaded = bilevo.minimize(problem, method=Descent(), workers=threads)
    processes = bilevo.minimize(problem, method=Descent(), workers=2)
    assert fingerprint(alone) == fingerprint(threaded) == fingerprint(processes)
    assert alone.njev == 72


def failing(x: np.ndarray, y: np.ndarray) -> Any:
    if x[0] < -2:
        raise ArithmeticError("no slope here")
    return made.f_jac(x, y)


def test_a_gradient_that_fails_is_nan_and_is_listed() -> None:
    method = Descent(points=3, generations=2)
    problem = smooth(f_jac=failing)
    result = bilevo.minimize(problem, method=method, on_failure="worst")
    assert (result.failures, result.njev_lower, result.nfev_lower) == (2, 6, 6)
    assert [failed.evaluation for failed in result.failed_points] == [1, 4]
    assert result.failed_points[0].error == "gradient: ArithmeticError: no slope here"
    below = method.asked[0]
    assert np.isnan(below.objective_y[0]).all() and np.isnan(below.constraints_y[0]).all()
    assert np.isfinite(below.objective_y[1:]).all() and below.constraints_y.shape == (3, 1, N)
    with pytest.raises(ArithmeticError) as raised:
        bilevo.minimize(problem, method=Descent())
    assert "in a gradient of the lower level at x = " in str(raised.value.__notes__)


def test_a_gradient_that_fails_is_repeated() -> None:
    calls: list[int] = []

    def flaky(x: np.ndarray, y: np.ndarray) -> Any:
        calls.append(1)
        if len(calls) % 2:
            raise OSError
        return made.f_jac(x, y)

    result = bilevo.minimize(smooth(f_jac=flaky), method=Descent(), retries=1)
    assert result.failures == 0 and len(calls) == 2 * result.njev_lower
    assert fingerprint(result) == fingerprint(bilevo.minimize(smooth(), method=Descent()))


def hanging(x: np.ndarray, y: np.ndarray) -> Any:
    import time

    if x[0] < -2:
        time.sleep(600)
    return made.f_jac(x, y)


@pytest.mark.rest
def test_a_gradient_that_hangs_is_stopped() -> None:
    options: dict[str, Any] = {"workers": 1, "timeout": 1.0, "on_failure": "worst"}
    result = bilevo.minimize(smooth(f_jac=hanging), method=Descent(generations=1), **options)
    assert result.failures == 1 and "gradient: TimeoutError" in result.failed_points[0].error


def test_a_time_limit_ends_a_run_between_gradients() -> None:
    clock = {"calls": 0}

    def slow(x: np.ndarray, y: np.ndarray) -> Any:
        import time

        clock["calls"] += 1
        if clock["calls"] == 2:
            time.sleep(0.3)
        return made.f_jac(x, y)

    result = bilevo.minimize(smooth(f_jac=slow), method=Descent(), max_time=0.25)
    assert (result.status, result.njev_lower, clock["calls"]) == ("max_time", 2, 2)


def interrupted(problem: bilevo.Problem, folder: Path, stop: int, **options: Any) -> None:
    """Make a run that a callback stops."""

    def callback(result: bilevo.Result) -> None:
        if result.nit == stop:
            raise StopIteration

    bilevo.minimize(problem, method=Descent(), run_dir=folder, callback=callback, **options)


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("snapshots", [0.0, 1e9])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, vectorized: bool, snapshots) -> None:
    gradient = made.f_jac if vectorized else failing
    options: dict[str, Any] = {"on_failure": "worst"}
    problem = smooth(vectorized, f_jac=gradient)
    whole = bilevo.minimize(problem, method=Descent(), **options)
    with snapshots_after(snapshots):
        interrupted(problem, tmp_path, 4, **options)
        stopped = bilevo.load(tmp_path)
        assert (stopped.njev_upper, stopped.njev_lower) == (12, 12)
        resumed = bilevo.minimize(problem, method=Descent(), run_dir=tmp_path, **options)
    assert fingerprint(resumed) == fingerprint(whole)
    loaded = bilevo.load(tmp_path)
    assert fingerprint(loaded) == fingerprint(whole) and loaded.njev == whole.njev == 72
    assert len(loaded.failed_points) == len(whole.failed_points)


def test_a_run_is_not_continued_with_other_gradients(tmp_path: Path) -> None:
    interrupted(smooth(), tmp_path, 2)
    with pytest.raises(bilevo.RunMismatch, match="gradients is 'FfGg' there and 'FG' here"):
        bilevo.minimize(smooth(f_jac=None, g_jac=None), method=Descent(), run_dir=tmp_path)


@pytest.mark.parametrize("torn", [7, 60, 200])
def test_a_torn_journal_goes_on_to_the_same_bits(tmp_path: Path, torn: int) -> None:
    whole = bilevo.minimize(smooth(), method=Descent(), run_dir=tmp_path)
    journal = tmp_path / "journal.bin"
    size = journal.stat().st_size
    for share in (0.3, 0.6, 0.9):
        os.truncate(journal, int(share * size) - torn)
        resumed = bilevo.minimize(smooth(), method=Descent(), run_dir=tmp_path)
        assert fingerprint(resumed) == fingerprint(whole)


KILLED = """
import sys, time
sys.path.insert(0, "tests")
import bilevo, gradients
calls = []

def f_jac(x, y):
    calls.append(1)
    if len(calls) == 20:
        print("here", flush=True)
        time.sleep(600)
    return gradients.f_jac(x, y)

bilevo.minimize(gradients.smooth(f_jac=f_jac), method=gradients.Descent(), run_dir=sys.argv[1])
"""


def test_a_run_that_was_killed_in_a_gradient_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        os.kill(process.pid, signal.SIGKILL)
    assert bilevo.load(tmp_path / "run").njev_lower == 19
    counting = CountingProblem(smooth())
    resumed = bilevo.minimize(counting.problem, method=Descent(), run_dir=tmp_path / "run")
    assert fingerprint(resumed) == fingerprint(bilevo.minimize(smooth(), method=Descent()))
    assert counting.lower_slopes == resumed.njev_lower - 19


def test_results_keep_the_counts_of_gradients(tmp_path: Path) -> None:
    result = bilevo.minimize(smooth(), method=Descent())
    result.save(tmp_path / "result.json")
    assert bilevo.Result.load(tmp_path / "result.json").njev == result.njev == 72


def test_a_hostile_number_of_slopes_is_refused(tmp_path: Path) -> None:
    from bilevo.run.journal import JournalFile, JournalWriter, RecordKind

    interrupted(smooth(), tmp_path, 2)
    file = JournalFile(tmp_path / "journal.bin")
    records = [record for record, _ in file.records()]
    at = next(i for i, record in enumerate(records) if record.kind is RecordKind.SLOPES)
    for payload, error in ((b"", bilevo.JournalCorrupt), (bytes(24), bilevo.RunMismatch)):
        writer = JournalWriter(tmp_path / "journal.bin", file.start)
        for record in [*records[:at], records[at]._replace(payload=payload)]:
            writer.append(record)
        writer.close()
        with pytest.raises(error):
            bilevo.minimize(smooth(), method=Descent(), run_dir=tmp_path)


def test_only_the_leaders_gradient_is_used_where_a_solver_is_the_follower() -> None:
    problem = smooth(follower=bilevo.followers.Minimize())
    assert problem.slopes_given == SlopesGiven(F=True, G=True)
