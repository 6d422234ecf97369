"""How often single runs of the examples reach their known answers.

    python -m benchmarks.examples --seeds 1 2 3 --csv docs/data/examples.csv
    python -m benchmarks.examples --page

The first command makes a run of the default method for each example and seed, with the example's
own limit of evaluations, and shows a table. With `--csv` it stores the runs, in place of earlier
ones of the same examples. The second makes the table of docs/examples.md from that file.

Offers are compared with the single-level program of the example, which is exact here. Tolls are
compared with 2419.87, and prices with the best of all whole prices. Steps are the follower's.
"""

from __future__ import annotations

import csv
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import bilevo
from benchmarks.timing import in_processes, say
from bilevo.core.problem import Problem
from bilevo.lab.show.documents import filled, marked
from bilevo.lab.show.formats import Lines, show

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "data" / "examples.csv", ROOT / "docs" / "examples.md"
CLOSE = 1e-4  # An answer is reached if F is this near to it, relative to it.
LEAST_TOLLED = 2419.87


@dataclass(frozen=True, slots=True)
class Example:
    """A problem, its known best F, and the most evaluations of a run."""

    problem: Problem
    F: float
    most: int


def offers(*names: str) -> Example:
    """Return the offers of a producer; the exact F is that of the single-level program."""
    electricity = module("electricity")
    producer = electricity.Producer(*names)
    exact = -electricity.single_level(producer, 1e4).profit
    return Example(producer.problem(), exact, 800 * len(names))


def tolls() -> Example:
    return Example(module("tolls").nine_nodes().problem(), LEAST_TOLLED, 7000)


def prices(optimistic: bool) -> Example:
    pricing = module("pricing")
    shop = replace(pricing.SHOP, optimistic=optimistic)
    return Example(shop.problem(), -pricing.best_income(shop)[0], 400)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "offers of Brighton": partial(offers, "Brighton"),
    "offers of Brighton and Alta": partial(offers, "Brighton", "Alta"),
    "offers of Solitude and Sundance": partial(offers, "Solitude", "Sundance"),
    "tolls of nine nodes": tolls,
    "prices, ties go to the shop": partial(prices, True),
    "prices, ties go against it": partial(prices, False),
}


def module(name: str) -> Any:
    """Import an example."""
    folder = str(ROOT / "examples")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return __import__(name)


@dataclass(frozen=True, slots=True)
class Task:
    """A run to make."""

    example: str
    seed: int


@dataclass(frozen=True, slots=True)
class Row:
    """A run: its F, the steps to the answer (0: not reached), and all of its steps."""

    example: str
    seed: int
    F: float
    steps_to_answer: int
    steps: int
    status: str


def carry_out(task: Task) -> Row:
    """Make a run."""
    example = EXAMPLES[task.example]()
    result = bilevo.minimize(example.problem, max_evals=example.most, rng=task.seed)
    level = example.F + CLOSE * abs(example.F)
    reached = [row.nfev_lower for row in result.history if level >= row.F]
    to_answer = reached[0] if reached and level >= result.F else 0
    return Row(task.example, task.seed, result.F, to_answer, result.nfev_lower, result.status)


def table(rows: Sequence[Row]) -> Lines:
    """Return a line for each example: how many runs reach the answer, and medians of steps."""
    lines = [["example", "runs that reach the answer", "steps to it", "steps of a run"]]
    for name in EXAMPLES:
        some = [row for row in rows if row.example == name]
        if some:
            reached = [row.steps_to_answer for row in some if row.steps_to_answer]
            steps = f"{median(reached):.0f}" if reached else "-"
            whole = f"{median(row.steps for row in some):.0f}"
            lines.append([name, f"{len(reached)} of {len(some)}", steps, whole])
    return lines


def read(path: Path) -> list[Row]:
    """Return the runs that a file holds; none if there is no file."""
    if not path.exists():
        return []
    kinds: dict[str, Callable[[str], Any]] = {"example": str, "status": str, "F": float}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**{name: kinds.get(name, int)(value) for name, value in line.items()})
            for line in csv.DictReader(file)
        ]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write runs to a file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: ([*EXAMPLES].index(row.example), row.seed)):
            writer.writerow({**asdict(row), "F": f"{row.F:.6f}"})


def with_table(text: str) -> str:
    """Return the page with its table replaced."""
    shown = show(table(read(DATA)), markdown=True)
    return filled(text, marked("(runs)"), lambda name: shown, like="runs")


def options() -> Namespace:
    parser = ArgumentParser("python -m benchmarks.examples", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(1, 16)])
    parser.add_argument("--examples", nargs="+", default=[*EXAMPLES], choices=[*EXAMPLES])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--page", action="store_true")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    if chosen.page:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    tasks = [Task(name, seed) for name in chosen.examples for seed in chosen.seeds]
    rows = in_processes(carry_out, tasks, chosen.jobs)
    say("\n" + show(table(rows), markdown=False))
    if chosen.csv is not None:
        made = {row.example for row in rows}
        write(chosen.csv, [*(row for row in read(chosen.csv) if row.example not in made), *rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())
