"""Compare a follower's answers, and report a pair before any follower is solved."""

from __future__ import annotations

import math

from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import LeaderState, evaluate_leader
from bilevo.core.arrays import FloatArray
from bilevo.core.order import order_key
from bilevo.core.request import Incumbent, Procedure, Values

ROUNDING = 1e-9  # Smaller changes of f count as none; in units of the scale of f.


def best_answer(pairs: list[Pair]) -> Pair:
    """Return the best of several answers to one leader, in the follower's order."""
    return min(pairs, key=lambda pair: order_key(pair.f, pair.lower_violation))


def misjudged(state: LeaderState, pair: Pair, again: Pair) -> bool:
    """Tell whether a second answer of the follower is better by more than rounding."""
    if pair.lower_violation != again.lower_violation:
        return again.lower_violation < pair.lower_violation
    return pair.f - again.f > state.f_scale.tolerance(ROUNDING)


def corrected(state: LeaderState, pair: Pair, again: Pair) -> Procedure[Pair]:
    """Return a pair, or evaluate and return the second answer `again` if that is better."""
    if not misjudged(state, pair, again):
        return pair
    yield from evaluate_leader(state, again)
    return pair if math.isinf(again.violation) else again  # a failed evaluation replaces nothing


def first_incumbent(x: FloatArray, y: FloatArray, upper: Values, lower: Values) -> Incumbent:
    """Return the first of some evaluated pairs as an `Incumbent`, which reports a best pair."""
    violation = float(upper.violation[0]) + float(lower.violation[0])
    F, f = float(upper.objective[0]), float(lower.objective[0])
    return without_failed_F(Incumbent(x[0], y[0], F, f, violation))


def without_failed_F(best: Incumbent) -> Incumbent:
    """Return the incumbent, with an infinite F if an evaluation at either level failed."""
    return best if best.violation < math.inf else best._replace(F=math.inf)
