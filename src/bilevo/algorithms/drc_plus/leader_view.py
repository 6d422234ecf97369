"""phi(x) = F(x, y*(x)): the leader's objective as a function of x alone, and its local search.

What DRC-plus (see drc_plus) knows of a run at any time is `Knowledge`; the functions here evaluate
pairs, solve followers (see warm_follower) as far as a leader needs it, and resolve ties.

- Optimism. Where f is flat around an answer, F decides: a local search on F along the directions in
  which f neither bends nor slopes, which are looked for once.
- Descent. Once followers are cheap, phi is a function like others: `sqp` searches it, each
  neighbour a follower solved. Constraints are looked at only where the search without them ends: if
  that is feasible, it is as good as it gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.algorithms.drc_plus.warm_follower import (
    ITERATIONS,
    SLIM,
    UNKNOWN,
    Experience,
    WarmFollower,
    WarmTask,
)
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.sqp import Answer, LocalRule, sqp
from bilevo.algorithms.shared.ties import flat_directions
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Scale
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Values, evaluate, together
from bilevo.core.streams import stream

LEADER_DIFFERENCE = 1e-5  # of the box: well above what the followers' errors make of F
LEADER_TOLERANCE = 1e-9  # of F
LEADER_ITERATIONS = 15
FLAT = 1e-7  # of f: a change that is none
FLAT_REACH = 0.05  # of the box: how far f is to be flat
FINESSE = 0.05  # of a difference in F: what a follower's error may make of it


@dataclass(slots=True, eq=False)
class Knowledge:
    """What a run has learnt of followers and of the leader's view of them."""

    known: Experience
    generation: int = 0
    elite: Pair | None = None
    certified: bool = False  # the elite is
    sensitivity: float = 1.0  # change of F per root of a change of f, of late
    flat: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # directions (k, n)
    flat_hessian: FloatArray = field(default_factory=lambda: UNKNOWN)  # of F along them
    F_scale: Scale = field(default_factory=Scale)
    spent: int = 0  # upper evaluations so far
    streams: int = 0  # of random numbers, used up

    def stream(self, spec: Spec, name: str) -> np.random.Generator:
        """Random numbers that nobody has had."""
        self.streams += 1
        return stream(spec.seed, name, self.generation, self.streams)

    @property
    def the_elite(self) -> Pair:
        assert self.elite is not None
        return self.elite

    @property
    def total(self) -> int:
        """Evaluations so far."""
        return self.spent + self.known.spent

    def crown(self, pair: Pair) -> Procedure[None]:
        self.elite, self.certified = pair, False
        yield pair.incumbent

    def tolerance(self, difference: float) -> float:
        """Of f, for a leader who is to see such a difference in F."""
        if not math.isfinite(difference):
            return self.known.tight
        allowed = FINESSE * difference / max(self.sensitivity, 1e-9)
        return max(self.known.tight, allowed * allowed)

    def rate(self, tasks: list[WarmTask]) -> Procedure[None]:
        """Fill in F and the total violation: one upper evaluation each."""
        x, y = (np.array([getattr(task.pair, name) for task in tasks]) for name in "xy")
        values = yield from evaluate(Level.UPPER, x, y)
        self.spent = values.spent
        for i, task in enumerate(tasks):
            task.pair.F = float(values.objective[i])
            task.pair.violation = float(values.violation[i]) + task.pair.lower_violation
            task.G = values.constraints[i]

    def find_flat(self, pair: Pair) -> Procedure[None]:
        """The directions in which f neither bends nor slopes around an answer."""
        self.flat_hessian = UNKNOWN
        flat = yield from flat_directions(pair)
        if not len(flat):
            return
        rows = np.clip(pair.y + FLAT_REACH * np.concatenate([flat, -flat]), 0.0, 1.0)
        values = yield from self.known.evaluate(pair.x, rows)
        change = np.abs(values.objective - pair.f).reshape(2, -1).max(axis=0)
        self.flat = np.asarray(flat[change <= FLAT * (self.known.unit + abs(pair.f))])

    def favour(self, task: WarmTask, again: bool = True) -> Procedure[WarmTask]:
        """Of equally good answers around a task's the leader's best.

        Flat directions may turn with x: where f rises along them they are looked for again, once.
        """
        pair, flat, k = task.pair, self.flat, len(self.flat)  # others may find new ones meanwhile
        if not k or pair.lower_violation > 0:
            return task

        def place(rows: FloatArray) -> FloatArray:
            return np.clip(pair.y + rows @ flat, 0.0, 1.0)

        G = {np.zeros(k).tobytes(): task.G}

        def at(rows: FloatArray) -> Procedure[Values]:
            x = np.repeat(pair.x[None], len(rows), axis=0)
            values = yield from evaluate(Level.UPPER, x, place(rows))
            self.spent = values.spent
            G.update(zip((row.tobytes() for row in rows), values.constraints, strict=True))
            return values

        reach = np.full(k, math.sqrt(len(pair.y)))
        tolerance = self.F_scale.tolerance(0.1 * LEADER_TOLERANCE)
        rule = LocalRule(20 * (k + 1), tolerance, trusting=True)
        bent = self.flat_hessian if len(self.flat_hessian) == k else None
        violation = np.array([pair.violation])
        start = Values(np.array([pair.F]), violation, task.G[None], self.spent)
        answer = yield from sqp(at, np.zeros(k), -reach, reach, rule, bent, start)
        if answer.hessian is not None:
            self.flat_hessian = answer.hessian
        if answer.violation > pair.violation or not answer.point.any():
            return task
        y = place(answer.point[None])
        lower = yield from self.known.evaluate(pair.x, y)
        allowed = pair.f + FLAT * (self.known.unit + abs(pair.f))
        if lower.violation[0] > 0 or lower.objective[0] > allowed:
            if not again:
                return task
            yield from self.find_flat(pair)
            return (yield from self.favour(task, again=False))
        F, f = answer.objective, float(lower.objective[0])
        new = replace(pair, y=y[0], f=f, F=F, violation=answer.violation)
        self.known.learn(new)
        return replace(task, pair=new, lower=lower, G=G[answer.point.tobytes()])

    def challenged(self, follower: WarmFollower, task: WarmTask) -> Procedure[WarmTask]:
        """A task, or a better answer of its follower that others' answers lead to."""
        new = yield from follower.challenge(self.known, task, self.known.tight)
        if new is task:
            return task
        yield from self.rate([new])
        new = yield from self.favour(new)
        self.known.learn(new.pair)
        return new

    def solve(
        self,
        spec: Spec,
        follower: WarmFollower,
        task: WarmTask,
        tolerance: float,
        rng: np.random.Generator,
        iterations: int = ITERATIONS,
        thorough: bool = False,
    ) -> Procedure[WarmTask]:
        """Go on with a follower's search and look at its leader again."""
        how = iterations, thorough
        new = yield from follower.improve(spec, self.known, task, tolerance, rng, *how)
        yield from self.rate([new])
        new = yield from self.favour(new)
        new.executions += task.executions
        if new.pair.violation == task.pair.violation:  # F was known before
            new.moved = abs(new.pair.F - task.pair.F)
            gain = task.pair.f - new.pair.f
            if gain > 0 and math.isfinite(new.moved):
                self.sensitivity += 0.2 * (new.moved / math.sqrt(gain) - self.sensitivity)
        return new


@dataclass(slots=True, eq=False)
class Phi:
    """phi as `sqp` wants it; new best pairs become the elite. A relaxed one has no constraints."""

    spec: Spec
    state: Knowledge
    follower: WarmFollower
    relaxed: bool = True
    constrained: bool = False  # the leader is

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        state = self.state
        tasks = yield from together(self.solved(row) for row in rows)
        self.constrained = tasks[0].G.size > 0
        for i, task in enumerate(tasks):
            if task.solved and task.pair.no_worse(state.the_elite):
                if len(tasks) == 1:  # a step that goes somewhere
                    tasks[i] = yield from state.challenged(self.follower, task)
                if tasks[i].pair.no_worse(state.the_elite):
                    yield from state.crown(tasks[i].pair)
        F = np.array([t.pair.F if t.pair.lower_violation == 0 else np.inf for t in tasks])
        if self.relaxed:
            violation = np.where(np.isfinite(F), 0.0, np.inf)
            return Values(F, violation, np.empty((len(F), 0)), state.spent)
        violation = np.array([task.pair.violation for task in tasks])
        G = np.array([task.G for task in tasks]).reshape(len(tasks), -1)
        return Values(F, violation, G, state.spent)

    def solved(self, x: FloatArray) -> Procedure[WarmTask]:
        known = self.state.known
        task = yield from self.follower.start(known, x, np.ones(len(x)))
        rng = self.state.stream(self.spec, "descent")
        return (yield from self.state.solve(self.spec, self.follower, task, known.tight, rng))


def descent(
    spec: Spec, state: Knowledge, follower: WarmFollower, x: FloatArray, ceiling: float
) -> Procedure[Answer]:
    """A local search of phi from x, given up where it will not come below a ceiling."""
    box = np.zeros(spec.m), np.ones(spec.m)
    rule = LocalRule(
        LEADER_ITERATIONS * (spec.m + 1),
        state.F_scale.tolerance(LEADER_TOLERANCE),
        LEADER_DIFFERENCE,
        SLIM,
        ceiling,
        state.F_scale.tolerance(1.0),
        repairing=True,
        trusting=True,
    )
    phi = Phi(spec, state, follower)
    answer = yield from sqp(phi, x, *box, rule)
    if not phi.constrained:
        return answer
    phi.relaxed = False
    values = yield from phi(answer.point[None])
    if 0 < values.violation[0] < math.inf:
        answer = yield from sqp(phi, answer.point, *box, rule, values=values)
    return answer


def settled(state: Knowledge, answer: Answer) -> bool:
    """Whether a descent ended where phi is smooth and has nothing better to offer."""
    near = 100 * state.F_scale.tolerance(LEADER_TOLERANCE)
    return answer.violation == 0 and answer.left <= near
