"""Searches on models: the follower's answers to many leaders at once, and the best leader.

Models cost nothing but time, so searches are simple: points all over the box, and then around the
best ones, in steps that shrink. A constraint counts as met if its model is below zero by a small
margin, because models have errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.few.joint_model import JointModels, Setting
from bilevo.core.arrays import FloatArray

MARGIN = 1e-7  # Constraints are met with this margin, in units of their models.
SAME = 1e-13  # A smaller gain of f, in its unit, is rounding: the follower is indifferent.
LINE = 25  # Points of a round along a line.
CLOUD = 32  # Points of a round in more dimensions.
LEADERS = 41  # Leaders of the first round; later ones have about half of them.
LINE_WIDTHS = tuple(0.12**i for i in range(1, 7))  # Widths of rounds along a line.
CLOUD_WIDTHS = tuple(0.6**i for i in range(1, 28))  # Widths of rounds in more dimensions.


@dataclass(frozen=True, slots=True, eq=False)
class LevelModel:
    """Models of a level's objective and of its constraints."""

    models: JointModels

    @classmethod
    def of(
        cls,
        points: FloatArray,
        values: FloatArray,
        constraints: FloatArray,
        like: LevelModel | None = None,
    ) -> LevelModel:
        """Fit models to values (k,) and constraints (k, c) at points (k, d).

        They get the settings of the models that they are `like`, which saves most of the time.
        """
        columns = np.concatenate([values[:, None], constraints], axis=1)
        signed = np.arange(columns.shape[1]) > 0
        settings: Sequence[Setting] | None = None if like is None else like.models.settings
        return cls(JointModels.of(points, columns, signed, settings))

    def __call__(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return objective and violation (k,) at points (k, d), in units of the models."""
        told = self.models(points)
        return told[:, 0], np.maximum(told[:, 1:] + MARGIN, 0.0).sum(axis=1)


def answers(
    lower: LevelModel,
    x: FloatArray,
    first: FloatArray,
    widths: Sequence[float],
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Return the follower's answers (k, n) to leaders x (k, m), and their violations (k,).

    `first` (k, n) are answers to begin with, beside points all over the box; one of them stays
    the answer if no other is better. Each further round has one of the `widths`.
    """
    (k, n), best = first.shape, first
    rows, at_first = np.arange(k), (np.zeros(k), np.zeros(k))
    for number, width in enumerate((None, *widths)):
        tried = _around(best, width, rng)
        z = np.concatenate([np.repeat(x, tried.shape[1], axis=0), tried.reshape(-1, n)], axis=1)
        f, violation = (told.reshape(k, -1) for told in lower(z))
        if not number:
            at_first = f[:, 0], violation[:, 0]
        chosen = _ranked(f, violation)
        best, f, violation = tried[rows, chosen], f[rows, chosen], violation[rows, chosen]
    same = (at_first[1] <= violation) & (at_first[0] - f <= SAME)
    return np.where(same[:, None], first, best), np.where(same, at_first[1], violation)


def answer(lower: LevelModel, x: FloatArray, y: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the follower's answer (n,) to one leader precisely; `y` is one to begin with."""
    return np.asarray(answers(lower, x[None], y[None], precise(len(y)), rng)[0][0])


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """Models of both levels."""

    upper: LevelModel
    lower: LevelModel

    def F(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return F and its violation (k,) at pairs."""
        return self.upper(np.concatenate([x, y], axis=1))

    def expected(
        self, x: FloatArray, y: FloatArray, widths: Sequence[float], rng: np.random.Generator
    ) -> FloatArray:
        """Return the larger F (k,) of pairs and of the answers that are expected to their leaders.

        So a pair whose follower is not solved gains nothing.
        """
        moved, _ = answers(self.lower, x, y, widths, rng)
        return np.maximum(self.F(x, y)[0], self.F(x, moved)[0])

    def best_of(
        self, x: FloatArray, n: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return the best leader (m,) of some (k, m), and the answer (n,) to it."""
        y, violation = answers(self.lower, x, np.full((len(x), n), 0.5), rough(n), rng)
        F, more = self.F(x, y)
        i = int(_ranked(F[None], violation[None] + more)[0])
        return x[i], answer(self.lower, x[i], y[i], rng)

    def best_leader(
        self, known: FloatArray, n: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return the best leader (m,) of all, and the answer (n,) to it.

        `known` (k, m) are good leaders, which are tried beside those all over the box. The closer
        leaders are, the more precise are answers, and the smaller is a violation that counts.
        """
        m = known.shape[1]
        line = np.linspace(0.0, 1.0, LEADERS)[:, None]
        x = np.concatenate([line if m == 1 else rng.random((LEADERS, m)), known])
        first, width = np.full(n, 0.5), 0.05 if m == 1 else 0.3
        best = x[0], first
        for number in range(5 if m == 1 else 7):
            if n == 1:
                widths: Sequence[float] = LINE_WIDTHS[: number + 2]
                error = 2.0 * widths[-1] / LINE
            else:
                widths = tuple(min(0.5, 4.0 * width) * 0.5**i for i in range(5))
                error = 0.5 * widths[-1]
            y, violation = answers(self.lower, x, np.tile(first, (len(x), 1)), widths, rng)
            F, more = self.F(x, y)
            i = int(_ranked(F[None], np.maximum(violation - error, 0.0)[None] + more)[0])
            best, first = (x[i], y[i]), y[i]
            x = _around(x[i][None], width, rng)[0]
            width *= 0.12 if m == 1 else 0.5
        return best[0], answer(self.lower, *best, rng)


def rough(n: int) -> Sequence[float]:
    """Return the widths of a rough search of n variables."""
    return LINE_WIDTHS[:2] if n == 1 else CLOUD_WIDTHS[1:11:2]


def precise(n: int) -> Sequence[float]:
    """Return the widths of a precise search of n variables."""
    return LINE_WIDTHS if n == 1 else CLOUD_WIDTHS


def _ranked(objective: FloatArray, violation: FloatArray) -> FloatArray:
    """Return which point of each row is best: the first by violation, and then by objective."""
    least = violation.min(axis=1, keepdims=True)
    return np.asarray(np.where(violation <= least, objective, np.inf).argmin(axis=1))


def _around(best: FloatArray, width: float | None, rng: np.random.Generator) -> FloatArray:
    """Return points (k, count, n) around points (k, n), which are the first ones of each row.

    Without a width, they are all over the box.
    """
    k, n = best.shape
    if n == 1:
        steps = np.linspace(-1.0, 1.0, LINE)[None, :, None]
        spread = np.repeat((steps + 1) / 2, k, axis=0)
        tried = spread if width is None else best[:, None] + width * steps
    elif width is None:
        tried = rng.random((k, CLOUD, n))
    else:
        steps = rng.uniform(-1.0, 1.0, (k, CLOUD, n)) * (rng.random((k, CLOUD, n)) < 0.7)
        tried = best[:, None] + width * steps
    return np.concatenate([best[:, None], np.clip(tried, 0.0, 1.0)], axis=1)
