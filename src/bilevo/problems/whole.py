"""Problems with whole numbers: SMD with whole coordinates, and the example of Moore and Bard.

In `smd1-int` to `smd9-int` all variables of the first group of both levels (u of x, and w of y) are
whole. The optimum of SMD has whole numbers there, so it stays the optimum. `moore-bard` is the
integer example of J. Moore and J. Bard, "The mixed integer linear bilevel programming problem",
Operations Research, 1990: its optimum is not near that of its relaxation.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Bounds
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Problem
from bilevo.problems.smd import Sizes, smd


def smd_int(number: int, m: int, n: int) -> Problem:
    """Make problem SMD`number` with whole numbers in the first group of both levels."""
    made, sizes = copy(smd(number, m, n)), Sizes.of(m, n)
    for side, whole, size in (("x_bounds", sizes.p, m), ("y_bounds", sizes.q, n)):
        bounds = getattr(made, side)
        integrality = [1] * whole + [0] * (size - whole)
        setattr(made, side, Bounds(bounds.lower, bounds.upper, side, integrality))
    made.name = f"smd{number}-int"
    return made


def moore_bard() -> Problem:
    """Make the integer problem of Moore and Bard (1990); F* = -22 at (2, 2)."""

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(-x[:, 0] - 10 * y[:, 0])

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(y[:, 0])

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        a, b = x[:, 0], y[:, 0]
        return np.array(
            [-25 * a + 20 * b - 30, a + 2 * b - 10, 2 * a - b - 15, 15 - 2 * a - 10 * b]
        ).T

    return Problem(
        F,
        f,
        [(0, 10)],
        [(0, 10)],
        g=g,
        vectorized=True,
        name="moore-bard",
        optimum=Optimum(-22.0, 2.0, np.array([2.0]), np.array([2.0])),
        x_integrality=1,
        y_integrality=1,
    )


SMD_INT: dict[str, Callable[[int, int], Problem]] = {
    f"smd{number}-int": partial(smd_int, number) for number in range(1, 10)
}
