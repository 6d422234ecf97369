"""The follower's answers over a grid of x, for leaders of one or two variables.

`bilevo.plot.landscape` draws what this module computes. If the follower is a solver, it answers at
every grid point. If the problem has a `response`, a formula for the follower's answer, that is the
answer. Otherwise local searches start from the answers at neighbouring grid points and from points
spread over the follower's box. A few grid points get more of these searches. A second pass goes
backwards through the grid, and starts from the answers at the neighbours that come later. So an
answer that is found anywhere spreads to all points where it is the best, and the line between two
competing answers is sharp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from bilevo.algorithms.shared.cells import Cells, Depth, thorough_search
from bilevo.algorithms.shared.independent_search import best_first, search_locally
from bilevo.algorithms.shared.polish import End
from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.bounds import Bounds, Grid
from bilevo.core.problem import Problem
from bilevo.core.request import Level, together
from bilevo.core.solver import MAX_STEPS, CheckedSolver
from bilevo.core.streams import stream
from bilevo.core.values import BadValue
from bilevo.optimizers.sampling import latin_hypercube
from bilevo.verification.follower_problem import (
    Answer,
    FollowerProblem,
    at_lower,
    best_answer,
    values_at,
)

SPREAD = 16  # Points are spread over the follower's box, this many for each of its variables.
SEARCHES = 1  # How many of the spread points, the best ones, are starts of local searches.
THOROUGH = 9  # At about this many grid points, all spread points are starts of local searches.
APART = 0.02  # Answers that are farther apart than this in the unit box are different answers.
SIDE = {1: 121, 2: 25}  # Points along each side of the grid, by the leader's number of variables.
SEED = 1  # A fixed seed, so that a problem always has the same picture.


@dataclass(frozen=True, slots=True, eq=False)
class Landscape:
    """The follower's answers y (k, n) at the k points x (k, m) of a grid, and their values (k,).

    `violation` is that of the leader's constraints, `lower_violation` that of the follower's. The
    points are in the order of `numpy.meshgrid(*axes, indexing="ij")`. The landscape took
    `nfev_lower` evaluations of f, and k of F.
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
        """Tell where both levels' constraints hold (k,)."""
        return np.asarray((self.violation == 0) & (self.lower_violation == 0))

    def on_grid(self, values: FloatArray) -> FloatArray:
        """Return values (k,) in the shape of the grid; NaN where a constraint is violated."""
        shown = np.where(self.feasible, values, np.nan)
        return shown.reshape([len(axis) for axis in self.axes])


def survey(problem: Problem, points: int | None = None) -> Landscape:
    """Solve the follower's problem on a grid with `points` points along each side."""
    if problem.m > max(SIDE):
        raise ValueError(
            f"a landscape shows problems of 1 or 2 upper variables; {problem.name} has {problem.m}"
        )
    points = SIDE[problem.m] if points is None else points
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise ValueError(f"points must be a whole number of at least 2, got {points!r}")
    axes = tuple(_axis(problem.x_bounds, i, points) for i in range(problem.m))
    x = np.stack([side.ravel() for side in np.meshgrid(*axes, indexing="ij")], axis=1)
    x.flags.writeable = False
    if problem.follower is not None:
        answers, cost = _solve_all(problem, x)
    else:
        steps = [1, len(axes[-1])][: problem.m]
        answers, cost = _search_all(problem, x, steps)
    y, f = np.array([answer.y for answer in answers]), np.array([a.f for a in answers])
    above = values_at(problem, Level.UPPER, x, y)
    violation = np.where(np.isfinite(f), above.violation, math.inf)
    lower_violation = np.array([answer.violation for answer in answers])
    return Landscape(axes, x, y, above.objective, f, violation, lower_violation, cost)


def follower_view(problem: Problem, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a grid (k,) of the follower's only variable, and f (k, len(x)) over it and x.

    f is NaN where a constraint of the follower is violated.
    """
    y = _axis(problem.y_bounds, 0, SIDE[1])
    leaders, answers = (side.ravel()[:, None] for side in np.meshgrid(x, y))
    values = values_at(problem, Level.LOWER, leaders, answers)
    f = np.where(values.violation > 0, np.nan, values.objective)
    return y, f.reshape(len(y), len(x))


def _axis(bounds: Bounds, i: int, points: int) -> FloatArray:
    """Return points along a variable; those of a whole number are whole, and may be fewer."""
    along = np.linspace(bounds.lower[i], bounds.upper[i], points)
    return np.unique(np.round(along)) if bounds.whole[i] else along


def _solve_all(problem: Problem, x: FloatArray) -> tuple[list[Answer], int]:
    """Return the answers of the problem's own solver at all points, and their total cost.

    Where the solver fails, the values are infinite.
    """
    solver, middle = problem.checked_solver(), (problem.y_bounds.lower + problem.y_bounds.upper) / 2
    nothing, answers, cost = Answer(middle, math.inf, math.inf), [], 0
    for i, leader in enumerate(x):
        try:
            solved, paid = _solve(solver, leader, stream(SEED, "landscape", i))
        except BadValue:
            raise
        except Exception:  # the user's solver may do anything
            answers.append(nothing)
            continue
        answers.append(solved if np.isfinite(solved.y).all() else nothing)
        cost += paid
    return answers, cost


def _solve(solver: CheckedSolver, x: FloatArray, rng: np.random.Generator) -> tuple[Answer, int]:
    """Return the solver's answer at x from one start, and its cost.

    The solver takes steps until it is done, but at most `MAX_STEPS`.
    """
    state, cost = solver.start(x, rng), 0
    for step in range(MAX_STEPS):
        state, outcome = solver.advance(state, step == 0)
        cost += outcome.cost
        if outcome.done:
            break
    return Answer(outcome.y, outcome.f, outcome.violation, outcome.done), cost


def _search_all(problem: Problem, x: FloatArray, steps: list[int]) -> tuple[list[Answer], int]:
    """Return the answer at each grid point x (k, m), and the number of evaluations of f.

    An answer is the known response, or else the best that searches find. `steps` are the
    differences between the index of a grid point and the indices of its neighbours.
    """
    followers = [FollowerProblem(problem, row) for row in x]
    unknown = np.full((len(x), problem.n), np.nan)
    known = unknown if problem.response is None else problem.response(x)
    open_places = np.flatnonzero(~np.isfinite(known).all(axis=1)).tolist()
    found = {
        i: followers[i].answer(followers[i].box.unit(known[i]))
        for i in sorted(set(range(len(x))) - set(open_places))
    }
    each = max(1, len(open_places) // THOROUGH)
    for place, i in enumerate(open_places):
        near = [found[i - step] for step in steps if i - step in found]
        found[i] = _solved(followers[i], near, SEARCHES if place % each else None)
    for i in reversed(open_places):
        near = [found[i + step] for step in steps if i + step in found]
        found[i] = _revised(followers[i], found[i], near)
    box = followers[0].box
    answers = [replace(found[i], y=box.real(found[i].y[None])[0]) for i in range(len(x))]
    return answers, sum(follower.counts[Level.LOWER] for follower in followers)


def _solved(follower: FollowerProblem, near: list[Answer], searches: int | None) -> Answer:
    """Return the best answer of local searches at a grid point.

    They start from the neighbours' answers `near`, and from the best `searches` spread points, or
    from all spread points if `searches` is None.
    """
    d, grid = follower.box.size, Grid.of(follower.box.bounds)
    if grid is not None:
        return _compared(follower, grid, near)
    points = latin_hypercube(SPREAD * d, d, stream(SEED, "landscape"))
    spread = best_first(follower.ends(points))
    starts = follower.ends(np.array([answer.y for answer in near])) if near else []
    return best_answer(_searched(follower, starts + spread[:searches]))


def _compared(follower: FollowerProblem, grid: Grid, near: list[Answer]) -> Answer:
    """Return the best answer of a follower with whole numbers or choices, cell by cell."""
    cells = Cells(at_lower, grid)
    starts = [answer.y for answer in near] or [np.full(follower.box.size, 0.5)]
    rng = stream(SEED, "landscape")
    follower.run(thorough_search(cells, starts, rng, SEARCHES, Depth.QUICK))
    return Answer(cells.best.y, cells.best.f, cells.best.violation)


def _revised(follower: FollowerProblem, answer: Answer, near: list[Answer]) -> Answer:
    """Return the answer, or a better one that searches from neighbours' answers find.

    No search starts from a neighbour's answer that hardly differs from this answer.
    """
    if Grid.of(follower.box.bounds) is not None:
        return answer  # its cells were compared
    others = [other.y for other in near if np.abs(other.y - answer.y).max() > APART]
    starts = follower.ends(np.array(others)) if others else []
    return best_answer([answer, *_searched(follower, starts)])


def _searched(follower: FollowerProblem, starts: list[End]) -> list[Answer]:
    """Search locally from all starts, side by side; return the answers at which they end."""
    ends = follower.run(together(search_locally(at_lower, start) for start in starts))
    return [Answer(end.y, end.f, end.violation) for end in ends]
