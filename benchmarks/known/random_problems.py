"""Random problems whose answers are not known: only `verify` can check an answer.

The follower's f is a quadratic function of d = y - t(x), where t(x) is a curve. At random, the
following are added: ripples, kinks, penalties, a second basin, directions without any effect
(ties), constraints, a scale and an offset. The name of a problem tells what was added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.known.shapes import direction, rotation, waves
from benchmarks.known.singles import curve
from bilevo import Problem
from bilevo.core.arrays import FloatArray

Rng = np.random.Generator
Part = Callable[[FloatArray], float]  # A term of f, as a function of d.


def quadratic(rng: Rng, n: int, tied: bool) -> Part:
    """Return a quadratic function with random axes; if `tied`, one axis has no effect."""
    turn = rotation(rng, n)
    weights = 10 ** (rng.uniform(0, 4) * np.linspace(0, 1, n) if n > 1 else np.zeros(1))
    if tied:
        weights[-1] = 0
    return lambda d: float(weights @ (turn @ d) ** 2)


def ripples(rng: Rng, n: int) -> Part:
    height = rng.uniform(0.5, 3)
    return lambda d: waves(d, height)


def kinks(rng: Rng, n: int) -> Part:
    weights = rng.uniform(0.5, 5, n)
    return lambda d: float(weights @ abs(d))


def penalty(rng: Rng, n: int) -> Part:
    """Return a penalty beyond a plane; the plane may cut off the minimum of the other terms."""
    weight, normal, room = 10 ** rng.uniform(3, 12), direction(rng, n), rng.uniform(-0.5, 2)
    return lambda d: float(weight * max(0.0, float(normal @ d) - room) ** 2)


def well(rng: Rng, n: int) -> Part:
    """Return a second basin, 4 to 20% of the box wide."""
    place, width = 3 * direction(rng, n), rng.uniform(0.3, 1.5)
    depth = rng.uniform(5, 20)
    return lambda d: -depth * float(np.exp(-((d - place) @ (d - place)) / width**2))


# Each term that may be added to f: its probability, and the function that makes it.
PARTS = {"ripples": (0.3, ripples), "kinks": (0.15, kinks), "penalty": (0.3, penalty)}
PARTS |= {"well": (0.2, well)}


def constraint(rng: Rng, n: int) -> Callable[[FloatArray], list[float]]:
    """Return a constraint on d: it must be in a half-space, in a ball, or outside a ball."""
    kind, normal, radius = rng.integers(3), direction(rng, n), rng.uniform(0.5, 2)
    centre, room = rng.uniform(-0.7, 0.7, n), rng.uniform(-1, 1)
    if kind == 0:
        return lambda d: [float(normal @ d) - room]
    sign = 1 if kind == 1 else -1
    return lambda d: [sign * (float((d - centre) @ (d - centre)) - radius**2)]


def random_problem(index: int, seed: int) -> Problem:
    """Return a random problem by its number."""
    rng = np.random.default_rng([seed, index])
    m, n = (int(size) for size in rng.integers(1, 4, 2))
    t, a, b = curve(rng, m, n), rng.uniform(-1.5, 1.5, m), rng.uniform(-3, 3, n)
    chosen = [name for name, (chance, _) in PARTS.items() if rng.random() < chance]
    tied = bool(rng.random() < 0.15)
    parts = [quadratic(rng, n, tied), *(PARTS[name][1](rng, n) for name in chosen)]
    scale = 10 ** rng.uniform(-8, 8) if rng.random() < 0.5 else 1.0
    offset = scale * 10 ** rng.uniform(0, 6) if rng.random() < 0.2 else 0.0
    F_scale = 10 ** rng.uniform(-3, 3)
    on_d = constraint(rng, n) if rng.random() < 0.3 else None
    on_x = (direction(rng, m), rng.uniform(-1, 1)) if rng.random() < 0.2 else None

    def F(x: FloatArray, y: FloatArray) -> float:
        return F_scale * float((x - a) @ (x - a) + (y - b) @ (y - b))

    def f(x: FloatArray, y: FloatArray) -> float:
        d = y - t(x)
        return scale * sum(part(d) for part in parts) + offset

    options: dict[str, Any] = {}
    if on_d is not None:
        options["g"] = lambda x, y: on_d(y - t(x))
    if on_x is not None:
        options["G"] = lambda x, y: [float(on_x[0] @ x) - on_x[1]]
    said = [f"random-{seed}-{index}", f"{m}x{n}", *chosen, *["tie"] * tied, *options]
    said += [f"scale={scale:.0e}"] * (scale != 1) + [f"offset={offset:.0e}"] * (offset != 0)
    return Problem(F, f, [(-3.2, 3)] * m, [(-7.5, 8)] * n, name=" ".join(said), **options)


def random_problems(count: int, seed: int) -> Iterator[Problem]:
    """Give random problems, numbered from 0."""
    return (random_problem(index, seed) for index in range(count))
