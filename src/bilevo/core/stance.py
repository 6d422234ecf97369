"""What a leader expects of a follower that has several good answers: its stance, and what ties.

Answers tie if their f is at most `tie_tol` above the smallest one. An optimistic leader expects the
tie that is best for F, a pessimistic leader the worst one. Without a `tie_tol`, answers tie if
their f are equal at the precision of the run (see `bilevo.core.tolerances`).
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, Literal

from bilevo.core.arrays import FloatArray
from bilevo.core.checks import real_number, require, shown

StanceLike = Literal["optimistic", "pessimistic"]
NOT_SEARCHED = "not searched"  # what a result says about ties if nobody has looked for any


class Stance(StrEnum):
    """Which of the follower's ties the leader expects."""

    OPTIMISTIC = "optimistic"  # the best one for F
    PESSIMISTIC = "pessimistic"  # the worst one for F

    def seen(self, F: FloatArray) -> FloatArray:
        """Return F, or -F for a pessimistic leader, so that smaller is preferred."""
        return F if self is Stance.OPTIMISTIC else -F


def stance_of(given: Any) -> Stance:
    """Return the stance that a user names; refuse any other value."""
    known = isinstance(given, str) and given in list(Stance)
    require(known, "stance", " or ".join(f'"{one}"' for one in Stance), given)
    return Stance(given)


def tie_tol_of(given: Any) -> float | None:
    """Return the user's tolerance on f, or None for the precision of the run."""
    if given is None:
        return None
    value = real_number(given)
    if value is None or not 0 <= value < math.inf:
        what = "a number of 0 or more (a difference of f), or None for the precision of the run"
        raise ValueError(f"tie_tol must be {what}, got {shown(given)}")
    return float(value)
