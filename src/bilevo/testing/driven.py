"""An algorithm driven by hand: a formula answers its requests, without a run around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import FullBudget
from bilevo.core.problem import Spec
from bilevo.core.request import (
    Derive,
    Evaluate,
    Incumbent,
    Level,
    Procedure,
    Request,
    Slopes,
    T,
    Values,
    run,
)
from bilevo.core.slopes import NO_SLOPES, SlopesGiven
from bilevo.run.request_checks import RequestChecks

Formula = Callable[[Level, FloatArray, FloatArray], Any]


class Driven:
    """Answers an algorithm's requests by a formula in the unit box.

    `formula(level, x, y)` takes x (k, m) and y (k, n). It returns objectives (k,), or a tuple of
    these and constraints (k, c). `counts` holds the number of points of each level, `asked` the
    requests for values, and `told` the best pairs that the algorithm has reported. Requests that
    break the rules raise `BadRequest`.

    `slopes(level, x, y)` may give gradients: it returns a tuple of derivatives of the objective
    along x (k, m) and y (k, n) and, if there are constraints, theirs, (k, c, m) and (k, c, n).
    `gradients` holds the number of points of each level at which they were asked for.

    >>> from bilevo.algorithms import BLCMAES
    >>> driven = Driven(lambda level, x, y: ((y - x) ** 2).sum(axis=1), m=2, n=2)
    >>> method, spec = BLCMAES(), driven.spec(seed=3)
    >>> state = driven.run(method.init(spec))
    >>> state = driven.run(method.generation(spec, state))
    >>> len(driven.told) > 0 and driven.counts[Level.LOWER] > 100
    True
    """

    def __init__(self, formula: Formula, m: int, n: int, slopes: Formula | None = None) -> None:
        self.m, self.n = m, n
        self.counts, self.gradients = dict.fromkeys(Level, 0), dict.fromkeys(Level, 0)
        self.asked: list[Evaluate] = []
        self.told: list[Incumbent] = []
        self._formula, self._slopes = formula, slopes
        self._checks = RequestChecks(self.spec(), None)

    def spec(self, seed: int = 1, **others: Any) -> Spec:
        """Return what an algorithm sees of the problem; other fields of `Spec` may be given."""
        usual = {
            "budget": FullBudget.for_size(self.m, self.n),
            "spread": np.full(self.m + self.n, 0.3),
            "slopes": NO_SLOPES if self._slopes is None else SlopesGiven(*[True] * 4),
        }
        return Spec(self.m, self.n, seed, **{**usual, **others})

    def run(self, procedure: Procedure[T]) -> T:
        """Answer a procedure's requests to its end, and return what it returns."""
        return run(procedure, self.answer)

    def answer(self, request: Request) -> Values | Slopes | None:
        """Check a request, keep it, and return the values; an `Incumbent` gets None."""
        self._checks.check(request)
        if isinstance(request, Incumbent):
            self.told.append(request)
            return None
        if isinstance(request, Derive):
            return self.slopes(request)
        assert isinstance(request, Evaluate)
        self.asked.append(request)
        self.counts[request.level] += len(request.x)
        return self.values(request)

    def slopes(self, request: Derive) -> Slopes:
        """Return the formula's slopes at the points of a request."""
        assert self._slopes is not None
        k = len(request.x)
        self.gradients[request.level] += k
        unconstrained = np.empty((k, 0, self.m)), np.empty((k, 0, self.n))
        parts = [*map(np.asarray, self._slopes(*request)), *unconstrained]
        objective_x, objective_y, constraints_x, constraints_y = parts[:4]
        spent = self.gradients[request.level]
        return Slopes(objective_x, objective_y, constraints_x, constraints_y, spent)

    def values(self, request: Evaluate) -> Values:
        """Return the formula's values at the points of a request."""
        found = self._formula(*request)
        objective, constraints = found if isinstance(found, tuple) else (found, None)
        if constraints is None:
            constraints = np.empty((len(request.x), 0))
        return Values.of(
            np.asarray(objective), np.asarray(constraints), 0, self.counts[request.level]
        )
