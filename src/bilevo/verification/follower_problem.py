"""The follower's problem at one x, answers to it, and the certificate of an answer.

Verification runs outside of algorithms, so it calls the user's functions itself. Every evaluation
is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bilevo.algorithms.shared.ties import preferred
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import interquartile_range
from bilevo.core.feasibility import Tolerances
from bilevo.core.order import best_index, no_worse
from bilevo.core.problem import Problem
from bilevo.core.request import Evaluate, Level, Procedure, Request, T, Values, run
from bilevo.core.result import Certificate
from bilevo.core.space import UnitBox
from bilevo.core.streams import stream
from bilevo.run.evaluator import Evaluator
from bilevo.run.session import Batch

NEGLIGIBLE = 1e-9  # A smaller gap, relative to the spread of f in the box, confirms an answer.


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A follower's answer and its values; `done` is False where a solver was cut off."""

    y: FloatArray
    f: float
    violation: float
    done: bool = True

    def no_worse(self, other: Answer) -> bool:
        return no_worse(self.f, self.violation, other.f, other.violation)


def answers_at(y: FloatArray, values: Values) -> list[Answer]:
    """Return answers at rows of y (k, n) with their values."""
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

    Points that fail rank last, unless `evaluate` treats them in another way. Constraints are met
    within the tolerances, if there are any.
    """
    x = np.repeat(x[None], len(y), axis=0) if x.ndim == 1 else x
    x.flags.writeable = y.flags.writeable = False
    objective, constraints, _ = (evaluate or Evaluator(problem, "worst"))(Batch(level, x, y))
    allowed = None
    if constraints.size and tolerances is not None and tolerances[level].ctol:
        allowed = tolerances[level].of(constraints)
    return Values.of(objective, constraints, problem.repeats(level), len(y), allowed)


class FollowerProblem:
    """The two levels as functions of y in the unit box, at one x; evaluations are counted."""

    def __init__(
        self, problem: Problem, x: FloatArray, seed: int, tolerances: Tolerances | None = None
    ) -> None:
        self.box = UnitBox(problem.y_bounds)
        self.counts = {Level.UPPER: 0, Level.LOWER: 0}
        self.seed = seed
        self._x, self._problem, self._tolerances = x, problem, tolerances
        self._evaluate = Evaluator(problem, "worst")

    def __call__(self, level: Level, y: FloatArray) -> Values:
        """Return values at rows of unit coordinates; points that fail rank last."""
        return self._values(level, self.box.real(y), self._evaluate)

    def _values(self, level: Level, y: FloatArray, evaluate: Evaluator) -> Values:
        self.counts[level] += len(y)
        return values_at(self._problem, level, self._x, y, evaluate, self._tolerances)

    def claimed(self, y: FloatArray) -> Answer:
        """Return the answer under test, given in the user's units; failures are raised."""
        values = self._values(Level.LOWER, y[None].copy(), Evaluator(self._problem, "raise"))
        return answers_at(self.box.unit(y)[None], values)[0]

    def answers(self, y: FloatArray) -> list[Answer]:
        """Return the answers at rows of unit coordinates."""
        return answers_at(y, self(Level.LOWER, y))

    def answer(self, y: FloatArray) -> Answer:
        return self.answers(y[None])[0]

    def run(self, procedure: Procedure[T]) -> T:
        """Run an algorithm's procedure; answer its requests at this problem's x, not at theirs."""

        def answer(request: Request) -> Values:
            assert isinstance(request, Evaluate)
            return self(request.level, request.y)

        return run(procedure, answer)

    @cached_property
    def spread(self) -> float:
        """Return how much f varies over the box: the interquartile range at 32 points."""
        points = stream(self.seed, "verify", 3).random((32, self.box.size))
        return interquartile_range(self(Level.LOWER, points).objective)


def make_certificate(
    claimed: Answer,
    best: Answer,
    tied: list[Answer],
    upper: Values,
    negligible: float,
    counts: dict[Level, int],
) -> Certificate:
    """Return the certificate of a claimed answer; its pair has the leader's best tie.

    `upper` holds the leader's values at the tied answers, which are in the user's units.
    """
    i = preferred(upper)
    chosen, F = tied[i], float(upper.objective[i])
    gap = math.inf if claimed.violation > 0 else claimed.f - best.f
    feasible = bool(upper.violation[i] == 0 and chosen.violation == 0)
    return Certificate(
        y=chosen.y,
        F=F,
        f=chosen.f,
        follower_gap=gap,
        feasible=feasible,
        nfev_lower=counts[Level.LOWER],
        nfev_upper=counts[Level.UPPER],
        message=_message(gap, best.violation, gap <= negligible, F, feasible),
        confirmed=best.violation == 0 and gap <= negligible,
    )


def _message(gap: float, violation: float, confirmed: bool, F: float, feasible: bool) -> str:
    """Say what a certificate means; `violation` is the follower's at the best answer."""
    if math.isinf(violation):
        return "no finite value of the follower was found at this x"
    if violation > 0:
        return "no feasible follower answer was found at this x"
    if math.isinf(gap):
        text = "y is infeasible for the follower; at its best answer"
    elif confirmed:
        text = "confirmed: the follower has no better answer;"
    else:
        text = f"the follower has an answer better by {gap:.3g}; there"
    if not math.isfinite(F):
        return f"{text} F has no finite value"
    return f"{text} F = {F:.8g}" + ("" if feasible else ", and a constraint is violated")
