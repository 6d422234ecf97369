"""Drives parts of an algorithm on a problem's functions, without a run around them."""

from __future__ import annotations

from typing import Any

import numpy as np

import bilevo
from bilevo.core.budget import FullBudget
from bilevo.core.problem import Spec
from bilevo.core.request import Evaluate, Incumbent, Level, Steps, T, Values
from bilevo.core.space import UnitBox


class Driven:
    """A problem in the unit box that answers requests, counts points and keeps best pairs."""

    def __init__(self, problem: bilevo.Problem) -> None:
        self.problem = problem
        self.x_box, self.y_box = UnitBox(problem.x_bounds), UnitBox(problem.y_bounds)
        self.counts = {Level.UPPER: 0, Level.LOWER: 0}
        self.told: list[Incumbent] = []

    def spec(self, seed: int = 1, **others: Any) -> Spec:
        m, n = self.problem.m, self.problem.n
        return Spec(m, n, seed, FullBudget.for_size(m, n), np.full(m + n, 0.3), **others)

    def response(self, x: np.ndarray) -> np.ndarray:
        """The follower's known answer to a leader's x (m,), in the unit box."""
        assert self.problem.response is not None
        answer = self.problem.response(self.x_box.real(x[None]))
        return np.asarray(self.y_box.unit(answer[0]))

    def run(self, steps: Steps[T]) -> T:
        """What the part returns."""
        values = None
        while True:
            try:
                request = steps.send(values)
            except StopIteration as end:
                result: T = end.value
                return result
            values = None
            if isinstance(request, Evaluate):
                values = self.values(request)
            else:
                self.told.append(request)

    def values(self, request: Evaluate) -> Values:
        x, y = self.x_box.real(request.x), self.y_box.real(request.y)
        F, G, f, g = self.problem.evaluate(x, y)
        self.counts[request.level] += len(x)
        objective, constraints = (F, G) if request.level is Level.UPPER else (f, g)
        repeats = self.problem.repeats(request.level)
        return Values.of(objective, constraints, repeats, self.counts[request.level])
