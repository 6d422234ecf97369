"""Descents of drc-race: CMA-ES near one leader, for the digits that a model of F cannot give.

A descent ends when it is narrow, or when it has become narrow without a chance: it comes to where
another has ended, or the leaders it still tries differ by less than it is behind the answer. Where
it finds nothing better for some generations it goes on nearer to its best leader: at a jump, half
of all leaders lie beyond it, and steps do not get shorter by themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.optimizers.cma_es import CMAES, CMAState
from bilevo.optimizers.protocol import Start

NARROW = 1e-7  # of the box: a descent this narrow has converged
SAME = 1e-6  # of the box: an answer this near to where a descent has ended came from it
CLOSE = 0.01  # of the box: a narrow descent this near to where another has ended is its twin
ZOOM = 0.3  # by which a descent that finds nothing better shrinks
LASTING = 3  # generations for which a better answer lets a descent go on


@dataclass(slots=True, eq=False)
class Descent:
    """A CMA-ES under way, the best pair that it knows, and how it fares."""

    search: CMAState
    best: Pair | None = None
    barren: int = 0  # generations without a better pair
    gains: int = 0  # generations that it may still go on for, because it has bettered the answer
    steps: int = 0  # that it has taken, less those that exploring has taken since its start
    fruitful: bool = False  # whether it has bettered the answer by much

    @property
    def width(self) -> float:
        """The largest standard deviation of its leaders."""
        return float(self.search.sigma * math.sqrt(self.search.C.diagonal().max()))

    def note(self, best: Pair, bettered: bool, much: bool, steps: int) -> None:
        """A generation's best pair, whether it has bettered the answer, and its cost."""
        improved = self.best is None or not self.best.no_worse(best)
        self.best = best if improved else self.best
        self.barren = 0 if improved else self.barren + 1
        self.gains = LASTING if bettered else max(0, self.gains - 1)
        self.fruitful = self.fruitful or much
        self.steps += steps

    def zoom(self, optimizer: CMAES) -> None:
        """Go on nearer to the best pair."""
        assert self.best is not None
        covariance = self.search.C * (ZOOM * self.search.sigma) ** 2
        start = Start(self.best.x, covariance, np.zeros(len(covariance)))
        self.search, self.barren = optimizer.start(start), 0

    def over(self, answer: Pair, ends: list[FloatArray], median: float) -> bool:
        """Whether it has converged, or is not worth going on with; `median` is its leaders' F."""
        assert self.best is not None
        if self.width < NARROW:
            return True
        if self.best.task == answer.task or self.width > 2 * CLOSE:
            return False
        if near(self.search.mean, ends, CLOSE) and near(answer.x, ends, SAME):
            return True
        return self.best.violation > 0 or median - self.best.F < self.best.F - answer.F


def descent_from(
    x: FloatArray, best: Pair | None, good: FloatArray, spec: Spec, optimizer: CMAES
) -> Descent:
    """One from x, as wide at first as the nearest good leaders (k, m) are apart from it."""
    apart = np.sort(np.linalg.norm(good - x, axis=1))[: spec.m + 3]
    width = min(max(float(np.median(apart)), CLOSE), 1.0) / math.sqrt(spec.m)
    spread = np.minimum(width, spec.spread[: spec.m] / 3)
    return Descent(optimizer.start(Start(x, np.diag(spread**2), np.zeros(spec.m))), best)


def near(x: FloatArray, ends: list[FloatArray], distance: float) -> bool:
    """Whether one of the ends is within a distance of x."""
    return any(math.dist(x, end) <= distance for end in ends)
