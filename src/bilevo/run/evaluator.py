"""Evaluation of a batch by the user's functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.joint import other_level
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.values import Returned
from bilevo.run.dispatch import NOTHING, ROWS, Dispatcher, Keep, OnFailure
from bilevo.run.executors import Overhead, Workers
from bilevo.run.jobs import EvaluationJob, EvaluationOutcome, Reply, error_line, evaluated
from bilevo.run.session import Batch, Evaluated, SlopeBatch


class Evaluator(Dispatcher[Batch, EvaluationOutcome]):
    """Calls a problem's functions on the pieces of a batch, here or by workers."""

    def __init__(
        self,
        problem: Problem,
        on_failure: OnFailure = "raise",
        retries: float = 0,
        workers: Workers | None = None,
    ) -> None:
        overhead = Overhead() if problem.follower is None else None  # else `Stepper` times workers
        super().__init__(on_failure, retries, workers, problem.vectorized, overhead)
        self._at_once = 0 if workers is not None else ROWS if problem.vectorized else 1
        self.returned = {
            level: Returned(level, problem.vectorized, least=problem.repeats(level))
            for level in Level
        }
        self._problem = problem

    def __call__(
        self,
        batch: Batch,
        known: Mapping[int, EvaluationOutcome] = NOTHING,
        keep: Keep[Batch, EvaluationOutcome] | None = None,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> Evaluated:
        """Return the values of a batch. `outcomes` explains the other arguments."""
        if len(batch.x) <= self._at_once and not known:  # one piece: a frequent case
            return self._one_piece(batch, keep)
        return self._join(batch.level, self.outcomes(batch, known, keep, time_left))

    def _one_piece(self, batch: Batch, keep: Keep[Batch, EvaluationOutcome] | None) -> Evaluated:
        """Evaluate a batch that is one piece, in this thread."""
        self.done = 0
        rows = slice(0, len(batch.x))
        outcome = self._settle(batch, rows, self._attempts(batch, rows))
        if keep is not None:
            keep(batch, 0, outcome)
        self.done = len(batch.x)
        if outcome.error is None:
            found = Evaluated(outcome.objective, outcome.constraints, NOTHING, outcome.other)
            return self._with_parts(batch.level, found)
        return self._join(batch.level, [outcome])

    def _with_parts(self, level: Level, found: Evaluated) -> Evaluated:
        """Tell the values of several followers apart from constraints, of which there are none."""
        if level is Level.UPPER or not self._problem.separable:
            return found
        nothing = np.empty((len(found.objective), 0))
        return found._replace(constraints=nothing, parts=found.constraints)

    def _join(self, level: Level, outcomes: list[EvaluationOutcome]) -> Evaluated:
        """Return the values of a batch, put together from the outcomes of its pieces."""
        errors: dict[int, str] = {}
        row = 0
        for outcome in outcomes:
            if outcome.error is not None:
                errors.update((row + i, outcome.error) for i in range(outcome.counted))
            row += outcome.counted
        parts = [(one.objective, None if one.error else one.constraints) for one in outcomes]
        own = self._joined(level, parts)
        if self._problem.simulator is None:
            return self._with_parts(level, Evaluated(*own, errors))
        others = [(one.objective, None) if one.other is None else one.other for one in outcomes]
        return Evaluated(*own, errors, self._joined(other_level(level), others))

    def _joined(
        self, level: Level, parts: Sequence[tuple[FloatArray, FloatArray | None]]
    ) -> tuple[FloatArray, FloatArray]:
        """Join objectives and constraints of pieces; constraints of failed pieces are None."""
        returned = self.returned[level]
        for _, constraints in parts:
            if constraints is not None:
                returned.check_count(constraints.shape[1])
        width = returned.count or 0  # points may fail before the number of constraints is known
        return np.concatenate([objective for objective, _ in parts]), np.concatenate(
            [
                np.full((len(objective), width), np.nan) if constraints is None else constraints
                for objective, constraints in parts
            ]
        )

    def _job(self, batch: Batch, rows: slice) -> EvaluationJob:
        widths = [self.returned[level].count for level in (batch.level, other_level(batch.level))]
        return EvaluationJob(batch.level, *self._arguments(batch, rows), *widths)

    def _arguments(self, batch: Batch, rows: slice) -> tuple[FloatArray, FloatArray]:
        return arguments(batch, rows, self._vectorized)

    def _compute(self, batch: Batch, rows: slice) -> Reply:
        x, y = self._arguments(batch, rows)
        return Reply(evaluated(self._problem, self.returned, batch.level, x, y), 0.0)

    def _failed(self, rows: slice, error: Exception) -> EvaluationOutcome:
        return EvaluationOutcome.failed(rows.stop - rows.start, error_line(error))

    def _place(self, batch: Batch, rows: slice) -> str:
        return f"in an evaluation of the {batch.level} level at {place(batch, rows)}"


def arguments(
    batch: Batch | SlopeBatch, rows: slice, vectorized: bool
) -> tuple[FloatArray, FloatArray]:
    """Return what a function is given for a piece: one pair, or rows of pairs."""
    if vectorized:
        return batch.x[rows], batch.y[rows]
    return batch.x[rows.start], batch.y[rows.start]


def place(batch: Batch | SlopeBatch, rows: slice) -> str:
    """Return the pairs of a piece in words."""
    x, y = batch.x[rows].tolist(), batch.y[rows].tolist()
    return f"x = {x[0]}, y = {y[0]}" if len(x) == 1 else f"the {len(x)} pairs from x = {x[0]}"
