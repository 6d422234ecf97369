"""A session: one run, which pauses at each request until it is given the answer.

`drive` and ask/tell both use sessions; they differ in where the answers come from.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
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
    Evaluate,
    Incumbent,
    Level,
    Question,
    Request,
    Slopes,
    Step,
    StepValues,
    Values,
)
from bilevo.core.result import Failure, Generation, Result
from bilevo.core.slopes import WrongGradient
from bilevo.core.solver import StepOutcome
from bilevo.core.space import UnitBox, answer_box
from bilevo.run.batches import (
    Answers,
    AnyBatch,
    Batch,
    Derived,
    Evaluated,
    SlopeBatch,
    StepBatch,
    Stopped,
)
from bilevo.run.clock import Clock
from bilevo.run.contract import Contract
from bilevo.run.packing import PackedRequest, Packing
from bilevo.run.record import RunRecord
from bilevo.run.repeats import Asked, Repeats
from bilevo.run.simulations import Simulations

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
# Why a certificate is not accepted where variables are whole.
UNFIT = "has no checks for whole numbers; leave the method out, or use bilevo.verify"


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
        self._simulations = None
        if problem.simulator is not None:  # such a run always begins at its start
            self._simulations, self.record.simulations = Simulations(), 0
        # Only whole numbers and choices make different unit points the same pair.
        remembers = problem.has_whole and self._simulations is None
        self._earlier = Repeats() if remembers else None
        self._asked: Asked | None = None
        # With ask and tell, there is no source, and the user tells no parts.
        self._packing = Packing(problem) if problem.separable and source is not None else None
        self._unpacked: PackedRequest | None = None
        # Whether a batch is not simply what the algorithm asks for.
        special = (self._simulations, self._earlier, self._packing)
        self._transforms = any(one is not None for one in special)
        # Whether the algorithm's checks count; one of another package may lack the member.
        self._fit = not problem.has_whole or getattr(algorithm, "whole", False)
        self._choices = problem.x_bounds.choices, problem.y_bounds.choices
        self.own_time = 0.0  # seconds spent by the algorithm
        self._refused = 0  # points that a limit left no room for
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
            self._note(state)
            if self._source is not None and self._source.generation(self, state):
                return StopReason.CALLBACK
        contract.check_end(self.record.best)
        return state.stop

    def _note(self, state: AlgorithmState) -> None:
        best, counts = self.record.best, self.record.counts
        assert best is not None  # the contract has checked that
        values = best.F, best.f, best.violation
        tasks = tuple(state.executions.tolist()), tuple(state.survived.tolist())
        row = Generation(counts[Level.UPPER], counts[Level.LOWER], *values, *tasks)
        self.record.note(row)

    def take(self, answers: Answers) -> None:
        """Take the answers to the batch, count what they cost, and run to the next batch."""
        if isinstance(answers, Evaluated):
            self._take_values(answers)
        elif isinstance(answers, Derived):
            self._take_slopes(answers)
        else:
            self._take_steps(answers)

    def _take_values(self, answers: Evaluated) -> None:
        assert isinstance(self.batch, Batch)
        if answers.errors:
            self._list_failures(self.batch.y, answers.errors)
        self.record.count(self.batch, len(answers.objective))
        if self._simulations is not None:
            self._simulations.add(self.batch, answers)
            self._resume(self._recalled(self._simulations))
        elif self._earlier is not None:
            self._resume(self._with_repeats(self._earlier, self.batch, answers))
        elif self._packing is not None and self._unpacked is not None:
            asked, self._unpacked = self._unpacked, None
            objective = self._packing.unpack(asked, answers)
            nothing = np.empty((len(objective), 0))
            self._resume(self._as_values(asked.batch, objective, nothing))
        else:
            self._resume(self._as_values(self.batch, answers.objective, answers.constraints))

    def _as_values(self, batch: Batch, objective: FloatArray, constraints: FloatArray) -> Values:
        level, allowed = batch.level, None
        if constraints.shape[1] and self._tolerances[level].ctol:
            allowed = self._allowed(batch, constraints)
        spent = self.record.counts[level]
        return Values.of(objective, constraints, self._repeats[level], spent, allowed)

    def _recalled(self, simulations: Simulations) -> Values:
        """Return the values that the algorithm asked for; all of its pairs are simulated by now.

        A pair that was simulated before counts for its level, and not as a simulation.
        """
        batch, known = simulations.asked, simulations.known
        if known:
            self.record.counts[batch.level] += known
            if self._source is not None:
                self._source.recalled(self, batch.level, known)
        return self._as_values(batch, *simulations.recall())

    def _with_repeats(self, earlier: Repeats, new: Batch, answers: Evaluated) -> Values:
        """Return the values of all rows that were asked for; `answers` are those of new rows.

        `spent` in it includes repeats. So rules on evaluations end a search that only repeats.
        """
        asked, self._asked, level = self._asked, None, new.level
        assert asked is not None
        self.record.repeats[level] += len(asked.keys) - len(answers.objective)
        objective, constraints = earlier.answer(asked, *answers[:2], set(answers.errors))
        allowed = None
        if constraints.shape[1] and self._tolerances[level].ctol:
            seen = answers.constraints if len(answers.objective) else constraints[:0]
            allowed = self._allowed(new, seen)
        spent = self.record.counts[level] + self.record.repeats[level]
        return Values.of(objective, constraints, self._repeats[level], spent, allowed)

    def _allowed(self, batch: Batch, constraints: FloatArray) -> FloatArray:
        """Return the tolerances (c,) of a batch's constraints (k, c).

        The violations that they leave out are remembered, because a result reports them.
        """
        tolerance, repeats = self._tolerances[batch.level], self._repeats[batch.level]
        allowed = tolerance.of(constraints)
        counted = constraints.shape[1] - repeats
        amounts = tolerated(constraints[:, :counted], allowed[:counted])
        for row in np.flatnonzero(amounts):
            tolerance.remember(batch.x[row], batch.y[row], amounts[row])
        return allowed

    def _take_slopes(self, answers: Derived) -> None:
        assert isinstance(self.batch, SlopeBatch)
        level, counts = self.batch.level, self.record.gradients
        if answers.errors:
            self._list_failures(self.batch.y, answers.errors)
        counts[level] = spent = counts[level] + len(self.batch.x)
        along_x = (self.x_box.slopes(part) for part in answers.slopes[::2])
        along_y = (self.y_box.slopes(part) for part in answers.slopes[1::2])
        (objective_x, constraints_x), (objective_y, constraints_y) = along_x, along_y
        self._resume(Slopes(objective_x, objective_y, constraints_x, constraints_y, spent))

    def _take_steps(self, steps: list[StepOutcome]) -> None:
        assert isinstance(self.batch, StepBatch)
        y = np.array([step.y for step in steps])
        errors = {row: step.error for row, step in enumerate(steps) if step.error is not None}
        if errors:
            self._list_failures(y, errors)
        self.record.counts[Level.LOWER] += sum(step.cost for step in steps)
        f, violation = (np.array([step[column] for step in steps]) for column in (1, 2))
        done = np.array([step.done for step in steps])
        tolerance = self._tolerances[Level.LOWER]
        for row in np.flatnonzero((violation > 0) & (violation <= tolerance.ctol)):
            tolerance.remember(self.batch.x[row], y[row], violation[row])
            violation[row] = 0.0  # a violation that a solver reports has no scale, so ctol is used
        self._resume(StepValues(y, f, violation, done, self.record.counts[Level.LOWER]))

    def _list_failures(self, y: FloatArray, errors: Mapping[int, str]) -> None:
        batch, record = self.batch, self.record
        assert batch is not None
        counted = record.counter(batch)[batch.level]
        for row, error in errors.items():
            if not record.lists_more:
                record.failures += 1
                continue
            point = batch.x[row], y[row], error
            record.add_failures([Failure(batch.level.value, counted + row + 1, *point)])

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
        if isinstance(request, Evaluate) and self._transforms:
            return self._transformed(request)
        count = len(request.x)
        if isinstance(request, Step):
            count *= self._step_cost
        elif isinstance(request, Derive):
            count = 0  # limits are on evaluations
        if self._limited and self._beyond(request.level, count):
            self._refused = count
            self.end(StopReason.MAX_EVALS)
        elif self.clock.left <= 0:
            self.end(StopReason.MAX_TIME)
        else:
            self.batch = self._in_users_units(request)
        return None

    def _simulate(self, simulations: Simulations, request: Evaluate) -> Answer | None:
        """Hand out the pairs that are not simulated yet; return the values if there are none."""
        asked = self._in_users_units(request)
        assert isinstance(asked, Batch)
        missing = simulations.missing(asked)
        count = 0 if missing is None else len(missing.x)
        if self._limited and self._beyond(request.level, len(asked.x), count):
            self._refused = count
            self.end(StopReason.MAX_EVALS)
        elif self.clock.left <= 0:
            self.end(StopReason.MAX_TIME)
        elif missing is None:
            return self._recalled(simulations)
        else:
            self.batch = missing
        return None

    def _transformed(self, request: Evaluate) -> Answer | None:
        """Hand out what is left of a request after what is known, or packed; see `_transforms`."""
        if self._simulations is not None:
            return self._simulate(self._simulations, request)
        if self._earlier is not None:
            return self._ask_once(self._earlier, request)
        if self._packing is not None and request.level is Level.LOWER:
            self._pack(self._packing, request)
        else:
            batch = self._in_users_units(request)
            assert isinstance(batch, Batch)
            self._hand_out(batch)
        return None

    def _pack(self, packing: Packing, request: Question) -> None:
        """Hand out a packed batch: each of its points probes all followers."""
        whole = self._in_users_units(request)
        assert isinstance(whole, Batch)  # such problems have no solver and no gradients of f
        packed, self._unpacked = packing.pack(whole)
        self._hand_out(packed)

    def _hand_out(self, batch: Batch) -> None:
        """Make a batch the next one, unless a limit ends the run before it."""
        if self._limited and self._beyond(batch.level, len(batch.x)):
            self._refused = len(batch.x)
            self.end(StopReason.MAX_EVALS)
        elif self.clock.left <= 0:
            self.end(StopReason.MAX_TIME)
        else:
            self.batch = batch

    def _ask_once(self, earlier: Repeats, request: Evaluate) -> Answer | None:
        """Hand out the pairs that were not evaluated yet; return the values if there are none."""
        whole = self._in_users_units(request)
        assert isinstance(whole, Batch)
        self._asked = asked = earlier.ask(whole)
        new = Batch(whole.level, whole.x[asked.new], whole.y[asked.new])
        for points in (new.x, new.y):
            points.setflags(write=False)
        self._hand_out(new)
        if self.batch is None or len(new.x):
            return None
        self.batch = None
        return self._with_repeats(earlier, new, Evaluated(np.empty(0), np.empty((0, 0)), {}))

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
        self.record.best = Incumbent(
            x,
            y,
            float(best.F),
            float(best.f),
            float(best.violation),
            float(best.gap),
            bool(best.unfinished),
            bool(best.certified),
            int(best.searches),
            int(best.agreeing),
            int(best.check_evals),
            str(best.doubt),
            sum((tolerance.forgiven(x, y) for tolerance in self._tolerances.values()), start=0.0),
            int(best.compared),
            float(best.F_optimistic),
            float(best.F_pessimistic),
            str(best.ties),
        )
        if self._earlier is not None or not self._fit:
            self.record.best = self._judged(self.record.best)
        if self._source is not None:
            self._source.best(self)

    def _judged(self, best: Incumbent) -> Incumbent:
        """Return the best pair of a problem with whole numbers, with no more than is known.

        Checks of a method that knows no whole numbers compare points of one cell with each other.
        """
        spent = min(best.check_evals, self.record.counts[Level.LOWER])  # it includes repeats
        best = best._replace(check_evals=spent)
        if self._fit or not best.certified:
            return best
        return best._replace(certified=False, doubt=f"{self.method} {UNFIT}")

    def _beyond(self, level: Level, points: int, simulations: int = 0) -> bool:
        """Tell whether `points` more evaluations at a level would exceed a limit.

        In joint problems they need this number of `simulations`.
        """
        upper, lower = self.record.counts[Level.UPPER], self.record.counts[Level.LOWER]
        made = self.record.simulations
        total = None if made is None else made + simulations
        if level is Level.UPPER:
            return self._limits.exceeded(upper + points, lower, total)
        return self._limits.exceeded(upper, lower + points, total)

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
        )
