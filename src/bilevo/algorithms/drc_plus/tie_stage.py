"""The end of a drc-plus run whose followers have ties.

Searches of drc-plus see a tie if independent searches end at different answers with the same f, or
if f is level along straight directions. They do not search ranges of ties in full. So if a run has
seen ties and is about to end without a target, nested-ties makes a round from its elite. That round
also finds the best and the worst F among the ties at the answer.

Where ties lie on active constraints, and the leader prefers some of them, descents of drc-plus
cannot follow the tie that the leader expects. Then this stage begins at once.

Where f varies less over the follower's box than differences of f that count elsewhere, the follower
is nearly indifferent. Such a run has this stage, too.
"""

from __future__ import annotations

import math

import numpy as np

from bilevo.algorithms.drc_plus.certificate import Check
from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.state import DRCPlusState, budget_of
from bilevo.algorithms.shared.follower_search import TieFindings
from bilevo.algorithms.shared.leader import has_grid, reached
from bilevo.algorithms.shared.polish import is_active
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure
from bilevo.core.tolerances import alike


def note_ties(state: DRCPlusState, check: Check, chosen: WarmTask) -> None:
    """Note what a check has shown about ties; this costs no evaluation.

    If there are level directions, ties must be searched before something can be said about F.
    """
    ties = check.ties()
    nearly = state.known.nearly_level > 0
    state.indifferent |= bool(ties) or len(state.flat) > 0 or nearly
    state.faces |= any(is_active(tie.lower) and _differ(chosen, tie) for tie in ties)
    if check.thorough < 1 or state.flat.size or nearly or not check.confirmed:
        return
    F = [task.pair.F for task in (chosen, *ties) if math.isfinite(task.pair.F)]
    if F and len(F) == 1 + len(ties):
        chosen.pair.ties = TieFindings.of(min(F), max(F))


def _differ(one: WarmTask, other: WarmTask) -> bool:
    """Tell whether the leader prefers one of two ties; False if F is not known at both."""
    F, other_F = one.pair.F, other.pair.F
    known = math.isfinite(F) and math.isfinite(other_F)
    return known and not (alike(F, other_F) and one.pair.violation == other.pair.violation)


def tie_stage_is_due(spec: Spec, state: DRCPlusState) -> bool:
    """Tell whether a run should search ties in full now: before it ends, or if it must.

    Where f is not smooth, or variables are whole, plateaus of f are no ranges of ties.
    """
    whole = has_grid(spec)
    due = state.faces or (state.indifferent and state.stop is not None)
    missed = spec.target is None or (state.faces and not reached(spec, state.the_elite))
    wanted = due and missed and not (state.known.rough or whole)
    return wanted and state.total < budget_of(spec).total


def resolve_all_ties(spec: Spec, state: DRCPlusState) -> Procedure[None]:
    """Make a round of nested-ties from the elite, take its elite, and end the run.

    An elite that has passed its check is not given up for a worse one.
    """
    # Late: few runs need it.
    from bilevo.algorithms.nested_ties.method import NestedTies, NestedTiesState
    from bilevo.algorithms.nested_ties.response import TieMemory

    known, elite = state.known, state.the_elite
    nothing = np.empty((0, spec.n))
    memory = TieMemory(known, nothing, nothing, spent=state.spent)
    nested = NestedTiesState(memory, elite=elite, elite_best=elite, F_scale=state.F_scale)
    yield from NestedTies().round(spec, nested, elite)
    found = nested.the_elite
    state.elite = state.checked_elite = (
        elite if elite.passed and not found.no_worse(elite) else found
    )
    state.spent, state.stop = memory.spent, state.stop or StopReason.STAGNATION
    yield state.the_elite.incumbent
