"""A local search by sequential quadratic programming (SQP) that asks for its points.

R. Wilson, "A simplicial algorithm for concave programming", PhD thesis, Harvard, 1963; the penalty
of M. Powell, "A fast algorithm for nonlinearly constrained optimization calculations", 1978; for
the quadratic program see quadratic_program.

Textbook SQP in the unit box, for algorithms that polish an answer at either level. A scipy solver
cannot wait for values that are requested, so the search is our own. What is particular:
- steps are limited to twice the last one when that had to be shortened;
- all neighbours of an iterate are one batch; the first batch has both neighbours of every
  variable, wider apart, and so gives curvatures that the Hessian starts with;
- constraints are met with a margin of 1e-9 of the box, because a pair that violates one by a
  rounding error counts as infeasible;
- neighbours that fail are replaced by those on the other side, or else their variable rests;
- a search may start with a Hessian from elsewhere. A `trusting` one ends with a step that gained
  what the model said, and measures curvatures again after one that did not, at distances that suit
  the curvatures known so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from bilevo.algorithms.shared.quadratic_program import quadratic_step
from bilevo.core.arrays import TINY, BoolArray, FloatArray, IntArray
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import Procedure, Values

DIFFERENCE = 2.0**-26  # of the box, between neighbours: the root of the machine's precision
CURVATURE_DIFFERENCE = 1e-4  # of the box: curvatures need a wider distance
MARGIN = 1e-9  # see `LocalRule.margin`
TRIALS = 8  # step lengths tried before a direction is given up
CURVED = 1e-3  # cosine between a step and the change of the gradient that shows curvature
INDEFINITE = 1e-14  # of a Hessian's largest eigenvalue: one that may be none
HOPE = 5.0  # times what a model expects: the most that a search will still gain
ARMIJO = 1e-4  # part of the expected decrease that a step has to bring

At = Callable[[FloatArray], Procedure[Values]]  # rows (k, d) -> their values


@dataclass(frozen=True, slots=True, eq=False)
class SearchEnd:
    """The best point that a local search has seen, in Deb's order."""

    point: FloatArray
    objective: float
    violation: float
    points: int  # evaluated
    converged: bool
    hessian: FloatArray | None = None  # of the Lagrangian, as far as learnt
    left: float = math.inf  # decrease of the merit function that the model still expects


@dataclass(frozen=True, slots=True)
class LocalRule:
    """When a local search ends: its points are used, or the next step gains almost nothing."""

    max_points: int
    tolerance: float = 1e-10  # of the objective
    difference: float = DIFFERENCE
    margin: float = MARGIN  # of the box, kept from linearised constraints
    ceiling: float = math.inf  # a search that will not come below it is given up
    unit: float = 1.0  # of the objective: a value whose rounding counts
    repairing: bool = False  # a violation is undone however little that gains
    trusting: bool = False  # the last step is a whole one that gains what was expected


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

    def values(self, rows: FloatArray) -> Procedure[Values]:
        values = yield from self.at(rows)
        self.points += len(rows)
        self.see(rows, values)
        return values

    def first(self, point: FloatArray, known: Values | None) -> Procedure[Values]:
        """The values at the start, asked for where they are not known."""
        if known is None:
            return (yield from self.values(point[None]))
        self.see(point[None], known)
        return known

    def see(self, rows: FloatArray, values: Values) -> None:
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        if no_worse(f, violation, self.objective, self.violation):
            self.point, self.objective, self.violation = rows[i].copy(), f, violation

    def answer(
        self, converged: bool, hessian: FloatArray | None = None, left: float = math.inf
    ) -> SearchEnd:
        found = self.point, self.objective, self.violation, self.points
        return SearchEnd(*found, converged, hessian, left)

    def differences(
        self, point: FloatArray, values: Values, curved: bool, B: FloatArray | None = None
    ) -> Procedure[Iterate | None]:
        """The derivatives at a point by its neighbours; None if there is no budget for them."""
        d = len(point)
        both = curved and self.left() >= 2 * d
        h = self.distances(values, B) if both else self.rule.difference
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

    def distances(self, values: Values, B: FloatArray | None) -> FloatArray | float:
        """To neighbours that give curvatures; where they are known roughly, to four digits."""
        widest = max(CURVATURE_DIFFERENCE, self.rule.difference)
        if B is None:
            return widest
        rounding = np.finfo(float).eps * (abs(float(values.objective[0])) + self.rule.unit)
        sufficient = np.sqrt(4e4 * rounding / np.maximum(B.diagonal(), TINY))
        return np.clip(sufficient, self.rule.difference, widest)


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


class Source(Enum):
    """Where a model's Hessian comes from."""

    LEARNT = "steps"
    RESCALED = "steps, with curvatures along the axes measured anew"
    MEASURED = "curvatures along the axes"


def sqp(
    at: At,
    point: FloatArray,
    low: FloatArray,
    high: FloatArray,
    rule: LocalRule,
    hessian: FloatArray | None = None,
    values: Values | None = None,
) -> Procedure[SearchEnd]:
    """Minimize from a point in a box; `at` gives values.

    A Hessian to start with and the start's values need not be asked for where they are known.
    """
    sampler = Sampler(at, rule, low, high)
    point = np.clip(point, low, high)
    values = yield from sampler.first(point, values)
    if not math.isfinite(values.objective[0]):
        return sampler.answer(converged=False)
    known = hessian is not None
    model, left = Model(hessian if hessian is not None else np.eye(len(point))), math.inf
    source = Source.LEARNT if known else Source.MEASURED
    here = yield from sampler.differences(point, values, curved=not known)
    while here is not None:
        if source is not Source.LEARNT:
            model = model.measured(here, source is Source.RESCALED)
        step, multipliers = model.step(here, low, high, rule.margin)
        model.penalty = sufficient_penalty(here, model, step, multipliers)
        slope = merit_slope(here, step, model.penalty)
        left, taken = -slope, None
        if merit(here.values, model.penalty) - HOPE * left > rule.ceiling:
            break
        repair = rule.repairing and here.values.violation[0] > 0 < left
        if left >= rule.tolerance or repair:
            taken = yield from line_search(sampler, here, step, model.penalty, slope)
        if taken is not None:
            whole, surprise = model.surprise(here, taken, step, slope)
            feasible = taken[1].violation[0] == 0
            if rule.trusting and whole and feasible and surprise < rule.tolerance:
                return sampler.answer(True, model.B, rule.tolerance)
            astray = rule.trusting and surprise > left / 4
            there = yield from sampler.differences(*taken, astray, model.B)
            if there is not None:
                model.learn(here, there, step, multipliers)
            here, source = there, Source.RESCALED if astray else Source.LEARNT
        elif source is Source.RESCALED:  # the correlations may be wrong
            source = Source.MEASURED
        elif source is Source.MEASURED or model.settled(step, slope, rule.tolerance):
            converged = sampler.left() > 0 and sampler.violation == 0
            return sampler.answer(converged, model.B, left)
        else:  # the model may be wrong: curvatures afresh
            near = model.B if rule.trusting else None
            here = yield from sampler.differences(*here.place, True, near)
            source = Source.RESCALED if rule.trusting else Source.MEASURED
    return sampler.answer(False, model.B, left)


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

    def measured(self, here: Iterate, correlated: bool) -> Model:
        """With the curvatures along the axes as they are here, and its correlations or none."""
        if not correlated or here.curvature is None:
            return Model(first_hessian(here))
        stretch = np.sqrt(first_hessian(here).diagonal() / np.maximum(self.B.diagonal(), TINY))
        return Model(self.B * np.outer(stretch, stretch), self.radius, self.penalty)

    def step(
        self, here: Iterate, low: FloatArray, high: FloatArray, margin: float
    ) -> tuple[FloatArray, FloatArray]:
        """The step to the model's minimum, and the constraints' multipliers."""
        below, above = low - here.point, high - here.point
        if self.radius < 1 or here.resting.any():
            reach = np.where(here.resting, 0.0, self.radius)
            below, above = np.maximum(below, -reach), np.minimum(above, reach)
        return quadratic_step(here.gradient, self.B, here.c, here.jacobian, below, above, margin)

    def surprise(
        self, here: Iterate, taken: tuple[FloatArray, Values], step: FloatArray, slope: float
    ) -> tuple[bool, float]:
        """Whether a step was taken whole, and how far its gain is from what the model said.

        What is left to gain after a whole step is of that size.
        """
        point, values = taken
        whole = bool((np.abs(point - here.point) >= 0.99 * np.abs(step)).all())
        gain = merit(here.values, self.penalty) - merit(values, self.penalty)
        expected = -slope - float(step @ self.B @ step) / 2
        return whole, abs(gain - expected)

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
) -> Procedure[tuple[FloatArray, Values] | None]:
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
        new = (new + new.T) / 2
    return new if np.isfinite(new).all() and is_definite(new) else B


def is_definite(B: FloatArray) -> bool:
    """Whether a model has one minimum, beyond rounding; where it has none there are no steps."""
    eigenvalues = np.linalg.eigvalsh(B)
    return bool(eigenvalues[0] > INDEFINITE * eigenvalues[-1])
