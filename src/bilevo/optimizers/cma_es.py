"""CMA-ES, the covariance matrix adaptation evolution strategy, in the unit box.

N. Hansen and A. Ostermeier, "Completely derandomized self-adaptation in evolution strategies",
Evolutionary Computation 9(2), 2001; with the injection clip of N. Hansen, "Injecting external
solutions into CMA-ES", 2011, as the public BL-CMA-ES program (X. He et al., 2019) uses it.

What differs from the textbook, and why:
- steps are clipped in length (Hansen 2011) because the points told are often not those asked for:
  repaired at a bound, joined by another task's solution, or with their follower part replaced;
- no stall indicator for the path p_c, as in the BL-CMA-ES program;
- samples go through the symmetric root of C (see linalg); C is factorised when sampling, not
  after the update, because cooperation between tasks changes C in between;
- a coordinate beyond a bound is put half-way between the mean and the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray, row_dots
from bilevo.core.budget import require_count
from bilevo.core.order import ranking
from bilevo.optimizers.linalg import CONDITION, symmetric_roots
from bilevo.optimizers.protocol import Start
from bilevo.optimizers.sampling import inside

SMALLEST = (
    1e-30  # deviation below which points of the unit box are equal: no need to shrink further
)
WIDEST = 1e60  # deviation, and distance of the mean, that is as good as any larger one


@dataclass(frozen=True, slots=True, eq=False)
class Params:
    """Strategy parameters of dimension d and population size lambda, in order of derivation."""

    d: int
    lam: int
    mu: int
    weights: FloatArray
    root_weights: FloatArray  # (mu, 1)
    mu_eff: float
    c_c: float
    c_s: float
    c_1: float
    c_mu: float
    damping: float
    chi: float  # expected length of a standard normal vector
    longest: float  # longest whitened step that is let through

    @classmethod
    def of(cls, d: int, lam: int) -> Params:
        mu = lam // 2
        raw = math.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
        weights = raw / raw.sum()
        mu_eff = float(1 / (weights @ weights))
        c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)
        c_s = (mu_eff + 2) / (d + mu_eff + 5)
        c_1 = 2 / ((d + 1.3) ** 2 + mu_eff)
        c_mu = min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((d + 2) ** 2 + mu_eff))
        damping = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c_s
        chi = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
        longest = math.sqrt(d) + 2 * d / (d + 2)
        return cls(
            d=d,
            lam=lam,
            mu=mu,
            weights=weights,
            root_weights=np.sqrt(weights)[:, None],
            mu_eff=mu_eff,
            c_c=c_c,
            c_s=c_s,
            c_1=c_1,
            c_mu=c_mu,
            damping=damping,
            chi=chi,
            longest=longest,
        )


_params = cache(Params.of)


@dataclass(slots=True, eq=False)
class State:
    """A search distribution N(mean, sigma^2 C) and its evolution paths."""

    mean: FloatArray
    sigma: float
    C: FloatArray
    p_c: FloatArray
    p_s: FloatArray
    inverse_root: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # by `ask`, for C


@dataclass(frozen=True, slots=True)
class CMAES:
    """CMA-ES; `population` is 4 + floor(3 ln d) unless given."""

    population: int | None = None

    keeps_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_count("population", self.population)
        if self.population is not None and self.population < 4:
            raise ValueError(f"CMA-ES needs a population of at least 4, got {self.population}")

    def population_size(self, d: int) -> int:
        return self.population or 4 + int(3 * math.log(d))

    def start(self, start: Start, rng: np.random.Generator | None = None) -> State:
        p_s = np.zeros(len(start.mean))
        return State(start.mean.copy(), 1.0, start.covariance.copy(), start.path.copy(), p_s)

    def ask(self, state: State, rng: np.random.Generator) -> FloatArray:
        state.C, root, state.inverse_root, largest = symmetric_roots(state.C)
        state.sigma = max(state.sigma, SMALLEST / largest)
        if state.sigma > CONDITION * largest:  # keep the step size and C comparable
            k = state.sigma / largest
            state.sigma, state.p_c, state.C = largest, state.p_c * k, state.C * k**2
            root, state.inverse_root = root * k, state.inverse_root / k
        d = len(state.mean)
        z = rng.standard_normal((self.population_size(d), d))
        return inside(state.mean + state.sigma * (z @ root), state.mean)

    def tell(
        self, state: State, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        d = len(state.mean)
        params = _params(d, self.population_size(d))
        best = self.order(objective, violation)[: params.mu]
        update(state, params, points[best])

    def order(self, objective: FloatArray, violation: FloatArray) -> IntArray:
        """Indices of evaluated points from best to worst: whom the search follows."""
        return ranking(objective, violation)

    def mean(self, state: State) -> FloatArray:
        return state.mean

    def marginal(self, state: State, first: int) -> Start:
        """The last variables' Gaussian; the step size goes into the covariance and the path."""
        return Start(
            state.mean[first:],
            state.C[first:, first:] * state.sigma**2,
            state.p_c[first:] * state.sigma,
        )

    def mix(
        self, state: State, own_weight: float, others: Sequence[State], weights: Sequence[float]
    ) -> None:
        """Mix means and covariances; step size and paths stay (Eq. (10) of the DRC paper)."""
        mean, C = own_weight * state.mean, own_weight * state.C
        for other, weight in zip(others, weights, strict=True):
            mean += weight * other.mean
            C += weight * other.C
        if max(mean @ mean, C.trace()) > WIDEST**2:  # weights of a sum above 1 let both grow
            mean = np.clip(mean, -WIDEST, WIDEST)
            C *= min(1.0, WIDEST**2 / C.trace())
        state.mean, state.C = mean, C

    def exhausted(self, state: State) -> bool:
        """Whether the step size has changed a hundredfold since the start."""
        return not 1e-2 <= state.sigma <= 1e2


def update(state: State, params: Params, best: FloatArray) -> None:
    """One CMA-ES update from the mu best points, best first (Hansen 2001; clip: Hansen 2011)."""
    steps = (best - state.mean) / state.sigma
    white = steps @ state.inverse_root
    lengths = np.sqrt(row_dots(white, white))
    if max(lengths.tolist()) > params.longest:  # for a few numbers faster than lengths.max()
        shorten = (params.longest / np.maximum(lengths, params.longest))[:, None]
        steps *= shorten
        white *= shorten
    step = params.weights @ steps
    state.mean = state.mean + state.sigma * step
    # Evolution paths.
    c_s, c_c = params.c_s, params.c_c
    state.p_s = (1 - c_s) * state.p_s + math.sqrt(c_s * (2 - c_s) * params.mu_eff) * (
        params.weights @ white
    )
    state.p_c = (1 - c_c) * state.p_c + math.sqrt(c_c * (2 - c_c) * params.mu_eff) * step
    # Covariance: rank one and rank mu.
    c_1, c_mu = params.c_1, params.c_mu
    weighted = params.root_weights * steps
    C = (1 - c_1 - c_mu) * state.C
    C += c_1 * (state.p_c[:, None] * state.p_c)
    C += c_mu * (weighted.T @ weighted)  # a product with its own transpose is exactly symmetric
    state.C = C
    # Step size.
    length = math.sqrt(state.p_s @ state.p_s)
    state.sigma *= math.exp(min(1.0, c_s / params.damping * (length / params.chi - 1)))
