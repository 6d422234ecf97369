"""Gradients that a user gives: which there are, how they are called, and checks of their shapes.

`F_jac(x, y)` returns (F_x, F_y), and `G_jac` likewise. `f_jac` and `g_jac` return f_y and g_y, or
also tuples of both parts. With `jac=True` each function returns (value, gradient) instead. A wrong
shape raises `BadValue`. NaN, or None in place of a part, means that this part is not available.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.checks import described, is_truth, require
from bilevo.core.request import Level
from bilevo.core.values import BadValue, Returned

if TYPE_CHECKING:
    from bilevo.core.space import AsGiven, UnitBox

Gradient = Callable[[FloatArray, FloatArray], Any]  # also of the functions themselves
KEPT_GRADIENTS = (
    128  # A function that returns value and gradient keeps its gradients at this many points.
)


@dataclass(frozen=True, slots=True)
class SlopesGiven:
    """Which gradients a problem gives to an algorithm; it may ask for them by `Derive`.

    `G` and `g` are also True if the level has no constraints. Where f_jac and g_jac return only
    f_y and g_y, the slopes with respect to x are NaN.
    """

    F: bool = False
    f: bool = False
    G: bool = False
    g: bool = False

    def objective(self, level: Level) -> bool:
        """Tell whether the gradient of a level's objective is given: `Derive` may ask for it."""
        return self.F if level is Level.UPPER else self.f

    def whole(self, level: Level) -> bool:
        """Tell whether the gradients of a level's objective and constraints are given."""
        return (self.F and self.G) if level is Level.UPPER else (self.f and self.g)


NO_SLOPES = SlopesGiven()


class WrongGradient(ValueError):  # noqa: N818 (the name says what is wrong)
    """A gradient that the user gives disagrees with differences of its function.

    `function` is "F", "f", "G[0]", ...; `variable` is "x" or "y", and `index` its unit coordinate.
    An algorithm raises the error in unit coordinates; the driver tells it in the user's units.
    """

    def __init__(
        self,
        function: str,
        variable: str,
        index: int,
        slopes: tuple[float, float],
        pair: tuple[FloatArray, FloatArray],
    ) -> None:
        self.function, self.variable, self.index = function, variable, index
        self.given, self.measured = slopes
        self.x, self.y = pair
        super().__init__(self._text())

    def _text(self) -> str:
        return (
            f"the gradient given for {self.function} is wrong: its slope along {self.variable}"
            f"[{self.index}] is {self.given:.8g}, and differences of {self.function} give "
            f"{self.measured:.8g}, at x = {self.x.tolist()}, y = {self.y.tolist()} and elsewhere"
        )

    def tell_in_users_units(self, x_box: UnitBox, y_box: UnitBox | AsGiven) -> None:
        """Change the numbers and the text from unit coordinates to the user's units."""
        box = x_box if self.variable == "x" else y_box
        variable, width = box.variable(self.index)
        self.index, self.given, self.measured = variable, self.given / width, self.measured / width
        self.x, self.y = x_box.real(self.x[None])[0], y_box.real(self.y[None])[0]
        self.args = (self._text(),)


class Paired:
    """A function that returns (value, gradient), as two functions: `value` and `gradient`.

    `value` keeps the last gradients, so that `gradient` at the same point needs no second call.
    """

    def __init__(self, function: Gradient, name: str) -> None:
        self._function, self._name = function, name
        self._kept: dict[tuple[bytes, bytes], Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}  # a worker begins without gradients

    def value(self, x: FloatArray, y: FloatArray) -> Any:
        value, gradient = self._both(x, y)
        if len(self._kept) >= KEPT_GRADIENTS:
            self._kept.clear()
        self._kept[x.tobytes(), y.tobytes()] = deepcopy(gradient)  # a function may reuse its arrays
        return value

    def gradient(self, x: FloatArray, y: FloatArray) -> Any:
        kept = self._kept.pop((x.tobytes(), y.tobytes()), None)  # another thread may have taken it
        return self._both(x, y)[1] if kept is None else kept

    def _both(self, x: FloatArray, y: FloatArray) -> tuple[Any, Any]:
        found = self._function(x, y)
        if not isinstance(found, tuple) or len(found) != 2:
            raise BadValue(
                f"{self._name} returned {described(found)}; with jac=True it must return a tuple "
                "(value, gradient)"
            )
        return found


def with_gradients(
    functions: dict[str, Gradient | None], given: dict[str, Gradient | None], jac: bool
) -> tuple[dict[str, Gradient | None], dict[str, Gradient | None]]:
    """Return the functions and their gradients by name; refuse gradients that do not fit."""
    require(is_truth(jac), "jac", "True or False", jac)
    for name, gradient in given.items():
        label, objective = f"{name}_jac", "F" if name.isupper() else "f"
        require(gradient is None or callable(gradient), label, "a function of (x, y)", gradient)
        if gradient is not None and jac:
            raise ValueError(f"{label} with jac=True: {name} itself returns its gradient then")
        if gradient is not None and functions[name] is None:
            raise ValueError(f"{label} without {name}: give both")
        if gradient is not None and given[objective] is None:
            raise ValueError(
                f"{label} without {objective}_jac is of no use: differences of {objective} "
                f"give the slopes of {name} too"
            )
    if not jac:
        return functions, given
    pairs = {k: None if one is None else Paired(one, k) for k, one in functions.items()}
    return (
        {name: None if pair is None else pair.value for name, pair in pairs.items()},
        {name: None if pair is None else pair.gradient for name, pair in pairs.items()},
    )


class RawSlopes(NamedTuple):
    """Derivatives at k pairs in the user's units; the parts are those of `request.Slopes`."""

    objective_x: FloatArray
    objective_y: FloatArray
    constraints_x: FloatArray
    constraints_y: FloatArray

    @classmethod
    def unknown(cls, k: int, c: int, m: int, n: int) -> RawSlopes:
        """Return NaN for all slopes."""
        shapes = (k, m), (k, n), (k, c, m), (k, c, n)
        return cls(*(np.full(shape, np.nan) for shape in shapes))


class ReturnedSlopes:
    """Calls the gradient functions of one level, and checks what they return.

    `returned` checks the level's values. It knows the number of constraints, or learns it here.
    """

    def __init__(self, returned: Returned, m: int, n: int, constrained: bool) -> None:
        self._returned, self._m, self._n = returned, m, n
        self._constrained = constrained

    def at(
        self, gradients: tuple[Gradient, Gradient | None], x: FloatArray, y: FloatArray
    ) -> RawSlopes:
        """Return the slopes at k pairs when vectorized, or at one pair."""
        returned = self._returned
        rows = len(x) if returned.vectorized else 1
        first, second = "FG" if returned.level == Level.UPPER else "fg"
        objective, constraints = gradients
        parts = self._parts(objective(x, y), first)
        slopes = [self._objective(part, *sized, rows) for part, sized in self._named(parts, first)]
        if constraints is None:
            count = (returned.count or 0) if self._constrained else 0
            slopes += RawSlopes.unknown(rows, count, self._m, self._n)[2:]
        else:
            parts = self._parts(constraints(x, y), second)
            named = self._named(parts, second)
            for part, sized in named:
                self._learn_count(part, *sized, rows)
            slopes += [self._constraints(part, *sized, rows) for part, sized in named]
        return RawSlopes(*slopes)

    def _named(self, parts: tuple[Any, Any], name: str) -> list[tuple[Any, tuple[str, int]]]:
        """Return both parts, each with its name and its number of variables."""
        labels = (f"gradient {name}_x", self._m), (f"gradient {name}_y", self._n)
        return list(zip(parts, labels, strict=True))

    def _parts(self, value: Any, name: str) -> tuple[Any, Any]:
        """Return the slopes along x and along y; None if a follower's gradient has only y."""
        if isinstance(value, tuple) and len(value) == 2:
            numbers = all(part is not None and np.ndim(part) == 0 for part in value)
            if not (numbers and name == "f" and self._n == 2):  # these are the two slopes f_y
                return value
        if name.isupper():
            wanted = f"a tuple ({name}_x, {name}_y)"
            raise self._returned.bad(f"gradient of {name}", f"{described(value)}, not {wanted}")
        return None, value

    def _objective(self, part: Any, label: str, size: int, rows: int) -> FloatArray:
        return self._shaped(part, label, (rows, size))

    def _learn_count(self, part: Any, label: str, size: int, rows: int) -> None:
        """Learn the number of constraints from a part, if no value has told it before."""
        if self._returned.count is None and part is not None:
            array = self._returned.real(part, label, kinds="fiu")
            count, rest = divmod(array.size, rows * size)
            if not rest:
                self._returned.check_count(count)

    def _constraints(self, part: Any, label: str, size: int, rows: int) -> FloatArray:
        return self._shaped(part, label, (rows, self._returned.count, size))

    def _shaped(self, part: Any, label: str, shape: tuple[int | None, ...]) -> FloatArray:
        """Return a part as an array of this shape; axes of length 1 may be missing.

        The number of constraints in the shape may be None, if it is not known.
        """
        if part is None:
            return np.full([size or 0 for size in shape], np.nan)
        array = self._returned.real(part, label, kinds="fiu")
        wanted = shape if self._returned.vectorized else shape[1:]
        sizes = [size for size in shape if size is not None]
        fits = len(sizes) == len(shape) and array.size == prod(sizes)
        if not fits or _long(array.shape) != _long(tuple(sizes)):
            text = ", ".join("c" if size is None else str(size) for size in wanted)
            text = f"({text},)" if len(wanted) == 1 else f"({text})"
            raise self._returned.bad(label, f"of shape {array.shape}, not {text}")
        return array.reshape(sizes)


def _long(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]
