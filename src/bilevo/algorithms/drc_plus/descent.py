"""Descents: local searches over x of phi(x) = F(x, y*(x)), the leader's objective.

`Phi` solves the follower at every x that `sqp` asks for. Where that is cheaper, the gradient comes
from the follower's answer at one x alone (see leader_gradient); otherwise, and where that fails, it
is taken by differences. `descent` says when the leader's constraints are ignored for a while.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.algorithms.drc_plus.beside import Beside
from bilevo.algorithms.drc_plus.experience import DISTINCT, WarmTask
from bilevo.algorithms.drc_plus.leader_gradient import affordable, leader_gradient
from bilevo.algorithms.drc_plus.leader_view import LEADER_TOLERANCE, LeaderView
from bilevo.algorithms.drc_plus.local_follower import CONSTRAINT_MARGIN
from bilevo.algorithms.drc_plus.state import budget_of
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import leader_ranking, reached
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd, sqp_among
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, Values, together

LEADER_DIFFERENCE = 1e-5  # The step of finite differences in x, as a fraction of the box.
LEADER_ITERATIONS = 40  # The most iterations of a descent, of m + 1 points each.
STOPPED = 1e-6  # A constraint may have stopped a search if its value is above minus this.
STALL = 10  # A descent stalls if over this number of steps,
STALLED = 1e-3  # F falls by less than this part of what it has fallen in all,
CONVERGING = 0.1  # and in the second half of these steps by more than this part of the first half.
FINER = 0.5  # A descent goes on if its tolerance has become smaller than this part of itself,
MAX_FINER = 3  # but not more often than this.
MISLEADING = 0.5  # A gradient misleads if F changes by this part less or more than it says.
MAX_CORRECTIONS = 3  # The most times that a descent begins, if steps had wrong answers.
ASTRAY = 2  # Constraints are no longer ignored after so many steps, times m, that violate them.
MAX_MISSES = 2  # After this many misleading gradients in a row, differences replace them.


Derivatives = tuple[FloatArray, FloatArray]  # a gradient (m,) and a jacobian (c, m)
Descent = tuple[SearchEnd, list[WarmTask]]  # how a descent ended, and where its steps led


@dataclass(slots=True, eq=False)
class Phi:
    """phi as a function that `sqp` can call; a pair that improves the elite becomes the elite.

    While `relaxed` is True, the leader's constraints are ignored. If the search starts where the
    follower has no feasible answer (`repairs`), the follower's smallest violation is a constraint
    of the leader. Otherwise such leaders count as failed.
    """

    state: LeaderView
    follower: WarmFollower
    ceiling: float = math.inf  # a search stops early if phi is not expected to fall below this
    relaxed: bool = True
    repairs: bool = False
    beside: Beside = field(default_factory=Beside)  # the descents that run side by side with this
    constrained: bool = False  # whether the leader has constraints; known after the first call
    steps: list[WarmTask] = field(default_factory=list)  # where steps ended, also rejected ones
    adjoint: bool = True  # whether gradients are taken from one follower
    derived: tuple[Pair, FloatArray] | None = None  # the last pair with a gradient, and that
    misses: int = 0  # misleading gradients in a row
    corrected: WarmTask | None = None  # a step that had a wrong answer, with a better one
    chosen: IntArray | None = None  # the only variables that searches change; None for all
    outside: int = 0  # steps in a row that violated the leader's constraints while `relaxed`
    seen: dict[bytes, WarmTask] = field(default_factory=dict)  # with constraints: all tasks, by x

    def derive(self, point: FloatArray) -> Procedure[Derivatives | None]:
        """Return the derivatives of phi at the end of the last step; None to take differences."""
        task = self.step_at(point)
        if not self.adjoint or self.repairs or task is None or not task.solved:
            return None
        state, sizes = self.state, (len(point), len(task.pair.y))
        count = 0 if self.relaxed else state.dependent
        if not affordable(*sizes, count, state.given):
            return None
        found = yield from leader_gradient(self.state, task, constrained=not self.relaxed)
        if found is not None:
            self.test_gradient(task.pair, found[0])
        return found if self.adjoint else None

    def step_at(self, point: FloatArray) -> WarmTask | None:
        """Return the last step that ended at a point, if there is one."""
        return next((step for step in reversed(self.steps) if (step.pair.x == point).all()), None)

    def over(self) -> bool:
        """Tell whether the search is over.

        It is at the target, or if a step had a wrong answer, or if f turns out not to be smooth, or
        if the run's budget is used up.
        """
        ended = may_end(self.follower.spec, self.state)
        return ended or self.corrected is not None or self.state.known.rough

    def done(self) -> bool:
        """Tell whether the current search ends: it is over, or has gone astray.

        A search that ignores the leader's constraints has gone astray if it stays where they are
        violated: it has had time to cross a part of the box where they are.
        """
        return self.over() or self.outside >= ASTRAY * self.follower.spec.m

    def has_ended(self, x: FloatArray, F: float) -> bool:
        """Tell whether the current search ends, where its best leader is x (m,)."""
        return self.done() or self.beside.have_ended_at(x, F)

    def test_gradient(self, pair: Pair, gradient: FloatArray) -> None:
        """Compare the change of F since the last gradient with what both gradients say."""
        if self.derived is not None:
            last, before = self.derived
            step = pair.x - last.x
            first, second = float(before @ step), float(gradient @ step)
            miss = abs(pair.F - last.F - (first + second) / 2)
            bad = miss > MISLEADING * max(abs(first), abs(second))
            self.misses = self.misses + 1 if bad else 0
            self.adjoint = self.misses < MAX_MISSES
        self.derived = pair, gradient

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        state, known = self.state, [self.seen.get(row.tobytes()) for row in rows]
        again = [task for task in known if task is not None]
        if len(again) == len(rows):  # a search with constraints begins where one without them began
            return self.values(again)
        tasks = yield from together(self.solved(row) for row in rows)
        self.constrained = tasks[0].G.size > 0
        if len(tasks) == 1:  # a step of the search, not finite differences
            tasks[0] = yield from self.on_branch(tasks[0])
            self.steps.append(tasks[0])
            violates = self.relaxed and bool((tasks[0].G > 0).any())
            self.outside = self.outside + 1 if violates else 0
        for i, task in enumerate(tasks):
            if task.solved and state.is_improved_by(task.pair):
                if len(tasks) == 1:  # A step ended there; several rows are for finite differences.
                    tasks[i] = yield from state.test_against_neighbours(self.follower, task)
                if state.is_improved_by(tasks[i].pair):
                    yield from state.accept_elite(tasks[i].pair)
        if self.constrained:
            self.seen |= {row.tobytes(): task for row, task in zip(rows, tasks, strict=True)}
        return self.values(tasks)

    def minimize(self, x: FloatArray, values: Values | None = None) -> Procedure[SearchEnd]:
        """Search phi locally from x (m,).

        The tolerance on F depends on errors of f, which may have been far larger at the start. Then
        the search goes on from its end. If it ends because its gradients are not good enough, it
        goes on by differences.
        """
        chosen = np.arange(len(x)) if self.chosen is None else self.chosen
        for _ in range(MAX_FINER):
            stall = StallTest()
            rule = self.rule(stall)
            end = yield from sqp_among(self, x, chosen, rule, values, self.derive)
            finer = leader_tolerance(self.state) < FINER * rule.tolerance
            if not (finer and end.converged) or self.done():
                break
            x, values = end.point, None
        if self.derived is None or end.converged or stall.stalled:
            return end
        if self.has_ended(end.point, end.objective):
            return end
        if end.objective > rule.ceiling() or not math.isfinite(end.objective):
            return end
        self.adjoint = False
        return (yield from sqp_among(self, end.point, chosen, self.rule(StallTest())))

    def rule(self, stall: StallTest) -> LocalRule:
        """Return the rule of a search; it may also end because of descents beside it."""
        rule = leader_rule(self.state, stall, self.done)
        return replace(
            rule,
            ceiling=lambda: min(self.ceiling, self.beside.best),
            done=lambda x, F: self.has_ended(x, F) or stall.found(F),
        )

    def repair(self, x: FloatArray, end: SearchEnd) -> Procedure[SearchEnd]:
        """Search with the leader's constraints, if a search without them ended at a violation.

        The search begins where the other one began, and if that fails, where it ended.
        """
        self.relaxed, self.outside = False, 0
        values = yield from self(end.point[None])
        if not 0 < values.violation[0] < math.inf:
            return end
        again = yield from self.minimize(x)
        if again.violation > 0 and not self.over():
            again = yield from self.minimize(end.point, values)
        return again

    def cross_constraints(self, end: SearchEnd) -> Procedure[SearchEnd]:
        """Search without the leader's constraints from where they stopped a search.

        The new end counts only if it is feasible and better.
        """
        last = self.step_at(end.point)
        if last is None or not (last.G > -STOPPED).any():
            return end
        self.relaxed = True
        other = yield from self.minimize(end.point)
        self.relaxed = False
        values = yield from self(other.point[None])
        better = values.violation[0] == 0 and values.objective[0] < end.objective
        return other if better else end

    def has_left_elite(self, end: SearchEnd) -> bool:
        """Tell whether a step met a new elite, and the search has ended elsewhere or was cut off.

        A search is cut off if an earlier step turns out to have a wrong answer.
        """
        elite = self.state.the_elite
        ended = may_end(self.follower.spec, self.state) or self.state.known.rough
        step = self.step_at(elite.x)
        if ended or elite.lower_violation > 0 or step is None or step is self.steps[0]:
            return False
        return self.corrected is not None or bool(np.abs(end.point - elite.x).max() > DISTINCT)

    def prefer_exact(self, end: SearchEnd) -> Procedure[None]:
        """Make the end of the search the elite, if the elite is a step that is less feasible.

        A step within the tolerances of constraints may have a better F than the optimum, and would
        hide it.
        """
        elite, last = self.state.the_elite, self.step_at(end.point)
        step = next((step for step in self.steps if step.pair is elite), None)
        if step is None or last is None or last.pair.violation > 0:
            return
        if excess(last) < excess(step):
            yield from self.state.accept_elite(last.pair)

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
            yield from self.contradict(self.steps[i], task)
            return task
        yield from self.state.evaluate_leaders([new])
        if task.better(new) is task and task.pair.no_worse(new.pair):
            return task
        new = yield from self.state.resolve_ties(new)
        self.state.known.learn(new.pair)
        return new

    def contradict(self, step: WarmTask, task: WarmTask) -> Procedure[None]:
        """Try the answer of a task at the x of an earlier step.

        If it is better for the follower there, the step had a wrong answer, and its F misleads the
        search. `corrected` is then the step with the better answer.
        """
        start = yield from self.follower.at(step.pair.x, task.pair.y[None])
        if step.better(start) is step:
            return
        new = yield from self.follower.search_locally(start, self.state.known.tight)
        if new.pair.f < step.pair.f - self.state.known.tie(step.pair.f):
            yield from self.state.evaluate_leaders([new])
            new = yield from self.state.resolve_ties(new)
            self.state.known.learn(new.pair)
            self.corrected = new

    def solved(self, x: FloatArray) -> Procedure[WarmTask]:
        """Solve the follower of a leader x (m,)."""
        task = yield from self.follower.start(x, np.ones(len(x)))
        rng = self.state.stream(self.follower.spec, "descent")
        return (yield from self.state.solve(self.follower, task, self.state.known.tight, rng))


def excess(task: WarmTask) -> float:
    """Return the sum of the positive constraints of both levels, also of tolerated ones."""
    upper, lower = np.maximum(task.G, 0.0), np.maximum(task.lower.constraints, 0.0)
    return float(upper.sum() + lower.sum())


def may_end(spec: Spec, state: LeaderView) -> bool:
    """Tell whether the run is at its target, or has used up its budget."""
    return reached(spec, state.the_elite) or state.total >= budget_of(spec).total


@dataclass(slots=True, eq=False)
class StallTest:
    """Tells whether a local search has come to a stall, from F before each of its steps.

    A search that repairs constraints, so that F rises, is no stall. Nor is a search whose gains
    become small quickly: it converges.
    """

    record: list[float] = field(default_factory=list)
    stalled: bool = False

    def found(self, F: float) -> bool:
        """Take F before the next step; tell whether to stop."""
        self.record.append(F)
        if len(self.record) > STALL and math.isfinite(highest := max(self.record)):
            start, middle = self.record[-STALL], self.record[-STALL // 2]
            little = 0 <= start - F < STALLED * (highest - F)
            self.stalled = little and middle - F >= CONVERGING * (start - middle)
        return self.stalled


def leader_tolerance(state: LeaderView) -> float:
    """Return the least gain in F that is worth a step."""
    return state.F_tolerance(LEADER_TOLERANCE)


def leader_rule(state: LeaderView, stall: StallTest, over: Callable[[], bool]) -> LocalRule:
    """Return the rule of a local search over x.

    The search stops when it is `over`, and when it stalls.
    """
    m = len(state.the_elite.x)
    return LocalRule(
        LEADER_ITERATIONS * (m + 1),
        leader_tolerance(state),
        difference=LEADER_DIFFERENCE,
        margin=CONSTRAINT_MARGIN,
        unit=state.F_scale.tolerance(1.0),
        repairing=True,
        trusting=True,
        smooth=state.known.surely_smooth,
        doubts=True,
        corrects=True,
        done=lambda point, F: over() or stall.found(F),
    )


def descent(
    state: LeaderView,
    follower: WarmFollower,
    pair: Pair,
    ceiling: float = math.inf,
    relaxed: bool = True,
    chosen: IntArray | None = None,
    adjoint: bool = True,
    beside: Beside | None = None,
) -> Procedure[Descent]:
    """Search phi locally from a pair; return how the search ended, and where its steps led.

    From an infeasible pair, the leader's constraints are ignored at first. From a feasible one,
    they are ignored afterwards, if they stopped the search: they may only be islands in its way.
    Without `relaxed`, they are never ignored. The search changes only the `chosen` variables.
    With `adjoint`, gradients come from one follower where they can. If the search has met a new
    elite and has left it unfinished, a search from the elite follows. It ends early because of what
    descents `beside` it have found.
    """
    beside = Beside() if beside is None else beside
    for _ in range(MAX_CORRECTIONS):
        ignored = relaxed and pair.violation > 0
        repairs = pair.lower_violation > 0
        phi = Phi(
            state, follower, ceiling, ignored, repairs, beside, chosen=chosen, adjoint=adjoint
        )
        end = yield from phi.minimize(pair.x)
        if phi.corrected is None:
            break
        pair = phi.corrected.pair
    if phi.constrained and relaxed and not phi.over():
        end = yield from phi.repair(pair.x, end) if ignored else phi.cross_constraints(end)
    if phi.has_left_elite(end):
        steps = phi.steps
        phi = Phi(state, follower, relaxed=False, beside=beside, chosen=chosen, adjoint=adjoint)
        end = yield from phi.minimize(state.the_elite.x)
        phi.steps = steps + phi.steps
    if is_smooth_end(state, end):
        yield from phi.prefer_exact(end)
    beside.ends.append(end)
    return end, phi.steps


def descend_side_by_side(
    state: LeaderView,
    follower: WarmFollower,
    pairs: Sequence[Pair],
    ceiling: float,
    relaxed: bool,
    chosen: IntArray | None,
    adjoint: bool,
) -> Procedure[list[Descent]]:
    """Make descents from some pairs, which know of each other where they have ended."""
    settings = ceiling, relaxed, chosen, adjoint, Beside()
    descents = (descent(state, follower, pair, *settings) for pair in pairs)
    return (yield from together(descents, fair=True))


def start_descents(
    state: LeaderView, follower: WarmFollower, x: FloatArray
) -> Procedure[list[Pair]]:
    """Return a pair at each x (k, m), with the answer that is predicted there."""
    tasks = yield from together(follower.start(row, np.ones(len(row))) for row in x)
    if tasks:
        yield from state.evaluate_leaders(tasks)
    return [task.pair for task in tasks]


def leading(ended: Sequence[Descent], elite: Pair) -> Descent:
    """Return the descent with a step that ended at the elite; the first one if there is none."""
    return next((one for one in ended if any(step.pair is elite for step in one[1])), ended[0])


def is_smooth_end(state: LeaderView, end: SearchEnd) -> bool:
    """Tell whether a descent ended where phi is smooth and the model expects no more gain."""
    near = 100 * leader_tolerance(state)
    return end.violation == 0 and end.left <= near
