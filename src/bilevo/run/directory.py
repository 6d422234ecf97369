"""The run directory: what it keeps of a run, and how the run is resumed.

    journal.bin    every evaluation, in order (see journal)
    snapshot.npz   the algorithm's state between two generations, to replay less (see snapshot)
    followers/     states of the problem's own solver (see stepper)
    lock           the process that is writing, since when, and its limits (see lock)

A run is resumed by running it again from the snapshot, with the journal's answers (see replay).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bilevo import kernels, safe_files
from bilevo.core.algorithm import Algorithm, AlgorithmState
from bilevo.core.budget import OWN_ENDS, Limits, StopReason
from bilevo.core.checks import require
from bilevo.core.feasibility import Tolerance, level_tolerances
from bilevo.core.plain_data import plain, revive
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Incumbent, Level
from bilevo.core.result import Result
from bilevo.core.solver import Neighbour
from bilevo.run import encoding, snapshot
from bilevo.run.answers import Journalled, Live
from bilevo.run.clock import Clock
from bilevo.run.contract import Contract
from bilevo.run.header import identity, require_same
from bilevo.run.journal import JournalFile, JournalWriter, Position, Record, RecordKind, header_line
from bilevo.run.lock import DirectoryLock
from bilevo.run.record import RunRecord
from bilevo.run.replay import Replayed
from bilevo.run.session import Session, Source
from bilevo.run.stepper import remove_states
from bilevo.run.stored import JOURNAL, StoredRun, take
from bilevo.run.warn import warn_user

SNAPSHOT, SOLVER_STATES = "snapshot.npz", "followers"
# A snapshot is stored when replaying the run from the last snapshot would take this many seconds.
SNAPSHOT_AFTER = 1.0
_snapshot_after: ContextVar[float | None] = ContextVar("snapshot_after", default=None)


@contextmanager
def snapshots_after(seconds: float) -> Iterator[None]:
    """Make runs in this context store a snapshot when replaying would take this many seconds."""
    token = _snapshot_after.set(seconds)
    try:
        yield
    finally:
        _snapshot_after.reset(token)


class RunDir:
    """A run directory that is open for one run and must be closed at the end.

    The run starts from `state` and `record`, which are those at the snapshot. Without a snapshot,
    `state` is None and `record` is empty. `stored` sums up the whole journal. `spec` has the kernel
    (numpy or numba) that the run began with.
    """

    def __init__(
        self,
        directory: str | Path,
        problem: Problem,
        algorithm: Algorithm[Any],
        spec: Spec,
        limits: Limits,
    ) -> None:
        self.path = _directory(directory)
        self.spec = spec
        self.state: AlgorithmState | None = None
        self.record = RunRecord()
        self.stored = StoredRun()
        self._problem, self._algorithm = problem, algorithm
        self._header = identity(problem, algorithm, spec)
        self._pieces, self._elapsed = 0, 0.0  # pieces and seconds before `state`
        self._replay: Iterator[tuple[Record, Position]] | None = None
        self._end_written = False  # whether the last record is the run's end
        # Runs that remember pairs (see `simulations` and `repeats`) are replayed from their start,
        # to know all of them again.
        self._snapshots = problem.simulator is None and not problem.has_whole
        self._snapshot_at, self._untried = 0.0, True
        safe_files.require_directory(self.solver_states)
        self._lock = DirectoryLock(self.path, limits)
        try:
            self._writer = self._open(limits)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, limits: Limits) -> JournalWriter:
        path, first_line = self.path / JOURNAL, header_line(self._header)
        if first_line.startswith(safe_files.beginning(path, len(first_line) + 1)):
            # The run is new, or was killed before its header was written completely.
            return JournalWriter.create(path, self._header)
        file = JournalFile(path)
        self._keep_kernel(file.header.get("kernel"))
        require_same(self.path, file.header, self._header)
        state, reached, tolerances = self._load_snapshot()
        whole, before = self.stored.begin(file.header), StoredRun().begin(file.header)
        start = end = file.start
        for record, end in file.records():
            take(file, whole, record)
            if end == reached and whole.within(limits):
                before, start = copy.deepcopy(whole), end
        if start is not file.start:  # the snapshot fits this journal and the limits
            self.state = state
        for stored in (whole, before):
            self._require_within_bounds(file, stored.run.best)
        self.record, self._pieces, self._elapsed = before.run, before.pieces, before.elapsed
        if self.state is not None:
            self.record.tolerances = {one.level: one for one in tolerances}
        if whole.last is not None:
            self._end_written = whole.last.kind is RecordKind.END
            self._replay = file.records(start, end)
        return JournalWriter(path, end)

    def _require_within_bounds(self, file: JournalFile, best: Incumbent | None) -> None:
        """Refuse a journal whose best pair does not fit this problem."""
        if best is None:
            return
        for point, bounds in ((best.x, self._problem.x_bounds), (best.y, self._problem.y_bounds)):
            if point.shape != (bounds.size,):
                raise file.corrupt(f"its best pair has {point.size} numbers for {bounds.size}")
            if ((point < bounds.lower) | (point > bounds.upper)).any():  # NaN (no answer) passes
                raise file.corrupt("its best pair is outside the bounds")

    def _keep_kernel(self, kernel: Any) -> None:
        """Keep the kernel that the run began with, unless the user asks for another kernel."""
        if kernel == "numpy" and kernels.chosen() is None:
            self.spec = replace(self.spec, kernel="numpy")
            self._header["kernel"] = kernel

    def _load_snapshot(self) -> tuple[AlgorithmState | None, Position | None, list[Tolerance]]:
        path = self.path / SNAPSHOT
        if self._snapshots and os.path.lexists(path):
            try:
                state, reached, stored = snapshot.read_all(path, self._kind)
                _try_out(self._algorithm, self.spec, self._problem, state)
                return state, reached, _tolerances(stored, self.spec)
            except (snapshot.Unusable, snapshot.NotStorable) as error:
                warn_user(f"{path} cannot be used ({error}): replaying all")
        return None, None, []

    @cached_property
    def _kind(self) -> snapshot.StateKind:
        """Return the kind of this run's states."""
        first = _first_state(self._algorithm, self.spec)
        return snapshot.StateKind.of(self._algorithm.State, first)

    def source(
        self, live: Live, clock: Clock, recheck: Callable[[Session], None] | None = None
    ) -> Source:
        """Return the source of the run's answers, which first reads those in the journal."""
        clock.hold(self._elapsed)
        journalled = Journalled(live, self, clock, self._problem.vectorized, self._pieces)
        if self._replay is None:
            clock.set(self._elapsed)
            return journalled
        return Replayed(self._replay, journalled, clock, self.path, recheck)

    @property
    def solver_states(self) -> Path:
        """Return the directory of the states of the problem's own solver."""
        return self.path / SOLVER_STATES

    def finished_searches(self) -> Iterator[tuple[int, Neighbour | None]]:
        """Yield the searches of the problem's own solver that have ended, by their tasks."""
        file = JournalFile(self.path / JOURNAL)
        for record, _ in file.records(until=self._writer.position):
            found = encoding.finished_search(record)
            if found is not None:
                yield found

    def append(self, record: Record) -> None:
        """Write a record into the journal."""
        self._writer.append(record)
        self._end_written = record.kind is RecordKind.END

    def generation_ended(self, state: AlgorithmState, own_time: float) -> None:
        """Store the state if replaying would take long without it.

        `own_time` is the seconds that the algorithm itself has spent, without evaluations.
        """
        asked = _snapshot_after.get()
        due = own_time - self._snapshot_at >= (SNAPSHOT_AFTER if asked is None else asked)
        if not self._snapshots or not (due or self._untried):
            return
        try:
            if due:
                self._writer.sync()
                self._write_snapshot(state)
                self._snapshot_at = own_time
            else:  # check the first state at once: a warning after hours would be late
                snapshot.require_storable(state, self._kind)
            self._untried = False
        except snapshot.NotStorable as error:
            self._snapshots = False
            warn_user(
                f"a state of {self._algorithm.name} cannot be stored: {error}. The journal is "
                "complete without it, but resuming replays the whole run"
            )

    def _write_snapshot(self, state: AlgorithmState) -> None:
        tolerances = [asdict(one) for one in self.record.tolerances.values()]
        extra = plain(tolerances) if any(self.spec.ctol) else None
        path, position = self.path / SNAPSHOT, self._writer.position
        snapshot.write(path, state, position, self._kind, extra)

    def close_run(self, result: Result) -> bool:
        """Remove files that are not needed any more; return True if the run's end must be written.

        The end is not written if it is there already, or after Ctrl-C.
        """
        if not (self.path / JOURNAL).exists():
            warn_user(f"{self.path} was removed: nothing of the run is kept")
        if result.status in OWN_ENDS:  # such a run is never continued
            remove_states(self.solver_states)
        return not self._end_written and result.status is not StopReason.INTERRUPTED

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._lock.release()


def _directory(name: str | Path) -> Path:
    """Create a directory if it does not exist, and return its absolute path."""
    fine = isinstance(name, str | Path) and bool(str(name))
    require(fine, "run_dir", "the name of a directory", name)
    directory = Path(name).absolute()
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"run_dir must be the name of a directory; {name} is a file")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _first_state(algorithm: Algorithm[Any], spec: Spec) -> Any:
    """Return the state that an algorithm starts with, or None if making it takes evaluations."""
    with suppress(Exception):  # some objects cannot be copied
        algorithm = copy.deepcopy(algorithm)  # so that the user's object is not changed
    procedure = algorithm.init(spec)
    if isinstance(procedure, Generator):
        try:
            next(procedure)
        except StopIteration as end:
            return end.value
        with suppress(RuntimeError):  # a generator may yield when it is closed
            procedure.close()
    return None


def _tolerances(stored: Any, spec: Spec) -> list[Tolerance]:
    """Return both levels' tolerances as a snapshot has them; older ones have none."""
    if stored is None and not any(spec.ctol):
        return list(level_tolerances(spec.ctol).values())
    try:
        found = revive(list[Tolerance], stored)
        levels, ctol = [one.level for one in found], tuple(one.ctol for one in found)
        if levels == list(Level) and ctol == spec.ctol:
            return found
    except Exception as error:  # a foreign file can be wrong in any way
        raise snapshot.Unusable(f"{type(error).__name__}: {error}") from None
    raise snapshot.Unusable("other tolerances")


def _try_out(
    algorithm: Algorithm[Any], spec: Spec, problem: Problem, state: AlgorithmState
) -> None:
    """Refuse a state from which no generation can begin; evaluate nothing."""
    if state.stop is not None:
        return
    contract = Contract(algorithm, spec, problem, earlier_unknown=True)
    try:
        with np.errstate(all="ignore"):
            contract.check(next(algorithm.generation(spec, copy.deepcopy(state))))
    except StopIteration:
        return
    except Exception as error:  # a foreign file can be wrong in any way
        raise snapshot.Unusable(f"{type(error).__name__}: {error}") from None
