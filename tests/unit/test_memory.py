"""What a run keeps is bounded: its history, its archives, and all of it together."""

import gc
import json
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bilevo
from bilevo.algorithms.rivals import archive
from bilevo.algorithms.rivals.archive import Archive
from bilevo.core import result
from bilevo.core.algorithm import Followers
from bilevo.core.result import Generation, History
from bilevo.registry import driving
from bilevo.run import encoding
from bilevo.run.journal import Record, RecordKind
from bilevo.run.record import MAX_LISTED, RunRecord
from bilevo.run.stored import StoredRun

BYTES_PER_EVALUATION = 25  # by which a run may grow: 25 MB in a million evaluations


def row(number: int) -> Generation:
    return Generation(number, 10 * number, 1.0, 1.0, 0.0, (1, 2), (True, False))


def pair(x: Any, y: Any, F: float) -> Any:
    return SimpleNamespace(x=x, y=y, F=F, f=0.0, violation=0.0)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 18, 31, 32, 33, 34, 35, 100, 1000])
def test_a_long_history_is_thinned_evenly_and_ends_with_the_last_generation(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "MAX_ROWS", 8)
    history = History()
    for number in range(1, count + 1):
        history.add(row(number))
        assert history[-1].nfev_upper == number
    assert len(history) <= 8 and len(history) >= min(count, 5)
    assert history.count == count
    assert [generation.nfev_upper for generation in history] == history.numbers
    assert set(np.diff(history.numbers[:-1])) <= {history.step}


def test_a_run_thins_its_history_and_counts_its_generations(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "MAX_ROWS", 8)
    problem = bilevo.problems.get("smd1")
    options = {"method": "drc-cma-es", "max_evals": 6000, "target": False, "run_dir": tmp_path}
    long = bilevo.minimize(problem, **options)
    assert len(long.history) <= 8 < long.nit == long.history.count
    assert long.history.numbers[-1] == long.nit
    assert bilevo.load(tmp_path).history == long.history
    resumed = bilevo.minimize(problem, **options)
    assert resumed.history == long.history


def test_a_history_of_a_usual_length_is_whole() -> None:
    history = History()
    for number in range(1, 10_001):
        history.add(row(number))
    assert history.numbers == list(range(1, 10_001))


def test_a_thinned_history_is_stored_with_its_numbers(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "MAX_ROWS", 8)
    ended = bilevo.minimize(bilevo.problems.get("smd1"), max_evals=300)
    for number in range(ended.nit + 1, 30):
        ended.history.add(row(number))
    ended.save(tmp_path / "result.json")
    assert bilevo.Result.load(tmp_path / "result.json").history == ended.history


def test_a_journal_of_many_generations_is_read_as_it_was_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(result, "MAX_ROWS", 8)
    read, run = StoredRun(), RunRecord()
    for number in range(1, 50):
        run.history.add(row(number))
        read.add(encoding.generation(run, number, 1.0))
    assert read.run.history == run.history


def test_failures_in_a_journal_are_counted_and_the_first_are_kept() -> None:
    read, batches = StoredRun(), 20 * MAX_LISTED
    for number in np.random.default_rng(1).permutation(batches).tolist():
        content = {"error": "no mesh", "first": number + 1, "x": [[1.0]], "y": [[1.0]]}
        payload = json.dumps(content).encode()
        read.add(Record(RecordKind.FAILURE, 0, 1, number, 0, 1.0, payload))
        assert len(read.run._failed) <= 2 * MAX_LISTED
    assert read.run.failures == batches
    listed = [point.evaluation for point in read.run.failed_points]
    assert listed == list(range(1, MAX_LISTED + 1))


def test_an_archive_forgets_the_oldest_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "ANSWERS_KEPT", 5)
    kept = Archive()
    for number in range(20):
        x = np.array([number, 0.5])
        kept = kept.with_answers([pair(x, x, float(number))])
    assert kept.F.ravel().tolist() == [15, 16, 17, 18, 19]


def test_an_archive_holds_a_leader_once_with_its_last_answer() -> None:
    x, other = np.array([0.25, 0.5]), np.array([0.25, 0.75])
    first = [pair(x, x, 1.0), pair(other, x, 2.0)]
    kept = Archive().with_answers(first).with_answers([pair(x, other, 3.0)])
    assert kept.F.ravel().tolist() == [2, 3]
    assert kept.y.tolist() == [x.tolist(), other.tolist()]


def growth(method: str, evaluations: int) -> float:
    """Bytes per evaluation that the second half of a run adds to what is allocated."""
    marks: list[tuple[int, int]] = []

    def look(so_far: bilevo.Result) -> None:
        if so_far.nfev >= (len(marks) + 1) * evaluations / 2:
            gc.collect()
            marks.append((so_far.nfev, tracemalloc.get_traced_memory()[0]))

    endless = bilevo.Budget(upper_max=10**9, upper_window=10**9)
    problem = bilevo.problems.get("smd1")
    tracemalloc.start()
    try:
        bilevo.minimize(
            problem,
            method=method,
            budget=endless,
            target=False,
            max_evals=2 * evaluations,
            callback=lambda so_far: look(so_far) if len(marks) < 2 else stop(),
        )
    finally:
        tracemalloc.stop()
    (before, less), (after, more) = marks
    return (more - less) / (after - before)


def stop() -> None:
    raise StopIteration


def test_a_long_run_hardly_grows() -> None:
    assert growth("drc-cma-es", 20_000) < BYTES_PER_EVALUATION


@pytest.mark.slow
@pytest.mark.parametrize("method", driving(Followers.FUNCTION))
def test_a_long_run_of_any_method_hardly_grows(method: str) -> None:
    assert growth(method, 100_000) < BYTES_PER_EVALUATION
