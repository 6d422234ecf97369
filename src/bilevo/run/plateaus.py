"""Notices functions that round a variable inside, from a few points beside an answer.

Rounding makes steps of a function. Local searches take each plateau for a minimum then, so that
their agreement says nothing. `doubt_steps` evaluates F beside the answer along x, and f along y.
Only where that changes nothing, the function is seen along the whole variable: one with steps is
the same right beside each place, and differs between the places. Constraints are not looked at.
"""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.request import Evaluate, Level, Procedure, Values
from bilevo.core.space import UnitBox
from bilevo.core.tolerances import rounding

CLOSE = 1e-4  # How far beside the answer functions are seen, as a fraction of the box.
PLACES = np.array([0.083, 0.271, 0.417, 0.662, 0.877])  # Places along a unit coordinate.
SAME_PLACES = 4  # So many places must be level: a step may lie right beside one of them.
VISIBLE = 16.0  # A slope must change a function by this multiple of its rounding to be seen.
NAMES = {Level.UPPER: ("F", "x"), Level.LOWER: ("f", "y")}
REMEDY = (
    "{what}, as if it rounded there: searches over real numbers cannot be trusted with that. Do "
    "not round inside functions; declare whole numbers by x_integrality and y_integrality"
)


class Seen(NamedTuple):
    """An answer in unit coordinates, with the values of both levels."""

    x: FloatArray
    y: FloatArray
    F: float
    f: float

    def rows(self, level: Level, points: FloatArray) -> Evaluate:
        """Return the request for a level's values where its own variables are at points (k, .)."""
        if level is Level.UPPER:
            return Evaluate(level, points, np.tile(self.y, (len(points), 1)))
        return Evaluate(level, np.tile(self.x, (len(points), 1)), points)


def doubt_steps(
    x: FloatArray, y: FloatArray, values: tuple[float, float], boxes: tuple[UnitBox, UnitBox]
) -> Procedure[str]:
    """Return that functions change in steps, and what to do about it; an empty text if none does.

    The answer x, y is in the user's units, and `values` are its F and f.
    """
    seen = Seen(boxes[0].unit(x), boxes[1].unit(y), *values)
    found = []
    for level, box in zip(NAMES, boxes, strict=True):
        numbers = [box.variable(i)[0] for i in range(box.size)]
        real = np.array([not box.bounds.whole[number] for number in numbers])
        steps = yield from _with_steps(level, seen, real)
        function, name = NAMES[level]
        names = [f"{name}[{number}]" for number in compress(numbers, steps)]
        if names:
            found.append(f"{function} changes in steps along {' and '.join(names)}")
    return REMEDY.format(what=", and ".join(found)) if found else ""


def _with_steps(level: Level, seen: Seen, real: BoolArray) -> Procedure[BoolArray]:
    """Tell along which coordinates of its own variables a level's objective has steps."""
    upper = level is Level.UPPER
    here, told = (seen.x, seen.F) if upper else (seen.y, seen.f)
    # An answer may lie where a step is; for f, where it matters most, both sides are seen.
    sides = _sides(here)[: 1 if upper else 2]
    level_there = np.zeros(len(here), dtype=bool)
    if real.any():
        points = np.concatenate([_moved(here, side)[real] for side in sides])
        values: Values = yield seen.rows(level, points)
        same = np.abs(values.objective - told) <= rounding(told)
        level_there[real] = same.reshape(len(sides), -1).any(axis=0)
    steps = np.zeros(len(here), dtype=bool)
    for i in np.flatnonzero(level_there):
        along = np.tile(here, (2 * len(PLACES), 1))
        along[:, i] = np.concatenate([PLACES, PLACES + CLOSE])
        values = yield seen.rows(level, along)
        steps[i] = has_steps(*values.objective.reshape(2, -1))
    return steps


def _sides(here: FloatArray) -> FloatArray:
    """Return coordinates (2, k) beside those of a point, on both sides if the box allows it."""
    inward = np.where(here < 0.5, CLOSE, -CLOSE)
    outside = (here - inward < 0) | (here - inward > 1)
    return np.array([here + inward, np.where(outside, here + 2 * inward, here - inward)])


def _moved(here: FloatArray, there: FloatArray) -> FloatArray:
    """Return copies (k, k) of a point, each with another coordinate replaced."""
    rows = np.tile(here, (len(here), 1))
    np.fill_diagonal(rows, there)
    return rows


def has_steps(values: FloatArray, beside: FloatArray) -> bool:
    """Tell whether values at the places, and beside them, are those of a function with steps.

    If rounding would hide a slope between the places, there is nothing to tell from.
    """
    if not np.isfinite([values, beside]).all():
        return False
    same = values == beside
    spread = float(np.ptp(values[same])) if same.any() else 0.0
    hidden = VISIBLE * rounding(float(np.abs(values).max()))
    return bool(same.sum() >= SAME_PLACES and spread * CLOSE > hidden)
