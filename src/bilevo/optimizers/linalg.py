"""Factorisation and repair of covariance matrices."""

import numpy as np

from bilevo.core.arrays import FloatArray

CONDITION = 1e7  # largest ratio of root eigenvalues that is let stand


def symmetric_roots(C: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Repaired C, its symmetric root and that root's inverse.

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
    return C, (B * D) @ B.T, (B / D) @ B.T
