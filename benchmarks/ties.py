"""Ties and stance: how often the leader gets what its stance expects, where that is known.

    python -m benchmarks.ties --set concepts stances pmm curved large --csv docs/data/ties.csv
    python -m benchmarks.ties --cost --csv docs/data/ties_cost.csv    # what looks for ties cost
    python -m benchmarks.ties --page    # writes the tables of docs/recipe_ties.md from these

Runs do not know the optimum. Each answer is given to `verify`. An answer is right if F differs from
the best value of the stance by at most 1e-4. The exit status is 1 if an answer is wrong although
its run claims success.

    concepts   the two problems with ties of docs/concepts.md
    stances    pes-1, near-1, jump, line and SMD6, where closed forms are known
    pmm        PMM1-6 at (4, 4): wrong answers of the follower give F = 0 at many x
    curved     SMD11 and SMD12 at (5, 5), where ties lie on a circle
    large      SMD11 and SMD12 at (10, 10), where ties lie on a sphere
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

FIRST_SEED = 61_001
RUNS = {"concepts": 15, "stances": 20, "pmm": 15, "curved": 10, "large": 5}  # of each case
COST_RUNS = 3
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


@dataclass(frozen=True, slots=True)
class CostRow:
    """What the search of ties has cost in a run of a problem without ties."""

    problem: str
    seed: int
    evaluations: int
    search: int  # evaluations of the search of ties, which these runs need not make
    allowed: int


def measure_cost(task: tuple[str, int]) -> CostRow:
    """Make a run of a problem without ties, and count what the search of ties takes."""
    name, seed = task
    problem, looks = bilevo.problems.get(name), 0

    def counted(spec: Any, state: Any) -> Any:
        nonlocal looks
        before = state.total
        yield from resolve_all_ties(spec, state)
        looks += state.total - before

    with patch.object(drc_plus, "resolve_all_ties", counted):
        spent = bilevo.minimize(problem, rng=seed, target=False).nfev
    allowed = max(round(MOST_SHARE * (spent - looks)), MOST_EACH * (problem.n + 1))
    return CostRow(name, seed, spent, looks, allowed)


def cost_table(rows: Sequence[CostRow]) -> list[list[str]]:
    """Return a line for the problems of each suite."""
    header = ["problems without ties", "runs", "evaluations (median)"]
    lines = [[*header, "runs with a search of ties", "runs in which it takes too much"]]
    for suite in dict.fromkeys(row.problem.rstrip("0123456789") for row in rows):
        own = [row for row in rows if row.problem.startswith(suite)]
        names = ", ".join(dict.fromkeys(row.problem for row in own))
        spent = f"{median(row.evaluations for row in own):,.0f}"
        searches = sum(row.search > 0 for row in own)
        over = sum(row.search > row.allowed for row in own)
        lines.append([names, str(len(own)), spent, str(searches), str(over)])
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks.ties", description="ties and stance")
    parser.add_argument("--set", choices=tuple(SETS), nargs="+", default=[], help="what to run")
    parser.add_argument("--only", default="", help="cases whose name begins with this")
    parser.add_argument("--runs", type=int, help="runs of a case")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="seed of the first run")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--cost", action="store_true", help="what looks cost without ties")
    parser.add_argument("--page", action="store_true", help="make the tables of the page")
    parser.add_argument("--csv", type=Path, help="a file that keeps the rows")
    given = parser.parse_args(arguments)
    if given.page:
        from benchmarks import ties_page

        ties_page.make()
        return 0

    def seeds(usual: int) -> range:
        return range(given.seed, given.seed + (given.runs or usual))

    if given.cost:
        names = [name for name in NO_TIES if name.startswith(given.only)]
        costs = [(name, seed) for name in names for seed in seeds(COST_RUNS)]
        spent = in_processes(measure_cost, costs, given.jobs)
        if given.csv is not None:
            write_rows(given.csv, spent)
        say(show(cost_table(spent), markdown=True))
        return 0
    tasks = [
        (chosen, name, seed)
        for chosen in given.set
        for name in SETS[chosen]
        if name.startswith(given.only)
        for seed in seeds(RUNS[chosen])
    ]
    new = in_processes(carry_out, tasks, given.jobs) if tasks else []
    made = {(row.case, row.seed) for row in new}
    old = [] if given.csv is None else read_rows(given.csv, Row)
    rows = [row for row in old if (row.case, row.seed) not in made] + new
    if given.csv is not None and new:
        write_rows(given.csv, rows)
    if rows:
        say(show(table(rows), markdown=True))
    return int(any(row.success and not row.right for row in rows))


if __name__ == "__main__":
    sys.exit(main())
