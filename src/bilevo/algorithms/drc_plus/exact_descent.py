"""Exact descents: they show whether the leader's search has converged.

Usual descents save evaluations: their slopes are one-sided, and their curvatures are learnt step by
step. Where curvatures of phi differ by many orders in directions that are not those of the axes, a
small error of a slope hides a large gain, and a descent ends too early. An exact descent has slopes
by central differences, and measures the whole Hessian if that does not cost too much. It follows a
usual one that ended where phi does not seem to be smooth. And before a run ends by itself, it
descends exactly from its elite, until that gains nothing. A run that cannot show this goes on, and
has no success if its budget ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bilevo.algorithms.drc_plus.descent import (
    Phi,
    StallTest,
    is_smooth_end,
    leader_rule,
    may_end,
)
from bilevo.algorithms.drc_plus.leader_view import LEADER_TOLERANCE, is_better
from bilevo.algorithms.drc_plus.state import DRCPlusState, LeaderSearch, budget_of
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.polish import curvature_at
from bilevo.algorithms.shared.sqp import SearchEnd, sqp
from bilevo.core.arrays import TINY, FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure
from bilevo.core.stop_rules import AtTarget, first_met
from bilevo.core.tolerances import ALIKE

HESSIAN_DIFFERENCE = 1e-4  # Differences that give the Hessian of phi (fraction of the box).
LEAST_CURVATURE = 1e-10  # Smaller curvatures count as this fraction of the largest one.
SHARE = 0.2  # A Hessian is measured only if it takes at most this share of what was spent so far.
MOST_ROUNDS = 20  # The most descents, of which all but the last have gained something.

Polish = Callable[[FloatArray, float], Procedure[None]]  # from a Hessian, and what is left to gain


def settle_elite(
    spec: Spec, state: DRCPlusState, follower: WarmFollower, polish: Polish
) -> Procedure[bool]:
    """Descend from the elite until that gains nothing; tell whether this was reached.

    Where phi has a kink, `polish` searches between two descents.
    """
    for _ in range(MOST_ROUNDS):
        before, tolerance = state.the_elite, exact_tolerance(state)
        end = yield from descend_exactly(state, follower)
        if may_end(spec, state):
            return False
        if not is_better(state.the_elite, before, tolerance):
            return True
        if not is_smooth_end(state, end) and end.hessian is not None:
            yield from polish(end.hessian, end.left)
    return False


def go_on_exactly(
    spec: Spec, state: DRCPlusState, follower: WarmFollower, end: SearchEnd
) -> Procedure[SearchEnd]:
    """Return the end of an exact descent from the elite, or the given end if it costs too much.

    With constraints no Hessian is measured, and a descent by differences is long.
    """
    if state.constrained or may_end(spec, state) or hessian_cost(spec) > SHARE * state.total:
        return end
    return (yield from descend_exactly(state, follower))


def hessian_cost(spec: Spec) -> int:
    """Return about how many evaluations a Hessian of phi takes: n + 3 for each follower."""
    return spec.m * (spec.m + 1) * (spec.n + 3)


def is_affordable(phi: Phi, x: FloatArray) -> Procedure[bool]:
    """Tell whether a Hessian of phi at x (m,) takes a small share of what was spent so far.

    If it seems so, the follower of one neighbour is solved first, to see what followers really cost
    here: in a curved valley of f they may cost twenty times as much as elsewhere. All variables of
    the neighbour differ, because the follower may not feel some of them.
    """
    state, spec = phi.state, phi.follower.spec
    if hessian_cost(spec) > SHARE * state.total:
        return False
    before = state.total
    yield from phi.solved(x + np.where(x < 0.5, HESSIAN_DIFFERENCE, -HESSIAN_DIFFERENCE))
    return spec.m * (spec.m + 1) * (state.total - before) <= SHARE * state.total


def sample_on(
    spec: Spec,
    state: DRCPlusState,
    search: LeaderSearch,
    sample: Callable[[LeaderSearch], Procedure[None]],
) -> Procedure[None]:
    """Make generations of a search by CMA-ES until it ends, or gains little."""
    record = [state.the_elite.F]
    ends = AtTarget(spec.target), budget_of(spec)
    while not (search.ended or first_met(ends, state.progress())):
        yield from sample(search)
        record.append(state.the_elite.F)
        if len(record) > 10 and record[-10] - record[-1] <= 0.05 * (record[0] - record[-1]):
            break


def descend_exactly(state: DRCPlusState, follower: WarmFollower) -> Procedure[SearchEnd]:
    """Descend from the elite with slopes by central differences, and maybe a measured Hessian.

    With constraints, a search needs the Hessian of the Lagrangian instead.
    """
    elite = state.the_elite
    phi = Phi(state, follower, relaxed=False, repairs=elite.lower_violation > 0, adjoint=False)
    hessian, spec = None, follower.spec
    if not state.constrained and (yield from is_affordable(phi, elite.x)):
        hessian = yield from measured_hessian(phi, elite.x)
    start = state.the_elite.x
    rule = leader_rule(state, StallTest(), phi.over)
    rule = replace(rule, tolerance=exact_tolerance(state), central=True)
    return (yield from sqp(phi, start, np.zeros(spec.m), np.ones(spec.m), rule, hessian))


def exact_tolerance(state: DRCPlusState) -> float:
    """Return the least gain in F that such a descent looks for.

    It is the tolerance of usual descents. But where F varies by many orders over the box, that
    tolerance may be large beside F at the elite, and then a difference of F counts if it is seen.
    """
    seen = ALIKE * (1 + abs(state.the_elite.F)) / state.F_scale.tolerance(1.0)
    return state.F_tolerance(min(LEADER_TOLERANCE, seen))


def measured_hessian(phi: Phi, x: FloatArray) -> Procedure[FloatArray | None]:
    """Return the Hessian of phi at x (m,), made positive definite; None if it is not available."""
    model = yield from curvature_at(phi, x, HESSIAN_DIFFERENCE)
    if model is None:
        return None
    curvatures, directions = model.axes()
    sizes = np.abs(curvatures)
    floor = LEAST_CURVATURE * float(sizes.max()) + TINY
    return np.asarray((directions.T * np.maximum(sizes, floor)) @ directions)
