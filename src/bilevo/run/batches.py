"""Batches, which a session hands out, and the answers that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import StopReason
from bilevo.core.request import Derive, Evaluate, Step
from bilevo.core.slopes import RawSlopes
from bilevo.core.solver import StepOutcome


class Batch(Evaluate):
    """Points to evaluate at one level: x (k, m) and y (k, n) in the user's units."""

    __slots__ = ()


class SlopeBatch(Derive):
    """Points at which one level's slopes are wanted: x (k, m) and y (k, n) in the user's units."""

    __slots__ = ()


class StepBatch(Step):
    """Steps of the problem's own solver to take, with leaders x (k, m) in the user's units."""

    __slots__ = ()


class Evaluated(NamedTuple):
    """The answer to a batch: objective (k,), constraints (k, c), and the errors of failed rows.

    `other` has both for the other level, if one simulation gives the values of both levels. `parts`
    (k, N) has f_i of all followers, if one function returns these (see `packing`).
    """

    objective: FloatArray
    constraints: FloatArray
    errors: Mapping[int, str]
    other: tuple[FloatArray, FloatArray] | None = None
    parts: FloatArray | None = None


class Derived(NamedTuple):
    """The answer to a `SlopeBatch`: slopes in the user's units, and the errors of failed rows."""

    slopes: RawSlopes
    errors: Mapping[int, str]


AnyBatch = Batch | SlopeBatch | StepBatch
Answers = Evaluated | Derived | list[StepOutcome]


class Stopped(Exception):  # noqa: N818 (not an error: a reason to stop)
    """Ends a run in the middle of a batch, of which `counted` evaluations have been made."""

    def __init__(self, reason: StopReason, counted: int) -> None:
        self.reason, self.counted = reason, counted
