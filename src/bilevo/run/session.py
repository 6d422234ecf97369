"""A session: one run, which pauses at each request until it is given the answer.

`drive` and ask/tell both use sessions; they differ in where the answers come from.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from time import perf_counter
from typing import Any, NoReturn, Protocol

import numpy as np

from bilevo import kernels
from bilevo.core.algorithm import Algorithm, AlgorithmState
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Limits, StopReason
from bilevo.core.feasibility import level_tolerances, tolerated
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import (
    Answer,
    BadRequest,
    Derive,
    Incumbent,
    Level,
    Procedure,
    Question,
    Request,
    Slopes,
    Step,
    StepValues,
    Values,
)
from bilevo.core.result import Generation, Result
from bilevo.core.slopes import WrongGradient
from bilevo.core.solver import StepOutcome
from bilevo.core.space import UnitBox, answer_box
from bilevo.run.batches import (
    Answers,
    AnyBatch,
    Batch,
    Derived,
    Evaluated,
    Saved,
    SlopeBatch,
    StepBatch,
    Stopped,
    rows_of,
)
from bilevo.run.clock import Clock
from bilevo.run.contract import Contract
from bilevo.run.doubts import Doubts
from bilevo.run.record import RunRecord
from bilevo.run.translation import translations_for

__all__ = [
    "Answers",
    "AnyBatch",
    "Batch",
    "Derived",
    "Evaluated",
    "Session",
    "SlopeBatch",
    "Source",
    "StepBatch",
    "Stopped",
]
PLAIN_FIELDS = Incumbent._field_defaults  # Fields of a best pair with values of their types.


class Source(Protocol):
    """Answers a session's batches, and takes note of its events."""

    @property
    def counted(self) -> int:
        """Return the number of evaluations of the present batch so far."""

    def answer(self, session: Session, batch: AnyBatch) -> Answers:
        """Return the answers to the session's batch."""

    def ended(self, session: Session) -> Result:
        """Return the result of a session that has ended."""

    def best(self, session: Session) -> None:
        """Take note of a new best pair."""

    def recalled(self, session: Session, level: Level, points: int) -> None:
        """Take note of points whose values were known from simulations for the other level."""

    def generation(self, session: Session, state: AlgorithmState) -> bool:
        """Take note of a generation that has ended; True stops the run."""


class Session:
    """A run that hands out batches and takes their answers until it is done.

    `batch` is to be answered next. When the run has ended, `batch` is None and `stop` is the
    reason. A run is new, or it continues from a `state` between two generations, with the `record`
    up to that state.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm[Any],
        spec: Spec,
        limits: Limits,
        source: Source | None = None,
        state: AlgorithmState | None = None,
        record: RunRecord | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.x_box, self.y_box = UnitBox(problem.x_bounds), answer_box(problem)
        self.seed, self.method, self.kernel = spec.seed, algorithm.name, spec.kernel
        self._ties = spec.stance, spec.tie_tol
        self.stop: StopReason | None = None
        self.batch: AnyBatch | None = None
        self.record = RunRecord() if record is None else record
        if state is None:
            self.record.tolerances = level_tolerances(spec.ctol)
        self._tolerances = self.record.tolerances
        if problem.simulator is not None:  # such a run always begins at its start
            self.record.simulations = 0
        # With ask and tell, there is no source, and the user tells no parts.
        self._translations = translations_for(problem, gives_parts=source is not None)
        self._asked: Batch | None = None  # the batch before it was translated
        self._saved = dict.fromkeys(Saved, 0)  # points that its translations left out of it
        self._doubts = Doubts(problem, algorithm, self.record.best)
        self._choices = problem.x_bounds.choices, problem.y_bounds.choices
        self.own_time = 0.0  # seconds spent by the algorithm
        self._refused = 0  # evaluations of steps for which a limit left no room
        self._steps: StepBatch | None = None  # all steps that were asked for last
        self._taken: list[StepOutcome] = []  # the outcomes of the first of them
        self._unused = 0  # evaluations of a part of a batch, which the algorithm does not see
        self.is_cut = False  # whether the present batch is only the part for which there is room
        self._step_cost, self._equilibrium = spec.step_cost or 0, spec.equilibrium
        self._repeats = {level: problem.repeats(level) for level in Level}
        self._limits, self._source = limits, source
        self._limited = limits != Limits(time=limits.time)  # whether evaluations are limited
        self._contract = Contract(algorithm, spec, problem, earlier_unknown=state is not None)
        self._requests = self._run(algorithm, spec, state)
        self.clock = Clock(limits.time) if clock is None else clock
        with self.clock.paused():  # the time of the run leaves out compiling
            kernels.prepare(spec.kernel)
        self._resume(None)

    def _run(
        self, algorithm: Algorithm[Any], spec: Spec, state: AlgorithmState | None
    ) -> Generator[Request, Answer | None, StopReason]:
        """Run generations until the algorithm or the source stops the run; return the reason."""
        contract = self._contract
        if state is None:
            state = yield from contract.run(algorithm.init, "init", spec)
            contract.check_state(state, "init")
        while state.stop is None:
            state = yield from contract.run(algorithm.generation, "generation", spec, state)
            contract.check_generation(state, self.record.best)
            yield from self._look_for_doubts(state)
            self._note(state)
            if self._source is not None and self._source.generation(self, state):
                return StopReason.CALLBACK
        contract.check_end(self.record.best)
        return state.stop

    def _look_for_doubts(self, state: AlgorithmState) -> Procedure[None]:
        best, first = self.record.best, not self.record.history.count
        assert best is not None  # the contract has checked that
        first = getattr(state, "looks_for_doubts", first)
        if (yield from self._doubts.look(best, first, state.stop is not None)):
            self._tell_best(best)

    def _note(self, state: AlgorithmState) -> None:
        best, counts = self.record.best, self.record.counts
        assert best is not None  # the contract has checked that
        values = best.F, best.f, best.violation
        tasks = tuple(state.executions.tolist()), tuple(state.survived.tolist())
        row = Generation(counts[Level.UPPER], counts[Level.LOWER], *values, *tasks)
        self.record.note(row)

    def take(self, answers: Answers) -> None:
        """Take the answers to the batch, count what they cost, and run to the next batch."""
        if self.is_cut:
            self._take_part(answers)
        elif isinstance(answers, Evaluated):
            self._take_values(answers)
        elif isinstance(answers, Derived):
            self._take_slopes(answers)
        else:
            self._take_steps(answers)

    def _take_part(self, answers: Answers) -> None:
        """Count the part of a batch for which there was room, and end; a longer run goes on."""
        assert isinstance(self.batch, Batch) and isinstance(answers, Evaluated)
        self.record.note_failures(self.batch, self.batch.y, answers.errors)
        self._unused = len(answers.objective)
        self.end(StopReason.MAX_EVALS, self._unused)

    def _take_values(self, answers: Evaluated) -> None:
        assert isinstance(self.batch, Batch)
        self.record.note_failures(self.batch, self.batch.y, answers.errors)
        self.record.count(self.batch, len(answers.objective))
        self._resume(self._values(answers))

    def _values(self, answers: Evaluated) -> Values:
        """Return what the algorithm asked for, from the answers to what was evaluated for it.

        `spent` in it includes repeats. So rules on evaluations end a search that only repeats.
        """
        asked = self._asked
        assert asked is not None
        level, allowed = asked.level, None
        if self._translations:
            self._count_saved(level)
            for translation in reversed(self._translations):
                answers = translation.complete(answers)
        if answers.constraints.shape[1] and self._tolerances[level].ctol:
            allowed = self._allowed(asked, answers)
        spent = self.record.counts[level] + self.record.repeats[level]
        numbers = answers.objective, answers.constraints
        values = Values.of(*numbers, self._repeats[level], spent, allowed)
        return values if answers.parts is None else values._replace(parts=answers.parts)

    def _count_saved(self, level: Level) -> None:
        """Count the points that were asked for and not evaluated."""
        self.record.repeats[level] += self._saved[Saved.AS_REPEATS]
        if known := self._saved[Saved.FOR_LEVEL]:
            self.record.counts[level] += known
            if self._source is not None:
                self._source.recalled(self, level, known)

    def _allowed(self, batch: Batch, answers: Evaluated) -> FloatArray:
        """Return the tolerances (c,) of a batch's constraints.

        The violations that they leave out are remembered, because a result reports them.
        """
        tolerance, repeats = self._tolerances[batch.level], self._repeats[batch.level]
        constraints = answers.constraints
        if answers.new is not None:
            batch, constraints = batch.part(answers.new), constraints[answers.new]
        allowed = tolerance.of(constraints)
        counted = constraints.shape[1] - repeats
        amounts = tolerated(constraints[:, :counted], allowed[:counted])
        for row in np.flatnonzero(amounts):
            tolerance.remember(batch.x[row], batch.y[row], amounts[row])
        return allowed

    def _take_slopes(self, answers: Derived) -> None:
        assert isinstance(self.batch, SlopeBatch)
        level, counts = self.batch.level, self.record.gradients
        self.record.note_failures(self.batch, self.batch.y, answers.errors)
        counts[level] = spent = counts[level] + len(self.batch.x)
        along_x = (self.x_box.slopes(part) for part in answers.slopes[::2])
        along_y = (self.y_box.slopes(part) for part in answers.slopes[1::2])
        (objective_x, constraints_x), (objective_y, constraints_y) = along_x, along_y
        self._resume(Slopes(objective_x, objective_y, constraints_x, constraints_y, spent))

    def _take_steps(self, steps: list[StepOutcome]) -> None:
        """Take the outcomes of steps, and go on when all that were asked for are there."""
        assert isinstance(self.batch, StepBatch) and self._steps is not None
        errors = {row: step.error for row, step in enumerate(steps) if step.error is not None}
        self.record.note_failures(self.batch, np.array([step.y for step in steps]), errors)
        self.record.count(self.batch, sum(step.cost for step in steps))
        self._taken += steps
        if len(self._taken) < len(self._steps.x):
            self._hand_out_steps()
            return
        y, f, violation, done = (
            np.array(column) for column in list(zip(*self._taken, strict=True))[:4]
        )
        tolerance = self._tolerances[Level.LOWER]
        for row in np.flatnonzero((violation > 0) & (violation <= tolerance.ctol)):
            tolerance.remember(self._steps.x[row], y[row], violation[row])
            violation[row] = 0.0  # a violation that a solver reports has no scale, so ctol is used
        self._resume(StepValues(y, f, violation, done, self.record.counts[Level.LOWER]))

    def _resume(self, answer: Answer | None) -> None:
        """Run the algorithm to its next batch, or to its end."""
        known = self._advance(answer)
        while known is not None:
            known = self._advance(known)

    def _advance(self, answer: Answer | None) -> Answer | None:
        """Run the algorithm to its next request; return the answer if it is known already."""
        self.batch = None  # so that an algorithm that raises leaves no batch behind
        self._contract.answered(answer)
        entered = perf_counter()
        token = kernels.enter(self.kernel)
        try:
            request = self._requests.send(answer)
            self._contract.check(request)
            while isinstance(request, Incumbent):
                self._note_best(request)
                request = self._requests.send(None)
                self._contract.check(request)
        except StopIteration as end:
            self.end(end.value)
            return None
        except BadRequest as error:
            self._raise_where_asked(self._contract.named(error))
        except WrongGradient as error:
            error.tell_in_users_units(self.x_box, self.y_box)
            error.add_note("a run_dir keeps the wrong slopes: use another one after the correction")
            raise
        finally:
            kernels.leave(token)
        self.own_time += perf_counter() - entered
        return self._hand_out(request)

    def _hand_out(self, request: Question) -> Answer | None:
        """Make the next batch of a request, or the part of it for which the limits leave room.

        Return the answer at once if nothing must be evaluated for it.
        """
        batch, known = self._in_users_units(request), 0
        if isinstance(batch, StepBatch):
            self._steps, self._taken = batch, []
            return self._hand_out_steps()
        if isinstance(batch, Batch):
            batch = self._translated(batch)
            known = self._saved[Saved.FOR_LEVEL]
        wanted = len(batch.x)
        room = self._room(batch, known) if self._limited else wanted
        if 0 < room < wanted:
            self.is_cut, batch = True, rows_of(batch, slice(room))
        if room < min(wanted, 1):
            self.end(StopReason.MAX_EVALS)
        elif self.clock.left <= 0:
            self.end(StopReason.MAX_TIME)
        elif isinstance(batch, Batch) and not wanted:  # all its values are known
            return self._values(Evaluated.nothing())
        else:
            self.batch = batch
        return None

    def _hand_out_steps(self) -> Answer | None:
        """Make the next batch: all steps that are left, or those whose largest cost has room."""
        assert self._steps is not None
        left = rows_of(self._steps, slice(len(self._taken), None))
        room, self.batch = self._room(left, 0) if self._limited else len(left.x), None
        if room < min(len(left.x), 1):
            self._unused = sum(step.cost for step in self._taken)
            self.end(StopReason.MAX_EVALS)
        elif self.clock.left <= 0:
            self.end(StopReason.MAX_TIME)
        else:
            self.batch = rows_of(left, slice(room))
        return None

    def _translated(self, asked: Batch) -> Batch:
        """Return what must be evaluated to answer a batch."""
        batch = self._asked = asked
        if self._translations:
            self._saved = dict.fromkeys(Saved, 0)
        for translation in self._translations:
            left = translation.reduce(batch)
            self._saved[translation.saved] += len(batch.x) - len(left.x)
            batch = left
        return batch

    def _raise_where_asked(self, error: BadRequest) -> NoReturn:
        """Raise an error at the line of the algorithm that made the request."""
        error.add_note(f"in generation {self.record.history.count + 1}, counted from 1")
        try:
            self._requests.throw(error)
        except Exception as raised:  # usually the error itself, with that line
            if raised is error:
                raise
        self._close()
        raise error

    def _in_users_units(self, request: Question) -> AnyBatch:
        x = self.x_box.real(request.x)
        x.setflags(write=False)
        if isinstance(request, Step):
            return StepBatch(request.task, request.taken, x, request.near)
        y = self.y_box.real(request.y)
        y.setflags(write=False)
        kind = SlopeBatch if isinstance(request, Derive) else Batch
        return kind(request.level, x, y)

    def _note_best(self, best: Incumbent) -> None:
        x, y = self.x_box.real(best.x[None])[0], self.y_box.real(best.y[None])[0]
        # An algorithm of another package may tell numbers of other types.
        told: dict[str, Any] = {
            name: type(usual)(getattr(best, name)) for name, usual in PLAIN_FIELDS.items()
        }
        told["tolerated"] = sum((one.forgiven(x, y) for one in self._tolerances.values()), 0.0)
        values = float(best.F), float(best.f), float(best.violation)
        self._tell_best(Incumbent(x, y, *values, **told))

    def _tell_best(self, best: Incumbent) -> None:
        """Take a pair in the user's units as the best, with no more than is known about it."""
        self.record.best = self._doubts.judged(best, self.record.counts[Level.LOWER])
        if self._source is not None:
            self._source.best(self)

    def _room(self, batch: AnyBatch, known: int) -> int:
        """Return how many points or steps of a batch the limits allow.

        It is negative if they do not even allow the `known` points.
        """
        if isinstance(batch, SlopeBatch):
            return len(batch.x)  # limits are on evaluations
        limits, counted = self._limits, self.record.counts[batch.level] + known
        own = limits.upper if batch.level is Level.UPPER else limits.lower
        left = min(own - counted, limits.evals - self.record.evaluations)
        if not isinstance(batch, StepBatch):
            return int(min(left, len(batch.x)))
        cost = max(self._step_cost, 1)
        room = int(min(left, cost * len(batch.x)) // cost)
        self._refused = cost * (len(batch.x) - room)
        return room

    def end(self, reason: StopReason, evaluated: int = 0) -> None:
        """End the run, maybe in the middle of a generation; the best pair so far is the answer.

        `evaluated` points of the present batch were evaluated. They count, but their values are
        lost.
        """
        if self.batch is not None:
            self.record.count(self.batch, evaluated)
        self.stop = reason
        self.clock.stop()
        self.batch = None
        self._close()

    def _close(self) -> None:
        """Close the algorithm's generators, even those that yield once when they are closed."""
        for _ in range(2):
            with suppress(RuntimeError):
                self._requests.close()

    def result(self) -> Result:
        """Return the answer so far."""
        return self.record.result(
            m=self.x_box.bounds.size,
            n=self.y_box.bounds.size,
            reason=self.stop or StopReason.RUNNING,
            refused=self._refused,
            time=self.clock.elapsed,
            method=self.method,
            seed=self.seed,
            kernel=self.kernel,
            choices=self._choices,
            equilibrium=self._equilibrium,
            stance=self._ties[0],
            tie_tol=self._ties[1],
            unused=self._unused,
        )
