"""scipy's local searches as a solver, a few evaluations at a time.

scipy.optimize.minimize cannot be stopped and continued. So a step runs its search again from the
start, takes known values from a record, and breaks off when the step's evaluations are used up.
Nothing is evaluated twice, and one search without breaks would give the same answers, to the bit.
A state holds this record as arrays, so that it can be stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import require_count
from bilevo.core.checks import require
from bilevo.core.order import best_index, no_worse
from bilevo.core.problem import Problem
from bilevo.core.request import Values
from bilevo.core.solver import Neighbour
from bilevo.followers.lower import Lower, required
from bilevo.optimizers.gradient import METHODS, Differences, descend, usual_method

GRADIENTS = 5  # by default, a step can evaluate this number of gradients


class Paused(Exception):  # noqa: N818 (not an error: the step is over)
    """A step's evaluations are used up."""


@dataclass(slots=True, eq=False)
class MinimizeState:
    """A search for the answer to x that starts at `begin`: its points (k, n), and their values.

    Points are in the unit box. `best` may be from an earlier search for the same x. `starts` is the
    number of searches that are left, this one included.
    """

    x: FloatArray
    rng: np.random.Generator
    begin: FloatArray
    starts: int
    points: FloatArray
    objective: FloatArray
    violation: FloatArray
    constraints: FloatArray
    best: FloatArray
    f: float = math.inf
    best_violation: float = math.inf
    spent: int = 0

    @classmethod
    def fresh(
        cls, x: FloatArray, rng: np.random.Generator, begin: FloatArray, starts: int
    ) -> MinimizeState:
        size = begin.size
        nothing = np.empty((0, size)), np.empty(0), np.empty(0), np.empty((0, 0))
        return cls(x, rng, begin, starts, *nothing, best=begin)

    def add(self, points: FloatArray, values: Values) -> None:
        """Add evaluated points and their values to the record."""
        if not len(self.points):
            self.constraints = np.empty((0, values.constraints.shape[1]))
        self.points = np.concatenate([self.points, points])
        self.objective = np.concatenate([self.objective, values.objective])
        self.violation = np.concatenate([self.violation, values.violation])
        self.constraints = np.concatenate([self.constraints, values.constraints])
        self.spent += len(points)
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        if no_worse(f, violation, self.f, self.best_violation):
            self.best, self.f, self.best_violation = points[i].copy(), f, violation

    def keep(self, count: int) -> None:
        """Keep only the first `count` points of the record."""
        self.points, self.objective = self.points[:count], self.objective[:count]
        self.violation, self.constraints = self.violation[:count], self.constraints[:count]


class RecordedValues:
    """Values for a search that runs again: recorded ones, and then at most `most` new ones."""

    def __init__(self, state: MinimizeState, lower: Lower, most: int) -> None:
        self._state, self._lower, self._left, self._place = state, lower, most, 0

    def __call__(self, rows: FloatArray) -> Values:
        state, place = self._state, self._place
        recorded = state.points[place : place + len(rows)]
        same = (recorded == rows[: len(recorded)]).all(axis=1)
        known = int(same.cumprod().sum())
        if known < len(recorded):  # recorded on another machine, whose rounding differs
            state.keep(place + known)
        new = rows[known : known + self._left]
        if len(new):
            state.add(new, self._lower(state.x, new))
            self._left -= len(new)
        if known + len(new) < len(rows):
            raise Paused
        self._place += len(rows)
        part = slice(place, self._place)
        values = state.objective[part], state.violation[part], state.constraints[part]
        return Values(*values, state.spent)


@dataclass(frozen=True, slots=True)
class Minimize:
    """Searches f by a method of scipy.optimize.minimize, from a random point.

    If the leader is near another one whose search has ended, the first start is at that answer.
    By default `method` is L-BFGS-B, or SLSQP if there are constraints; both use central
    differences. Nelder-Mead, or COBYLA if there are constraints, needs no gradients and copes with
    kinks. More `starts`, one after another, help where f has several valleys. A step makes
    at most `evaluations` evaluations. The default is enough for five gradients.
    """

    method: str | None = None
    starts: int = 1
    evaluations: int | None = None
    lower: Lower | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_count("starts", self.starts, optional=False)
        require_count("evaluations", self.evaluations)
        known = isinstance(self.method, str | None) and self.method in (None, *METHODS)
        require(known, "method", f"one of {', '.join(METHODS)}", self.method)

    def bind(self, problem: Problem) -> Minimize:
        method = self.method or usual_method(problem.g is not None)
        if problem.g is not None and not METHODS[method].constraints:
            able = ", ".join(name for name, kind in METHODS.items() if kind.constraints)
            raise ValueError(f"{method} takes no constraints; these do: {able}")
        return replace(self, method=method, lower=Lower(problem, "Minimize"))

    @property
    def cost(self) -> int:
        size = 1 if self.lower is None else self.lower.box.size
        return self.evaluations or GRADIENTS * (2 * size + 1)

    def start(
        self, x: FloatArray, rng: np.random.Generator, near: Neighbour | None = None
    ) -> MinimizeState:
        box = required(self.lower, "Minimize").box
        begin = rng.random(box.size) if near is None else box.unit(near.y)
        return MinimizeState.fresh(x, rng, begin, self.starts)

    def advance(self, state: MinimizeState) -> MinimizeState:
        lower = required(self.lower, "Minimize")
        assert self.method is not None
        before = state.spent
        try:
            first = RecordedValues(state, lower, self.cost)(state.begin[None])
            replay = RecordedValues(state, lower, self.cost - (state.spent - before))
            descend(Differences(replay, first.objective.item()), state.begin, self.method)
        except Paused:
            return state
        state.starts -= 1
        if state.starts:
            state.begin = state.rng.random(lower.box.size)
            state.keep(0)
        return state

    def best(self, state: MinimizeState) -> tuple[FloatArray, float, float]:
        return required(self.lower, "Minimize").answer(state.best), state.f, state.best_violation

    def done(self, state: MinimizeState) -> bool:
        return state.starts == 0

    def spent(self, state: MinimizeState) -> int:
        return state.spent
