"""An algorithm driven by hand: a formula answers its requests, without a run around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import FullBudget
from bilevo.core.problem import Spec
from bilevo.core.request import Evaluate, Incumbent, Level, Procedure, Request, T, Values, run
from bilevo.run.request_checks import RequestChecks

Formula = Callable[[Level, FloatArray, FloatArray], Any]


class Driven:
    """Answers an algorithm's requests by a formula in the unit box.

    `formula(level, x, y)` takes x (k, m) and y (k, n). It returns objectives (k,), or a tuple of
    these and constraints (k, c). `counts` holds the number of points of each level, `asked` the
    requests for values, and `told` the best pairs that the algorithm has reported. Requests that
    break the rules raise `BadRequest`.

    >>> from bilevo.algorithms import BLCMAES
    >>> driven = Driven(lambda level, x, y: ((y - x) ** 2).sum(axis=1), m=2, n=2)
    >>> method, spec = BLCMAES(), driven.spec(seed=3)
    >>> state = driven.run(method.init(spec))
    >>> state = driven.run(method.generation(spec, state))
    >>> len(driven.told) > 0 and driven.counts[Level.LOWER] > 100
    True
    """

    def __init__(self, formula: Formula, m: int, n: int) -> None:
        self.m, self.n = m, n
        self.counts = dict.fromkeys(Level, 0)
        self.asked: list[Evaluate] = []
        self.told: list[Incumbent] = []
        self._formula = formula
        self._checks = RequestChecks(self.spec(), None)

    def spec(self, seed: int = 1, **others: Any) -> Spec:
        """Return what an algorithm sees of the problem; other fields of `Spec` may be given."""
        usual = {
            "budget": FullBudget.for_size(self.m, self.n),
            "spread": np.full(self.m + self.n, 0.3),
        }
        return Spec(self.m, self.n, seed, **{**usual, **others})

    def run(self, procedure: Procedure[T]) -> T:
        """Answer a procedure's requests to its end, and return what it returns."""
        return run(procedure, self.answer)

    def answer(self, request: Request) -> Values | None:
        """Check a request, keep it, and return the values; an `Incumbent` gets None."""
        self._checks.check(request)
        if isinstance(request, Incumbent):
            self.told.append(request)
            return None
        assert isinstance(request, Evaluate)
        self.asked.append(request)
        self.counts[request.level] += len(request.x)
        return self.values(request)

    def values(self, request: Evaluate) -> Values:
        """Return the formula's values at the points of a request."""
        found = self._formula(*request)
        objective, constraints = found if isinstance(found, tuple) else (found, None)
        if constraints is None:
            constraints = np.empty((len(request.x), 0))
        return Values.of(
            np.asarray(objective), np.asarray(constraints), 0, self.counts[request.level]
        )
