"""Evaluation of a batch by the user's functions, and what happens when they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.values import BadValue, Returned
from bilevo.run.session import Batch

OnFailure = Literal["raise", "worst"]


class OutOfTime(Exception):  # noqa: N818 (not an error: a reason to stop)
    """The time limit came between two points of a batch."""


class Outcome(NamedTuple):
    """A batch's objective (k,), constraints (k, c), and how many of its points failed."""

    objective: FloatArray
    constraints: FloatArray
    failures: int


class Evaluator:
    """Calls a problem's functions, in this process, on whole batches or point by point.

    `done` says how many points of the present batch have been evaluated, should it be broken off.
    """

    def __init__(
        self,
        problem: Problem,
        on_failure: OnFailure = "raise",
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> None:
        if on_failure not in ("raise", "worst"):
            raise ValueError(f'on_failure must be "raise" or "worst", got {on_failure!r}')
        self.done = 0
        self._forgiving = on_failure == "worst"
        self._out_of_time = out_of_time
        self._vectorized = problem.vectorized
        self._functions = {
            Level.UPPER: (problem.F, problem.G),
            Level.LOWER: (problem.f, problem.g),
        }
        self._returned = {
            level: Returned(level, problem.vectorized, least=problem.repeats(level))
            for level in Level
        }

    def __call__(self, batch: Batch) -> Outcome:
        self.done = 0
        if self._vectorized:
            outcome = self._attempt(batch.level, batch.x, batch.y)
            self.done = len(batch.x)
            return outcome
        return self._point_by_point(batch)

    def _point_by_point(self, batch: Batch) -> Outcome:
        outcomes = []
        for i in range(len(batch.x)):
            if i and self._out_of_time():
                raise OutOfTime
            outcomes.append(self._attempt(batch.level, batch.x[i], batch.y[i]))
            self.done += 1
        width = self._returned[batch.level].count or 0  # failed points may come before it is known
        return Outcome(
            np.concatenate([outcome.objective for outcome in outcomes]),
            np.stack([np.resize(outcome.constraints, width) for outcome in outcomes]),
            sum(outcome.failures for outcome in outcomes),
        )

    def _attempt(self, level: Level, x: FloatArray, y: FloatArray) -> Outcome:
        """The values of a point or a vectorised batch; NaN for what may fail and does."""
        (objective, constraints), returned = self._functions[level], self._returned[level]
        points = len(x) if self._vectorized else 1
        try:
            values = returned.objective(objective, x, y)
            return Outcome(values, returned.constraints(constraints, x, y), 0)
        except BadValue:
            raise  # a wrong type or shape is an error of the program, not a failed evaluation
        except Exception:
            if not self._forgiving:
                raise
            rows = np.full((points, returned.count or 0), np.nan)
            return Outcome(np.full(points, np.nan), rows, points)
