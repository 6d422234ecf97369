"""Problems with known answers: shapes along a curve, and single problems.

Each factory draws its parameters from a random generator, and returns the arguments of a
`Construction`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.known import shapes
from benchmarks.known.construction import Construction, local_minima, one
from bilevo import Problem
from bilevo.core.arrays import FloatArray

Factor = Callable[[FloatArray], float]
Parts = dict[str, Any]  # arguments of a Construction, without its name and kind
Factory = Callable[[np.random.Generator], Parts]


def curve(rng: np.random.Generator, m: int, n: int) -> Callable[[FloatArray], FloatArray]:
    """Return a curve t(x); a shape is a function of the deviation d = y - t(x) from this curve.

    The coordinates of t(x) stay within 2.2 of 0 if those of x stay within 4.6.
    """
    slope = rng.uniform(-0.3, 0.3, (n, m)) / m
    wave, phase = rng.uniform(0.3, 0.8, n), rng.uniform(0, 6, n)
    frequency = rng.uniform(0.5, 1.5, (n, m))
    return lambda x: slope @ x + wave * np.sin(frequency @ x + phase)


def zero(x: FloatArray) -> float:
    return 0.0


def along(
    make: shapes.Maker,
    rng: np.random.Generator,
    m: int = 1,
    factor: Factor = one,
    offset: Factor = zero,
    F_factor: float = 1.0,
    unit: float = 1.0,
    reach: float = 3.0,
    hole: Callable[[FloatArray], bool] | None = None,
) -> Parts:
    """Make a problem of a shape along a curve: f = factor(x) shape(d) + offset(x).

    The leader minimizes F_factor (|x - a|^2 + |d - wish|^2). So if the follower's deviation d does
    not depend on x, x = a is the leader's best. y is in units of `unit`, and the bounds of x are
    about -reach and reach. F is NaN where `hole(x)` is True.
    """
    shape = make(rng)
    n = shape.wish.size
    t, a = curve(rng, m, n), rng.uniform(-0.4, 0.4, m) * reach
    x_bounds = np.column_stack([rng.uniform(-1.1, -1, m), rng.uniform(1, 1.1, m)]) * reach
    y_bounds = np.column_stack([rng.uniform(-8, -7.3, n), rng.uniform(7.3, 8, n)]) * unit

    def F(x: FloatArray, y: FloatArray) -> float:
        far = y / unit - t(x) - shape.wish
        value = F_factor * float((x - a) @ (x - a) + far @ far)
        return math.nan if hole is not None and hole(x) else value

    def f(x: FloatArray, y: FloatArray) -> float:
        return factor(x) * float(shape.value(y / unit - t(x), x)) + offset(x)

    def g(x: FloatArray, y: FloatArray) -> list[float]:
        assert shape.g is not None
        return list(shape.g(y / unit - t(x)))

    def candidates(x: FloatArray) -> list[FloatArray]:
        return [unit * (t(x) + np.atleast_1d(d)) for d in shape.best(x)]

    problem = Problem(F, f, x_bounds, y_bounds, g=None if shape.g is None else g)
    parts: Parts = {"problem": problem, "candidates": candidates, "f_scale": factor}
    parts["F_scale"] = F_factor
    if shape.fixed:
        parts["F_star"] = Construction("", "", **parts).F_true(a)
    return parts


def shaped(make: shapes.Maker, **options: Any) -> Factory:
    """Return the factory of a shape along a curve."""
    return partial(along, make, **options)


def leader(a: FloatArray, b: FloatArray) -> Callable[[FloatArray, FloatArray], float]:
    """Return F = |x - a|^2 + |y - b|^2."""
    return lambda x, y: float((x - a) @ (x - a) + (y - b) @ (y - b))


# Single problems --------------------------------------------------------------------------------


def ambush(width: float) -> Factory:
    """Make a follower that has a second, narrow and deep basin only near the leader's best x."""

    def make(rng: np.random.Generator) -> Parts:
        a, b = rng.uniform(1, 4, 2)
        trap = b + rng.uniform(4, 5)
        narrow = 0.3 * 15 * width

        def values(x: FloatArray, y: FloatArray) -> FloatArray:
            hole = np.exp(-(((x[0] - a) / 0.4) ** 2) - ((y - trap) / narrow) ** 2)
            return np.asarray((y - b) ** 2 - 40 * hole)

        return {
            "problem": Problem(
                leader(np.array([a]), np.array([b])),
                lambda x, y: float(values(x, y)[0]),
                [(-5, 10)],
                [(-5, 10)],
            ),
            "candidates": lambda x: local_minima(lambda y: values(x, y), -5, 10),
        }

    return make


def exchange(rng: np.random.Generator) -> Parts:
    """Make two basins that change places with the sign of x."""
    slope, a = rng.uniform(0.3, 0.7), rng.uniform(0.3, 0.7)
    return {
        "problem": Problem(
            leader(np.array([a]), np.array([1.0])),
            lambda x, y: float((y[0] ** 2 - 1) ** 2 + slope * x[0] * y[0]),
            [(-2, 2)],
            [(-2, 2)],
        ),
        "candidates": lambda x: local_minima(
            lambda y: (y**2 - 1) ** 2 + slope * x[0] * y, -2, 2, 801
        ),
    }


def cubic(rng: np.random.Generator) -> Parts:
    """Make f = x y^2 (c - y): the follower answers 1 if x > 0, and -1 or 2 c / 3 if x < 0."""
    c = rng.uniform(0.4, 0.6)
    return {
        "problem": Problem(
            lambda x, y: float(x[0] - y[0]),
            lambda x, y: float(x[0] * y[0] ** 2 * (c - y[0])),
            [(-1, 1)],
            [(-1, 1)],
        ),
        "candidates": lambda x: [-1.0, 0.0, 2 * c / 3, 1.0],
        "f_scale": lambda x: abs(float(x[0])),
        "F_star": -1.0,
    }


def cusp(rng: np.random.Generator) -> Parts:
    """Make a cusp at y = x / 1.5 beside a smooth basin that is nearly as deep."""
    depth, width = rng.uniform(0.75, 0.85), rng.uniform(0.05, 0.06)

    def values(x: FloatArray, y: FloatArray) -> FloatArray:
        smooth = depth * np.exp(-(((2 * y + x[0] - 3) / 0.5) ** 2))
        return np.asarray(2 - np.exp(-((abs(1.5 * y - x[0]) / width) ** 0.4)) - smooth)

    return {
        "problem": Problem(
            leader(np.array([0.5]), np.array([1.0])),
            lambda x, y: float(values(x, y)[0]),
            [(0, 1)],
            [(0, 2)],
        ),
        "candidates": lambda x: [x[0] / 1.5, *local_minima(lambda y: values(x, y), 0, 2)],
    }


def rosenbrock(weight: float, n: int = 2) -> Factory:
    """Make a curved valley: the follower answers (x, x^2, x^4, ...).

    The leader has a wish for the last variable of y only.
    """

    def make(rng: np.random.Generator) -> Parts:
        b = np.append(rng.uniform(-1, 1, n - 1), rng.uniform(2.5, 3.5))
        bounds = [(-3, 3)] + [(-5, 10)] * (n - 1)
        weigh = np.array([0.0] * (n - 1) + [1.0])

        def F(x: FloatArray, y: FloatArray) -> float:
            return float((x[0] - 1) ** 2 + weigh @ (y - b) ** 2)

        def f(x: FloatArray, y: FloatArray) -> float:
            return float(weight * ((y[1:] - y[:-1] ** 2) ** 2).sum() + (y[0] - x[0]) ** 2)

        return {
            "problem": Problem(F, f, [(-1.7, 1.7)], bounds),
            "candidates": lambda x: [[x[0], *(x[0] ** 2 ** np.arange(1, n))]],
        }

    return make


def coupled(rng: np.random.Generator) -> Parts:
    """Make a coupling constraint that forbids the leader some of the follower's answers."""
    most, a = rng.uniform(0.1, 0.5), rng.uniform(0.5, 1.5)
    return {
        "problem": Problem(
            lambda x, y: float((x[0] - a) ** 2 - 0.1 * y[0]),
            lambda x, y: float((y[0] - math.sin(2 * x[0])) ** 2),
            [(-3, 3)],
            [(-4, 5)],
            G=lambda x, y: [y[0] - most],
        ),
        "candidates": lambda x: [math.sin(2 * x[0])],
    }


def leader_plane(m: int, equality: bool = False) -> Factory:
    """Make a leader that may choose only x on one side of a plane; its best x is on the plane.

    With `equality`, it may choose only x on the plane.
    """

    def make(rng: np.random.Generator) -> Parts:
        normal, a, c = shapes.direction(rng, m), rng.uniform(-1, 1, m), rng.uniform(0.5, 1)
        b, level = rng.uniform(2, 3, 2), float(normal @ a) - rng.uniform(0.3, 1)

        def G(x: FloatArray, y: FloatArray) -> list[float]:
            over = float(normal @ x) - level
            return [over, -over] if equality else [over]

        def F(x: FloatArray, y: FloatArray) -> float:
            far = y - x.sum() - b
            return float((x - a) @ (x - a) + far @ far)

        def f(x: FloatArray, y: FloatArray) -> float:
            d = y - x.sum()
            return float(c * d @ d)

        off = float(normal @ a) - level
        return {
            "problem": Problem(F, f, [(-3, 3)] * m, [(-10, 11)] * 2, G=G),
            "candidates": lambda x: [np.full(2, x.sum())],
            "F_star": off**2 + float(b @ b),
        }

    return make


def corner(n: int, concave: bool) -> Factory:
    """Make a follower that answers at corners of its box, because its f is linear or concave."""

    def make(rng: np.random.Generator) -> Parts:
        t, b = curve(rng, 1, n), rng.uniform(-1, 1, n)
        a = rng.uniform(-1, 1, 1)

        def f(x: FloatArray, y: FloatArray) -> float:
            d = y - t(x)
            return float(-0.1 * d @ d) if concave else float(t(x) @ y)

        low, high = rng.uniform(-3.2, -3), rng.uniform(2.5, 2.9)
        corners = list(itertools.product((low, high), repeat=n))
        problem = Problem(leader(a, b), f, [(-3, 3)], [(low, high)] * n)
        return {"problem": problem, "candidates": lambda x: corners}

    return make


def beyond(n: int, m: int = 1) -> Factory:
    """Make a follower and a leader that would like points outside their boxes."""

    def make(rng: np.random.Generator) -> Parts:
        t, weights = curve(rng, m, n), rng.uniform(0.5, 1.5, m)
        b = rng.uniform(-3, -2, n)

        def F(x: FloatArray, y: FloatArray) -> float:
            return float(weights @ x + (y - b) @ (y - b))

        def f(x: FloatArray, y: FloatArray) -> float:
            d = y - 2 * t(x)
            return float(d @ d)

        problem = Problem(F, f, [(-3, 2)] * m, [(-0.5, 0.7)] * n)
        return {"problem": problem, "candidates": lambda x: [np.clip(2 * t(x), -0.5, 0.7)]}

    return make


def rounded(n: int, leader_rounds: bool, m: int = 1) -> Factory:
    """Make a follower that rounds y to whole numbers, and wants them to be near 2 t(x).

    All y that round to the same whole numbers are ties. With `leader_rounds`, F rounds y, too.
    """

    def make(rng: np.random.Generator) -> Parts:
        t, a = curve(rng, m, n), rng.uniform(-1, 1, m)
        b = rng.uniform(2.6, 3.4, n) * rng.choice([-1, 1], n)

        def F(x: FloatArray, y: FloatArray) -> float:
            d = (np.rint(y) if leader_rounds else y) - b
            return float((x - a) @ (x - a) + d @ d)

        def f(x: FloatArray, y: FloatArray) -> float:
            d = np.rint(y) - 2 * t(x)
            return float(d @ d)

        def candidates(x: FloatArray) -> list[FloatArray]:
            near = np.floor(2 * t(x)) + np.array(list(itertools.product((0, 1), repeat=n)))
            return [np.clip(b, whole - 0.5 + 1e-9, whole + 0.5 - 1e-9) for whole in near]

        problem = Problem(F, f, [(-3, 3)] * m, [(-6.3, 7.2)] * n)
        return {"problem": problem, "candidates": candidates}

    return make


def knapsack(rng: np.random.Generator) -> Parts:
    """Make a follower that packs whole pieces; the leader's price x changes what is best."""
    worth, load = rng.uniform(1, 3, 3), rng.uniform(1, 2, 3)
    wanted = rng.integers(0, 4, 3)
    pieces = np.array(list(itertools.product(range(4), repeat=3)), float)

    def f(x: FloatArray, y: FloatArray) -> float:
        whole = np.rint(y)
        paid = worth @ whole - x[0] * whole[0] - x[1] * whole[1]
        return float(-paid + 100 * max(0.0, float(load @ whole) - 8))

    def F(x: FloatArray, y: FloatArray) -> float:
        whole = np.rint(y)
        return float((whole - wanted) @ (whole - wanted) - 0.3 * x @ whole[:2])

    return {
        "problem": Problem(F, f, [(0, 2)] * 2, [(-0.4, 3.4)] * 3),
        "candidates": lambda x: pieces,
    }


def response_scaled(rng: np.random.Generator) -> Parts:
    """Make f = exp(x^2) (y - sin 3 x)^2, which is 1e43 at the bounds of x and 1 at 0."""
    a, b = rng.uniform(0.8, 1.2, 2)
    return {
        "problem": Problem(
            leader(np.array([a]), np.array([b])),
            lambda x, y: math.exp(x[0] ** 2) * float(y[0] - math.sin(3 * x[0])) ** 2,
            [(-10, 10)],
            [(-10, 10)],
        ),
        "candidates": lambda x: [math.sin(3 * x[0])],
        "f_scale": lambda x: math.exp(x[0] ** 2),
    }
