"""Shapes of a follower's f around its answer, as functions of the deviation d = y - t(x).

Here t(x) is a curve (see `singles.curve`). A shape is also a function of x, because some shapes
change with x. `best` lists deviations d; all answers of the follower are among them, as candidates
are in `construction`. `wish` is the deviation that the leader would like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.known.construction import local_minima
from bilevo.core.arrays import FloatArray

Value = Callable[[FloatArray, FloatArray], Any]
REACH = 5.0  # Deviations up to this are inside the follower's box at every x.


@dataclass(frozen=True, slots=True)
class Shape:
    """The value of f as a function of (d, x), its answers, the leader's wish, constraints on d."""

    value: Value
    best: Callable[[FloatArray], Sequence[Any]]
    wish: FloatArray
    g: Callable[[FloatArray], Sequence[float]] | None = None
    fixed: bool = True  # whether the answers do not depend on x


Maker = Callable[[np.random.Generator], Shape]


def at(value: Value, answers: Sequence[Any], wish: Any, **more: Any) -> Shape:
    """Return a shape with answers that do not depend on x."""
    return Shape(value, lambda x: answers, np.array(wish, float), **more)


def direction(rng: np.random.Generator, n: int) -> FloatArray:
    """Return a random vector of length 1."""
    vector = rng.normal(size=n)
    return np.asarray(vector / np.linalg.norm(vector))


def rotation(rng: np.random.Generator, n: int) -> FloatArray:
    """Return a random orthogonal matrix."""
    return np.asarray(np.linalg.qr(rng.normal(size=(n, n)))[0])


def waves(d: FloatArray, height: float) -> float:
    """Return the value of Rastrigin's function: it has minima near all whole d, the least at 0."""
    return float(d @ d + height * (1 - np.cos(2 * np.pi * d)).sum())


# Bowls and ripples ------------------------------------------------------------------------------


def bowl(n: int = 1) -> Maker:
    return lambda rng: at(lambda d, x: float(d @ d), [np.zeros(n)], 1.5 * direction(rng, n))


def ripples(n: int = 1, height: float = 3.0, rotated: bool = False) -> Maker:
    def make(rng: np.random.Generator) -> Shape:
        turn = rotation(rng, n) if rotated else np.eye(n)
        wish = turn.T @ (rng.choice([-1, 1], n) * (1.9 if n == 1 else 1.0))
        return at(lambda d, x: waves(turn @ d, height), [np.zeros(n)], wish)

    return make


def ackley(n: int) -> Maker:
    def value(d: FloatArray, x: FloatArray) -> float:
        far = 20 - 20 * math.exp(-0.2 * math.sqrt(d @ d / n))
        return far + math.e - math.exp(np.cos(2 * np.pi * d).mean())

    return lambda rng: at(value, [np.zeros(n)], rng.choice([-1, 1], n) * 1.0)


# Penalties and stiff terms ----------------------------------------------------------------------


def walled_ripples(weight: float, jump: bool = False) -> Maker:
    """Return ripples with a penalty where |d| > 2.5, which is quadratic, or constant if `jump`."""

    def value(d: FloatArray, x: FloatArray) -> float:
        beyond = max(0.0, abs(float(d[0])) - 2.5)
        return waves(d, 3.0) + weight * float(beyond > 0 if jump else beyond**2)

    return lambda rng: at(value, [0.0], [rng.choice([-2, 2])])


def pressed(weight: float, kink: bool) -> Maker:
    """Return (d - 2)^2 plus a penalty where d > 1, which keeps the answer near 1.

    The penalty is quadratic, or linear with a kink if `kink`.
    """

    def value(d: FloatArray, x: FloatArray) -> float:
        beyond = max(0.0, d[0] - 1)
        return float((d[0] - 2) ** 2 + weight * (beyond if kink else beyond**2))

    answer = 1.0 if kink else (2 + weight) / (1 + weight)
    return lambda rng: at(value, [answer], [rng.choice([-0.5, 2.5])])


def stiff(weight: float, rotated: bool = False, n: int = 2) -> Maker:
    """Return a bowl with one axis that is `weight` times steeper; the wish is along the others."""

    def make(rng: np.random.Generator) -> Shape:
        turn = rotation(rng, n) if rotated else np.eye(n)
        weights = np.array([weight] + [1.0] * (n - 1))
        wish = turn.T @ np.append(0.0, 2 * direction(rng, n - 1))
        return at(lambda d, x: float(weights @ (turn @ d) ** 2), [np.zeros(n)], wish)

    return make


# Second basins ----------------------------------------------------------------------------------


def wells(n: int, width: float, swap: bool = False) -> Maker:
    """Return a wide basin, which the leader likes, and a narrow one, which is deeper.

    `width` is the width of the narrow basin as a fraction of the box, which is about 15 wide. With
    `swap`, the narrow basin is deeper only for some x.
    """

    def make(rng: np.random.Generator) -> Shape:
        wide = rng.uniform(-1, 1, n)
        away = direction(rng, n)
        narrow = wide + 3.5 * away
        # On the side towards the wide basin, the narrow one ends where both have the same f. That
        # is half its width away from its centre.
        radius = 0.5 * 15 * width
        steep = (1 + (3.5 - radius) ** 2 / 9) / radius**2

        def value(d: FloatArray, x: FloatArray) -> float:
            depth = math.cos(1.3 * x[0]) if swap else 1.0
            first, second = d - wide, d - narrow
            return float(min(first @ first / 9, second @ second * steep - depth))

        wish = wide + 0.1 * away
        return at(value, [wide, narrow], wish, fixed=not swap)

    return make


def scanned(value: Callable[[FloatArray, FloatArray], FloatArray], wish: float) -> Shape:
    """Return a shape of one variable; a scan of d finds its answers."""

    def best(x: FloatArray) -> list[float]:
        return local_minima(lambda d: value(d, x), -REACH, REACH)

    return Shape(lambda d, x: float(value(d, x)[0]), best, np.array([wish]), fixed=False)


def gaussian_well(width: float) -> Maker:
    """Return a wide bowl, and far from its centre a narrow Gaussian well, which is deeper."""

    def make(rng: np.random.Generator) -> Shape:
        place = rng.choice([-1, 1]) * rng.uniform(3, 4)
        narrow = 0.3 * 15 * width  # exp(-(d / narrow)^2) is about `width` of 15 wide
        return scanned(
            lambda d, x: 0.1 * d**2 - 3 * np.exp(-(((d - place) / narrow) ** 2)),
            float(0.2 * np.sign(place)),
        )

    return make


def near_twins(difference: float) -> Maker:
    """Return two basins at d = -1 and 1 that differ little; the leader wants the worse one."""
    return lambda rng: scanned(lambda d, x: (d**2 - 1) ** 2 + difference * d, 1.0)


def moving_well(sharp: float) -> Maker:
    """Return a bowl, and a well that moves with x; for some x the well is deeper than the bowl."""

    def make(rng: np.random.Generator) -> Shape:
        phase = rng.uniform(0, 6)
        return scanned(
            lambda d, x: (
                0.1 * d**2
                - (1 + np.sin(2 * x[0] + phase)) * np.exp(-sharp * (d - 2.5 - np.sin(x[0])) ** 2)
            ),
            rng.uniform(-0.5, 0.5),
        )

    return make


# Ties -------------------------------------------------------------------------------------------


def twins(n: int, count: int) -> Maker:
    """Return two equal answers in each of the first `count` variables."""

    def value(d: FloatArray, x: FloatArray) -> float:
        pairs, rest = d[:count], d[count:]
        return float(((pairs**2 - 1) ** 2).sum() + rest @ rest)

    def make(rng: np.random.Generator) -> Shape:
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * count)).reshape(count, -1).T
        answers = [np.append(sign, np.zeros(n - count)) for sign in signs]
        return at(value, answers, rng.uniform(0.4, 0.8, n) * rng.choice([-1, 1], n))

    return make


def plateau(n: int) -> Maker:
    """Return ties in a ball of radius 1."""

    def make(rng: np.random.Generator) -> Shape:
        wish = direction(rng, n) * rng.uniform(0.5, 1.5)
        nearest = wish / max(1.0, float(np.linalg.norm(wish)))
        return at(lambda d, x: max(0.0, math.sqrt(d @ d) - 1) ** 2, [nearest], wish)

    return make


def sphere(n: int) -> Maker:
    """Return ties on the surface of a ball of radius 1."""

    def make(rng: np.random.Generator) -> Shape:
        toward = direction(rng, n)
        return at(lambda d, x: float((d @ d - 1) ** 2), [toward], toward * rng.uniform(0.5, 1.5))

    return make


def indifferent(n: int, decided: int, rotated: bool = False) -> Maker:
    """Return a bowl in `decided` directions; in the others f does not change at all."""

    def make(rng: np.random.Generator) -> Shape:
        turn = rotation(rng, n) if rotated else np.eye(n)
        seen = turn[:decided]
        wish = direction(rng, n) * 2
        nearest = wish - seen.T @ (seen @ wish)
        return at(lambda d, x: float((seen @ d) @ (seen @ d)), [nearest], wish)

    return make


# Kinks, cusps and valleys -----------------------------------------------------------------------


def pointed(value: Callable[[FloatArray], Any], n: int) -> Maker:
    """Return the shape of a function of d that is least at 0."""
    return lambda rng: at(lambda d, x: float(value(d)), [np.zeros(n)], 1.5 * direction(rng, n))


def ellipsoid(n: int, condition: float) -> Maker:
    def make(rng: np.random.Generator) -> Shape:
        turn, weights = rotation(rng, n), np.geomspace(1, condition, n)
        wish = 2 * turn[0]
        return at(lambda d, x: float(weights @ (turn @ d) ** 2), [np.zeros(n)], wish)

    return make


# Constraints ------------------------------------------------------------------------------------


def half_space(n: int, equality: bool = False) -> Maker:
    """Return a bowl whose centre a plane cuts off; with `equality`, d must lie on the plane."""

    def make(rng: np.random.Generator) -> Shape:
        normal, centre = direction(rng, n), 1.5 * direction(rng, n)
        if not equality:
            centre *= 1.0 if normal @ centre > 0 else -1.0
            centre += 0.5 * normal
        answer = centre - normal * (normal @ centre)

        def g(d: FloatArray) -> list[float]:
            over = float(normal @ d)
            return [over, -over] if equality else [over]

        return at(lambda d, x: float((d - centre) @ (d - centre)), [answer], centre + normal, g=g)

    return make


def in_ball(n: int, surface: bool = False) -> Maker:
    """Return a linear f, where d must lie in a ball.

    With `surface`, d must lie on the ball's surface: an equality, written as two inequalities.
    """

    def make(rng: np.random.Generator) -> Shape:
        toward = direction(rng, n)

        def g(d: FloatArray) -> list[float]:
            over = float(d @ d) - 1
            return [over, -over] if surface else [over]

        wish = 0.5 * direction(rng, n)
        return at(lambda d, x: float(-toward @ d), [toward], wish, g=g)

    return make


def outside_ball(n: int) -> Maker:
    """Return a bowl whose centre is inside a forbidden ball."""

    def make(rng: np.random.Generator) -> Shape:
        toward = direction(rng, n)
        centre = 0.3 * toward
        return at(
            lambda d, x: float((d - centre) @ (d - centre)),
            [toward],
            -toward,
            g=lambda d: [1 - d @ d],
        )

    return make


def islands(n: int, radius: float) -> Maker:
    """Return two feasible balls, of the radii 1 and `radius`; f is least in the second one."""

    def make(rng: np.random.Generator) -> Shape:
        toward = direction(rng, n)
        far = 3.5 * toward

        def g(d: FloatArray) -> list[float]:
            return [min(math.sqrt(d @ d) - 1, math.sqrt((d - far) @ (d - far)) - radius)]

        return at(lambda d, x: float(-toward @ d), [far + radius * toward], 0.5 * toward, g=g)

    return make


def band(thickness: float) -> Maker:
    """Return a thin feasible band along a sine; the follower's best point lies in it."""

    def value(d: FloatArray, x: FloatArray) -> float:
        return float((d[0] - 1) ** 2 + (d[1] - math.sin(2 * d[0])) ** 2)

    def g(d: FloatArray) -> list[float]:
        return [abs(d[1] - math.sin(2 * d[0])) - thickness]

    return lambda rng: at(value, [[1, math.sin(2)]], [-1, rng.uniform(-1, 1)], g=g)


# Failures ---------------------------------------------------------------------------------------


def holed(n: int, hole: Callable[[FloatArray], Any]) -> Maker:
    """Return ripples that are NaN where `hole` is true."""

    def value(d: FloatArray, x: FloatArray) -> float:
        return math.nan if hole(d) else waves(d, 2.0)

    return lambda rng: at(value, [np.zeros(n)], np.full(n, rng.choice([-1.0, 1.0])))


def barrier() -> Maker:
    """Return d - log(1 + d), which is not defined for d <= -1."""

    def value(d: FloatArray, x: FloatArray) -> float:
        return float(d[0] - math.log1p(d[0])) if d[0] > -1 else math.nan

    return lambda rng: at(value, [0.0], [rng.uniform(1, 2)])
