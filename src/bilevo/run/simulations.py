"""The simulations of a run: what a simulator returned for both levels, by pair.

A joint problem (`Problem.joint`) is simulated once at a pair. The session asks this memory before
it hands out a batch. So a level that asks for a pair which the other one has asked for gets its
values without a simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.joint import other_level
from bilevo.core.request import Level

if TYPE_CHECKING:
    from bilevo.run.session import Batch, Evaluated


class Row(NamedTuple):
    """An objective and its constraints (c,) at one pair."""

    objective: float
    constraints: FloatArray


class Simulations:
    """Keeps the values of both levels at all pairs of a run."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[Level, Row]] = {}
        self._widths = dict.fromkeys(Level, 0)
        self._asked: Batch | None = None
        self.known = 0  # how many pairs of the last batch were known before

    def missing(self, batch: Batch) -> Batch | None:
        """Return the pairs of a batch that are to be simulated; None if all of them are known."""
        keys = [_key(x, y) for x, y in zip(batch.x, batch.y, strict=True)]
        new = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self._rows}
        self._asked, self.known = batch, len(keys) - len(new)
        if not self.known:
            return batch
        chosen = sorted(new.values())
        return batch._replace(x=batch.x[chosen], y=batch.y[chosen]) if chosen else None

    def add(self, batch: Batch, answers: Evaluated) -> None:
        """Keep the values of pairs that were simulated; failed ones are NaN at both levels."""
        assert answers.other is not None
        both = {batch.level: (answers.objective, answers.constraints)}
        both[other_level(batch.level)] = answers.other
        failed = set(answers.errors)
        if len(failed) < len(batch.x):
            self._widths = {level: constraints.shape[1] for level, (_, constraints) in both.items()}
        for i, (x, y) in enumerate(zip(batch.x, batch.y, strict=True)):
            rows = {level: Row(float(v[i]), c[i].copy()) for level, (v, c) in both.items()}
            nothing = {level: Row(np.nan, np.empty(0)) for level in Level}
            self._rows[_key(x, y)] = nothing if i in failed else rows

    def recall(self) -> tuple[FloatArray, FloatArray]:
        """Return the objective (k,) and constraints (k, c) that the algorithm asked for."""
        asked = self.asked
        level, width = asked.level, self._widths[asked.level]
        rows = [self._rows[_key(x, y)][level] for x, y in zip(asked.x, asked.y, strict=True)]
        failed = np.full(width, np.nan)
        constraints = [row.constraints if len(row.constraints) == width else failed for row in rows]
        return np.array([row.objective for row in rows]), np.array(constraints).reshape(
            len(rows), width
        )

    @property
    def asked(self) -> Batch:
        """Return the last batch as the algorithm asked for it, with known pairs."""
        assert self._asked is not None
        return self._asked


def _key(x: FloatArray, y: FloatArray) -> bytes:
    return (x + 0.0).tobytes() + (y + 0.0).tobytes()  # -0.0 and 0.0 are the same point
