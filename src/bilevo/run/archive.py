"""The archive of a run: how its evaluations are collected, live or from a journal.

A journal holds no points, because a replay makes them again. So the archive of a stored run is
made by a replay, too: the method runs from its start with the stored answers, and the points that
it asks for are collected. No function is called, and nothing is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.algorithm import Algorithm, AlgorithmState
from bilevo.core.archive import Archive
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import COUNT_LIMIT, Limits, StopReason
from bilevo.core.checks import is_truth, require, whole_number
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Level
from bilevo.core.result import Result
from bilevo.core.solver import StepOutcome
from bilevo.run import encoding
from bilevo.run.answers import Live
from bilevo.run.batches import joined, rows_of
from bilevo.run.clock import Clock
from bilevo.run.deriver import Deriver
from bilevo.run.dispatch import piece_rows
from bilevo.run.driver import drive
from bilevo.run.encoding import PIECES
from bilevo.run.errors import RunMismatch
from bilevo.run.evaluator import Evaluator
from bilevo.run.jobs import EvaluationOutcome, Outcome
from bilevo.run.journal import JournalFile, Record
from bilevo.run.session import Answers, AnyBatch, Batch, Session, StepBatch, Stopped
from bilevo.run.stepper import Stepper
from bilevo.run.stored import JOURNAL

USUAL_LIMIT = 100_000  # How many evaluations `keep_archive=True` keeps in memory.


def archive_limit(keep_archive: Any) -> int | None:
    """Return how many evaluations are kept in memory: None if none are."""
    if is_truth(keep_archive):
        return USUAL_LIMIT if keep_archive else None
    limit = whole_number(keep_archive)
    fine = limit is not None and 0 < limit < COUNT_LIMIT
    require(fine, "keep_archive", "True, False or a number of evaluations", keep_archive)
    return limit


class Piece(NamedTuple):
    """Evaluations that one call made: their number in the run, points, values and time."""

    number: int
    level: Level
    x: FloatArray
    y: FloatArray
    objective: FloatArray
    constraints: FloatArray
    time: float
    failed: bool
    other: tuple[FloatArray, FloatArray] | None = None  # values of the other level, if known


class Collected:
    """Collects evaluations; of more than `limit`, it keeps the last ones."""

    def __init__(self, limit: int | None = None) -> None:
        self._pieces: deque[Piece] = deque()
        self._limit, self._rows, self._added = limit, 0, 0

    def add(
        self,
        batch: AnyBatch,
        rows: slice,
        outcome: Outcome,
        number: int,
        time: float,
    ) -> None:
        """Add a piece of a batch, which consists of some rows, and its outcome.

        Gradients are left out.
        """
        failed = outcome.error is not None
        if isinstance(outcome, StepOutcome):
            values = np.array([np.nan if failed else outcome.f]), np.empty((1, 0))
            y = outcome.y[None]
        elif not isinstance(outcome, EvaluationOutcome):
            return
        else:
            assert isinstance(batch, Batch)
            values, y = (outcome.objective, outcome.constraints), batch.y[rows]
        other = outcome.other if isinstance(outcome, EvaluationOutcome) else None
        piece = Piece(number, batch.level, batch.x[rows], y, *values, time, failed, other)
        self._pieces.append(piece)
        self._rows, self._added = self._rows + len(y), self._added + len(y)
        while self._limit is not None and self._rows - len(self._pieces[0].x) >= self._limit:
            self._rows -= len(self._pieces.popleft().x)

    def archive(self, problem: Problem) -> Archive:
        """Return the archive of a run of a problem."""
        pieces = sorted(self._pieces, key=lambda piece: piece.number)
        sizes = [len(piece.x) for piece in pieces]
        upper = np.repeat([piece.level is Level.UPPER for piece in pieces], sizes).astype(bool)
        columns = {
            "x": _joined([np.empty((0, problem.m)), *(piece.x for piece in pieces)]),
            "y": _joined([np.empty((0, problem.n)), *(piece.y for piece in pieces)]),
            "F": _joined([_values(piece, Level.UPPER)[0] for piece in pieces]),
            "f": _joined([_values(piece, Level.LOWER)[0] for piece in pieces]),
            "G": _constraints(pieces, Level.UPPER),
            "g": _constraints(pieces, Level.LOWER)[:, : 0 if problem.separable else None],
            "level": np.where(upper, Level.UPPER.value, Level.LOWER.value),
            "time": np.repeat([piece.time for piece in pieces], sizes).astype(float),
            "failed": np.repeat([piece.failed for piece in pieces], sizes).astype(bool),
        }
        kept = len(upper) if self._limit is None else min(len(upper), self._limit)
        last = {name: values[len(upper) - kept :] for name, values in columns.items()}
        return Archive(**last, left_out=self._added - kept)


def _joined(parts: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate(parts) if parts else np.empty(0)


def _constraints(pieces: list[Piece], level: Level) -> FloatArray:
    """Return the constraints (k, c) of a level; rows of the other level are NaN."""
    found = [_values(piece, level)[1] for piece in pieces]
    width = max((rows.shape[1] for rows in found), default=0)
    none = [np.full((len(rows), width), np.nan) for rows in found]
    rows = [a if a.shape[1] == width else b for a, b in zip(found, none, strict=True)]
    return _joined([np.empty((0, width)), *rows])


def _values(piece: Piece, level: Level) -> tuple[FloatArray, FloatArray]:
    """Return a level's objective (k,) and constraints (k, c) of a piece; NaN if not known."""
    if piece.level is level:
        unknown = np.empty((len(piece.x), 0))
        return piece.objective, unknown if piece.failed else piece.constraints
    if piece.other is not None:
        return piece.other
    return np.full(len(piece.x), np.nan), np.empty((len(piece.x), 0))


class ArchivingLive(Live):
    """Computes answers as another `Live` does, and collects them."""

    def __init__(self, live: Live, collected: Collected, vectorized: bool) -> None:
        super().__init__(live.evaluator, live.stepper, live.clock, live.callbacks, live.deriver)
        self._collected, self._vectorized, self._first = collected, vectorized, 0

    def answer(self, session: Session, batch: AnyBatch) -> Answers:
        pieces = piece_rows(self._vectorized and not isinstance(batch, StepBatch), len(batch.x))
        first = self._first
        self._first += len(pieces)

        def keep(batch: AnyBatch, i: int, outcome: Outcome) -> None:
            self._collected.add(batch, pieces[i], outcome, first + i, self.clock.elapsed)

        return self.compute(batch, keep=keep)


class JournalOnly:
    """A source that answers from a journal only, and collects the evaluations."""

    def __init__(
        self, records: Iterator[Record], live: Live, collected: Collected, vectorized: bool
    ) -> None:
        self._records, self._live, self._collected = records, live, collected
        self._vectorized, self._first = vectorized, 0

    counted = 0

    def answer(self, session: Session, batch: AnyBatch) -> Answers:
        """Return the stored answers to a batch; end the run if some are missing."""
        found: list[Answers] = []
        made = 0
        while made < len(batch.x) or not found:
            part, known, complete = self._known(rows_of(batch, slice(made, None)))
            if not complete:
                made += sum(one.counted for one in known.values())
                raise Stopped(StopReason.INTERRUPTED, made)
            found.append(self._live.compute(part, known))  # all is known: nothing is computed
            made += len(part.x)
        return joined(found)

    def _known(self, batch: AnyBatch) -> tuple[AnyBatch, dict[int, Any], bool]:
        """Return a batch, its stored outcomes by piece, and whether these are all.

        If a limit ended the run in this batch, it is returned as far as the run came.
        """
        pieces = piece_rows(self._vectorized and not isinstance(batch, StepBatch), len(batch.x))
        known: dict[int, Any] = {}
        while len(known) < len(pieces) and (record := next(self._records, None)) is not None:
            i = record.number - self._first
            fits = 0 <= i < len(pieces) and i not in known
            if fits and encoding.answers_part(record, batch, pieces[i]):
                batch = rows_of(batch, slice(pieces[i].start + record.points))
                pieces = piece_rows(self._vectorized, len(batch.x))
            if not fits or not encoding.answers(record, batch, pieces[i]):
                raise RunMismatch(
                    f"the stored run takes another course from record {record.number} on: the "
                    "method, or the machine and its libraries, are not those that made it"
                )
            known[i] = encoding.outcome(record, batch)
            self._collected.add(batch, pieces[i], known[i], record.number, record.elapsed)
        self._first += len(pieces)
        return batch, known, len(known) == len(pieces)

    def best(self, session: Session) -> None:
        """Do nothing: the digests of the points show that the run is the stored one."""

    def recalled(self, session: Session, level: Level, points: int) -> None:
        """Do nothing: these points are in the archive already."""

    def generation(self, session: Session, state: AlgorithmState) -> bool:
        return False

    def ended(self, session: Session) -> Result:
        return session.result()


@dataclass(frozen=True, slots=True, eq=False)
class StoredArchive:
    """Makes the archive of a run in a directory, by a replay.

    A copy in another process is None, because the user's functions may not be able to travel.
    """

    directory: Path
    problem: Problem
    algorithm: Algorithm[Any]
    spec: Spec
    limit: int | None = None

    def __call__(self) -> Archive:
        file, problem = JournalFile(self.directory / JOURNAL), self.problem
        records = (record for record, _ in file.records() if record.kind in PIECES)
        stepper = None if problem.follower is None else Stepper(problem, self.spec.seed)
        clock, collected = Clock(), Collected(self.limit)
        evaluator = Evaluator(problem)
        deriver = Deriver(problem, evaluator.returned)
        live = Live(evaluator, stepper, clock, deriver=deriver)
        source = JournalOnly(records, live, collected, problem.vectorized)
        session = Session(problem, self.algorithm, self.spec, Limits(), source, clock=clock)
        drive(session, source)
        return collected.archive(problem)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _nothing, ()

    def __deepcopy__(self, memo: Any) -> StoredArchive:
        return self


def _nothing() -> None:
    """Return None, in place of an archive that cannot travel."""
