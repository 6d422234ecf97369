"""Array types, read-only copies, dot products of rows, and distances."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TINY = 1e-300  # added to a denominator, so that it is not zero


def row_dots(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the dot product of each row of a with the same row of b, or with the vector b."""
    dots: FloatArray = np.vecdot(a, b)
    return dots


def frozen(values: Any) -> FloatArray:
    """Return a contiguous float64 copy that is read-only."""
    array = np.array(values, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array


def fractional_distances(points: FloatArray) -> tuple[FloatArray, float]:
    """Return distances (sum |a - b|^(1/d))^d between points (k, d), and the log of the largest one.

    Distances are divided by the largest one, because they would overflow for many variables.
    """
    d = points.shape[1]
    sums = (np.abs(points[:, None, :] - points[None, :, :]) ** (1 / d)).sum(axis=2)
    largest = float(sums.max())
    if largest == 0:
        return sums, -math.inf
    return np.asarray((sums / largest) ** d), d * math.log(largest)
