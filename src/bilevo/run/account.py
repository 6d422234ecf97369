"""What journal records say: how a run's events are put into them, and what they add up to."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from bilevo.core.budget import Limits, StopReason
from bilevo.core.follower import Move
from bilevo.core.request import Incumbent, Level
from bilevo.core.result import Failure, Generation, History, Result, plain, revive
from bilevo.run.evaluate import Outcome
from bilevo.run.journal import Kind, Record
from bilevo.run.session import Batch, Turns
from bilevo.run.tally import LISTED, Tally

_LEVELS = tuple(Level)
_NUMBER = {level: number for number, level in enumerate(_LEVELS)}
EVALUATIONS = (Kind.VALUES, Kind.FAILURE, Kind.ADVANCE)
LARGEST_SIZE = 10**6  # variables of a level; algorithms keep the square of that


def digest(batch: Batch | Turns, rows: slice) -> int:
    """Of a request for these rows: a check that a record answers it."""
    asked = crc32(batch.x[rows].tobytes(), _NUMBER[batch.level])
    if isinstance(batch, Batch):
        return crc32(batch.y[rows].tobytes(), asked)
    return crc32(batch.turn[rows].tobytes(), crc32(batch.task[rows].tobytes(), asked))


def piece(
    batch: Batch | Turns,
    rows: slice,
    made: Outcome | Move,
    number: int,
    counted: int,
    elapsed: float,
) -> Record:
    """The record of a piece; its level had counted so much before the batch."""
    if isinstance(batch, Turns):
        assert isinstance(made, Move)
        content = {**made._asdict(), "first": counted + rows.start + 1, "x": batch.x[rows.start]}
        asked, level = digest(batch, rows), _NUMBER[Level.LOWER]
        return Record(Kind.ADVANCE, level, 1, number, asked, elapsed, _json(content))
    assert isinstance(made, Outcome)
    return _evaluation(batch, rows, made, number, counted, elapsed)


def _evaluation(
    batch: Batch, rows: slice, outcome: Outcome, number: int, counted: int, elapsed: float
) -> Record:
    level, x, y = batch.level, batch.x[rows], batch.y[rows]
    if outcome.error is None:
        kind, payload = Kind.VALUES, outcome.objective.tobytes() + outcome.constraints.tobytes()
    else:
        kind, first = Kind.FAILURE, counted + rows.start + 1
        payload = _json({"error": outcome.error, "first": first, "x": x, "y": y})
    return Record(kind, _NUMBER[level], len(x), number, digest(batch, rows), elapsed, payload)


def answers(record: Record, batch: Batch | Turns, rows: slice) -> bool:
    """Whether a record is that of these rows of a batch."""
    asked = _NUMBER[batch.level], rows.stop - rows.start, isinstance(batch, Turns)
    told = record.level, record.points, record.kind is Kind.ADVANCE
    return asked == told and record.digest == digest(batch, rows)


def outcome(record: Record) -> Outcome | Move:
    """What came of a piece."""
    k = record.points
    if record.kind is Kind.ADVANCE:
        return _move(json.loads(record.payload))
    if record.kind is Kind.FAILURE:
        return Outcome(np.full(k, np.nan), np.empty((k, 0)), json.loads(record.payload)["error"])
    values = np.frombuffer(record.payload, np.float64).copy()
    return Outcome(values[:k], values[k:].reshape(k, -1) if values.size > k else np.empty((k, 0)))


def _move(content: dict[str, Any]) -> Move:
    told = {name: content[name] for name in Move._fields if name != "error"}
    return Move(**revive(told), error=content["error"])


def best(tally: Tally, number: int, elapsed: float) -> Record:
    """The record of a new best pair."""
    assert tally.best is not None
    told = tally.best._asdict()
    if math.isnan(told["gap"]):  # most methods have none: records as they were before there was one
        del told["gap"]
    if not told["unfinished"]:  # likewise
        del told["unfinished"]
    return Record(Kind.BEST, 0, 0, number, 0, elapsed, _json(told))


def generation(tally: Tally, number: int, elapsed: float) -> Record:
    """The record of a generation that has just ended."""
    row = asdict(tally.history[-1])
    return Record(Kind.GENERATION, 0, 0, number, 0, elapsed, _json(row))


def end(result: Result, number: int) -> Record:
    """The record of a run's end. History and failures stand in other records."""
    content = plain(asdict(result))
    for name in ("history", "failed_points", "certificate"):
        del content[name]
    return Record(Kind.END, 0, 0, number, 0, result.time, _json(content))


def _ended(record: Record) -> Result:
    return Result(**revive(json.loads(record.payload)))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(plain(content), allow_nan=False).encode()


@dataclass(slots=True)
class Account:
    """What a journal's records add up to, one after another.

    A record that does not hold what its kind says is an error, of any type.
    """

    pieces: int = 0
    elapsed: float = 0.0
    counts: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    widths: dict[int, int] = field(default_factory=dict)  # numbers per point, by level
    failures: int = 0
    failed: list[tuple[int, Failure]] = field(default_factory=list)  # the first of them, and more
    history: History = field(default_factory=History)
    best: Incumbent | None = None
    last: Record | None = None

    def add(self, record: Record) -> None:
        if not 0 <= record.elapsed < math.inf:
            raise ValueError(f"{record.elapsed} seconds")
        self.elapsed, self.last = record.elapsed, record
        if record.kind in EVALUATIONS:
            self.pieces += 1
        if record.kind in (Kind.VALUES, Kind.FAILURE):
            self.counts[_LEVELS[record.level]] += record.points
        if record.kind is Kind.VALUES:
            width, rest = divmod(len(record.payload), 8 * record.points)
            if rest or width < 1 or width != self.widths.setdefault(record.level, width):
                raise ValueError(f"{len(record.payload)} bytes for {record.points} points")
        elif record.kind is Kind.FAILURE:
            self._add_failures(record)
        elif record.kind is Kind.ADVANCE:
            self._add_move(record)
        elif record.kind is Kind.BEST:
            self.best = Incumbent(**revive(json.loads(record.payload)))
        elif record.kind is Kind.END:
            _ended(record)
        elif record.kind is Kind.GENERATION:
            self.history.add(Generation(**revive(json.loads(record.payload))))

    def _add_move(self, record: Record) -> None:
        content = json.loads(record.payload)
        move = _move(content)
        if move.cost < 0:
            raise ValueError(f"a step that cost {move.cost}")
        self.counts[Level.LOWER] += move.cost
        if move.error is not None:
            point = revive({"x": content["x"], "error": move.error})
            failure = Failure(Level.LOWER.value, content["first"], y=move.y, **point)
            self._add_failed(record.number, [failure])

    def _add_failed(self, number: int, failures: list[Failure]) -> None:
        self.failed += [(number, failure) for failure in failures]
        self.failures += len(failures)
        if len(self.failed) > 2 * LISTED:
            del self._first_failed()[LISTED:]

    def _add_failures(self, record: Record) -> None:
        content = json.loads(record.payload)
        if len(content["x"]) != record.points:
            raise ValueError(f"{len(content['x'])} failures of {record.points} points")
        level, failures = _LEVELS[record.level].value, []
        for i, (x, y) in enumerate(zip(content["x"], content["y"], strict=True)):
            point = revive({"x": x, "y": y, "error": content["error"]})
            failures.append(Failure(level, content["first"] + i, **point))
        self._add_failed(record.number, failures)

    def _first_failed(self) -> list[tuple[int, Failure]]:
        """In the order of their requests; pieces are written down in that of their ends."""
        self.failed.sort(key=lambda failed: failed[0])
        return self.failed

    def within(self, limits: Limits) -> bool:
        counts = self.counts[Level.UPPER], self.counts[Level.LOWER]
        return self.elapsed < limits.time and not limits.exceeded(*counts)

    def copy(self) -> Account:
        return copy.deepcopy(self)

    def tally(self) -> Tally:
        """The same as a run keeps it: failures in the order of their requests."""
        tally = Tally(dict(self.counts), self.failures, best=self.best)
        tally.failed_points = [failure for _, failure in self._first_failed()[:LISTED]]
        tally.history = self.history.copy()
        return tally

    def result(self, header: dict[str, Any]) -> Result:
        """The run's result if it has ended, and how far it has come if not."""
        tally = self.tally()
        if self.last is not None and self.last.kind is Kind.END:
            ended = _ended(self.last)
            ended.history, ended.failed_points = tally.history, tally.failed_points
            return ended
        m, n = header["sizes"]
        if max(m, n) > LARGEST_SIZE:
            raise ValueError(f"sizes {m} and {n}")
        run = revive({name: header[name] for name in ("method", "seed", "kernel")})
        result = tally.result(m, n, StopReason.RUNNING, 0, self.elapsed, **run)
        result.message = "not ended: make the call that began it again to go on with it"
        return result
