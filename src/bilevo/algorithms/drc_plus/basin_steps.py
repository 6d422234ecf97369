"""Steps from an answer of a follower to other basins of f.

After searches of the box, steps along the axes look for other basins. Where searches have ended in
several basins, steps between these do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.local_follower import LocalFollower
from bilevo.algorithms.shared.basin_moves import MOST_HOPS, moved, moves_between, points_to_try
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure

PROBE_STEPS = 0.2 * 1.5 ** -np.arange(12.0)  # Steps that probe for basins (fractions of the box).


def probe_axes(
    follower: LocalFollower, task: WarmTask, count: int | None = None
) -> Procedure[WarmTask]:
    """Step along the axes, and search again from a better point, as long as there is one.

    With a `count`, only so many of the widest steps are made. Returns the task with the best
    answer.
    """
    n = len(task.pair.y)
    if not follower.probes:
        return task
    steps = np.concatenate([PROBE_STEPS[:count], -PROBE_STEPS[:count]])
    return (yield from probe(follower, task, (steps[:, None, None] * np.eye(n)).reshape(-1, n)))


def hop_basins(
    follower: LocalFollower, task: WarmTask, ends: Sequence[WarmTask]
) -> Procedure[WarmTask]:
    """Step from a basin to others, by moves between ends of searches; return the best task."""
    n = len(task.pair.y)
    moves = moves_between(np.array([end.pair.y for end in ends if end.solved]).reshape(-1, n))
    if not len(moves):
        return task
    new = yield from probe(follower, task, moves)
    follower.known.learn_hops(new.pair.y - task.pair.y)
    return new


def probe(follower: LocalFollower, task: WarmTask, moves: FloatArray) -> Procedure[WarmTask]:
    """Try moves (k, n) from an answer, and search again from a better point, while there is one."""
    x, known = task.pair.x, follower.known
    if not math.isfinite(task.pair.f):
        return task
    for _ in range(MOST_HOPS):
        y = task.pair.y
        values = yield from known.evaluate(x, moved(y, moves))
        gains = task.pair.f - values.objective  # -inf where f failed
        points = points_to_try(y, moves, gains, known.tie(task.pair.f))
        if not len(points):
            break
        start = yield from follower.at(x, points)
        new = task.better((yield from follower.search_afresh(start)))
        if new is task:
            break
        task = new
    return task
