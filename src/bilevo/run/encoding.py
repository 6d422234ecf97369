"""How a run's events are put into journal records, and taken out of them again."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any
from zlib import crc32

import numpy as np

from bilevo.core.request import Incumbent, Level
from bilevo.core.result import Failure, Generation, Result, plain, revive
from bilevo.core.solver import StepOutcome
from bilevo.run.evaluator import Outcome
from bilevo.run.journal import Record, RecordKind
from bilevo.run.record import RunRecord
from bilevo.run.session import Batch, StepBatch

LEVELS = tuple(Level)
_NUMBER = {level: number for number, level in enumerate(LEVELS)}
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
    made: Outcome | StepOutcome,
    number: int,
    counted: int,
    elapsed: float,
) -> Record:
    """Return the record of a piece; `counted` is its level's count before the batch."""
    if isinstance(batch, StepBatch):
        assert isinstance(made, StepOutcome)
        return _step(batch, rows, made, number, counted, elapsed)
    assert isinstance(made, Outcome)
    return _evaluation(batch, rows, made, number, counted, elapsed)


def _step(
    batch: StepBatch, rows: slice, made: StepOutcome, number: int, counted: int, elapsed: float
) -> Record:
    row = rows.start
    asked = {"x": batch.x[row], "task": int(batch.task[row]), "turn": int(batch.taken[row])}
    content = {**made._asdict(), "first": counted + row + 1, **asked}
    level = _NUMBER[Level.LOWER]
    return Record(RecordKind.STEP, level, 1, number, digest(batch, rows), elapsed, _json(content))


def _evaluation(
    batch: Batch, rows: slice, outcome: Outcome, number: int, counted: int, elapsed: float
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
    """Tell whether a record is that of these rows of a batch."""
    asked = _NUMBER[batch.level], rows.stop - rows.start, isinstance(batch, StepBatch)
    told = record.level, record.points, record.kind is RecordKind.STEP
    return asked == told and record.digest == digest(batch, rows)


def outcome(record: Record) -> Outcome | StepOutcome:
    """Return what came of a piece."""
    k = record.points
    if record.kind is RecordKind.STEP:
        return step_outcome(json.loads(record.payload))
    if record.kind is RecordKind.FAILURE:
        return Outcome(np.full(k, np.nan), np.empty((k, 0)), json.loads(record.payload)["error"])
    values = np.frombuffer(record.payload, np.float64).copy()
    return Outcome(values[:k], values[k:].reshape(k, -1) if values.size > k else np.empty((k, 0)))


def step_outcome(content: dict[str, Any]) -> StepOutcome:
    """Return the step that a record's content tells of."""
    told = {name: content[name] for name in StepOutcome._fields if name != "error"}
    return StepOutcome(**revive(told), error=content["error"])


def failures(record: Record) -> list[Failure]:
    """Return the failed points of a record, which is a failure's or a step's."""
    content = json.loads(record.payload)
    if record.kind is RecordKind.STEP:
        made = step_outcome(content)
        if made.error is None:
            return []
        point = revive({"x": content["x"], "error": made.error})
        return [Failure(Level.LOWER.value, content["first"], y=made.y, **point)]
    if len(content["x"]) != record.points:
        raise ValueError(f"{len(content['x'])} failures of {record.points} points")
    level, found = LEVELS[record.level].value, []
    for i, (x, y) in enumerate(zip(content["x"], content["y"], strict=True)):
        point = revive({"x": x, "y": y, "error": content["error"]})
        found.append(Failure(level, content["first"] + i, **point))
    return found


def best(run: RunRecord, number: int, elapsed: float) -> Record:
    """Return the record of a new best pair."""
    assert run.best is not None
    told = run.best._asdict()
    if math.isnan(told["gap"]):  # most methods have none: records as they were before there was one
        del told["gap"]
    if not told["unfinished"]:  # likewise
        del told["unfinished"]
    return Record(RecordKind.BEST, 0, 0, number, 0, elapsed, _json(told))


def read_best(record: Record) -> Incumbent:
    return Incumbent(**revive(json.loads(record.payload)))


def generation(run: RunRecord, number: int, elapsed: float) -> Record:
    """Return the record of a generation that has just ended."""
    row = asdict(run.history[-1])
    return Record(RecordKind.GENERATION, 0, 0, number, 0, elapsed, _json(row))


def read_generation(record: Record) -> Generation:
    return Generation(**revive(json.loads(record.payload)))


def end(result: Result, number: int) -> Record:
    """Return the record of a run's end. History and failures stand in other records."""
    content = plain(asdict(result))
    for name in ("history", "failed_points", "certificate"):
        del content[name]
    return Record(RecordKind.END, 0, 0, number, 0, result.time, _json(content))


def read_end(record: Record) -> Result:
    return Result(**revive(json.loads(record.payload)))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(plain(content), allow_nan=False).encode()
