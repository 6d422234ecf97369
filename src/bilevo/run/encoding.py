"""Conversion of a run's answers and events to journal records, and back.

A piece is a part of a batch that is evaluated by one job; each piece has a record. Events are a new
best pair, the end of a generation and the end of the run.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any
from zlib import crc32

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.plain_data import plain, revive, revive_fields
from bilevo.core.request import ALONE, Incumbent, Level
from bilevo.core.result import Failure, Generation, Result
from bilevo.core.slopes import RawSlopes
from bilevo.core.solver import Neighbour, StepOutcome
from bilevo.run.jobs import EvaluationOutcome, Outcome, SlopeOutcome, neighbour_of
from bilevo.run.journal import Record, RecordKind
from bilevo.run.record import RunRecord
from bilevo.run.session import AnyBatch, SlopeBatch, StepBatch

LEVELS = tuple(Level)
_NUMBER = {level: number for number, level in enumerate(LEVELS)}
TAKEN = "turn"  # The name that `Step.taken` has in files of format 1.
NEAR = "near"  # The name of a step's neighbour; a step without a neighbour has no such entry.
FAILURES = (RecordKind.FAILURE, RecordKind.SLOPES_FAILURE)
GRADIENTS = (RecordKind.SLOPES, RecordKind.SLOPES_FAILURE)
SINGLE = (RecordKind.VALUES, RecordKind.FAILURE, RecordKind.STEP)
PIECES = (*SINGLE, RecordKind.JOINT, *GRADIENTS)
EVENTS: dict[RecordKind, type] = {
    RecordKind.BEST: Incumbent,
    RecordKind.GENERATION: Generation,
    RecordKind.END: Result,
}


def digest(batch: AnyBatch, rows: slice) -> int:
    """Return a checksum of some rows of a batch; it is stored with the answer to these rows."""
    asked = crc32(batch.x[rows].tobytes(), _NUMBER[batch.level])
    if not isinstance(batch, StepBatch):
        return crc32(batch.y[rows].tobytes(), asked)
    asked = crc32(batch.taken[rows].tobytes(), crc32(batch.task[rows].tobytes(), asked))
    near = batch.neighbour(rows.start)  # a step is a piece of its own
    return asked if near == ALONE else crc32(near.to_bytes(8, "little"), asked)


def piece(
    batch: AnyBatch,
    rows: slice,
    outcome: Outcome,
    number: int,
    counted: int,
    elapsed: float,
) -> Record:
    """Return the record of a piece, which consists of some rows of a batch, and its outcome.

    `number` is the record's number, and `counted` is the number of evaluations that the level had
    before the batch.
    """
    row, first, points = rows.start, counted + rows.start + 1, rows.stop - rows.start
    if isinstance(batch, StepBatch):
        asked = {"x": batch.x[row], "task": int(batch.task[row]), TAKEN: int(batch.taken[row])}
        if batch.neighbour(row) != ALONE:
            asked[NEAR] = batch.neighbour(row)
        told = outcome._asdict()
        if told["hint"] is None:  # older files do not have this field
            del told["hint"]
        kind, payload = RecordKind.STEP, _json({**told, "first": first, **asked})
    elif outcome.error is not None:
        pairs = {"x": batch.x[rows], "y": batch.y[rows]}
        kind = FAILURES[isinstance(batch, SlopeBatch)]
        payload = _json({"error": outcome.error, "first": first, **pairs})
    elif isinstance(outcome, SlopeOutcome):
        kind, payload = RecordKind.SLOPES, b"".join(part.tobytes() for part in outcome.slopes)
    else:
        assert isinstance(outcome, EvaluationOutcome)
        kind = RecordKind.VALUES
        payload = outcome.objective.tobytes() + outcome.constraints.tobytes()
        if outcome.other is not None:
            kind, width = RecordKind.JOINT, np.array([outcome.constraints.shape[1]], np.float64)
            payload = b"".join((width.tobytes(), payload, *(p.tobytes() for p in outcome.other)))
    level = _NUMBER[batch.level]
    return Record(kind, level, points, number, digest(batch, rows), elapsed, payload)


def answers(record: Record, batch: AnyBatch, rows: slice) -> bool:
    """Tell whether a record answers these rows of a batch."""
    asked = _NUMBER[batch.level], rows.stop - rows.start, isinstance(batch, StepBatch)
    told = record.level, record.points, record.kind is RecordKind.STEP
    alike = isinstance(batch, SlopeBatch) == (record.kind in GRADIENTS)
    return asked == told and alike and record.digest == digest(batch, rows)


def answers_part(record: Record, batch: AnyBatch, rows: slice) -> bool:
    """Tell whether a record answers the first of these rows of a batch, but not all of them.

    A limit left no room for the others when it was written.
    """
    fewer = 0 < record.points < rows.stop - rows.start
    return fewer and answers(record, batch, slice(rows.start, rows.start + record.points))


def outcome(record: Record, batch: AnyBatch) -> Outcome:
    """Return the outcome of a piece of a batch from its record."""
    k = record.points
    if record.kind in GRADIENTS:
        return _slope_outcome(record, batch)
    if record.kind is RecordKind.STEP:
        return step_outcome(json.loads(record.payload))
    if record.kind is RecordKind.FAILURE:
        return EvaluationOutcome.failed(k, json.loads(record.payload)["error"])
    values = np.frombuffer(record.payload, np.float64).copy()
    if record.kind is RecordKind.JOINT:
        return _joint_outcome(values, k)
    return EvaluationOutcome(values[:k], values[k:].reshape(k, values.size // k - 1))


def _joint_outcome(numbers: FloatArray, k: int) -> EvaluationOutcome:
    """Return the outcome of k points at both levels from the numbers of its record."""
    check_joint(numbers, k)
    own, values = k * (int(numbers[0]) + 1), numbers[1:]
    parts = [(part[:k], part[k:].reshape(k, -1)) for part in (values[:own], values[own:])]
    return EvaluationOutcome(*parts[0], other=parts[1])


def check_joint(numbers: FloatArray, k: int) -> tuple[int, int]:
    """Return how many numbers per point the levels have; refuse a record that makes no sense."""
    total, rest = divmod(numbers.size - 1, k)
    own = numbers[0] + 1 if numbers.size else 0
    if rest or not 1 <= own < total or own != int(own):
        raise ValueError(f"{numbers.size} numbers for {k} simulations")
    return int(own), total - int(own)


def recalled(level: Level, points: int, number: int, elapsed: float) -> Record:
    """Return the record of points that were simulated before for the other level."""
    return Record(RecordKind.RECALLED, _NUMBER[level], points, number, 0, elapsed, b"")


def _slope_outcome(record: Record, batch: AnyBatch) -> SlopeOutcome:
    assert isinstance(batch, SlopeBatch)
    k, m, n = record.points, batch.x.shape[1], batch.y.shape[1]
    if record.kind is RecordKind.SLOPES_FAILURE:
        return SlopeOutcome.failed(k, m, n, json.loads(record.payload)["error"])
    numbers = np.frombuffer(record.payload, np.float64).copy()
    c = numbers.size // (k * (m + n)) - 1
    shapes = (k, m), (k, n), (k, c, m), (k, c, n)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    if c < 0 or numbers.size != ends[-1]:
        raise ValueError(f"{numbers.size} slopes of {k} pairs of {m} and {n} variables")
    parts = np.split(numbers, ends[:-1])
    arrays = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
    return SlopeOutcome(RawSlopes(*arrays))


def step_outcome(content: dict[str, Any]) -> StepOutcome:
    """Return the outcome of a step from the content of its record."""
    needed = {name: content[name] for name in StepOutcome._fields if name != "hint"}
    return revive(StepOutcome, {**needed, "hint": content.get("hint")})


def finished_search(record: Record) -> tuple[int, Neighbour | None] | None:
    """Return the task whose search a record ends, and what other searches may start from.

    The second is None if the search failed. Return None for any other record.
    """
    content = json.loads(record.payload) if record.kind is RecordKind.STEP else {}
    if not content.get("done"):
        return None
    x = revive_fields(Incumbent, {"x": content["x"]})["x"]
    return int(content["task"]), neighbour_of(x, step_outcome(content))


def failures(record: Record) -> list[Failure]:
    """Return the failed points of a record of one of the kinds FAILURES, or of the kind STEP."""
    content = json.loads(record.payload)
    told = {name: content[name] for name in ("x", "y", "error")}
    level, first = LEVELS[record.level].value, content["first"]
    if record.kind is RecordKind.STEP:
        failed = told["error"] is not None
        return [revive(Failure, {**told, "level": level, "evaluation": first})] if failed else []
    if len(told["x"]) != record.points:
        raise ValueError(f"{len(told['x'])} failures of {record.points} points")
    return [
        revive(Failure, {**told, "x": x, "y": y, "level": level, "evaluation": first + i})
        for i, (x, y) in enumerate(zip(told["x"], told["y"], strict=True))
    ]


def best(run: RunRecord, number: int, elapsed: float) -> Record:
    """Return the record of a new best pair."""
    assert run.best is not None
    told = run.best._asdict()
    for name, default in Incumbent._field_defaults.items():  # older files do not have these fields
        if told[name] == default or told[name] != told[name]:
            del told[name]
    return Record(RecordKind.BEST, 0, 0, number, 0, elapsed, _json(told))


def generation(run: RunRecord, number: int, elapsed: float) -> Record:
    """Return the record of a generation that has just ended.

    The record of the best pair, which is before it, holds x and y.
    """
    row = asdict(run.history[-1])
    del row["x"], row["y"]
    return Record(RecordKind.GENERATION, 0, 0, number, 0, elapsed, _json(row))


def end(result: Result, number: int) -> Record:
    """Return the record of a run's end. Other records hold its history and failures."""
    content = plain(asdict(result))
    for name in ("history", "failed_points"):
        del content[name]
    return Record(RecordKind.END, 0, 0, number, 0, result.time, _json(content))


def event(record: Record) -> Any:
    """Return the best pair, the generation or the result that a record holds."""
    return revive(EVENTS[record.kind], json.loads(record.payload))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(plain(content), allow_nan=False).encode()
