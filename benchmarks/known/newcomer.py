"""Three problems as a newcomer would write them, with answers by enumeration.

The leader has depots and a price in half units, both whole numbers. The follower has lorries, a
whole number, and an effort, a real one. The best effort for each number of lorries is known, so
that all pairs can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bilevo import Problem

DEPOTS, HALVES, LORRIES = 20, 40, 30
X_BOUNDS, Y_BOUNDS = [(1, DEPOTS), (0, HALVES)], [(0, LORRIES), (0.0, 1.0)]
Cost = Callable[[float, float, float, float], float]
Effort = Callable[[float, float, float], float]
TIE = 1e-9  # costs of lorries that differ by less tie


@dataclass(frozen=True, slots=True)
class Known:
    """A problem and its optimal F."""

    problem: Problem
    F: float


def made(name: str, F: Cost, f: Cost, effort: Effort, budget: float = np.inf) -> Known:
    """Make a problem of costs of (depots, price, lorries, effort), and enumerate its answer.

    `effort` gives the best effort for (depots, price, lorries). Depots may cost `budget` at most.
    """

    def spend(depots: float, price: float) -> float:
        return 3.0 * depots + price - budget

    def upper(x: Any, y: Any) -> float:
        return F(x[0], x[1] / 2, y[0], y[1])

    def lower(x: Any, y: Any) -> float:
        return f(x[0], x[1] / 2, y[0], y[1])

    best = np.inf
    for depots, half in product(range(1, DEPOTS + 1), range(HALVES + 1)):
        price = half / 2
        if spend(depots, price) > 0:
            continue
        answers = [(k, effort(depots, price, k)) for k in range(LORRIES + 1)]
        costs = np.array([f(depots, price, *answer) for answer in answers])
        ties = np.flatnonzero(costs <= costs.min() + TIE)
        best = min(best, *(F(depots, price, *answers[i]) for i in ties), np.inf)
    G = None if budget == np.inf else lambda x, y: [spend(x[0], x[1] / 2)]
    problem = Problem(
        upper,
        lower,
        X_BOUNDS,
        Y_BOUNDS,
        G,
        name=name,
        x_integrality=1,
        y_integrality=[1, 0],
    )
    return Known(problem, float(best))


def clipped(value: float) -> float:
    return float(np.clip(value, 0.0, 1.0))


def smooth() -> Known:
    """The follower sends lorries as the price asks for; more effort pays with more depots."""

    def effort(depots: float, price: float, lorries: float) -> float:
        return clipped(0.2 + 0.03 * depots + 0.01 * lorries)

    def f(depots: float, price: float, lorries: float, e: float) -> float:
        wish = 4 + 1.3 * depots - 0.6 * price
        return (lorries - wish) ** 2 + 8 * (e - (0.2 + 0.03 * depots + 0.01 * lorries)) ** 2

    def F(depots: float, price: float, lorries: float, e: float) -> float:
        return 2.5 * depots - price * lorries * (0.4 + e) + 0.35 * float(lorries**1.5)

    return made("newcomer-smooth", F, f, effort)


def rippled() -> Known:
    """Lorries come in teams of about four, so that the follower has several local answers."""

    def effort(depots: float, price: float, lorries: float) -> float:
        return clipped(0.5 + 0.4 * float(np.sin(0.3 * depots + 0.2 * lorries)))

    def f(depots: float, price: float, lorries: float, e: float) -> float:
        wish = 26 - 0.9 * price - 0.35 * depots
        teams = 9 * np.cos(np.pi * lorries / 2 + 0.4 * depots)
        return (
            0.3 * (lorries - wish) ** 2
            + float(teams)
            + 5 * (e - effort(depots, price, lorries)) ** 2
        )

    def F(depots: float, price: float, lorries: float, e: float) -> float:
        return (depots - 0.5 * lorries) ** 2 + 40 / (1 + price) - 1.1 * lorries + 6 * e

    return made("newcomer-rippled", F, f, effort)


def bounded() -> Known:
    """Depots and prices must be paid from a budget, and the follower weighs price by effort."""

    def effort(depots: float, price: float, lorries: float) -> float:
        return clipped((price + 0.5 * depots) / (2 + lorries))

    def f(depots: float, price: float, lorries: float, e: float) -> float:
        wished = effort(depots, price, lorries)
        load = 90 / (1 + lorries) + 0.25 * lorries * (1 + 0.1 * price)
        return load + 12 * (e - wished) ** 2 + 0.02 * (lorries - 2 * depots) ** 2

    def F(depots: float, price: float, lorries: float, e: float) -> float:
        return 120 / (depots + lorries * (0.3 + e)) + 0.4 * depots - 0.9 * price * (1 - e)

    return made("newcomer-bounded", F, f, effort, budget=45.0)


NEWCOMER = (smooth(), rippled(), bounded())
