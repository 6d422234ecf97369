"""Compute the pieces of a batch, here or by workers. Repeat pieces that fail, or rank them last.

`Evaluator` evaluates functions in this way, `Deriver` calls gradients, and `Stepper` takes steps of
the problem's own solver.
A piece is one point, one step, or `ROWS` points if the functions are vectorized. Pieces are the
same with and without workers, and so are the results.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any, Generic, Literal, TypeVar, cast

from bilevo.core.budget import COUNT_LIMIT, StopReason
from bilevo.core.checks import require, whole_number
from bilevo.core.request import BadRequest
from bilevo.core.users_code import mark
from bilevo.core.values import BadValue
from bilevo.run.executors import Overhead, Workers
from bilevo.run.jobs import CannotTravel, Changed, Job, Outcome, Raised, Reply
from bilevo.run.session import AnyBatch, Stopped

OnFailure = Literal["raise", "worst"]
# Errors that always end a run: repeating the piece, or ranking it last, would hide a mistake.
FATAL = (BadRequest, BadValue, CannotTravel, Changed)
NOTHING: Mapping[int, Any] = {}
ROWS = 64  # The number of points in a piece if the functions are vectorized.


B = TypeVar("B", bound=AnyBatch)
P = TypeVar("P", bound=Outcome)
Keep = Callable[[B, int, P], None]  # called with a batch, the index of a piece, and its outcome


@lru_cache(64)
def piece_rows(vectorized: bool, points: int) -> tuple[slice, ...]:
    """Return the rows of each piece of a batch of `points` points."""
    size = ROWS if vectorized else 1
    return tuple(slice(i, min(i + size, points)) for i in range(0, points, size))


class Dispatcher(ABC, Generic[B, P]):
    """Computes the pieces of a batch, in this thread or by workers, and repeats those that fail.

    `done` counts the evaluations of the present batch, in case the batch is broken off.
    """

    def __init__(
        self,
        on_failure: OnFailure,
        retries: float,
        workers: Workers | None,
        vectorized: bool,
        overhead: Overhead | None,
    ) -> None:
        require(on_failure in ("raise", "worst"), "on_failure", '"raise" or "worst"', on_failure)
        repeats = whole_number(retries)
        possible = repeats is not None and 0 <= repeats < COUNT_LIMIT
        require(possible, "retries", "a number of repeats, 0 or more", retries)
        self.done = 0
        self._forgiving = on_failure == "worst"
        self._retries, self._workers = repeats or 0, workers
        self._vectorized, self._overhead = vectorized, overhead

    @abstractmethod
    def _job(self, batch: B, rows: slice) -> Job:
        """Return the job by which a worker computes a piece."""

    @abstractmethod
    def _compute(self, batch: B, rows: slice) -> Reply:
        """Compute a piece in this thread."""

    @abstractmethod
    def _failed(self, rows: slice, error: Exception) -> P:
        """Return the outcome of a piece that failed."""

    @abstractmethod
    def _place(self, batch: B, rows: slice) -> str:
        """Return words that tell the user which piece failed."""

    def outcomes(
        self,
        batch: B,
        known: Mapping[int, P] = NOTHING,
        keep: Keep[B, P] | None = None,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> list[P]:
        """Return the outcomes of all pieces; those in `known` are not computed again.

        `keep` is called with each new outcome. `time_left`, called between pieces, returns the
        seconds until the time limit.
        """
        found = dict(known)
        pieces = piece_rows(self._vectorized, len(batch.x))
        self.done = sum(outcome.counted for outcome in known.values())
        missing = {i: rows for i, rows in enumerate(pieces) if i not in found}
        replies = self._one_by_one if self._workers is None else self._side_by_side
        for i, reply in replies(batch, missing, time_left) if missing else ():
            found[i] = self._settle(batch, pieces[i], reply)
            if keep is not None:
                keep(batch, i, found[i])
            self.done += found[i].counted
        return [found[i] for i in range(len(pieces))]

    def _settle(self, batch: B, rows: slice, reply: Reply | Raised) -> P:
        """Return the outcome of a piece.

        If the reply is an error, raise it. But if failures rank last (on_failure="worst"), and the
        error is not FATAL, return the outcome of a failed piece.
        """
        if not isinstance(reply, Raised):
            return cast(P, reply.outcome)
        error, place = reply.error, self._place(batch, rows)
        if isinstance(error, FATAL):  # raised by this package
            error.add_note(place)
            raise error
        if not self._forgiving:
            mark(error, place)
            raise error
        return self._failed(rows, error)

    def _one_by_one(
        self, batch: B, pieces: dict[int, slice], time_left: Callable[[], float]
    ) -> Iterator[tuple[int, Reply | Raised]]:
        """Compute one piece after another in this thread."""
        first = True
        for i, rows in pieces.items():
            if not first and time_left() <= 0:
                raise Stopped(StopReason.MAX_TIME, self.done)
            first = False
            yield i, self._attempts(batch, rows)

    def _attempts(self, batch: B, rows: slice) -> Reply | Raised:
        """Compute a piece in this thread; if it fails, repeat it up to `retries` times."""
        left = self._retries
        while True:
            try:
                return self._compute(batch, rows)
            except Exception as error:
                if not left or isinstance(error, FATAL):
                    return Raised(error)
                left -= 1

    def _side_by_side(
        self, batch: B, pieces: dict[int, slice], time_left: Callable[[], float]
    ) -> Iterator[tuple[int, Reply | Raised]]:
        """Give all pieces to the workers; yield the replies in the order in which they come."""
        assert self._workers is not None
        started, computing = perf_counter(), 0.0
        attempts = dict.fromkeys(pieces, 0)
        jobs = {i: self._job(batch, rows) for i, rows in pieces.items()}
        for i, job in jobs.items():
            self._workers.submit(i, job)
        while jobs:
            ended = self._workers.next(time_left())
            if ended is None:
                raise Stopped(StopReason.MAX_TIME, self.done)
            i, reply = ended
            if not isinstance(reply, Raised):
                computing += reply.seconds
            elif attempts[i] < self._retries and not isinstance(reply.error, FATAL):
                attempts[i] += 1
                self._workers.submit(i, jobs[i])
                continue
            else:
                computing = math.inf  # prevents a warning of `Overhead`: failures have no times
            yield i, reply
            del jobs[i]
        if self._overhead is not None:
            self._overhead.note(len(attempts), computing, perf_counter() - started)
