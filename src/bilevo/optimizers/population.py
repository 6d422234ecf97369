"""Optimizers that keep a population: their start, their selection, and their sampling features.

DRC compares and mixes the sampling features of searches, which say where a search draws points. For
CMA-ES they are a Gaussian. For a population they are as follows:
- the search is at the mean of its members; how this mean changes shows how far a task has come;
- another search that starts from this one draws from a Gaussian with the members' mean and
  covariance;
- a mixture is the weighted mean of the searches' means and covariances, as for CMA-ES. The weights
  are scaled to add up to 1, because larger weights would move a mean out of the box. In the next
  generation a quarter of the points, in the places of the worst members, are drawn from the
  mixture. So cooperation costs no evaluations of its own;
- an evaluated point that was not asked for, such as a neighbour's answer (DRC's navigational
  solution), takes the place of the worst member if it is better;
- a search is exhausted when the members' deviation has fallen to a hundredth of its first value. In
  CMA-ES the step size stands for this deviation.

An optimizer of this kind defines `first` and `children`, and inherits the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.order import no_worse, ranking
from bilevo.optimizers.protocol import Start, default_population, require_population
from bilevo.optimizers.sampling import gaussian

RESAMPLED = 0.25  # share of the points that are drawn from a mixture
EXHAUSTED = 1e-2  # share of its first deviation at which a search is exhausted


@dataclass(slots=True, eq=False)
class Population:
    """The members (k, d) of a population, and their values once these are told.

    If there is a mixture, the next points of some members are drawn from it. Afterwards `resampled`
    holds the indices of these members.
    """

    points: FloatArray
    objective: FloatArray = field(default_factory=lambda: np.empty(0))
    violation: FloatArray = field(default_factory=lambda: np.empty(0))
    first_variance: float = 0.0
    resampled: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    mixture_mean: FloatArray = field(default_factory=lambda: np.empty(0))
    mixture_covariance: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def best_first(self) -> IntArray:
        return ranking(self.objective, self.violation)

    @property
    def mean(self) -> FloatArray:
        total: FloatArray = np.add.reduce(self.points)  # a third of the time of points.mean(axis=0)
        return total / len(self.points)

    @property
    def covariance(self) -> FloatArray:
        away = self.points - self.mean
        covariance: FloatArray = away.T @ away / max(1, len(away) - 1)
        return covariance

    @property
    def variance(self) -> float:
        """Return the members' variance, summed over the variables."""
        away = self.points - self.mean
        return float(np.vdot(away, away)) / len(away)

    def gains(self, objective: FloatArray, violation: FloatArray) -> tuple[BoolArray, FloatArray]:
        """Return which new values are better than the members' in Deb's order, and all differences.

        A difference is absolute. It is one of objectives where the violations are equal, and else
        one of violations.
        """
        equally_feasible = violation == self.violation
        better = np.where(
            equally_feasible,
            (violation == 0) & (objective < self.objective),
            violation < self.violation,
        )
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.where(
                equally_feasible, self.objective - objective, self.violation - violation
            )
        return better, np.abs(difference)

    def replace(
        self, where: BoolArray, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        """Replace the members for which `where` (k,) is True."""
        self.points = np.where(where[:, None], points, self.points)
        self.objective = np.where(where, objective, self.objective)
        self.violation = np.where(where, violation, self.violation)

    def become(self, points: FloatArray, objective: FloatArray, violation: FloatArray) -> None:
        """Replace all members by points and their values."""
        self.points, self.objective, self.violation = points, objective, violation


P = TypeVar("P", bound=Population)


@dataclass(frozen=True, slots=True)
class PopulationBased(ABC, Generic[P]):
    """The common part of optimizers with a population; subclasses add the operators."""

    population: int | None = None

    smallest: ClassVar[int] = 4
    keeps_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_population(type(self).__name__, self.population, self.smallest)

    def population_size(self, d: int) -> int:
        return self.population or default_population(d)

    @abstractmethod
    def first(self, points: FloatArray) -> P:
        """Return the state of a search whose first population is `points`."""

    @abstractmethod
    def children(self, state: P, rng: np.random.Generator) -> FloatArray:
        """Return new points (k, d); the i-th may take the place of member i."""

    def select(
        self, state: P, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        """Update the members with evaluated children: better ones replace their parents."""
        better, _ = state.gains(objective, violation)
        state.replace(better, points, objective, violation)

    def start(self, start: Start, rng: np.random.Generator) -> P:
        count, d = self.population_size(len(start.mean)), len(start.mean)
        if start.anywhere:
            return self.first(rng.random((count, d)))
        return self.first(gaussian(start.mean, start.covariance, count, rng))

    def ask(self, state: P, rng: np.random.Generator) -> FloatArray:
        if not state.objective.size:
            return state.points.copy()
        points = self.children(state, rng)
        state.resampled = np.empty(0, np.int64)
        if state.mixture_mean.size:
            state.resampled = worst = state.best_first[-max(1, int(RESAMPLED * len(points))) :]
            points[worst] = gaussian(state.mixture_mean, state.mixture_covariance, len(worst), rng)
            state.mixture_mean = np.empty(0)
        return points

    def tell(
        self, state: P, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        k = len(state.points)
        asked = points[:k], objective[:k], violation[:k]
        if state.objective.size:
            self.select(state, *asked)
        else:
            state.become(*(part.copy() for part in asked))
            state.first_variance = state.variance
        for i in range(k, len(points)):
            worst = int(state.best_first[-1])
            if not no_worse(
                state.objective[worst], state.violation[worst], objective[i], violation[i]
            ):
                state.replace(np.arange(k) == worst, points[i], objective[i], violation[i])

    def mean(self, state: P) -> FloatArray:
        return state.mean

    def marginal(self, state: P, first: int) -> Start:
        d = state.points.shape[1] - first
        return Start(state.mean[first:], state.covariance[first:, first:], np.zeros(d))

    def mix(
        self, state: P, own_weight: float, others: Sequence[P], weights: Sequence[float]
    ) -> None:
        total = own_weight + sum(weights)
        shares = [weight / total for weight in (own_weight, *weights)]
        weighted = list(zip(shares, (state, *others), strict=True))
        mean = sum(share * search.mean for share, search in weighted)
        covariance = sum(share * search.covariance for share, search in weighted)
        state.mixture_mean, state.mixture_covariance = np.array(mean), np.array(covariance)

    def exhausted(self, state: P) -> bool:
        return state.variance <= EXHAUSTED**2 * state.first_variance
