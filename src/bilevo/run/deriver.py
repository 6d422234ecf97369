"""Calls of the user's gradients on a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.slopes import RawSlopes
from bilevo.core.values import Returned
from bilevo.run.dispatch import NOTHING, Dispatcher, Keep, OnFailure
from bilevo.run.evaluator import arguments, place
from bilevo.run.executors import Workers
from bilevo.run.jobs import Reply, SlopeJob, SlopeOutcome, derive_job, error_line
from bilevo.run.session import Derived, SlopeBatch


class Deriver(Dispatcher[SlopeBatch, SlopeOutcome]):
    """Calls a problem's gradients on the pieces of a batch, here or by workers.

    `returned` are the checks of values that the `Evaluator` of the same run has: both must agree on
    the numbers of constraints.
    """

    def __init__(
        self,
        problem: Problem,
        returned: Mapping[Level, Returned],
        on_failure: OnFailure = "raise",
        retries: float = 0,
        workers: Workers | None = None,
    ) -> None:
        super().__init__(on_failure, retries, workers, problem.vectorized, None)
        self._problem, self._returned = problem, returned

    def __call__(
        self,
        batch: SlopeBatch,
        known: Mapping[int, SlopeOutcome] = NOTHING,
        keep: Keep[SlopeBatch, SlopeOutcome] | None = None,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> Derived:
        """Return the slopes of a batch. `outcomes` explains the other arguments."""
        outcomes = self.outcomes(batch, known, keep, time_left)
        returned = self._returned[batch.level]
        errors: dict[int, str] = {}
        row = 0
        for slopes, error in outcomes:
            rows, count = slopes.constraints_x.shape[:2]
            if error is not None:
                errors.update((row + i, error) for i in range(rows))
            elif count:
                returned.check_count(count)
            row += rows
        wide = [self._widened(outcome.slopes, returned.count or 0) for outcome in outcomes]
        return Derived(RawSlopes(*map(np.concatenate, zip(*wide, strict=True))), errors)

    def _widened(self, slopes: RawSlopes, count: int) -> RawSlopes:
        """Return slopes with rows of NaN for all constraints, if they have no constraints."""
        if slopes.constraints_x.shape[1] == count:
            return slopes
        sizes = self._problem.m, self._problem.n
        unknown = RawSlopes.unknown(len(slopes.objective_x), count, *sizes)
        return RawSlopes(*slopes[:2], *unknown[2:])

    def _job(self, batch: SlopeBatch, rows: slice) -> SlopeJob:
        width = self._returned[batch.level].count
        return SlopeJob(batch.level, *arguments(batch, rows, self._vectorized), width)

    def _compute(self, batch: SlopeBatch, rows: slice) -> Reply:
        return derive_job(self._problem, self._job(batch, rows))

    def _failed(self, rows: slice, error: Exception) -> SlopeOutcome:
        sizes, text = (self._problem.m, self._problem.n), f"gradient: {error_line(error)}"
        return SlopeOutcome.failed(rows.stop - rows.start, *sizes, text)

    def _place(self, batch: SlopeBatch, rows: slice) -> str:
        return f"in a gradient of the {batch.level} level at {place(batch, rows)}"
