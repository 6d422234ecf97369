"""IMODE: differential evolution with three operators that compete, and a population that shrinks.

K. Sallam, S. Elsayed, R. Chakrabortty and M. Ryan, "Improved multi-operator differential evolution
algorithm for solving unconstrained problems", IEEE Congress on Evolutionary Computation, 2020; as
in PlatEMO (Y. Tian et al., 2017).

What differs, and why:
- the third operator, F (r1 + p2 - r3), scales vectors from zero in the user's units. That would
  favour optima at zero and depend on the units; here it scales them from the centre of the box;
- a coordinate beyond a bound is put half-way to the bound, as in the other optimizers;
- there is no phase of sequential quadratic programming. It asks for points one by one, but an
  optimizer here asks for a generation at a time. Algorithms run local searches themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.core.arrays import TINY, BoolArray, FloatArray, IntArray
from bilevo.core.budget import require_count
from bilevo.optimizers.cma_kernels import inside
from bilevo.optimizers.de import DEState, binomial
from bilevo.optimizers.population import PopulationBased
from bilevo.optimizers.success import Memory

OPERATORS = 3
LAST_SIZE = 4  # size of the population when the budget is used up
ARCHIVE_PER_MEMBER = 2.6  # size of the archive of replaced parents, per member
MEMORY_PER_VARIABLE = 20  # length of the memory of settings, per variable
# The scale factor F and the crossover rate CR in the memory: at the start, and those that it learns
# after a generation in which no child was better than its parent.
FIRST_SETTING, IDLE_SETTING = 0.2, 0.5
SPREAD = math.sqrt(0.1)  # how widely F and CR are drawn around remembered settings
BINOMIAL = 0.4  # probability of binomial crossover; otherwise exponential
CHANCES = 0.1, 0.9  # smallest and largest probability of an operator
CENTRE = 0.5  # coordinate of the centre of the box


@dataclass(slots=True, eq=False)
class IMODEState(DEState):
    """A state of DE, the operators' probabilities, and which operator made each child."""

    chances: FloatArray = field(default_factory=lambda: np.full(OPERATORS, 1 / OPERATORS))
    operator: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    told: int = 0  # points evaluated so far, including the first population


@dataclass(frozen=True, slots=True)
class IMODE(PopulationBased[IMODEState]):
    """Multi-operator DE; `population` is 18 d unless given, and 4 after `budget` evaluations."""

    budget: int = 2500

    def __post_init__(self) -> None:
        PopulationBased.__post_init__(self)
        require_count("budget", self.budget)

    def population_size(self, d: int) -> int:
        return self.population or 18 * d

    def first(self, points: FloatArray) -> IMODEState:
        count, d = points.shape
        memory = Memory.of(MEMORY_PER_VARIABLE * d, FIRST_SETTING)
        return IMODEState(points, archive=np.empty((0, d)), memory=memory, told=count)

    def children(self, state: IMODEState, rng: np.random.Generator) -> FloatArray:
        variants = self.variants(state, rng)
        shares = np.cumsum(state.chances)
        draws = rng.random(len(state.points)) * shares[-1]
        state.operator = np.minimum(np.searchsorted(shares, draws), OPERATORS - 1)
        children: FloatArray = variants[state.operator, np.arange(len(state.points))]
        return children

    def variants(self, state: IMODEState, rng: np.random.Generator) -> FloatArray:
        """Return children (3, k, d): each of the three operators makes one child of each member.

        A caller that picks one child per member stores the picked operators in `state.operator`.
        """
        self.shrink(state, rng)
        k, d = state.points.shape
        F, CR = state.memory.draw(k, rng, SPREAD)
        CR_by_rank = np.empty(k)
        CR_by_rank[state.best_first] = np.sort(CR)  # better members are changed less
        state.F, state.CR = F, CR_by_rank
        mutants = self.mutants(state, rng)
        cross = binomial if rng.random() < BINOMIAL else exponential
        crossed = cross(k, d, state.CR, rng)
        children = np.where(crossed, mutants, state.points)
        centres = np.broadcast_to(state.points, children.shape)
        return inside(children, centres)

    def mutants(self, state: IMODEState, rng: np.random.Generator) -> FloatArray:
        x, F = state.points, state.F[:, None]
        k, everyone = len(x), np.concatenate([x, state.archive])

        def among_best(share: float) -> FloatArray:
            best = state.best_first[: math.ceil(share * k)]
            return np.asarray(x[best[rng.integers(len(best), size=k)]])

        p1, p2 = among_best(0.25), among_best(0.5)
        r1, r3 = x[rng.integers(k, size=k)], x[rng.integers(k, size=k)]
        r2 = everyone[rng.integers(len(everyone), size=k)]
        return np.stack(
            [
                x + F * (p1 - x + r1 - r2),
                x + F * (p1 - x + r1 - r3),
                CENTRE + F * (r1 + p2 - r3 - CENTRE),
            ]
        )

    def shrink(self, state: IMODEState, rng: np.random.Generator) -> None:
        """Keep the best members; their number falls as the budget is used up."""
        k, d = state.points.shape
        first = self.population_size(d)
        left = max(0.0, 1 - state.told / self.budget)
        size = min(k, LAST_SIZE + math.ceil((first - LAST_SIZE) * left))
        if size < k:
            kept = np.sort(state.best_first[:size])
            state.become(state.points[kept], state.objective[kept], state.violation[kept])
        room = math.ceil(ARCHIVE_PER_MEMBER * size)
        if len(state.archive) > room:
            state.archive = state.archive[rng.permutation(len(state.archive))[:room]]

    def select(
        self, state: IMODEState, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        state.told += len(points)
        better, paid, gains = state.successes(objective, violation)
        if paid.any():
            state.memory.learn(state.F[paid], state.CR[paid], gains[paid])
        else:
            idle = np.full(1, IDLE_SETTING)
            state.memory.learn(idle, idle, np.ones(1))
        with np.errstate(all="ignore"):
            relative = np.where(paid, gains / (np.abs(state.objective) + TINY), 0.0)
        state.chances = operator_chances(state.operator, relative)
        state.replace(better, points, objective, violation)


def operator_chances(operator: IntArray, gains: FloatArray) -> FloatArray:
    """Return the operators' probabilities, in proportion to the mean gains of their children.

    They are kept within `CHANCES`. All are equal if an operator made no child, or nothing was
    gained.
    """
    even = np.full(OPERATORS, 1 / OPERATORS)
    used = np.bincount(operator, minlength=OPERATORS)
    if used.min() == 0:
        return even
    gains = np.where(np.isfinite(gains), gains, 0.0)
    means = np.bincount(operator, gains / max(gains.max(), TINY), OPERATORS) / used
    return np.clip(means / means.sum(), *CHANCES) if means.sum() > 0 else even


def exponential(k: int, d: int, CR: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Draw which coordinates (k, d) come from the mutant: a run of them, longer with larger CR."""
    first = rng.integers(d, size=k)[:, None]
    ends = np.concatenate([rng.random((k, d)) > CR[:, None], np.ones((k, 1), np.bool_)], axis=1)
    length = np.argmax(ends, axis=1)[:, None]
    place = np.arange(d)
    return np.asarray((place >= first) & (place <= first + length))
