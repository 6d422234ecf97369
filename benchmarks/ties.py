"""Ties and stance: how often the leader gets what its stance expects, where that is known.

    python -m benchmarks.ties --set concepts stances curved pmm --runs 15 --csv docs/data/ties.csv
    python -m benchmarks.ties --csv docs/data/ties.csv          # shows the tables of stored runs
    python -m benchmarks.ties --cost                            # what looks for ties cost

Runs do not know the optimum. Each answer is given to `verify`. An answer is right if F differs from
the best value of the stance by at most 1e-4. The exit status is 1 if an answer is wrong although
its run claims success.

    concepts   the two problems with ties of docs/concepts.md
    stances    pes-1, near-1, jump, line and SMD6, where closed forms are known
    curved     SMD11 and SMD12 with several variables in z: ties lie on a sphere
    pmm        PMM1-6 at (4, 4): wrong answers of the follower give F = 0 at many x
"""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

import bilevo
from benchmarks.rows import read_rows, write_rows
from benchmarks.timing import in_processes, say
from bilevo.algorithms.drc_plus import method as drc_plus
from bilevo.algorithms.drc_plus.tie_stage import resolve_all_ties
from bilevo.core.problem import Problem
from bilevo.lab.show.formats import show
from bilevo.problems.ties import VALUES

FIRST_SEED = 52_001
NEAR = 1e-4  # F is right if it is at most this far from the best value.
MOST_SHARE, MOST_EACH = 0.03, 4  # What looks may cost: a share of a run, or 4 (n + 1) evaluations.
NO_TIES = [f"smd{i}" for i in (1, 2, 3, 4, 5, 7, 8, 10)] + [f"tp{i}" for i in range(1, 9)]


def two_answers() -> Problem:
    """Make the follower with two answers, y = sqrt(x) and y = -sqrt(x)."""
    return Problem(
        lambda x, y: (x[0] - 1) ** 2 + y[0],
        lambda x, y: (y[0] ** 2 - x[0]) ** 2,
        [(0, 4)],
        [(-2, 2)],
    )


def indifferent() -> Problem:
    """Make the follower that takes any y within 1 of x."""
    return Problem(
        lambda x, y: (x[0] - 1) ** 2 + y[0] ** 2,
        lambda x, y: max(0.0, abs(y[0] - x[0]) - 1) ** 2,
        [(0, 4)],
        [(-4, 4)],
    )


def best_of_two(sign: int) -> float:
    """Return the least (x - 1)^2 + sign sqrt(x): with s = sqrt(x), 4 s^3 - 4 s + sign = 0."""
    roots = np.roots([4.0, 0.0, -4.0, sign])
    s = roots.real[np.abs(roots.imag) < 1e-9]
    return float(min((t * t - 1) ** 2 + sign * t for t in s if t >= 0))


def best_of_smd12(m: int, n: int) -> float:
    """Return the best F of SMD12 for r >= 2 variables in v and z.

    The follower's w is unique, and its z may be any point with |v - tan z| = 1. With d = v - tan z,
    the leader adds the sum of |v - d| to the F of SMD10, and needs d >= 0. All of x are
    t = 1 / sqrt(m - 1), as in SMD10. The sum is least if all entries of d but one are t, too.
    """
    r = m // 2
    t, h = 1 / math.sqrt(m - 1), 1 / math.sqrt(n - r - 1)
    return m * (2 - t) ** 2 + (n - r) * h * h - 1 + math.sqrt(1 - (r - 1) * t * t) - t


@dataclass(frozen=True, slots=True)
class Case:
    """A problem with a stance, and the best F."""

    make: Callable[[], Problem]
    best: Callable[[], float]
    stance: str = "optimistic"
    tie_tol: float | None = None


def known(name: str, size: tuple[int, int] | tuple[()], best: float) -> Case:
    return Case(partial(bilevo.problems.get, name, *size), lambda: best)


def stances() -> dict[str, Case]:
    """Return the cases with closed forms; of SMD6 only the pessimistic one."""
    cases = {}
    for name, values in VALUES.items():
        for stance, tie_tol, F in values:
            words = name if tie_tol is None else f"{name}, tie_tol={tie_tol:g}"
            if name != "smd6" or stance == "pessimistic":
                make = partial(bilevo.problems.get, name)
                cases[f"{words} ({stance})"] = Case(make, partial(float, F), stance, tie_tol)
    return cases


def curved(d: int) -> dict[str, Case]:
    """Return the cases with d variables at each level."""
    make = partial(bilevo.problems.get, "smd12", d, d)
    return {
        f"smd11 ({d}, {d})": known("smd11", (d, d), -1.0),
        f"smd12 ({d}, {d})": Case(make, partial(best_of_smd12, d, d)),
    }


SETS: dict[str, dict[str, Case]] = {
    "concepts": {
        "two answers (optimistic)": Case(two_answers, partial(best_of_two, -1)),
        "two answers (pessimistic)": Case(two_answers, partial(best_of_two, 1), "pessimistic"),
        "indifferent (optimistic)": Case(indifferent, lambda: 0.0),
    },
    "stances": stances(),
    "curved": curved(5),
    "large": curved(10),
    "pmm": {f"pmm{i} (4, 4)": known(f"pmm{i}", (4, 4), 0.0) for i in range(1, 7)},
}


@dataclass(frozen=True, slots=True)
class Row:
    """What a run and its verification said."""

    case: str
    seed: int
    F: float
    error: float
    success: bool
    verified: bool
    F_optimistic: float
    F_pessimistic: float
    evaluations: int
    seconds: float

    @property
    def right(self) -> bool:
        return abs(self.error) <= NEAR


def carry_out(task: tuple[str, str, int]) -> Row:
    """Make a run and its verification."""
    chosen, name, seed = task
    case, started = SETS[chosen][name], perf_counter()
    problem = case.make()
    result = bilevo.minimize(
        problem,
        rng=seed,
        target=False,
        stance=case.stance,  # type: ignore[arg-type]
        tie_tol=case.tie_tol,
    )
    took, success = perf_counter() - started, result.success
    values = result.F_optimistic, result.F_pessimistic
    verified = bilevo.verify(problem, result, rng=seed).confirmed
    error = result.F - case.best()
    return Row(name, seed, result.F, error, success, verified, *values, result.nfev, took)


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each case."""
    header = ["problem", "runs", "right", "right and verified", "wrong with success"]
    lines = [[*header, "largest error", "evaluations (median)"]]
    for name in dict.fromkeys(row.case for row in rows):
        some = [row for row in rows if row.case == name]
        sure = sum(row.right and row.verified for row in some)
        wrong = sum(not row.right and row.success for row in some)
        counts = len(some), sum(row.right for row in some), sure, wrong
        error = max(abs(row.error) for row in some)
        spent = f"{median(row.evaluations for row in some):,.0f}"
        lines.append([name, *map(str, counts), f"{error:.0e}", spent])
    return lines


def cost(seeds: range, only: str) -> list[list[str]]:
    """Return what the search of ties costs where followers have none, in all runs of a problem."""
    lines = [["problem", "runs", "evaluations (median)", "runs with a search of ties", "most"]]
    for name in (name for name in NO_TIES if name.startswith(only)):
        problem, spent = bilevo.problems.get(name), []
        looks: list[int] = []

        def counted(spec: Any, state: Any, looks: list[int] = looks) -> Any:
            before = state.total
            yield from resolve_all_ties(spec, state)
            looks.append(state.total - before)

        for seed in seeds:
            with patch.object(drc_plus, "resolve_all_ties", counted):
                spent.append(bilevo.minimize(problem, rng=seed, target=False).nfev)
        most = max(looks, default=0)
        allowed = max(MOST_SHARE * median(spent), MOST_EACH * (problem.n + 1))
        words = f"{most:,}" + ("" if most <= allowed else " (too many)")
        lines.append([name, str(len(seeds)), f"{median(spent):,.0f}", str(len(looks)), words])
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks.ties", description="ties and stance")
    parser.add_argument("--set", choices=tuple(SETS), nargs="+", default=[], help="what to run")
    parser.add_argument("--only", default="", help="cases whose name begins with this")
    parser.add_argument("--runs", type=int, default=15, help="runs of a case")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="seed of the first run")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--cost", action="store_true", help="what looks cost without ties")
    parser.add_argument("--csv", type=Path, help="a file that keeps the rows")
    given = parser.parse_args(arguments)
    seeds = range(given.seed, given.seed + given.runs)
    tasks = [
        (chosen, name, seed)
        for chosen in given.set
        for name in SETS[chosen]
        if name.startswith(given.only)
        for seed in seeds
    ]
    new = in_processes(carry_out, tasks, given.jobs) if tasks else []
    made = {(row.case, row.seed) for row in new}
    old = [] if given.csv is None else read_rows(given.csv, Row)
    rows = [row for row in old if (row.case, row.seed) not in made] + new
    if given.csv is not None and new:
        write_rows(given.csv, rows)
    if rows:
        say(show(table(rows), markdown=True))
    if given.cost:
        say(show(cost(seeds, given.only), markdown=True))
    return int(any(row.success and not row.right for row in rows))


if __name__ == "__main__":
    sys.exit(main())
