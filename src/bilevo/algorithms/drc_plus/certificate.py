"""The certificate of an answer: independent searches of the follower's box that agree with it.

Local searches start from points spread over the box. If all of them end at the answer, f has one
basin as far as they can tell, and they are enough. If not, CMA-ES searches the whole box, until
enough searches agree. Local searches also start from the answer itself, and from refuted answers,
which earlier checks have replaced by better ones. The searches use nothing else of the run.

If f is level over a set, local searches end at many answers with the same f. In a run that is
`sparing`, because it has few evaluations, f is then evaluated between these answers: if it is level
there too, they lie in one basin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bilevo.algorithms.drc_plus.basin_steps import hop_basins, probe_axes
from bilevo.algorithms.drc_plus.box_search import (
    search_all,
    search_box,
    search_points,
    tasks_at,
    with_best_parts,
)
from bilevo.algorithms.drc_plus.experience import DISTINCT, Experience, WarmTask, best_of
from bilevo.algorithms.drc_plus.leader_view import LeaderView
from bilevo.algorithms.drc_plus.local_follower import LocalFollower
from bilevo.algorithms.shared.blocks import spread_points
from bilevo.algorithms.shared.follower_search import FollowerCheck, Pair, evaluate_answers
from bilevo.algorithms.shared.leader import reached
from bilevo.algorithms.shared.polish import End
from bilevo.algorithms.shared.surroundings import hidden_distance, look_around
from bilevo.core.budget import interquartile_range
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, together
from bilevo.core.tolerances import ALIKE, UNRESOLVED, rounding

MAX_SEARCHES = 5  # The most searches of a check; all local ones together count as one here.
SPREAD_POINTS = 40  # A look at spread points evaluates this number plus 8 n of them,
LOCAL_SEARCHES = 6  # and makes at most this number of local searches.
ENOUGH_LOCAL = 2  # Fewer local searches than this do not show that f has one basin.
FINAL_SHARE = 0.2  # The look at a run's end takes about this share of its evaluations,
MAX_THOROUGH = 20  # but is at most this many times as thorough as the usual one.
LEAST_THOROUGH = 8  # The least thorough look at the end of a run that is not at a target.
ON_PATH = 5  # So many points, at random places, tell whether f is level between two answers.
CLEARLY_MORE = 0.25  # A checked elite is checked again if four times as thorough a look is due.
LIGHT = 0.25  # How thorough a look at an answer is that does not end the run.
# If f is not smooth, an elite at the target keeps its answer although its f is too large by up to
# this fraction of the scale of f plus |f|. The answer is not certified then.
ROUGH_F = 1e-2
# A run is stricter than verification, whose estimates of distances differ from the run's.
RESOLVED_LIMIT = UNRESOLVED / 3


@dataclass(slots=True, eq=False)
class Check:
    """What independent searches of one follower have found so far."""

    known: Experience
    own: WarmTask  # the answer under test
    thorough: float = 1.0  # spread points and local searches, relative to the usual numbers
    local: list[WarmTask] = field(default_factory=list)  # ends of local searches from spread points
    ends: list[WarmTask] = field(default_factory=list)  # the best of these, and of each CMA-ES
    found: list[WarmTask] = field(default_factory=list)  # all answers, also of searches from `own`
    tied: list[WarmTask] = field(default_factory=list)  # those of `local` with a level path to own
    spent: int = 0  # lower evaluations of all searches
    doubt: str = ""  # why the answer may be wrong although searches agree

    @property
    def best(self) -> WarmTask:
        """Return the best answer for the follower; the answer under test if none is better."""
        return best_of([self.own, *self.found])

    @property
    def agreeing(self) -> int:
        """Return how many searches ended at an answer as good as the best."""
        return sum(self.agrees(end) for end in self.ends)

    def agrees(self, end: WarmTask) -> bool:
        """Tell whether a search ended at an answer as good as the best, or near the best."""
        best, pair = self.best.pair, end.pair
        near = end.solved and not are_distinct(pair, best)
        near = near and pair.lower_violation == best.lower_violation
        return near or self.known.agree(best, pair)

    @property
    def unanimous(self) -> bool:
        """Tell whether local searches from all over the box ended at the answer under test.

        Another answer with the same f is no agreement: it shows that f has several basins, unless a
        level path leads there.
        """
        same = all(self.agrees(end) and not self.is_away(end) for end in self.local)
        return len(self.local) >= ENOUGH_LOCAL and self.stands and same

    def is_away(self, end: WarmTask) -> bool:
        """Tell whether a search ended elsewhere than at the answer under test, and at no tie."""
        apart = are_distinct(self.own.pair, end.pair)
        return apart and all(end is not tie for tie in self.tied)

    @property
    def sees_many_basins(self) -> bool:
        """Tell whether most local searches ended elsewhere than at the best answer.

        Then the best basin may be one that no search has met, a step beside the best one met.
        """
        best, others = self.best.pair, [end for end in self.local if end.solved]
        if self.tied and self.stands:
            return sum(map(self.is_away, others)) > len(self.local) / 2
        away = sum(are_distinct(best, end.pair) for end in others)
        return away > len(self.local) / 2

    @property
    def most_local(self) -> int:
        """Return how many local searches start from spread points at most."""
        return max(2 * ENOUGH_LOCAL, math.ceil(self.thorough * LOCAL_SEARCHES))

    @property
    def stands(self) -> bool:
        """Tell whether the answer under test is as good as the best."""
        own, best = self.own.pair, self.best.pair
        as_good = own.f - best.f <= self.known.tie(best.f)
        return own.lower_violation <= best.lower_violation and as_good

    @property
    def confirmed(self) -> bool:
        """Tell whether enough searches agree on the best answer.

        One search is enough if the answer under test stands. Otherwise two are needed: the search
        that found the better answer, and another one. If the check is `strict`, because no other
        check has looked at the answer, two are needed in any case, unless searches are unanimous.
        """
        return self.unanimous or self.agreeing > (self.known.strict or not self.stands)

    def ties(self) -> list[WarmTask]:
        """Return answers that are as good as the best and differ from it and from each other."""
        chosen = [self.best]
        limit = chosen[0].pair.f + self.known.tie(chosen[0].pair.f)
        for task in self.found:
            pair = task.pair
            far = all(np.abs(pair.y - other.pair.y).max() > DISTINCT for other in chosen)
            if far and pair.lower_violation == 0 and pair.f <= limit:
                chosen.append(task)
        return chosen[1:]

    def verdict(self, f: float) -> FollowerCheck:
        """Return what the check says about an answer with this f.

        The answer is certified if the check is confirmed and without doubt, and the answer is as
        good as the best one.
        """
        gap = max(0.0, f - self.best.pair.f)
        as_good = gap <= self.known.tie(f) and self.best.pair.lower_violation == 0
        passed = self.confirmed and as_good and not self.doubt
        searches = [*self.local, *self.ends[bool(self.local) :]]
        agreeing = sum(self.agrees(end) for end in searches)
        certified = passed and self.thorough >= 1
        counts = len(searches), agreeing, self.spent
        return FollowerCheck(gap, certified, *counts, self.doubt, passed, self.thorough)


def check_answer(
    follower: LocalFollower, own: WarmTask, rng: np.random.Generator, thorough: float = 1.0
) -> Procedure[Check]:
    """Search a follower independently, until enough searches agree.

    If f is not smooth, searches seldom agree, and CMA-ES makes two. Such a check is never light.
    """
    known, before = follower.known, follower.known.spent
    check = Check(known, own, max(thorough, 1.0) if known.rough else thorough)
    for number in range(MAX_SEARCHES):
        if number == 0 and not known.rough:
            yield from search_from_all_over(follower, check, rng)
        else:
            relaxed, doublings = number % 2 == 1, max(0, number - 2)
            end = yield from search_box(follower, own.pair.x, rng, relaxed, doublings, exact=True)
            end = yield from hop_if_refuted(follower, check, end)
            check.ends.append(end)
            check.found.append(end)
        check.spent = known.spent - before
        if check.unanimous or (len(check.ends) > 1 and (check.confirmed or known.rough)):
            break
        if thorough < 1 and not known.rough:
            check.found.append((yield from probe_axes(follower, check.best)))
            check.spent = known.spent - before
            break
    return check


def final_thoroughness(spec: Spec, pair: Pair, spent: int) -> float:
    """Return how thorough the look at a run's best pair is at its end, after `spent` evaluations.

    Local searches are taken to need ten iterations. If the pair is not at a target, the look is
    thorough even if the run was short: nothing else says that the answer is right.
    """
    n, least = spec.n_each, 1.0 if reached(spec, pair) else LEAST_THOROUGH
    usual = SPREAD_POINTS + 8 * n + LOCAL_SEARCHES * 10 * (n + 2)
    return min(max(least, FINAL_SHARE * spent / usual), MAX_THOROUGH)


def find_doubt(follower: LocalFollower, check: Check, task: WarmTask) -> Procedure[str]:
    """Return why a checked answer may be wrong, or an empty text.

    Rounding of f may hide where its minimum is. Or constraints are positive, but tolerated, and f
    is much lower for it. To look costs evaluations only if one of these may be the case.
    """
    pair, known = task.pair, follower.known
    if task is check.own and any(found.lower.constraints.size for found in check.found):
        task = yield from follower.at(pair.x, pair.y[None])  # its constraints are not known
    tolerated = bool((task.lower.constraints > 0).any())
    if pair.violation > 0 or (known.clearly_resolves(pair.f) and not tolerated):
        return ""
    at = partial(known.evaluate, pair.x)
    around = yield from look_around(at, End(pair.y, task.lower), RESOLVED_LIMIT)
    if around.tolerated > ALIKE * known.unit:
        return f"constraints that are violated within ctol change f by {around.tolerated:.1g}"
    leader = partial(evaluate_answers, pair.x, level=Level.UPPER)
    hidden = yield from hidden_distance(leader, pair.y, pair.F, around)
    return "rounding of f hides where its minimum is" if hidden else ""


def search_from_all_over(
    follower: LocalFollower, check: Check, rng: np.random.Generator
) -> Procedure[None]:
    """Search from spread points, from the answer under test and from refuted answers.

    If the search to the best answer did not settle, CMA-ES searches around this answer. All answers
    are added to the check. The best one from spread points counts as one search.
    """
    own, n = check.own.pair, follower.spec.n
    x, count = own.x, int(check.thorough * (SPREAD_POINTS + 8 * follower.spec.n_each))
    points = spread_points(count, n, follower.spec.blocks, rng)
    found, values = yield from search_points(follower, x, points, check.most_local, own)
    # The scale of f may be another one than at the x where it was set.
    follower.known.renew_scale_at(best_of(found), interquartile_range(values.objective))
    found = yield from finish_some(follower, found)
    check.local, end = list(found), best_of(with_best_parts(follower, found))
    if follower.known.sparing:
        check.tied = yield from level_ends(follower, check, rng)
    if not end.solved and math.isfinite(end.pair.f):
        found.append((yield from follower.search_around(end, follower.known.tight, rng)))
        end = best_of(found)
    hopped = yield from hop_if_refuted(follower, check, end)
    found, end = found if hopped is end else [*found, hopped], hopped
    points = np.concatenate([own.y[None], follower.known.refuted.reshape(-1, n)])
    starts = yield from tasks_at(follower, x, points)
    again = yield from search_all(follower, starts)
    check.ends.append(end)
    check.found += with_best_parts(follower, [*found, *again])
    if check.thorough >= 1 and check.sees_many_basins:
        check.found.append((yield from hop_basins(follower, check.best, check.local)))


def level_ends(
    follower: LocalFollower, check: Check, rng: np.random.Generator
) -> Procedure[list[WarmTask]]:
    """Return the ends of local searches to which a level path leads from the answer under test.

    Only ends with the same f that are another answer are looked at. f is evaluated at random places
    of the straight path, because ripples could have the same f at places at regular distances.
    """
    own, found = check.own.pair, list[WarmTask]()
    tie = follower.known.tie(own.f)
    for end in check.local:
        pair = end.pair
        feasible = own.lower_violation == pair.lower_violation == 0
        if not (end.solved and feasible and abs(pair.f - own.f) <= tie and are_distinct(own, pair)):
            continue
        parts = rng.random((ON_PATH, 1))
        values = yield from follower.known.evaluate(own.x, own.y + parts * (pair.y - own.y))
        level = np.abs(values.objective - own.f) <= tie
        if level.all() and not values.violation.any():
            found.append(end)
    return found


def hop_if_refuted(follower: LocalFollower, check: Check, end: WarmTask) -> Procedure[WarmTask]:
    """Step from a search's end to other basins, if answers of this run were refuted before.

    Then f has more basins than searches of the box tell apart.
    """
    if not len(follower.known.refuted):
        return end
    return (yield from hop_basins(follower, end, check.local))


def finish_some(follower: LocalFollower, ends: list[WarmTask]) -> Procedure[list[WarmTask]]:
    """Continue two searches that were stopped near the answer under test: the best and another one.

    They show whether the answer itself is the minimum. They come from other sides. Returns all
    ends, with the new ones in the places of the old ones.
    """
    stopped = [end for end in ends if end.arrived]
    if not stopped:
        return ends
    best = best_of(stopped)
    other = max(stopped, key=lambda end: float(np.abs(end.pair.y - best.pair.y).max()))
    chosen = [best] if other is best else [best, other]
    tight = follower.known.tight
    new = yield from together(follower.search_locally(end, tight) for end in chosen)
    return [end for end in ends if all(end is not one for one in chosen)] + new


def choose_answer(state: LeaderView, check: Check, optimism: bool) -> Procedure[WarmTask]:
    """Return the leader's choice among the best answers that a check found.

    If an answer with a lower f is close to the answer under test, it replaces that answer, whatever
    F is, because their difference is an error of the search. But where a constraint of the leader
    is active, the last digits of y decide whether it is met. So a tie that violates it replaces no
    answer that meets it. Without `optimism`, ties are ignored.
    """
    own, best = check.own, check.best
    error = own.pair.f - best.pair.f > 10 * state.known.tight + rounding(best.pair.f)
    replaced = not check.stands or (error and not are_distinct(own.pair, best.pair))
    chosen = best if replaced else own
    ties = [t for t in check.ties() if t is not chosen] if optimism else []
    if not replaced and best is not own and are_distinct(own.pair, best.pair):
        ties.append(best)
    new = [chosen, *ties] if replaced else ties
    if new:
        yield from state.evaluate_leaders(new)
    if check.stands and own.pair.violation == 0 < chosen.pair.violation:
        replaced, chosen = False, own
    if replaced and optimism:
        chosen = yield from state.resolve_ties(chosen)
    for tie in ties:
        chosen = chosen if chosen.pair.no_worse(tie.pair) else tie
    return chosen


def choose_checked(
    spec: Spec, state: LeaderView, check: Check, optimism: bool
) -> Procedure[WarmTask]:
    """Return the task that is the elite after a check.

    If f is not smooth, an elite at the target keeps its answer if that is nearly as good as the
    best (see `ROUGH_F`): it is as exact as the followers of such a run are.
    """
    elite, chosen = check.own.pair, (yield from choose_answer(state, check, optimism))
    missed = reached(spec, elite) and not reached(spec, chosen.pair)
    close = elite.f - chosen.pair.f <= ROUGH_F * (state.known.unit + abs(elite.f))
    return check.own if state.known.rough and missed and close else chosen


def have_moved(one: Pair, other: Pair) -> bool:
    """Tell whether two pairs have different leaders or different answers."""
    return bool(np.abs(one.x - other.x).max() > DISTINCT) or are_distinct(one, other)


def are_distinct(one: Pair, other: Pair) -> bool:
    """Tell whether two answers are different ones, not the same one with an error."""
    return bool(np.abs(one.y - other.y).max() > DISTINCT)
