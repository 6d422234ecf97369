"""TLEA: transfer between followers' searches, which are CMA-ES or DE.

L. Chen, H.-L. Liu, K. C. Tan and K. Li, "Transfer learning-based parallel evolutionary algorithm
framework for bilevel optimization", IEEE Transactions on Evolutionary Computation 26(1), 2022.

The upper level works as in BL-CMA-ES, with refinement (see shared.leader). Below, all followers'
searches run in rounds of one generation each. After a round, a search that has stalled but not
ended takes over sampling features from near searches that have ended.

What differs from the published program, and why:
- its helper for distances reads the leaders' coordinates in another order than they are stored;
  here a distance is between two leaders, as intended;
- distances are taken in the unit box, so that they do not depend on the user's units. Where all
  variables have the same width, leaders' and followers' distances keep the program's ratio;
- its order of points that are all infeasible (see `BalancedCMAES`) is used where a search learns
  from its points, at both levels. Best answers and the elite are chosen by Deb's order, which on
  SMD9-12 makes no difference. Without the special order runs on SMD12 end at answers that are
  wrong for the follower, as runs of BL-CMA-ES do.

TLEA-DE uses DE in the followers' rounds only, with its own number of rounds and its own window, and
transfers what DE has learnt about its settings. The upper level and refinement stay CMA-ES, as in
the program. The program looks up the best answer at a wrong index, and averages settings
without success as zeros; here both are as intended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.shared.follower_search import RELATIVE, FollowerRule, FollowerSearch
from bilevo.algorithms.shared.leader import (
    JointSearch,
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

SOURCES = 2  # near searches that a search may take over from
DE_WINDOW = 4  # rounds without change that end a search of TLEA-DE
FAR_LARGER = 50  # times the violation: objectives this large would hide it
MOST_FAR_WEIGHT = 0.1  # largest weight of the farther neighbour, before scaling to a sum of 1


@dataclass(frozen=True, slots=True)
class BalancedCMAES(CMAES):
    """CMA-ES with the published program's order where all points are infeasible.

    Objectives then count together with violations, unless they are far larger. So a search outside
    the feasible region is not simply drawn to the nearest feasible point.
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
    """TLEA-CMA-ES (Chen, Liu, Tan and Li, 2022); `tasks` is used in rounds, `lower` to refine."""

    upper: AnyOptimizer = field(default_factory=BalancedCMAES)
    lower: AnyOptimizer = field(default_factory=BalancedCMAES)
    tasks: AnyOptimizer = field(default_factory=BalancedCMAES)

    name = registered("tlea-cma-es")
    revision = 1
    followers = Followers.FUNCTION  # they transfer their search distributions

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
        """Run all searches in rounds of one generation each, with transfer in between."""
        live = followers
        while live:
            yield from together(follower.execute() for follower in live)
            live = [follower for follower in live if not follower.finished]
            stalled = [follower for follower in live if has_stalled(follower)]
            if stalled:
                self.transfer(followers, stalled)

    def transfer(self, followers: list[FollowerSearch], stalled: list[FollowerSearch]) -> None:
        """Mix into each stalled search the features of near searches that have ended."""
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
        """Return the neighbours' weights from their shares in distance; the search itself has 1."""
        bases = [1 + math.tan(math.pi * share / 2) for share in shares.tolist()]
        exponent = self.exponent(*shares.tolist()) if shares.any() else 1.0
        return [float(base**-exponent) for base in bases]

    def exponent(self, nearer: float, farther: float) -> float:
        """Return the least of 1.0, 1.1, ... that makes the farther source's weight at most 0.1."""
        needed = math.log(1 / MOST_FAR_WEIGHT) / math.log(1 + math.tan(math.pi * farther / 2))
        return max(1.0, math.ceil(10 * needed) / 10)


@dataclass(frozen=True, slots=True)
class TransferDE(DE):
    """DE for the rounds: its memory of settings is mixed, and a small spread ends no search."""

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

    def rule(self, spec: Spec, optimizer: AnyOptimizer) -> FollowerRule:
        """Return the end rule; in the rounds, 14 + floor(3 ln n) evaluations count as one round."""
        if optimizer is not self.tasks:
            return TLEA.rule(self, spec, optimizer)
        rounds = math.ceil(spec.budget.lower_max / (14 + int(3 * math.log(spec.n))))
        return FollowerRule(DE_WINDOW, rounds + 1)

    def exponent(self, nearer: float, farther: float) -> float:
        """Return an exponent that is larger where the two neighbours' distances are alike."""
        gap = farther - nearer
        return 3.0 if gap < 0.2 else 2.0 if gap < 0.4 else 1.0


def has_stalled(follower: FollowerSearch) -> bool:
    """Tell whether f hardly changed over two generations, once the end rule's window is over."""
    _, change = change_over(follower.record, 3)
    return follower.executions > follower.rule.window and change < RELATIVE


def task_distances(followers: list[FollowerSearch]) -> FloatArray:
    """Return distances between searches; answers count more and more beside leaders over time."""
    x = np.array([follower.x for follower in followers])
    y = np.array([follower.answer.y for follower in followers])
    rounds = max(follower.executions for follower in followers)
    time = rounds / max(follower.rule.longest for follower in followers)
    omega = (1 / (1 + math.log(1.6718 - time)) - 0.6605) * y.shape[1] / x.shape[1]  # 0 to n / m
    apart_x, largest_x = fractional_distances(x)
    apart_y, largest_y = fractional_distances(y)
    largest = max(largest_x, largest_y)
    if largest == -math.inf:  # all are equal
        return apart_x
    return np.asarray(
        math.exp(largest_x - largest) * apart_x + omega * math.exp(largest_y - largest) * apart_y
    )


def nearest(distances: FloatArray, own: int) -> tuple[list[int], FloatArray]:
    """Return the neighbours of search `own`, nearest first, and their shares in distance."""
    others = [k for k in np.argsort(distances, kind="stable").tolist() if k != own]
    near = others[:SOURCES]
    apart = distances[near]
    total = apart.sum()
    return near, apart / total if total > 0 else np.zeros(len(near))
