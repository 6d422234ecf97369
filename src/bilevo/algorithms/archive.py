"""Pairs that have been evaluated, looked up by the nearest leader."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.follower import Pair
from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.order import ranking


@dataclass(slots=True, eq=False)
class Archive:
    """Leaders x (k, m), their followers' answers y (k, n), and the leaders' values (k,)."""

    x: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    y: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    F: FloatArray = field(default_factory=lambda: np.empty(0))
    violation: FloatArray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, m: int, n: int) -> Archive:
        return cls(np.empty((0, m)), np.empty((0, n)))

    def add(self, pairs: list[Pair]) -> None:
        """Keep pairs whose evaluation did not fail; a leader's last answer replaces the others."""
        last = {pair.x.tobytes(): pair for pair in pairs if np.isfinite(pair.violation)}
        kept = list(last.values())
        if kept:
            old = np.array([x.tobytes() not in last for x in self.x], np.bool_)
            self.x = np.concatenate([self.x[old], [pair.x for pair in kept]])
            self.y = np.concatenate([self.y[old], [pair.y for pair in kept]])
            self.F = np.append(self.F[old], [pair.F for pair in kept])
            self.violation = np.append(self.violation[old], [pair.violation for pair in kept])

    def nearest(self, x: FloatArray, count: int = 1) -> FloatArray:
        """The answers (up to count, n) to the nearest leaders."""
        away = self.x - x
        order = np.argsort((away * away).sum(axis=1), kind="stable")[:count]
        return np.asarray(self.y[order])

    def good(self, share: float) -> BoolArray:
        """Which members (k,) are among the best by the leader's order."""
        best = np.zeros(len(self.F), np.bool_)
        best[ranking(self.F, self.violation)[: max(1, round(share * len(best)))]] = True
        return best
