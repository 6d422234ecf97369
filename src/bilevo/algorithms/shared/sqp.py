"""A local search by sequential quadratic programming (SQP) that requests its points.

R. Wilson, "A simplicial algorithm for concave programming", PhD thesis, Harvard, 1963. The penalty
is by M. Powell, "A fast algorithm for nonlinearly constrained optimization calculations", 1978.
The module quadratic_program solves the quadratic programs.

This is textbook SQP in the unit box, for algorithms that search locally at either level. A solver
of scipy cannot be used, because it cannot wait for requested values. Details:
- Derivatives are finite differences (see differences). Unless the caller has a Hessian, the first
  batch also gives curvatures, which make the first Hessian.
- If a step had to be shortened, the next step is at most twice as long as the shortened step.
- Constraints are met with a margin of 1e-9 of the box, because a pair that violates a constraint by
  a rounding error counts as infeasible.
- A `trusting` search ends after a step that gained what the model expected. After a step with
  another gain, it measures curvatures again, at distances that fit the known curvatures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.shared.differences import At, Iterate, Sampler
from bilevo.algorithms.shared.quadratic_program import quadratic_step
from bilevo.core.arrays import TINY, FloatArray
from bilevo.core.request import Procedure, Values

SLOPE_DIFFERENCE = 2.0**-26  # Distance of neighbours that give slopes; about sqrt(machine epsilon).
MARGIN = 1e-9  # The default of `LocalRule.margin`.
TRIALS = 8  # How many step lengths are tried before a direction is given up.
CURVED = 1e-3  # A step shows curvature if its cosine with the gradient's change is larger.
INDEFINITE = 1e-14  # Eigenvalues below this fraction of the largest may be rounding errors.
MOST_GAIN = 5.0  # The most that a search may still gain, relative to the gain its model expects.
ARMIJO = 1e-4  # The fraction of the expected decrease that a step must achieve.


@dataclass(frozen=True, slots=True, eq=False)
class SearchEnd:
    """The best point that a local search has seen (see `core.order`), and how the search ended."""

    point: FloatArray
    objective: float
    violation: float
    points: int  # how many points were evaluated
    converged: bool
    hessian: FloatArray | None = None  # Hessian of the Lagrangian, as far as learnt
    left: float = math.inf  # decrease of the merit function that the model still expects


@dataclass(frozen=True, slots=True)
class LocalRule:
    """When a local search ends: its points are used up, or the next step gains almost nothing."""

    max_points: int
    tolerance: float = 1e-10  # the least gain that is worth a step
    difference: float = SLOPE_DIFFERENCE  # distance of the neighbours that give slopes
    margin: float = MARGIN  # distance kept from linearized constraints, as a fraction of the box
    ceiling: float = math.inf  # stop if the objective is not expected to fall below this
    unit: float = 1.0  # size of the objective to which rounding errors are relative
    repairing: bool = False  # steps that reduce a violation are taken even if they gain little
    trusting: bool = False  # a whole step that gains what was expected ends the search
    done: Callable[[], bool] = lambda: False  # tells before each step whether to stop


class HessianSource(Enum):
    """Where a model's Hessian comes from."""

    LEARNT = "steps"
    RESCALED = "steps, with curvatures along the axes measured again"
    MEASURED = "curvatures along the axes"


def sqp(
    at: At,
    point: FloatArray,
    low: FloatArray,
    high: FloatArray,
    rule: LocalRule,
    hessian: FloatArray | None = None,
    values: Values | None = None,
) -> Procedure[SearchEnd]:
    """Minimize in a box from a point; return the best point seen. `at` requests values.

    If the caller passes a Hessian, or the values at the start, they are not evaluated again.
    """
    search = LocalSearch(Sampler(at, low, high, rule.max_points, rule.difference, rule.unit), rule)
    yield from search.begin(np.clip(point, low, high), hessian, values)
    while search.here is not None and not rule.done():
        yield from search.iterate(search.here)
    return search.end


@dataclass(slots=True, eq=False)
class LocalSearch:
    """A search in progress: where it is (None once it has ended), and its model."""

    sampler: Sampler
    rule: LocalRule
    here: Iterate | None = None
    model: Model | None = None
    source: HessianSource = HessianSource.LEARNT
    left: float = math.inf  # gain that the model expects from the next step
    converged: bool = False

    @property
    def end(self) -> SearchEnd:
        best, hessian = self.sampler, None if self.model is None else self.model.B
        found = best.point, best.objective, best.violation, best.points
        return SearchEnd(*found, self.converged, hessian, self.left)

    def stop(self, converged: bool) -> None:
        self.here, self.converged = None, converged

    def begin(
        self, point: FloatArray, hessian: FloatArray | None, values: Values | None
    ) -> Procedure[None]:
        """Evaluate the start and its neighbours; the search ends at once if the start fails."""
        values = yield from self.sampler.first(point, values)
        if not math.isfinite(values.objective[0]):
            return
        known = hessian is not None
        self.model = Model(hessian if hessian is not None else np.eye(len(point)))
        self.source = HessianSource.LEARNT if known else HessianSource.MEASURED
        self.here = yield from self.sampler.differences(point, values, curved=not known)

    def iterate(self, here: Iterate) -> Procedure[None]:
        """Take a step; if no step helps, measure curvatures again or stop."""
        rule, sampler = self.rule, self.sampler
        assert self.model is not None
        if self.source is not HessianSource.LEARNT:
            self.model = self.model.measured(here, self.source is HessianSource.RESCALED)
        model, taken = self.model, None
        proposal = model.propose(here, sampler.low, sampler.high, rule.margin)
        self.left, sampler.penalty = -proposal.slope, model.penalty
        if merit(here.values, model.penalty) - MOST_GAIN * self.left > rule.ceiling:
            self.stop(converged=False)
            return
        # Even a small step is worth taking if it undoes a violation.
        repairing = rule.repairing and here.values.violation[0] > 0 < self.left
        if self.left >= rule.tolerance or repairing:
            taken = yield from line_search(sampler, here, proposal, model.penalty)
        if taken is not None:
            yield from self.accept(here, proposal, taken)
        elif self.source is HessianSource.RESCALED:  # the correlations may be wrong
            self.source = HessianSource.MEASURED
        elif self.source is HessianSource.MEASURED or model.settled(proposal, rule.tolerance):
            self.stop(converged=sampler.left() > 0 and sampler.violation == 0)
        else:
            yield from self.measure_again(here)

    def accept(
        self, here: Iterate, proposal: Proposal, taken: tuple[FloatArray, Values]
    ) -> Procedure[None]:
        """Continue from a step that was taken.

        A `trusting` search stops instead if the step gained what the model expected.
        """
        rule, model = self.rule, self.model
        assert model is not None
        whole, surprise = model.surprise(here, taken, proposal)
        feasible = taken[1].violation[0] == 0
        if rule.trusting and whole and feasible and surprise < rule.tolerance:
            self.left = rule.tolerance
            self.stop(converged=True)
            return
        misled = self.rescales(model) and surprise > self.left / 4
        self.here = there = yield from self.sampler.differences(*taken, misled, model.B)
        if there is not None:
            model.learn(here, there, proposal)
        self.source = HessianSource.RESCALED if misled else HessianSource.LEARNT

    def measure_again(self, here: Iterate) -> Procedure[None]:
        """Measure curvatures again, because the model may be wrong."""
        assert self.model is not None
        rescales = self.rescales(self.model)
        near = self.model.B if rescales else None
        self.here = yield from self.sampler.differences(*here.place, True, near)
        self.source = HessianSource.RESCALED if rescales else HessianSource.MEASURED

    def rescales(self, model: Model) -> bool:
        """Tell whether measured curvatures improve the model.

        They do not if constraints are active: the curvatures measured are those of the objective,
        but the model then needs those of the Lagrangian.
        """
        return self.rule.trusting and model.penalty == 0


class Proposal(NamedTuple):
    """A step, the multipliers of the constraints, and the merit function's slope along the step."""

    step: FloatArray
    multipliers: FloatArray
    slope: float


@dataclass(slots=True, eq=False)
class Model:
    """What a search has learnt: the Lagrangian's Hessian, how far to trust it, and the penalty."""

    B: FloatArray
    radius: float = 1.0
    penalty: float = 0.0

    def learn(self, here: Iterate, there: Iterate, proposal: Proposal) -> None:
        """Learn from a step that was taken, whole or shortened."""
        went, meant = np.abs(there.point - here.point).max(), np.abs(proposal.step).max()
        self.radius = min(1.0, float(4 * self.radius if went > 0.99 * meant else 2 * went))
        self.B = updated_hessian(self.B, here, there, proposal.multipliers)

    def measured(self, here: Iterate, correlated: bool) -> Model:
        """Return a model with the measured curvatures along the axes.

        If `correlated`, it keeps the correlations between variables of this model.
        """
        if not correlated or here.curvature is None:
            return Model(first_hessian(here))
        stretch = np.sqrt(first_hessian(here).diagonal() / np.maximum(self.B.diagonal(), TINY))
        return Model(self.B * np.outer(stretch, stretch), self.radius, self.penalty)

    def propose(self, here: Iterate, low: FloatArray, high: FloatArray, margin: float) -> Proposal:
        """Return the step to the model's minimum, and set a penalty that fits it."""
        below, above = low - here.point, high - here.point
        if self.radius < 1 or here.resting.any():
            reach = np.where(here.resting, 0.0, self.radius)
            below, above = np.maximum(below, -reach), np.minimum(above, reach)
        step, multipliers = quadratic_step(
            here.gradient, self.B, here.c, here.jacobian, below, above, margin
        )
        self.penalty = sufficient_penalty(here, self, step, multipliers)
        return Proposal(step, multipliers, merit_slope(here, step, self.penalty))

    def surprise(
        self, here: Iterate, taken: tuple[FloatArray, Values], proposal: Proposal
    ) -> tuple[bool, float]:
        """Tell whether a step was taken whole, and how far its gain is from the expected gain.

        After a whole step, that difference also estimates how much is left to gain.
        """
        (point, values), step = taken, proposal.step
        whole = bool((np.abs(point - here.point) >= 0.99 * np.abs(step)).all())
        gain = merit(here.values, self.penalty) - merit(values, self.penalty)
        expected = -proposal.slope - float(step @ self.B @ step) / 2
        return whole, abs(gain - expected)

    def settled(self, proposal: Proposal, tolerance: float) -> bool:
        """Tell whether a step is short because little gain is left, not because B is too large."""
        with np.errstate(all="ignore"):
            residual = self.B @ proposal.step  # how far the first-order conditions are from met
            softest = max(float(np.diag(self.B).min()), TINY)
            left = float(residual @ residual) / softest
            return -proposal.slope < tolerance and left < 1e4 * tolerance


def merit(values: Values, penalty: float) -> float:
    """Return the exact penalty function, which steps have to decrease."""
    f = float(values.objective[0])
    if not math.isfinite(f):
        return math.inf
    return f + penalty * float(np.maximum(values.constraints[0], 0.0).sum())


def first_hessian(here: Iterate) -> FloatArray:
    """Return the measured curvatures as a diagonal matrix, made positive.

    If the objective is linear, the diagonal is so small that steps may cross the whole box.
    """
    d = len(here.point)
    curvature = np.abs(here.curvature) if here.curvature is not None else np.zeros(d)
    curvature = np.where(np.isfinite(curvature), curvature, 0.0)
    steepest = float(np.abs(here.gradient).max(initial=0.0))
    floor = max(1e-3 * steepest, 1e-8 * float(curvature.max(initial=0.0)))
    if here.curvature is None:
        floor = 10 * steepest  # a first step of at most a tenth of the box
    return np.diag(np.maximum(curvature, floor or 1.0))  # 1.0 where f is flat


def expected_repair(here: Iterate, step: FloatArray) -> float:
    """Return by how much a full step reduces the violation of constraints, to first order."""
    return float((np.maximum(here.c, 0.0) - np.maximum(here.c + here.jacobian @ step, 0.0)).sum())


def sufficient_penalty(
    here: Iterate, model: Model, step: FloatArray, multipliers: FloatArray
) -> float:
    """Return a penalty above the multipliers with which the step decreases the merit function.

    The penalty may slowly fall, because early multipliers are often far too large (Powell, 1978).
    """
    with np.errstate(all="ignore"):
        least = 1.5 * float(multipliers.max(initial=0.0))
        penalty = max(least, (model.penalty + least) / 2)
        repair = expected_repair(here, step)
        if repair > 0:
            needed = 2 * float(here.gradient @ step + step @ model.B @ step / 2) / repair
            penalty = max(penalty, needed) if math.isfinite(needed) else penalty
    return penalty


def merit_slope(here: Iterate, step: FloatArray, penalty: float) -> float:
    """Return the change of the merit function along a full step, to first order."""
    with np.errstate(all="ignore"):
        slope = float(here.gradient @ step - penalty * expected_repair(here, step))
    return slope if math.isfinite(slope) else 0.0


def line_search(
    sampler: Sampler, here: Iterate, proposal: Proposal, penalty: float
) -> Procedure[tuple[FloatArray, Values] | None]:
    """Shorten a step until the merit function falls enough; return the step's end and its values.

    Returns None if no length helps, or if the points are used up.
    """
    step, _, slope = proposal
    start, length = merit(here.values, penalty), 1.0
    for _ in range(TRIALS):
        if sampler.left() < 1:
            return None
        point = np.clip(here.point + length * step, sampler.low, sampler.high)
        if (point == here.point).all():
            return None
        values = yield from sampler.values(point[None])
        value = merit(values, penalty)
        if value <= start + ARMIJO * length * slope:
            return point, values
        if math.isfinite(value):  # the minimum of the parabola through the known values
            parabola = -slope * length**2 / (2 * (value - start - slope * length))
            length = min(max(parabola, 0.1 * length), 0.5 * length)
        else:
            length *= 0.25
    return None


def updated_hessian(
    B: FloatArray, here: Iterate, there: Iterate, multipliers: FloatArray
) -> FloatArray:
    """Return the BFGS update, or B where the curvature along the step is not clearly positive.

    Powell's damping (1978) would always update, but it spoils models of followers with steep walls.
    """
    with np.errstate(all="ignore"):
        step = there.point - here.point
        change = there.lagrangian_gradient(multipliers) - here.lagrangian_gradient(multipliers)
        Bs, along = B @ step, float(step @ change)
        if not along > CURVED * math.sqrt(float(step @ step) * float(change @ change)):
            return B
        new = B + np.outer(change, change) / along - np.outer(Bs, Bs) / float(step @ Bs)
        new = (new + new.T) / 2
    return new if np.isfinite(new).all() and is_definite(new) else B


def is_definite(B: FloatArray) -> bool:
    """Tell whether B is clearly positive definite, so that the model has a minimum.

    An eigenvalue that is positive only by rounding does not count as positive.
    """
    eigenvalues = np.linalg.eigvalsh(B)
    return bool(eigenvalues[0] > INDEFINITE * eigenvalues[-1])
