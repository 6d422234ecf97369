"""The protocol of optimizers, which search the unit box [0, 1]^d at either level.

An optimizer object holds settings only. What changes during a search is its state, a dataclass of
arrays and numbers. An optimizer must not keep the arrays that it is given. Between `ask` and
`tell`, it must not change the points that it has returned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import require_count

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
        """Draw a mean in the unit box; `spread` (d,) holds independent standard deviations."""
        d = len(spread)
        return cls(rng.random(d), np.diag(spread**2), np.zeros(d), anywhere=True)


class Searcher(Protocol[S_contra]):
    """The part of an optimizer that a search needs once it has been started."""

    def ask(self, state: S_contra, rng: np.random.Generator) -> FloatArray:
        """Return points (k, d) inside the unit box to evaluate."""
        ...

    def tell(
        self, state: S_contra, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        """Learn from evaluated points: those of `ask`, which may be altered, and possibly others.

        Arrays are contiguous and of float64, as compiled code needs them.
        """
        ...

    def exhausted(self, state: S_contra) -> bool:
        """Tell whether continuing the search is of no use."""
        ...


class PopulationOptimizer(Searcher[S], Protocol[S]):
    """A population-based optimizer of d variables in the unit box.

    `keeps_values` says whether values of earlier generations are compared with new ones, as in a
    population. If so, a leader that seems better than the best known one is told to the optimizer
    only after its follower has been solved.
    """

    @property
    def keeps_values(self) -> bool: ...

    def population_size(self, d: int) -> int:
        """Return how many points `ask` gives."""
        ...

    def start(self, start: Start, rng: np.random.Generator) -> S:
        """Return the state of a new search from a distribution."""
        ...

    def mean(self, state: S) -> FloatArray:
        """Return where the search is; how much this changes shows how far a task has come."""
        ...

    def marginal(self, state: S, first: int) -> Start:
        """Return the distribution of the variables from `first` on, to start another search."""
        ...

    def mix(
        self, state: S, own_weight: float, others: Sequence[S], weights: Sequence[float]
    ) -> None:
        """Replace a search's sampling features by a weighted mixture with other searches' features.

        There is at least one other search.
        """
        ...


AnyOptimizer = PopulationOptimizer[Any]


@cache
def default_population(d: int) -> int:
    return 4 + int(3 * math.log(d))


def require_population(
    owner: str, population: int | None, smallest: int = 4, optional: bool = True
) -> None:
    """Refuse a population size that is no whole number or too small.

    None is allowed if `optional`.
    """
    require_count("population", population, optional)
    if population is not None and population < smallest:
        raise ValueError(f"{owner} needs a population of at least {smallest}, got {population}")
