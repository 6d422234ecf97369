"""Factorisation and repair of covariance matrices."""

from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray

CONDITION = 1e7  # largest ratio of root eigenvalues that is let stand


class Roots(NamedTuple):
    """A covariance matrix, its symmetric root, the inverse of that, and the largest deviation."""

    C: FloatArray
    root: FloatArray
    inverse: FloatArray
    largest: float


def symmetric_roots(C: FloatArray) -> Roots:
    """C, repaired where that is needed, and its roots.

    The symmetric root does not depend on the arbitrary eigenbasis, so that sampling through it
    agrees between machines. Eigenvalues that are too small against the largest are lifted.
    """
    eigenvalues, B = np.linalg.eigh(C)
    if eigenvalues[0] * CONDITION**2 <= eigenvalues[-1] or eigenvalues[0] <= 0:
        largest = max(float(eigenvalues[-1]), 1e-300)
        lift = largest / CONDITION**2 - min(float(eigenvalues[0]), 0.0)
        eigenvalues = eigenvalues + lift
        C = C + lift * np.eye(len(C))
    D = np.sqrt(eigenvalues)
    return Roots(C, (B * D) @ B.T, (B / D) @ B.T, float(D[-1]))
