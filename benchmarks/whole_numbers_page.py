"""Make the tables of docs/whole_numbers.md from docs/data/whole_numbers.csv."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from benchmarks.whole_numbers import BUDGETS, Row, network, read
from bilevo.lab.show.documents import filled, marked
from bilevo.lab.show.formats import Lines, show

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DATA = DOCS / "whole_numbers.md", DOCS / "data" / "whole_numbers.csv"
MARKED = marked(r"([\w-]+)")


def make() -> None:
    """Write the tables of the page; those without runs stay as they are."""
    rows = read(DATA)

    def table(part: str) -> str:
        own = [row for row in rows if row.part == part]
        if not own:
            return ""
        lines = road_table(own) if part.startswith("roads") else plain_table(own)
        return show(lines, markdown=True)

    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(text, MARKED, table, like="roads-10"), encoding="utf-8")


def road_table(rows: Sequence[Row]) -> Lines:
    """Return a line for each instance and budget, with the published F beside that of runs."""
    content = network()["instances"]
    lines = [["instance", "budget", "published", "least F of runs", "at the goal", "equilibria"]]
    for instance in (name for name in content if name.startswith(rows[0].part[-2:])):
        for budget in BUDGETS:
            name = f"roads-{instance}-{budget / 100:g}"
            own = [row for row in rows if row.problem == name]
            if own:
                printed = content[instance]["published"][str(budget)]
                found = f"{min(row.F for row in own):.2f}"
                lines.append([instance, f"{budget}%", f"{printed}", found, *counts(own)])
    return lines


def plain_table(rows: Sequence[Row]) -> Lines:
    """Return a line for each problem and method."""
    lines = [["problem", "method", "right", "spent", "wrong with success"]]
    random = rows[0].part == "random"
    order = sorted(rows, key=lambda row: ("" if random else row.problem, row.method))
    for (_, method), group in groupby(
        order, key=lambda row: ("" if random else row.problem, row.method)
    ):
        own = list(group)
        name = f"{len(own)} random problems" if random else own[0].problem
        wrong = sum(row.success and not row.right for row in own)
        lines.append([name, method, *counts(own), str(wrong)])
    return lines


def counts(rows: Sequence[Row]) -> list[str]:
    """Return how many runs are right, and what they have spent: the median and the most."""
    spent = [row.spent for row in rows]
    words = f"{median(spent):,.0f}"
    if len(spent) > 1:
        words += f" (at most {max(spent):,})"
    return [f"{sum(row.right for row in rows)} of {len(rows)}", words]
