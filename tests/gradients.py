"""A problem with gradients, and a small algorithm that asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import bilevo
from bilevo.core.algorithm import Algorithm
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Incumbent, Level, Procedure, Slopes, derive, evaluate

M, N = 2, 3
CURVATURES = np.array([1.0, 3.0, 10.0])
A = np.array([[1.0, 0.5], [0.0, 2.0], [-1.0, 0.3]])


def F(x: np.ndarray, y: np.ndarray) -> Any:
    return ((x - 1) ** 2).sum(axis=-1) + (y**2).sum(axis=-1)


def F_jac(x: np.ndarray, y: np.ndarray) -> Any:
    return 2 * (x - 1), 2 * y


def f(x: np.ndarray, y: np.ndarray) -> Any:
    return (CURVATURES * (y - x @ A.T) ** 2).sum(axis=-1)


def f_jac(x: np.ndarray, y: np.ndarray) -> Any:
    slope = 2 * CURVATURES * (y - x @ A.T)
    return -slope @ A, slope


def f_y(x: np.ndarray, y: np.ndarray) -> Any:
    return f_jac(x, y)[1]


def G(x: np.ndarray, y: np.ndarray) -> Any:
    return np.stack([x[..., 0] * y[..., 0] - 50, -x[..., 1] - 4], axis=-1)


def G_jac(x: np.ndarray, y: np.ndarray) -> Any:
    G_x, G_y = np.zeros((*x.shape[:-1], 2, M)), np.zeros((*x.shape[:-1], 2, N))
    G_x[..., 0, 0], G_x[..., 1, 1], G_y[..., 0, 0] = y[..., 0], -1.0, x[..., 0]
    return G_x, G_y


def g(x: np.ndarray, y: np.ndarray) -> Any:
    return (y.sum(axis=-1) - 20 - x[..., 1])[..., None]


def g_jac(x: np.ndarray, y: np.ndarray) -> Any:
    g_x = np.zeros((*x.shape[:-1], 1, M))
    g_x[..., 0, 1] = -1.0
    return g_x, np.ones((*x.shape[:-1], 1, N))


X_BOUNDS, Y_BOUNDS = [(-5, 5), (-4, 6)], [(-10, 30), (-12, 12), (-7, 7)]
FUNCTIONS: dict[str, Any] = {"F": F, "f": f, "G": G, "g": g}
GRADIENTS: dict[str, Any] = {"F_jac": F_jac, "f_jac": f_jac, "G_jac": G_jac, "g_jac": g_jac}


def smooth(vectorized: bool = False, **changed: Any) -> bilevo.Problem:
    """The problem, with all gradients except for those that are changed."""
    parts = {**FUNCTIONS, **GRADIENTS, "x_bounds": X_BOUNDS, "y_bounds": Y_BOUNDS, **changed}
    return bilevo.Problem(**parts, vectorized=vectorized, name="smooth")


def paired(name: str, both: bool = True) -> Any:
    """One of the problem's functions, as it returns its value and its gradient."""
    function, gradient = FUNCTIONS[name], GRADIENTS[f"{name}_jac"]

    def call(x: np.ndarray, y: np.ndarray) -> Any:
        slopes = gradient(x, y)
        return function(x, y), slopes if both else slopes[1]

    return call


def with_pairs(vectorized: bool = False) -> bilevo.Problem:
    functions = {name: paired(name) for name in "FfGg"}
    return smooth(vectorized, **functions, **dict.fromkeys(GRADIENTS), jac=True)


@dataclass
class Descending:
    x: np.ndarray
    y: np.ndarray
    best: Incumbent | None = None
    generation: int = 0
    stop: StopReason | None = None
    executions: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    survived: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))


@dataclass(frozen=True)
class Descent(Algorithm[Descending]):
    """Follows the slopes of both levels from several points at once; it solves nothing well."""

    points: int = 3
    generations: int = 12
    name = "descent"
    revision = 1
    State = Descending
    asked: list[Slopes] = field(default_factory=list, compare=False, repr=False)

    def init(self, spec: Spec) -> Procedure[Descending]:
        x = np.linspace(0.2, 0.8, self.points)[:, None] * np.ones(spec.m)
        return Descending(x, np.full((self.points, spec.n), 0.5))
        yield

    def generation(self, spec: Spec, state: Descending) -> Procedure[Descending]:
        x, y = state.x, state.y
        lower = yield from evaluate(Level.LOWER, x, y)
        upper = yield from evaluate(Level.UPPER, x, y)
        i = int(np.argmin(upper.objective))
        violation = float(upper.violation[i] + lower.violation[i])
        F, f = float(upper.objective[i]), float(lower.objective[i])
        state.best = Incumbent(x[i], y[i], F, f, violation)
        yield state.best
        below = yield from derive(Level.LOWER, x, y)
        above = yield from derive(Level.UPPER, x, y)
        self.asked.extend([below, above])
        state.y = np.clip(y - 1e-5 * np.nan_to_num(below.objective_y), 0, 1)
        state.x = np.clip(x - 1e-4 * np.nan_to_num(above.objective_x), 0, 1)
        state.generation += 1
        if state.generation == self.generations:
            state.stop = StopReason.BUDGET
        return state
