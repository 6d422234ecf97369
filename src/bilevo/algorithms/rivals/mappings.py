"""What archived pairs say about the follower's answer as a function of the leader's x.

A. Sinha, Z. Lu, K. Deb and P. Malo, "Bilevel optimization based on iterative approximation of
multiple mappings", Journal of Heuristics 26, 2020: psi maps x to the answer y, phi to its value f.
Both are quadratic models over the archived leaders nearest to an x, some of which are left out to
validate them.

The authors' program takes the oldest leaders instead of the nearest, a slip (only the first
distance is ever computed) that is not repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.rivals.quadratic import Quadratic, fit, minimize, terms
from bilevo.core.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many archived pairs the models over m leader's and n follower's variables need."""

    m: int
    n: int

    @property
    def training(self) -> int:
        return terms(self.m) + 2 * self.m

    @property
    def mapping(self) -> int:
        """For psi and phi: m of them for validation."""
        return self.training + self.m

    @property
    def joint(self) -> int:
        """For models over (x, y)."""
        return terms(self.m + self.n) + 3 * self.m

    @property
    def capacity(self) -> int:
        return 10 * self.mapping


@dataclass(frozen=True, slots=True, eq=False)
class Mappings:
    """psi and phi around an x, with their errors on training and on validation points."""

    psi: list[Quadratic]
    phi: Quadratic
    psi_error: float  # normalized, summed over the follower's variables
    phi_error: float
    psi_validation: float  # root mean squared, in unit coordinates
    phi_validation: float
    low: FloatArray  # of the training leaders
    high: FloatArray

    @classmethod
    def around(
        cls, x: FloatArray, solved: Archive, sizes: Sizes, rng: np.random.Generator
    ) -> Mappings:
        """From the solved pairs nearest to x, in a random division."""
        near = solved.nearest(x, sizes.mapping)
        order = rng.permutation(len(near))
        training, validating = (
            near.rows(order[: sizes.training]),
            near.rows(order[sizes.training :]),
        )
        *psi, phi = fit(training.x, np.concatenate([training.y, training.f], axis=1))
        told = np.array([[model(leader) for model in (*psi, phi)] for leader in validating.x])
        truth = np.concatenate([validating.y, validating.f], axis=1)
        with np.errstate(all="ignore"):
            errors = told - truth
        return cls(
            psi,
            phi,
            sum(model.mse_norm for model in psi),
            phi.mse_norm,
            _root_mean_square(errors[:, :-1]),
            _root_mean_square(errors[:, -1]),
            training.x.min(axis=0),
            training.x.max(axis=0),
        )

    def answer(self, x: FloatArray) -> FloatArray:
        """psi(x), which may lie outside the box."""
        return np.array([model(x) for model in self.psi])

    def surrounds(self, x: FloatArray) -> bool:
        """Whether x lies strictly between the training leaders."""
        return bool(np.all((self.low < x) & (x < self.high)))


def _root_mean_square(errors: FloatArray) -> float:
    """Without squares, which very large or small values do not have."""
    return math.hypot(*errors.ravel().tolist()) / math.sqrt(max(errors.size, 1))


@dataclass(frozen=True, slots=True, eq=False)
class JointModels:
    """Models over (x, y): F, and all that has to be at most 0, f - phi(x) among it."""

    objective: Quadratic
    constraints: list[Quadratic]
    low: FloatArray  # of the archived y
    high: FloatArray

    @classmethod
    def around(
        cls, x: FloatArray, pairs: Archive, phi: Quadratic, slack: float, sizes: Sizes
    ) -> JointModels:
        """From the pairs nearest to x. Without slack no pair would satisfy exact models."""
        near = pairs.nearest(x, sizes.joint)
        columns = np.concatenate([near.F, near.f, near.G, near.g], axis=1)
        objective, f, *constraints = fit(near.pairs, columns)
        gap = f.minus(phi, slack)
        return cls(objective, [gap, *constraints], near.y.min(axis=0), near.y.max(axis=0))

    def minimize(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The pair in the unit box that the leader prefers of those with f at most phi."""
        start = np.concatenate([x, y])
        lower, upper = np.zeros(len(start)), np.ones(len(start))
        found = minimize(self.objective, self.constraints, start, lower, upper, 0.0)
        return found[: len(x)], found[len(x) :]

    def answer(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """The y that the leader at x prefers, among the archived ones' bounds; y is the start."""
        objective, *constraints = [m.given(x) for m in (self.objective, *self.constraints)]
        return minimize(objective, constraints, y, self.low, self.high, 0.0)
