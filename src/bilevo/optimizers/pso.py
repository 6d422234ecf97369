"""PSO: particle swarm optimization with constriction and a global best.

M. Clerc and J. Kennedy, "The particle swarm: explosion, stability, and convergence in a
multidimensional complex space", IEEE Transactions on Evolutionary Computation 6(1), 2002.

The members are the particles' best points; the particles' present places and velocities are kept
beside them. A particle that leaves the box is put half-way to the bound and stopped in that
coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.optimizers.cma_kernels import inside
from bilevo.optimizers.population import Population, PopulationBased

CONSTRICTION = 0.7298  # Clerc and Kennedy's factor for accelerations of 2.05 + 2.05
ACCELERATION = 2.05


@dataclass(slots=True, eq=False)
class PSOState(Population):
    """The particles' best points, their present places, and their velocities."""

    places: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    velocities: FloatArray = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(frozen=True, slots=True)
class PSO(PopulationBased[PSOState]):
    """Particle swarm optimization; `population` is 4 + floor(3 ln d) unless given."""

    def first(self, points: FloatArray) -> PSOState:
        velocities = (np.roll(points, 1, axis=0) - points) / 2  # half-way to another particle
        return PSOState(points, places=points.copy(), velocities=velocities)

    def children(self, state: PSOState, rng: np.random.Generator) -> FloatArray:
        leader = state.points[state.best_first[0]]
        own_pull, common_pull = ACCELERATION * rng.random((2, *state.points.shape))
        state.velocities = CONSTRICTION * (
            state.velocities
            + own_pull * (state.points - state.places)
            + common_pull * (leader - state.places)
        )
        moved = state.places + state.velocities
        state.velocities[(moved < 0) | (moved > 1)] = 0.0
        return inside(moved, state.places)

    def select(
        self, state: PSOState, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        state.places = points.copy()
        PopulationBased.select(self, state, points, objective, violation)
