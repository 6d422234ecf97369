"""What drc-plus, drc-cma-es and a nested baseline find on the suite `literature`.

    python -m benchmarks.literature --methods drc-plus --seeds 3 --max-evals 60000 \
        --jobs 2 --csv docs/data/literature.csv
    python -m benchmarks.literature --page

The first command makes runs, and replaces the rows of its methods in the file; other rows stay. The
second makes the tables and pictures of docs/literature.md from docs/data/literature.csv. Runs do
not know the optimum, and end by their own rules or at the limit. SciPy judges each answer (see
`follower_judge`). The exit status is 1 if drc-plus claims success for a wrong answer.
"""

from __future__ import annotations

import csv
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bilevo
from benchmarks.follower_judge import judge_pair
from benchmarks.nested_scipy import NestedSLSQP
from benchmarks.timing import in_processes, say
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.problems.literature import CLASSES

METHODS = ("drc-plus", "drc-cma-es", "nested-scipy")
NESTED = "nested-scipy"
MOST = 60_000  # The most evaluations of a run.
NEAR, NEARER = 1e-2, 1e-4  # Errors of F that are hits.
ROUNDED = ("F", "F_star", "error", "gap", "violation")


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make."""

    problem: str
    method: str
    seed: int
    max_evals: int


@dataclass(frozen=True, slots=True)
class Row:
    """A run: its answer, what the judge says of it, and what it cost.

    `error` is (F - F*) / max(1, |F*|). `near` and `nearer` count the evaluations until the best
    pair was within 1e-2 and 1e-4 of F*, with a right follower; they are None if it never was. They
    are None, too, and `error` and `F_star` are NaN, if the optimum is not known.
    """

    problem: str
    kind: str
    m: int
    n: int
    method: str
    seed: int
    max_evals: int
    F: float
    F_star: float
    error: float
    right: bool
    gap: float  # how far f is above the best f that the judge found
    violation: float
    success: bool
    nfev_upper: int
    nfev_lower: int
    status: str
    near: int | None
    nearer: int | None

    @property
    def nfev(self) -> int:
        return self.nfev_upper + self.nfev_lower

    @property
    def wrong_success(self) -> bool:
        return self.success and not self.right

    def hits(self, tolerance: float) -> bool:
        """Tell whether the answer is a hit: near F*, with a right follower."""
        return self.right and abs(self.error) <= tolerance

    def evaluations_to(self, tolerance: float) -> int | None:
        """Return the evaluations until the first hit of a run whose answer is a hit."""
        first = self.near if tolerance == NEAR else self.nearer
        return first if self.hits(tolerance) else None


class Pair(NamedTuple):
    """A best pair of a run, and the evaluations of both levels until it was known."""

    x: FloatArray
    y: FloatArray
    F: float
    nfev: int


class Ended(NamedTuple):
    """A run that has ended: its best pairs in order, the last of them the answer."""

    pairs: list[Pair]
    success: bool
    status: str
    nfev_upper: int
    nfev_lower: int


def carry_out(task: Task) -> Row:
    """Make a run, and judge its answer and the first pairs that are near the optimum."""
    problem = bilevo.problems.get(task.problem)
    ended = (run_nested if task.method == NESTED else run_method)(problem, task)
    answer = ended.pairs[-1]
    best = np.nan if problem.optimum is None else problem.optimum.F
    judgment = judge_pair(problem, answer.x, answer.y)
    return Row(
        task.problem,
        CLASSES[task.problem],
        problem.m,
        problem.n,
        task.method,
        task.seed,
        task.max_evals,
        answer.F,
        best,
        error_of(answer.F, best),
        judgment.right,
        judgment.gap,
        judgment.violation,
        ended.success,
        ended.nfev_upper,
        ended.nfev_lower,
        ended.status,
        first_hit(problem, ended.pairs, best, NEAR),
        first_hit(problem, ended.pairs, best, NEARER),
    )


def run_method(problem: Problem, task: Task) -> Ended:
    """Run a method of bilevo; the best pair is noted after each generation that changes it."""
    pairs: list[Pair] = []

    def note(result: bilevo.Result) -> None:
        pair = Pair(result.x.copy(), result.y.copy(), result.F, result.nfev)
        if not pairs or any(map(np.any, (pair.x != pairs[-1].x, pair.y != pairs[-1].y))):
            pairs.append(pair)

    result = bilevo.minimize(
        problem,
        method=task.method,
        rng=task.seed,
        max_evals=task.max_evals,
        target=False,
        callback=note,
    )
    note(result)
    ends = result.nfev_upper, result.nfev_lower
    return Ended(pairs, result.success, str(result.status), *ends)


def run_nested(problem: Problem, task: Task) -> Ended:
    """Run the baseline, which claims no success and always uses all evaluations."""
    run = NestedSLSQP(problem, task.max_evals, task.seed)
    run.run()
    nothing = Pair(np.full(problem.m, np.nan), np.full(problem.n, np.nan), np.nan, 0)
    found = run.found or ([] if run.unchecked is None else [run.unchecked])
    pairs = [Pair(p.x, p.y, p.F, p.upper + p.lower) for p in found]
    counts = run.counts[Level.UPPER], run.counts[Level.LOWER]
    return Ended(pairs or [nothing], False, "max_evals", *counts)


def error_of(F: float, best: float) -> float:
    return (F - best) / max(1.0, abs(best))


def first_hit(problem: Problem, pairs: Iterable[Pair], best: float, tolerance: float) -> int | None:
    """Return the evaluations until the first pair that is near the optimum and right."""
    for pair in pairs:
        near = abs(error_of(pair.F, best)) <= tolerance
        if near and judge_pair(problem, pair.x, pair.y, quick=True).right:
            return pair.nfev
    return None


def read(path: Path) -> list[Row]:
    """Read stored rows."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [row_of(line) for line in csv.DictReader(file)]


def row_of(line: dict[str, str]) -> Row:
    readers: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "str": str,
        "bool": lambda text: text == "True",
        "int | None": lambda text: int(text) if text else None,
    }
    return Row(**{field.name: readers[str(field.type)](line[field.name]) for field in fields(Row)})


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, with ten digits of each number."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            line = asdict(row)
            writer.writerow(line | {name: f"{line[name]:.10g}" for name in ROUNDED})


def merged(old: Iterable[Row], new: Sequence[Row]) -> list[Row]:
    """Return all rows in order; new runs replace all old ones of their problem and method."""
    made = {(row.problem, row.method) for row in new}
    kept = [row for row in old if (row.problem, row.method) not in made]
    names = list(CLASSES)
    return sorted(
        [*kept, *new],
        key=lambda row: (METHODS.index(row.method), names.index(row.problem), row.seed),
    )


def options() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.literature", description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, with commas")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of a problem")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run")
    parser.add_argument("--max-evals", type=int, default=MOST, help="most evaluations of a run")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--csv", type=Path, help="a file whose rows of these methods are replaced")
    parser.add_argument("--page", action="store_true", help="make the page; no runs are made")
    given = parser.parse_args()
    if unknown := set(given.methods.split(",")) - set(METHODS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(METHODS)}")
    return given


def main() -> int:
    from benchmarks import literature_page

    given = options()
    if given.page:
        literature_page.make()
        return 0
    seeds = range(given.seed, given.seed + given.seeds)
    names = [name for name in CLASSES if given.only in name]
    methods = given.methods.split(",")
    tasks = [
        Task(name, m, seed, given.max_evals) for m in methods for name in names for seed in seeds
    ]
    rows = in_processes(carry_out, tasks, given.jobs)
    if given.csv:
        write(given.csv, merged(read(given.csv), rows))
    say(literature_page.summary(rows))
    return int(any(row.wrong_success for row in rows if row.method == METHODS[0]))


if __name__ == "__main__":
    sys.exit(main())
