"""Models of the follower's answer as a function of the leader's x, fitted to archived pairs.

A. Sinha, Z. Lu, K. Deb and P. Malo, "Bilevel optimization based on iterative approximation of
multiple mappings", Journal of Heuristics 26, 2020. The mapping psi gives the answer y to an x, and
the mapping phi gives the value f of this answer. Both are quadratic models, fitted to the archived
leaders nearest to an x. Some of these leaders are left out of the fit, and validate the models.
Local searches use psi or phi, with models of F or with F itself (`exact_by_...`).

The authors' program computes only the first distance, and so takes the oldest leaders for the
nearest. That mistake is corrected here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.rivals.quadratic import Quadratic, fit, minimize, terms
from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import LeaderState
from bilevo.algorithms.shared.sqp import LocalRule, sqp
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Scale
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Values, evaluate
from bilevo.optimizers.variation import WIDTH

SLACK = 1e-6  # How much f may exceed phi, in units of the scale of f.
LOCAL_REACH = 0.05  # How far an exact local search may go, as a fraction of the box.


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of archived pairs that models need, for m upper and n lower variables."""

    m: int
    n: int

    @classmethod
    def of(cls, spec: Spec) -> Sizes:
        return cls(spec.m, spec.n)

    @property
    def training(self) -> int:
        return terms(self.m) + 2 * self.m

    @property
    def mapping(self) -> int:
        """Return how many pairs psi and phi need; m of these are for validation."""
        return self.training + self.m

    @property
    def joint(self) -> int:
        """Return how many pairs models over (x, y) need."""
        return terms(self.m + self.n) + 3 * self.m

    @property
    def capacity(self) -> int:
        return 10 * self.mapping


@dataclass(frozen=True, slots=True, eq=False)
class Mappings:
    """psi and phi around an x, with their errors on training points and on validation points."""

    psi: list[Quadratic]
    phi: Quadratic
    psi_error: float  # normalized, summed over the follower's variables
    phi_error: float
    psi_validation: float  # root mean squared, in unit coordinates
    phi_validation: float
    low: FloatArray  # the least coordinates of the training leaders
    high: FloatArray

    @classmethod
    def around(
        cls, x: FloatArray, solved: Archive, sizes: Sizes, rng: np.random.Generator
    ) -> Mappings:
        """Fit to some of the solved pairs nearest to x; others, drawn at random, validate."""
        near = solved.nearest(x, sizes.mapping)
        order = rng.permutation(len(near))
        training, validating = (
            near.rows(rows) for rows in (order[: sizes.training], order[sizes.training :])
        )
        *psi, phi = fit(training.x, np.concatenate([training.y, training.f], axis=1))
        predicted = np.array([[model(leader) for model in (*psi, phi)] for leader in validating.x])
        truth = np.concatenate([validating.y, validating.f], axis=1)
        with np.errstate(all="ignore"):
            errors = predicted - truth
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
        """Return psi(x), which may lie outside the box."""
        return np.array([model(x) for model in self.psi])

    def surrounds(self, x: FloatArray) -> bool:
        """Tell whether x lies strictly inside the box that the training leaders span."""
        return bool(np.all((self.low < x) & (x < self.high)))


def _root_mean_square(errors: FloatArray) -> float:
    """Return the root mean square, also of numbers whose squares would overflow."""
    return math.hypot(*errors.ravel().tolist()) / math.sqrt(max(errors.size, 1))


@dataclass(frozen=True, slots=True, eq=False)
class JointModels:
    """Models over (x, y) of F and of conditions: f - phi(x) and all constraints are at most 0."""

    objective: Quadratic
    constraints: list[Quadratic]
    low: FloatArray  # the least coordinates of the archived y
    high: FloatArray

    @classmethod
    def around(
        cls, x: FloatArray, pairs: Archive, phi: Quadratic, scale: Scale, sizes: Sizes
    ) -> JointModels:
        """Fit models to the pairs nearest to x; the condition on f has a slack for model errors."""
        near = pairs.nearest(x, sizes.joint)
        columns = np.concatenate([near.F, near.f, near.G, near.g], axis=1)
        objective, f, *constraints = fit(near.pairs, columns)
        gap = f.minus(phi, scale.tolerance(SLACK))
        return cls(objective, [gap, *constraints], near.y.min(axis=0), near.y.max(axis=0))

    def minimize(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the pair of least F under the conditions in the unit box; start at (x, y)."""
        start = np.concatenate([x, y])
        lower, upper = np.zeros(len(start)), np.ones(len(start))
        found = minimize(self.objective, self.constraints, start, lower, upper, 0.0)
        return found[: len(x)], found[len(x) :]

    def answer(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return the leader's best y at x, within the range of archived y; `y` is the start."""
        objective, *constraints = [m.given(x) for m in (self.objective, *self.constraints)]
        return minimize(objective, constraints, y, self.low, self.high, 0.0)


def exact_by_psi(
    state: LeaderState, start: Pair, mappings: Mappings
) -> Procedure[tuple[FloatArray, FloatArray]]:
    """Search F by SQP near the start, with y = psi(x); return x and a guess at y."""

    def at(x: FloatArray) -> Procedure[Values]:
        y = np.clip([mappings.answer(row) for row in x], 0.0, 1.0)
        values = yield from evaluate(Level.UPPER, x, y)
        state.spent = values.spent
        return values

    return (yield from search_near(at, start.x)), start.y


def exact_by_phi(
    state: LeaderState, start: Pair, mappings: Mappings
) -> Procedure[tuple[FloatArray, FloatArray]]:
    """Search F by SQP near the start over (x, y), under f <= phi(x) and all constraints."""
    m, slack = len(start.x), state.f_scale.tolerance(SLACK)

    def at(points: FloatArray) -> Procedure[Values]:
        x, y = points[:, :m], points[:, m:]
        upper = yield from evaluate(Level.UPPER, x, y)
        state.spent = upper.spent
        lower = yield from evaluate(Level.LOWER, x, y)
        gap = lower.objective - np.array([mappings.phi(row) for row in x]) - slack
        constraints = np.column_stack([upper.constraints, lower.constraints, gap])
        return Values.of(upper.objective, constraints, 0, upper.spent)

    found = yield from search_near(at, np.concatenate([start.x, start.y]))
    return found[:m], found[m:]


def search_near(at: At, start: FloatArray) -> Procedure[FloatArray]:
    """Return the best point that SQP finds in a small box around the start."""
    low, high = np.maximum(start - LOCAL_REACH, 0.0), np.minimum(start + LOCAL_REACH, 1.0)
    answer = yield from sqp(at, start, low, high, LocalRule(max_points=100 * len(start)))
    return answer.point


def phi_validation(state: LeaderState, mappings: Mappings) -> float:
    """Return phi's validation error, scaled so that it can be compared with psi's."""
    return mappings.phi_validation / (WIDTH * state.f_scale.tolerance(1.0))


def phi_is_better(state: LeaderState, mappings: Mappings) -> bool:
    return phi_validation(state, mappings) <= mappings.psi_validation
