"""Local searches at either level: over y for a follower, over x with y*(x) for a leader."""

from __future__ import annotations

from functools import partial

import numpy as np

from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.shared.follower_search import Pair, evaluate_answers
from bilevo.algorithms.shared.leader import LeaderState, evaluate_leaders
from bilevo.algorithms.shared.sqp import LocalRule, sqp
from bilevo.algorithms.shared.ties import FlatSet, flat_directions
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Level, Procedure, Values, together

# The tolerance on f, in units of its scale. It is small, because errors of f are noise in F.
FOLLOWER_TOLERANCE = 1e-13
LEADER_TOLERANCE = 1e-9  # The tolerance on F, in units of its scale.
POLISH_DIFFERENCE = 1e-6  # The step of the leader's finite differences, as a fraction of the box.
ALLOWED = 1e-6  # Answers whose f differs by less are ties; in units of the scale of f.


def polish_follower(
    state: LeaderState, x: FloatArray, start: FloatArray, max_points: int
) -> Procedure[Pair]:
    """Search the follower's answer locally from a start; do not evaluate F."""

    def at(rows: FloatArray) -> Procedure[Values]:
        values = yield from evaluate_answers(x, rows)
        state.f_scale.see(values.objective)
        return values

    rule = LocalRule(max_points, state.f_scale.tolerance(FOLLOWER_TOLERANCE))
    box = np.zeros(len(start)), np.ones(len(start))
    answer = yield from sqp(at, start, *box, rule)
    return Pair(x, answer.point, answer.objective, answer.violation, converged=answer.converged)


def polish_leader(
    state: LeaderState, x: FloatArray, y: FloatArray, max_points: int, max_lower: int
) -> Procedure[list[Pair]]:
    """Search locally from a leader x with the answer y; return all pairs that were evaluated.

    Each follower is searched locally, with at most `max_lower` points, from the answer to the
    nearest leader of this search. So if followers have several best answers, neighbours get the
    same answer.
    """
    pairs: list[Pair] = []
    followed = Archive.of([Pair(x, y, 0.0, 0.0, 0.0, 0.0)])

    def at(rows: FloatArray) -> Procedure[Values]:
        nonlocal followed
        starts = [followed.nearest(row).y[0] for row in rows]
        new = yield from together(
            polish_follower(state, row, start, max_lower)
            for row, start in zip(rows, starts, strict=True)
        )
        values = yield from evaluate_leaders(state, new)
        pairs.extend(new)
        followed = followed.with_answers(new)
        return values._replace(violation=np.array([pair.violation for pair in new]))

    tolerance = state.F_scale.tolerance(LEADER_TOLERANCE)
    rule = LocalRule(max_points, tolerance, POLISH_DIFFERENCE)
    yield from sqp(at, x, np.zeros(len(x)), np.ones(len(x)), rule)
    return pairs


def resolve_ties(state: LeaderState, pair: Pair, max_points: int) -> Procedure[Pair]:
    """Return the leader's best among the ties around a pair's answer, or the pair itself.

    F is searched locally along the straight directions in which f is flat. If the ties lie on a
    curve, f rises a little along these directions. A last search of the follower corrects that.
    """
    flat = FlatSet(pair.y, (yield from flat_directions(partial(evaluate_answers, pair.x), pair.y)))
    if not flat.size:
        return pair
    allowed = pair.f + state.f_scale.tolerance(ALLOWED)

    def at(rows: FloatArray) -> Procedure[Values]:
        lower = yield from evaluate_answers(pair.x, flat.points(rows))
        upper = yield from evaluate_answers(pair.x, flat.points(rows), Level.UPPER)
        state.spent = upper.spent
        loss = np.where(np.isfinite(lower.objective), lower.objective - allowed, np.inf)
        constraints = np.column_stack([upper.constraints, lower.constraints, loss])
        return Values.of(upper.objective, constraints, 0, upper.spent)

    rule = LocalRule(max_points, state.F_scale.tolerance(LEADER_TOLERANCE))
    end = yield from flat.search(at, rule)
    settled = yield from polish_follower(state, pair.x, flat.points(end.point), max_points)
    yield from evaluate_leaders(state, [settled])
    kept = settled.f < allowed and settled.lower_violation <= pair.lower_violation
    return settled if kept and settled.no_worse(pair) else pair
