"""A compass search: it needs no slopes, so it also ends well at a kink, a jump or a constraint."""

from __future__ import annotations

import numpy as np

from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.polish import End, best_of, is_gain
from bilevo.core.request import Procedure

FIRST, LAST = 0.1, 1e-6  # The first and the last step, as fractions of the box.
SHORTER = 0.25  # After a round without a gain, steps are shorter by this factor.
MOST_POLLED = 20  # The most points of a search with d variables are (d + 2) times as many.


def compass_search(at: At, end: End) -> Procedure[tuple[End, bool]]:
    """Step along the axes as long as f falls; tell whether constraints stop a last step."""
    d, step, stopped = len(end.y), FIRST, False
    axes = np.concatenate([np.eye(d), -np.eye(d)])
    for _ in range(MOST_POLLED * (d + 2) // (2 * d)):
        rows = np.clip(end.y + step * axes, 0.0, 1.0)
        values = yield from at(rows)
        best, stopped = best_of(rows, values), bool((values.violation > end.violation).any())
        if is_gain(end, best):
            end = End(best.y, best.values, end.settled)
        elif step <= LAST:
            break
        else:
            step *= SHORTER
    return end, stopped
