"""Searches of the follower's whole box: by CMA-ES, and from points spread over the box.

CMA-ES follows the large-scale shape of f, so ripples do not stop it. Local searches from spread
points find basins that lie off this large-scale shape. A certificate needs both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bilevo.algorithms.drc_plus.basin_steps import probe_axes
from bilevo.algorithms.drc_plus.experience import (
    DISTINCT,
    ENOUGH_SEARCHES,
    WIDE,
    Experience,
    WarmTask,
    best_of,
    counted,
)
from bilevo.algorithms.drc_plus.local_follower import (
    AROUND_WIDTH,
    ITERATIONS,
    LocalFollower,
    free,
)
from bilevo.algorithms.shared.blocks import basin_answers, spread_points, values_together
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch, Pair
from bilevo.algorithms.shared.independent_search import basin_points
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import interquartile_range
from bilevo.core.feasibility import FIRST as SCALE_POINTS
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Values, relayed, split, together
from bilevo.core.tolerances import AGREEMENT, rounding
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start

BASIN_WIDTH = 0.01  # CMA-ES has found a basin if its deviations are smaller (fractions of the box).
FEW_POINTS = 6  # The first follower is evaluated at this number plus n spread points,
FIRST_SEARCHES = 4  # and at most this many local searches start from these points.
# If fewer points than this have no better neighbour, the best other points are starts, too. These
# lie around the answer, so more of them would show no other basin.
FEWEST_STARTS = 3
FEW_ITERATIONS = ITERATIONS // 5  # The most iterations of a local search among many.
CONVERGED = 1e-9  # CMA-ES ends if f changes by less, in units of the scale of f.
MAX_RESTARTS = 8  # The most restarts of CMA-ES where f is not smooth.
WIDE_STEPS = 4  # So many of them test an answer that another search has found.


def first_answers(spec: Spec) -> FloatArray:
    """Return the answers (k, n) that a run begins with: the middle of the box, and maybe y0."""
    middle = np.full(spec.n, 0.5)
    return np.array([middle] if spec.y0 is None else [middle, spec.y0])


def search_first(
    follower: LocalFollower, start: WarmTask, rng: np.random.Generator, is_answer: bool = False
) -> Procedure[WarmTask]:
    """Search the first leader's follower, from scratch and maybe from the user's y0.

    `start` is at the best of `first_answers`. If the search from scratch ends at a worse answer
    than y0, a local search from y0 follows. If y0 `is_answer`, it is made exact instead.
    """
    if is_answer:
        return (yield from settle_first(follower, start, rng))
    found = yield from find_first_answer(follower, start.pair.x, rng)
    if follower.spec.y0 is None or found.pair.follower_no_worse(start.pair):
        return found
    return start.better((yield from follower.search_afresh(start)))


def settle_first(
    follower: LocalFollower, start: WarmTask, rng: np.random.Generator
) -> Procedure[WarmTask]:
    """Search the first leader's follower from an answer that another search has found.

    Points all over the box set the scale of f, and a few wide steps look for better basins. More
    is left to the check of the answer (see certificate).
    """
    x, known = start.pair.x, follower.known
    _, values = yield from look_all_over(follower, x, rng)
    found = yield from settle(follower, start)
    known.renew_scale_at(found, interquartile_range(values.objective))
    if not found.solved:
        return (yield from search_box(follower, x, rng)).better(found)
    known.count(found.smooth)
    return (yield from probe_axes(follower, found, WIDE_STEPS))


def search_box(
    follower: LocalFollower,
    x: FloatArray,
    rng: np.random.Generator,
    relaxed: bool = False,
    doublings: int = 0,
    exact: bool = False,
) -> Procedure[WarmTask]:
    """Search the whole box by CMA-ES until it has found a basin, and then search locally.

    If `relaxed`, CMA-ES ignores constraints. Constraints may cut the box into parts. So if there
    are any, local searches start from random points too. If the local search does not settle, f is
    not smooth, and CMA-ES continues. If `exact`, it does so until f changes no more. `doublings`
    says how often the usual population of CMA-ES is doubled. Returns the best task.
    """
    n, known = follower.spec.n, follower.known
    cma = CMAES(CMAES().population_size(n) << doublings)
    usual = FollowerRule.of(follower.spec.budget, cma.population_size(n))
    search = yield from find_basin(follower, x, rng, cma, relaxed, usual.longest)
    found = yield from follower.at(x, search.answer.y[None])
    new = yield from follower.search_afresh(found)
    if new.pair.lower_violation == 0:
        known.count(new.smooth)
    if found.lower.constraints.size and not relaxed:
        new = yield from search_from(follower, x, rng.random((n + 3, n)), new)
    elif math.isfinite(new.pair.f):
        new = yield from probe_axes(follower, new)
    if new.solved:
        return new
    search.best, search.constraints = replace(found.pair, check=None), found.lower.constraints[0]
    window = 3 * usual.window if exact else usual.window
    search.rule = FollowerRule(window, longest=10**3, absolute=CONVERGED, relative=0.0)
    restarts = MAX_RESTARTS if exact else 1
    yield from counted(converge(search, cma, restarts, 0.1 * AGREEMENT * known.unit), known)
    return WarmTask.of_search(search).better(new)


def find_first_answer(
    follower: LocalFollower, x: FloatArray, rng: np.random.Generator
) -> Procedure[WarmTask]:
    """Search a follower of which nothing is known; return the best task.

    Local searches start from a few spread points. If they do not end at the same answer, f has
    several basins, and steps along the axes look for better ones. If f is not smooth, the whole box
    is searched. In both cases a search also crosses constraints.
    """
    known = follower.known
    points, values = yield from look_all_over(follower, x, rng)
    starts = basin_tasks(follower, x, points, values, FIRST_SEARCHES)
    spread = interquartile_range(values.objective)
    first, others = yield from search_from_best(follower, starts, spread)
    best = best_of(with_best_parts(follower, [first, *others]))
    if not best.solved:
        best = (yield from search_box(follower, x, rng)).better(best)
        return (yield from cross_constraints(follower, best))
    known.count(best.smooth)
    if all(is_same(known, first, other) for other in others if other.solved):
        return best
    best = yield from cross_constraints(follower, best)
    return (yield from probe_axes(follower, best))


def search_from_best(
    follower: LocalFollower, starts: list[WarmTask], over_box: float
) -> Procedure[tuple[WarmTask, list[WarmTask]]]:
    """Search from the first start, and from others until they come near where that has ended.

    If the follower is `wide`, these searches run side by side. The first one sets the scale of f,
    which differs by `over_box` over the box.
    """
    pair = starts[0].pair
    goal = replace(pair, y=np.full(len(pair.y), np.nan))  # nothing is near it until it is known

    def search_best() -> Procedure[list[WarmTask]]:
        first = yield from settle(follower, starts[0])
        follower.known.renew_scale_at(first, over_box)
        goal.y[:], goal.f = first.pair.y, first.pair.f
        return [first]

    def search_others() -> Procedure[list[WarmTask]]:
        return (yield from search_all(follower, starts[1:], towards=goal))

    if follower.wide:
        (first,), others = yield from together([search_best(), search_others()])
    else:
        (first,), others = (yield from search_best()), (yield from search_others())
    return first, others


def cross_constraints(follower: LocalFollower, task: WarmTask) -> Procedure[WarmTask]:
    """Search without constraints, and with them from where that ends; return the better task.

    Constraints may cut the box into parts, and other searches end at their edges.
    """
    if not task.lower.constraints.size:
        return task
    freed = yield from follower.search_freely(task, follower.known.tight)
    start = yield from follower.at(task.pair.x, freed.pair.y[None])
    return task.better((yield from follower.search_afresh(start)))


def look_all_over(
    follower: LocalFollower, x: FloatArray, rng: np.random.Generator
) -> Procedure[tuple[FloatArray, Values]]:
    """Return spread points (k, n) of the follower's box, and the values there."""
    n, known, blocks = follower.spec.n, follower.known, follower.spec.blocks
    count = FEW_POINTS + follower.spec.n_each
    points = np.concatenate([np.full((1, n), 0.5), spread_points(count, n, blocks, rng)])
    values = yield from known.evaluate(x, points)
    missing = SCALE_POINTS - len(points)
    if values.constraints.size and missing > 0:  # points all over the box set constraints' scales
        more = spread_points(missing, n, blocks, rng)
        values = joined([values, (yield from known.evaluate(x, more))])
        points = np.concatenate([points, more])
    return points, values


def joined(found: Sequence[Values]) -> Values:
    """Return the values of several requests as one."""
    rows = [np.concatenate([values[i] for values in found]) for i in range(3)]
    parts = [values.parts for values in found if values.parts is not None]
    every = np.concatenate(parts) if len(parts) == len(found) else None
    return Values(rows[0], rows[1], rows[2], found[-1].spent, every)


def is_same(known: Experience, one: WarmTask, other: WarmTask) -> bool:
    """Tell whether two searches ended at the same answer, or one of them near that of the other."""
    near = np.abs(one.pair.y - other.pair.y).max() <= DISTINCT
    return bool(near) or known.agree(one.pair, other.pair)


def settle(follower: LocalFollower, start: WarmTask) -> Procedure[WarmTask]:
    """Search locally from a task; if that takes long, go on with a measured Hessian."""
    task = yield from follower.search_afresh(start, FEW_ITERATIONS)
    constrained = task.lower.constraints.size > 0
    if task.solved or constrained or not math.isfinite(task.pair.f):
        return task
    hessian = yield from follower.known.measure_hessian(task.pair)
    if hessian is None:
        return task
    with_measured = replace(task, hessian=None)
    return (yield from follower.search_locally(with_measured, follower.known.tight))


def converge(
    search: FollowerSearch, cma: CMAES, restarts: int, tolerance: float
) -> Procedure[None]:
    """Continue a search by CMA-ES, and restart it where it ends, until f changes no more.

    CMA-ES ends when its step size has changed a hundredfold, which is too early at a kink. The
    search is run at most `restarts` times. f changes no more if a run gains at most `tolerance`.
    """
    for number in range(restarts):
        before, search.finished = search.answer.f, False
        yield from search.solve()
        if number and not before - search.answer.f > tolerance:
            break
        state = search.search
        covariance = state.sigma**2 * state.C
        start = Start(search.answer.y, covariance, np.zeros(len(covariance)))
        search.search = cma.start(start)
        search.record.clear()


def find_basin(
    follower: LocalFollower,
    x: FloatArray,
    rng: np.random.Generator,
    cma: CMAES,
    relaxed: bool,
    patience: int,
) -> Procedure[FollowerSearch]:
    """Run CMA-ES until it is narrow; stop after `patience` generations without a finite f.

    The scale of f is renewed by the spreads of f in the first and in the last generation.
    """
    spec, known = follower.spec, follower.known
    state = cma.start(Start.uniform(spec.spread[spec.m :], rng))
    rule = FollowerRule(window=10**9, longest=100 + 50 * spec.n)
    search = FollowerSearch(x, cma, state, rng, rule, known.f_scale)
    spreads: list[float] = []

    def seen(level: Level, values: Values) -> Values:
        known.spent = values.spent
        spreads.append(interquartile_range(values.objective))
        return free(values) if relaxed else values

    while not search.finished:
        yield from relayed(search.execute(), lambda request: request, seen)
        widest = float(state.sigma**2 * state.C.diagonal().max())
        failed = math.isinf(search.answer.f) and search.executions >= patience
        search.finished |= failed or widest < BASIN_WIDTH**2
    known.renew_scale(spreads[0], spreads[-1] * WIDE**2 / widest, search.answer.f)
    return search


def search_from(
    follower: LocalFollower, x: FloatArray, points: FloatArray, best: WarmTask
) -> Procedure[WarmTask]:
    """Return the best of a task and of local searches from some points (k, n)."""
    starts = yield from tasks_at(follower, x, points)
    for new in (yield from search_all(follower, starts)):
        best = best.better(new)
    if best.solved or best.pair.lower_violation > 0:
        return best
    return (yield from follower.search_locally(best, follower.known.tight)).better(best)


def tasks_at(
    follower: LocalFollower, x: FloatArray, points: FloatArray
) -> Procedure[list[WarmTask]]:
    """Evaluate points (k, n) in one batch, and return a task at each."""
    values = yield from follower.known.evaluate(x, points)
    rows = zip(points, split(values, [1] * len(points)), strict=True)
    return [WarmTask.at(x, point[None], row) for point, row in rows]


def search_all(
    follower: LocalFollower,
    starts: list[WarmTask],
    iterations: int = FEW_ITERATIONS,
    towards: Pair | None = None,
) -> Procedure[list[WarmTask]]:
    """Search locally from all tasks side by side, each for a few iterations."""
    return (yield from together(follower.search_afresh(s, iterations, towards) for s in starts))


def test_smoothness(
    follower: LocalFollower, task: WarmTask, rng: np.random.Generator
) -> Procedure[None]:
    """Search locally from points around an answer, to learn whether f is smooth.

    `Experience.count` counts which of the searches settle. There are as many as are still missing
    to `ENOUGH_SEARCHES`.
    """
    known, y = follower.known, task.pair.y
    missing = ENOUGH_SEARCHES - known.searches
    if missing <= 0 or not math.isfinite(task.pair.f):
        return
    points = np.clip(y + AROUND_WIDTH * rng.standard_normal((missing, len(y))), 0.0, 1.0)
    starts = yield from tasks_at(follower, task.pair.x, points)
    for new in (yield from search_all(follower, starts, ITERATIONS // 20)):
        if new.pair.lower_violation == 0:
            known.count(new.smooth)


def search_points(
    follower: LocalFollower,
    x: FloatArray,
    points: FloatArray,
    most: int,
    towards: Pair | None = None,
) -> Procedure[tuple[list[WarmTask], Values]]:
    """Search locally from up to `most` of the points (k, n) that have no better neighbour.

    Returns a task for the end of each search, and the values at the points.
    """
    values = yield from follower.known.evaluate(x, points)
    starts = basin_tasks(follower, x, points, values, most)
    return (yield from search_all(follower, starts, towards=towards)), values


def basin_tasks(
    follower: LocalFollower, x: FloatArray, points: FloatArray, values: Values, most: int
) -> list[WarmTask]:
    """Return tasks at up to `most` of the points (k, n) that have no better neighbour."""
    blocks, fewest = follower.spec.blocks, min(most // 2, FEWEST_STARTS)
    if blocks is None:
        chosen = basin_points(points, values, 0, most, fewest)
        rows = [(points[i : i + 1], values.part(i, i + 1)) for i in chosen]
    else:
        y, found = basin_answers(points, values, blocks, most, fewest)
        rows = [(y[i : i + 1], found.part(i, i + 1)) for i in range(len(y))]
    return [WarmTask.at(x, *row) for row in rows]


def with_best_parts(follower: LocalFollower, tasks: list[WarmTask]) -> list[WarmTask]:
    """Return tasks of one x, and one with the best answer of each follower, if that is better.

    Only independent followers that one point probes have such a task; its values are known.
    """
    blocks, known = follower.spec.blocks, [task for task in tasks if task.lower.parts is not None]
    if blocks is None or not known:
        return tasks
    parts = np.concatenate([task.lower.parts for task in known if task.lower.parts is not None])
    best, chosen = best_of(known), np.argmin(parts, axis=0)
    lowest = parts[chosen, np.arange(len(blocks))]
    values = values_together(lowest[None], follower.known.spent)
    f, violation = float(values.objective[0]), float(values.violation[0])
    if not f < best.pair.f - rounding(best.pair.f):
        return tasks
    y = np.empty(follower.spec.n)
    for i, block in zip(chosen, blocks, strict=True):
        y[block] = known[i].pair.y[block]
    used = [known[i] for i in set(chosen.tolist())]
    fine = all(task.solved and not task.arrived for task in used)
    pair = Pair(best.pair.x, y, f, violation, converged=fine)
    return [*tasks, WarmTask(pair, values, solved=fine, smooth=all(task.smooth for task in used))]
