"""Where a follower is indifferent: the leader's best and worst among answers with the same f.

There are three ways to find such ties:
- Searches from different starts end at different ties.
- If f is level along straight directions around an answer, `search_widely` searches these.
- If the ties form a curved set, such as a sphere, `follow_curve` follows it step by step along its
  tangent.

All steps and distances are fractions of the follower's box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.shared.independent_search import best_first, search_locally
from bilevo.algorithms.shared.polish import End, curvature_at, refine
from bilevo.algorithms.shared.tie_sets import TieSet, search_level, search_near
from bilevo.algorithms.shared.ties import FLAT, FLAT_DIFFERENCE, FlatSet, search_widely
from bilevo.core.arrays import FloatArray
from bilevo.core.order import no_worse
from bilevo.core.request import Procedure, Values
from bilevo.core.stance import Stance
from bilevo.core.streams import stream
from bilevo.verification.follower_problem import at_lower, at_upper

NEAR_POINTS = 20  # Random points of a set of nearly best answers, for each variable.
PROBES = (1e-3, 0.03)  # Steps at which f is compared, to see whether a direction is level.
SLOPE_STEP = 1e-5  # The step of the differences that give slopes of F along a curve.
FIRST_STEP, LAST_STEP = 0.1, 1e-4  # The first and the shortest step along a curve.
MAX_STEPS = 30  # The most steps along a curve.
ITERATIONS = 10  # The most iterations of a local search that leads back to a curve.
SLIGHT = 1e-7  # A curve is followed no further if a step gains less in F, relative to 1 + |F|.


@dataclass(frozen=True, slots=True)
class TieRule:
    """Which answers are ties: those that are no worse for the follower than `f` and `violation`."""

    f: float
    violation: float
    scale: float  # the local scale of f (see `core.tolerances`)

    def holds(self, end: End) -> bool:
        return no_worse(end.f, end.violation, self.f, self.violation)


def both_levels(y: FloatArray) -> Procedure[tuple[Values, Values]]:
    """Return the follower's and the leader's values at rows of y."""
    return (yield from at_lower(y)), (yield from at_upper(y))


def search_ties(
    tied: Sequence[End], F: Sequence[float], rule: TieRule, seed: int, most: int
) -> Procedure[list[End]]:
    """Search around tied answers for the leader's best and worst tie; return the ties found.

    `F` holds the leader's values at the answers `tied`. Searches for the best tie start at the
    `most` answers with the smallest F, searches for the worst tie at those with the largest F.
    """
    found: list[End] = []
    for stance in Stance:
        order = np.argsort(stance.seen(np.array(F)), kind="stable")[:most]
        for i, end in enumerate(tied[k] for k in order):
            found += yield from _search_around(end, rule, stance, stream(seed, "verify ties", i))
    return found


def search_near_ties(
    tied: Sequence[End], F: Sequence[float], best: End, width: float, seed: int, most: int
) -> Procedure[list[End]]:
    """Search for the leader's best and worst answer among those with f up to `width` above best.

    Searches start around the best answer and around `most` of the answers `tied`, with the leader's
    values F there.
    """
    found: list[End] = []
    count = NEAR_POINTS * len(best.y)
    for stance in Stance:
        order = np.argsort(stance.seen(np.array(F)), kind="stable")[:most]
        ties = TieSet(at_lower, at_upper, best.f, width, stance)
        for i, base in enumerate([best, *(tied[k] for k in order)]):
            rng = stream(seed, "verify near ties", i)
            yield from search_near(ties, base.y, np.empty((0, len(base.y))), rng, count)
        if ties.found is not None:
            found.append(End(ties.found.y, (yield from at_lower(ties.found.y[None]))))
    return found


def _search_around(
    end: End, rule: TieRule, stance: Stance, rng: np.random.Generator
) -> Procedure[list[End]]:
    """Search the ties around an answer, in a flat set or along a curve.

    Returns where the search ended, or an empty list if there are no ties around the answer.
    """
    flat = FlatSet(end.y, (yield from level_directions(end.y, rule.scale)))
    if not flat.size:
        return []
    if not (yield from _is_level(flat, rule)):
        return [(yield from follow_curve(end, rule, stance))]
    at = both_levels, rule.f, rule.violation
    wide = yield from search_widely(flat, *at, rng, stance)
    if wide is None:
        return []
    f, violation = np.array([wide[1]]), np.array([wide[2]])
    ends = [End(wide[0], Values(f, violation, np.empty((1, 0)), 0))]
    return ends + (yield from _last_digits(ends[0], flat.directions, rule, stance, rng))


def _last_digits(
    end: End, directions: FloatArray, rule: TieRule, stance: Stance, rng: np.random.Generator
) -> Procedure[list[End]]:
    """Search F locally from a tie along level directions; return the tie found, if any."""
    ties = TieSet(at_lower, at_upper, rule.f, 0.0, stance)

    def project(y: FloatArray) -> Procedure[End]:
        start = End(y, (yield from at_lower(y[None])))
        return (yield from search_locally(at_lower, start, iterations=ITERATIONS))

    nothing = np.empty((0, len(end.y)))
    yield from search_level(ties, end.y, directions, project, nothing, rng, count=0)
    if ties.found is None:
        return []
    return [End(ties.found.y, (yield from at_lower(ties.found.y[None])))]


def level_directions(y: FloatArray, scale: float) -> Procedure[FloatArray]:
    """Return directions (k, n) in which f has no curvature at y, by central differences.

    One-sided differences would see a curvature where ties lie on a curve.
    """
    model = yield from curvature_at(at_lower, y, FLAT_DIFFERENCE)
    if model is None:
        return np.empty((0, len(y)))
    curvatures, directions = model.axes()
    largest = float(np.abs(curvatures).max())
    return np.asarray(directions[np.abs(curvatures) <= FLAT * (largest + scale)])


def _is_level(flat: FlatSet, rule: TieRule) -> Procedure[bool]:
    """Tell whether some step along a direction of the set leads to another tie."""
    steps = np.concatenate([PROBES, np.negative(PROBES)])
    t = (steps[:, None, None] * np.eye(flat.size)).reshape(-1, flat.size)
    points = flat.points(t)
    values = yield from at_lower(points)
    moved = (points != flat.y).any(axis=1)
    ties = (values.violation <= rule.violation) & (values.objective <= rule.f)
    return bool((moved & ties).any())


def follow_curve(end: End, rule: TieRule, stance: Stance) -> Procedure[End]:
    """Follow a curved set of ties to where F is best, or worst, by steps along its tangent.

    Local searches of f lead from each step back to the set.
    """
    length = FIRST_STEP
    F = float(stance.seen((yield from at_upper(end.y[None])).objective)[0])
    for _ in range(MAX_STEPS):
        directions = yield from level_directions(end.y, rule.scale)
        if not len(directions) or length < LAST_STEP:
            break
        near = np.clip(end.y + SLOPE_STEP * directions, 0.0, 1.0)
        slopes = stance.seen((yield from at_upper(near)).objective) - F
        if not np.isfinite(slopes).all() or not slopes.any():
            break
        tangent = -(slopes / np.linalg.norm(slopes)) @ directions
        new = yield from _returned(np.clip(end.y + length * tangent, 0.0, 1.0), rule)
        gained = -math.inf
        if new is not None:
            there = float(stance.seen((yield from at_upper(new.y[None])).objective)[0])
            gained = F - there
        if new is None or not gained > 0:
            length /= 4
            continue
        end, F, length = new, there, 2 * length
        if gained < SLIGHT * (1 + abs(F)):
            break
    return end


def _returned(point: FloatArray, rule: TieRule) -> Procedure[End | None]:
    """Search locally from a point; return where the search ends if that is a tie, else None."""
    end = End(point, (yield from at_lower(point[None])))
    end = yield from search_locally(at_lower, end, iterations=ITERATIONS)
    if not rule.holds(end):
        end, _ = yield from refine(at_lower, end)
    return end if rule.holds(end) else None


def tied_ends(ends: Sequence[End], rule: TieRule) -> list[End]:
    """Return the answers that are ties, the best first."""
    return [end for end in best_first(ends) if rule.holds(end)]
