"""Tables as pages show them: cells with sort keys, marks and what filters need to know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bilevo.lab.analysis.table_parts import Cell, Table
from bilevo.lab.show import formats

MEANINGS = {
    "+": "the reference is significantly better",
    "-": "the reference is significantly worse",
    "=": "no significant difference to the reference",
}
DOUBTFUL = "at least half of the runs gave no good answer"


class PageCell(NamedTuple):
    """A cell of a table, as the page shows it."""

    shown: str
    kind: str = "text"
    value: str | None = None  # the sort key: None for its text, empty for no value
    mark: str = ""
    meaning: str = ""
    beside: tuple[str, ...] = ()
    best: bool = False
    doubt: str = ""
    doubt_meaning: str = DOUBTFUL
    method: str | None = None  # the method that the cell is about, for filters


class PageColumn(NamedTuple):
    """The head of a column: its name, the kind of its cells, and the method it is about."""

    name: str
    kind: str = "text"
    method: str | None = None


class PageRow(NamedTuple):
    """A row; `about` has the problem, the size or the method that it is about, for filters."""

    cells: list[PageCell]
    about: dict[str, str]


class PageTable(NamedTuple):
    """A table as the page shows it; rows in `foot` stay at the end when others are sorted."""

    name: str
    title: str
    columns: list[PageColumn]
    body: list[PageRow]
    foot: list[PageRow]
    notes: list[str]


def shown_table(table: Table, methods: Mapping[str, str]) -> PageTable:
    """Return a table of results as the page shows it.

    `methods` has the methods by their labels: a column is about a method if its head is the label,
    or begins with the label and a colon. A row is about a method if its first cell is the label.
    """
    owners = [_owner(head, methods) for head in table.header]
    rows = [_shown_row(table, row, owners, methods) for row in table.rows]
    last = len(rows) - table.closing
    kinds = [cell.kind for cell in rows[0].cells] if rows else ["text"] * len(owners)
    columns = [PageColumn(*column) for column in zip(table.header, kinds, owners, strict=True)]
    return PageTable(table.name, table.title, columns, rows[:last], rows[last:], table.notes)


def text_table(title: str, kinds: Mapping[str, str], lines: Sequence[Sequence[Any]]) -> PageTable:
    """Return a table of texts; `kinds` has the names and kinds of its columns."""
    body = [
        PageRow(
            [
                PageCell("" if text is None else str(text), kind)
                for text, kind in zip(line, kinds.values(), strict=True)
            ],
            {},
        )
        for line in lines
    ]
    return PageTable("", title, [PageColumn(*pair) for pair in kinds.items()], body, [], [])


def page_cell(cell: Cell | str) -> PageCell:
    """Return a cell of a table of results as the page shows it."""
    if isinstance(cell, str):
        return PageCell(cell)
    said = formats.pieces(cell)
    around = {"IQR": "({})", "saved": "({})", "baseline": "[{}]"}
    number = repr(float(cell.value)).replace("inf", "Infinity")  # as JavaScript reads it
    return PageCell(
        said["value"],
        kind="number",
        value="" if math.isnan(cell.value) else number,
        mark=cell.mark,
        meaning=MEANINGS.get(cell.mark, ""),
        beside=tuple(form.format(said[name]) for name, form in around.items() if said[name]),
        best=cell.best,
        doubt=said["doubt"],
    )


def _owner(head: str, methods: Mapping[str, str]) -> str | None:
    known = [label for label in methods if head == label or head.startswith(f"{label}: ")]
    return methods[max(known, key=len)] if known else None


def _shown_row(
    table: Table,
    row: Sequence[Cell | str],
    owners: Sequence[str | None],
    methods: Mapping[str, str],
) -> PageRow:
    cells = [
        page_cell(cell)._replace(method=owner) for cell, owner in zip(row, owners, strict=True)
    ]
    names = {"problem": "problem", "(m, n)": "size", "method": "method"}
    about = {
        names[head]: methods.get(cell.shown, cell.shown)
        for head, cell in zip(table.header, cells, strict=True)
        if head in names
    }
    return PageRow(cells, about)
