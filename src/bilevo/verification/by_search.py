"""Verification by searches: the follower's problem at a fixed x, solved again from scratch.

Global searches by CMA-ES start from points spread over the follower's box (a Latin hypercube).
They are independent of the run. Gradient searches start from more such points, from the results of
the global searches and from the answer under test. If f is flat around the best answer, the tie
with the best F for the leader is chosen.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from bilevo.algorithms.shared.follower_search import evaluate_answers
from bilevo.algorithms.shared.ties import FlatSet, flat_directions, search_widely
from bilevo.core.arrays import TINY, FloatArray
from bilevo.core.feasibility import Tolerances
from bilevo.core.order import best_index
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Procedure, Values
from bilevo.core.result import Certificate
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.gradient import Differences, descend, usual_method
from bilevo.optimizers.protocol import Start
from bilevo.optimizers.sampling import latin_hypercube
from bilevo.verification.follower_problem import (
    NEGLIGIBLE,
    Answer,
    FollowerProblem,
    best_answer,
    make_certificate,
)

SHARP = 1e-13  # Without constraints, ties differ by less, relative to the spread of f.


def verify_by_search(
    problem: Problem,
    x: FloatArray,
    y: FloatArray,
    seed: int,
    starts: int,
    tolerances: Tolerances | None = None,
) -> Certificate:
    """Return the certificate of the pair (x, y), with `starts` global searches."""
    follower = FollowerProblem(problem, x, seed, tolerances)
    claimed = follower.claimed(y)
    found = search_follower(follower, claimed, starts)
    best = best_answer(found)
    rounding = 4 * np.finfo(float).eps * abs(best.f)
    sharpness = SHARP if problem.g is None else NEGLIGIBLE  # local searches keep a margin to g
    tie = replace(best, f=best.f + sharpness * follower.spread + rounding)
    tied = list(dict.fromkeys(answer for answer in found if answer.no_worse(tie)))
    tied += [search_ties(follower, answer, tie) for answer in tied[:3]]
    negligible = NEGLIGIBLE * follower.spread + rounding
    upper = follower(Level.UPPER, np.array([answer.y for answer in tied]))
    real = [y if a is claimed else follower.box.real(a.y[None])[0] for a in tied]
    tied = [replace(answer, y=point) for answer, point in zip(tied, real, strict=True)]
    return make_certificate(claimed, best, tied, upper, negligible, follower.counts)


def search_follower(follower: FollowerProblem, claimed: Answer, starts: int) -> list[Answer]:
    """Search the follower's box globally and locally; return all answers, with the claimed one."""
    seed, d = follower.seed, follower.box.size
    points = latin_hypercube(starts, d, stream(seed, "verify", 0))
    found = [
        search_globally(follower, point, stream(seed, "verify", 1, i), doublings=i // 2)
        for i, point in enumerate(points)
    ]
    # Local searches also reach thin feasible sets, which a population can miss.
    points = latin_hypercube(5 * starts, d, stream(seed, "verify", 2))
    found += [follower.answer(point) for point in points]
    found.append(claimed)
    return found + [search_locally(follower, answer) for answer in found]


def search_globally(
    follower: FollowerProblem, mean: FloatArray, rng: np.random.Generator, doublings: int
) -> Answer:
    """Search the whole box by CMA-ES, until a generation's values agree to thirteen digits."""
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


def search_locally(follower: FollowerProblem, start: Answer) -> Answer:
    """Search f by gradients from an answer; return that answer if nothing better is found."""
    at = Differences(partial(follower, Level.LOWER), start.f)
    method = usual_method(constrained=at.values(start.y)[1].size > 0)
    new = follower.answer(descend(at, start.y, method))
    return new if new.no_worse(start) else start


def search_ties(follower: FollowerProblem, start: Answer, tie: Answer) -> Answer:
    """Return the leader's best tie around an answer; all answers no worse than `tie` are ties."""
    at = partial(evaluate_answers, np.empty(0))  # the follower's problem has its own x

    def both(y: FloatArray) -> Procedure[tuple[Values, Values]]:
        return (yield from at(y)), (yield from at(y, Level.UPPER))

    flat = FlatSet(start.y, follower.run(flat_directions(at, start.y, follower.spread)))
    if not flat.size or not math.isfinite(tie.f):
        return start
    rng = stream(follower.seed, "verify", 4)
    found = follower.run(search_widely(flat, both, tie.f, tie.violation, rng))
    return start if found is None else Answer(*found)
