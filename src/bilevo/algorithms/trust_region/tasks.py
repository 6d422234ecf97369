"""Tasks of trust-region: followers take steps until they are finished, or clearly not the best."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.drc_race.method import RaceTask
from bilevo.algorithms.shared.leader import LeaderState, evaluate_leader, leader_values
from bilevo.algorithms.trust_region.region import Known
from bilevo.core.budget import interquartile_range
from bilevo.core.request import Procedure

MARGIN = 10.0  # F of a follower may still change by this many times its last change.


class Bar(NamedTuple):
    """F that a leader has to reach, and a difference of F that matters."""

    F: float
    matters: float

    def missed(self, task: RaceTask) -> bool:
        """Tell whether a task is worse, even if F still changes by `MARGIN` times the last change.

        Changes must have become small, because early ones say little.
        """
        if len(task.F) < 2 or not math.isfinite(task.F[-2]):
            return False
        error = MARGIN * abs(task.F[-1] - task.F[-2])
        return task.F[-1] - error > self.F + self.matters and error < self.matters


def solve(state: LeaderState, task: RaceTask, bar: Bar | None = None) -> Procedure[None]:
    """Take steps until the follower is finished, or the bar is missed.

    F is evaluated at the first steps, then ever more seldom, and at the end.
    """
    check = 1
    while not task.follower.finished:
        yield from task.follower.execute()
        checks = task.age >= check or task.follower.finished
        if checks:
            check = task.age + max(1, task.age // 4)
            if task.pair.violation == math.inf and task.pair.lower_violation < math.inf:
                values = yield from evaluate_leader(state, task.pair)
                task.G = values.constraints[0]
        task.note(checks)
        if checks and bar is not None and bar.missed(task):
            return


def spread_of(tasks: list[RaceTask]) -> float:
    return interquartile_range(leader_values([task.pair for task in tasks])[0])


def known_of(task: RaceTask) -> Known:
    """Return what a task has shown; an unfinished one has an error."""
    pair, follower = task.pair, task.follower
    error = 0.0
    if not follower.finished:
        error = MARGIN * abs(task.F[-1] - task.F[-2]) if task.age > 1 else math.inf
    G = np.append(task.G, pair.lower_violation)
    return Known(
        pair.x, pair.F, pair.violation, G, pair.task, error, follower.finished, pair.converged
    )
