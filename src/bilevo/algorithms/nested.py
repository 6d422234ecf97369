"""Plain nested CMA-ES: the honest baseline. Nothing is shared between the levels or the tasks.

A CMA-ES over x; every x gets a CMA-ES over y of its own, from a uniform mean and a third of the
box, run until its value has settled (or ten times the usual lower budget is used).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bilevo.algorithms.follower import Follower, FollowerRule
from bilevo.algorithms.leader import (
    State,
    close_generation,
    leader_ranking,
    sample_leaders,
    solve_follower,
    start_leader,
)
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Steps, together
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.cma_es import State as CMAState
from bilevo.optimizers.protocol import Start


@dataclass(frozen=True, slots=True)
class PatientCMAES(CMAES):
    """CMA-ES that goes on while the step size means anything, not only a hundredfold."""

    def exhausted(self, state: CMAState) -> bool:
        return not 1e-12 <= state.sigma <= 1e12


@dataclass(frozen=True, slots=True)
class NestedCMAES:
    """CMA-ES above, an independent CMA-ES below for every x."""

    upper: CMAES = field(default_factory=CMAES)
    lower: CMAES = field(default_factory=PatientCMAES)

    name = "nested-cma-es"
    revision = 1

    def init(self, spec: Spec) -> Steps[State]:
        yield from ()
        return start_leader(spec, self.upper, spec.m)

    def generation(self, spec: Spec, state: State) -> Steps[State]:
        leaders = sample_leaders(spec, state, self.upper)
        followers = [self.follower(spec, state, x, i) for i, x in enumerate(leaders)]
        yield from together(solve_follower(state, follower) for follower in followers)
        pairs = [follower.answer for follower in followers]
        best = pairs[int(leader_ranking(pairs)[0])]
        if state.elite is None or best.no_worse(state.elite):
            state.elite = best
            yield best.incumbent
        close_generation(spec, state, followers, pairs, self.upper, leaders)
        return state

    def follower(self, spec: Spec, state: State, x: FloatArray, task: int) -> Follower:
        rng = stream(spec.seed, "follower", state.generation, task)
        search = self.lower.start(Start.uniform(spec.spread[spec.m :], rng), rng)
        population = self.lower.population_size(spec.n)
        usual = FollowerRule.of(spec.budget, population)
        rule = FollowerRule(
            window=10 + math.ceil(30 * spec.n / population),  # as CMA-ES programs have it
            longest=10 * usual.longest,
            absolute=1e-10,
            relative=1e-12,
        )
        return Follower(x, self.lower, search, rng, rule, state.f_scale)
