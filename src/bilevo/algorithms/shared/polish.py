"""The last digits of a follower's answer, where f may be stiff, curved or not smooth.

`sqp` uses one-sided differences. If f is stiff in directions that are not those of the axes, these
leave an error that counts. Here, steps go to the minimum of a quadratic model of f. The model is
made by central differences, at several distances in turn. Then a poll evaluates f at short and long
steps along the axes and along the principal directions of the model, and takes a better point if it
finds one. Polls do not need a smooth f.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.quadratic_program import quadratic_step
from bilevo.core.arrays import TINY, FloatArray
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import Procedure, Values
from bilevo.core.tolerances import rounding

# Distances of the differences that make a model, as fractions of the box. No single distance suits
# all curvatures of f and all constants added to f.
DISTANCES = (1e-4, 1e-6, 1e-2)
POLL_STEPS = (0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6)  # Steps of a poll, as fractions of the box.
DAMPING = (1.0, 0.5, 0.1)  # These fractions of the step to a model's minimum are tried.
CYCLES = 5  # The most cycles of models at all distances and a poll.
MAX_MODELLED = 30  # With more variables no model is made: it costs about n (n + 1) evaluations.
MAX_AXES = 60  # A poll goes along at most this many axes.
SOFTEST = 1e-12  # Smaller curvatures count as this fraction of the largest curvature.


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """Where a search ended: y (n,) in the unit box, its values (one row), and whether it settled.

    A search that did not settle may have stopped short of the nearest minimum.
    """

    y: FloatArray
    values: Values
    settled: bool = True

    @property
    def f(self) -> float:
        return float(self.values.objective[0])

    @property
    def violation(self) -> float:
        return float(self.values.violation[0])

    def no_worse(self, other: End) -> bool:
        """Tell whether the answer is no worse than another for the follower."""
        return no_worse(self.f, self.violation, other.f, other.violation)

    def far_from(self, other: End, distance: float) -> bool:
        """Tell whether two answers differ by more than a distance in at least one variable."""
        return bool(np.abs(self.y - other.y).max() > distance)


def best_of(rows: FloatArray, values: Values) -> End:
    """Return the best point for the follower among rows (k, n) with these values."""
    i = best_index(values.objective, values.violation)
    return End(rows[i].copy(), values.part(i, i + 1))


@dataclass(frozen=True, slots=True, eq=False)
class Curvature:
    """A quadratic model of f around a centre (n,) in the box: its gradient and its Hessian."""

    centre: FloatArray
    gradient: FloatArray
    hessian: FloatArray

    def axes(self) -> tuple[FloatArray, FloatArray]:
        """Return the curvatures (n,), from the smallest, and their directions (n, n) as rows."""
        curvatures, vectors = np.linalg.eigh(self.hessian)
        return curvatures, np.ascontiguousarray(vectors.T)

    def minimum(self) -> FloatArray:
        """Return where in the box the model has its minimum.

        Curvatures that are negative or very small are raised to a small positive one (`SOFTEST`).
        """
        n = len(self.centre)
        curvatures, vectors = self.axes()
        floor = SOFTEST * float(np.abs(curvatures).max()) + TINY
        B = (vectors.T * np.maximum(curvatures, floor)) @ vectors
        low, high = -self.centre, 1 - self.centre
        nothing = np.empty(0), np.empty((0, n))
        step, _ = quadratic_step(self.gradient, (B + B.T) / 2, *nothing, low, high, 0.0)
        return np.clip(self.centre + step, 0.0, 1.0)


def curvature_at(at: At, y: FloatArray, distance: float) -> Procedure[Curvature | None]:
    """Return a model of f around y by central differences.

    Returns None if f fails at one of the points, or if n is above `MAX_MODELLED`.
    """
    n = len(y)
    if n > MAX_MODELLED:
        return None
    centre = np.clip(y, distance, 1 - distance)
    steps = distance * np.eye(n)
    i, j = np.triu_indices(n, 1)
    both = steps[i] + steps[j]
    rows = centre + np.concatenate([np.zeros((1, n)), steps, -steps, both, -both])
    f = (yield from at(np.clip(rows, 0.0, 1.0))).objective
    if not np.isfinite(f).all():
        return None
    f, middle = f - f[0], len(i)
    up, down = f[1 : n + 1], f[n + 1 : 2 * n + 1]
    plus, minus = f[2 * n + 1 : 2 * n + 1 + middle], f[2 * n + 1 + middle :]
    hessian = np.diag(up + down)
    mixed = (plus + minus - up[i] - up[j] - down[i] - down[j]) / 2
    hessian[i, j] = hessian[j, i] = mixed
    return Curvature(centre, (up - down) / (2 * distance), hessian / distance**2)


def polish(at: At, end: End) -> Procedure[End]:
    """Improve an answer until no step by a model of f, and no poll, gains more than rounding."""
    for _ in range(CYCLES):
        before = end
        end, axes = yield from refine(at, end)
        directions = np.concatenate([some_axes(len(end.y)), axes])
        end = yield from _better(at, end, poll_points(end.y, directions))
        if not is_gain(before, end):
            break
    return end


def refine(at: At, end: End) -> Procedure[tuple[End, FloatArray]]:
    """Take a step to the minimum of a model of f, once for each distance in `DISTANCES`.

    Returns the improved answer and the principal directions of the last model as rows. If a
    constraint is active, or f fails, there is no model, and no step.
    """
    axes = np.empty((0, len(end.y)))
    for distance in DISTANCES:
        model = None if is_active(end.values) else (yield from curvature_at(at, end.y, distance))
        if model is not None:
            axes = model.axes()[1]
            end = yield from _better(at, end, _towards(end.y, model.minimum()))
    return end, axes


def some_axes(n: int) -> FloatArray:
    """Return the unit vectors along the axes (k, n); only `MAX_AXES` of them if n is larger."""
    chosen = np.unique(np.linspace(0, n - 1, min(n, MAX_AXES)).astype(np.int64))
    return np.asarray(np.eye(n)[chosen])


def is_gain(before: End, after: End) -> bool:
    """Tell whether the answer `after` is better than `before` by more than rounding."""
    if after.violation != before.violation:
        return after.violation < before.violation
    return before.f - after.f > rounding(before.f)


def poll_points(y: FloatArray, directions: FloatArray) -> FloatArray:
    """Return the points of a poll: from y, all `POLL_STEPS` both ways along directions (k, n)."""
    steps = np.concatenate([POLL_STEPS, np.negative(POLL_STEPS)])
    rows = y + (steps[:, None, None] * directions).reshape(-1, len(y))
    return np.clip(rows, 0.0, 1.0)


def _towards(y: FloatArray, minimum: FloatArray) -> FloatArray:
    """Return points on the way from y to a minimum, one for each fraction in `DAMPING`."""
    return np.array([y + part * (minimum - y) for part in DAMPING])


def _better(at: At, end: End, rows: FloatArray) -> Procedure[End]:
    """Evaluate rows (k, n); return the best of them if it is better than the answer, else that."""
    new = best_of(rows, (yield from at(rows)))
    return end if end.no_worse(new) else End(new.y, new.values, end.settled)


def is_active(values: Values) -> bool:
    """Tell whether a constraint is so near that f alone does not show where to go."""
    return bool((values.constraints > -1e-6).any())
