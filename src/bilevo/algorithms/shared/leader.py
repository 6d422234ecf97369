"""What algorithms share at the leader's level: state, elite, stop rules, and the joint search.

X. He, Y. Zhou and Z. Chen, "Evolutionary bilevel optimization based on covariance matrix
adaptation", IEEE Transactions on Evolutionary Computation 23(2), 2019.

`JointSearch` is the upper level of BL-CMA-ES, on which DRC builds: one search over the joint
vector (x, y). Its marginal distribution in y starts each follower search. The followers' answers
then replace the sampled y and update the joint search. Algorithms differ in how the follower
searches are run.

The elite is the best pair so far, and the candidate is the best pair of a generation. Refinement
solves the follower of one of them again, because an error of the follower can make F too good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilevo.algorithms.shared.follower_search import (
    ABSOLUTE,
    AnyFollowerSearch,
    FollowerRule,
    FollowerSearch,
    Pair,
    SolverSearch,
    evaluate_pairs,
)
from bilevo.core.algorithm import Algorithm, AlgorithmState, Followers
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.budget import Scale, StopReason, interquartile_range
from bilevo.core.order import best_index, ranking
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, T, Values, alongside, together
from bilevo.core.stop_rules import AtTarget, BudgetUsed, Progress, Stagnation, StopRule, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import AnyOptimizer, PopulationOptimizer, Start


@dataclass(slots=True, eq=False)
class LeaderState:
    """The state of a run between two upper generations."""

    leader: Any  # state of the upper optimizer
    generation: int = 0
    provisional: Pair | None = None  # the best pair before the first elite
    elite: Pair | None = None
    pending: Pair | None = None  # a candidate to refine beside the next generation's search
    elite_F: list[float] = field(default_factory=list)  # the elite's F after each generation
    F_scale: Scale = field(default_factory=Scale)
    f_scale: Scale = field(default_factory=Scale)
    F_spread: float = 0.0  # interquartile range of F in the last generation
    spent: int = 0  # upper evaluations so far
    tasks: int = 0  # how many searches the problem's own solver has begun
    stop: StopReason | None = None
    executions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    survived: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def the_elite(self) -> Pair:
        assert self.elite is not None
        return self.elite

    def progress(self, settled: bool = False, lower: int = 0) -> Progress:
        """Return how far the run has come; before the first elite, the best values are infinite."""
        best = (math.inf, math.inf) if self.elite is None else (self.elite.F, self.elite.violation)
        return Progress(*best, self.spent, lower, self.generation, self.elite_F, settled)


def start_leader(spec: Spec, optimizer: AnyOptimizer, d: int) -> LeaderState:
    """Return a run's first state, with an upper search over the first d variables of (x, y).

    The search starts at a random mean, or with x at x0 if that is given.
    """
    rng = stream(spec.seed, "start")
    start = Start.uniform(spec.spread[:d], rng)
    if spec.x0 is not None:
        start.mean[: spec.m] = spec.x0
    return LeaderState(optimizer.start(start, rng))


def first_leaders(count: int, spec: Spec, rng: np.random.Generator) -> FloatArray:
    """Draw leaders x (count, m) uniformly; the first is x0, if given."""
    x = rng.random((count, spec.m))
    if spec.x0 is not None:
        x[0] = spec.x0
    return x


def first_by_itself(tasks: Iterable[Procedure[T]]) -> Procedure[list[T]]:
    """Run the first task alone, so that there is an answer soon, and then the others together."""
    first, *others = tasks
    result = yield from first
    return [result, *(yield from together(others))]


def sample_leaders(spec: Spec, state: LeaderState, optimizer: AnyOptimizer) -> FloatArray:
    """Sample the leaders x (p, m) of a generation; the first leader of a run is x0, if given."""
    rng = stream(spec.seed, "leader", state.generation)
    x = np.array(optimizer.ask(state.leader, rng)[:, : spec.m], order="C")
    if state.generation == 0 and spec.x0 is not None:
        x[0] = spec.x0
    return x


def evaluate_leaders(state: LeaderState, pairs: list[Pair]) -> Procedure[Values]:
    """Fill in F and the total violation of pairs; before the first elite, report the best pair."""
    values = yield from evaluate_pairs(pairs)
    state.spent = values.spent
    for pair in pairs if state.elite is None else ():
        if state.provisional is None or pair.no_worse(state.provisional):
            state.provisional = pair
            yield pair.incumbent
    return values


def evaluate_leader(state: LeaderState, pair: Pair) -> Procedure[Values]:
    """Fill in F and the total violation of one pair."""
    return evaluate_leaders(state, [pair])


def evaluate_answer(state: LeaderState, pair: Pair) -> Procedure[None]:
    """Fill in F of a pair, unless it has no answer because the problem's own solver failed."""
    if pair.task < 0 or pair.lower_violation < math.inf:
        yield from evaluate_leader(state, pair)


def leader_values(pairs: list[Pair]) -> tuple[FloatArray, FloatArray]:
    """Return F and the violation of pairs, (k,) each."""
    return np.array([pair.F for pair in pairs]), np.array([pair.violation for pair in pairs])


def leader_ranking(pairs: list[Pair]) -> IntArray:
    return ranking(*leader_values(pairs))


def best_pair(pairs: list[Pair]) -> Pair:
    return pairs[best_index(*leader_values(pairs))]


def solve_follower(state: LeaderState, follower: AnyFollowerSearch) -> Procedure[None]:
    """Run a follower search to its end and evaluate F at its answer."""
    pair = yield from follower.solve()
    yield from evaluate_answer(state, pair)


def solver_searches(spec: Spec, state: LeaderState, leaders: FloatArray) -> list[SolverSearch]:
    """Return a search by the problem's own solver for each leader."""
    first, state.tasks = state.tasks, state.tasks + len(leaders)
    longest = most_steps(spec)
    return [SolverSearch(x, first + i, longest) for i, x in enumerate(leaders)]


def most_steps(spec: Spec) -> int:
    """Return how many steps the solver may take for one leader."""
    assert spec.step_cost is not None
    return max(1, spec.budget.lower_max // spec.step_cost)


def note_tasks(state: AlgorithmState, executions: Sequence[int], pairs: list[Pair]) -> None:
    """Note how often a generation's tasks ran, and which survive: the better half of the pairs."""
    state.executions = np.array(executions)
    state.survived = np.zeros(len(pairs), np.bool_)
    state.survived[leader_ranking(pairs)[: len(pairs) // 2]] = True


def close_generation(
    spec: Spec,
    state: LeaderState,
    executions: Sequence[int],
    pairs: list[Pair],
    rules: Sequence[StopRule] | None = None,
    settled: bool = False,
    lower: int = 0,
) -> None:
    """End a generation whose elite is chosen: note the tasks, and test the stop rules.

    `rules` are by default the published rules of the upper level. `settled`, and the number `lower`
    of lower evaluations so far, are for rules that need them.
    """
    F, _ = leader_values(pairs)
    state.F_scale.see(F)
    state.F_spread = interquartile_range(F)
    state.elite_F.append(state.the_elite.F)
    note_tasks(state, executions, pairs)
    state.generation += 1
    rules = upper_rules(spec, state, len(pairs)) if rules is None else rules
    state.stop = first_met(rules, state.progress(settled, lower))


def tell_leader(
    state: LeaderState, optimizer: AnyOptimizer, points: FloatArray, pairs: list[Pair]
) -> None:
    """Update the upper search with pairs; `points` are the pairs in the variables of this search.

    A pair that waits for its refinement counts as failed. A pair whose follower is not solved may
    have an F that is too good. An optimizer that keeps values would keep that F for ever, so it is
    told the elite's values instead.
    """
    F, violation = leader_values(pairs)
    for i, pair in enumerate(pairs):
        if pair is state.pending:
            F[i] = violation[i] = math.inf
        elif optimizer.keeps_values and is_unproven(pair, state.elite):
            F[i], violation[i] = state.the_elite.F, state.the_elite.violation
    optimizer.tell(state.leader, points, F, violation)


def is_unproven(pair: Pair, elite: Pair | None) -> bool:
    """Tell whether a pair seems better than the elite, but its follower is not solved."""
    return elite is not None and not pair.converged and not elite.no_worse(pair)


def reached(spec: Spec, pair: Pair) -> bool:
    """Tell whether a pair meets the target, which only a feasible pair can do."""
    return AtTarget(spec.target).reached(pair.F, pair.violation)


def upper_rules(spec: Spec, state: LeaderState, p: int) -> tuple[StopRule, ...]:
    """Return the published rules of the upper level, for generations of p pairs."""
    budget = spec.budget
    return (
        AtTarget(spec.target),
        Stagnation(
            math.ceil(budget.upper_window / p), state.F_scale.tolerance(spec.ftol), spec.ftol
        ),
        BudgetUsed(upper=budget.upper_max, generations=math.ceil(budget.upper_max / p)),
    )


def require_optimizer(optimizer: Any) -> None:
    """Refuse an object that lacks a member of `PopulationOptimizer`."""
    needed = [name for name in dir(PopulationOptimizer) if not name.startswith("_")]
    missing = [name for name in needed if not hasattr(optimizer, name)]
    if missing or isinstance(optimizer, type):
        raise ValueError(
            f"an optimizer such as CMAES() is needed, got {optimizer!r}"
            + (f", which has no {', '.join(missing)}" if missing else "")
        )


def finish(spec: Spec, state: LeaderState, pair: Pair) -> Procedure[Pair]:
    """Let the solver end its search for a pair's answer; return the pair with the last answer."""
    if pair.converged:
        return pair
    new = yield from SolverSearch.again(pair, most_steps(spec)).solve()
    if new is not pair:
        yield from evaluate_answer(state, new)
    return new


@dataclass(frozen=True, slots=True)
class JointSearch(Algorithm[LeaderState]):
    """An upper search over (x, y) whose marginal in y starts the follower searches.

    If the problem has its own solver, the upper search is over x alone.
    """

    upper: AnyOptimizer = field(default_factory=CMAES)
    lower: AnyOptimizer = field(default_factory=CMAES)

    def __post_init__(self) -> None:
        for optimizer in (self.upper, self.lower):
            require_optimizer(optimizer)

    State = LeaderState
    followers = Followers.BOTH

    def init(self, spec: Spec) -> Procedure[LeaderState]:
        yield from ()
        joint = spec.m + spec.n if spec.step_cost is None else spec.m
        return start_leader(spec, self.upper, joint)

    def new_followers(self, spec: Spec, state: LeaderState) -> Sequence[AnyFollowerSearch]:
        """Return a follower search for each leader of a new generation."""
        leaders = sample_leaders(spec, state, self.upper)
        if spec.step_cost is not None:
            return solver_searches(spec, state, leaders)
        return self.follower_searches(spec, state, leaders, "follower", self.lower)

    def follower_searches(
        self,
        spec: Spec,
        state: LeaderState,
        leaders: FloatArray,
        name: str,
        optimizer: AnyOptimizer,
    ) -> list[FollowerSearch]:
        """Return follower searches by an optimizer, from the joint search's marginal in y.

        `name` is that of the random streams from which the searches draw.
        """
        start, rule = self.upper.marginal(state.leader, spec.m), self.rule(spec, optimizer)
        followers = []
        for i, x in enumerate(leaders):
            rng = stream(spec.seed, name, state.generation, i)
            search = optimizer.start(start, rng)
            followers.append(FollowerSearch(x, optimizer, search, rng, rule, state.f_scale))
        return followers

    def rule(self, spec: Spec, optimizer: AnyOptimizer) -> FollowerRule:
        """Return the rule by which a follower search by an optimizer ends."""
        return FollowerRule.of(spec.budget, optimizer.population_size(spec.n))

    def refine(
        self, spec: Spec, state: LeaderState, pair: Pair, name: str = "refine"
    ) -> Procedure[Pair]:
        """Solve a pair's follower again; return the pair that is better for the follower.

        If the problem has its own solver, that solver continues its search unless it was done.
        """
        if spec.step_cost is not None:
            return (yield from finish(spec, state, pair))
        (follower,) = self.follower_searches(spec, state, pair.x[None], name, self.lower)
        new = yield from follower.solve()
        if not new.follower_no_worse(pair):
            return pair
        new.converged = new.converged or pair.converged
        yield from evaluate_leader(state, new)
        if math.isinf(new.violation):  # a failed evaluation replaces nothing
            return pair
        lost = pair.violation == 0 and new.violation > 0
        slight = pair.f - new.f < state.f_scale.tolerance(ABSOLUTE)
        # If the leader is on a constraint, the follower's rounding must not make it infeasible.
        return pair if lost and slight else new

    def conclude(
        self, spec: Spec, state: LeaderState, followers: Sequence[AnyFollowerSearch]
    ) -> Procedure[LeaderState]:
        """End a generation whose followers have answered: choose the elite, then `close`."""
        pairs = yield from self.answers(spec, state, followers)
        yield from self.update_elite(spec, state, pairs, candidate_index(pairs))
        return (yield from self.close(spec, state, followers, pairs, pairs))

    def conclude_later(
        self,
        spec: Spec,
        state: LeaderState,
        followers: Sequence[AnyFollowerSearch],
        search: Procedure[None],
    ) -> Procedure[LeaderState]:
        """Run the followers' `search` and end the generation; refine its candidate only later.

        The refinement runs beside the next generation's search, and the refined pair joins that
        generation's upper update. Until then the upper search does not see the candidate, because a
        follower's error may make its F too good. The candidate is refined at once if there is no
        elite, or if the candidate meets the target and the elite does not.
        """
        late: list[Pair] = []
        if state.elite is None:
            yield from search
        else:
            settling = self.settle(spec, state, state.pending, "late")
            _, refined = yield from alongside(search, settling)
            late = [refined]
        state.pending = None
        pairs = yield from self.answers(spec, state, followers)
        i = candidate_index(pairs)
        if state.elite is None or alone_reaches(spec, pairs[i], state.elite):
            yield from self.update_elite(spec, state, pairs, i)
        elif challenges(spec, state, pairs[i]):
            state.pending = pairs[i]
        return (yield from self.close(spec, state, followers, pairs, pairs + late))

    def answers(
        self, spec: Spec, state: LeaderState, followers: Sequence[AnyFollowerSearch]
    ) -> Procedure[list[Pair]]:
        """Return the generation's pairs; if x0 is given, its follower is solved to the end."""
        pairs = [follower.answer for follower in followers]
        if state.generation == 0 and spec.x0 is not None:
            pairs[0] = yield from self.refine(spec, state, pairs[0], "x0")
            pairs[0].converged = True
        return pairs

    def update_elite(
        self, spec: Spec, state: LeaderState, pairs: list[Pair], i: int
    ) -> Procedure[None]:
        """Refine either candidate i of the pairs or the elite, and choose the elite.

        A refined candidate replaces pair i. If the refinement of a first elite fails, the next best
        pair is the candidate.
        """
        if challenges(spec, state, pairs[i]):
            pairs[i] = refined = yield from self.settle(spec, state, pairs[i])
            others = any(pair.violation < math.inf for pair in pairs)
            if others and state.elite is refined and math.isinf(refined.violation):
                state.elite = None
                yield from self.update_elite(spec, state, pairs, candidate_index(pairs))
            return
        elite = yield from self.settle(spec, state, None)
        if alone_reaches(spec, pairs[i], elite):
            state.elite = pairs[i]

    def settle(
        self, spec: Spec, state: LeaderState, challenger: Pair | None, name: str = "refine"
    ) -> Procedure[Pair]:
        """Refine and return a challenger, which may become the elite; if None, refine the elite."""
        elite = state.elite
        if challenger is None:
            # The new answer is no worse for the follower, but it may be worse for the leader.
            state.elite = yield from self.refine(spec, state, state.the_elite, name)
            return state.elite
        refined = yield from self.refine(spec, state, challenger, name)
        if elite is None or refined.no_worse(elite) or alone_reaches(spec, refined, elite):
            state.elite = refined
        return refined

    def close(
        self,
        spec: Spec,
        state: LeaderState,
        followers: Sequence[AnyFollowerSearch],
        pairs: list[Pair],
        learnt: list[Pair],
    ) -> Procedure[LeaderState]:
        """End a generation whose elite is chosen; update the upper search with `learnt` pairs."""
        yield state.the_elite.incumbent
        close_generation(spec, state, [f.executions for f in followers], pairs)
        searched = slice(None) if spec.step_cost is None else slice(spec.m)
        points = np.array([np.concatenate([pair.x, pair.y])[searched] for pair in learnt])
        tell_leader(state, self.upper, points, learnt)
        return state


def candidate_index(pairs: list[Pair]) -> int:
    """Return the index of the best converged pair, or of the best pair if none has converged.

    A pair whose evaluation failed is chosen only if all pairs have failed.
    """
    converged = [i for i, p in enumerate(pairs) if p.converged and p.violation < math.inf]
    among = converged or range(len(pairs))
    return next(int(i) for i in leader_ranking(pairs) if i in among)


def challenges(spec: Spec, state: LeaderState, candidate: Pair) -> bool:
    """Tell whether to refine the candidate, not the elite; a coin decides on a worse candidate."""
    coin = stream(spec.seed, "coin", state.generation).random()
    return state.elite is None or candidate.no_worse(state.elite) or bool(coin < 0.5)


def alone_reaches(spec: Spec, pair: Pair, elite: Pair) -> bool:
    """Tell whether a pair meets the target and the elite does not."""
    return reached(spec, pair) and not reached(spec, elite)
