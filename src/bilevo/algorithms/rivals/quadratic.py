"""Quadratic models by least squares, and their minimization under constraints that are models too.

The models are those of the public BLEAQ-II program (A. Sinha, Z. Lu, K. Deb and P. Malo, "Bilevel
optimization based on iterative approximation of multiple mappings", Journal of Heuristics 26,
2020). A linear, a purely quadratic (without products of two variables) and a full quadratic model
are fitted. The model with the lowest BIC (Bayesian information criterion) is kept.

Three things differ. The program reads the diagonal of a purely quadratic model from the
coefficients of the full model; this mistake is corrected here. Models are fitted in coordinates
relative to the points' mean and spread, because points are often within a thousandth of the box. A
convex model whose stationary point lies inside the box is minimized without a solver.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bilevo.core.arrays import TINY, BoolArray, FloatArray, IntArray

NEGLIGIBLE = 1e-6  # Smaller entries of a Hessian, relative to the largest, count as 0.
OVERFLOWING = 1e150  # Products of larger coefficients may overflow.
TIGHTENING = 1e-8  # The margin of model constraints, relative to their largest value.


@dataclass(frozen=True, slots=True, eq=False)
class Quadratic:
    """constant + linear . z + z' square z, with z the difference from the centre."""

    centre: FloatArray
    constant: float
    linear: FloatArray
    square: FloatArray  # symmetric
    mse_norm: float = 0.0  # mean squared error, relative to the variance of the values
    largest: float = 0.0  # largest size of the values that the model was fitted to

    @property
    def finite(self) -> bool:
        """Tell whether all coefficients are small enough to compute with."""
        sizes = (abs(self.constant), np.abs(self.linear).max(), np.abs(self.square).max())
        return max(map(float, sizes)) < OVERFLOWING

    def __call__(self, point: FloatArray) -> float:
        z = point - self.centre
        with np.errstate(all="ignore"):  # see `finite`
            return self.constant + float(z @ (self.linear + self.square @ z))

    def gradient(self, point: FloatArray) -> FloatArray:
        with np.errstate(all="ignore"):
            return np.asarray(self.linear + 2 * (self.square @ (point - self.centre)))

    def minus(self, first: Quadratic, slack: float) -> Quadratic:
        """Return this model minus `first`, a model of the first variables only, minus `slack`."""
        k = len(first.centre)
        at = self.centre[:k]
        linear, square = self.linear.copy(), self.square.copy()
        with np.errstate(all="ignore"):
            linear[:k] -= first.gradient(at)
            square[:k, :k] -= first.square
        constant = self.constant - first(at) - slack
        return replace(self, constant=constant, linear=linear, square=square)

    def given(self, first: FloatArray) -> Quadratic:
        """Return the model of the other variables, for given values of the first variables."""
        k = len(first)
        z = first - self.centre[:k]
        with np.errstate(all="ignore"):
            constant = self.constant + float(z @ (self.linear[:k] + self.square[:k, :k] @ z))
            linear = self.linear[k:] + 2 * (self.square[k:, :k] @ z)
        square = self.square[k:, k:]
        return replace(
            self, centre=self.centre[k:], constant=constant, linear=linear, square=square
        )


def terms(d: int) -> int:
    """Return the number of coefficients of a full quadratic model."""
    return (d + 1) * (d + 2) // 2


@np.errstate(all="ignore")  # see `Quadratic.finite`
def fit(points: FloatArray, values: FloatArray) -> list[Quadratic]:
    """Fit a model to each column of values (k, c) over points (k, d)."""
    k, d = points.shape
    centre = points.mean(axis=0)
    deviations = points - centre
    spread = np.abs(deviations).max(axis=0)
    spread[spread == 0] = 1.0
    z = deviations / spread
    unit = np.abs(values).max(axis=0) + TINY
    rows, columns = np.triu_indices(d, 1)
    linear = np.column_stack([np.ones(k), z])
    pure = np.column_stack([linear, z * z])
    designs = [linear, pure, np.column_stack([pure, z[:, rows] * z[:, columns]])]
    fits = [_least_squares(design, values / unit) for design in designs]
    sizes = np.array([[design.shape[1]] for design in designs])
    mse = np.array([error for _, error in fits])
    bic = sizes * math.log(k) / k + 2 * np.log(mse + TINY)
    best = bic.argmin(axis=0)
    variance = (values / unit).var(axis=0, ddof=1) if k > 1 else np.zeros(values.shape[1])
    models = []
    for j, kind in enumerate(best.tolist()):
        coefficients = np.zeros(terms(d))
        coefficients[: sizes[kind, 0]] = fits[kind][0][:, j] * unit[j]
        square = np.diag(coefficients[d + 1 : 2 * d + 1])
        square[rows, columns] = square[columns, rows] = coefficients[2 * d + 1 :] / 2
        models.append(
            Quadratic(
                centre,
                float(coefficients[0]),
                coefficients[1 : d + 1] / spread,
                square / np.outer(spread, spread),
                float(mse[kind, j] / variance[j]) if variance[j] > 0 else 0.0,
                float(unit[j]),
            )
        )
    return models


def _least_squares(design: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coefficients and mean squared errors for each column of values."""
    coefficients: FloatArray = np.linalg.lstsq(design, values, rcond=None)[0].astype(np.float64)
    errors = values - design @ coefficients
    return coefficients, np.asarray((errors * errors).mean(axis=0))


def minimize(
    objective: Quadratic,
    constraints: Sequence[Quadratic],
    start: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    margin: float = TIGHTENING,
) -> FloatArray:
    """Minimize a model in a box, with models of constraints at most 0; return the best point.

    Coordinates with equal bounds are fixed.
    """
    start = np.clip(start, lower, upper)
    if not all(model.finite for model in (objective, *constraints)):
        return start
    point = None if constraints else _stationary(objective, start, lower, upper)
    if point is None and _linear([objective, *constraints]):
        point = _linear_program(objective, constraints, lower, upper, margin)
    if point is None:
        point = _sequential(objective, constraints, start, lower, upper, margin)
    return point


def _linear(models: Sequence[Quadratic]) -> bool:
    """Tell whether the curvature of every model is below a millionth of its values."""
    return all(np.abs(model.square).max() <= NEGLIGIBLE * model.largest for model in models)


def _stationary(
    model: Quadratic, start: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray | None:
    """Return the minimum of a convex model that is nearest to the start.

    Returns None if the model is not convex, has no minimum, or has it outside the box.
    """
    free = lower < upper
    if not free.any():
        return start
    hessian = 2 * model.square[np.ix_(free, free)]
    eigenvalues, vectors = np.linalg.eigh(hessian)
    largest = float(np.abs(eigenvalues).max())
    if largest == 0 or eigenvalues[0] < -NEGLIGIBLE * largest:
        return None
    gradient = vectors.T @ model.gradient(start)[free]
    bent = eigenvalues > NEGLIGIBLE * largest
    if np.abs(gradient[~bent]).max(initial=0.0) > NEGLIGIBLE * np.abs(gradient).max(initial=0.0):
        return None  # the model falls along a direction without curvature
    point = start.copy()
    point[free] -= vectors[:, bent] @ (gradient[bent] / eigenvalues[bent])
    return point if np.all((point >= lower) & (point <= upper)) else None


def _linear_program(
    objective: Quadratic,
    constraints: Sequence[Quadratic],
    lower: FloatArray,
    upper: FloatArray,
    margin: float,
) -> FloatArray | None:
    from scipy.optimize import linprog

    bounds = np.column_stack([lower, upper])
    rows = np.array([model.linear for model in constraints]).reshape(-1, len(lower))
    at_origin = np.array([m.constant - float(m.linear @ m.centre) for m in constraints])
    limits = np.array([-margin * m.largest for m in constraints]) - at_origin
    found = linprog(objective.linear, rows, limits, bounds=bounds)
    return None if found.x is None else np.clip(found.x, lower, upper)


def _sequential(
    objective: Quadratic,
    constraints: Sequence[Quadratic],
    start: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    margin: float,
) -> FloatArray:
    """Minimize by sequential quadratic programming; each model is scaled by its own size."""
    from scipy.optimize import minimize

    unit = max(objective.largest, TINY)
    rules = []
    if constraints:
        units = np.array([max(model.largest, TINY) for model in constraints])
        rules = [
            {
                "type": "ineq",
                "fun": lambda p: -np.array([m(p) for m in constraints]) / units - margin,
                "jac": lambda p: -np.array([m.gradient(p) for m in constraints]) / units[:, None],
            }
        ]
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        # SLSQP warns of steps that rounding takes out of the box.
        found = minimize(
            lambda p: objective(p) / unit,
            start,
            jac=lambda p: objective.gradient(p) / unit,
            bounds=np.column_stack([lower, upper]),
            constraints=rules,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 100},
        )
    point = np.clip(found.x, lower, upper)
    return point if np.isfinite(point).all() else start


def free_variables(
    objective: Quadratic, constraints: Sequence[Quadratic], point: FloatArray
) -> BoolArray:
    """Tell which coordinates the models' optimality conditions at a minimum leave open.

    The Hessian is bordered by the gradients of the active constraints and row-reduced. Its columns
    without a pivot are the open coordinates. Coordinates on a bound are not open.
    """
    d, active = len(point), [m for m in constraints if m(point) > -2 * TIGHTENING * m.largest]
    border = np.array([m.gradient(point) / max(m.largest, TINY) for m in active]).reshape(-1, d)
    hessian = objective.square / max(objective.largest, TINY)
    bordered = np.block([[np.zeros((len(border),) * 2), border], [border.T, hessian]])
    pivots = _pivot_columns(bordered) - len(border)
    free = np.ones(d, np.bool_)
    free[pivots[pivots >= 0]] = False
    return np.asarray(free & (point > NEGLIGIBLE) & (point < 1 - NEGLIGIBLE))


def _pivot_columns(matrix: FloatArray) -> IntArray:
    """Return the columns with a pivot in the row-reduced echelon form."""
    rest = matrix.copy()
    tolerance = NEGLIGIBLE * float(np.abs(rest).max(initial=0.0))
    pivots: list[int] = []
    for column in range(matrix.shape[1]):
        row = len(pivots)
        if row == len(rest):
            break
        best = row + int(np.abs(rest[row:, column]).argmax())
        if abs(rest[best, column]) <= tolerance:
            continue
        rest[[row, best]] = rest[[best, row]]
        rest[row + 1 :] -= np.outer(rest[row + 1 :, column] / rest[row, column], rest[row])
        pivots.append(column)
    return np.array(pivots, np.int64)
