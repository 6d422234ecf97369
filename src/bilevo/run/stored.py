"""A stored run, read from its journal: its record, and how far it has come."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bilevo.core.budget import Limits, StopReason
from bilevo.core.feasibility import level_tolerances
from bilevo.core.plain_data import revive_fields
from bilevo.core.request import Level
from bilevo.core.result import Result
from bilevo.core.streams import SEED_LIMIT
from bilevo.run import encoding
from bilevo.run.encoding import FAILURES, GRADIENTS, LEVELS, NEAR, PIECES, TAKEN
from bilevo.run.errors import JournalCorrupt
from bilevo.run.header import JOINT
from bilevo.run.journal import JournalFile, Record, RecordKind, Skimmed
from bilevo.run.record import RunRecord

JOURNAL = "journal.bin"
MAX_SIZE = 10**6  # The most variables of a level; algorithms keep matrices of this size.


@dataclass(slots=True)
class StoredRun:
    """A run as the records of its journal describe it. `add` takes them one by one.

    `add` raises an exception, which may be of any type, if a record does not fit its kind.
    """

    run: RunRecord = field(default_factory=RunRecord)
    pieces: int = 0  # how many pieces of batches were answered
    elapsed: float = 0.0
    longest: float = 0.0  # most seconds between two records: about the longest evaluation
    widths: dict[int, int] = field(default_factory=dict)  # values per point, by level
    first_step: Record | None = None  # the latest record of a search's first step that did not fail
    last: Record | None = None

    def begin(self, header: dict[str, Any]) -> StoredRun:
        """Take note of the header, which says whether simulations are counted; return the run."""
        if header.get(JOINT) is True:
            self.run.simulations = 0
        return self

    def add(self, record: Record) -> None:
        """Add the next record."""
        self.pass_over(record)
        if record.kind in PIECES:
            self._count(record)
        if record.kind in (RecordKind.VALUES, RecordKind.SLOPES):
            self._check_numbers(record)
        elif record.kind is RecordKind.JOINT:
            self._add_joint(record)
        elif record.kind is RecordKind.RECALLED:
            self.run.counts[LEVELS[record.level]] += record.points
        elif record.kind in FAILURES:
            self.run.add_failures(encoding.failures(record), record.number)
        elif record.kind is RecordKind.STEP:
            self._add_step(record)
        elif record.kind is RecordKind.BEST:
            self.run.best = encoding.event(record)
        elif record.kind is RecordKind.GENERATION:
            self.run.note(encoding.event(record))
        else:
            encoding.event(record)  # an end that cannot be read is an error

    def pass_over(self, record: Record) -> None:
        """Note when the next record was written, but not what it holds."""
        if not 0 <= record.elapsed < math.inf:
            raise ValueError(f"{record.elapsed} seconds")
        self.longest = max(self.longest, record.elapsed - self.elapsed)
        self.elapsed, self.last = record.elapsed, record

    def add_skimmed(self, skimmed: Skimmed) -> None:
        """Add several records of values of which only the sums were read.

        `longest` and `last` are not kept then: they are for runs that are resumed.
        """
        for level, points in zip(LEVELS, skimmed.points, strict=True):
            self.run.counts[level] += points
        self.pieces += skimmed.records
        self.elapsed, self.last = skimmed.elapsed, None

    def _count(self, record: Record) -> None:
        """Count the points of a piece; the cost of a step is counted by `_add_step`."""
        self.pieces += 1
        if record.kind is not RecordKind.STEP:
            gradient = record.kind in GRADIENTS
            counts = self.run.gradients if gradient else self.run.counts
            counts[LEVELS[record.level]] += record.points
            if self.run.simulations is not None and not gradient:
                self.run.simulations += record.points

    def _check_numbers(self, record: Record) -> None:
        """Refuse a record whose points do not all have the same number of values."""
        width, rest = divmod(len(record.payload), 8 * record.points)
        known = self.widths if record.kind is RecordKind.VALUES else {}  # slopes are checked later
        if rest or width < 1 or width != known.setdefault(record.level, width):
            raise ValueError(f"{len(record.payload)} bytes for {record.points} points")

    def _add_joint(self, record: Record) -> None:
        """Refuse a simulation whose numbers of values differ from those of the first one."""
        own, other = encoding.check_joint(np.frombuffer(record.payload, np.float64), record.points)
        for level, width in ((record.level, own), (1 - record.level, other)):
            if width != self.widths.setdefault(level, width):
                raise ValueError(f"{width} values of a point, not {self.widths[level]}")

    def _add_step(self, record: Record) -> None:
        content = json.loads(record.payload)
        outcome = encoding.step_outcome(content)
        if outcome.cost < 0:
            raise ValueError(f"a step that cost {outcome.cost}")
        self.run.counts[Level.LOWER] += outcome.cost
        if outcome.error is not None:
            self.run.add_failures(encoding.failures(record), record.number)
        elif content.get(TAKEN) == 0 and type(content.get("task")) is int and content["task"] >= 0:
            if NEAR in content:  # it depends on another search
                return
            self.first_step = record

    def within(self, limits: Limits) -> bool:
        """Tell whether a run with these limits could have come this far."""
        counts = self.run.counts[Level.UPPER], self.run.counts[Level.LOWER], self.run.evaluations
        return self.elapsed < limits.time and not limits.exceeded(*counts)

    def result(self, header: dict[str, Any]) -> Result:
        """Return the run's result, or its result so far if it has not ended."""
        run = self.run
        if self.last is not None and self.last.kind is RecordKind.END:
            ended: Result = encoding.event(self.last)
            ended.history, ended.failed_points = run.history, run.failed_points
            return ended
        m, n = header["sizes"]
        if max(m, n) > MAX_SIZE:
            raise ValueError(f"sizes {m} and {n}")
        known = revive_fields(Result, {name: header[name] for name in ("method", "seed", "kernel")})
        newer = {key: header[key] for key in header if key in ("stance", "tie_tol")}
        known |= revive_fields(Result, newer)
        known_ctol = revive_fields(Result, {"ctol": header.get("ctol", [0.0, 0.0])})
        run.tolerances = level_tolerances(known_ctol["ctol"])
        result = run.result(m, n, StopReason.RUNNING, 0, self.elapsed, **known)
        result.message = "not ended; if no process runs it, the call that began it continues it"
        return result


def take(file: JournalFile, stored: StoredRun, record: Record) -> None:
    """Add a record of a file; raise `JournalCorrupt` if the record makes no sense."""
    try:
        stored.add(record)
    except Exception as error:  # a foreign file can be wrong in any way
        raise file.corrupt(f"record {record.number} makes no sense ({str(error)[:200]})") from None


def stored_seed(run_dir: str | Path) -> int | None:
    """Return the seed of the run in a directory, or None if no run can be read there."""
    if not isinstance(run_dir, str | Path):
        return None
    path = Path(run_dir) / JOURNAL
    try:
        seed = JournalFile(path).header.get("seed") if path.is_file() else None
    except JournalCorrupt:  # whoever opens the directory says so
        return None
    return seed if type(seed) is int and 0 <= seed < SEED_LIMIT else None


def stored_method(run_dir: str | Path | None) -> str | None:
    """Return the name of the method of the run in a directory, or None if no run can be read."""
    if not isinstance(run_dir, str | Path):  # whoever opens the directory refuses anything else
        return None
    path = Path(run_dir) / JOURNAL
    try:
        found = JournalFile(path).header.get("method") if path.is_file() else None
    except JournalCorrupt:  # whoever opens the directory says so
        return None
    return found if isinstance(found, str) else None


def load(run_dir: str | Path) -> Result:
    """Return the result of the run in a directory, or its result so far if it has not ended.

    The `status` of a run that has not ended is "running", whether or not a process runs it.
    Nothing is run and nothing is changed.
    """
    path = Path(run_dir) / JOURNAL
    if not path.is_file():
        raise ValueError(f"{run_dir} holds no run: there is no {JOURNAL} in it")
    file = JournalFile(path)
    whole = StoredRun().begin(file.header)
    for record, _ in file.records():
        take(file, whole, record)
    try:
        return whole.result(file.header)
    except Exception as error:  # a foreign file can be wrong in any way
        raise file.corrupt(f"its header makes no sense ({str(error)[:200]})") from None
