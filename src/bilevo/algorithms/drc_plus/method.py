"""DRC-plus: followers that learn from each other, a leader that descends, answers with a proof.

Ours; docs/drc-plus.md tells what each ingredient is worth. DRC (see drc) lets searches of followers
compete for evaluations. Here a follower's search is mostly one gradient and one step, because it
starts from what other followers have taught (see warm_follower). The rest follows from that:

- **Competition** (`compete`). A generation's followers start at their predicted answers. Those
  whose leaders are in the better half go on, a few iterations a bout; the others get no more.
  Where the best ones hardly moved, the predictions of all are believed. The tolerance of f is tied
  to the differences of F that the leader sees.
- **Descent** (`descend`; see phi). The leader has local searches, too.
- **Global search.** Descents from hops around the best pair (`hop`) and CMA-ES over x with
  restarts (`sample`) take turns: CMA-ES gets a quarter of the evaluations. Where CMA-ES has
  narrowed, a descent saves the rest of it; where a descent ends at a kink, a small CMA-ES does
  (`polish`).
- **Certificate** (`certify`). A best pair that ends a descent, or is about to end the run, has its
  follower solved again by independent global searches. A better answer replaces it, and the run
  goes on.

Where local searches of followers do not settle (kinks, noise), nothing of this holds, and the run
is handed to DRC with followers that give up sooner (see hasty_drc).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilevo.algorithms.drc_plus.fallback import HastyDRC
from bilevo.algorithms.drc_plus.leader_view import FLAT, Knowledge, descent, settled
from bilevo.algorithms.drc_plus.warm_follower import Experience, WarmFollower, WarmTask
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import LeaderState as JointState
from bilevo.algorithms.shared.leader import leader_ranking, reached
from bilevo.core.algorithm import Algorithm, variant_name
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, Values, together
from bilevo.core.stop_rules import AtTarget, BudgetUsed, Progress, Settled, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start

BELIEVED = 0.1  # of the spread of F: a change by which the best pair stays the best
BOUT = 3  # iterations of a follower before its leader is looked at again
BOUTS = 3  # of a follower in a generation
SHARE = 3  # evaluations of descents for each one of CMA-ES
REFUTATIONS = 3  # of the ends of a descent before others have their turn
FRUITLESS = 2  # restarts that end a run; four times as many where it is to reach a target
BLUR = 1e-2  # of f: a difference that tells answers apart where followers are not smooth


@dataclass(slots=True, eq=False)
class Search:
    """A search by CMA-ES over x."""

    leader: Any  # its state
    population: int
    best: Pair | None = None
    stale: int = 0  # generations without progress
    descended: float = math.inf  # width at which its best pair was last the start of a descent

    @classmethod
    def start(cls, start: Start, population: int) -> Search:
        return cls(CMAES().start(start), population)

    @property
    def spread(self) -> FloatArray:
        """Standard deviations (m,)."""
        return np.asarray(self.leader.sigma * np.sqrt(self.leader.C.diagonal()))

    @property
    def width(self) -> float:
        return float(self.spread.max())

    @property
    def ended(self) -> bool:
        patience = 10 + math.ceil(30 * self.leader.d / self.population)
        return self.stale > patience or self.width < 1e-9 or not self.leader.sigma < 1e3

    def tell(self, x: FloatArray, pairs: list[Pair], tolerance: float) -> None:
        """Learn from a generation; progress is more than a tolerance of F."""
        F, violation = np.array([p.F for p in pairs]), np.array([p.violation for p in pairs])
        CMAES(self.population).tell(self.leader, x, F, violation)
        best = pairs[int(leader_ranking(pairs)[0])]
        self.stale += 1
        if self.best is None or improved(self.best, best, tolerance):
            self.stale = 0
        if self.best is None or best.no_worse(self.best):
            self.best = best


@dataclass(slots=True, eq=False)
class DRCPlusState(Knowledge):
    """A run at the boundary of an upper generation."""

    search: Search = field(kw_only=True)  # over the whole box
    proven: Pair | None = None  # the last elite that had its certificate
    ends: FloatArray = field(kw_only=True)  # of descents, (k, m)
    descending: int = 0  # evaluations of descents
    sampling: int = 0  # evaluations of the search
    milestone: Pair | None = None  # the elite at the last restart that had a better one
    fruitless: int = 0  # restarts since
    rough: JointState | None = None  # of DRC, where followers are not smooth
    stop: StopReason | None = None
    executions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    survived: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    def progress(self, settled: bool = False) -> Progress:
        """Return how far the run has come; the elite is the best pair."""
        F, violation = self.the_elite.F, self.the_elite.violation
        lower = self.total - self.spent
        return Progress(F, violation, self.spent, lower, self.generation, settled=settled)

    def descended(self, before: int) -> None:
        """A generation was a descent, which counts as one task, from so many evaluations on."""
        self.descending += self.total - before
        self.executions, self.survived = np.array([self.total - before]), np.ones(1, np.bool_)

    def remember(self, x: FloatArray) -> None:
        """Where a descent ended, if none did before."""
        if (np.abs(self.ends - x).max(axis=1) > 1e-3).all():
            self.ends = np.concatenate([self.ends, x[None]])[-100:]


@dataclass(frozen=True, slots=True)
class DRCPlus(Algorithm[DRCPlusState]):
    """The method. Switches leave out one ingredient each, for ablations."""

    regression: bool = True  # these four: see WarmFollower
    curvature: bool = True
    probes: bool = True
    rivals: bool = True
    competition: bool = True
    descents: bool = True
    hops: bool = True
    optimism: bool = True
    certificate: bool = True
    fallback: bool = True

    revision = 1
    State = DRCPlusState

    @property
    def follower(self) -> WarmFollower:
        return WarmFollower(self.regression, self.curvature, self.probes, self.rivals)

    @property
    def name(self) -> str:
        return variant_name(self, "drc-plus")

    def init(self, spec: Spec) -> Procedure[DRCPlusState]:
        yield from ()
        start = Start.uniform(spec.spread[: spec.m], stream(spec.seed, "start"))
        if spec.x0 is not None:
            start.mean[:] = spec.x0
        return DRCPlusState(
            Experience.none(spec.m, spec.n),
            search=Search.start(start, CMAES().population_size(spec.m)),
            ends=np.empty((0, spec.m)),
        )

    def generation(self, spec: Spec, state: DRCPlusState) -> Procedure[DRCPlusState]:
        """The first pair, and then a hop or a generation of CMA-ES, by what they have had."""
        before = state.total
        if state.elite is None:
            yield from self.begin(spec, state)
            state.descended(before)
        elif state.rough is not None or (state.known.rough and self.fallback):
            yield from self.hand_over(spec, state)
        elif self.hops and self.descends(state) and state.descending <= SHARE * state.sampling:
            yield from self.hop(spec, state)
            state.descended(before)
        else:
            yield from self.sample(spec, state, state.search)
            yield from self.narrow(spec, state)
            state.sampling += state.total - before
        if state.rough is None:
            yield from self.judge(spec, state)
        state.generation += 1
        return state

    def descends(self, state: DRCPlusState) -> bool:
        return self.descents and not state.known.rough

    # The first pair, and the end

    def begin(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """The first pair, its follower solved from scratch; and a descent from there.

        Until then the middle of the follower's box answers, and what the first search found: a run
        that is stopped has a pair.
        """
        x, middle = state.search.leader.mean.copy(), np.full((1, spec.n), 0.5)
        stopgap = WarmTask.at(x, middle, (yield from state.known.evaluate(x, middle)))
        yield from self.present(state, stopgap)
        rng = state.stream(spec, "first")
        first = yield from self.follower.explore(spec, state.known, x, rng)
        yield from self.present(state, first)
        task = yield from self.follower.confirm(spec, state.known, rng, first)
        if task is not first:
            yield from state.rate([task])
        if self.optimism:
            yield from state.find_flat(task.pair)
            task = yield from state.favour(task)
        state.known.learn(task.pair)
        yield from state.crown(task.pair)
        if self.descends(state):
            yield from self.descend(spec, state, task.pair)

    def present(self, state: DRCPlusState, task: WarmTask) -> Procedure[None]:
        """Make a task's pair the elite."""
        yield from state.rate([task])
        yield from state.crown(task.pair)

    def judge(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Test the stop rules; nothing ends a run but a pair that has its certificate."""
        target, spent = AtTarget(spec.target), first_met([budget_of(spec)], state.progress())
        if spent or state.stop or target.met(state.progress()):
            yield from self.certify(spec, state)
        state.stop = first_met([target], state.progress()) or spent or state.stop

    def certify(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Have the best pair's follower solved again by searches that know nothing of it."""
        if state.certified or not self.certificate:
            return
        elite = state.the_elite
        told = np.array([elite.f]), np.array([elite.lower_violation])
        mine = WarmTask(elite, Values(*told, np.empty((1, 0)), 0))
        rng = state.stream(spec, "certify")
        best = yield from self.follower.confirm(spec, state.known, rng, mine)
        least, f = best.pair.f, elite.f
        smooth_blur = FLAT if len(state.flat) else 0.0
        blur = smooth_blur if state.rough is None else BLUR
        refuted = f - least > blur * (state.known.unit + abs(f))
        if refuted or best.pair.lower_violation < elite.lower_violation:
            yield from state.rate([best])
            best = yield from state.favour(best)
            state.known.forget()
            state.known.learn(best.pair)
            state.elite = best.pair
            if state.proven is not None and not best.pair.no_worse(state.proven):
                state.elite, least = state.proven, state.proven.f
        state.proven, state.certified = state.the_elite, True
        yield state.the_elite.incumbent._replace(gap=max(0.0, state.the_elite.f - least))

    def hand_over(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """A generation of DRC, for followers that are not smooth."""
        drc = HastyDRC()
        if state.rough is None:
            state.rough = yield from drc.init(spec)
        state.rough.elite = state.elite  # the same object also after a snapshot
        rough = yield from drc.generation(spec, state.rough)
        state.certified &= state.elite is rough.elite
        state.elite, state.spent, state.stop = rough.elite, rough.spent, rough.stop
        state.executions, state.survived = rough.executions, rough.survived
        if state.stop is not None:
            yield from self.certify(spec, state)
            rough.elite = state.elite
            if rough.stop is StopReason.TARGET and not reached(spec, state.the_elite):
                state.stop = rough.stop = None

    # The leader's local search

    def descend(
        self, spec: Spec, state: DRCPlusState, pair: Pair, ceiling: float = math.inf
    ) -> Procedure[bool]:
        """A local search from a pair; where it ends with a new elite, that is certified.

        True if there is nothing better around its end.
        """
        smooth, tolerance = False, state.F_scale.tolerance(spec.ftol)
        for _ in range(REFUTATIONS):
            before = state.the_elite
            answer = yield from descent(spec, state, self.follower, pair.x, ceiling)
            if math.isfinite(answer.objective):
                state.remember(answer.point)
            smooth = settled(state, answer)
            if not improved(before, state.the_elite, tolerance):
                break
            if not smooth and answer.hessian is not None:
                yield from self.polish(spec, state, answer.hessian, answer.left)
            found = state.the_elite
            yield from self.certify(spec, state)
            pair = state.the_elite
            if pair is found:
                break
        return smooth

    def polish(
        self, spec: Spec, state: DRCPlusState, bent: FloatArray, left: float
    ) -> Procedure[None]:
        """CMA-ES where a descent ended at a kink, in the shape of what that has learnt."""
        eigenvalues, vectors = np.linalg.eigh(bent)
        variances = 2 * left / np.maximum(eigenvalues, 1e-12 * eigenvalues[-1])
        covariance = (vectors * np.clip(variances, 1e-16, 1e-2)) @ vectors.T
        start = Start(state.the_elite.x, covariance, np.zeros(spec.m))
        search = Search.start(start, CMAES().population_size(spec.m))
        record = [state.the_elite.F]
        ends = AtTarget(spec.target), budget_of(spec)
        while not (search.ended or first_met(ends, state.progress())):
            yield from self.sample(spec, state, search)
            record.append(state.the_elite.F)
            if len(record) > 10 and record[-10] - record[-1] <= 0.05 * (record[0] - record[-1]):
                break

    def hop(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """A descent from a place some of whose coordinates differ from the elite's."""
        rng = state.stream(spec, "hop")
        chosen = rng.random(spec.m) < rng.random()
        chosen[rng.integers(spec.m)] = True
        step = rng.normal(0.0, spec.spread[: spec.m])
        if len(state.ends) > 2 and rng.random() < 0.5:  # optima often lie on a lattice
            a, b = rng.choice(len(state.ends), 2, replace=False)
            step = state.ends[a] - state.ends[b]
        elite = state.the_elite
        x = np.clip(elite.x + chosen * step, 0.0, 1.0)
        task = yield from self.follower.start(state.known, x, np.ones(spec.m))
        yield from state.rate([task])
        ceiling = elite.F if elite.violation == 0 else math.inf
        yield from self.descend(spec, state, task.pair, ceiling)

    # The leader's global search

    def sample(self, spec: Spec, state: DRCPlusState, search: Search) -> Procedure[None]:
        """A generation of CMA-ES."""
        rng = state.stream(spec, "leader")
        x = CMAES(search.population).ask(search.leader, rng)
        tasks = yield from self.compete(spec, state, x, search.spread)
        if search is state.search:  # others are too narrow to show how much F differs
            state.F_scale.see(np.array([task.pair.F for task in tasks]))
        yield from self.elect(spec, state, tasks)
        pairs = [task.pair for task in tasks]
        state.executions = np.array([task.executions for task in tasks])
        state.survived = np.zeros(len(tasks), np.bool_)
        state.survived[leader_ranking(pairs)[: len(tasks) // 2]] = True
        search.tell(x, pairs, 0.1 * state.F_scale.tolerance(spec.ftol))

    def narrow(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Where CMA-ES has narrowed a descent may save the rest of it; where it stalls it ends."""
        search = state.search
        assert search.best is not None
        ended = search.ended
        if ended or search.width < search.descended / 8:
            search.descended = search.width
            if self.descends(state) and not reached(spec, state.the_elite):
                ended |= yield from self.descend(spec, state, search.best)
        if ended:
            yield from self.certify(spec, state)
            self.restart(spec, state)

    def restart(self, spec: Spec, state: DRCPlusState) -> None:
        """CMA-ES from anywhere, with twice the population; or the end, where that is fruitless."""
        tolerance = state.F_scale.tolerance(spec.ftol)
        if state.milestone is None or improved(state.milestone, state.the_elite, tolerance):
            state.milestone, state.fruitless = state.the_elite, 0
        else:
            state.fruitless += 1
        most = FRUITLESS if spec.target is None else 4 * FRUITLESS
        state.stop = first_met([Settled()], state.progress(settled=state.fruitless >= most))
        rng = state.stream(spec, "restart")
        largest = 16 * CMAES().population_size(spec.m)
        population = min(2 * state.search.population, largest)
        state.search = Search.start(Start.uniform(spec.spread[: spec.m], rng), population)

    def compete(
        self, spec: Spec, state: DRCPlusState, x: FloatArray, scale: FloatArray
    ) -> Procedure[list[WarmTask]]:
        """Followers of leaders in the better half go on; without competition, all to the end."""
        tasks = yield from together(self.follower.start(state.known, row, scale) for row in x)
        yield from state.rate(tasks)
        if not self.competition:
            return (yield from self.bout(spec, state, tasks, list(range(len(tasks)))))
        for bout in range(BOUTS):
            order = leader_ranking([task.pair for task in tasks])
            going = [int(i) for i in order[: len(tasks) // 2] if not tasks[i].solved]
            if not going:
                break
            spread = spread_of([task.pair for task in tasks])
            if bout == 0:  # the best two tell for all
                going = going[:2]
            tasks = yield from self.bout(spec, state, tasks, going, state.tolerance(spread), BOUT)
            moved = max(tasks[i].moved for i in going)
            if bout == 0 and moved <= BELIEVED * spread < math.inf:
                break
        return tasks

    def bout(
        self,
        spec: Spec,
        state: DRCPlusState,
        tasks: list[WarmTask],
        going: list[int],
        tolerance: float | None = None,
        iterations: int | None = None,
    ) -> Procedure[list[WarmTask]]:
        """All tasks, some of which have gone on side by side; to their end unless limited."""
        tolerance = state.known.tight if tolerance is None else tolerance
        limit = () if iterations is None else (iterations,)
        new = yield from together(
            state.solve(
                spec,
                self.follower,
                tasks[i],
                tolerance,
                state.stream(spec, "bout"),
                *limit,
            )
            for i in going
        )
        return [new[going.index(i)] if i in going else task for i, task in enumerate(tasks)]

    def elect(self, spec: Spec, state: DRCPlusState, tasks: list[WarmTask]) -> Procedure[None]:
        """The best pair becomes the elite if it still is when its follower is solved.

        That has to stand up to what other followers answered.
        """
        i = int(leader_ranking([task.pair for task in tasks])[0])
        tight, rng = state.known.tight, state.stream(spec, "elect")
        if tasks[i].pair.no_worse(state.the_elite) and tasks[i].tolerance > tight:
            tasks[i] = yield from state.solve(
                spec, self.follower, tasks[i], tight, rng, thorough=True
            )
        if tasks[i].pair.no_worse(state.the_elite):
            tasks[i] = yield from state.challenged(self.follower, tasks[i])
        if tasks[i].pair.no_worse(state.the_elite):
            yield from state.crown(tasks[i].pair)


def budget_of(spec: Spec) -> BudgetUsed:
    """Return the budget: that of the upper level, or about what DRC needs with it."""
    upper = spec.budget.upper_max
    return BudgetUsed(upper=upper, total=upper * spec.budget.lower_window / 2)


def improved(before: Pair, after: Pair, tolerance: float) -> bool:
    """Whether a pair is better by more than a tolerance of F."""
    if before.violation != after.violation:
        return after.violation < before.violation
    gain = before.F - after.F
    return gain > tolerance


def spread_of(pairs: list[Pair]) -> float:
    """How far the better half of feasible pairs differ in F."""
    feasible = sorted(pair.F for pair in pairs if pair.violation == 0)
    return feasible[len(feasible) // 2] - feasible[0] if len(feasible) > 2 else math.inf
