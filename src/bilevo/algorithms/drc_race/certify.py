"""The certificate of drc-race: the solver is started again at the answer's x.

A new start is a new task, with other random numbers. If its answer is better for the follower, the
old answer is refuted, and the new one replaces it. The answer is certified as soon as two searches
of the solver agree on it; the search that first found it is one of them. A solver that uses no
random numbers always agrees with itself: `bilevo.verify` with a second solver says more.

All equilibria of several followers have the same f, so another start may rightly end at another
equilibrium. There, a new start begins at the answer, and looks whether a follower would leave it.
If the start ends elsewhere, the answer was no equilibrium, and is refuted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from bilevo.algorithms.shared.follower_search import FollowerCheck, Pair, SolverSearch
from bilevo.algorithms.shared.leader import LeaderState, solver_searches
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure
from bilevo.core.tolerances import NEGLIGIBLE, SAME

MAX_STARTS = 3  # The most new starts in a check.
DOUBT = "starts of the solver disagree, {agree} of {of} ended at its best value"


@dataclass(slots=True, eq=False)
class Check:
    """New starts of the solver at the x of the pair `tested`; `size` (n,) is the usual |y|."""

    tested: Pair
    size: FloatArray
    spent: int = 0  # cost of the starts
    starts: list[SolverSearch] = field(default_factory=list)
    found: SolverSearch | None = None  # the start whose answer refutes the tested one, if any does
    equilibrium: bool = False  # whether starts begin at the best answer

    @property
    def best(self) -> Pair:
        return self.tested if self.found is None else self.found.answer

    @property
    def agreeing(self) -> int:
        """Return how many starts agree with the best answer."""
        return sum(self.agrees(start.answer) for start in self.starts)

    @property
    def certified(self) -> bool:
        return self.agreeing + self.agrees(self.tested) > 1

    @property
    def verdict(self) -> FollowerCheck:
        """Return what the starts say about the best answer."""
        lowest = min([start.answer.f for start in self.starts if self.agrees(start.answer)] + [inf])
        return FollowerCheck(
            gap=max(0.0, self.best.f - lowest),
            certified=self.certified,
            searches=len(self.starts),
            agreeing=self.agreeing,
            check_evals=self.spent,
            doubt="" if self.certified else DOUBT.format(agree=self.agreeing, of=len(self.starts)),
        )

    def agrees(self, answer: Pair) -> bool:
        """Tell whether an answer agrees with the best answer.

        The solver must have been done with it, and its y or its f must be that of the best answer,
        within a tolerance.
        """
        best = self.best
        if not answer.converged or answer.lower_violation != best.lower_violation:
            return False
        near = abs(answer.y - best.y) <= SAME * np.maximum(self.size, abs(best.y))
        alike = abs(answer.f - best.f) <= self.tolerance and not self.equilibrium
        return bool(near.all()) or alike

    @property
    def tolerance(self) -> float:
        """Return the largest difference of f that does not count."""
        f = [self.best.f, *(start.answer.f for start in self.starts)]
        finite = [value for value in f if isfinite(value)]
        return NEGLIGIBLE * (abs(self.best.f) + max(finite) - min(finite))

    def add(self, start: SolverSearch) -> None:
        """Add a start that has ended; its answer becomes the best one if it is better."""
        self.starts.append(start)
        new, best = start.answer, self.best
        better = not best.follower_no_worse(new)
        if new.lower_violation == best.lower_violation:
            better = new.f < best.f - self.tolerance
        if self.equilibrium:
            better = not self.agrees(new)
        if better and start.converged:
            self.found = start


def check_elite(
    spec: Spec, state: LeaderState, elite: Pair, size: FloatArray, spent: int
) -> Procedure[Check]:
    """Start the solver again at the elite's x until two answers agree, at most `MAX_STARTS` times.

    `spent` is the solver's total cost before the check.
    """
    check = Check(elite, size, equilibrium=spec.equilibrium)
    while not check.certified and len(check.starts) < MAX_STARTS:
        (start,) = solver_searches(spec, state, elite.x[None])
        if spec.equilibrium:
            start.near = check.best.task
        yield from start.solve()
        check.spent = start.spent - spent
        check.add(start)
    check.best.check = check.verdict
    return check


def is_sound(pair: Pair) -> bool:
    """Tell whether a pair is feasible, and its solver was done."""
    return pair.converged and pair.violation == 0


def needs_check(pair: Pair) -> bool:
    """Tell whether a pair is sound but has not been checked; a check may make it a success."""
    return is_sound(pair) and pair.check is None
