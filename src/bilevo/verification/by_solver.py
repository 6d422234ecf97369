"""Verification where the follower is a solver of the user's: it, or a second one, answers again.

Each start has a random stream of its own and knows nothing of the run. Where f is a function, the
answers are compared by it and not by what solvers say of themselves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import interquartile_range
from bilevo.core.order import best_index
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values
from bilevo.core.result import Certificate
from bilevo.core.solver import MOST_STEPS, CheckedSolver
from bilevo.core.streams import stream
from bilevo.core.users_code import mark
from bilevo.core.values import BadValue
from bilevo.run.evaluator import Evaluator
from bilevo.run.session import Batch
from bilevo.verification.by_search import NEGLIGIBLE, FollowerProblem, sentence

SMALLEST = 1e-3  # size of f, where only solvers know it: answers may all be 0 but for rounding


class Solved(NamedTuple):
    """A follower's answer, with values as far as the solver tells, and whether it was done."""

    y: FloatArray
    f: float
    violation: float
    done: bool = True


def claimed_by(
    problem: Problem, x: FloatArray, y: FloatArray, f: float, violation: float
) -> Solved:
    """A result's answer; of its violation, the part that is not the leader's."""
    if not math.isfinite(f):
        return Solved(y, math.inf, math.inf)
    above = float(_values(problem, Level.UPPER, x, y[None].copy()).violation[0])
    below = violation - above
    return Solved(y, f, below if below > 1e-9 * violation else 0.0)


def resolve_by(
    solver: CheckedSolver, problem: Problem, claimed: Solved, x: FloatArray, seed: int, starts: int
) -> Certificate:
    """The certificate of the pair of x and what is claimed to be its follower's answer."""
    answers, spent = _answers(solver, x, seed, starts)
    cut_off = sum(not solved.done for solved in answers)
    found = [claimed, *answers]
    if problem.f_is_known:
        found = _by_f(problem, x, found)
        spent += len(found)
    f, violation = np.array([s.f for s in found]), np.array([s.violation for s in found])
    best = found[best_index(f, violation)]
    if problem.f_is_known:
        box = FollowerProblem(problem, x, seed)
        scale = box.spread
        spent += box.counts[Level.LOWER]
    else:  # what starts differ by is no more than f does
        scale = max(abs(best.f) + interquartile_range(f), SMALLEST)
    negligible = NEGLIGIBLE * scale
    tied = [s for s in found if s.f <= best.f + negligible and s.violation <= best.violation]
    upper = _values(problem, Level.UPPER, x, np.array([s.y for s in tied]))
    i = best_index(upper.objective, upper.violation)
    claimed = found[0]
    gap = math.inf if claimed.violation > 0 else claimed.f - best.f
    F, feasible = float(upper.objective[i]), upper.violation[i] == 0 and tied[i].violation == 0
    return Certificate(
        y=tied[i].y,
        F=F,
        f=tied[i].f,
        follower_gap=gap,
        feasible=bool(feasible),
        nfev_lower=spent,
        nfev_upper=len(tied),
        message=sentence(gap, best.violation, gap <= negligible, F, bool(feasible))
        + (
            f"; {cut_off} of {starts} starts were not done after {MOST_STEPS} steps" * (cut_off > 0)
        ),
    )


def _answers(
    solver: CheckedSolver, x: FloatArray, seed: int, starts: int
) -> tuple[list[Solved], int]:
    """What independent starts give, and their cost; an error only if all of them fail."""
    found, spent, errors = [], 0, []
    for i in range(starts):
        try:
            solved, cost = solve(solver, x, stream(seed, "verify own", 0, i))
        except BadValue:
            raise
        except Exception as error:  # the user's solver may do anything
            errors.append(error)
            continue
        found.append(solved)
        spent += cost
    if not found:
        mark(errors[0], f"in verification at x = {x.tolist()}")
        raise errors[0]
    return found, spent


def solve(solver: CheckedSolver, x: FloatArray, rng: np.random.Generator) -> tuple[Solved, int]:
    """A follower's answer to x from one start, done or after many steps, and what it cost."""
    state = solver.start(x, rng)
    cost = 0
    for step in range(MOST_STEPS):
        state, outcome = solver.advance(state, step == 0)
        cost += outcome.cost
        if outcome.done:
            break
    return Solved(outcome.y, outcome.f, outcome.violation, outcome.done), cost


def _by_f(problem: Problem, x: FloatArray, found: list[Solved]) -> list[Solved]:
    """The answers with the values that f and g have there."""
    values = _values(problem, Level.LOWER, x, np.array([solved.y for solved in found]))
    rows = zip(found, values.objective.tolist(), values.violation.tolist(), strict=True)
    return [Solved(solved.y, f, violation) for solved, f, violation in rows]


def _values(problem: Problem, level: Level, x: FloatArray, y: FloatArray) -> Values:
    leaders = np.repeat(x[None], len(y), axis=0)
    leaders.flags.writeable = y.flags.writeable = False
    objective, constraints, _ = Evaluator(problem, "worst")(Batch(level, leaders, y))
    return Values.of(objective, constraints, problem.repeats(level), len(y))
