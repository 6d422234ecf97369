"""Random problems whose followers have two or three branches, with answers by a grid.

The follower's f is a wide bowl with Gaussian wells. Their places and depths change with x, so that
y*(x) jumps from one well to another. The leader has one or two variables, and so has the follower.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo import Problem
from bilevo.core.arrays import FloatArray

BOWL = 0.1  # Twice the curvature of the bowl.
ITERATIONS = 60  # Iterations from each well to the nearest minimum of f.
GRIDS = {1: 4001, 2: 141}  # Points of the first grid along each axis, by the number of variables.
ZOOMS, KEPT, FINER = 6, 5, 9  # The grid is refined this often, around the best places.


@dataclass(frozen=True, slots=True)
class Branches:
    """A follower with wells, and a leader who wants x at `a` and y at `b`.

    Well k lies at `places[k] + slopes[k] @ x`, and is `depths[k] + growth[k] @ x` deep.
    """

    places: FloatArray  # (k, n)
    slopes: FloatArray  # (k, n, m)
    depths: FloatArray  # (k,)
    growth: FloatArray  # (k, m)
    width: float
    a: FloatArray  # (m,)
    b: FloatArray  # (n,)

    @classmethod
    def random(cls, index: int, seed: int) -> Branches:
        """Return the problem with a number; the numbers of variables and wells change with it."""
        rng = np.random.default_rng([index, seed])
        m, n, k = 1 + index % 2, 1 + index // 2 % 2, 2 + index // 4 % 2
        places = rng.uniform(-0.7, 0.7, (k, n))
        places[:, 0] = np.linspace(-0.7, 0.7, k) + rng.uniform(-0.1, 0.1, k)
        slopes = rng.uniform(-0.2, 0.2, (k, n, m))
        depths, growth = rng.uniform(0.9, 1.1, k), rng.uniform(-0.5, 0.5, (k, m))
        a, b = rng.uniform(-1, 1, m), rng.uniform(-1, 1, n)
        return cls(places, slopes, depths, growth, float(rng.uniform(0.15, 0.3)), a, b)

    @property
    def m(self) -> int:
        return len(self.a)

    @property
    def n(self) -> int:
        return len(self.b)

    def centres(self, x: FloatArray) -> FloatArray:
        """Return the wells' places (rows, k, n) at leaders x (rows, m)."""
        return np.asarray(self.places + np.einsum("knm,rm->rkn", self.slopes, x))

    def pulls(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return how much each well lowers f (rows, k)."""
        away = ((y[:, None] - self.centres(x)) ** 2).sum(axis=2)
        return np.asarray((self.depths + x @ self.growth.T) * np.exp(-away / (2 * self.width**2)))

    def F(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(((x - self.a) ** 2).sum(axis=1) + ((y - self.b) ** 2).sum(axis=1))

    def f(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(BOWL / 2 * (y * y).sum(axis=1) - self.pulls(x, y).sum(axis=1))

    @property
    def problem(self) -> Problem:
        x, y = [(-1.0, 1.0)] * self.m, [(-1.5, 1.5)] * self.n
        return Problem(self.F, self.f, x, y, vectorized=True, name="branches")

    def minima(self, x: FloatArray) -> FloatArray:
        """Return the minima of f (k, rows, n) nearest to the wells, by a fixed-point iteration."""
        found = []
        for k in range(len(self.depths)):
            y = self.centres(x)[:, k]
            for _ in range(ITERATIONS):
                weights = self.pulls(x, y) / self.width**2
                pulled = (weights[:, :, None] * self.centres(x)).sum(axis=1)
                y = pulled / (BOWL + weights.sum(axis=1))[:, None]
            found.append(y)
        return np.array(found)

    def phi(self, x: FloatArray) -> FloatArray:
        """Return F at the follower's answers to leaders x (rows, m)."""
        minima = self.minima(x)
        f = np.array([self.f(x, y) for y in minima])
        y = minima[f.argmin(axis=0), np.arange(len(x))]
        return self.F(x, y)

    def best(self) -> float:
        """Return the lowest phi on grids, each finer than the one before."""
        count = GRIDS[self.m]
        step = 2 / (count - 1)
        x = grid(np.zeros((1, self.m)), 1.0, count)
        lowest = np.inf
        for _ in range(ZOOMS):
            phi = self.phi(x)
            lowest = min(lowest, float(phi.min()))
            x = grid(x[np.argsort(phi)[:KEPT]], 1.5 * step, FINER)
            step *= 3 / (FINER - 1)
        return min(lowest, float(self.phi(x).min()))


def grid(middles: FloatArray, reach: float, count: int) -> FloatArray:
    """Return the points of grids around middles (k, m), within the leader's box."""
    axis, m = np.linspace(-reach, reach, count), middles.shape[1]
    offsets = np.stack(np.meshgrid(*[axis] * m), axis=-1).reshape(-1, m)
    return np.clip((middles[:, None] + offsets).reshape(-1, m), -1.0, 1.0)
