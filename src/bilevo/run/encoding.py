"""A run's answers and events as journal records, and back."""

from __future__ import annotations

import json
import math
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
TAKEN = "turn"  # the name that `Step.taken` has in format 1
EVALUATIONS = (RecordKind.VALUES, RecordKind.FAILURE, RecordKind.STEP)


def digest(batch: Batch | StepBatch, rows: slice) -> int:
    """Return a checksum of what is asked in these rows, to know a record that answers it."""
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
    """Return the record of a piece; `counted` is its level's count before the batch."""
    if isinstance(batch, StepBatch):
        assert isinstance(outcome, StepOutcome)
        return _step(batch, rows, outcome, number, counted, elapsed)
    assert isinstance(outcome, EvaluationOutcome)
    return _evaluation(batch, rows, outcome, number, counted, elapsed)


def _step(
    batch: StepBatch, rows: slice, outcome: StepOutcome, number: int, counted: int, elapsed: float
) -> Record:
    row = rows.start
    asked = {"x": batch.x[row], "task": int(batch.task[row]), TAKEN: int(batch.taken[row])}
    content = {**outcome._asdict(), "first": counted + row + 1, **asked}
    level = _NUMBER[Level.LOWER]
    return Record(RecordKind.STEP, level, 1, number, digest(batch, rows), elapsed, _json(content))


def _evaluation(
    batch: Batch, rows: slice, outcome: EvaluationOutcome, number: int, counted: int, elapsed: float
) -> Record:
    level, x, y = batch.level, batch.x[rows], batch.y[rows]
    if outcome.error is None:
        kind, payload = (
            RecordKind.VALUES,
            outcome.objective.tobytes() + outcome.constraints.tobytes(),
        )
    else:
        kind, first = RecordKind.FAILURE, counted + rows.start + 1
        payload = _json({"error": outcome.error, "first": first, "x": x, "y": y})
    return Record(kind, _NUMBER[level], len(x), number, digest(batch, rows), elapsed, payload)


def answers(record: Record, batch: Batch | StepBatch, rows: slice) -> bool:
    """Tell whether a record answers these rows of a batch."""
    asked = _NUMBER[batch.level], rows.stop - rows.start, isinstance(batch, StepBatch)
    told = record.level, record.points, record.kind is RecordKind.STEP
    return asked == told and record.digest == digest(batch, rows)


def outcome(record: Record) -> EvaluationOutcome | StepOutcome:
    """Return the outcome of a piece."""
    k = record.points
    if record.kind is RecordKind.STEP:
        return step_outcome(json.loads(record.payload))
    if record.kind is RecordKind.FAILURE:
        return EvaluationOutcome(
            np.full(k, np.nan), np.empty((k, 0)), json.loads(record.payload)["error"]
        )
    values = np.frombuffer(record.payload, np.float64).copy()
    return EvaluationOutcome(
        values[:k], values[k:].reshape(k, -1) if values.size > k else np.empty((k, 0))
    )


def step_outcome(content: dict[str, Any]) -> StepOutcome:
    """Return the step that a record's content tells of."""
    return revive(StepOutcome, {name: content[name] for name in StepOutcome._fields})


def failures(record: Record) -> list[Failure]:
    """Return the failed points of a record, which is a failure's or a step's."""
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
    if math.isnan(told["gap"]):  # left out, as in files that are older than these two fields
        del told["gap"]
    if not told["unfinished"]:
        del told["unfinished"]
    return Record(RecordKind.BEST, 0, 0, number, 0, elapsed, _json(told))


def read_best(record: Record) -> Incumbent:
    return revive(Incumbent, json.loads(record.payload))


def generation(run: RunRecord, number: int, elapsed: float) -> Record:
    """Return the record of a generation that has just ended."""
    row = asdict(run.history[-1])
    return Record(RecordKind.GENERATION, 0, 0, number, 0, elapsed, _json(row))


def read_generation(record: Record) -> Generation:
    return revive(Generation, json.loads(record.payload))


def end(result: Result, number: int) -> Record:
    """Return the record of a run's end. History and failures stand in other records."""
    content = plain(asdict(result))
    for name in ("history", "failed_points", "certificate"):
        del content[name]
    return Record(RecordKind.END, 0, 0, number, 0, result.time, _json(content))


def read_end(record: Record) -> Result:
    return revive(Result, json.loads(record.payload))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(plain(content), allow_nan=False).encode()
