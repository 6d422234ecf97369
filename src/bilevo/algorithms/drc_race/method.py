"""drc-race: leaders compete for steps of the problem's own solver.

This is resource competition as in DRC (D. Xu et al., 2024, see `drc`), for solvers whose steps are
expensive, such as an epoch of training or a linear program, and whose searches cannot learn from
each other. There are two kinds of generations:

    explore    A few tasks take a round of steps each. Half of them are unfinished tasks: the best
               task, and tasks with the largest expected gain for their cost, by a model of all
               learning curves. The other half are new leaders, at points where the model expects
               the largest gain. Rounds grow with a task's age. So a task that is not expected to
               win soon gets no more steps now, but it may get some later.
    descend    CMA-ES makes a generation near the best leader, because a model gives few digits and
               misses optima at a jump of F. The better half of its followers is solved to the end.

A run starts with a Latin hypercube. When exploration has found nothing better for a while, a
descent starts. It continues while it improves the answer. Otherwise exploration and the descent get
equal shares of the steps. The next descent starts elsewhere. Three descents in a row without a gain
end the run. If a solver is done after one step, there is nothing to compete for. The method is then
a search over x by a model, with descents.

It differs from DRC because in training the first task to finish is not the best task. So a
competition has no end, and unfinished tasks are kept for later generations. A task is rated by the
final value that the model expects, not by its present value.

Only a finished task can be the answer, because an unfinished follower may make its leader look too
good. A follower whose solver was done is preferred to one that was cut off. The task that looks
best always gets steps, so the answer is seldom far behind it. If a hard limit ends a run,
unfinished tasks do not count. Before a run ends at its target, or because it has settled, the
solver is started again at the answer's x: see `certify`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.drc_race.certify import check_elite, is_sound, needs_check
from bilevo.algorithms.drc_race.curve_model import (
    NEW,
    CurveModel,
    Rows,
    expected_improvement,
    first_settings,
    learn_settings,
    scores,
)
from bilevo.algorithms.drc_race.descents import SAME_END, TWIN_DISTANCE, Descent, descent_from, near
from bilevo.algorithms.shared import leader
from bilevo.algorithms.shared.follower_search import Pair, SolverSearch
from bilevo.algorithms.shared.leader import (
    best_pair,
    evaluate_answer,
    leader_ranking,
    leader_values,
    note_tasks,
    solver_searches,
)
from bilevo.core.algorithm import Algorithm, Followers, registered
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import SUCCESSFUL_ENDS, StopReason
from bilevo.core.feasibility import USUAL_CTOL
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.stop_rules import AtTarget, BudgetUsed, Settled, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.sampling import latin_hypercube

FIRST_STEPS = 3  # The steps of a new task in its first round.
ROUND_GROWTH = 0.5  # The steps of a task in its next round, relative to its steps so far.
ROUND_TASKS = 4  # How many tasks take steps side by side in exploration.
MAX_POOLED = 100  # The most tasks that the model learns from.
MAX_NEWER = 30  # To save memory, a task is given up if more new tasks came since its last round.
REFIT_GROWTH = 1.2  # The model's settings are fitted again after the tasks grew by this factor.
# How far from the ends of earlier descents a new descent starts, in units of the box's diagonal.
# The n-th distance is used after n - 1 descents in a row without a gain.
RESTART_DISTANCES = (0.35, 0.2, 0.1)


@dataclass(slots=True, eq=False)
class RaceTask:
    """The solver's search at a leader, the leader's values after each step, and its outlook."""

    follower: SolverSearch
    F: list[float] = field(default_factory=list)
    violation: list[float] = field(default_factory=list)
    last: int = 0  # how many tasks the run had in the last round of this task
    outlook: float = -math.inf  # the expected final score; -inf while unknown
    G: FloatArray = field(default_factory=lambda: np.zeros(0))  # the leader's constraints at last

    @property
    def pair(self) -> Pair:
        return self.follower.answer

    @property
    def age(self) -> int:
        return self.follower.executions

    def take_steps(self, state: DRCRaceState, steps: int) -> Procedure[None]:
        """Take up to `steps` steps, and evaluate F at each new answer."""
        while steps and not self.follower.finished:
            if (yield from self.follower.execute()):
                values = yield from evaluate_answer(state, self.pair)
                self.G = self.G if values is None else values.constraints[0]
            self.note()
            steps -= 1

    def note(self, evaluated: bool = True) -> None:
        """Note the leader's values after a step; if F was not evaluated, the last values."""
        evaluated = evaluated or not self.F
        self.F.append(self.pair.F if evaluated else self.F[-1])
        self.violation.append(self.pair.violation if evaluated else self.violation[-1])

    def take_round(self, state: DRCRaceState) -> Procedure[None]:
        """Take a round of steps; the older a task is, the longer its rounds are."""
        self.last = state.tasks
        return self.take_steps(
            state, max(2, math.ceil(ROUND_GROWTH * self.age)) if self.age else FIRST_STEPS
        )


@dataclass(slots=True, eq=False)
class DRCRaceState(leader.LeaderState):
    """The state of a run between two generations."""

    pool: list[RaceTask] = field(default_factory=list)
    settings: FloatArray = field(default_factory=lambda: np.zeros(0))  # settings of the model
    learnt: int = 0  # number of tasks when the settings were fitted
    explored: int = 0  # new leaders since the last descent
    idle: int = 0  # new leaders since the last gain
    longest: int = 1  # the most steps that a task has taken
    finished: int = 0  # finished tasks so far
    finished_steps: int = 0  # the steps of all finished tasks
    descent: Descent | None = None
    ends: list[FloatArray] = field(default_factory=list)  # where descents have ended
    fruitless: int = 0  # descents in a row without a gain
    spent_lower: int = 0  # cost of the solver so far

    @property
    def usual(self) -> float:
        """Return the mean number of steps of finished tasks, or a guess if there are none."""
        return self.finished_steps / self.finished if self.finished else 2.0 * self.longest


@dataclass(frozen=True, slots=True)
class DRCRace(Algorithm[DRCRaceState]):
    """Leaders compete for steps of the solver, by a model of learning curves, with descents."""

    descents: CMAES = field(default_factory=CMAES)

    name = registered("drc-race")
    revision = 3
    ctol = USUAL_CTOL
    State = DRCRaceState
    followers = Followers.SOLVER

    def init(self, spec: Spec) -> Procedure[DRCRaceState]:
        yield from ()
        return DRCRaceState(None, settings=first_settings(spec.m))

    def generation(self, spec: Spec, state: DRCRaceState) -> Procedure[DRCRaceState]:
        if state.generation == 0:
            tasks = yield from self.first_generation(spec, state)
        elif state.descent is not None and (state.descent.gains or state.descent.steps <= 0):
            tasks = yield from self.descend(spec, state, state.descent)
        else:
            tasks = yield from self.explore(spec, state)
        self.end_generation(spec, state, tasks)
        while state.stop in SUCCESSFUL_ENDS and needs_check(state.the_elite):
            yield from self.certify_elite(spec, state)
        return state

    def first_generation(self, spec: Spec, state: DRCRaceState) -> Procedure[list[RaceTask]]:
        """Try leaders all over the box; the follower of x0 is solved to the end."""
        count, rng = 8 + spec.m, stream(spec.seed, "first")
        x = latin_hypercube(count, spec.m, rng)
        if spec.x0 is not None:
            x[0] = spec.x0
        tasks = new_tasks(spec, state, x)
        yield from together(task.take_round(state) for task in tasks)
        if spec.x0 is not None:
            yield from tasks[0].take_steps(state, tasks[0].follower.longest)
        state.pool += tasks
        yield from accept_best(spec, state, tasks)
        return tasks

    def explore(self, spec: Spec, state: DRCRaceState) -> Procedure[list[RaceTask]]:
        """Let unfinished tasks and new leaders take a round each, as the model advises."""
        rng = stream(spec.seed, "explore", state.generation)
        model = fit_model(state)
        continued = tasks_to_continue(state, model, ROUND_TASKS // 2)
        count = ROUND_TASKS - len(continued)
        fresh = new_tasks(spec, state, propose_leaders(state, model, count, rng))
        before, tasks = steps_of(continued), continued + fresh
        yield from together(task.take_round(state) for task in tasks)
        state.pool = thinned(state.pool, model.lengths) + fresh
        gained = yield from accept_best(spec, state, tasks)
        state.explored, state.idle = state.explored + count, 0 if gained else state.idle + count
        if state.descent is not None:
            state.descent.steps -= steps_of(tasks) - before
            state.descent = None if gained else state.descent  # the next descent starts there
        elif state.elite is not None and (
            state.idle >= patience(spec) or state.explored >= 4 * patience(spec)
        ):
            state.descent = self.start_descent(spec, state, state.elite, rng)
        return tasks

    def start_descent(
        self, spec: Spec, state: DRCRaceState, answer: Pair, rng: np.random.Generator
    ) -> Descent:
        """Start a descent from the answer, or elsewhere if a descent has ended there."""
        order = leader_ranking([task.pair for task in state.pool])
        places = np.array([state.pool[i].pair.x for i in order])
        good = places[: len(places) // 2]
        if not near(answer.x, state.ends, SAME_END):
            return descent_from(answer.x, answer, good, spec, self.descents)
        reach = RESTART_DISTANCES[min(state.fruitless, len(RESTART_DISTANCES) - 1)] * math.sqrt(
            spec.m
        )
        far = [x for x in places if not near(x, state.ends, reach)]
        x = far[0] if far else rng.random(spec.m)
        return descent_from(x, None, good, spec, self.descents)

    def descend(
        self, spec: Spec, state: DRCRaceState, descent: Descent
    ) -> Procedure[list[RaceTask]]:
        """Make a generation of CMA-ES; the better half of its followers is solved to the end."""
        x = self.descents.ask(descent.search, stream(spec.seed, "descend", state.generation))
        tasks = new_tasks(spec, state, x)
        yield from together(task.take_round(state) for task in tasks)
        better = [tasks[i] for i in leader_ranking([t.pair for t in tasks])[: len(tasks) // 2]]
        yield from together(task.take_steps(state, task.follower.longest) for task in better)
        before = state.elite
        gained = yield from accept_best(spec, state, tasks)
        pairs = [task.pair for task in tasks]
        F, violation = leader_values(pairs)
        self.descents.tell(descent.search, x, F, violation)
        descent.note(best_pair(pairs), state.elite is not before, gained, steps_of(tasks))
        if descent.barren >= 4 + spec.m:
            descent.zoom(self.descents)
        if descent.over(state.the_elite, state.ends, float(np.median(F))):
            end_descent(state, descent, tasks)
        return tasks

    def end_generation(self, spec: Spec, state: DRCRaceState, tasks: list[RaceTask]) -> None:
        """Note the tasks' steps and survivors, and test the stop rules."""
        pairs = [task.pair for task in tasks]
        state.F_scale.see(leader_values(pairs)[0])
        note_tasks(state, [task.age for task in tasks], pairs)
        state.generation += 1
        state.stop = self.stop_reason(spec, state)

    def stop_reason(self, spec: Spec, state: DRCRaceState) -> StopReason | None:
        rules = AtTarget(spec.target), Settled(), BudgetUsed(upper=spec.budget.upper_max)
        settled = state.fruitless >= len(RESTART_DISTANCES)
        return first_met(rules, state.progress(settled=settled))

    def certify_elite(self, spec: Spec, state: DRCRaceState) -> Procedure[None]:
        """Check the answer before the run ends.

        If the check refutes the answer, it is replaced. If F is then worse, the run goes on.
        """
        elite = state.the_elite
        pairs = [elite, *(task.pair for task in state.pool if np.isfinite(task.pair.f))]
        size = np.median([abs(pair.y) for pair in pairs], axis=0)
        check = yield from check_elite(spec, state, elite, size, state.spent_lower)
        state.spent_lower += check.spent
        if check.found is not None:
            yield from self.replace_refuted(spec, state, elite, check.found)
            state.stop = self.stop_reason(spec, state)
        yield state.the_elite.incumbent

    def replace_refuted(
        self, spec: Spec, state: DRCRaceState, refuted: Pair, found: SolverSearch
    ) -> Procedure[None]:
        """Put a task with the better answer in the place of the refuted one.

        Then the best finished task of the pool becomes the run's answer.
        """
        values = yield from evaluate_answer(state, found.answer)
        F, violation = found.answer.F, found.answer.violation
        right = RaceTask(found, [F] * found.executions, [violation] * found.executions, state.tasks)
        right.G = right.G if values is None else values.constraints[0]
        state.pool = [task for task in state.pool if task.pair.task != refuted.task] + [right]
        best = best_sound([task.pair for task in state.pool if task.follower.finished])
        state.elite = best
        if best.violation > 0 or state.F_scale.tolerance(spec.ftol) < best.F - refuted.F:
            state.fruitless = min(state.fruitless, len(RESTART_DISTANCES) - 1)  # search on
        descent = state.descent
        if descent is not None and descent.best is not None and descent.best.task == refuted.task:
            state.descent = None


def end_descent(state: DRCRaceState, descent: Descent, tasks: list[RaceTask]) -> None:
    """Note where a descent has ended, and begin to explore again."""
    assert descent.best is not None
    state.ends.append(descent.best.x)
    state.fruitless = 0 if descent.fruitful else state.fruitless + 1
    state.descent, state.explored, state.idle = None, 0, 0
    state.pool += [task for task in tasks if task.pair.task == descent.best.task]


def new_tasks(spec: Spec, state: DRCRaceState, x: FloatArray) -> list[RaceTask]:
    return [RaceTask(follower) for follower in solver_searches(spec, state, x)]


def steps_of(tasks: list[RaceTask]) -> int:
    return sum(task.age for task in tasks)


def patience(spec: Spec) -> int:
    """Return how many new leaders without a gain end a phase of exploring."""
    return 10 + 5 * spec.m


def accept_best(spec: Spec, state: DRCRaceState, tasks: list[RaceTask]) -> Procedure[bool]:
    """Make the best finished task the answer if it is better; return True if it is much better."""
    state.longest = max(state.longest, *(task.age for task in tasks))
    state.spent_lower = max(state.spent_lower, *(task.follower.spent for task in tasks))
    finished = [task.pair for task in tasks if task.follower.finished]
    state.finished += len(finished)
    state.finished_steps += steps_of([task for task in tasks if task.follower.finished])
    if not finished:
        return False
    best = best_sound(finished)
    last = state.elite
    if last is not None and best_sound([last, best]) is last:
        return False
    state.elite = best
    yield best.incumbent
    if last is None or is_sound(best) > is_sound(last):
        return True
    return best.violation < last.violation or state.F_scale.tolerance(spec.ftol) < last.F - best.F


def best_sound(pairs: list[Pair]) -> Pair:
    """Return the leader's best pair among the sound ones, or among all if none is sound."""
    return best_pair([pair for pair in pairs if is_sound(pair)] or pairs)


def thinned(pool: list[RaceTask], lengths: FloatArray) -> list[RaceTask]:
    """Return the tasks to learn from; from the worse half, drop tasks that are near to others.

    Bad tasks without near neighbours are kept, so that their leaders are not tried again.
    """
    if len(pool) <= MAX_POOLED:
        return pool
    x = np.array([task.pair.x for task in pool]) / lengths
    apart = np.linalg.norm(x[:, None] - x[None], axis=2) + np.diag(np.full(len(x), np.inf))
    staying = list(range(len(pool)))
    kept = min(len(pool) // 2, MAX_POOLED)
    worse = sorted(staying, key=lambda i: pool[i].outlook)[kept:]
    while len(staying) > MAX_POOLED:
        dropped = min(worse, key=lambda i: apart[i].min())
        worse.remove(dropped)
        staying.remove(dropped)
        apart[dropped] = apart[:, dropped] = np.inf
    return [pool[i] for i in staying]


def fit_model(state: DRCRaceState) -> CurveModel:
    """Fit a model to values of the pool's tasks: after the first round, and now.

    The present value of a finished task also counts as its value at the end.
    """
    x, t, number, F, violation = [], [], [], [], []
    for task in state.pool:
        marks = [
            (age, age / state.longest) for age in sorted({min(FIRST_STEPS, task.age), task.age})
        ]
        if task.follower.finished and task.age < state.longest:
            marks.append((task.age, 1.0))  # a finished task keeps its value
        for age, share in marks:
            x.append(task.pair.x)
            t.append(share)
            number.append(task.follower.task)
            F.append(task.F[age - 1])
            violation.append(task.violation[age - 1])
    z = scores(np.array(F), np.array(violation))
    rows = Rows(np.array(x), np.array(t), np.array(number), z)
    if state.tasks >= REFIT_GROWTH * state.learnt:
        state.settings, state.learnt = learn_settings(rows, state.settings, 10), state.tasks
    return CurveModel(rows, state.settings)


def tasks_to_continue(state: DRCRaceState, model: CurveModel, count: int) -> list[RaceTask]:
    """Return up to `count` unfinished tasks to continue.

    The task that looks best comes first, if it is unfinished. The others follow by their expected
    gain per step.
    """
    pairs = [task.pair for task in state.pool]
    x, numbers = np.array([p.x for p in pairs]), np.array([p.task for p in pairs])
    mean, deviation = model.at_end(x, numbers)
    for task, outlook in zip(state.pool, mean.tolist(), strict=True):
        task.outlook = outlook
    gain = expected_improvement(mean, deviation, float(model.rows.z.min()))
    best = state.pool[int(leader_ranking(pairs)[0])]
    live = [
        i
        for i, task in enumerate(state.pool)
        if not task.follower.finished and state.tasks - task.last <= MAX_NEWER
    ]
    to_go = {i: max(state.usual - state.pool[i].age, FIRST_STEPS) for i in live}
    live.sort(key=lambda i: (state.pool[i] is not best, -gain[i] / to_go[i]))
    return [state.pool[i] for i in live[:count]]


def propose_leaders(
    state: DRCRaceState, model: CurveModel, count: int, rng: np.random.Generator
) -> FloatArray:
    """Return new leaders (count, m) with a large expected gain, far from each other."""
    m = model.rows.x.shape[1]
    top = sorted(state.pool, key=lambda task: task.outlook)[:6]
    points = [rng.random((200, m))]
    for task in top:
        widths = rng.choice([0.03, 0.1, 0.2], (20, 1))
        points.append(np.clip(task.pair.x + widths * rng.standard_normal((20, m)), 0, 1))
    x = np.concatenate(points)
    mean, deviation = model.at_end(x, np.full(len(x), NEW))
    gain = expected_improvement(mean, deviation, float(model.rows.z.min()))
    gain[[near(point, state.ends, 3 * TWIN_DISTANCE) for point in x]] = 0.0
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(int(gain.argmax()))
        away = (((x - x[chosen[-1]]) / (0.3 * model.lengths)) ** 2).sum(axis=1)
        gain *= 1 - np.exp(-0.5 * away)
    return x[chosen]
