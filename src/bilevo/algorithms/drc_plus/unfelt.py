"""Leader variables that the follower does not feel.

If f is a sum of a function of some leader variables and of a function of all others and y, these
variables do not change the follower's answer. Then F can be searched over them at a fixed answer,
for one upper evaluation a point. That variables are not felt is a hypothesis of the run:

- Each variable is moved far away once, and slopes of f and g around the elite's answer are compared
  with those before. Variables that change no slope seem to be unfelt.
- Before each search, all of them are moved at once, and slopes are compared again.
- The follower is solved at the best x that was found. If it has a better answer there than the
  elite's, the hypothesis is given up. Only this solved pair is used by the run.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.leader_view import LEADER_TOLERANCE, is_better
from bilevo.algorithms.drc_plus.state import DRCPlusState
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.arrays import IntArray
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import Level, Procedure, evaluate
from bilevo.core.tolerances import rounding
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start

STEP = 1e-3  # The step of slopes that are compared, as a fraction of the box.
SAME_SLOPE = 1e-6  # Slopes are the same if they differ by less than this part of the largest.
MAX_DOUBLINGS = 3  # How often the usual population is doubled in later searches, at most.
ENOUGH_FRUITLESS = 3  # No more searches are made after this many fruitless ones.
NARROWED = 1e-3  # A wide search over unfelt variables ends if its deviations are smaller,
EXACT = 1e-8  # and a search around the elite if they are smaller than this.
AROUND = 3e-3  # The first deviations of a search around the elite, as fractions of the box.


def search_unfelt(
    state: DRCPlusState, follower: WarmFollower, rng: np.random.Generator
) -> Procedure[WarmTask | None]:
    """Search F over the variables that the follower does not feel, from the elite's answer.

    A pair that is better than the elite becomes the elite. Returns its task, or None if there is
    none. After some fruitless searches of the whole range, no more of them are made. Around the
    elite, F is searched exactly, unless a descent has shown that it is smooth there.
    """
    unfelt, elite = state.unfelt, state.the_elite
    if not math.isfinite(elite.F):
        return None
    if not unfelt.tested:
        unfelt.variables = yield from find_unfelt(state, rng)
        unfelt.tested = True
    wide = unfelt.fruitless < ENOUGH_FRUITLESS
    exact = state.kinked and not unfelt.is_exact(elite.x)
    if not len(unfelt.variables) or not (wide or exact):
        return None
    together = [unfelt.variables]
    if len(unfelt.variables) > 1 and not (yield from leave_slopes(state, together, rng))[0]:
        unfelt.variables = unfelt.variables[:0]
        return None
    best = elite
    if wide:
        best = yield from search_widely(state, rng)
        unfelt.fruitless = 0 if is_clearly_better(state, best, elite) else unfelt.fruitless + 1
    if exact or (best is not elite and not unfelt.is_exact(best.x)):
        best = yield from search_around(state, best, rng)
        unfelt.exact = best.x[unfelt.variables]
    return (yield from solve_again(state, follower, best))


def solve_again(
    state: DRCPlusState, follower: WarmFollower, found: Pair
) -> Procedure[WarmTask | None]:
    """Solve the follower at the best x found, whose answer is the elite's; None if it is no better.

    If f is lower elsewhere, the hypothesis is given up. Otherwise the elite's answer is kept, so
    that F is compared without errors of answers.
    """
    unfelt, elite = state.unfelt, state.the_elite
    if not is_clearly_better(state, found, elite):
        return None
    start = yield from follower.at(found.x, found.y[None])
    task = yield from follower.search_locally(start, state.known.tight)
    if start.pair.f - task.pair.f > state.known.tie(task.pair.f):
        unfelt.variables = unfelt.variables[:0]
    else:
        task = replace(task, pair=replace(start.pair, converged=True), lower=start.lower)
    yield from state.evaluate_leaders([task])
    state.known.learn(task.pair)
    if not is_clearly_better(state, task.pair, elite):
        return None
    yield from state.accept_elite(task.pair)
    return task


def is_clearly_better(state: DRCPlusState, pair: Pair, elite: Pair) -> bool:
    """Tell whether a pair with the elite's answer is better than the elite."""
    return is_better(pair, elite, state.F_scale.tolerance(LEADER_TOLERANCE))


def find_unfelt(state: DRCPlusState, rng: np.random.Generator) -> Procedure[IntArray]:
    """Return the variables that change no slope of f and g when they are moved one by one."""
    each = [np.array([i]) for i in range(len(state.the_elite.x))]
    kept = yield from leave_slopes(state, each, rng)
    return np.flatnonzero(kept)


def leave_slopes(
    state: DRCPlusState, groups: list[IntArray], rng: np.random.Generator
) -> Procedure[list[bool]]:
    """Tell for each group of variables whether moving it far leaves slopes of f and g as they are.

    The slopes are those around the elite's answer. g itself must stay as it is, too.
    """
    elite = state.the_elite
    n, moved = len(elite.y), [elite.x]
    for group in groups:
        far = elite.x.copy()
        far[group] = rng.random(len(group))
        moved.append(far)
    steps = np.where(elite.y > 0.5, -STEP, STEP)
    rows = np.concatenate([elite.y[None], elite.y + np.diag(steps)])
    x = np.repeat(np.array(moved), n + 1, axis=0)
    values = yield from evaluate(Level.LOWER, x, np.concatenate([rows] * len(moved)))
    state.known.spent = values.spent
    found = np.column_stack([values.objective, values.constraints]).reshape(len(moved), n + 1, -1)
    finite = np.asarray(np.isfinite(found).all(axis=(1, 2)))
    with np.errstate(all="ignore"):
        slopes = found[:, 1:] - found[:, :1]
        sizes = np.abs(found[finite]).max(axis=(0, 1), initial=0.0)  # of f and of each g
        noise = np.array([10 * rounding(float(size)) for size in sizes])
        allowed = SAME_SLOPE * np.abs(slopes[0]).max(axis=0) + noise
        same = (np.abs(slopes[1:] - slopes[0]) <= allowed).all(axis=(1, 2))
    same &= (found[1:, 0, 1:] == found[0, 0, 1:]).all(axis=1)
    return [bool(one) for one in same & finite[0] & finite[1:]]


def search_widely(state: DRCPlusState, rng: np.random.Generator) -> Procedure[Pair]:
    """Search F over the whole range of unfelt variables; later searches are larger."""
    unfelt, k = state.unfelt, len(state.unfelt.variables)
    cma = CMAES(CMAES().population_size(k) << min(unfelt.searches // 2, MAX_DOUBLINGS))
    unfelt.searches += 1
    start = Start.uniform(np.full(k, 0.3), rng)
    return (yield from search_leader(state, state.the_elite, cma, start, NARROWED, rng))


def search_around(state: DRCPlusState, pair: Pair, rng: np.random.Generator) -> Procedure[Pair]:
    """Search F around a pair's unfelt variables, exactly: at a kink of F, a descent ends early."""
    k = len(state.unfelt.variables)
    cma, around = CMAES(CMAES().population_size(k)), pair.x[state.unfelt.variables]
    start = Start(around, AROUND**2 * np.eye(k), np.zeros(k))
    return (yield from search_leader(state, pair, cma, start, EXACT, rng))


def search_leader(
    state: DRCPlusState,
    best: Pair,
    cma: CMAES,
    start: Start,
    narrow: float,
    rng: np.random.Generator,
) -> Procedure[Pair]:
    """Search F by CMA-ES over unfelt variables at a pair's answer, until deviations are narrow.

    Returns the best pair. Its f is not known, unless it is the pair given.
    """
    chosen, search = state.unfelt.variables, cma.start(start)
    for _ in range(100 + 50 * len(chosen)):
        asked = cma.ask(search, rng)
        x = np.repeat(best.x[None], len(asked), axis=0)
        x[:, chosen] = asked
        values = yield from evaluate(Level.UPPER, x, np.repeat(best.y[None], len(x), axis=0))
        state.spent = values.spent
        cma.tell(search, asked, values.objective, values.violation)
        i = best_index(values.objective, values.violation)
        F, violation = float(values.objective[i]), float(values.violation[i])
        if not no_worse(best.F, best.violation, F, violation):
            best = replace(best, x=x[i], F=F, violation=violation, check=None)
        if search.sigma**2 * search.C.diagonal().max() < narrow**2:
            break
    return best
