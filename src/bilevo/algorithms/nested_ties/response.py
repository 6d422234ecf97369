"""What a leader x gets: the follower's best answer, and the tie that the leader's stance expects.

`Responder` solves the follower as drc-plus does, from answers to leaders near by, and then searches
F over the ties (see `shared.tie_sets`). Ties are remembered by their offsets from the best answer,
because offsets change little with x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from bilevo.algorithms.drc_plus.box_search import search_first
from bilevo.algorithms.drc_plus.experience import DISTINCT, Experience, WarmTask
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair, evaluate_answers
from bilevo.algorithms.shared.polish import End, is_active
from bilevo.algorithms.shared.tie_sets import (
    TiedAnswer,
    TieSet,
    level_axes,
    look_at_face,
    search_face,
    search_level,
    search_near,
)
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Values, together
from bilevo.core.stance import Stance
from bilevo.core.streams import stream
from bilevo.optimizers.sampling import latin_hypercube

MAX_OFFSETS = 6  # How many offsets of ties are remembered.
FEW_POINTS = 4  # How many random points of a set are looked at, unless the look is thorough.
MANY_POINTS = 12  # A thorough look takes this many points for each variable of the set.
EXACT_WIDTH = 10.0  # Ties at the run's precision differ by this many times what is equal in f.
# Searches keep a distance from constraints. So where these are active, the f of ties may differ by
# this part of a difference that does not count, and by what the distance costs (`look_at_face`).
FACE_WIDTH = 0.1
FACE_STARTS = 6  # From how many points all over the box ties at constraints are searched.
RETURN_ITERATIONS = 30  # The most iterations of a search that leads back to a set of ties.
PROBE = 0.03  # The step that shows whether f is still level (fraction of the box).
MAX_BASES = 4  # Around how many separate answers ties are searched, at most.


@dataclass(slots=True, eq=False)
class TieMemory:
    """What a run has learnt about followers and their ties."""

    known: Experience
    offsets: FloatArray  # offsets (k, n) of ties from best answers, the latest last
    level: FloatArray  # directions (k, n) in which f is level, as far as known
    looked: bool = False  # whether such directions were looked for
    faces: bool = False  # whether ties at active constraints were found
    spent: int = 0  # upper evaluations so far
    streams: int = 0  # random streams used so far

    @classmethod
    def none(cls, spec: Spec) -> TieMemory:
        known = Experience.none(spec.m, spec.n, spec.slopes.whole(Level.LOWER))
        return cls(known, np.empty((0, spec.n)), np.empty((0, spec.n)))

    def stream(self, spec: Spec, name: str) -> np.random.Generator:
        """Return a random stream that no other search has."""
        self.streams += 1
        return stream(spec.seed, name, self.streams)

    def learn(self, offset: FloatArray) -> None:
        """Remember the offset of a tie; it replaces one that is nearly the same."""
        if np.abs(offset).max() <= DISTINCT:
            return
        far = np.abs(self.offsets - offset).max(axis=1) > DISTINCT
        self.offsets = np.concatenate([self.offsets[far], offset[None]])[-MAX_OFFSETS:]


@dataclass(slots=True, eq=False)
class Response:
    """A leader's x with the tie that it expects (`pair`), and the follower's best answer."""

    pair: Pair
    best: Pair
    G: FloatArray = field(default_factory=lambda: np.empty(0))  # the leader's constraints


@dataclass(frozen=True, slots=True)
class Responder:
    """Finds out what leaders get."""

    spec: Spec
    memory: TieMemory

    @property
    def known(self) -> Experience:
        return self.memory.known

    @property
    def follower(self) -> WarmFollower:
        return WarmFollower(self.spec, self.known)

    def width(self, f: float) -> float:
        """Return how much larger than the best f the f of a tie may be."""
        least = EXACT_WIDTH * self.known.equal(f)
        return least if self.spec.tie_tol is None else max(self.spec.tie_tol, least)

    def is_near(self, f: float) -> bool:
        """Tell whether nearly best answers count as ties, and not only equal ones."""
        return self.spec.tie_tol is not None and self.spec.tie_tol > self.known.tie(f)

    def lower(self, x: FloatArray, y: FloatArray) -> Procedure[Values]:
        return (yield from self.known.evaluate(x, y))

    def upper(self, x: FloatArray, y: FloatArray) -> Procedure[Values]:
        values = yield from evaluate_answers(x, y, Level.UPPER)
        self.memory.spent = values.spent
        return values

    def first(self, x: FloatArray, start: WarmTask) -> Procedure[Response]:
        """Return what the first leader gets; its follower is searched from scratch."""
        rng = self.memory.stream(self.spec, "first")
        task = yield from search_first(self.follower, start, rng)
        self.known.learn(task.pair)
        return (yield from self.of_answer(task, thorough=True))

    def respond(self, x: FloatArray, thorough: bool = False) -> Procedure[Response]:
        """Return what a leader gets; a `thorough` look at ties also finds new kinds of them."""
        rng = self.memory.stream(self.spec, "respond")
        task = yield from self.follower.start(x, np.ones(len(x)))
        task = yield from self.follower.improve(task, self.known.tight, rng, thorough=True)
        return (yield from self.of_answer(task, thorough))

    def of_answer(self, task: WarmTask, thorough: bool = False) -> Procedure[Response]:
        """Return what a leader gets whose follower's best answer is known."""
        pair = task.pair
        if pair.lower_violation > 0 or not np.isfinite(pair.f):
            upper = yield from self.upper(pair.x, pair.y[None])
            F, violation = float(upper.objective[0]), float(upper.violation[0])
            new = replace(pair, F=F, violation=violation + pair.lower_violation, check=None)
            return Response(new, pair, upper.constraints[0])
        ties = yield from self.search(pair, self.spec.stance, [pair.y], thorough)
        if ties.best is not None and pair.f - ties.best[1] > self.known.tie(pair.f):
            start = yield from self.follower.at(pair.x, ties.best[0][None])
            better = yield from self.follower.search_locally(start, self.known.tight)
            self.known.learn(better.pair)
            pair = better.pair
            ties = yield from self.search(pair, self.spec.stance, [pair.y], thorough)
        return self.response(pair, ties)

    def response(self, best: Pair, ties: TieSet) -> Response:
        """Return the response in which the found tie is the answer; remember its offset."""
        tie = ties.found
        if tie is None:  # F fails at all ties
            failed = replace(best, F=np.inf, violation=np.inf, check=None)
            return Response(failed, best)
        pair = replace(best, y=tie.y, f=tie.f, F=tie.F, violation=tie.violation, check=None)
        if self.memory.faces:  # the next follower is solved from this tie
            self.known.learn(pair)
        else:
            self.memory.learn(tie.y - best.y)
        return Response(pair, best, tie.G)

    def search(
        self, best: Pair, stance: Stance, bases: Sequence[FloatArray], thorough: bool
    ) -> Procedure[TieSet]:
        """Search the ties at a leader, around some separate answers (the first is the best)."""
        x, lower = best.x, partial(self.lower, best.x)
        ties = TieSet(lower, partial(self.upper, x), best.f, self.width(best.f), stance)
        lower_values, _ = yield from ties.evaluate(np.array(bases))
        rng = self.memory.stream(self.spec, "ties")
        if is_active(lower_values.part(0, 1)) and not self.is_near(best.f):
            cost = yield from look_at_face(ties, best.y)
            width = max(ties.width, FACE_WIDTH * self.known.tie(best.f) + cost)
            wide = replace(ties, width=width)
            yield from self.search_faces(wide, x, np.array(bases), rng, thorough)
            if self.memory.faces:
                return wide
        starts = np.clip(best.y + self.memory.offsets, 0.0, 1.0)
        for base in bases[:MAX_BASES]:
            if self.is_near(best.f):
                count = MANY_POINTS * len(base) if thorough else FEW_POINTS
                yield from search_near(ties, base, starts, rng, count, thorough)
            else:
                yield from self.search_exact(ties, x, base, starts, rng, thorough)
        return ties

    def search_nearly_level(self, best: Pair) -> Procedure[TieSet | None]:
        """Search the worst F at a leader where f varies less than a negligible difference.

        Returns None at other leaders; there this takes no evaluation.
        """
        width = self.known.nearly_level
        if not width or self.is_near(best.f):
            return None
        lower, upper = partial(self.lower, best.x), partial(self.upper, best.x)
        ties = TieSet(lower, upper, best.f, width, Stance.PESSIMISTIC)
        rng, count = self.memory.stream(self.spec, "nearly"), MANY_POINTS * len(best.y)
        yield from search_near(ties, best.y, np.empty((0, len(best.y))), rng, count)
        return ties

    def search_faces(
        self,
        ties: TieSet,
        x: FloatArray,
        bases: FloatArray,
        rng: np.random.Generator,
        thorough: bool,
    ) -> Procedure[None]:
        """Search ties where constraints of the follower are active, from the bases (k, n).

        Searches also start at answers that searches of f find from all over the box: if there is
        only one base and the look is `thorough`, or if no tie has met the leader's constraints.
        """
        if not (thorough or self.memory.faces):
            return
        yield from search_face(ties, bases, self.known.unit)
        count = FACE_STARTS if thorough and len(bases) == 1 else 1
        if count > 1 or ties.misses_constraints:
            points = latin_hypercube(count, bases.shape[1], rng)
            ends = yield from together(self.project(x, point) for point in points)
            yield from search_face(ties, np.array([end.y for end in ends]), self.known.unit)
        if ties.found is not None:
            self.memory.faces |= bool(np.abs(ties.found.y - bases[0]).max() > DISTINCT)

    def search_exact(
        self,
        ties: TieSet,
        x: FloatArray,
        y: FloatArray,
        starts: FloatArray,
        rng: np.random.Generator,
        thorough: bool,
    ) -> Procedure[None]:
        """Search ties with the same f around an answer, and near the remembered ties."""
        directions = yield from self.level_directions(ties, y, thorough)
        project = partial(self.project, x)
        if len(directions) or len(starts):
            count = MANY_POINTS * len(directions) if thorough else 0
            yield from search_level(ties, y, directions, project, starts, rng, count)

    def level_directions(
        self, ties: TieSet, y: FloatArray, thorough: bool
    ) -> Procedure[FloatArray]:
        """Return directions (k, n) in which f is level at y; known ones are tested first."""
        memory = self.memory
        if memory.looked and not thorough:
            known = memory.level
            if not len(known):
                return known
            rows = np.concatenate([y + PROBE * known, y - PROBE * known])
            values = yield from ties.lower(np.clip(rows, 0.0, 1.0))
            if ties.ties(values).reshape(2, -1).any(axis=0).all():
                return known
        found = yield from level_axes(ties.lower, y, ties.f, ties.width)
        memory.level, memory.looked = found, True
        return found

    def project(self, x: FloatArray, y: FloatArray) -> Procedure[End]:
        """Search f locally from a point, to be led back to the ties."""
        start = yield from self.follower.at(x, y[None])
        tight = self.known.tight
        task = yield from self.follower.search_locally(start, tight, RETURN_ITERATIONS)
        return End(task.pair.y, task.lower)


def answer_of(pair: Pair, G: FloatArray) -> TiedAnswer:
    """Return a pair's answer as a tie."""
    return TiedAnswer(pair.y, pair.f, pair.F, pair.violation, G)
