"""Measure runs with whole numbers and choices, where the answers are known.

    python -m benchmarks.whole_numbers [PART ...] [--seed N] [--seeds K] [--csv FILE]
    python -m benchmarks.whole_numbers --page

The first command makes runs and shows a table for each part; the second makes the tables of
docs/whole_numbers.md from docs/data/whole_numbers.csv. The parts are

    newcomer      three problems with depots, prices, lorries and effort; answers by enumeration
    roads-10      roads to build, 10 candidates; the best of all 1,024 designs is the goal
    roads-20      the same with 20 candidates; the goal is the published F, which is rounded
    interdiction  knapsack interdiction with an exact follower; the optimum is published
    smd           SMD1 to SMD9 with whole coordinates, and the real ones beside them
    random        random problems of benchmarks/known/mixed_problems.py; answers by enumeration
    cma           CMA-ES with margin, and CMA-ES that searches the decoded box

Runs are made by the default method. They do not know the answers, except in the last part and in
smd, where they end at the optimum. In roads and interdiction a run is stopped when it reaches its
goal, and the solver's answers until then are counted.
"""

from __future__ import annotations

import csv
import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import bilevo
from benchmarks.known.mixed_problems import mixed_problem
from benchmarks.known.newcomer import NEWCOMER, Known
from benchmarks.timing import say
from bilevo import Problem
from bilevo.algorithms import DRC
from bilevo.core.arrays import FloatArray
from bilevo.problems import knapsack, roads

DATA = Path(__file__).parent / "data"
BUDGETS = (25, 50, 75)  # percent of what all candidates cost
SMALL, LARGE, SOLVES = 400, 1500, 3000  # the most answers of the solver in each part
MOST_EVALUATIONS, MOST_RATIO = 5000, 2.0
ROUNDED = 0.1  # published F of roads may be lower than the true one by this
EQUAL = 1e-5  # relative to F
MOST_CMA = 20_000  # evaluations of a run of CMA-ES
RANDOM = 40  # random problems for each seed, so that five seeds make 200


@dataclass(frozen=True, slots=True)
class Row:
    """A run. `spent` has its evaluations; in roads and interdiction, answers of the solver."""

    part: str
    problem: str
    method: str
    seed: int
    F: float
    goal: float
    spent: int
    right: bool
    success: bool


class Ended(Exception):  # noqa: N818 (not an error: the run has all that it needs)
    """The goal is reached, or the solver's answers are used up."""


class Counted:
    """A problem's own solver, which counts the leaders that it answers, and ends the run."""

    def __init__(
        self, problem: Problem, goal: float, most: int, design: FloatArray | None = None
    ) -> None:
        self.problem, self.goal, self.most, self.design = problem, goal, most, design
        self.reached = False
        self.seen: set[bytes] = set()
        self.best = np.inf

    def watched(self) -> Problem:
        """Return the problem with each answer of its solver noted."""
        problem = self.problem

        def F(x: FloatArray, y: FloatArray) -> FloatArray:
            for one, answer in zip(x, y, strict=True):
                self.note(one, answer)
            return np.asarray(problem.F(x, y))

        sides = (problem.x_bounds, problem.y_bounds)
        solver = problem.follower
        return Problem(
            F, None, *sides, G=problem.G, vectorized=True, x_integrality=1, follower=solver
        )

    def note(self, x: FloatArray, y: FloatArray) -> None:
        if x.tobytes() not in self.seen and len(self.seen) >= self.most:
            raise Ended
        self.seen.add(x.tobytes())
        row = x[None], y[None]
        assert self.problem.G is not None
        if (np.asarray(self.problem.G(*row)) <= 0).all():
            self.best = min(self.best, float(self.problem.F(*row)[0]))
        same = self.design is not None and np.array_equal(x, self.design)
        self.reached = same or self.best <= self.goal
        if self.reached:
            raise Ended


def counted(
    part: str,
    problem: Problem,
    seed: int,
    goal: float,
    most: int,
    design: FloatArray | None = None,
) -> Row:
    """Run until the goal is reached, the solver's answers are used up, or the run ends itself.

    The goal is a value of F, or the best `design`: its F differs a little from run to run, because
    drivers settle only up to a gap.
    """
    solver, success = Counted(problem, goal, most, design), False
    with suppress(Ended):
        success = bool(bilevo.minimize(solver.watched(), rng=seed).success)
    right = solver.reached
    spent = len(solver.seen)
    return Row(part, problem.name, "moves", seed, solver.best, goal, spent, right, success or right)


def solved(part: str, known: Known, seed: int, method: str | None = None, **options: Any) -> Row:
    """Run a problem with a known answer to the run's own end."""
    result = bilevo.minimize(known.problem, method=method, rng=seed, target=False, **options)
    right = bool(result.feasible) and abs(result.F - known.F) <= EQUAL * (1 + abs(known.F))
    name = known.problem.name
    return Row(
        part, name, result.method, seed, result.F, known.F, result.nfev, right, result.success
    )


def newcomer(seeds: Sequence[int]) -> Iterator[Row]:
    for known, seed in product(NEWCOMER, seeds):
        yield solved("newcomer", known, seed)


def random(seeds: Sequence[int]) -> Iterator[Row]:
    for seed in range(100 * seeds[0], 100 * seeds[0] + RANDOM * len(seeds)):
        made = mixed_problem(seed)
        yield solved("random", Known(made.problem, made.F), seed)


def network() -> Any:
    return json.loads((DATA / "road_building.json").read_text(encoding="utf-8"))


def best_designs(instance: str, content: Any) -> dict[int, tuple[float, FloatArray]]:
    """Return the least F of all designs within each budget, and its design."""
    problem = roads.design(content, instance, 1.0)
    cost = np.array([row[5] for row in content["instances"][instance]["candidates"]])
    best = dict.fromkeys(BUDGETS, (np.inf, np.zeros(problem.m)))
    for design in product([0.0, 1.0], repeat=problem.m):
        x = np.array(design)
        F: float | None = None
        for budget in BUDGETS:
            if x @ cost <= budget / 100 * cost.sum():
                F = total(problem, x) if F is None else F
                best[budget] = min(best[budget], (F, x), key=lambda one: one[0])
    return best


def total(problem: Problem, x: FloatArray) -> float:
    """Return F where drivers have settled."""
    follower: Any = problem.follower
    return float(problem.F(x[None], follower.settle(x).flow[None])[0])


def small_roads(seeds: Sequence[int]) -> Iterator[Row]:
    content = network()
    for instance in (name for name in content["instances"] if name.startswith("10_")):
        for budget, (best, x) in best_designs(instance, content).items():
            problem = roads.design(content, instance, budget / 100)
            for seed in seeds:
                yield counted("roads-10", problem, seed, best, SMALL, x)


def large_roads(seeds: Sequence[int]) -> Iterator[Row]:
    content = network()
    for instance in (name for name in content["instances"] if name.startswith("20_")):
        for budget in BUDGETS:
            goal = content["instances"][instance]["published"][str(budget)] + ROUNDED
            problem = roads.design(content, instance, budget / 100)
            for seed in seeds:
                yield counted("roads-20", problem, seed, goal, LARGE)


def interdiction(seeds: Sequence[int]) -> Iterator[Row]:
    content = json.loads((DATA / "interdiction.json").read_text(encoding="utf-8"))
    for name, instance in content["instances"].items():
        problem = knapsack.interdiction(instance)
        problem.name = name
        for seed in seeds:
            yield counted("interdiction", problem, seed, instance["best"], SOLVES)


def smd(seeds: Sequence[int]) -> Iterator[Row]:
    for number, seed in product(range(1, 10), seeds):
        for name in (f"smd{number}-int", f"smd{number}"):
            yield at_target("smd", name, seed)


def at_target(part: str, name: str, seed: int, **options: Any) -> Row:
    """Run a problem of a suite until its optimum is met, as the published figures do."""
    problem = bilevo.problems.get(name)
    assert problem.optimum is not None
    result = bilevo.minimize(problem, rng=seed, **options)
    goal = problem.optimum.F
    right = bool(result.feasible) and abs(result.F - goal) <= 1e-5
    return Row(part, name, result.method, seed, result.F, goal, result.nfev, right, result.success)


class Decoded(DRC):
    """DRC-CMA-ES without margin: it searches the decoded box."""

    whole = False


def cma(seeds: Sequence[int]) -> Iterator[Row]:
    margin, decoded = DRC(), Decoded()
    for number, seed in product(range(1, 10), seeds):
        for label, method in (("with margin", margin), ("decoded box", decoded)):
            row = at_target("cma", f"smd{number}-int", seed, method=method, max_evals=MOST_CMA)
            yield replace(row, method=label)


PARTS: dict[str, Callable[[Sequence[int]], Iterator[Row]]] = {
    "newcomer": newcomer,
    "roads-10": small_roads,
    "roads-20": large_roads,
    "interdiction": interdiction,
    "smd": smd,
    "random": random,
    "cma": cma,
}


def summary(rows: Sequence[Row]) -> str:
    """Return one line about the runs of one problem by one method."""
    right, count = sum(row.right for row in rows), len(rows)
    wrong = sum(row.success and not row.right for row in rows)
    spent = [row.spent for row in rows]
    return (
        f"{rows[0].problem:14} {rows[0].method:14} right {right} of {count}, wrong with success "
        f"{wrong}, spent {median(spent):,.0f} (at most {max(spent):,})"
    )


def read(path: Path) -> list[Row]:
    """Return the runs that a file holds; none if there is no file."""
    if not path.exists():
        return []
    kinds: dict[str, Callable[[str], Any]] = {"F": float, "goal": float, "seed": int, "spent": int}
    kinds |= {name: lambda word: word == "True" for name in ("right", "success")}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**{name: kinds.get(name, str)(value) for name, value in line.items()})
            for line in csv.DictReader(file)
        ]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write runs to a file; they replace those of the same parts."""
    made = {row.part for row in rows}
    kept = [row for row in read(path) if row.part not in made]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in [*kept, *rows]:
            writer.writerow({**asdict(row), "F": f"{row.F:.8g}", "goal": f"{row.goal:.8g}"})


def main(arguments: list[str] | None = None) -> int:
    parser = ArgumentParser("python -m benchmarks.whole_numbers", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all of them by default")
    parser.add_argument("--seed", type=int, default=9601, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    parser.add_argument("--csv", type=Path, help="where runs are stored")
    parser.add_argument("--page", action="store_true", help="make the tables of the page")
    options = parser.parse_args(arguments)
    if options.page:
        from benchmarks import whole_numbers_page

        whole_numbers_page.make()
        return 0
    seeds = range(options.seed, options.seed + options.seeds)
    for part in options.parts or PARTS:
        say(f"\n{part}")
        rows: list[Row] = []
        for row in PARTS[part](seeds):
            changed = rows and (row.problem, row.method) != (rows[-1].problem, rows[-1].method)
            if changed and part != "random":
                report(rows, rows[-1])
            rows.append(row)
        report(rows, rows[-1])
        if options.csv is not None:
            write(options.csv, rows)
    return 0


def report(rows: Sequence[Row], like: Row) -> None:
    """Print a line about the last runs: those of one problem and method."""
    alike = [r for r in rows if (r.problem, r.method) == (like.problem, like.method)]
    say(summary(rows if like.part == "random" else alike))


if __name__ == "__main__":
    sys.exit(main())
