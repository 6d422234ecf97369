"""NBLEA: a steady-state genetic algorithm at both levels, which solves every leader's follower.

A. Sinha, P. Malo and K. Deb, "An improved bilevel evolutionary algorithm based on quadratic
approximations", IEEE Congress on Evolutionary Computation, 2014, which compares the approximations
with this nested variant. Its authors published no program for it. Operators and constants are taken
from their later BLEAQ-II program. Two things are inferred:
- Followers are first tried as quadratic programs (`quadratic`), because published tables show a
  constant number of lower evaluations per leader on problems with quadratic followers:
  (n + 1)(n + 2) / 2 + 5 n points and an answer.
- The run ends when the variance of the population has shrunk to 1e-6 of the first variance, or when
  the best F has not changed over 300 generations. The later program has 1e-4 and 200. With these,
  runs end before they reach the published accuracies and numbers of evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.rivals.genetic import (
    FollowerTask,
    Leaders,
    accept_elite,
    breed,
    deviations_of,
    nearest_parent,
    total_variance,
)
from bilevo.algorithms.rivals.quadratic import terms
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import (
    LeaderState,
    close_generation,
    first_by_itself,
    first_leaders,
)
from bilevo.core.algorithm import Algorithm, registered
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Budget
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.stop_rules import Settled, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.protocol import require_population
from bilevo.optimizers.variation import distinct

END_VARIANCE = 1e-6  # The run ends when the variance has shrunk to this share of the first.


@dataclass(frozen=True, slots=True)
class NBLEA(Algorithm[LeaderState]):
    """NBLEA (Sinha, Malo and Deb, 2014); without `quadratic`, all searches are genetic."""

    population: int = 50  # at both levels
    quadratic: bool = True

    # 2000 generations of two children per level; windows of 300 upper and 100 lower generations.
    budget = Budget(upper_max=4050, upper_window=600, lower_max=4050, lower_window=200)
    name = registered("nblea")
    revision = 1
    State = LeaderState

    def __post_init__(self) -> None:
        require_population("NBLEA", self.population, optional=False)

    def init(self, spec: Spec) -> Procedure[LeaderState]:
        yield from ()
        return LeaderState(Leaders())

    def generation(self, spec: Spec, state: LeaderState) -> Procedure[LeaderState]:
        leaders: Leaders = state.leader
        rng = stream(spec.seed, "leader", state.generation)
        if leaders.members:
            tasks = self.children(spec, state, rng)
            pairs = yield from together(task.solve_and_rate(spec, state) for task in tasks)
            compete(leaders, pairs, rng)
        else:
            x = first_leaders(self.population, spec, rng)
            tasks = [self.task(spec, state, leader, i) for i, leader in enumerate(x)]
            pairs = yield from first_by_itself(task.solve_and_rate(spec, state) for task in tasks)
            leaders.members, leaders.first_variance = list(pairs), total_variance(pairs)
        best = leaders.members[leaders.best]
        yield from accept_elite(state, best)
        close_generation(spec, state, [task.executions for task in tasks], pairs)
        variance = total_variance(leaders.members)
        shrunk = best.violation == 0 and variance < END_VARIANCE * leaders.first_variance
        state.stop = state.stop or first_met([Settled()], state.progress(settled=shrunk))
        return state

    def children(
        self, spec: Spec, state: LeaderState, rng: np.random.Generator
    ) -> list[FollowerTask]:
        """Return the tasks of two children, whose guesses are their nearest parents' answers."""
        leaders: Leaders = state.leader
        x, keys = np.array([member.x for member in leaders.members]), leaders.keys
        parents, children = breed(x, keys, keys, leaders.best, rng)
        deviations = deviations_of(leaders.answers)
        tasks = []
        for i, child in enumerate(children):
            guess = leaders.members[nearest_parent(x, child, parents)].y
            tasks.append(self.task(spec, state, child, i, guess, deviations))
        return tasks

    def task(
        self,
        spec: Spec,
        state: LeaderState,
        x: FloatArray,
        i: int,
        guess: FloatArray | None = None,
        deviations: FloatArray | None = None,
    ) -> FollowerTask:
        rng = stream(spec.seed, "follower", state.generation, i)
        samples = terms(spec.n) + 5 * spec.n if self.quadratic else 0
        pool = rng.random((max(4, min(self.population, spec.budget.lower_max)), spec.n))
        if guess is not None:
            pool[0] = guess
        return FollowerTask(x, rng, samples, pool, guess, deviations)


def compete(leaders: Leaders, children: list[Pair], rng: np.random.Generator) -> None:
    """Let the children and two random members compete for the places of these members."""
    places = distinct(rng.random(len(children)).tolist(), len(leaders.members))
    pool = Leaders([leaders.members[place] for place in places] + children)
    keys = pool.keys
    ranked = sorted(range(len(keys)), key=keys.__getitem__)
    for place, i in zip(places, ranked[: len(places)], strict=True):
        leaders.members[place] = pool.members[i]
