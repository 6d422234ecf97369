"""What the driver costs per request, measured with evaluations and an algorithm that do nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

import bilevo
from bilevo.core.algorithm import Algorithm
from bilevo.core.arrays import BoolArray, IntArray
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Evaluate, Incumbent, Level, Steps

REQUESTS = 20_000


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

    def init(self, spec: Spec) -> Steps[AsksState]:
        yield from ()
        return AsksState()

    def generation(self, spec: Spec, state: AsksState) -> Steps[AsksState]:
        x, y = np.full((self.points, spec.m), 0.5), np.full((self.points, spec.n), 0.5)
        for _ in range(REQUESTS):
            yield Evaluate(Level.LOWER, x, y)
        yield Incumbent(x[0], y[0], 0.0, 0.0, 0.0)
        state.stop = StopReason.BUDGET
        return state


def cost(m: int, n: int, points: int, repeats: int = 5) -> float:
    """Microseconds a request, best of several runs."""
    values = np.zeros(points)
    problem = bilevo.Problem(
        lambda x, y: values,
        lambda x, y: values,
        [(-5, 10)] * m,
        [(-5, 10)] * n,
        vectorized=True,
    )
    times = []
    for _ in range(repeats):
        start = perf_counter()
        bilevo.minimize(problem, method=Asks(points))
        times.append(perf_counter() - start)
    return min(times) / REQUESTS * 1e6


if __name__ == "__main__":
    print("driver cost per request (no-op vectorised objective), best of 5")
    for m, n, points in ((2, 3, 7), (10, 10, 10), (30, 30, 14)):
        print(f"  ({m},{n}), {points} points: {cost(m, n, points):.1f} us")
