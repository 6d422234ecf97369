"""The leader's view of followers in drc-plus: values of F, ties, and local searches over x.

phi(x) = F(x, y*(x)) is the leader's objective as a function of x alone. Here y*(x) is the
follower's answer to x. `LeaderView` holds what a run has learnt. It evaluates pairs, solves
followers (see warm_follower) as exactly as the leader needs, and chooses among ties (see ties) for
the leader. `descent` searches phi locally by `sqp`, and so solves a follower at every point. It
first ignores the leader's constraints. If it ends at an infeasible point, it continues from there
with the constraints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from bilevo.algorithms.drc_plus.experience import DISTINCT, Experience, WarmTask
from bilevo.algorithms.drc_plus.local_follower import CONSTRAINT_MARGIN, ITERATIONS, UNKNOWN
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair, evaluate_answers, evaluate_pairs
from bilevo.algorithms.shared.leader import leader_ranking, reached
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd, sqp
from bilevo.algorithms.shared.ties import FlatSet, flat_directions
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Scale
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Values, together
from bilevo.core.streams import stream
from bilevo.core.tolerances import rounding

LEADER_DIFFERENCE = 1e-5  # The step of finite differences in x, as a fraction of the box.
LEADER_TOLERANCE = 1e-9  # A descent ends if it expects a smaller gain in F, in units of `F_scale`.
LEADER_ITERATIONS = 15  # The most iterations of a descent, of m + 1 points each.
USUAL_ERROR = 0.01  # Exact searches leave an error of f of about this part of their tolerance.
MAX_NOISE = 1e-4  # Errors of f are taken to leave no more than this in F, in units of `F_scale`.
FLAT_REACH = 0.05  # How far f must stay level along a flat direction, as a fraction of the box.
F_ERROR = 0.05  # An unfinished follower may cause this part of the difference in F to be seen.


@dataclass(slots=True, eq=False)
class LeaderView:
    """What a run has learnt about followers, and about their effect on F."""

    known: Experience
    generation: int = 0
    elite: Pair | None = None
    certified: bool = False  # whether the elite has its certificate
    sensitivity: float = 1.0  # recent change of F per square root of a change of f
    flat: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # flat directions (k, n)
    flat_hessian: FloatArray = field(default_factory=lambda: UNKNOWN)  # Hessian of F along `flat`
    F_scale: Scale = field(default_factory=Scale)
    spent: int = 0  # upper evaluations so far
    streams: int = 0  # random streams used so far

    def stream(self, spec: Spec, name: str) -> np.random.Generator:
        """Return a random stream that no other search has."""
        self.streams += 1
        return stream(spec.seed, name, self.generation, self.streams)

    @property
    def the_elite(self) -> Pair:
        assert self.elite is not None
        return self.elite

    @property
    def total(self) -> int:
        """Return the number of evaluations of both levels so far."""
        return self.spent + self.known.spent

    def accept_elite(self, pair: Pair) -> Procedure[None]:
        """Make a pair the elite, which has no certificate yet."""
        self.elite, self.certified = pair, False
        yield pair.incumbent

    def is_improved_by(self, pair: Pair) -> bool:
        """Tell whether a pair may be the next elite.

        A certified elite is not given up for a difference in F that does not count.
        """
        if not self.the_elite.certified:
            return pair.no_worse(self.the_elite)
        return is_better(pair, self.the_elite, self.F_tolerance(LEADER_TOLERANCE))

    def F_tolerance(self, absolute: float) -> float:
        """Return a tolerance on F in the units of F, but at least the error that f causes in F.

        f has an error by rounding, and because exact searches end within a tolerance. The larger of
        these two errors counts.
        """
        noise = 0.0
        if self.elite is not None and math.isfinite(self.elite.f):
            error = max(rounding(self.elite.f), USUAL_ERROR * self.known.tight)
            noise = self.sensitivity * math.sqrt(error)
        # `sensitivity` may be from places where the scale of f is another one.
        noise = min(noise, self.F_scale.tolerance(MAX_NOISE))
        return max(self.F_scale.tolerance(absolute), noise)

    def f_tolerance(self, difference: float) -> float:
        """Return the largest tolerance on f with which a given difference in F can be seen."""
        if not math.isfinite(difference):
            return self.known.tight
        allowed = F_ERROR * difference / max(self.sensitivity, 1e-9)
        return max(self.known.tight, allowed * allowed)

    def evaluate_leaders(self, tasks: list[WarmTask]) -> Procedure[None]:
        """Fill in F, the total violation and the leader's constraints of tasks."""
        values = yield from evaluate_pairs([task.pair for task in tasks])
        self.spent = values.spent
        for task, G in zip(tasks, values.constraints, strict=True):
            task.G = G

    def find_flat_directions(self, pair: Pair) -> Procedure[None]:
        """Find the directions in which f has neither curvature nor slope around an answer."""
        self.flat_hessian = UNKNOWN
        flat = yield from flat_directions(partial(evaluate_answers, pair.x), pair.y)
        if not len(flat):
            return
        rows = np.clip(pair.y + FLAT_REACH * np.concatenate([flat, -flat]), 0.0, 1.0)
        values = yield from self.known.evaluate(pair.x, rows)
        change = np.abs(values.objective - pair.f).reshape(2, -1).max(axis=0)
        self.flat = np.asarray(flat[change <= self.known.tie(pair.f)])

    def resolve_ties(self, task: WarmTask, again: bool = True) -> Procedure[WarmTask]:
        """Return the task; the nearby tied answer that is best for the leader replaces its answer.

        Flat directions may change with x. If f rises along the known ones, they are found again.
        This is done only once, which is what `again` is for.
        """
        pair = task.pair
        flat = FlatSet(pair.y, self.flat)  # concurrent searches may replace self.flat
        if not flat.size or pair.lower_violation > 0:
            return task
        G: dict[bytes, FloatArray] = {}  # the leader's constraints, by coordinates in the set
        end = yield from self.search_ties(task, flat, G)
        if end.violation > pair.violation or not end.point.any():
            return task
        y = flat.points(end.point[None])
        lower = yield from self.known.evaluate(pair.x, y)
        allowed = pair.f + self.known.tie(pair.f)
        if lower.violation[0] > 0 or lower.objective[0] > allowed:
            if not again:
                return task
            yield from self.find_flat_directions(pair)
            return (yield from self.resolve_ties(task, again=False))
        F, f = end.objective, float(lower.objective[0])
        new = replace(pair, y=y[0], f=f, F=F, violation=end.violation)
        self.known.learn(new)
        return replace(task, pair=new, lower=lower, G=G[end.point.tobytes()])

    def search_ties(
        self, task: WarmTask, flat: FlatSet, G: dict[bytes, FloatArray]
    ) -> Procedure[SearchEnd]:
        """Search F over a flat set, and store the leader's constraints at all points in G."""
        pair, k = task.pair, flat.size
        G[np.zeros(k).tobytes()] = task.G

        def at(rows: FloatArray) -> Procedure[Values]:
            values = yield from evaluate_answers(pair.x, flat.points(rows), Level.UPPER)
            self.spent = values.spent
            G.update(zip((row.tobytes() for row in rows), values.constraints, strict=True))
            return values

        tolerance = self.F_tolerance(0.1 * LEADER_TOLERANCE)
        rule = LocalRule(20 * (k + 1), tolerance, trusting=True)
        hessian = self.flat_hessian if len(self.flat_hessian) == k else None
        here = np.array([pair.F]), np.array([pair.violation]), task.G[None]
        end = yield from flat.search(at, rule, hessian, Values(*here, self.spent))
        if end.hessian is not None:
            self.flat_hessian = end.hessian
        return end

    def test_against_neighbours(
        self, follower: WarmFollower, task: WarmTask
    ) -> Procedure[WarmTask]:
        """Compare a task's answer with answers of other followers.

        Returns the task itself, or a task with a better answer.
        """
        new = yield from follower.test_against_neighbours(task, self.known.tight)
        if new is task:
            return task
        yield from self.evaluate_leaders([new])
        new = yield from self.resolve_ties(new)
        self.known.learn(new.pair)
        return new

    def solve(
        self,
        follower: WarmFollower,
        task: WarmTask,
        tolerance: float,
        rng: np.random.Generator,
        iterations: int = ITERATIONS,
        thorough: bool = False,
    ) -> Procedure[WarmTask]:
        """Continue a follower's search, evaluate F again, and learn how much F depends on f."""
        new = yield from follower.improve(task, tolerance, rng, iterations, thorough)
        yield from self.evaluate_leaders([new])
        new = yield from self.resolve_ties(new)
        new.executions += task.executions
        # F was known before: the violation of a pair is inf until F is evaluated.
        if new.pair.violation == task.pair.violation:
            new.moved = abs(new.pair.F - task.pair.F)
            gain = task.pair.f - new.pair.f
            if gain > 0 and math.isfinite(new.moved):
                self.sensitivity += 0.2 * (new.moved / math.sqrt(gain) - self.sensitivity)
        return new


@dataclass(slots=True, eq=False)
class Phi:
    """phi as a function that `sqp` can call; a pair that improves the elite becomes the elite.

    While `relaxed` is True, the leader's constraints are ignored. If the search starts where the
    follower has no feasible answer (`repairs`), the follower's smallest violation is a constraint
    of the leader. Otherwise such leaders count as failed.
    """

    state: LeaderView
    follower: WarmFollower
    relaxed: bool = True
    repairs: bool = False
    constrained: bool = False  # whether the leader has constraints; known after the first call
    steps: list[WarmTask] = field(default_factory=list)  # where steps ended, also rejected ones

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        state = self.state
        tasks = yield from together(self.solved(row) for row in rows)
        self.constrained = tasks[0].G.size > 0
        if len(tasks) == 1:  # a step of the search, not finite differences
            tasks[0] = yield from self.on_branch(tasks[0])
            self.steps.append(tasks[0])
        for i, task in enumerate(tasks):
            if task.solved and state.is_improved_by(task.pair):
                if len(tasks) == 1:  # A step ended there; several rows are for finite differences.
                    tasks[i] = yield from state.test_against_neighbours(self.follower, task)
                if state.is_improved_by(tasks[i].pair):
                    yield from state.accept_elite(tasks[i].pair)
        return self.values(tasks)

    def values(self, tasks: list[WarmTask]) -> Values:
        """Return phi, its violation and its constraints at solved tasks."""
        F = np.array([task.pair.F for task in tasks])
        lower = np.array([[task.pair.lower_violation] for task in tasks])
        if not self.repairs:
            F, lower = np.where(lower[:, 0] == 0, F, np.inf), lower[:, :0]
        if self.relaxed:
            violation = np.where(np.isfinite(F), lower.sum(axis=1), np.inf)
            return Values(F, violation, lower, self.state.spent)
        violation = np.array([task.pair.violation for task in tasks])
        G = np.array([task.G for task in tasks]).reshape(len(tasks), -1)
        return Values(F, violation, np.concatenate([lower, G], axis=1), self.state.spent)

    def on_branch(self, task: WarmTask) -> Procedure[WarmTask]:
        """Try the answer of the best step at a task's x, if the task has another answer.

        This is done only if the task is worse for the leader. Its answer may be the follower's, or
        may come from a wrong start.
        """
        if not self.steps:
            return task
        i = int(leader_ranking([step.pair for step in self.steps])[0])
        best, y = self.steps[i].pair, self.steps[i].pair.y
        if np.abs(task.pair.y - y).max() <= DISTINCT or task.pair.no_worse(best):
            return task
        start = yield from self.follower.at(task.pair.x, y[None])
        new = yield from self.follower.search_locally(start, self.state.known.tight)
        tied = new.pair.f <= task.pair.f + self.state.known.equal(task.pair.f)
        if task.better(new) is task and not (tied and new.pair.lower_violation == 0):
            return task
        yield from self.state.evaluate_leaders([new])
        if task.better(new) is task and task.pair.no_worse(new.pair):
            return task
        new = yield from self.state.resolve_ties(new)
        self.state.known.learn(new.pair)
        return new

    def solved(self, x: FloatArray) -> Procedure[WarmTask]:
        """Solve the follower of a leader x (m,)."""
        task = yield from self.follower.start(x, np.ones(len(x)))
        rng = self.state.stream(self.follower.spec, "descent")
        return (yield from self.state.solve(self.follower, task, self.state.known.tight, rng))


def leader_rule(state: LeaderView, spec: Spec, ceiling: float = math.inf) -> LocalRule:
    """Return the rule of a local search over x.

    The search stops early if phi is not expected to fall below `ceiling`, and at the target.
    """
    m = spec.m
    return LocalRule(
        LEADER_ITERATIONS * (m + 1),
        state.F_tolerance(LEADER_TOLERANCE),
        difference=LEADER_DIFFERENCE,
        margin=CONSTRAINT_MARGIN,
        ceiling=ceiling,
        unit=state.F_scale.tolerance(1.0),
        repairing=True,
        trusting=True,
        done=lambda: reached(spec, state.the_elite),
    )


def descent(
    state: LeaderView,
    follower: WarmFollower,
    pair: Pair,
    ceiling: float = math.inf,
    relaxed: bool = True,
) -> Procedure[tuple[SearchEnd, list[WarmTask]]]:
    """Search phi locally from a pair; return how the search ended, and where its steps led.

    If `relaxed`, the leader's constraints are ignored at first.
    """
    x, m = pair.x, len(pair.x)
    box, rule = (np.zeros(m), np.ones(m)), leader_rule(state, follower.spec, ceiling)
    phi = Phi(state, follower, relaxed, repairs=pair.lower_violation > 0)
    end = yield from sqp(phi, x, *box, rule)
    if not (phi.constrained and relaxed):
        return end, phi.steps
    phi.relaxed = False
    values = yield from phi(end.point[None])
    if 0 < values.violation[0] < math.inf:
        end = yield from sqp(phi, end.point, *box, rule, values=values)
    return end, phi.steps


def is_smooth_end(state: LeaderView, end: SearchEnd) -> bool:
    """Tell whether a descent ended where phi is smooth and the model expects no more gain."""
    near = 100 * state.F_tolerance(LEADER_TOLERANCE)
    return end.violation == 0 and end.left <= near


def is_better(pair: Pair, than: Pair, tolerance: float) -> bool:
    """Tell whether a pair is better than another by more than a tolerance of F."""
    if pair.violation != than.violation:
        return pair.violation < than.violation
    return tolerance < than.F - pair.F
