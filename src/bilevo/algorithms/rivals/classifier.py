"""A classifier that tells good points from bad ones by their nearest neighbours."""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray

VOTERS = 5  # neighbours that decide


def probability_good(x: FloatArray, good: BoolArray, at: FloatArray) -> FloatArray:
    """Return probabilities (k,) that points `at` (k, d) are good, from points x (j, d).

    `good` (j,) says which of the known points are good. Nearer neighbours count more, so that
    points with the same neighbours still differ in probability.
    """
    from sklearn.neighbors import KNeighborsClassifier

    if good.all() or not good.any():
        return np.full(len(at), float(good.all()))
    # A tree is searched without threads, which would compete with workers for the processors.
    model = KNeighborsClassifier(min(VOTERS, len(x)), weights="distance", algorithm="kd_tree")
    model.fit(x, good)
    return np.asarray(model.predict_proba(at)[:, 1], dtype=np.float64)
