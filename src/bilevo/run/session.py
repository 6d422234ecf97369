"""One run, paused at its next request: the generator, the counters, the limits, the history.

The driver and ask/tell both stand on it: they only differ in who evaluates a request.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.algorithm import Algorithm, AlgorithmState
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Limits, StopReason
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Incumbent, Level, Request, Steps, Values
from bilevo.core.result import Generation, History, Result
from bilevo.core.space import UnitBox
from bilevo.version import __version__

_REASONS = {
    StopReason.TARGET: "F reached the target",
    StopReason.STAGNATION: "the best F has settled: no change over the upper window",
    StopReason.BUDGET: "the algorithm's upper budget is used up",
    StopReason.MAX_EVALS: "the limit on evaluations leaves no room for the next batch of {points}",
    StopReason.MAX_TIME: "the time limit is reached",
    StopReason.CALLBACK: "the callback stopped the run",
    StopReason.INTERRUPTED: "interrupted by the user",
    StopReason.RUNNING: "still running",
}


class Batch(NamedTuple):
    """Points of the user's coordinates to evaluate at one level: x (k, m) and y (k, n)."""

    level: Level
    x: FloatArray
    y: FloatArray


class Session:
    """A run that hands out batches and takes their values until it is done.

    `batch` is what wants evaluating; None when the run has ended, for the reason in `stop`.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm[Any],
        spec: Spec,
        limits: Limits,
        callback: Callable[[Result], Any] | None = None,
    ) -> None:
        self.x_box, self.y_box = UnitBox(problem.x_bounds), UnitBox(problem.y_bounds)
        self.seed, self.method = spec.seed, algorithm.name
        self.counts = {Level.UPPER: 0, Level.LOWER: 0}
        self.failures = 0
        self.stop: StopReason | None = None
        self._refused = 0  # points that a limit left no room for
        self.batch: Batch | None = None
        self.history = History()
        self.incumbent: Incumbent | None = None
        self._repeats = {level: problem.repeats(level) for level in Level}
        self._limits, self._callback = limits, callback
        self._steps = self._run(algorithm, spec)
        self._started, self._ended = perf_counter(), 0.0
        self._advance(None)

    def _run(self, algorithm: Algorithm[Any], spec: Spec) -> Steps[StopReason]:
        state: AlgorithmState = yield from algorithm.init(spec)
        while state.stop is None:
            state = yield from algorithm.generation(spec, state)
            self._note(state)
            if self._callback is not None and self._stopped_by_callback(self._callback):
                return StopReason.CALLBACK
        return state.stop

    def _note(self, state: AlgorithmState) -> None:
        best = self.incumbent
        assert best is not None
        self.history.generations.append(
            Generation(
                self.counts[Level.UPPER],
                self.counts[Level.LOWER],
                best.F,
                best.f,
                best.violation,
                tuple(state.executions.tolist()),
                tuple(state.survived.tolist()),
            )
        )

    def _stopped_by_callback(self, callback: Callable[[Result], Any]) -> bool:
        try:
            callback(self.result())
        except StopIteration:
            return True
        return False

    def send(self, objective: FloatArray, constraints: FloatArray, failures: int = 0) -> None:
        """Take the batch's values, count its points, and move on to the next batch."""
        assert self.batch is not None
        level = self.batch.level
        self.counts[level] += len(objective)
        self.failures += failures
        spent = self.counts[level]
        self._advance(Values.of(objective, constraints, self._repeats[level], spent))

    def _advance(self, values: Values | None) -> None:
        """Run the algorithm to its next evaluation, or to its end."""
        self.batch = None
        try:
            request: Request = self._steps.send(values)
            while isinstance(request, Incumbent):
                self.incumbent = request
                request = self._steps.send(None)
        except StopIteration as end:
            self.end(end.value)
            return
        if self._beyond(request.level, len(request.x)):
            self._refused = len(request.x)
            self.end(StopReason.MAX_EVALS)
        elif self.out_of_time():
            self.end(StopReason.MAX_TIME)
        else:
            x, y = self.x_box.real(request.x), self.y_box.real(request.y)
            x.flags.writeable = y.flags.writeable = False
            self.batch = Batch(request.level, x, y)

    def _beyond(self, level: Level, points: int) -> bool:
        """Whether that many more points at a level would pass a limit."""
        upper, lower = self.counts[Level.UPPER], self.counts[Level.LOWER]
        if level is Level.UPPER:
            return self._limits.exceeded(upper + points, lower)
        return self._limits.exceeded(upper, lower + points)

    def end(self, reason: StopReason, evaluated: int = 0) -> None:
        """Stop here, maybe in the middle of a generation; the incumbent is the answer.

        `evaluated` points of the present batch are counted, though their values are lost.
        """
        if self.batch is not None:
            self.counts[self.batch.level] += evaluated
        self.stop, self._ended = reason, perf_counter()
        self.batch = None
        self._steps.close()

    def out_of_time(self) -> bool:
        return self._limits.time < math.inf and self.time >= self._limits.time

    @property
    def time(self) -> float:
        return (self._ended or perf_counter()) - self._started

    def result(self) -> Result:
        """The answer so far."""
        best, reason = self.incumbent, self.stop or StopReason.RUNNING
        nothing = np.full(self.x_box.bounds.size, np.nan), np.full(self.y_box.bounds.size, np.nan)
        result = Result(
            x=nothing[0] if best is None else self.x_box.real(best.x[None])[0],
            y=nothing[1] if best is None else self.y_box.real(best.y[None])[0],
            F=np.nan if best is None else best.F,
            f=np.nan if best is None else best.f,
            violation=np.inf if best is None else best.violation,
            nfev_upper=self.counts[Level.UPPER],
            nfev_lower=self.counts[Level.LOWER],
            nit=len(self.history),
            success=False,
            status=reason,
            message="",
            time=self.time,
            method=self.method,
            seed=self.seed,
            version=__version__,
            failures=self.failures,
            history=History(list(self.history.generations)),
        )
        ended = reason not in (StopReason.INTERRUPTED, StopReason.RUNNING)
        result.success = ended and result.feasible
        why = _REASONS[reason].format(points=self._refused)
        result.message = f"{why}; {_answer(result)}"
        return result


def _answer(result: Result) -> str:
    if result.feasible:
        return "the answer is feasible"
    if np.isfinite(result.F) and np.isfinite(result.f):
        return f"the best pair violates constraints by {result.violation:.3g}"
    if np.isnan(result.x).any():
        return "no value of F was computed before that"
    return "no pair with finite values was found"
