"""Evaluation of a batch by the user's functions, and what happens when they fail."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.values import BadValue, Returned
from bilevo.run.session import Batch

OnFailure = Literal["raise", "worst"]


class Outcome(NamedTuple):
    """A batch's objective (k,), constraints (k, c), and how many of its points failed."""

    objective: FloatArray
    constraints: FloatArray
    failures: int


class Evaluator:
    """Calls a problem's functions, in this process, on whole batches or point by point."""

    def __init__(self, problem: Problem, on_failure: OnFailure = "raise") -> None:
        if on_failure not in ("raise", "worst"):
            raise ValueError(f'on_failure must be "raise" or "worst", got {on_failure!r}')
        self._forgiving = on_failure == "worst"
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
        if self._forgiving:
            return self._evaluate_forgiving(batch)
        return self._evaluate(batch.level, batch.x, batch.y)

    def _evaluate(self, level: Level, x: FloatArray, y: FloatArray) -> Outcome:
        objective, constraints = self._functions[level]
        returned = self._returned[level]
        values = returned.objective(objective, x, y)
        return Outcome(values, returned.constraints(constraints, x, y), 0)

    def _evaluate_forgiving(self, batch: Batch) -> Outcome:
        """As `_evaluate`, but what raises counts as NaN: the point, or the vectorised batch."""
        points = len(batch.x)
        size = points if self._vectorized else 1
        objective = np.full(points, np.nan)
        rows_of: dict[int, FloatArray] = {}
        for i in range(0, points, size):
            part = slice(i, i + size)
            try:
                outcome = self._evaluate(batch.level, batch.x[part], batch.y[part])
            except BadValue:
                raise  # a wrong type or shape is an error of the program, not a failed evaluation
            except Exception:
                continue
            objective[part], rows_of[i] = outcome.objective, outcome.constraints
        constraints = np.full((points, self._returned[batch.level].count or 0), np.nan)
        for i, rows in rows_of.items():
            constraints[i : i + size] = rows
        return Outcome(objective, constraints, points - size * len(rows_of))
