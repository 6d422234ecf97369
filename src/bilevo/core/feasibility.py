"""Feasibility within a tolerance: which values of a constraint count as 0.

A constraint is met if its value is at most its tolerance. The tolerance is `ctol` times the scale
of the constraint, but at least `LEAST`. The scale is the size that nine tenths of the constraint's
absolute values exceed at the first points of its level. A typical size would be too large for
constraints that grow fast, such as powers of y. A value above the tolerance counts in full, not
only its excess. With ctol = 0 a constraint is met if its value is at most 0.

The driver applies the tolerances where it makes `Values` (`Values.of`). So algorithms, targets and
the order of points see a violation of 0 where all constraints are within their tolerances. The
values of the constraints themselves are not changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.checks import real_number, shown
from bilevo.core.request import Level

USUAL_CTOL = 1e-9  # The default ctol of our own methods; published methods have 0.
FIRST = 32  # This many points of a level set the scales of its constraints.
SMALL = 0.1  # This share of a constraint's sizes at these points is below its scale.
LEAST = 1e-12  # The smallest tolerance except 0; it covers rounding of constraints near 1.
REMEMBERED = 2048  # Tolerated violations are remembered for at least this many of the last points.

CtolLike = float | tuple[float, float] | None


def ctol_of_levels(ctol: Any, default: float) -> tuple[float, float]:
    """Return the ctol of both levels, upper first; if `ctol` is None, both are the default.

    Raises ValueError if `ctol` is neither None, nor a number, nor a pair of numbers.
    """
    given = default if ctol is None else ctol
    pair = tuple(given) if isinstance(given, tuple | list | np.ndarray) else (given, given)
    numbers = [number for value in pair if (number := real_number(value)) is not None]
    if len(pair) != 2 or len(numbers) != 2 or not all(0 <= one < math.inf for one in numbers):
        raise ValueError(
            "ctol must be None, a finite number of 0 or more, or a pair of them (upper, lower), "
            f"got {shown(given)}"
        )
    return numbers[0], numbers[1]


@dataclass(slots=True)
class Tolerance:
    """The tolerances of a level's constraints, and the violations that they have forgiven.

    The first `FIRST` points whose constraints are finite set the scales. Until there are so many,
    tolerances are as small as they can be: a scale that changes would make an answer infeasible
    that was feasible before. A result reports the violation of its answer in full. So the
    tolerated violation is remembered for the latest points that have one.
    """

    level: Level
    ctol: float
    seen: int = 0  # points that have set the scales so far
    scales: FloatArray = field(default_factory=lambda: np.empty(0))  # (c,)
    sizes: list[FloatArray] = field(default_factory=list)  # absolute values while seen < FIRST
    points: list[str] = field(default_factory=list)  # digests of (x, y), the latest last
    amounts: list[float] = field(default_factory=list)  # tolerated violation at these points

    def __post_init__(self) -> None:
        widths = {len(row) for row in [*self.sizes, self.scales]}
        if not 0 <= self.seen <= FIRST or len(widths) > 1 or len(self.points) != len(self.amounts):
            raise ValueError(f"a tolerance of {self.seen} points with {sorted(widths)} scales")

    def of(self, constraints: FloatArray) -> FloatArray:
        """Return the tolerances (c,) of the constraints, whose values at k new points are (k, c).

        These values first update the scales, as long as fewer than `FIRST` points have set them.
        """
        if self.seen < FIRST:
            self._see(constraints)
        known = self.seen >= FIRST
        return tolerances(self.ctol, self.scales if known else np.zeros(constraints.shape[1]))

    @property
    def settled_scales(self) -> tuple[float, ...]:
        """Return the scales, or nothing while too few points have set them."""
        return tuple(self.scales.tolist()) if self.seen >= FIRST else ()

    def _see(self, constraints: FloatArray) -> None:
        """Update the scales with the rows of constraints (k, c) that are finite."""
        new = np.abs(constraints[np.isfinite(constraints).all(axis=1)][: FIRST - self.seen])
        if not len(new):
            return
        self.sizes.extend(new)
        self.seen += len(new)
        halves = np.array(self.sizes) / 2  # sums of halves do not overflow
        self.scales = 2 * np.quantile(halves, SMALL, axis=0)
        if self.seen == FIRST:
            self.sizes = []

    def remember(self, x: FloatArray, y: FloatArray, amount: float) -> None:
        """Remember the tolerated violation of a pair; x and y are in the user's units."""
        self.points.append(_digest(x, y))
        self.amounts.append(float(amount))
        if len(self.points) > 2 * REMEMBERED:
            del self.points[:REMEMBERED], self.amounts[:REMEMBERED]

    def forgiven(self, x: FloatArray, y: FloatArray) -> float:
        """Return the tolerated violation of a pair; 0 if none is remembered for it."""
        wanted = _digest(x, y)
        for i in range(len(self.points) - 1, -1, -1):
            if self.points[i] == wanted:
                amount = self.amounts[i]
                # It is now the latest one, so that a best pair is still known much later.
                self.remember(x, y, amount)
                return amount
        return 0.0


Tolerances = dict[Level, Tolerance]


def level_tolerances(
    ctol: tuple[float, ...] = (0.0, 0.0), scales: tuple[tuple[float, ...], ...] = ()
) -> Tolerances:
    """Return both levels' tolerances for a `ctol` (upper, lower).

    `scales` (upper, lower) are those of an earlier run. A level without them learns its scales.
    """
    made = {level: Tolerance(level, own) for level, own in zip(Level, ctol, strict=True)}
    for level, known in zip(Level, scales, strict=False):
        if known:
            made[level] = replace(made[level], seen=FIRST, scales=np.array(known))
    return made


def tolerances(ctol: float, scales: FloatArray) -> FloatArray:
    """Return the tolerances (c,) of constraints with these scales (c,)."""
    if ctol == 0:
        return np.zeros(len(scales))
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(ctol * scales, LEAST))


def tolerated(constraints: FloatArray, allowed: FloatArray) -> FloatArray:
    """Return for each row of constraints the violation that the tolerances `allowed` leave out."""
    within = (constraints > 0) & (constraints <= allowed)
    return np.asarray(np.where(within, constraints, 0.0).sum(axis=1))


def _digest(x: FloatArray, y: FloatArray) -> str:
    return blake2b(x.tobytes() + y.tobytes(), digest_size=8).hexdigest()
