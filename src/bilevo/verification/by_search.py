"""Verification of an answer: the follower's problem at a fixed x, solved again from scratch.

This runs on the driver's side, so it may use any solver. Global searches by CMA-ES start from
points spread over the follower's box (a Latin hypercube), independent of the run; gradient searches
start from more such points, from what the global searches found and from the answer under test.
Where f is flat around the best answer, the leader's F is minimized among the follower's ties. Every
evaluation is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from bilevo.core.arrays import TINY, FloatArray
from bilevo.core.budget import interquartile_range
from bilevo.core.order import best_index, no_worse
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values
from bilevo.core.result import Certificate
from bilevo.core.space import UnitBox
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.gradient import Differences, descend, usual_method
from bilevo.optimizers.protocol import Start
from bilevo.run.evaluator import Evaluator
from bilevo.run.session import Batch

NEGLIGIBLE = 1e-9  # a gap this small, relative to f's spread over the box, confirms an answer


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A follower's answer in unit coordinates."""

    y: FloatArray
    f: float
    violation: float

    def no_worse(self, other: Answer) -> bool:
        return no_worse(self.f, self.violation, other.f, other.violation)


class FollowerProblem:
    """The two levels as functions of y alone, at one x; counts its evaluations."""

    def __init__(self, problem: Problem, x: FloatArray, seed: int) -> None:
        self.box = UnitBox(problem.y_bounds)
        self.counts = {Level.UPPER: 0, Level.LOWER: 0}
        self.seed = seed
        self._x = x
        self._problem = problem
        self._evaluate = Evaluator(problem, "worst")

    def __call__(self, level: Level, y: FloatArray) -> Values:
        """Values at rows of unit coordinates; points that fail rank last."""
        return self._values(level, self.box.real(y), self._evaluate)

    def claimed(self, y: FloatArray) -> Answer:
        """The answer under test, in the user's coordinates; an exception comes through."""
        values = self._values(Level.LOWER, y[None].copy(), Evaluator(self._problem, "raise"))
        return Answer(self.box.unit(y), float(values.objective[0]), float(values.violation[0]))

    def answer(self, y: FloatArray) -> Answer:
        values = self(Level.LOWER, y[None])
        return Answer(y, float(values.objective[0]), float(values.violation[0]))

    def _values(self, level: Level, y: FloatArray, evaluate: Evaluator) -> Values:
        x = np.repeat(self._x[None], len(y), axis=0)
        x.flags.writeable = y.flags.writeable = False
        objective, constraints, _ = evaluate(Batch(level, x, y))
        self.counts[level] += len(y)
        repeats = self._problem.repeats(level)
        return Values.of(objective, constraints, repeats, self.counts[level])

    @cached_property
    def spread(self) -> float:
        """How much f varies over the box: the interquartile range of 32 points."""
        points = stream(self.seed, "verify", 3).random((32, self.box.size))
        return interquartile_range(self(Level.LOWER, points).objective)


def resolve_follower(
    problem: Problem, x: FloatArray, y: FloatArray, seed: int, starts: int
) -> Certificate:
    """The certificate of the pair (x, y)."""
    follower = FollowerProblem(problem, x, seed)
    claimed = follower.claimed(y)
    points = latin_hypercube(starts, follower.box.size, stream(seed, "verify", 0))
    found = [
        global_search(follower, point, stream(seed, "verify", 1, i), doublings=i // 2)
        for i, point in enumerate(points)
    ]
    # Local searches also reach thin feasible sets, which a population can miss.
    points = latin_hypercube(5 * starts, follower.box.size, stream(seed, "verify", 2))
    found += [follower.answer(point) for point in points]
    found.append(claimed)
    found += [local_search(follower, answer) for answer in found]
    best = best_answer(found)
    rounding = 4 * np.finfo(float).eps * abs(best.f)
    sharpness = 1e-13 if problem.g is None else NEGLIGIBLE  # local searches keep a margin to g
    tie = Answer(best.y, best.f + sharpness * follower.spread + rounding, best.violation)
    tied = list(dict.fromkeys(answer for answer in found if answer.no_worse(tie)))
    tied += [optimistic_search(follower, answer, tie) for answer in tied[:3]]
    negligible = NEGLIGIBLE * follower.spread + rounding
    return _certify(follower, y, claimed, best, tied, negligible)


def latin_hypercube(points: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Points (points, d) of the unit box, one in each slice of every coordinate.

    By hand because scipy's is slow to import and takes no generator without a seed sequence.
    """
    slices = rng.permuted(np.tile(np.arange(points), (d, 1)), axis=1).T
    return np.asarray((slices + rng.random((points, d))) / points)


def best_answer(answers: list[Answer]) -> Answer:
    f, violation = (np.array([getattr(a, name) for a in answers]) for name in ("f", "violation"))
    return answers[best_index(f, violation)]


def global_search(
    follower: FollowerProblem, mean: FloatArray, rng: np.random.Generator, doublings: int
) -> Answer:
    """A CMA-ES over the whole box, until its values agree to thirteen digits."""
    d = follower.box.size
    cma = CMAES(population=CMAES().population_size(d) * 2**doublings)
    state = cma.start(Start(mean, 0.09 * np.eye(d), np.zeros(d)))
    best: Answer | None = None
    for _ in range(100 + 50 * d):
        points = cma.ask(state, rng)
        values = follower(Level.LOWER, points)
        cma.tell(state, points, values.objective, values.violation)
        i = best_index(values.objective, values.violation)
        new = Answer(points[i], float(values.objective[i]), float(values.violation[i]))
        if best is None or new.no_worse(best):
            best = new
        if state.sigma**2 * state.C.diagonal().max() < 1e-24:
            break
        if not values.violation.any():
            spread = float(values.objective.max() - values.objective.min())
            if spread <= 1e-13 * (abs(best.f) + TINY):
                break
    assert best is not None
    return best


def local_search(follower: FollowerProblem, start: Answer) -> Answer:
    """A gradient search on f from a point; the point itself if nothing better comes of it."""
    at = Differences(partial(follower, Level.LOWER), start.f)
    method = usual_method(constrained=at.values(start.y)[1].size > 0)
    new = follower.answer(descend(at, start.y, method))
    return new if new.no_worse(start) else start


def optimistic_search(follower: FollowerProblem, start: Answer, tie: Answer) -> Answer:
    """The leader's best among the ties around an answer: CMA-ES on F along flat directions of f.

    What rises above the tie counts as infeasible, so that only ties can be returned.
    """
    flat = flat_directions(follower, start.y)
    k = flat.shape[1]
    if k == 0 or not math.isfinite(tie.f):
        return start
    cma, rng = CMAES(), stream(follower.seed, "verify", 4)
    reach = 2 * math.sqrt(follower.box.size)  # the coordinates t of CMA-ES cover the box
    state = cma.start(Start(np.full(k, 0.5), 0.01 * np.eye(k), np.zeros(k)))
    chosen, chosen_F = start, math.inf
    for _ in range(50 + 30 * k):
        t = cma.ask(state, rng)
        points = np.clip(start.y + reach * (t - 0.5) @ flat.T, 0, 1)
        lower, upper = follower(Level.LOWER, points), follower(Level.UPPER, points)
        excess = lower.violation + np.maximum(lower.objective - tie.f, 0.0)
        violation = upper.violation + np.maximum(excess - tie.violation, 0.0)
        cma.tell(state, t, upper.objective, violation)
        i = best_index(upper.objective, violation)
        if excess[i] <= tie.violation and upper.objective[i] < chosen_F:
            chosen = Answer(points[i], float(lower.objective[i]), float(lower.violation[i]))
            chosen_F = float(upper.objective[i])
        if cma.exhausted(state):
            break
    return chosen


def flat_directions(follower: FollowerProblem, y: FloatArray, step: float = 1e-3) -> FloatArray:
    """Columns (n, k): directions in which f has no curvature at y, by finite differences."""
    n = len(y)
    centre = np.clip(y, 2 * step, 1 - 2 * step)
    pairs = [(i, j) for i in range(n) for j in range(i + 1)]
    unit = step * np.eye(n)
    corners = [
        centre + a * unit[i] + b * unit[j] for i, j in pairs for a in (1, -1) for b in (1, -1)
    ]
    f = follower(Level.LOWER, np.array(corners)).objective.reshape(-1, 4)
    if not np.isfinite(f).all():
        return np.empty((n, 0))
    hessian = np.zeros((n, n))
    for (i, j), (pp, pm, mp, mm) in zip(pairs, f, strict=True):
        hessian[i, j] = hessian[j, i] = (pp - pm - mp + mm) / (4 * step**2)
    curvature, directions = np.linalg.eigh(hessian)
    limit = 1e-6 * (np.abs(curvature).max() + follower.spread)
    return np.ascontiguousarray(directions[:, np.abs(curvature) <= limit])


def _certify(
    follower: FollowerProblem,
    y: FloatArray,
    claimed: Answer,
    best: Answer,
    tied: list[Answer],
    negligible: float,
) -> Certificate:
    """Among follower answers tied in f, take the best for the leader, and say what it means."""
    upper = follower(Level.UPPER, np.array([answer.y for answer in tied]))
    i = best_index(upper.objective, upper.violation)
    chosen, F = tied[i], float(upper.objective[i])
    gap = math.inf if claimed.violation > 0 else claimed.f - best.f
    feasible = float(upper.violation[i]) == 0 and chosen.violation == 0
    return Certificate(
        y=y if chosen is claimed else follower.box.real(chosen.y[None])[0],
        F=F,
        f=chosen.f,
        follower_gap=gap,
        feasible=feasible,
        nfev_lower=follower.counts[Level.LOWER],
        nfev_upper=follower.counts[Level.UPPER],
        message=sentence(gap, best.violation, gap <= negligible, F, feasible),
    )


def sentence(gap: float, violation: float, confirmed: bool, F: float, feasible: bool) -> str:
    """What a certificate means; `violation` is that of the best answer of the follower."""
    if math.isinf(violation):
        return "no finite value of the follower was found at this x"
    if violation > 0:
        return "no feasible follower answer was found at this x"
    if math.isinf(gap):
        text = "y is infeasible for the follower; at its best answer"
    elif confirmed:
        text = "confirmed: the follower has no better answer;"
    else:
        text = f"the follower has an answer better by {gap:.3g}; there"
    if not math.isfinite(F):
        return f"{text} F has no finite value"
    return f"{text} F = {F:.8g}" + ("" if feasible else ", and a constraint is violated")
