"""Packed batches: one point probes all independent followers at once.

If followers are independent, f_i depends on x and the answer of follower i only. So points that
differ in the answer of one follower each, such as the neighbours that give a gradient, need not be
evaluated one by one: a packed point has a new answer of every follower. The session packs each
request of the lower level, and puts the values that the algorithm asked for together again.

That is done where one function returns f_i of all followers, and there are no constraints g.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.problem import Problem
from bilevo.core.values import BadValue
from bilevo.run.batches import Batch, Evaluated

CHECKED = 16  # A packed batch of this many points has one more, which checks the packing.
ROUNDED = 1e-12  # The same relative to the largest f_i of the batch.
AGREES = 1e-9  # Values of f_i at one answer agree if they differ by less, relative to f_i.
NOT_INDEPENDENT = (
    "the followers are not independent: f of follower {i} is {before!r} and, beside other answers "
    'of the others, {now!r}. Use play="nash"; if f is noisy, give each follower a function of its '
    "own"
)


class PackedRequest(NamedTuple):
    """A batch as the algorithm asked for it, and in which packed row each of its parts is.

    `rows` (k, N) has these rows. `again` lists (row, follower, first row) where a part was
    evaluated a second time, beside other answers.
    """

    batch: Batch
    rows: IntArray
    again: list[tuple[int, int, int]]


class Packing:
    """Packs batches of a problem's lower level, and unpacks their values."""

    def __init__(self, problem: Problem) -> None:
        self._blocks = problem.blocks

    def pack(self, batch: Batch) -> tuple[Batch, PackedRequest]:
        """Return a batch with fewer points, or the same one if no point can be saved."""
        count, N = len(batch.x), len(self._blocks)
        rows = np.repeat(np.arange(count)[:, None], N, axis=1)
        if count < 3:
            return batch, PackedRequest(batch, rows, [])
        leaders = [x.tobytes() for x in batch.x]
        places: list[tuple[int, ...]] = []  # of each packed row, the row of each follower's answer
        again: list[tuple[int, int, int]] = []
        for leader in dict.fromkeys(leaders):
            group = [row for row in range(count) if leaders[row] == leader]
            self._pack_group(batch.y, group, rows, places, again)
        if len(places) >= count:
            return batch, PackedRequest(batch, np.repeat(np.arange(count)[:, None], N, axis=1), [])
        y = np.empty((len(places), batch.y.shape[1]))
        for i, block in enumerate(self._blocks):
            y[:, block] = batch.y[[place[i] for place in places], block]
        x = batch.x[[place[0] for place in places]]
        for points in (x, y):
            points.setflags(write=False)
        return Batch(batch.level, x, y), PackedRequest(batch, rows, again)

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

    def unpack(self, asked: PackedRequest, answers: Evaluated) -> FloatArray:
        """Return the objective (k,) at the points that were asked for."""
        parts = answers.parts
        assert parts is not None
        for row, i, first in asked.again:
            column, now, before = np.abs(parts[:, i]), float(parts[row, i]), float(parts[first, i])
            largest = float(column[np.isfinite(column)].max(initial=0.0))
            slight = AGREES * max(abs(now), abs(before)) + ROUNDED * largest
            if math.isfinite(now) and math.isfinite(before) and abs(now - before) > slight:
                raise BadValue(NOT_INDEPENDENT.format(i=i + 1, before=before, now=now))
        return np.asarray(parts[asked.rows, np.arange(parts.shape[1])].sum(axis=-1))
