"""CMA-ES, the covariance matrix adaptation evolution strategy, in the unit box.

N. Hansen and A. Ostermeier, "Completely derandomized self-adaptation in evolution strategies",
Evolutionary Computation 9(2), 2001; with the injection clip of N. Hansen, "Injecting external
solutions into CMA-ES", 2011, as the public BL-CMA-ES program (X. He et al., 2019) uses it.

What differs from the textbook, and why:
- steps are clipped in length (Hansen 2011), because points told often differ from those asked for:
  they are repaired at a bound, their y is replaced by the follower's answer, or a point of another
  task is added;
- the path p_c has no stall indicator, as in the BL-CMA-ES program;
- samples are drawn by the symmetric root of C (see cma_kernels). C is factorized before sampling,
  not after the update, because cooperation between tasks changes C in between;
- a coordinate beyond a bound is put half-way between the mean and the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.optimizers.cma_kernels import blend, packed_size, parts, sample, update
from bilevo.optimizers.protocol import Start, default_population, require_population


class Params(NamedTuple):
    """Strategy parameters, as `ask` and `update` take them."""

    shape: tuple[int, int]  # (lambda, d)
    weights: FloatArray  # (1, mu)
    row_weights: FloatArray  # (mu, d): weights of the steps in the rank-mu update
    rates: tuple[float, ...]  # the rates that `update` takes, in its order


@cache
def parameters(d: int, lam: int) -> Params:
    """Return the parameters for d variables and a population of `lam` points."""
    mu = lam // 2
    raw = math.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
    weights = raw / raw.sum()
    mu_eff = float(1 / (weights @ weights))
    c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)
    c_s = (mu_eff + 2) / (d + mu_eff + 5)
    c_1 = 2 / ((d + 1.3) ** 2 + mu_eff)
    c_mu = min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((d + 2) ** 2 + mu_eff))
    damping = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c_s
    chi = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))  # mean length of a vector of N(0, I)
    longest = math.sqrt(d) + 2 * d / (d + 2)  # longer whitened steps are cut to this length
    push_s, push_c = (math.sqrt(c * (2 - c) * mu_eff) for c in (c_s, c_c))
    keep, gain = 1 - c_1 - c_mu, c_s / damping
    rates = c_s, push_s, c_c, push_c, keep, math.sqrt(c_1), gain, chi, longest
    row_weights = np.sqrt(c_mu * weights)[:, None].repeat(d, axis=1)
    return Params((lam, d), weights[None], row_weights, rates)


@dataclass(slots=True, eq=False)
class CMAState:
    """A search distribution N(mean, sigma^2 C) of d variables and its evolution paths.

    All are parts of one array (see cma_kernels); the properties are views of it.
    """

    d: int
    packed: FloatArray

    @property
    def mean(self) -> FloatArray:
        return self.packed[: self.d]

    @property
    def C(self) -> FloatArray:
        return parts(self.packed, self.d)[1]

    @property
    def p_c(self) -> FloatArray:
        return parts(self.packed, self.d)[3]

    @property
    def p_s(self) -> FloatArray:
        return parts(self.packed, self.d)[4]

    @property
    def sigma(self) -> float:
        return float(self.packed[-1])

    @sigma.setter
    def sigma(self, value: float) -> None:
        self.packed[-1] = value


@dataclass(frozen=True, slots=True)
class CMAES:
    """CMA-ES; `population` is 4 + floor(3 ln d) unless given."""

    population: int | None = None

    keeps_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_population("CMA-ES", self.population)

    def population_size(self, d: int) -> int:
        return self.population or default_population(d)

    def start(self, start: Start, rng: np.random.Generator | None = None) -> CMAState:
        d = len(start.mean)
        packed = np.zeros(packed_size(d))
        mean, C, _, p_c, _ = parts(packed, d)
        mean[:], C[:], p_c[:], packed[-1] = start.mean, start.covariance, start.path, 1.0
        return CMAState(d, packed)

    def ask(self, state: CMAState, rng: np.random.Generator) -> FloatArray:
        points = rng.standard_normal(parameters(state.d, self.population_size(state.d)).shape)
        sample(state.packed, points)
        return points

    def tell(
        self, state: CMAState, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        _, weights, row_weights, rates = parameters(state.d, self.population_size(state.d))
        objective, violation = self.ranked_by(objective, violation)
        update(state.packed, points, objective, violation, weights, row_weights, rates)

    def ranked_by(
        self, objective: FloatArray, violation: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the values by which points are ranked; a subclass may change them."""
        return objective, violation

    def mean(self, state: CMAState) -> FloatArray:
        return state.packed[: state.d]

    def marginal(self, state: CMAState, first: int) -> Start:
        """Return the Gaussian of the variables from `first` on, scaled by the step size."""
        return Start(
            state.mean[first:],
            state.C[first:, first:] * state.sigma**2,
            state.p_c[first:] * state.sigma,
        )

    def mix(
        self,
        state: CMAState,
        own_weight: float,
        others: Sequence[CMAState],
        weights: Sequence[float],
    ) -> None:
        """Mix means and covariances; step size and paths stay (Eq. (10) of the DRC paper)."""
        mean_and_C = state.d + state.d**2
        for other, weight in zip(others, weights, strict=True):
            blend(state.packed, own_weight, other.packed, weight, mean_and_C)
            own_weight = 1.0

    def exhausted(self, state: CMAState) -> bool:
        """Tell whether the step size has changed a hundredfold since the start."""
        return not 1e-2 <= state.packed[-1] <= 1e2
