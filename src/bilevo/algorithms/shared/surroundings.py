"""What f looks like around a follower's answer: its scale, where it is level, what it resolves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.polish import End, curvature_at, some_axes
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure, Values
from bilevo.core.tolerances import FAR, NEAR, UNRESOLVED, local_scale, negligible, rounding, sharp

STEPS = (1e-5, 1e-4, NEAR, FAR, 0.1, 0.5)  # of the box
VISIBLE = 4.0  # times the rounding of f: a change that is not rounding


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """What f looks like around an answer.

    `level` (k, n) are points at which f is the same. `unresolved` (k, n) are the farthest points,
    one for each direction, at which rounding of f may hide that another answer is better; nearer
    ones than `UNRESOLVED` are left out. `tolerated` is how much less f is because the answer uses
    the tolerance on constraints.
    """

    f: float
    scale: float
    level: FloatArray
    unresolved: FloatArray
    tolerated: float = 0.0

    @property
    def negligible(self) -> float:
        """Return the difference of f that does not count here."""
        return negligible(self.f, self.scale) + self.tolerated

    @property
    def sharp(self) -> float:
        """Return the difference of f within a set over which f is level."""
        return sharp(self.f, self.scale)


def look_around(at: At, end: End) -> Procedure[Surroundings]:
    """Evaluate f around an answer, along the axes and along its curvatures."""
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
    if not scale:  # where all neighbours are infeasible, their f shows the scale
        with np.errstate(all="ignore"):
            free = end.f + np.abs(values.objective - end.f).reshape(len(STEPS), -1)
        scale = local_scale(end.f, *free[2:4])
    level = moved & (np.abs(f.ravel() - end.f) <= sharp(end.f, scale))
    hidden = end.y + _radii(end.f, f)[:, None] * directions
    unresolved = np.clip(hidden[_radii(end.f, f) > UNRESOLVED], 0.0, 1.0)
    return Surroundings(end.f, scale, rows[level], unresolved, _tolerated(end, values, len(axes)))


def _tolerated(end: End, around: Values, axes: int) -> float:
    """Return how much less f is because constraints are positive, if an answer is feasible.

    The slopes of f along these constraints, from the nearest points, show what their values gain.
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
    """Return how far rounding hides changes of f, from values at all steps (k, directions).

    The first visible change is taken to be the square of the distance. Where none is visible, f is
    level, and the radius 0.
    """
    with np.errstate(all="ignore"):
        change = np.abs(around - f)
        visible = np.isfinite(change) & (change > VISIBLE * rounding(f))
        first = visible.argmax(axis=0)
        size = np.take_along_axis(change, first[None], axis=0)[0]
        radii = np.array(STEPS)[first] * np.sqrt(rounding(f) / size)
    return np.where(visible.any(axis=0), radii, 0.0)
