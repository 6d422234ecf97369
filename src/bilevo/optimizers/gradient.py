"""Local searches by scipy in the unit box, on values of f and g alone.

Gradients are central differences, of one batch each. Verification searches followers so, and
`bilevo.followers.Minimize` makes a follower of it. Algorithms have their own local search
(`algorithms.sqp`): scipy's call the objective and cannot wait for values that are requested.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.request import Values

MARGIN = 1e-10  # by which a local search stays inside the constraints: feasible means exactly <= 0


class Method(NamedTuple):
    """What a method of scipy.optimize.minimize can do, and the settings it is called with."""

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
    """f, g and their central differences at points of the unit box, each asked for once.

    f is relative to `base`, a value near those to come.
    """

    STEP = 6e-6  # the cube root of the rounding error

    def __init__(self, evaluate: Callable[[FloatArray], Values], base: float) -> None:
        self._evaluate = evaluate
        self._values: dict[bytes, tuple[float, FloatArray]] = {}
        self._slopes: dict[bytes, tuple[FloatArray, FloatArray]] = {}
        self._base = base if math.isfinite(base) else 0.0
        self._scale = abs(self._base) or 1.0

    def values(self, y: FloatArray) -> tuple[float, FloatArray]:
        """Scaled f, and the slack of the constraints."""
        key = y.tobytes()
        if key not in self._values:
            f, slack = self._at(np.clip(y, 0, 1)[None])
            self._values[key] = float(f[0]), slack[0]
        return self._values[key]

    def slopes(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient of f (n,) and Jacobian of the slack (c, n), from one batch of 2 n points."""
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
    """Numbers that a solver can go on with."""
    if math.isfinite(sum(values.ravel().tolist())):  # a tenth of the time of what follows
        return values
    return np.nan_to_num(values, nan=nan, posinf=1e10, neginf=-1e10)


def usual_method(constrained: bool) -> str:
    """L-BFGS-B does not move along directions in which f is flat, so that ties near the start are
    kept; where there are constraints, SLSQP."""
    return "SLSQP" if constrained else "L-BFGS-B"


def descend(at: Differences, start: FloatArray, method: str) -> FloatArray:
    """Where a search of `METHODS` from a point (n,) of the unit box ends."""
    from scipy.optimize import minimize  # late: it would double the package's import time

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
