"""The follower's problem at one x, and answers to it.

Verification is no part of a run, so no driver answers its requests: it calls the user's functions
itself. It counts every evaluation, also those that fail, and keeps limits as a run does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.shared.follower_search import evaluate_answers
from bilevo.algorithms.shared.gradients import follower_slopes
from bilevo.algorithms.shared.polish import End, best_of
from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.budget import Limits, StopReason
from bilevo.core.checks import shown
from bilevo.core.feasibility import Tolerances
from bilevo.core.order import best_index, no_worse
from bilevo.core.problem import Problem
from bilevo.core.request import (
    Derive,
    Evaluate,
    Level,
    Procedure,
    Request,
    Slopes,
    T,
    Values,
    run,
    split,
)
from bilevo.core.result import Result
from bilevo.core.slopes import RawSlopes
from bilevo.core.space import UnitBox
from bilevo.core.stance import Stance
from bilevo.run.clock import Clock
from bilevo.run.deriver import Deriver
from bilevo.run.dispatch import NOTHING, OnFailure, piece_rows
from bilevo.run.evaluator import Evaluator
from bilevo.run.executors import Workers
from bilevo.run.jobs import EvaluationOutcome, SlopeOutcome
from bilevo.run.session import Batch, SlopeBatch, Stopped


class Claim(NamedTuple):
    """A pair to verify, in the user's units, with the values that it is said to have.

    A value that is not known is NaN.
    """

    x: FloatArray
    y: FloatArray
    F: float
    f: float
    violation: float


def claim_of(problem: Problem, res: Result) -> Claim:
    """Return the pair of a result, to be verified; refuse a result that is not of this problem."""
    if not isinstance(problem, Problem) or not isinstance(res, Result):
        raise ValueError(
            f"verify takes a Problem and a Result, got {shown(problem)} and {shown(res)}"
        )
    x, y = frozen(res.x), frozen(res.y)
    if x.shape != (problem.m,) or y.shape != (problem.n,):
        raise ValueError(
            f"the result has {x.size} and {y.size} variables, {problem.name} has "
            f"{problem.m} and {problem.n}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(f"the result has no answer to verify: {res.message}")
    for point, bounds, name in ((x, problem.x_bounds, "x"), (y, problem.y_bounds, "y")):
        if not bounds.contain(point):
            raise ValueError(f"the result's {name} = {point.tolist()} is outside its bounds")
        wrong = bounds.not_whole(point)
        if wrong is not None and (name == "x" or problem.follower is None):
            raise ValueError(f"the result's {name}[{wrong}] = {point[wrong]} is no whole number")
    return Claim(x, y, float(res.F), float(res.f), float(res.violation))


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A follower's answer and its values; `done` is False if its solver was cut off."""

    y: FloatArray
    f: float
    violation: float
    done: bool = True

    def no_worse(self, other: Answer) -> bool:
        return no_worse(self.f, self.violation, other.f, other.violation)


def answers_at(y: FloatArray, values: Values) -> list[Answer]:
    """Return the k answers y (k, n), each with its values."""
    rows = zip(y, values.objective.tolist(), values.violation.tolist(), strict=True)
    return [Answer(*row) for row in rows]


def best_answer(answers: list[Answer]) -> Answer:
    """Return the best answer for the follower."""
    f, violation = (np.array([getattr(a, name) for a in answers]) for name in ("f", "violation"))
    return answers[best_index(f, violation)]


def values_at(
    problem: Problem,
    level: Level,
    x: FloatArray,
    y: FloatArray,
    evaluate: Evaluator | None = None,
    tolerances: Tolerances | None = None,
) -> Values:
    """Return a level's values at answers y (k, n) to one leader x (m,), or to leaders x (k, m).

    Points that fail rank last, unless `evaluate` treats them in another way. If tolerances are
    given, a constraint within its tolerance counts as met.
    """
    batch = Batch(level, *_pairs(x, y))
    objective, constraints, *_ = (evaluate or Evaluator(problem, "worst"))(batch)
    return tolerant_values(problem, level, objective, constraints, tolerances)


def tolerant_values(
    problem: Problem,
    level: Level,
    objective: FloatArray,
    constraints: FloatArray,
    tolerances: Tolerances | None,
) -> Values:
    """Make values from raw numbers; a constraint within its tolerance counts as met."""
    allowed = None
    if constraints.size and tolerances is not None and tolerances[level].ctol:
        allowed = tolerances[level].of(constraints)
    return Values.of(objective, constraints, problem.repeats(level), len(objective), allowed)


def _pairs(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x and y as read-only rows, one of each per pair; a single x is repeated."""
    x = np.repeat(x[None], len(y), axis=0) if x.ndim == 1 else x
    x.flags.writeable = y.flags.writeable = False
    return x, y


@dataclass(frozen=True, slots=True)
class Settings:
    """How a verification evaluates; the options are those of `minimize`.

    `show` is called with a text that says how far the verification has come.
    """

    on_failure: OnFailure = "worst"
    retries: float = 0
    workers: Workers | None = None
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=Clock)
    tolerances: Tolerances | None = None  # tolerances of the constraints of both levels
    show: Callable[[str], None] = lambda text: None
    stance: Stance = Stance.OPTIMISTIC
    tie_tol: float | None = None


class Evaluations:
    """Calls the user's functions within limits; counts evaluations and failures.

    If a limit has no room for a whole batch, the part that fits is evaluated, and then `Stopped` is
    raised.
    """

    def __init__(self, problem: Problem, settings: Settings | None = None) -> None:
        self.settings = Settings() if settings is None else settings
        self.counts = {Level.UPPER: 0, Level.LOWER: 0}
        self.gradients = 0  # points at which the follower's gradients were asked for
        self.failures = 0
        self.reserved = 0  # evaluations that searches must leave for what follows them
        self.progress: Callable[[], str] = lambda: ""  # says what has been done so far
        self._problem = problem
        self._evaluators = {
            on_failure: Evaluator(problem, on_failure, self.settings.retries, self.settings.workers)
            for on_failure in (self.settings.on_failure, "raise")
        }

        evaluator = self._evaluators[self.settings.on_failure]
        options = self.settings.on_failure, self.settings.retries, self.settings.workers
        self._deriver = Deriver(problem, evaluator.returned, *options)

    @property
    def spent(self) -> int:
        return sum(self.counts.values())

    @property
    def solver_tolerance(self) -> float:
        """Return the largest violation with which an answer of a solver counts as feasible."""
        tolerances = self.settings.tolerances
        return 0.0 if tolerances is None else tolerances[Level.LOWER].ctol

    @property
    def time_left(self) -> float:
        return self.settings.clock.left

    def room(self, wanted: int) -> int:
        """Return how many of the wanted evaluations the limits still allow.

        Raises `Stopped` if no time is left.
        """
        if self.time_left <= 0:
            raise Stopped(StopReason.MAX_TIME, 0)
        return int(max(0, min(wanted, self.settings.limits.evals - self.reserved - self.spent)))

    def __call__(
        self,
        level: Level,
        x: FloatArray,
        y: FloatArray,
        seen: Callable[[slice, Values], None] = lambda rows, values: None,
        on_failure: OnFailure | None = None,
    ) -> Values:
        """Return a level's values at x (m,) or (k, m), and y (k, n).

        `seen` is called with a slice of rows and their values. If a limit ends the batch, it is
        called for the rows that were evaluated before.
        """
        part = y[: self.room(len(y))]
        pieces = piece_rows(self._problem.vectorized, len(part))
        came: dict[int, EvaluationOutcome] = {}

        def keep(batch: Batch, i: int, outcome: EvaluationOutcome) -> None:
            came[i] = outcome
            self.counts[level] += outcome.counted
            self.failures += 0 if outcome.error is None else outcome.counted

        make = partial(tolerant_values, self._problem, level, tolerances=self.settings.tolerances)
        try:
            if len(part):
                evaluator = self._evaluators[on_failure or self.settings.on_failure]
                batch = Batch(level, *_pairs(x if x.ndim == 1 else x[: len(part)], part))
                found = evaluator(batch, NOTHING, keep, lambda: self.time_left)
                values = make(objective=found.objective, constraints=found.constraints)
                seen(slice(0, len(part)), values)
                self.show()
        except Stopped:
            for i, outcome in sorted(came.items()):
                if outcome.error is None:
                    seen(pieces[i], make(*outcome[:2]))
            raise
        if len(part) < len(y):
            raise Stopped(StopReason.MAX_EVALS, 0)
        return values

    def slopes(self, x: FloatArray, y: FloatArray) -> RawSlopes:
        """Return the follower's slopes at x (m,) and y (k, n), in the user's units."""
        self.room(0)

        def keep(batch: SlopeBatch, i: int, outcome: SlopeOutcome) -> None:
            self.gradients += outcome.counted
            self.failures += 0 if outcome.error is None else outcome.counted

        batch = SlopeBatch(Level.LOWER, *_pairs(x, y))
        return self._deriver(batch, NOTHING, keep, lambda: self.time_left).slopes

    def show(self) -> None:
        """Show how far the verification has come."""
        upper, lower = self.counts[Level.UPPER], self.counts[Level.LOWER]
        said = f"{self.progress()}, {upper}+{lower} evaluations"
        self.settings.show(f"{said}, {self.settings.clock.elapsed:.1f} s")


class FollowerProblem:
    """Both levels' functions at one x, as functions of y in the unit box.

    `best` is the best answer for the follower that was evaluated so far.
    """

    def __init__(
        self, problem: Problem, x: FloatArray, evaluations: Evaluations | None = None
    ) -> None:
        self.box = UnitBox(problem.y_bounds)
        self.evaluations = Evaluations(problem) if evaluations is None else evaluations
        self.best: End | None = None
        self._x = x

    @property
    def counts(self) -> dict[Level, int]:
        return self.evaluations.counts

    def __call__(self, level: Level, y: FloatArray) -> Values:
        """Return a level's values at answers y (k, n) in unit coordinates."""

        def see(rows: slice, values: Values) -> None:
            new = best_of(y[rows], values)
            if level is Level.LOWER and (self.best is None or not self.best.no_worse(new)):
                self.best = new

        return self.evaluations(level, self._x, self.box.real(y), see)

    def claimed(self, y: FloatArray) -> Answer:
        """Return the answer under test, in unit coordinates; `y` is in the user's units.

        If the evaluation fails, its error is raised: the run evaluated this pair without an error.
        """
        at = self.evaluations
        values = at(Level.LOWER, self._x, y[None].copy(), on_failure="raise")
        return answers_at(self.box.unit(y)[None], values)[0]

    def leader(self, y: FloatArray) -> Values:
        """Return the leader's values at the answer under test; raise if the evaluation fails."""
        return self.evaluations(Level.UPPER, self._x, y[None].copy(), on_failure="raise")

    def ends(self, y: FloatArray) -> list[End]:
        """Evaluate points (k, n) in unit coordinates; return them as ends, to search from."""
        rows = split(self(Level.LOWER, y), [1] * len(y))
        return [End(point, values) for point, values in zip(y, rows, strict=True)]

    def answer(self, y: FloatArray) -> Answer:
        return answers_at(y[None], self(Level.LOWER, y[None]))[0]

    def run(self, procedure: Procedure[T]) -> T:
        """Run an algorithm's procedure, and return its result.

        Its requests are answered at this problem's x, whatever x they have.
        """

        def answer(request: Request) -> Values | Slopes:
            if isinstance(request, Derive):
                return self.slopes(request.y)
            assert isinstance(request, Evaluate)
            return self(request.level, request.y)

        return run(procedure, answer)

    def slopes(self, y: FloatArray) -> Slopes:
        """Return the follower's slopes at answers y (k, n), in unit coordinates.

        Slopes along x are left as the user gives them: searches of the follower do not use them.
        """
        found = self.evaluations.slopes(self._x, self.box.real(y))
        return Slopes(
            found.objective_x,
            self.box.slopes(found.objective_y),
            found.constraints_x,
            self.box.slopes(found.constraints_y),
            self.evaluations.gradients,
        )


NO_LEADER = np.empty(0)  # An empty x: `FollowerProblem.run` ignores the x of requests.
at_lower = partial(evaluate_answers, NO_LEADER)
slopes_lower = follower_slopes(NO_LEADER)
at_upper = partial(evaluate_answers, NO_LEADER, level=Level.UPPER)
