"""Models by scikit-learn, which BLEAQ-II and SA-BL-IMODE need."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray

VOTERS = 5  # How many neighbours decide whether a point is good.


def require_scikit_learn(method: str) -> None:
    """Raise an ImportError that names the method if scikit-learn is missing."""
    if find_spec("sklearn") is None:
        raise ImportError(f"{method} needs scikit-learn: pip install 'bilevo[surrogate]'")


def probability_good(x: FloatArray, good: BoolArray, at: FloatArray) -> FloatArray:
    """Return probabilities (k,) that points `at` (k, d) are good, from points x (j, d).

    `good` (j,) tells which of the points x are good. Nearer neighbours count more, so that
    points with the same neighbours still differ in probability.
    """
    from sklearn.neighbors import KNeighborsClassifier

    if good.all() or not good.any():
        return np.full(len(at), float(good.all()))
    # A tree is searched without threads, which would compete with workers for the processors.
    model = KNeighborsClassifier(min(VOTERS, len(x)), weights="distance", algorithm="kd_tree")
    model.fit(x, good)
    return np.asarray(model.predict_proba(at)[:, 1], dtype=np.float64)


def centres_of(answers: FloatArray, count: int, seed: int) -> FloatArray:
    """Return the centres of `count` clusters of the answers, or fewer if answers coincide."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # scikit-learn depends on it

    count = min(count, len(np.unique(answers, axis=0)))
    with threadpool_limits(1):  # threads add in varying order, which changes rounding errors
        kmeans = KMeans(count, n_init=1, random_state=seed % 2**32).fit(answers)
    return np.asarray(np.clip(kmeans.cluster_centers_, 0.0, 1.0), dtype=np.float64)
