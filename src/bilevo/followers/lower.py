"""The lower level of a problem as our solvers search it: f and g in the unit box."""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values
from bilevo.core.space import UnitBox


class Lower:
    """f and g of a problem at points of the unit box.

    Evaluations are not counted here: the solver that makes them says what they cost.
    """

    def __init__(self, problem: Problem, searcher: str) -> None:
        if not problem.f_is_known:
            raise ValueError(f"{searcher} searches f, and {problem.name} has none: f must be given")
        self.problem = problem
        self.box = UnitBox(problem.y_bounds)

    def __call__(self, x: FloatArray, points: FloatArray) -> Values:
        """Return the values at a leader's x (m,) and rows of unit coordinates."""
        rows, y = np.repeat(x[None], len(points), axis=0), self.box.real(points)
        rows.flags.writeable = y.flags.writeable = False
        return Values.of(*self.problem.values(Level.LOWER, rows, y), 0, len(points))

    def answer(self, point: FloatArray) -> FloatArray:
        """Map a point of the unit box to the user's units."""
        (y,) = self.box.real(point[None])
        return np.asarray(y)


def required(lower: Lower | None, searcher: str) -> Lower:
    """Return the lower level to search; refuse a solver that was not given to a problem."""
    if lower is None:
        raise ValueError(
            f"{searcher} must be given to a problem: Problem(..., follower={searcher}())"
        )
    return lower
