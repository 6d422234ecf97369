"""The competition of drc-plus: which followers of a generation are solved, and how exactly.

The followers of a generation start at their predicted answers. Then only the searches for leaders
in the better half continue, a few iterations per round. If F hardly changes for the two best
leaders, all predictions are accepted.
"""

from __future__ import annotations

import math

from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.leader_view import LeaderView
from bilevo.algorithms.drc_plus.local_follower import ITERATIONS
from bilevo.algorithms.drc_plus.state import spread_of
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.leader import leader_ranking
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure, together

ACCEPTED_CHANGE = 0.1  # Predictions are accepted if F changes by less, relative to its spread.
ROUND_ITERATIONS = 3  # Iterations of a follower search before leaders are ranked again.
ROUNDS = 3  # The most rounds of competition in a generation.


def compete(
    state: LeaderView, follower: WarmFollower, x: FloatArray, scale: FloatArray, competition: bool
) -> Procedure[list[WarmTask]]:
    """Return a task per leader; improve the better half (all tasks without `competition`)."""
    tasks = yield from together(follower.start(row, scale) for row in x)
    yield from state.evaluate_leaders(tasks)
    if not competition:
        everyone = list(range(len(tasks)))
        yield from improve(state, follower, tasks, everyone, state.known.tight, ITERATIONS)
        return tasks
    for number in range(ROUNDS):
        order = leader_ranking([task.pair for task in tasks])
        chosen = [int(i) for i in order[: len(tasks) // 2] if not tasks[i].solved]
        if not chosen:
            break
        spread = spread_of([task.pair for task in tasks])
        if number == 0:  # the two best leaders show how good all predictions are
            chosen = chosen[:2]
        tolerance = state.f_tolerance(spread)
        yield from improve(state, follower, tasks, chosen, tolerance, ROUND_ITERATIONS)
        moved = max(tasks[i].moved for i in chosen)
        if number == 0 and moved <= ACCEPTED_CHANGE * spread < math.inf:
            break
    return tasks


def improve(
    state: LeaderView,
    follower: WarmFollower,
    tasks: list[WarmTask],
    chosen: list[int],
    tolerance: float,
    iterations: int,
) -> Procedure[None]:
    """Improve the answers of chosen tasks side by side, and replace these tasks."""
    spec = follower.spec
    new = yield from together(
        state.solve(follower, tasks[i], tolerance, state.stream(spec, "bout"), iterations)
        for i in chosen
    )
    for i, task in zip(chosen, new, strict=True):
        tasks[i] = task


def accept_best(
    state: LeaderView, follower: WarmFollower, tasks: list[WarmTask]
) -> Procedure[None]:
    """Solve the follower of the best pair exactly, and make the pair the elite.

    In between, the pair's answer is compared with answers of other followers. All this is done
    only as long as the pair improves the elite (`is_improved_by`).
    """
    i = int(leader_ranking([task.pair for task in tasks])[0])
    tight, rng = state.known.tight, state.stream(follower.spec, "elect")
    if state.is_improved_by(tasks[i].pair) and tasks[i].tolerance > tight:
        tasks[i] = yield from state.solve(follower, tasks[i], tight, rng, thorough=True)
    if state.is_improved_by(tasks[i].pair):
        tasks[i] = yield from state.test_against_neighbours(follower, tasks[i])
    if state.is_improved_by(tasks[i].pair):
        yield from state.accept_elite(tasks[i].pair)
