"""One run, paused at its next request: the generator, the counters, the limits, the history.

The driver and ask/tell both stand on it: they only differ in who evaluates a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from bilevo import kernels
from bilevo.core.algorithm import Algorithm, AlgorithmState
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Limits, StopReason
from bilevo.core.follower import Move
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Advance, Evaluate, Incumbent, Level, Moves, Request, Steps, Values
from bilevo.core.result import Failure, Generation, Result
from bilevo.core.space import UnitBox, answer_box
from bilevo.run.tally import LISTED, Tally


class Batch(NamedTuple):
    """Points of the user's coordinates to evaluate at one level: x (k, m) and y (k, n)."""

    level: Level
    x: FloatArray
    y: FloatArray


class Turns(Advance):
    """Steps of the user's follower to take, with leaders x (k, m) in the user's coordinates."""

    __slots__ = ()


class Recorder(Protocol):
    """Is told a run's events; and says where it starts, if it is taken up again."""

    taken_up: tuple[AlgorithmState | None, Tally] | None

    def best(self, tally: Tally) -> None:
        """There is a new best pair."""
        ...

    def generation(self, state: AlgorithmState, tally: Tally) -> None:
        """A generation has ended."""
        ...


class Session:
    """A run that hands out batches and takes their values until it is done.

    `batch` is what wants evaluating; None when the run has ended, for the reason in `stop`. A run
    that is taken up again starts from a state and a tally, and is `replaying` until `go_live`.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm[Any],
        spec: Spec,
        limits: Limits,
        callback: Callable[[Result], Any] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.x_box, self.y_box = UnitBox(problem.x_bounds), answer_box(problem)
        self.seed, self.method, self.kernel = spec.seed, algorithm.name, spec.kernel
        self.stop: StopReason | None = None
        self._refused = 0  # points that a limit left no room for
        self.batch: Batch | Turns | None = None
        taken_up = None if recorder is None else recorder.taken_up
        self.replaying = taken_up is not None
        state, self.tally = taken_up or (None, Tally())
        self._advance_cost = spec.advance_cost or 0
        self._repeats = {level: problem.repeats(level) for level in Level}
        self._limits, self._callback, self._recorder = limits, callback, recorder
        self._limited = limits != Limits(time=limits.time)  # in evaluations
        self._steps = self._run(algorithm, spec, state)
        kernels.prepare(spec.kernel)
        self._started, self._ended = perf_counter(), 0.0
        self.own_time = 0.0  # seconds spent by the algorithm
        self._advance(None)

    def _run(
        self, algorithm: Algorithm[Any], spec: Spec, state: AlgorithmState | None
    ) -> Steps[StopReason]:
        if state is None:
            state = yield from algorithm.init(spec)
        while state.stop is None:
            state = yield from algorithm.generation(spec, state)
            self._note(state)
            if not self.replaying and self._stopped_by_callback():
                return StopReason.CALLBACK
        return state.stop

    def _note(self, state: AlgorithmState) -> None:
        best, counts = self.tally.best, self.tally.counts
        assert best is not None
        self.tally.history.add(
            Generation(
                counts[Level.UPPER],
                counts[Level.LOWER],
                best.F,
                best.f,
                best.violation,
                tuple(state.executions.tolist()),
                tuple(state.survived.tolist()),
            )
        )
        if self._recorder is not None:
            self._recorder.generation(state, self.tally)

    def _stopped_by_callback(self) -> bool:
        try:
            if self._callback is not None:
                self._callback(self.result())
        except StopIteration:
            return True
        return False

    def go_live(self) -> bool:
        """A run taken up again is where it was. Tells the callback; True if that says stop."""
        self.replaying = False
        return len(self.tally.history) > 0 and self._stopped_by_callback()

    def send(
        self,
        objective: FloatArray,
        constraints: FloatArray,
        errors: Mapping[int, str] | None = None,
    ) -> None:
        """Take the batch's values, count its points, and move on to the next batch.

        `errors` are those of the rows whose evaluation failed.
        """
        assert isinstance(self.batch, Batch)
        level, counts = self.batch.level, self.tally.counts
        if errors:
            self._list_failures(self.batch.y, errors)
        counts[level] = spent = counts[level] + len(objective)
        self._advance(Values.of(objective, constraints, self._repeats[level], spent))

    def moved(self, moves: Sequence[Move]) -> None:
        """Take where the batch's steps have led, count their cost, and move on."""
        assert isinstance(self.batch, Turns)
        y = np.array([move.y for move in moves])
        errors = {row: move.error for row, move in enumerate(moves) if move.error is not None}
        if errors:
            self._list_failures(y, errors)
        self.tally.counts[Level.LOWER] += sum(move.cost for move in moves)
        f, violation = (np.array([move[column] for move in moves]) for column in (1, 2))
        done = np.array([move.done for move in moves])
        self._advance(Moves(y, f, violation, done, self.tally.counts[Level.LOWER]))

    def _list_failures(self, y: FloatArray, errors: Mapping[int, str]) -> None:
        batch, tally = self.batch, self.tally
        assert batch is not None
        tally.failures += len(errors)
        for row, error in errors.items():
            if len(tally.failed_points) == LISTED:
                return
            number = tally.counts[batch.level] + row + 1
            point = Failure(batch.level.value, number, batch.x[row], y[row], error)
            tally.failed_points.append(point)

    def _advance(self, values: Values | Moves | None) -> None:
        """Run the algorithm to its next evaluation, or to its end."""
        self.batch = None  # it has its values: an algorithm that raises leaves none behind
        entered = perf_counter()
        token = kernels.enter(self.kernel)
        try:
            request: Request = self._steps.send(values)
            while isinstance(request, Incumbent):
                self._note_best(request)
                request = self._steps.send(None)
        except StopIteration as end:
            self.end(end.value)
            return
        finally:
            kernels.leave(token)
        now = perf_counter()
        self.own_time += now - entered
        count = len(request.x)
        if isinstance(request, Advance):
            count *= self._advance_cost
        if self._limited and self._beyond(request.level, count):
            self._refused = count
            self.end(StopReason.MAX_EVALS)
        elif now - self._started >= self._limits.time:
            self.end(StopReason.MAX_TIME)
        else:
            self.batch = self._in_users_units(request)

    def _in_users_units(self, request: Evaluate | Advance) -> Batch | Turns:
        x = self.x_box.real(request.x)
        x.setflags(write=False)
        if isinstance(request, Advance):
            return Turns(request.task, request.turn, x)
        y = self.y_box.real(request.y)
        y.setflags(write=False)
        return Batch(request.level, x, y)

    def _note_best(self, best: Incumbent) -> None:
        x, y = self.x_box.real(best.x[None])[0], self.y_box.real(best.y[None])[0]
        self.tally.best = best._replace(x=x, y=y)
        if self._recorder is not None:
            self._recorder.best(self.tally)

    def _beyond(self, level: Level, points: int) -> bool:
        """Whether that many more points at a level would pass a limit."""
        upper, lower = self.tally.counts[Level.UPPER], self.tally.counts[Level.LOWER]
        if level is Level.UPPER:
            return self._limits.exceeded(upper + points, lower)
        return self._limits.exceeded(upper, lower + points)

    def end(self, reason: StopReason, evaluated: int = 0) -> None:
        """Stop here, maybe in the middle of a generation; the incumbent is the answer.

        `evaluated` points of the present batch are counted, though their values are lost.
        """
        if self.batch is not None:
            self.tally.counts[self.batch.level] += evaluated
        self.stop, self._ended = reason, perf_counter()
        self.batch = None
        self._steps.close()

    def time_left(self) -> float:
        return self._limits.time - self.time

    @property
    def time(self) -> float:
        """Seconds the run has taken, those before it was taken up again included."""
        return (self._ended or perf_counter()) - self._started

    def elapse(self, seconds: float) -> None:
        """Set the clock, while replaying; a run may have ended at its first request."""
        self._started = (self._ended or perf_counter()) - seconds

    def result(self) -> Result:
        """The answer so far."""
        return self.tally.result(
            m=self.x_box.bounds.size,
            n=self.y_box.bounds.size,
            reason=self.stop or StopReason.RUNNING,
            refused=self._refused,
            time=self.time,
            method=self.method,
            seed=self.seed,
            kernel=self.kernel,
        )
