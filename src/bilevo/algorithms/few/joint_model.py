"""A model of one function over (x, y): a quadratic, and a smooth rest.

The model is a Gaussian process whose kernel is the sum of the polynomial kernel of degree 2 and of
Matern's with smoothness 5/2. A linear or quadratic function of d variables is met exactly after
(d + 1)(d + 2) / 2 points, and the smooth part bends the model where a function is neither. The
share of the smooth part and its length are those of the highest likelihood on a small grid, so that
the model is the same on every machine that has the same values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import TINY, FloatArray

SHARES = (1e-6, 1e-3, 0.1, 10.0)  # Shares of the smooth part, relative to the quadratic one.
LENGTHS = (0.25, 0.6, 1.5)  # Its lengths; a side of the box is 2.
NUGGET = 1e-11  # What is added to the kernel's diagonal, relative to its mean.
LONG_TAIL = 1e3  # Values that spread more than this are taken on a logarithmic scale.


@dataclass(frozen=True, slots=True, eq=False)
class JointModel:
    """A model of a function. `unit` is the size of its differences."""

    points: FloatArray  # (k, d), in [-1, 1]
    weights: FloatArray  # (k,)
    share: float
    length: float
    mean: float
    unit: float

    @classmethod
    def of(cls, points: FloatArray, values: FloatArray, signed: bool = False) -> JointModel:
        """Fit a model to values (k,) at points (k, d) of the unit box.

        If `signed`, the sign of values counts, as it does in constraints. If not, only their order
        counts, as it does in objectives. Either may be put on a logarithmic scale.
        """
        from scipy.linalg import LinAlgError, cho_factor, cho_solve  # late: scipy is slow to import

        z, v = 2.0 * points - 1.0, _compressed(values, signed)
        mean = 0.0 if signed else float(v.mean())
        unit = float(np.abs(v - mean).max()) or 1.0
        scaled = (v - mean) / unit
        quadratic, distances = (1.0 + z @ z.T) ** 2, _distances(z, z)
        best = -math.inf
        found = cls(z, np.zeros(len(z)), SHARES[0], LENGTHS[-1], mean, unit)
        for length in LENGTHS:
            smooth = _matern(distances / length)
            for share in SHARES:
                kernel = quadratic + share * smooth
                kernel[np.diag_indices(len(z))] += NUGGET * kernel.trace() / len(z)
                try:
                    factor = cho_factor(kernel, lower=True)
                except LinAlgError:
                    continue
                weights = cho_solve(factor, scaled)
                variance = max(float(scaled @ weights) / len(z), TINY)
                likelihood = -0.5 * len(z) * math.log(variance)
                likelihood -= float(np.log(factor[0].diagonal()).sum())
                if likelihood > best:
                    best, found = likelihood, cls(z, weights, share, length, mean, unit)
        return found

    def __call__(self, points: FloatArray) -> FloatArray:
        """Return the model (k,) at points (k, d) of the unit box."""
        z = 2.0 * points - 1.0
        kernel = (1.0 + z @ self.points.T) ** 2
        kernel += self.share * _matern(_distances(z, self.points) / self.length)
        return np.asarray(self.mean + self.unit * (kernel @ self.weights))


def _compressed(values: FloatArray, signed: bool) -> FloatArray:
    """Return values on a logarithmic scale if they spread over many orders, else as they are."""
    if signed:
        middle = float(np.median(np.abs(values)))
        long = middle > 0 and np.abs(values).max() > LONG_TAIL * middle
        return np.asarray(np.arcsinh(values / middle)) if long else values
    least = float(values.min())
    part = float(np.percentile(values, 30)) - least
    long = part > 0 and float(values.max()) - least > LONG_TAIL * part
    return np.asarray(np.log1p((values - least) / part)) if long else values


def _distances(a: FloatArray, b: FloatArray) -> FloatArray:
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2.0 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _matern(scaled: FloatArray) -> FloatArray:
    t = math.sqrt(5.0) * scaled
    return np.asarray((1.0 + t + t * t / 3.0) * np.exp(-t))
