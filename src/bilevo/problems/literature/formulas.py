"""A problem of the literature as formulas in x1, x2, ... and y1, y2, ..., as papers print it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Function, Problem
from bilevo.problems.smd import Box

Formula = Callable[..., Any]
Pair = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulas:
    """The formulas and the boxes of a problem.

    A formula takes the variables one by one, first those of x, as vectors of one length. G and g
    return a sequence of vectors, one for each constraint. `best` is the known optimum (x, y).
    """

    x: Sequence[Box]
    y: Sequence[Box]
    F: Formula
    f: Formula
    G: Formula | None = None
    g: Formula | None = None
    best: Pair | None = None

    def problem(self, name: str) -> Problem:
        F, f = _objective(self.F), _objective(self.f)
        return Problem(
            F,
            f,
            self.x,
            self.y,
            None if self.G is None else _constraints(self.G),
            None if self.g is None else _constraints(self.g),
            vectorized=True,
            name=name,
            optimum=None if self.best is None else _optimum(F, f, *self.best),
        )


def _objective(formula: Formula) -> Function:
    return lambda x, y: formula(*x.T, *y.T)


def _constraints(formula: Formula) -> Function:
    return lambda x, y: np.array(formula(*x.T, *y.T)).T


def _optimum(F: Function, f: Function, x: Sequence[float], y: Sequence[float]) -> Optimum:
    """Return the optimum with the values that the formulas have there."""
    rows = np.array([x], float), np.array([y], float)
    values = [float(function(*rows)[0]) + 0.0 for function in (F, f)]  # adding 0 makes 0 of -0
    return Optimum(values[0], values[1], rows[0][0], rows[1][0])


def squares(*columns: FloatArray) -> FloatArray:
    """Return the sum of squares."""
    return np.asarray(sum(column * column for column in columns))
