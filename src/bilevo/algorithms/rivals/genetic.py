"""The common part of NBLEA and BLEAQ-II: how leaders are bred, and how a follower is solved.

A. Sinha, P. Malo and K. Deb, "An improved bilevel evolutionary algorithm based on quadratic
approximations", IEEE CEC, 2014; A. Sinha, Z. Lu, K. Deb and P. Malo, "Bilevel optimization based on
iterative approximation of multiple mappings", Journal of Heuristics 26, 2020, with its program.

A follower is first tried as a quadratic program: models of f and of each constraint are fitted to a
few points around a guess, and minimized. If f and g at the answer are what the models predict, the
follower is solved. Otherwise a genetic search continues from there.

These points differ from the program:
- The program's tolerances and step lengths are in the user's units. Here they are relative to the
  usual width of the boxes in its test problems (see `optimizers.variation`), and the tolerance on
  values is relative to the size of these values.
- Constraints are met with a small margin, because bilevo counts any value above 0 as infeasible.
  As in the program, an answer that violates a constraint by up to 1e-6 ends a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.rivals.quadratic import Quadratic, fit, free_variables, minimize
from bilevo.algorithms.rivals.steady_ga import CHILDREN, SteadyGA
from bilevo.algorithms.shared.follower_search import (
    FollowerRule,
    FollowerSearch,
    Pair,
    evaluate_answers,
)
from bilevo.algorithms.shared.leader import LeaderState, evaluate_leader
from bilevo.core.arrays import FloatArray
from bilevo.core.order import Key, best_index, order_key
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, Values
from bilevo.optimizers.variation import (
    WIDTH,
    adaptive_eta,
    entrants,
    parent_centric_crossover,
    polynomial_mutation,
    tournaments,
)

EXACT = 1e-6  # Smaller errors of a model and smaller violations count as none.
LEAST_VARIANCE = 1e-6 / WIDTH**2  # The least variance of the points that models are fitted to.


@dataclass(slots=True, eq=False)
class Leaders:
    """The upper population, and its `total_variance` at the start."""

    members: list[Pair] = field(default_factory=list)
    first_variance: float = 0.0

    @property
    def keys(self) -> list[Key]:
        return [order_key(member.F, member.violation) for member in self.members]

    @property
    def best(self) -> int:
        keys = self.keys
        return min(range(len(keys)), key=keys.__getitem__)

    @property
    def answers(self) -> FloatArray:
        return np.array([member.y for member in self.members])


def total_variance(pairs: Sequence[Pair]) -> float:
    """Return the sum of the variances of all variables of both levels."""
    rows = np.array([np.concatenate([pair.x, pair.y]) for pair in pairs])
    return float(rows.var(axis=0, ddof=1).sum()) if len(rows) > 1 else math.inf


def accept_elite(state: LeaderState, best: Pair) -> Procedure[None]:
    """Make a member the elite, and tell the driver if the pair has changed.

    Pairs are compared by their points, because a restored state holds copies.
    """
    elite, state.elite = state.elite, best
    if elite is None or not (np.array_equal(elite.x, best.x) and np.array_equal(elite.y, best.y)):
        yield best.incumbent


def nearest_parent(x: FloatArray, child: FloatArray, parents: Sequence[int]) -> int:
    return min(parents, key=lambda i: float(np.linalg.norm(x[i] - child)))


def breed(
    points: FloatArray,
    keys: Sequence[Key],
    ranks: Sequence[tuple[float, ...]],
    best: int,
    rng: np.random.Generator,
) -> tuple[list[int], FloatArray]:
    """Return the indices of three parents, and two children of theirs.

    The parents are the best member and two winners of tournaments, which are decided by `ranks`.
    """
    infeasible = sum(violation > 0 for violation, _ in keys)
    among = entrants(keys, infeasible, rng.random(4).tolist())
    parents = [best, *tournaments(among, ranks)]
    chosen = points[parents]
    children = parent_centric_crossover(chosen, rng, adaptive_eta(chosen), CHILDREN)
    children = polynomial_mutation(children, rng, 1 / points.shape[1], scale=1 / WIDTH)
    return parents, children


@dataclass(slots=True, eq=False)
class FollowerTask:
    """The follower to solve at x.

    Models are fitted to `samples` points; there are no models if this is 0. The points are drawn
    around the guess with the given deviations, or all over the box if there is no guess. `pool` is
    the first population of the genetic search. If an `answer` is given, nothing is solved; its pair
    counts as solved if the answer is `trusted`.
    """

    x: FloatArray
    rng: np.random.Generator
    samples: int
    pool: FloatArray
    guess: FloatArray | None = None
    deviations: FloatArray | None = None
    keeps_open: bool = False  # do not mutate variables that the models leave open
    answer: FloatArray | None = None
    trusted: bool = False
    executions: int = 1
    genetic: bool = False  # whether the genetic search was needed
    G: FloatArray = field(default_factory=lambda: np.empty(0))  # constraints at the answer
    g: FloatArray = field(default_factory=lambda: np.empty(0))

    def solve_and_rate(self, spec: Spec, state: LeaderState) -> Procedure[Pair]:
        """Return the follower's answer with the leader's values there."""
        pair = yield from self.solve(spec, state)
        values = yield from evaluate_leader(state, pair)
        self.G = values.constraints[0]
        return pair

    def solve(self, spec: Spec, state: LeaderState) -> Procedure[Pair]:
        """Return the follower's answer without F; it is `converged` if the search was completed."""
        if self.answer is not None:
            values = yield from evaluate_answers(self.x, self.answer[None])
            pair = self.best_of(self.answer[None], values)
            pair.converged = self.trusted
            return pair
        best = None
        if self.samples:
            best, decided = yield from self.attempt(spec, state)
            if decided:
                return best
        self.genetic = True
        ga = SteadyGA()
        known = [] if best is None else [(best.y, order_key(best.f, best.lower_violation))]
        rule = FollowerRule.steady(spec.budget, len(self.pool), CHILDREN)
        search = ga.start(self.pool, known)
        follower = FollowerSearch(self.x, ga, search, self.rng, rule, state.f_scale, best, self.g)
        pair = yield from follower.solve()
        self.executions += follower.executions
        self.g = follower.constraints
        return pair

    def attempt(self, spec: Spec, state: LeaderState) -> Procedure[tuple[Pair, bool]]:
        """Solve the quadratic program; return the best point, and whether no search is needed.

        No search is needed if the models are exact at the answer. If that answer is infeasible,
        there may be no feasible point, and the pair is not `converged`.
        """
        points = self.around(spec.n)
        values = yield from evaluate_answers(self.x, points)
        state.f_scale.see(values.objective)
        usable = np.isfinite(values.objective)
        best = self.best_of(points, values)
        if usable.sum() < spec.n + 2:
            return best, False
        columns = np.column_stack([values.objective, values.constraints])[usable]
        models = fit(points[usable], columns)
        if not all(model.finite for model in models):
            return best, False
        answer, predicted = self.program(models, points[-1])
        found = yield from evaluate_answers(self.x, answer[None])
        pair = self.best_of(answer[None], found, best)
        truth = np.append(found.objective, found.constraints)
        if np.isfinite(truth).all():
            error_f, *errors_g = (truth - predicted).tolist()
            if abs(error_f) <= state.f_scale.tolerance(EXACT) and math.hypot(*errors_g) <= EXACT:
                pair = self.best_of(answer[None], found)
                pair.converged = pair.lower_violation <= EXACT
                return pair, True
        return pair, False

    def program(
        self, models: Sequence[Quadratic], guess: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the minimum of the model of f under the models of g, and all predictions there.

        Some variables may be left open, which means that the models do not determine them. These
        are fixed at mutated values of the guess, because the leader may prefer other values. With
        `keeps_open` they are fixed at the guess itself.
        """
        objective, constraints = models[0], models[1:]
        lower, upper = np.zeros(len(guess)), np.ones(len(guess))
        answer = minimize(objective, constraints, guess, lower, upper)
        free = free_variables(objective, constraints, answer)
        if free.any():
            chance = 0.0 if self.keeps_open else 1 / len(guess)
            mutated = polynomial_mutation(guess[None], self.rng, chance, scale=1 / WIDTH)[0]
            lower[free] = upper[free] = mutated[free]
            start = np.where(free, mutated, answer)
            answer = minimize(objective, constraints, start, lower, upper)
        return answer, np.array([model(answer) for model in models])

    def around(self, n: int) -> FloatArray:
        """Return the points that models are fitted to; the last point is the guess, if any."""
        if self.guess is None or self.deviations is None:
            return self.rng.random((self.samples, n))
        points = self.guess + self.deviations * self.rng.standard_normal((self.samples, n))
        points[-1] = self.guess
        far = (points < -1) | (points > 2)
        points[far] = self.rng.random(int(far.sum()))
        points = np.abs(points)  # reflected at 0, and then at 1
        return np.asarray(np.where(points > 1, 2 - points, points))

    def best_of(self, points: FloatArray, values: Values, other: Pair | None = None) -> Pair:
        """Return the best point and keep its constraints; return the other pair if it is better."""
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        pair = Pair(self.x, points[i].copy(), f, violation)
        if other is not None and not pair.follower_no_worse(other):
            return other
        self.g = values.constraints[i]
        return pair


def deviations_of(answers: FloatArray) -> FloatArray:
    """Return the deviations (n,) of points around a guess: those of the known answers."""
    variance = np.maximum(answers.var(axis=0, ddof=1), LEAST_VARIANCE)
    return np.asarray(np.sqrt(variance) + 1e-6 / WIDTH)
