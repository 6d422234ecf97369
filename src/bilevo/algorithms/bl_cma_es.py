"""BL-CMA-ES: a joint CMA-ES over (x, y), whose marginal in y starts a CMA-ES per follower.

X. He, Y. Zhou and Z. Chen, "Evolutionary bilevel optimization based on covariance matrix
adaptation", IEEE Transactions on Evolutionary Computation 23(2), 2019.

The published program runs the lower searches one after another. Here they run side by side in one
batch. That gives the same answers, because each search draws from its own random stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from bilevo.algorithms.shared.joint_search import JointSearch
from bilevo.algorithms.shared.leader import LeaderState, solve_follower
from bilevo.core.algorithm import registered
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together


@dataclass(frozen=True, slots=True)
class BLCMAES(JointSearch):
    """BL-CMA-ES (He, Zhou and Chen, 2019)."""

    name = registered("bl-cma-es")
    revision = 1

    def generation(self, spec: Spec, state: LeaderState) -> Procedure[LeaderState]:
        method = self.on_grid(spec)
        followers = method.new_followers(spec, state)
        yield from together(solve_follower(state, follower) for follower in followers)
        return (yield from method.conclude(spec, state, followers))
