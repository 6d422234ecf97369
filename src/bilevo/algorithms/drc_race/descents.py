"""Descents of drc-race: CMA-ES near one leader, because a model of F gives few digits.

A descent ends when it is very narrow. Once it is fairly narrow, it also ends near the end of an
earlier descent, or if it has too little to gain. That is so if F varies less among its leaders than
its best F exceeds the answer's F. If it finds nothing better for some generations, it continues
nearer to its best leader: at a jump of F, half of all leaders lie beyond the jump, and CMA-ES does
not shorten its steps by itself.
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

CONVERGED_WIDTH = 1e-7  # A narrower descent has converged; in units of the box.
SAME_END = 1e-6  # An answer this near to the end of a descent came from it; in units of the box.
TWIN_DISTANCE = 0.01  # A descent this near to the end of another repeats it; in units of the box.
ZOOM = 0.3  # The factor by which a descent shrinks if it finds nothing better.
GAIN_LASTS = 3  # How many generations a descent continues after it has improved the answer.


@dataclass(slots=True, eq=False)
class Descent:
    """A CMA-ES in progress, its best pair, and how much it has gained lately."""

    search: CMAState
    best: Pair | None = None
    barren: int = 0  # generations without a better pair
    gains: int = 0  # generations that it still continues because of a gain (see GAIN_LASTS)
    steps: int = 0  # its own steps minus the steps of exploration since its start
    fruitful: bool = False  # whether it has improved the answer by much

    @property
    def width(self) -> float:
        """Return the largest standard deviation of its leaders."""
        return float(self.search.sigma * math.sqrt(self.search.C.diagonal().max()))

    def note(self, best: Pair, improved_answer: bool, much: bool, steps: int) -> None:
        """Note a generation's best pair, and how many steps it took.

        `improved_answer` and `much` tell whether it improved the run's answer at all, and by much.
        """
        improved = self.best is None or not self.best.no_worse(best)
        self.best = best if improved else self.best
        self.barren = 0 if improved else self.barren + 1
        self.gains = GAIN_LASTS if improved_answer else max(0, self.gains - 1)
        self.fruitful = self.fruitful or much
        self.steps += steps

    def zoom(self, optimizer: CMAES) -> None:
        """Start CMA-ES again, nearer to the best pair."""
        assert self.best is not None
        covariance = self.search.C * (ZOOM * self.search.sigma) ** 2
        start = Start(self.best.x, covariance, np.zeros(len(covariance)))
        self.search, self.barren = optimizer.start(start), 0

    def over(self, answer: Pair, ends: list[FloatArray], median: float) -> bool:
        """Tell whether to end the descent; `median` is the median F of its last leaders."""
        assert self.best is not None
        if self.width < CONVERGED_WIDTH:
            return True
        if self.best.task == answer.task or self.width > 2 * TWIN_DISTANCE:
            return False
        if near(self.search.mean, ends, TWIN_DISTANCE) and near(answer.x, ends, SAME_END):
            return True
        return self.best.violation > 0 or median - self.best.F < self.best.F - answer.F


def descent_from(
    x: FloatArray, best: Pair | None, good: FloatArray, spec: Spec, optimizer: CMAES
) -> Descent:
    """Return a new descent that starts at x, with the best pair known there, if any.

    Its first width comes from the distances between x and the nearest `good` leaders (k, m).
    """
    apart = np.sort(np.linalg.norm(good - x, axis=1))[: spec.m + 3]
    width = min(max(float(np.median(apart)), TWIN_DISTANCE), 1.0) / math.sqrt(spec.m)
    spread = np.minimum(width, spec.spread[: spec.m] / 3)
    return Descent(optimizer.start(Start(x, np.diag(spread**2), np.zeros(spec.m))), best)


def near(x: FloatArray, ends: list[FloatArray], distance: float) -> bool:
    """Tell whether one of the ends is within `distance` of x."""
    return any(math.dist(x, end) <= distance for end in ends)
