"""MFBLA: a follower is solved only as far as is needed to compare its leader with others.

This is a reconstruction of M. Mamun, H. Singh and T. Ray, "A multifidelity approach for bilevel
optimization with limited computing budget", IEEE Transactions on Evolutionary Computation, 2022.
The idea is known: followers are solved to adaptive fidelities, and only some of them in full.
Printed results are known, too: a run ends when it has used a total budget of lower evaluations, and
its accuracy is between 1e-6 and 1e-5 on the problems it solves. All else is inferred or our own:
- A fidelity is the length of a follower's search. The two lower fidelities are DE with a tenth or a
  third of the lower budget. The highest is DE with half of it, then a local search with the other
  half. A higher fidelity continues the search.
- A search starts around the answer to the nearest known leader; the distance between the leaders
  is the spread. A third of its points are anywhere in the box.
- Leaders evolve by DE. All children are rated at the current fidelity, and the best tenth and two
  others also at the next fidelity. The rank correlation of the two ratings decides whether the
  fidelity changes. The highest fidelity is only for these checks and for the best member. In every
  generation, the best member's follower is also solved once more from random points.
- The last tenth of the budget is for a local search of the leader, because a population of 50 does
  not reach the printed accuracy in the generations that the budget allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.rivals.local_search import polish_follower, polish_leader
from bilevo.algorithms.rivals.pairs import corrected
from bilevo.algorithms.rivals.rand_de import RandDE
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch, Pair
from bilevo.algorithms.shared.leader import (
    LeaderState,
    best_pair,
    close_generation,
    evaluate_leader,
    first_by_itself,
    first_leaders,
    leader_ranking,
    reached,
)
from bilevo.core.algorithm import Algorithm, registered
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, T, Values, relayed, together
from bilevo.core.stop_rules import AtTarget, BudgetUsed
from bilevo.core.streams import stream

LOWEST, USUAL, FULL = 0, 1, 2  # Fidelities. All children are rated at `USUAL` or lower.
EFFORT = 1 / 10, 1 / 3, 1 / 2  # The shares of the lower budget that DE gets at each fidelity.
CHECKED, CHECKED_AT_RANDOM = 0.1, 2  # Rated twice: this share of the best, this many others.
# The fidelity rises if the rank correlation is below the first number, and falls above the second.
DISAGREE, AGREE = 0.8, 0.95
NEAR_SHARE = 2 / 3  # The share of a follower's first points that are around a known answer.
LEAST_DEVIATION = 1e-3  # The least deviation of these points, as a fraction of the box.
POLISH_SHARE = 0.1  # The share of the total budget that is left for the leader's local search.
POLISH_POINTS = 20  # The most upper evaluations of that search, per variable.
# The sizes m + n with printed totals of lower evaluations, and these totals as shares of the most
# that is possible (the product of both levels' budgets).
SIZES, SHARES = (5, 20, 60), (0.12, 0.28, 0.168)


@dataclass(slots=True, eq=False)
class MFBLAState(LeaderState):
    """The state of a run between generations; `leader` is the population, `pairs` its members."""

    pairs: list[Pair] = field(default_factory=list)
    fidelities: IntArray = field(default_factory=lambda: np.empty(0, np.int64))  # of `pairs`
    fidelity: int = USUAL  # the fidelity at which children are rated
    agreed: bool = False  # whether the last check found the same order at the next fidelity
    archive: Archive = field(default_factory=Archive)
    lower_spent: int = 0  # lower evaluations so far


@dataclass(slots=True, eq=False)
class Child:
    """A new leader, with its follower's search.

    `fidelity` is the highest fidelity at which the leader was rated, or -1 before the first rating.
    `pair` has the answer and the values of that rating.
    """

    spec: Spec
    state: MFBLAState
    follower: FollowerSearch
    fidelity: int = -1
    pair: Pair | None = None

    @property
    def rated(self) -> Pair:
        assert self.pair is not None
        return self.pair

    def search(self, fidelity: int) -> Procedure[Pair]:
        """Continue the follower's search up to a fidelity; return its answer without F."""
        size = RandDE().population_size(self.spec.n)
        budget = self.spec.budget.lower_max
        while self.follower.executions < max(1, round(EFFORT[fidelity] * budget / size)):
            yield from self.follower.execute()
        answer = self.follower.answer
        if fidelity < FULL:
            return answer
        left = max(1, math.ceil((1 - EFFORT[FULL]) * budget))
        local = yield from polish_follower(self.state, answer.x, answer.y, left)
        return local if local.follower_no_worse(answer) else answer

    def rate(self, fidelity: int) -> Procedure[Pair]:
        """Return the pair at this fidelity or a higher one; evaluate F if the answer changes."""
        if fidelity <= self.fidelity:
            return self.rated
        answer = yield from self.search(fidelity)
        self.fidelity = fidelity
        if self.pair is None or answer.y.tobytes() != self.pair.y.tobytes():
            self.pair = answer
            yield from evaluate_leader(self.state, answer)
            self.state.archive = self.state.archive.with_answers([answer])
        return self.pair


@dataclass(frozen=True, slots=True)
class MFBLA(Algorithm[MFBLAState]):
    """MFBLA (Mamun, Singh and Ray, 2022), reconstructed.

    The total of lower evaluations is `share` times upper_max times lower_max. If `share` is None,
    the published totals are used.
    """

    population: int = 50
    share: float | None = None

    name = registered("mfbla")
    revision = 1
    State = MFBLAState

    def __post_init__(self) -> None:
        self.upper()  # raises if the population is not valid
        if self.share is not None and not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share!r}")

    def upper(self) -> RandDE:
        return RandDE(self.population, F=(0.5, 0.9))

    def before_polish(self, spec: Spec) -> float:
        """Return after how many lower evaluations the last local search begins."""
        share = self.share or float(np.interp(spec.m + spec.n, SIZES, SHARES))
        total = share * spec.budget.upper_max * spec.budget.lower_max
        return (1 - POLISH_SHARE) * total

    def init(self, spec: Spec) -> Procedure[MFBLAState]:
        yield from ()
        x = first_leaders(self.population, spec, stream(spec.seed, "start"))
        return MFBLAState(self.upper().first(x))

    def generation(self, spec: Spec, state: MFBLAState) -> Procedure[MFBLAState]:
        return (yield from counted(state, self.evolve(spec, state)))

    def evolve(self, spec: Spec, state: MFBLAState) -> Procedure[MFBLAState]:
        x = self.upper().ask(state.leader, stream(spec.seed, "leader", state.generation))
        children = [self.child(spec, state, row, i) for i, row in enumerate(x)]
        run = together if state.generation else first_by_itself
        yield from run(child.rate(state.fidelity) for child in children)
        yield from self.check_fidelity(spec, state, children)
        yield from self.replace(state, children)
        yield from self.find_elite(spec, state, children)
        due = state.lower_spent >= self.before_polish(spec)
        if due and not reached(spec, state.the_elite):
            yield from self.polish(spec, state)
        yield state.the_elite.incumbent
        executions = [child.follower.executions for child in children]
        pairs = [child.rated for child in children]
        rules = AtTarget(spec.target), BudgetUsed(spec.budget.upper_max, self.before_polish(spec))
        close_generation(spec, state, executions, pairs, rules, lower=state.lower_spent)
        return state

    def child(self, spec: Spec, state: MFBLAState, x: FloatArray, task: int) -> Child:
        """Return a leader whose follower's search starts around the nearest answer known."""
        rng = stream(spec.seed, "follower", state.generation, task)
        points = rng.random((RandDE().population_size(spec.n), spec.n))
        known = state.archive.nearest(x)
        if len(known):
            distance = float(np.linalg.norm(known.x[0] - x))
            near = points[: round(NEAR_SHARE * len(points))]
            near[:] = rng.normal(known.y[0], max(distance, LEAST_DEVIATION), near.shape)
            near[0] = known.y[0]
        return child_from(spec, state, x, np.clip(points, 0.0, 1.0), rng)

    def check_fidelity(
        self, spec: Spec, state: MFBLAState, children: list[Child]
    ) -> Procedure[None]:
        """Rate some children also at the next fidelity, and adapt the fidelity.

        The fidelity rises if the two ratings order the children very differently. It falls if they
        agree in two generations in a row.
        """
        order = leader_ranking([child.rated for child in children])
        best = max(1, round(CHECKED * len(children)))
        rng = stream(spec.seed, "check", state.generation)
        others = rng.choice(order[best:], CHECKED_AT_RANDOM, replace=False)
        chosen = [children[i] for i in (*order[:best], *others)]
        before = [child.rated for child in chosen]
        after = yield from together(child.rate(state.fidelity + 1) for child in chosen)
        agreement = rank_correlation(leader_ranking(before), leader_ranking(after))
        if agreement < DISAGREE:
            state.fidelity = min(USUAL, state.fidelity + 1)
        elif agreement > AGREE and state.agreed:
            state.fidelity = max(LOWEST, state.fidelity - 1)
        state.agreed = agreement > AGREE
        if state.generation == 0 and spec.x0 is not None:
            yield from children[0].rate(FULL)

    def replace(self, state: MFBLAState, children: list[Child]) -> Procedure[None]:
        """Put children in their parents' places if they are better at the same fidelity."""
        if not state.pairs:
            state.pairs = [child.rated for child in children]
            state.fidelities = np.array([child.fidelity for child in children])
        else:
            parents = list(zip(children, state.pairs, state.fidelities.tolist(), strict=True))
            yield from together(
                child.rate(fidelity)
                for child, parent, fidelity in parents
                if child.rated.no_worse(parent)
            )
            for i, (child, parent, _) in enumerate(parents):
                if child.rated.no_worse(parent) and math.isfinite(child.rated.violation):
                    state.pairs[i], state.fidelities[i] = child.rated, child.fidelity
        self.refresh(state)

    def find_elite(self, spec: Spec, state: MFBLAState, children: list[Child]) -> Procedure[None]:
        """Make the best member the elite, after its follower was solved twice at full fidelity.

        If a member is no longer the best after that, the new best member is solved.
        """
        solved: set[int] = set()
        while (best := int(leader_ranking(state.pairs)[0])) not in solved:
            pair, child = state.pairs[best], children[best]
            if state.fidelities[best] == FULL:
                solved.add(best)
                pair = yield from self.solved_again(spec, state, pair, best)
            else:
                if child.pair is not pair:
                    child = self.child(spec, state, pair.x, len(children) + best)
                pair = yield from child.rate(FULL)
            state.pairs[best], state.fidelities[best] = pair, FULL
        self.refresh(state)
        state.elite = state.pairs[best]

    def solved_again(self, spec: Spec, state: MFBLAState, pair: Pair, task: int) -> Procedure[Pair]:
        """Solve a pair's follower from random points; return the pair with the better answer."""
        rng = stream(spec.seed, "again", state.generation, task)
        points = rng.random((RandDE().population_size(spec.n), spec.n))
        child = child_from(spec, state, pair.x, points, rng)
        better = yield from corrected(state, pair, (yield from child.search(FULL)))
        if better is not pair:
            state.archive = state.archive.with_answers([better])
        return better

    def refresh(self, state: MFBLAState) -> None:
        """Give the population the values of its pairs."""
        values = [(pair.x, pair.F, pair.violation) for pair in state.pairs]
        state.leader.become(*map(np.array, zip(*values, strict=True)))

    def polish(self, spec: Spec, state: MFBLAState) -> Procedure[None]:
        """End with a local search of the leader from the elite."""
        elite, points = state.the_elite, POLISH_POINTS * spec.m
        pairs = yield from polish_leader(state, elite.x, elite.y, points, spec.budget.lower_max)
        settled = [pair for pair in pairs if pair.converged]
        if settled:
            best = best_pair(settled)
            state.elite = best if best.no_worse(elite) else elite


def child_from(
    spec: Spec, state: MFBLAState, x: FloatArray, points: FloatArray, rng: np.random.Generator
) -> Child:
    """Return a leader whose follower's search starts from points (k, n)."""
    lower, longest = RandDE(), spec.budget.lower_max
    rule = FollowerRule(longest, longest)
    search = FollowerSearch(x, lower, lower.first(points), rng, rule, state.f_scale)
    return Child(spec, state, search)


def rank_correlation(one: IntArray, other: IntArray) -> float:
    """Return Spearman's correlation of two rankings, which are indices from best to worst."""
    n = len(one)
    apart = np.argsort(one) - np.argsort(other)
    return 1 - 6 * float(apart @ apart) / (n * (n * n - 1))


def counted(state: MFBLAState, steps: Procedure[T]) -> Procedure[T]:
    """Run a procedure, and note the number of lower evaluations so far in the state."""

    def note(level: Level, values: Values) -> Values:
        if level is Level.LOWER:
            state.lower_spent = values.spent
        return values

    return relayed(steps, lambda request: request, note)
