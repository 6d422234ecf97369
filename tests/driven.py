"""Drives parts of an algorithm on a problem's functions, without a run around them."""

from __future__ import annotations

import numpy as np

import bilevo
from bilevo.core.request import Evaluate, Level, Values
from bilevo.core.space import UnitBox
from bilevo.testing import Driven as DrivenByFormula


class Driven(DrivenByFormula):
    """A problem in the unit box that answers requests, counts points and keeps best pairs."""

    def __init__(self, problem: bilevo.Problem) -> None:
        super().__init__(lambda level, x, y: None, problem.m, problem.n)
        self.problem = problem
        self.x_box, self.y_box = UnitBox(problem.x_bounds), UnitBox(problem.y_bounds)

    def response(self, x: np.ndarray) -> np.ndarray:
        """The follower's known answer to a leader's x (m,), in the unit box."""
        assert self.problem.response is not None
        answer = self.problem.response(self.x_box.real(x[None]))
        return np.asarray(self.y_box.unit(answer[0]))

    def values(self, request: Evaluate) -> Values:
        x, y = self.x_box.real(request.x), self.y_box.real(request.y)
        F, G, f, g = self.problem.evaluate(x, y)
        objective, constraints = (F, G) if request.level is Level.UPPER else (f, g)
        repeats = self.problem.repeats(request.level)
        return Values.of(objective, constraints, repeats, self.counts[request.level])
