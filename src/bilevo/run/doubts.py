"""Why a method's certificate is not accepted: reasons that the method itself does not see."""

from __future__ import annotations

from typing import Any

from bilevo.core.algorithm import Algorithm
from bilevo.core.problem import Problem
from bilevo.core.request import Incumbent, Procedure
from bilevo.core.space import UnitBox
from bilevo.run.plateaus import REMEDY, find_steps
from bilevo.run.warn import warn_user

# Why a certificate is not accepted where variables are whole.
UNFIT = "has no checks for whole numbers; leave the method out, or use bilevo.verify"


class Doubts:
    """The doubts about the best pairs of one run; `last` is the best pair of a run that resumes."""

    def __init__(self, problem: Problem, algorithm: Algorithm[Any], last: Incumbent | None) -> None:
        self._boxes = UnitBox(problem.x_bounds), UnitBox(problem.y_bounds)
        self._method, self._whole = algorithm.name, problem.has_whole
        # An algorithm of another package may lack these members.
        self._fit = not self._whole or getattr(algorithm, "whole", False)
        self._certifies = getattr(algorithm, "certifies", False)
        self._may_look = problem.follower is None and not self._whole
        known = last is not None and last.doubt.endswith(REMEDY)
        self._steps = last.doubt if last is not None and known else ""

    def judged(self, best: Incumbent, spent: int) -> Incumbent:
        """Return the best pair with no more than is known, after `spent` lower evaluations.

        Checks of a method that knows no whole numbers compare points of one cell with each other.
        """
        if self._whole:
            best = best._replace(check_evals=min(best.check_evals, spent))  # it includes repeats
        if self._steps:
            return best._replace(certified=False, doubt=self._steps)
        if self._fit or not best.certified:
            return best
        return best._replace(certified=False, doubt=f"{self._method} {UNFIT}")

    def look(self, best: Incumbent, first: bool, last: bool) -> Procedure[bool]:
        """Look for functions that change in steps; return True if that is new, and warn.

        This is done after the first generation of a method that certifies its answers, or after
        the one that its state names, and again after the last one if the best pair is certified.
        """
        due = (first and self._certifies) or (last and best.certified)
        if not (due and self._may_look) or self._steps:
            return False
        self._steps = yield from find_steps(best, self._boxes)
        if self._steps:
            warn_user(self._steps)
        return bool(self._steps)
