"""A run's directory: what is written down of a run, and how it is taken up again.

    journal.bin    every evaluation, in order (see journal)
    snapshot.npz   the algorithm's state between two generations, to replay less (see snapshot)
    followers/     the states of the user's own followers under way (see advance)
    lock           who is writing

Taking a run up means making it again: from the last snapshot on, requests are answered by the
journal, each checked against the digest of what was asked, until the journal ends. Then it goes on.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

from bilevo import kernels
from bilevo.core.algorithm import Algorithm, AlgorithmState
from bilevo.core.budget import Limits, StopReason
from bilevo.core.follower import Move
from bilevo.core.problem import Problem, Spec
from bilevo.core.result import Result
from bilevo.run import account, snapshot
from bilevo.run.account import EVALUATIONS, Account
from bilevo.run.errors import RunMismatch
from bilevo.run.evaluate import Outcome, piece_rows
from bilevo.run.identity import identity, require_same
from bilevo.run.journal import JournalFile, JournalWriter, Kind, Position, Record, header_line
from bilevo.run.lock import DirectoryLock
from bilevo.run.session import Batch, Session, Turns
from bilevo.run.tally import Tally

JOURNAL, SNAPSHOT, FOLLOWERS = "journal.bin", "snapshot.npz", "followers"
_OWN = (StopReason.TARGET, StopReason.STAGNATION, StopReason.BUDGET)  # ends that repeat
SNAPSHOT_AFTER = 1.0  # seconds of the algorithm's own time: what replaying would take


class RunDir:
    """Replays what a directory holds of a run, and keeps what follows. Close it at the end.

    `taken_up` is what the session starts from: a state (None: from the beginning) and its tally;
    None when the run is a new one. `pieces` are the rows of those of the present batch. `spec` is
    the one given, with the kernel that the run began with.
    """

    def __init__(
        self,
        directory: str | Path,
        problem: Problem,
        algorithm: Algorithm[Any],
        spec: Spec,
        limits: Limits,
    ) -> None:
        self._directory = _directory(directory)
        self.spec = spec
        self._header = identity(problem, algorithm, spec)
        self._vectorized = problem.vectorized
        self.taken_up: tuple[AlgorithmState | None, Tally] | None = None
        self._session: Session | None = None
        self._elapsed_before = 0.0
        self._first = 0  # number of the present batch's first piece
        self.pieces: tuple[slice, ...] = ()
        self._stored: Iterator[tuple[Record, Position]] = iter(())  # what is still to be replayed
        self._next: Record | None = None
        self._told_end = False  # the last record is that of the run's end
        self._snapshots, self._snapshot_at = True, 0.0
        self._lock = DirectoryLock(self._directory)
        try:
            self._writer = self._open(algorithm, spec, limits)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, algorithm: Algorithm[Any], spec: Spec, limits: Limits) -> JournalWriter:
        path, first_line = self._directory / JOURNAL, header_line(self._header)
        if not path.exists() or first_line.startswith(_beginning(path, len(first_line) + 1)):
            return JournalWriter.create(path, self._header)  # also when killed in its first line
        file = JournalFile(path)
        self._go_on_with(file.header.get("kernel"))
        require_same(self._directory, file.header, self._header)
        state, reached = self._load_snapshot(algorithm, spec)
        whole, before, start, end = Account(), Account(), file.start, file.start
        for record, end in file.records():
            _take(file, whole, record)
            if end == reached and whole.within(limits):
                before, start = whole.copy(), end
        if start is file.start:
            state = None  # no snapshot, or not of this journal, or beyond what is wanted now
        if whole.last is not None:
            self.taken_up = state, before.tally()
            self._told_end = whole.last.kind is Kind.END
        self._first, self._elapsed_before = before.pieces, before.elapsed
        self._stored = file.records(start)
        self._move_on()
        return JournalWriter(path, end)

    def _go_on_with(self, kernel: Any) -> None:
        """Keep to the kernel of the run's beginning unless another one is asked for."""
        if kernel == "numpy" and kernels.chosen() is None:
            self.spec = replace(self.spec, kernel="numpy")
            self._header["kernel"] = kernel

    def _load_snapshot(
        self, algorithm: Algorithm[Any], spec: Spec
    ) -> tuple[AlgorithmState | None, Position | None]:
        path = self._directory / SNAPSHOT
        if path.exists():
            try:
                state, reached = snapshot.load(path, _first_state(algorithm, spec))
                _try_out(algorithm, spec, state)
                return state, reached
            except snapshot.Unusable as error:
                warnings.warn(f"{path} cannot be used ({error}): replaying all", stacklevel=5)
        return None, None

    def _move_on(self) -> None:
        """To the next stored record; an end that was not the end is passed over, with its time."""
        for record, _ in self._stored:
            if record.kind is not Kind.END:
                self._next = record
                return
            self._elapsed_before = record.elapsed
            if self._session is not None:
                self._session.elapse(record.elapsed)
        self._next = None

    @property
    def followers(self) -> Path:
        """Where the states of the user's own followers are."""
        return self._directory / FOLLOWERS

    def follow(self, session: Session) -> None:
        """Keep by this session's clock and count; the clock goes on from where it was."""
        self._session = session
        session.elapse(self._elapsed_before)

    def known(self, batch: Batch | Turns) -> dict[int, Any]:
        """What the journal holds of a batch's pieces; all of them until its end is near."""
        assert self._session is not None
        self._first += len(self.pieces)
        self.pieces = pieces = self._rows(batch)
        found: dict[int, Any] = {}
        while self._next is not None and len(found) < len(pieces):
            i = self._next.number - self._first
            fits = self._next.kind in EVALUATIONS and 0 <= i < len(pieces) and i not in found
            if not fits or not account.answers(self._next, batch, pieces[i]):
                raise self._diverged(self._next)
            found[i] = account.outcome(self._next)
            self._session.elapse(self._next.elapsed)
            self._move_on()
        return found

    def _rows(self, batch: Batch | Turns) -> tuple[slice, ...]:
        return piece_rows(self._vectorized and isinstance(batch, Batch), len(batch.x))

    def keep(self, batch: Batch | Turns, i: int, made: Outcome | Move) -> None:
        """Write down what came of a piece."""
        assert self._session is not None
        counted = self._session.tally.counts[batch.level]
        number, elapsed = self._first + i, self._session.time
        self._append(account.piece(batch, self.pieces[i], made, number, counted, elapsed))

    def _append(self, record: Record) -> None:
        self._writer.append(record)
        self._told_end = record.kind is Kind.END

    def best(self, tally: Tally) -> None:
        """There is a new best pair."""
        self._event(account.best(tally, self._first + len(self.pieces), self._elapsed))

    def generation(self, state: AlgorithmState, tally: Tally) -> None:
        """A generation has ended; a time for a snapshot, when there is much to save."""
        self._event(account.generation(tally, self._first + len(self.pieces), self._elapsed))
        if self._next is None and self._session is not None and self._snapshots:
            self._maybe_snapshot(state, self._session.own_time)

    @property
    def _elapsed(self) -> float:
        return 0.0 if self._session is None else self._session.time

    def _event(self, record: Record) -> None:
        """Compare what has happened with what did, or write it down."""
        if self._next is None:
            self._append(record)
        elif (self._next.kind, self._next.payload) == (record.kind, record.payload):
            self._move_on()
        else:
            raise self._diverged(self._next)

    def _maybe_snapshot(self, state: AlgorithmState, own_time: float) -> None:
        if own_time - self._snapshot_at < SNAPSHOT_AFTER:
            return
        self._writer.sync()
        try:
            snapshot.save(self._directory / SNAPSHOT, state, self._writer.position)
        except TypeError:  # a state that is not arrays and numbers: the journal alone will do
            self._snapshots = False
        self._snapshot_at = own_time

    def ended(self, result: Result) -> None:
        """Write down the result, unless it ended before the journal does, or was interrupted."""
        if self._next is not None and result.status in _OWN:
            raise self._diverged(self._next)
        if not (self._directory / JOURNAL).exists():
            warnings.warn(
                f"{self._directory} was removed: nothing of the run is kept", stacklevel=4
            )
        if result.status in _OWN:  # nobody goes on with it
            rmtree(self.followers, ignore_errors=True)
        live = self._next is None and not self._told_end
        if live and result.status is not StopReason.INTERRUPTED:
            self._append(account.end(result, self._first))

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._lock.release()

    def _diverged(self, record: Record) -> RunMismatch:
        return RunMismatch(
            f"{self._directory} holds another course of this run from record {record.number} on: "
            "the functions, or the machine and its libraries, do not give the values they gave. "
            "Put them back, or use another run_dir"
        )


def _directory(name: str | Path) -> Path:
    """The directory of that name, made if need be; objectives may change the present one."""
    if not isinstance(name, str | Path) or not str(name):
        raise ValueError(f"run_dir must be the name of a directory, got {name!r}")
    directory = Path(name).absolute()
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"run_dir must be the name of a directory; {name} is a file")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _beginning(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _take(file: JournalFile, account: Account, record: Record) -> None:
    try:
        account.add(record)
    except Exception as error:  # a foreign file can be wrong in any way
        raise file.corrupt(f"record {record.number} makes no sense ({str(error)[:200]})") from None


def _first_state(algorithm: Algorithm[Any], spec: Spec) -> Any:
    """An algorithm's state before its first generation; None if that takes evaluations."""
    steps = algorithm.init(spec)
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    steps.close()
    return None


def _try_out(algorithm: Algorithm[Any], spec: Spec, state: AlgorithmState) -> None:
    """Refuse a state from which no generation can begin, at no evaluation's cost."""
    try:
        if state.stop is None:
            with np.errstate(all="ignore"):
                request = next(algorithm.generation(spec, copy.deepcopy(state)))
            sizes = [part.shape[-1] for part in map(np.asarray, request) if part.ndim == 2]
            if sizes not in ([spec.m], [spec.m, spec.n]) or not np.isfinite(request.x).all():
                raise ValueError(f"points of sizes {sizes}, or not finite")
    except Exception as error:  # a foreign file can be wrong in any way
        raise snapshot.Unusable(f"{type(error).__name__}: {error}") from None


def load(run_dir: str | Path) -> Result:
    """The result of a run that was given this `run_dir`, or how far it has come; runs nothing.

    `status` is "running" for a run that has not ended. A run under way may be looked at.
    """
    path = Path(run_dir) / JOURNAL
    if not path.is_file():
        raise ValueError(f"{run_dir} holds no run: there is no {JOURNAL} in it")
    file = JournalFile(path)
    whole = Account()
    for record, _ in file.records():
        _take(file, whole, record)
    try:
        return whole.result(file.header)
    except Exception as error:  # a foreign file can be wrong in any way
        raise file.corrupt(f"its header makes no sense ({str(error)[:200]})") from None
