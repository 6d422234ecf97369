"""Luck: whether two searches of the solver at one leader lead to different answers.

A solver that ignores its random numbers gives the same bits twice. One that only starts at random
does not, but its searches come together: each round of steps halves their difference at least. Then
both go on to their ends, and F is no matter of luck if they end at the same answer. The searches of
a training do not come together, so that it pays for few steps more.
"""

from __future__ import annotations

import numpy as np

from bilevo.algorithms.drc_race.method import DRCRaceState, RaceTask
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import solver_searches
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure
from bilevo.core.tolerances import SAME

TOGETHER = 0.5  # Searches come together if a round leaves this part of their difference, or less.


def depends_on_luck(
    spec: Spec, state: DRCRaceState, task: RaceTask, size: FloatArray
) -> Procedure[bool]:
    """Search again at a task's leader; tell whether that leads elsewhere. `size` is the usual |y|.

    The task goes on as long as both searches come together.
    """
    (again,) = solver_searches(spec, state, task.pair.x[None])
    apart = np.inf
    while True:
        while not again.finished and (again.executions < task.age or task.follower.finished):
            yield from again.execute()
        found = again.answer
        if task.pair.answers_alike(found.y, found.f, found.lower_violation):
            return False
        last, apart = apart, difference(task.pair, found, size)
        if task.follower.finished and again.finished:
            return not apart <= SAME
        if not apart <= TOGETHER * last:  # also if it is no number
            return True
        yield from task.take_round(state)


def difference(one: Pair, other: Pair, size: FloatArray) -> float:
    """Return the largest difference of two answers y (n,), relative to their usual size (n,)."""
    away = np.abs(one.y - other.y)
    scale = np.maximum(size, np.abs(other.y))
    return float(np.divide(away, scale, out=away.copy(), where=scale > 0).max())
