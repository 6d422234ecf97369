"""A local search by sequential quadratic programming (SQP) that asks for its points.

R. Wilson, "A simplicial algorithm for concave programming", PhD thesis, Harvard, 1963; the penalty
of M. Powell, "A fast algorithm for nonlinearly constrained optimization calculations", 1978; the
quadratic program as a least distance problem: C. Lawson and R. Hanson, "Solving least squares
problems", 1974, chapter 23.

Textbook SQP in the unit box, for algorithms that polish an answer at either level. A scipy solver
cannot wait for values that are requested, so the search is our own; only the non-negative least
squares below the quadratic program are scipy's. What is particular:
- steps are limited to twice the last one when that had to be shortened;
- all neighbours of an iterate are one batch; the first batch has both neighbours of every
  variable, wider apart, and so gives curvatures that the Hessian starts with;
- constraints are met with a margin of 1e-9 of the box, because a pair that violates one by a
  rounding error counts as infeasible;
- neighbours that fail are replaced by those on the other side, or else their variable rests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import TINY, BoolArray, FloatArray, IntArray
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import Steps, Values

DIFFERENCE = 2.0**-26  # of the box, between neighbours: the root of the machine's precision
CURVATURE_DIFFERENCE = 1e-4  # of the box: curvatures need a wider distance
MARGIN = 1e-9  # of the box, kept from linearised constraints
TRIALS = 8  # step lengths tried before a direction is given up
CURVED = 1e-3  # cosine between a step and the change of the gradient that shows curvature
ARMIJO = 1e-4  # part of the expected decrease that a step has to bring

At = Callable[[FloatArray], Steps[Values]]  # rows (k, d) -> their values


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The best point that a local search has seen, in Deb's order."""

    point: FloatArray
    objective: float
    violation: float
    points: int  # evaluated
    converged: bool


@dataclass(frozen=True, slots=True)
class LocalRule:
    """When a local search ends: its points are used, or the next step gains almost nothing."""

    max_points: int
    tolerance: float = 1e-10  # of the objective
    difference: float = DIFFERENCE


@dataclass(slots=True, eq=False)
class Iterate:
    """A point with its values and the first derivatives there."""

    point: FloatArray
    values: Values
    gradient: FloatArray  # (d,)
    jacobian: FloatArray  # (c, d)
    resting: BoolArray  # (d,): no neighbour could be evaluated
    curvature: FloatArray | None = None  # (d,), where both neighbours were asked for

    @property
    def c(self) -> FloatArray:
        return np.asarray(self.values.constraints[0])

    @property
    def place(self) -> tuple[FloatArray, Values]:
        return self.point, self.values

    def lagrangian_gradient(self, multipliers: FloatArray) -> FloatArray:
        return np.asarray(self.gradient + multipliers @ self.jacobian)


class Sampler:
    """Evaluates a search's points, counts them and keeps the best."""

    def __init__(self, at: At, rule: LocalRule, low: FloatArray, high: FloatArray) -> None:
        self.at, self.rule, self.low, self.high = at, rule, low, high
        self.points = 0
        self.point = low
        self.objective = self.violation = math.inf

    def left(self) -> int:
        return self.rule.max_points - self.points

    def values(self, rows: FloatArray) -> Steps[Values]:
        values = yield from self.at(rows)
        self.points += len(rows)
        self.see(rows, values)
        return values

    def see(self, rows: FloatArray, values: Values) -> None:
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        if no_worse(f, violation, self.objective, self.violation):
            self.point, self.objective, self.violation = rows[i].copy(), f, violation

    def answer(self, converged: bool) -> Answer:
        return Answer(self.point, self.objective, self.violation, self.points, converged)

    def differences(self, point: FloatArray, values: Values, curved: bool) -> Steps[Iterate | None]:
        """The derivatives at a point by its neighbours; None if there is no budget for them."""
        d = len(point)
        both = curved and self.left() >= 2 * d
        h = max(CURVATURE_DIFFERENCE, self.rule.difference) if both else self.rule.difference
        h_each = np.minimum(h, (self.high - self.low) / 2)
        up = np.where(point + h_each <= self.high, h_each, -h_each)
        if self.left() < d:
            return None
        steps = np.concatenate([np.diag(up), -np.diag(up)]) if both else np.diag(up)
        if both:  # beyond a bound: the second neighbour at half the distance on the same side
            outside = (point + steps < self.low) | (point + steps > self.high)
            steps = np.where(outside, -steps / 2, steps)
        near = yield from self.values(point + steps)
        stack = Neighbours.of(steps.sum(axis=1), near, values)
        if not both and self.left() >= d and not stack.finite.all():
            inside = (point - up >= self.low) & (point - up <= self.high)
            flipped = np.flatnonzero(~stack.finite & inside)
            if flipped.size:
                steps[flipped] *= -1
                again = yield from self.values(point + steps[flipped])
                stack.replace(flipped, steps.sum(axis=1), again, values)
        return stack.iterate(point, values)


@dataclass(slots=True, eq=False)
class Neighbours:
    """Difference quotients of d or 2d neighbours, coordinate i being that of rows i and d + i."""

    steps: FloatArray
    quotients: FloatArray  # (k, 1 + c): of the objective and the constraints

    @classmethod
    def of(cls, steps: FloatArray, near: Values, centre: Values) -> Neighbours:
        return cls(steps, quotients(steps, near, centre))

    @property
    def finite(self) -> BoolArray:
        return np.asarray(np.isfinite(self.quotients).all(axis=1))

    def replace(self, which: IntArray, steps: FloatArray, near: Values, centre: Values) -> None:
        self.steps = steps
        self.quotients[which] = quotients(steps[which], near, centre)

    def iterate(self, point: FloatArray, values: Values) -> Iterate:
        d = len(point)
        first, finite = self.quotients[:d].copy(), self.finite
        curvature = None
        if len(self.steps) == 2 * d:
            one, other = self.steps[:d], self.steps[d:]
            second = self.quotients[d:]
            with np.errstate(all="ignore"):
                slope = (first - second) / (one - other)[:, None]
                curvature = np.where(finite[:d] & finite[d:], 2 * slope[:, 0], 0.0)
                # The parabola through three points; one neighbour alone gives a plain quotient.
                central = first - one[:, None] * slope
            first = np.where((finite[:d] & finite[d:])[:, None], central, first)
            first = np.where((~finite[:d] & finite[d:])[:, None], second, first)
            finite = finite[:d] | finite[d:]
        usable = finite & np.isfinite(first).all(axis=1)
        first[~usable] = 0.0
        return Iterate(
            point=point,
            values=values,
            gradient=first[:, 0],
            jacobian=np.ascontiguousarray(first[:, 1:].T),
            resting=~usable,
            curvature=curvature,
        )


def quotients(steps: FloatArray, near: Values, centre: Values) -> FloatArray:
    """Of neighbours at signed distances; a neighbour that failed has quotients inf."""
    with np.errstate(all="ignore"):
        objective = near.objective - centre.objective
        changes = np.column_stack([objective, near.constraints - centre.constraints])
        changes[~np.isfinite(near.objective)] = np.inf
        return np.asarray(changes / steps[:, None])


def merit(values: Values, penalty: float) -> float:
    """The exact penalty function that steps have to decrease."""
    f = float(values.objective[0])
    if not math.isfinite(f):
        return math.inf
    return f + penalty * float(np.maximum(values.constraints[0], 0.0).sum())


def sqp(
    at: At,
    point: FloatArray,
    low: FloatArray,
    high: FloatArray,
    rule: LocalRule,
) -> Steps[Answer]:
    """Minimise from a point in a box; `at` gives values."""
    sampler = Sampler(at, rule, low, high)
    point = np.clip(point, low, high)
    values = yield from sampler.values(point[None])
    if not math.isfinite(values.objective[0]):
        return sampler.answer(converged=False)
    here, fresh = (yield from sampler.differences(point, values, curved=True)), True
    while here is not None:
        if fresh:
            model = Model(first_hessian(here))
        step, multipliers = quadratic_step(here, model, low, high)
        model.penalty = sufficient_penalty(here, model, step, multipliers)
        slope = merit_slope(here, step, model.penalty)
        taken = None
        if -slope >= rule.tolerance:
            taken = yield from line_search(sampler, here, step, model.penalty, slope)
        if taken is not None:
            there = yield from sampler.differences(*taken, curved=False)
            if there is not None:
                model.learn(here, there, step, multipliers)
            here, fresh = there, False
        elif fresh or model.settled(step, slope, rule.tolerance):
            return sampler.answer(converged=sampler.left() > 0 and sampler.violation == 0)
        else:  # the model may be wrong: curvatures afresh
            here, fresh = (yield from sampler.differences(*here.place, curved=True)), True
    return sampler.answer(converged=False)


@dataclass(slots=True, eq=False)
class Model:
    """What a search has learnt: the Lagrangian's Hessian, how far to trust it, and the penalty."""

    B: FloatArray
    radius: float = 1.0
    penalty: float = 0.0

    def learn(
        self, here: Iterate, there: Iterate, step: FloatArray, multipliers: FloatArray
    ) -> None:
        """From a step that was taken, whole or shortened."""
        went, meant = np.abs(there.point - here.point).max(), np.abs(step).max()
        self.radius = min(1.0, float(4 * self.radius if went > 0.99 * meant else 2 * went))
        self.B = updated_hessian(self.B, here, there, multipliers)

    def settled(self, step: FloatArray, slope: float, tolerance: float) -> bool:
        """Whether so short a step is no fault of a Hessian that is too stiff in its direction."""
        with np.errstate(all="ignore"):
            residual = self.B @ step  # of the first-order conditions
            softest = max(float(np.diag(self.B).min()), TINY)
            return -slope < tolerance and float(residual @ residual) / softest < 1e4 * tolerance


def first_hessian(here: Iterate) -> FloatArray:
    """A diagonal of the first batch's curvatures, made positive.

    Without curvature (a linear objective) the model lets steps go to the far side of the box.
    """
    d = len(here.point)
    curvature = np.abs(here.curvature) if here.curvature is not None else np.zeros(d)
    curvature = np.where(np.isfinite(curvature), curvature, 0.0)
    steepest = float(np.abs(here.gradient).max(initial=0.0))
    floor = max(1e-3 * steepest, 1e-8 * float(curvature.max(initial=0.0)))
    if here.curvature is None:
        floor = 10 * steepest  # a first step of at most a tenth of the box
    return np.diag(np.maximum(curvature, floor or 1.0))  # where all is flat, any metric will do


def expected_repair(here: Iterate, step: FloatArray) -> float:
    """How much less the constraints are violated after a full step, to first order."""
    return float((np.maximum(here.c, 0.0) - np.maximum(here.c + here.jacobian @ step, 0.0)).sum())


def sufficient_penalty(
    here: Iterate, model: Model, step: FloatArray, multipliers: FloatArray
) -> float:
    """A penalty above the multipliers, at which the step decreases the merit function.

    It falls slowly: early multipliers are often far too large (Powell, 1978).
    """
    with np.errstate(all="ignore"):
        least = 1.5 * float(multipliers.max(initial=0.0))
        penalty = max(least, (model.penalty + least) / 2)
        repair = expected_repair(here, step)
        if repair > 0:
            needed = 2 * float(here.gradient @ step + step @ model.B @ step / 2) / repair
            penalty = max(penalty, needed) if math.isfinite(needed) else penalty
    return penalty


def merit_slope(here: Iterate, step: FloatArray, penalty: float) -> float:
    """How the merit function changes along a full step, to first order."""
    with np.errstate(all="ignore"):
        slope = float(here.gradient @ step - penalty * expected_repair(here, step))
    return slope if math.isfinite(slope) else 0.0


def line_search(
    sampler: Sampler, here: Iterate, step: FloatArray, penalty: float, slope: float
) -> Steps[tuple[FloatArray, Values] | None]:
    """The first of a few shortened steps that decreases the merit function enough, if one does."""
    start, length = merit(here.values, penalty), 1.0
    for _ in range(TRIALS):
        if sampler.left() < 1:
            return None
        point = np.clip(here.point + length * step, sampler.low, sampler.high)
        if (point == here.point).all():
            return None
        values = yield from sampler.values(point[None])
        value = merit(values, penalty)
        if value <= start + ARMIJO * length * slope:
            return point, values
        if math.isfinite(value):  # the minimum of the parabola through what is known
            parabola = -slope * length**2 / (2 * (value - start - slope * length))
            length = min(max(parabola, 0.1 * length), 0.5 * length)
        else:
            length *= 0.25
    return None


def updated_hessian(
    B: FloatArray, here: Iterate, there: Iterate, multipliers: FloatArray
) -> FloatArray:
    """The BFGS update; left out where the curvature along the step is not clearly positive.

    Powell's damping (1978) would keep it in, but spoils the model of a follower with steep walls.
    """
    with np.errstate(all="ignore"):
        step = there.point - here.point
        change = there.lagrangian_gradient(multipliers) - here.lagrangian_gradient(multipliers)
        Bs, along = B @ step, float(step @ change)
        if not along > CURVED * math.sqrt(float(step @ step) * float(change @ change)):
            return B
        new = B + np.outer(change, change) / along - np.outer(Bs, Bs) / float(step @ Bs)
    return (new + new.T) / 2 if np.isfinite(new).all() else B


def quadratic_step(
    here: Iterate, model: Model, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The step to the minimum of the quadratic model and the constraints' multipliers.

    Where linearised constraints contradict each other or the box, they are missed by least squares,
    and there are no multipliers.
    """
    below, above = low - here.point, high - here.point
    if model.radius < 1 or here.resting.any():
        reach = np.where(here.resting, 0.0, model.radius)
        below, above = np.maximum(below, -reach), np.minimum(above, reach)
    multipliers = np.zeros(len(here.c))
    with np.errstate(all="ignore"):
        try:
            newton = np.asarray(-np.linalg.solve(model.B, here.gradient), dtype=np.float64)
        except np.linalg.LinAlgError:
            return np.zeros(len(below)), multipliers
        if not np.isfinite(newton).all():
            return np.zeros(len(below)), multipliers
        lengths = np.sqrt((here.jacobian**2).sum(axis=1))
        used = np.flatnonzero((lengths > 0) & np.isfinite(lengths) & np.isfinite(here.c))
        rows = here.jacobian[used] / lengths[used, None]
        offsets = -here.c[used] / lengths[used] - MARGIN
        if (below <= newton).all() and (newton <= above).all() and (rows @ newton <= offsets).all():
            return newton, multipliers
        step, shadow = constrained_step(here.gradient, model.B, newton, rows, offsets, below, above)
    multipliers[used] = shadow / lengths[used]
    return np.clip(step, below, above), multipliers


def constrained_step(
    g: FloatArray,
    B: FloatArray,
    newton: FloatArray,
    rows: FloatArray,
    offsets: FloatArray,
    below: FloatArray,
    above: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """The step and multipliers under rows (k, d) of constraints and bounds on the step."""
    k, d = rows.shape
    A = np.concatenate([rows, np.eye(d), -np.eye(d)])
    b = np.concatenate([offsets, above, -below])
    found = least_distance(g, B, A, b, newton)
    if found is not None:
        return found[0], found[1][:k]
    stiff = np.array([[1e6 * float(np.diag(B).max())]])
    wide = np.block([[B, np.zeros((d, 1))], [np.zeros((1, d)), stiff]])
    slack = np.concatenate([-np.ones(k), np.zeros(2 * d)])
    found = least_distance(
        np.append(g, 0.0), wide, np.column_stack([A, slack]), b, np.append(newton, 0.0)
    )
    return (np.zeros(d) if found is None else found[0][:d]), np.zeros(k)


def least_distance(
    g: FloatArray, B: FloatArray, A: FloatArray, b: FloatArray, newton: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """argmin g p + p B p / 2 subject to A p <= b, and its multipliers; None if there is none.

    The point nearest to the free minimum `newton` in the metric of B (Lawson and Hanson, 1974).
    """
    excess = A @ newton - b
    lengths = np.einsum("ij,ji->i", A, np.linalg.solve(B, A.T))  # of the rows, in the same metric
    reach = np.maximum(excess, 0.0) ** 2 / np.maximum(lengths, TINY)
    for scale in (float(-g @ newton), float(reach.max())):  # which makes the distances near 1
        if scale > 0 and (found := _least_distance(B, A, b, newton, scale)) is not None:
            return found
    return None


def _least_distance(
    B: FloatArray, A: FloatArray, b: FloatArray, newton: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray] | None:
    from scipy.optimize import nnls

    try:
        root = np.linalg.cholesky(B / scale)
        rows = -np.linalg.solve(root, A.T)  # of the constraints on z = root' (p - newton)
        bounds = A @ newton - b
        system = np.concatenate([rows, bounds[None]])
        target = np.append(np.zeros(len(newton)), 1.0)
        u, _ = nnls(system, target)
    except (np.linalg.LinAlgError, RuntimeError):
        return None
    residual = system @ u - target
    if -residual[-1] < 1e-12:
        return None
    step = newton + np.linalg.solve(root.T, residual[:-1] / -residual[-1])
    if not np.isfinite(step).all() or (A @ step - b).max() > 1e-6:
        return None
    return step, u / -residual[-1] * scale
