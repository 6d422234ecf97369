"""Sets of ties at one x: answers whose f is nearly the best, and the one that a leader expects.

A `TieSet` holds the answers y with f(x, y) <= f* + width that meet the follower's constraints.
There are three kinds of sets, and a search of F for each:

- **The follower is content with a nearly best answer** (`search_near`). The set has an inside. In
  coordinates in which f grows by `width` over a unit step, it is about a ball. SQP searches F in
  it, from its middle, from random points and from known ties.
- **Ties have the same f** (`search_level`). The set is a piece of a line, a plane or a curved
  surface, along the directions in which f is level. SQP searches F over these directions. A point
  that is no tie is led back to the set by a local search of f.
- **Ties lie where constraints of the follower are active** (`search_face`). They may form a face of
  the feasible set, or a curved part of its surface. SQP searches F under f <= f* + width and the
  constraints, whose derivatives lead along the surface.

Every tie that is evaluated counts: `TieSet.found` is the one that the leader expects. For a
pessimistic leader an answer that violates the leader's constraints is the worst one, so such
answers are searched for, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.polish import Curvature, End, curvature_at
from bilevo.algorithms.shared.sqp import LocalRule, sqp
from bilevo.algorithms.shared.ties import FLAT, FLAT_DIFFERENCE, preferred
from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.request import Procedure, Values, together
from bilevo.core.stance import Stance
from bilevo.optimizers.sampling import latin_hypercube

AT_BOUND = 1e-9  # An answer this close to a bound is at the bound (fraction of the box).
SHORTEST, LONGEST = 1e-9, 1.0  # The shortest and the longest unit of coordinates in a set.
REACH = 4.0  # How many units a search may go from the middle of a set.
BALL = 0.8  # Random points lie this many units from the middle, or nearer.
DIFFERENCE = 1e-5  # The step of differences in coordinates of a set.
SET_ITERATIONS = 25  # The most iterations of a search in a set.
LOCAL = 2  # How many of the points that were looked at start local searches.
MOST_CONSTRAINTS = 3  # How many of the leader's constraints are searched for their largest value.
MOST_TURNS = 10  # How often a search along a curved set begins anew, with new directions.
SLIGHT = 1e-7  # A curved set is followed no further for smaller gains in F, relative to 1 + |F|.
FACE_ITERATIONS = 40  # The most iterations of a search over ties at active constraints.
FACE_MARGIN = 1e-11  # Such a search keeps this distance from linearized constraints.
ACTIVE = 1e-6  # A constraint that is larger than minus this is active.
LEVEL_STEPS = (1e-3, 0.03, 0.3)  # Steps at which f is compared, to find level directions.


Goal = Callable[[Values], FloatArray]  # of the leader's values at k answers: what is minimized


def _satisfaction(j: int, upper: Values) -> FloatArray:
    """Return how far the leader's constraint j is from being violated."""
    return np.asarray(-upper.constraints[:, j])


class TiedAnswer(NamedTuple):
    """A tie: y (n,), the follower's f, and the leader's F, violation and constraints."""

    y: FloatArray
    f: float
    F: float
    violation: float
    G: FloatArray

    def is_preferred_to(self, other: TiedAnswer, stance: Stance) -> bool:
        """Tell whether a leader of this stance expects this answer, and not the other one."""
        F, violation = (np.array(pair) for pair in zip(self[2:4], other[2:4], strict=True))
        return preferred(Values(F, violation, np.empty((2, 0)), 0), stance) == 0


@dataclass(slots=True, eq=False)
class TieSet:
    """The ties at one x, as far as they are known. `lower` and `upper` evaluate rows of y."""

    lower: At
    upper: At
    f: float  # the best f
    width: float  # how much larger the f of a tie may be
    stance: Stance
    found: TiedAnswer | None = None  # the tie that the leader expects, of all that were evaluated
    best: tuple[FloatArray, float] | None = None  # a better answer for the follower: y and f
    felt: BoolArray | None = None  # which of the leader's constraints y changes; None if not known

    def evaluate(self, rows: FloatArray) -> Procedure[tuple[Values, Values]]:
        """Return both levels' values at rows of y, and take note of ties among them."""
        lower = yield from self.lower(rows)
        upper = yield from self.upper(rows)
        self.note(rows, lower, upper)
        return lower, upper

    def ties(self, lower: Values) -> BoolArray:
        """Tell which rows are ties."""
        return np.asarray((lower.violation == 0) & (lower.objective <= self.f + self.width))

    def note(self, rows: FloatArray, lower: Values, upper: Values) -> None:
        """Take note of the ties among some answers (k, n)."""
        for i in np.flatnonzero(self.ties(lower) & np.isfinite(upper.objective)).tolist():
            f, F, G = float(lower.objective[i]), float(upper.objective[i]), upper.constraints[i]
            new = TiedAnswer(rows[i].copy(), f, F, float(upper.violation[i]), G)
            if self.found is None or new.is_preferred_to(self.found, self.stance):
                self.found = new
            if f < self.f and (self.best is None or f < self.best[1]):
                self.best = new.y, f

    @property
    def misses_constraints(self) -> bool:
        """Tell whether the tie found violates one of the leader's constraints that y changes."""
        if self.found is None or self.found.violation == 0:
            return False
        return bool((self.found.G[slice(None) if self.felt is None else self.felt] > 0).any())

    def as_felt(self, upper: Values) -> Values:
        """Return the leader's values without the constraints that no y changes."""
        if self.felt is None or self.felt.all():
            return upper
        G = upper.constraints[:, self.felt]
        unfelt = np.maximum(upper.constraints[:, ~self.felt], 0.0).sum(axis=1)
        violation = np.where((G > 0).any(axis=1), np.maximum(upper.violation - unfelt, 0.0), 0.0)
        return upper._replace(violation=violation, constraints=G)

    def goals(self) -> list[Goal]:
        """Return what searches minimize: F as the leader sees it, or -G for a pessimistic one."""
        stance = self.stance
        goals: list[Goal] = [lambda upper: stance.seen(upper.objective)]
        if stance is Stance.PESSIMISTIC and self.found is not None:
            worst = np.argsort(-self.found.G)[:MOST_CONSTRAINTS].tolist()
            goals += [partial(_satisfaction, j) for j in worst]
        return goals

    def best_rows(self, rows: FloatArray, lower: Values, upper: Values) -> FloatArray:
        """Return those ties among rows that are the best starts for local searches of F."""
        tied = np.flatnonzero(self.ties(lower))
        order = np.argsort(self.stance.seen(upper.objective[tied]), kind="stable")
        return np.asarray(rows[tied[order[:LOCAL]]])


# Sets with an inside


def search_near(
    ties: TieSet,
    y: FloatArray,
    starts: FloatArray,
    rng: np.random.Generator,
    count: int,
    thorough: bool = True,
) -> Procedure[None]:
    """Search F over the nearly best answers around the best answer y (n,).

    A local search starts from the best of y, of the `starts` (k, n) and of `count` random points.
    A `thorough` look makes more searches: from y, and from several of the other points.
    """
    axes = yield from reach_axes(ties.lower, y, ties.width)
    random = np.clip(y + ball_points(axes, count, rng) @ axes, 0.0, 1.0)
    rows = np.concatenate([y[None], starts, random])
    lower, upper = yield from ties.evaluate(rows)
    begin = ties.best_rows(rows, lower, upper)
    begin = np.concatenate([begin, y[None]]) if thorough else begin[:1]
    sizes = (axes * axes).sum(axis=1)
    for goal in ties.goals():
        for start in begin:
            yield from _search_in(ties, y, axes, (start - y) @ axes.T / sizes, goal)


def reach_axes(lower: At, y: FloatArray, width: float) -> Procedure[FloatArray]:
    """Return axes (n, n) as rows: along each of them, f grows by about `width`."""
    model = yield from curvature_at(lower, y, FLAT_DIFFERENCE)
    return np.eye(len(y)) if model is None else _scaled_axes(model, y, width)


def _scaled_axes(model: Curvature, y: FloatArray, width: float) -> FloatArray:
    """Return axes along which the model grows by `width`.

    A variable at its bound, from which f rises, is an axis. So is the direction of the slope of the
    other variables. The rest are principal directions of the curvature.
    """
    n, slope, hessian = len(y), model.gradient, model.hessian
    held = ((y <= AT_BOUND) & (slope > 0)) | ((y >= 1 - AT_BOUND) & (slope < 0))
    basis = [np.eye(n)[i] for i in np.flatnonzero(held)]
    free = np.where(held, 0.0, slope)
    size = float(np.linalg.norm(free))
    if size * _length(0.0, float(np.abs(hessian).max()), width) > 0.1 * width:
        basis.append(free / size)
    rest = np.linalg.svd(np.array(basis))[2][len(basis) :] if basis else np.eye(n)
    if len(rest):
        vectors = np.linalg.eigh(rest @ hessian @ rest.T)[1]
        basis += list(vectors.T @ rest)
    rows = np.array(basis)
    lengths = [
        _length(abs(float(row @ slope)), max(float(row @ hessian @ row), 0.0), width)
        for row in rows
    ]
    return np.asarray(rows * np.array(lengths)[:, None])


def _length(slope: float, curvature: float, width: float) -> float:
    """Return the step over which slope and curvature make f grow by `width`."""
    root = math.sqrt(slope * slope + 2 * curvature * width)
    return min(max(2 * width / (slope + root), SHORTEST), LONGEST) if slope + root else LONGEST


def ball_points(axes: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Return random coordinates (count, n) in the unit ball; long axes are independent of it."""
    n = len(axes)
    points = rng.standard_normal((count, n))
    points *= BALL / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-300)
    long = np.linalg.norm(axes, axis=1) >= LONGEST
    points[:, long] = rng.uniform(-1.0, 1.0, (count, int(long.sum())))
    return points


def _search_in(
    ties: TieSet,
    y: FloatArray,
    axes: FloatArray,
    start: FloatArray,
    goal: Goal,
) -> Procedure[None]:
    """Search a goal in a set with an inside, from coordinates (n,)."""
    n = len(y)
    reach = np.full(n, REACH)
    tolerance = 1e-9 * (1 + abs(0.0 if ties.found is None else ties.found.F))
    rule = LocalRule(SET_ITERATIONS * (n + 2), tolerance, DIFFERENCE, 1e-7, repairing=True)
    at = _under_constraints(ties, lambda rows: y + rows @ axes, ties.width, goal)
    yield from sqp(at, start, -reach, reach, rule)


def _under_constraints(
    ties: TieSet, place: Callable[[FloatArray], FloatArray], unit: float, goal: Goal
) -> At:
    """Return a goal as a function of coordinates; being a tie is a constraint, in units of f.

    An optimistic leader's constraints must hold, too.
    """
    friendly = ties.stance is Stance.OPTIMISTIC

    def at(rows: FloatArray) -> Procedure[Values]:
        lower, upper = yield from ties.evaluate(np.clip(place(rows), 0.0, 1.0))
        felt = ties.as_felt(upper)
        excess = (lower.objective - ties.f - ties.width) / unit
        parts = [
            excess[:, None],
            lower.constraints,
            felt.constraints[:, : None if friendly else 0],
        ]
        violation = np.maximum(excess, 0.0) + lower.violation
        violation = violation + (felt.violation if friendly else 0.0)
        return Values(goal(upper), violation, np.concatenate(parts, axis=1), lower.spent)

    return at


# Sets at active constraints


def search_face(ties: TieSet, starts: FloatArray, unit: float) -> Procedure[None]:
    """Search F over ties at active constraints, from ties (k, n); `unit` is the scale of f."""
    n = starts.shape[1]
    rule = LocalRule(FACE_ITERATIONS * (n + 2), margin=FACE_MARGIN, repairing=True, corrects=True)
    for goal in ties.goals():
        at = _under_constraints(ties, lambda rows: rows, unit, goal)
        for start in starts:
            yield from sqp(at, start, np.zeros(n), np.ones(n), rule)


def look_at_face(ties: TieSet, y: FloatArray) -> Procedure[float]:
    """Return how much f rises if active constraints are met with the margin of `search_face`.

    The answer y (n,) may even violate them a little, within the tolerance of constraints. Then no
    other tie has so low an f. Multipliers say what each constraint costs. The same points show
    which of the leader's constraints y changes.
    """
    n = len(y)
    steps = np.where(y > 0.5, -DIFFERENCE, DIFFERENCE)
    values, upper = yield from ties.evaluate(y + np.concatenate([np.zeros((1, n)), np.diag(steps)]))
    ties.felt = np.asarray((upper.constraints != upper.constraints[0]).any(axis=0))
    g = values.constraints[0]
    active = g > -ACTIVE
    with np.errstate(all="ignore"):
        slope = (values.objective[1:] - values.objective[0]) / steps
        slopes = (values.constraints[1:] - g)[:, active] / steps[:, None]
    if not (np.isfinite(slope).all() and np.isfinite(slopes).all()):
        return 0.0
    multipliers = np.abs(np.linalg.lstsq(slopes, -slope, rcond=1e-8)[0])
    margins = FACE_MARGIN * np.linalg.norm(slopes, axis=0)
    return float(multipliers @ (np.maximum(g[active], 0.0) + margins))


# Sets over which f is level

Project = Callable[[FloatArray], Procedure[End]]  # a local search of f from a point (n,)


def level_axes(lower: At, y: FloatArray, f: float, width: float) -> Procedure[FloatArray]:
    """Return directions (k, n) in which f is level at y, at least to one side.

    These are principal directions without curvature, and directions in which a step leads to a tie.
    """
    n = len(y)
    model = yield from curvature_at(lower, y, FLAT_DIFFERENCE)
    if model is None:
        return np.empty((0, n))
    curvatures, directions = model.axes()
    flat = np.abs(curvatures) <= FLAT * float(np.abs(curvatures).max())
    at_rest = np.abs(directions @ model.gradient) * FLAT_DIFFERENCE <= max(width, 1e-300) * 10
    steps = np.concatenate([LEVEL_STEPS, np.negative(LEVEL_STEPS)])
    rows = np.clip(y + (steps[:, None, None] * directions).reshape(-1, n), 0.0, 1.0)
    values = yield from lower(rows)
    moved = np.abs(rows - y).max(axis=1) > 0.5 * min(LEVEL_STEPS)
    level = moved & (values.violation == 0) & (values.objective <= f + width)
    level = level.reshape(len(steps), -1).any(axis=0)
    return np.asarray(directions[level | (flat & at_rest)])


def search_level(
    ties: TieSet,
    y: FloatArray,
    directions: FloatArray,
    project: Project,
    starts: FloatArray,
    rng: np.random.Generator,
    count: int,
) -> Procedure[None]:
    """Search F over the ties around y (n,), along the directions (k, n) in which f is level.

    `starts` (j, n) are other points to look at, and `count` points are spread over the set. Local
    searches start from the best of all these; with a `count`, also from y.
    """
    rows = np.concatenate([y[None], starts])
    if count:
        rows = np.concatenate([rows, y + _spread(y, directions, count, rng) @ directions])
    points, lower = yield from _led_back(ties, rows, project)
    upper = yield from ties.upper(points)
    ties.note(points, lower, upper)
    begin = ties.best_rows(points, lower, upper)
    begin = np.concatenate([begin, y[None]]) if count else begin[:1]
    if not len(directions):
        return
    for goal in ties.goals():
        for start in begin:
            yield from _search_along(ties, start, directions, project, goal)


def _search_along(
    ties: TieSet,
    y: FloatArray,
    directions: FloatArray,
    project: Project,
    goal: Goal,
) -> Procedure[None]:
    """Search a goal along level directions from a tie y; follow the set if it is curved."""
    for _ in range(MOST_TURNS):
        k, reach, before = len(directions), math.sqrt(len(y)), ties.found
        at = _LevelGoal(ties, y, directions, project, goal)
        rule = LocalRule(SET_ITERATIONS * (k + 1), 1e-10, DIFFERENCE, repairing=True)
        yield from sqp(at, np.zeros(k), np.full(k, -reach), np.full(k, reach), rule)
        if not at.curved or ties.found is before or ties.found is None or before is None:
            return
        if abs(before.F - ties.found.F) <= SLIGHT * (1 + abs(ties.found.F)):
            return
        y = ties.found.y
        directions = yield from level_axes(ties.lower, y, ties.f, ties.width)
        if not len(directions):
            return


def _spread(
    y: FloatArray, directions: FloatArray, count: int, rng: np.random.Generator
) -> FloatArray:
    """Return coordinates (count, k) spread over the part of the set that is in the box."""
    ends = []
    for direction in directions:
        with np.errstate(divide="ignore", invalid="ignore"):
            to_bounds = np.array([-y / direction, (1 - y) / direction])
        to_bounds = np.where(direction == 0, np.array([[-math.inf], [math.inf]]), to_bounds)
        ends.append((np.min(to_bounds, axis=0).max(), np.max(to_bounds, axis=0).min()))
    low, high = np.array(ends).T
    points = latin_hypercube(count, len(directions), rng)
    corners = (np.arange(2) if len(directions) == 1 else np.empty(0))[:, None]
    points = np.concatenate([points, corners.reshape(-1, len(directions))])
    return np.asarray(low + points * (high - low))


class _LevelGoal:
    """A goal as a function of coordinates in a level set; points are led back to the set."""

    def __init__(
        self,
        ties: TieSet,
        y: FloatArray,
        directions: FloatArray,
        project: Project,
        goal: Goal,
    ) -> None:
        self.ties, self.y, self.directions = ties, y, directions
        self.project, self.goal = project, goal
        self.curved = False  # whether a point had to be led back to the set

    def __call__(self, t: FloatArray) -> Procedure[Values]:
        ties, straight = self.ties, np.clip(self.y + t @ self.directions, 0.0, 1.0)
        points, lower = yield from _led_back(ties, straight, self.project)
        self.curved |= bool((points != straight).any())
        upper = yield from ties.upper(points)
        ties.note(points, lower, upper)
        tied = ties.ties(lower)
        objective = np.where(tied, self.goal(upper), np.inf)
        if ties.stance is Stance.PESSIMISTIC:
            return Values(objective, np.where(tied, 0.0, np.inf), np.empty((len(t), 0)), 0)
        violation = np.where(tied, upper.violation, np.inf)
        return Values(objective, violation, upper.constraints, upper.spent)


def _led_back(
    ties: TieSet, points: FloatArray, project: Project
) -> Procedure[tuple[FloatArray, Values]]:
    """Evaluate points (k, n); search f locally from those that are no ties.

    Returns the points where these searches ended, with the follower's values there.
    """
    rows = np.clip(points, 0.0, 1.0)
    values = yield from ties.lower(rows)
    away = np.flatnonzero(~ties.ties(values)).tolist()
    ends: Sequence[End] = []
    if away:
        ends = yield from together(project(rows[i]) for i in away)
    f, violation, c = (part.copy() for part in values[:3])
    for i, end in zip(away, ends, strict=True):
        rows[i], f[i], violation[i] = end.y, end.f, end.violation
        c[i] = end.values.constraints[0]
    return rows, Values(f, violation, c, values.spent)
