"""Notices functions that round a variable inside, from a few points beside a pair.

Rounding makes steps of a function. Local searches take each plateau for a minimum then, so that
their agreement says nothing. `find_steps` evaluates F beside the pair along x, and f along x and y.
Only where that changes nothing, the function is seen along the whole variable: one with steps is
the same right beside each place, and differs between the places. Constraints are not looked at.
"""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.request import Evaluate, Incumbent, Level, Procedure, Values
from bilevo.core.space import UnitBox
from bilevo.core.tolerances import rounding

CLOSE = 1e-4  # How far beside the pair functions are seen, as a fraction of the box.
PLACES = np.array([0.083, 0.271, 0.417, 0.662, 0.877])  # Places along a unit coordinate.
SAME_PLACES = 4  # So many places must be level: a step may lie right beside one of them.
VISIBLE = 16.0  # A slope must change a function by this multiple of its rounding to be seen.
REMEDY = (
    "as if it rounded there: searches over real numbers cannot be trusted with that. Do not round "
    "inside functions; declare whole numbers by x_integrality and y_integrality"
)


def find_steps(best: Incumbent, boxes: tuple[UnitBox, UnitBox]) -> Procedure[str]:
    """Return that functions change in steps, and what to do about it; an empty text if none does.

    The pair is in the user's units. Nothing can be told from one without finite values.
    """
    if not np.isfinite([best.F, best.f]).all():
        return ""
    x_box, y_box = boxes
    here = np.concatenate([x_box.unit(best.x), y_box.unit(best.y)])
    names = [f"x[{x_box.variable(i)[0]}]" for i in range(x_box.size)]
    names += [f"y[{y_box.variable(i)[0]}]" for i in range(y_box.size)]
    found = []
    for level, name, value in ((Level.UPPER, "F", best.F), (Level.LOWER, "f", best.f)):
        steps = yield from _with_steps(level, here, x_box.size, value)
        along = " and ".join(names[i] for i in np.flatnonzero(steps))
        if along:
            found.append(f"{name} changes in steps along {along}")
    return f"{', and '.join(found)}, {REMEDY}" if found else ""


def _with_steps(level: Level, here: FloatArray, m: int, value: float) -> Procedure[BoolArray]:
    """Tell along which coordinates of a pair (m + n,) a level's objective has steps.

    F is seen along x, and f along all coordinates.
    """
    count = m if level is Level.UPPER else len(here)
    first, second = _sides(here)
    # An answer may lie where a step is. So f is seen on both sides of it.
    points = np.concatenate([_moved(here, first)[:count], _moved(here, second)[m:count]])
    values: Values = yield Evaluate(level, points[:, :m], points[:, m:])
    same = np.abs(values.objective - value) <= rounding(value)
    is_level = same[:count].copy()
    is_level[m:] |= same[count:]
    steps = np.zeros(len(here), dtype=bool)
    for i in np.flatnonzero(is_level):
        along = np.tile(here, (2 * len(PLACES), 1))
        along[:, i] = np.concatenate([PLACES, PLACES + CLOSE])
        values = yield Evaluate(level, along[:, :m], along[:, m:])
        # Cases that f distinguishes by x are no rounding. They make one jump; rounding makes more.
        jumps = 2 if level is Level.LOWER and i < m else 1
        at, beside = values.objective.reshape(2, -1)
        steps[i] = has_steps(at, beside, jumps)
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


def has_steps(values: FloatArray, beside: FloatArray, jumps: int = 1) -> bool:
    """Tell whether values at the places, and beside them, are those of a function with steps.

    It must have at least so many `jumps` between the places. If rounding would hide a slope between
    the places, there is nothing to tell from.
    """
    if not np.isfinite([values, beside]).all():
        return False
    same = values == beside
    spread = float(np.ptp(values[same])) if same.any() else 0.0
    hidden = VISIBLE * rounding(float(np.abs(values).max()))
    found = np.count_nonzero(np.diff(values[same]))
    return bool(same.sum() >= SAME_PLACES and found >= jumps and spread * CLOSE > hidden)
