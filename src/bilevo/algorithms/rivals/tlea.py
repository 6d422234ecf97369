"""TLEA: follower searches by CMA-ES or DE that learn from each other by transfer.

L. Chen, H.-L. Liu, K. C. Tan and K. Li, "Transfer learning-based parallel evolutionary algorithm
framework for bilevel optimization", IEEE Transactions on Evolutionary Computation 26(1), 2022.

The upper level works as in BL-CMA-ES, with refinement (see shared.leader). At the lower level, all
follower searches run in rounds of one generation each. After a round, a search that has stalled but
not ended mixes its distribution with those of near searches that have ended.

These points differ from the published program:
- Its helper for distances reads the leaders' coordinates in another order than they are stored.
  Here a distance is between two leaders, as intended.
- Distances are measured in the unit box, so that they do not depend on the user's units. If all
  variables have the same width, leaders and answers have the program's weights in a distance.
- Its special order of infeasible points (see `BalancedCMAES`) is used only where a search learns
  from points, at both levels. Best answers and the elite are chosen by Deb's order, which makes no
  difference on SMD9-12. Without the special order, runs on SMD12 end at answers that are wrong for
  the follower, as runs of BL-CMA-ES do.

TLEA-DE uses DE only in the followers' rounds, for which it has another number of rounds and another
window than TLEA-CMA-ES. It transfers what DE has learnt about its settings. The upper level and
refinement use CMA-ES, as in the program. The program looks up the best answer at a wrong index, and
when it averages settings, those without success count as zeros. Here both are as intended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.shared.follower_search import RELATIVE, FollowerRule, FollowerSearch
from bilevo.algorithms.shared.joint_search import JointSearch
from bilevo.algorithms.shared.leader import (
    LeaderState,
    evaluate_leader,
    require_optimizer,
    sample_leaders,
)
from bilevo.core.algorithm import Followers, registered
from bilevo.core.arrays import FloatArray, fractional_distances
from bilevo.core.budget import change_over
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.de import DE, DEState
from bilevo.optimizers.protocol import AnyOptimizer
from bilevo.optimizers.success import NEVER, Memory

SOURCES = 2  # How many near searches a search may learn from.
DE_WINDOW = 4  # A search of TLEA-DE ends after this many rounds without change.
FAR_LARGER = 50  # Objectives more than this many times the violations are not added to them.
MAX_FAR_WEIGHT = 0.1  # The largest weight of the farther neighbour; a search's own weight is 1.


@dataclass(frozen=True, slots=True)
class BalancedCMAES(CMAES):
    """CMA-ES with the published program's order if all points are infeasible.

    Then objectives count together with violations, unless objectives are far larger. So a search
    outside the feasible region does not simply go to the nearest feasible point.
    """

    def ranked_by(
        self, objective: FloatArray, violation: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        if not 0 < violation.min() <= violation.max() < math.inf:
            return objective, violation
        with np.errstate(over="ignore"):
            far_larger = np.abs(objective).mean() > FAR_LARGER * violation.mean()
            balanced = objective / max(1.0, np.abs(objective).max()) + violation
        return (objective, violation) if far_larger else (balanced, np.zeros(len(balanced)))


@dataclass(frozen=True, slots=True)
class TLEA(JointSearch):
    """TLEA-CMA-ES (Chen, Liu, Tan and Li, 2022).

    The optimizer `tasks` makes the followers' searches in rounds, and `lower` makes refinements.
    """

    upper: AnyOptimizer = field(default_factory=BalancedCMAES)
    lower: AnyOptimizer = field(default_factory=BalancedCMAES)
    tasks: AnyOptimizer = field(default_factory=BalancedCMAES)

    name = registered("tlea-cma-es")
    revision = 1
    whole = False
    followers = Followers.FUNCTION  # searches transfer their distributions

    def __post_init__(self) -> None:
        JointSearch.__post_init__(self)
        require_optimizer(self.tasks)

    def generation(self, spec: Spec, state: LeaderState) -> Procedure[LeaderState]:
        followers = self.new_followers(spec, state)
        yield from self.solve_all(followers)
        yield from together(evaluate_leader(state, follower.answer) for follower in followers)
        return (yield from self.conclude(spec, state, followers))

    def new_followers(self, spec: Spec, state: LeaderState) -> list[FollowerSearch]:
        leaders = sample_leaders(spec, state, self.upper)
        return self.follower_searches(spec, state, leaders, "follower", self.tasks)

    def solve_all(self, followers: list[FollowerSearch]) -> Procedure[None]:
        """Run all searches in rounds of one generation each, with transfer between rounds."""
        live = followers
        while live:
            yield from together(follower.execute() for follower in live)
            live = [follower for follower in live if not follower.finished]
            stalled = [follower for follower in live if has_stalled(follower)]
            if stalled:
                self.transfer(followers, stalled)

    def transfer(self, followers: list[FollowerSearch], stalled: list[FollowerSearch]) -> None:
        """Mix the distributions of near searches that have ended into each stalled search."""
        distances = task_distances(followers)
        for i, follower in enumerate(followers):
            if follower not in stalled:
                continue
            near, shares = nearest(distances[i], i)
            weights = self.transfer_weights(shares)
            ended = [(k, w) for k, w in zip(near, weights, strict=True) if followers[k].finished]
            if not ended:
                continue
            total = 1 + sum(weight for _, weight in ended)
            self.tasks.mix(
                follower.search,
                1 / total,
                [followers[k].search for k, _ in ended],
                [weight / total for _, weight in ended],
            )

    def transfer_weights(self, shares: FloatArray) -> list[float]:
        """Return neighbours' weights from the shares of `nearest`; a search's own weight is 1."""
        bases = [1 + math.tan(math.pi * share / 2) for share in shares.tolist()]
        exponent = self.exponent(*shares.tolist()) if shares.any() else 1.0
        return [float(base**-exponent) for base in bases]

    def exponent(self, nearer: float, farther: float) -> float:
        """Return the least of 1.0, 1.1, ... that makes the farther source's weight at most 0.1."""
        needed = math.log(1 / MAX_FAR_WEIGHT) / math.log(1 + math.tan(math.pi * farther / 2))
        return max(1.0, math.ceil(10 * needed) / 10)


@dataclass(frozen=True, slots=True)
class TransferDE(DE):
    """DE for the followers' rounds.

    It mixes memories, which hold what searches have learnt about the settings of DE. A small spread
    does not end a search.
    """

    def mix(
        self, state: DEState, own_weight: float, others: Sequence[DEState], weights: Sequence[float]
    ) -> None:
        memories = [state.memory, *(other.memory for other in others)]
        shares = np.array([own_weight, *weights])
        F = shares @ np.array([memory.F for memory in memories])
        CR = shares @ np.array([np.maximum(memory.CR, 0.0) for memory in memories])
        CR[state.memory.CR == NEVER] = NEVER
        state.memory = Memory(F, CR, state.memory.position)

    def exhausted(self, state: DEState) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class TLEADE(TLEA):
    """TLEA-DE (Chen, Liu, Tan and Li, 2022)."""

    tasks: AnyOptimizer = field(default_factory=TransferDE)

    name = registered("tlea-de")

    def rule(self, spec: Spec, state: LeaderState, optimizer: AnyOptimizer) -> FollowerRule:
        """Return the rule that ends a search; a round counts as 14 + floor(3 ln n) evaluations."""
        if optimizer is not self.tasks:
            return TLEA.rule(self, spec, state, optimizer)
        rounds = math.ceil(spec.budget.lower_max / (14 + int(3 * math.log(spec.n))))
        return FollowerRule(DE_WINDOW, rounds + 1)

    def exponent(self, nearer: float, farther: float) -> float:
        """Return an exponent that is larger if the two neighbours are about equally far."""
        gap = farther - nearer
        return 3.0 if gap < 0.2 else 2.0 if gap < 0.4 else 1.0


def has_stalled(follower: FollowerSearch) -> bool:
    """Tell whether f hardly changed over two generations, and the window of the rule is over."""
    _, change = change_over(follower.record, 3)
    return follower.executions > follower.rule.window and change < RELATIVE


def task_distances(followers: list[FollowerSearch]) -> FloatArray:
    """Return distances (k, k) between searches: the sum of those of their leaders and answers.

    Answers have no weight at first, and more weight with every round.
    """
    x = np.array([follower.x for follower in followers])
    y = np.array([follower.answer.y for follower in followers])
    rounds = max(follower.executions for follower in followers)
    time = rounds / max(follower.rule.longest for follower in followers)
    omega = (1 / (1 + math.log(1.6718 - time)) - 0.6605) * y.shape[1] / x.shape[1]  # grows to n / m
    apart_x, largest_x = fractional_distances(x)
    apart_y, largest_y = fractional_distances(y)
    largest = max(largest_x, largest_y)
    if largest == -math.inf:  # all leaders and all answers are equal
        return apart_x
    return np.asarray(
        math.exp(largest_x - largest) * apart_x + omega * math.exp(largest_y - largest) * apart_y
    )


def nearest(distances: FloatArray, own: int) -> tuple[list[int], FloatArray]:
    """Return the nearest neighbours of search `own`, and their shares of the summed distances."""
    others = [k for k in np.argsort(distances, kind="stable").tolist() if k != own]
    near = others[:SOURCES]
    apart = distances[near]
    total = apart.sum()
    return near, apart / total if total > 0 else np.zeros(len(near))
