"""Random points in the unit box."""

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.optimizers.cma_kernels import inside, roots


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
