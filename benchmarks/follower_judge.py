"""Judge a pair (x, y) by SciPy: is y feasible, and is it a best answer of the follower at x?

The judge shares no code with bilevo's own searches. SLSQP starts at random points of the follower's
box and at y itself. The pair is right if no start ends at a feasible answer with a lower f. Such a
judge may miss a better answer that no start leads to, so "right" means "not refuted".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Bounds
from bilevo.core.problem import Problem
from bilevo.core.request import Level

STARTS = 25  # The random starts of a judgment.
F_TOLERANCE = 1e-5  # f may be this far above the best f found, in units of max(1, |f|).
MAX_VIOLATION = 1e-6  # The largest value of a constraint that counts as met.
SURELY_MET = 1e-11  # A better answer counts only if its constraints are at most this.
HUGE = 1e6  # Larger values of f are minimized on a logarithmic scale.


@dataclass(frozen=True, slots=True)
class Judgment:
    """What the judge found: how far f is above the best f, and the largest violation."""

    gap: float
    violation: float
    allowed: float

    @property
    def feasible(self) -> bool:
        return bool(self.violation <= MAX_VIOLATION)

    @property
    def right(self) -> bool:
        return bool(self.feasible and self.gap <= self.allowed)


def judge_pair(
    problem: Problem, x: FloatArray, y: FloatArray, starts: int = STARTS, quick: bool = False
) -> Judgment:
    """Search for a better answer of the follower at x; a pair that is not a number is wrong.

    A quick judgment ends as soon as the pair is found to be wrong.
    """
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return Judgment(np.inf, np.inf, 0.0)
    _, G, f, g = problem.evaluate(x, y)
    violation = max(largest(G), largest(g))
    if not np.isfinite(f[0]):
        return Judgment(np.inf, violation, 0.0)
    allowed = F_TOLERANCE * max(1.0, abs(float(f[0])))
    box = problem.y_bounds
    drawn = np.random.default_rng(25).uniform(box.lower, box.upper, (starts, box.size))
    found = Judgment(0.0, violation, allowed)
    for start in (y, *drawn):
        if quick and not found.right:
            break
        gap = float(f[0]) - lowest_f(problem, x, start)
        found = Judgment(max(found.gap, gap), violation, allowed)
    return found


def lowest_f(problem: Problem, x: FloatArray, start: FloatArray) -> float:
    """Return f where SLSQP ends, or inf if the constraints are not met there.

    An end that violates constraints slightly is moved inside by a second run of SLSQP.
    """
    y = start
    margin = 0.0
    for _ in range(2):
        y = slsqp_answer(problem, x, y, margin)
        f, g = problem.values(Level.LOWER, x[None], y[None])
        violation = largest(g)
        if violation <= SURELY_MET:
            return float(f[0]) if np.isfinite(f[0]) else np.inf
        if violation > MAX_VIOLATION:
            break
        margin = 2 * violation
    return np.inf


def slsqp_answer(
    problem: Problem, x: FloatArray, start: FloatArray, margin: float = 0.0
) -> FloatArray:
    """Return where SLSQP ends for the follower at x; constraints are met with a margin.

    Where f is huge, SLSQP minimizes arsinh(f), which has the same minima and moderate slopes.
    """
    huge = not abs(problem.values(Level.LOWER, x[None], start[None])[0][0]) <= HUGE

    def f(y: FloatArray) -> float:
        value = float(finite(problem.values(Level.LOWER, x[None], y[None])[0])[0])
        return float(np.arcsinh(value)) if huge else value

    def g(y: FloatArray) -> FloatArray:
        return -finite(problem.values(Level.LOWER, x[None], y[None])[1][0]) - margin

    constraints = [] if problem.g is None else [{"type": "ineq", "fun": g}]
    return run_slsqp(f, start, problem.y_bounds, constraints, ftol=1e-13, maxiter=200)


def run_slsqp(
    function: Callable[[FloatArray], Any],
    start: FloatArray,
    box: Bounds,
    constraints: Sequence[dict[str, Any]],
    jac: Any = None,
    **options: float,
) -> FloatArray:
    """Run SLSQP without its warnings, and return its last point, moved into the box."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        answer = minimize(
            function,
            start,
            jac=jac,
            bounds=list(zip(box.lower, box.upper, strict=True)),
            constraints=constraints,
            method="SLSQP",
            options=options,
        )
    last = np.where(np.isfinite(answer.x), answer.x, start)
    return np.asarray(np.clip(last, box.lower, box.upper), float)


def largest(constraints: FloatArray) -> float:
    """Return the largest violation; a constraint that is not a number is violated."""
    if not constraints.size:
        return 0.0
    worst = float(np.max(constraints))
    return max(worst, 0.0) if np.isfinite(worst) else np.inf


def finite(values: FloatArray) -> FloatArray:
    """Replace what is not a finite number by a large one."""
    return np.nan_to_num(values, nan=1e300, posinf=1e300, neginf=-1e300)
