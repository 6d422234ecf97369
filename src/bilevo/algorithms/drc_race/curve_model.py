"""A Gaussian process of learning curves: it predicts the final values of tasks, also of new tasks.

The model follows K. Swersky, J. Snoek and R. P. Adams, "Freeze-thaw Bayesian optimization", 2014.
The value of a task at x, after a share t of the longest search, is a limit plus a rest that decays
as beta / (beta + t). Limit and rest are smooth in x and differ from task to task:

    k = a^2 M(x, x') + (c^2 + e^2 M(x, x')) D(t, t')
        + [same task] (b^2 + e^2 D(t, t') + s^2 min(t, t') / max(t, t'))

M is a Matern 5/2 kernel with a length for each variable, and D(t, t') = beta / (beta + t + t'). The
last term covers other changes of a curve, which matter less as the curve ages. Two things differ
from the paper. First, decays are smooth in x, too, and have a part that all tasks share (c). So one
finished task shows what to expect of the others. Second, only the most probable settings are used,
because an average over settings would take many times as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.order import ranking

ROOT5 = math.sqrt(5)
NEAR_BEST = 0.05  # Distances to the best value hardly count below this part of their median.
JITTER = 1e-4  # A variance that keeps covariances invertible.
NEW = -1  # The number of a new task, from which the model has not learnt.

# The prior of each setting: its median, and the standard deviation of its logarithm. They are for
# values with a standard deviation of 1, and for x in the unit box.
LENGTH = (0.5, 0.7)
OTHERS = {"a": (0.8, 0.7), "b": (0.3, 0.7), "c": (1.0, 0.7), "e": (0.5, 0.7)} | {
    "beta": (0.2, 0.5),
    "s": (0.2, 0.7),
}


def scores(objective: FloatArray, violation: FloatArray) -> FloatArray:
    """Return values for a model, in Deb's order, with mean 0 and deviation 1.

    A feasible value becomes the logarithm of its distance to the best value. Infeasible values
    follow in equal steps.
    """
    feasible = (violation == 0) & np.isfinite(objective)
    z = np.zeros(len(objective))
    if feasible.any():
        above = objective[feasible] - objective[feasible].min()
        scale = float(np.median(above)) or float(above.mean())
        z[feasible] = np.log(NEAR_BEST + above / scale) if 0 < scale < math.inf else 0.0
    order = ranking(objective, violation)
    behind = order[~feasible[order]]
    step = (np.ptp(z[feasible]) + 1.0 if feasible.any() else 1.0) / len(z)
    z[behind] = z.max(where=feasible, initial=-10.0) + step * np.arange(1, len(behind) + 1)
    z -= z.mean()
    return np.asarray(z / (z.std() or 1.0))


def expected_improvement(mean: FloatArray, deviation: FloatArray, best: float) -> FloatArray:
    """Return by how much, on average, a normal variable falls below the value `best`."""
    from scipy.special import ndtr  # late: slow to import

    u = (best - mean) / deviation
    density = np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)
    return np.asarray(deviation * (u * ndtr(u) + density))


@dataclass(slots=True, eq=False)
class Rows:
    """Data to learn from: values z (r,) of tasks (r,) at x (r, m) after the shares t (r,)."""

    x: FloatArray
    t: FloatArray
    task: IntArray
    z: FloatArray


@dataclass(slots=True, eq=False)
class Relations:
    """What the covariance needs of each row of one set (r) and each row of another set (q)."""

    squares: FloatArray  # squared differences of x, (r, q, m)
    t: FloatArray  # sums of the shares, (r, q)
    same: BoolArray  # whether both rows belong to the same task, (r, q)
    lasting: FloatArray  # the smaller share divided by the larger one in one task, else 0

    @classmethod
    def between(cls, x: FloatArray, t: FloatArray, task: IntArray, rows: Rows) -> Relations:
        same = task[:, None] == rows.task[None]
        ratio = np.minimum(t[:, None], rows.t[None]) / np.maximum(t[:, None], rows.t[None])
        squares = (x[:, None] - rows.x[None]) ** 2
        return cls(squares, t[:, None] + rows.t[None], same, same * ratio)

    @classmethod
    def within(cls, rows: Rows) -> Relations:
        return cls.between(rows.x, rows.t, rows.task, rows)


class Kernel:
    """The covariance between two sets of rows at some settings, and its parts."""

    __slots__ = ("decay", "falls", "matern", "value", "x_part")

    def __init__(self, settings: FloatArray, relations: Relations) -> None:
        squares, t, same = relations.squares, relations.t, relations.same
        m = squares.shape[2]
        a, b, c, e, beta, s = np.exp(settings[m:])
        r2 = squares @ np.exp(-2 * settings[:m])
        r = np.sqrt(r2)
        fall = np.exp(-ROOT5 * r)
        self.matern = (1 + ROOT5 * r + 5 / 3 * r2) * fall
        self.decay = beta / (beta + t)
        self.x_part = a * a + e * e * self.decay
        self.falls = 5 / 3 * (1 + ROOT5 * r) * fall  # dM/d(log length), without squares
        self.value = self.x_part * self.matern + (c * c) * self.decay
        self.value += (b * b + e * e * self.decay) * same + (s * s) * relations.lasting


def first_settings(m: int) -> FloatArray:
    """Return logarithms of the settings before any value is known: m lengths, then `OTHERS`."""
    return _prior(m)[0]


def _prior(m: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of the settings' logarithms."""
    medians, deviations = zip(*[LENGTH] * m, *OTHERS.values(), strict=True)
    return np.log(medians), np.array(deviations)


def learn_settings(rows: Rows, settings: FloatArray, steps: int) -> FloatArray:
    """Return settings with a higher posterior density, found by a few steps of L-BFGS."""
    from scipy.optimize import minimize  # late: slow to import

    medians, deviations = _prior(rows.x.shape[1])
    relations = Relations.within(rows)

    def loss(trial: FloatArray) -> tuple[float, FloatArray]:
        value, slope = _likelihood(trial, relations, rows.z)
        off = (trial - medians) / deviations
        return value + 0.5 * float(off @ off), slope + off / deviations

    bounds = list(zip(medians - 3 * deviations, medians + 3 * deviations, strict=True))
    options = {"maxiter": steps}
    found = minimize(loss, settings, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x)


def _likelihood(
    settings: FloatArray, relations: Relations, z: FloatArray
) -> tuple[float, FloatArray]:
    """Return the negative log-likelihood of settings, and its slope."""
    squares, same = relations.squares, relations.same
    m = squares.shape[2]
    a, b, c, e, _, s = np.exp(settings[m:])
    kernel = Kernel(settings, relations)
    covariance = kernel.value + JITTER * np.eye(len(z))
    inverse = np.linalg.inv(covariance)
    weights = inverse @ z
    W = 0.5 * (inverse - np.outer(weights, weights))
    decaying, both = W * kernel.decay, kernel.matern + same
    slope = [
        2 * a * a * (W * kernel.matern).sum(),
        2 * b * b * W[same].sum(),
        2 * c * c * decaying.sum(),
        2 * e * e * (decaying * both).sum(),
        (decaying * (1 - kernel.decay) * (c * c + e * e * both)).sum(),
        2 * s * s * (W * relations.lasting).sum(),
    ]
    lengths = np.tensordot(W * kernel.x_part * kernel.falls, squares, 2) * np.exp(-2 * settings[:m])
    value = 0.5 * float(z @ weights) + 0.5 * float(np.linalg.slogdet(covariance)[1])
    return value, np.concatenate([lengths, slope])


class CurveModel:
    """The process after it has learnt from some rows; it predicts the final values of tasks."""

    def __init__(self, rows: Rows, settings: FloatArray) -> None:
        self.rows, self.settings = rows, settings
        covariance = Kernel(settings, Relations.within(rows)).value
        self._inverse = np.linalg.inv(covariance + JITTER * np.eye(len(rows.z)))
        self._weights = self._inverse @ rows.z

    @property
    def lengths(self) -> FloatArray:
        """Return the length scale of each variable (m,)."""
        return np.asarray(np.exp(self.settings[: self.rows.x.shape[1]]))

    def at_end(self, x: FloatArray, task: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation (k,) of the final values of tasks (k,) at x (k, m)."""
        rows, m = self.rows, x.shape[1]
        relations = Relations.between(x, np.ones(len(x)), task, rows)
        k = Kernel(self.settings, relations).value
        a, b, c, e, beta, s = np.exp(self.settings[m:])
        alone = a * a + b * b + s * s + (c * c + 2 * e * e) * beta / (beta + 2)
        variance = alone - np.einsum("ij,ij->i", k @ self._inverse, k)
        return k @ self._weights, np.sqrt(np.maximum(variance, 1e-12))
