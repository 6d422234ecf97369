"""Random points in the unit box."""

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.optimizers.cma_kernels import inside, roots

LATTICES = 16  # How many random lattices are compared.


def gaussian(
    mean: FloatArray, covariance: FloatArray, count: int, rng: np.random.Generator
) -> FloatArray:
    """Draw points (count, d) of a Gaussian, and repair those that fall outside the box."""
    root, _, _ = roots(covariance.copy())
    return inside(mean + rng.standard_normal((count, len(mean))) @ root, mean)


def latin_hypercube(count: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Draw points (count, d), one in each slice of every coordinate.

    scipy's version is not used, because it needs scipy.stats, which is slow to import.
    """
    slices = rng.random((count, d)).argsort(axis=0)
    return np.asarray((slices + rng.random((count, d))) / count)


def lattice(count: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Return points (count, d) that fill the box evenly: a shifted lattice.

    As in a Latin hypercube, all points lie in different slices of every coordinate. But they keep
    farther apart, so that fewer large balls are empty. Some random lattices are compared, and the
    one whose nearest points are the farthest apart is taken. If so few numbers below `count` share
    no factor with it that variables would have the same steps, the points are a Latin hypercube.
    """
    units = np.flatnonzero(np.gcd(np.arange(count), count) == 1)
    if len(units) < 2 * d:
        return latin_hypercube(count, d, rng)
    steps, multiples = rng.choice(units, (LATTICES, 1, d)), np.arange(count)[:, None]
    away = multiples[1:] * steps % count  # from one point to the others, in a box closed to a ring
    away = np.minimum(away, count - away)
    nearest = (away * away).sum(axis=2).min(axis=1)
    return np.asarray((rng.random(d) + multiples * steps[nearest.argmax()] / count) % 1.0)
