"""Starts of local searches from which f falls all the way to a known answer.

A local search from a point spread over the box often ends at an answer that is known already. If f
falls all along the line from the point to this answer, both are taken to lie in one basin, and the
search is left out. That costs a few evaluations, whatever the number of variables. Points on the
line are dense near its start, so that a small basin around the start is noticed. R. Ursem used such
a test to tell basins apart, "Multinational evolutionary algorithms", 1999.

A line says nothing about answers that are equally good. So it is used only where f is curved in all
directions at the known answer, and where there are no constraints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilevo.algorithms.drc_plus.experience import DISTINCT, WarmTask
from bilevo.algorithms.drc_plus.local_follower import LocalFollower
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure, split

# Where f is evaluated between the start (0) and the answer (1), and as a last place near the answer
PLACES = np.array([*0.5 ** np.arange(6.0, 0.0, -1.0), 0.75, 0.875])
ARRIVED = 0.4 * DISTINCT  # at this distance from it (a fraction of the box).


def leave_out(
    follower: LocalFollower, starts: Sequence[WarmTask], answer: Pair
) -> Procedure[tuple[list[WarmTask], list[WarmTask]]]:
    """Tell which of some searches are made; return these, and the ends of those that are left out.

    All tasks have the x of the answer.
    """
    known, spec = follower.known, follower.spec
    plain = spec.blocks is None and all(not task.lower.constraints.size for task in starts)
    if not (follower.lines and starts and plain and known.clearly_curved):
        return list(starts), []
    lines = [line(task.pair.y, answer.y) for task in starts]
    values = yield from known.evaluate(answer.x, np.concatenate(lines))
    made, ends = list[WarmTask](), list[WarmTask]()
    parts = split(values, [len(points) for points in lines])
    for task, points, along in zip(starts, lines, parts, strict=True):
        f = np.array([task.pair.f, *along.objective, answer.f])
        if not (f[1:] < f[:-1]).all():  # also where f failed
            made.append(task)
            continue
        last = len(points) - 1
        end = WarmTask.at(answer.x, points[last:], along.part(last, last + 1))
        end.solved = end.arrived = True
        ends.append(end)
    return made, ends


def line(start: FloatArray, answer: FloatArray) -> FloatArray:
    """Return points (k, n) between a start and an answer; the last one is near the answer."""
    step = answer - start
    near = ARRIVED / max(float(np.abs(step).max()), 2 * ARRIVED)
    places = np.append(PLACES[1 - near > PLACES], 1 - near)
    return np.asarray(start + places[:, None] * step)
