"""Models of several functions over (x, y), which were evaluated at the same points.

A function that is linear or quadratic is known exactly after (d + 1)(d + 2) / 2 points of d
variables, and one point more shows that it is. Every other function gets a Gaussian process whose
kernel is the sum of the polynomial kernel of degree 2 and of Matern's with smoothness 5/2: a
quadratic, and a smooth rest. The share of the smooth part and its length are those of the highest
likelihood on a small grid, so that the model is the same on every machine that has the same values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bilevo.core.arrays import TINY, BoolArray, FloatArray

SHARES = (1e-6, 1e-3, 0.1, 10.0)  # Shares of the smooth part, relative to the quadratic one.
LENGTHS = (0.25, 0.6, 1.5)  # Its lengths; a side of the box is 2.
NUGGET = 1e-11  # What is added to the kernel's diagonal, relative to its mean.
LONG_TAIL = 1e3  # Values that spread more than this are taken on a logarithmic scale.
EXACT = 1e-10  # A function is quadratic if a quadratic misses its values by less, relatively.

Setting = tuple[float, float] | None  # length and share of the smooth part, if there is one


@dataclass(frozen=True, slots=True, eq=False)
class JointModels:
    """Models of c functions. `unit` (c,) is the size of the differences of each."""

    points: FloatArray  # (k, d), in [-1, 1]
    quadratics: FloatArray  # (c, d + 1, d + 1)
    smooth: FloatArray  # (k, c), the weights of the smooth part at the points
    settings: tuple[Setting, ...]
    mean: FloatArray
    unit: FloatArray

    @classmethod
    def of(
        cls,
        points: FloatArray,
        values: FloatArray,
        signed: BoolArray,
        settings: Sequence[Setting] | None = None,
    ) -> JointModels:
        """Fit models to values (k, c) at points (k, d) of the unit box.

        If `signed` (c,), the sign of values counts, as it does in constraints. If not, only their
        order counts, as it does in objectives. Either may be put on a logarithmic scale. Models
        with `settings` are fitted with these, so that nothing is searched for.
        """
        z = _with_one(2.0 * points - 1.0)
        quadratics, exact = _exact(z, values)
        scaled, mean, unit = _scaled(values, signed, exact)
        quadratics[exact] /= unit[exact, None, None]
        quadratics[exact, 0, 0] -= mean[exact] / unit[exact]
        smooth = np.zeros_like(values)
        found: list[Setting] = [None] * values.shape[1]
        if not exact.all():
            wanted = [None] * len(exact) if settings is None else settings
            rest = [j for j in range(len(exact)) if not exact[j]]
            for j, (setting, weights) in _processes(z, scaled, rest, wanted).items():
                quadratics[j] = z.T @ (weights[:, None] * z)
                smooth[:, j] = setting[1] * weights
                found[j] = setting
        return cls(z[:, 1:], quadratics, smooth, tuple(found), mean, unit)

    def __call__(self, points: FloatArray) -> FloatArray:
        """Return the models (k, c) at points (k, d) of the unit box, in units of each."""
        z = _with_one(2.0 * points - 1.0)
        told = np.stack([((z @ one) * z).sum(axis=1) for one in self.quadratics], axis=1)
        rest = [j for j, setting in enumerate(self.settings) if setting is not None]
        if rest:
            distances = _distances(z[:, 1:], self.points)
            for length, columns in groupby(sorted(rest, key=self._length), key=self._length):
                own = list(columns)
                told[:, own] += _matern(distances, length) @ self.smooth[:, own]
        return told

    def _length(self, column: int) -> float:
        setting = self.settings[column]
        return 0.0 if setting is None else setting[0]


def _exact(z: FloatArray, values: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return quadratics (c, d + 1, d + 1) of functions, and which of them meet all values."""
    d, c = z.shape[1], values.shape[1]
    rows, columns = np.triu_indices(d)
    quadratics = np.zeros((c, d, d))
    if len(z) <= len(rows):
        return quadratics, np.zeros(c, np.bool_)
    basis = z[:, rows] * z[:, columns]
    coefficients = np.linalg.lstsq(basis, values, rcond=None)[0]
    missed = np.abs(basis @ coefficients - values).max(axis=0)
    quadratics[:, rows, columns] = coefficients.T
    return quadratics, np.asarray(missed <= EXACT * np.abs(values).max(axis=0))


def _processes(
    z: FloatArray, scaled: FloatArray, rest: Sequence[int], wanted: Sequence[Setting]
) -> dict[int, tuple[tuple[float, float], FloatArray]]:
    """Return setting and weights (k,) of the likeliest process of some functions, by column."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve  # late: scipy is slow to import

    k, quadratic = len(z), (z @ z.T) ** 2
    distances = _distances(z[:, 1:], z[:, 1:])
    best = dict.fromkeys(rest, -math.inf)
    found = {j: ((LENGTHS[-1], SHARES[0]), np.zeros(k)) for j in rest}
    for length in LENGTHS:
        matern = None
        for share in SHARES:
            own = [j for j in rest if wanted[j] in (None, (length, share))]
            if not own:
                continue
            matern = _matern(distances, length) if matern is None else matern
            kernel = quadratic + share * matern
            kernel[np.diag_indices(k)] += NUGGET * kernel.trace() / k
            try:
                factor = cho_factor(kernel, lower=True, overwrite_a=True, check_finite=False)
            except LinAlgError:
                continue
            weights = cho_solve(factor, scaled[:, own], check_finite=False)
            variance = np.maximum((scaled[:, own] * weights).sum(axis=0) / k, TINY)
            likelihood = -0.5 * k * np.log(variance) - np.log(factor[0].diagonal()).sum()
            for i, j in enumerate(own):
                if likelihood[i] > best[j]:
                    best[j], found[j] = float(likelihood[i]), ((length, share), weights[:, i])
    return found


def _scaled(
    values: FloatArray, signed: BoolArray, exact: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return values in their units, with the mean and the unit (c,) of each function."""
    kept = [
        column if exact[j] else _compressed(column, bool(signed[j]))
        for j, column in enumerate(values.T)
    ]
    v = np.stack(kept, axis=1)
    mean = np.where(signed, 0.0, v.mean(axis=0))
    unit = np.abs(v - mean).max(axis=0)
    unit[unit == 0] = 1.0
    return (v - mean) / unit, mean, unit


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


def _with_one(z: FloatArray) -> FloatArray:
    return np.concatenate([np.ones((len(z), 1)), z], axis=1)


def _distances(a: FloatArray, b: FloatArray) -> FloatArray:
    squares = a @ (-2.0 * b.T)
    squares += (a * a).sum(axis=1)[:, None]
    squares += (b * b).sum(axis=1)
    np.maximum(squares, 0.0, out=squares)
    return np.asarray(np.sqrt(squares, out=squares))


def _matern(distances: FloatArray, length: float) -> FloatArray:
    t = distances * (math.sqrt(5.0) / length)
    rest = t / 3.0
    rest += 1.0
    rest *= t
    rest += 1.0
    rest *= np.exp(np.negative(t, out=t), out=t)
    return rest
