"""Verification of an answer: the follower's problem at a fixed x, solved again from scratch.

This runs on the driver's side, so it may use any solver. Global searches by CMA-ES start from
points spread over the follower's box (a Latin hypercube), independent of the run; gradient searches
start from more such points, from what the global searches found and from the answer under test.
Every evaluation is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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
from bilevo.optimizers.protocol import Start
from bilevo.run.evaluate import Evaluator
from bilevo.run.session import Batch

TIE = 1e-12  # follower values this close, relative to the spread over the box, count as equal

MARGIN = 1e-10  # by which a local search stays inside the constraints: feasible means exactly <= 0


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A follower's answer in unit coordinates."""

    y: FloatArray
    f: float
    violation: float

    def no_worse(self, other: Answer) -> bool:
        return no_worse(self.f, self.violation, other.f, other.violation)


class FixedLeader:
    """The two levels as functions of y alone, at one x; counts its evaluations."""

    def __init__(self, problem: Problem, x: FloatArray) -> None:
        self.box = UnitBox(problem.y_bounds)
        self.counts = {Level.UPPER: 0, Level.LOWER: 0}
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

    def _values(self, level: Level, y: FloatArray, evaluate: Evaluator) -> Values:
        x = np.repeat(self._x[None], len(y), axis=0)
        x.flags.writeable = y.flags.writeable = False
        objective, constraints, _ = evaluate(Batch(level, x, y))
        self.counts[level] += len(y)
        repeats = self._problem.repeats(level)
        return Values.of(objective, constraints, repeats, self.counts[level])

    def answer(self, y: FloatArray) -> Answer:
        values = self(Level.LOWER, y[None])
        return Answer(y, float(values.objective[0]), float(values.violation[0]))


def resolve_follower(
    problem: Problem, x: FloatArray, y: FloatArray, seed: int, starts: int
) -> Certificate:
    """The certificate of the pair (x, y)."""
    follower = FixedLeader(problem, x)
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
    tolerance = TIE * follower_spread(follower, seed) + 1e-12 * abs(best.f)
    limit = Answer(best.y, best.f + tolerance, best.violation)
    tied = list(dict.fromkeys(answer for answer in found if answer.no_worse(limit)))
    return _certify(follower, y, claimed, best, tied)


def latin_hypercube(points: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Points (points, d) of the unit box, one in each slice of every coordinate.

    By hand because scipy's takes half a second to import and no generator without a seed sequence.
    """
    slices = rng.permuted(np.tile(np.arange(points), (d, 1)), axis=1).T
    return np.asarray((slices + rng.random((points, d))) / points)


def best_answer(answers: list[Answer]) -> Answer:
    f, violation = (np.array([getattr(a, name) for a in answers]) for name in ("f", "violation"))
    return answers[best_index(f, violation)]


def global_search(
    follower: FixedLeader, mean: FloatArray, rng: np.random.Generator, doublings: int
) -> Answer:
    """A CMA-ES over the whole box, until its values agree to twelve digits."""
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
        if not values.violation.any():
            spread = float(values.objective.max() - values.objective.min())
            if spread <= 1e-13 * (abs(best.f) + TINY) or state.sigma < 1e-12:
                break
    assert best is not None
    return best


def local_search(follower: FixedLeader, start: Answer) -> Answer:
    """A gradient search on f from a point; the point itself if nothing better comes of it.

    L-BFGS-B does not move along directions in which f is flat, so that ties near the start are
    kept; where there are constraints, SLSQP. Both difference f numerically.
    """
    from scipy.optimize import minimize  # late: it would double the package's import time

    base = start.f if math.isfinite(start.f) else 0.0
    scale = abs(base) or 1.0
    known: dict[bytes, Values] = {}  # SLSQP asks for f and g apart

    def at(y: FloatArray) -> Values:
        inside = np.clip(y, 0, 1)
        key = inside.tobytes()
        if key not in known:
            known[key] = follower(Level.LOWER, inside[None])
        return known[key]

    def f(y: FloatArray) -> float:
        value = float(at(y).objective[0])
        return (value - base) / scale if math.isfinite(value) else 1e10

    def inequalities(y: FloatArray) -> FloatArray:
        slack = -at(y).constraints[0] - MARGIN
        return np.asarray(np.nan_to_num(slack, nan=-1e10, posinf=1e10, neginf=-1e10))

    how: dict[str, Any] = {"method": "L-BFGS-B", "options": {"ftol": 1e-16, "gtol": 1e-12}}
    if at(start.y).constraints.shape[1] > 0:
        how = {"method": "SLSQP", "options": {"ftol": 1e-15, "maxiter": 50}}
        how["constraints"] = [{"type": "ineq", "fun": inequalities}]
    box = [(0.0, 1.0)] * follower.box.size
    solution = minimize(f, start.y, jac="3-point", bounds=box, **how)
    new = follower.answer(np.clip(np.nan_to_num(solution.x), 0, 1))
    return new if new.no_worse(start) else start


def follower_spread(follower: FixedLeader, seed: int) -> float:
    """How much f varies over the box: the interquartile range of 32 points."""
    points = stream(seed, "verify", 3).random((32, follower.box.size))
    return interquartile_range(follower(Level.LOWER, points).objective)


def _certify(
    follower: FixedLeader,
    y: FloatArray,
    claimed: Answer,
    best: Answer,
    tied: list[Answer],
) -> Certificate:
    """Among follower answers tied in f, take the best for the leader, and say what it means."""
    upper = follower(Level.UPPER, np.array([answer.y for answer in tied]))
    i = best_index(upper.objective, upper.violation)
    chosen = tied[i]
    gap = math.inf if claimed.violation > 0 else claimed.f - best.f
    feasible = float(upper.violation[i]) == 0 and chosen.violation == 0
    F = float(upper.objective[i])
    counts = follower.counts
    return Certificate(
        y=y if chosen is claimed else follower.box.real(chosen.y[None])[0],
        F=F,
        f=chosen.f,
        follower_gap=gap,
        feasible=feasible,
        nfev_lower=counts[Level.LOWER],
        nfev_upper=counts[Level.UPPER],
        message=_sentence(gap, best, claimed in tied, F, feasible),
    )


def _sentence(gap: float, best: Answer, confirmed: bool, F: float, feasible: bool) -> str:
    if best.violation > 0:
        return "no feasible follower answer was found at this x"
    if math.isinf(gap):
        text = "y is infeasible for the follower; at its best answer"
    elif confirmed:
        text = "confirmed: the follower has no better answer;"
    else:
        text = f"the follower has an answer better by {gap:.3g}; there"
    return f"{text} F = {F:.8g}" + ("" if feasible else ", and a constraint is violated")
