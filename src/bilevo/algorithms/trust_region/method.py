"""trust-region: a leader that learns a model of F, for problems with their own solver.

Solvers are expensive, so a leader should be chosen by all that is known. A run has these parts:

    first      A Latin hypercube of leaders takes some steps each.
    region     One leader at a time, where a model of F and G in a trust region is lowest
               (`region`, `surface`).
    restart    When a region has converged, the next one starts at a random leader, and its model
               learns only from its own leaders: if it learnt from all, it would go back to the
               optimum that is known. In turn with these, regions with models of all leaders start
               where a model of the whole box (that of drc-race) expects a gain, or at a good
               leader far from earlier regions. A region that lags behind, or repeats another one,
               ends early.
    swap       When the region of the answer expects only small gains, the values of two variables
               are exchanged, a few times (`swaps`). A better leader starts a region.
    descent    If a region is rough, F has jumps. Then CMA-ES goes on near the best leader, as in
               drc-race: offers and tolls often stand on a jump.
    race       If the solver's answers depend on luck and take many steps, as in training, F is too
               noisy for a region. Then the run goes on as drc-race, in which leaders compete.

Luck is noticed at the beginning (`luck`): the best of the first leaders takes its first steps
twice. If both searches give the same answers to the bit, come together, or are done at once,
regions are used. They are also used if the answers are equilibria of several followers, which are
no matter of luck.

Each search starts near the nearest finished one, if the solver can do that. A follower that is not
finished ranks leaders: its search ends as soon as its F, with a margin for the changes to come, is
worse than that of the region's centre. The model believes its F less, and it is never the answer.
Before a run ends, the answer's follower is solved again without a neighbour (drc-race's `certify`).

scipy's L-BFGS-B learns the model's settings, and L-BFGS-B or SLSQP find its lowest point: models
need no evaluations, so these may call back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.drc_race.certify import needs_check
from bilevo.algorithms.drc_race.curve_model import first_settings as first_curve_settings
from bilevo.algorithms.drc_race.descents import near
from bilevo.algorithms.drc_race.method import (
    DRCRace,
    DRCRaceState,
    RaceTask,
    accept_best,
    fit_model,
    new_tasks,
    propose_leaders,
    tasks_to_continue,
    thinned,
)
from bilevo.algorithms.shared.leader import leader_ranking
from bilevo.algorithms.trust_region.edges import Edge, nearest_edge
from bilevo.algorithms.trust_region.luck import depends_on_luck
from bilevo.algorithms.trust_region.region import FIRST_RADIUS, SMALL_RADIUS, Known, Region, Trial
from bilevo.algorithms.trust_region.surface import first_settings
from bilevo.algorithms.trust_region.swaps import promising_swap
from bilevo.algorithms.trust_region.tasks import Bar, known_of, solve, spread_of
from bilevo.core.algorithm import Algorithm, Followers, registered
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import SUCCESSFUL_ENDS, StopReason
from bilevo.core.feasibility import USUAL_CTOL
from bilevo.core.order import ranking
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.streams import stream
from bilevo.optimizers.sampling import latin_hypercube

FIRST_LEADERS = 5  # The first leaders are this number, and one more for every four variables.
RACERS = 4  # How many more leaders a race begins with.
RESTARTS = 4  # The number of leaders that a restart proposes.
RESTART_RADIUS = 0.2  # The first radius of a region that a restart begins.
# How far from all earlier regions a region starts, in turn, in units of the box's diagonal.
LEFT_OUT = (0.1, 0.3, 0.2)
# A region whose centre is this near to the end of another one repeats it, in the same units.
TWIN = 0.02
# After this many regions or descents in a row without a gain, and one more for every two variables,
# the answer is polished.
FRUITLESS = 8
FRUITLESS_AT_JUMPS = 12  # The same if F has jumps.
POLISH_RADIUS = 0.01  # The first radius of the region that searches the last digits.
SMALL_GAIN = 1e-6  # A region ends if it expects a smaller gain, in units of the spread of F.
SMALL_GAIN_AT_JUMPS = 1e-5  # The same once F has risen where a small region predicted a fall.
SLOW_GAIN = 3e-3  # Swaps are tried once the expected gain is smaller, in the same units.
SWAPS = 5  # The most swaps that are tried before a region ends without a gain.
SWAP_MARGIN = 0.1  # The follower of a swap is solved to about this part of the spread of F.
HOPE = 0.2  # A region behind the answer ends if it expects a smaller part of the difference.
MAX_KNOWN = 1000  # The most leaders that are remembered.


@dataclass(slots=True, eq=False)
class TrustRegionState(DRCRaceState):
    """The state of a run between two generations."""

    known: list[Known] = field(default_factory=list)
    region: Region | None = None
    surface: FloatArray = field(default_factory=lambda: np.zeros(0))  # settings of the last model
    surface_learnt: int = 0  # the number of leaders from which these settings were learnt
    edge: Edge | None = None
    racing: bool = False  # whether the run goes on as drc-race
    rough: bool = False  # whether the last region was rough, so that a descent is next
    swapped: list[FloatArray] = field(default_factory=list)  # swaps that have been tried
    swaps_before: int = 0  # how many of these were tried until a swap was better
    starts: list[FloatArray] = field(default_factory=list)  # where regions have started
    jumps: bool = False  # whether F has jumps or plateaus
    polled: bool = False  # whether the box's faces beside the answer have been tried
    polished: bool = False  # whether the answer's last digits have been searched


@dataclass(frozen=True, slots=True)
class TrustRegion(Algorithm[TrustRegionState]):
    """A leader that learns a model of F in trust regions, with restarts, descents and races."""

    race: DRCRace = field(default_factory=DRCRace)

    name = registered("trust-region")
    revision = 3
    ctol = USUAL_CTOL
    State = TrustRegionState
    followers = Followers.SOLVER

    def init(self, spec: Spec) -> Procedure[TrustRegionState]:
        yield from ()
        return TrustRegionState(None, settings=first_curve_settings(spec.m))

    def generation(self, spec: Spec, state: TrustRegionState) -> Procedure[TrustRegionState]:
        if state.racing:
            yield from self.race.generation(spec, state)
            return state
        regions = len(state.ends)
        if state.generation == 0:
            tasks = yield from self.first_generation(spec, state)
        else:
            tasks = yield from self.search(spec, state)
        if tasks:
            self.race.end_generation(spec, state, tasks)
        else:  # nothing is left to try
            state.generation, state.polished = state.generation + 1, True
            state.stop = StopReason.STAGNATION
        if not state.racing:
            self.keep_polishing(state)
        ended = len(state.ends) > regions  # other regions will be compared with the answer
        while (ended or state.stop in SUCCESSFUL_ENDS) and needs_check(state.the_elite):
            yield from self.certify(spec, state)
        return state

    def keep_polishing(self, state: TrustRegionState) -> None:
        """Let a settled run go on until the last digits of its answer have been searched."""
        if state.stop is StopReason.STAGNATION and not state.polished:
            state.stop = None

    def first_generation(self, spec: Spec, state: TrustRegionState) -> Procedure[list[RaceTask]]:
        """Try leaders all over the box, and decide by the best one how the run goes on."""
        rng = stream(spec.seed, "first")
        x = latin_hypercube(FIRST_LEADERS + spec.m // 4, spec.m, rng)
        if spec.x0 is not None:
            x[0] = spec.x0
        tasks = new_tasks(spec, state, x)
        yield from together(task.take_round(state) for task in tasks)
        best = tasks[leader_ranking([task.pair for task in tasks])[0]]
        if not spec.equilibrium and not all(task.follower.finished for task in tasks):
            size = np.median([abs(task.pair.y) for task in tasks], axis=0)
            state.racing = yield from depends_on_luck(spec, state, best, size)
        if state.racing:
            more = new_tasks(spec, state, latin_hypercube(RACERS, spec.m, rng))
            yield from together(task.take_round(state) for task in more)
            tasks += more
        else:
            yield from solve(state, best)
            bar = Bar(best.pair.F, spread_of(tasks)) if best.pair.violation == 0 else None
            yield from together(solve(state, task, bar) for task in tasks)
        if spec.x0 is not None:
            yield from solve(state, tasks[0])
        state.F_spread = spread_of(tasks)
        remember(state, tasks)
        yield from accept_best(spec, state, tasks)
        return tasks

    def search(self, spec: Spec, state: TrustRegionState) -> Procedure[list[RaceTask]]:
        """Try a leader in the region. Without a region, make a descent, or start a region."""
        while state.region is not None:
            trial = state.region.trial(state.known, self.negligible(spec, state))
            if trial is not None:
                if self.slows(state, state.region, trial):
                    swap = self.swap_of(state, state.region.centre, state.region.settings)
                    if swap is not None:
                        return (yield from self.try_swap(spec, state, state.region.centre, swap))
                return (yield from self.try_leader(spec, state, state.region, trial))
            self.end_region(spec, state, state.region)
        if state.polished:
            return []
        if state.edge is not None:
            return (yield from self.halve(spec, state, state.edge))
        if state.rough:
            rng, state.rough = stream(spec.seed, "descent", state.generation), False
            state.descent = self.race.start_descent(spec, state, state.the_elite, rng)
        if state.descent is not None:
            tasks = yield from self.race.descend(spec, state, state.descent)
            remember(state, tasks, pooled=False)
            return tasks
        return (yield from self.start_region(spec, state))

    def polishes(self, state: TrustRegionState) -> bool:
        """Tell whether only the last digits of the answer are still to be found."""
        m = len(state.ends[0]) if state.ends else 0
        return state.fruitless >= (FRUITLESS_AT_JUMPS if state.jumps else FRUITLESS) + m // 2

    def negligible(self, spec: Spec, state: TrustRegionState) -> float:
        """Return the largest expected gain for which a region does not go on."""
        least = 0.1 * state.F_scale.tolerance(spec.ftol)
        if self.polishes(state):
            return least
        jumps = state.region is not None and state.region.jumps
        return max(least, (SMALL_GAIN_AT_JUMPS if jumps else SMALL_GAIN) * state.F_spread)

    def try_leader(
        self, spec: Spec, state: TrustRegionState, region: Region, trial: Trial
    ) -> Procedure[list[RaceTask]]:
        """Solve the follower of a leader in the region, until the leader is clearly worse."""
        (task,) = self.tasks_near(spec, state, trial.x[None])
        centre = region.centre
        margin = max(trial.gain, self.negligible(spec, state))
        yield from solve(state, task, Bar(centre.F, margin) if centre.violation == 0 else None)
        (found,) = remember(state, [task])
        region.note(trial, found)
        gained = yield from accept_best(spec, state, [task])
        region.fruitful = region.fruitful or gained
        behind = region.centre.F - state.the_elite.F
        hopeless = region.centre.violation == 0 and 0 < region.gain < HOPE * behind
        if region.own is not None:  # its predictions mean little at first
            hopeless = hopeless and region.accurate and len(region.own) > 2 * spec.m + 2
        twin = not region.fruitful and near(region.centre.x, state.ends, TWIN * math.sqrt(spec.m))
        useless = twin or region.rough or (hopeless and trial.gain > 0)
        if useless and not self.polishes(state):  # else the region goes on to the last digits
            self.end_region(spec, state, region)
        return [task]

    def slows(self, state: TrustRegionState, region: Region, trial: Trial) -> bool:
        """Tell whether the answer's region goes on to small gains only."""
        slow = 0 < trial.gain <= SLOW_GAIN * state.F_spread or region.radius < SMALL_RADIUS
        return slow and region.centre.task == state.the_elite.task

    def swap_of(
        self, state: TrustRegionState, answer: Known, settings: FloatArray
    ) -> FloatArray | None:
        """Return a swap of the answer to try next; each fruitless region allows one more."""
        most = state.swaps_before + SWAPS + state.fruitless
        if len(state.swapped) >= most or not answer.usable:
            return None
        return promising_swap(answer, settings, state.known, state.swapped)

    def try_swap(
        self, spec: Spec, state: TrustRegionState, centre: Known, x: FloatArray
    ) -> Procedure[list[RaceTask]]:
        """Try a swap of the answer; if it is better, a region goes on from there."""
        state.swapped.append(x)
        (task,) = self.tasks_near(spec, state, x[None])
        bar = Bar(centre.F, SWAP_MARGIN * state.F_spread) if centre.violation == 0 else None
        yield from solve(state, task, bar)
        (found,) = remember(state, [task])
        yield from accept_best(spec, state, [task])
        if state.the_elite.task == found.task:
            state.swapped.append(centre.x)
            state.swaps_before = len(state.swapped)
            state.ends.append(centre.x)
            state.region = region_at(spec, state, found, RESTART_RADIUS, fruitful=True)
        return [task]

    def end_region(self, spec: Spec, state: TrustRegionState, region: Region) -> None:
        """Note where a region has ended, and whether it was of use."""
        state.ends.append(region.centre.x)
        state.polished = self.polishes(state)
        state.rough = region.rough and region.centre.task == state.the_elite.task
        if not state.rough:  # else the descent that follows decides
            state.fruitless = 0 if region.fruitful else state.fruitless + 1
        state.region = None
        state.surface, state.surface_learnt = region.settings, region.learnt
        state.jumps = state.jumps or region.jumps or region.level
        if region.level and not state.polished:
            state.edge = nearest_edge(state.known, region.centre, self.negligible(spec, state))

    def halve(self, spec: Spec, state: TrustRegionState, edge: Edge) -> Procedure[list[RaceTask]]:
        """Try the middle between the plateau and its surroundings; a better one starts a region."""
        (task,) = self.tasks_near(spec, state, edge.middle[None])
        yield from solve(state, task)
        (found,) = remember(state, [task])
        before = state.the_elite
        gained = yield from accept_best(spec, state, [task])
        edge.left -= 1
        if state.the_elite is not before and gained:
            state.region = region_at(spec, state, found, edge.width, fruitful=True)
            state.edge = None
        elif edge.left == 0 or not found.usable:
            state.edge = None
        elif edge.on.ties(found, self.negligible(spec, state)):
            edge.on = found
        else:
            edge.off = found
        return [task]

    def tasks_near(self, spec: Spec, state: TrustRegionState, x: FloatArray) -> list[RaceTask]:
        """Return tasks for leaders x (k, m), which start near the nearest solved followers."""
        tasks = new_tasks(spec, state, x)
        solved = [point for point in state.known if point.solved and point.usable]
        if solved:
            places = np.array([point.x for point in solved])
            for task in tasks:
                away = ((places - task.follower.x) ** 2).sum(axis=1)
                task.follower.near = solved[int(away.argmin())].task
        return tasks

    def start_region(self, spec: Spec, state: TrustRegionState) -> Procedure[list[RaceTask]]:
        """Start a region at the answer at first and at last, and elsewhere in between."""
        if self.polishes(state) and state.jumps and not state.polled:
            return (yield from self.poll_faces(spec, state))
        answer = [point for point in state.known if point.task == state.the_elite.task]
        if answer and answer[0].usable and (not state.ends or self.polishes(state)):
            radius = POLISH_RADIUS if state.ends else FIRST_RADIUS
            state.region = region_at(spec, state, answer[0], radius)
            return (yield from self.search(spec, state))
        if self.polishes(state):
            return []
        swap = self.swap_of(state, answer[0], state.surface) if answer else None
        if swap is not None:
            return (yield from self.try_swap(spec, state, answer[0], swap))
        return (yield from self.restart(spec, state))

    def restart(self, spec: Spec, state: TrustRegionState) -> Procedure[list[RaceTask]]:
        """Start a region anywhere, or where a model of the box expects a gain."""
        rng = stream(spec.seed, "restart", state.generation)
        if len(state.ends) % 2:
            return (yield from self.start_alone(spec, state, rng))
        left = self.left_out(spec, state) if len(state.ends) % 4 == 2 else None
        if left is not None:
            state.region = region_at(spec, state, left, RESTART_RADIUS)
            return (yield from self.search(spec, state))
        model = fit_model(state)
        tasks_to_continue(state, model, 0)  # computes what the pool's tasks are expected to reach
        tasks = self.tasks_near(spec, state, propose_leaders(state, model, RESTARTS, rng))
        yield from together(solve(state, task) for task in tasks)
        state.pool = thinned(state.pool, model.lengths)
        found = remember(state, tasks)
        gained = yield from accept_best(spec, state, tasks)
        best = found[leader_ranking([task.pair for task in tasks])[0]]
        if not gained:
            best = self.left_out(spec, state) or best
        if best.usable:
            state.region = region_at(spec, state, best, RESTART_RADIUS, fruitful=gained)
        else:
            state.fruitless += 1
        return tasks

    def start_alone(
        self, spec: Spec, state: TrustRegionState, rng: np.random.Generator
    ) -> Procedure[list[RaceTask]]:
        """Start a region anywhere, whose model learns only from its own leaders.

        A model of all leaders would lead back to an optimum that is known.
        """
        tasks = self.tasks_near(spec, state, rng.random((1, spec.m)))
        yield from solve(state, tasks[0])
        (found,) = remember(state, tasks)
        gained = yield from accept_best(spec, state, tasks)
        if found.usable:
            state.region = region_at(spec, state, found, FIRST_RADIUS, gained, alone=True)
        else:
            state.fruitless += 1
            state.ends.append(found.x)
        return tasks

    def poll_faces(self, spec: Spec, state: TrustRegionState) -> Procedure[list[RaceTask]]:
        """Try the answer with each variable at either of its bounds.

        Where F has jumps, models say nothing about what lies behind them, and the best leaders are
        often at bounds. If one is better, the run goes on from there.
        """
        x = np.repeat(state.the_elite.x[None], 2 * spec.m, axis=0)
        x[np.arange(2 * spec.m), np.tile(np.arange(spec.m), 2)] = np.repeat([0.0, 1.0], spec.m)
        tasks = self.tasks_near(spec, state, x)
        yield from together(solve(state, task) for task in tasks)
        found = remember(state, tasks)
        state.polled = not (yield from accept_best(spec, state, tasks))
        if not state.polled:
            best = found[leader_ranking([task.pair for task in tasks])[0]]
            state.region = region_at(spec, state, best, SMALL_RADIUS, fruitful=True)
            state.fruitless = 0
        return tasks

    def left_out(self, spec: Spec, state: TrustRegionState) -> Known | None:
        """Return the best leader far from all earlier regions and not tied with the answer.

        Where F has plateaus, a better leader may be near one that is not on the best plateau yet.
        """
        level = state.the_elite.F + self.negligible(spec, state)
        reach = LEFT_OUT[state.fruitless % len(LEFT_OUT)] * math.sqrt(spec.m)
        earlier = state.ends + state.starts
        found = [
            point
            for point in state.known
            if point.usable and point.done and level < point.F and not near(point.x, earlier, reach)
        ]
        order = ranking(
            np.array([point.F for point in found]), np.array([point.violation for point in found])
        )
        return found[order[0]] if found else None

    def certify(self, spec: Spec, state: TrustRegionState) -> Procedure[None]:
        """Check the answer before the run ends; if it is refuted, the run may go on."""
        refuted = state.the_elite
        yield from self.race.certify_elite(spec, state)
        if state.the_elite.task == refuted.task:
            return
        state.known = [point for point in state.known if point.task != refuted.task]
        for task in state.pool:
            if task.pair.task == state.the_elite.task:
                remember(state, [task], pooled=False)
        state.region, state.polished = None, False
        self.keep_polishing(state)


def region_at(
    spec: Spec,
    state: TrustRegionState,
    centre: Known,
    radius: float,
    fruitful: bool = False,
    alone: bool = False,
) -> Region:
    """Return a new region; its model starts with the settings of the last one, unless `alone`."""
    state.starts.append(centre.x)
    if alone:
        return Region(centre, first_settings(spec.m), radius, fruitful=fruitful, own=[centre])
    settings = state.surface if state.surface.size else first_settings(spec.m)
    return Region(centre, settings, radius, state.surface_learnt, fruitful=fruitful)


def remember(state: TrustRegionState, tasks: list[RaceTask], pooled: bool = True) -> list[Known]:
    """Keep what tasks have shown, for regions and, if `pooled`, for the model of the whole box."""
    state.pool += tasks if pooled else []
    found = [known_of(task) for task in tasks]
    answer = -1 if state.elite is None else state.elite.task
    known = [*state.known, *found]
    old, new = known[:-MAX_KNOWN], known[-MAX_KNOWN:]
    state.known = [point for point in old if point.task == answer] + new
    return found
