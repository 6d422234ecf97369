"""First hits: drc-plus beside what an expert writes with SciPy, counted in the same way.

    python -m benchmarks.expert --set 2,3 tp 5,5 10,10 --jobs 2 --csv docs/data/expert.csv
    python -m benchmarks.expert --csv docs/data/expert.csv      # shows the stored runs
    python -m benchmarks.expert --purposes                      # what drc-plus spends

A *hit* is the first pair at which a method evaluates F such that F is within 1e-6 of F*, f within
2e-6 of the follower's best, and all constraints are met. It is seen by the problem's functions,
which count calls on their own. So it does not matter what a method says. A run ends at its hit, or
at its limit. A run without a hit counts as its limit.

The experts search phi(x) = F(x, y*(x)) from random starts:

    slsqp           SLSQP; each follower is solved by SLSQP from the last answer
    slsqp-cold      the same, with three random starts more for each follower, and ten at the end
    cobyqa          COBYQA over x (no derivatives of phi); followers as in `slsqp`
    nested-cma-es   CMA-ES over x, and a CMA-ES for each follower (the method of bilevo)

Their settings (steps of differences, tolerances, numbers of starts) were chosen on seeds 1 to 5 of
SMD1-4 and TP1-4. The runs use other seeds.
"""

from __future__ import annotations

import sys
import warnings
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NoReturn

import numpy as np

import bilevo
from benchmarks.follower_judge import judge_pair
from benchmarks.nested_scipy import Descent, NestedSLSQP, OutOfEvaluationsError, StuckError
from benchmarks.rows import read_rows, write_rows
from benchmarks.timing import in_processes, say
from bilevo.algorithms.drc_plus.method import DRCPlus
from bilevo.algorithms.drc_plus.state import DRCPlusState
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Procedure
from bilevo.lab.show.formats import show

NEAR_F, NEAR_LOWER = 1e-6, 2e-6  # How close F and f must come to the known optimum.
MET = 1e-8  # The largest value of a constraint at a hit.
METHODS = ("drc-plus", "slsqp", "slsqp-cold", "cobyqa", "nested-cma-es")
EXPERTS = ("slsqp", "slsqp-cold")
COMPARED = {"drc-plus", *EXPERTS}
SETS = {  # problems, sizes and the most evaluations of a run
    "2,3": ([f"smd{i}" for i in range(1, 9)], (2, 3), 20_000),
    "tp": ([f"tp{i}" for i in range(1, 9)], (None, None), 20_000),
    "5,5": ([f"smd{i}" for i in range(1, 8)], (5, 5), 50_000),
    "10,10": ([f"smd{i}" for i in range(1, 7)], (10, 10), 100_000),
}
FIRST_SEED = 52_001


class HitError(Exception):
    """A run has found the optimum."""


class Watched:
    """A problem whose functions count their calls, and notice the first hit."""

    def __init__(self, problem: Problem, stops: bool = True) -> None:
        assert problem.optimum is not None and problem.vectorized
        self.original, self.problem = problem, copy(problem)
        self.problem.F, self.problem.f = self._upper, self._lower
        self.count, self.hit, self.stops = 0, 0, stops

    def _lower(self, x: FloatArray, y: FloatArray) -> Any:
        self.count += len(x)
        return self.original.f(x, y)

    def _upper(self, x: FloatArray, y: FloatArray) -> Any:
        self.count += len(x)
        F = np.asarray(self.original.F(x, y))
        optimum = self.original.optimum
        assert optimum is not None
        near = np.abs(F - optimum.F) <= NEAR_F
        if near.any() and not self.hit and self._is_hit(x[near], y[near], optimum.f):
            self.hit = self.count
            if self.stops:
                raise HitError
        return F

    def _is_hit(self, x: FloatArray, y: FloatArray, f_star: float) -> bool:
        """Tell whether one of some pairs is feasible, and its y the follower's answer.

        It is if f is that of the known optimum. Other optima have another f: SciPy judges them.
        """
        _, G, f, g = self.original.evaluate(x, y)
        met = (G.max(axis=1, initial=0.0) <= MET) & (g.max(axis=1, initial=0.0) <= MET)
        if (met & (np.abs(f - f_star) <= NEAR_LOWER)).any():
            return True
        for i in np.flatnonzero(met)[:1]:
            judged = judge_pair(self.original, x[i], y[i], quick=True)
            if judged.feasible and judged.gap <= NEAR_LOWER:
                return True
        return False


class Metered(DRCPlus):
    """drc-plus that counts what it spends its evaluations on."""

    PURPOSES = {  # noqa: RUF012 (a constant)
        "find_first_pair": "first follower",
        "descend": "descents",
        "stay_on_branch": "exploration",
        "explore": "exploration",
        "hop": "global search",
        "improve_unfelt": "global search",
        "sample": "global search",
        "polish": "global search",
        "certify_elite": "certificate",
        "run_fallback": "fallback",
    }

    def __init__(self, spent: Counter[str] | None = None) -> None:
        super().__init__()
        spent = Counter() if spent is None else spent
        for name, purpose in self.PURPOSES.items():
            whole = partial(self._metered, getattr(super(), name), purpose, spent)
            object.__setattr__(self, name, whole)

    @staticmethod
    def _metered(
        method: Any,
        purpose: str,
        spent: Counter[str],
        spec: Any,
        state: DRCPlusState,
        *more: Any,
        **named: Any,
    ) -> Procedure[Any]:
        before, counted = state.total, spent.total()
        result = yield from method(spec, state, *more, **named)
        spent[purpose] += state.total - before - (spent.total() - counted)
        return result


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make."""

    problem: str
    m: int | None
    n: int | None
    method: str
    seed: int
    limit: int


@dataclass(frozen=True, slots=True)
class Row:
    """A run: the evaluations until its hit, or its limit."""

    problem: str
    m: int
    n: int
    method: str
    seed: int
    hit: bool
    evaluations: int


def carry_out(task: Task) -> Row:
    """Make a run, and return its first hit."""
    problem = bilevo.problems.get(task.problem, task.m, task.n)
    watched = Watched(problem)
    with suppress(HitError, OutOfEvaluationsError):
        RUNS[task.method](watched.problem, task.seed, task.limit)
    hit = bool(watched.hit)
    spent = watched.hit if hit else task.limit
    return Row(task.problem, problem.m, problem.n, task.method, task.seed, hit, spent)


def run_drc_plus(problem: Problem, seed: int, limit: int) -> None:
    bilevo.minimize(problem, method="drc-plus", rng=seed, max_evals=limit)


def run_slsqp(problem: Problem, seed: int, limit: int) -> None:
    NestedSLSQP(problem, limit, seed, random_starts=0, final_starts=0).run()


def run_slsqp_cold(problem: Problem, seed: int, limit: int) -> None:
    NestedSLSQP(problem, limit, seed).run()


def run_cobyqa(problem: Problem, seed: int, limit: int) -> None:
    run_cobyqa_until_spent(NestedSLSQP(problem, limit, seed, random_starts=0, final_starts=0))


def run_cobyqa_until_spent(run: NestedSLSQP) -> NoReturn:
    """Search phi by COBYQA from random starts, with followers solved from the last answer.

    It ends by `OutOfEvaluationsError`.
    """
    from scipy.optimize import Bounds, minimize

    problem = run.problem
    rng, box = np.random.default_rng([run.seed, 78]), problem.x_bounds
    while True:
        descent = Descent(run, rng)

        def unit(t: FloatArray) -> FloatArray:
            return np.asarray(box.lower + box.width * np.clip(t, 0.0, 1.0))

        rules = [{"type": "ineq", "fun": lambda t, at=descent: at.values(unit(t))[1:]}]
        with suppress(StuckError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            minimize(
                lambda t, at=descent: at.values(unit(t))[0],
                rng.random(box.size),
                method="COBYQA",
                bounds=Bounds(0, 1),
                constraints=rules if problem.G is not None or problem.g is not None else (),
                options={"initial_tr_radius": 0.2, "final_tr_radius": 1e-7},
            )


def run_nested_cma_es(problem: Problem, seed: int, limit: int) -> None:
    bilevo.minimize(problem, method="nested-cma-es", rng=seed, max_evals=limit)


RUNS = {
    "drc-plus": run_drc_plus,
    "slsqp": run_slsqp,
    "slsqp-cold": run_slsqp_cold,
    "cobyqa": run_cobyqa,
    "nested-cma-es": run_nested_cma_es,
}


def medians(rows: Sequence[Row]) -> dict[tuple[str, int, int], dict[str, tuple[float, int, int]]]:
    """Return by problem and method: the median of evaluations, hits, and runs."""
    table: dict[tuple[str, int, int], dict[str, tuple[float, int, int]]] = {}
    for key in dict.fromkeys((row.problem, row.m, row.n) for row in rows):
        some = [row for row in rows if (row.problem, row.m, row.n) == key]
        table[key] = {}
        for method in METHODS:
            own = [row for row in some if row.method == method]
            if own:
                middle = median(row.evaluations for row in own)
                table[key][method] = middle, sum(row.hit for row in own), len(own)
    return table


def ratio_to_experts(cells: dict[str, tuple[float, int, int]]) -> float:
    """Return the ratio of medians of drc-plus and of the better expert with SLSQP."""
    return cells["drc-plus"][0] / min(cells[expert][0] for expert in EXPERTS)


def report(rows: Sequence[Row]) -> list[list[str]]:
    """Return the table of first hits."""
    table = medians(rows)
    lines = [["problem", "(m, n)", *METHODS, "of the better SLSQP"]]
    for (problem, m, n), cells in table.items():
        line = [problem, f"({m}, {n})"]
        for method in METHODS:
            cell = cells.get(method)
            line.append("-" if cell is None else f"{cell[0]:.0f} ({cell[1]} of {cell[2]})")
        lines.append([*line, f"{ratio_to_experts(cells):.2f}" if set(cells) >= COMPARED else "-"])
    for name, (problems, _, _) in SETS.items():
        chosen = [
            ratio_to_experts(cells)
            for (problem, m, n), cells in table.items()
            if problem in problems and name in ("tp", f"{m},{n}") and set(cells) >= COMPARED
        ]
        if len(chosen) == len(problems):
            mean = f"{geometric_mean(chosen):.2f}"
            lines.append([f"geometric mean of {name}", "", *["" for _ in METHODS], mean])
    return lines


def purposes(names: Sequence[str], seeds: Sequence[int]) -> list[list[str]]:
    """Return a table of what drc-plus spends evaluations on, in runs that end at the target."""
    kinds = list(dict.fromkeys(Metered.PURPOSES.values()))
    lines = [["problem", "evaluations", *kinds]]
    for name in names:
        shares: list[Counter[str]] = []
        totals = []
        for seed in seeds:
            spent: Counter[str] = Counter()
            problem = bilevo.problems.get(name)
            totals.append(bilevo.minimize(problem, method=Metered(spent), rng=seed).nfev)
            shares.append(spent)
        middle = [f"{median(spent[kind] for spent in shares):.0f}" for kind in kinds]
        lines.append([name, f"{median(totals):.0f}", *middle])
    return lines


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.expert", description="first hits")
    parser.add_argument("--set", choices=tuple(SETS), nargs="+", default=[], help="what to run")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--runs", type=int, default=11, help="runs of a problem")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="seed of the first run")
    parser.add_argument("--only", default="", help="problems whose name is this")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument(
        "--csv",
        type=Path,
        help="a file that keeps the rows",
    )
    parser.add_argument("--purposes", action="store_true", help="what drc-plus spends, at (2, 3)")
    given = parser.parse_args()
    tasks = [
        Task(name, *size, method, given.seed + i, limit)
        for names, size, limit in (SETS[chosen] for chosen in given.set)
        for name in names
        if given.only in ("", name)
        for method in given.methods
        for i in range(given.runs)
    ]
    new = in_processes(carry_out, tasks, given.jobs) if tasks else []
    made = {(row.problem, row.m, row.n, row.method) for row in new}
    old = [] if given.csv is None else read_rows(given.csv, Row)
    rows = [row for row in old if (row.problem, row.m, row.n, row.method) not in made] + new
    if given.csv is not None and new:
        write_rows(given.csv, rows)
    if rows:
        say(show(report(rows), markdown=False))
    if given.purposes:
        seeds = range(given.seed, given.seed + given.runs)
        say(show(purposes([f"smd{i}" for i in range(1, 13)], list(seeds)), markdown=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
