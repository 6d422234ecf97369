"""Local searches by scipy in the unit box, from values of f and g alone.

Gradients are central differences, each from one batch. The solver `bilevo.followers.Minimize` uses
these searches. Algorithms and verification have a local search of their own
(`algorithms.shared.sqp`), because scipy calls the objective and cannot wait for an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.request import Values

MARGIN = 1e-10  # searches stay this far inside constraints, as feasible means exactly <= 0


class Method(NamedTuple):
    """Whether a method of scipy uses gradients and constraints, and the options it gets."""

    gradient: bool
    constraints: bool
    options: dict[str, Any]


METHODS = {
    "L-BFGS-B": Method(True, False, {"ftol": 1e-16, "gtol": 1e-12}),
    "SLSQP": Method(True, True, {"ftol": 1e-15, "maxiter": 50}),
    "Nelder-Mead": Method(False, False, {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 10_000}),
    "COBYLA": Method(False, True, {"rhobeg": 0.25, "tol": 1e-8, "maxiter": 10_000}),
}


class Differences:
    """Values of f and g and their central differences in the unit box, each evaluated once.

    f is returned as (f - base) / |base|, where `base` is f at the start of the search.
    """

    STEP = 6e-6  # in the unit box; the cube root of the relative rounding error

    def __init__(self, evaluate: Callable[[FloatArray], Values], base: float) -> None:
        self._evaluate = evaluate
        self._values: dict[bytes, tuple[float, FloatArray]] = {}
        self._slopes: dict[bytes, tuple[FloatArray, FloatArray]] = {}
        self._base = base if math.isfinite(base) else 0.0
        self._scale = abs(self._base) or 1.0

    def values(self, y: FloatArray) -> tuple[float, FloatArray]:
        """Return the scaled f, and the slack (c,) of the constraints, which is -g - `MARGIN`."""
        key = y.tobytes()
        if key not in self._values:
            f, slack = self._at(np.clip(y, 0, 1)[None])
            self._values[key] = float(f[0]), slack[0]
        return self._values[key]

    def slopes(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient of f (n,) and the Jacobian of the slack (c, n), from 2 n points."""
        key = y.tobytes()
        if key not in self._slopes:
            steps = self.STEP * np.eye(len(y))
            rows = np.clip(np.concatenate([y + steps, y - steps]), 0, 1)
            f, slack = self._at(rows)
            n = len(y)
            width = (rows[:n] - rows[n:]).diagonal()
            jacobian = (slack[:n] - slack[n:]).T / width
            self._slopes[key] = (f[:n] - f[n:]) / width, np.ascontiguousarray(jacobian)
        return self._slopes[key]

    def _at(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        values = self._evaluate(rows)
        f = (values.objective - self._base) / self._scale
        return finite(f, nan=1e10), finite(-values.constraints - MARGIN, nan=-1e10)


def finite(values: FloatArray, nan: float) -> FloatArray:
    """Replace values that are not finite by numbers that a solver can use."""
    if math.isfinite(sum(values.ravel().tolist())):  # ten times as fast as the general case
        return values
    return np.nan_to_num(values, nan=nan, posinf=1e10, neginf=-1e10)


def usual_method(constrained: bool) -> str:
    """Return SLSQP where there are constraints, and else L-BFGS-B.

    L-BFGS-B does not move where f is flat: of equally good answers it keeps one near the start.
    """
    return "SLSQP" if constrained else "L-BFGS-B"


def descend(at: Differences, start: FloatArray, method: str) -> FloatArray:
    """Search by one of `METHODS` from a point (n,) of the unit box; return the end point."""
    from scipy.optimize import minimize  # here, as it would double the package's import time

    kind = METHODS[method]
    how: dict[str, Any] = {"method": method, "options": kind.options}
    if kind.gradient:
        how["jac"] = lambda y: at.slopes(y)[0]
    if kind.constraints and at.values(start)[1].size:
        how["constraints"] = {"type": "ineq", "fun": lambda y: at.values(y)[1]}
        if kind.gradient:
            how["constraints"]["jac"] = lambda y: at.slopes(y)[1]
    bounds = [(0.0, 1.0)] * len(start)
    end: FloatArray = minimize(lambda y: at.values(y)[0], start, bounds=bounds, **how).x
    return np.clip(np.nan_to_num(end), 0, 1)
