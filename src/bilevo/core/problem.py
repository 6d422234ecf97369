"""Bilevel problems: bounds, the two levels' functions, and the part that an algorithm sees.

    min F(x, y)  s.t.  G(x, y) <= 0,  y in argmin_y { f(x, y) : g(x, y) <= 0 }

Upper case is the leader (x, m variables), lower case the follower (y, n variables).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.budget import Budget, FullBudget
from bilevo.core.checks import is_truth, is_whole, real_array, real_number, require, shown
from bilevo.core.notebook import table
from bilevo.core.request import Level
from bilevo.core.solver import CheckedSolver, Solver, bind_solver
from bilevo.core.values import Returned

Function = Callable[[FloatArray, FloatArray], Any]
Response = Callable[[FloatArray], FloatArray]
MAX_BOUNDS = 4  # a notebook's table shows at most this number of distinct bounds


class Bounds:
    """A finite box: `lower <= variable <= upper`, entry by entry. Equal bounds fix a variable."""

    __slots__ = ("lower", "upper")

    def __init__(self, lower: Any, upper: Any, name: str = "bounds") -> None:
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
            (~(np.isfinite(low) & np.isfinite(high)), "not finite"),
            (low > high, "reversed (lower > upper)"),
            (~np.isfinite(_width(low, high)), "wider than floating point can hold"),
        ):
            if bad.any():
                i = int(np.argmax(bad))
                raise ValueError(f"{name}[{i}] = ({low[i]}, {high[i]}) is {what}")
        self.lower, self.upper = low, high

    def __repr__(self) -> str:
        return f"Bounds({self.lower.tolist()}, {self.upper.tolist()})"

    @classmethod
    def of(cls, bounds: Any, name: str = "bounds") -> Bounds:
        """Make bounds from a Bounds, from scipy's Bounds, or from a sequence of (lower, upper)."""
        if isinstance(bounds, Bounds):
            return bounds
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            return cls(bounds.lb, bounds.ub, name)
        try:
            pairs = np.array([real_array(list(pair)) for pair in bounds])
        except (TypeError, ValueError):
            pairs = np.empty(0)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(
                f"{name} must be a sequence of (lower, upper) pairs, one per variable, "
                f"such as [(-5, 10), (0, 1)]; got {shown(bounds)}"
            )
        return cls(pairs[:, 0], pairs[:, 1], name)

    @property
    def size(self) -> int:
        return int(self.lower.size)

    def contain(self, points: FloatArray) -> bool:
        """Tell whether a point, or all rows of points, are within the bounds; NaN is not."""
        return bool(((self.lower <= points) & (points <= self.upper)).all())

    @property
    def width(self) -> FloatArray:
        return _width(self.lower, self.upper)


def _width(lower: FloatArray, upper: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(upper - lower)


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


def _unknown(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return NaN for each pair, in place of an f that only a solver knows."""
    return np.full(y.shape[:-1], np.nan)


class Problem:
    """A bilevel problem: two objectives, two boxes, and constraints (feasible when <= 0).

    Functions take x of shape (m,) and y of shape (n,). Objectives return a number, constraints a
    vector. With `vectorized=True` functions take (k, m) and (k, n), and return (k,) or, for
    constraints, (k, c). The last `repeats_lower` entries of G repeat g, and add no violation.
    `response` gives the follower's known answers: it takes x (k, m) and returns y* (k, n), with NaN
    in rows where y* is not known. `budget` holds the settings that are usual for the problem.

    `follower` is a solver that finds the follower's answers (see `bilevo.followers`). Algorithms do
    not search f then, and f may be None. F and G get the answers as the solver gives them.
    """

    def __init__(
        self,
        F: Function,
        f: Function | None,
        x_bounds: Any,
        y_bounds: Any,
        G: Function | None = None,
        g: Function | None = None,
        vectorized: bool = False,
        name: str | None = None,
        optimum: Optimum | None = None,
        repeats_lower: int = 0,
        response: Response | None = None,
        budget: Budget | None = None,
        follower: Solver[Any] | None = None,
    ) -> None:
        dispensable = "Gg" if follower is None else "Ggf"
        for label, function in (("F", F), ("f", f), ("G", G), ("g", g)):
            fine = callable(function) or (function is None and label in dispensable)
            require(fine, label, "a function of (x, y)", function)
        if f is None and g is not None:
            raise ValueError("g without f: give f too, or leave both to the solver")
        whole = is_whole(repeats_lower) and repeats_lower >= 0
        if not whole or (repeats_lower and (G is None or g is None)):
            raise ValueError(
                f"repeats_lower={shown(repeats_lower)} says how many last entries of G repeat g: "
                "0, or at most their number when both G and g are given"
            )
        known = isinstance(optimum, Optimum | None)
        require(known, "optimum", "a bilevo.Optimum or None", optimum)
        require(isinstance(budget, Budget | None), "budget", "a bilevo.Budget or None", budget)
        require(isinstance(name, str | None), "name", "a text or None", name)
        require(is_truth(vectorized), "vectorized", "True or False", vectorized)
        require(response is None or callable(response), "response", "a function of x", response)
        self.F, self.f, self.G, self.g = F, _unknown if f is None else f, G, g
        self.x_bounds = Bounds.of(x_bounds, "x_bounds")
        self.y_bounds = Bounds.of(y_bounds, "y_bounds")
        _require_sizes(optimum, self.x_bounds.size, self.y_bounds.size)
        self.vectorized = bool(vectorized)
        self.name = name or "problem"
        self.optimum = optimum
        self.repeats_lower = int(repeats_lower)
        self.response = response
        self.budget = budget or Budget()
        self.follower = None if follower is None else bind_solver(follower, self)

    @property
    def m(self) -> int:
        return self.x_bounds.size

    @property
    def n(self) -> int:
        return self.y_bounds.size

    @property
    def f_is_known(self) -> bool:
        """Tell whether f is given as a function; if not, only a solver knows its values."""
        return self.f is not _unknown

    def functions(self, level: Level) -> tuple[Function, Function | None]:
        """Return a level's objective and constraints."""
        return (self.F, self.G) if level is Level.UPPER else (self.f, self.g)

    def checked_solver(self, follower: Solver[Any] | None = None) -> CheckedSolver:
        """Return `follower`, or else the problem's own solver, with checks of its answers."""
        chosen = self.follower if follower is None else follower
        assert chosen is not None
        return CheckedSolver(chosen, self.y_bounds.lower, self.y_bounds.upper)

    def repeats(self, level: Level) -> int:
        """Return how many of a level's last constraints repeat g; its violation leaves them out."""
        return self.repeats_lower if level is Level.UPPER else 0

    def __repr__(self) -> str:
        known = f", F*={self.optimum.F:g}" if self.optimum else ""
        solver = "" if self.follower is None else f", follower {type(self.follower).__name__}"
        return f"<Problem {self.name}: m={self.m}, n={self.n}{solver}{known}>"

    def _repr_html_(self) -> str:
        """Show sizes, bounds, constraints and the known solution in notebooks."""
        shown = {"upper": self._described(self.x_bounds, "x", self.G)}
        shown["lower"] = self._described(self.y_bounds, "y", self.g)
        if self.follower is not None:
            shown["follower"] = type(self.follower).__name__
        if self.optimum is not None:
            shown["optimum"] = f"F = {self.optimum.F:.8g}, f = {self.optimum.f:.8g}"
        return table(f"Problem {self.name}", shown)

    def _described(self, bounds: Bounds, variable: str, constraints: Function | None) -> str:
        boxes = dict.fromkeys(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))
        shown = [f"[{low:g}, {high:g}]" for low, high in boxes][:MAX_BOUNDS]
        more = ", ..." if len(boxes) > MAX_BOUNDS else ""
        text = (
            f"{bounds.size} variable{'s'[: bounds.size > 1]} {variable} in {', '.join(shown)}{more}"
        )
        return text + (", with constraints" if constraints is not None else "")

    def evaluate(self, x: Any, y: Any) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return F (k,), G (k, K), f (k,), g (k, J) at pairs of points; no evaluation is counted.

        f is NaN if only a solver knows it.
        """
        x_rows, y_rows = np.atleast_2d(frozen(x)), np.atleast_2d(frozen(y))
        if x_rows.shape[1] != self.m or y_rows.shape[1] != self.n or len(x_rows) != len(y_rows):
            raise ValueError(
                f"{self.name} takes x of shape (k, {self.m}) and y of shape (k, {self.n}); "
                f"got {x_rows.shape} and {y_rows.shape}"
            )
        return *self.values(Level.UPPER, x_rows, y_rows), *self.values(Level.LOWER, x_rows, y_rows)

    def values(self, level: Level, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a level's objective (k,) and constraints (k, c) at x (k, m), y (k, n)."""
        objective, constraints = self.functions(level)
        returned = Returned(level, self.vectorized, least=self.repeats(level))
        batches = [(x, y)] if self.vectorized else list(zip(x, y, strict=True))
        return (
            np.concatenate([returned.objective(objective, *batch) for batch in batches]),
            np.concatenate([returned.constraints(constraints, *batch) for batch in batches]),
        )


def _require_sizes(optimum: Optimum | None, m: int, n: int) -> None:
    """Refuse a known solution whose sizes differ from the problem's."""
    for name, size in (("x", m), ("y", n)):
        point = None if optimum is None else getattr(optimum, name)
        if point is not None and point.shape != (size,):
            raise ValueError(f"optimum.{name} must have shape ({size},), got {point.shape}")


@dataclass(frozen=True, slots=True)
class Target:
    """A value of F that ends a run: a known optimum, or a number that F must not exceed.

    `optimum` tells the two apart. F may miss the value by `ftol`.
    """

    F: float
    ftol: float
    optimum: bool

    def reached(self, F: float, violation: float) -> bool:
        if violation > 0:
            return False
        return abs(F - self.F) < self.ftol if self.optimum else self.F + self.ftol >= F


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """All that an algorithm sees of a problem. Both levels are searched in the unit box.

    The driver maps [0, 1]^m x [0, 1]^n to the user's bounds, so an algorithm needs no bounds, and
    variables of very different widths look alike. `spread` (m + n,) holds the standard deviations
    that a search over the whole box starts with. `kernel` says what computes CMA-ES: "numpy", or
    compiled "numba". `ctol` (upper, lower) is what the driver forgives in constraints (see
    `bilevo.core.feasibility`).

    `step_cost` is the largest cost of a step of the problem's own solver, or None if there is no
    solver. A solver's answers are in the user's units, because no algorithm searches them; `spread`
    is (m,) then.
    """

    m: int
    n: int
    seed: int
    budget: FullBudget
    spread: FloatArray
    target: Target | None = None
    ftol: float = 1e-6
    x0: FloatArray | None = None
    kernel: Literal["numpy", "numba"] = "numpy"
    step_cost: int | None = None
    ctol: tuple[float, float] = (0.0, 0.0)
