"""An archive of evaluated pairs, for fitting models and for finding the pairs nearest to an x."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.order import ranking

ANSWERS_KEPT = 12_500  # The most answers kept: one per leader in the largest published budget.


def _empty() -> FloatArray:
    return np.empty((0, 0))


@dataclass(slots=True, eq=False)
class Archive:
    """Pairs x (k, m), y (k, n), oldest first, with F, f and violation (k, 1).

    Constraints G, g (k, .) have columns only if constraints are kept. Arrays are never changed in
    place; a change makes new arrays.
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
        cls, pairs: Sequence[Pair], G: FloatArray | None = None, g: FloatArray | None = None
    ) -> Archive:
        """Return an archive of one or more pairs."""
        x, y = np.array([pair.x for pair in pairs]), np.array([pair.y for pair in pairs])
        values = np.array([[pair.F, pair.f, pair.violation] for pair in pairs])
        none = np.empty((len(pairs), 0))
        F, f, violation = np.split(values, 3, axis=1)
        return cls(x, y, F, f, violation, none if G is None else G, none if g is None else g)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def pairs(self) -> FloatArray:
        return np.concatenate([self.x, self.y], axis=1)

    def joined(self, other: Archive) -> Archive:
        """Return an archive with the entries of this archive, then those of the other."""
        if not len(self) or not len(other):
            return self if len(self) else other
        parts = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return Archive(*(np.concatenate(part) for part in parts))

    def rows(self, chosen: IntArray | BoolArray | slice) -> Archive:
        return Archive(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def latest(self, capacity: int) -> Archive:
        """Return the newest entries, at most `capacity` of them."""
        return self.rows(slice(-capacity, None)) if len(self) > capacity else self

    def with_answers(self, pairs: Sequence[Pair]) -> Archive:
        """Return the archive with some pairs added, except pairs whose evaluation failed.

        Each leader keeps only its last answer. If there are too many entries, the oldest are lost.
        """
        last = {pair.x.tobytes(): pair for pair in pairs if np.isfinite(pair.violation)}
        if not last:
            return self
        answers = Archive.of(list(last.values()))
        others = np.ones(len(self), np.bool_)
        for x in answers.x if len(self) else ():
            others &= (self.x != x).any(axis=1)
        return self.rows(others).joined(answers).latest(ANSWERS_KEPT)

    def nearest(self, x: FloatArray, count: int = 1) -> Archive:
        """Return up to `count` entries whose leaders are nearest to x, nearest first."""
        if not len(self):
            return self
        away = self.x - x
        return self.rows(np.argsort((away * away).sum(axis=1), kind="stable")[:count])

    def good(self, share: float) -> BoolArray:
        """Tell which entries (k,) belong to the best `share` of all, in the leader's order."""
        best = np.zeros(len(self), np.bool_)
        order = ranking(self.F.ravel(), self.violation.ravel())
        best[order[: max(1, round(share * len(best)))]] = True
        return best
