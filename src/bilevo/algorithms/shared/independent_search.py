"""Searches of the follower's whole box that know nothing of a run; verification makes them.

    yield from independent_search(at, n, rng, effort, starts, found)

Points spread over the box (a lattice) show basins. Local searches start from those spread
points that have no better neighbour, and from the `starts`. Global searches by CMA-ES start from
other points. All of these run side by side. If they end in several basins, steps as long as the
distances between these lead from the best one to others. Then the best answers that lie apart are
polished, which finds their last digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.shared.basin_moves import (
    APART,
    MOST_HOPS,
    moved,
    moves_between,
    points_to_try,
)
from bilevo.algorithms.shared.differences import At, DeriveAt
from bilevo.algorithms.shared.polish import End, best_of, is_gain, polish
from bilevo.algorithms.shared.sqp import SLOPE_DIFFERENCE, LocalRule, SearchEnd, sqp
from bilevo.core.arrays import TINY, FloatArray, IntArray
from bilevo.core.budget import interquartile_range
from bilevo.core.order import ranking
from bilevo.core.request import Procedure, Values, split, together
from bilevo.core.streams import SEED_LIMIT, stream
from bilevo.core.tolerances import rounding
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start
from bilevo.optimizers.sampling import lattice

# Distances, deviations and steps are fractions of the box.
NARROW = 0.01  # A global search has found a basin once its deviations are smaller than this.
AROUND = 0.02  # The first deviations of CMA-ES around an answer whose search did not settle.
CONSTRAINT_MARGIN = 1e-11  # Local searches keep this distance from constraints.
STEP_LEFT = 1e-6  # A local search has settled if its next step would be shorter than this.
ENOUGH = 1e-16  # A local search ends if it expects less than this fraction of its last gain.
APART_STARTS = 6  # So many starts at least may lie in parts that constraints divide.
ITERATIONS = 50  # The most iterations of a local search.
MAX_ITERATIONS = 200  # The same for the best answers: in a curved valley a search needs many.
WIDEST_DIFFERENCE = 1e-3  # The widest step of differences for slopes; see `search_locally`.


class Effort(StrEnum):
    """How hard to look for a better answer."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class Plan(NamedTuple):
    """What an effort consists of."""

    points: int  # how many points are spread over the box
    local: int  # the most local searches from the best of these points
    wide: int  # how many global searches CMA-ES makes
    polished: int  # the most answers that are polished in the end


PLANS = {
    Effort.LOW: Plan(300, 12, 1, 2),
    Effort.NORMAL: Plan(400, 24, 3, 3),
    Effort.HIGH: Plan(1000, 60, 6, 5),
}


@dataclass(slots=True, eq=False)
class Found:
    """What independent searches have found so far: `ends` has the end of each search that ended.

    `planned` is the number of searches to make. When all have ended, steps lead from the best end
    to other basins, if there are many. Then the best answers that lie apart are polished. After
    that, `polished` holds them, the best one first.
    """

    planned: int = 0
    ends: list[End] = field(default_factory=list)
    polished: list[End] = field(default_factory=list)

    @property
    def made(self) -> int:
        return len(self.ends)

    @property
    def complete(self) -> bool:
        return bool(self.polished)

    @property
    def best(self) -> End:
        """Return the best answer for the follower; at least one search must have ended."""
        return best_first([*self.polished, *self.ends])[0]


def independent_search(
    at: At,
    n: int,
    rng: np.random.Generator,
    effort: Effort,
    starts: FloatArray,
    found: Found | None = None,
    derive: DeriveAt | None = None,
) -> Procedure[Found]:
    """Search the follower's box; `at` gives the follower's values, `starts` (k, n) are under test.

    The searches from `starts` count as independent searches, too. The caller may pass an empty
    `found`. It is filled while the searches run, so that the caller has it if they are stopped.
    `derive` gives derivatives to the local searches.
    """
    plan, found = PLANS[effort], Found() if found is None else found
    points = np.concatenate([starts, lattice(plan.points, n, rng)])
    means = lattice(plan.wide, n, rng)
    seed = int(rng.integers(SEED_LIMIT))
    values = yield from at(points)
    chosen = [*range(len(starts)), *basin_points(points, values, len(starts), plan.local)]
    rows = list(split(values, [1] * len(points)))
    unit = interquartile_range(values.objective)
    begun = [End(points[i], rows[i]) for i in chosen]
    searches = [search_locally(at, start, unit, derive=derive) for start in begun]
    for i, mean in enumerate(means):
        own = stream(seed, "independent", 0, i)
        searches.append(search_widely(at, mean, own, i // 2, unit, derive))
    found.planned = len(searches)
    yield from together(_noted(search, found.ends) for search in searches)
    hopped = yield from hop(at, found.ends, unit, derive)
    best = apart([*hopped, *found.ends])[: plan.polished]
    streams = [stream(seed, "independent", 1, i) for i in range(len(best))]
    pairs = zip(best, streams, strict=True)
    finish = (search_to_the_end(at, *pair, unit, derive) for pair in pairs)
    found.polished = best_first((yield from together(finish)))
    return found


def hop(
    at: At, ends: Sequence[End], unit: float, derive: DeriveAt | None = None
) -> Procedure[list[End]]:
    """Step from the best end to other basins, and search there, as long as that finds better ones.

    That is done if most searches have settled elsewhere: then the best basin may be one that no
    search has met. Returns the better ends.
    """
    best, settled = best_first(ends)[0], [end for end in ends if end.settled]
    away = [end for end in settled if end.far_from(best, APART)]
    if 2 * len(away) <= len(settled) or best.violation > 0:
        return []
    moves, better = moves_between(np.array([end.y for end in [best, *away]])), list[End]()
    for _ in range(MOST_HOPS if len(moves) else 0):
        values = yield from at(moved(best.y, moves))
        gains = np.where(values.violation > 0, -np.inf, best.f - values.objective)
        points = points_to_try(best.y, moves, gains, rounding(best.f))
        if not len(points):
            break
        start = best_of(points, (yield from at(points)))
        new = yield from search_locally(at, start, unit, derive=derive)
        if not is_gain(best, new):
            break
        best = new
        better.append(new)
    return better


def best_first(ends: Sequence[End]) -> list[End]:
    """Return answers from the follower's best to its worst."""
    f, violation = np.array([end.f for end in ends]), np.array([end.violation for end in ends])
    return [ends[i] for i in ranking(f, violation)]


def apart(ends: Sequence[End]) -> list[End]:
    """Return those answers that lie apart from all better answers, the best first."""
    chosen: list[End] = []
    for end in best_first(ends):
        if all(end.far_from(other, APART) for other in chosen):
            chosen.append(end)
    return chosen


def basin_points(
    points: FloatArray, values: Values, first: int, most: int, fewest: int | None = None
) -> IntArray:
    """Return indices of up to `most` points that have no better point near them, the best first.

    A point is compared with the 2 n points nearest to it. Only points with an index of at least
    `first` are chosen. If they are fewer than `fewest` (by default half of `most`), the best other
    points follow. But where points violate constraints, these may divide the box into parts, some
    without a feasible point. Then points that are far from all others follow, up to half of `most`,
    and up to `APART_STARTS` if so many are allowed.
    """
    order = ranking(values.objective, values.violation)
    rank = np.empty(len(order), np.int64)
    key = np.where(values.violation > 0, np.inf, values.objective)[order]
    violation = values.violation[order]
    behind = (key[1:] > key[:-1]) | (violation[1:] > violation[:-1])
    rank[order] = np.concatenate([[0], np.cumsum(behind)])  # equal points have equal ranks
    near = 2 * points.shape[1]
    squares = (points * points).sum(axis=1)
    distances = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(distances, np.inf)
    neighbours = np.argsort(distances, axis=1, kind="stable")[:, :near]
    lowest = rank <= rank[neighbours].min(axis=1)
    chosen = [i for i in order if i >= first and lowest[i]][:most]
    if values.violation.any():
        count = max(most // 2, APART_STARTS) if most >= APART_STARTS else most // 2
        return spread_out(points, chosen, np.arange(first, len(order)), count)
    fewest = most // 2 if fewest is None else fewest
    others = [i for i in order if i >= first and not lowest[i]]
    return np.array(chosen + others[: max(0, fewest - len(chosen))], np.int64)


def spread_out(points: FloatArray, chosen: list[int], candidates: IntArray, most: int) -> IntArray:
    """Return the chosen indices and those of candidates far from all of them, `most` at most."""
    found = list(chosen)
    distance = np.full(len(points), np.inf)
    for i in found:
        distance = np.minimum(distance, ((points - points[i]) ** 2).sum(axis=1))
    while len(found) < most and len(candidates) and distance[candidates].max() > 0:
        found.append(int(candidates[distance[candidates].argmax()]))
        distance = np.minimum(distance, ((points - points[found[-1]]) ** 2).sum(axis=1))
    return np.array(found, np.int64)


def _noted(search: Procedure[End], ends: list[End]) -> Procedure[None]:
    """Run a search, and add its end to a list."""
    ends.append((yield from search))


class Watched:
    """Evaluates a follower's answers as `at` does, and keeps the best answer."""

    def __init__(self, at: At, best: End) -> None:
        self._at, self.best = at, best

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        values = yield from self._at(rows)
        new = best_of(rows, values)
        if not self.best.no_worse(new):
            self.best = new
        return values


def search_locally(
    at: At,
    start: End,
    unit: float = 0.0,
    iterations: int = ITERATIONS,
    derive: DeriveAt | None = None,
) -> Procedure[End]:
    """Search by SQP from a point, and repeat that with a finer tolerance while f becomes smaller.

    `unit` is the usual size of differences of f; 0 if it is not known. If f is much larger than
    `unit`, because of a large constant in f, slopes are taken over a wider distance.
    """
    if not math.isfinite(start.f):
        return End(start.y, start.values, settled=False)
    n, hessian = len(start.y), None
    watched = Watched(at, start)
    settled, left, gain = False, iterations * (n + 2), 0.0
    for _ in range(4):
        here = watched.best
        tolerance = max(n * rounding(here.f), ENOUGH * gain, TINY)
        difference = math.sqrt(rounding(here.f) / unit) if unit else 0.0
        difference = min(max(difference, SLOPE_DIFFERENCE), WIDEST_DIFFERENCE)
        size = abs(here.f)
        rule = LocalRule(left, tolerance, difference, CONSTRAINT_MARGIN, unit=size, bends=True)
        box = np.zeros(n), np.ones(n)
        end = yield from sqp(watched, here.y, *box, rule, hessian, here.values, derive)
        settled, hessian = _has_settled(end, tolerance), end.hessian
        left, gain = left - end.points, max(here.f - watched.best.f, 0.0)
        if left <= 2 * n or not is_gain(here, watched.best):
            break
    best = watched.best
    return End(best.y, best.values, settled and best.violation == 0)


def _has_settled(end: SearchEnd, tolerance: float) -> bool:
    """Tell whether a local search has reached a minimum.

    It has if its model expects little gain from the next step, or if that step would be short. At
    a kink of f neither holds, because the model would still take long steps.
    """
    if end.left <= 10 * tolerance:
        return True
    if end.hessian is None or not math.isfinite(end.left):
        return False
    softest = max(float(np.linalg.eigvalsh(end.hessian)[0]), TINY)
    return end.left / softest < STEP_LEFT**2


def search_widely(
    at: At,
    mean: FloatArray,
    rng: np.random.Generator,
    doublings: int,
    unit: float,
    derive: DeriveAt | None = None,
) -> Procedure[End]:
    """Search the whole box by CMA-ES until it has found a basin, and then search locally.

    If the local search does not settle, CMA-ES continues to its end. `doublings` says how often the
    usual population of CMA-ES is doubled; for `unit` see `search_locally`.
    """
    n = len(mean)
    search = Population(n, CMAES().population_size(n) << doublings, mean, 0.3)
    yield from search.run(at, rng, NARROW)
    assert search.best is not None
    end = yield from search_locally(at, search.best, unit, derive=derive)
    if end.settled:
        return end
    yield from search.run(at, rng, 0.0)
    return search.best if search.best.no_worse(end) else end


def search_to_the_end(
    at: At, end: End, rng: np.random.Generator, unit: float, derive: DeriveAt | None = None
) -> Procedure[End]:
    """Find the last digits of an answer, and return the improved answer.

    If a local search does not settle there, f may not be smooth, and CMA-ES searches around the
    answer first.
    """
    for _ in range(3):
        before = end
        if not end.settled:
            end = yield from search_locally(at, end, unit, MAX_ITERATIONS, derive)
        if not end.settled and math.isfinite(end.f):
            around = Population(len(end.y), None, end.y, AROUND, end)
            yield from around.run(at, rng, 0.0)
            assert around.best is not None
            end = End(around.best.y, around.best.values, settled=False)
        end = yield from polish(at, end)
        if not is_gain(before, end) or not end.far_from(before, APART):
            break
        end = End(end.y, end.values, settled=False)  # a poll has left the basin
    return end


class Population:
    """A search by CMA-ES from a mean (n,) with a deviation; `best` is the best point so far."""

    def __init__(
        self,
        n: int,
        population: int | None,
        mean: FloatArray,
        deviation: float,
        best: End | None = None,
    ) -> None:
        self._cma, self.best = CMAES(population), best
        self._state = self._cma.start(Start(mean, deviation**2 * np.eye(n), np.zeros(n)))
        self._left = 100 + 50 * n

    def run(self, at: At, rng: np.random.Generator, narrow: float) -> Procedure[None]:
        """Continue until the search is narrow, its values agree, or its generations are used up.

        A search is narrow if all its deviations are below `narrow`, a fraction of the box.
        """
        cma, state = self._cma, self._state
        while self._left:
            self._left -= 1
            points = cma.ask(state, rng)
            values = yield from at(points)
            cma.tell(state, points, values.objective, values.violation)
            new = best_of(points, values)
            if self.best is None or not self.best.no_worse(new):
                self.best = new
            if state.sigma**2 * state.C.diagonal().max() < max(narrow, 1e-12) ** 2:
                break
            if not values.violation.any():
                spread = float(values.objective.max() - values.objective.min())
                if spread <= 1e-13 * abs(self.best.f) + TINY:
                    break
