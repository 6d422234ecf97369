"""Searches for the follower's answer to one leader, one execution at a time.

An execution of a `FollowerSearch` is one generation of an optimizer. An execution of a
`SolverSearch` is one step of the problem's own solver. Algorithms decide which search is next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import FullBudget, Scale, change_over
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import (
    ALONE,
    Evaluate,
    Incumbent,
    Level,
    Procedure,
    Step,
    StepValues,
    Values,
    evaluate,
)
from bilevo.core.tolerances import alike
from bilevo.optimizers.protocol import Searcher


class FollowerCheck(NamedTuple):
    """What independent searches found about a pair's follower.

    `Incumbent` explains the fields. `passed` says that nothing speaks against the answer, also if
    the searches were too few for a certificate. `thorough` is their number relative to the usual.
    """

    gap: float
    certified: bool
    searches: int
    agreeing: int
    check_evals: int
    doubt: str = ""
    passed: bool = False
    thorough: float = 1.0
    compared: int = 0


class TieFindings(NamedTuple):
    """The best and the worst F that were found among a follower's ties, and that in words."""

    F_optimistic: float
    F_pessimistic: float
    ties: str

    @classmethod
    def of(cls, best: float, worst: float) -> TieFindings:
        best, worst = min(best, worst), max(best, worst)
        if alike(best, worst):
            return cls(best, worst, "no tie with another F was found")
        return cls(best, worst, f"the follower is indifferent: F is from {best:.8g} to {worst:.8g}")


@dataclass(slots=True, eq=False)
class Pair:
    """A leader's x with a follower's answer y, and their values.

    `violation` is the sum over both levels; `lower_violation` is the follower's part of it.
    """

    x: FloatArray
    y: FloatArray
    f: float
    lower_violation: float
    F: float = math.inf
    violation: float = math.inf
    converged: bool = False  # whether the search for y has settled, or the solver is done
    task: int = -1  # number of the solver's search that found the pair; -1 without a solver
    steps: int = 0  # steps of that search so far
    check: FollowerCheck | None = None  # what independent searches found; None if none were made
    ties: TieFindings | None = None  # what was found about ties; None if nobody looked

    def no_worse(self, other: Pair) -> bool:
        """Tell whether the pair is no worse than another for the leader."""
        return self.no_worse_than(other.F, other.violation)

    def no_worse_than(self, F: float, violation: float) -> bool:
        """Tell whether the pair is no worse for the leader than these values."""
        return no_worse(self.F, self.violation, F, violation)

    def follower_no_worse(self, other: Pair) -> bool:
        """Tell whether the answer is no worse than another for the follower."""
        return no_worse(self.f, self.lower_violation, other.f, other.lower_violation)

    def refutes(self, other: Pair) -> bool:
        """Tell whether the answer is better for the follower than another one to the same x."""
        return np.array_equal(self.x, other.x) and not other.follower_no_worse(self)

    def answers_alike(self, y: FloatArray, f: float, violation: float) -> bool:
        """Tell whether the answer and its values equal the given ones, to the bit."""
        values = (f, violation) == (self.f, self.lower_violation)
        return values and np.array_equal(y, self.y, equal_nan=True)

    @property
    def incumbent(self) -> Incumbent:
        unfinished = self.task >= 0 and not self.converged
        told = Incumbent(self.x, self.y, self.F, self.f, self.violation, unfinished=unfinished)
        if self.check is None:
            return told
        found = {k: v for k, v in self.check._asdict().items() if k in Incumbent._fields}
        if self.ties is not None:
            found |= self.ties._asdict()
        return told._replace(**found)

    @property
    def certified(self) -> bool:
        return self.check is not None and self.check.certified

    @property
    def passed(self) -> bool:
        """Tell whether the answer has passed a check, if only a light one."""
        return self.check is not None and (self.check.passed or self.check.certified)


# The defaults of `FollowerRule`: smaller changes of f are ignored. The first is in units of the
# scale of f, the second is relative to f.
ABSOLUTE, RELATIVE = 1e-5, 1e-4


@dataclass(frozen=True, slots=True)
class FollowerRule:
    """When a follower search ends: f has settled over a window, or its executions are used up."""

    window: int  # executions over which f must settle
    longest: int  # the most executions
    absolute: float = ABSOLUTE
    relative: float = RELATIVE
    feasible: bool = False  # whether only a feasible answer can settle

    @classmethod
    def of(cls, budget: FullBudget, population: int) -> FollowerRule:
        return cls(
            math.ceil(budget.lower_window / population), math.ceil(budget.lower_max / population)
        )

    @classmethod
    def steady(cls, budget: FullBudget, first: int, children: int) -> FollowerRule:
        """Return the rule of a search that evaluates `first` points, and then `children` at a time.

        An execution evaluates one such batch. Only a feasible answer can settle.
        """
        window = math.ceil(budget.lower_window / children)
        steps = math.ceil(max(0, budget.lower_max - first) / children)
        return cls(window + 1, steps + 1, absolute=0.0, feasible=True)

    def converged(self, record: list[float], scale: Scale) -> bool:
        if len(record) <= self.window:  # the usual case; returning early saves a call
            return False
        change, relative_change = change_over(record, self.window)
        return change < scale.tolerance(self.absolute) or relative_change < self.relative


def evaluate_answers(x: FloatArray, y: FloatArray, level: Level = Level.LOWER) -> Procedure[Values]:
    """Request the follower's or the leader's values at answers y (k, n) to one leader x (m,)."""
    return evaluate(level, np.repeat(x[None], len(y), axis=0), y)


def evaluate_pairs(pairs: Sequence[Pair]) -> Procedure[Values]:
    """Fill in F and the total violation of pairs: one upper evaluation each, in one batch."""
    if len(pairs) == 1:  # usual in a competition; this saves two NumPy calls
        x, y = pairs[0].x[None], pairs[0].y[None]
    else:
        x, y = np.array([pair.x for pair in pairs]), np.array([pair.y for pair in pairs])
    values: Values = yield Evaluate(Level.UPPER, x, y)
    found = zip(pairs, values.objective.tolist(), values.violation.tolist(), strict=True)
    for pair, F, violation in found:
        pair.F, pair.violation = F, violation + pair.lower_violation
    return values


@dataclass(slots=True, eq=False)
class FollowerSearch:
    """A search by an optimizer: its state, its best answer, and whether it has ended."""

    x: FloatArray
    optimizer: Searcher[Any]
    search: Any
    rng: np.random.Generator
    rule: FollowerRule
    scale: Scale
    best: Pair | None = None
    constraints: FloatArray = field(default_factory=lambda: np.empty(0))  # g at the best answer
    x_rows: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # x, repeated per point
    record: list[float] = field(default_factory=list)  # best f after each execution
    converged: bool = False
    finished: bool = False

    @property
    def answer(self) -> Pair:
        """Return the best answer so far; the first execution finds one."""
        assert self.best is not None
        return self.best

    @property
    def executions(self) -> int:
        return len(self.record)

    def execute(self, guide: FloatArray | None = None) -> Procedure[bool]:
        """Make one generation of the optimizer; return True if it found a new best answer.

        A guide, which is the answer of another task, is evaluated with the optimizer's points. The
        optimizer learns from the guide, but the guide cannot become the answer of this search.
        """
        asked = self.optimizer.ask(self.search, self.rng)
        points = asked if guide is None else np.concatenate([asked, guide[None]])
        values: Values = yield Evaluate(Level.LOWER, self._beside(len(points)), points)
        self.scale.see(values.objective)
        improved = self._adopt(asked, values)
        self.optimizer.tell(self.search, points, values.objective, values.violation)
        answer, record = self.answer, self.record
        record.append(answer.f)
        settled = self.rule.converged(record, self.scale)
        if settled and self.rule.feasible:
            # An infinite violation may settle, too: then all points have failed.
            settled = not 0 < answer.lower_violation < math.inf
        self.converged = settled or self.optimizer.exhausted(self.search)
        self.finished = self.converged or len(record) >= self.rule.longest
        answer.converged = self.converged
        return improved

    def _beside(self, count: int) -> FloatArray:
        """Return x repeated for `count` points."""
        if len(self.x_rows) < count:
            self.x_rows = self.x[None].repeat(count, 0)
        return self.x_rows[:count]

    def solve(self) -> Procedure[Pair]:
        """Execute until the search ends, and return its answer (F not evaluated)."""
        while not self.finished:
            yield from self.execute()
        return self.answer

    def _adopt(self, points: FloatArray, values: Values) -> bool:
        """Make the best point the answer if it is no worse than the last answer.

        Returns True if it became the answer.
        """
        i = best_index(values.objective[: len(points)], values.violation[: len(points)])
        f, violation = values.objective.item(i), values.violation.item(i)
        last = self.best
        if last is not None and not no_worse(f, violation, last.f, last.lower_violation):
            return False
        self.best = Pair(self.x, points[i].copy(), f, violation)
        self.constraints = values.constraints[i]
        return True


@dataclass(slots=True, eq=False)
class SolverSearch:
    """A search by the problem's own solver.

    The search has converged when the solver is done. The search is finished when it has converged,
    or after `longest` steps. It starts near the finished search whose task is `near`, if any.
    """

    x: FloatArray
    task: int
    longest: int
    best: Pair | None = None
    executions: int = 0
    converged: bool = False
    finished: bool = False
    spent: int = 0  # the lower level's total cost, of all tasks, when this search last took a step
    near: int = ALONE

    @classmethod
    def again(cls, pair: Pair, longest: int) -> SolverSearch:
        """Return the search that found a pair, so that the search can continue."""
        finished = pair.converged or pair.steps >= longest
        return cls(pair.x, pair.task, longest, pair, pair.steps, pair.converged, finished)

    @property
    def answer(self) -> Pair:
        """Return the best answer so far; the first execution finds one."""
        assert self.best is not None
        return self.best

    def execute(self, guide: FloatArray | None = None) -> Procedure[bool]:
        """Take one step of the solver; return True if its answer has changed.

        A guide is ignored, because a solver cannot learn from it.
        """
        near = None if self.near == ALONE else np.array([self.near])
        values: StepValues = yield Step(
            np.array([self.task]), np.array([self.executions]), self.x[None], near
        )
        self.executions += 1
        self.spent = values.spent
        self.converged = bool(values.done[0])
        self.finished = self.converged or self.executions >= self.longest
        y, f, violation = values.y[0], values.f.item(0), values.violation.item(0)
        another = self.best is None or not self.best.answers_alike(y, f, violation)
        if another:
            self.best = Pair(self.x, y, f, violation, task=self.task)
        self.answer.converged, self.answer.steps = self.converged, self.executions
        return another

    def solve(self) -> Procedure[Pair]:
        """Execute until the search ends, and return its answer (F not evaluated)."""
        while not self.finished:
            yield from self.execute()
        return self.answer


AnyFollowerSearch = FollowerSearch | SolverSearch
