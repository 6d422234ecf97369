"""Constraints of the leader that are violated only because no answer is known to its last digits.

A search finds the follower's answer up to a small error, and a leader at an active constraint uses
this error. So the result's y may meet the constraint, and the answer of `verify` may violate it,
although both are the same answer. Such a violation counts as met if three things hold:

- The result's y meets all of the leader's constraints within `ctol`.
- The two answers are closer than `SAME`.
- Each constraint that is positive differs between the two by no more than a distance of `SAME`
  changes it. How fast it changes is measured over the longer distance `NEAR`, on both sides. So a
  jump of the constraint between the two answers is no error of y.

All other violations count in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values, split
from bilevo.core.tolerances import NEAR, SAME
from bilevo.run.session import Stopped
from bilevo.verification.certificate import Tie
from bilevo.verification.follower_problem import Evaluations

SIDES = (-NEAR, NEAR)  # Where constraints are seen beside an answer, as fractions of the box.


def settled(
    problem: Problem, x: FloatArray, claimed: Tie, ties: Sequence[Tie], evaluations: Evaluations
) -> list[Tie]:
    """Return the ties; where only the error of y violates G, the violation is 0, and in `excess`.

    Nothing is changed if a limit leaves no room for the evaluations that this takes.
    """
    found = list(ties)
    doubtful = [i for i, tie in enumerate(found) if _is_doubtful(problem, claimed, tie)]
    if not doubtful:
        return found
    points = np.concatenate([_beside(problem, claimed, found[i]) for i in doubtful])
    with suppress(Stopped):
        sides = split(evaluations(Level.UPPER, x, points), [len(SIDES)] * len(doubtful))
        for i, seen in zip(doubtful, sides, strict=True):
            found[i] = _settled(problem, claimed, found[i], seen)
    return found


def _is_doubtful(problem: Problem, claimed: Tie, tie: Tie) -> bool:
    """Tell whether a tie violates G although the claimed pair meets it and is the same answer."""
    violation = float(tie.upper.violation[0])
    if claimed.upper.violation[0] != 0 or not (0 < violation < np.inf):
        return False
    bounds, apart = problem.y_bounds, np.abs(tie.answer.y - claimed.answer.y)
    close = (apart <= np.where(bounds.whole, 0.0, SAME * bounds.width)).all()
    return bool(close and apart.any())


def _beside(problem: Problem, claimed: Tie, tie: Tie) -> FloatArray:
    """Return points on both sides of a tie, on the line through it and the claimed answer."""
    bounds = problem.y_bounds
    width = np.where(bounds.width > 0, bounds.width, 1.0)
    line = (tie.answer.y - claimed.answer.y) / width
    line /= np.abs(line).max()
    points = tie.answer.y + np.array(SIDES)[:, None] * line * width
    return np.clip(points, bounds.lower, bounds.upper)


def _settled(problem: Problem, claimed: Tie, tie: Tie, sides: Values) -> Tie:
    """Return the tie without its violation if its distance from the claimed answer explains it."""
    count = tie.upper.constraints.shape[1] - problem.repeats(Level.UPPER)
    here, there = (pair.upper.constraints[0, :count] for pair in (tie, claimed))
    with np.errstate(all="ignore"):
        changes = np.abs(sides.constraints[:, :count] - here)
    changes = np.where(np.isfinite(changes), changes, 0.0).max(axis=0)
    if not (here - there <= SAME / NEAR * changes)[here > 0].all():
        return tie
    violation = np.zeros_like(tie.upper.violation)
    upper = tie.upper._replace(violation=violation)
    return replace(tie, upper=upper, excess=float(tie.upper.violation[0]))
