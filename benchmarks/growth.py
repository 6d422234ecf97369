"""How the costs of drc-plus grow with the number of variables at each level.

    python -m benchmarks.growth --run       make the runs, and store them in docs/data/growth.csv
    python -m benchmarks.growth             make the table and the picture of docs/growth.md

All runs know the optimum, which ends them, and include the certificate. The exponent is the slope
of a line through the medians, over the number of variables, both as logarithms.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import sizes
from benchmarks.rows import read_rows, write_rows
from benchmarks.timing import in_processes, say
from bilevo.lab.show.documents import filled, marked
from bilevo.lab.show.formats import Lines, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DATA, PICTURE = DOCS / "growth.md", DOCS / "data/growth.csv", DOCS / "pictures/growth.svg"
PROBLEMS = ("smd1", "smd2", "smd3", "smd5", "quadratic")
SIZES = (5, 10, 20, 50, 100)
SEEDS = (76_001, 76_002, 76_003)
MARKED = marked(r"(growth)")
COLOURS = ("#14483a", "#2a7f62", "#b5651d", "#d9a05b", "#4a6fa5")


@dataclass(frozen=True, slots=True)
class Row:
    """One run with `size` variables at each level."""

    problem: str
    size: int
    seed: int
    solved: bool
    evaluations: int
    seconds: float  # of processor time outside the problem's functions


def carry_out(task: tuple[str, int, int]) -> Row:
    """Make one run."""
    problem, size, seed = task
    row = sizes.carry_out((problem, seed, False), size, size, {})
    return Row(problem, size, seed, row.solved, row.evaluations, row.own)


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of a line through logarithms of costs over those of sizes."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def costs(rows: Sequence[Row], problem: str, what: str) -> dict[int, float]:
    """Return the median cost by size; `what` is a field of the rows."""
    found = {}
    for size in sorted({row.size for row in rows if row.problem == problem}):
        some = [row for row in rows if (row.problem, row.size) == (problem, size)]
        found[size] = float(median(getattr(row, what) for row in some))
    return found


def table(rows: Sequence[Row]) -> Lines:
    """Return a line per problem and cost, with a column per size and the exponent."""
    every = sorted({row.size for row in rows})
    lines = [["problem", "solved", "cost", *(f"n = {size}" for size in every), "exponent"]]
    for problem in dict.fromkeys(row.problem for row in rows):
        own = [row for row in rows if row.problem == problem]
        solved = f"{sum(row.solved for row in own)} of {len(own)}"
        for what, unit, form in (("evaluations", "evaluations", ".0f"), ("seconds", "s", ".2f")):
            found = costs(rows, problem, what)
            cells = [f"{found[size]:{form}}" if size in found else "-" for size in every]
            slope = f"{exponent(list(found), list(found.values())):.1f}"
            lines.append([problem, solved, unit, *cells, slope])
    return lines


def draw(rows: Sequence[Row]) -> Figure:
    """Draw evaluations and processor time over the number of variables."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = {"evaluations": "evaluations of a run", "seconds": "its own processor time, s"}
    for ax, (what, title) in zip(panels, titles.items(), strict=True):
        for problem, colour in zip(PROBLEMS, COLOURS, strict=True):
            found = costs(rows, problem, what)
            ax.plot(list(found), list(found.values()), "o-", color=colour, label=problem)
        ax.set(xscale="log", yscale="log", xlabel="variables at each level", title=title)
        ax.set_xticks(SIZES, [str(size) for size in SIZES])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=5, frameon=False)
    return figure


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.growth", description="growth of costs")
    parser.add_argument("--run", action="store_true", help="make the runs first")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    if given.run:
        tasks = [(problem, n, seed) for n in SIZES for problem in PROBLEMS for seed in SEEDS]
        write_rows(DATA, in_processes(partial(carry_out), tasks, given.jobs), digits=4)
    rows = read_rows(DATA, Row)
    lines = table(rows)
    text = PAGE.read_text(encoding="utf-8")
    made = filled(text, MARKED, lambda name: show(lines, markdown=True), like="growth")
    PAGE.write_text(made, encoding="utf-8")
    draw(rows).savefig(PICTURE, metadata={"Date": None})
    say(show(lines, markdown=False))


if __name__ == "__main__":
    main()
