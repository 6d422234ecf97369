"""The simulations of a run: what a simulator returned for both levels, by pair.

A joint problem (`Problem.joint`) is simulated once at a pair. A level that asks for a pair which
the other one has asked for gets its values from this memory. Such a point counts for its level, and
not as a simulation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.joint import other_level
from bilevo.core.request import Level
from bilevo.run.batches import Batch, Evaluated, Saved


class Row(NamedTuple):
    """An objective and its constraints (c,) at one pair."""

    objective: float
    constraints: FloatArray


class Simulations:
    """Keeps the values of both levels at all pairs of a run; see `Translation`."""

    saved = Saved.FOR_LEVEL

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[Level, Row]] = {}
        self._widths = dict.fromkeys(Level, 0)
        self._level = Level.UPPER
        self._keys: list[bytes] = []  # of the pairs that were asked for last
        self._missing: list[int] = []  # the rows among them that are to be simulated

    def reduce(self, asked: Batch) -> Batch:
        """Return the pairs of a batch that are to be simulated."""
        keys = [_key(x, y) for x, y in zip(asked.x, asked.y, strict=True)]
        new = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self._rows}
        self._level, self._keys, self._missing = asked.level, keys, sorted(new.values())
        whole = len(self._missing) == len(keys)
        return asked if whole else asked.part(np.array(self._missing, np.int64))

    def complete(self, answers: Evaluated) -> Evaluated:
        """Return the values that were asked for; all of the pairs are simulated by now."""
        if self._missing:
            self._add(answers)
        width = self._widths[self._level]
        rows = [self._rows[key][self._level] for key in self._keys]
        failed = np.full(width, np.nan)
        constraints = [row.constraints if len(row.constraints) == width else failed for row in rows]
        return Evaluated(
            np.array([row.objective for row in rows]),
            np.array(constraints).reshape(len(rows), width),
            {self._missing[i]: error for i, error in answers.errors.items()},
        )

    def _add(self, answers: Evaluated) -> None:
        """Keep the values of pairs that were simulated; failed ones are NaN at both levels."""
        assert answers.other is not None
        both = {self._level: (answers.objective, answers.constraints)}
        both[other_level(self._level)] = answers.other
        failed = set(answers.errors)
        if len(failed) < len(self._missing):
            self._widths = {level: constraints.shape[1] for level, (_, constraints) in both.items()}
        for i, row in enumerate(self._missing):
            rows = {level: Row(float(v[i]), c[i].copy()) for level, (v, c) in both.items()}
            nothing = {level: Row(np.nan, np.empty(0)) for level in Level}
            self._rows[self._keys[row]] = nothing if i in failed else rows


def _key(x: FloatArray, y: FloatArray) -> bytes:
    return (x + 0.0).tobytes() + (y + 0.0).tobytes()  # -0.0 and 0.0 are the same point
