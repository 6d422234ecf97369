"""A classifier that tells good points from bad ones by their nearest neighbours."""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray

NEIGHBOURS = 5


def probability_good(x: FloatArray, good: BoolArray, at: FloatArray) -> FloatArray:
    """How probable it is that points (k, d) are good, from points (j, d) known to be so or not.

    Nearer neighbours count more, so that points differ in probability even between the same ones.
    """
    from sklearn.neighbors import KNeighborsClassifier

    if good.all() or not good.any():
        return np.full(len(at), float(good.all()))
    # A tree needs no threads, which would wait for each other where workers fill the machine.
    model = KNeighborsClassifier(min(NEIGHBOURS, len(x)), weights="distance", algorithm="kd_tree")
    model.fit(x, good)
    return np.asarray(model.predict_proba(at)[:, 1], dtype=np.float64)
