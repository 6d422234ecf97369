"""Pairs that were evaluated before, for problems with whole numbers or choices.

Many points of the unit box are decoded to one pair there. Such a pair is evaluated once. After that
its values are remembered, so that it costs nothing; a result counts it in `repeats`.
"""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.run.batches import Batch, Evaluated, Saved

REMEMBERED = 2**18  # The most pairs of both levels; the oldest are forgotten first.


class Repeats:
    """Remembers the values of pairs, and leaves them out of what is evaluated; see `Translation`.

    Pairs that failed are not remembered.
    """

    saved = Saved.AS_REPEATS

    def __init__(self) -> None:
        self._values: dict[bytes, tuple[float, FloatArray]] = {}
        self._keys: list[bytes] = []  # of the rows that were asked for last
        self._new = np.empty(0, np.int64)  # the first row of each pair that is not known
        self._known: dict[bytes, tuple[float, FloatArray]] = {}  # values of the other pairs

    def reduce(self, asked: Batch) -> Batch:
        """Return the pairs of a batch that must be evaluated."""
        level = asked.level.value.encode()
        pairs = zip(asked.x, asked.y, strict=True)
        self._keys = [level + x.tobytes() + y.tobytes() for x, y in pairs]
        first: dict[bytes, int] = {}
        for row, key in enumerate(self._keys):
            first.setdefault(key, row)
        self._known = {key: self._values[key] for key in first if key in self._values}
        new = [row for key, row in first.items() if key not in self._known]
        self._new = np.array(new, np.int64)
        return asked.part(self._new)

    def complete(self, answers: Evaluated) -> Evaluated:
        """Return the values of all rows that were asked for."""
        found, new = self._known, self._new.tolist()
        for i, row in enumerate(new):
            key = self._keys[row]
            found[key] = float(answers.objective[i]), answers.constraints[i].copy()
            if i not in answers.errors:
                self._values[key] = found[key]
        while len(self._values) > REMEMBERED:
            del self._values[next(iter(self._values))]
        rows = [found[key] for key in self._keys]
        width = max(len(row) for _, row in rows)  # rows may fail before the number is known
        lacking = np.full(width, np.nan)
        return Evaluated(
            np.array([value for value, _ in rows]),
            np.array([row if len(row) == width else lacking for _, row in rows]),
            {new[i]: error for i, error in answers.errors.items()},
            new=self._new,
        )
