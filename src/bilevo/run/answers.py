"""Where the answers to a run's batches come from. The driver knows `Source` only.

    Live        the user's functions and solvers, here or by workers
    Journalled  live ones, each written down as it comes
    Replayed    those of a journal, as far as it goes, and then journalled ones (see `replay`)

A source is also told the run's events, for what is written down must be in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bilevo.core.algorithm import AlgorithmState
from bilevo.core.result import Result
from bilevo.core.solver import StepOutcome
from bilevo.run import encoding
from bilevo.run.clock import Clock
from bilevo.run.dispatch import NOTHING, Keep
from bilevo.run.evaluator import Evaluator, Outcome, piece_rows
from bilevo.run.journal import Record
from bilevo.run.session import Answers, Batch, Events, Session, StepBatch
from bilevo.run.stepper import Stepper

Callback = Callable[[Result], Any]


class Source(Events, Protocol):
    """Answers a session's batches, and is told its events."""

    @property
    def counted(self) -> int:
        """How many evaluations of the present batch have been made."""
        ...

    def answer(self, session: Session) -> Answers:
        """Return the answers to the session's batch."""
        ...

    def ended(self, session: Session) -> Result:
        """Return the result of a session that has ended."""
        ...


class Live:
    """Answers by the user's functions and solvers. `advance` is for problems with a solver."""

    def __init__(
        self,
        evaluate: Evaluator,
        advance: Stepper | None,
        clock: Clock,
        callback: Callback | None = None,
    ) -> None:
        self._evaluate, self._advance = evaluate, advance
        self._labour: Evaluator | Stepper = evaluate
        self._clock, self._callback = clock, callback

    @property
    def counted(self) -> int:
        return self._labour.done

    def answer(self, session: Session) -> Answers:
        assert session.batch is not None
        return self.make(session.batch)

    def make(
        self,
        batch: Batch | StepBatch,
        known: Mapping[int, Any] = NOTHING,
        keep: Keep[Any, Any] | None = None,
    ) -> Answers:
        """Make a batch but for the pieces that are known already; `keep` is told of each piece."""
        if isinstance(batch, StepBatch):
            assert self._advance is not None
            self._labour = self._advance
            return self._advance(batch, known, keep, self._time_left)
        self._labour = self._evaluate
        return self._evaluate(batch, known, keep, self._time_left)

    def _time_left(self) -> float:
        return self._clock.left

    def best(self, session: Session) -> None:
        """Take note of nothing: the session has the pair."""

    def generation(self, session: Session, state: AlgorithmState) -> bool:
        return self.stopped_by_callback(session)

    def stopped_by_callback(self, session: Session) -> bool:
        """Show the callback the result so far; True if it says stop."""
        try:
            if self._callback is not None:
                self._callback(session.result())
        except StopIteration:
            return True
        return False

    def ended(self, session: Session) -> Result:
        return session.result()


class Book(Protocol):
    """What a run is written down in: its directory."""

    def append(self, record: Record) -> None: ...

    def generation_ended(self, state: AlgorithmState, own_time: float) -> None:
        """Maybe store the state, too."""
        ...

    def close_run(self, result: Result) -> bool:
        """Tidy up after a run; True if its end is to be written down."""
        ...


class Journalled:
    """Answers live, and writes down each answer and event as it comes.

    Evaluations and steps are numbered by pieces; `pieces` have been written down before.
    """

    def __init__(
        self, live: Live, book: Book, clock: Clock, vectorized: bool, pieces: int = 0
    ) -> None:
        self.live = live
        self._book, self._clock, self._vectorized = book, clock, vectorized
        self._first = pieces  # number of the present batch's first piece
        self._pieces: tuple[slice, ...] = ()

    @property
    def counted(self) -> int:
        return self.live.counted

    @property
    def next_number(self) -> int:
        """The number of the next batch's first piece."""
        return self._first + len(self._pieces)

    def begin(self, batch: Batch | StepBatch) -> tuple[slice, ...]:
        """Number the pieces of the next batch, and return the rows of each."""
        self._first = self.next_number
        vectorized = self._vectorized and isinstance(batch, Batch)
        self._pieces = piece_rows(vectorized, len(batch.x))
        return self._pieces

    def answer(self, session: Session) -> Answers:
        assert session.batch is not None
        self.begin(session.batch)
        return self.complete(session, NOTHING)

    def complete(self, session: Session, known: Mapping[int, Any]) -> Answers:
        """Make the pieces of the batch that are not known, and write them down."""
        batch, counts = session.batch, session.record.counts
        assert batch is not None
        counted = counts[batch.level]

        def keep(batch: Batch | StepBatch, i: int, made: Outcome | StepOutcome) -> None:
            number, elapsed = self._first + i, self._clock.elapsed
            record = encoding.piece(batch, self._pieces[i], made, number, counted, elapsed)
            self.write(record)

        return self.live.make(batch, known, keep)

    def write(self, record: Record) -> None:
        self._book.append(record)

    def best(self, session: Session) -> None:
        self.write(encoding.best(session.record, self.next_number, self._clock.elapsed))

    def generation(self, session: Session, state: AlgorithmState) -> bool:
        self.write(encoding.generation(session.record, self.next_number, self._clock.elapsed))
        self._book.generation_ended(state, session.own_time)
        return self.live.generation(session, state)

    def ended(self, session: Session) -> Result:
        result = session.result()
        if self._book.close_run(result):
            self.write(encoding.end(result, self._first))
        return result
