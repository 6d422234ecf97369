"""What DRC needs of an optimizer at either level, in the unit box [0, 1]^d.

An optimizer object holds settings only; what changes while it searches is its state, a dataclass of
arrays and numbers. Eight small methods make an optimizer usable above and below. Arrays that it is
given it must not keep, and points that it hands out it must not change before `tell`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from bilevo.core.arrays import FloatArray

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A search distribution to start from: mean (d,), covariance (d, d), evolution path (d,).

    `anywhere` says that nothing is known yet: a population starts all over the box.
    """

    mean: FloatArray
    covariance: FloatArray
    path: FloatArray
    anywhere: bool = False

    @classmethod
    def uniform(cls, spread: FloatArray, rng: np.random.Generator) -> Start:
        """A mean anywhere in the unit box, and independent standard deviations `spread` (d,)."""
        d = len(spread)
        return cls(rng.random(d), np.diag(spread**2), np.zeros(d), anywhere=True)


class Searcher(Protocol[S_contra]):
    """What a follower's search needs of an optimizer once it has been started."""

    def ask(self, state: S_contra, rng: np.random.Generator) -> FloatArray:
        """Points (k, d) inside the unit box to evaluate."""
        ...

    def tell(
        self, state: S_contra, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        """Learn from evaluated points: those asked for, altered or with others added.

        Arrays are contiguous and of float64, as compiled code wants them.
        """
        ...

    def exhausted(self, state: S_contra) -> bool:
        """Whether the search cannot usefully go on."""
        ...


class PopulationOptimizer(Searcher[S], Protocol[S]):
    """A population-based optimizer of d variables in the unit box.

    `keeps_values` says whether values that were told decide in later generations, as those of a
    population do. To such an optimizer a leader is not said to be better than the best known one
    before its follower is solved.
    """

    @property
    def keeps_values(self) -> bool: ...

    def population_size(self, d: int) -> int:
        """How many points `ask` gives."""
        ...

    def start(self, start: Start, rng: np.random.Generator) -> S:
        """A fresh search from a distribution."""
        ...

    def mean(self, state: S) -> FloatArray:
        """Where the search is: its fluctuation tells how far a task has come."""
        ...

    def marginal(self, state: S, first: int) -> Start:
        """The distribution of the variables from `first` on, to start another search."""
        ...

    def mix(
        self, state: S, own_weight: float, others: Sequence[S], weights: Sequence[float]
    ) -> None:
        """Take a weighted mixture of its own and others' sampling features; there is another."""
        ...
