"""RandDE: differential evolution as first published, DE/rand/1/bin.

R. Storn and K. Price, "Differential evolution - a simple and efficient heuristic for global
optimization over continuous spaces", Journal of Global Optimization 11, 1997.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.optimizers.cma_kernels import inside
from bilevo.optimizers.de import binomial
from bilevo.optimizers.population import Population, PopulationBased


@dataclass(frozen=True, slots=True)
class RandDE(PopulationBased[Population]):
    """DE/rand/1/bin with `population` members, 5 d by default.

    Each child's scale factor is drawn uniformly between the two numbers in `F`.
    """

    F: tuple[float, float] = (0.5, 0.5)
    CR: float = 0.9

    def population_size(self, d: int) -> int:
        return self.population or max(self.smallest, 5 * d)

    def first(self, points: FloatArray) -> Population:
        return Population(points)

    def children(self, state: Population, rng: np.random.Generator) -> FloatArray:
        x = state.points
        k, d = x.shape
        F = rng.uniform(*self.F, size=(k, 1))
        others = rng.random((k, k)) + 2 * np.eye(k)  # no member draws itself
        r1, r2, r3 = np.argsort(others, axis=1)[:, :3].T
        crossed = binomial(k, d, np.full(k, self.CR), rng)
        return inside(np.where(crossed, x[r1] + F * (x[r2] - x[r3]), x), x)
