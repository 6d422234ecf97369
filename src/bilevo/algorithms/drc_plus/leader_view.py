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

import numpy as np

from bilevo.algorithms.drc_plus.experience import Experience, WarmTask
from bilevo.algorithms.drc_plus.local_follower import ITERATIONS, UNKNOWN
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair, evaluate_answers, evaluate_pairs
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd
from bilevo.algorithms.shared.ties import FlatSet, flat_axes
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.budget import Scale
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Values
from bilevo.core.slopes import NO_SLOPES, SlopesGiven
from bilevo.core.streams import stream
from bilevo.core.tolerances import rounding

LEADER_TOLERANCE = 1e-9  # A descent ends if it expects a smaller gain in F, in units of `F_scale`.
USUAL_ERROR = 0.003  # Exact searches leave an error of f of about this part of their tolerance.
MAX_NOISE = 1e-4  # Errors of f are taken to leave no more than this in F, in units of `F_scale`.
SAME_X = 1e-6  # Unfelt variables are the same if they differ by less (fractions of the box).
SHARPENING = 1e-4  # The step of central differences that sharpen an answer (fraction of box).
FLAT_REACH = 0.05  # How far f must stay level along a flat direction, as a fraction of the box.
F_ERROR = 0.05  # An unfinished follower may cause this part of the difference in F to be seen.


@dataclass(slots=True, eq=False)
class Unfelt:
    """Which of the leader's variables followers do not feel, as far as a run knows (see unfelt)."""

    tested: bool = False
    variables: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    searches: int = 0  # searches over these variables so far
    fruitless: int = 0  # wide searches since one found a better pair
    exact: FloatArray = field(default_factory=lambda: np.zeros(0))  # where one last ended exactly

    def others(self, m: int) -> IntArray:
        """Return those of m variables that followers may feel; all of them if none does."""
        felt = np.setdiff1d(np.arange(m), self.variables)
        return felt if len(felt) else np.arange(m)

    def is_exact(self, x: FloatArray) -> bool:
        """Tell whether the last exact search over these variables has ended at a leader x (m,)."""
        if self.exact.shape != self.variables.shape:
            return False
        return bool((np.abs(x[self.variables] - self.exact) <= SAME_X).all())


@dataclass(slots=True, eq=False)
class LeaderView:
    """What a run has learnt about followers, and about their effect on F."""

    known: Experience
    generation: int = 0
    elite: Pair | None = None
    sensitivity: float = 1.0  # recent change of F per square root of a change of f
    flat: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # flat directions (k, n)
    flat_hessian: FloatArray = field(default_factory=lambda: UNKNOWN)  # Hessian of F along `flat`
    given: SlopesGiven = NO_SLOPES  # which gradients the user gives
    unfelt: Unfelt = field(default_factory=Unfelt)
    F_scale: Scale = field(default_factory=Scale)
    dependent: int = 0  # how many of the leader's constraints depend on y, when last seen
    constrained: bool = False  # whether one of the levels has constraints
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
    def checked(self) -> float:
        """Return how thoroughly the elite's follower was checked; 0 if it was not."""
        return 0.0 if self.the_elite.check is None else self.the_elite.check.thorough

    @property
    def total(self) -> int:
        """Return the number of evaluations of both levels so far."""
        return self.spent + self.known.spent

    def accept_elite(self, pair: Pair) -> Procedure[None]:
        """Make a pair the elite."""
        self.elite = pair
        yield pair.incumbent

    def accept_task(self, task: WarmTask) -> Procedure[None]:
        """Evaluate a task's leader and make its pair the elite."""
        yield from self.evaluate_leaders([task])
        yield from self.accept_elite(task.pair)

    def is_improved_by(self, pair: Pair) -> bool:
        """Tell whether a pair may be the next elite.

        A checked elite is not given up for a difference in F that does not count.
        """
        if not self.the_elite.passed:
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
            self.constrained |= bool(G.size or task.lower.constraints.size)

    def find_flat_directions(self, pair: Pair) -> Procedure[None]:
        """Find the directions in which f has neither curvature nor slope around an answer.

        The Hessian that this takes is kept for later searches of followers. If it was measured
        before, and f was curved in all directions, f is taken to be so here.
        """
        self.flat_hessian = UNKNOWN
        if self.known.clearly_curved:
            return
        hessian = yield from self.known.measure_hessian(pair)
        if hessian is None:
            return
        flat = flat_axes(hessian)
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
        new = replace(pair, y=y[0], f=f, F=F, violation=end.violation, check=None)
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

    def sharpen(self, pair: Pair) -> Procedure[Pair]:
        """Return a pair whose answer is more exact, or the pair itself if that is not possible.

        Searches end with slopes by one-sided differences, whose error moves the answer a little.
        Slopes by central differences and the learnt Hessian correct it, unless the follower has
        constraints.
        """
        y, H = pair.y, self.known.hessian
        inside = np.flatnonzero((y > SHARPENING) & (y < 1 - SHARPENING))
        if H.shape != (len(y), len(y)) or not len(inside):
            return pair
        steps = SHARPENING * np.eye(len(y))[inside]
        values = yield from self.known.evaluate(pair.x, np.concatenate([y + steps, y - steps]))
        up, down = values.objective.reshape(2, -1)
        slopes = (up - down) / (2 * SHARPENING)
        if values.constraints.size or not np.isfinite(slopes).all():
            return pair
        new = y.copy()
        new[inside] -= np.linalg.solve(H[np.ix_(inside, inside)], slopes)
        if np.abs(new - y).max() > SHARPENING:
            return pair
        task = WarmTask.at(pair.x, new[None], (yield from self.known.evaluate(pair.x, new[None])))
        if task.pair.f > pair.f + rounding(pair.f):
            return pair
        yield from self.evaluate_leaders([task])
        return replace(task.pair, converged=True)

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


def is_better(pair: Pair, than: Pair, tolerance: float) -> bool:
    """Tell whether a pair is better than another by more than a tolerance of F."""
    if pair.violation != than.violation:
        return pair.violation < than.violation
    return tolerance < than.F - pair.F
