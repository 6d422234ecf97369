"""BLEAQ-II: a steady-state genetic algorithm with models of the follower's answer and its value.

A. Sinha, Z. Lu, K. Deb and P. Malo, "Bilevel optimization based on iterative approximation of
multiple mappings", Journal of Heuristics 26, 2020, and the program its authors published.

Leaders are bred as in NBLEA. A member counts as solved (`converged`) if its follower's search came
to its end. Solved members rank first. The models psi, x -> y, and phi, x -> f (see
`rivals.mappings`) are fitted to archives of solved and other pairs. Every N generations, where N is
the size of the upper population, a local search on the models improves the best leader. Half-way
between two local searches, the elite's follower is solved again, without a guess.

By default every child's follower is solved by a search (`prob_search` = 1). The program does that,
too; the paper does not. With a lower probability, models give some children their answers, once
there are enough pairs.

These points differ from the program:
- There is no stop at an error of 1e-2, because the published errors are smaller.
- Constraints have no tolerance; the program allows 1e-4. The follower's constraints also count at
  the upper level, because bilevo's answers have to meet them.
- Models may not determine some variables of an answer. The program then mutates these variables
  with probability 1/n. Here they are kept if a local search found the leader, because a mutation
  would lose the gain.
- The check of the elite ignores an answer that is better only by rounding.
- The second search for the first population's followers does not replace better answers.
- The elite's follower is solved again only once there are enough pairs for a local search.
- The program takes the oldest pairs for the nearest (see `rivals.mappings`), and takes an index of
  unsolved members for an index of all members. Both mistakes are corrected here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.rivals.genetic import (
    FollowerTask,
    Leaders,
    accept_elite,
    breed,
    deviations_of,
    nearest_parent,
    total_variance,
)
from bilevo.algorithms.rivals.mappings import (
    JointModels,
    Mappings,
    Sizes,
    exact_by_phi,
    exact_by_psi,
    phi_is_better,
    phi_validation,
)
from bilevo.algorithms.rivals.pairs import first_incumbent, misjudged
from bilevo.algorithms.rivals.quadratic import fit, minimize, terms
from bilevo.algorithms.rivals.scikit_learn import centres_of, require_scikit_learn
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import (
    LeaderState,
    close_generation,
    first_by_itself,
    first_leaders,
)
from bilevo.core.algorithm import Algorithm, registered
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Budget, StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, evaluate, together
from bilevo.core.stop_rules import AtTarget, Settled, Stagnation, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.protocol import require_population
from bilevo.optimizers.variation import WIDTH, distinct, polynomial_mutation

# The run ends when the variance of the solved members has shrunk to this share of their first.
END_SOLVED_VARIANCE = 1e-4
END_CHANGE = 1e-4  # The run ends if the elite's F changes less over the window, in relative terms.
TRUSTED = 1e-2 / WIDTH  # A mapping with a smaller root mean squared error is believed.


@dataclass(slots=True, eq=False)
class BLEAQ2Leaders(Leaders):
    """The leaders, and archives of solved and other pairs."""

    solved: Archive = field(default_factory=Archive)
    others: Archive = field(default_factory=Archive)
    doubted: bool = False  # whether the last local search on models failed

    @property
    def best(self) -> int:
        """Return the index of the best solved member, or of the best member if none is solved."""
        keys = self.keys
        among = [i for i, member in enumerate(self.members) if is_solved(member)]
        return min(among or range(len(keys)), key=keys.__getitem__)

    @property
    def ranks(self) -> list[tuple[float, ...]]:
        """Return keys that put solved members first, and otherwise sort in Deb's order."""
        members = zip(self.members, self.keys, strict=True)
        return [(float(not is_solved(member)), *key) for member, key in members]

    def enter(self, newcomers: list[Pair], rng: np.random.Generator) -> None:
        """Let newcomers and random members compete for the members' places.

        While at least half of the members are unsolved, only unsolved members can be replaced. The
        best solved member is never lost.
        """
        count = max(len(newcomers), 2)
        unsolved = [i for i, member in enumerate(self.members) if not is_solved(member)]
        few = 2 * len(unsolved) >= len(self.members) and len(unsolved) >= count
        stake = unsolved if few else list(range(len(self.members)))
        places = [stake[i] for i in distinct(rng.random(count).tolist(), len(stake))]
        best = self.members[self.best]
        pool = BLEAQ2Leaders([self.members[place] for place in places] + newcomers)
        keys = pool.keys
        ranked = sorted(range(len(keys)), key=keys.__getitem__)
        top = pool.best
        if is_solved(pool.members[top]):
            at_stake = any(member is best for member in pool.members)
            if at_stake or not is_solved(best) or pool.members[top].no_worse(best):
                ranked.insert(0, ranked.pop(ranked.index(top)))
        for place, i in zip(places, ranked, strict=False):
            self.members[place] = pool.members[i]

    def archive(self, spec: Spec, task: FollowerTask, pair: Pair) -> None:
        """Keep a pair and its constraints, unless an evaluation failed."""
        values = np.concatenate([[pair.F, pair.f], task.G, task.g])
        if not np.isfinite(values).all():
            return
        entry, capacity = Archive.of([pair], task.G[None], task.g[None]), Sizes.of(spec).capacity
        if pair.converged:
            self.solved = self.solved.joined(entry).latest(capacity)
        else:
            self.others = self.others.joined(entry).latest(capacity)


def is_solved(member: Pair) -> bool:
    return member.converged and member.violation < np.inf


@dataclass(frozen=True, slots=True)
class BLEAQ2(Algorithm[LeaderState]):
    """BLEAQ-II (Sinha, Lu, Deb and Malo, 2020).

    A child's follower is solved by a search with probability `prob_search`, and else by models.
    """

    population: int = 50  # at both levels; the upper level has more if models need more pairs
    prob_search: float = 1.0

    # 2000 generations of two children per level; windows of 200 upper and 100 lower generations.
    budget = Budget(upper_max=4050, upper_window=400, lower_max=4050, lower_window=200)
    name = registered("bleaq2")
    revision = 1
    State = LeaderState

    def __post_init__(self) -> None:
        require_scikit_learn("bleaq2")
        require_population("BLEAQ-II", self.population, optional=False)
        if not 0 <= self.prob_search <= 1:
            raise ValueError(f"prob_search must be from 0 to 1, got {self.prob_search!r}")

    @property
    def local_size(self) -> int:
        """Return the size of a genetic search for a follower that starts from known answers."""
        return max(4, self.population // 10)

    def init(self, spec: Spec) -> Procedure[LeaderState]:
        yield from ()
        return LeaderState(BLEAQ2Leaders())

    def generation(self, spec: Spec, state: LeaderState) -> Procedure[LeaderState]:
        leaders: BLEAQ2Leaders = state.leader
        if leaders.members:
            rng = stream(spec.seed, "leader", state.generation)
            tasks = self.children(spec, state, rng)
            pairs = yield from together(task.solve_and_rate(spec, state) for task in tasks)
            leaders.enter(pairs, rng)
        else:
            tasks, pairs = yield from self.first_population(spec, state)
        for task, pair in zip(tasks, pairs, strict=True):
            leaders.archive(spec, task, pair)
        yield from accept_elite(state, leaders.members[leaders.best])
        close_generation(spec, state, [task.executions for task in tasks], pairs)
        state.stop = state.stop or self.settled(spec, state)
        if state.stop is not StopReason.TARGET:
            yield from self.improve(spec, state, pairs)
            yield from accept_elite(state, leaders.members[leaders.best])
            state.stop = first_met([AtTarget(spec.target)], state.progress()) or state.stop
        return state

    def settled(self, spec: Spec, state: LeaderState) -> StopReason | None:
        """Return the reason to stop if F of the elite has stopped changing or members are close.

        Returns None otherwise, and while the elite is infeasible. Only solved members count.
        """
        if state.the_elite.violation > 0:
            return None
        variance = total_variance([member for member in state.leader.members if is_solved(member)])
        close = variance < END_SOLVED_VARIANCE * state.leader.first_variance
        still = Stagnation(spec.budget.upper_window // 2 + 1, math.inf, END_CHANGE)
        return first_met([still, Settled()], state.progress(settled=close))

    # The first population

    def first_population(
        self, spec: Spec, state: LeaderState
    ) -> Procedure[tuple[list[FollowerTask], list[Pair]]]:
        """Make leaders and solve their followers; with constraints, try to make feasible leaders.

        If some followers were not quadratic, all are solved again from cluster centres of answers.
        """
        rng = stream(spec.seed, "start")
        x = first_leaders(max(self.population, terms(spec.m) + 5 * spec.m), spec, rng)
        yield from self.feasible_leaders(spec, x, rng)
        tasks = [self.task(spec, state, leader, i) for i, leader in enumerate(x)]
        pairs = yield from first_by_itself(task.solve_and_rate(spec, state) for task in tasks)
        if any(task.genetic for task in tasks):
            centres = centres_of(np.array([pair.y for pair in pairs]), self.local_size, spec.seed)
            again = [self.task(spec, state, x[i], i + len(x), pool=centres) for i in range(len(x))]
            others = yield from together(task.solve_and_rate(spec, state) for task in again)
            for i, other in enumerate(others):
                if other.violation < np.inf and other.follower_no_worse(pairs[i]):
                    tasks[i], pairs[i] = again[i], other
        solved = [pair for pair in pairs if is_solved(pair)]
        state.leader.members = list(pairs)
        state.leader.first_variance = total_variance(solved) if len(solved) > 1 else 0.0
        return tasks, pairs

    def feasible_leaders(
        self, spec: Spec, x: FloatArray, rng: np.random.Generator
    ) -> Procedure[None]:
        """Replace half of the leaders x by leaders that are feasible by models of the constraints.

        Without constraints nothing is replaced.
        """
        d = spec.m + spec.n
        points = rng.random((terms(d) + 5 * d, d))
        objectives, constraints = yield from at_both_levels(points[:1], spec.m)
        if not constraints.shape[1]:
            return
        more = yield from at_both_levels(points[1:], spec.m)
        objectives = np.concatenate([objectives, more[0]])
        constraints = np.concatenate([constraints, more[1]])
        usable = np.isfinite(objectives).all(axis=1)
        if usable.sum() < d + 2:
            return
        points, objectives = points[usable], objectives[usable]
        rules = fit(points, constraints[usable])
        first = 0 if spec.x0 is None else 1
        for i in range(first, (len(x) + 1) // 2):
            goal = fit(points, (objectives / 2 @ rng.random(2))[:, None])[0]
            start = points[rng.integers(len(points))]
            x[i] = minimize(goal, rules, start, np.zeros(d), np.ones(d))[: spec.m]
            if i and np.linalg.norm(x[:i] - x[i], axis=1).min() <= 1e-6 / WIDTH:
                x[i] = polynomial_mutation(x[i][None], rng, 1.0, scale=1 / WIDTH)[0]

    # Children

    def children(
        self, spec: Spec, state: LeaderState, rng: np.random.Generator
    ) -> list[FollowerTask]:
        """Return the tasks of two children.

        The nearest solved parent of a child gives a guess at its answer, or models give the answer.
        """
        leaders: BLEAQ2Leaders = state.leader
        members = leaders.members
        x = np.array([member.x for member in members])
        parents, children = breed(x, leaders.keys, leaders.ranks, leaders.best, rng)
        solved = [i for i in parents if is_solved(members[i])]
        half_solved = 2 * sum(map(is_solved, members)) >= len(members)
        ready = len(leaders.solved) >= Sizes.of(spec).mapping and half_solved
        tasks = []
        for i, child in enumerate(children):
            if rng.random() >= self.prob_search and ready:
                tasks.append(self.mapped(spec, state, child, i))
            else:
                guess = members[nearest_parent(x, child, solved or parents)].y
                tasks.append(self.task(spec, state, child, i, guess))
        return tasks

    def task(
        self,
        spec: Spec,
        state: LeaderState,
        x: FloatArray,
        i: int,
        guess: FloatArray | None = None,
        pool: FloatArray | None = None,
        name: str = "follower",
    ) -> FollowerTask:
        """Return a follower to solve; with a guess, the genetic search has a small population."""
        rng = stream(spec.seed, name, state.generation, i)
        samples = terms(spec.n) + spec.n
        if guess is None:
            if pool is None:
                most = max(4, spec.budget.lower_max)
                pool = rng.random((min(self.population, most), spec.n))
            return FollowerTask(x, rng, samples, pool)
        answers = state.leader.answers
        chosen = distinct(rng.random(self.local_size).tolist(), len(answers))
        return FollowerTask(x, rng, samples, answers[chosen], guess, deviations_of(answers))

    def mapped(self, spec: Spec, state: LeaderState, x: FloatArray, i: int) -> FollowerTask:
        """Return a follower whose answer comes from psi, or from phi if phi seems as good."""
        leaders: BLEAQ2Leaders = state.leader
        rng, sizes = stream(spec.seed, "mapping", state.generation, i), Sizes.of(spec)
        mappings = Mappings.around(x, leaders.solved, sizes, rng)
        answer, error = mappings.answer(x), mappings.psi_validation
        pairs = leaders.solved.joined(leaders.others)
        better = mappings.phi_error <= mappings.psi_error and phi_is_better(state, mappings)
        coin = rng.random() < 0.25
        if len(pairs) >= sizes.joint and (better or coin):
            models = JointModels.around(x, pairs, mappings.phi, state.f_scale, sizes)
            answer = models.answer(x, answer)
            error = phi_validation(state, mappings)
        clipped = np.clip(answer, 0.0, 1.0)
        trusted = mappings.surrounds(x) and bool((clipped == answer).all()) and error < TRUSTED
        return FollowerTask(x, rng, 0, answer[None], answer=clipped, trusted=trusted)

    # Local search

    def improve(self, spec: Spec, state: LeaderState, children: Sequence[Pair]) -> Procedure[None]:
        """Search locally every N generations and at the end; half-way between, check the elite."""
        if len(state.leader.solved) < Sizes.of(spec).mapping:
            return
        period = len(state.leader.members)
        phase = (state.generation - 2) % period  # the first generation bred is number 2
        if state.stop is not None or phase == 0:
            yield from self.local_search(spec, state, children)
        elif phase == period // 2:
            yield from self.check_elite(spec, state)

    def local_search(
        self, spec: Spec, state: LeaderState, children: Sequence[Pair]
    ) -> Procedure[None]:
        """Let the result of a local search compete with the members.

        The search uses models. At the end of the run, and after a search on models that failed, it
        evaluates F instead.
        """
        leaders: BLEAQ2Leaders = state.leader
        rng = stream(spec.seed, "local", state.generation)
        start = state.the_elite
        if rng.random() >= 0.5:
            start = children[int(rng.integers(len(children)))]
        exact = leaders.doubted or state.stop is not None
        x, y = yield from self.proposed(spec, state, start, exact, rng)
        task = self.task(spec, state, x, 0, y, name="local-follower")
        task.keeps_open = True
        pair = yield from task.solve_and_rate(spec, state)
        leaders.doubted = not exact and not (is_solved(pair) and not start.no_worse(pair))
        if is_solved(pair):
            leaders.archive(spec, task, pair)
            leaders.enter([pair], rng)

    def proposed(
        self, spec: Spec, state: LeaderState, start: Pair, exact: bool, rng: np.random.Generator
    ) -> Procedure[tuple[FloatArray, FloatArray]]:
        """Search locally; return the leader found and a guess at its follower's answer."""
        leaders: BLEAQ2Leaders = state.leader
        sizes = Sizes.of(spec)
        mappings = Mappings.around(start.x, leaders.solved, sizes, rng)
        pairs = leaders.solved.joined(leaders.others)
        coin = rng.random() <= 0.5
        by_psi = not phi_is_better(state, mappings) or len(pairs) < sizes.joint or coin
        if exact:
            search = exact_by_psi if by_psi else exact_by_phi
            return (yield from search(state, start, mappings))
        if by_psi:
            near = leaders.solved.nearest(start.x, sizes.mapping)
            objective, *rules = fit(near.x, np.concatenate([near.F, near.G], axis=1))
            x = minimize(objective, rules, start.x, np.zeros(spec.m), np.ones(spec.m))
            return x, start.y
        models = JointModels.around(start.x, pairs, mappings.phi, state.f_scale, sizes)
        return models.minimize(start.x, start.y)

    def check_elite(self, spec: Spec, state: LeaderState) -> Procedure[None]:
        """Solve the elite's follower without a guess; a better answer corrects the elite."""
        elite, place = state.the_elite, state.leader.best
        task = self.task(spec, state, elite.x, 0, name="again")
        pair = yield from task.solve_and_rate(spec, state)
        if is_solved(pair) and misjudged(state, elite, pair):
            state.leader.members[place] = pair
            state.leader.archive(spec, task, pair)


def at_both_levels(points: FloatArray, m: int) -> Procedure[tuple[FloatArray, FloatArray]]:
    """Evaluate pairs (k, m + n); return both objectives (k, 2) and all constraints (k, .)."""
    x, y = points[:, :m], points[:, m:]
    lower = yield from evaluate(Level.LOWER, x, y)
    upper = yield from evaluate(Level.UPPER, x, y)
    if len(points) == 1:  # report a pair, in case the run ends before any follower is solved
        yield first_incumbent(x, y, upper, lower)
    constraints = np.concatenate([upper.constraints, lower.constraints], axis=1)
    return np.column_stack([upper.objective, lower.objective]), constraints
