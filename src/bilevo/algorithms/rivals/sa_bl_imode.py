"""SA-BL-IMODE: a classifier picks the leaders whose followers are worth solving.

This is a reconstruction of J. Lin and others, "Classification-model-assisted preselection and
environmental selection for evolutionary expensive bilevel optimization", 2023. The use of a
classifier, the optimizer IMODE (see optimizers.imode) and printed results are known. The
results are 121 to 199 upper evaluations for an accuracy of 1e-6, 50 of them for the first
population, and about 150 lower evaluations per upper evaluation. Only local searches at both levels
reach that. All else is inferred or our own:
- IMODE and a local search solve the first followers. Later followers are solved by local searches
  from the answers to the two nearest leaders, and also by IMODE if these do not converge.
- The best third of all solved leaders counts as good. Each member has three children, one per
  operator. The child that is most probably good is kept. Its follower is solved if its probability
  is at least 1/2, or exceeds its parent's by 0.3, or is one of the three highest.
- A pair becomes the elite (the best pair so far) only after IMODE has solved its follower once
  more. A pair from a local search becomes the elite at once, and is checked a generation later. If
  a generation has no pair that is as good as the elite, the elite's follower is solved once more.
  Without these checks, leaders would profit from local optima of their followers.
- The leader is searched locally every third generation, and whenever a generation has not changed
  the elite. If a follower was seen to have several best answers, a local search over y first finds
  the answer that is best for the leader.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.rivals.local_search import polish_follower, polish_leader, resolve_ties
from bilevo.algorithms.rivals.pairs import ROUNDING, best_answer, corrected
from bilevo.algorithms.rivals.scikit_learn import probability_good, require_scikit_learn
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch, Pair
from bilevo.algorithms.shared.leader import (
    LeaderState,
    candidate_index,
    close_generation,
    evaluate_leader,
    first_by_itself,
    first_leaders,
)
from bilevo.algorithms.shared.ties import is_tie
from bilevo.core.algorithm import Algorithm, registered
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.stop_rules import AtTarget, BudgetUsed, Settled
from bilevo.core.streams import stream
from bilevo.optimizers.imode import IMODE
from bilevo.optimizers.protocol import Start

GOOD = 1 / 3  # The share of the archive that counts as good.
PROMISING = 0.5  # A child is solved if its probability of being good is at least this.
CLEARLY_BETTER = 0.3  # A child is also solved if it exceeds its parent's probability by this.
ALWAYS = 3  # This many of the most promising children are always solved.
NEAREST = 2  # How many archived answers start a follower's local searches.
SEED_EVERY = 10  # A follower's IMODE starts with one answer to another leader in ten members.
LOCAL_EVERY = 3  # Generations from one local search of the leader to the next.
LOCAL_POINTS = 10  # The most upper evaluations of a local search, per variable.


@dataclass(slots=True, eq=False)
class SABLIMODEState(LeaderState):
    """The state of a run between two generations; `leader` is the state of IMODE."""

    archive: Archive = field(default_factory=Archive)
    improved_at: int = 0  # upper evaluations when the elite last improved
    polished: bool = False  # whether a local search has started from the elite
    ties: bool = False  # whether a follower was seen to have several best answers


@dataclass(frozen=True, slots=True)
class SABLIMODE(Algorithm[SABLIMODEState]):
    """SA-BL-IMODE (Lin and others, 2023), reconstructed; it has `population` leaders."""

    population: int = 50

    name = registered("sa-bl-imode")
    revision = 1
    State = SABLIMODEState

    def __post_init__(self) -> None:
        require_scikit_learn("sa-bl-imode")
        IMODE(self.population)  # raises if the population is not valid

    def optimizer(self, spec: Spec) -> IMODE:
        return IMODE(self.population, spec.budget.upper_max)

    def init(self, spec: Spec) -> Procedure[SABLIMODEState]:
        yield from ()
        x = first_leaders(self.population, spec, stream(spec.seed, "start"))
        return SABLIMODEState(self.optimizer(spec).first(x))

    def generation(self, spec: Spec, state: SABLIMODEState) -> Procedure[SABLIMODEState]:
        first = state.generation == 0
        if first:
            x, chosen = state.leader.points, np.arange(self.population)
        else:
            x, chosen = self.preselected(spec, state)
        pairs = yield from self.solved(spec, state, x[chosen], globally=first)
        yield from self.find_elite(spec, state, pairs)
        self.select(spec, state, x, chosen, pairs)
        if self.due(state):
            yield from self.local_search(spec, state)
        yield state.the_elite.incumbent
        idle = state.spent - state.improved_at >= spec.budget.upper_window
        rules = AtTarget(spec.target), BudgetUsed(upper=spec.budget.upper_max), Settled()
        executions = [1] * len(pairs)  # each follower is solved in full at once
        close_generation(spec, state, executions, pairs, rules, settled=idle)
        return state

    def preselected(self, spec: Spec, state: SABLIMODEState) -> tuple[FloatArray, IntArray]:
        """Return each member's most promising child (k, m), and the indices of those to solve."""
        rng = stream(spec.seed, "leader", state.generation)
        variants = self.optimizer(spec).variants(state.leader, rng)
        operators, k, m = variants.shape
        archive, members = state.archive, state.leader.points
        asked = np.concatenate([variants.reshape(-1, m), members])
        probability = probability_good(archive.x, archive.good(GOOD), asked)
        ties = rng.random((operators, k))  # many probabilities are 0 or 1
        of_child = probability[: operators * k].reshape(operators, k)
        state.leader.operator = np.lexsort((ties, of_child), axis=0)[-1]
        children = variants[state.leader.operator, np.arange(k)]
        chance = of_child[state.leader.operator, np.arange(k)]
        solve = (chance >= PROMISING) | (chance > probability[operators * k :] + CLEARLY_BETTER)
        solve[np.lexsort((rng.random(k), chance))[-ALWAYS:]] = True
        return children, np.flatnonzero(solve)

    def solved(
        self, spec: Spec, state: SABLIMODEState, x: FloatArray, globally: bool = False
    ) -> Procedure[list[Pair]]:
        """Solve the followers of leaders, and evaluate the pairs."""
        search = self.solve_globally if globally else self.solve

        def rated(task: int) -> Procedure[Pair]:
            pair = yield from search(spec, state, x[task], task)
            yield from evaluate_leader(state, pair)
            return pair

        run = first_by_itself if globally else together
        pairs = yield from run(rated(task) for task in range(len(x)))
        state.archive = state.archive.with_answers(pairs)
        return pairs

    def solve(self, spec: Spec, state: SABLIMODEState, x: FloatArray, task: int) -> Procedure[Pair]:
        """Return a follower's answer by local searches, and by IMODE if these fail."""
        starts = state.archive.nearest(x, NEAREST).y
        found = yield from together(
            polish_follower(state, x, start, spec.budget.lower_max) for start in starts
        )
        if len(found) == 2 and is_tie(found[0], found[1], state.f_scale.tolerance(ROUNDING)):
            state.ties = True
        if found and (best := best_answer(found)).converged and best.lower_violation == 0:
            return best
        found.append((yield from self.solve_globally(spec, state, x, task)))
        return best_answer(found)

    def solve_globally(
        self, spec: Spec, state: SABLIMODEState, x: FloatArray, task: int, name: str = "follower"
    ) -> Procedure[Pair]:
        """Return a follower's answer by IMODE and a local search from its best point.

        IMODE starts from points all over the box and from answers to other leaders.
        """
        budget = spec.budget.lower_max
        optimizer = IMODE(min(18 * spec.n, max(IMODE.smallest, budget // 4)), budget)
        rng = stream(spec.seed, name, state.generation, task)
        search = optimizer.start(Start.uniform(spec.spread[spec.m :], rng), rng)
        known = state.archive.nearest(x, len(search.points) // SEED_EVERY)
        if len(known):
            search.points[: len(known)] = known.y
        rule = FollowerRule(budget, budget)
        follower = FollowerSearch(x, optimizer, search, rng, rule, state.f_scale)
        yield from follower.execute()
        while search.told < budget:
            yield from follower.execute()
        return (yield from polish_follower(state, x, follower.answer.y, budget))

    def find_elite(self, spec: Spec, state: SABLIMODEState, pairs: list[Pair]) -> Procedure[None]:
        """Make the best pair the elite if it is still the best after its follower is solved again.

        If no pair is as good as the elite, the elite's own follower is solved again.
        """
        checked: set[int] = set()
        i = candidate_index(pairs)
        if state.elite is not None and not pairs[i].no_worse(state.elite):
            elite = yield from self.checked(spec, state, state.elite, len(pairs))
            state.polished = state.polished and elite is state.elite
            state.elite = elite
        while state.elite is None or not state.elite.no_worse(pairs[i]):
            if i in checked:
                self.accept_elite(spec, state, pairs[i])
                return
            checked.add(i)
            pairs[i] = yield from self.checked(spec, state, pairs[i], i)
            i = candidate_index(pairs)

    def checked(self, spec: Spec, state: SABLIMODEState, pair: Pair, task: int) -> Procedure[Pair]:
        """Solve a pair's follower again; return the pair with the better answer."""
        again = yield from self.solve_globally(spec, state, pair.x, task, "check")
        better = yield from corrected(state, pair, again)
        if better is not pair:
            state.archive = state.archive.with_answers([better])
            if state.generation > 0:
                put(state, (state.leader.points == pair.x).all(axis=1), better)
        return better

    def accept_elite(self, spec: Spec, state: SABLIMODEState, pair: Pair) -> None:
        """Make a pair the elite, and note if it is better than the last elite by more than ftol."""
        old = state.elite
        slight = state.F_scale.tolerance(spec.ftol)
        if old is None or pair.violation < old.violation or pair.F + slight < old.F:
            state.improved_at = state.spent
        state.elite, state.polished = pair, False

    def select(
        self, spec: Spec, state: SABLIMODEState, x: FloatArray, chosen: IntArray, pairs: list[Pair]
    ) -> None:
        """Tell IMODE the values of its children; a child without a solved follower is lost."""
        F, violation = np.full((2, len(x)), math.inf)
        for i, pair in zip(chosen, pairs, strict=True):
            if pair.converged:
                F[i], violation[i] = pair.F, pair.violation
        self.optimizer(spec).tell(state.leader, x, F, violation)
        state.leader.told = state.spent

    def due(self, state: SABLIMODEState) -> bool:
        """Tell whether it is time for a local search of the leader."""
        stays = len(state.elite_F) >= 2 and state.elite_F[-2] == state.the_elite.F
        return stays or state.generation % LOCAL_EVERY == LOCAL_EVERY - 1

    def local_search(self, spec: Spec, state: SABLIMODEState) -> Procedure[None]:
        """Search the leader locally from the elite, or from another good pair if that was done."""
        elite, pairs = state.the_elite, []
        x, y = elite.x, elite.y
        if state.polished:
            good = np.flatnonzero(state.archive.good(GOOD))
            if not good.size:
                return
            i = good[stream(spec.seed, "local", state.generation).integers(len(good))]
            x, y = state.archive.x[i], state.archive.y[i]
        elif state.ties:
            pairs = [(yield from resolve_ties(state, elite, LOCAL_POINTS * spec.n))]
            y = pairs[0].y
        points = LOCAL_POINTS * spec.m
        pairs += yield from polish_leader(state, x, y, points, spec.budget.lower_max)
        state.archive = state.archive.with_answers(pairs)
        best = pairs[candidate_index(pairs)]
        state.polished = True
        if not elite.no_worse(best):
            self.accept_elite(spec, state, best)
        worst = state.leader.best_first[-1]
        if best.no_worse_than(state.leader.objective[worst], state.leader.violation[worst]):
            put(state, np.arange(len(state.leader.points)) == worst, best)


def put(state: SABLIMODEState, where: BoolArray, pair: Pair) -> None:
    """Replace the members of the population at the places `where` by a pair."""
    state.leader.replace(where, pair.x, np.asarray(pair.F), np.asarray(pair.violation))
