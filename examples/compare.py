"""Show what bilevo does, in half a minute; `scripts/demo` runs this file.

    python examples/compare.py                    both parts
    python examples/compare.py smd7 gold-mining   only the comparison, on these problems

Part 1 solves a small problem whose follower often gets a wrong answer, and verifies the answers.
Part 2 counts what three methods spend on problems of the suites. Every number is computed here.
"""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

import bilevo

METHODS = ("bl-cma-es", "drc-cma-es", "drc-plus")
PROBLEMS = ("smd1", "smd12")
SEED = 1
SEEDS = range(1, 11)  # the seeds of the runs in part 1
LIMIT = 20_000  # how many evaluations a run in part 1 may make
CLOSE = 1e-4  # an answer counts as right if its follower gap is at most this
MAX_BAR = 8  # the length of the longest bar, in characters

rippled = bilevo.Problem(
    lambda x, y: (x[0] - 1) ** 2 + (y[0] - x[0] - 2) ** 2,
    lambda x, y: (y[0] - x[0]) ** 2 + 3 * (1 - math.cos(2 * math.pi * (y[0] - x[0]))),
    [(-5, 10)],
    [(-5, 10)],
    name="rippled",
)


@dataclass(frozen=True)
class Run:
    """The answer of a method to a problem, its verification, and the evaluations for each x."""

    result: bilevo.Result
    certificate: bilevo.Certificate
    spent: Counter[bytes]  # how often f was evaluated at each x, in the order of first trials

    @property
    def wrong(self) -> bool:
        return not self.certificate.follower_gap <= CLOSE

    @property
    def typical(self) -> float:
        """Return the median number of evaluations of f for one x."""
        return median(self.spent.values())


def run(problem: bilevo.Problem, method: str, seed: int, limit: int | None = None) -> Run:
    """Solve a problem, verify the answer, and count the evaluations of f at each x."""
    spent: Counter[bytes] = Counter()

    def f(x: np.ndarray, y: np.ndarray) -> object:
        spent.update(row.tobytes() for row in np.atleast_2d(x))
        return problem.f(x, y)

    watched = copy(problem)
    watched.f = f
    result = bilevo.minimize(watched, method=method, rng=seed, max_evals=limit)
    return Run(result, bilevo.verify(problem, result), spent)


def show_wrong_answer(console: Console) -> None:
    """Show a run whose follower did not really answer, and how often that happens."""
    console.print("[bold]1. An answer that is too good to be true[/]\n")
    console.print(
        "The leader chooses x, and would like the follower to answer y = x + 2. The follower "
        "prefers y = x. But its objective f has ripples, and a search for the best y can end in "
        "a dip near y = x + 1.\n"
    )
    published, default = (
        [run(rippled, method, seed, LIMIT) for seed in shown_seeds(console, method)]
        for method in ("drc-cma-es", "drc-plus")
    )
    if wrong := [made for made in published if made.wrong]:
        found, truth = wrong[0].result, wrong[0].certificate
        console.print(
            f"  drc-cma-es reports   x = {found.x[0]:.2f}, y = {found.y[0]:.2f}, "
            f"f = {found.f:.2f}, F = {found.F:.2f}   (seed {found.seed})\n"
            f"  verification finds   x = {found.x[0]:.2f}, y = {truth.y[0]:.2f}, "
            f"f = {truth.f:.2f}, F = {truth.F:.2f}\n"
        )
        console.print(
            f"At this x the follower has a better answer: its f falls to {truth.f:.2f}. So the "
            f"leader really gets F = {truth.F:.2f}, not {found.F:.2f}. The run's search for y "
            "had ended in the dip. That error makes F smaller, so the leader's search was drawn "
            "to it, and the method cannot know that. So its result is no success until "
            "bilevo.verify has solved the follower again from independent starts; that is how the "
            "error is found.\n"
        )
    for method, runs in (("drc-cma-es", published), ("drc-plus", default)):
        count = sum(made.wrong for made in runs)
        console.print(f"  {method:<10}  wrong answers in {count} of {len(runs)} runs")
    console.print(
        "\ndrc-plus is the default. Before it ends, it checks its answer by independent searches, "
        "whose evaluations are counted.\n"
    )


def shown_seeds(console: Console, method: str) -> Iterator[int]:
    """Yield the seeds of part 1 one by one, and show the progress on the terminal."""
    with console.status(f"{method}: {len(SEEDS)} runs, each verified"):
        yield from SEEDS


def compare(console: Console, name: str) -> dict[str, Run]:
    """Show what each method spends on a problem, and whether its answer is right."""
    problem = bilevo.problems.get(name)
    with console.status(f"{name}: {len(METHODS)} runs, each verified"):
        runs = {method: run(problem, method, SEED) for method in METHODS}
    most = max(made.result.nfev for made in runs.values())
    mark = "█" if "utf" in (console.encoding or "").lower() else "#"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in (name, "evaluations", "", "x tried", "f per x", "F", "answer"):
        left = column in {name, "", "answer"}
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for method, made in runs.items():
        table.add_row(
            method,
            f"{made.result.nfev:,}",
            mark * max(1, round(MAX_BAR * made.result.nfev / most)),
            f"{len(made.spent):,}",
            f"{made.typical:.0f}",
            f"{made.certificate.F:.3f}",
            f"wrong by {made.certificate.follower_gap:.2g}" if made.wrong else "right",
        )
    console.print(table)
    console.print()
    return runs


def explain(console: Console, runs: dict[str, Run]) -> None:
    """Say why the three methods need such different numbers of evaluations on one problem."""
    complete, competing, learning = (runs[method] for method in METHODS)
    first, answer = next(iter(learning.spent.values())), learning.spent[learning.result.x.tobytes()]
    share = learning.result.nfev / competing.result.nfev
    for text in (
        f"Why does drc-plus need {share:.2f} of the evaluations of drc-cma-es on {PROBLEMS[0]}? "
        "Every x that the leader tries needs a search for the follower's answer.",
        f"* bl-cma-es finishes every search: {complete.typical:.0f} evaluations of f for one x.",
        "* drc-cma-es lets the searches compete, and stops hopeless ones early: "
        f"{competing.typical:.0f} for one x.",
        f"* drc-plus spends {first} evaluations on its first follower. Later it predicts answers "
        f"from those at neighbouring x, and corrects them: {learning.typical:.0f} for one x. So it "
        "can afford to measure how F changes around x, and go downhill: it tries "
        f"{len(learning.spent)} different x instead of {len(competing.spent)}. Independent "
        f"searches then check the answer, with {answer} evaluations.",
    ):
        console.print(text)
    console.print()


def main(arguments: list[str]) -> None:
    parser = ArgumentParser(
        description="Show how verification finds a wrong answer, and compare three methods."
    )
    parser.add_argument("problems", nargs="*", help="only compare, on these problems (smd7 ...)")
    names = parser.parse_args(arguments).problems
    console = Console(file=sys.stdout, highlight=False)
    if not names:
        show_wrong_answer(console)
        console.print("[bold]2. What an answer costs[/]\n")
    first, *_ = [compare(console, name) for name in names or PROBLEMS]
    console.print(
        "evaluations  of both levels; a run ends early if F reaches the known optimum\n"
        "x tried      how many different x the leader tried; each needs an answer\n"
        "f per x      the median number of evaluations of f for one x\n"
        "F            the verified value\n"
        "answer       'wrong by d': the follower can lower f by d, even if F looks right\n"
    )
    if not names:
        explain(console, first)
    console.print("Go on with docs/quick_start.md. Where the default fails: docs/methods.md")


if __name__ == "__main__":
    main(sys.argv[1:])
