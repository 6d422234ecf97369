"""The fallback of drc-plus for followers that are not smooth: DRC with shorter follower searches.

It starts at the elite, and runs the competition of drc with four changes, none of which needs
smooth followers:

- A follower search ends when its value has settled over a window that is one execution shorter.
- Changes of f below a tenth of the spread of F in the last generation are ignored, because they
  do not change the order of the leaders.
- It ends once the F of its own leaders improves no more, not when the elite does: another search
  has found the elite, so that it may stay the best pair before this search has begun to contract.
- The best pair of a generation (the candidate) is refined only if it is no worse than the elite,
  the best pair of the run. Otherwise the elite is refined, with a probability of 1/4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from bilevo.algorithms.drc import DRC
from bilevo.algorithms.drc_plus.box_search import test_smoothness
from bilevo.algorithms.drc_plus.experience import Experience, WarmTask, counted
from bilevo.algorithms.drc_plus.local_follower import LocalFollower
from bilevo.algorithms.drc_plus.state import DRCPlusState
from bilevo.algorithms.shared.follower_search import ABSOLUTE, FollowerRule, Pair
from bilevo.algorithms.shared.leader import LeaderState, alone_reaches, upper_rules
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Incumbent, Procedure, T, relayed
from bilevo.core.stop_rules import first_met
from bilevo.core.streams import stream
from bilevo.optimizers.protocol import AnyOptimizer

RESOLVED = 0.1  # Changes of f below this fraction of the spread of F are ignored.
REFINED = 0.25  # The probability of refining the elite if the candidate is worse than the elite.


@dataclass(frozen=True, slots=True)
class FallbackDRC(DRC):
    """DRC with follower searches that stop sooner."""

    def start_at(self, spec: Spec, elite: Pair) -> Procedure[LeaderState]:
        """Return the first state of a search whose mean is at an elite."""
        state = yield from self.init(spec)
        state.leader.mean[:] = np.concatenate([elite.x, elite.y])
        state.elite = elite
        return state

    def budget_met(self, spec: Spec, state: LeaderState) -> StopReason | None:
        """Return whether the budget ends the search, whatever its target says."""
        budget = upper_rules(spec, state, len(state.executions))[-1]
        return first_met([budget], state.progress())

    def rule(self, spec: Spec, state: LeaderState, optimizer: AnyOptimizer) -> FollowerRule:
        usual = DRC.rule(self, spec, state, optimizer)
        absolute = max(ABSOLUTE, RESOLVED * state.F_spread)
        return replace(usual, window=max(2, usual.window - 1), absolute=absolute)

    def recorded_F(self, state: LeaderState, pairs: list[Pair]) -> float:
        """Return the lowest median F of a generation so far; infeasible pairs count as the worst.

        While the search contracts, the median falls, although no pair may be as good as the elite.
        As long as no median is finite, it is NaN: then the search has not even begun to contract,
        and must not end as one that has stagnated.
        """
        F = np.median([pair.F if pair.violation == 0 else math.inf for pair in pairs])
        return float(np.fmin.reduce([F if np.isfinite(F) else math.nan, *state.elite_F[-1:]]))

    def update_elite(
        self, spec: Spec, state: LeaderState, pairs: list[Pair], i: int
    ) -> Procedure[None]:
        candidate = pairs[i]
        if state.elite is None or candidate.no_worse(state.elite):
            pairs[i] = yield from self.settle(spec, state, candidate)
            return
        if stream(spec.seed, "coin", state.generation).random() < REFINED:
            yield from self.settle(spec, state, None)
        if alone_reaches(spec, candidate, state.elite):
            state.elite = candidate


def retest_smoothness(
    follower: LocalFollower, state: DRCPlusState, rng: np.random.Generator
) -> Procedure[None]:
    """Search the elite's follower locally; if these searches settle, the fallback ends."""
    state.known.smooth, state.known.searches = 1.0, 0
    yield from test_smoothness(follower, WarmTask.of_pair(state.the_elite, np.empty(0)), rng)
    state.smoothness_at = state.total


def without_incumbents(procedure: Procedure[T], known: Experience) -> Procedure[T]:
    """Run a procedure without telling its best pairs, and note the lower evaluations it makes."""
    told = counted(procedure, known)
    return relayed(
        told, lambda r: None if isinstance(r, Incumbent) else r, lambda _, values: values
    )
