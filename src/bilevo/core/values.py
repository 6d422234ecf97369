"""Checks of the values that user functions return, and their conversion to float64 arrays.

A wrong type or shape is a mistake in the user's program, and raises `BadValue` at once. Numbers
that are not finite are allowed; `bilevo.core.request.Values` ranks their points last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeGuard

import numpy as np

from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.checks import shown

FLOAT64 = np.dtype(np.float64)
SEVERAL = "; for several objectives see docs/recipe_objectives.md"
CONSTRAINT = "; for x <= 3, return x - 3, which must be at most 0"


@lru_cache(64)
def no_constraints(rows: int) -> FloatArray:
    """Return an empty array (rows, 0); it is cached, because every evaluation needs one."""
    return frozen(np.empty((rows, 0)))


class BadValue(ValueError):  # noqa: N818 (a public name)
    """An objective or a constraint did not return real numbers of the right shape."""


class Returned:
    """Calls the functions of one level and checks the values they return."""

    __slots__ = ("count", "least", "level", "vectorized")

    def __init__(
        self, level: str, vectorized: bool, count: int | None = None, least: int = 0
    ) -> None:
        self.level = level
        self.vectorized = vectorized
        self.count = count  # number of constraints; if None, the first value sets it
        self.least = least  # the smallest number of constraints that is allowed

    def objective(self, function: Callable[..., Any], x: FloatArray, y: FloatArray) -> FloatArray:
        """Return an objective's values (k,) at k pairs when vectorized, or (1,) at one pair."""
        if not self.vectorized:
            return np.array([self.number(function(x, y))])
        value = function(x, y)
        if type(value) is np.ndarray and value.dtype is FLOAT64 and value.shape == (len(x),):
            return value.copy()  # the usual case; a copy, as the function may reuse its array
        return self.check_objective(value, len(x))

    def constraints(
        self, function: Callable[..., Any] | None, x: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return the constraints (k, c) at k pairs when vectorized, or (1, c) at one pair."""
        if function is None:
            return no_constraints(len(x) if self.vectorized else 1)
        if self.vectorized:
            return self.check_constraints(function(x, y), len(x))
        return self._vector(function(x, y))[None]

    def check_objective(self, value: Any, rows: int) -> FloatArray:
        array = self.real(value, "objective")
        if array.shape == (rows, 1):
            array = array[:, 0]
        if array.shape != (rows,):
            several = SEVERAL if array.ndim == 2 and len(array) == rows else ""
            raise self.bad("objective", f"of shape {array.shape}, not ({rows},){several}")
        return array

    def check_constraints(self, value: Any, rows: int) -> FloatArray:
        if _is_floats(value) and value.shape == (rows, self.count):
            return value.copy()
        array = self.real(value, "constraints", kinds="fiu")
        if array.shape == (rows,) and self.count in (None, 1):
            array = array.reshape(rows, 1)
        if array.ndim != 2 or len(array) != rows or self._miscounted(array.shape[1]):
            wanted = f"({rows}, {'c' if self.count is None else self.count})"
            raise self.bad("constraints", f"of shape {array.shape}, not {wanted}")
        return array

    def check_count(self, count: int) -> None:
        """Refuse a number of constraints that differs from the first one seen."""
        if self._miscounted(count):
            raise self.bad("constraints", f"{count}, not {self.count} as before")

    def number(self, value: Any, what: str = "objective") -> float:
        """Return a value as a float; refuse anything but one real number."""
        if isinstance(value, float | int):
            try:
                return float(value)
            except OverflowError:
                raise self.bad(what, "an integer beyond floating point") from None
        array = self.real(value, what)
        if array.size != 1:
            several = SEVERAL if what == "objective" and array.ndim == 1 and array.size else ""
            raise self.bad(what, f"of shape {array.shape}, not one number{several}")
        return float(array.reshape(()))

    def _vector(self, value: Any) -> FloatArray:
        array = self.real(value, "constraints", kinds="fiu")
        if array.ndim == 0:
            array = array.reshape(1)
        if array.ndim != 1 or self._miscounted(array.size):
            wanted = f"({'c' if self.count is None else self.count},)"
            raise self.bad("constraints", f"of shape {array.shape}, not {wanted}")
        return array

    def _miscounted(self, count: int) -> bool:
        """Tell whether a number of constraints differs from the first number seen.

        The first number is kept; it is refused if it is below `least`.
        """
        if self.count is None:
            if count < self.least:
                raise self.bad("constraints", f"{count}, but {self.least} of them repeat g")
            self.count = count
        return count != self.count

    def real(self, value: Any, what: str, kinds: str = "fiub") -> FloatArray:
        """Return a float64 copy of real numbers, in which masked entries are NaN.

        `kinds` holds numpy's letters for the kinds of dtypes that are allowed. Constraints may not
        be booleans: True would be a violation, but is hardly ever meant so.
        """
        if _is_floats(value):
            return value.copy()  # the function may reuse its array
        masked = isinstance(value, np.ma.MaskedArray)
        try:
            array: Any = value if masked else np.asarray(value)
        except ValueError:  # ragged lists
            raise self.bad(what, f"{shown(value, 60)}, which has no shape") from None
        if array.dtype.kind not in kinds:  # complex, object, str, None, ...
            kind = f"{type(value).__name__} of shape {array.shape}, dtype {array.dtype}"
            hint = CONSTRAINT if array.dtype.kind == "b" else ""
            raise self.bad(what, f"{shown(value, 60)} ({kind}), not real numbers{hint}")
        with np.errstate(over="ignore"):
            real: Any = array.astype(np.float64)
        numbers: FloatArray = real.filled(np.nan) if masked else real
        return numbers

    def bad(self, what: str, problem: str) -> BadValue:
        """Return the error that says what is wrong with something that was returned."""
        verb = "are" if what == "constraints" else "is"
        return BadValue(f"the {self.level}-level {what} returned {verb} {problem}")


def _is_floats(value: Any) -> TypeGuard[FloatArray]:
    return type(value) is np.ndarray and value.dtype is FLOAT64
