"""Pairs that have been evaluated: what models are fitted to, and where the nearest is looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.order import ranking


class EvaluatedPair(Protocol):
    """What an archive keeps of a pair."""

    x: FloatArray
    y: FloatArray
    F: float
    f: float
    violation: float


CAPACITY = 12_500  # leaders: as many as the largest published budget evaluates


def _empty() -> FloatArray:
    return np.empty((0, 0))


@dataclass(slots=True, eq=False)
class Archive:
    """Pairs x (k, m), y (k, n) by age; F, f and violation (k, 1); constraints G, g (k, .) if kept.

    Its arrays are never written into: entries come and go by new arrays.
    """

    x: FloatArray = field(default_factory=_empty)
    y: FloatArray = field(default_factory=_empty)
    F: FloatArray = field(default_factory=_empty)
    f: FloatArray = field(default_factory=_empty)
    violation: FloatArray = field(default_factory=_empty)
    G: FloatArray = field(default_factory=_empty)
    g: FloatArray = field(default_factory=_empty)

    @classmethod
    def of(
        cls,
        pairs: Sequence[EvaluatedPair],
        G: FloatArray | None = None,
        g: FloatArray | None = None,
    ) -> Archive:
        """The entries of some pairs, at least one."""
        none = np.empty((len(pairs), 0))
        return cls(
            np.array([pair.x for pair in pairs]),
            np.array([pair.y for pair in pairs]),
            np.array([[pair.F] for pair in pairs]),
            np.array([[pair.f] for pair in pairs]),
            np.array([[pair.violation] for pair in pairs]),
            none if G is None else G,
            none if g is None else g,
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def pairs(self) -> FloatArray:
        return np.concatenate([self.x, self.y], axis=1)

    def joined(self, other: Archive) -> Archive:
        """Both archives' entries, this one's first."""
        if not len(self) or not len(other):
            return self if len(self) else other
        parts = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return Archive(*(np.concatenate(part) for part in parts))

    def rows(self, chosen: IntArray | BoolArray | slice) -> Archive:
        return Archive(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def latest(self, capacity: int) -> Archive:
        """Without the oldest entries beyond a capacity."""
        return self.rows(slice(-capacity, None)) if len(self) > capacity else self

    def with_answers(self, pairs: Sequence[EvaluatedPair]) -> Archive:
        """With pairs whose evaluation did not fail; a leader's last answer replaces the others.

        The oldest entries go where there are too many.
        """
        last = {pair.x.tobytes(): pair for pair in pairs if np.isfinite(pair.violation)}
        if not last:
            return self
        answers = Archive.of(list(last.values()))
        others = np.ones(len(self), np.bool_)
        for x in answers.x if len(self) else ():
            others &= (self.x != x).any(axis=1)
        return self.rows(others).joined(answers).latest(CAPACITY)

    def nearest(self, x: FloatArray, count: int = 1) -> Archive:
        """The entries, up to `count`, whose leaders are nearest to x, nearest first."""
        if not len(self):
            return self
        away = self.x - x
        return self.rows(np.argsort((away * away).sum(axis=1), kind="stable")[:count])

    def good(self, share: float) -> BoolArray:
        """Which entries (k,) are among the best by the leader's order."""
        best = np.zeros(len(self), np.bool_)
        order = ranking(self.F.ravel(), self.violation.ravel())
        best[order[: max(1, round(share * len(best)))]] = True
        return best
