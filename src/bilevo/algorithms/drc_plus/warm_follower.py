"""A solver of followers that learns from the followers solved before.

Followers of neighbouring leaders have neighbouring answers, and their objectives bend alike. So a
new follower starts from what a regression over solved ones predicts, with the curvature that the
last search ended with, and mostly needs one gradient (by counted differences) and one step of
`sqp`. Nothing of this is taken for granted:

- a local search that does not settle says that f is not smooth there; the task is handed to CMA-ES,
  and `Experience.smooth` keeps count;
- a warm start may sit in a wrong basin or in a wrong part of the feasible set. `challenge` holds
  answers of other followers against an answer, `explore` searches the box anew, and `confirm` does
  so until an independent search agrees.

The solver does not know its leader's objective: it can serve any bilevel algorithm.
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

TIGHT = 1e-13  # gain of f that is none, in a search that is to leave no error behind
AGREEMENT = 1e-6  # of f: answers of independent searches that are the same
ROUNDING = 1e-9  # of f: a gain that does not refute an answer
ROUGH = 0.5  # share of local searches that settle below which followers are not smooth
RIVALS = 6  # answers
TRIES = 5  # independent searches
ITERATIONS = 150  # of a local search: one in a steep valley far from its end needs many
SLIM = 1e-11  # of the box, kept from constraints
NARROW = 0.01  # of the box: deviations at which a global search has found its basin
NEAR = 0.05  # of the box: deviations of a search around an answer
DISTINCT = 0.01  # of the box: answers that are not the same
CAPACITY = 5000  # answers remembered
UNKNOWN = np.empty((0, 0))  # of a Hessian
PROBES = 0.2 * 1.5 ** -np.arange(12.0)  # of the box: steps along the axes to other basins


@dataclass(slots=True, eq=False)
class Experience:
    """What solved followers have taught: answers y (k, n) to leaders x (k, m), and curvature."""

    x: FloatArray
    y: FloatArray
    hessian: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # where one is known
    smooth: float = 1.0  # share of local searches that settled, of late
    searches: int = 0  # local ones
    f_scale: Scale = field(default_factory=Scale)
    spent: int = 0  # lower evaluations so far

    @classmethod
    def none(cls, m: int, n: int) -> Experience:
        return cls(np.empty((0, m)), np.empty((0, n)))

    def evaluate(self, x: FloatArray, y: FloatArray) -> Procedure[Values]:
        """The follower's values at answers y (k, n)."""
        values = yield from evaluate_answers(x, y)
        self.f_scale.see(values.objective)
        self.spent = values.spent
        return values

    def learn(self, pair: Pair) -> None:
        """An answer; one that is infeasible only where there is no other."""
        if pair.lower_violation > 0 and len(self.x):
            return
        others = (self.x != pair.x).any(axis=1)
        self.x = np.concatenate([self.x[others], pair.x[None]])[-CAPACITY:]
        self.y = np.concatenate([self.y[others], pair.y[None]])[-CAPACITY:]

    def forget(self) -> None:
        """The answers were in a wrong basin."""
        self.x, self.y = self.x[:0], self.y[:0]

    def count(self, settled: bool) -> None:
        """A local search has ended: the share is over all of them, or the last ten or so."""
        self.searches += 1
        self.smooth += (settled - self.smooth) * max(1 / self.searches, 0.1)

    @property
    def rough(self) -> bool:
        """Whether local searches are of little use."""
        return self.smooth < ROUGH

    @property
    def unit(self) -> float:
        """A value of f that counts."""
        return self.f_scale.tolerance(1.0)

    @property
    def tight(self) -> float:
        """The tolerance of a search that is to leave no error behind."""
        return TIGHT * self.unit

    def predictions(self, x: FloatArray, scale: FloatArray, regression: bool) -> FloatArray:
        """Answers (k, n) to start from: that of a regression, and that to the nearest leader.

        The regression is linear, over the 2 (m + 1) nearest leaders with weights that fall with the
        distance, in units of `scale`.
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
        """Answers of late that are far from y and from each other."""
        answers: FloatArray = self.y[-200:]
        chosen: list[int] = []
        distance = np.abs(answers - y).max(axis=1, initial=0.0)
        while len(chosen) < count and distance.max(initial=0.0) > DISTINCT:
            chosen.append(int(distance.argmax()))
            distance = np.minimum(distance, np.abs(answers - answers[chosen[-1]]).max(axis=1))
        return answers[chosen]


@dataclass(slots=True, eq=False)
class WarmTask:
    """A leader's follower on its way: the answer so far, and how far it has come."""

    pair: Pair
    lower: Values  # the follower's at the answer, one row
    G: FloatArray = field(default_factory=lambda: np.empty(0))  # the leader's constraints there
    solved: bool = False
    tolerance: float = math.inf  # to which it was solved
    hessian: FloatArray | None = None  # its own, to go on with
    executions: int = 0  # evaluations
    moved: float = math.inf  # by how much the last search changed F

    @classmethod
    def at(cls, x: FloatArray, y: FloatArray, values: Values) -> WarmTask:
        """From the best of some answers y (k, n)."""
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        return cls(Pair(x, y[i].copy(), f, violation), values.part(i, i + 1), executions=len(y))

    @classmethod
    def of(cls, follower: FollowerSearch, solved: bool) -> WarmTask:
        """From a search by CMA-ES."""
        pair = replace(follower.answer)
        constraints = follower.constraints[None]
        f, violation = np.array([pair.f]), np.array([pair.lower_violation])
        evaluations = follower.executions * len(follower.x_rows)
        lower = Values(f, violation, constraints, 0)
        return cls(pair, lower, solved=solved, executions=evaluations)


class Recorded:
    """A follower's values at answers, with the best point's constraints kept."""

    def __init__(self, known: Experience, start: WarmTask) -> None:
        self.known, self.x = known, start.pair.x
        self.seen = [(start.pair.y[None], start.lower)]

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        values = yield from self.known.evaluate(self.x, rows)
        self.seen.append((rows, values))
        return values

    def values_at(self, point: FloatArray) -> Values:
        """Of a point that was evaluated, one row."""
        for rows, values in reversed(self.seen):
            (found,) = np.nonzero((rows == point).all(axis=1))
            if found.size:
                return values.part(found[0], found[0] + 1)
        raise ValueError(f"{point} was not evaluated")


@dataclass(frozen=True, slots=True)
class WarmFollower:
    """The solver. Switches leave out one ingredient each, for ablations."""

    regression: bool = True  # starts
    curvature: bool = True  # shared between followers
    probes: bool = True  # along the axes, where the box is searched
    rivals: bool = True  # answers of other followers are held against one

    def start(self, known: Experience, x: FloatArray, scale: FloatArray) -> Procedure[WarmTask]:
        """The better of the answers that experience predicts."""
        y = known.predictions(x, scale, self.regression)
        return WarmTask.at(x, y, (yield from known.evaluate(x, y)))

    def improve(
        self,
        spec: Spec,
        known: Experience,
        task: WarmTask,
        tolerance: float,
        rng: np.random.Generator,
        iterations: int = ITERATIONS,
        thorough: bool = False,
    ) -> Procedure[WarmTask]:
        """Go on with a task for some iterations, or until its answer is good to a tolerance of f.

        What a local search cannot settle is handed to others; a search of the box is for those
        that are thorough.
        """
        new = yield from self.local(known, task, tolerance, iterations)
        if not new.solved and ITERATIONS > iterations <= new.executions / (spec.n + 1):
            return new  # there is no more to be said before it goes on
        if new.pair.lower_violation == 0:
            known.count(new.solved)
        if not new.solved and new.pair.lower_violation > 0:
            new = yield from self.challenge(known, new, tolerance)
            if new.pair.lower_violation > 0 and thorough:
                other = yield from self.explore(spec, known, task.pair.x, rng, relaxed=True)
                new = other if other.pair.follower_no_worse(new.pair) else new
        elif not new.solved:
            new = yield from self.around(spec, known, new, tolerance, rng)
        known.learn(new.pair)
        return new

    def local(
        self, known: Experience, task: WarmTask, tolerance: float, iterations: int = ITERATIONS
    ) -> Procedure[WarmTask]:
        """A local search from a task's answer."""
        n, pair = len(task.pair.y), task.pair
        # Differences leave an error of a few roundings of f in every variable's part of a step.
        tolerance = max(tolerance, 4 * n * np.finfo(float).eps * abs(pair.f))
        rule = LocalRule(
            iterations * (n + 2), tolerance, margin=SLIM, unit=known.unit, trusting=True
        )
        hessian = known.hessian if task.hessian is None and self.curvature else task.hessian
        hessian = hessian if hessian is not None and hessian.size else None
        at = Recorded(known, task)
        answer = yield from sqp(at, pair.y, np.zeros(n), np.ones(n), rule, hessian, task.lower)
        settled = answer.left <= 10 * tolerance and answer.violation == 0
        if settled and answer.hessian is not None:
            known.hessian = answer.hessian
        return WarmTask(
            Pair(pair.x, answer.point, answer.objective, answer.violation, converged=settled),
            at.values_at(answer.point),
            solved=settled,
            tolerance=tolerance,
            hessian=answer.hessian,
            executions=answer.points,
        )

    def anew(
        self, known: Experience, task: WarmTask, iterations: int = ITERATIONS
    ) -> Procedure[WarmTask]:
        """A local search from a task's answer that takes nothing for granted."""
        tight = known.tight
        return (yield from self.local(known, replace(task, hessian=UNKNOWN), tight, iterations))

    def around(
        self,
        spec: Spec,
        known: Experience,
        task: WarmTask,
        tolerance: float,
        rng: np.random.Generator,
    ) -> Procedure[WarmTask]:
        """A task that a local search did not settle: CMA-ES around its answer."""
        n, cma = spec.n, CMAES()
        search = cma.start(Start(task.pair.y, NEAR**2 * np.eye(n), np.zeros(n)))
        usual = FollowerRule.of(spec.budget, cma.population_size(n))
        rule = replace(usual, absolute=max(tolerance, TIGHT), relative=0.0)
        follower = FollowerSearch(task.pair.x, cma, search, rng, rule, known.f_scale)
        follower.best, follower.constraints = replace(task.pair), task.lower.constraints[0]
        yield from follower.solve()
        return WarmTask.of(follower, solved=True)

    def challenge(self, known: Experience, task: WarmTask, tolerance: float) -> Procedure[WarmTask]:
        """Hold other followers' answers against a task's; the better one, F not evaluated.

        Where there are constraints, so is what the follower would answer without them.
        """
        if not self.rivals:
            return task
        y = known.rivals(task.pair.y, RIVALS)
        if task.lower.constraints.size:
            freed = yield from relaxing(self.local(known, unconstrained(task), tolerance))
            y = np.concatenate([y, freed.pair.y[None]])
        if not len(y):
            return task
        rival = WarmTask.at(task.pair.x, y, (yield from known.evaluate(task.pair.x, y)))
        if task.pair.lower_violation == 0 and task.pair.follower_no_worse(rival.pair):
            return task
        new = yield from self.local(known, rival, tolerance)
        return task if task.pair.follower_no_worse(new.pair) else new

    def confirm(
        self,
        spec: Spec,
        known: Experience,
        rng: np.random.Generator,
        best: WarmTask,
    ) -> Procedure[WarmTask]:
        """Search the box until an independent search agrees with the best answer to a leader.

        An answer is replaced only by one that is better by more than rounding.
        """
        x = best.pair.x
        for i in range(TRIES):
            relaxed, doublings = i % 2 == 0, max(0, i - 1)
            new = yield from self.explore(spec, known, x, rng, relaxed, doublings)
            unit = known.unit + abs(best.pair.f)
            same = new.pair.lower_violation == best.pair.lower_violation
            gain = best.pair.f - new.pair.f
            tied = best.pair.lower_violation > 0 or abs(gain) <= AGREEMENT * unit
            agreed = same and tied  # f does not count where constraints are violated
            if not best.pair.follower_no_worse(new.pair) and not (same and gain < ROUNDING * unit):
                best = new
            if agreed or known.rough:
                break
        return best

    def explore(
        self,
        spec: Spec,
        known: Experience,
        x: FloatArray,
        rng: np.random.Generator,
        relaxed: bool = False,
        doublings: int = 0,
    ) -> Procedure[WarmTask]:
        """A search from anywhere in the box: CMA-ES until it has found its basin, then locally.

        A relaxed one looks at constraints only then. Constraints may cut the box into parts: where
        there are any, local searches start from random points too.
        """
        n = spec.n
        cma = CMAES(CMAES().population_size(n) << doublings)
        search = cma.start(Start.uniform(spec.spread[spec.m :], rng))
        rule = FollowerRule(window=10**9, longest=100 + 50 * n)
        usual = FollowerRule.of(spec.budget, cma.population_size(n))
        follower = FollowerSearch(x, cma, search, rng, rule, known.f_scale)
        while not follower.finished:
            execution = follower.execute()
            yield from relaxing(execution) if relaxed else execution
            widest = search.sigma**2 * search.C.diagonal().max()
            failed = math.isinf(follower.answer.f) and follower.executions >= usual.longest
            follower.finished |= failed or bool(widest < NARROW**2)
        y = follower.answer.y[None]
        found = WarmTask.at(x, y, (yield from known.evaluate(x, y)))
        new = yield from self.anew(known, found)
        if new.pair.lower_violation == 0:
            known.count(new.solved)
        if found.lower.constraints.size:
            new = yield from self.scattered(known, new, rng)
        elif self.probes and math.isfinite(new.pair.f):
            new = yield from self.probed(known, new)
        if new.solved:
            return new
        follower.best, follower.constraints = replace(found.pair), found.lower.constraints[0]
        follower.finished = False
        follower.rule = replace(usual, absolute=ROUNDING, relative=0.0, longest=10**3)
        yield from follower.solve()
        other = WarmTask.of(follower, solved=True)
        return other if other.pair.follower_no_worse(new.pair) else new

    def scattered(
        self, known: Experience, task: WarmTask, rng: np.random.Generator
    ) -> Procedure[WarmTask]:
        """The best of a task and of local searches from random points."""
        x, n = task.pair.x, len(task.pair.y)
        points = rng.random((n + 3, n))
        values = yield from known.evaluate(x, points)
        rows = zip(points, split(values, [1] * len(points)), strict=True)
        tasks = [WarmTask.at(x, point[None], row) for point, row in rows]
        found = yield from together(self.anew(known, start, ITERATIONS // 10) for start in tasks)
        best = task
        for new in found:
            if not best.pair.follower_no_worse(new.pair):
                best = new
        if best is task or best.solved:
            return best
        new = yield from self.local(known, best, known.tight)
        return new if new.pair.follower_no_worse(best.pair) else best

    def probed(self, known: Experience, task: WarmTask) -> Procedure[WarmTask]:
        """Leave a basin along the axes while a step of some size leads to a better place."""
        x, n = task.pair.x, len(task.pair.y)
        steps = np.concatenate([PROBES, -PROBES])
        for _ in range(8):
            y = task.pair.y
            rows = np.clip(y + (steps[:, None, None] * np.eye(n)).reshape(-1, n), 0.0, 1.0)
            values = yield from known.evaluate(x, rows)
            gains = (task.pair.f - values.objective).reshape(-1, n)  # -inf where f failed
            least = ROUNDING * (known.unit + abs(task.pair.f))
            if gains.max() <= least:
                break
            best = gains.argmax(axis=0)
            moved = y + np.where(gains.max(axis=0) > least, steps[best], 0.0)
            points = np.array([np.clip(moved, 0.0, 1.0), rows[int(gains.argmax())]])
            start = WarmTask.at(x, points, (yield from known.evaluate(x, points)))
            new = yield from self.anew(known, start)
            if task.pair.follower_no_worse(new.pair):
                break
            task = new
        return task


def relaxing(search: Procedure[T]) -> Procedure[T]:
    """Run a search as if there were no constraints."""
    return relayed(search, lambda request: request, lambda level, values: free(values))


def free(values: Values) -> Values:
    """Values without constraints: all that did not fail is feasible."""
    violation = np.where(np.isfinite(values.violation), 0.0, np.inf)
    return values._replace(violation=violation, constraints=np.empty((len(violation), 0)))


def unconstrained(task: WarmTask) -> WarmTask:
    """A task as its follower would see it without constraints."""
    lower = free(task.lower)
    pair = replace(task.pair, lower_violation=float(lower.violation[0]))
    return replace(task, pair=pair, lower=lower, hessian=UNKNOWN)
