"""Evaluation of a batch by the user's functions, and what happens when they fail.

A batch is evaluated in pieces: a point each, or rows of a fixed number when the functions are
vectorised. Pieces do not depend on who evaluates them, so neither do results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.values import BadValue, Returned
from bilevo.run.executors import Overhead, Workers
from bilevo.run.session import Batch
from bilevo.run.work import CannotTravel, Job, Raised, Reply, described

OnFailure = Literal["raise", "worst"]
_NOTHING: Mapping[int, Any] = {}
ROWS = 64  # of a piece, when vectorised
_FATAL = (BadValue, CannotTravel)  # repeating or forgiving them would hide a mistake


class OutOfTime(Exception):  # noqa: N818 (not an error: a reason to stop)
    """The time limit came between two points of a batch."""


class Outcome(NamedTuple):
    """What came of a piece: objective (k,), constraints (k, c), and the error if it failed."""

    objective: FloatArray
    constraints: FloatArray
    error: str | None = None

    def constraints_of(self, width: int) -> FloatArray:
        """All NaN where it failed, of the right number."""
        if self.error is None:
            return self.constraints
        return np.full((len(self.objective), width), np.nan)


BatchOutcome = tuple[FloatArray, FloatArray, Mapping[int, str]]
"""What came of a batch: objective (k,), constraints (k, c), and the errors of failed rows."""


@lru_cache(64)
def piece_rows(vectorized: bool, points: int) -> tuple[slice, ...]:
    """The rows of each piece of a batch."""
    size = ROWS if vectorized else 1
    return tuple(slice(i, min(i + size, points)) for i in range(0, points, size))


class Evaluator:
    """Calls a problem's functions on the pieces of a batch, here or by workers.

    `done` says how many points of the present batch have been evaluated, should it be broken off.
    """

    def __init__(
        self,
        problem: Problem,
        on_failure: OnFailure = "raise",
        *,
        retries: int = 0,
        workers: Workers | None = None,
    ) -> None:
        if on_failure not in ("raise", "worst"):
            raise ValueError(f'on_failure must be "raise" or "worst", got {on_failure!r}')
        if isinstance(retries, bool) or not isinstance(retries, int | np.integer) or retries < 0:
            raise ValueError(f"retries must be a number of repeats, 0 or more; got {retries!r}")
        self.done = 0
        self._forgiving = on_failure == "worst"
        self._retries = retries
        self._workers = workers
        self._overhead = Overhead()
        self._vectorized = problem.vectorized
        self._at_once = 0 if workers is not None else ROWS if problem.vectorized else 1
        self._returned = {
            level: Returned(level, problem.vectorized, least=problem.repeats(level))
            for level in Level
        }
        self._calls = {level: (self._returned[level], *problem.functions(level)) for level in Level}

    def __call__(
        self,
        batch: Batch,
        known: Mapping[int, Outcome] = _NOTHING,
        keep: Callable[[Batch, int, Outcome], None] | None = None,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> BatchOutcome:
        """Evaluate a batch but for the pieces that are known already.

        `keep` is told each piece's outcome as it comes; `time_left` is asked between pieces.
        """
        if len(batch.x) <= self._at_once and not known:  # the usual case of many runs
            return self._one_piece(batch, keep)
        outcomes = dict(known)
        pieces = piece_rows(self._vectorized, len(batch.x))
        self.done = sum(len(outcome.objective) for outcome in known.values())
        missing = {i: rows for i, rows in enumerate(pieces) if i not in outcomes}
        evaluate = self._in_turn if self._workers is None else self._side_by_side
        for i, reply in evaluate(batch, missing, time_left) if missing else ():
            outcome = self._outcome(reply, pieces[i].stop - pieces[i].start)
            if keep is not None:
                keep(batch, i, outcome)
            outcomes[i] = outcome
            self.done += len(outcome.objective)
        return self._join(batch.level, [outcomes[i] for i in range(len(pieces))])

    def _one_piece(
        self, batch: Batch, keep: Callable[[Batch, int, Outcome], None] | None
    ) -> BatchOutcome:
        """Evaluate a batch that is one piece, in this thread."""
        self.done = 0
        level, x, y = batch
        reply = self._attempt(level, x, y) if self._vectorized else self._attempt(level, x[0], y[0])
        outcome = self._outcome(reply, len(x))
        if keep is not None:
            keep(batch, 0, outcome)
        self.done = len(x)
        if outcome.error is None:
            return outcome.objective, outcome.constraints, _NOTHING
        return self._join(level, [outcome])

    def _join(self, level: Level, outcomes: list[Outcome]) -> BatchOutcome:
        returned = self._returned[level]
        errors: dict[int, str] = {}
        row = 0
        for objective, constraints, error in outcomes:
            if error is None:
                returned.check_count(constraints.shape[1])
            else:
                errors.update((row + i, error) for i in range(len(objective)))
            row += len(objective)
        width = returned.count or 0  # failed points may come before it is known
        objective = np.concatenate([part.objective for part in outcomes])
        constraints = np.concatenate([part.constraints_of(width) for part in outcomes])
        return objective, constraints, errors

    def _arguments(self, batch: Batch, rows: slice) -> tuple[FloatArray, FloatArray]:
        if self._vectorized:
            return batch.x[rows], batch.y[rows]
        return batch.x[rows.start], batch.y[rows.start]

    def _in_turn(
        self, batch: Batch, pieces: dict[int, slice], time_left: Callable[[], float]
    ) -> Iterator[tuple[int, Outcome | Raised]]:
        """One piece after another, in this thread."""
        first = True
        for i, rows in pieces.items():
            if not first and time_left() <= 0:
                raise OutOfTime
            first = False
            yield i, self._attempt(batch.level, *self._arguments(batch, rows))

    def _attempt(self, level: Level, x: FloatArray, y: FloatArray) -> Outcome | Raised:
        returned, objective, constraints = self._calls[level]
        attempts = 0
        while True:
            try:
                values = returned.objective(objective, x, y)
                return Outcome(values, returned.constraints(constraints, x, y))
            except Exception as error:
                attempts += 1
                if attempts > self._retries or isinstance(error, _FATAL):
                    return Raised(error)

    def _outcome(self, reply: Outcome | Raised, points: int) -> Outcome:
        """What came of a piece in the end; its error itself unless failures are forgiven."""
        if isinstance(reply, Outcome):
            return reply
        if not self._forgiving or isinstance(reply.error, _FATAL):
            raise reply.error
        nothing = np.full(points, np.nan), np.empty((points, 0))
        return Outcome(*nothing, described(reply.error))

    def _side_by_side(
        self, batch: Batch, pieces: dict[int, slice], time_left: Callable[[], float]
    ) -> Iterator[tuple[int, Outcome | Raised]]:
        """All pieces at once by the workers, in the order in which they end."""
        assert self._workers is not None
        started, computing = perf_counter(), 0.0
        attempts = dict.fromkeys(pieces, 0)
        width = self._returned[batch.level].count
        jobs = {i: Job(batch.level, *self._arguments(batch, pieces[i]), width) for i in pieces}
        for i, job in jobs.items():
            self._workers.submit(i, job)
        while jobs:
            ended = self._workers.next(time_left())
            if ended is None:
                raise OutOfTime
            i, reply = ended
            if isinstance(reply, Reply):
                computing += reply.seconds
                yield i, Outcome(reply.objective, reply.constraints)
            elif attempts[i] < self._retries and not isinstance(reply.error, _FATAL):
                attempts[i] += 1
                self._workers.submit(i, jobs[i])
                continue
            else:
                computing = math.inf  # failures tell nothing of what workers cost
                yield i, reply
            del jobs[i]
        self._overhead.note(len(attempts), computing, perf_counter() - started)
