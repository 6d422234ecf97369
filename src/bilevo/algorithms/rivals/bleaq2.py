"""BLEAQ-II: a steady-state genetic algorithm with models of the follower's answer and its value.

A. Sinha, Z. Lu, K. Deb and P. Malo, "Bilevel optimization based on iterative approximation of
multiple mappings", Journal of Heuristics 26, 2020, and the program its authors published.

Leaders are bred as in NBLEA. A member is solved (`converged`) when its follower's search came to an
end; solved members go first. Archives of solved and other pairs feed the models psi, x -> y, and
phi, x -> f (see `rivals.mappings`), with which local searches improve the best leader every N
generations; half-way between them the elite's follower is solved afresh.

As in the program, whose text differs from the paper: children are always searched for
(`prob_search` = 1). With less, children get their answers from the models once there are enough.

What differs from the program, and why:
- its own stop at an error of 1e-2 is not taken over, the published accuracies being smaller;
- constraints count as they are, without the program's windows of 1e-4, and those of the follower
  count above too, because bilevo's answers have to meet them;
- the follower of a leader from a local search keeps the answer that the search has chosen where
  models leave it open, because a mutation, one time in n, would throw the gain away;
- a second look at the elite replaces no answer by one that is better by rounding only;
- the second search for the first population's followers does not replace better answers;
- the elite's follower is solved afresh only once there are enough pairs for a local search;
- slips are not repeated: the oldest pairs taken for the nearest (see `rivals.mappings`), an
  index of unsolved members read as one of all members.
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
    breed,
    deviations_of,
    elect,
    nearest_parent,
    total_variance,
)
from bilevo.algorithms.rivals.local_search import misjudged
from bilevo.algorithms.rivals.mappings import JointModels, Mappings, Sizes
from bilevo.algorithms.rivals.quadratic import fit, minimize, terms
from bilevo.algorithms.rivals.scikit_learn import require_scikit_learn
from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import (
    LeaderState,
    close_generation,
    first_by_itself,
    first_leaders,
)
from bilevo.algorithms.shared.sqp import LocalRule, sqp
from bilevo.core.algorithm import Algorithm, variant_name
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Budget, StopReason, require_count
from bilevo.core.problem import Spec
from bilevo.core.request import Incumbent, Level, Procedure, Values, evaluate, together
from bilevo.core.stop_rules import AtTarget, Settled, Stagnation, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.variation import WIDTH, distinct, polynomial_mutation

SMALLEST_VARIANCE = 1e-4  # of the first solved members': the run has ended below it
SMALLEST_CHANGE = 1e-4  # of the elite's F, relative, over the window
TRUSTED = 1e-2 / WIDTH  # root mean squared error of a mapping that is believed
SLACK = 1e-6  # by which f may exceed phi
REACH = 0.05  # of the box, around the start of an exact local search


@dataclass(slots=True, eq=False)
class Population(Leaders):
    """The leaders, what is known of followers, and how the last local search fared."""

    solved: Archive = field(default_factory=Archive)
    others: Archive = field(default_factory=Archive)
    doubted: bool = False  # the last local search on models was no success

    @property
    def best(self) -> int:
        """Among the solved members, if there are some."""
        keys = self.keys
        among = [i for i, member in enumerate(self.members) if is_solved(member)]
        return min(among or range(len(keys)), key=keys.__getitem__)

    @property
    def ranks(self) -> list[tuple[float, ...]]:
        """Solved members first, then Deb's order."""
        members = zip(self.members, self.keys, strict=True)
        return [(float(not is_solved(member)), *key) for member, key in members]

    def enter(self, newcomers: list[Pair], rng: np.random.Generator) -> None:
        """Random members and newcomers compete for the members' places.

        While few are solved, the places of others are at stake. The best solved is never lost.
        """
        count = max(len(newcomers), 2)
        unsolved = [i for i, member in enumerate(self.members) if not is_solved(member)]
        few = 2 * len(unsolved) >= len(self.members) and len(unsolved) >= count
        stake = unsolved if few else list(range(len(self.members)))
        places = [stake[i] for i in distinct(rng.random(count).tolist(), len(stake))]
        best = self.members[self.best]
        pool = Population([self.members[place] for place in places] + newcomers)
        keys = pool.keys
        ranked = sorted(range(len(keys)), key=keys.__getitem__)
        top = pool.best
        if is_solved(pool.members[top]):
            at_stake = any(member is best for member in pool.members)
            if at_stake or not is_solved(best) or pool.members[top].no_worse(best):
                ranked.insert(0, ranked.pop(ranked.index(top)))
        for place, i in zip(places, ranked, strict=False):
            self.members[place] = pool.members[i]

    def archive(self, task: FollowerTask, pair: Pair, capacity: int) -> None:
        """Keep a pair and its constraints; failures are of no use to models."""
        values = np.concatenate([[pair.F, pair.f], task.G, task.g])
        if not np.isfinite(values).all():
            return
        entry = Archive.of([pair], task.G[None], task.g[None])
        if pair.converged:
            self.solved = self.solved.joined(entry).latest(capacity)
        else:
            self.others = self.others.joined(entry).latest(capacity)


def is_solved(member: Pair) -> bool:
    return member.converged and member.violation < np.inf


@dataclass(frozen=True, slots=True)
class BLEAQ2(Algorithm[LeaderState]):
    """BLEAQ-II (Sinha, Lu, Deb and Malo, 2020); `prob_search` is 1 in its program."""

    population: int = 50  # at both levels; more above if the models need them
    prob_search: float = 1.0

    # 2000 generations of two children at both levels; no change over 200 above and 100 below.
    budget = Budget(upper_max=4050, upper_window=400, lower_max=4050, lower_window=200)
    revision = 1
    State = LeaderState

    def __post_init__(self) -> None:
        require_scikit_learn("bleaq2")
        require_count("population", self.population)
        if self.population < 4:
            raise ValueError(f"population must be at least 4, got {self.population}")
        if not 0 <= self.prob_search <= 1:
            raise ValueError(f"prob_search must be from 0 to 1, got {self.prob_search!r}")

    @property
    def name(self) -> str:
        return variant_name(self, "bleaq2")

    def upper_size(self, spec: Spec) -> int:
        return max(self.population, terms(spec.m) + 5 * spec.m)

    @property
    def local_size(self) -> int:
        """Of the genetic search below when there is something to start from."""
        return max(4, self.population // 10)

    def init(self, spec: Spec) -> Procedure[LeaderState]:
        yield from ()
        return LeaderState(Population())

    def generation(self, spec: Spec, state: LeaderState) -> Procedure[LeaderState]:
        population: Population = state.leader
        if population.members:
            rng = stream(spec.seed, "leader", state.generation)
            tasks = self.children(spec, state, rng)
            pairs = yield from together(task.solve_and_rate(spec, state) for task in tasks)
            population.enter(pairs, rng)
        else:
            tasks, pairs = yield from self.first_population(spec, state)
        capacity = Sizes(spec.m, spec.n).capacity
        for task, pair in zip(tasks, pairs, strict=True):
            population.archive(task, pair, capacity)
        yield from elect(state, population.members[population.best])
        close_generation(spec, state, tasks, pairs)
        state.stop = state.stop or self.settled(spec, state)
        if state.stop is not StopReason.TARGET:
            yield from self.improve(spec, state, pairs)
            best = population.members[population.best]
            yield from elect(state, best)
            state.stop = first_met([AtTarget(spec.target)], state.progress()) or state.stop
        return state

    def settled(self, spec: Spec, state: LeaderState) -> StopReason | None:
        """Test whether a feasible elite's F has stopped changing, or solved members have met."""
        population: Population = state.leader
        assert state.elite is not None
        if state.elite.violation > 0:
            return None
        variance = total_variance([member for member in population.members if is_solved(member)])
        met = variance < SMALLEST_VARIANCE * population.first_variance
        still = Stagnation(spec.budget.upper_window // 2 + 1, math.inf, SMALLEST_CHANGE)
        return first_met([still, Settled()], state.progress(settled=met))

    # The first population

    def first_population(
        self, spec: Spec, state: LeaderState
    ) -> Procedure[tuple[list[FollowerTask], list[Pair]]]:
        """Leaders, near the feasible set if there are constraints, with their followers solved.

        If some followers were not quadratic, all are solved again from the centres of the answers.
        """
        population: Population = state.leader
        rng = stream(spec.seed, "start")
        x = first_leaders(self.upper_size(spec), spec, rng)
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
        population.members = list(pairs)
        solved = [pair for pair in pairs if is_solved(pair)]
        population.first_variance = total_variance(solved) if len(solved) > 1 else 0.0
        return tasks, pairs

    def feasible_leaders(
        self, spec: Spec, x: FloatArray, rng: np.random.Generator
    ) -> Procedure[None]:
        """Replace half of the leaders by those of pairs that models say are feasible and good."""
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
        """Two children, with guesses from their nearest solved parents, or answers from models."""
        population: Population = state.leader
        x = np.array([member.x for member in population.members])
        parents, children = breed(x, population.keys, population.ranks, population.best, rng)
        solved = [i for i in parents if is_solved(population.members[i])]
        sizes = Sizes(spec.m, spec.n)
        ready = len(population.solved) >= sizes.mapping and 2 * sum(
            is_solved(member) for member in population.members
        ) >= len(population.members)
        tasks = []
        for i, child in enumerate(children):
            if rng.random() >= self.prob_search and ready:
                tasks.append(self.mapped(spec, state, child, i))
            else:
                guess = population.members[nearest_parent(x, child, solved or parents)].y
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
        """A follower to solve, by a small population near a guess, or else by a full one."""
        population: Population = state.leader
        rng = stream(spec.seed, name, state.generation, i)
        samples = terms(spec.n) + spec.n
        most = max(4, spec.budget.lower_max)
        if guess is None:
            if pool is None:
                pool = rng.random((min(self.population, most), spec.n))
            return FollowerTask(x, rng, samples, pool)
        answers = population.answers
        chosen = distinct(rng.random(self.local_size).tolist(), len(answers))
        return FollowerTask(x, rng, samples, answers[chosen], guess, deviations_of(answers))

    def mapped(self, spec: Spec, state: LeaderState, x: FloatArray, i: int) -> FollowerTask:
        """A follower whose answer comes from psi, or from phi where that seems as good."""
        population: Population = state.leader
        rng, sizes = stream(spec.seed, "mapping", state.generation, i), Sizes(spec.m, spec.n)
        mappings = Mappings.around(x, population.solved, sizes, rng)
        answer, error = mappings.answer(x), mappings.psi_validation
        pairs = population.solved.joined(population.others)
        better = mappings.phi_error <= mappings.psi_error and phi_is_better(state, mappings)
        coin = rng.random() < 0.25
        if len(pairs) >= sizes.joint and (better or coin):
            slack = state.f_scale.tolerance(SLACK)
            answer = JointModels.around(x, pairs, mappings.phi, slack, sizes).answer(x, answer)
            error = phi_validation(state, mappings)
        clipped = np.clip(answer, 0.0, 1.0)
        trusted = mappings.surrounds(x) and bool((clipped == answer).all()) and error < TRUSTED
        return FollowerTask(x, rng, 0, answer[None], answer=clipped, trusted=trusted)

    # Local search

    def improve(self, spec: Spec, state: LeaderState, children: Sequence[Pair]) -> Procedure[None]:
        """Every N generations, and at the end, a local search; half-way between a second look."""
        population: Population = state.leader
        if len(population.solved) < Sizes(spec.m, spec.n).mapping:
            return
        period = len(population.members)
        turn = (state.generation - 2) % period  # the first generation bred is number 2
        if state.stop is not None or turn == 0:
            yield from self.local_search(spec, state, children)
        elif turn == period // 2:
            yield from self.look_again(spec, state)

    def local_search(
        self, spec: Spec, state: LeaderState, children: Sequence[Pair]
    ) -> Procedure[None]:
        """A leader from the models, or at the end or after a failure from F itself along psi."""
        population: Population = state.leader
        rng = stream(spec.seed, "local", state.generation)
        start = state.elite
        assert start is not None
        if rng.random() >= 0.5:
            start = children[int(rng.integers(len(children)))]
        exact = population.doubted or state.stop is not None
        x, y = yield from self.proposed(spec, state, start, exact, rng)
        task = self.task(spec, state, x, 0, y, name="local-follower")
        task.keeps_open = True
        pair = yield from task.solve_and_rate(spec, state)
        population.doubted = not exact and not (is_solved(pair) and not start.no_worse(pair))
        if is_solved(pair):
            population.archive(task, pair, Sizes(spec.m, spec.n).capacity)
            population.enter([pair], rng)

    def proposed(
        self, spec: Spec, state: LeaderState, start: Pair, exact: bool, rng: np.random.Generator
    ) -> Procedure[tuple[FloatArray, FloatArray]]:
        """The leader that a local search finds, and a guess at its follower's answer."""
        population: Population = state.leader
        sizes = Sizes(spec.m, spec.n)
        mappings = Mappings.around(start.x, population.solved, sizes, rng)
        pairs = population.solved.joined(population.others)
        coin = rng.random() <= 0.5
        by_psi = not phi_is_better(state, mappings) or len(pairs) < sizes.joint or coin
        if exact and by_psi:
            return (yield from self.exact_by_psi(state, start, mappings))
        if exact:
            return (yield from self.exact_by_phi(state, start, mappings))
        if by_psi:
            near = population.solved.nearest(start.x, sizes.mapping)
            objective, *rules = fit(near.x, np.concatenate([near.F, near.G], axis=1))
            x = minimize(objective, rules, start.x, np.zeros(spec.m), np.ones(spec.m))
            return x, start.y
        slack = state.f_scale.tolerance(SLACK)
        models = JointModels.around(start.x, pairs, mappings.phi, slack, sizes)
        return models.minimize(start.x, start.y)

    def exact_by_psi(
        self, state: LeaderState, start: Pair, mappings: Mappings
    ) -> Procedure[tuple[FloatArray, FloatArray]]:
        """SQP on F near the start, with y = psi(x)."""

        def at(x: FloatArray) -> Procedure[Values]:
            y = np.clip([mappings.answer(row) for row in x], 0.0, 1.0)
            values = yield from evaluate(Level.UPPER, x, y)
            state.spent = values.spent
            return values

        return (yield from search_near(at, start.x)), start.y

    def exact_by_phi(
        self, state: LeaderState, start: Pair, mappings: Mappings
    ) -> Procedure[tuple[FloatArray, FloatArray]]:
        """SQP on F near the start over (x, y) with f at most phi(x), and the constraints."""
        m, slack = len(start.x), state.f_scale.tolerance(SLACK)

        def at(points: FloatArray) -> Procedure[Values]:
            x, y = points[:, :m], points[:, m:]
            upper = yield from evaluate(Level.UPPER, x, y)
            state.spent = upper.spent
            lower = yield from evaluate(Level.LOWER, x, y)
            gap = lower.objective - np.array([mappings.phi(row) for row in x]) - slack
            constraints = np.column_stack([upper.constraints, lower.constraints, gap])
            return Values.of(upper.objective, constraints, 0, upper.spent)

        found = yield from search_near(at, np.concatenate([start.x, start.y]))
        return found[:m], found[m:]

    def look_again(self, spec: Spec, state: LeaderState) -> Procedure[None]:
        """Solve the elite's follower from nothing; a better answer corrects the elite."""
        population: Population = state.leader
        elite, place = state.elite, population.best
        assert elite is not None
        task = self.task(spec, state, elite.x, 0, name="again")
        pair = yield from task.solve_and_rate(spec, state)
        if is_solved(pair) and misjudged(state, elite, pair):
            population.members[place] = pair
            population.archive(task, pair, Sizes(spec.m, spec.n).capacity)


def at_both_levels(points: FloatArray, m: int) -> Procedure[tuple[FloatArray, FloatArray]]:
    """Both objectives (k, 2) and all constraints (k, .) of pairs (k, m + n)."""
    x, y = points[:, :m], points[:, m:]
    lower = yield from evaluate(Level.LOWER, x, y)
    upper = yield from evaluate(Level.UPPER, x, y)
    if len(points) == 1:  # the first: an answer for now, should the run end before one is solved
        violation = float(upper.violation[0]) + float(lower.violation[0])
        F = float(upper.objective[0]) if violation < np.inf else np.inf
        yield Incumbent(x[0], y[0], F, float(lower.objective[0]), violation)
    constraints = np.concatenate([upper.constraints, lower.constraints], axis=1)
    return np.column_stack([upper.objective, lower.objective]), constraints


def search_near(at: At, start: FloatArray) -> Procedure[FloatArray]:
    """The best point that SQP finds in a small box around the start."""
    low, high = np.maximum(start - REACH, 0.0), np.minimum(start + REACH, 1.0)
    answer = yield from sqp(at, start, low, high, LocalRule(max_points=100 * len(start)))
    return answer.point


def phi_validation(state: LeaderState, mappings: Mappings) -> float:
    """phi's error in the units of psi's: values count as those of the published problems."""
    return mappings.phi_validation / (WIDTH * state.f_scale.tolerance(1.0))


def phi_is_better(state: LeaderState, mappings: Mappings) -> bool:
    return phi_validation(state, mappings) <= mappings.psi_validation


def centres_of(answers: FloatArray, count: int, seed: int) -> FloatArray:
    """Centres of clusters of the answers, fewer if they coincide."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # which scikit-learn brings

    count = min(count, len(np.unique(answers, axis=0)))
    with threadpool_limits(1):  # threads would add up in any order
        kmeans = KMeans(count, n_init=1, random_state=seed % 2**32).fit(answers)
    return np.asarray(np.clip(kmeans.cluster_centers_, 0.0, 1.0), dtype=np.float64)
