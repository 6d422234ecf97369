"""Pairs that were evaluated before, for problems with whole numbers or choices.

Many points of the unit box are decoded to one pair there. Such a pair is evaluated once. After that
its values are remembered, so that it costs nothing; a result counts it in `repeats`. Everything
depends on the order of requests only, so a replay and workers give the same run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.request import Evaluate

REMEMBERED = 2**18  # The most pairs of both levels; the oldest are forgotten first.


class Asked(NamedTuple):
    """A request in the user's units, and what of it is known."""

    keys: list[bytes]  # one for each row
    new: IntArray  # the rows to evaluate: the first row of each pair that is not known
    known: dict[bytes, tuple[float, FloatArray]]  # remembered values of the others


class Repeats:
    """Remembers the values of pairs, and leaves them out of what is evaluated."""

    def __init__(self) -> None:
        self._values: dict[bytes, tuple[float, FloatArray]] = {}

    def ask(self, request: Evaluate) -> Asked:
        """Find the rows of a request, in the user's units, that must be evaluated."""
        level = request.level.value.encode()
        pairs = zip(request.x, request.y, strict=True)
        keys = [level + x.tobytes() + y.tobytes() for x, y in pairs]
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            first.setdefault(key, row)
        known = {key: self._values[key] for key in first if key in self._values}
        new = [row for key, row in first.items() if key not in known]
        return Asked(keys, np.array(new, np.int64), known)

    def answer(
        self, asked: Asked, objective: FloatArray, constraints: FloatArray, failed: set[int]
    ) -> tuple[FloatArray, FloatArray]:
        """Return the values of all rows; those given are of the new rows.

        They are remembered, except those of rows that failed.
        """
        found = dict(asked.known)
        for i, row in enumerate(asked.new.tolist()):
            key = asked.keys[row]
            found[key] = float(objective[i]), constraints[i].copy()
            if i not in failed:
                self._values[key] = found[key]
        while len(self._values) > REMEMBERED:
            del self._values[next(iter(self._values))]
        rows = [found[key] for key in asked.keys]
        width = max(len(row) for _, row in rows)  # rows may fail before the number is known
        lacking = np.full(width, np.nan)
        return (
            np.array([value for value, _ in rows]),
            np.array([row if len(row) == width else lacking for _, row in rows]),
        )
