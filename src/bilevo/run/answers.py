"""Sources, which answer the batches of a run. The driver knows only their protocol, `Source`.

A batch is what an algorithm asks for at once: points to evaluate, or steps of a solver.

    Live        computes answers by the user's functions and solvers, here or by workers
    Journalled  does the same, and writes each answer into the journal
    Replayed    reads answers from a journal, and after its end does as `Journalled` (see `replay`)

A source is also told of the run's events, which are new best pairs and ends of generations. The
reason is that a journal keeps answers and events in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bilevo.core.algorithm import AlgorithmState
from bilevo.core.request import Level
from bilevo.core.result import Result
from bilevo.run import encoding
from bilevo.run.clock import Clock
from bilevo.run.deriver import Deriver
from bilevo.run.dispatch import NOTHING, Keep, piece_rows
from bilevo.run.evaluator import Evaluator
from bilevo.run.jobs import Outcome
from bilevo.run.journal import Record
from bilevo.run.session import Answers, AnyBatch, Session, SlopeBatch, StepBatch
from bilevo.run.stepper import Stepper

if TYPE_CHECKING:
    from bilevo.run.directory import RunDir

Callback = Callable[[Result], Any]


class Live:
    """Computes answers by the user's functions, or by steps of the problem's own solver.

    The stepper takes these steps. It is None if the problem has no solver. The deriver calls the
    user's gradients; it is None if there are none.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        stepper: Stepper | None,
        clock: Clock,
        callbacks: Sequence[Callback] = (),
        deriver: Deriver | None = None,
    ) -> None:
        self.evaluator, self.stepper, self.deriver = evaluator, stepper, deriver
        self._last: Evaluator | Deriver | Stepper = evaluator
        self.clock, self.callbacks = clock, callbacks

    @property
    def counted(self) -> int:
        return self._last.done

    def answer(self, session: Session, batch: AnyBatch) -> Answers:
        return self.compute(batch)

    def compute(
        self,
        batch: AnyBatch,
        known: Mapping[int, Any] = NOTHING,
        keep: Keep[Any, Any] | None = None,
    ) -> Answers:
        """Return the answers to a batch; compute only the pieces that are not in `known`.

        A piece is a part of a batch that is computed by one call (see `dispatch`). `known` has
        outcomes by the index of their piece. `keep` is called with each new outcome.
        """
        if isinstance(batch, StepBatch):
            assert self.stepper is not None
            self._last = self.stepper
            return self.stepper(batch, known, keep, self._time_left)
        if isinstance(batch, SlopeBatch):
            assert self.deriver is not None
            self._last = self.deriver
            return self.deriver(batch, known, keep, self._time_left)
        self._last = self.evaluator
        return self.evaluator(batch, known, keep, self._time_left)

    def _time_left(self) -> float:
        return self.clock.left

    def best(self, session: Session) -> None:
        """Do nothing: the session itself keeps the best pair."""

    def recalled(self, session: Session, level: Level, points: int) -> None:
        """Do nothing: the session itself counts these points."""

    def generation(self, session: Session, state: AlgorithmState) -> bool:
        return self.stopped_by_callback(session)

    def stopped_by_callback(self, session: Session) -> bool:
        """Call the callbacks with the result so far; return True if one raises StopIteration."""
        try:
            for callback in self.callbacks:
                callback(session.result())
        except StopIteration:
            return True
        return False

    def ended(self, session: Session) -> Result:
        return session.result()


class Journalled:
    """Computes answers, and writes each answer and event into the journal at once.

    The pieces of all batches are numbered in one sequence. `pieces` says how many pieces the
    journal already holds.
    """

    def __init__(
        self, live: Live, writer: RunDir, clock: Clock, vectorized: bool, pieces: int = 0
    ) -> None:
        self.live = live
        self._writer, self._clock, self._vectorized = writer, clock, vectorized
        self._first = pieces  # the number of the present batch's first piece
        self._pieces: tuple[slice, ...] = ()

    @property
    def counted(self) -> int:
        return self.live.counted

    @property
    def next_number(self) -> int:
        """Return the number of the next batch's first piece."""
        return self._first + len(self._pieces)

    def begin(self, batch: AnyBatch) -> tuple[slice, ...]:
        """Number the pieces of the next batch, and return the rows of each piece."""
        self._first = self.next_number
        return self.shorten(batch)

    def shorten(self, batch: AnyBatch) -> tuple[slice, ...]:
        """Replace the present batch by its first rows, and return the rows of each piece."""
        vectorized = self._vectorized and not isinstance(batch, StepBatch)
        self._pieces = piece_rows(vectorized, len(batch.x))
        return self._pieces

    def answer(self, session: Session, batch: AnyBatch) -> Answers:
        self.begin(batch)
        return self.complete(session, batch, NOTHING)

    def complete(
        self, session: Session, batch: AnyBatch, known: Mapping[int, Any], before: int = 0
    ) -> Answers:
        """Compute and write the pieces of the batch that are not in `known`; return all answers.

        `before` evaluations of the same request are not counted yet.
        """
        counted = session.record.counter(batch)[batch.level] + before

        def keep(batch: AnyBatch, i: int, outcome: Outcome) -> None:
            number, elapsed = self._first + i, self._clock.elapsed
            record = encoding.piece(batch, self._pieces[i], outcome, number, counted, elapsed)
            self.write(record)

        return self.live.compute(batch, known, keep)

    def write(self, record: Record) -> None:
        self._writer.append(record)

    def best(self, session: Session) -> None:
        self.write(encoding.best(session.record, self.next_number, self._clock.elapsed))

    def recalled(self, session: Session, level: Level, points: int) -> None:
        self.write(encoding.recalled(level, points, self.next_number, self._clock.elapsed))

    def generation(self, session: Session, state: AlgorithmState) -> bool:
        self.write(encoding.generation(session.record, self.next_number, self._clock.elapsed))
        self._writer.generation_ended(state, session.own_time)
        return self.live.generation(session, state)

    def ended(self, session: Session) -> Result:
        result = session.result()
        if self._writer.close_run(result):
            self.write(encoding.end(result, self._first))
        return result
