"""The model of a local search by sequential quadratic programming (see sqp).

It has the Hessian of the Lagrangian, as far as steps have shown it, and the penalties on
constraints, which decide what steps are accepted. The penalties are by M. Powell, "A fast algorithm
for nonlinearly constrained optimization calculations", 1978.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.shared.differences import Iterate
from bilevo.algorithms.shared.quadratic_program import quadratic_step
from bilevo.core.arrays import TINY, BoolArray, FloatArray
from bilevo.core.request import Values

MET = 1e-8  # A constraint this close to 0 may be met by rounding only.
RESOLVED = 10.0  # A change of slopes shows curvature if it is more than their noise times this.
CURVED = 1e-3  # A step shows curvature if its cosine with the gradient's change is larger.
SOFTER = 0.2  # The curvature of a model along a step is reduced to this part if it was negative.
CLEARLY_LESS = 0.8  # A step has shown that B is too large if it shows a smaller part of B,
SOFT_STEPS = 4  # and this many steps in a row show that all of B is.
INDEFINITE = 1e-14  # Eigenvalues below this fraction of the largest may be rounding errors.
CONSTANT = 1e-6  # A constraint does not change if its slopes are below this part of the largest.


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
    rough: bool = False  # whether B is a multiple of the identity that no step has scaled
    guessed: bool = False  # whether B began as a multiple of the identity
    soft_steps: int = 0  # whole steps in a row along which a guessed B was clearly too large

    def merit(self, values: Values) -> float:
        """Return the exact penalty function, which steps have to decrease."""
        f = float(values.objective[0])
        if not math.isfinite(f):
            return math.inf
        return f + self.penalty * float(np.maximum(values.constraints[0], 0.0).sum())

    def learn(self, here: Iterate, there: Iterate, proposal: Proposal, smooth: bool) -> None:
        """Learn from a step that was taken, whole or shortened; `smooth` is as in the rule."""
        multipliers = proposal.multipliers
        went, meant = np.abs(there.point - here.point).max(), np.abs(proposal.step).max()
        whole = went > 0.99 * meant
        self.radius = min(1.0, float(4 * self.radius if whole else 2 * went))
        if self.rough:
            self.B, self.rough = scaled_identity(self.B, here, there, multipliers), False
        elif self.guessed and whole:
            self.soften(here, there, multipliers)
        self.B = updated_hessian(self.B, here, there, multipliers, smooth)

    def soften(self, here: Iterate, there: Iterate, multipliers: FloatArray) -> None:
        """Make all of B smaller if some steps in a row have shown that it is too large.

        BFGS updates alone make it smaller along one step after the other. Scaling by the part of
        the curvature that a step has shown is by S. Oren and D. Luenberger, "Self-scaling variable
        metric algorithms", 1974; doing so after every step loses what earlier steps have shown.
        """
        with np.errstate(all="ignore"):
            step = there.point - here.point
            shown = float(step @ changed_slopes(here, there, multipliers))
            part = shown / float(step @ self.B @ step)
        self.soft_steps = self.soft_steps + 1 if 0 < part < CLEARLY_LESS else 0
        if self.soft_steps >= SOFT_STEPS:
            self.B = self.B * part

    def measured(self, here: Iterate, correlated: bool) -> Model:
        """Return a model with the measured curvatures along the axes.

        If `correlated`, it keeps the correlations between variables of this model.
        """
        if not correlated or here.curvature is None:
            rough = here.given and here.hessian is None
            return Model(first_hessian(here), rough=rough, guessed=rough)
        stretch = np.sqrt(first_hessian(here).diagonal() / np.maximum(self.B.diagonal(), TINY))
        return Model(self.B * np.outer(stretch, stretch), self.radius, self.penalty)

    def propose(
        self, here: Iterate, low: FloatArray, high: FloatArray, margin: float, corrects: bool
    ) -> Proposal:
        """Return the step to the model's minimum, and set a penalty that fits it.

        `margin` and `corrects` are those of the rule of the search.
        """
        below, above = low - here.point, high - here.point
        if self.radius < 1 or here.resting.any():
            reach = np.where(here.resting, 0.0, self.radius)
            below, above = np.maximum(below, -reach), np.minimum(above, reach)
        seen = ~constant_constraints(here) if corrects else np.ones(len(here.c), np.bool_)
        multipliers = np.zeros(len(here.c))
        step, multipliers[seen] = quadratic_step(
            here.gradient, self.B, here.c[seen], here.jacobian[seen], below, above, margin
        )
        # If a step is corrected, a violation within the tolerance needs no penalty of its own.
        repair = 0.0 if corrects and here.values.violation[0] == 0 else expected_repair(here, step)
        self.penalty = sufficient_penalty(here, self, step, multipliers, repair)
        return Proposal(step, multipliers, merit_slope(here, step, self.penalty))

    def surprise(
        self, here: Iterate, taken: tuple[FloatArray, Values], proposal: Proposal
    ) -> tuple[bool, float]:
        """Tell whether a step was taken whole, and how far its gain is from the expected gain."""
        (point, values), step = taken, proposal.step
        whole = bool((np.abs(point - here.point) >= 0.99 * np.abs(step)).all())
        gain = self.merit(here.values) - self.merit(values)
        expected = -proposal.slope - float(step @ self.B @ step) / 2
        return whole, abs(gain - expected)

    def settled(self, proposal: Proposal, tolerance: float) -> bool:
        """Tell whether a step is short because little gain is left, not because B is too large."""
        with np.errstate(all="ignore"):
            residual = self.B @ proposal.step  # how far the first-order conditions are from met
            softest = max(float(np.diag(self.B).min()), TINY)
            left = float(residual @ residual) / softest
            return -proposal.slope < tolerance and left < 1e4 * tolerance


def first_hessian(here: Iterate) -> FloatArray:
    """Return the measured curvatures as a diagonal matrix, or the measured Hessian, made positive.

    If the objective is linear, the curvatures are so small that steps may cross the whole box.
    """
    d = len(here.point)
    curvature = np.abs(here.curvature) if here.curvature is not None else np.zeros(d)
    curvature = np.where(np.isfinite(curvature), curvature, 0.0)
    steepest = float(np.abs(here.gradient).max(initial=0.0))
    if here.hessian is not None:
        curvatures, axes = np.linalg.eigh(here.hessian)
        least = 1e-8 * max(steepest, float(np.abs(curvatures).max()))
        positive = np.maximum(np.abs(curvatures), least or 1.0)
        return np.asarray((axes * positive) @ axes.T)
    floor = max(1e-3 * steepest, 1e-8 * float(curvature.max(initial=0.0)))
    if here.curvature is None:
        floor = 10 * steepest  # a first step of at most a tenth of the box
    return np.diag(np.maximum(curvature, floor or 1.0))  # 1.0 where f is flat


def expected_repair(here: Iterate, step: FloatArray) -> float:
    """Return by how much a full step reduces the violation of constraints, to first order."""
    with np.errstate(all="ignore"):
        then = np.maximum(here.c + here.jacobian @ step, 0.0)
        return float((np.maximum(here.c, 0.0) - then).sum())


def constant_constraints(here: Iterate) -> BoolArray:
    """Tell which constraints are 0 but for rounding, and do not change (c,); no step is for them.

    The leader's constraint may be one that the follower meets with equality everywhere.
    """
    slopes = np.abs(here.jacobian).max(axis=1, initial=0.0)
    level = slopes <= CONSTANT * slopes.max(initial=0.0)
    return np.asarray(level & (np.abs(here.c) <= MET))


def correction(here: Iterate, proposal: Proposal, values: Values, margin: float) -> FloatArray:
    """Return the shortest step that undoes the violations at the end of a proposed step.

    It is the second-order correction of R. Fletcher, "Second order corrections for
    non-differentiable optimization", 1982: with curved constraints, a whole step breaks them, and
    short steps would creep along them.
    """
    c = values.constraints[0]
    active = (c > 0) | (proposal.multipliers > 0)
    active &= ~constant_constraints(here)
    jacobian, left = here.jacobian[active], c[active] + margin
    with np.errstate(all="ignore"):
        step = np.linalg.pinv(jacobian, rcond=1e-8) @ -left
    return step if np.isfinite(step).all() else np.zeros(len(here.point))


def sufficient_penalty(
    here: Iterate, model: Model, step: FloatArray, multipliers: FloatArray, repair: float
) -> float:
    """Return a penalty above the multipliers with which the step decreases the merit function.

    The penalty may slowly fall, because early multipliers are often far too large (Powell, 1978).
    """
    with np.errstate(all="ignore"):
        least = 1.5 * float(multipliers.max(initial=0.0))
        penalty = max(least, (model.penalty + least) / 2)
        if repair > 0:
            needed = 2 * float(here.gradient @ step + step @ model.B @ step / 2) / repair
            penalty = max(penalty, needed) if math.isfinite(needed) else penalty
    return penalty


def merit_slope(here: Iterate, step: FloatArray, penalty: float) -> float:
    """Return the change of the merit function along a full step, to first order."""
    with np.errstate(all="ignore"):
        slope = float(here.gradient @ step - penalty * expected_repair(here, step))
    return slope if math.isfinite(slope) else 0.0


def updated_hessian(
    B: FloatArray, here: Iterate, there: Iterate, multipliers: FloatArray, smooth: bool
) -> FloatArray:
    """Return the BFGS update, or B where the curvature along the step is not clearly positive.

    If that curvature is negative and the objective is smooth, the curvature of B along the step
    becomes smaller, so that the next step is longer. Powell's damping (1978) would do so for small
    curvatures, too, but it spoils models of followers with steep walls. A step so short that the
    slopes change no more than by rounding leaves B as it is.
    """
    with np.errstate(all="ignore"):
        step = there.point - here.point
        change = changed_slopes(here, there, multipliers)
        if np.abs(change).max() <= RESOLVED * (here.noise + there.noise):
            return B
        Bs, along = B @ step, float(step @ change)
        clearly = CURVED * math.sqrt(float(step @ step) * float(change @ change))
        if not along > clearly:
            softer = B - (1 - SOFTER) * np.outer(Bs, Bs) / float(step @ Bs)
            return softer if smooth and along < -clearly and np.isfinite(softer).all() else B
        new = B + np.outer(change, change) / along - np.outer(Bs, Bs) / float(step @ Bs)
        new = (new + new.T) / 2
    return new if np.isfinite(new).all() and is_definite(new) else B


def changed_slopes(here: Iterate, there: Iterate, multipliers: FloatArray) -> FloatArray:
    """Return how the Lagrangian's gradient changes over a step.

    Slopes that were measured in other places than the points themselves are corrected, if one of
    the points has measured curvatures.
    """
    change = there.lagrangian_gradient(multipliers) - here.lagrangian_gradient(multipliers)
    curvature = there.curvature if there.curvature is not None else here.curvature
    if curvature is not None:
        change -= curvature * (np.asarray(there.shift) - here.shift)
    return change


def scaled_identity(
    B: FloatArray, here: Iterate, there: Iterate, multipliers: FloatArray
) -> FloatArray:
    """Return the identity times the curvature that the first step saw, or B if it saw none."""
    with np.errstate(all="ignore"):
        step = there.point - here.point
        change = changed_slopes(here, there, multipliers)
        along = float(step @ change)
        scale = float(change @ change) / along if along > 0 else 0.0
    return scale * np.eye(len(B)) if math.isfinite(scale) and scale > 0 else B


def is_definite(B: FloatArray) -> bool:
    """Tell whether B is clearly positive definite, so that the model has a minimum.

    An eigenvalue that is positive only by rounding does not count as positive.
    """
    eigenvalues = np.linalg.eigvalsh(B)
    return bool(eigenvalues[0] > INDEFINITE * eigenvalues[-1])
