"""Measure the driver's time per request, with functions and an algorithm that do nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import bilevo
from benchmarks.timing import best_of
from bilevo.algorithms import DRC
from bilevo.core.algorithm import Algorithm
from bilevo.core.arrays import BoolArray, IntArray
from bilevo.core.budget import FullBudget, StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Evaluate, Incumbent, Level, Procedure
from bilevo.run.contract import Contract

REQUESTS = 20_000  # How many requests are timed.


@dataclass
class AsksState:
    stop: StopReason | None = None
    elite: Incumbent | None = None
    executions: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    survived: BoolArray = field(default_factory=lambda: np.zeros(1, np.bool_))


@dataclass(frozen=True)
class Asks(Algorithm[AsksState]):
    """An algorithm that does nothing but ask for the same batch again and again."""

    points: int
    name = "asks"
    revision = 1
    State = AsksState

    def init(self, spec: Spec) -> Procedure[AsksState]:
        yield from ()
        return AsksState()

    def generation(self, spec: Spec, state: AsksState) -> Procedure[AsksState]:
        x, y = np.full((self.points, spec.m), 0.5), np.full((self.points, spec.n), 0.5)
        for _ in range(REQUESTS):
            yield Evaluate(Level.LOWER, x, y)
        yield Evaluate(Level.UPPER, x, y)
        yield Incumbent(x[0], y[0], 0.0, 0.0, 0.0)
        state.stop = StopReason.BUDGET
        return state


def cost(m: int, n: int, points: int) -> float:
    """Return the microseconds that a request takes."""
    values = np.zeros(points)
    problem = bilevo.Problem(
        lambda x, y: values,
        lambda x, y: values,
        [(-5, 10)] * m,
        [(-5, 10)] * n,
        vectorized=True,
    )
    return best_of(5, lambda: bilevo.minimize(problem, method=Asks(points))) / REQUESTS * 1e6


def check_cost(algorithm: Algorithm[Any], m: int, n: int, points: int) -> float:
    """Return the microseconds that checking a request takes."""
    problem = bilevo.Problem(max, max, [(-5, 10)] * m, [(-5, 10)] * n)
    spec = Spec(m, n, 1, FullBudget.for_size(m, n), np.full(m + n, 0.3))
    check = Contract(algorithm, spec, problem).check
    request = Evaluate(Level.LOWER, np.full((points, m), 0.5), np.full((points, n), 0.5))

    def check_all() -> None:
        for _ in range(REQUESTS):
            check(request)

    return best_of(5, check_all) / REQUESTS * 1e6


if __name__ == "__main__":
    print("Cost of a request in the driver (vectorized objective that does nothing), best of 5.")
    print("Checks: the cost for a registered method (target: at most 3 us) and for another one.")
    for size in ((2, 3, 7), (10, 10, 10), (30, 30, 14)):
        m, n, points = size
        ours, others = (check_cost(method, *size) for method in (DRC(), Asks(points)))
        whole = f"({m},{n}), {points} points: {cost(*size):.1f} us"
        print(f"  {whole}; checks {ours:.1f} and {others:.1f} us")
