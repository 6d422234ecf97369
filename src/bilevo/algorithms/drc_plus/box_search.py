"""Searches of the follower's whole box: by CMA-ES, and from points spread over the box.

CMA-ES follows the large-scale shape of f, so ripples do not stop it. Local searches from spread
points find basins that lie off this large-scale shape. A certificate needs both.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bilevo.algorithms.drc_plus.experience import ENOUGH_SEARCHES, WarmTask
from bilevo.algorithms.drc_plus.local_follower import (
    AROUND_WIDTH,
    ITERATIONS,
    LocalFollower,
    free,
)
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch
from bilevo.algorithms.shared.independent_search import basin_points
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import interquartile_range
from bilevo.core.request import Level, Procedure, Values, relayed, split, together
from bilevo.core.tolerances import AGREEMENT
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start
from bilevo.optimizers.sampling import latin_hypercube

BASIN_WIDTH = 0.01  # CMA-ES has found a basin if its deviations are smaller (fractions of the box).
FULL_WIDTH = 0.3  # The first deviations of a search of the whole box, as fractions of the box.
CONVERGED = 1e-9  # CMA-ES ends if f changes by less, in units of the scale of f.
MAX_RESTARTS = 8  # The most restarts of CMA-ES where f is not smooth.
PROBE_STEPS = 0.2 * 1.5 ** -np.arange(12.0)  # Steps that probe for basins (fractions of the box).


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
    elif follower.probes and math.isfinite(new.pair.f):
        new = yield from probe_axes(follower, new)
    if new.solved:
        return new
    search.best, search.constraints = replace(found.pair), found.lower.constraints[0]
    window = 3 * usual.window if exact else usual.window
    search.rule = FollowerRule(window, longest=10**3, absolute=CONVERGED, relative=0.0)
    restarts = MAX_RESTARTS if exact else 1
    yield from converge(search, cma, restarts, 0.1 * AGREEMENT * known.unit)
    return WarmTask.of_search(search).better(new)


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
        spreads.append(interquartile_range(values.objective))
        return free(values) if relaxed else values

    widest = FULL_WIDTH**2
    while not search.finished:
        yield from relayed(search.execute(), lambda request: request, seen)
        widest = float(state.sigma**2 * state.C.diagonal().max())
        failed = math.isinf(search.answer.f) and search.executions >= patience
        search.finished |= failed or widest < BASIN_WIDTH**2
    known.renew_scale(spreads[0], spreads[-1] * FULL_WIDTH**2 / widest, search.answer.f)
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
    follower: LocalFollower, starts: list[WarmTask], iterations: int = ITERATIONS // 10
) -> Procedure[list[WarmTask]]:
    """Search locally from all tasks side by side, each for a few iterations."""
    return (yield from together(follower.search_afresh(s, iterations) for s in starts))


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


def probe_axes(follower: LocalFollower, task: WarmTask) -> Procedure[WarmTask]:
    """Step along the axes, and search again from a better point, as long as there is one.

    Returns the task with the best answer.
    """
    x, n, known = task.pair.x, len(task.pair.y), follower.known
    steps = np.concatenate([PROBE_STEPS, -PROBE_STEPS])
    for _ in range(8):
        y = task.pair.y
        rows = np.clip(y + (steps[:, None, None] * np.eye(n)).reshape(-1, n), 0.0, 1.0)
        values = yield from known.evaluate(x, rows)
        gains = (task.pair.f - values.objective).reshape(-1, n)  # -inf where f failed
        least = known.tie(task.pair.f)
        if gains.max() <= least:
            break
        best = gains.argmax(axis=0)
        moved = y + np.where(gains.max(axis=0) > least, steps[best], 0.0)
        points = np.array([np.clip(moved, 0.0, 1.0), rows[int(gains.argmax())]])
        start = yield from follower.at(x, points)
        new = task.better((yield from follower.search_afresh(start)))
        if new is task:
            break
        task = new
    return task


def search_spread_points(
    follower: LocalFollower, x: FloatArray, rng: np.random.Generator, count: int, most: int
) -> Procedure[list[WarmTask]]:
    """Search locally from those of `count` spread points that have no better neighbour.

    At most `most` local searches are made. Returns a task for the end of each search.
    """
    points = latin_hypercube(count, follower.spec.n, rng)
    values = yield from follower.known.evaluate(x, points)
    chosen = basin_points(points, values, 0, most)
    starts = [WarmTask.at(x, points[i : i + 1], values.part(i, i + 1)) for i in chosen]
    return (yield from search_all(follower, starts))
