"""What can happen to a journal on the disk, and what then becomes of the run."""

import errno
import itertools
import json
import os
import shutil
import signal
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashes import METHODS, SMALL, boundaries, course, f, problem, slow_f, small

import bilevo
from bilevo import JournalCorrupt
from bilevo.core.plain_data import plain
from bilevo.core.request import Values
from bilevo.run import directory, journal
from bilevo.run.lock import DirectoryLock


class FaultyDisk:
    """The `os` of the journal, whose calls can be made to fail, and which notes what is synced."""

    def __init__(self) -> None:
        self.calls = self.synced = 0
        self.fail_at, self.partly = -1, False

    def __getattr__(self, name: str):
        return getattr(os, name)

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, file: int, content: bytes) -> int:
        if self.partly and self.calls + 1 == self.fail_at:
            os.write(file, content[: len(content) // 2])
        self._call()
        return os.write(file, content)

    def ftruncate(self, file: int, size: int) -> None:
        if self.partly:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(file, size)

    def replace(self, source: Path, target: Path) -> None:
        self._call()
        os.replace(source, target)

    def fsync(self, file: int) -> None:
        status = os.fstat(file)
        if not stat.S_ISDIR(status.st_mode):
            self.synced = status.st_size


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    """Snapshots at every generation, and a disk that can be told to fail."""
    faulty = FaultyDisk()
    monkeypatch.setattr(journal, "os", faulty)
    monkeypatch.setattr(directory, "SNAPSHOT_AFTER", 0.0)
    return faulty


def test_a_run_that_is_kept_is_the_run_that_is_not(tmp_path: Path) -> None:
    for method in METHODS:
        here = tmp_path / method
        assert course(small(here, method)) == course(small(None, method))
        assert {path.name for path in here.iterdir()} == {"journal.bin", "snapshot.npz", "lock"}


@pytest.mark.rest
@pytest.mark.parametrize(
    ("method", "snapshots"), [*((method, True) for method in METHODS), (METHODS[0], False)]
)
def test_a_cut_anywhere_resumes_to_the_same_result(
    method: str, snapshots: bool, tmp_path: Path, trials, figure
) -> None:
    whole = course(small(tmp_path / "whole", method))
    content = (tmp_path / "whole" / "journal.bin").read_bytes()
    ends = boundaries(tmp_path / "whole" / "journal.bin")
    cuts = {end + step for end in ends for step in (-1, 0, 1)}
    cuts |= set(range(ends[-5], ends[-2]))  # in the last three evaluations
    cuts |= {*range(0, ends[0], 37), *range(ends[-2], ends[-1], 9)}  # in the header and the end
    tried = sorted(cuts)[:: trials(7 if snapshots else 20, 1)]
    for cut in tried:
        here = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", here)
        if not snapshots:
            (here / "snapshot.npz").unlink()
        (here / "journal.bin").write_bytes(content[:cut])
        assert course(small(here, method)) == whole, cut
        shutil.rmtree(here)
    figure(2, len(tried), "cuts")


def mutant(content: bytes, rng: np.random.Generator) -> bytes:
    """One random accident."""
    at = int(rng.integers(len(content)))
    size = int(rng.choice([1, 2, 4, 17, 60, 300]))
    part = content[at : at + size]
    match rng.integers(6):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes([content[at] ^ (1 << rng.integers(8))]) + content[at + 1 :]
        case 2:
            return content[:at] + content[at + size :]
        case 3:
            return content[:at] + part + content[at:]
        case 4:
            return content[:at] + rng.bytes(size) + content[at:]
        case _:
            return content[:at] + bytes(len(part)) + content[at + size :]


@pytest.mark.rest
@pytest.mark.parametrize("part", range(2))
def test_a_damaged_journal_resumes_or_is_refused_but_never_misread(
    part: int, tmp_path: Path, trials, figure
) -> None:
    rng = np.random.default_rng(part)
    whole = course(small(tmp_path))
    content = (tmp_path / "journal.bin").read_bytes()
    number, refused = trials(500, 20_000) // 2, 0
    for _ in range(number):
        damaged = mutant(content, rng)
        (tmp_path / "journal.bin").write_bytes(damaged)
        try:
            assert course(small(tmp_path)) == whole
        except (bilevo.JournalCorrupt, bilevo.RunMismatch) as error:
            refused += 1
            assert str(tmp_path) in str(error) and "\n" not in str(error)
            assert (tmp_path / "journal.bin").read_bytes() == damaged
            with pytest.raises((bilevo.JournalCorrupt, bilevo.RunMismatch)):
                bilevo.load(tmp_path)
    assert number / 3 < refused < number
    figure(3, number, "mutants, each resumed to the same result or refused")


@pytest.mark.rest
@pytest.mark.parametrize("partly", [False, True], ids=["cleanly", "after half a record"])
def test_a_failing_disk_names_the_path_and_what_was_written_resumes(
    partly: bool, tmp_path: Path, disk: FaultyDisk, figure
) -> None:
    disk.partly = partly
    whole = course(small(tmp_path / "whole"))
    calls = disk.calls
    for k in range(1, calls + 1):
        here = tmp_path / str(k)
        disk.calls, disk.fail_at = 0, k
        with pytest.raises(OSError, match=r"No space left.*continues the run") as caught:
            small(here)
        assert str(here) in str(caught.value)
        disk.fail_at, disk.partly = -1, False
        assert course(small(here)) == whole
        disk.partly = partly
    assert calls > 70
    figure(4, calls, "failed system calls")


def break_off(writer: journal.JournalWriter) -> None:
    """End without a last sync."""
    writer._closing.set()
    writer._unsynced.set()
    writer._syncing.join()
    os.close(writer._file)


def test_a_run_whose_unsynced_records_are_lost_resumes(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, figure
) -> None:
    monkeypatch.setattr(directory, "SNAPSHOT_AFTER", np.inf)
    whole = course(small(None))
    lost = 0
    for step in range(1, 40):
        here, count = tmp_path / str(step), itertools.count()
        # A clock by which a second passes every few calls.
        monkeypatch.setattr(journal, "perf_counter", lambda count=count, k=step: next(count) / k)
        with monkeypatch.context() as power_failure:
            power_failure.setattr(journal.JournalWriter, "close", break_off)
            small(here)
        content = (here / "journal.bin").read_bytes()
        assert boundaries(here / "journal.bin")[0] <= disk.synced <= len(content)
        (here / "journal.bin").write_bytes(content[: disk.synced])
        lost += disk.synced < len(content)
        assert course(small(here)) == whole
    assert lost > 10
    figure(5, lost, "simulated power cuts, each losing all that was not yet on the disk")


def test_records_are_synced_once_a_second_and_within_a_second(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, syncs = [100.0], []
    monkeypatch.setattr(journal.JournalWriter, "_sync_when_idle", lambda self: None)
    monkeypatch.setattr(journal, "perf_counter", lambda: now[0])
    monkeypatch.setattr(disk, "fsync", lambda file: syncs.append(now[0]))
    writer = journal.JournalWriter.create(tmp_path / "journal.bin", {})
    record = journal.Record(journal.RecordKind.VALUES, 0, 1, 0, 0, 0.0, b"")
    syncs.clear()
    for _ in range(50):
        writer.append(record)
        now[0] += 0.125
    assert syncs == [100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 106.0]


def test_a_record_with_none_behind_it_is_synced_by_itself(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SYNC_EVERY", 0.05)
    writer = journal.JournalWriter.create(tmp_path / "journal.bin", {})
    synced = threading.Event()
    record = journal.Record(journal.RecordKind.VALUES, 0, 1, 0, 0, 0.0, b"")
    writer.append(record)  # synced at once: the first
    monkeypatch.setattr(disk, "fsync", lambda file: synced.set())
    writer.append(record)
    assert synced.wait(10)
    writer.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rng": 2}, "seed is 1 there and 2 here"),
        ({"method": "bl-cma-es"}, "method is 'drc-cma-es' there and 'bl-cma-es' here"),
        ({"method": bilevo.algorithms.DRC(alpha=0.4)}, "parameters.alpha is 0.5 there and 0.4"),
        ({"ftol": 1e-3}, "ftol is 1e-06 there and 0.001 here"),
        ({"budget": bilevo.Budget(lower_max=9, upper_max=30)}, "budget.lower_max is 4 there and 9"),
        ({"x0": [1.0]}, "x0 is None there"),
        ({"y0": [1.0]}, "y0 is None there"),
        ({"target": 0.5}, "target"),
    ],
)
def test_another_run_is_refused_by_what_differs(change, says: str, tmp_path: Path) -> None:
    small(tmp_path)
    before = (tmp_path / "journal.bin").read_bytes()
    with pytest.raises(bilevo.RunMismatch) as caught:
        small(tmp_path, **change)
    assert says in str(caught.value) and "another run_dir" in str(caught.value)
    assert (tmp_path / "journal.bin").read_bytes() == before


def test_another_problem_is_refused_by_what_differs(tmp_path: Path) -> None:
    small(tmp_path)
    functions = lambda x, y: 0.0, lambda x, y: 0.0
    for other, says in (
        (bilevo.Problem(*functions, [(-5, 10)], [(-5, 10)]), "problem is 'copy' there"),
        (bilevo.Problem(*functions, [(-5, 11)], [(-5, 10)], name="copy"), "bounds is"),
        (bilevo.Problem(*functions, [(-5, 10)] * 2, [(-5, 10)], name="copy"), "sizes is"),
        (bilevo.Problem(*functions, [(-5, 10)], [(-5, 10)], name="copy", vectorized=True), "vec"),
        (bilevo.Problem(*functions, [(-5, 10)], [(-5, 10)], functions[0], name="copy"), "'FfG'"),
    ):
        with pytest.raises(bilevo.RunMismatch, match=says):
            bilevo.minimize(other, run_dir=tmp_path, **SMALL)


def test_points_in_the_journal_are_not_evaluated_again(tmp_path: Path) -> None:
    whole = small(tmp_path)
    result = bilevo.minimize(problem(lower=lambda x, y: 1 / 0), run_dir=tmp_path, **SMALL)
    assert course(result) == course(whole)


def test_a_background_sync_that_fails_is_an_error(
    tmp_path: Path, disk: FaultyDisk, monkeypatch
) -> None:
    monkeypatch.setattr(journal, "SYNC_EVERY", 0.5)
    failed, calls = threading.Event(), itertools.count(1)

    def fsync(file: int) -> None:
        failed.set()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def lower(x: Any, y: Any) -> float:
        match next(calls):
            case 2:  # the first record is synced at once, this one later
                monkeypatch.setattr(disk, "fsync", fsync)
            case 3:
                assert failed.wait(10)
                time.sleep(0.05)
        return f(x, y)

    with pytest.raises(OSError, match=r"Input/output error.*continues the run.*journal\.bin"):
        bilevo.minimize(problem(lower=lower), run_dir=tmp_path, **SMALL)


def test_an_objective_may_change_the_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    def lower(x: Any, y: Any) -> float:
        os.chdir("/")
        return f(x, y)

    result = bilevo.minimize(problem(lower=lower), run_dir="runs/here", **SMALL)
    assert course(bilevo.load(tmp_path / "runs" / "here")) == course(result)


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for wrong in ("", 3, tmp_path / "file"):
        with pytest.raises(ValueError, match="run_dir must be the name of a directory"):
            small(wrong)
    assert (tmp_path / "file").read_text() == "mine"


def test_copying_a_run_does_not_give_its_lock_away(tmp_path: Path) -> None:
    def copy_it(result: bilevo.Result) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / f"copy{result.nit}")
        with pytest.raises(bilevo.RunLocked, match=f"process {os.getpid()} "):
            small(tmp_path / "run")

    result = small(tmp_path / "run", callback=copy_it)
    assert course(small(tmp_path / "copy1")) == course(result)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_outlives_its_parent_does_not_hold_the_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"here")
        time.sleep(60)
        os._exit(0)
    os.read(reading, 4)
    lock.release()
    DirectoryLock(tmp_path).release()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_directory_removed_during_a_run_gives_a_warning(tmp_path: Path) -> None:
    def remove(result: bilevo.Result) -> None:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with pytest.warns(UserWarning, match="was removed: nothing of the run is kept"):
        small(tmp_path / "run", callback=remove, max_evals=40)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    options = {"ftol": np.float32(1e-6), "retries": np.int64(1), "max_evals": np.int64(70)}
    small(tmp_path, **options)
    assert small(tmp_path, **options).nfev <= 70


def test_a_new_revision_of_the_algorithm_is_refused(tmp_path: Path, monkeypatch) -> None:
    small(tmp_path)
    monkeypatch.setattr(bilevo.algorithms.DRC, "revision", 99)
    with pytest.raises(bilevo.RunMismatch, match="revision is 1 there and 99 here"):
        small(tmp_path)


def test_a_patch_release_of_the_package_resumes(tmp_path: Path, monkeypatch) -> None:
    whole = small(None)
    small(tmp_path, max_evals=50)
    monkeypatch.setattr("bilevo.run.header.__version__", "0.1.99")
    assert course(small(tmp_path)) == course(whole)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", None, ""),
        (b"hello, world\n" * 100, bilevo.JournalCorrupt, "does not begin like a journal"),
        (b"bilevo-journal-2 00000000 {}\n", bilevo.RunMismatch, "the version that wrote it"),
        (b"bilevo-journal-1 00000000 {}\n", bilevo.JournalCorrupt, "header is damaged"),
    ],
)
def test_foreign_and_newer_journals_are_refused_in_one_line(
    content: bytes, error, says: str, tmp_path: Path
) -> None:
    (tmp_path / "journal.bin").write_bytes(content)
    if error is None:
        assert course(small(tmp_path)) == course(small(None))
        return
    for call in (small, bilevo.load):
        with pytest.raises(error, match=says) as caught:
            call(tmp_path)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "journal.bin").read_bytes() == content


def test_larger_limits_go_on_with_a_run_that_has_ended(tmp_path: Path) -> None:
    for limit in (30, 50, 80, 130):
        assert course(small(tmp_path, max_evals=limit)) == course(small(None, max_evals=limit))
    size = (tmp_path / "journal.bin").stat().st_size
    assert course(small(tmp_path, max_evals=40)) == course(small(None, max_evals=40))
    assert (tmp_path / "journal.bin").stat().st_size == size


def test_nothing_is_evaluated_twice(tmp_path: Path) -> None:
    calls = []

    def counted(x, y):
        calls.append(1)
        return f(x, y)

    for limit in (30, 50, 80, 110):
        options = {**small_to(limit), "recheck": False}
        result = bilevo.minimize(problem(lower=counted), run_dir=tmp_path, **options)
        assert len(calls) == result.nfev_lower


def test_load_tells_how_far_a_run_has_come(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run"):
        bilevo.load(tmp_path)
    ended = small(tmp_path)
    assert plain_result(bilevo.load(tmp_path)) == plain_result(ended)
    content = (tmp_path / "journal.bin").read_bytes()
    ends = boundaries(tmp_path / "journal.bin")
    (tmp_path / "journal.bin").write_bytes(content[: ends[-10] + 3])
    halfway = bilevo.load(tmp_path)
    assert halfway.status == "running" and not halfway.success and "not ended" in halfway.message
    assert 0 < halfway.nit < ended.nit and halfway.nfev < ended.nfev
    assert halfway.history.generations == ended.history.generations[: halfway.nit]
    F, _, f, _ = problem().evaluate(halfway.x, halfway.y)
    assert (halfway.F, halfway.f) == (F[0], f[0])


def plain_result(result: bilevo.Result) -> object:
    from dataclasses import asdict

    return plain(asdict(result))


def test_the_callback_is_called_once_for_what_was_before(tmp_path: Path) -> None:
    seen: list[int] = []

    def stop_at(generation: int):
        def callback(result: bilevo.Result) -> None:
            seen.append(result.nit)
            if result.nit >= generation:
                raise StopIteration

        return callback

    first = small(tmp_path, callback=stop_at(2), max_evals=300)
    again = small(tmp_path, callback=stop_at(2), max_evals=300)
    assert course(first) == course(again) and seen == [1, 2, 2]
    seen.clear()
    small(tmp_path, callback=stop_at(4), max_evals=300)
    assert seen == [2, 3, 4]


def test_a_run_may_be_taken_up_with_another_number_of_workers(tmp_path: Path) -> None:
    small(tmp_path, max_evals=40)
    with pytest.warns(UserWarning, match="workers slow this run down"):
        result = small(tmp_path, max_evals=200, workers=2)
    assert course(result) == course(small(None, max_evals=200))


def test_time_goes_on_from_where_it_was(tmp_path: Path) -> None:
    for limit in (40, 70, 100):  # to a snapshot's very place, and beyond it
        slow = bilevo.minimize(problem(lower=slow_f), run_dir=tmp_path, **small_to(limit))
    again = small(tmp_path, max_evals=100)
    assert again.time > 0.001 * slow.nfev_lower
    assert small(tmp_path, max_evals=200, max_time=0.05).status == "max_time"


def small_to(limit: int) -> dict[str, Any]:
    return {**SMALL, "max_evals": limit}


def test_a_run_that_ends_at_its_first_request_can_be_read_and_continued(tmp_path) -> None:
    nothing = small(tmp_path, max_evals=1)  # the first batch is cut to one point
    assert nothing.nfev == 1 and 0 <= bilevo.load(tmp_path).time < 60
    assert course(small(tmp_path)) == course(small(None))


def test_a_run_that_ended_by_its_time_is_not_continued_by_the_same_call(tmp_path: Path) -> None:
    def slow(x, y):
        time.sleep(0.01)
        return f(x, y)

    options = {**SMALL, "max_evals": None, "max_time": 0.3, "run_dir": tmp_path}
    first = bilevo.minimize(problem(lower=slow), **options)
    assert first.status == "max_time"
    size = (tmp_path / "journal.bin").stat().st_size
    for _ in range(3):
        again = bilevo.minimize(problem(lower=slow), **options)
        assert course(again) == course(first) and again.rechecked == 0
    assert (tmp_path / "journal.bin").stat().st_size == size


def test_a_slower_replay_comes_as_far_as_the_run_did(tmp_path: Path, monkeypatch) -> None:
    options = {**SMALL, "max_time": 3.0, "run_dir": tmp_path}
    first = bilevo.minimize(problem(), **options)
    assert first.status == "max_evals"
    (tmp_path / "snapshot.npz").unlink(missing_ok=True)
    answers = Values.of

    def slowly(*values):
        time.sleep(0.1)
        return answers(*values)

    monkeypatch.setattr(Values, "of", slowly)
    assert course(bilevo.minimize(problem(), **options)) == course(first)


@pytest.mark.parametrize("x", [[1e9], [1.0, 2.0]], ids=["outside", "of another size"])
def test_a_forged_best_pair_is_refused(x: list[float], tmp_path: Path) -> None:
    bilevo.minimize(problem(), run_dir=tmp_path / "run", **{**SMALL, "max_evals": 40})
    stored = journal.JournalFile(tmp_path / "run" / "journal.bin")
    writer = journal.JournalWriter.create(tmp_path / "forged", stored.header)
    for record, _ in stored.records():
        payload = record.payload
        if record.kind is journal.RecordKind.BEST:
            payload = json.dumps({**json.loads(payload), "x": x}).encode()
        writer.append(record._replace(payload=payload))
    writer.close()
    (tmp_path / "forged").replace(tmp_path / "run" / "journal.bin")
    with pytest.raises(JournalCorrupt, match="its best pair"):
        bilevo.minimize(problem(), run_dir=tmp_path / "run", **SMALL)
