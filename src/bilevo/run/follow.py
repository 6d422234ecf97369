"""A run that is followed: its journal is read bit by bit, while a process may be writing it.

Much of a journal is values, one record for each evaluation. Here these are only checked and counted
(`journal.skim_values`), and all that is kept of a run is bounded: a thinned history, thinned best
pairs, the first failures. So hundreds of runs can be followed at once, and long ones too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from bilevo import safe_files
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import StopReason
from bilevo.core.request import Incumbent, Level
from bilevo.core.result import Failure, History, Result
from bilevo.core.terminal import on_one_line
from bilevo.run import encoding
from bilevo.run.journal import (
    JournalFile,
    Position,
    Record,
    RecordKind,
    announced,
    read_record,
    skim_values,
)
from bilevo.run.lock import Owner, owner_of
from bilevo.run.record import RunRecord
from bilevo.run.state import RunState, explained_state, state_of
from bilevo.run.stored import JOURNAL, StoredRun, take

MAX_KEPT = 200  # The most rows of a history, and the most best pairs, that are kept; even.
MAX_SHOWN = 40  # The most variables of a level that are kept of best pairs and failures.
MAX_TEXT = 500  # The longest text of an error that is kept.
BLOCK = 2**20  # Bytes that are read at a time.
MAX_RECORD = 2**25  # The longest record that is read, in bytes.
RATE_SECONDS = 60.0  # The time over which the rate of evaluations is measured.

T = TypeVar("T")


class ShortRecord(RunRecord):
    """A record that keeps short texts, and only the first variables of failed points."""

    __slots__ = ()

    def add_failures(self, failures: list[Failure], piece: int | None = None) -> None:
        short = [
            replace(one, x=_few(one.x), y=_few(one.y), error=one.error[:MAX_TEXT])
            for one in failures[:MAX_KEPT]
        ]
        super().add_failures(short, piece)
        self.failures += len(failures) - len(short)


class BestPair(NamedTuple):
    """A best pair, and when it was found: in evaluations and in seconds of the run."""

    nfev: int
    elapsed: float
    F: float
    f: float
    violation: float
    x: FloatArray
    y: FloatArray


@dataclass(slots=True)
class Thinned(Generic[T]):
    """A list that keeps the last item, and of the others every second (then every fourth, ...)."""

    items: list[T] = field(default_factory=list)
    step: int = 1
    count: int = 0

    def add(self, item: T) -> None:
        if self.items and (self.count - 1) % self.step:  # kept only because it was the last
            self.items.pop()
        self.items.append(item)
        self.count += 1
        if len(self.items) > MAX_KEPT:
            del self.items[1::2]
            self.step *= 2


class FollowedRun:
    """A run directory that is read again and again; `read` reads what is new.

    Nothing that a directory holds raises an exception. Instead `error` says what is wrong, and the
    rest stays as it was read before. `header` is empty until the journal's first line is read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._begin()

    def _begin(self) -> None:
        self.error = ""
        self.owner = Owner()
        self.header: dict[str, Any] = {}
        self.stored = StoredRun(run=ShortRecord())
        self.pairs: Thinned[tuple[int, Record]] = Thinned()  # evaluations, and a best pair
        self.rows: Thinned[Record] = Thinned()  # generations
        self.paces: Thinned[tuple[float, int]] = Thinned()  # seconds and evaluations of the run
        self.size, self.written = 0, 0.0  # of the journal: its bytes, and when it last grew
        self._file: JournalFile | None = None
        self._identity: tuple[int, int] | None = None
        self._at = Position(0, 0)
        self._result: Result | None = None
        self._torn = -1  # the size of the file at which its tail was last found torn

    @property
    def unread(self) -> int:
        """Return the number of bytes that are yet to be read; a torn tail counts as read."""
        return 0 if self.error or self._torn == self.size else self.size - self._at.offset

    def read(self, seconds: float = 0.1) -> bool:
        """Read what is new, for about this many seconds; return True if anything has changed."""
        before = self._seen()
        try:
            self._look()
            if self._file is not None and self.unread:
                self._read_on(self._file, perf_counter() + seconds)
                self._sum_up(self._file)
        except FileNotFoundError:
            self._begin()
            self.error = f"there is no {JOURNAL} in {self.directory}"
        except (OSError, ValueError) as error:
            self.error = on_one_line(str(error))[:MAX_TEXT]
        return before != self._seen()

    def _seen(self) -> tuple[Any, ...]:
        return self.error, self.owner, self.size, self.written, self._at

    def _look(self) -> None:
        """Look at the files; begin again if the journal is another one or shorter than before."""
        self.owner = owner_of(self.directory)
        path = self.directory / JOURNAL
        safe_files.require_plain(path)
        status = os.stat(path, follow_symlinks=False)
        identity = status.st_dev, status.st_ino
        if identity != self._identity or status.st_size < self._at.offset:
            owner = self.owner
            self._begin()
            self._identity, self.owner = identity, owner
        elif self.error and (status.st_size, status.st_mtime) == (self.size, self.written):
            return  # nothing has changed that could mend it
        self.error = ""
        self.size, self.written = status.st_size, status.st_mtime
        if self._file is None and self.size:
            self._file = JournalFile(path)
            self.header, self._at = self._file.header, self._file.start
            self.stored.begin(self.header)

    def _read_on(self, journal: JournalFile, until: float) -> None:
        with safe_files.reading(journal.path) as file:
            file.seek(self._at.offset)
            block = b""
            while more := file.read(max(BLOCK, len(block))):
                block += more
                used = self._take_block(journal, block)
                block = block[used:]
                if announced(block, 0) > MAX_RECORD or len(block) > MAX_RECORD:
                    raise journal.corrupt(
                        f"what follows byte {self._at.offset} is no record of at most "
                        f"{MAX_RECORD:,} bytes"
                    )
                if used and perf_counter() > until:  # a part of a record would be read again
                    break
            else:
                if block:
                    self._refuse_damage(journal)
        self.paces.add((self.stored.elapsed, self.nfev))

    def _take_block(self, journal: JournalFile, block: bytes) -> int:
        """Take the whole records at the beginning of a block; return how many bytes they are."""
        at = 0
        while True:
            skimmed = skim_values(block, at, self._at, self.stored.widths)
            if skimmed.records:
                self.stored.add_skimmed(skimmed)
                at, self._at = skimmed.end, skimmed.position
            found = read_record(block, at, self._at)
            if found is None:
                return at
            record, after = found
            self._take(journal, record)
            at += after.offset - self._at.offset
            self._at = after

    def _take(self, journal: JournalFile, record: Record) -> None:
        """Take a record. Of best pairs and generations, few are ever read: see `best_pairs`."""
        if record.kind is RecordKind.BEST:
            self.stored.pass_over(record)
            self.pairs.add((self.nfev, record))
        elif record.kind is RecordKind.GENERATION:
            self.stored.pass_over(record)
            self.rows.add(record)
        else:
            take(journal, self.stored, record)
        if record.kind is not RecordKind.VALUES:
            self.paces.add((record.elapsed, self.nfev))

    def _sum_up(self, journal: JournalFile) -> None:
        """Make the result so far; raise `JournalCorrupt` if what was read does not allow one."""
        try:
            if self.pairs.items:
                self.stored.run.best = encoding.event(self.pairs.items[-1][1])
            self._result = self.stored.result(self.header)
        except Exception as error:  # a foreign file can be wrong in any way
            reason = on_one_line(str(error))[:200]
            raise journal.corrupt(f"its content makes no sense ({reason})") from None

    def _refuse_damage(self, journal: JournalFile) -> None:
        """Raise `JournalCorrupt` if the tail is damaged, and not only written just now.

        The tail is searched once for each size of the file, and only if it did not grow meanwhile.
        """
        if os.stat(journal.path).st_size != self.size:
            return
        self._torn = self.size
        for _ in journal.records(self._at):
            self._torn = -1  # the record has become whole meanwhile
            return

    def best_pairs(self) -> list[BestPair]:
        """Return the best pairs over time, thinned; raise an exception if one makes no sense."""
        found = []
        for nfev, record in self.pairs.items:
            best: Incumbent = encoding.event(record)
            violation, points = best.violation + best.tolerated, (_few(best.x), _few(best.y))
            found.append(BestPair(nfev, record.elapsed, best.F, best.f, violation, *points))
        return found

    def history(self) -> History:
        """Return the generations, thinned; raise an exception if one makes no sense."""
        rows = [encoding.event(record) for record in self.rows.items]
        return History(rows, self.rows.step, self.rows.count - len(rows))

    @property
    def nfev(self) -> int:
        """Return the number of evaluations of both levels; of a joint problem, simulations."""
        return self.stored.run.evaluations

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of evaluations of each level."""
        return self.stored.run.counts[Level.UPPER], self.stored.run.counts[Level.LOWER]

    @property
    def end(self) -> StopReason | None:
        """Return why the run ended, or None if it has no end."""
        last = self.stored.last
        if self._result is None or last is None or last.kind is not RecordKind.END:
            return None
        return self._result.status

    @property
    def state(self) -> RunState:
        return state_of(self.owner, self.end)

    @property
    def sentence(self) -> str:
        """Return a sentence on the run's state."""
        return explained_state(self.state, self.owner, self.end)

    def result(self) -> Result:
        """Return the run's result, or its result so far; raise ValueError if there is none."""
        if self._result is None:
            raise ValueError(self.error or f"{self.directory} holds no evaluation yet")
        return self._result

    def elapsed(self, now: float) -> float:
        """Return the seconds of the run at a time, which is in seconds since 1970.

        While a process runs it, this includes the time since the last record.
        """
        if self.state is not RunState.RUNNING:
            return self.stored.elapsed
        latest = max(self.written, self.owner.since or 0.0)
        return self.stored.elapsed + max(0.0, now - latest)

    def rate(self, now: float) -> float | None:
        """Return the evaluations in a second over the last minute, or None without any."""
        elapsed = self.elapsed(now)
        earlier = (0.0, 0)
        for pace in self.paces.items:
            if pace[0] > elapsed - RATE_SECONDS:
                break
            earlier = pace
        seconds = elapsed - earlier[0]
        return (self.nfev - earlier[1]) / seconds if seconds > 0 else None

    def shares(self, now: float) -> dict[str, tuple[float, float]]:
        """Return how much of each limit is used, and the limit, by the name of the option."""
        limits = self.owner.limits
        if limits is None:
            return {}
        upper, lower = self.counts
        used = {
            "max_evals": (self.nfev, limits.evals),
            "max_evals_upper": (upper, limits.upper),
            "max_evals_lower": (lower, limits.lower),
            "max_time": (self.elapsed(now), limits.time),
        }
        return {name: pair for name, pair in used.items() if 0 < pair[1] < float("inf")}

    def time_left(self, now: float) -> float | None:
        """Estimate the seconds until a running run reaches its first limit; None if unknown."""
        if self.state is not RunState.RUNNING:
            return None
        rate, left = self.rate(now), []
        upper, lower = self.counts
        parts = {"max_evals": self.nfev, "max_evals_upper": upper, "max_evals_lower": lower}
        for name, (used, limit) in self.shares(now).items():
            if name == "max_time":
                left.append(limit - used)
            elif rate and parts[name]:
                left.append((limit - used) / (rate * parts[name] / self.nfev))
        return max(0.0, min(left)) if left else None


def _few(values: FloatArray) -> FloatArray:
    return values[:MAX_SHOWN].copy() if values.size > MAX_SHOWN else values


def followed(directory: str | Path) -> FollowedRun:
    """Return a run that is read to its present end; raise ValueError if there is none."""
    run = FollowedRun(Path(directory))
    while run.read(1.0) and run.unread:
        continue
    if run.error:
        raise ValueError(run.error)
    return run
