"""Searches for the real numbers of leaders, each in one cell of x."""

from __future__ import annotations

import math

import numpy as np

from bilevo.algorithms.moves.leaders import Leader, MovesState, solve_leader
from bilevo.algorithms.shared.leader import grids
from bilevo.algorithms.shared.sqp import LocalRule, sqp
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, Values, together
from bilevo.core.tolerances import rounding

COARSE_DIFFERENCE = 1e-4  # Distance of the neighbours that give slopes of F at the answers.
POLISH_STEPS = 0.05 * 0.25 ** np.arange(10)  # Steps by which real numbers of x are polished.
SEEN, LATEST_GAINS = (
    3,
    20,
)  # What searches gain is known after so many of them; the latest ones count.
GAINS = 4  # A search is unlikely to gain more than this many times the most of the latest ones.


def gains(there: Leader, here: Leader) -> bool:
    """Tell whether a leader is better than another one by more than rounding."""
    if there.pair.violation != here.pair.violation:
        return there.pair.violation < here.pair.violation
    return here.pair.F - rounding(here.pair.F) > there.pair.F


def is_open(state: MovesState, found: Leader, rival: Leader) -> bool:
    """Tell whether a search of real numbers may decide which of two leaders is better."""
    if found.pair.violation > 0 or rival.pair.violation > 0 or len(state.gains) < SEEN:
        return True
    return abs(found.pair.F - rival.pair.F) <= GAINS * max(state.gains[-LATEST_GAINS:])


def search_real(spec: Spec, state: MovesState, start: Leader, real: IntArray) -> Procedure[Leader]:
    """Search the real numbers of a leader locally, in its cell."""
    if not math.isfinite(start.pair.F):
        return start
    best = start

    def at(points: FloatArray) -> Procedure[Values]:
        nonlocal best
        leaders = np.repeat(start.pair.x[None], len(points), axis=0)
        leaders[:, real] = points
        found = yield from together(solve_leader(spec, state, x) for x in leaders)
        for leader in found:
            best = leader if gains(leader, best) else best
        return values_of(found)

    d, tolerance = real.size, 1e-8 * (1 + abs(start.pair.F))
    rule = LocalRule(
        8 * (d + 2), tolerance, COARSE_DIFFERENCE, trusting=True, smooth=True, doubts=True
    )
    box, first = (np.zeros(d), np.ones(d)), values_of([start])
    found = yield from sqp(at, start.pair.x[real], *box, rule, start.bend, first)
    best.bend = found.hessian
    return best


def polish_real(spec: Spec, state: MovesState, start: Leader) -> Procedure[Leader]:
    """Find the last digits of the real numbers of x, also at a jump of F."""
    x_grid, _ = grids(spec)
    real, best = np.flatnonzero(x_grid.values == 0), start
    for step in POLISH_STEPS if real.size else ():
        better = True
        while better:
            better = False
            x = np.repeat(best.pair.x[None], 2 * real.size, axis=0)
            x[np.arange(len(x)), np.repeat(real, 2)] += np.tile([step, -step], real.size)
            solving = (solve_leader(spec, state, np.clip(one, 0, 1)) for one in x)
            for there in (yield from together(solving)):
                if gains(there, best):
                    best, better = there, True
    return best


def values_of(leaders: list[Leader]) -> Values:
    """Return leaders as values of F, for a search; one whose follower failed has failed."""
    width = max(len(leader.G) for leader in leaders)
    failed = [
        leader.pair.lower_violation > 0
        or len(leader.G) != width
        or not math.isfinite(leader.pair.F)
        for leader in leaders
    ]
    F = np.array([leader.pair.F for leader in leaders])
    violation = np.array([leader.pair.violation for leader in leaders])
    G = np.array(
        [
            one.G if not bad else np.full(width, np.nan)
            for one, bad in zip(leaders, failed, strict=True)
        ]
    )
    bad = np.array(failed)
    return Values(np.where(bad, np.inf, F), np.where(bad, np.inf, violation), G, 0)
