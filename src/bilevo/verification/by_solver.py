"""Verification by a solver: the problem's own solver, or a second solver, answers again.

Each start of the solver has its own random stream, and does not depend on the run. Answers are
compared by f if it is a function, otherwise by the values that the solvers report.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import interquartile_range
from bilevo.core.feasibility import Tolerances
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.result import Certificate
from bilevo.core.solver import MAX_STEPS, CheckedSolver
from bilevo.core.streams import stream
from bilevo.core.users_code import mark
from bilevo.core.values import BadValue
from bilevo.verification.follower_problem import (
    NEGLIGIBLE,
    Answer,
    FollowerProblem,
    answers_at,
    best_answer,
    make_certificate,
    values_at,
)

SMALLEST_F = 1e-3  # The least size of f that is assumed if only solvers know f.


def claimed_answer(
    problem: Problem, x: FloatArray, y: FloatArray, f: float, violation: float, ctol: float = 0.0
) -> Answer:
    """Return a result's answer with the follower's part of the violation, 0 up to `ctol`."""
    if not math.isfinite(f):
        return Answer(y, math.inf, math.inf)
    above = float(values_at(problem, Level.UPPER, x, y[None].copy()).violation[0])
    below = violation - above
    return Answer(y, f, below if below > max(1e-9 * violation, ctol) else 0.0)


def verify_by_solver(
    solver: CheckedSolver,
    problem: Problem,
    claimed: Answer,
    x: FloatArray,
    seed: int,
    starts: int,
    tolerances: Tolerances | None = None,
) -> Certificate:
    """Return the certificate of x and of the answer claimed for its follower."""
    answers, spent = _solve_again(solver, x, seed, starts)
    cut_off = sum(not answer.done for answer in answers)
    if tolerances is not None:
        ctol = tolerances[Level.LOWER].ctol
        answers = [a if a.violation > ctol else replace(a, violation=0.0) for a in answers]
    found = [claimed, *answers]
    if problem.f_is_known:
        y = np.array([answer.y for answer in found])
        found = answers_at(y, values_at(problem, Level.LOWER, x, y, None, tolerances))
        best, follower = best_answer(found), FollowerProblem(problem, x, seed, tolerances)
        scale = follower.spread
        spent += len(found) + follower.counts[Level.LOWER]
    else:  # the answers found show roughly how much f varies
        best = best_answer(found)
        spread = interquartile_range(np.array([answer.f for answer in found]))
        scale = max(abs(best.f) + spread, SMALLEST_F)
    negligible = NEGLIGIBLE * scale
    tied = [a for a in found if a.f <= best.f + negligible and a.violation <= best.violation]
    above = np.array([answer.y for answer in tied])
    upper = values_at(problem, Level.UPPER, x, above, None, tolerances)
    counts = {Level.LOWER: spent, Level.UPPER: len(tied)}
    made = make_certificate(found[0], best, tied, upper, negligible, counts)
    if cut_off:
        missing = f"{cut_off} of {starts} starts were not done after {MAX_STEPS} steps"
        made = replace(made, message=f"{made.message}; {missing}")
    return made


def _solve_again(
    solver: CheckedSolver, x: FloatArray, seed: int, starts: int
) -> tuple[list[Answer], int]:
    """Return the answers of independent starts and their cost; raise only if all starts fail."""
    found, spent, errors = [], 0, []
    for i in range(starts):
        try:
            answer, cost = solve(solver, x, stream(seed, "verify own", 0, i))
        except BadValue:
            raise
        except Exception as error:  # the user's solver may do anything
            errors.append(error)
            continue
        found.append(answer)
        spent += cost
    if not found:
        mark(errors[0], f"in verification at x = {x.tolist()}")
        raise errors[0]
    return found, spent


def solve(solver: CheckedSolver, x: FloatArray, rng: np.random.Generator) -> tuple[Answer, int]:
    """Return a solver's answer from one start, and its cost; the number of steps is limited."""
    state, cost = solver.start(x, rng), 0
    for step in range(MAX_STEPS):
        state, outcome = solver.advance(state, step == 0)
        cost += outcome.cost
        if outcome.done:
            break
    return Answer(outcome.y, outcome.f, outcome.violation, outcome.done), cost
