"""What f looks like around a follower's answer.

`look_around` finds the local scale of f, where f is level, and how exactly f shows the answer in
spite of rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.polish import End, curvature_at, some_axes
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure, Values
from bilevo.core.tolerances import (
    FAR,
    LEVEL,
    NEAR,
    UNRESOLVED,
    alike,
    local_scale,
    negligible,
    rounding,
    sharp,
)

STEPS = (1e-5, 1e-4, NEAR, FAR, 0.1, 0.5)  # Steps at which f is seen, as fractions of the box.
VISIBLE = 4.0  # A change of f above this multiple of its rounding is real.


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """What f looks like around an answer.

    `f` is its value at the answer, and `scale` its local scale (see `core.tolerances`). `level`
    (k, n) are points at which f is the same. Rounding of f may hide that another answer near this
    one is better. `unresolved` (k, n) has the farthest such point in each direction, if it is
    farther away than a limit. If constraints of the answer are positive but tolerated, this
    lowers f by about `tolerated`.
    """

    f: float
    scale: float
    level: FloatArray
    unresolved: FloatArray
    tolerated: float = 0.0

    @property
    def negligible(self) -> float:
        """Return the largest difference of f that does not count around this answer."""
        return negligible(self.f, self.scale) + self.tolerated

    @property
    def sharp(self) -> float:
        """Return the largest difference of f with which f still counts as level."""
        return sharp(self.f, self.scale)


def look_around(at: At, end: End, limit: float = UNRESOLVED) -> Procedure[Surroundings]:
    """Evaluate f around an answer, along the axes and along the principal directions of f.

    Rounding must not hide the answer by more than `limit`, a fraction of the box.
    """
    n = len(end.y)
    model = yield from curvature_at(at, end.y, STEPS[1])
    axes = some_axes(n) if model is None else np.concatenate([np.eye(n), model.axes()[1]])
    directions = np.concatenate([axes, -axes])
    rows = end.y + (np.array(STEPS)[:, None, None] * directions).reshape(-1, n)
    rows = np.clip(rows, 0.0, 1.0)
    values = yield from at(rows)
    moved = (rows != end.y).any(axis=1)
    f = np.where(values.violation > end.violation, np.inf, values.objective)
    f = np.where(moved, f, end.f).reshape(len(STEPS), -1)
    scale = local_scale(end.f, *f[2:4])
    if not scale:  # if all neighbours are infeasible, their f has to show the scale
        with np.errstate(all="ignore"):
            free = end.f + np.abs(values.objective - end.f).reshape(len(STEPS), -1)
        scale = local_scale(end.f, *free[2:4])
    level = moved & (np.abs(f.ravel() - end.f) <= sharp(end.f, scale))
    hidden = end.y + _radii(end.f, f)[:, None] * directions
    unresolved = np.clip(hidden[_radii(end.f, f) > limit], 0.0, 1.0)
    return Surroundings(end.f, scale, rows[level], unresolved, _tolerated(end, values, len(axes)))


def hidden_distance(at: At, y: FloatArray, F: float, around: Surroundings) -> Procedure[float]:
    """Return how far from the answer y rounding makes f equal although F differs.

    `at` evaluates the leader, and F is its value at y. The distance is a fraction of the box; it is
    0 if there is no such point.
    """
    if not len(around.unresolved):
        return 0.0
    values = yield from at(around.unresolved)
    differs = np.array([not alike(F, other) for other in values.objective.tolist()])
    away = np.abs(around.unresolved - y).max(axis=1)
    return float(away[differs].max(initial=0.0))


def _tolerated(end: End, around: Values, axes: int) -> float:
    """Return how much lower f is because some constraints are positive, but tolerated.

    The nearest points show how f changes with each of these constraints. That slope times the
    constraint's value is its part. Returns 0 if no constraint is positive, or if the answer is
    infeasible.
    """
    c = end.values.constraints[0]
    used = np.flatnonzero(c > 0)
    near = slice(0, 2 * axes)  # both sides of each axis, at the shortest step
    rows = np.isfinite(around.objective[near])
    if end.violation > 0 or not used.size or not rows.any():
        return 0.0
    changes = (around.constraints[near][:, used] - c[used])[rows]
    gains = (around.objective[near] - end.f)[rows]
    slopes = np.linalg.lstsq(changes, gains, rcond=1e-10)[0]
    return float(np.abs(slopes) @ c[used])


def _radii(f: float, around: FloatArray) -> FloatArray:
    """Return for each direction how far from the answer rounding hides changes of f.

    `around` (k, directions) holds f at all k `STEPS`. It is assumed that f grows with the square of
    the distance up to the first step at which a change is visible. If no change is visible in a
    direction, f is level there, and the radius is 0. A change that is tiny beside that in another
    direction is not visible: it may only come from rounding of the direction (see `LEVEL`).
    """
    with np.errstate(all="ignore"):
        change = np.abs(around - f)
        steepest = np.where(np.isfinite(change), change, 0.0).max(axis=1, keepdims=True)
        least = np.maximum(VISIBLE * rounding(f), LEVEL * steepest)
        visible = np.isfinite(change) & (change > least)
        first = visible.argmax(axis=0)
        size = np.take_along_axis(change, first[None], axis=0)[0]
        radii = np.array(STEPS)[first] * np.sqrt(rounding(f) / size)
    return np.where(visible.any(axis=0), radii, 0.0)
