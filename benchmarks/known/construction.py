"""Constructions: problems whose follower's answers are known at every x, and a judge of results.

A construction lists *candidates* at each x: some points y, among which are all answers of the
follower. If the follower has infinitely many answers (a range, a face, a sphere), the answers that
the leader likes best are among the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import bilevo
from bilevo.core.arrays import FloatArray

Candidates = Callable[[FloatArray], Sequence[Any]]

FEASIBLE = 1e-9  # The largest violation that a candidate may have by rounding.
TIE = 1e-12  # Candidates whose f differ by less, in units of the scale of f, are tied.
ROUNDING = 8 * np.finfo(float).eps  # The error of f by rounding, relative to |f|.
# An answer is wrong if its errors of f and F, in units of their scales, or its violation are larger
# than these; `judge_pair` has the exact rule.
WRONG_f, WRONG_F, WRONG_VIOLATION = 1e-6, 1e-4, 1e-6


def one(x: FloatArray) -> float:
    """Return 1, the scale of most functions."""
    return 1.0


@dataclass(frozen=True, slots=True)
class Construction:
    """A problem, its follower's answers at every x, and the units in which errors are measured.

    `f_scale` is how much f(x, .) changes around the follower's answer when y changes by about as
    much as matters to the leader. Penalties, stiff terms and offsets are left out of it. `F_star`
    is the leader's best value; None if it is not known.
    """

    name: str
    kind: str
    problem: bilevo.Problem
    candidates: Candidates
    f_scale: Callable[[FloatArray], float] = one
    F_scale: float = 1.0
    F_star: float | None = None

    def response(self, x: FloatArray) -> tuple[float, float]:
        """Return the follower's least f at x, and the leader's best F among its answers.

        Both are inf if the follower has no feasible answer. F is inf if all its answers violate G.
        """
        points = np.array([np.atleast_1d(y) for y in self.candidates(x)], float)
        points = points.reshape(len(points), self.problem.n)
        if not len(points):
            return math.inf, math.inf
        F, G, f, g = self.problem.evaluate(np.repeat(x[None], len(points), axis=0), points)
        f = np.where((g <= FEASIBLE).all(axis=1) & np.isfinite(f), f, math.inf)
        least = float(f.min())
        if not math.isfinite(least):
            return math.inf, math.inf
        tie = TIE * self.f_scale(x) + ROUNDING * abs(least)
        allowed = (f <= least + tie) & (G <= WRONG_VIOLATION).all(axis=1) & np.isfinite(F)
        return least, float(F[allowed].min()) if allowed.any() else math.inf

    def f_star(self, x: FloatArray) -> float:
        """Return the follower's least f at x."""
        return self.response(x)[0]

    def F_true(self, x: FloatArray) -> float:
        """Return the leader's value at x, with the follower's answer that the leader likes best."""
        return self.response(x)[1]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is true of an answer, a pair (x, y) with a claimed F."""

    f_gap: float  # how far f is above the follower's least f at this x
    F_error: float  # how far F is above its true value at this x; negative if it is below
    violation: float  # the largest violation of a constraint
    why: str  # why the answer is wrong; empty if it is right
    disliked: bool  # whether y is right, but the leader likes another answer of the follower more

    @property
    def wrong(self) -> bool:
        return bool(self.why)


def judge_pair(known: Construction, x: FloatArray, y: FloatArray, F: float) -> Verdict:
    """Judge a pair (x, y) and the F that is claimed for it.

    The pair is wrong in three cases:
    - It violates a constraint by more than 1e-6.
    - Both f and F are wrong. f is wrong if it is above the follower's least value by more than 1e-6
      of its scale, and by more than rounding. F is wrong if it differs from the leader's true value
      at x by more than 1e-4 of its scale.
    - The claimed F differs from F(x, y) by more than 1e-4 of its scale.
    """
    values, G, f, g = known.problem.evaluate(x, y)
    least, true = known.response(x)
    violation = max([0.0, *G[0].tolist(), *g[0].tolist()])
    gap, error = float(f[0]) - least, F - true
    negligible = max(WRONG_f * known.f_scale(x), ROUNDING * max(abs(least), abs(float(f[0]))))
    unsolved = not gap <= negligible  # NaN is unsolved, too
    off = not abs(error) <= WRONG_F * known.F_scale
    why = ""
    if not violation <= WRONG_VIOLATION:
        why = f"a constraint is violated by {violation:.3g}"
    elif unsolved and off:
        why = f"f is {gap:.3g} above its least value, and F is off by {error:.3g}"
    elif not abs(F - float(values[0])) <= WRONG_F * known.F_scale:
        why = f"F is said to be {F:.9g}, and is {values[0]:.9g}"
    disliked = not unsolved and error > WRONG_F * known.F_scale
    return Verdict(gap, error, violation, why, disliked)


def judge(known: Construction, result: bilevo.Result) -> Verdict:
    """Judge the answer of a run; a run without an answer is not wrong."""
    if not (np.isfinite(result.x).all() and np.isfinite(result.y).all()):
        return Verdict(math.nan, math.nan, math.nan, "", False)
    return judge_pair(known, result.x, result.y, result.F)


def confirms(certificate: Any) -> bool:
    """Tell whether a certificate confirms its result."""
    said = getattr(certificate, "confirmed", None)
    return certificate.message.startswith("confirmed") if said is None else bool(said)


def judge_certificate(known: Construction, x: FloatArray, certificate: Any) -> Verdict:
    """Judge the answer that a certificate gives at x."""
    return judge_pair(known, x, np.asarray(certificate.y), certificate.F)


def local_minima(
    function: Callable[[FloatArray], FloatArray], low: float, high: float, count: int = 4001
) -> list[float]:
    """Return the local minima of a function of one variable, which takes arrays.

    Basins are found if they are wider than two steps of a grid of `count` points. The search zooms
    into each basin until rounding hides the rest. So the least value is exact, and the points are
    exact to about 1e-8.
    """
    grid = np.linspace(low, high, count)
    values = np.concatenate([[math.inf], np.nan_to_num(function(grid), nan=math.inf), [math.inf]])
    here, left, right = values[1:-1], values[:-2], values[2:]
    found = []
    for i in np.flatnonzero((here <= left) & (here <= right) & np.isfinite(here)).tolist():
        a, best, b = grid[[max(i - 1, 0), i, min(i + 1, count - 1)]].tolist()
        for _ in range(14):
            points = np.append(np.linspace(a, b, 21), best)
            tried = np.nan_to_num(function(points), nan=math.inf)
            best, step = float(points[np.argmin(tried)]), (b - a) / 20
            a, b = max(low, best - step), min(high, best + step)
        found.append(best)
    return found


def optimum(known: Construction) -> float | None:
    """Return the leader's best value: the known one, or that of a scan of x if m = 1.

    Returns None if it is not known and m > 1. A scan is exact to about 1e-5 only, because F can
    jump with x.
    """
    if known.F_star is not None or known.problem.m > 1:
        return known.F_star
    bounds = known.problem.x_bounds

    def values(points: FloatArray) -> FloatArray:
        return np.array([known.F_true(np.array([point])) for point in points])

    low, high = float(bounds.lower[0]), float(bounds.upper[0])
    grid = np.linspace(low, high, 4001)
    scanned = values(grid)
    best = float(scanned.min())
    for i in np.argsort(scanned)[:3]:
        step = grid[1] - grid[0]
        around = np.linspace(max(low, grid[i] - step), min(high, grid[i] + step), 201)
        best = min(best, float(values(around).min()))
    return best
