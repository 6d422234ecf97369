"""Steps from an answer of a follower to other basins of f.

Steps along the axes are made everywhere. If f has ripples, its basins are about equally far apart,
so steps between known basins lead to others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bilevo.algorithms.drc_plus.experience import DISTINCT, PARTS, WarmTask
from bilevo.algorithms.drc_plus.local_follower import LocalFollower
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure

BASIN_STEPS = 10  # How many distances between basins are tried along each axis.
PAIRED_AXES = 8  # With more variables, steps along two axes at once would be too many.
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
    """Step from a basin to others; return the task with the best answer.

    If f has ripples, its basins are about equally far apart. So the steps are those between the
    ends of other local searches: the smallest ones along each axis, and along two axes at once.
    """
    n = len(task.pair.y)
    places = np.array([end.pair.y for end in ends if end.solved]).reshape(-1, n)
    if len(places) < 2:
        return task
    i, j = np.triu_indices(len(places), 1)
    steps = [some_steps(column) for column in np.abs(places[i] - places[j]).T]
    moves = [step * np.eye(n)[axis] for axis in range(n) for step in steps[axis]]
    first = [step[0] * np.eye(n)[axis] if step else np.zeros(n) for axis, step in enumerate(steps)]
    if n <= PAIRED_AXES:
        pairs = [(a, b) for b in range(n) for a in range(b) if steps[a] and steps[b]]
        moves += [first[a] + sign * first[b] for a, b in pairs for sign in (1, -1)]
    if not moves:
        return task
    rows = np.array(moves)
    new = yield from probe(follower, task, np.concatenate([rows, -rows]))
    follower.known.learn_hops(new.pair.y - task.pair.y)
    return new


def some_steps(distances: FloatArray) -> list[float]:
    """Return the smallest distances between basins, and parts of them, without near duplicates.

    Between two of the basins there may be one or two others.
    """
    parts = (distances[:, None] / PARTS).ravel()
    chosen: list[float] = []
    for distance in np.sort(parts[parts > DISTINCT]).tolist():
        if not chosen or distance > chosen[-1] + DISTINCT / 2:
            chosen.append(distance)
    return chosen[:BASIN_STEPS]


def probe(follower: LocalFollower, task: WarmTask, moves: FloatArray) -> Procedure[WarmTask]:
    """Try moves (k, n) from an answer, and search again from a better point, while there is one."""
    x, known = task.pair.x, follower.known
    if not math.isfinite(task.pair.f):
        return task
    for _ in range(8):
        y = task.pair.y
        rows = np.clip(y + moves, 0.0, 1.0)
        values = yield from known.evaluate(x, rows)
        gains = task.pair.f - values.objective  # -inf where f failed
        least = known.tie(task.pair.f)
        if gains.max() <= least:
            break
        joint = np.clip(y + all_at_once(moves, gains, least), 0.0, 1.0)
        points = np.array([joint, rows[int(gains.argmax())]])
        start = yield from follower.at(x, points)
        new = task.better((yield from follower.search_afresh(start)))
        if new is task:
            break
        task = new
    return task


def all_at_once(moves: FloatArray, gains: FloatArray, least: float) -> FloatArray:
    """Return the sum of the best moves that gain more than `least` and share no axis."""
    total = np.zeros(moves.shape[1])
    for i in np.argsort(-gains, kind="stable"):
        if not gains[i] > least:
            break
        if not (total[moves[i] != 0] != 0).any():
            total = total + moves[i]
    return total
