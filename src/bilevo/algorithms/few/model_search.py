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

    `first` (k, n) are answers to begin with, beside points all over the box. Each further round
    has one of the `widths`.
    """
    (k, n), best = first.shape, first
    rows, left = np.arange(k), np.zeros(k)
    for width in (None, *widths):
        tried = _around(best, width, rng)
        count = tried.shape[1]
        z = np.concatenate([np.repeat(x, count, axis=0), tried.reshape(-1, n)], axis=1)
        f, violation = lower(z)
        chosen = _ranked(f, violation, count)
        best, left = tried[rows, chosen], violation.reshape(k, count)[rows, chosen]
    return best, left


def answer(
    lower: LevelModel, x: FloatArray, y: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return the follower's answer (n,) to one leader precisely; `y` is one to begin with.

    If no answer is better than `y`, it is `y` itself.
    """
    widths = LINE_WIDTHS if len(y) == 1 else CLOUD_WIDTHS
    found = answers(lower, x[None], y[None], widths, rng)[0][0]
    (f, least), (violation, left) = lower(np.array([[*x, *y], [*x, *found]]))
    return y if violation <= left and f - least <= SAME else np.asarray(found)


def best_leader(
    upper: LevelModel, lower: LevelModel, known: FloatArray, n: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return the best leader (m,) of the models, and the answer (n,) to it.

    `known` (k, m) are good leaders, which are tried beside those all over the box. Answers are
    the more precise the closer leaders are, and so is what counts as the same violation.
    """
    m = known.shape[1]
    line = np.linspace(0.0, 1.0, LEADERS)[:, None]
    x = np.concatenate([line if m == 1 else rng.random((LEADERS, m)), known])
    best: tuple[tuple[float, float], FloatArray, FloatArray] | None = None
    y0, width = np.full(n, 0.5), 0.05 if m == 1 else 0.3
    for number in range(5 if m == 1 else 7):
        if n == 1:
            widths: Sequence[float] = LINE_WIDTHS[: number + 2]
            precise = widths[-1] / LINE
        else:
            widths = tuple(min(0.5, 4.0 * width) * 0.5**i for i in range(5))
            precise = widths[-1] / 4.0
        y, violation = answers(lower, x, np.tile(y0, (len(x), 1)), widths, rng)
        F, more = upper(np.concatenate([x, y], axis=1))
        violation = np.maximum(violation - 2.0 * precise, 0.0) + more
        i = int(_ranked(F, violation, len(x))[0])
        best = (float(violation[i]), float(F[i])), x[i], y[i]
        y0 = y[i]
        x = _around(best[1][None], width, rng)[0]
        width *= 0.12 if m == 1 else 0.5
    assert best is not None
    return best[1], answer(lower, best[1], best[2], rng)


def _ranked(objective: FloatArray, violation: FloatArray, count: int) -> FloatArray:
    """Return which of each `count` rows is best: the first by violation, and then by objective."""
    values, left = objective.reshape(-1, count), violation.reshape(-1, count)
    least = left.min(axis=1, keepdims=True)
    return np.asarray(np.where(left <= least, values, np.inf).argmin(axis=1))


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
