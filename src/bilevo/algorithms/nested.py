"""Nested CMA-ES, the plain baseline: nothing is shared between levels or tasks.

A CMA-ES runs over x. Every x gets its own CMA-ES over y. This lower search starts with a random
mean and with deviations of about a third of the box. It runs until it has shrunk to 1e-8 of the
box, or has used ten times the usual lower budget. A rule on the value of f would stop some lower
searches early. The leader would prefer their answers, because their errors make F look better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bilevo.algorithms.shared.follower_search import AnyFollowerSearch, FollowerRule, FollowerSearch
from bilevo.algorithms.shared.leader import (
    LeaderState,
    best_pair,
    close_generation,
    first_by_itself,
    grids,
    has_grid,
    sample_leaders,
    solve_follower,
    solver_searches,
    start_leader,
    tell_leader,
)
from bilevo.core.algorithm import Algorithm, Followers, registered
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES, CMAState
from bilevo.optimizers.cma_margin import on_grid
from bilevo.optimizers.protocol import AnyOptimizer, Start


@dataclass(frozen=True, slots=True)
class PatientCMAES(CMAES):
    """CMA-ES that runs until all its deviations are below 1e-8 of the box."""

    def exhausted(self, state: CMAState) -> bool:
        return bool(state.sigma**2 * state.C.diagonal().max() < 1e-16)


@dataclass(frozen=True, slots=True)
class NestedCMAES(Algorithm[LeaderState]):
    """CMA-ES at the upper level, and an independent CMA-ES at the lower level for every x."""

    upper: CMAES = field(default_factory=CMAES)
    lower: CMAES = field(default_factory=PatientCMAES)

    name = registered("nested-cma-es")
    revision = 1
    whole = True
    State = LeaderState
    followers = Followers.BOTH

    def init(self, spec: Spec) -> Procedure[LeaderState]:
        yield from ()
        return start_leader(spec, self.optimizers(spec)[0], spec.m)

    def optimizers(self, spec: Spec) -> tuple[AnyOptimizer, AnyOptimizer]:
        """Return the optimizers of both levels, with margin for whole numbers and choices."""
        if not has_grid(spec):
            return self.upper, self.lower
        x_grid, y_grid = grids(spec)
        return on_grid(self.upper, x_grid), on_grid(self.lower, y_grid)

    def generation(self, spec: Spec, state: LeaderState) -> Procedure[LeaderState]:
        upper, _ = self.optimizers(spec)
        leaders = sample_leaders(spec, state, upper)
        followers: Sequence[AnyFollowerSearch] = (
            [self.follower(spec, state, x, i) for i, x in enumerate(leaders)]
            if spec.step_cost is None
            else solver_searches(spec, state, leaders)
        )
        run = together if state.generation else first_by_itself
        yield from run(solve_follower(state, follower) for follower in followers)
        pairs = [follower.answer for follower in followers]
        best = best_pair(pairs)
        if state.elite is None or best.no_worse(state.elite):
            state.elite = best
            yield best.incumbent
        close_generation(spec, state, [f.executions for f in followers], pairs)
        tell_leader(state, upper, leaders, pairs)
        return state

    def follower(self, spec: Spec, state: LeaderState, x: FloatArray, task: int) -> FollowerSearch:
        rng = stream(spec.seed, "follower", state.generation, task)
        _, lower = self.optimizers(spec)
        search = lower.start(Start.uniform(spec.spread[spec.m :], rng), rng)
        usual = FollowerRule.of(spec.budget, lower.population_size(spec.n))
        rule = replace(usual, longest=10 * usual.longest, absolute=0.0, relative=0.0)
        return FollowerSearch(x, lower, search, rng, rule, state.f_scale)
