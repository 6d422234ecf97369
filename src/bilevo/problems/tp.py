"""TP1-10: small bilevel test problems of fixed size.

They are collected in A. Sinha, P. Malo and K. Deb, "A review on bilevel optimization", IEEE
Transactions on Evolutionary Computation 22(2), 2018, and in their BLEAQ programs. Several optima
listed there are wrong (see docs/errata.md); the optima here are exact, or confirmed by a grid over
x with exact answers y. In TP2-8 the last constraints of G repeat g.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from bilevo.core.arrays import FloatArray, row_dots
from bilevo.core.budget import Budget
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Function, Problem
from bilevo.problems.smd import Box

BUDGET = Budget(upper_max=5000, upper_window=350, lower_max=250, lower_window=35)


def _columns(*columns: FloatArray) -> FloatArray:
    return np.array(columns).T  # takes a seventh of the time of np.stack


def _linear(x: FloatArray, y: FloatArray, rows: FloatArray) -> FloatArray:
    """Return the values of linear constraints.

    Each of the `rows` holds the coefficients of x and y, and the constant.
    """
    both = np.concatenate([x, y], axis=1)
    return np.asarray(row_dots(both[:, None, :], rows[:, :-1]) + rows[:, -1])


def _problem(
    number: int,
    F: Function,
    f: Function,
    x_bounds: Sequence[Box],
    y_bounds: Sequence[Box],
    optimum: Optimum,
    g: Function | None = None,
    G: Function | None = None,
    repeats: int = 0,
) -> Problem:
    """Make a problem; `repeats` is the number of constraints g to append to G, all or none."""
    if repeats:
        own, lower = G, g
        assert lower is not None

        def G(x: FloatArray, y: FloatArray) -> FloatArray:
            return lower(x, y) if own is None else np.concatenate([own(x, y), lower(x, y)], axis=1)

    return Problem(
        F,
        f,
        x_bounds,
        y_bounds,
        G,
        g,
        vectorized=True,
        name=f"tp{number}",
        optimum=optimum,
        repeats_lower=repeats,
        budget=BUDGET,
    )


def _known(F: float, f: float, x: Sequence[float], y: Sequence[float]) -> Optimum:
    return Optimum(F, f, np.array(x, float), np.array(y, float))


def tp1() -> Problem:
    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return (x[:, 0] - 30) ** 2 + (x[:, 1] - 20) ** 2 - 20 * y[:, 0] + 20 * y[:, 1]

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return (x[:, 0] - y[:, 0]) ** 2 + (x[:, 1] - y[:, 1]) ** 2

    def G(x: FloatArray, y: FloatArray) -> FloatArray:
        return _columns(30 - x[:, 0] - 2 * x[:, 1], x[:, 0] + x[:, 1] - 25)

    best = _known(225, 100, (20, 5), (10, 5))
    return _problem(1, F, f, [(-30, 30), (-30, 15)], [(0, 10)] * 2, best, G=G)


def _balance(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(2 * x[:, 0] + 2 * x[:, 1] - 3 * y[:, 0] - 3 * y[:, 1] - 60)


def _tp2_like(number: int, F: Function) -> Problem:
    """Make TP2 or TP8, which differ in F only."""

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return (y[:, 0] - x[:, 0] + 20) ** 2 + (y[:, 1] - x[:, 1] + 20) ** 2

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        return 10 - x + 2 * y

    def G(x: FloatArray, y: FloatArray) -> FloatArray:
        return _columns(x[:, 0] + x[:, 1] + y[:, 0] - 2 * y[:, 1] - 40)

    best = _known(0, 100, (0, 30), (-10, 10))
    return _problem(number, F, f, [(0, 50)] * 2, [(-10, 20)] * 2, best, g, G, repeats=2)


def tp2() -> Problem:
    return _tp2_like(2, _balance)


def tp3() -> Problem:
    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return -(x[:, 0] ** 2) - 3 * x[:, 1] ** 2 - 4 * y[:, 0] + y[:, 1] ** 2

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return 2 * x[:, 0] ** 2 + y[:, 0] ** 2 - 5 * y[:, 1]

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        curve = -3 - x[:, 0] ** 2 + 2 * x[:, 0] - x[:, 1] ** 2 + 2 * y[:, 0] - y[:, 1]
        return _columns(curve, 4 - x[:, 1] - 3 * y[:, 0] + 4 * y[:, 1])

    def G(x: FloatArray, y: FloatArray) -> FloatArray:
        return _columns(x[:, 0] ** 2 + 2 * x[:, 1] - 4)

    # At x = (0, 2) the second constraint of g is active.
    y1, y2 = 15 / 8, 29 / 32
    best = _known(-12 - 4 * y1 + y2**2, y1**2 - 5 * y2, (0, 2), (y1, y2))
    return _problem(3, F, f, [(0, 10)] * 2, [(0, 10)] * 2, best, g, G, repeats=2)


def tp4() -> Problem:
    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return -8 * x[:, 0] - 4 * x[:, 1] + 4 * y[:, 0] - 40 * y[:, 1] - 4 * y[:, 2]

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return x[:, 0] + 2 * x[:, 1] + y[:, 0] + y[:, 1] + 2 * y[:, 2]

    rows = np.array([[0, 0, -1, 1, 1, -1], [2, 0, -1, 2, -0.5, -1], [0, 2, 2, -1, -0.5, -1]])

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        return _linear(x, y, rows)

    best = _known(-29.2, 3.2, (0, 0.9), (0, 0.6, 0.4))
    return _problem(4, F, f, [(0, 1)] * 2, [(0, 1)] * 3, best, g, repeats=3)


def tp5() -> Problem:
    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        squares = 0.1 * row_dots(x, x) + 0.5 * row_dots(y, y)
        return squares - 3 * y[:, 0] - 4 * y[:, 1]

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        x1, x2, y1, y2 = x[:, 0], x[:, 1], y[:, 0], y[:, 1]
        quadratic = 0.5 * (y1**2 + 6 * y1 * y2 + 10 * y2**2)
        return quadratic + (-x1 + 2 * x2) * y1 + (3 * x1 - 3 * x2) * y2

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        return _columns(-0.333 * y[:, 0] + y[:, 1] - 2, y[:, 0] - 0.333 * y[:, 1] - 2)

    best = _known(-3.6, -2, (2, 0), (2, 0))
    return _problem(5, F, f, [(0, 10)] * 2, [(0, 10)] * 2, best, g, repeats=2)


def tp6() -> Problem:
    """Make TP6. Its x2 has no effect, and is kept because the reference programs have it."""

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return (x[:, 0] - 1) ** 2 + 2 * y[:, 0] - 2 * x[:, 0]

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return (2 * y[:, 0] - 4) ** 2 + (2 * y[:, 1] - 1) ** 2 + x[:, 0] * y[:, 0]

    rows = np.array([[4.0, 0, 5, 4, -12], [-4, 0, -5, 4, 4], [4, 0, -4, 5, -4], [-4, 0, 4, 5, -4]])

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        return _linear(x, y, rows)

    best = _known(-98 / 81, 617 / 81, (17 / 9, 0), (8 / 9, 0))
    return _problem(6, F, f, [(0, 2)] * 2, [(0, 2)] * 2, best, g, repeats=4)


def tp7() -> Problem:
    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        (x1, x2), (y1, y2) = x.T, y.T
        return np.asarray((x1 + y1) * (x2 + y2) / (1 + x1 * y1 + x2 * y2))

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return -f(x, y)

    def g(x: FloatArray, y: FloatArray) -> FloatArray:
        return y - x

    def G(x: FloatArray, y: FloatArray) -> FloatArray:
        return _columns(row_dots(x, x) - 100, x[:, 0] - x[:, 1])

    root = math.sqrt(50)
    best = _known(-100 / 51, 100 / 51, (root, root), (0, root))
    return _problem(7, F, f, [(0, 10)] * 2, [(0, 1), (0, 10)], best, g, G, repeats=2)


def tp8() -> Problem:
    return _tp2_like(8, lambda x, y: np.abs(_balance(x, y)))


def _wave(y: FloatArray) -> FloatArray:
    """Return 1 - prod cos(y_i / sqrt i)."""
    waves = np.cos(y / np.sqrt(np.arange(1.0, y.shape[1] + 1.0)))
    return np.asarray(1.0 - np.multiply.reduce(waves, axis=1))


def _tp9_like(number: int, size: int, f: Function) -> Problem:
    """Make TP9 or TP10, which differ in f and in size."""

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.abs(x - 1).sum(axis=1) + np.abs(y).sum(axis=1))

    best = _known(0, 1, [1] * size, [0] * size)
    return _problem(number, F, f, [(-1, 1)] * size, [(-math.pi, math.pi)] * size, best)


def tp9() -> Problem:
    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.exp((row_dots(y, y) / 4000 + _wave(y)) * row_dots(x, x))

    return _tp9_like(9, 5, f)


def tp10() -> Problem:
    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        xy = x * y
        return np.exp(row_dots(xy, xy) / 4000 + _wave(xy))

    return _tp9_like(10, 10, f)


_ALL = (tp1, tp2, tp3, tp4, tp5, tp6, tp7, tp8, tp9, tp10)
TP: dict[int, Callable[[], Problem]] = dict(enumerate(_ALL, start=1))
