"""Conversion of a run's answers and events to journal records, and back.

A piece is a part of a batch that is evaluated by one job; each piece has a record. Events are a new
best pair, the end of a generation and the end of the run.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any
from zlib import crc32

import numpy as np

from bilevo.core.plain_data import plain, revive
from bilevo.core.request import Incumbent, Level
from bilevo.core.result import Failure, Generation, Result
from bilevo.core.solver import StepOutcome
from bilevo.run.jobs import EvaluationOutcome
from bilevo.run.journal import Record, RecordKind
from bilevo.run.record import RunRecord
from bilevo.run.session import Batch, StepBatch

LEVELS = tuple(Level)
_NUMBER = {level: number for number, level in enumerate(LEVELS)}
TAKEN = "turn"  # The name that `Step.taken` has in files of format 1.
EVALUATIONS = (RecordKind.VALUES, RecordKind.FAILURE, RecordKind.STEP)
EVENTS: dict[RecordKind, type] = {
    RecordKind.BEST: Incumbent,
    RecordKind.GENERATION: Generation,
    RecordKind.END: Result,
}


def digest(batch: Batch | StepBatch, rows: slice) -> int:
    """Return a checksum of some rows of a batch; it is stored with the answer to these rows."""
    asked = crc32(batch.x[rows].tobytes(), _NUMBER[batch.level])
    if isinstance(batch, Batch):
        return crc32(batch.y[rows].tobytes(), asked)
    return crc32(batch.taken[rows].tobytes(), crc32(batch.task[rows].tobytes(), asked))


def piece(
    batch: Batch | StepBatch,
    rows: slice,
    outcome: EvaluationOutcome | StepOutcome,
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
        kind, payload = RecordKind.STEP, _json({**outcome._asdict(), "first": first, **asked})
    elif outcome.error is not None:
        pairs = {"x": batch.x[rows], "y": batch.y[rows]}
        kind, payload = RecordKind.FAILURE, _json({"error": outcome.error, "first": first, **pairs})
    else:
        assert isinstance(outcome, EvaluationOutcome)
        kind = RecordKind.VALUES
        payload = outcome.objective.tobytes() + outcome.constraints.tobytes()
    level = _NUMBER[batch.level]
    return Record(kind, level, points, number, digest(batch, rows), elapsed, payload)


def answers(record: Record, batch: Batch | StepBatch, rows: slice) -> bool:
    """Tell whether a record answers these rows of a batch."""
    asked = _NUMBER[batch.level], rows.stop - rows.start, isinstance(batch, StepBatch)
    told = record.level, record.points, record.kind is RecordKind.STEP
    return asked == told and record.digest == digest(batch, rows)


def outcome(record: Record) -> EvaluationOutcome | StepOutcome:
    """Return the outcome of a piece from its record."""
    k = record.points
    if record.kind is RecordKind.STEP:
        return step_outcome(json.loads(record.payload))
    if record.kind is RecordKind.FAILURE:
        return EvaluationOutcome.failed(k, json.loads(record.payload)["error"])
    values = np.frombuffer(record.payload, np.float64).copy()
    return EvaluationOutcome(values[:k], values[k:].reshape(k, values.size // k - 1))


def step_outcome(content: dict[str, Any]) -> StepOutcome:
    """Return the outcome of a step from the content of its record."""
    return revive(StepOutcome, {name: content[name] for name in StepOutcome._fields})


def failures(record: Record) -> list[Failure]:
    """Return the failed points of a record of the kind FAILURE or STEP."""
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
    """Return the record of a generation that has just ended."""
    row = asdict(run.history[-1])
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
