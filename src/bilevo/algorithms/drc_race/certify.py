"""The certificate of drc-race: the solver is started again at the answer's x.

A new start is a new task, with other random numbers. Where its answer is better for the follower,
it replaces the old one, which is refuted. The answer is certified as soon as two starts agree. A
solver without random numbers agrees with itself: `bilevo.verify` with another solver says more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from bilevo.algorithms.shared.follower_search import Pair, SolverSearch
from bilevo.algorithms.shared.leader import LeaderState, solver_searches
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Incumbent, Procedure

MOST_STARTS = 3
SAME_VALUE = 1e-9  # of the size and the spread of f: answers this near in f agree
SAME_ANSWER = 1e-6  # of the usual size of y: answers this near to each other agree


@dataclass(slots=True, eq=False)
class Check:
    """New starts of the solver at a leader, and the best answer so far; `size` (n,) is y's."""

    best: Pair
    size: FloatArray
    spent: int = 0  # cost of the starts
    starts: list[SolverSearch] = field(default_factory=list)
    found: SolverSearch | None = None  # the start that found the best answer, if one did

    @property
    def agreeing(self) -> int:
        """Return how many starts agree with the best answer."""
        return sum(self.agrees(start) for start in self.starts)

    @property
    def certified(self) -> bool:
        return self.agreeing > (self.found is not None)

    @property
    def incumbent(self) -> Incumbent:
        """Return the best answer with its certificate."""
        lowest = min([start.answer.f for start in self.starts if self.agrees(start)], default=inf)
        return self.best.incumbent._replace(
            gap=max(0.0, self.best.f - lowest),
            certified=self.certified,
            searches=len(self.starts),
            agreeing=self.agreeing,
            check_evals=self.spent,
        )

    def agrees(self, start: SolverSearch) -> bool:
        """Tell whether a start was done, and has found the best answer."""
        answer, best = start.answer, self.best
        if not start.converged or answer.lower_violation != best.lower_violation:
            return False
        if np.all(abs(answer.y - best.y) <= SAME_ANSWER * np.maximum(self.size, abs(best.y))):
            return True
        return abs(answer.f - best.f) <= self.tolerance

    @property
    def tolerance(self) -> float:
        f = [start.answer.f for start in self.starts if isfinite(start.answer.f)]
        f.append(self.best.f)
        return SAME_VALUE * (abs(self.best.f) + max(f) - min(f))

    def add(self, start: SolverSearch) -> None:
        """Add a start that has ended; its answer is the best if it is better than rounding."""
        self.starts.append(start)
        if self.agrees(start) or not start.converged:
            return
        if not self.best.follower_no_worse(start.answer):
            self.best, self.found = start.answer, start


def check_elite(
    spec: Spec, state: LeaderState, elite: Pair, size: FloatArray, spent: int
) -> Procedure[Check]:
    """Start the solver again at the elite's x until two answers agree, or some starts are made.

    `spent` is the solver's cost before. An elite that is not sound is not checked: it is no success
    anyway.
    """
    check = Check(elite, size)
    while is_sound(elite) and not check.certified and len(check.starts) < MOST_STARTS:
        (start,) = solver_searches(spec, state, elite.x[None])
        yield from start.solve()
        check.spent = start.spent - spent
        check.add(start)
    return check


def is_sound(pair: Pair) -> bool:
    """Tell whether a pair is feasible, and its solver was done."""
    return pair.converged and pair.violation == 0
