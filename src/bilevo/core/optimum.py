"""Known solutions of problems."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.checks import real_array, real_number, require


@dataclass(frozen=True, slots=True)
class Optimum:
    """A known solution. `F` and `f` are the values at (x, y); x and y are None if unknown."""

    F: float
    f: float
    x: FloatArray | None = None
    y: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("F", "f"):
            number = real_number(value := getattr(self, name))
            finite = number is not None and math.isfinite(number)
            require(finite, f"optimum.{name}", "a finite number", value)
            object.__setattr__(self, name, number)
        for name in ("x", "y"):
            if (point := getattr(self, name)) is not None:
                object.__setattr__(self, name, _point(f"optimum.{name}", point))


def _point(name: str, values: Any) -> FloatArray:
    try:
        point = real_array(values)
    except ValueError:
        point = np.empty((0, 0))
    require(point.ndim == 1, name, "a vector of numbers or None", values)
    return point


def require_sizes(optimum: Optimum | None, m: int, n: int) -> None:
    """Refuse a known solution whose sizes differ from the problem's."""
    for name, size in (("x", m), ("y", n)):
        point = None if optimum is None else getattr(optimum, name)
        if point is not None and point.shape != (size,):
            raise ValueError(f"optimum.{name} must have shape ({size},), got {point.shape}")
