"""DRC: dynamic resource competition among followers' searches. DRC-CMA-ES is its CMA-ES instance.

D. Xu, K. Ye, Z. Zheng, T. Zhou, G. G. Yen and M. Jiang, "An Efficient Dynamic Resource Allocation
Framework for Evolutionary Bilevel Optimization" (DRC-BLEA), 2024, cited below by its algorithm and
equation numbers. Its algorithms are here:

    Algorithm 1  DRC.generation             the framework, one pass of its loop
    Algorithm 2  DRC.compete                dynamic resource competition
    Algorithm 3  selection_probability      Eqs. (2)-(8)
    Algorithm 4  DRC.cooperate              cooperation in competition, Eqs. (9)-(10)

The paper leaves some details open. The following choices reproduce its tables:
- Population sizes are 4 + floor(3 ln d). The paper prints no factor 3, but its figures need it.
- The competition stops at once when half of the tasks have finished, not at the end of a round.
- The elite (the best pair so far) and refinement (solving a best pair's follower again) are as in
  BL-CMA-ES; see `shared.leader`. The upper update uses all p pairs of a generation.
- The weights of Eq. (10) do not add up to 1, but to the number S of sources, which are the tasks
  that a task learns from. `mixing="paper"` takes the weights as printed. Then covariances grow and
  means move, so tasks settle sooner. `mixing="convex"` divides the weights by S, as is usual for a
  mixture, and costs more evaluations. The printed mixture depends on where the origin lies; here
  the origin is the lower corner of the unit box.
- If a task and all of its sources have the same leader, all distances are 0. Then the distance
  term of Eq. (9) is the same for all sources.
- Only a feasible pair can meet the target of a run.

Cooperation mixes sampling features, which are the mean and the covariance of a CMA-ES. The paper
does not say what they are for other optimizers. `optimizers.population` says what they are here if
the optimizer keeps a population. The competition is the same for all optimizers.

`parallel="rounds"` is our own variant for slow objectives on many workers. The paper executes one
task at a time, so that a request holds the few points of one lower generation. The variant keeps
the rules of Algorithms 2-4 but changes their order:
- Half of the tasks are drawn at once, without repetition, and executed side by side. After two such
  draws (a round of p executions), F is evaluated at their new answers in one batch, and the tasks
  are rated. Draws do not see the ratings of their own round. The competition still stops at the
  execution that ends it.
- Refinement runs beside the next generation's competition (see `JointSearch.conclude_later`).
  The refined pair joins that generation's upper update, even if it is the elite. A candidate that
  waits for its refinement is left out of the update, because on SMD4 the leader follows the errors
  of unrefined candidates.
`python benchmarks/rounds.py --runs 31` compared the variant with the default, `parallel="points"`,
at (2,3) on SMD1-6, 9 and 12. The following figures are medians. A request holds 23 to 24 points
instead of 6.7 (3.5 to 3.6 times as many). A run takes 0.97 to 1.02 times the evaluations of the
default, and 0.87 to 0.95 times its upper evaluations. All runs of the variant met the target. With
the default, 25 of 31 runs met it on SMD12, and all runs on the other problems. Verified errors are
of the same size.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from bilevo import optimizers
from bilevo.algorithms.shared.follower_search import (
    AnyFollowerSearch,
    FollowerSearch,
    Pair,
    SolverSearch,
)
from bilevo.algorithms.shared.joint_search import JointSearch
from bilevo.algorithms.shared.leader import LeaderState, evaluate_answer
from bilevo.core.arrays import TINY, FloatArray, fractional_distances
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.streams import stream
from bilevo.kernels import kernel
from bilevo.optimizers.protocol import AnyOptimizer

MATURE = 3  # How many executions a task needs before it takes part in cooperation.
Neighbours = list[tuple["Task", float]]  # other tasks and their distances (only ratios matter)
MAX_FITNESS = 1e300  # The largest size of a fitness, so that sums of fitness stay finite.


@kernel("f8(f8[:,::1])")
def fluctuation(means: FloatArray) -> float:
    """Return std(.) of Eq. (9): the norm of the standard deviations of three means (3, d).

    The means move up by one row, which makes room for the next mean.
    """
    u, v = means[1] - means[0], means[2] - means[1]
    means[0], means[1] = means[1], means[2]
    # The variance is a sixth of the sum of the squared distances between the three means.
    return math.sqrt((u.dot(u) + u.dot(v) + v.dot(v)) / 3)


@dataclass(slots=True, eq=False)
class Task:
    """A follower's search in the competition, with the discounted sums of its archive.

    In Algorithm 2 a task has an archive, with an entry for its pair after each execution. Only the
    discounted means of Eqs. (3) and (6) use the archive, so their sums are kept instead. The rating
    of an infeasible or failed entry depends on the worst entries of all tasks, which change. So
    these entries are only counted, and rated when a mean is needed.
    """

    index: int
    follower: AnyFollowerSearch
    optimizer: AnyOptimizer  # of the follower search; unused if a solver searches
    means: FloatArray  # (3, n): the search's mean after its last two executions, and a free row
    gamma: float  # the discount: an entry counts gamma times as much as the next one
    fitness: float = 0.0  # of the last entry: -F if feasible, otherwise -violation
    violation: float = 0.0  # of the last entry
    entries: float = 0.0  # discounted number of archive entries
    infeasible: float = 0.0  # discounted number of infeasible or failed entries
    failed: float = 0.0  # discounted number of failed entries
    fitness_sum: float = 0.0  # discounted sum over the entries that did not fail
    worst_feasible: float = math.inf  # lowest fitness among the feasible entries
    worst_violation: float = 0.0  # largest violation among the infeasible entries
    potentials: float = 0.0  # discounted number of values of PT, Eq. (5)
    potential_sum: float = 0.0  # discounted sum of these values
    fluctuation: float = math.inf  # std(.) of Eq. (9); inf before the third execution

    @property
    def pair(self) -> Pair:
        return self.follower.answer

    @property
    def search(self) -> Any:
        """Return the state of the optimizer."""
        assert isinstance(self.follower, FollowerSearch)
        return self.follower.search

    def execute(self, state: LeaderState, guide: FloatArray | None = None) -> Procedure[None]:
        """Execute the search once, evaluate F at a new answer, and archive the pair."""
        improved = yield from self.execute_search(guide)
        yield from self.rate(state, improved)

    def execute_search(self, guide: FloatArray | None = None) -> Procedure[bool]:
        """Execute the search once; return True if there is a new answer."""
        improved = yield from self.follower.execute(guide)
        if isinstance(self.follower, SolverSearch):  # it has no distribution that helps other tasks
            return improved
        self.means[2] = self.optimizer.mean(self.search)
        fluctuates = fluctuation(self.means)
        if self.follower.executions >= MATURE:
            self.fluctuation = fluctuates
        return improved

    def rate(self, state: LeaderState, improved: bool) -> Procedure[None]:
        """Archive the pair; if its answer is new (`improved`), evaluate F there first."""
        if improved:
            yield from evaluate_answer(state, self.pair)
        self.archive()

    def archive(self) -> None:
        """Store the pair in the discounted sums."""
        pair, gamma = self.pair, self.gamma
        self.violation = violation = pair.violation
        self.fitness = fitness = bounded(-violation if violation > 0 else -pair.F)
        self.entries = gamma * self.entries + 1
        self.infeasible = gamma * self.infeasible + (violation > 0)
        self.failed *= gamma
        self.fitness_sum *= gamma
        if violation == math.inf:
            self.failed += 1
            return
        self.fitness_sum += fitness
        if violation > self.worst_violation:
            self.worst_violation = violation
        elif violation == 0 and fitness < self.worst_feasible:
            self.worst_feasible = fitness

    def add_potential(self, potential: float) -> None:
        self.potentials = self.gamma * self.potentials + 1
        self.potential_sum = self.gamma * self.potential_sum + potential


@dataclass(frozen=True, slots=True)
class DRC(JointSearch):
    """Dynamic resource competition with any population-based optimizer at either level.

    `cooperation`, `selection` and `stop` switch off one ingredient each, for ablations.
    `parallel="rounds"` asks for more points at once, in another order than in the paper.
    """

    gamma: float = 0.5  # discount of older entries, Eqs. (3) and (6)
    epsilon: float = 1.1  # base of the exponential in Eq. (7)
    w_base: float = 0.1  # this weight and the next two are those of Eq. (8)
    w_performance: float = 0.7
    w_potential: float = 0.2
    alpha: float = 0.5  # weight of fluctuation in Eq. (9); distance has the rest
    mixing: Literal["paper", "convex"] = "paper"
    cooperation: bool = True
    selection: Literal["competitive", "uniform"] = "competitive"
    stop: Literal["half", "all"] = "half"
    parallel: Literal["points", "rounds"] = "points"

    revision = 1

    def __post_init__(self) -> None:
        JointSearch.__post_init__(self)
        for name, allowed in (
            ("mixing", ("paper", "convex")),
            ("cooperation", (True, False)),
            ("selection", ("competitive", "uniform")),
            ("stop", ("half", "all")),
            ("parallel", ("points", "rounds")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("gamma", "w_base", "w_performance", "w_potential", "alpha"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)!r}")
        total = self.w_base + self.w_performance + self.w_potential
        if abs(total - 1) > 1e-9:
            raise ValueError(f"w_base + w_performance + w_potential must be 1, got {total}")
        if not 1 < self.epsilon < math.inf:
            raise ValueError(f"epsilon must be greater than 1, got {self.epsilon!r}")

    @property
    def name(self) -> str:
        """Return the name of the registered method with these settings, or "drc" if none has."""
        for name in optimizers.NAMES:
            if self == DRC(optimizers.make(name), optimizers.make(name)):
                return f"drc-{name}"
        return "drc"

    def generation(self, spec: Spec, state: LeaderState) -> Procedure[LeaderState]:
        """Make one pass of Algorithm 1: new leaders, competition, upper update."""
        method = self.on_grid(spec)
        followers = method.new_followers(spec, state)
        tasks = [
            Task(i, follower, method.lower, np.zeros((3, spec.n)), self.gamma)
            for i, follower in enumerate(followers)
        ]
        competition = self.compete(state, tasks, stream(spec.seed, "roulette", state.generation))
        if self.parallel == "rounds":
            return (yield from method.conclude_later(spec, state, followers, competition))
        yield from competition
        return (yield from method.conclude(spec, state, followers))

    def compete(
        self, state: LeaderState, tasks: list[Task], rng: np.random.Generator
    ) -> Procedure[None]:
        """Draw and execute tasks until half of them have finished (Algorithm 2)."""
        yield from together(task.execute(state) for task in tasks)
        near = neighbours(tasks)
        run_round = self.side_by_side if self.parallel == "rounds" else self.one_by_one
        while not self.decided(tasks):
            yield from run_round(state, tasks, near, rng)

    def decided(self, tasks: list[Task]) -> bool:
        """Tell whether enough tasks have finished to end the competition."""
        wanted = len(tasks) // 2 if self.stop == "half" else len(tasks)
        return len(tasks) - len(unfinished(tasks)) >= wanted

    def one_by_one(
        self,
        state: LeaderState,
        tasks: list[Task],
        near: list[Neighbours],
        rng: np.random.Generator,
    ) -> Procedure[None]:
        """Run a round of p executions, each of which uses the result of the last."""
        live = unfinished(tasks)
        wheel = self.wheel(tasks, live)
        fitness, violation = last_entries(tasks)
        for draw in rng.random(len(tasks)).tolist():
            task = live[roulette(wheel, draw)]
            i = task.index
            yield from task.execute(state, self.cooperate(task, near[i]))
            task.add_potential(evolving_potential(task, fitness, violation))
            fitness[i], violation[i] = task.fitness, task.violation
            if task.follower.finished:  # it withdraws from the competition
                if self.decided(tasks):
                    return
                live.remove(task)
                wheel = self.wheel(tasks, live)

    def side_by_side(
        self,
        state: LeaderState,
        tasks: list[Task],
        near: list[Neighbours],
        rng: np.random.Generator,
    ) -> Procedure[None]:
        """Run a round of p executions in two halves of distinct tasks; rate answers at its end.

        This makes two lower batches and one upper batch. An answer that the second half replaces is
        not rated.
        """
        before, answers = last_entries(tasks), [task.pair for task in tasks]
        drawn: dict[int, Task] = {}
        for _ in range(2):
            half = self.draw(tasks, (len(tasks) + 1) // 2, rng)
            yield from together(
                task.execute_search(self.cooperate(task, near[task.index])) for task in half
            )
            drawn |= {task.index: task for task in half}
            if self.decided(tasks):
                break
        yield from together(
            task.rate(state, task.pair is not answers[i]) for i, task in drawn.items()
        )
        for task in drawn.values():
            task.add_potential(evolving_potential(task, *before))

    def draw(self, tasks: list[Task], count: int, rng: np.random.Generator) -> list[Task]:
        """Draw up to `count` distinct unfinished tasks, one after another, by Algorithm 3."""
        left = unfinished(tasks)
        count = min(count, len(left))
        draws = rng.random(count).tolist()
        return [left.pop(roulette(self.wheel(tasks, left), draw)) for draw in draws]

    def wheel(self, tasks: list[Task], live: list[Task]) -> list[float]:
        """Return the cumulative probabilities with which the live (unfinished) tasks are drawn."""
        if self.selection == "uniform":
            return [(k + 1) / len(live) for k in range(len(live))]
        return list(accumulate(selection_probability(tasks, live, self)))

    def cooperate(self, target: Task, near: Neighbours) -> FloatArray | None:
        """Mix the features of near, more settled tasks into those of the target (Algorithm 4).

        Returns the navigational solution, which is the answer of the source with the highest
        intensity, Eq. (9), or None if there is no source.
        """
        own = target.fluctuation
        if not self.cooperation or own == math.inf:
            return None
        sources = [(task, distance) for task, distance in near if task.fluctuation < own]
        if not sources:
            return None
        Z = own + sum([task.fluctuation for task, _ in sources])
        total = sum([distance for _, distance in sources])
        intensity = [  # Eq. (9)
            1
            - self.alpha * task.fluctuation / Z
            - (1 - self.alpha) * (distance / total if total > 0 else 1 / len(sources))
            for task, distance in sources
        ]
        own_weight = 1 - self.alpha * own / Z
        divisor = 1 if self.mixing == "paper" else own_weight + sum(intensity)
        target.optimizer.mix(  # Eq. (10)
            target.search,
            own_weight / divisor,
            [task.search for task, _ in sources],
            [weight / divisor for weight in intensity],
        )
        return sources[intensity.index(max(intensity))][0].pair.y


def neighbours(tasks: list[Task]) -> list[Neighbours]:
    """Return, for each task, the nearer half of the other tasks, nearest first."""
    distances = fractional_distances(np.array([task.follower.x for task in tasks]))[0]
    np.fill_diagonal(distances, np.inf)
    nearer = distances.argsort(axis=1, kind="stable")[:, : len(tasks) // 2].tolist()
    rows = distances.tolist()
    return [[(tasks[k], row[k]) for k in own] for row, own in zip(rows, nearer, strict=True)]


def unfinished(tasks: list[Task]) -> list[Task]:
    return [task for task in tasks if not task.follower.finished]


def selection_probability(tasks: list[Task], live: list[Task], drc: DRC) -> list[float]:
    """Return the probability with which each live task is drawn (Algorithm 3).

    It is a weighted sum of three parts: an equal base, the task's performance and its potential.
    """
    K = len(live)
    CF = competing_fitness(tasks, live)
    lowest = min(CF)
    advantage = [value - lowest for value in CF]
    performance = shares(advantage) if max(advantage) > 0 else [1 / K] * K  # Eq. (4)
    CP = [task.potential_sum / task.potentials if task.potentials else 0.0 for task in live]  # (6)
    highest = max(CP)
    potential = shares([drc.epsilon ** max(value - highest, -1e3) for value in CP])  # Eq. (7)
    base = drc.w_base / K  # Eq. (2)
    return [  # Eq. (8)
        base + drc.w_performance * by_performance + drc.w_potential * by_potential
        for by_performance, by_potential in zip(performance, potential, strict=True)
    ]


def shares(values: list[float]) -> list[float]:
    total = sum(values)
    return [value / total for value in values]


def competing_fitness(tasks: list[Task], live: list[Task]) -> list[float]:
    """Return CF of Eq. (3) for live tasks; the entries of all tasks are rated as one set.

    `rated` gives the rule.
    """
    floor = min([task.worst_feasible for task in tasks])
    floor = floor if floor < math.inf else 0.0
    worst = max([task.worst_violation for task in tasks])
    return [
        bounded((task.fitness_sum + task.infeasible * floor - task.failed * worst) / task.entries)
        for task in live
    ]


def last_entries(tasks: list[Task]) -> tuple[list[float], list[float]]:
    """Return fitness and violation of the tasks' last archive entries."""
    return [task.fitness for task in tasks], [task.violation for task in tasks]


def rated(fitness: list[float], violation: list[float]) -> list[float]:
    """Return the fitness, to be maximized, of a set of archive entries (see `Task`).

    An infeasible entry is below the worst feasible entry by its violation. A failed entry is as
    low as the worst infeasible entry.
    """
    both = list(zip(fitness, violation, strict=True))
    floor = min((own for own, violated in both if violated == 0), default=0.0)
    worst = max((violated for violated in violation if violated < math.inf), default=0.0)
    return [
        own if violated == 0 else bounded(floor - min(violated, worst)) for own, violated in both
    ]


def bounded(fitness: float) -> float:
    if -MAX_FITNESS <= fitness <= MAX_FITNESS:
        return fitness
    return math.copysign(MAX_FITNESS, fitness)


def evolving_potential(task: Task, fitness: list[float], violation: list[float]) -> float:
    """Return PT of Eq. (5): the relative change of fitness, with reward and penalty.

    `fitness` and `violation` belong to the last entries of all tasks before the execution.
    """
    a = task.fitness
    if task.violation or any(violation):
        *fitness, a = rated([*fitness, a], [*violation, task.violation])
    b, best, worst = fitness[task.index], max(fitness), min(fitness)
    change = (a - b) / (abs(b) + TINY)
    if a > best:
        change += (a - best) / (abs(best) + TINY)
    if a < worst:
        change += (a - worst) / (abs(worst) + TINY)
    return min(max(change, -1e6), 1e6)


def roulette(wheel: list[float], draw: float) -> int:
    """Return the index in the cumulative probabilities `wheel` at which a draw in [0, 1) falls."""
    return min(bisect_right(wheel, draw * wheel[-1]), len(wheel) - 1)
