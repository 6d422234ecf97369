"""Checks of the pair (x, y) that a run found: the values of x at the follower's true answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bilevo import kernels, problems
from bilevo.algorithms.shared.independent_search import Effort
from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.feasibility import Tolerances
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values
from bilevo.core.result import Certificate
from bilevo.run.evaluator import Evaluator
from bilevo.settings import USUAL_TIES, Ties
from bilevo.verification.by_search import verify_by_search
from bilevo.verification.by_solver import verify_by_solver
from bilevo.verification.follower_problem import Claim, Settings, values_at


class Checks(NamedTuple):
    """The values of a leader x at the follower's true answer to it."""

    F_verified: float = np.nan
    violation_verified: float = np.nan  # of both levels' constraints
    follower_gap: float = np.nan  # by how much the reported f is larger than the true one


def checked(
    problem: Problem,
    x: FloatArray,
    y: FloatArray,
    f: float,
    violation: float = 0.0,
    tolerances: Tolerances | None = None,
    ties: Ties = USUAL_TIES,
) -> Checks:
    """Check a pair by the follower's known response, or solve the follower again.

    The gap is infinite if y is infeasible for the follower. All values are NaN if x or y is
    missing. If only a solver knows f, `violation` must be the value that the solver reported with
    y, and `violation_verified` is infinite if the solver finds no feasible answer. Constraints are
    met within the tolerances, if there are any.
    """
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return Checks()
    answer = known_response(problem, x) if problem.f_is_known and ties.usual else None
    is_feasible = True
    if answer is not None:
        *_, best_f, _ = problem.evaluate(x, answer)
        below = _values(problem, Level.LOWER, x, y, tolerances)
        gap = np.inf if below.violation[0] else max(0.0, float(f - best_f[0]))
    else:
        certificate = _resolved(problem, x, y, f, violation, tolerances, ties)
        answer, gap = certificate.y, certificate.follower_gap
        is_feasible = certificate.feasible
    F, *_ = problem.evaluate(x, answer)
    found = float(_values(problem, Level.UPPER, x, answer, tolerances).violation[0])
    if problem.f_is_known:
        found += float(_values(problem, Level.LOWER, x, answer, tolerances).violation[0])
    elif found == 0 and not is_feasible:
        found = np.inf
    return Checks(float(F[0]), found, gap)


def _values(
    problem: Problem, level: Level, x: FloatArray, y: FloatArray, tolerances: Tolerances | None
) -> Values:
    return values_at(problem, level, x, y[None].copy(), Evaluator(problem), tolerances)


def _resolved(
    problem: Problem,
    x: FloatArray,
    y: FloatArray,
    f: float,
    violation: float,
    tolerances: Tolerances | None,
    ties: Ties,
) -> Certificate:
    verify = verify_by_search if problem.follower is None else verify_by_solver
    claim = Claim(x, y, np.nan, f, violation)
    settings = Settings(tolerances=tolerances, stance=ties.stance, tie_tol=ties.tolerance)
    with kernels.using(kernels.default()):
        return verify(ties.problem(problem), claim, 1, Effort.NORMAL, settings)


def known_response(problem: Problem, x: FloatArray) -> FloatArray | None:
    """Return the follower's answer by its formula, or None if there is no formula for this x."""
    y = None if problem.response is None else problem.response(x[None])[0]
    return y if y is not None and np.isfinite(y).all() else None


def verified(row: dict[str, Any]) -> dict[str, Any]:
    """Return an imported row with its checks, or unchanged if it cannot be checked.

    A row can be checked if it has x and y, and its problem is registered. Raise ValueError if x or
    y is outside the bounds, or if F or f of the row is not the value at x and y.
    """
    if row["problem"] not in problems.names() or not row["x"] or not row["y"]:
        return row
    problem = problems.get(row["problem"], row["m"], row["n"])
    x, y = frozen(row["x"]), frozen(row["y"])
    for name, point, bounds in (("x", x, problem.x_bounds), ("y", y, problem.y_bounds)):
        if not (np.all(bounds.lower <= point) and np.all(point <= bounds.upper)):
            raise ValueError(f"{name} = {point.tolist()} of {row['problem']} is outside its bounds")
    F, _, f, _ = problem.evaluate(x, y)
    for name, value in (("F", float(F[0])), ("f", float(f[0]))):
        if not np.isclose(row[name], value, rtol=1e-6, atol=1e-9):
            said = f"{name} = {row[name]:g} of {row['problem']}"
            raise ValueError(f"{said} is not what its x and y give: {value:g}")
    checks = checked(problem, x, y, row["f"])
    best_F, _ = known_optimum(problem)
    return {**row, **checks._asdict(), "verified": abs(checks.F_verified - best_F)}


def known_optimum(problem: Problem, ties: Ties = USUAL_TIES) -> tuple[float, float]:
    """Return F* and f*, which are NaN if they are not known, as for a pessimistic leader."""
    known = problem.optimum if ties.usual else None
    return (np.nan, np.nan) if known is None else (float(known.F), float(known.f))
