"""Local searches for a follower's answer: by `sqp`, and by CMA-ES where f is not smooth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.algorithms.drc_plus.experience import DISTINCT, Experience, WarmTask, counted
from bilevo.algorithms.shared.blocks import (
    OwnSearch,
    at_least_rounding,
    joined_end,
    side_by_side,
    values_of_one,
    values_together,
)
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch, Pair
from bilevo.algorithms.shared.gradients import follower_slopes
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd, sqp
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, T, Values, relayed
from bilevo.core.tolerances import SHARP
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start

SMOOTH = 1e-9  # f is smooth if a search expects less gain at its end, in units of the scale of f.
ITERATIONS = 150  # The most iterations of a local search; it needs many in a long steep valley.
CONSTRAINT_MARGIN = 1e-11  # Local searches stay this far from constraints (fraction of box).
AROUND_WIDTH = 0.05  # The first deviations of CMA-ES around an answer, as fractions of the box.
UNKNOWN = np.empty((0, 0))  # an unknown Hessian


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
class LocalFollower:
    """Searches followers locally. Each switch turns one ingredient off, to measure its effect."""

    spec: Spec
    known: Experience
    curvature: bool = True  # share Hessians between followers
    probes: bool = True  # probe along the axes when the box is searched
    wide: bool = field(default=False, kw_only=True)  # fill more workers, for more evaluations

    def at(self, x: FloatArray, y: FloatArray) -> Procedure[WarmTask]:
        """Return a task at the best of some answers y (k, n)."""
        return WarmTask.at(x, y, (yield from self.known.evaluate(x, y)))

    def search_locally(
        self,
        task: WarmTask,
        tolerance: float,
        iterations: int = ITERATIONS,
        towards: Pair | None = None,
    ) -> Procedure[WarmTask]:
        """Search f locally from a task's answer; return a task at the best point found.

        The search also ends when it comes near the answer `towards`, unless it is better there.
        """
        if self.spec.blocks is not None:
            return (yield from self.search_each(task, tolerance, iterations, towards))
        n, pair = len(task.pair.y), task.pair
        tolerance = at_least_rounding(tolerance, n, pair.f)
        rule = replace(
            self.rule(iterations, n, tolerance),
            # Where constraints may be active, too many guesses would be wrong.
            ahead=self.wide and not task.lower.constraints.size,
            done=lambda point, f: towards is not None and has_come_to(point, f, towards),
        )
        shares, hessian = self.first_hessian(task)
        at = Recorded(self.known, task)
        derive = None
        if self.known.gradients:
            derive = follower_slopes(pair.x, task.lower.constraints.shape[1])
        box = np.zeros(n), np.ones(n)
        end = yield from sqp(at, pair.y, *box, rule, hessian, task.lower, derive)
        settled = end.left <= 10 * tolerance and end.violation == 0
        return self.ended(task, end, at.values_at(end.point), tolerance, settled, shares, towards)

    def rule(self, iterations: int, n: int, tolerance: float) -> LocalRule:
        """Return the rule of a local search over n variables."""
        return LocalRule(
            iterations * (n + 2),
            tolerance,
            margin=CONSTRAINT_MARGIN,
            unit=self.known.unit,
            trusting=True,
            smooth=self.known.surely_smooth,
            bends=True,
        )

    def first_hessian(self, task: WarmTask) -> tuple[bool, FloatArray | None]:
        """Tell whether a search shares Hessians with others; return the one it starts with."""
        shares = task.hessian is None and self.curvature
        hessian = self.known.hessian if shares else task.hessian
        return shares, hessian if hessian is not None and hessian.size else None

    def ended(
        self,
        task: WarmTask,
        end: SearchEnd,
        lower: Values,
        tolerance: float,
        settled: bool,
        shares: bool,
        towards: Pair | None,
    ) -> WarmTask:
        """Return the task of a local search that has ended; keep what it has learnt."""
        smooth = settled or (end.violation == 0 and end.left <= SMOOTH * self.known.unit)
        if settled and end.hessian is not None and (shares or not self.known.hessian.size):
            self.known.hessian = end.hessian
        arrived = towards is not None and has_come_to(end.point, end.objective, towards)
        return WarmTask(
            Pair(task.pair.x, end.point, end.objective, end.violation, converged=settled),
            lower,
            solved=settled or arrived,
            smooth=smooth or arrived,
            arrived=arrived and not settled,
            tolerance=tolerance,
            hessian=end.hessian,
            executions=end.points,
            slope=0.0 if end.gradient is None else float(np.abs(end.gradient).max()),
        )

    def search_each(
        self, task: WarmTask, tolerance: float, iterations: int, towards: Pair | None
    ) -> Procedure[WarmTask]:
        """Search f_i of each independent follower locally, side by side, as `search_locally` does.

        Searches that have come near `towards` go on if others end elsewhere.
        """
        blocks, x, lower = self.spec.blocks, task.pair.x, task.lower
        assert blocks is not None
        if lower.parts is None:
            lower = yield from self.known.evaluate(x, task.pair.y[None])
        shares, hessian = self.first_hessian(task)
        tolerance, y = tolerance / len(blocks), task.pair.y
        goal = None if towards is None else towards.y
        own = []
        for block in blocks:
            rule = self.rule(iterations, block.stop - block.start, tolerance)
            part = None if hessian is None else hessian[block, block]
            own.append(OwnSearch(rule, x, block, part, goal))
        starts = [values_of_one(lower, i) for i in range(len(blocks))]
        searches = [one.run(y[one.block], at) for one, at in zip(own, starts, strict=True)]
        yield from self.noted(side_by_side(x, y, blocks, searches))
        if any(one.stopped for one in own) and not all(one.near for one in own):
            end, _ = joined_end(own, len(y))
            searches = [one.go_on() for one in own]
            yield from self.noted(side_by_side(x, end.point, blocks, searches))
        end, parts = joined_end(own, len(y))
        values = values_together(parts[None], self.known.spent)
        settled = all(one.settled for one in own)
        return self.ended(task, end, values, tolerance, settled, shares, towards)

    def noted(self, search: Procedure[T]) -> Procedure[T]:
        """Run a search, and note its lower evaluations and the values of f that it sees."""

        def note(level: Level, values: Values) -> Values:
            self.known.note(values)
            return values

        return relayed(search, lambda request: request, note)

    def search_afresh(
        self, task: WarmTask, iterations: int = ITERATIONS, towards: Pair | None = None
    ) -> Procedure[WarmTask]:
        """Search f locally from a task's answer, without the curvature of other followers."""
        fresh = replace(task, hessian=UNKNOWN)
        return (yield from self.search_locally(fresh, self.known.tight, iterations, towards))

    def search_freely(self, task: WarmTask, tolerance: float) -> Procedure[WarmTask]:
        """Search f locally from a task's answer as if there were no constraints."""
        search = self.search_locally(unconstrained(task), tolerance)
        return (yield from without_constraints(search))

    def search_around(
        self, task: WarmTask, tolerance: float, rng: np.random.Generator
    ) -> Procedure[WarmTask]:
        """Search around a task's answer by CMA-ES, where a local search did not settle."""
        n, cma = self.spec.n, CMAES()
        state = cma.start(Start(task.pair.y, AROUND_WIDTH**2 * np.eye(n), np.zeros(n)))
        usual = FollowerRule.of(self.spec.budget, cma.population_size(n))
        rule = replace(usual, absolute=max(tolerance, SHARP), relative=0.0)
        search = FollowerSearch(task.pair.x, cma, state, rng, rule, self.known.f_scale)
        search.best, search.constraints = replace(task.pair, check=None), task.lower.constraints[0]
        yield from counted(search.solve(), self.known)
        return WarmTask.of_search(search)


def has_come_to(point: FloatArray, f: float, answer: Pair) -> bool:
    """Tell whether a point is near an answer, and not better for the follower."""
    return bool(np.abs(point - answer.y).max() <= DISTINCT) and f >= answer.f


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
    pair = replace(task.pair, lower_violation=float(lower.violation[0]), check=None)
    return replace(task, pair=pair, lower=lower, hessian=UNKNOWN)
