"""Make the tables of docs/literature.md from stored runs, and call for its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.literature import METHODS, NEAR, NEARER, Row, read
from bilevo.lab.show.documents import filled, marked
from bilevo.lab.show.formats import Lines, show
from bilevo.problems.literature import CLASSES

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DATA = DOCS / "literature.md", DOCS / "data" / "literature.csv"
KINDS = ("linear", "convex", "coupled", "nonconvex", "ties")
MARKED = marked(r"(\w+)")
HEADER = ["class", "method", "runs", "within 1e-2", "within 1e-4", "to 1e-2", "to 1e-4"]
HEADER += ["median", "success", "WRONG+SUCCESS"]


def make() -> None:
    """Write the tables and the pictures of the page from the stored runs."""
    from benchmarks import literature_pictures

    rows = read(DATA)
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    literature_pictures.draw_all(rows)


def with_tables(text: str, rows: Sequence[Row]) -> str:
    """Return the page with its tables replaced."""
    tables = {
        "runs": run_table(rows),
        "classes": class_table(rows),
        "misses": miss_table(rows),
        "problems": problem_table(rows),
        "unknown": unknown_table(rows),
    }
    return filled(text, MARKED, lambda name: show(tables[name], markdown=True), like="classes")


def summary(rows: Sequence[Row]) -> str:
    """Return the table of classes as a text for a terminal."""
    return show(class_table(rows), markdown=False)


def run_table(rows: Sequence[Row]) -> Lines:
    """Say how many runs each method made, and with what limit."""
    lines = [["method", "problems", "seeds", "most evaluations of a run"]]
    for method, some in by_method(rows):
        seeds = sorted({row.seed for row in some})
        most = sorted({row.max_evals for row in some})
        problems = len({row.problem for row in some})
        lines.append([method, str(problems), listed(seeds), listed(most)])
    return lines


def class_table(rows: Sequence[Row]) -> Lines:
    """Return a line for each class and method, and for all classes together."""
    lines = [HEADER]
    for kind in (*KINDS, "all"):
        for method, some in by_method(rows):
            chosen = [row for row in some if kind in (row.kind, "all")]
            if chosen:
                lines.append([kind, method, *class_figures(chosen)])
    return lines


def class_figures(rows: Sequence[Row]) -> list[str]:
    """Return the figures of some runs; runs without a known optimum count in the last two only."""
    known = with_optimum(rows)
    right = [sum(row.right for row in rows if row.success), sum(row.success for row in rows)]
    figures = [str(len(known))]
    figures += [share(known, tolerance) for tolerance in (NEAR, NEARER)]
    figures += [expected(known, tolerance) for tolerance in (NEAR, NEARER)]
    figures.append(f"{median(row.nfev for row in known):.0f}" if known else "-")
    return [*figures, str(right[1]), str(right[1] - right[0])]


def share(rows: Sequence[Row], tolerance: float) -> str:
    return f"{np.mean([row.hits(tolerance) for row in rows]):.0%}" if rows else "-"


def expected(rows: Sequence[Row], tolerance: float) -> str:
    """Return the evaluations of all runs, each up to its first hit, divided by the hits."""
    to_hits = [row.evaluations_to(tolerance) for row in rows]
    hits = sum(row.hits(tolerance) for row in rows)
    spent = sum(row.nfev if to is None else to for row, to in zip(rows, to_hits, strict=True))
    return f"{spent / hits:.0f}" if hits else "-"


def miss_table(rows: Sequence[Row]) -> Lines:
    """List the problems on which a run of drc-plus is not within 1e-4 of the optimum."""
    lines = [["problem", "class", "F*", "F", "error", "follower", "end"]]
    for row in with_optimum(rows):
        if row.method == METHODS[0] and not row.hits(NEARER):
            figures = [f"{row.F_star:.6g}", f"{row.F:.6g}", f"{row.error:.1e}"]
            lines.append([row.problem, row.kind, *figures, follower_word(row), end_of(row)])
    return lines


def follower_word(row: Row) -> str:
    if row.right:
        return "right"
    return "infeasible" if row.violation > 1e-6 else "wrong"


def end_of(row: Row) -> str:
    return "success" if row.success else row.status.replace("_", "\\_")


def problem_table(rows: Sequence[Row]) -> Lines:
    """Return, for each problem, hits within 1e-4 and the median evaluations until the first."""
    methods = [method for method, _ in by_method(rows)]
    lines = [["problem", "class", "(m, n)", *methods]]
    for problem, kind in CLASSES.items():
        some = [row for row in with_optimum(rows) if row.problem == problem]
        if some:
            cells = [hits_of([row for row in some if row.method == name]) for name in methods]
            lines.append([problem, kind, f"({some[0].m}, {some[0].n})", *cells])
    return lines


def hits_of(rows: Sequence[Row]) -> str:
    to_hits = [to for row in rows if (to := row.evaluations_to(NEARER)) is not None]
    return f"{len(to_hits)} of {len(rows)}, {median(to_hits):.0f}" if to_hits else "-"


def unknown_table(rows: Sequence[Row]) -> Lines:
    """Return F of the answers to problems whose optimum is not known, and how many are right."""
    methods = [method for method, _ in by_method(rows)]
    lines = [["problem", *methods]]
    for problem in CLASSES:
        some = [row for row in rows if row.problem == problem and np.isnan(row.F_star)]
        if some:
            cells = [answers_of([row for row in some if row.method == name]) for name in methods]
            lines.append([problem, *cells])
    return lines


def answers_of(rows: Sequence[Row]) -> str:
    values = ", ".join(f"{row.F:.4g}" for row in rows)
    return f"{values} ({sum(row.right for row in rows)} of {len(rows)} right)"


def by_method(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows of each method that has any."""
    parts = [(name, [row for row in rows if row.method == name]) for name in METHODS]
    return [(name, some) for name, some in parts if some]


def with_optimum(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not np.isnan(row.F_star)]


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)
