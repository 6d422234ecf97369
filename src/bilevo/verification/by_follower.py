"""Verification of several followers, one by one.

With the answers of the others fixed, each follower has a problem of its own. It is verified as that
of a single follower is: by independent searches, or by its own solver. The largest gap that this
shows is the residual: the most that a follower could gain by changing its answer alone. For an
equilibrium, new starts of the game's solver come first. They may find other equilibria.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bilevo.algorithms.shared.independent_search import Effort
from bilevo.core.arrays import FloatArray
from bilevo.core.one_follower import problem_of_one, seen_by_one
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.result import Certificate
from bilevo.core.stance import Stance
from bilevo.core.streams import SEED_LIMIT, stream
from bilevo.run.session import Stopped
from bilevo.verification.by_search import verify_by_search
from bilevo.verification.by_solver import verify_by_solver
from bilevo.verification.certificate import Tie, constraints_in_words
from bilevo.verification.follower_problem import Answer, Claim, Evaluations, Settings
from bilevo.verification.inexact import settled


def verify_each(
    problem: Problem, claim: Claim, seed: int, effort: Effort, settings: Settings | None = None
) -> Certificate:
    """Return the certificate of a result's pair where a problem has several followers."""
    used = settings or Settings()
    starts = None
    if problem.follower is not None:
        starts = verify_by_solver(problem, claim, seed, effort, used)
        used = _after(used, starts)
    found: list[Certificate] = []
    for i in range(len(problem.blocks)):
        found.append(_verify_one(problem, i, claim, seed, effort, used))
        used = _after(used, found[-1])
    return _joined(problem, claim, found, starts, replace(used, workers=None))


def _after(settings: Settings, made: Certificate) -> Settings:
    """Return the settings with the limit that is left after a certificate was made."""
    limits, spent = settings.limits, made.nfev_lower + made.nfev_upper
    return replace(settings, limits=replace(limits, evals=max(0, limits.evals - spent)))


def _verify_one(
    problem: Problem, i: int, claim: Claim, seed: int, effort: Effort, settings: Settings
) -> Certificate:
    """Verify the answer of follower `i`. It is searched in this thread: workers know other jobs."""
    one = problem_of_one(problem, i)
    z, own = seen_by_one(problem, i, claim.x, claim.y), claim.y[problem.blocks[i]]
    told = Claim(z, own, claim.F, math.nan, claim.violation)
    by = verify_by_search if one.follower is None else verify_by_solver
    settings = replace(settings, stance=Stance.OPTIMISTIC)  # it chooses among equilibria only
    own_seed = int(stream(seed, "verify one", i).integers(SEED_LIMIT))
    return by(one, told, own_seed, effort, replace(settings, workers=None))


def _joined(
    problem: Problem,
    claim: Claim,
    found: list[Certificate],
    starts: Certificate | None,
    settings: Settings,
) -> Certificate:
    """Return one certificate for all followers."""
    made = [*found] if starts is None else [starts, *found]
    residual = max(one.follower_gap for one in found)
    confirmed = all(one.confirmed for one in found)
    if starts is not None and settings.stance is Stance.PESSIMISTIC:
        confirmed &= starts.confirmed  # no start found an equilibrium that is worse for the leader
    y = claim.y.copy()
    for block, one in zip(problem.blocks, found, strict=True):
        y[block] = one.y
    total: dict[Level, int] = {
        Level.LOWER: sum(one.nfev_lower for one in made),
        Level.UPPER: sum(one.nfev_upper for one in made),
    }
    F, feasible, excess = claim.F, all(one.feasible for one in found), 0.0
    if not np.array_equal(y, claim.y) and settings.limits.evals >= 1:
        evaluations = Evaluations(problem, settings)
        joint = _joint_answer(problem, claim, y, evaluations)
        F, feasible, excess = joint.F, bool(joint.upper.violation[0] == 0), joint.excess
        total[Level.UPPER] += evaluations.counts[Level.UPPER]
    f = 0.0 if starts is not None else claim.f - sum(max(0.0, one.follower_gap) for one in found)
    known = [value for one in made for value in (one.F_best, one.F_worst) if np.isfinite(value)]
    return Certificate(
        y=y,
        F=F,
        f=f,
        follower_gap=residual,
        feasible=feasible,
        nfev_lower=total[Level.LOWER],
        nfev_upper=total[Level.UPPER],
        message=_message(found, starts, residual, confirmed)
        + (constraints_in_words(feasible, excess) if confirmed else ""),
        confirmed=confirmed,
        effort=found[0].effort,
        searches=sum(one.searches for one in made),
        agreeing=sum(one.agreeing for one in made),
        indifferent=any(one.indifferent for one in made),
        F_best=min(known, default=F),
        F_worst=max(known, default=F),
        failures=sum(one.failures for one in made),
    )


def _joint_answer(problem: Problem, claim: Claim, y: FloatArray, evaluations: Evaluations) -> Tie:
    """Return the followers' joint answer with the leader's values there."""

    def pair(y: FloatArray) -> Tie:
        upper = evaluations(Level.UPPER, claim.x, y[None].copy())
        return Tie(Answer(y, math.nan, math.nan), upper)

    joint = pair(y)
    if joint.upper.violation[0] > 0:
        with suppress(Stopped):
            return settled(problem, claim.x, pair(claim.y), [joint], evaluations)[0]
    return joint


def _message(
    found: list[Certificate], starts: Certificate | None, residual: float, confirmed: bool
) -> str:
    """Return what was found, in words."""
    if not confirmed:
        doubts = [
            f"follower {i + 1}: {one.message}" for i, one in enumerate(found) if not one.confirmed
        ]
        if not doubts and starts is not None:
            doubts = [f"among equilibria: {starts.message}"]
        return "; ".join(doubts)
    kind = "answers are confirmed" if starts is None else "equilibrium is confirmed"
    text = f"the followers' {kind}: none gains more than {residual:.2g} by another answer"
    if starts is not None and starts.indifferent:
        between = f"{starts.F_best:.8g} to {starts.F_worst:.8g}"
        text += f"; other equilibria were found, with F from {between}"
    return text
