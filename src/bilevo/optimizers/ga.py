"""GA: a real-coded genetic algorithm with tournaments, simulated binary crossover and mutation.

K. Deb and R. B. Agrawal, "Simulated binary crossover for continuous search space", Complex Systems
9, 1995. Parents and children compete for places, so that the best are kept.

Followers have small populations. So some settings differ from those usual for a hundred members,
where the index of crossover is 15 and that of mutation 20. Crossover changes every variable, not
half of them. With a lower index it spreads children more widely. With a higher index, mutation
changes children less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import require_positive
from bilevo.core.order import ranking
from bilevo.optimizers.population import Population, PopulationBased
from bilevo.optimizers.variation import polynomial_mutation, simulated_binary_crossover


@dataclass(frozen=True, slots=True)
class GA(PopulationBased[Population]):
    """A real-coded genetic algorithm; `population` is 4 + floor(3 ln d) unless given."""

    crossover_index: float = 2.0
    mutation_index: float = 50.0

    def __post_init__(self) -> None:
        PopulationBased.__post_init__(self)
        require_positive("crossover_index", self.crossover_index, finite=True)
        require_positive("mutation_index", self.mutation_index, finite=True)

    def first(self, points: FloatArray) -> Population:
        return Population(points)

    def children(self, state: Population, rng: np.random.Generator) -> FloatArray:
        k, d = state.points.shape
        place = np.empty(k, np.int64)
        place[state.best_first] = np.arange(k)
        drawn = rng.integers(k, size=(2, 2, k))
        winners = np.where(place[drawn[0]] <= place[drawn[1]], drawn[0], drawn[1])
        mothers, fathers = state.points[winners]
        crossed = simulated_binary_crossover(mothers, fathers, rng, self.crossover_index)
        return polynomial_mutation(crossed, rng, 1 / d, self.mutation_index)

    def select(
        self, state: Population, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        pool = np.concatenate([state.points, points])
        objectives = np.concatenate([state.objective, objective])
        violations = np.concatenate([state.violation, violation])
        best = ranking(objectives, violations)[: len(state.points)]
        state.become(pool[best], objectives[best], violations[best])
