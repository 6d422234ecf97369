"""The map between the unit box, where algorithms search, and the user's box.

Variables with equal bounds are fixed: the unit box leaves them out. A level whose variables are all
fixed keeps one coordinate that has no effect, so that algorithms need no special case for it. A
whole number with k values has k cells of equal width in its unit coordinate; it is decoded here.
"""

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.bounds import Bounds
from bilevo.core.problem import Problem

TILED = 32  # up to this number of rows, repeating the bounds is faster than broadcasting


class UnitBox:
    """The map between a box and its `size` unit coordinates; `size` is at least 1."""

    __slots__ = ("_fixed", "_free", "_lower", "_tiles", "_whole", "_width", "bounds", "size")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        free: BoolArray = bounds.lower < bounds.upper
        self.size = max(1, int(free.sum()))
        self._free = None if free.all() else np.flatnonzero(free)
        self._fixed = bounds.lower.copy()
        chosen = slice(None) if self._free is None else self._free
        self._lower = bounds.lower[chosen]
        width = bounds.width[chosen]
        # Rounding is monotone: if the far corner stays inside, every point does.
        outside = self._lower + width > bounds.upper[chosen]
        self._width = np.where(outside, np.nextafter(width, 0), width)
        self._tiles: dict[int, tuple[FloatArray, FloatArray]] = {}
        whole = bounds.whole[chosen]
        self._whole = np.flatnonzero(whole) if whole.any() else None
        if self._whole is not None:  # so many cells of width 1
            self._width = np.where(whole, width + 1, self._width)

    @property
    def width(self) -> FloatArray:
        """Return the width of each unit coordinate in the user's units.

        A coordinate without effect has width 1.
        """
        return self._width if self._width.size else np.ones(1)

    def real(self, unit: FloatArray) -> FloatArray:
        """Map rows of unit coordinates to the user's units, never outside the bounds."""
        if self._whole is not None:
            return self._decoded(unit, self._whole)
        if self._free is None:  # the usual case: no variable is fixed
            width, lower = self._tiles.get(len(unit)) or self._tiled(len(unit))
            stretched = unit * width
            stretched += lower
            return stretched
        rows = np.tile(self._fixed, (len(unit), 1))
        rows[:, self._free] = unit[:, : self._free.size] * self._width + self._lower
        return rows

    def _decoded(self, unit: FloatArray, whole: IntArray) -> FloatArray:
        """Map rows of unit coordinates to the user's units, some of which are whole numbers."""
        stretched = unit[:, : self._width.size] * self._width
        last = self._width[whole] - 1
        stretched[:, whole] = np.minimum(np.floor(stretched[:, whole]), last)
        stretched += self._lower
        if self._free is None:
            return stretched
        rows = np.tile(self._fixed, (len(unit), 1))
        rows[:, self._free] = stretched
        return rows

    def slopes(self, real: FloatArray) -> FloatArray:
        """Map slopes (..., variables) in the user's units to slopes along the unit coordinates."""
        chosen = real if self._free is None else real[..., self._free]
        if not self._width.size:  # a coordinate without effect
            return np.zeros((*real.shape[:-1], 1))
        with np.errstate(over="ignore"):
            return np.asarray(chosen * self._width)

    def variable(self, coordinate: int) -> tuple[int, float]:
        """Return the variable that belongs to a unit coordinate, and the coordinate's width."""
        index = coordinate if self._free is None or not self._free.size else self._free[coordinate]
        return int(index), float(self.width[coordinate])

    def _tiled(self, rows: int) -> tuple[FloatArray, FloatArray]:
        """Return widths and lower bounds; up to `TILED` rows they are repeated for each row."""
        if rows > TILED:
            return self._width, self._lower
        tiles = np.tile(self._width, (rows, 1)), np.tile(self._lower, (rows, 1))
        self._tiles[rows] = tiles
        return tiles

    def unit(self, real: FloatArray) -> FloatArray:
        """Return the unit coordinates of one point in the user's units.

        Those of a whole number are in the middle of its cell.
        """
        chosen = slice(None) if self._free is None else self._free
        unit = np.zeros(self.size)
        away = real[chosen] - self._lower
        if self._whole is not None:
            away[self._whole] = np.floor(away[self._whole]) + 0.5
        unit[: self._width.size] = away / self._width
        return np.clip(unit, 0.0, 1.0)  # rounding may lead outside


class AsGiven:
    """The map for a solver's answers. It changes nothing, as no algorithm searches them."""

    __slots__ = ("bounds", "size")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.size = bounds, bounds.size

    def real(self, given: FloatArray) -> FloatArray:
        return given.copy()

    def slopes(self, given: FloatArray) -> FloatArray:
        return given

    def variable(self, coordinate: int) -> tuple[int, float]:
        return coordinate, 1.0


def answer_box(problem: Problem) -> UnitBox | AsGiven:
    """Return the map between the answers as algorithms see them and the user's units."""
    return UnitBox(problem.y_bounds) if problem.follower is None else AsGiven(problem.y_bounds)
