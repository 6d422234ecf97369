"""Make the tables of docs/recipe_ties.md from docs/data/ties.csv and docs/data/ties_cost.csv."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rows import read_rows
from benchmarks.ties import CostRow, Row, cost_table, table
from bilevo.lab.show.documents import filled, marked
from bilevo.lab.show.formats import show

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DATA, COST = DOCS / "recipe_ties.md", DOCS / "data/ties.csv", DOCS / "data/ties_cost.csv"
MARKED = marked(r"([\w-]+)")


def make() -> None:
    """Write the tables of the page."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """Return the page with its tables replaced."""
    tables = {"ties": table(read_rows(DATA, Row)), "cost": cost_table(read_rows(COST, CostRow))}
    return filled(text, MARKED, lambda name: show(tables[name], markdown=True), like="ties")
