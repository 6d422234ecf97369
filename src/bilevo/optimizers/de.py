"""DE: differential evolution with current-to-best mutation and a memory of successful settings.

R. Tanabe and A. Fukunaga, "Success-history based parameter adaptation for differential evolution",
IEEE Congress on Evolutionary Computation, 2013. This is the small form that the TLEA program
(gdutcislab/TLEA-bilevel, 2021) has at its lower level. The better half of its few members
are guides: a mutation moves a member towards one of them.

One thing differs from that program: children are compared with their parents after the whole
generation is evaluated, not one by one. So they can be evaluated in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.optimizers.cma_kernels import inside
from bilevo.optimizers.population import Population, PopulationBased
from bilevo.optimizers.success import Memory

MEMORY_LENGTH = 6
ARCHIVE_SHARE = 1.5  # size of the archive of replaced parents, per member


@dataclass(slots=True, eq=False)
class DEState(Population):
    """The members, replaced parents, the memory, and the settings of the children asked for."""

    archive: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    memory: Memory = field(default_factory=lambda: Memory.of(MEMORY_LENGTH, 0.5))
    F: FloatArray = field(default_factory=lambda: np.empty(0))
    CR: FloatArray = field(default_factory=lambda: np.empty(0))

    def successes(
        self, objective: FloatArray, violation: FloatArray
    ) -> tuple[BoolArray, BoolArray, FloatArray]:
        """Archive the parents whose children are better.

        Returns which children are better, which of these were made with their settings F and CR
        (points drawn from a mixture were not), and how much each child differs from its parent.
        """
        better, gains = self.gains(objective, violation)
        by_settings = better.copy()
        by_settings[self.resampled] = False
        self.archive = np.concatenate([self.archive, self.points[better]])
        return better, by_settings, gains


@dataclass(frozen=True, slots=True)
class DE(PopulationBased[DEState]):
    """Differential evolution; `population` is 4 + floor(3 ln d) unless given."""

    def first(self, points: FloatArray) -> DEState:
        return DEState(points, archive=np.empty((0, points.shape[1])))

    def children(self, state: DEState, rng: np.random.Generator) -> FloatArray:
        parents = state.points
        k, d = parents.shape
        state.F, state.CR = state.memory.draw(k, rng)
        everyone = np.concatenate([parents, state.archive])
        guides = state.best_first[: max(1, k // 2)]
        guide = parents[guides[rng.integers(len(guides), size=k)]]
        r1, r2 = distinct_pairs(k, len(everyone), rng)
        F = state.F[:, None]
        mutants = parents + F * (guide - parents) + F * (everyone[r2] - parents[r1])
        crossed = binomial(k, d, state.CR, rng)
        return inside(np.where(crossed, mutants, parents), parents)

    def select(
        self, state: DEState, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        better, paid, gains = state.successes(objective, violation)
        if paid.sum() >= 2:
            state.memory.learn(state.F[paid], state.CR[paid], gains[paid])
        state.archive = state.archive[: int(ARCHIVE_SHARE * len(state.points))]
        state.replace(better, points, objective, violation)


def distinct_pairs(k: int, total: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw for each i < k an r1 < k other than i, and an r2 < total other than both."""
    i = np.arange(k)
    r1 = (i + rng.integers(1, k, size=k)) % k
    r2 = rng.integers(total - 2, size=k)
    r2 += r2 >= np.minimum(i, r1)
    r2 += r2 >= np.maximum(i, r1)
    return r1, r2


def binomial(k: int, d: int, CR: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Draw which coordinates (k, d) come from the mutant: one always, others with chance CR."""
    crossed = rng.random((k, d)) < CR[:, None]
    crossed[np.arange(k), rng.integers(d, size=k)] = True
    return crossed
