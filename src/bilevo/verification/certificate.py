"""The certificate of an answer: what was found, and whether that confirms the answer.

Its message says both in words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.shared.follower_search import TieFindings
from bilevo.algorithms.shared.ties import preferred
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Level, Values
from bilevo.core.result import Certificate
from bilevo.core.stance import Stance
from bilevo.core.tolerances import SAME, alike, rounding
from bilevo.verification.follower_problem import Answer, Claim

UNKNOWN = Values(np.full(1, np.nan), np.full(1, np.inf), np.empty((1, 0)), 0)  # not evaluated
# Two evaluations of one pair agree if they differ by less than this, relative to their values.
# A vectorized function may round differently in a batch of another size.
AGREES = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Tie:
    """An answer with the best f, in the user's units, and the leader's values there (one row).

    `excess` is the violation of G that only comes from the error of y, and is left out of `upper`.
    """

    answer: Answer
    upper: Values
    excess: float = 0.0

    @property
    def F(self) -> float:
        return float(self.upper.objective[0])


@dataclass(slots=True, eq=False)
class Evidence:
    """What a verification has found out so far. Answers are in the user's units."""

    claimed: Tie  # the result's pair, with the values that the functions give now
    best: Answer  # the best answer for the follower
    width: FloatArray  # width (n,) of the follower's box
    ties: list[Tie] = field(default_factory=list)  # answers with the best answer's f
    negligible: float = 0.0  # the largest difference of f that does not count
    searches: int = 0  # how many independent searches were made
    agreeing: int = 0  # how many of them ended at the best f
    indifferent: bool = False  # whether some ties lie apart
    hidden: float = 0.0  # up to this fraction of the box, rounding of f hides answers with other F
    steps: str = ""  # which functions change in steps, and what to do about it
    missing: str = ""  # why the searches are not complete; "" if they are
    note: str = ""  # a remark for the end of the message
    one_sided: bool = False  # whether ties were not searched for both stances
    stance: Stance = Stance.OPTIMISTIC
    tie_tol: float | None = None  # how much larger the f of a tie may be; None: `negligible`

    @property
    def allowed(self) -> float:
        """Return the largest difference of f with which an answer still counts as the best."""
        return max(self.negligible, self.tie_tol or 0.0)

    @property
    def gap(self) -> float:
        """Return how far the claimed f is above the best f; inf if the claimed y violates g."""
        claimed = self.claimed.answer
        if claimed.violation > 0:
            return math.inf
        return 0.0 if claimed is self.best else claimed.f - self.best.f

    @property
    def is_same(self) -> bool:
        """Tell whether the claimed answer equals one of the ties, except in its last digits."""
        y = self.claimed.answer.y
        return any(
            (np.abs(tie.answer.y - y) <= SAME * self.width).all() and alike(tie.F, self.claimed.F)
            for tie in self.ties
        )


def make_certificate(
    found: Evidence, told: Claim, effort: str, counts: dict[Level, int], failures: int
) -> Certificate:
    """Return the certificate: the tie that the leader expects, and what was found, in words.

    `told` is the pair with the values that the result reports.
    """
    F, violation = (np.concatenate([t.upper[i] for t in found.ties]) for i in (0, 1))
    upper = Values(F, violation, np.empty((len(F), 0)), 0)
    best, worst = (found.ties[preferred(upper, stance)] for stance in Stance)
    chosen = best if found.stance is Stance.OPTIMISTIC else worst
    feasible = bool(chosen.upper.violation[0] == 0 and chosen.answer.violation == 0)
    negligible = found.gap <= found.allowed or (math.isfinite(found.gap) and found.is_same)
    doubt = _doubt(found, told) or _worse_tie(found, worst)
    confirmed = found.best.violation == 0 and negligible and not doubt
    return Certificate(
        y=chosen.answer.y,
        F=chosen.F,
        f=chosen.answer.f,
        follower_gap=found.gap,
        feasible=feasible,
        nfev_lower=counts[Level.LOWER],
        nfev_upper=counts[Level.UPPER],
        message=_message(found, negligible, doubt, chosen, (best.F, worst.F), feasible),
        confirmed=confirmed,
        effort=effort,
        searches=found.searches,
        agreeing=found.agreeing,
        indifferent=found.indifferent,
        F_best=best.F,
        F_worst=worst.F,
        failures=failures,
        ties="" if found.missing or found.one_sided else TieFindings.of(best.F, worst.F).ties,
    )


def _doubt(found: Evidence, told: Claim) -> str:
    """Return why an answer is not confirmed even if nothing better was found.

    Returns "" if there is no reason for doubt.
    """
    claimed = found.claimed
    for name, now, before in (("F", claimed.F, told.F), ("f", claimed.answer.f, told.f)):
        # For f, a difference that is negligible at this x is no contradiction.
        slight = max(found.negligible if name == "f" else 0.0, rounding(now))
        if not _agree(now, before, slight):
            return f"{name} of the result is {before:.8g}, but its x and y give {now:.8g} now"
    if found.missing:
        return found.missing
    if found.hidden:
        return (
            "f does not resolve the follower's answer because of rounding: answers within "
            f"{found.hidden:.1g} of its box have the same f"
        )
    return found.steps


def _worse_tie(found: Evidence, worst: Tie) -> str:
    """Return what speaks against a pessimistic leader's answer: a tie that is worse for F."""
    claimed = found.claimed
    if found.stance is Stance.OPTIMISTIC or not math.isfinite(worst.F):
        return ""
    if worst.upper.violation[0] > 0 == claimed.upper.violation[0]:
        return "the follower has another answer as good for it, which violates the leader's G"
    if worst.F <= claimed.F or alike(claimed.F, worst.F):
        return ""
    return f"the follower has another answer as good for it, with a worse F = {worst.F:.8g}"


def _agree(now: float, before: float, slight: float) -> bool:
    """Tell whether two values are the same; also True if one of the two is not known."""
    if math.isnan(now) or not math.isfinite(before):
        return True
    return now == before or math.isclose(now, before, rel_tol=AGREES, abs_tol=slight)


def _message(
    found: Evidence,
    negligible: bool,
    doubt: str,
    chosen: Tie,
    ends: tuple[float, float],
    feasible: bool,
) -> str:
    """Return what a certificate means, in words; semicolons separate the parts."""
    if math.isnan(found.gap):
        text = "not confirmed: nothing was evaluated"
    elif math.isinf(found.best.violation):
        text = "no finite value of the follower was found at this x"
    elif found.best.violation > 0:
        text = "no feasible follower answer was found at this x"
    else:
        text = f"{_verdict(found, negligible, doubt)}{_leader(chosen, feasible)}"
        text += _ties(found, *ends)
    if doubt and (not negligible or found.best.violation > 0):
        text += f"; {doubt}"
    return f"{text}; {found.note}" if found.note else text


def _ties(found: Evidence, F: float, worst: float) -> str:
    """Return the message's part on the follower's indifference; "" if there is nothing to say."""
    if not found.indifferent or not (math.isfinite(F) and math.isfinite(worst)):
        return ""
    if alike(F, worst):
        return "; the follower is indifferent, with the same F at all its answers found"
    return (
        f"; the follower is indifferent: F is from {F:.8g} to {worst:.8g} among its answers found"
    )


def _verdict(found: Evidence, negligible: bool, doubt: str) -> str:
    """Return the first part of the message, up to where F follows."""
    if math.isinf(found.gap):
        return "y is infeasible for the follower; at its best answer"
    if not negligible:
        return f"the follower has an answer better by {found.gap:.3g}; there"
    if doubt:
        return f"not confirmed: {doubt};"
    if found.gap > found.allowed:
        same = f"only the same one to {SAME:g} of its box, where f is {found.gap:.3g} less"
        return f"confirmed: the follower has no better answer, {same};"
    return "confirmed: the follower has no better answer;"


def _leader(chosen: Tie, feasible: bool) -> str:
    """Return the message's part on the leader: F, and whether a constraint is violated."""
    if math.isnan(chosen.F):
        return " F was not evaluated"
    if math.isinf(chosen.F):
        return " F has no finite value"
    return f" F = {chosen.F:.8g}{constraints_in_words(feasible, chosen.excess)}"


def constraints_in_words(feasible: bool, excess: float) -> str:
    """Return whether a constraint is violated, in words; "" if there is nothing to say."""
    if not feasible:
        return ", and a constraint is violated"
    return f", and constraints are met within the error of y ({excess:.2g})" if excess else ""
