"""drc-race: leaders compete for the steps of a follower that is a solver of the user's.

Resource competition as in DRC (D. Xu et al., 2024, see `drc`), for followers that cannot tell each
other anything and whose steps are dear: an epoch of training, a linear program. Two kinds of
generations take turns:

    explore    A few tasks take a stint of steps each. Half of them are under way already: the best
               one, and those that a model of all curves expects to gain most for their cost. The
               others are new leaders, where the same model expects most. Stints grow with a task's
               age, so a task that is not expected to win is left behind early, but not for good.
    descend    A generation of CMA-ES near the best leader, for the digits that a model cannot give
               and for optima at a jump. The better half of its followers is solved to the end.

It starts with a Latin hypercube. When exploring has brought nothing new for a while, a descent
starts, and goes on while it improves the answer; else both get equal shares of the steps. After a
descent, exploring goes on, and the next one starts elsewhere. Three in a row that bring nothing end
the run. A follower that is done after one step leaves nothing to compete for: what remains is a
search over x by a model, with descents.

What differs from DRC, and why: "first to finish" is not "best" where training is concerned, so
a competition has no end, unfinished tasks are carried over, and a task's performance is what a
model expects of its end, in the light of all the others' curves, not what it shows now.

The answer is a finished task, as long as any is finished: before its end a follower may flatter its
leader. The task that looks best is always among those that take steps, so the answer is seldom
behind it; where a hard limit ends a run, what is then under way and unfinished does not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.drc_race.curve_model import (
    NEW,
    CurveModel,
    Rows,
    expected_improvement,
    first_settings,
    learn_settings,
    scores,
)
from bilevo.algorithms.drc_race.descents import CLOSE, SAME, Descent, descent_from, near
from bilevo.algorithms.shared import leader
from bilevo.algorithms.shared.follower_search import Pair, SolverSearch
from bilevo.algorithms.shared.leader import evaluate_answer, leader_ranking, own_followers
from bilevo.core.algorithm import Algorithm, Followers, variant_name
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.stop_rules import AtTarget, BudgetUsed, Settled, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES

FIRST = 3  # steps of a new task's first stint
GROWTH = 0.5  # of its age: the length of a task's next stint
TURN = 4  # tasks that take steps side by side when exploring
POOL = 100  # tasks that the model learns from
RECENT = 30  # new tasks since its last stint after which a task is left behind: states take room
REFIT = 1.2  # growth of the number of tasks after which the model's settings are learnt again
REACH = (0.35, 0.2, 0.1)  # distances from the ends of descents at which the next ones start


@dataclass(slots=True, eq=False)
class RaceTask:
    """A leader's follower, what came of each of its steps for the leader, and its prospects."""

    follower: SolverSearch
    F: list[float] = field(default_factory=list)
    violation: list[float] = field(default_factory=list)
    last: int = 0  # number of tasks in the run at its last stint
    outlook: float = -math.inf  # the score that it is expected to end with; unknown ones are kept

    @property
    def pair(self) -> Pair:
        return self.follower.answer

    @property
    def age(self) -> int:
        return self.follower.executions

    def take(self, state: DRCRaceState, steps: int) -> Procedure[None]:
        """So many steps, or fewer to the end; the leader looks at each new answer."""
        while steps and not self.follower.finished:
            if (yield from self.follower.execute()):
                yield from evaluate_answer(state, self.pair)
            self.F.append(self.pair.F)
            self.violation.append(self.pair.violation)
            steps -= 1

    def stint(self, state: DRCRaceState) -> Procedure[None]:
        """Longer ones with age; a new task shows itself."""
        self.last = state.tasks
        return self.take(state, max(2, math.ceil(GROWTH * self.age)) if self.age else FIRST)


@dataclass(slots=True, eq=False)
class DRCRaceState(leader.LeaderState):
    """A run at the boundary of a generation."""

    pool: list[RaceTask] = field(default_factory=list)
    settings: FloatArray = field(default_factory=lambda: np.zeros(0))  # of the model
    learnt: int = 0  # tasks when they were learnt
    explored: int = 0  # new leaders since the last descent
    idle: int = 0  # those of them since the last gain
    longest: int = 1  # age of the oldest task so far
    finished: int = 0
    finished_steps: int = 0  # of all finished tasks
    descent: Descent | None = None
    ends: list[FloatArray] = field(default_factory=list)  # where descents have ended
    fruitless: int = 0

    @property
    def usual(self) -> float:
        """How many steps a task takes to its end, as far as is known."""
        return self.finished_steps / self.finished if self.finished else 2.0 * self.longest


@dataclass(frozen=True, slots=True)
class DRCRace(Algorithm[DRCRaceState]):
    """Competition for a follower's steps by a model of learning curves, with descents."""

    descents: CMAES = field(default_factory=CMAES)

    revision = 1
    State = DRCRaceState
    followers = Followers.SOLVER

    @property
    def name(self) -> str:
        return variant_name(self, "drc-race")

    def init(self, spec: Spec) -> Procedure[DRCRaceState]:
        yield from ()
        return DRCRaceState(None, settings=first_settings(spec.m))

    def generation(self, spec: Spec, state: DRCRaceState) -> Procedure[DRCRaceState]:
        if state.generation == 0:
            tasks = yield from self.begin(spec, state)
        elif state.descent is not None and (state.descent.gains or state.descent.steps <= 0):
            tasks = yield from self.descend(spec, state, state.descent)
        else:
            tasks = yield from self.explore(spec, state)
        self.close(spec, state, tasks)
        return state

    def begin(self, spec: Spec, state: DRCRaceState) -> Procedure[list[RaceTask]]:
        """Leaders all over the box; x0 among them has its follower solved."""
        count, rng = 8 + spec.m, stream(spec.seed, "first")
        x = (rng.random((count, spec.m)).argsort(axis=0) + rng.random((count, spec.m))) / count
        if spec.x0 is not None:
            x[0] = spec.x0
        tasks = new_tasks(spec, state, x)
        yield from together(task.stint(state) for task in tasks)
        if spec.x0 is not None:
            yield from tasks[0].take(state, tasks[0].follower.longest)
        state.pool += tasks
        yield from elect(spec, state, tasks)
        return tasks

    def explore(self, spec: Spec, state: DRCRaceState) -> Procedure[list[RaceTask]]:
        """Tasks under way and new leaders take a stint each, as a model of all curves advises."""
        rng = stream(spec.seed, "explore", state.generation)
        model = learn(state)
        going_on = promising(state, model, TURN // 2)
        count = TURN - len(going_on)
        fresh = new_tasks(spec, state, hopeful(state, model, count, rng))
        before, tasks = steps_of(going_on), going_on + fresh
        yield from together(task.stint(state) for task in tasks)
        state.pool = kept(state.pool, model.lengths) + fresh
        gained = yield from elect(spec, state, tasks)
        state.explored, state.idle = state.explored + count, 0 if gained else state.idle + count
        if state.descent is not None:
            state.descent.steps -= steps_of(tasks) - before
            state.descent = None if gained else state.descent  # the next one starts there
        elif state.elite is not None and (
            state.idle >= patience(spec) or state.explored >= 4 * patience(spec)
        ):
            state.descent = self.start(spec, state, state.elite, rng)
        return tasks

    def start(
        self, spec: Spec, state: DRCRaceState, answer: Pair, rng: np.random.Generator
    ) -> Descent:
        """A descent from the answer, or, where one has ended there, from elsewhere."""
        order = leader_ranking([task.pair for task in state.pool])
        places = np.array([state.pool[i].pair.x for i in order])
        good = places[: len(places) // 2]
        if not near(answer.x, state.ends, SAME):
            return descent_from(answer.x, answer, good, spec, self.descents)
        reach = REACH[state.fruitless] * math.sqrt(spec.m)
        far = [x for x in places if not near(x, state.ends, reach)]
        x = far[0] if far else rng.random(spec.m)
        return descent_from(x, None, good, spec, self.descents)

    def descend(
        self, spec: Spec, state: DRCRaceState, descent: Descent
    ) -> Procedure[list[RaceTask]]:
        """A generation of CMA-ES, of which the better half is solved to the end."""
        x = self.descents.ask(descent.search, stream(spec.seed, "descend", state.generation))
        tasks = new_tasks(spec, state, x)
        yield from together(task.stint(state) for task in tasks)
        better = [tasks[i] for i in leader_ranking([t.pair for t in tasks])[: len(tasks) // 2]]
        yield from together(task.take(state, task.follower.longest) for task in better)
        before = state.elite
        gained = yield from elect(spec, state, tasks)
        assert state.elite is not None
        pairs = [task.pair for task in tasks]
        F, violation = np.array([p.F for p in pairs]), np.array([p.violation for p in pairs])
        self.descents.tell(descent.search, x, F, violation)
        best = pairs[int(leader_ranking(pairs)[0])]
        descent.note(best, state.elite is not before, gained, steps_of(tasks))
        if descent.barren >= 4 + spec.m:
            descent.zoom(self.descents)
        if descent.over(state.elite, state.ends, float(np.median(F))):
            end_descent(state, descent, tasks)
        return tasks

    def close(self, spec: Spec, state: DRCRaceState, tasks: list[RaceTask]) -> None:
        """Note how the tasks fared, and test the stop rules."""
        pairs = [task.pair for task in tasks]
        state.F_scale.see(np.array([pair.F for pair in pairs]))
        state.executions = np.array([task.age for task in tasks])
        state.survived = np.zeros(len(tasks), np.bool_)
        state.survived[leader_ranking(pairs)[: len(tasks) // 2]] = True
        state.generation += 1
        rules = AtTarget(spec.target), Settled(), BudgetUsed(upper=spec.budget.upper_max)
        state.stop = first_met(rules, state.progress(settled=state.fruitless >= len(REACH)))


def end_descent(state: DRCRaceState, descent: Descent, tasks: list[RaceTask]) -> None:
    """Note where a descent has ended, and that exploring begins again."""
    assert descent.best is not None
    state.ends.append(descent.best.x)
    state.fruitless = 0 if descent.fruitful else state.fruitless + 1
    state.descent, state.explored, state.idle = None, 0, 0
    state.pool += [task for task in tasks if task.pair.task == descent.best.task]


def new_tasks(spec: Spec, state: DRCRaceState, x: FloatArray) -> list[RaceTask]:
    return [RaceTask(follower) for follower in own_followers(spec, state, x)]


def steps_of(tasks: list[RaceTask]) -> int:
    return sum(task.age for task in tasks)


def patience(spec: Spec) -> int:
    """New leaders without a gain after which exploring makes way for a descent."""
    return 10 + 5 * spec.m


def elect(spec: Spec, state: DRCRaceState, tasks: list[RaceTask]) -> Procedure[bool]:
    """Take the best of the finished tasks as the answer if it is better; True if by much."""
    state.longest = max(state.longest, *(task.age for task in tasks))
    finished = [task.pair for task in tasks if task.follower.finished]
    state.finished += len(finished)
    state.finished_steps += steps_of([task for task in tasks if task.follower.finished])
    if not finished:
        return False
    best = finished[int(leader_ranking(finished)[0])]
    last = state.elite
    if last is not None and last.no_worse(best):
        return False
    state.elite = best
    yield best.incumbent
    slight = state.F_scale.tolerance(spec.ftol)
    return last is None or best.violation < last.violation or slight < last.F - best.F


def kept(pool: list[RaceTask], lengths: FloatArray) -> list[RaceTask]:
    """The tasks to learn from: of the worse half those go that are nearest to another one.

    What is bad and where is worth remembering: it would be tried again.
    """
    if len(pool) <= POOL:
        return pool
    x = np.array([task.pair.x for task in pool]) / lengths
    apart = np.linalg.norm(x[:, None] - x[None], axis=2) + np.diag(np.full(len(x), np.inf))
    staying = list(range(len(pool)))
    worse = sorted(staying, key=lambda i: pool[i].outlook)[len(pool) // 2 :]
    while len(staying) > POOL:
        goes = min(worse, key=lambda i: apart[i].min())
        worse.remove(goes)
        staying.remove(goes)
        apart[goes] = apart[:, goes] = np.inf
    return [pool[i] for i in staying]


def learn(state: DRCRaceState) -> CurveModel:
    """A model of the pool's curves: tasks after their first stints, now, and at their ends."""
    x, t, number, F, violation = [], [], [], [], []
    for task in state.pool:
        marks = [(age, age / state.longest) for age in sorted({min(FIRST, task.age), task.age})]
        if task.follower.finished and task.age < state.longest:
            marks.append((task.age, 1.0))  # it stays as it is
        for age, share in marks:
            x.append(task.pair.x)
            t.append(share)
            number.append(task.follower.task)
            F.append(task.F[age - 1])
            violation.append(task.violation[age - 1])
    z = scores(np.array(F), np.array(violation))
    rows = Rows(np.array(x), np.array(t), np.array(number), z)
    if state.tasks >= REFIT * state.learnt:
        state.settings, state.learnt = learn_settings(rows, state.settings, 10), state.tasks
    return CurveModel(rows, state.settings)


def promising(state: DRCRaceState, model: CurveModel, count: int) -> list[RaceTask]:
    """The tasks under way that go on: the best, and those expected to gain most at their cost."""
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
        if not task.follower.finished and state.tasks - task.last <= RECENT
    ]
    to_go = {i: max(state.usual - state.pool[i].age, FIRST) for i in live}
    live.sort(key=lambda i: (state.pool[i] is not best, -gain[i] / to_go[i]))
    return [state.pool[i] for i in live[:count]]


def hopeful(
    state: DRCRaceState, model: CurveModel, count: int, rng: np.random.Generator
) -> FloatArray:
    """New leaders (count, m) where the model expects most; each lowers hopes around it."""
    m = model.rows.x.shape[1]
    top = sorted(state.pool, key=lambda task: task.outlook)[:6]
    points = [rng.random((200, m))]
    for task in top:
        widths = rng.choice([0.03, 0.1, 0.2], (20, 1))
        points.append(np.clip(task.pair.x + widths * rng.standard_normal((20, m)), 0, 1))
    x = np.concatenate(points)
    mean, deviation = model.at_end(x, np.full(len(x), NEW))
    gain = expected_improvement(mean, deviation, float(model.rows.z.min()))
    gain[[near(point, state.ends, 3 * CLOSE) for point in x]] = 0.0
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(int(gain.argmax()))
        away = (((x - x[chosen[-1]]) / (0.3 * model.lengths)) ** 2).sum(axis=1)
        gain *= 1 - np.exp(-0.5 * away)
    return x[chosen]
