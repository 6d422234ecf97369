"""The joint search over (x, y), the upper level of BL-CMA-ES, on which DRC and TLEA build.

X. He, Y. Zhou and Z. Chen, "Evolutionary bilevel optimization based on covariance matrix
adaptation", IEEE Transactions on Evolutionary Computation 23(2), 2019.

One search runs over the joint vector (x, y). Its marginal distribution in y starts each follower
search. The followers' answers then replace the sampled y and update the joint search. Algorithms
differ in how the follower searches are run. Refinement solves the follower of the candidate or of
the elite again, because an error of the follower can make F too good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from bilevo.algorithms.shared.follower_search import (
    ABSOLUTE,
    AnyFollowerSearch,
    FollowerRule,
    FollowerSearch,
    Pair,
)
from bilevo.algorithms.shared.leader import (
    LeaderState,
    alone_reaches,
    candidate_index,
    close_generation,
    evaluate_leader,
    finish,
    grids,
    has_grid,
    require_optimizer,
    sample_leaders,
    solver_searches,
    start_leader,
    tell_leader,
)
from bilevo.core.algorithm import Algorithm, Followers
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, alongside
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.cma_margin import on_grid
from bilevo.optimizers.protocol import AnyOptimizer


@dataclass(frozen=True, slots=True)
class JointSearch(Algorithm[LeaderState]):
    """An upper search over (x, y) whose marginal in y starts the follower searches.

    If the problem has its own solver, the upper search is over x alone.
    """

    upper: AnyOptimizer = field(default_factory=CMAES)
    lower: AnyOptimizer = field(default_factory=CMAES)

    def __post_init__(self) -> None:
        for optimizer in (self.upper, self.lower):
            require_optimizer(optimizer)

    State = LeaderState
    followers = Followers.BOTH

    @property
    def whole(self) -> bool:  # type: ignore[override]  # it hangs on the optimizers
        return isinstance(self.upper, CMAES) and isinstance(self.lower, CMAES)

    def init(self, spec: Spec) -> Procedure[LeaderState]:
        yield from ()
        joint = spec.m + spec.n if spec.step_cost is None else spec.m
        return start_leader(spec, self.on_grid(spec).upper, joint)

    def on_grid(self, spec: Spec) -> Self:
        """Return the method with CMA-ES with margin, if variables are whole numbers or choices."""
        upper, lower = self.upper, self.lower
        if not (self.whole and has_grid(spec)):
            return self
        assert isinstance(upper, CMAES) and isinstance(lower, CMAES)
        x_grid, y_grid = grids(spec)
        joint = x_grid.beside(y_grid) if spec.step_cost is None else x_grid
        return replace(self, upper=on_grid(upper, joint), lower=on_grid(lower, y_grid))

    def new_followers(self, spec: Spec, state: LeaderState) -> Sequence[AnyFollowerSearch]:
        """Return a follower search for each leader of a new generation."""
        leaders = sample_leaders(spec, state, self.upper)
        if spec.step_cost is not None:
            return solver_searches(spec, state, leaders)
        return self.follower_searches(spec, state, leaders, "follower", self.lower)

    def follower_searches(
        self,
        spec: Spec,
        state: LeaderState,
        leaders: FloatArray,
        name: str,
        optimizer: AnyOptimizer,
    ) -> list[FollowerSearch]:
        """Return follower searches by an optimizer, from the joint search's marginal in y.

        `name` is that of the random streams from which the searches draw.
        """
        start, rule = self.upper.marginal(state.leader, spec.m), self.rule(spec, state, optimizer)
        followers = []
        for i, x in enumerate(leaders):
            rng = stream(spec.seed, name, state.generation, i)
            search = optimizer.start(start, rng)
            followers.append(FollowerSearch(x, optimizer, search, rng, rule, state.f_scale))
        return followers

    def rule(self, spec: Spec, state: LeaderState, optimizer: AnyOptimizer) -> FollowerRule:
        """Return the rule by which a follower search by an optimizer ends."""
        return FollowerRule.of(spec.budget, optimizer.population_size(spec.n))

    def refine(
        self, spec: Spec, state: LeaderState, pair: Pair, name: str = "refine"
    ) -> Procedure[Pair]:
        """Solve a pair's follower again; return the pair that is better for the follower.

        If the problem has its own solver, that solver continues its search unless it was done.
        """
        if spec.step_cost is not None:
            return (yield from finish(spec, state, pair))
        (follower,) = self.follower_searches(spec, state, pair.x[None], name, self.lower)
        new = yield from follower.solve()
        if not new.follower_no_worse(pair):
            return pair
        new.converged = new.converged or pair.converged
        yield from evaluate_leader(state, new)
        if math.isinf(new.violation):  # a failed evaluation replaces nothing
            return pair
        lost = pair.violation == 0 and new.violation > 0
        slight = pair.f - new.f < state.f_scale.tolerance(ABSOLUTE)
        # If the leader is on a constraint, the follower's rounding must not make it infeasible.
        return pair if lost and slight else new

    def conclude(
        self, spec: Spec, state: LeaderState, followers: Sequence[AnyFollowerSearch]
    ) -> Procedure[LeaderState]:
        """End a generation whose followers have answered: choose the elite, then `close`."""
        pairs = yield from self.answers(spec, state, followers)
        yield from self.update_elite(spec, state, pairs, candidate_index(pairs))
        return (yield from self.close(spec, state, followers, pairs, pairs))

    def conclude_later(
        self,
        spec: Spec,
        state: LeaderState,
        followers: Sequence[AnyFollowerSearch],
        search: Procedure[None],
    ) -> Procedure[LeaderState]:
        """Run the followers' `search` and end the generation; refine its candidate only later.

        The refinement runs beside the next generation's search, and the refined pair joins that
        generation's upper update. Until then the upper search does not see the candidate, because a
        follower's error may make its F too good. The candidate is refined at once if there is no
        elite, or if the candidate meets the target and the elite does not.
        """
        late: list[Pair] = []
        if state.elite is None:
            yield from search
        else:
            settling = self.settle(spec, state, state.pending, "late")
            _, refined = yield from alongside(search, settling)
            late = [refined]
        state.pending = None
        pairs = yield from self.answers(spec, state, followers)
        i = candidate_index(pairs)
        if state.elite is None or alone_reaches(spec, pairs[i], state.elite):
            yield from self.update_elite(spec, state, pairs, i)
        elif challenges(spec, state, pairs[i]):
            state.pending = pairs[i]
        return (yield from self.close(spec, state, followers, pairs, pairs + late))

    def answers(
        self, spec: Spec, state: LeaderState, followers: Sequence[AnyFollowerSearch]
    ) -> Procedure[list[Pair]]:
        """Return the generation's pairs; if x0 is given, its follower is solved to the end."""
        pairs = [follower.answer for follower in followers]
        if state.generation == 0 and spec.x0 is not None:
            pairs[0] = yield from self.refine(spec, state, pairs[0], "x0")
            pairs[0].converged = True
        return pairs

    def update_elite(
        self, spec: Spec, state: LeaderState, pairs: list[Pair], i: int
    ) -> Procedure[None]:
        """Refine either candidate i of the pairs or the elite, and choose the elite.

        A refined candidate replaces pair i. If the refinement of a first elite fails, the next best
        pair is the candidate.
        """
        if challenges(spec, state, pairs[i]):
            pairs[i] = refined = yield from self.settle(spec, state, pairs[i])
            others = any(pair.violation < math.inf for pair in pairs)
            if others and state.elite is refined and math.isinf(refined.violation):
                state.elite = None
                yield from self.update_elite(spec, state, pairs, candidate_index(pairs))
            return
        elite = yield from self.settle(spec, state, None)
        if alone_reaches(spec, pairs[i], elite):
            state.elite = pairs[i]

    def settle(
        self, spec: Spec, state: LeaderState, challenger: Pair | None, name: str = "refine"
    ) -> Procedure[Pair]:
        """Refine and return a challenger, which may become the elite; if None, refine the elite."""
        elite = state.elite
        if challenger is None:
            # The new answer is no worse for the follower, but it may be worse for the leader.
            state.elite = yield from self.refine(spec, state, state.the_elite, name)
            return state.elite
        refined = yield from self.refine(spec, state, challenger, name)
        if elite is None or refined.no_worse(elite) or alone_reaches(spec, refined, elite):
            state.elite = refined
        return refined

    def recorded_F(self, state: LeaderState, pairs: list[Pair]) -> float:
        """Return the F after a generation whose changes tell whether the search has stagnated."""
        return state.the_elite.F

    def close(
        self,
        spec: Spec,
        state: LeaderState,
        followers: Sequence[AnyFollowerSearch],
        pairs: list[Pair],
        learnt: list[Pair],
    ) -> Procedure[LeaderState]:
        """End a generation whose elite is chosen; update the upper search with `learnt` pairs."""
        yield state.the_elite.incumbent
        executions, F = [f.executions for f in followers], self.recorded_F(state, pairs)
        close_generation(spec, state, executions, pairs, recorded_F=F)
        searched = slice(None) if spec.step_cost is None else slice(spec.m)
        points = np.array([np.concatenate([pair.x, pair.y])[searched] for pair in learnt])
        tell_leader(state, self.upper, points, learnt)
        return state


def challenges(spec: Spec, state: LeaderState, candidate: Pair) -> bool:
    """Tell whether to refine the candidate, not the elite; a coin decides on a worse candidate."""
    coin = stream(spec.seed, "coin", state.generation).random()
    return state.elite is None or candidate.no_worse(state.elite) or bool(coin < 0.5)
