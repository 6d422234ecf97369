"""The answer that models of a joint run have found: made exact, and checked once.

Where one simulation gives the values of both levels, models find answers, and drc-plus need not
look for the first one. A local search of the follower makes it exact. If it is not at the target
then, a descent follows. Then the follower is checked as thoroughly as usual, at once: a lighter
check before would be double work. As there is none, the check is strict: unless its local searches
are unanimous, two searches must agree.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bilevo.algorithms.drc_plus.basin_steps import probe_axes
from bilevo.algorithms.drc_plus.box_search import WIDE_STEPS, settle
from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.method import DRCPlus
from bilevo.algorithms.drc_plus.state import DRCPlusState
from bilevo.algorithms.shared.leader import reached
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure


def conclude(
    method: DRCPlus, spec: Spec, state: DRCPlusState, values: FloatArray
) -> Procedure[bool]:
    """Check the pair (x0, y0) that models have found, after a descent if that is needed.

    `values` (k,) of f set its scale. Returns False if local searches do not settle at the pair, so
    that drc-plus had better look for the first answer by itself.
    """
    before = state.total
    state.known.f_scale.see(values)
    task = yield from make_exact(method, spec, state)
    if task is None:
        return False
    yield from state.find_flat_directions(task.pair)
    task = yield from state.resolve_ties(task)
    state.known.learn(task.pair)
    yield from state.accept_elite(task.pair)
    if not reached(spec, state.the_elite):
        unchecked = replace(method, certificate=False)
        yield from unchecked.descend(spec, state, state.the_elite)
    if state.the_elite.check is None:
        yield from certify(method, spec, state)
    state.note_descent(before)
    yield from method.check_stop(spec, state)
    state.generation += 1
    return True


def certify(method: DRCPlus, spec: Spec, state: DRCPlusState) -> Procedure[None]:
    """Check the elite as thoroughly as usual; if it is refuted, descend from the better answer.

    No other check has looked at it, so this one is strict (see certificate).
    """
    state.known.strict = True
    rival = yield from method.certify_elite(spec, state, 1.0)
    state.known.strict = False
    if rival is not None and method.may_descend(state):
        yield from method.descend(spec, state, state.the_elite)


def make_exact(method: DRCPlus, spec: Spec, state: DRCPlusState) -> Procedure[WarmTask | None]:
    """Return the pair (x0, y0) with its answer made exact, or None if the search does not settle.

    If F is not at the target, a few wide steps look for better basins of f, because a descent with
    answers in a wrong basin leads astray.
    """
    assert spec.x0 is not None and spec.y0 is not None
    follower = method.follower(spec, state)
    start = yield from follower.at(np.array(spec.x0), np.array(spec.y0)[None])
    task = yield from settle(follower, start)
    if not task.solved or task.pair.lower_violation > 0:
        return None
    state.known.count(task.smooth)
    yield from state.evaluate_leaders([task])
    if not reached(spec, task.pair):
        task = yield from probe_axes(follower, task, WIDE_STEPS)
        yield from state.evaluate_leaders([task])
    return task
