"""Moves from one basin of f to others, where searches have ended in several basins.

If f has ripples, its basins are about equally far apart. So the moves are the distances between
ends of searches: the smallest ones along each axis, and along two axes at once.
"""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import FloatArray

APART = 0.01  # Places that are farther apart than this fraction of the box are different basins.
PARTS = np.array([1.0, 2.0, 3.0])  # Between two basins there may be one or two others.
MOST_HOPS = 8  # How often a search steps from its best basin to a better one.
MOST_STEPS = 10  # How many distances between basins are tried along each axis.
PAIRED_AXES = 8  # With more variables, steps along two axes at once would be too many.


def moves_between(places: FloatArray) -> FloatArray:
    """Return moves (j, n) that may lead to other basins, from where searches have ended (k, n)."""
    n = places.shape[1]
    i, j = np.triu_indices(len(places), 1)
    steps = [_some_steps(column) for column in np.abs(places[i] - places[j]).T]
    moves = [step * np.eye(n)[axis] for axis in range(n) for step in steps[axis]]
    first = [step[0] * np.eye(n)[axis] if step else np.zeros(n) for axis, step in enumerate(steps)]
    if n <= PAIRED_AXES:
        pairs = [(a, b) for b in range(n) for a in range(b) if steps[a] and steps[b]]
        moves += [first[a] + sign * first[b] for a, b in pairs for sign in (1, -1)]
    rows = np.array(moves).reshape(-1, n)
    return np.concatenate([rows, -rows])


def _some_steps(distances: FloatArray) -> list[float]:
    """Return the smallest distances between basins, and parts of them, without near duplicates.

    Between two of the basins there may be one or two others.
    """
    parts = (distances[:, None] / PARTS).ravel()
    chosen: list[float] = []
    for distance in np.sort(parts[parts > APART]).tolist():
        if not chosen or distance > chosen[-1] + APART / 2:
            chosen.append(distance)
    return chosen[:MOST_STEPS]


def moved(y: FloatArray, moves: FloatArray) -> FloatArray:
    """Return the points (j, n) to which moves lead from an answer y (n,)."""
    return np.clip(y + moves, 0.0, 1.0)


def points_to_try(y: FloatArray, moves: FloatArray, gains: FloatArray, least: float) -> FloatArray:
    """Return the points (k, n) at which a search goes on, from what each move gains.

    These are where the best moves lead together, and where the best one leads. If no move gains
    more than `least`, there are none.
    """
    if not gains.max(initial=-np.inf) > least:
        return np.empty((0, len(y)))
    together = all_at_once(moves, gains, least)
    return moved(y, np.array([together, moves[int(gains.argmax())]]))


def all_at_once(moves: FloatArray, gains: FloatArray, least: float) -> FloatArray:
    """Return the sum of the best moves that gain more than `least` and share no axis."""
    total = np.zeros(moves.shape[1])
    for i in np.argsort(-gains, kind="stable"):
        if not gains[i] > least:
            break
        if not (total[moves[i] != 0] != 0).any():
            total = total + moves[i]
    return total
