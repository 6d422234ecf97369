"""What a leader of one or two variables is up against: the follower's answers over a grid of x.

Numbers only; `bilevo.plot.landscape` draws them. The follower's answer at a grid point is the
problem's `response` where that is known; else the best of local searches from the neighbours'
answers and from points spread over the follower's box, more of them at a few grid points. A second
pass, backwards, starts from the answers of the neighbours that came later: an answer found anywhere
spreads to where it is the best, and the line between two that compete is sharp. A follower that is
a solver of the user's is asked, instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values
from bilevo.core.streams import stream
from bilevo.core.values import BadValue
from bilevo.run.evaluator import Evaluator
from bilevo.run.session import Batch
from bilevo.verification.by_search import (
    Answer,
    FollowerProblem,
    best_answer,
    latin_hypercube,
    local_search,
)
from bilevo.verification.by_solver import Solved, solve

SPREAD = 16  # points over the follower's box for each of its variables
SEARCHES = 1  # from the best of these points, beside those from the neighbours' answers
THOROUGH = 9  # grid points at which searches start from all of them: rivals are found, and spread
APART = 0.02  # between answers of neighbours, in the unit box, that are not the same one moved
SIDE = {1: 121, 2: 25}  # points of the grid a side, for so many variables
SEED = 1  # of the spread points: a picture of a problem is always the same


class Found(NamedTuple):
    """A follower's answers y (k, n) with their values (k,), and what they have cost."""

    y: FloatArray
    f: FloatArray
    violation: FloatArray
    cost: int


@dataclass(frozen=True, slots=True, eq=False)
class Landscape:
    """The follower's answers y (k, n) at the k points x (k, m) of a grid, and their values (k,).

    `violation` is the leader's, `lower_violation` the follower's. Points are in the order of
    `numpy.meshgrid(*axes, indexing="ij")`. `nfev_lower` evaluations of f were needed, k of F.
    """

    axes: tuple[FloatArray, ...]
    x: FloatArray
    y: FloatArray
    F: FloatArray
    f: FloatArray
    violation: FloatArray
    lower_violation: FloatArray
    nfev_lower: int

    @property
    def feasible(self) -> BoolArray:
        """Where both levels' constraints hold (k,)."""
        return np.asarray((self.violation == 0) & (self.lower_violation == 0))

    def on_grid(self, values: FloatArray) -> FloatArray:
        """Values (k,) by the axes; NaN where a constraint is violated."""
        shown = np.where(self.feasible, values, np.nan)
        return shown.reshape([len(axis) for axis in self.axes])


def survey(problem: Problem, points: int | None = None) -> Landscape:
    """Solve the follower's problem on a grid with so many points a side."""
    if problem.m > max(SIDE):
        raise ValueError(
            f"a landscape shows problems of 1 or 2 upper variables; {problem.name} has {problem.m}"
        )
    points = SIDE[problem.m] if points is None else points
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise ValueError(f"points must be a whole number of at least 2, got {points!r}")
    ends = zip(problem.x_bounds.lower, problem.x_bounds.upper, strict=True)
    axes = tuple(np.linspace(low, high, points) for low, high in ends)
    x = np.stack([side.ravel() for side in np.meshgrid(*axes, indexing="ij")], axis=1)
    x.flags.writeable = False
    if problem.follower is not None:
        found = _told(problem, x)
    else:
        found = _searched(problem, x, [points**k for k in range(problem.m)])
    above = _values(problem, Level.UPPER, x, found.y)
    return Landscape(
        axes,
        x,
        found.y,
        above.objective,
        found.f,
        violation=np.where(np.isfinite(found.f), above.violation, math.inf),
        lower_violation=found.violation,
        nfev_lower=found.cost,
    )


def follower_view(problem: Problem, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A follower's single variable (k,), and its f (k, len(x)) over that and the leader's x.

    NaN where a constraint of the follower's is violated.
    """
    low, high = problem.y_bounds.lower[0], problem.y_bounds.upper[0]
    y = np.linspace(low, high, SIDE[1])
    pairs = [side.ravel()[:, None] for side in np.meshgrid(x, y)]
    values = _values(problem, Level.LOWER, *pairs)
    f = np.where(values.violation > 0, np.nan, values.objective)
    return y, f.reshape(len(y), len(x))


def _values(problem: Problem, level: Level, x: FloatArray, y: FloatArray) -> Values:
    """A level's values at pairs; points that fail are violated infinitely."""
    x.flags.writeable = y.flags.writeable = False
    objective, constraints, _ = Evaluator(problem, "worst")(Batch(level, x, y))
    return Values.of(objective, constraints, problem.repeats(level), len(x))


def _told(problem: Problem, x: FloatArray) -> Found:
    """What a problem's own follower answers; where it fails, no value is finite."""
    solver, middle = problem.checked_solver(), (problem.y_bounds.lower + problem.y_bounds.upper) / 2
    nothing, rows, cost = Solved(middle, math.inf, math.inf), [], 0
    for i, leader in enumerate(x):
        try:
            solved, paid = solve(solver, leader, stream(SEED, "landscape", i))
        except BadValue:
            raise
        except Exception:  # the user's solver may do anything
            rows.append(nothing)
            continue
        rows.append(solved if np.isfinite(solved.y).all() else nothing)
        cost += paid
    y, f, violation, _ = (np.array(column) for column in zip(*rows, strict=True))
    return Found(y, f, violation, cost)


def _searched(problem: Problem, x: FloatArray, steps: list[int]) -> Found:
    """Answers at the points x by searches of f; `steps` lead from a point to its neighbours."""
    leaders = [FollowerProblem(problem, row, SEED) for row in x]
    answers = _answers(problem, leaders, x, steps)
    return Found(
        y=leaders[0].box.real(np.array([answer.y for answer in answers])),
        f=np.array([answer.f for answer in answers]),
        violation=np.array([answer.violation for answer in answers]),
        cost=sum(leader.counts[Level.LOWER] for leader in leaders),
    )


def _answers(
    problem: Problem, leaders: list[FollowerProblem], x: FloatArray, steps: list[int]
) -> list[Answer]:
    unknown = np.full((len(x), problem.n), np.nan)
    known = unknown if problem.response is None else problem.response(x)
    open_places = np.flatnonzero(~np.isfinite(known).all(axis=1)).tolist()
    found = {
        i: leaders[i].answer(leaders[i].box.unit(known[i]))
        for i in sorted(set(range(len(x))) - set(open_places))
    }
    each = max(1, len(open_places) // THOROUGH)
    for place, i in enumerate(open_places):
        near = [found[i - step] for step in steps if i - step in found]
        found[i] = _solved(leaders[i], near, SEARCHES if place % each else None)
    for i in reversed(open_places):
        near = [found[i + step] for step in steps if i + step in found]
        found[i] = _revised(leaders[i], found[i], near)
    return [found[i] for i in range(len(x))]


def _solved(leader: FollowerProblem, near: list[Answer], searches: int | None) -> Answer:
    """The best of searches from other leaders' answers and the best (or all) of spread points."""
    d = leader.box.size
    spread = _at(leader, latin_hypercube(SPREAD * d, d, stream(leader.seed, "landscape")))
    spread.sort(key=lambda answer: (answer.violation, answer.f))
    starts = _at(leader, np.array([answer.y for answer in near])) if near else []
    return best_answer([local_search(leader, start) for start in starts + spread[:searches]])


def _revised(leader: FollowerProblem, answer: Answer, near: list[Answer]) -> Answer:
    """The answer, or a better one that is found from other answers of other leaders."""
    others = [other.y for other in near if np.abs(other.y - answer.y).max() > APART]
    starts = _at(leader, np.array(others)) if others else []
    return best_answer([answer, *(local_search(leader, start) for start in starts)])


def _at(leader: FollowerProblem, y: FloatArray) -> list[Answer]:
    values = leader(Level.LOWER, y)
    rows = zip(y, values.objective.tolist(), values.violation.tolist(), strict=True)
    return [Answer(*row) for row in rows]
