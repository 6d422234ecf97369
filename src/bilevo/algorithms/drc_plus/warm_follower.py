"""A solver of followers that learns from the followers solved before.

Followers of neighbouring leaders have similar answers, and their objectives have similar curvature.
So a new search starts at the answer that a regression over solved followers predicts, with the
Hessian of the last search. Then one gradient (by finite differences, which count as evaluations)
and one step of `sqp` are usually enough. The solver checks its assumptions:

- A local search that does not settle shows that f is not smooth there. Then CMA-ES takes over, and
  `Experience.smooth` records how often that happens.
- A predicted start may lie in a wrong basin, or in a wrong part of the feasible set. So
  `test_against_neighbours` compares an answer with answers of other followers, `search_box`
  searches the whole box, and `confirm` repeats that until an independent search agrees.

The solver does not know the leader's objective, so it can serve any bilevel algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.algorithms.shared.follower_search import (
    FollowerRule,
    FollowerSearch,
    Pair,
    evaluate_answers,
)
from bilevo.algorithms.shared.sqp import LocalRule, sqp
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Scale
from bilevo.core.order import best_index
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, T, Values, relayed, split, together
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start

TIGHT = 1e-13  # Errors of f below this, relative to the differences of f, do not count.
AGREEMENT = 1e-6  # Searches agree if their f differ by less, relative to the size of f.
ROUNDING = 1e-9  # A gain in f below this, relative to its size, does not refute an answer.
SMOOTH_SHARE = 0.5  # Followers count as smooth if this share of local searches settles.
MOST_RIVALS = 6  # The most answers of other followers that an answer is compared with.
MOST_CONFIRMATIONS = 5  # The most independent searches of the box in `confirm`.
ITERATIONS = 150  # The most iterations of a local search; it needs many in a long steep valley.
CONSTRAINT_MARGIN = 1e-11  # Local searches stay this far from constraints (fraction of box).
BASIN_WIDTH = 0.01  # CMA-ES has found a basin if its deviations are smaller (fractions of the box).
AROUND_WIDTH = 0.05  # The first deviations of CMA-ES around an answer, as fractions of the box.
DISTINCT = 0.01  # Answers farther apart than this fraction of the box count as different.
CAPACITY = 5000  # How many answers are remembered.
UNKNOWN = np.empty((0, 0))  # an unknown Hessian
PROBE_STEPS = 0.2 * 1.5 ** -np.arange(12.0)  # Steps to other basins (fractions of the box).


@dataclass(slots=True, eq=False)
class Experience:
    """What solved followers have shown: answers y (k, n) to leaders x (k, m), and curvature."""

    x: FloatArray
    y: FloatArray
    hessian: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # empty if unknown
    smooth: float = 1.0  # share of recent local searches that settled
    searches: int = 0  # local searches so far
    f_scale: Scale = field(default_factory=Scale)
    spent: int = 0  # lower evaluations so far

    @classmethod
    def none(cls, m: int, n: int) -> Experience:
        return cls(np.empty((0, m)), np.empty((0, n)))

    def evaluate(self, x: FloatArray, y: FloatArray) -> Procedure[Values]:
        """Request the follower's values at answers y (k, n) to a leader x (m,)."""
        values = yield from evaluate_answers(x, y)
        self.f_scale.see(values.objective)
        self.spent = values.spent
        return values

    def learn(self, pair: Pair) -> None:
        """Remember an answer, unless it is infeasible and others are known."""
        if pair.lower_violation > 0 and len(self.x):
            return
        others = (self.x != pair.x).any(axis=1)
        self.x = np.concatenate([self.x[others], pair.x[None]])[-CAPACITY:]
        self.y = np.concatenate([self.y[others], pair.y[None]])[-CAPACITY:]

    def forget(self) -> None:
        """Forget all answers, because they lie in a wrong basin."""
        self.x, self.y = self.x[:0], self.y[:0]

    def count(self, settled: bool) -> None:
        """Count a local search that has ended; recent searches weigh most."""
        self.searches += 1
        self.smooth += (settled - self.smooth) * max(1 / self.searches, 0.1)

    @property
    def rough(self) -> bool:
        """Tell whether most local searches do not settle."""
        return self.smooth < SMOOTH_SHARE

    @property
    def unit(self) -> float:
        """Return the size of the differences of f seen so far."""
        return self.f_scale.tolerance(1.0)

    def size(self, f: float) -> float:
        """Return the size of f at an answer, which relative tolerances are multiplied by."""
        return self.unit + abs(f)

    @property
    def tight(self) -> float:
        """Return the tolerance on f below which errors do not count."""
        return TIGHT * self.unit

    def predictions(self, x: FloatArray, scale: FloatArray, regression: bool) -> FloatArray:
        """Return answers (k, n) to start from: a predicted answer, and the nearest leader's.

        A linear regression over the 2 (m + 1) nearest leaders predicts. Its weights fall with the
        distance, in units of `scale`. With too few leaders there is no prediction.
        """
        away = (self.x - x) / scale
        squares = (away * away).sum(axis=1)
        order = squares.argsort(kind="stable")
        nearest: FloatArray = self.y[order[:1]]
        if not regression or len(order) < len(x) + 2:
            return nearest
        near = order[: 2 * (len(x) + 1)]
        farthest = math.sqrt(squares[near[-1]]) or 1.0
        weights = (1 - (np.sqrt(squares[near]) / (1.001 * farthest)) ** 3) ** 1.5
        design = np.column_stack([np.ones(len(near)), away[near] / farthest])
        rows = weights[:, None]
        found = np.linalg.lstsq(design * rows, self.y[near] * rows, rcond=1e-10)[0]
        return np.asarray(np.concatenate([np.clip(found[:1], 0.0, 1.0), nearest]))

    def rivals(self, y: FloatArray, count: int) -> FloatArray:
        """Return up to `count` recent answers that are far from y and from each other."""
        answers: FloatArray = self.y[-200:]
        chosen: list[int] = []
        distance = np.abs(answers - y).max(axis=1, initial=0.0)
        while len(chosen) < count and distance.max(initial=0.0) > DISTINCT:
            chosen.append(int(distance.argmax()))
            distance = np.minimum(distance, np.abs(answers - answers[chosen[-1]]).max(axis=1))
        return answers[chosen]


@dataclass(slots=True, eq=False)
class WarmTask:
    """A leader's follower while it is solved: the answer so far, and how good it is."""

    pair: Pair
    lower: Values  # the follower's values at the answer, one row
    G: FloatArray = field(default_factory=lambda: np.empty(0))  # the leader's constraints at y
    solved: bool = False
    tolerance: float = math.inf  # the tolerance on f to which it was solved
    hessian: FloatArray | None = None  # the Hessian that its next search starts with
    executions: int = 0  # evaluations so far
    moved: float = math.inf  # by how much the last search changed F

    @classmethod
    def at(cls, x: FloatArray, y: FloatArray, values: Values) -> WarmTask:
        """Make a task from the best of some answers y (k, n)."""
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        return cls(Pair(x, y[i].copy(), f, violation), values.part(i, i + 1), executions=len(y))

    @classmethod
    def of_pair(cls, pair: Pair, constraints: FloatArray) -> WarmTask:
        """Make a task from a pair and the follower's constraints (c,) there."""
        f, violation = np.array([pair.f]), np.array([pair.lower_violation])
        return cls(pair, Values(f, violation, constraints[None], 0))

    @classmethod
    def of_search(cls, search: FollowerSearch) -> WarmTask:
        """Make a solved task from a search by CMA-ES."""
        task = cls.of_pair(replace(search.answer), search.constraints)
        evaluations = search.executions * len(search.x_rows)
        return replace(task, solved=True, executions=evaluations)

    def better(self, other: WarmTask) -> WarmTask:
        """Return the other task if its answer is better for the follower, else this one."""
        return self if self.pair.follower_no_worse(other.pair) else other


class Recorded:
    """Evaluates a follower's answers and keeps their values."""

    def __init__(self, known: Experience, start: WarmTask) -> None:
        self.known, self.x = known, start.pair.x
        self.seen = [(start.pair.y[None], start.lower)]

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        values = yield from self.known.evaluate(self.x, rows)
        self.seen.append((rows, values))
        return values

    def values_at(self, point: FloatArray) -> Values:
        """Return the values at an evaluated point, one row."""
        for rows, values in reversed(self.seen):
            (found,) = np.nonzero((rows == point).all(axis=1))
            if found.size:
                return values.part(found[0], found[0] + 1)
        raise ValueError(f"{point} was not evaluated")


@dataclass(frozen=True, slots=True)
class WarmFollower:
    """The solver of a run's followers. Each switch turns one ingredient off, for ablations."""

    spec: Spec
    known: Experience
    regression: bool = True  # predict where searches start
    curvature: bool = True  # share Hessians between followers
    probes: bool = True  # probe along the axes when the box is searched
    rivals: bool = True  # compare answers with answers of other followers

    def start(self, x: FloatArray, scale: FloatArray) -> Procedure[WarmTask]:
        """Return a task at the best of the answers that `Experience.predictions` gives for x."""
        return self.at(x, self.known.predictions(x, scale, self.regression))

    def at(self, x: FloatArray, y: FloatArray) -> Procedure[WarmTask]:
        """Return a task at the best of some answers y (k, n)."""
        return WarmTask.at(x, y, (yield from self.known.evaluate(x, y)))

    def improve(
        self,
        task: WarmTask,
        tolerance: float,
        rng: np.random.Generator,
        iterations: int = ITERATIONS,
        thorough: bool = False,
    ) -> Procedure[WarmTask]:
        """Continue a search for some iterations, or until f is within a tolerance of its minimum.

        If the local search does not settle, other searches take over. If they find no feasible
        answer, a `thorough` call also searches the whole box.
        """
        new = yield from self.search_locally(task, tolerance, iterations)
        if not new.solved and ITERATIONS > iterations <= new.executions / (self.spec.n + 1):
            return new  # it ran out of iterations, which does not show whether f is smooth
        if new.pair.lower_violation == 0:
            self.known.count(new.solved)
        if not new.solved and new.pair.lower_violation > 0:
            new = yield from self.test_against_neighbours(new, tolerance)
            if new.pair.lower_violation > 0 and thorough:
                other = yield from self.search_box(task.pair.x, rng, relaxed=True)
                new = other.better(new)
        elif not new.solved:
            new = yield from self.search_around(new, tolerance, rng)
        self.known.learn(new.pair)
        return new

    def search_locally(
        self, task: WarmTask, tolerance: float, iterations: int = ITERATIONS
    ) -> Procedure[WarmTask]:
        """Search f locally from a task's answer."""
        n, pair = len(task.pair.y), task.pair
        # Finite differences leave rounding errors of f in every coordinate of a step.
        tolerance = max(tolerance, 4 * n * np.finfo(float).eps * abs(pair.f))
        rule = LocalRule(
            iterations * (n + 2),
            tolerance,
            margin=CONSTRAINT_MARGIN,
            unit=self.known.unit,
            trusting=True,
        )
        hessian = self.known.hessian if task.hessian is None and self.curvature else task.hessian
        hessian = hessian if hessian is not None and hessian.size else None
        at = Recorded(self.known, task)
        end = yield from sqp(at, pair.y, np.zeros(n), np.ones(n), rule, hessian, task.lower)
        settled = end.left <= 10 * tolerance and end.violation == 0
        if settled and end.hessian is not None:
            self.known.hessian = end.hessian
        return WarmTask(
            Pair(pair.x, end.point, end.objective, end.violation, converged=settled),
            at.values_at(end.point),
            solved=settled,
            tolerance=tolerance,
            hessian=end.hessian,
            executions=end.points,
        )

    def search_afresh(self, task: WarmTask, iterations: int = ITERATIONS) -> Procedure[WarmTask]:
        """Search f locally from a task's answer, without the curvature of other followers."""
        fresh = replace(task, hessian=UNKNOWN)
        return (yield from self.search_locally(fresh, self.known.tight, iterations))

    def search_around(
        self, task: WarmTask, tolerance: float, rng: np.random.Generator
    ) -> Procedure[WarmTask]:
        """Search around a task's answer by CMA-ES, where a local search did not settle."""
        n, cma = self.spec.n, CMAES()
        state = cma.start(Start(task.pair.y, AROUND_WIDTH**2 * np.eye(n), np.zeros(n)))
        usual = FollowerRule.of(self.spec.budget, cma.population_size(n))
        rule = replace(usual, absolute=max(tolerance, TIGHT), relative=0.0)
        search = FollowerSearch(task.pair.x, cma, state, rng, rule, self.known.f_scale)
        search.best, search.constraints = replace(task.pair), task.lower.constraints[0]
        yield from search.solve()
        return WarmTask.of_search(search)

    def test_against_neighbours(self, task: WarmTask, tolerance: float) -> Procedure[WarmTask]:
        """Search from the best answer of other followers; return the task with the better answer.

        If there are constraints, the best answer without them is tried too. F is not evaluated.
        """
        if not self.rivals:
            return task
        y = self.known.rivals(task.pair.y, MOST_RIVALS)
        if task.lower.constraints.size:
            search = self.search_locally(unconstrained(task), tolerance)
            freed = yield from without_constraints(search)
            y = np.concatenate([y, freed.pair.y[None]])
        if not len(y):
            return task
        rival = yield from self.at(task.pair.x, y)
        if task.pair.lower_violation == 0 and task.pair.follower_no_worse(rival.pair):
            return task
        return task.better((yield from self.search_locally(rival, tolerance)))

    def confirm(self, rng: np.random.Generator, best: WarmTask) -> Procedure[WarmTask]:
        """Search the box until an independent search agrees with the best answer; return it.

        An answer is replaced only if the new answer is better by more than rounding.
        """
        for i in range(MOST_CONFIRMATIONS):
            relaxed, doublings = i % 2 == 0, max(0, i - 1)
            new = yield from self.search_box(best.pair.x, rng, relaxed, doublings)
            size = self.known.size(best.pair.f)
            same = new.pair.lower_violation == best.pair.lower_violation
            gain = best.pair.f - new.pair.f
            # f does not count where constraints are violated.
            agreed = same and (best.pair.lower_violation > 0 or abs(gain) <= AGREEMENT * size)
            if not (same and gain < ROUNDING * size):
                best = best.better(new)
            if agreed or self.known.rough:
                break
        return best

    def search_box(
        self, x: FloatArray, rng: np.random.Generator, relaxed: bool = False, doublings: int = 0
    ) -> Procedure[WarmTask]:
        """Search the whole box by CMA-ES until it has found a basin, and then search locally.

        If `relaxed`, CMA-ES ignores constraints. Constraints may cut the box into parts. So if
        there are any, local searches start from random points too.
        """
        cma = CMAES(CMAES().population_size(self.spec.n) << doublings)
        usual = FollowerRule.of(self.spec.budget, cma.population_size(self.spec.n))
        search = yield from self.find_basin(x, rng, cma, relaxed, usual.longest)
        found = yield from self.at(x, search.answer.y[None])
        new = yield from self.search_afresh(found)
        if new.pair.lower_violation == 0:
            self.known.count(new.solved)
        if found.lower.constraints.size:
            new = yield from self.search_from_random_points(new, rng)
        elif self.probes and math.isfinite(new.pair.f):
            new = yield from self.probe_axes(new)
        if new.solved:
            return new
        search.best, search.constraints = replace(found.pair), found.lower.constraints[0]
        search.finished = False
        search.rule = replace(usual, absolute=ROUNDING, relative=0.0, longest=10**3)
        yield from search.solve()
        return WarmTask.of_search(search).better(new)

    def find_basin(
        self, x: FloatArray, rng: np.random.Generator, cma: CMAES, relaxed: bool, patience: int
    ) -> Procedure[FollowerSearch]:
        """Run CMA-ES until it is narrow; stop after `patience` generations without a finite f."""
        state = cma.start(Start.uniform(self.spec.spread[self.spec.m :], rng))
        rule = FollowerRule(window=10**9, longest=100 + 50 * self.spec.n)
        search = FollowerSearch(x, cma, state, rng, rule, self.known.f_scale)
        while not search.finished:
            execution = search.execute()
            yield from without_constraints(execution) if relaxed else execution
            widest = state.sigma**2 * state.C.diagonal().max()
            failed = math.isinf(search.answer.f) and search.executions >= patience
            search.finished |= failed or bool(widest < BASIN_WIDTH**2)
        return search

    def search_from_random_points(
        self, task: WarmTask, rng: np.random.Generator
    ) -> Procedure[WarmTask]:
        """Return the best of a task and of local searches from random points."""
        x, n = task.pair.x, len(task.pair.y)
        points = rng.random((n + 3, n))
        values = yield from self.known.evaluate(x, points)
        rows = zip(points, split(values, [1] * len(points)), strict=True)
        starts = [WarmTask.at(x, point[None], row) for point, row in rows]
        found = yield from together(self.search_afresh(start, ITERATIONS // 10) for start in starts)
        best = task
        for new in found:
            best = best.better(new)
        if best is task or best.solved:
            return best
        return (yield from self.search_locally(best, self.known.tight)).better(best)

    def probe_axes(self, task: WarmTask) -> Procedure[WarmTask]:
        """Step along the axes and search again, as long as some step leads to a better point."""
        x, n = task.pair.x, len(task.pair.y)
        steps = np.concatenate([PROBE_STEPS, -PROBE_STEPS])
        for _ in range(8):
            y = task.pair.y
            rows = np.clip(y + (steps[:, None, None] * np.eye(n)).reshape(-1, n), 0.0, 1.0)
            values = yield from self.known.evaluate(x, rows)
            gains = (task.pair.f - values.objective).reshape(-1, n)  # -inf where f failed
            least = ROUNDING * self.known.size(task.pair.f)
            if gains.max() <= least:
                break
            best = gains.argmax(axis=0)
            moved = y + np.where(gains.max(axis=0) > least, steps[best], 0.0)
            points = np.array([np.clip(moved, 0.0, 1.0), rows[int(gains.argmax())]])
            start = yield from self.at(x, points)
            new = task.better((yield from self.search_afresh(start)))
            if new is task:
                break
            task = new
        return task


def without_constraints(search: Procedure[T]) -> Procedure[T]:
    """Run a search as if there were no constraints."""
    return relayed(search, lambda request: request, lambda level, values: free(values))


def free(values: Values) -> Values:
    """Return values without constraints: all points that did not fail are feasible."""
    violation = np.where(np.isfinite(values.violation), 0.0, np.inf)
    return values._replace(violation=violation, constraints=np.empty((len(violation), 0)))


def unconstrained(task: WarmTask) -> WarmTask:
    """Return a copy of a task whose follower has no constraints."""
    lower = free(task.lower)
    pair = replace(task.pair, lower_violation=float(lower.violation[0]))
    return replace(task, pair=pair, lower=lower, hessian=UNKNOWN)
