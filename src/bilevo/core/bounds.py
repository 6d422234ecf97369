"""Bounds of variables: real numbers, whole numbers and choices.

A whole number and a choice are told apart from a real number here, and nowhere else. `Grid` is the
part of this that an algorithm sees; `bilevo.core.space` decodes what an algorithm searches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.checks import real_array, shown

UNBOUNDED = "for variables without bounds see docs/recipe_from_others.md"
LARGEST_WHOLE = 2.0**53  # Beyond this, not every whole number is a float.


class Choice:
    """A variable that takes one of several labels, which have no order.

    It stands in the bounds in place of a pair (lower, upper). Functions get the index of the label,
    as a whole float that starts at 0; `Problem.decode` gives the label.

    >>> Choice("gas", "coal", "wind")
    Choice('gas', 'coal', 'wind')
    """

    __slots__ = ("labels",)

    def __init__(self, *labels: Any) -> None:
        fine = all(isinstance(label, str | int | float) for label in labels)
        if not fine or len(labels) < 2 or len(set(labels)) < len(labels):
            raise ValueError(
                "a Choice needs two or more different labels, texts or numbers, such as "
                f'Choice("gas", "coal"); got {shown(labels)}'
            )
        self.labels = labels

    def __repr__(self) -> str:
        return f"Choice({', '.join(map(repr, self.labels))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and self.labels == other.labels

    def __hash__(self) -> int:
        return hash(self.labels)


class Bounds:
    """A finite box: `lower <= variable <= upper`, entry by entry. Equal bounds fix a variable.

    `whole` (size,) says which variables are whole numbers, and `choices` has the `Choice` of each
    variable that is one, by its index. A choice is a whole number from 0, too.
    """

    __slots__ = ("choices", "lower", "upper", "whole")

    def __init__(
        self,
        lower: Any,
        upper: Any,
        name: str = "bounds",
        integrality: Any = None,
        choices: dict[int, Choice] | None = None,
    ) -> None:
        try:
            low, high = real_array(lower), real_array(upper)
        except ValueError:
            raise ValueError(
                f"{name} must be real numbers, got {shown(lower)} and {shown(upper)}"
            ) from None
        if low.ndim != 1 or low.shape != high.shape or low.size == 0:
            raise ValueError(
                f"{name} need a lower and an upper vector of one length, at least 1; "
                f"got shapes {low.shape} and {high.shape}"
            )
        for bad, what in (
            (~(np.isfinite(low) & np.isfinite(high)), f"not finite; {UNBOUNDED}"),
            (low > high, "reversed (lower > upper)"),
            (~np.isfinite(_width(low, high)), "wider than floating point can hold"),
        ):
            _refuse(bad, name, low, high, what)
        self.choices = dict(choices or {})
        self.whole = _whole_entries(integrality, name, low.size)
        self.whole[list(self.choices)] = True
        self.lower, self.upper = low, high
        if self.whole.any():
            self.lower, self.upper = _whole_bounds(name, low, high, self.whole)

    def __repr__(self) -> str:
        integrality = f", integrality={self.integrality.tolist()}" if self.whole.any() else ""
        return f"Bounds({self.lower.tolist()}, {self.upper.tolist()}{integrality})"

    @classmethod
    def of(cls, bounds: Any, name: str = "bounds", integrality: Any = None) -> Bounds:
        """Make bounds from a Bounds, from scipy's Bounds, or from a sequence of entries.

        An entry is a pair (lower, upper), or a `Choice`. `integrality` has an entry for each
        variable: 0 for a real number, 1 for a whole number.
        """
        if isinstance(bounds, Bounds):
            if integrality is None:
                return bounds
            return cls(bounds.lower, bounds.upper, name, integrality, bounds.choices)
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            return cls(bounds.lb, bounds.ub, name, integrality)
        choices: dict[int, Choice] = {}
        try:
            entries = list(bounds)
            choices = {i: one for i, one in enumerate(entries) if isinstance(one, Choice)}
            for i, one in choices.items():
                entries[i] = (0.0, len(one.labels) - 1.0)
            pairs = np.array([real_array(list(pair)) for pair in entries])
        except (TypeError, ValueError):
            pairs = np.empty(0)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(
                f"{name} must be a sequence of (lower, upper) pairs, one per variable, "
                f"such as [(-5, 10), (0, 1)]; got {shown(bounds)}"
            )
        return cls(pairs[:, 0], pairs[:, 1], name, integrality, choices)

    @property
    def size(self) -> int:
        return int(self.lower.size)

    @property
    def integrality(self) -> IntArray:
        """Return 1 for each whole number and each choice, 0 for each real number."""
        return self.whole.astype(np.int64)

    @property
    def has_whole(self) -> bool:
        """Tell whether a variable that is not fixed is a whole number or a choice."""
        return bool((self.whole & (self.lower < self.upper)).any())

    def contain(self, points: FloatArray) -> bool:
        """Tell whether a point, or all rows of points, are within the bounds; NaN is not."""
        return bool(((self.lower <= points) & (points <= self.upper)).all())

    def not_whole(self, point: FloatArray) -> int | None:
        """Return the first variable that must be whole, and is not so in a point (size,)."""
        wrong = np.flatnonzero(self.whole & (point != np.floor(point)))
        return int(wrong[0]) if wrong.size else None

    @property
    def width(self) -> FloatArray:
        return _width(self.lower, self.upper)

    def decode(self, point: FloatArray) -> list[Any]:
        """Return a point (size,) as a list of floats, ints and labels."""
        values: list[Any] = point.tolist()
        for i in np.flatnonzero(self.whole).tolist():
            values[i] = round(values[i])
            if i in self.choices:
                values[i] = self.choices[i].labels[values[i]]
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """What an algorithm sees of the whole numbers and choices of one level.

    `values` (size,) says how many values each unit coordinate takes, and is 0 for a real number.
    A coordinate u with k values means its value number floor(k u), counted from 0; the last value
    has u = 1, too. `unordered` (size,) says which coordinates are choices.
    """

    values: IntArray
    unordered: BoolArray

    @classmethod
    def of(cls, bounds: Bounds) -> Grid | None:
        """Return the grid of the variables that are not fixed, or None if all are real numbers."""
        if not bounds.has_whole:
            return None
        free = np.flatnonzero(bounds.lower < bounds.upper)
        count = np.where(bounds.whole[free], bounds.width[free] + 1, 0.0)
        unordered = np.array([int(i) in bounds.choices for i in free], np.bool_)
        return cls(count.astype(np.int64), unordered)

    @classmethod
    def of_reals(cls, size: int) -> Grid:
        """Return the grid of real variables only, which has one cell."""
        return cls(np.zeros(size, np.int64), np.zeros(size, np.bool_))

    def beside(self, other: Grid) -> Grid:
        """Return the grid of these coordinates and then those of another grid."""
        values = np.concatenate([self.values, other.values])
        return Grid(values, np.concatenate([self.unordered, other.unordered]))

    @property
    def whole(self) -> BoolArray:
        """Say which unit coordinates are whole numbers or choices."""
        return self.values > 0

    @property
    def all_whole(self) -> bool:
        return bool((self.values > 0).all())

    @property
    def cells(self) -> float:
        """Return the number of combinations of whole numbers and choices."""
        return math.prod(map(float, self.values[self.values > 0]))

    def cell(self, unit: FloatArray) -> IntArray:
        """Return the numbers of the values at unit points (..., size); 0 for real numbers."""
        count = np.maximum(self.values, 1)
        return np.asarray(np.minimum(np.floor(unit * self.values), count - 1), np.int64)

    def centre(self, cell: IntArray, unit: FloatArray) -> FloatArray:
        """Return unit points (..., size): the middles of cells, with the real numbers of `unit`."""
        count = np.maximum(self.values, 1)
        return np.where(self.values > 0, (cell + 0.5) / count, unit)


def inside(name: str, given: Any, bounds: Bounds) -> FloatArray:
    """Return a point (size,); refuse one outside the bounds, or not whole where it must be."""
    try:
        point = real_array(given)
    except ValueError:
        raise ValueError(f"{name} must be {bounds.size} numbers, got {shown(given)}") from None
    if point.shape == () and bounds.size == 1:
        point = point.reshape(1)
    if point.shape != (bounds.size,):
        raise ValueError(f"{name} must have shape ({bounds.size},), got {point.shape}")
    outside = ~((bounds.lower <= point) & (point <= bounds.upper))
    if outside.any():
        i = int(np.argmax(outside))
        low, high = bounds.lower[i], bounds.upper[i]
        raise ValueError(f"{name}[{i}] = {point[i]} is outside its bounds ({low}, {high})")
    wrong = bounds.not_whole(point)
    if wrong is not None:
        raise ValueError(f"{name}[{wrong}] must be a whole number, got {point[wrong]}")
    return point


def _width(lower: FloatArray, upper: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(upper - lower)


def _refuse(bad: BoolArray, name: str, low: FloatArray, high: FloatArray, what: str) -> None:
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"{name}[{i}] = ({low[i]}, {high[i]}) is {what}")


def _whole_entries(integrality: Any, name: str, size: int) -> BoolArray:
    """Return which variables an `integrality` says to be whole; None says that none is."""
    if integrality is None:
        return np.zeros(size, np.bool_)
    label = name.replace("bounds", "integrality")
    try:
        given = np.broadcast_to(real_array(integrality), (size,))
    except ValueError:
        given = np.array([np.nan])
    if not np.isin(given, (0.0, 1.0)).all():
        raise ValueError(
            f"{label} must be {size} numbers, each 0 (real) or 1 (whole), or one number for all; "
            f"got {shown(integrality)}"
        )
    return np.asarray(given == 1.0)


def _whole_bounds(
    name: str, low: FloatArray, high: FloatArray, whole: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the bounds with those of whole variables moved inwards to whole numbers."""
    lower, upper = np.where(whole, np.ceil(low), low), np.where(whole, np.floor(high), high)
    lower, upper = lower + 0.0, upper + 0.0  # -0.0 becomes 0.0
    _refuse(lower > upper, name, low, high, "for a whole number, but holds none")
    large = whole & ((np.abs(lower) > LARGEST_WHOLE) | (np.abs(upper) > LARGEST_WHOLE))
    _refuse(large, name, low, high, "for a whole number, and beyond 2**53")
    for side in (lower, upper):
        side.flags.writeable = False
    return lower, upper
