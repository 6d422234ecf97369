"""A memory of successful settings, from which differential evolution draws new ones.

R. Tanabe and A. Fukunaga, "Success-history based parameter adaptation for differential evolution",
IEEE Congress on Evolutionary Computation, 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import TINY, FloatArray

NEVER = -1.0  # stored in place of a crossover rate that has become 0, which then stays 0


@dataclass(slots=True, eq=False)
class Memory:
    """Scale factors F (h,) and crossover rates CR (h,).

    The entries at `position` are overwritten next.
    """

    F: FloatArray
    CR: FloatArray
    position: int = 0

    @classmethod
    def of(cls, length: int, value: float) -> Memory:
        return cls(np.full(length, value), np.full(length, value))

    def draw(
        self, count: int, rng: np.random.Generator, scale: float = 0.1
    ) -> tuple[FloatArray, FloatArray]:
        """Draw F (count,) in (0, 1] and CR (count,) in [0, 1] around entries of the memory.

        Deviations of F from an entry have a Cauchy distribution of this scale, those of CR a normal
        distribution.
        """
        slot = rng.integers(len(self.F), size=count)
        CR = np.clip(self.CR[slot] + scale * rng.standard_normal(count), 0.0, 1.0)
        CR[self.CR[slot] == NEVER] = 0.0
        F = self.F[slot] + scale * rng.standard_cauchy(count)
        while (low := F <= 0).any():
            F[low] = self.F[slot[low]] + scale * rng.standard_cauchy(int(low.sum()))
        return np.minimum(F, 1.0), CR

    def learn(self, F: FloatArray, CR: FloatArray, gains: FloatArray) -> None:
        """Overwrite the next entries with means of successful settings, weighted by their gains."""
        weights = np.where(np.isfinite(gains), gains, 0.0)
        weights = weights / weights.max() if weights.max() > 0 else np.ones(len(gains))
        self.F[self.position] = lehmer_mean(F, weights)
        if self.CR[self.position] != NEVER:
            rate = lehmer_mean(CR, weights)
            self.CR[self.position] = rate if rate > 0 else NEVER
        self.position = (self.position + 1) % len(self.F)


def lehmer_mean(values: FloatArray, weights: FloatArray) -> float:
    return float(weights @ values**2 / (weights @ values + TINY))
