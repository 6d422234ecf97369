"""Checks of values that users give, and how errors show them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, frozen

MAX_SHOWN = 200  # the most characters of a value that an error shows
NOT_NUMBERS = (bool, np.bool_, np.timedelta64)  # refused, although one can compute with them


def shown(value: object, longest: int = MAX_SHOWN) -> str:
    """Return a value as an error shows it: its `repr`, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # an int of more than 4,300 digits, or a class that raises
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= longest else f"{text[:longest]}..."


def require(fine: bool, name: str, what: str, value: object) -> None:
    """Raise an error unless `fine`: it says that `name` must be `what`, and shows the value."""
    if not fine:
        raise ValueError(f"{name} must be {what}, got {shown(value)}")


def described(value: object) -> str:
    """Return a value with its type, as an error shows it; arrays are shown by their shape."""
    if type(value) is np.ndarray:
        return f"an array {value.shape} of {value.dtype}"
    return "None" if value is None else f"{shown(value)} ({type(value).__name__})"


def is_whole(value: object) -> bool:
    """Tell whether a value is a Python or NumPy integer; truth values are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, NOT_NUMBERS)


def whole_number(value: object) -> int | None:
    """Return a whole number as an int, also one that is written as a float, such as 1e3.

    For anything else return None.
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    return int(value) if isinstance(value, int | np.integer) and is_whole(value) else None


def real_number(value: object) -> float | None:
    """Return a real number as a float.

    For anything else, and for numbers too large for a float, return None.
    """
    if not isinstance(value, int | float | np.integer | np.floating):
        return None
    if isinstance(value, NOT_NUMBERS):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isinf(number) and value != number else number


def real_array(values: Any) -> FloatArray:
    """Return a read-only array of floats; refuse anything but an array of real numbers."""
    try:
        array = np.asarray(values)
        kinds = (str, bytes, complex, np.complexfloating)
        odd = array.dtype.kind == "O" and any(isinstance(one, kinds) for one in array.flat)
        if odd or array.dtype.kind not in "biufO":
            raise ValueError(f"{shown(values)} holds something that is no real number")
        with np.errstate(over="ignore"):  # a long double may become infinite
            return frozen(array)
    except (TypeError, OverflowError) as error:
        raise ValueError(
            f"{shown(values)} holds something that is no real number: {error}"
        ) from None


def is_truth(value: object) -> bool:
    """Tell whether a value is True or False, as a Python or NumPy truth value."""
    return isinstance(value, bool | np.bool_)
