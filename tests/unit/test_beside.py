"""Descents that run side by side, and what they know of each other."""

import numpy as np
from driven import Driven

from bilevo import Problem
from bilevo.algorithms.drc_plus.beside import Beside
from bilevo.algorithms.drc_plus.descent import LeaderView, descent
from bilevo.algorithms.drc_plus.experience import Experience
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.sqp import SearchEnd

# Local optima of F are near x = 0.2 and x = 0.8; the first one is the best. The follower copies x.
TWO_OPTIMA = Problem(
    lambda x, y: 1e3 * ((x[0] - 0.2) * (x[0] - 0.8)) ** 2 + y[0] + (x[1] - 0.5) ** 2,
    lambda x, y: (y - x[:1]) @ (y - x[:1]),
    [(0, 1)] * 2,
    [(0, 1)],
)


class Scene:
    """A problem, and descents on it that know of each other."""

    def __init__(self) -> None:
        self.driven = Driven(TWO_OPTIMA)
        spec = self.driven.spec()
        self.state = LeaderView(Experience.none(spec.m, spec.n))
        self.follower = WarmFollower(spec, self.state.known)
        first = self.pair([0.5, 0.5])
        self.driven.run(self.state.accept_elite(first))
        self.state.known.learn(first)

    def pair(self, x: list[float]) -> Pair:
        task = self.driven.run(self.follower.at(np.array(x), np.full((1, 1), 0.5)))
        task = self.driven.run(self.follower.search_afresh(task))
        self.driven.run(self.state.evaluate_leaders([task]))
        return task.pair

    def descend(self, x: list[float], beside: Beside | None = None) -> tuple[SearchEnd, int]:
        """Return how a descent by differences ended, and the evaluations that it took."""
        pair = self.pair(x)
        before = sum(self.driven.counts.values())
        end, _ = self.driven.run(
            descent(self.state, self.follower, pair, adjoint=False, beside=beside)
        )
        return end, sum(self.driven.counts.values()) - before


def test_a_descent_ends_where_another_has_ended() -> None:
    scene, beside = Scene(), Beside()
    first, _ = scene.descend([0.1, 0.4], beside)
    assert abs(first.point[0] - 0.2) < 0.01
    again, cost = scene.descend([0.3, 0.9], beside)
    assert np.abs(again.point - first.point).max() < 1e-3
    _, usual = Scene().descend([0.3, 0.9])
    assert cost < usual


def test_a_descent_ends_if_it_will_not_become_better_than_another() -> None:
    scene, beside = Scene(), Beside()
    best, _ = scene.descend([0.1, 0.4], beside)
    assert beside.best == best.objective
    other, cost = scene.descend([0.9, 0.9], beside)
    assert not other.converged and other.objective > best.objective
    _, usual = Scene().descend([0.9, 0.9])
    assert cost < usual


def test_an_end_that_is_not_feasible_ends_no_descent() -> None:
    end = SearchEnd(np.array([0.2]), 1.0, 0.5, 10, converged=True)
    beside = Beside([end])
    assert beside.best == np.inf and not beside.have_ended_at(np.array([0.2]), 2.0)


def test_a_descent_that_is_better_where_another_has_ended_goes_on() -> None:
    beside = Beside([SearchEnd(np.array([0.2]), 1.0, 0.0, 10, converged=True)])
    assert beside.have_ended_at(np.array([0.2005]), 1.0)
    assert not beside.have_ended_at(np.array([0.2005]), 0.9)
    assert not beside.have_ended_at(np.array([0.25]), 1.0)
