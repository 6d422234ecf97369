"""Searches on models: the follower's answers to many leaders at once, and the best leader.

Models cost nothing but time, so searches are simple: points all over the box, and then around the
best ones, in steps that shrink. A constraint counts as met if its model is below zero by a small
margin, because models have errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.few.joint_model import JointModel
from bilevo.core.arrays import FloatArray

MARGIN = 1e-7  # Constraints are met with this margin, in units of their models.
LINE = 25  # Points of a round along a line.
CLOUD = 32  # Points of a round in more dimensions.
LEADERS = 41  # Leaders of the first round; later ones have half of them.
SHRINK_LINE, SHRINK_CLOUD = 0.12, 0.5  # By how much the width shrinks from one round to the next.
ROUNDS = 7  # Rounds of a precise search along a line; twice as many in more dimensions.


@dataclass(frozen=True, slots=True, eq=False)
class LevelModel:
    """Models of a level's objective and of its constraints."""

    objective: JointModel
    constraints: tuple[JointModel, ...]

    @classmethod
    def of(cls, points: FloatArray, values: FloatArray, constraints: FloatArray) -> LevelModel:
        """Fit models to values (k,) and constraints (k, c) at points (k, d)."""
        columns = (JointModel.of(points, column, signed=True) for column in constraints.T)
        return cls(JointModel.of(points, values), tuple(columns))

    def violation(self, points: FloatArray) -> FloatArray:
        """Return how much constraints are violated, in units of their models."""
        total = np.zeros(len(points))
        for model in self.constraints:
            total += np.maximum(model(points) / model.unit + MARGIN, 0.0)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """Models of both levels."""

    upper: LevelModel
    lower: LevelModel

    def answers(
        self, x: FloatArray, first: FloatArray, rng: np.random.Generator, rounds: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return the follower's answers (k, n) to leaders x (k, m), and their violations (k,).

        `first` (k, n) are answers to begin with, beside points all over the box.
        """
        (k, n), best, width = first.shape, first, 1.0
        rows, left = np.arange(k), np.zeros(k)
        shrink = SHRINK_LINE if n == 1 else SHRINK_CLOUD
        for number in range(rounds):
            tried = _around(best, width, rng, everywhere=number == 0)
            count = tried.shape[1]
            z = np.concatenate([np.repeat(x, count, axis=0), tried.reshape(-1, n)], axis=1)
            violation = self.lower.violation(z)
            chosen = _ranked(self.lower.objective(z), violation, count)
            best, left = tried[rows, chosen], violation.reshape(k, count)[rows, chosen]
            width *= shrink
        return best, left

    def answer(self, x: FloatArray, y: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the follower's answer (n,) to one leader precisely; `y` is one to begin with."""
        rounds = ROUNDS if len(y) == 1 else 2 * ROUNDS
        found, _ = self.answers(x[None], y[None], rng, rounds)
        return np.asarray(found[0])

    def best_leader(
        self, known: FloatArray, n: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return the best leader (m,) of the models, and the answer (n,) to it.

        `known` (k, m) are good leaders, which are tried beside those all over the box.
        """
        m = known.shape[1]
        line = np.linspace(0.0, 1.0, LEADERS)[:, None]
        x = np.concatenate([line if m == 1 else rng.random((LEADERS, m)), known])
        best: tuple[tuple[float, float], FloatArray, FloatArray] | None = None
        width, shrink = (0.05, SHRINK_LINE) if m == 1 else (0.3, SHRINK_CLOUD)
        for _ in range(5 if m == 1 else 7):
            y, violation = self.answers(x, np.full((len(x), n), 0.5), rng, 4 if n == 1 else 6)
            z = np.concatenate([x, y], axis=1)
            violation = violation + self.upper.violation(z)
            F = self.upper.objective(z)
            i = int(_ranked(F, violation, len(x))[0])
            rank = float(violation[i]), float(F[i])
            if best is None or rank < best[0]:
                best = rank, x[i], y[i]
            x = _around(best[1][None], width, rng)[0]
            width *= shrink
        assert best is not None
        return best[1], best[2]


def _ranked(objective: FloatArray, violation: FloatArray, count: int) -> FloatArray:
    """Return which of each `count` rows is best: the first by violation, and then by objective."""
    values, left = objective.reshape(-1, count), violation.reshape(-1, count)
    least = left.min(axis=1, keepdims=True)
    return np.asarray(np.where(left <= least, values, np.inf).argmin(axis=1))


def _around(
    best: FloatArray, width: float, rng: np.random.Generator, everywhere: bool = False
) -> FloatArray:
    """Return points (k, count, n) around points (k, n), which are the first ones of each row."""
    k, n = best.shape
    if n == 1:
        steps = np.linspace(-1.0, 1.0, LINE)[None, :, None]
        spread = np.repeat((steps + 1) / 2, k, axis=0)
        tried = spread if everywhere else best[:, None] + width * steps
    else:
        steps = rng.uniform(-1.0, 1.0, (k, CLOUD, n)) * (rng.random((k, CLOUD, n)) < 0.7)
        tried = rng.random((k, CLOUD, n)) if everywhere else best[:, None] + width * steps
    return np.concatenate([best[:, None], np.clip(tried, 0.0, 1.0)], axis=1)
