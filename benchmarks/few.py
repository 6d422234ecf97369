"""Small budgets: how good answers are after 50 to 1,000 evaluations, beside what experts write.

    python -m benchmarks.few --set suite one --jobs 2 --csv docs/data/few.csv
    python -m benchmarks.few --csv docs/data/few.csv            # shows the tables of stored runs
    python -m benchmarks.few --csv docs/data/few.csv --picture docs/pictures/few.svg

A run has a limit on the evaluations of both levels together, and does not know the optimum. Its
answer (x, y) is judged by SciPy and by the problem's formulas, with evaluations that nobody counts.
Its error is the larger one of |F(x, y) - F*| and |F(x, y*(x)) - F*|, where y*(x) is the follower's
true answer. So an answer whose follower is not solved gains nothing. A pair that violates
constraints by more than 1e-6 has an infinite error.

Errors of the set `suite` are relative to max(1, |F*|), and those of the set `one`, problems of one
variable at each level, to |phi(centre of the box) - F*|.

    default         bilevo.minimize, which chooses its method by the limit
    drc-plus, few   these methods, for comparison
    slsqp, cobyqa   multi-start nested SLSQP and COBYQA over x (see benchmarks.expert)
    brent           two nested bounded Brent searches of SciPy (one variable at each level only)
    random          leaders drawn at random, each with answers drawn at random
"""

from __future__ import annotations

import csv
import math
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import bilevo
from benchmarks.expert import run_cobyqa_until_spent
from benchmarks.follower_judge import MAX_VIOLATION, largest, slsqp_answer
from benchmarks.nested_scipy import NestedSLSQP, OutOfEvaluationsError
from benchmarks.timing import in_processes, say
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.lab.show.formats import show

LIMITS = (50, 100, 200, 500, 1000)
FIRST_SEED = 61_001
SOLVED = 1e-2  # An answer is good if its relative error is at most this.
JUDGE_STARTS = 12  # Random starts of the judge, which searches the follower's true answer.
README_F = 1.90125  # at x = 2.025, y = 1.975
GOLD_F = -314.2206  # The best F of gold mining, which its authors do not give.
SUITE = [f"smd{i}" for i in range(1, 9)] + [f"tp{i}" for i in range(1, 9)] + ["gold-mining"]
# Problems of the literature of one variable at each level whose follower has one basin at all x,
# and the problem of README.md.
ONE = [
    "readme",
    "calamaivicente1994a",
    "clarkwesterberg1990a",
    "colson2002bipa2",
    "colson2002bipa4",
    "dempe1992b",
    "gumusfloudas2001ex1",
    "gumusfloudas2001ex4",
    "henrionsurowiec2011",
    "lampariellosagratella2017ex32",
    "lampariellosagratella2017ex35",
    "macalhurter1997",
    "mitsosbarton2006ex39",
    "morganpatrone2006b",
    "sahinciric1998ex2",
    "shimizuetal1997b",
    "yezza1996ex31",
]
SETS = {"suite": SUITE, "one": ONE}

Answer = tuple[FloatArray, FloatArray]


def F_of_readme(x: FloatArray, y: FloatArray) -> Any:
    return (x[..., 0] - 3) ** 2 + (y[..., 0] - 1) ** 2


def f_of_readme(x: FloatArray, y: FloatArray) -> Any:
    return (y[..., 0] - x[..., 0]) ** 2 + 0.1 * y[..., 0]


@cache
def problem_of(name: str) -> Problem:
    """Return a problem by name; `readme` is the one of README.md."""
    if name == "readme":
        box = [(-5, 10)]
        return Problem(F_of_readme, f_of_readme, box, box, vectorized=True, name="readme")
    return bilevo.problems.get(name)


@cache
def best_F(name: str) -> float:
    """Return the best F of a problem."""
    problem = problem_of(name)
    if name == "gold-mining":
        return GOLD_F
    return README_F if problem.optimum is None else problem.optimum.F


def phi(
    problem: Problem, x: FloatArray, near: FloatArray, starts: int = JUDGE_STARTS
) -> tuple[float, FloatArray]:
    """Return F at the follower's true answer to x, and that answer."""
    if problem.response is not None:
        y = problem.response(x[None])[0]
        if np.isfinite(y).all():
            return float(problem.values(Level.UPPER, x[None], y[None])[0][0]), y
    box = problem.y_bounds
    drawn = np.random.default_rng(7).uniform(box.lower, box.upper, (starts, box.size))
    ends = []
    for start in (near, *drawn):
        y = slsqp_answer(problem, x, start)
        f, g = problem.values(Level.LOWER, x[None], y[None])
        if largest(g) <= MAX_VIOLATION and math.isfinite(f[0]):
            ends.append((float(f[0]), y))
    if not ends:
        return math.inf, near
    least = min(f for f, _ in ends)
    ties = [y for f, y in ends if f - least <= 1e-7 * max(1.0, abs(least))]
    values = [float(problem.values(Level.UPPER, x[None], y[None])[0][0]) for y in ties]
    return min(zip(values, ties, strict=True), key=lambda pair: pair[0])


def error_of(name: str, answer: Answer | None) -> float:
    """Return the relative error of an answer."""
    problem, best = problem_of(name), best_F(name)
    if answer is None or not np.isfinite(np.concatenate(answer)).all():
        return math.inf
    x, y = answer
    F, G, _, g = problem.evaluate(x, y)
    if max(largest(G), largest(g)) > MAX_VIOLATION:
        return math.inf
    true, _ = phi(problem, x, y)
    return max(abs(float(F[0]) - best), abs(true - best)) / unit_of(name)


@cache
def unit_of(name: str) -> float:
    """Return the unit of a problem's errors."""
    usual = max(1.0, abs(best_F(name)))
    if name in SUITE:
        return usual
    problem = problem_of(name)
    x, y = (box.lower + box.width / 2 for box in (problem.x_bounds, problem.y_bounds))
    gained = abs(phi(problem, x, y)[0] - best_F(name))
    return gained if 1e-9 < gained < math.inf else usual  # the centre may be the optimum


def run_bilevo(method: str | None) -> Callable[[Problem, int, int], Answer | None]:
    def run(problem: Problem, seed: int, limit: int) -> Answer | None:
        found = bilevo.minimize(
            problem, method=method, rng=seed, max_evals=limit, target=False, on_failure="worst"
        )
        return found.x, found.y

    return run


def run_nested(problem: Problem, seed: int, limit: int) -> Answer | None:
    run = NestedSLSQP(problem, limit, seed, random_starts=0, final_starts=0)
    run.run()
    return None if run.best is None else (run.best.x, run.best.y)


def run_cobyqa(problem: Problem, seed: int, limit: int) -> Answer | None:
    run = NestedSLSQP(problem, limit, seed, random_starts=0, final_starts=0)
    with suppress(OutOfEvaluationsError):
        run_cobyqa_until_spent(run)
    return None if run.best is None else (run.best.x, run.best.y)


def run_random(problem: Problem, seed: int, limit: int) -> Answer | None:
    """Draw about sqrt(limit) leaders, and as many answers to each."""
    rng, answers = np.random.default_rng([seed, 79]), max(1, round(math.sqrt(limit)))
    best: tuple[tuple[float, float], Answer] | None = None
    left = limit
    while left > answers:
        x = rng.uniform(problem.x_bounds.lower, problem.x_bounds.upper)
        y = rng.uniform(problem.y_bounds.lower, problem.y_bounds.upper, (answers, problem.n))
        f, g = problem.values(Level.LOWER, np.repeat(x[None], answers, axis=0), y)
        violation = np.maximum(g, 0).sum(axis=1)
        i = int(np.lexsort((f, violation))[0])
        F, G = problem.values(Level.UPPER, x[None], y[i : i + 1])
        rank = float(violation[i] + np.maximum(G, 0).sum()), float(F[0])
        if best is None or rank < best[0]:
            best = rank, (x, y[i])
        left -= answers + 1
    return None if best is None else best[1]


def run_brent(problem: Problem, seed: int, limit: int) -> Answer | None:
    """Search phi by bounded Brent, with each follower by bounded Brent; penalties for constraints.

    The tolerances are those with which it did best at 120 evaluations.
    """
    from scipy.optimize import minimize_scalar

    left = [limit]
    best: list[tuple[tuple[float, float], Answer | None]] = [((math.inf, math.inf), None)]
    x_box, y_box = problem.x_bounds, problem.y_bounds

    def value(level: Level, x: float, y: float) -> tuple[float, float]:
        if not left[0]:
            raise OutOfEvaluationsError
        left[0] -= 1
        v, c = problem.values(level, np.array([[x]]), np.array([[y]]))
        return float(v[0]), float(np.maximum(c, 0).sum())

    def search(function: Callable[[float], float], box: Any, xatol: float) -> float:
        ends = float(box.lower[0]), float(box.upper[0])
        options = {"xatol": xatol * (ends[1] - ends[0])}
        return float(minimize_scalar(function, ends, bounds=ends, options=options).x)

    def phi(x: float) -> float:
        def f(y: float) -> float:
            v, c = value(Level.LOWER, x, y)
            return v + 1e3 * c

        y = search(f, y_box, 1e-4)
        F, G = value(Level.UPPER, x, y)
        if best[0][0] > (G, F):
            best[0] = (G, F), (np.array([x]), np.array([y]))
        return F + 1e3 * G

    with suppress(OutOfEvaluationsError):
        search(phi, x_box, 1e-4)
    return best[0][1]


RUNS: dict[str, Callable[[Problem, int, int], Answer | None]] = {
    "default": run_bilevo(None),
    "drc-plus": run_bilevo("drc-plus"),
    "few": run_bilevo("few"),
    "slsqp": run_nested,
    "cobyqa": run_cobyqa,
    "brent": run_brent,
    "random": run_random,
}


ORDER = {name: number for number, name in enumerate(RUNS)}


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make."""

    problem: str
    method: str
    limit: int
    seed: int


@dataclass(frozen=True, slots=True)
class Row:
    """A run, and the relative error of its answer."""

    problem: str
    method: str
    limit: int
    seed: int
    error: float


def carry_out(task: Task) -> Row:
    """Make a run and judge its answer."""
    answer = RUNS[task.method](problem_of(task.problem), task.seed, task.limit)
    return Row(**asdict(task), error=error_of(task.problem, answer))


def shares(rows: Sequence[Row]) -> list[list[str]]:
    """Return, by problem, how many runs of each method and limit have a good answer."""
    cells = sorted({(row.limit, row.method) for row in rows}, key=lambda c: (c[0], ORDER[c[1]]))
    lines = [["problem", *(f"{method}, {limit}" for limit, method in cells)]]
    for name in dict.fromkeys(row.problem for row in rows):
        lines.append([name, *(_share(rows, name, *cell) for cell in cells)])
    return [*lines, ["all", *(_share(rows, None, *cell) for cell in cells)]]


def _share(rows: Sequence[Row], name: str | None, limit: int, method: str) -> str:
    own = [
        row.error
        for row in rows
        if (row.limit, row.method) == (limit, method) and name in (None, row.problem)
    ]
    good = sum(error <= SOLVED for error in own)
    if not own:
        return "-"
    return f"{good / len(own):.0%}" if name is None else f"{good} of {len(own)}"


def medians(rows: Sequence[Row]) -> list[list[str]]:
    """Return, by limit and method, for how many problems the median error is good."""
    lines = [["limit", "method", "problems", "with a good median", "which"]]
    for limit in sorted({row.limit for row in rows}):
        for method in (name for name in RUNS if any(row.method == name for row in rows)):
            own = [row for row in rows if (row.limit, row.method) == (limit, method)]
            names = dict.fromkeys(row.problem for row in own)
            good = [n for n in names if median(r.error for r in own if r.problem == n) <= SOLVED]
            if names:
                told = [str(limit), method, str(len(names)), str(len(good)), " ".join(good)]
                lines.append(told)
    return lines


GROUPS = {
    "one and one variable": ONE,
    "two and two variables (TP)": [name for name in SUITE if name[:2] == "tp" and name != "tp4"],
    "two and three variables (SMD)": [name for name in SUITE if name[:3] == "smd"],
}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the median of all errors of a method over the evaluations, by the number of variables.

    A median that is infinite is not drawn: most answers then violate constraints.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    axes = figure.subplots(1, len(GROUPS), sharey=True)
    for ax, (title, names) in zip(axes, GROUPS.items(), strict=True):
        for number, method in enumerate(RUNS):
            errors: dict[int, list[float]] = {}
            for row in rows:
                if row.method == method and row.problem in names:
                    errors.setdefault(row.limit, []).append(row.error)
            middle = {limit: median(errors[limit]) for limit in sorted(errors)}
            drawn = {limit: max(e, 1e-12) for limit, e in middle.items() if math.isfinite(e)}
            ax.plot(list(drawn), list(drawn.values()), "o-", color=f"C{number}", label=method)
        ax.axhline(SOLVED, color="#888888", linewidth=0.8, linestyle=":")
        ax.set(xscale="log", yscale="log", xlabel="evaluations", title=title)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("median error")
    lines = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        if len(handle.get_xdata())
    }
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def read(path: Path) -> list[Row]:
    """Return the stored runs."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(
                row["problem"],
                row["method"],
                int(row["limit"]),
                int(row["seed"]),
                float(row["error"]),
            )
            for row in csv.DictReader(file)
        ]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Store runs."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows({**asdict(row), "error": f"{row.error:.3g}"} for row in rows)


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.few", description="small budgets")
    parser.add_argument("--set", choices=tuple(SETS), nargs="+", default=[], help="what to run")
    parser.add_argument("--methods", nargs="+", choices=tuple(RUNS), default=list(RUNS))
    parser.add_argument("--limits", type=int, nargs="+", default=list(LIMITS))
    parser.add_argument("--runs", type=int, default=11, help="runs of a problem")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="seed of the first run")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--picture", type=Path, help="a file for the picture of errors")
    parser.add_argument("--csv", type=Path, help="a file that keeps the rows")
    given = parser.parse_args()
    tasks = [
        Task(name, method, limit, given.seed + i)
        for chosen in given.set
        for name in SETS[chosen]
        for method in given.methods
        if method != "brent" or chosen == "one"
        for limit in given.limits
        for i in range(given.runs)
    ]
    new = in_processes(carry_out, tasks, given.jobs) if tasks else []
    made = {(row.problem, row.method, row.limit) for row in new}
    old = [] if given.csv is None else read(given.csv)
    rows = [row for row in old if (row.problem, row.method, row.limit) not in made] + new
    if given.csv is not None and new:
        write(given.csv, rows)
    for names, table in ((SUITE, medians), (ONE, shares)):
        some = [row for row in rows if row.problem in names]
        if some:
            say(show(table(some), markdown=True))
    if given.picture is not None:
        draw(rows, given.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
