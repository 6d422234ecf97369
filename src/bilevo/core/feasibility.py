"""Feasibility within a tolerance: which values of a constraint count as 0.

A constraint is met if it is at most `ctol` times its scale, the median of its absolute values at
the first points of its level; the tolerance is never below `LEAST`. A larger value counts in full.
With ctol = 0 a constraint is met if it is at most 0.

The driver applies it where `Values` are made (`Values.of`), so algorithms, targets and the order
see a violation of 0. Each constraint's own value is left as it is.
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

USUAL_CTOL = 1e-9  # of the methods of this package that are not published elsewhere
FIRST = 32  # points of a level that set the scales of its constraints
LEAST = 1e-12  # the smallest tolerance: rounding of constraints with values near 1
REMEMBERED = 2048  # points of a level whose tolerated violation is known, at least

CtolLike = float | tuple[float, float] | None


def ctol_of_levels(ctol: Any, default: float) -> tuple[float, float]:
    """Return the tolerances of both levels, upper first; None is a method's default."""
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

    The points that set the scales are the first whose constraints are finite. Until there are
    enough, the scales are those of the points so far. Of the points with a tolerated violation the
    latest are remembered, because an answer's violation is reported as it is.
    """

    level: Level
    ctol: float
    seen: int = 0
    scales: FloatArray = field(default_factory=lambda: np.empty(0))
    sizes: list[FloatArray] = field(default_factory=list)  # absolute values while seen < FIRST
    points: list[str] = field(default_factory=list)  # digests, the latest last
    amounts: list[float] = field(default_factory=list)  # tolerated violation at these points

    def __post_init__(self) -> None:
        widths = {len(row) for row in [*self.sizes, self.scales]}
        if not 0 <= self.seen <= FIRST or len(widths) > 1 or len(self.points) != len(self.amounts):
            raise ValueError(f"a tolerance of {self.seen} points with {sorted(widths)} scales")

    def of(self, constraints: FloatArray) -> FloatArray:
        """Return the tolerances (c,) once constraints (k, c) are known."""
        if self.seen < FIRST:
            self._see(constraints)
        scales = self.scales if self.seen else np.zeros(constraints.shape[1])
        return tolerances(self.ctol, scales)

    def _see(self, constraints: FloatArray) -> None:
        new = np.abs(constraints[np.isfinite(constraints).all(axis=1)][: FIRST - self.seen])
        if not len(new):
            return
        self.sizes.extend(new)
        self.seen += len(new)
        self.scales = 2 * np.median(np.array(self.sizes) / 2, axis=0)  # halves do not overflow
        if self.seen == FIRST:
            self.sizes = []

    def remember(self, x: FloatArray, y: FloatArray, amount: float) -> None:
        """Note the tolerated violation of a pair, in the user's units."""
        self.points.append(_digest(x, y))
        self.amounts.append(float(amount))
        if len(self.points) > 2 * REMEMBERED:
            del self.points[:REMEMBERED], self.amounts[:REMEMBERED]

    def forgiven(self, x: FloatArray, y: FloatArray) -> float:
        """Return the tolerated violation of a pair; 0 where none is remembered."""
        wanted = _digest(x, y)
        for i in range(len(self.points) - 1, -1, -1):
            if self.points[i] == wanted:
                amount = self.amounts[i]
                self.remember(x, y, amount)  # a best pair may come back much later
                return amount
        return 0.0


Tolerances = dict[Level, Tolerance]


def level_tolerances(
    ctol: tuple[float, ...] = (0.0, 0.0), scales: tuple[tuple[float, ...], ...] = ()
) -> Tolerances:
    """Return both levels' tolerances, with the scales of an earlier run where they are known."""
    made = {level: Tolerance(level, own) for level, own in zip(Level, ctol, strict=True)}
    for level, known in zip(Level, scales, strict=False):
        if known:
            made[level] = replace(made[level], seen=FIRST, scales=np.array(known))
    return made


def tolerances(ctol: float, scales: FloatArray) -> FloatArray:
    """Return the tolerances of constraints with these scales (c,)."""
    if ctol == 0:
        return np.zeros(len(scales))
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(ctol * scales, LEAST))


def tolerated(constraints: FloatArray, allowed: FloatArray) -> FloatArray:
    """Return the violation of each row that the tolerances leave out."""
    within = (constraints > 0) & (constraints <= allowed)
    return np.asarray(np.where(within, constraints, 0.0).sum(axis=1))


def _digest(x: FloatArray, y: FloatArray) -> str:
    return blake2b(x.tobytes() + y.tobytes(), digest_size=8).hexdigest()
