"""Replay: a run is resumed by running it again with the answers that its journal holds.

Each stored answer is checked against the request, and each event (a new best pair, or the end of a
generation) against the stored event. The run continues where the journal ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bilevo.core.algorithm import AlgorithmState
from bilevo.core.budget import OWN_ENDS, StopReason
from bilevo.core.request import Level
from bilevo.core.result import Result
from bilevo.core.solver import StepOutcome
from bilevo.run import encoding
from bilevo.run.answers import Journalled
from bilevo.run.batches import joined, rows_of
from bilevo.run.clock import Clock
from bilevo.run.encoding import PIECES
from bilevo.run.errors import RunMismatch
from bilevo.run.journal import Position, Record, RecordKind
from bilevo.run.session import Answers, AnyBatch, Session, Stopped


class Replayed:
    """A source that takes answers from a journal and, after the journal's end, from `then`.

    Callbacks are not called for replayed generations, but once when the run continues.
    `recheck` is called before the first new evaluation.
    """

    def __init__(
        self,
        records: Iterator[tuple[Record, Position]],
        then: Journalled,
        clock: Clock,
        directory: Path,
        recheck: Callable[[Session], None] | None = None,
    ) -> None:
        self._records, self._then, self._clock = records, then, clock
        self._directory, self._recheck = directory, recheck
        self._live = False
        self._stored: int | None = None  # evaluations of the present batch that the journal holds
        self._before = 0  # points in earlier parts of the present batch
        self._next = self._following()

    @property
    def counted(self) -> int:
        return self._before + (self._then.counted if self._stored is None else self._stored)

    def _following(self) -> Record | None:
        """Return the next record that is not of the kind END, or None after the last record.

        A run that ended and was continued has END records between the others.
        """
        for record, _ in self._records:
            if record.kind is not RecordKind.END:
                return record
            self._clock.hold(record.elapsed)
        return None

    def answer(self, session: Session, batch: AnyBatch) -> Answers:
        """Return the answers to a batch; an earlier limit may have divided it into parts."""
        found: list[Answers] = []
        known: dict[int, Any] = {}
        self._before = 0
        try:
            while self._before < len(batch.x) or not found:
                rest = rows_of(batch, slice(self._before, None))
                if self._live:
                    self._then.begin(rest)
                    known = {}
                else:
                    rest, known = self._known(session, rest)
                found.append(self._then.complete(session, rest, known, self._before))
                self._before += len(rest.x)
        except Stopped as stopped:
            raise Stopped(stopped.reason, stopped.counted + self._before) from None
        return joined(found)

    def _known(self, session: Session, batch: AnyBatch) -> tuple[AnyBatch, dict[int, Any]]:
        """Return the stored outcomes of a batch by piece; some may be missing in the last batch.

        If a limit ended the run in this batch, the outcomes are those of its first rows, which are
        returned too.
        """
        first, pieces = self._then.next_number, self._then.begin(batch)
        known: dict[int, Any] = {}
        while self._next is not None and len(known) < len(pieces):
            i = self._next.number - first
            fits = self._next.kind in PIECES and 0 <= i < len(pieces) and i not in known
            if fits and encoding.answers_part(self._next, batch, pieces[i]):
                batch = rows_of(batch, slice(pieces[i].start + self._next.points))
                pieces = self._then.shorten(batch)
            if fits and session.is_cut and self._next.points > pieces[i].stop - pieces[i].start:
                made = sum(piece.counted for piece in known.values())
                raise Stopped(StopReason.MAX_EVALS, made)  # the limit is in the middle of a piece
            if not fits or not encoding.answers(self._next, batch, pieces[i]):
                raise self._diverged(self._next)
            known[i] = self._outcome(self._next, batch)
            if isinstance(known[i], StepOutcome) and known[i].y.shape != (
                session.y_box.bounds.size,
            ):
                raise self._diverged(self._next)
            self._clock.hold(self._next.elapsed)
            self._next = self._following()
        if len(known) < len(pieces):
            self._continue(session, sum(piece.counted for piece in known.values()))
        return batch, known

    def _outcome(self, record: Record, batch: AnyBatch) -> Any:
        try:
            return encoding.outcome(record, batch)
        except ValueError:  # slopes of another size, which no run of this problem writes
            raise self._diverged(record) from None

    def _continue(self, session: Session, counted: int) -> None:
        """Prepare for the first new evaluation; `counted` evaluations of its batch are stored.

        Raise `Stopped` if a callback or the time limit ends the run before it.
        """
        self._stored = counted
        if self._caught_up(session):
            raise Stopped(StopReason.CALLBACK, counted)
        if self._clock.left <= 0:
            raise Stopped(StopReason.MAX_TIME, counted)
        if self._recheck is not None:
            with self._clock.paused():
                self._recheck(session)
        self._stored = None

    def _caught_up(self, session: Session) -> bool:
        """End the replay, call the callbacks, and tell whether one of them stops the run."""
        self._live = True
        self._clock.set(self._clock.elapsed)
        return len(session.record.history) > 0 and self._then.live.stopped_by_callback(session)

    def best(self, session: Session) -> None:
        elapsed = self._clock.elapsed
        self._event(encoding.best(session.record, self._then.next_number, elapsed))

    def recalled(self, session: Session, level: Level, points: int) -> None:
        elapsed = self._clock.elapsed
        self._event(encoding.recalled(level, points, self._then.next_number, elapsed))

    def generation(self, session: Session, state: AlgorithmState) -> bool:
        if self._live:
            return self._then.generation(session, state)
        elapsed = self._clock.elapsed
        self._event(encoding.generation(session.record, self._then.next_number, elapsed))
        return False

    def _event(self, record: Record) -> None:
        """Check an event against the next record; write it if the journal has ended."""
        if self._next is None:
            self._then.write(record)
        elif _told(self._next) == _told(record):
            self._next = self._following()
        else:
            raise self._diverged(self._next)

    def ended(self, session: Session) -> Result:
        """Return the result of the run.

        If the journal has more records (after Ctrl-C, or if the limits are smaller than before),
        write nothing.
        """
        again = not self._live and session.stop is not StopReason.INTERRUPTED
        if again and self._caught_up(session):
            session.end(StopReason.CALLBACK)
        if self._next is None:
            return self._then.ended(session)
        if session.stop in OWN_ENDS:
            raise self._diverged(self._next)
        return session.result()

    def _diverged(self, record: Record) -> RunMismatch:
        return RunMismatch(
            f"the run in {self._directory} took another course from record {record.number} on: "
            "the functions, the method, or the machine and its libraries give other values than "
            "before. Restore them, or use another run_dir. (A method that is changed needs a new "
            "revision, and takes its random numbers from `stream` only.)"
        )


def _told(record: Record) -> tuple[object, ...]:
    """Return what must be the same in the record of an event."""
    return record.kind, record.level, record.points, record.payload
