"""Ties: equally good answers of a follower, and the leader's choice among them."""

from __future__ import annotations

import numpy as np

from bilevo.algorithms.shared.follower_search import Pair, evaluate_answers
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure

DIFFERENCE = 1e-4  # of the box: the step with which curvatures of f are taken
FLAT = 1e-6  # of the largest curvature: a direction without any


def flat_directions(pair: Pair) -> Procedure[FloatArray]:
    """Directions (k, n) from a follower's answer in which f has no curvature, by differences."""
    n = len(pair.y)
    h = np.where(pair.y > 0.5, -DIFFERENCE, DIFFERENCE)
    i, j = np.triu_indices(n)
    steps = np.concatenate([np.zeros((1, n)), np.diag(h), np.diag(h)[i] + np.diag(h)[j]])
    values = (yield from evaluate_answers(pair.x, pair.y + steps)).objective
    single = values[1 : n + 1]
    with np.errstate(all="ignore"):
        hessian = np.zeros((n, n))
        hessian[i, j] = hessian[j, i] = values[n + 1 :] - single[i] - single[j] + values[0]
        hessian /= np.outer(h, h)
    if not np.isfinite(hessian).all():
        return np.empty((0, n))
    eigenvalues, vectors = np.linalg.eigh(hessian)
    largest = float(np.abs(eigenvalues).max())
    return np.asarray(vectors[:, np.abs(eigenvalues) <= FLAT * largest].T)
