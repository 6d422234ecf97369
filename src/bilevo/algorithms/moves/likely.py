"""Where a follower's best answer is likely, from the followers of other leaders.

The follower of each leader whose cells were compared leaves a record: f and the real numbers in all
cells. At a new leader, records predict f in all cells, and a regression predicts the real numbers
of a cell. Predictions cost no evaluation. Cells are looked at from the best prediction on, until
even twice the largest error that predictions have shown there would not make the next cell the best
one. So a wrong prediction costs evaluations, and seldom an answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.shared.cells import GAINS, Cells, all_cells
from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Grid
from bilevo.core.request import Procedure

MOST_RECORDED = 1024  # Followers with more cells leave no records.
MOST_RECORDS = 200  # The latest records are kept,
NEAREST = 40  # and so many of the nearest ones predict f.
BARRED = 3  # A cell that is infeasible in this number of the nearest records is not looked at.
LIMITING = 8  # A guess is not far outside the values of so many of the nearest records.
ERRORS = 4  # By how many of the largest errors seen a prediction may be wrong.
PART = 3  # How many cells are looked at side by side.
SURE = 6  # Errors of predictions are known after this number of cells.
COINCIDENT = 1e-9  # Keeps weights finite where leaders coincide.


@dataclass(slots=True, eq=False)
class Record:
    """What is known of a follower: f (N,) in all cells, inf if infeasible, and reals (N, d)."""

    place: FloatArray  # of the leader
    f: FloatArray
    reals: FloatArray


@dataclass(slots=True, eq=False)
class Records:
    """The latest records of a run."""

    latest: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self.latest = [*self.latest[1 - MOST_RECORDS :], record]

    def near(self, place: FloatArray) -> list[Record]:
        """Return the records of the nearest leaders, the nearest one first."""
        apart = [float(((one.place - place) ** 2).sum()) for one in self.latest]
        return [self.latest[i] for i in np.argsort(apart, kind="stable")[:NEAREST]]


def place_of(grid: Grid, x: FloatArray) -> FloatArray:
    """Return coordinates of a leader: those of x, with one for each label of a choice."""
    cell, parts = grid.cell(x), [x[~grid.unordered]]
    for i in np.flatnonzero(grid.unordered).tolist():
        parts.append((np.arange(grid.values[i]) == cell[i]) / 2.0)
    return np.concatenate(parts)


def record_of(cells: Cells, place: FloatArray, guess: Record | None = None) -> Record:
    """Return what is known of all cells; a guess fills in those that were not looked at."""
    n = int(cells.grid.cells)
    f = np.full(n, np.inf) if guess is None else guess.f.copy()
    reals = np.repeat(cells.best.y[None, cells.real], n, axis=0)
    reals = reals if guess is None else guess.reals.copy()
    index = np.maximum(cells.grid.values, 1)
    for ends in (cells.seen, cells.found):
        for key, end in ends.items():
            i = np.ravel_multi_index(tuple(np.frombuffer(key, np.int64)), tuple(index))
            barred = ends is cells.found and end.violation != cells.best.violation
            f[i] = np.inf if barred else end.f
            reals[i] = end.y[cells.real]
    return Record(place, f, reals)


def weights(places: FloatArray, place: FloatArray) -> FloatArray:
    """Return the weights (k,) of values at places (k, m) in a prediction of the value at a place.

    The prediction is that of a cubic spline with a linear part.
    """
    k, m = places.shape
    away = np.linalg.norm(places[:, None] - places[None], axis=2)
    linear = np.column_stack([np.ones(k), places - place])
    A = np.zeros((k + m + 1, k + m + 1))
    A[:k, :k], A[:k, k:], A[k:, :k] = away**3 + COINCIDENT * np.eye(k), linear, linear.T
    b = np.concatenate([np.linalg.norm(places - place, axis=1) ** 3, np.eye(m + 1)[0]])
    return np.asarray(np.linalg.lstsq(A, b, rcond=1e-12)[0][:k])


def guess_at(near: list[Record], place: FloatArray) -> Record:
    """Return the record that a leader is expected to leave."""
    if len(near) <= len(place) + 1:
        return near[0]
    f = np.array([one.f for one in near])
    barred = ~np.isfinite(f[:BARRED]).any(axis=0)
    highest = np.where(np.isfinite(f), f, -np.inf).max(axis=1)
    f = np.where(np.isfinite(f), f, highest[:, None])
    w = weights(np.array([one.place for one in near]), place)
    reals = np.clip(np.einsum("k,kij->ij", w, np.array([one.reals for one in near])), 0.0, 1.0)
    low, high = f[:LIMITING].min(axis=0), f[:LIMITING].max(axis=0)
    guess = np.clip(w @ f, 2 * low - high, 2 * high - low)
    return Record(place, np.where(barred, np.inf, guess), reals)


def compare_likely(cells: Cells, guess: Record, width: int) -> Procedure[None]:
    """Look at cells from the best guess on, until no other one is likely to be the best.

    The larger the `width` (from 1), the more cells are looked at.
    """
    grid, every = cells.grid, list(all_cells(cells.grid))
    order = np.argsort(guess.f, kind="stable")
    rows = np.array([grid.centre(cell, np.zeros(len(cell))) for cell in every])
    rows[:, cells.real] = guess.reals
    first = int(order[0])
    yield from cells.search([every[first]], rows[first])
    level, error = cells.found[every[first].tobytes()].f - guess.f[first], 0.0
    for start in range(1, len(order), PART):
        part = order[start : start + PART]
        best, next_f = cells.best, float(guess.f[part[0]])
        if next_f == math.inf and best.violation == 0:
            break
        margin = width * ERRORS * error + GAINS * cells.gain
        if start > width * SURE and best.violation == 0 and next_f + level - margin > best.f:
            break
        looked = [every[i] for i in part]
        yield from cells.look(looked, list(rows[part]))
        for i in part:
            key = every[i].tobytes()
            end = cells.seen.get(key) or cells.found[key]
            if end.violation == best.violation and np.isfinite(guess.f[i]):
                error = max(error, abs(end.f - guess.f[i] - level))
    yield from cells.search_likely(every, 2)


def guessed_reals(places: FloatArray, reals: FloatArray, place: FloatArray) -> FloatArray:
    """Return the real numbers of y that leaders at places (k, m), the nearest first, suggest.

    They are on a plane through those of the nearest leader, `reals[0]`, and no further away from
    these than twice those of the other leaders.
    """
    away, change = places[1:] - places[0], reals[1:] - reals[0]
    if not len(away):
        return np.asarray(reals[0])
    weight = 1.0 / (np.linalg.norm(places[1:] - place, axis=1)[:, None] + 1e-12)
    slopes = np.linalg.lstsq(away * weight, change * weight, rcond=1e-6)[0]
    most = 2 * np.abs(change).max(axis=0)
    moved = np.clip((place - places[0]) @ slopes, -most, most)
    return np.asarray(np.clip(reals[0] + moved, 0.0, 1.0))
