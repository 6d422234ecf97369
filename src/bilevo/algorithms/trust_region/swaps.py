"""Swaps: leaders with the values of two variables of a good one exchanged.

Two variables may do the same work, such as lanes on two roads between the same places. Then F has
an optimum with the one and another with the other, and a region does not see from one to the other.
A swap is a leader that does. The box is the unit box, so values of different kinds are exchanged as
shares of their bounds. Of all swaps, the one is tried for which a model of all leaders expects the
smallest rise of F, relative to the square of its length: short swaps would always look best.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from bilevo.algorithms.drc_race.descents import near
from bilevo.algorithms.trust_region.region import FIRST_RADIUS, Known, Region
from bilevo.core.arrays import FloatArray

LEAST_SWAP = FIRST_RADIUS  # Nearer values are not exchanged, because the first region reaches them.
SAME_SWAP = 0.1  # A swap this near to an earlier one repeats it.


def promising_swap(
    answer: Known, settings: FloatArray, known: list[Known], tried: list[FloatArray]
) -> FloatArray | None:
    """Return the most promising swap of the answer, or None if all have been tried.

    `settings` are those of the last model.
    """
    centre = answer.x
    swaps = [
        swapped(centre, i, j)
        for i, j in combinations(range(len(centre)), 2)
        if abs(centre[i] - centre[j]) >= LEAST_SWAP
    ]
    swaps = [swap for swap in swaps if not near(swap, tried, SAME_SWAP)]
    if not swaps:
        return None
    trials, points = np.array(swaps), [point for point in known if point.usable]
    region = Region(answer, settings, FIRST_RADIUS)
    surface = region.surface(points, np.array([point.x for point in points]))
    F = np.array([surface.at(trial)[0][0] for trial in trials]) - surface.deviations(trials)
    rises = (F - answer.F) / ((trials - centre) ** 2).sum(axis=1)
    best: FloatArray = trials[int(rises.argmin())]
    return best


def swapped(x: FloatArray, i: int, j: int) -> FloatArray:
    """Return x (m,) with two of its values exchanged."""
    other = x.copy()
    other[i], other[j] = x[j], x[i]
    return other
