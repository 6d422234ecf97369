"""DRC-CMA-ES whose followers give up sooner: what DRC-plus does where followers are not smooth.

The same competition as in drc, with three changes that need no smoothness:

- a follower's value has to stand still for one execution less;
- changes of f count as none up to a tenth of the spread of F among the last leaders: finer ones
  do not change the leaders' order;
- the candidate is refined only if it is no worse than the elite; otherwise the elite is, in one of
  four generations, and not in every second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bilevo.algorithms.drc import DRC
from bilevo.algorithms.shared.follower_search import ABSOLUTE, FollowerSearch, Pair
from bilevo.algorithms.shared.leader import LeaderState, alone_reaches
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure
from bilevo.core.streams import stream
from bilevo.optimizers.protocol import PopulationOptimizer

TOLD_APART = 0.1  # of the spread of F: differences of f that matter
REFINED = 0.25  # of the generations without a better candidate: those that refine the elite


@dataclass(frozen=True, slots=True)
class HastyDRC(DRC):
    """DRC with followers that give up sooner."""

    def follower_searches(
        self,
        spec: Spec,
        state: LeaderState,
        leaders: FloatArray,
        name: str,
        optimizer: PopulationOptimizer[Any],
    ) -> list[FollowerSearch]:
        followers = DRC.follower_searches(self, spec, state, leaders, name, optimizer)
        for follower in followers:
            rule = follower.rule
            absolute = max(ABSOLUTE, TOLD_APART * state.F_spread)
            follower.rule = replace(rule, window=max(2, rule.window - 1), absolute=absolute)
        return followers

    def elect(self, spec: Spec, state: LeaderState, pairs: list[Pair], i: int) -> Procedure[None]:
        candidate = pairs[i]
        if state.elite is None or candidate.no_worse(state.elite):
            pairs[i] = yield from self.settle(spec, state, candidate)
            return
        if stream(spec.seed, "coin", state.generation).random() < REFINED:
            yield from self.settle(spec, state, None)
        if alone_reaches(spec, candidate, state.elite):
            state.elite = candidate
