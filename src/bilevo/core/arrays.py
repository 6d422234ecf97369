"""Array types and read-only views, used everywhere."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TINY = 1e-300  # keeps a denominator from zero


def row_dots(a: FloatArray, b: FloatArray) -> FloatArray:
    """The dot product of each row of a with b's, or with the one vector b."""
    dots: FloatArray = np.vecdot(a, b)
    return dots


def frozen(values: Any) -> FloatArray:
    """A contiguous float64 copy that nobody can write into."""
    array = np.array(values, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array
