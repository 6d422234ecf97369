"""A local search by sequential quadratic programming (SQP) that requests its points.

R. Wilson, "A simplicial algorithm for concave programming", PhD thesis, Harvard, 1963. The module
sqp_model has the model of the objective, and quadratic_program solves the quadratic programs.

This is textbook SQP in the unit box, for algorithms that search locally at either level. A solver
of scipy cannot be used, because it cannot wait for requested values. Details:
- Derivatives are finite differences (see differences). Unless the caller has a Hessian, the first
  batch also gives curvatures, which make the first Hessian.
- If the caller gives derivatives (`derive`), the first Hessian is a multiple of the identity, and
  the first step scales it (J. Nocedal and S. Wright, "Numerical optimization", 2006, eq. 6.20).
  With `LocalRule.bends`, given gradients at d neighbours make the first Hessian instead.
- If a step had to be shortened, the next step is at most twice as long as the shortened step.
- Constraints are met with a margin of 1e-9 of the box, because a pair that violates a constraint by
  a rounding error counts as infeasible.
- A `trusting` search ends after a step that gained what the model expected. After a step with
  another gain, it measures curvatures again, at distances that fit the known curvatures. It relies
  on its Hessian, so it learns nothing from changes of slopes that errors of differences may cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

import numpy as np

from bilevo.algorithms.shared.differences import At, DeriveAt, Iterate, Sampler
from bilevo.algorithms.shared.foresight import Foresight
from bilevo.algorithms.shared.sqp_model import Model, Proposal, correction
from bilevo.core.arrays import TINY, FloatArray, IntArray
from bilevo.core.request import Procedure, Values

SLOPE_DIFFERENCE = 2.0**-26  # Distance of neighbours that give slopes; about sqrt(machine epsilon).
MARGIN = 1e-9  # The default of `LocalRule.margin`.
# In a curved valley measured curvatures spoil what was learnt of its direction. After this many
# disappointing steps with measured curvatures in a row, a search of a smooth objective measures no
# more. If the objective may not be smooth, its curvatures show whether the search has settled.
MOST_SPOILT = 2
TRIALS = 8  # How many step lengths are tried before a direction is given up.
RELIABLE = 0.1  # A model is reliable if a gain differs from what it expects by less than this.
SMALL_SURPRISE = 1e-2  # A model without kinks misses the gain of a step by less than this part.
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
    gradient: FloatArray | None = None  # of the objective at the point, as the model expects it


@dataclass(frozen=True, slots=True)
class LocalRule:
    """When a local search ends: its points are used up, or the next step gains almost nothing."""

    max_points: int
    tolerance: float = 1e-10  # the least gain that is worth a step
    difference: float = SLOPE_DIFFERENCE  # distance of the neighbours that give slopes
    margin: float = MARGIN  # distance kept from linearized constraints, as a fraction of the box
    # Gives a value; the search stops if the objective is not expected to fall below it.
    ceiling: Callable[[], float] = lambda: math.inf
    unit: float = 1.0  # size of the objective to which rounding errors are relative
    repairing: bool = False  # steps that reduce a violation are taken even if they gain little
    trusting: bool = False  # a whole step that gains what was expected ends the search
    smooth: bool = False  # the objective is known to be smooth: the model is relied on more
    doubts: bool = False  # at active constraints, curvatures are measured before the search ends
    central: bool = False  # slopes are always measured on both sides
    bends: bool = False  # differences of given gradients give the first Hessian
    # Steps that break constraints are corrected, and constraints that cannot change are left out.
    corrects: bool = False
    ahead: bool = False  # neighbours of steps' ends may be requested early (see foresight)
    # Tells before each step whether to stop, from the best point so far and its objective.
    done: Callable[[FloatArray, float], bool] = lambda point, objective: False


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
    derive: DeriveAt | None = None,
) -> Procedure[SearchEnd]:
    """Minimize in a box from a point; return the best point seen. `at` requests values.

    If the caller passes a Hessian, or the values at the start, they are not evaluated again.
    `derive` gives derivatives; where it cannot, differences replace them.
    """
    settings = rule.max_points, rule.difference, rule.unit
    sampler = Sampler(at, low, high, *settings, derive, rule.bends, rule.trusting, rule.central)
    search = LocalSearch(sampler, rule)
    yield from search.begin(np.clip(point, low, high), hessian, values)
    while search.here is not None and not rule.done(sampler.point, sampler.objective):
        yield from search.iterate(search.here)
    return search.end


def sqp_among(
    at: At,
    point: FloatArray,
    chosen: IntArray,
    rule: LocalRule,
    values: Values | None = None,
    derive: DeriveAt | None = None,
) -> Procedure[SearchEnd]:
    """Minimize in the unit box as `sqp` does, but change only the `chosen` variables.

    Unless these are all variables, the end has no Hessian and no gradient.
    """
    low, high = np.zeros(len(chosen)), np.ones(len(chosen))
    if len(chosen) == len(point):
        return (yield from sqp(at, point, low, high, rule, values=values, derive=derive))

    def whole(rows: FloatArray) -> FloatArray:
        found = np.repeat(point[None], len(rows), axis=0)
        found[:, chosen] = rows
        return found

    def derive_some(row: FloatArray) -> Procedure[tuple[FloatArray, FloatArray] | None]:
        found = None if derive is None else (yield from derive(whole(row[None])[0]))
        return None if found is None else (found[0][chosen], found[1][:, chosen])

    def at_some(rows: FloatArray) -> Procedure[Values]:
        return at(whole(rows))

    start = point[chosen]
    end = yield from sqp(at_some, start, low, high, rule, values=values, derive=derive_some)
    return replace(end, point=whole(end.point[None])[0], hessian=None, gradient=None)


@dataclass(slots=True, eq=False)
class LocalSearch:
    """A search in progress: where it is (None once it has ended), and its model."""

    sampler: Sampler
    rule: LocalRule
    here: Iterate | None = None
    last: Iterate | None = None  # the last point whose derivatives were measured
    model: Model | None = None
    source: HessianSource = HessianSource.LEARNT
    # The Hessian before it was measured again, as long as no step has gained more since.
    doubted: FloatArray | None = None
    spoilt: int = 0  # how often in a row a step disappointed although curvatures were measured
    left: float = math.inf  # gain that the model expects from the next step
    foresight: Foresight = field(default_factory=Foresight)
    converged: bool = False

    @property
    def end(self) -> SearchEnd:
        best, hessian = self.sampler, None if self.model is None else self.model.B
        if self.doubted is not None:  # nothing has shown that the new one is better
            hessian = self.doubted
        found = best.point, best.objective, best.violation, best.points
        gradient = None
        if hessian is not None and self.last is not None:
            with np.errstate(all="ignore"):
                gradient = self.last.gradient + hessian @ (best.point - self.last.point)
        return SearchEnd(*found, self.converged, hessian, self.left, gradient)

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
        self.here = yield from self.sampler.differences(
            point, values, not known, hessian if self.rule.smooth else None
        )

    def iterate(self, here: Iterate) -> Procedure[None]:
        """Take a step; if no step helps, measure curvatures again or stop."""
        rule, sampler, self.last = self.rule, self.sampler, here
        assert self.model is not None
        if self.source is not HessianSource.LEARNT:
            self.model = self.model.measured(here, self.source is HessianSource.RESCALED)
        model, taken = self.model, None
        box = sampler.low, sampler.high
        proposal = model.propose(here, *box, rule.margin, rule.corrects)
        self.left, sampler.penalty = -proposal.slope, model.penalty
        if sampler.excess > 0:  # with this penalty, the best point may be another one
            sampler.see(here.point[None], here.values)
        if model.merit(here.values) - MOST_GAIN * self.left > rule.ceiling():
            self.stop(converged=False)
            return
        # Even a small step is worth taking if it undoes a violation.
        repairing = rule.repairing and here.values.violation[0] > 0 < self.left
        if self.left >= rule.tolerance or repairing:
            at = partial(self.step_ahead, here) if rule.ahead and not here.given else None
            taken = yield from line_search(sampler, here, proposal, model.merit, rule, at)
        if taken is not None:
            yield from self.accept(here, proposal, taken)
        elif self.source is HessianSource.RESCALED:  # the correlations may be wrong
            self.source = HessianSource.MEASURED
        elif self.source is HessianSource.MEASURED or self.is_settled(model, proposal):
            self.stop(converged=sampler.left() > 0 and sampler.violation == 0)
        else:
            yield from self.measure_again(here)

    def is_settled(self, model: Model, proposal: Proposal) -> bool:
        """Tell whether the search may end because the model expects little gain.

        At active constraints a model may be far too stiff. If the rule `doubts` it, curvatures are
        measured before the search ends.
        """
        doubtful = self.rule.doubts and bool(proposal.multipliers.any())
        return not doubtful and model.settled(proposal, self.rule.tolerance)

    def accept(
        self, here: Iterate, proposal: Proposal, taken: tuple[FloatArray, Values]
    ) -> Procedure[None]:
        """Continue from a step that was taken.

        A `trusting` search stops instead if the step gained what the model expected.
        """
        rule, model = self.rule, self.model
        assert model is not None
        if model.merit(here.values) - model.merit(taken[1]) > rule.tolerance:
            self.doubted = None
        whole, surprise = model.surprise(here, taken, proposal)
        feasible = taken[1].violation[0] == 0
        # An error of the model changes the gain to first order, but what is left to second order.
        left = surprise
        if rule.smooth and surprise <= SMALL_SURPRISE * self.left:
            left = min(surprise, 4 * surprise * surprise / max(self.left, TINY))
        doubtful = rule.doubts and bool(proposal.multipliers.any())
        if rule.trusting and whole and feasible and not doubtful and left < rule.tolerance:
            self.left = rule.tolerance
            self.stop(converged=True)
            return
        surprised = surprise > self.left / 4
        self.spoilt = self.spoilt_after(surprised)
        misled = surprised and self.measures(here, self.spoilt)
        self.foresight.learn(surprise, self.left, goes_on=not misled)
        # Slopes are corrected by B, unless it may come from a kink.
        reliable = misled or (rule.smooth and surprise <= RELIABLE * self.left)
        B = model.B if reliable else None
        self.here = there = yield from self.sampler.differences(*taken, misled, B)
        if there is not None:
            model.learn(here, there, proposal, rule.smooth)
        remeasured = misled and there is not None and not there.given
        if remeasured and self.doubted is None:
            self.doubted = model.B
        self.source = HessianSource.RESCALED if remeasured else HessianSource.LEARNT

    def spoilt_after(self, surprised: bool) -> int:
        """Return what `spoilt` is after a step."""
        if self.source is not HessianSource.RESCALED:
            return self.spoilt
        return self.spoilt + 1 if surprised else 0

    def measures(self, here: Iterate, spoilt: int) -> bool:
        """Tell whether curvatures are measured after a step with a surprising gain."""
        assert self.model is not None
        # With given gradients, curvatures would cost far more than another step.
        measures = not here.given and not (self.rule.smooth and spoilt >= MOST_SPOILT)
        return measures and self.rescales(self.model)

    def step_ahead(self, here: Iterate, point: FloatArray, trial: int) -> Procedure[Values]:
        """Request values at a step's end; if it is likely to be taken, also at its neighbours."""
        assert self.model is not None
        if not self.foresight.expects(trial, self.left, self.rule.tolerance):
            return (yield from self.sampler.values(point[None]))
        curved = trial > 0 and self.measures(here, self.spoilt_after(True))
        B = self.model.B if curved else None
        return (yield from self.sampler.values_ahead(point, here.values, curved, B))

    def measure_again(self, here: Iterate) -> Procedure[None]:
        """Measure curvatures again, because the model may be wrong.

        If given derivatives have no curvatures, the model begins anew.
        """
        assert self.model is not None
        self.doubted = self.model.B if self.doubted is None else self.doubted
        if here.given:
            self.source = HessianSource.MEASURED
            if self.sampler.bends and self.sampler.derive is not None:
                here.hessian = yield from self.sampler.bent(self.sampler.derive, here)
            return
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


def line_search(
    sampler: Sampler,
    here: Iterate,
    proposal: Proposal,
    merit: Callable[[Values], float],
    rule: LocalRule,
    at: Callable[[FloatArray, int], Procedure[Values]] | None = None,
) -> Procedure[tuple[FloatArray, Values] | None]:
    """Shorten a step until the merit function falls enough; return the step's end and its values.

    `at` may request them instead of the sampler; it is told how often the step was shortened.
    Returns None if no length helps, or if the points are used up.
    """
    step, _, slope = proposal
    start, length = merit(here.values), 1.0
    for trial in range(TRIALS):
        if sampler.left() < 1:
            return None
        point = np.clip(here.point + length * step, sampler.low, sampler.high)
        if (point == here.point).all():
            return None
        values = yield from (sampler.values(point[None]) if at is None else at(point, trial))
        value = merit(values)
        if value <= start + ARMIJO * length * slope:
            return point, values
        if rule.corrects and trial == 0 and 0 < values.violation[0] < math.inf:
            corrected = point + correction(here, proposal, values, rule.margin)
            corrected = np.clip(corrected, sampler.low, sampler.high)
            if sampler.left() > 0 and (corrected != point).any():
                found = yield from sampler.values(corrected[None])
                if merit(found) <= start + ARMIJO * slope:
                    return corrected, found
        if math.isfinite(value):  # the minimum of the parabola through the known values
            parabola = -slope * length**2 / (2 * (value - start - slope * length))
            length = min(max(parabola, 0.1 * length), 0.5 * length)
        else:
            length *= 0.25
    return None
