"""Two real problems of the literature: gold mining in Kuusamo, and a company's decision making.

M. M. Islam, H. K. Singh and T. Ray, "An enhanced memetic algorithm for single-objective bilevel
optimization problems", 2017. Both levels have two goals, joined into one as in the BL-CMA-ES
programs (He et al., 2019). `examples/real_world.py` finds the optima and checks them.
"""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import FloatArray, row_dots
from bilevo.core.budget import Budget
from bilevo.core.problem import Problem


def _scalarize(weight: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Make one goal of two by penalized boundary intersection.

    a and b are the goals' distances from their utopia point. The reference program does not
    normalize the weights in the distance `across`; neither does this function.
    """
    rest = 1.0 - weight
    along = np.abs(weight * a + rest * b) / np.sqrt(weight * weight + rest * rest)
    across = np.sqrt((a - along * weight) ** 2 + (b - along * rest) ** 2)
    return np.asarray(along + 5.0 * across)


def gold_mining() -> Problem:
    """Make the problem of a government, which taxes a mine; the mine sets its production.

    The government also sets the weight that the mine gives to profit. The optimum is
    F = -314.2206 at tax 51.52, weight 0.9526, production 12.44. A smaller F needs a production that
    the mine would not choose.
    """

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return -0.5 * x[:, 0] * y[:, 0] + 0.5 * y[:, 0]

    def loss(x: FloatArray, y: FloatArray) -> FloatArray:
        q = y[:, 0]
        return 2 * q**2 - 99 * q + x[:, 0] * q

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return _scalarize(x[:, 1], loss(x, y) + 1300, y[:, 0] + 1)

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        return loss(x, y)[:, None]

    return Problem(
        F,
        f,
        [(0, 100), (0, 1)],
        [(0, 100)],
        g=g,
        vectorized=True,
        name="gold-mining",
        budget=Budget(upper_max=1500, upper_window=70, lower_max=150, lower_window=15),
    )


# Each row holds the coefficients of (x1, x2, y1, y2, y3).
_PROFIT = np.array([3.38, 7.78, 8.54, -2.35, 4.97])
_QUALITY = np.array([6.64, 4.26, 4.67, 4.59, 3.73])
_LOSS = -0.5 * (_PROFIT + _QUALITY)
_UPPER = np.array(
    [
        [4.55, 7.35, 9.65, -6.23, 4.24],
        [-5.33, -1.35, 2.67, -4.22, 1.75],
        [-2.11, 2.67, 4.34, 9.26, 8.33],
        [2.42, 7.43, 4.51, -3.56, 1.46],
    ]
)
_UPPER_LIMIT = np.array([987.0, 135.0, 830.0, 565.0])
_BRANCH_PROFIT = np.array([4.47, 5.46, -6.23, -4.78, 7.34])
# The reference program takes y2 instead of x2 in the goal, but x2 in the constraint.
_SATISFACTION_GOAL = np.array([5.34, 0.0, 9.45, 6.37 + 3.74, 5.45])
_SATISFACTION = np.array([5.34, 3.74, 9.45, 6.37, 5.45])
_LOWER = np.array(
    [
        [3.67, -7.84, -6.78, -5.87, 1.26],
        [4.34, 9.26, 8.33, -2.11, -2.67],
        [4.51, -3.56, 1.46, 2.42, 7.43],
        -_BRANCH_PROFIT,
        -_SATISFACTION,
    ]
)
_LOWER_LIMIT = np.array([105.0, 830.0, 565.0, 0.0, 0.0])


def decision_making() -> Problem:
    """Make the problem of a chief executive, who plans profit and quality; division heads answer.

    The optimum is F = -1094.4774 at x = (93.761, 69.102, w), y = (0, 62.347, 31.933) with weights w
    such as 0.1. It is also the optimum of the linear program of F and all constraints, without a
    follower.
    """

    def plan(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.concatenate([x[:, :2], y], axis=1)

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return row_dots(plan(x, y), _LOSS)

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        made = plan(x, y)
        profit = -row_dots(made, _BRANCH_PROFIT)
        satisfaction = -row_dots(made, _SATISFACTION_GOAL)
        return _scalarize(x[:, 2], profit + 3000, satisfaction + 3000)

    def G(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(row_dots(plan(x, y)[:, None, :], _UPPER) - _UPPER_LIMIT)

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(row_dots(plan(x, y)[:, None, :], _LOWER) - _LOWER_LIMIT)

    return Problem(
        F,
        f,
        [(0, 250), (0, 250), (0, 1)],
        [(0, 70)] * 3,
        G=G,
        g=g,
        vectorized=True,
        name="decision-making",
        budget=Budget(upper_max=2500, upper_window=350, lower_max=250, lower_window=25),
    )
