"""Packed batches: one point probes all independent followers at once.

If followers are independent, f_i depends on x and the answer of follower i only. So points that
differ in the answer of one follower each, such as the neighbours that give a gradient, need not be
evaluated one by one: a packed point has a new answer of every follower. Each request of the lower
level is packed, and the values that the algorithm asked for are put together again.

That is done where one function returns f_i of all followers, and there are no constraints g.
"""

from __future__ import annotations

import math

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.values import BadValue
from bilevo.run.batches import Batch, Evaluated, Saved

CHECKED = 16  # A packed batch of this many points has one more, which checks the packing.
ROUNDED = 1e-12  # The same relative to the largest f_i of the batch.
AGREES = 1e-9  # Values of f_i at one answer agree if they differ by less, relative to f_i.
NOT_INDEPENDENT = (
    "the followers are not independent: f of follower {i} is {before!r} and, beside other answers "
    'of the others, {now!r}. Use play="nash"; if f is noisy, give each follower a function of its '
    "own"
)


class Packing:
    """Packs batches of a problem's lower level, and unpacks their values; see `Translation`."""

    saved = Saved.NOT

    def __init__(self, problem: Problem) -> None:
        self._blocks = problem.blocks
        # In which packed row each part (k, N) of the last batch is; None for the upper level.
        self._rows: IntArray | None = None
        # Of parts that were evaluated a second time, beside other answers: (row, follower, first).
        self._again: list[tuple[int, int, int]] = []

    def reduce(self, asked: Batch) -> Batch:
        """Return a batch with fewer points, or the same one if no point can be saved."""
        count, N = len(asked.x), len(self._blocks)
        self._rows, self._again = None, []
        if asked.level is Level.UPPER:
            return asked
        rows = np.repeat(np.arange(count)[:, None], N, axis=1)
        self._rows = rows
        if count < 3:
            return asked
        rows, places, again = self._pack(asked)
        if len(places) >= count:
            return asked
        self._rows, self._again = rows, again
        y = np.empty((len(places), asked.y.shape[1]))
        for i, block in enumerate(self._blocks):
            y[:, block] = asked.y[[place[i] for place in places], block]
        x = asked.x[[place[0] for place in places]]
        for points in (x, y):
            points.setflags(write=False)
        return Batch(asked.level, x, y)

    def _pack(
        self, asked: Batch
    ) -> tuple[IntArray, list[tuple[int, ...]], list[tuple[int, int, int]]]:
        """Return in which packed row each part is, what packed rows hold, and repeated parts."""
        rows = np.empty((len(asked.x), len(self._blocks)), np.int64)
        leaders = [x.tobytes() for x in asked.x]
        places: list[tuple[int, ...]] = []  # of each packed row, the row of each follower's answer
        again: list[tuple[int, int, int]] = []
        for leader in dict.fromkeys(leaders):
            group = [row for row, own in enumerate(leaders) if own == leader]
            self._pack_group(asked.y, group, rows, places, again)
        return rows, places, again

    def _pack_group(
        self,
        y: FloatArray,
        group: list[int],
        rows: IntArray,
        places: list[tuple[int, ...]],
        again: list[tuple[int, int, int]],
    ) -> None:
        """Pack the rows of one leader: each packed row has one new answer of each follower."""
        first = len(places)
        distinct: list[list[int]] = []
        for i, block in enumerate(self._blocks):
            known: dict[bytes, int] = {}
            for row in group:
                place = known.setdefault(y[row, block].tobytes(), len(known))
                rows[row, i] = first + place
            owners = {first + place: -1 for place in known.values()}
            for row in reversed(group):
                owners[int(rows[row, i])] = row
            distinct.append(list(owners.values()))
        longest = max(map(len, distinct))
        for k in range(longest):
            places.append(tuple(own[min(k, len(own) - 1)] for own in distinct))
            for i, own in enumerate(distinct):
                if k >= len(own):
                    again.append((first + k, i, first + len(own) - 1))
        if longest >= CHECKED and all(len(own) > 1 for own in distinct):
            places.append(tuple(own[min(i, 1)] for i, own in enumerate(distinct)))
            again += [(first + longest, i, first + min(i, 1)) for i in range(len(distinct))]

    def complete(self, answers: Evaluated) -> Evaluated:
        """Return f_i of all followers, and their sum, at the points that were asked for."""
        parts, rows = answers.parts, self._rows
        if rows is None:
            return answers._replace(parts=None)
        assert parts is not None
        for row, i, first in self._again:
            column, now, before = np.abs(parts[:, i]), float(parts[row, i]), float(parts[first, i])
            largest = float(column[np.isfinite(column)].max(initial=0.0))
            slight = AGREES * max(abs(now), abs(before)) + ROUNDED * largest
            if math.isfinite(now) and math.isfinite(before) and abs(now - before) > slight:
                raise BadValue(NOT_INDEPENDENT.format(i=i + 1, before=before, now=now))
        own = np.asarray(parts[rows, np.arange(parts.shape[1])])
        errors = {
            row: answers.errors[place]
            for row, places in enumerate(rows.tolist())
            for place in places
            if place in answers.errors
        }
        return Evaluated(own.sum(axis=-1), np.empty((len(own), 0)), errors, parts=own)
