"""What runs of drc-plus cost as problems grow: evaluations, processor time, and batches.

    python -m benchmarks.sizes --size 10 --problems smd1 smd8 --seeds 9001 9002 9003
    python -m benchmarks.sizes --size 50 --problems quadratic --limit 30000

Each run is made with the known optimum as its target, and with `--free` also without one. A run is
solved if F at the follower's true answer is within 1e-6 of F*, or, where this answer is not known,
if F is within 1e-6 of F* and f within 2e-6 of f*. A false success is a run that says `success` and
is not solved. `quadratic` is a rotated quadratic follower of condition 30.

Batches are the rows of one call of F or of f. The ideal speed-up with w workers is the number of
evaluations divided by the sum of ceil(rows / w) over all calls.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np

import bilevo
from benchmarks.timing import in_processes, say
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.lab.show.formats import show

NEAR_F, NEAR_LOWER = 1e-6, 2e-6  # How close F and f must come to the known optimum.
MET = 1e-6  # The largest sum of violated constraints of a solved run; ctol may tolerate these.
CONDITION = 30.0  # The condition of the rotated quadratic.
WORKERS = (8, 64)


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    problem: str
    free: bool  # whether the run did not know the optimum
    solved: bool
    success: bool
    evaluations: int
    own: float  # seconds of processor time outside the problem's functions
    batches: tuple[int, ...]


@dataclass(slots=True)
class Meter:
    """Counts the rows of each call of a problem's functions, and the time that the calls take."""

    original: Problem
    batches: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def problem(self) -> Problem:
        """Return the problem with metered functions."""
        other = copy(self.original)
        other.F = partial(self._call, self.original.F, True)
        other.f = partial(self._call, self.original.f, True)
        if self.original.G is not None:
            other.G = partial(self._call, self.original.G, False)
        if self.original.g is not None:
            other.g = partial(self._call, self.original.g, False)
        return other

    def _call(self, function: Any, counts: bool, x: FloatArray, y: FloatArray) -> Any:
        started = process_time()
        values = function(x, y)
        self.seconds += process_time() - started
        if counts:
            self.batches.append(len(x))
        return values


def quadratic(size: int, seed: int) -> Problem:
    """Return a problem whose follower is a rotated quadratic; its optimum is F = 0."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((size, size)))
    H = Q * np.logspace(0, np.log10(CONDITION), size) @ Q.T
    M = rng.standard_normal((size, size)) / np.sqrt(size)
    x_best = rng.uniform(-1, 1, size)
    y_best = M @ x_best

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(((x - x_best) ** 2).sum(axis=1) + ((y - y_best) ** 2).sum(axis=1))

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        away = y - x @ M.T
        return np.asarray(((away @ H) * away).sum(axis=1))

    box = [(-5.0, 5.0)] * size
    optimum = bilevo.Optimum(F=0.0, f=0.0, x=x_best, y=y_best)
    return Problem(
        F, f, box, box, vectorized=True, optimum=optimum, response=lambda x: np.asarray(x @ M.T)
    )


def problem_of(name: str, m: int, n: int, seed: int) -> Problem:
    """Return a problem; `quadratic` is another one for each seed."""
    return quadratic(m, seed) if name == "quadratic" else bilevo.problems.get(name, m, n)


def is_solved(problem: Problem, result: bilevo.Result) -> bool:
    """Tell whether a run has found the known optimum."""
    assert problem.optimum is not None
    F, f, x = result.F, result.f, result.x[None]
    if not result.violation <= MET:
        return False
    if problem.response is not None:
        y = np.asarray(problem.response(x))
        if np.isfinite(y).all():
            F = float(np.asarray(problem.F(x, y))[0])
            return abs(F - problem.optimum.F) <= NEAR_F
    return abs(F - problem.optimum.F) <= NEAR_F and abs(f - problem.optimum.f) <= NEAR_LOWER


def carry_out(task: tuple[str, int, bool], m: int, n: int, options: dict[str, Any]) -> Row:
    """Make one run."""
    name, seed, free = task
    problem = problem_of(name, m, n, seed)
    meter = Meter(problem)
    started = process_time()
    target = False if free else None
    result = bilevo.minimize(meter.problem, method="drc-plus", rng=seed, target=target, **options)
    own = process_time() - started - meter.seconds
    solved = is_solved(problem, result)
    batches = tuple(meter.batches)
    return Row(name, free, solved, bool(result.success), result.nfev, own, batches)


def speed_up(rows: Sequence[Row], workers: int) -> float:
    """Return the ideal speed-up of some runs with this number of workers."""
    sizes = [size for row in rows for size in row.batches]
    return sum(sizes) / sum(-(-size // workers) for size in sizes)


def report(rows: Sequence[Row]) -> list[list[str]]:
    """Return a table with a line per problem, and two if it was also run without a target."""
    ideal = [f"ideal speed-up, {workers} workers" for workers in WORKERS]
    header = ["solved", "false successes", "evaluations", "own us an evaluation", "mean batch"]
    lines = [["problem", "target", *header, *ideal]]
    for name, free in dict.fromkeys((row.problem, row.free) for row in rows):
        some = [row for row in rows if (row.problem, row.free) == (name, free)]
        wrong = sum(row.success and not row.solved for row in some)
        batches = [size for row in some for size in row.batches]
        own = 1e6 * median(row.own / row.evaluations for row in some)
        solved = f"{sum(row.solved for row in some)} of {len(some)}"
        figures = [f"{median(row.evaluations for row in some):.0f}", f"{own:.0f}"]
        speeds = [f"{speed_up(some, workers):.1f}" for workers in WORKERS]
        mean = f"{sum(batches) / len(batches):.1f}"
        known = "no" if free else "yes"
        lines.append([name, known, solved, str(wrong), *figures, mean, *speeds])
    return lines


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.sizes", description="costs of larger runs")
    parser.add_argument("--size", type=int, default=10, help="variables of the leader")
    parser.add_argument("--lower", type=int, help="variables of the follower, if another number")
    parser.add_argument("--problems", nargs="+", default=[f"smd{i}" for i in range(1, 11)])
    parser.add_argument("--seeds", type=int, nargs="+", default=[9001, 9002, 9003])
    parser.add_argument("--free", action="store_true", help="also runs without a target")
    parser.add_argument("--only-free", action="store_true", help="only runs without a target")
    parser.add_argument("--limit", type=int, help="the most evaluations of a run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    options = {"max_evals": given.limit}
    kinds = [True] if given.only_free else [False, True] if given.free else [False]
    tasks = [
        (name, seed, free) for name in given.problems for free in kinds for seed in given.seeds
    ]
    m, n = given.size, given.lower or given.size
    rows = in_processes(partial(carry_out, m=m, n=n, options=options), tasks, given.jobs)
    say(show(report(rows), markdown=False))
    return int(any(row.success and not row.solved for row in rows))


if __name__ == "__main__":
    sys.exit(main())
