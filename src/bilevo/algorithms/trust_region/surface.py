"""A Gaussian process of F and of all constraints over x, near one leader.

The covariance of two leaders, in coordinates u from the centre and in units of the radius, is

    t^2 (1 + u u') + q^2 sum_i u_i^2 u_i'^2 + a^2 exp(-sum_i (u_i - u_i')^2 / 2 h_i^2)

So the model has a plane, a parabola for each variable, and a smooth rest with a length h_i for each
variable. The parabolas matter: in the first forty values a model has little else to learn from, and
costs of leaders are often separable. The most probable settings (h, a, t, q) for F are found by
scipy's L-BFGS-B. Constraints share them, so they cost only one more product each. Values of
unfinished followers have a variance of their own, by which the model believes them less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray

JITTER = 1e-9  # The variance that every value has, relative to the mean variance of the model.
MEDIANS = {"h": 2.0, "a": 1.0, "t": 1.0, "q": 1.0}  # The prior of the settings is log-normal.
DEVIATIONS = {"h": 1.0, "a": 1.0, "t": 1.0, "q": 1.5}
TINY = 1e-12  # Slopes below this part of the scale of values count as this.
REACH = 4.0  # Settings stay within this many deviations of their medians.


@dataclass(slots=True, eq=False)
class Seen:
    """Values (p, 1 + c) of F and G at x (p, m), and the variances (p,) of their errors."""

    x: FloatArray
    values: FloatArray
    errors: FloatArray


def first_settings(m: int) -> FloatArray:
    """Return logarithms of the settings before any value is known: m lengths, then a, t and q."""
    return prior(m)[0]


def prior(m: int) -> tuple[FloatArray, FloatArray]:
    """Return the means and the standard deviations of the settings' logarithms."""
    rest = ("a", "t", "q")
    means = np.log([MEDIANS["h"]] * m + [MEDIANS[name] for name in rest])
    return means, np.array([DEVIATIONS["h"]] * m + [DEVIATIONS[name] for name in rest])


class Surface:
    """The model after it has learnt from some values; it gives values and slopes anywhere."""

    def __init__(
        self, seen: Seen, centre: FloatArray, radius: float, settings: FloatArray, learn: int = 0
    ) -> None:
        self.centre, self.radius, self.settings = centre, radius, settings
        self._u = (seen.x - centre) / radius
        self._mean = seen.values.mean(axis=0)
        deviation = seen.values.std(axis=0)
        self.scale = np.where(deviation > 0, deviation, 1.0)
        self._z = (seen.values - self._mean) / self.scale
        self._errors = seen.errors / self.scale[0] ** 2
        self._plane, squares = self._u @ self._u.T + 1, self._u**2
        self._parabolas = squares @ squares.T
        if learn:
            self._learn(learn)
        inverse = np.linalg.inv(self._covariance(self.settings))
        weights = inverse @ self._z
        self._inverse = inverse
        m = len(centre)
        self._narrow = np.exp(-2 * self.settings[:m])
        a, t, q = np.exp(2 * self.settings[m:])
        self._weights = a * weights
        self._level = t * weights.sum(axis=0)
        self._slopes, self._curves = t * (self._u.T @ weights), q * (squares.T @ weights)
        nearest = int((self._u**2).sum(axis=1).argmin())
        if not self._u[nearest].any():  # the values there are known
            self._mean = self._mean + seen.values[nearest] - self.at(centre)[0]

    def _covariance(self, settings: FloatArray, bumps: FloatArray | None = None) -> FloatArray:
        a, t, q = np.exp(2 * settings[-3:])
        if bumps is None:
            bumps = self._bumps(settings, self._squares())
        matrix = a * bumps + t * self._plane + q * self._parabolas
        matrix[np.diag_indices_from(matrix)] += JITTER * matrix.trace() / len(matrix) + self._errors
        covariance: FloatArray = matrix
        return covariance

    def _squares(self) -> FloatArray:
        return np.asarray((self._u[:, None] - self._u[None]) ** 2)

    def _bumps(self, settings: FloatArray, squares: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-0.5 * (squares @ np.exp(-2 * settings[:-3]))))

    def _learn(self, steps: int) -> None:
        """Make the settings more probable, by a few steps of L-BFGS."""
        from scipy.optimize import minimize  # late: slow to import

        squares, m = self._squares(), len(self.centre)
        means, deviations = prior(m)

        def loss(settings: FloatArray) -> tuple[float, FloatArray]:
            value, slope = self._likelihood(settings, squares)
            off = (settings - means) / deviations
            return value + 0.5 * float(off @ off), slope + off / deviations

        bounds = list(zip(means - REACH * deviations, means + REACH * deviations, strict=True))
        start = np.clip(self.settings, *np.transpose(bounds))
        options = {"maxiter": steps}
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        self.settings = np.asarray(found.x)

    def _likelihood(self, settings: FloatArray, squares: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log-likelihood of settings for F, and its slope."""
        a, t, q = np.exp(2 * settings[-3:])
        bumps, z = self._bumps(settings, squares), self._z[:, 0]
        matrix = self._covariance(settings, bumps)
        inverse = np.linalg.inv(matrix)
        weights = inverse @ z
        W = 0.5 * (inverse - np.outer(weights, weights))
        both = W * bumps
        lengths = a * np.tensordot(both, squares, 2) * np.exp(-2 * settings[:-3])
        others = a * both.sum(), t * (W * self._plane).sum(), q * (W * self._parabolas).sum()
        value = 0.5 * float(z @ weights) + 0.5 * float(np.linalg.slogdet(matrix)[1])
        return value, np.append(lengths, 2 * np.array(others))

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (1 + c,) and slopes (m, 1 + c) at x (m,)."""
        u = (x - self.centre) / self.radius
        off = u - self._u
        bumps = np.exp(-0.5 * ((off * off) @ self._narrow))
        values = self._level + bumps @ self._weights + u @ self._slopes + (u * u) @ self._curves
        slopes = (off.T @ (bumps[:, None] * self._weights)) * -self._narrow[:, None]
        slopes += self._slopes + 2 * u[:, None] * self._curves
        return values * self.scale + self._mean, slopes * (self.scale / self.radius)

    def deviations(self, x: FloatArray) -> FloatArray:
        """Return the standard deviations (k,) of F at x (k, m), as far as the model knows."""
        u, (a, t, q) = (x - self.centre) / self.radius, np.exp(2 * self.settings[-3:])
        squares = u * u
        off = (u[:, None] - self._u[None]) ** 2
        known = a * np.exp(-0.5 * (off @ self._narrow))
        known += t * (u @ self._u.T + 1) + q * (squares @ (self._u**2).T)
        before = a + t * (squares.sum(axis=1) + 1) + q * (squares**2).sum(axis=1)
        left = before - ((known @ self._inverse) * known).sum(axis=1)
        return np.asarray(self.scale[0] * np.sqrt(np.maximum(left, 0.0)))


def lowest(
    surface: Surface,
    start: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    margins: FloatArray | float = 0.0,
    steps: int = 40,
) -> FloatArray:
    """Return the x in a box where the model of F is lowest and the models of G leave `margins`.

    `margins`, one or (c,), say how far below 0 the models of G must be. scipy's L-BFGS-B searches
    the x, or SLSQP if there are constraints. If no x seems feasible, SLSQP ends near the least
    violation. Both search in units of the radius, and with slopes of about 1 at the start, so that
    small regions are searched as exactly as large ones.
    """
    from scipy.optimize import minimize  # late: slow to import

    first, slopes = surface.at(start)
    radius = surface.radius
    units = np.maximum(np.abs(slopes).max(axis=0) * radius, TINY * surface.scale)

    def values(u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (1 + c,) and slopes (1 + c, m), which are contiguous, as SLSQP needs."""
        found, slopes = surface.at(start + radius * u)
        return (found - first) / units, np.ascontiguousarray((slopes * (radius / units)).T)

    def F(u: FloatArray) -> tuple[float, FloatArray]:
        found, slopes = values(u)
        return float(found[0]), slopes[0]

    box = list(zip((lower - start) / radius, (upper - start) / radius, strict=True))
    settings: dict[str, Any] = {"jac": True, "bounds": box}
    u = np.zeros(len(start))
    if len(first) == 1:
        found = minimize(F, u, method="L-BFGS-B", options={"maxiter": steps}, **settings)
    else:
        shift = (first[1:] + margins) / units[1:]
        room = {
            "type": "ineq",
            "fun": lambda u: -(values(u)[0][1:] + shift),
            "jac": lambda u: -values(u)[1][1:],
        }
        options = {"maxiter": steps, "ftol": 1e-9}
        found = minimize(F, u, method="SLSQP", constraints=[room], options=options, **settings)
    x = start + radius * np.where(np.isfinite(found.x), found.x, 0.0)
    return np.asarray(np.clip(x, lower, upper))
