"""Branches of a follower: leaders that are looked at with a fresh search of their followers.

A follower with several basins has several answers that change continuously with x: its branches.
Where another branch becomes the follower's best, y*(x) and phi jump. Searches that start from known
answers stay on their branch, and never see that another one is better. So

- `explore_leaders` solves the followers of leaders all over the box from spread points, and tries
  every answer found at all of these leaders;
- `descend_on_branch` searches phi locally along one branch, with the constraint that another branch
  is no better for the follower. The leader's optimum often lies where the two are equal;
- `locate_change` finds by bisection where phi jumps between two leaders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.drc_plus.box_search import (
    basin_tasks,
    is_same,
    search_all,
    tasks_at,
    with_best_parts,
)
from bilevo.algorithms.drc_plus.descent import StallTest, leader_rule, may_end
from bilevo.algorithms.drc_plus.experience import DISTINCT, Experience, WarmTask, best_of
from bilevo.algorithms.drc_plus.leader_view import LeaderView
from bilevo.algorithms.drc_plus.state import budget_of
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.blocks import spread_points
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import leader_ranking
from bilevo.algorithms.shared.sqp import sqp
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure, Values, together
from bilevo.optimizers.sampling import latin_hypercube

LEADERS = 5  # The leaders looked at are this number times m + 1,
MIN_LEADERS, MAX_LEADERS = 16, 24  # but not fewer or more than these.
EXPLORED_POINTS = 8  # Each of their followers is evaluated at this number plus 4 n spread points,
EXPLORED_SEARCHES = 3  # and at most this many local searches start from these points.
SLOW_ITERATIONS = 60  # The most iterations of the search whose answer is compared with others.
PILOTS = 3  # This many leaders are looked at first. If each has one answer, the others are fewer,
FEWER_LEADERS = 8  # so many in all at most, and one search looks for another answer of each.
MAX_BRANCHES = 8  # The most answers that are tried at all leaders.
# An answer may have jumped if it changes by more than `JUMP` plus `SLOPE` times the change of x.
JUMP, SLOPE = 0.05, 4.0
BETWEEN = 0.1  # An answer between two others is at least this part of their distance from both.
BRANCH_SHARE = 0.05  # A descent along a branch takes at most this share of the run's budget.
MAX_JUMPS = 12  # How many jumps between leaders are looked for at most.
LOCATING_SHARE = 0.5  # Evaluations to locate jumps, for each one that exploring leaders has taken.
BISECTIONS = 40  # The most bisections between two leaders.
NEAREST = 1e-12  # Leaders that are closer than this (fractions of the box) are the same.


def explore_leaders(
    state: LeaderView, follower: WarmFollower, rng: np.random.Generator
) -> Procedure[tuple[list[WarmTask], bool]]:
    """Look at leaders all over the box; return their tasks, and whether one has several answers."""
    ends = yield from look_at_leaders(follower, rng, short=not state.constrained)
    tasks = yield from try_all_answers(follower, [best_of(found) for found in ends])
    tied = [ties_of(*pair, follower.known) for pair in zip(tasks, ends, strict=True)]
    yield from state.evaluate_leaders([tie for ties in tied for tie in ties])
    chosen = []
    for ties in tied:
        best = ties[int(leader_ranking([tie.pair for tie in ties])[0])]
        best = yield from state.resolve_ties(best)
        state.known.learn(best.pair)
        chosen.append(best)
    return chosen, any(has_several(follower, found) for found in ends)


def look_at_leaders(
    follower: WarmFollower, rng: np.random.Generator, short: bool
) -> Procedure[list[list[WarmTask]]]:
    """Solve the followers of leaders all over the box; return where searches of each ended.

    If the look may be `short`, a few leaders are looked at first. If none of them has several
    answers, one search that starts away from the predicted answer is enough for each of a few
    others. If one of these finds another answer, the rest are looked at, too.
    """
    m, found = follower.spec.m, list[list[WarmTask]]()
    count = min(max(LEADERS * (m + 1), MIN_LEADERS), MAX_LEADERS)
    x = latin_hypercube(count, m, rng)
    if short:
        found += yield from together(look(follower, row, rng) for row in x[:PILOTS])
        if not any(has_several(follower, ends) for ends in found):
            few = x[PILOTS:FEWER_LEADERS]
            found += yield from together(look(follower, row, rng, searches=1) for row in few)
            if not any(has_several(follower, ends) for ends in found):
                return found
    rest = x[len(found) :]
    return found + (yield from together(look(follower, row, rng) for row in rest))


def look(
    follower: WarmFollower,
    x: FloatArray,
    rng: np.random.Generator,
    searches: int = EXPLORED_SEARCHES,
) -> Procedure[list[WarmTask]]:
    """Solve a follower from its predicted answer and from spread points; return all ends.

    Searches that come near the first one's answer end there. If only one search starts from spread
    points, it starts from the one that is farthest from the predicted answer.
    """
    spec, known = follower.spec, follower.known
    predicted = yield from follower.start(x, np.ones(len(x)))
    points = spread_points(EXPLORED_POINTS + 4 * spec.n_each, spec.n, spec.blocks, rng)
    values = yield from known.evaluate(x, points)
    starts = basin_tasks(follower, x, points, values, EXPLORED_SEARCHES)
    if searches == 1:
        starts = [max(starts, key=lambda start: np.abs(start.pair.y - predicted.pair.y).max())]
    first = yield from follower.search_locally(predicted, known.tight, SLOW_ITERATIONS)
    others = yield from search_all(follower, starts, towards=first.pair)
    return with_best_parts(follower, [first, *others])


def has_several(follower: WarmFollower, ends: Sequence[WarmTask]) -> bool:
    """Tell whether searches of one follower ended at several answers, or none settled."""
    best, solved = best_of(ends), [end for end in ends if end.solved]
    return not solved or not all(is_same(follower.known, best, end) for end in solved)


def try_all_answers(follower: WarmFollower, tasks: Sequence[WarmTask]) -> Procedure[list[WarmTask]]:
    """Try the distinct answers of all tasks at each task's x; return tasks with the better ones."""
    answers = distinct_answers([task.pair.y for task in tasks])
    return (yield from together(try_answers(follower, task, answers) for task in tasks))


def try_answers(follower: WarmFollower, task: WarmTask, answers: FloatArray) -> Procedure[WarmTask]:
    """Search from the best of some answers (k, n), if it is better than a task's answer."""
    start = yield from follower.at(task.pair.x, answers)
    if task.better(start) is task:
        return task
    (new,) = yield from search_all(follower, [start])
    return task.better(new)


def distinct_answers(answers: Sequence[FloatArray]) -> FloatArray:
    """Return up to `MAX_BRANCHES` answers (k, n) that differ most from each other."""
    y = np.array(answers)
    chosen, distance = [0], np.abs(y - y[0]).max(axis=1)
    while len(chosen) < MAX_BRANCHES and distance.max() > DISTINCT:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.abs(y - y[chosen[-1]]).max(axis=1))
    return np.asarray(y[chosen])


def ties_of(task: WarmTask, found: Sequence[WarmTask], known: Experience) -> list[WarmTask]:
    """Return a task, and those of the found ones that are as good for the follower but differ."""
    chosen, limit = [task], task.pair.f + known.equal(task.pair.f)
    for other in found:
        pair = other.pair
        far = all(np.abs(pair.y - one.pair.y).max() > DISTINCT for one in chosen)
        if far and pair.lower_violation <= task.pair.lower_violation and pair.f <= limit:
            chosen.append(other)
    return chosen


@dataclass(slots=True, eq=False)
class Branch:
    """One branch of the follower: the answers that are known on it."""

    known: Experience

    @classmethod
    def at(cls, pair: Pair) -> Branch:
        known = Experience.none(len(pair.x), len(pair.y))
        known.learn(pair)
        return cls(known)

    def solve(
        self, state: LeaderView, follower: WarmFollower, x: FloatArray
    ) -> Procedure[WarmTask]:
        """Solve the follower at x by a local search from the branch's answer."""
        start = yield from follower.at(x, self.known.predictions(x, np.ones(len(x)), True))
        task = yield from follower.search_locally(start, state.known.tight)
        if self.is_near(task.pair):
            self.known.learn(task.pair)
        return task

    def is_near(self, pair: Pair) -> bool:
        """Tell whether an answer lies on the branch: it is near that of the nearest leader."""
        x, y = self.known.x, self.known.y
        nearest = int(np.abs(x - pair.x).max(axis=1).argmin())
        known = Pair(x[nearest], y[nearest], 0.0, 0.0)
        return not has_jumped(known, pair)


@dataclass(slots=True, eq=False)
class BranchPhi:
    """F along a branch, as a function that `sqp` can call.

    Its first constraint says that a rival branch is no better for the follower. `best` is the best
    pair that meets all constraints.
    """

    state: LeaderView
    follower: WarmFollower
    own: Branch
    rival: Branch
    best: WarmTask | None = None
    unit: float = 1.0  # the size of f, in which the first constraint is measured

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        state, follower = self.state, self.follower
        both = [(self.own, row) for row in rows] + [(self.rival, row) for row in rows]
        tasks = yield from together(branch.solve(state, follower, row) for branch, row in both)
        tasks, others = tasks[: len(rows)], tasks[len(rows) :]
        yield from state.evaluate_leaders(tasks)
        excess = np.array([t.pair.f - o.pair.f for t, o in zip(tasks, others, strict=True)])
        feasible = np.array([task.pair.lower_violation == 0 for task in tasks])
        lost = np.array([not self.own.is_near(task.pair) for task in tasks])
        F = np.array([task.pair.F for task in tasks])
        F = np.where(feasible & ~lost, F, np.inf)
        G = np.array([task.G for task in tasks]).reshape(len(tasks), -1)
        c = np.column_stack([excess / self.unit, G])
        c = np.where(np.isfinite(c), c, np.inf)
        violation = np.array([max(t.pair.violation, 0.0) for t in tasks])
        violation = np.where(np.isfinite(F), violation + np.maximum(c[:, 0], 0.0), np.inf)
        for i, task in enumerate(tasks):
            self.keep(task, float(F[i]), float(violation[i]))
        return Values(F, violation, c, state.spent)

    def keep(self, task: WarmTask, F: float, violation: float) -> None:
        """Keep a task whose pair is feasible if it is the best one so far."""
        if violation > 0 or not math.isfinite(F):
            return
        if self.best is None or F < self.best.pair.F:
            self.best = task


def descend_on_branch(
    state: LeaderView, follower: WarmFollower, own: Pair, rival: Pair
) -> Procedure[WarmTask | None]:
    """Search phi locally along the branch of `own`, where that of `rival` is no better.

    Both are answers to the same x. The search takes a small share of the budget at most. Returns
    the best task, or None if there is none.
    """
    most = state.total + BRANCH_SHARE * budget_of(follower.spec).total
    unit = max(state.known.unit, abs(own.f - rival.f))
    phi = BranchPhi(state, follower, Branch.at(own), Branch.at(rival), unit=unit)
    m = len(own.x)
    rule = leader_rule(
        state, StallTest(), lambda: state.total > most or may_end(follower.spec, state)
    )
    yield from sqp(phi, own.x, np.zeros(m), np.ones(m), rule)
    return phi.best


def has_jumped(one: Pair, other: Pair, slope: float = SLOPE) -> bool:
    """Tell whether the answer changes so much between two leaders that it may have jumped.

    It has jumped if it is feasible for one leader only.
    """
    if (one.lower_violation > 0) != (other.lower_violation > 0):
        return True
    away = float(np.abs(one.x - other.x).max())
    return float(np.abs(one.y - other.y).max()) > JUMP + slope * away


def nearest_jump(elite: Pair, steps: Sequence[WarmTask]) -> WarmTask | None:
    """Return the nearest step that is worse than the elite and has another answer; None if none."""
    jumped = [task for task in steps if has_jumped(elite, task.pair)]
    worse = [task for task in jumped if not task.pair.no_worse(elite)]
    return min(worse, key=lambda task: float(np.abs(task.pair.x - elite.x).max()), default=None)


def follow_jump(
    state: LeaderView, follower: WarmFollower, steps: Sequence[WarmTask]
) -> Procedure[None]:
    """Go from the elite towards the nearest step with another answer, up to where phi jumps."""
    good = WarmTask.of_pair(state.the_elite, np.empty(0))
    bad = nearest_jump(good.pair, steps)
    if bad is not None:
        found = yield from locate_change(state, follower, good, bad)
        if state.is_improved_by(found.pair):
            yield from state.accept_elite(found.pair)


def best_of_each_branch(tasks: Sequence[WarmTask], most: int) -> list[WarmTask]:
    """Return up to `most` tasks: the leader's best on each branch, and then the next best ones."""
    ranked = [tasks[i] for i in leader_ranking([task.pair for task in tasks])]
    chosen: list[WarmTask] = []
    for task in ranked:
        if all(has_jumped(task.pair, other.pair) for other in chosen):
            chosen.append(task)
    others = [task for task in ranked if task not in chosen]
    return (chosen + others)[:most]


def locate_change(
    state: LeaderView, follower: WarmFollower, one: WarmTask, other: WarmTask
) -> Procedure[WarmTask]:
    """Find by bisection where the answer jumps between two leaders; return the leader's best task.

    Both answers are tried at every leader in between. The bisection ends if the answer seems to
    change continuously (see `is_between`), or lies on a third branch. It also ends if the best F is
    not expected to become as good as that of the elite: with every bisection, F changes half as
    much as before.
    """
    changes = [math.inf, math.inf]
    best = one if one.pair.no_worse(other.pair) else other
    for _ in range(BISECTIONS):
        near = np.abs(one.pair.x - other.pair.x).max() < NEAREST
        if near or not has_jumped(one.pair, other.pair, slope=0.0):
            break
        points = np.array([one.pair.y, other.pair.y])
        starts = yield from tasks_at(follower, (one.pair.x + other.pair.x) / 2, points)
        ends = yield from search_all(follower, starts)
        ties = ties_of(best_of(ends), ends, state.known)
        yield from state.evaluate_leaders(ties)
        task = ties[int(leader_ranking([tie.pair for tie in ties])[0])]
        task = yield from state.resolve_ties(task)
        best = best if best.pair.no_worse(task.pair) else task
        if is_between(ends, one.pair, other.pair):
            break
        first = is_closer(task.pair, one.pair, other.pair)
        changes[not first] = abs(task.pair.F - (one if first else other).pair.F)
        one, other = (task, other) if first else (one, task)
        gain = 2 * max(changes)
        if best.pair.violation == 0 and best.pair.F - gain > state.the_elite.F:
            break
    return best


def locate_jumps(
    state: LeaderView,
    follower: WarmFollower,
    tasks: Sequence[WarmTask],
    explored: int,
) -> Procedure[list[WarmTask]]:
    """Locate jumps between leaders; return the best task at each.

    Exploring the leaders has taken `explored` evaluations.
    """
    most, found = state.total + LOCATING_SHARE * explored, []
    for pair in jumps_between(tasks):
        if state.total < most:
            found.append((yield from locate_change(state, follower, *pair)))
    return found


def is_between(ends: Sequence[WarmTask], one: Pair, other: Pair) -> bool:
    """Tell whether the answer changes continuously between two leaders.

    `ends` are where searches from both answers ended at a leader in between. They must have ended
    at one answer, and it must lie between the two. If only one of the leaders has a feasible
    answer, there is a change to locate.
    """
    first, second = (end.pair for end in ends)
    feasible = not any(pair.lower_violation for pair in (first, second, one, other))
    if not feasible or np.abs(first.y - second.y).max() > DISTINCT:
        return False
    jump = float(np.abs(one.y - other.y).max())
    least = min(float(np.abs(first.y - end.y).max()) for end in (one, other))
    return least > BETWEEN * jump


def is_closer(pair: Pair, one: Pair, other: Pair) -> bool:
    """Tell whether a pair's answer is more like that of `one` than that of `other`."""
    if (one.lower_violation > 0) != (other.lower_violation > 0):
        return (pair.lower_violation > 0) == (one.lower_violation > 0)
    to_one, to_other = np.abs(pair.y - one.y).max(), np.abs(pair.y - other.y).max()
    return bool(to_one <= to_other)


def jumps_between(tasks: Sequence[WarmTask]) -> list[tuple[WarmTask, WarmTask]]:
    """Return pairs of neighbours among leaders between which the answer may jump, the best first.

    Each leader is compared with the one nearest to it in each direction along each axis, which are
    all its neighbours if m is 1.
    """
    x = np.array([task.pair.x for task in tasks])
    found: dict[tuple[int, int], None] = {}
    for i, row in enumerate(x):
        away = x - row
        distance = np.abs(away).max(axis=1)
        for side in (away.T > 0).tolist() + (away.T < 0).tolist():
            apart = np.where(side, distance, np.inf)
            j = int(apart.argmin())
            if math.isfinite(apart[j]) and has_jumped(tasks[i].pair, tasks[j].pair, slope=0.0):
                found[min(i, j), max(i, j)] = None
    rank = {i: place for place, i in enumerate(leader_ranking([task.pair for task in tasks]))}
    order = sorted(found, key=lambda pair: (min(rank[pair[0]], rank[pair[1]]), pair))
    return [(tasks[i], tasks[j]) for i, j in order[:MAX_JUMPS]]
