"""Gradients that the user gives: how local searches ask for them, and a check against differences.

    yield from check_gradients(spec, rng)             # once, at the beginning of a run
    yield from sqp(..., derive=follower_slopes(x))    # if spec.slopes.whole(Level.LOWER)

The check compares slopes along a random direction, in x and in y apart. That needs two evaluations
for each level and part. Where they disagree, differences at other distances tell a wrong gradient
from noise. Only a gradient that is wrong at three points is refused, because of kinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.shared.differences import DeriveAt
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Slopes, Values, derive, evaluate
from bilevo.core.slopes import WrongGradient

POINTS = 3  # A gradient must disagree at this many points.
INNER = 0.1  # Points keep this distance from the bounds, as a fraction of the box.
HESSIAN_STEP = 1e-5  # The distance of gradients that make a Hessian, as a fraction of the box.
STEP = 2.0**-16  # The distance of differences, as a fraction of the box.
OTHER_STEPS = (STEP / 16, STEP * 16)  # Distances that show noise, curvature and kinks.
WRONG = 1e-3  # Slopes disagree if they differ by more, relative to the sum of all slopes.
DOUBT = 10.0  # They must also differ by this many times the errors of differences.


def follower_slopes(x: FloatArray, constraints: int | None = None) -> DeriveAt:
    """Return the function that gives f_y and g_y at one leader's x (m,) to a local search.

    It gives the first `constraints` rows of g_y, or all of them.
    """

    def at(y: FloatArray) -> Procedure[tuple[FloatArray, FloatArray] | None]:
        slopes = yield from derive(Level.LOWER, x[None], y[None])
        return slopes.objective_y[0], slopes.constraints_y[0][:constraints]

    return at


def hessian_by_gradients(x: FloatArray, y: FloatArray) -> Procedure[FloatArray | None]:
    """Return the Hessian of f at y (n,) by n + 1 given gradients; None if one is not available."""
    steps = np.where(y > 0.5, -HESSIAN_STEP, HESSIAN_STEP)
    rows = np.concatenate([y[None], y + np.diag(steps)])
    found = (
        yield from derive(Level.LOWER, np.repeat(x[None], len(rows), axis=0), rows)
    ).objective_y
    with np.errstate(all="ignore"):
        hessian = (found[1:] - found[0]) / steps[:, None]
    return (hessian + hessian.T) / 2 if np.isfinite(hessian).all() else None


def check_gradients(spec: Spec, rng: np.random.Generator) -> Procedure[None]:
    """Raise `WrongGradient` if a gradient disagrees with differences at each of three points.

    Gradients are not checked if the follower is a solver, because only it knows which y make sense.
    """
    if spec.step_cost is not None:
        return
    for level in Level:
        if spec.slopes.objective(level):
            x, y = inner_points(POINTS, spec.m, rng), inner_points(POINTS, spec.n, rng)
            yield from check_level(level, x, y, rng)


def inner_points(count: int, size: int, rng: np.random.Generator) -> FloatArray:
    """Return random points (count, size) that are not near the bounds."""
    return np.asarray(rng.uniform(INNER, 1 - INNER, (count, size)))


class Place(NamedTuple):
    """A pair at which the slopes of a level along x or along y are checked."""

    level: Level
    x: FloatArray
    y: FloatArray
    variable: str  # "x" or "y"

    @property
    def size(self) -> int:
        return len(self.x if self.variable == "x" else self.y)

    def given(self, slopes: Slopes) -> FloatArray:
        """Return the given slopes (1 + c, size), of the objective first."""
        along_x = self.variable == "x"
        objective = slopes.objective_x if along_x else slopes.objective_y
        constraints = slopes.constraints_x if along_x else slopes.constraints_y
        return np.concatenate([objective, constraints[0]])

    def measured(self, steps: FloatArray) -> Procedure[tuple[FloatArray, FloatArray]]:
        """Return central differences (1 + c, k) over steps (k, size), and their rounding errors.

        They are not divided by the lengths of the steps.
        """
        both = np.concatenate([steps, -steps])
        still = np.zeros((len(both), len(self.x) + len(self.y) - self.size))
        moves = (both, still) if self.variable == "x" else (still, both)
        values = yield from evaluate(self.level, self.x + moves[0], self.y + moves[1])
        rows = _rows(values)
        k = len(steps)
        with np.errstate(all="ignore"):
            differences = (rows[:, :k] - rows[:, k:]) / 2
            rounding = 8 * np.finfo(float).eps * (np.abs(rows[:, :k]) + np.abs(rows[:, k:]))
        return differences, rounding


def _rows(values: Values) -> FloatArray:
    """Return values as rows: the objective, and then each constraint."""
    return np.concatenate([values.objective[None], values.constraints.T])


def check_level(
    level: Level,
    x: FloatArray,
    y: FloatArray,
    rng: np.random.Generator,
    variables: Sequence[str] = "xy",
) -> Procedure[None]:
    """Check the gradients of one level at pairs x (k, m), y (k, n), along these variables.

    The next pair is looked at only if a gradient is wrong at the pairs before, or if no gradient is
    available there.
    """
    doubts: dict[str, list[IntArray]] = {variable: [] for variable in variables}
    for pair in zip(x, y, strict=True):
        slopes = yield from derive(level, pair[0][None], pair[1][None])
        for variable in list(doubts):
            place = Place(level, *pair, variable)
            given = place.given(slopes)
            if not np.isfinite(given).all(axis=1).any():
                continue
            wrong = yield from _wrong_rows(place, given, rng)
            doubts[variable].append(wrong)
            if not _in_all(doubts[variable]).size:
                del doubts[variable]
        if len(doubts) < len(variables) and not any(doubts.values()):
            return
    for variable, found in doubts.items():
        if len(found) == len(x):
            place = Place(level, x[-1], y[-1], variable)
            yield from _refuse(place, place.given(slopes), int(_in_all(found)[0]))


def _in_all(found: list[IntArray]) -> IntArray:
    """Return the rows that were wrong at all points so far."""
    rows = set(found[0].tolist()).intersection(*(each.tolist() for each in found))
    return np.array(sorted(rows), np.int64)


def _wrong_rows(place: Place, given: FloatArray, rng: np.random.Generator) -> Procedure[IntArray]:
    """Return the functions (0 is the objective) whose given slopes are clearly wrong at a place."""
    signs = rng.choice([-1.0, 1.0], place.size)
    with np.errstate(all="ignore"):
        expected, size = given @ signs, np.abs(given).sum(axis=1)
    differences, rounding = yield from place.measured(STEP * signs[None])
    slope, error = differences[:, 0] / STEP, rounding[:, 0] / STEP
    width = min(len(slope), len(given))  # the number of constraints may not be known yet
    slope, error, expected, size = (each[:width] for each in (slope, error, expected, size))
    with np.errstate(all="ignore"):
        slight = WRONG * np.maximum(size, np.abs(slope))
        apart = np.abs(slope - expected)
        wrong = np.isfinite(apart) & (apart > slight + error)
    if not wrong.any():
        return np.flatnonzero(wrong)
    steps = np.array(OTHER_STEPS)
    others, _ = yield from place.measured(steps[:, None] * signs)
    with np.errstate(all="ignore"):
        error = np.abs(others[:width] / steps - slope[:, None]).max(axis=1)
        wrong &= apart > slight + DOUBT * error
    return np.flatnonzero(wrong)


def _refuse(place: Place, given: FloatArray, row: int) -> Procedure[None]:
    """Find the variable whose slope is most wrong, and raise the error."""
    differences, _ = yield from place.measured(STEP * np.eye(place.size))
    slopes = differences[row] / STEP
    apart = np.abs(slopes - given[row])
    i = int(np.argmax(np.where(np.isfinite(apart), apart, -1.0)))
    objective, constraints = "FG" if place.level is Level.UPPER else "fg"
    function = objective if row == 0 else f"{constraints}[{row - 1}]"
    found = float(given[row, i]), float(slopes[i])
    raise WrongGradient(function, place.variable, i, found, (place.x, place.y))
