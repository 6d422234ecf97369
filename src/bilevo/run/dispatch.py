"""Having a batch's pieces made, here or by workers, and what happens when one fails.

Two kinds of labour stand on it: evaluations of functions (`evaluate`), and steps of a follower that
is a solver of the user's (`advance`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from bilevo.core.budget import StopReason
from bilevo.core.values import BadValue
from bilevo.run.executors import Overhead, Workers
from bilevo.run.jobs import CannotTravel, Changed, Job, Raised, Reply

OnFailure = Literal["raise", "worst"]
FATAL = (BadValue, CannotTravel, Changed)  # repeating or forgiving them would hide a mistake
NOTHING: Mapping[int, Any] = {}


class Stopped(Exception):  # noqa: N818 (not an error: a reason to stop)
    """Ends a run in the middle of a batch, of which `counted` evaluations have been made."""

    def __init__(self, reason: StopReason, counted: int) -> None:
        self.reason, self.counted = reason, counted


class Made(Protocol):
    """What came of a piece."""

    @property
    def counted(self) -> int:
        """What it counts for: evaluations, or the cost of a step."""
        ...


B = TypeVar("B")
P = TypeVar("P", bound=Made)
Keep = Callable[[B, int, P], None]


class Dispatcher(ABC, Generic[B, P]):
    """Makes the pieces of a batch, in this thread or by workers, with repeats of what fails.

    `done` says how much of the present batch has been made, should it be broken off.
    """

    def __init__(self, on_failure: OnFailure, retries: int, workers: Workers | None) -> None:
        if on_failure not in ("raise", "worst"):
            raise ValueError(f'on_failure must be "raise" or "worst", got {on_failure!r}')
        if isinstance(retries, bool) or not isinstance(retries, int | np.integer) or retries < 0:
            raise ValueError(f"retries must be a number of repeats, 0 or more; got {retries!r}")
        self.done = 0
        self._forgiving = on_failure == "worst"
        self._retries = retries
        self._workers = workers
        self._overhead: Overhead | None = Overhead()

    @abstractmethod
    def _pieces(self, batch: B) -> tuple[slice, ...]:
        """The rows of each piece of a batch."""

    @abstractmethod
    def _job(self, batch: B, rows: slice) -> Job:
        """A piece as workers take it."""

    @abstractmethod
    def _attempt(self, batch: B, rows: slice) -> Reply | Raised:
        """Make a piece, once, in this thread."""

    @abstractmethod
    def _made(self, batch: B, rows: slice, reply: Reply) -> P:
        """What came of a piece."""

    @abstractmethod
    def _place(self, batch: B, rows: slice) -> str:
        """Where a piece is, for people to find what failed."""

    @abstractmethod
    def _lost(self, batch: B, rows: slice, error: Exception) -> P:
        """What comes of a piece that failed."""

    def make(
        self,
        batch: B,
        known: Mapping[int, P] = NOTHING,
        keep: Keep[B, P] | None = None,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> list[P]:
        """Make a batch but for the pieces that are known already.

        `keep` is told what came of each piece as it comes; `time_left` is asked between pieces.
        """
        made = dict(known)
        pieces = self._pieces(batch)
        self.done = sum(piece.counted for piece in known.values())
        missing = {i: rows for i, rows in enumerate(pieces) if i not in made}
        make = self._one_by_one if self._workers is None else self._side_by_side
        for i, reply in make(batch, missing, time_left) if missing else ():
            made[i] = self._come_of(batch, pieces[i], reply)
            if keep is not None:
                keep(batch, i, made[i])
            self.done += made[i].counted
        return [made[i] for i in range(len(pieces))]

    def _come_of(self, batch: B, rows: slice, reply: Reply | Raised) -> P:
        """What came of a piece in the end; its error itself unless failures are forgiven."""
        if not isinstance(reply, Raised):
            return self._made(batch, rows, reply)
        if not self._forgiving or isinstance(reply.error, FATAL):
            reply.error.add_note(self._place(batch, rows))
            raise reply.error
        return self._lost(batch, rows, reply.error)

    def _one_by_one(
        self, batch: B, pieces: dict[int, slice], time_left: Callable[[], float]
    ) -> Iterator[tuple[int, Reply | Raised]]:
        """One piece after another, in this thread."""
        first = True
        for i, rows in pieces.items():
            if not first and time_left() <= 0:
                raise Stopped(StopReason.MAX_TIME, self.done)
            first = False
            yield i, self._attempts(batch, rows)

    def _attempts(self, batch: B, rows: slice) -> Reply | Raised:
        """Make a piece in this thread, again if it fails."""
        reply = self._attempt(batch, rows)
        for _ in range(self._retries):
            if not isinstance(reply, Raised) or isinstance(reply.error, FATAL):
                break
            reply = self._attempt(batch, rows)
        return reply

    def _side_by_side(
        self, batch: B, pieces: dict[int, slice], time_left: Callable[[], float]
    ) -> Iterator[tuple[int, Reply | Raised]]:
        """All pieces at once by the workers, in the order in which they end."""
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
                yield i, reply
            elif attempts[i] < self._retries and not isinstance(reply.error, FATAL):
                attempts[i] += 1
                self._workers.submit(i, jobs[i])
                continue
            else:
                computing = math.inf  # failures tell nothing of what workers cost
                yield i, reply
            del jobs[i]
        if self._overhead is not None:
            self._overhead.note(len(attempts), computing, perf_counter() - started)
