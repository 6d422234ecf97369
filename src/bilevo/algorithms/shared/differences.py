"""Derivatives at a point by finite differences, in batches, for local searches.

All neighbours of a point are one batch. A batch with both neighbours of every variable, wider
apart, gives curvatures as well. A neighbour that fails is replaced by the one on the other side;
where both fail, the variable rests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import TINY, BoolArray, FloatArray, IntArray
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import Procedure, Values

CURVATURE_DIFFERENCE = 1e-4  # of the box: curvatures need a wider distance than slopes

At = Callable[[FloatArray], Procedure[Values]]  # rows (k, d) -> their values


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
    """Evaluates a search's points within a budget, counts them and keeps the best."""

    def __init__(
        self,
        at: At,
        low: FloatArray,
        high: FloatArray,
        max_points: int,
        difference: float,
        unit: float,
    ) -> None:
        self.at, self.low, self.high = at, low, high
        self.max_points, self.difference, self.unit = max_points, difference, unit
        self.points = 0
        self.point = low
        self.objective = self.violation = math.inf

    def left(self) -> int:
        """Return how many points the budget still has."""
        return self.max_points - self.points

    def values(self, rows: FloatArray) -> Procedure[Values]:
        """Request values at points (k, d)."""
        values = yield from self.at(rows)
        self.points += len(rows)
        self.see(rows, values)
        return values

    def first(self, point: FloatArray, known: Values | None) -> Procedure[Values]:
        """Return the values at the start; request them unless they are known."""
        if known is None:
            return (yield from self.values(point[None]))
        self.see(point[None], known)
        return known

    def see(self, rows: FloatArray, values: Values) -> None:
        """Keep the best of evaluated points."""
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        if no_worse(f, violation, self.objective, self.violation):
            self.point, self.objective, self.violation = rows[i].copy(), f, violation

    def differences(
        self, point: FloatArray, values: Values, curved: bool, B: FloatArray | None = None
    ) -> Procedure[Iterate | None]:
        """Return the derivatives at a point; None if there is no budget for its neighbours.

        With `curved`, both neighbours of each variable give curvatures as well.
        """
        d = len(point)
        both = curved and self.left() >= 2 * d
        h = self.distances(values, B) if both else self.difference
        h_each = np.minimum(h, (self.high - self.low) / 2)
        up = np.where(point + h_each <= self.high, h_each, -h_each)
        if self.left() < d:
            return None
        steps = np.concatenate([np.diag(up), -np.diag(up)]) if both else np.diag(up)
        if both:  # beyond a bound, the second neighbour is on the same side at half the distance
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
        """Return distances to neighbours that give curvatures.

        Where a Hessian B is known roughly, they are as small as four digits need.
        """
        widest = max(CURVATURE_DIFFERENCE, self.difference)
        if B is None:
            return widest
        rounding = np.finfo(float).eps * (abs(float(values.objective[0])) + self.unit)
        sufficient = np.sqrt(4e4 * rounding / np.maximum(B.diagonal(), TINY))
        return np.clip(sufficient, self.difference, widest)


@dataclass(slots=True, eq=False)
class Neighbours:
    """Difference quotients of d or 2d neighbours; rows i and d + i belong to coordinate i."""

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
        """Return the point with its derivatives."""
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
    """Return quotients of neighbours at signed distances; inf for neighbours that failed."""
    with np.errstate(all="ignore"):
        objective = near.objective - centre.objective
        changes = np.column_stack([objective, near.constraints - centre.constraints])
        changes[~np.isfinite(near.objective)] = np.inf
        return np.asarray(changes / steps[:, None])
