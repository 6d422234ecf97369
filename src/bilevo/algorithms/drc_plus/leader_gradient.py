"""The leader's gradient at a solved pair, without solving other followers (the adjoint method).

phi(x) = F(x, y*(x)) by differences costs a follower for each of the m variables. Here y* moves with
x so that the follower's first-order conditions keep holding, which gives

    grad phi = F_x + d/dx [L_y . lambda] + nu g_x,    H lambda + A' nu = -F_y,    A lambda = 0

at y* (Fletcher and Leyffer have the conditions; the adjoint form is standard in optimal control). L
is the follower's Lagrangian with fixed multipliers, H its Hessian in y, and A holds the gradients
of the active constraints. lambda is first computed from the Hessian that searches have learnt. The
same batch of evaluations measures H lambda, L_y along lambda and its change with x, by central
differences along lambda. What is left of the equation for lambda is multiplied by an estimate of
dy*/dx, so that an error of the learnt Hessian counts only to second order. The product H lambda
also improves that Hessian.

A gradient takes m + n upper and 2 (m + n + 1) lower evaluations, and n more if the follower has
constraints. Each constraint of the leader that depends on y has a lambda of its own. Gradients that
the user gives replace differences. There is no gradient where y* is at a kink, because a constraint
is about to become active or inactive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.leader_view import LeaderView
from bilevo.core.arrays import TINY, BoolArray, FloatArray
from bilevo.core.request import Level, Procedure, Values, derive, evaluate
from bilevo.core.slopes import SlopesGiven

DIFFERENCE = 1e-5  # The step of differences in x and y, as a fraction of the box.
# F is evaluated at one answer, without errors of followers, so its slopes need no such wide step. A
# wide one moves the optimum of phi by half of its length along each variable.
UPPER_DIFFERENCE = 1e-6
ALONG = 1e-3  # The largest change of y along lambda, as a fraction of the box,
LEAST_ALONG = 1e-6  # and the smallest: closer to a bound than this, the answer is at a kink.
ACTIVE = 1e-7  # A constraint is active if it is closer to the answer (fraction of the box).
AT_BOUND = 1e-10  # A variable is at a bound if it is closer to it (fraction of the box).
# A constraint holds an answer only weakly if the answer would leave it after so short a move.
WEAK = 1e-4
WRONG = 0.5  # lambda is refined once if more than this part of its equation is left.


class LevelSlopes(NamedTuple):
    """Slopes of a level's objective and constraints in some directions, (k,) and (c, k)."""

    objective: FloatArray
    constraints: FloatArray

    @property
    def rows(self) -> FloatArray:
        """Return the slopes of the objective and of each constraint as rows (1 + c, k)."""
        return np.concatenate([self.objective[None], self.constraints])


class Along(NamedTuple):
    """What is measured along a direction v: H v (n,), d/dx of L_y v (m,), and g_x (c, m)."""

    Hv: FloatArray
    cross: FloatArray
    g_x: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ActiveSet:
    """What holds a follower's answer: gradients A (k, n) of active constraints, multipliers (c,).

    `basis` (n, d) spans the directions in which the answer can move.
    """

    multipliers: FloatArray
    active: BoolArray  # (c,)
    A: FloatArray
    basis: FloatArray


def affordable(m: int, n: int, constraints: int, given: SlopesGiven) -> bool:
    """Tell whether a gradient is taken to cost less than differences, which solve m followers.

    So many constraints of the leader have a lambda of their own. A follower is taken to cost n + 3
    evaluations. If the user gives the follower's gradients, a gradient is always taken to cost
    less.
    """
    if given.whole(Level.LOWER):
        return True
    return (m + n) + 2 * (1 + constraints) * (m + n + 1) < m * (n + 3)


def leader_gradient(
    state: LeaderView, task: WarmTask, constrained: bool
) -> Procedure[tuple[FloatArray, FloatArray] | None]:
    """Return the gradient (m,) of phi and the jacobian (c, m) of the leader's constraints.

    Without `constrained`, the jacobian has no rows. Returns None if there is no gradient, or if
    differences cost less.
    """
    pair, known = task.pair, state.known
    n = len(pair.y)
    if known.hessian.shape != (n, n) or not math.isfinite(pair.F):
        return None
    held = yield from find_active_set(state, task)
    if held is None:
        return None
    upper_y, upper_x = yield from upper_slopes(state, task)
    own = np.ones(1, np.bool_)  # which functions have a lambda of their own
    if constrained:
        depends = upper_y.constraints.any(axis=1)
        own, state.dependent = np.append(own, depends), int(depends.sum())
        if not affordable(len(pair.x), n, state.dependent, state.given):
            return None
    found = []
    for row_y, row_x, depends_on_y in zip(upper_y.rows, upper_x.rows, own, strict=False):
        change: FloatArray | None = np.zeros(len(pair.x))
        if depends_on_y:
            change = yield from adjoint_slope(state, task, held, row_y)
        if change is None:
            return None
        found.append(row_x + change)
    rows = np.array(found)
    return rows[0], rows[1:]


def find_active_set(state: LeaderView, task: WarmTask) -> Procedure[ActiveSet | None]:
    """Find what holds a follower's answer; None if that is about to change."""
    y, lower = task.pair.y, task.lower
    free = (y > AT_BOUND) & (y < 1 - AT_BOUND)
    count = lower.constraints.shape[1]
    if not count:
        return active_set(np.zeros(0), np.zeros(0, bool), np.empty((0, len(y))), free, state.flat)
    slopes = yield from lower_slopes(state, task)
    if not np.isfinite(slopes.rows).all() or not free.any():
        return None
    lengths = np.sqrt((slopes.constraints**2).sum(axis=1))
    active = (lower.constraints[0] > -ACTIVE * lengths) & (lengths > 0)
    if not active.any():
        empty = np.empty((0, len(y)))
        return active_set(np.zeros(count), active, empty, free, state.flat)
    from scipy.optimize import nnls

    rows = slopes.constraints[active]
    multipliers = np.zeros(count)
    try:
        multipliers[active], _ = nnls(rows[:, free].T, -slopes.objective[free])
    except RuntimeError:
        return None
    least = WEAK * float(state.known.hessian.diagonal().max())
    if (multipliers[active] * lengths[active] <= least).any():
        return None
    return active_set(multipliers, active, rows, free, state.flat)


def active_set(
    multipliers: FloatArray, active: BoolArray, A: FloatArray, free: BoolArray, flat: FloatArray
) -> ActiveSet | None:
    """Return the active set with a basis of the directions in which the answer can move.

    Along `flat` directions the leader has chosen the answer already.
    """
    n = len(free)
    fixed = np.concatenate([A, np.eye(n)[~free], flat.reshape(-1, n)])
    if not len(fixed):
        return ActiveSet(multipliers, active, A, np.eye(n))
    _, sizes, axes = np.linalg.svd(fixed)
    rank = int((sizes > 1e-9 * sizes[0]).sum())
    return ActiveSet(multipliers, active, A, axes[rank:].T)


def adjoint_slope(
    state: LeaderView, task: WarmTask, held: ActiveSet, slope_y: FloatArray
) -> Procedure[FloatArray | None]:
    """Return how a leader's function changes with x because the answer moves, (m,).

    `slope_y` (n,) is the function's gradient in y.
    """
    known, Z = state.known, held.basis
    direction = -solve_within(known.hessian, slope_y, Z)
    change = np.zeros(len(task.pair.x))
    for attempt in range(2):
        measured = yield from along(state, task, held, direction)
        if measured is None:
            return None
        Hv, cross, g_x = measured
        known.correct_hessian(direction, Hv, Z)
        wanted = slope_y + Hv
        change = cross
        if len(held.A):
            change = cross + np.linalg.lstsq(held.A.T, -wanted, rcond=1e-10)[0] @ g_x[held.active]
        left = Z @ (Z.T @ wanted)
        small = np.linalg.norm(left) <= WRONG * np.linalg.norm(Z.T @ slope_y) + TINY
        if small or attempt:
            break
        direction = direction - solve_within(known.hessian, wanted, Z)
    return change + left @ known.slopes


def solve_within(hessian: FloatArray, right: FloatArray, basis: FloatArray) -> FloatArray:
    """Return the solution v (n,) of hessian v = right within the span of a basis (n, d)."""
    if not basis.shape[1]:
        return np.zeros(len(right))
    return np.asarray(basis @ np.linalg.solve(basis.T @ hessian @ basis, basis.T @ right))


def along(
    state: LeaderView, task: WarmTask, held: ActiveSet, direction: FloatArray
) -> Procedure[Along | None]:
    """Measure derivatives along a direction (n,).

    Returns None if the answer is too close to a bound or if f fails.
    """
    y = task.pair.y
    size = float(np.abs(direction).max(initial=0.0))
    if not math.isfinite(size):
        return None
    moving = direction != 0
    room = np.minimum(y, 1 - y)[moving] / np.abs(direction[moving])
    t = min(ALONG / max(size, TINY), float(room.min(initial=math.inf)))
    if size > 0 and t * size < LEAST_ALONG:
        return None
    t = t if size > 0 else 1.0
    ends = np.clip(np.array([y + t * direction, y - t * direction]), 0.0, 1.0)
    found = None
    if state.given.whole(Level.LOWER):
        found = yield from along_by_gradients(task.pair.x, held, ends, t)
    if found is None:
        found = yield from along_by_differences(state, task.pair.x, held, ends, t)
    return found


def along_by_gradients(
    x: FloatArray, held: ActiveSet, ends: FloatArray, t: float
) -> Procedure[Along | None]:
    """Measure by gradients that the user gives; None if those in x are not given."""
    slopes = yield from derive(Level.LOWER, np.repeat(x[None], 2, axis=0), ends)
    in_x = slopes.objective_x + np.einsum("c,kcm->km", held.multipliers, slopes.constraints_x)
    in_y = slopes.objective_y + np.einsum("c,kcn->kn", held.multipliers, slopes.constraints_y)
    if not (np.isfinite(in_x).all() and np.isfinite(in_y).all()):
        return None
    g_x = slopes.constraints_x.mean(axis=0)
    return Along((in_y[0] - in_y[1]) / (2 * t), (in_x[0] - in_x[1]) / (2 * t), g_x)


def along_by_differences(
    state: LeaderView, x: FloatArray, held: ActiveSet, ends: FloatArray, t: float
) -> Procedure[Along | None]:
    """Measure by differences, in one batch; None if f fails."""
    m, n = len(x), ends.shape[1]
    steps_x, steps_y = inward(x), inward(ends.mean(axis=0))
    rows_x = np.concatenate([np.repeat(x[None], 1 + n, axis=0), x + np.diag(steps_x)] * 2)
    around = [[end[None], end + np.diag(steps_y), np.repeat(end[None], m, axis=0)] for end in ends]
    rows_y = np.concatenate([rows for end in around for rows in end])
    values = yield from evaluate(Level.LOWER, rows_x, rows_y)
    state.known.spent = values.spent
    if not np.isfinite(values.objective).all():
        return None
    L = (values.objective + values.constraints @ held.multipliers).reshape(2, -1)
    c = values.constraints.reshape(2, 1 + n + m, -1)
    difference = (L[0] - L[1]) / (2 * t)
    Hv = (difference[1 : n + 1] - difference[0]) / steps_y
    cross = (difference[n + 1 :] - difference[0]) / steps_x
    g_x = ((c[:, n + 1 :] - c[:, :1]).mean(axis=0) / steps_x[:, None]).T
    return Along(Hv, cross, g_x)


def inward(point: FloatArray, length: float = DIFFERENCE) -> FloatArray:
    """Return steps of differences that stay in the box."""
    return np.where(point > 0.5, -length, length)


def upper_slopes(state: LeaderView, task: WarmTask) -> Procedure[tuple[LevelSlopes, LevelSlopes]]:
    """Return the leader's slopes in y and in x at a pair."""
    x, y = task.pair.x, task.pair.y
    m, n = len(x), len(y)
    if state.given.whole(Level.UPPER):
        given = yield from derive(Level.UPPER, x[None], y[None])
        if all(np.isfinite(part).all() for part in given[:4]):
            in_y = LevelSlopes(given.objective_y[0], given.constraints_y[0])
            return in_y, LevelSlopes(given.objective_x[0], given.constraints_x[0])
    steps_x, steps_y = inward(x, UPPER_DIFFERENCE), inward(y, UPPER_DIFFERENCE)
    rows_x = np.concatenate([np.repeat(x[None], n, axis=0), x + np.diag(steps_x)])
    rows_y = np.concatenate([y + np.diag(steps_y), np.repeat(y[None], m, axis=0)])
    values = yield from evaluate(Level.UPPER, rows_x, rows_y)
    state.spent = values.spent
    both = quotients(values, task.pair.F, task.G, np.concatenate([steps_y, steps_x]))
    parts = slice(0, n), slice(n, n + m)
    in_y, in_x = (LevelSlopes(both.objective[part], both.constraints[:, part]) for part in parts)
    return in_y, in_x


def lower_slopes(state: LeaderView, task: WarmTask) -> Procedure[LevelSlopes]:
    """Return the follower's slopes in y at a pair."""
    x, y, steps = task.pair.x, task.pair.y, inward(task.pair.y)
    if state.given.whole(Level.LOWER):
        given = yield from derive(Level.LOWER, x[None], y[None])
        if np.isfinite(given.objective_y).all() and np.isfinite(given.constraints_y).all():
            return LevelSlopes(given.objective_y[0], given.constraints_y[0])
    values = yield from state.known.evaluate(task.pair.x, y + np.diag(steps))
    return quotients(values, task.pair.f, task.lower.constraints[0], steps)


def quotients(
    values: Values, objective: float, constraints: FloatArray, steps: FloatArray
) -> LevelSlopes:
    """Return difference quotients from the values at a point and at its neighbours."""
    with np.errstate(all="ignore"):
        in_objective = (values.objective - objective) / steps
        in_constraints = ((values.constraints - constraints) / steps[:, None]).T
    return LevelSlopes(in_objective, in_constraints)
