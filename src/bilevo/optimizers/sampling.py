"""Drawing points from a Gaussian in the unit box."""

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.optimizers.linalg import symmetric_roots


def gaussian(
    mean: FloatArray, covariance: FloatArray, count: int, rng: np.random.Generator
) -> FloatArray:
    """Points (count, d) of a Gaussian, repaired where they fall outside the box."""
    root = symmetric_roots(covariance).root
    return inside(mean + rng.standard_normal((count, len(mean))) @ root, mean)


def inside(points: FloatArray, centre: FloatArray) -> FloatArray:
    """Repair coordinates outside the unit box, in place: half-way from `centre` to the bound."""
    if points.min() < 0 or points.max() > 1:
        np.copyto(points, (centre + 1) / 2, where=points > 1)
        np.copyto(points, centre / 2, where=points < 0)
        # Mixing between tasks can put a centre itself outside the box.
        np.clip(points, 0.0, 1.0, out=points)
    return points
