"""Newton's method for smooth games: all followers' slopes become zero at once.

A best response ignores that the others will answer it, so sweeps of best responses are slow, or
diverge. Here the slopes of all f_i, each along its own follower's variables, are a system of
equations. Its matrix has measured curvatures on its diagonal. Broyden's update learns the rest,
which says how an answer changes the slopes of others. Variables at a bound that push outwards stay
there. Where this fails, `best_responses` goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.followers.game import Table

DISTANCE = 1e-4  # The distance of neighbours that give slopes and curvatures, in the unit box.
SETTLED = 3e-9  # The error of y at which the search ends, in the unit box.
FIRST_RATE = 0.3  # The error after a first step, relative to the step. Others have their own rate.
LAST_STEP = 1e-6  # The longest last step: slopes and values are those before it.
NOISE = 2e-7  # Shorter steps that do not become half as long are rounding, and end the search, too.
ITERATIONS = 15
PATIENCE = 4  # The steps in which the followers' own steps must become half as long.
MAX_MOVE = 0.3  # The longest step of a variable.


@dataclass(slots=True, eq=False)
class Slopes:
    """f_i of all players (N,), and slopes and curvatures along their own variables (d,).

    f and the curvatures are NaN where they were not needed.
    """

    f: FloatArray
    gradient: FloatArray
    curvature: FloatArray
    sums: FloatArray  # (d,): f_i at both neighbours of a variable, if they are on both sides

    def own_steps(self, y: FloatArray, stiffness: FloatArray) -> FloatArray:
        """Return how far each variable would go to the minimum of its own parabola."""
        return np.asarray(np.clip(y - self.gradient / stiffness, 0, 1) - y)

    @property
    def bent(self) -> bool:
        """Tell whether the curvatures are known."""
        return not bool(np.isnan(self.curvature).any())


@dataclass(frozen=True, slots=True, eq=False)
class Stationary:
    """Where Newton's method has ended: y (d,), and the matrix (d, d).

    The slopes are those at `measured` (d,), from which the last step, a tiny one, has led to y.
    """

    y: FloatArray
    measured: FloatArray
    slopes: Slopes
    matrix: FloatArray


def slopes_at(table: Table, y: FloatArray, bends: bool) -> Slopes | None:
    """Measure all players' slopes, and if `bends` their curvatures; None if a value is not finite.

    Two neighbours on one side, at a bound, also need the value between them.
    """
    f, gradient, curvature, sums = np.full((4, len(y)), np.nan)
    f = f[: len(table.game.players)]
    for i, player in enumerate(table.game.players):
        found = own_slopes(table, i, y, y[player.place], bends)
        if found is None:
            return None
        f[i] = found.f[0]
        gradient[player.place], curvature[player.place] = found.gradient, found.curvature
        sums[player.place] = found.sums
    return Slopes(f, gradient, curvature, sums)


def own_slopes(
    table: Table, i: int, y: FloatArray, own: FloatArray, bends: bool = True
) -> Slopes | None:
    """Measure the slopes of player `i` at its own coordinates (d,), as `slopes_at` does for all."""
    rows, side = _neighbours(own)
    between = side == 0
    middle = bends or not between.all()
    values = table.values(i, y, np.concatenate([rows, own[None]]) if middle else rows).objective
    if not np.isfinite(values).all():
        return None
    near, far = values[: len(own)], values[len(own) : 2 * len(own)]
    f = float(values[-1]) if middle else np.nan
    central = (near - far) / (2 * DISTANCE)
    outer = np.where(between, 1, side) * (4 * near - far - 3 * f) / (2 * DISTANCE)
    bend = np.where(between, near + far - 2 * f, f - 2 * near + far)
    gradient = np.where(between, central, outer)
    return Slopes(np.array([f]), gradient, bend / DISTANCE**2, near + far)


def _add_curvatures(table: Table, y: FloatArray, here: Slopes) -> bool:
    """Measure the curvatures that are missing; return False if a value is not finite."""
    for i, player in enumerate(table.game.players):
        if np.isnan(here.f[i]):
            here.f[i] = table.values(i, y, y[player.place][None]).objective[0]
            here.curvature[player.place] = (here.sums[player.place] - 2 * here.f[i]) / DISTANCE**2
    return bool(np.isfinite(here.f).all())


def _neighbours(own: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two neighbours (2 d, d) of a point along each axis, and on which side they are.

    The side is 0 if they are on both sides, and 1 or -1 if a bound leaves only one.
    """
    side = np.where(own < DISTANCE, 1.0, np.where(own > 1 - DISTANCE, -1.0, 0.0))
    first = np.where(side == 0, 1.0, side) * DISTANCE
    second = np.where(side == 0, -1.0, 2 * side) * DISTANCE
    return np.concatenate([own + np.diag(first), own + np.diag(second)]), side


def newton(table: Table, y: FloatArray, matrix: FloatArray | None) -> Stationary | None:
    """Search for answers with zero slopes, from y (d,); None if the search does not settle.

    `matrix` is that of a game near by, if one is known. Curvatures are measured in each step
    without it, but only in the last one with it.
    """
    known = matrix is not None
    here = slopes_at(table, y, not known)
    matrix = np.zeros((len(y), len(y))) if matrix is None else matrix.copy()
    sizes: list[float] = []
    before = 0.0
    for _ in range(ITERATIONS):
        if here is None:
            return None
        if here.bent:
            np.fill_diagonal(matrix, _stiffness(here))
        free = ~(((y <= 0) & (here.gradient >= 0)) | ((y >= 1) & (here.gradient <= 0)))
        sizes.append(float(np.abs(here.own_steps(y, _positive(matrix, here))).max()))
        if len(sizes) > PATIENCE and sizes[-1] > 0.5 * sizes[-1 - PATIENCE]:
            return None
        target = np.clip(y + _step(matrix, here.gradient, free), 0, 1)
        step = target - y
        longest = float(np.abs(step).max())
        if _has_settled(longest, before) and sizes[-1] <= 100 * LAST_STEP:
            inner = free & (y > 0) & (y < 1)
            stable = _add_curvatures(table, y, here) and bool((here.curvature[inner] > 0).all())
            return Stationary(target, y, here, matrix) if stable else None
        there = slopes_at(table, target, not known or len(sizes) >= PATIENCE)
        if there is not None and step.any():
            surprise = there.gradient - here.gradient - matrix @ step
            matrix += np.outer(surprise, step) / float(step @ step)
        y, here, before = target, there, longest
    return None


def _has_settled(step: float, before: float) -> bool:
    """Tell whether y is exact enough after a step, by how much shorter it is than the one before.

    `before` is 0 for a first step. The rate of errors is about that of steps.
    """
    rate = step / before if before else FIRST_RATE
    return (step <= LAST_STEP and step * rate <= SETTLED) or (step <= NOISE and rate > 0.5)


def _positive(matrix: FloatArray, here: Slopes) -> FloatArray:
    """Return the diagonal of the matrix, made positive, so that own steps go downhill."""
    least = 1e-12 + 1e-3 * np.abs(here.gradient)
    return np.asarray(np.maximum(np.abs(np.diag(matrix)), least))


def _stiffness(here: Slopes) -> FloatArray:
    """Return the curvatures, made positive, so that each player's own step goes downhill."""
    least = 1e-8 * float(np.abs(here.curvature).max()) + 1e-3 * np.abs(here.gradient)
    return np.asarray(np.maximum(np.abs(here.curvature), np.maximum(least, 1e-300)))


def _step(matrix: FloatArray, gradient: FloatArray, free: BoolArray) -> FloatArray:
    """Return Newton's step of the free variables, shortened to `MAX_MOVE`."""
    step = np.zeros(len(gradient))
    part = matrix[np.ix_(free, free)]
    try:
        step[free] = np.linalg.solve(part, -gradient[free])
    except np.linalg.LinAlgError:
        step[free] = -gradient[free] / np.diag(part)
    longest = float(np.abs(step).max(initial=0.0))
    if not np.isfinite(longest):
        return np.zeros(len(gradient))
    return step * min(1.0, MAX_MOVE / longest) if longest else step
