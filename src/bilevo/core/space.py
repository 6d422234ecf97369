"""The map between the unit box, where algorithms search, and the user's box.

Variables with equal bounds are fixed: the unit box leaves them out. A level whose variables are all
fixed keeps one coordinate that has no effect, so that algorithms need no special case for it.
"""

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.problem import Bounds, Problem

TILED = 32  # up to this number of rows, repeating the bounds is faster than broadcasting


class UnitBox:
    """The map of a box to `size` unit coordinates, at least 1."""

    __slots__ = ("_fixed", "_free", "_lower", "_tiles", "_width", "bounds", "size")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        free: BoolArray = bounds.lower < bounds.upper
        self.size = max(1, int(free.sum()))
        self._free = None if free.all() else np.flatnonzero(free)
        self._fixed = bounds.lower.copy()
        chosen = slice(None) if self._free is None else self._free
        self._lower = bounds.lower[chosen]
        width = bounds.width[chosen]
        # Rounding is monotone: where the far corner stays inside, so does every point.
        outside = self._lower + width > bounds.upper[chosen]
        self._width = np.where(outside, np.nextafter(width, 0), width)
        self._tiles: dict[int, tuple[FloatArray, FloatArray]] = {}

    @property
    def width(self) -> FloatArray:
        """Return widths of the unit coordinates in the user's units; 1 for one without effect."""
        return self._width if self._width.size else np.ones(1)

    def real(self, unit: FloatArray) -> FloatArray:
        """Return rows of unit coordinates in the user's units, never outside the bounds."""
        if self._free is None:  # the usual case, without a further call
            width, lower = self._tiles.get(len(unit)) or self._tiled(len(unit))
            stretched = unit * width
            stretched += lower
            return stretched
        rows = np.tile(self._fixed, (len(unit), 1))
        rows[:, self._free] = unit[:, : self._free.size] * self._width + self._lower
        return rows

    def _tiled(self, rows: int) -> tuple[FloatArray, FloatArray]:
        """Return width and lower bound for each row; for few rows faster than broadcasting."""
        if rows > TILED:
            return self._width, self._lower
        tiles = np.tile(self._width, (rows, 1)), np.tile(self._lower, (rows, 1))
        self._tiles[rows] = tiles
        return tiles

    def unit(self, real: FloatArray) -> FloatArray:
        """Return the unit coordinates of one point in the user's units."""
        chosen = slice(None) if self._free is None else self._free
        unit = np.zeros(self.size)
        unit[: self._width.size] = (real[chosen] - self._lower) / self._width
        return np.clip(unit, 0.0, 1.0)  # rounding


class AsGiven:
    """The map of a solver's answers, which no algorithm searches: they stay as they are."""

    __slots__ = ("bounds", "size")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.size = bounds, bounds.size

    def real(self, given: FloatArray) -> FloatArray:
        return given.copy()


def answer_box(problem: Problem) -> UnitBox | AsGiven:
    """Return the map to the coordinates in which algorithms see answers."""
    return UnitBox(problem.y_bounds) if problem.follower is None else AsGiven(problem.y_bounds)
