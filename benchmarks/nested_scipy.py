"""The nested baseline: SLSQP of SciPy for the leader, and SLSQP for each of its followers.

This is what an expert would write without a bilevel library. The leader minimizes
phi(x) = F(x, y*(x)) from random starts until the evaluations are used up. Each x of a descent gets
a follower that is solved from several starts: the last answer, and random points. Among answers
with equal f the leader chooses the best F. Differences of phi use one start only, the answer at the
point itself, so that they stay on one branch of the follower. The end of a descent is solved again
from more starts before it counts.

An evaluation of a level is its objective and its constraints at one point, as in bilevo. A point
that is asked for twice in a row of calls is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from benchmarks.follower_judge import MAX_VIOLATION, finite, largest, run_slsqp
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level

EQUAL_F = 1e-7  # Answers tie if f differs by this at most, in units of max(1, |f|).
STEP = 1e-4  # The step of the leader's differences, in units of max(1, |x|).
PATIENCE = 12  # A descent ends after so many points in a row that are no better.
REMEMBERED = 1000  # The most points whose values are kept.


class OutOfEvaluationsError(Exception):
    """The run has used its evaluations."""


class StuckError(Exception):
    """A descent gets no better. At kinks of phi, SLSQP would go on for long."""


@dataclass(frozen=True, slots=True)
class Found:
    """A pair, its F, its largest violation, and the evaluations so far of the two levels."""

    x: FloatArray
    y: FloatArray
    F: float
    violation: float
    upper: int
    lower: int


@dataclass(slots=True)
class NestedSLSQP:
    """A run of the baseline. `best` is the answer, `found` holds each improvement of it."""

    problem: Problem
    max_evals: int
    seed: int
    random_starts: int = 3  # random starts of a follower in a descent, beside the last answer
    final_starts: int = 10  # random starts of a follower at the end of a descent
    counts: dict[Level, int] = field(default_factory=lambda: {Level.UPPER: 0, Level.LOWER: 0})
    found: list[Found] = field(default_factory=list)
    seen: dict[bytes, tuple[float, FloatArray]] = field(default_factory=dict)
    unchecked: Found | None = None  # the best point of a descent, in case that no descent ends

    @property
    def best(self) -> Found | None:
        return self.found[-1] if self.found else self.unchecked

    def run(self) -> None:
        """Make descents from random starts until the evaluations are used up."""
        rng = np.random.default_rng([self.seed, 77])
        box = self.problem.x_bounds
        with suppress(OutOfEvaluationsError):
            while True:
                self.keep(Descent(self, rng).end(rng.uniform(box.lower, box.upper)))

    def values(self, level: Level, x: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
        """Evaluate a level at a point, unless it was evaluated there just before."""
        key = bytes(str(level), "ascii") + x.tobytes() + y.tobytes()
        if key not in self.seen:
            if sum(self.counts.values()) >= self.max_evals:
                raise OutOfEvaluationsError
            self.counts[level] += 1
            if len(self.seen) >= REMEMBERED:
                self.seen.clear()
            value, constraints = self.problem.values(level, x[None], y[None])
            self.seen[key] = float(finite(value)[0]), finite(constraints[0])
        return self.seen[key]

    def pair(self, x: FloatArray, y: FloatArray) -> Found:
        """Return a pair with its values at both levels."""
        F, G = self.values(Level.UPPER, x, y)
        _, g = self.values(Level.LOWER, x, y)
        violation = max(largest(G), largest(g))
        return Found(x, y, F, violation, self.counts[Level.UPPER], self.counts[Level.LOWER])

    def keep(self, pair: Found) -> None:
        """Keep the end of a descent if it is feasible and the best so far."""
        feasible = pair.violation <= MAX_VIOLATION
        if feasible and (not self.found or pair.F < self.found[-1].F):
            self.found.append(pair)

    def keep_unchecked(self, pair: Found) -> None:
        if self.unchecked is None or _rank(pair) < _rank(self.unchecked):
            self.unchecked = pair

    def follower(self, x: FloatArray, starts: Iterable[FloatArray]) -> FloatArray:
        """Solve the follower from several starts; of equal answers, return the leader's best."""
        ends = [self.local_answer(x, start) for start in starts]
        rated = []
        for y in ends:
            f, g = self.values(Level.LOWER, x, y)
            violation = largest(g)
            rated.append((0.0 if violation <= MAX_VIOLATION else violation, f, y))
        least = min(violation for violation, _, _ in rated)
        feasible = [(f, y) for violation, f, y in rated if violation <= least]
        f = min(f for f, _ in feasible)
        equal = [y for value, y in feasible if value - f <= EQUAL_F * max(1.0, abs(f))]
        apart = [y for i, y in enumerate(equal) if not any(np.allclose(y, z) for z in equal[:i])]
        if len(apart) == 1:
            return apart[0]
        return min((self.pair(x, y) for y in apart), key=_rank).y

    def local_answer(self, x: FloatArray, start: FloatArray) -> FloatArray:
        rule = {"type": "ineq", "fun": lambda y: -self.values(Level.LOWER, x, y)[1]}
        return run_slsqp(
            lambda y: self.values(Level.LOWER, x, y)[0],
            start,
            self.problem.y_bounds,
            [] if self.problem.g is None else [rule],
            ftol=1e-12,
            maxiter=100,
        )


class Descent:
    """A run of SLSQP for the leader, which remembers the follower's last answers."""

    def __init__(self, run: NestedSLSQP, rng: np.random.Generator) -> None:
        self.run, self.rng = run, rng
        self.last: FloatArray | None = None
        self.known: dict[bytes, tuple[Found, FloatArray]] = {}
        self.slopes: dict[bytes, FloatArray] = {}

    def end(self, start: FloatArray) -> Found:
        """Descend, and return the best point with a follower that was solved from more starts."""
        with suppress(StuckError):
            self.descend(start)
        x = min((pair for pair, _ in self.known.values()), key=_rank).x
        return self.run.pair(x, self.run.follower(x, self.starts(self.run.final_starts)))

    def descend(self, start: FloatArray) -> None:
        rule = {
            "type": "ineq",
            "fun": lambda x: self.values(x)[1:],
            "jac": lambda x: self.differences(x)[1:],
        }
        run_slsqp(
            lambda x: self.values(x)[0],
            start,
            self.run.problem.x_bounds,
            [rule],
            jac=lambda x: self.differences(x)[0],
            ftol=1e-9,
            maxiter=100,
        )

    def starts(self, count: int) -> list[FloatArray]:
        box = self.run.problem.y_bounds
        first = count if self.last is not None else max(count, 1)
        drawn = list(self.rng.uniform(box.lower, box.upper, (first, box.size)))
        return drawn if self.last is None else [self.last, *drawn]

    def values(self, x: FloatArray) -> FloatArray:
        """Return phi, and the leader's constraints as SciPy has them (feasible when >= 0)."""
        key = x.tobytes()
        if key not in self.known:
            point = x.copy()
            y = self.run.follower(point, self.starts(self.run.random_starts))
            pair = self.run.pair(point, y)
            self.run.keep_unchecked(pair)
            self.last = y
            self.known[key] = pair, self.row(point, y)
            ranks = [_rank(pair) for pair, _ in self.known.values()]
            if len(ranks) - ranks.index(min(ranks)) > PATIENCE:
                raise StuckError
        return self.known[key][1]

    def row(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return F, -G and one constraint that holds if the follower has a feasible answer."""
        F, G = self.run.values(Level.UPPER, x, y)
        _, g = self.run.values(Level.LOWER, x, y)
        violation = largest(g)
        return np.array([F, *-G, -violation if violation > MAX_VIOLATION else 0.0])

    def differences(self, x: FloatArray) -> FloatArray:
        """Return the derivatives of `values`, (values, m); steps go inward at upper bounds."""
        key = x.tobytes()
        if key not in self.slopes:
            here = self.values(x)
            y = self.known[key][0].y
            columns = []
            for i, upper in enumerate(self.run.problem.x_bounds.upper):
                step = STEP * max(1.0, abs(x[i]))
                moved = x.copy()
                moved[i] += step if x[i] + step <= upper else -step
                there = self.row(moved, self.run.follower(moved, [y]))
                columns.append((there - here) / (moved[i] - x[i]))
            # SLSQP of SciPy 1.17 goes astray if derivatives are not contiguous in memory.
            self.slopes[key] = np.ascontiguousarray(np.array(columns).T)
        return self.slopes[key]


def _rank(pair: Found) -> tuple[float, float]:
    """Return a key that ranks feasible pairs by F, and other pairs by their violation."""
    return max(pair.violation - MAX_VIOLATION, 0.0), pair.F
