"""The state of a run as its directory shows it, and following a run while it is written."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import crashes
import numpy as np
import pytest
from crashes import boundaries, small, start
from hypothesis import given
from hypothesis import strategies as st

import bilevo
from bilevo.cli import main
from bilevo.core.budget import Limits, StopReason
from bilevo.core.request import Incumbent
from bilevo.core.result import Generation
from bilevo.run import encoding, follow, lock
from bilevo.run.follow import FollowedRun, followed
from bilevo.run.journal import JournalWriter, Record, RecordKind
from bilevo.run.lock import DirectoryLock, Owner, owner_of
from bilevo.run.record import RunRecord
from bilevo.run.state import RunState, state_of
from bilevo.run.stored import JOURNAL, load


def test_every_state_follows_from_the_lock_and_the_end() -> None:
    gone, here, left = Owner(name="a"), Owner(held=True), Owner(name="a", left=True)
    assert state_of(here, None) == state_of(here, StopReason.TARGET) == RunState.RUNNING
    assert state_of(gone, None) is RunState.DEAD
    assert state_of(left, None) is state_of(left, StopReason.MAX_EVALS) is RunState.STOPPED
    assert state_of(gone, StopReason.CALLBACK) is RunState.STOPPED
    assert state_of(gone, StopReason.STAGNATION) is RunState.DONE
    assert state_of(Owner(held=None), None) is RunState.UNKNOWN


def test_a_killed_run_is_dead_and_a_running_one_is_not(tmp_path: Path, capsys) -> None:
    holder = start(crashes.hold, tmp_path)
    try:
        while not (tmp_path / JOURNAL).exists():
            time.sleep(0.01)
        run = followed(tmp_path)
        assert run.state is RunState.RUNNING and f"process {holder.pid} " in run.sentence
        assert run.owner.limits == Limits(evals=70) and run.owner.since is not None
        assert main(["show", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith(f"state: running: process {holder.pid} on ")
    finally:
        holder.kill()
        holder.join()
    assert run.read() and run.state is RunState.DEAD
    assert main(["show", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "dead"
    assert "the call that began it continues it" in run.sentence


def test_a_run_that_a_limit_or_ctrl_c_ended_is_stopped(tmp_path: Path) -> None:
    small(tmp_path / "limit")
    assert followed(tmp_path / "limit").state is RunState.STOPPED

    def interrupt(result: bilevo.Result) -> None:
        raise KeyboardInterrupt

    small(tmp_path / "interrupted", callback=interrupt)
    run = followed(tmp_path / "interrupted")
    assert run.end is None and run.state is RunState.STOPPED
    assert "Ctrl-C" in run.sentence


def test_looking_at_a_lock_does_not_keep_a_run_from_starting(tmp_path: Path, monkeypatch) -> None:
    """The look takes the lock for a moment; who wants it then tries again."""
    import fcntl

    DirectoryLock(tmp_path).release()
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    assert lock.is_held(looking) is False
    waits: list[float] = []

    def close_and_wait(seconds: float) -> None:
        waits.append(seconds)
        fcntl.flock(looking, fcntl.LOCK_UN)

    monkeypatch.setattr(lock, "sleep", close_and_wait)
    held = DirectoryLock(tmp_path)
    assert len(waits) == 1 and owner_of(tmp_path).held
    held.release()
    os.close(looking)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\n{}\nleft\n",
        b"process 1 on host\n[]\n",
        b'a\n{"since": NaN, "limits": {}}\n',
        b'a\n{"since": 1, "limits": {"evals": -3}}\n',
        b"x" * 10_000,
        b'a\x1b[31m\n{"since": 1e400, "limits": {"evals": "nan"}}\n',
        b"a\n" + b"[" * 1500,
    ],
)
def test_a_lock_with_nonsense_in_it_is_nobodys(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    owner = owner_of(tmp_path)
    assert owner.held is False and owner.limits is None and owner.since is None
    assert owner.name.isprintable()


def test_a_run_that_is_followed_bit_by_bit_is_the_run_that_is_loaded(tmp_path: Path) -> None:
    small(tmp_path / "whole", rng=3, max_evals=400)
    content = (tmp_path / "whole" / JOURNAL).read_bytes()
    cuts = sorted({*boundaries(tmp_path / "whole" / JOURNAL), *range(0, len(content), 97)})
    growing = tmp_path / "growing"
    growing.mkdir()
    (growing / JOURNAL).touch()
    run = FollowedRun(growing)
    for before, after in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with (growing / JOURNAL).open("ab") as file:
            file.write(content[before:after])
        run.read()
        if after > cuts[1]:
            assert run.error == "" or "header" in run.error
    ours, theirs = run.result(), load(growing)
    assert run.nfev == theirs.nfev and ours.message == theirs.message
    assert ours.F == theirs.F and list(ours.x) == list(theirs.x)
    assert run.best_pairs()[-1].F == theirs.F and run.history().count == theirs.nit
    assert not run.read(), "nothing is new"


def test_a_journal_that_is_begun_anew_is_read_anew(tmp_path: Path) -> None:
    small(tmp_path, max_evals=200)
    run = followed(tmp_path)
    shutil.rmtree(tmp_path)
    small(tmp_path, rng=9)
    assert run.read()
    assert run.nfev == load(tmp_path).nfev and run.header["seed"] == 9
    shutil.rmtree(tmp_path)
    assert run.read() and "there is no journal.bin" in run.error


def test_damage_is_told_and_a_torn_tail_is_waited_for(tmp_path: Path) -> None:
    small(tmp_path)
    path = tmp_path / JOURNAL
    whole = path.read_bytes()
    at = boundaries(path)[3]
    path.write_bytes(whole[: at + 11])
    run = followed(tmp_path)
    assert run.error == "" and not run.unread
    path.write_bytes(whole[: at + 11] + bytes([whole[at + 11] ^ 1]) + whole[at + 12 :])
    assert run.read() and "damaged at byte" in run.error
    with pytest.raises(ValueError, match="damaged at byte"):
        followed(tmp_path)
    path.write_bytes(whole)
    assert run.read() and run.error == "" and run.state is RunState.STOPPED


@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.integers(0, 10**6))
def test_no_journal_raises_while_it_is_followed(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    content = bytearray(_sample(tmp_path_factory))
    content[place % len(content)] = byte
    (folder / JOURNAL).write_bytes(content[: max(1, cut % (2 * len(content)))])
    run = FollowedRun(folder)
    run.read()
    assert run.error or run.result().nfev == run.nfev


_kept: list[bytes] = []


def _sample(factory: pytest.TempPathFactory) -> bytes:
    if not _kept:
        folder = factory.mktemp("sample")
        small(folder)
        _kept.append((folder / JOURNAL).read_bytes())
    return _kept[0]


def write_long(folder: Path, rounds: int, points: int) -> None:
    """Write the journal of a run with many evaluations, best pairs and generations."""
    small(folder)
    path = folder / JOURNAL
    header = bilevo.run.journal.JournalFile(path).header
    writer = JournalWriter.create(path, header)
    run, values = RunRecord(), np.zeros(points).tobytes()
    for i in range(rounds):
        F = 1.0 / (i + 1)
        run.best = Incumbent(np.full(1, F), np.full(1, F), F, F, 0.0)
        run.history.add(Generation(i, i * points, F, F, 0.0, (1, 2), (True, False)))
        writer.append(Record(RecordKind.VALUES, 1, points, i, 0, i * 0.5, values))
        writer.append(encoding.best(run, i, i * 0.5))
        writer.append(encoding.generation(run, i, i * 0.5))
    writer.close()


def test_a_run_of_a_million_evaluations_is_thinned(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("bilevo.run.journal.SYNC_EVERY", 1e9)
    write_long(tmp_path, 2_000, 500)
    run = followed(tmp_path)
    assert run.nfev == 1_000_000 and run.pairs.count == 2_000
    for kept in (run.best_pairs(), run.paces.items, list(run.history())):
        assert follow.MAX_KEPT / 2 <= len(kept) <= follow.MAX_KEPT + 1
    pairs = run.best_pairs()
    assert pairs[-1].F == 1 / 2_000 and pairs[0].F == 1.0 and run.history().count == 2_000
    assert run.rate(0.0) == pytest.approx(1000, rel=0.2)
