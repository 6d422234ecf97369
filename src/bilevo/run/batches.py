"""Batches, which a session hands out, and the answers that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.budget import StopReason
from bilevo.core.request import Derive, Evaluate, Step
from bilevo.core.slopes import RawSlopes
from bilevo.core.solver import StepOutcome


class Batch(Evaluate):
    """Points to evaluate at one level: x (k, m) and y (k, n) in the user's units."""

    __slots__ = ()

    def part(self, rows: IntArray) -> Batch:
        """Return a batch of some of the points."""
        x, y = self.x[rows], self.y[rows]
        for points in (x, y):
            points.setflags(write=False)
        return Batch(self.level, x, y)


class SlopeBatch(Derive):
    """Points at which one level's slopes are wanted: x (k, m) and y (k, n) in the user's units."""

    __slots__ = ()


class StepBatch(Step):
    """Steps of the problem's own solver to take, with leaders x (k, m) in the user's units."""

    __slots__ = ()


class Evaluated(NamedTuple):
    """The answer to a batch: objective (k,), constraints (k, c), and the errors of failed rows.

    `other` has both for the other level, if one simulation gives the values of both levels. `parts`
    (k, N) has f_i of all followers, if one function returns these (see `packing`). `new` lists the
    rows that the level has not seen before; None stands for all rows.
    """

    objective: FloatArray
    constraints: FloatArray
    errors: Mapping[int, str]
    other: tuple[FloatArray, FloatArray] | None = None
    parts: FloatArray | None = None
    new: IntArray | None = None

    @classmethod
    def nothing(cls) -> Evaluated:
        """Return the answer to a batch without points."""
        return cls(np.empty(0), np.empty((0, 0)), {})


class Saved(Enum):
    """How points count that a request has, and the batch made for it has not."""

    FOR_LEVEL = 1  # as evaluations of their level, but not as simulations
    AS_REPEATS = 2
    NOT = 3


class Derived(NamedTuple):
    """The answer to a `SlopeBatch`: slopes in the user's units, and the errors of failed rows."""

    slopes: RawSlopes
    errors: Mapping[int, str]


AnyBatch = Batch | SlopeBatch | StepBatch
Answers = Evaluated | Derived | list[StepOutcome]


def rows_of(batch: AnyBatch, rows: slice) -> AnyBatch:
    """Return some points or steps of a batch."""
    parts = batch._asdict().items()
    chosen: dict[str, Any] = {name: p[rows] for name, p in parts if isinstance(p, np.ndarray)}
    return batch._replace(**chosen)


def joined(parts: list[Answers]) -> Answers:
    """Return the answer to a batch from the answers to its parts, which are not slopes."""
    if len(parts) == 1:
        return parts[0]
    steps = [part for part in parts if isinstance(part, list)]
    if steps:
        return [step for part in steps for step in part]
    found = [part for part in parts if isinstance(part, Evaluated)]
    starts = np.cumsum([0, *(len(part.objective) for part in found)]).tolist()
    errors = {
        start + row: error
        for start, part in zip(starts, found, strict=False)
        for row, error in part.errors.items()
    }
    others = [part.other for part in found if part.other is not None]
    pieces = [part.parts for part in found if part.parts is not None]
    return Evaluated(
        *_values([(part.objective, part.constraints) for part in found]),
        errors,
        _values(others) if others else None,
        np.concatenate(pieces) if pieces else None,
    )


def _values(parts: list[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Join objectives and constraints; rows that failed may have no constraints yet."""
    width = max(constraints.shape[1] for _, constraints in parts)
    wide = [c if c.shape[1] == width else np.full((len(c), width), np.nan) for _, c in parts]
    return np.concatenate([objective for objective, _ in parts]), np.concatenate(wide)


class Stopped(Exception):  # noqa: N818 (not an error: a reason to stop)
    """Ends a run in the middle of a batch, of which `counted` evaluations have been made."""

    def __init__(self, reason: StopReason, counted: int) -> None:
        self.reason, self.counted = reason, counted
