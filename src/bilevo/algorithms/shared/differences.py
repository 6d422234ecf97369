"""Derivatives at a point, given or by finite differences, for local searches.

All neighbours of a point are evaluated in one batch. If the batch has neighbours on both sides of
every variable, at a larger distance, it also gives curvatures. If a neighbour fails, the neighbour
on the other side replaces it. If both fail, the next step does not change that variable
(`Iterate.resting`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bilevo.core.arrays import TINY, BoolArray, FloatArray
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import Procedure, Values, split, together
from bilevo.core.tolerances import rounding

STEEPEST = 1e4  # The largest curvature for which slopes are corrected, in units of the objective.
CURVATURE_DIFFERENCE = 1e-4  # The distance of neighbours that give curvatures (fraction of box).

At = Callable[[FloatArray], Procedure[Values]]  # rows (k, d) -> their values

# A point (d,) -> its gradient (d,) and jacobian (c, d); None, or NaN in them, if not available.
DeriveAt = Callable[[FloatArray], Procedure[tuple[FloatArray, FloatArray] | None]]


@dataclass(slots=True, eq=False)
class Iterate:
    """A point with its values and the first derivatives there."""

    point: FloatArray
    values: Values
    gradient: FloatArray  # (d,)
    jacobian: FloatArray  # (c, d)
    resting: BoolArray  # (d,): which variables the next step must not change
    curvature: FloatArray | None = None  # (d,); None without neighbours on both sides
    given: bool = False  # whether the derivatives were given, not measured by differences
    hessian: FloatArray | None = None  # (d, d): from differences of given derivatives
    noise: float = 0.0  # how far slopes of the objective may be off by its rounding
    shift: FloatArray | float = 0.0  # a slope along axis i is the one at point + shift[i]

    @property
    def c(self) -> FloatArray:
        return np.asarray(self.values.constraints[0])

    @property
    def place(self) -> tuple[FloatArray, Values]:
        return self.point, self.values

    def lagrangian_gradient(self, multipliers: FloatArray) -> FloatArray:
        return np.asarray(self.gradient + multipliers @ self.jacobian)


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Where the neighbours of a point lie that give its derivatives."""

    point: FloatArray  # (d,)
    lengths: FloatArray  # (d,): the distances
    steps: FloatArray  # (d, d), or (2 d, d) on both sides: from the point to the neighbours

    @property
    def both(self) -> bool:
        return len(self.steps) > len(self.point)


@dataclass(slots=True, eq=False)
class Sampler:
    """Evaluates a search's points within a budget, counts them and keeps the best.

    The tolerance on constraints makes points feasible that are better only because they use it up.
    Among feasible points, the search's penalty on positive constraints decides against them.
    """

    at: At
    low: FloatArray
    high: FloatArray
    max_points: int
    difference: float
    unit: float
    derive: DeriveAt | None = None  # gives derivatives without differences, where it can
    bends: bool = False  # whether `derive` also gives Hessians, by differences of its gradients
    doubts: bool = False  # whether to note what errors differences may have
    central: bool = False  # whether slopes are always measured on both sides
    points: int = 0
    point: FloatArray = field(default_factory=lambda: np.empty(0))  # the best point
    objective: float = math.inf
    violation: float = math.inf
    excess: float = 0.0  # the sum of the best point's positive constraints, if it is feasible
    penalty: float = 0.0
    early: tuple[Neighbours, Values] | None = None  # neighbours that were requested early

    def left(self) -> int:
        """Return how many points may still be evaluated."""
        return self.max_points - self.points

    def values(self, rows: FloatArray) -> Procedure[Values]:
        """Request values at points (k, d)."""
        values = yield from self.at(rows)
        self.points += len(rows)
        self.see(rows, values)
        return values

    def values_ahead(
        self, point: FloatArray, here: Values, curved: bool, B: FloatArray | None
    ) -> Procedure[Values]:
        """Request values at a point, and in the same batch at the neighbours for `differences`.

        The values at the point are not known yet. So values `here`, where the step to the point
        begins, replace them when distances are chosen.
        """
        around = self.neighbours(point, here, curved, B)
        if self.left() < 1 + len(around.steps):
            return (yield from self.values(point[None]))
        rows = np.concatenate([point[None], point + around.steps])
        own, near = split((yield from self.at(rows)), [1, len(around.steps)])
        self.points += len(rows)
        self.see(point[None], own)
        self.early = around, near
        return own

    def first(self, point: FloatArray, known: Values | None) -> Procedure[Values]:
        """Return the values at the start; request them unless they are known."""
        if known is None:
            return (yield from self.values(point[None]))
        self.see(point[None], known)
        return known

    def see(self, rows: FloatArray, values: Values) -> None:
        """Keep the best point seen so far."""
        tolerated = np.where(values.violation[:, None] > 0, 0.0, values.constraints)
        excess = np.maximum(tolerated, 0.0).sum(axis=1)
        rated = values.objective + self.penalty * excess
        i = best_index(rated, values.violation)
        violation, best = float(values.violation[i]), self.objective + self.penalty * self.excess
        if no_worse(float(rated[i]), violation, best, self.violation):
            self.point, self.objective = rows[i].copy(), float(values.objective[i])
            self.violation, self.excess = violation, float(excess[i])

    def differences(
        self, point: FloatArray, values: Values, curved: bool, B: FloatArray | None = None
    ) -> Procedure[Iterate | None]:
        """Return a point with its derivatives, or None if the budget is too small for that.

        With `curved`, neighbours on both sides also give curvatures, if the budget allows that. A
        rough Hessian B then sets their distances. Otherwise B corrects slopes for the curvature
        within their steps. Given derivatives have a Hessian instead, if `bends` says so.
        """
        d = len(point)
        given = yield from self.given(point, values, curved and self.bends)
        if given is not None:
            return given
        around, near = yield from self.near(point, values, curved, B)
        if near is None:
            return None
        both, steps = around.both, around.steps
        slopes = quotients(steps.sum(axis=1), near, values)
        shift = np.zeros(d) if both else steps.sum(axis=1) / 2  # a slope is that in the middle
        if not both and B is not None:
            moderate = B.diagonal() <= STEEPEST * self.unit  # a kink looks like a huge curvature
            slopes[:, 0] -= np.where(moderate, shift * B.diagonal(), 0.0)
            shift = np.where(moderate, 0.0, shift)
        if not both and self.left() >= d:
            up = steps.sum(axis=1)
            inside = (point - up >= self.low) & (point - up <= self.high)
            flipped = np.flatnonzero(~finite_rows(slopes) & inside)
            if flipped.size:
                again = yield from self.values(point - steps[flipped])
                slopes[flipped] = quotients(-steps[flipped].sum(axis=1), again, values)
        here = differentiated(point, values, steps.sum(axis=1), slopes)
        if self.doubts:
            error = rounding(float(values.objective[0]))
            here.shift, here.noise = shift, error / float(np.min(around.lengths))
        return here

    def near(
        self, point: FloatArray, values: Values, curved: bool, B: FloatArray | None
    ) -> Procedure[tuple[Neighbours, Values | None]]:
        """Return a point's neighbours and the values there; None if the budget is too small."""
        early, self.early = self.early, None
        both = curved or self.central
        if early is not None and (early[0].point == point).all() and early[0].both == both:
            self.see(point + early[0].steps, early[1])
            return early
        around = self.neighbours(point, values, curved, B)
        if self.left() < len(around.steps):
            return around, None
        return around, (yield from self.values(point + around.steps))

    def neighbours(
        self, point: FloatArray, values: Values, curved: bool, B: FloatArray | None
    ) -> Neighbours:
        """Choose the neighbours of a point; for `curved` and B see `differences`."""
        both = (curved or self.central) and self.left() >= 2 * len(point)
        h = self.distances(values, B) if both and curved else self.difference
        h_each = np.minimum(h, (self.high - self.low) / 2)
        up = np.where(point + h_each <= self.high, h_each, -h_each)
        steps = np.concatenate([np.diag(up), -np.diag(up)]) if both else np.diag(up)
        if both:  # a neighbour beyond a bound goes to the other side, at half the distance
            outside = (point + steps < self.low) | (point + steps > self.high)
            steps = np.where(outside, -steps / 2, steps)
        return Neighbours(point, h_each, steps)

    def given(
        self, point: FloatArray, values: Values, bent: bool = False
    ) -> Procedure[Iterate | None]:
        """Return a point with derivatives that `derive` gives; None if it cannot give them all."""
        if self.derive is None or self.left() < 1:
            return None
        derived = yield from self.derive(point)
        if derived is None or not all(np.isfinite(part).all() for part in derived):
            return None
        here = Iterate(point, values, *derived, np.zeros(len(point), bool), given=True)
        if bent:
            here.hessian = yield from self.bent(self.derive, here)
        return here

    def bent(self, derive: DeriveAt, here: Iterate) -> Procedure[FloatArray | None]:
        """Return the objective's Hessian at a point, by given gradients at d neighbours.

        Returns None if one of these gradients is not available.
        """
        h = np.minimum(CURVATURE_DIFFERENCE, (self.high - self.low) / 2)
        up = np.where(here.point + h <= self.high, h, -h)
        near = yield from together(derive(here.point + step) for step in np.diag(up))
        rows = [np.full(len(h), np.nan) if found is None else found[0] for found in near]
        with np.errstate(all="ignore"):
            hessian = (np.array(rows) - here.gradient) / up[:, None]
        return (hessian + hessian.T) / 2 if np.isfinite(hessian).all() else None

    def distances(self, values: Values, B: FloatArray | None) -> FloatArray | float:
        """Return the distances to neighbours that give curvatures.

        If a rough Hessian B is known, the distances are just large enough for curvatures with four
        correct digits.
        """
        widest = max(CURVATURE_DIFFERENCE, self.difference)
        if B is None:
            return widest
        error = np.finfo(float).eps * (abs(float(values.objective[0])) + self.unit)
        sufficient = np.sqrt(4e4 * error / np.maximum(B.diagonal(), TINY))
        return np.clip(sufficient, self.difference, widest)


def differentiated(
    point: FloatArray, values: Values, steps: FloatArray, slopes: FloatArray
) -> Iterate:
    """Return a point with its derivatives, from `slopes` (k, 1 + c) over signed `steps` (k,).

    k is d, or 2 d for neighbours on both sides. Rows i and d + i belong to variable i.
    """
    d = len(point)
    first, usable = slopes[:d].copy(), finite_rows(slopes)
    curvature = None
    if len(slopes) == 2 * d:
        one, other, second = steps[:d], steps[d:], slopes[d:]
        above, below = usable[:d], usable[d:]
        with np.errstate(all="ignore"):
            slope = (first - second) / (one - other)[:, None]
            curvature = np.where(above & below, 2 * slope[:, 0], 0.0)
            # The slope of a parabola; where one neighbour failed, the other's quotient is used.
            central = first - one[:, None] * slope
        first = np.where((above & below)[:, None], central, first)
        first = np.where((~above & below)[:, None], second, first)
        usable = above | below
    usable = usable & finite_rows(first)
    first[~usable] = 0.0
    jacobian = np.ascontiguousarray(first[:, 1:].T)
    return Iterate(point, values, first[:, 0], jacobian, ~usable, curvature)


def finite_rows(rows: FloatArray) -> BoolArray:
    return np.asarray(np.isfinite(rows).all(axis=1))


def quotients(steps: FloatArray, near: Values, centre: Values) -> FloatArray:
    """Return difference quotients (k, 1 + c) at signed distances; inf where a neighbour failed."""
    with np.errstate(all="ignore"):
        objective = near.objective - centre.objective
        changes = np.column_stack([objective, near.constraints - centre.constraints])
        changes[~np.isfinite(near.objective)] = np.inf
        return np.asarray(changes / steps[:, None])
