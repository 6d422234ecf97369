"""Tables as plain text, Markdown, CSV and LaTeX.

A cell has the median and maybe a sign of doubt, then the interquartile range or the savings of the
reference (in parentheses), the mark, and the baseline's median (in brackets). Names of problems and
methods may come from anybody's files, so each format escapes them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from itertools import groupby
from typing import Any

import numpy as np

from bilevo.core.terminal import on_one_line
from bilevo.lab.analysis.table_parts import DOUBT, GENERAL, SIGNS, Cell, Table

GREY = r"\cellcolor[rgb]{.851,.851,.851}"  # The colour behind the best of a row.
LETTERS = "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ"  # TeX's fonts have these.
IN_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},  # they mean something after \\
    **{letter: f"{{\\char{ord(letter)}}}" for letter in "\"`'"},
}
MARKS_IN_LATEX = {"+": "$+$", "-": "$-$", "=": r"$\approx$"}
BESIDE = ("doubt", "IQR", "mark", "saved", "baseline")
PACKAGES = (r"\usepackage{booktabs,graphicx}", r"\usepackage[table]{xcolor}")

FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20].", re.DOTALL)

Lines = list[list[str]]


def format_tables(tables: Sequence[Table], form: str) -> str:
    """Write tables in one of FORMATS, one after the other; a LaTeX document holds all of them."""
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; known are {', '.join(FORMATS)}")
    return FORMATS[form](tables)


def text(table: Table) -> str:
    """Write aligned columns and notes, with a star at the best of a row."""
    lines = [[on_one_line(head) for head in table.header]]
    lines += [[_on_one_line(cell, on_one_line, "{}*") for cell in row] for row in table.rows]
    notes = [on_one_line(note) for note in table.notes]
    if any(isinstance(cell, Cell) and cell.best for row in table.rows for cell in row):
        notes.append("*: the best of its row.")
    body = [show(lines, markdown=False), ""] if table.rows else []
    return "\n".join([on_one_line(table.title), "", *body, *notes, ""])


def markdown(table: Table) -> str:
    """Write a table in GitHub's Markdown and notes, with the best of a row in bold."""
    lines = [[_in_markdown(head) for head in table.header]]
    lines += [[_on_one_line(cell, _in_markdown, "**{}**") for cell in row] for row in table.rows]
    parts = [show(lines, markdown=True)] if table.rows else []
    return "\n\n".join([*parts, " ".join(_in_markdown(note) for note in table.notes)]) + "\n"


def csv_text(table: Table) -> str:
    """Write a table as CSV with all digits; spreads, marks and baselines have separate columns."""
    columns: Lines = []
    for i, head in enumerate(table.header):
        cells = [_in_full(row[i]) for row in table.rows]
        columns.append([guarded(head), *(cell["value"] for cell in cells)])
        for name in BESIDE:
            if any(cell[name] for cell in cells):
                columns.append([guarded(f"{head}: {name}"), *(cell[name] for cell in cells)])
    return "".join(map(csv_line, zip(*columns, strict=True)))


def latex(table: Table) -> str:
    """Write a LaTeX table, with the best of a row bold on grey; a comment names its packages."""
    return f"% in the preamble: {' '.join(PACKAGES)}\n{_in_float(table)}"


def _in_float(table: Table) -> str:
    first = table.rows[0] if table.rows else table.header
    columns = "".join("l" if isinstance(cell, str) else "c" for cell in first)
    blocks = [list(rows) for _, rows in groupby(table.rows, key=lambda row: row[0])]
    ruled = any(len(block) > 1 for block in blocks)
    body: list[str] = []
    for block in blocks:
        lines = [[_cell_in_latex(cell) for cell in row] for row in block]
        lines[1:] = [["", *line[1:]] for line in lines[1:]]  # the problem's name only once
        body += [r"    \midrule"] if ruled or not body else []
        body += ["    " + " & ".join(line) + r" \\" for line in lines]
    head = " & ".join(_in_latex(head) for head in table.header)
    notes = (rf"  \par\smallskip{{\footnotesize {_in_latex(note)}}}" for note in table.notes)
    return "\n".join(
        [
            r"\begin{table*}[htbp]",
            r"  \centering",
            rf"  \caption{{{_in_latex(table.title)}}}",
            rf"  \label{{table:{table.name}}}",
            r"  \resizebox{\textwidth}{!}{%",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            rf"    {head} \\",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}}",
            *notes,
            r"\end{table*}",
            "",
        ]
    )


def latex_document(tables: Sequence[Table]) -> str:
    """Write a complete LaTeX document with a page for each table.

    The paper is so large that the largest table fits on a page.
    """
    width = 60 + 32 * max(len(table.header) for table in tables)
    height = 80 + 6 * max(len(table.rows) for table in tables)
    lines = [
        r"\documentclass{article}",
        *PACKAGES,
        rf"\usepackage[margin=10mm,paperwidth={width}mm,paperheight={height}mm]{{geometry}}",
        r"\pagestyle{empty}",
        r"\begin{document}",
        "\\clearpage\n".join(map(_in_float, tables)) + r"\end{document}",
    ]
    return "\n".join([*lines, ""])


def _one_by_one(one: Callable[[Table], str]) -> Callable[[Sequence[Table]], str]:
    return lambda tables: "\n".join(map(one, tables))


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "text": _one_by_one(text),
    "csv": _one_by_one(csv_text),
    "latex": _one_by_one(latex),
    "latex-document": latex_document,
    "markdown": _one_by_one(markdown),
}


def show(lines: Lines, markdown: bool) -> str:
    """Write lines of cells as a table; the first line is the header."""
    if markdown:
        rule = ["---"] * len(lines[0])
        return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV, which ends with LF.

    The writer is told to end lines with CR LF, because it then quotes values with a single CR.
    """
    file = StringIO()
    csv.writer(file, lineterminator="\r\n").writerow(values)
    return file.getvalue().removesuffix("\r\n") + "\n"


def guarded(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula.

    Such texts begin with = + - @, a tab or an end of line. A text with apostrophes before such a
    sign gets one more apostrophe, so that `unguarded` gives every text back. A sign alone is no
    formula.
    """
    return f"'{text}" if FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """Remove the apostrophe that `guarded` put before a text."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def pieces(cell: Cell, full: bool = False) -> dict[str, str]:
    """Return the value and the parts BESIDE it as texts, with all digits if `full` is True.

    A part that the cell does not have is an empty text.
    """
    spread = ".4g" if cell.form == GENERAL else cell.form
    numbers = {"IQR": (cell.spread, spread), "saved": (cell.saved, ".1%")}
    numbers["baseline"] = cell.baseline, cell.form
    return {
        "value": cell.written,
        "doubt": DOUBT if cell.doubt else "",
        "mark": cell.mark,
        **{
            name: "" if number is None else repr(float(number)) if full else format(number, form)
            for name, (number, form) in numbers.items()
        },
    }


def _on_one_line(cell: Cell | str, name: Callable[[str], str], best: str) -> str:
    """Write a cell; `name` escapes a name, and `best` is the pattern for the best of a row."""
    if isinstance(cell, str):
        return name(cell)
    said = pieces(cell)
    around = (f"({said[key]})" for key in ("IQR", "saved") if said[key])
    written = name(said["value"]) if cell.named else said["value"]
    value = [written + said["doubt"], *around]
    shown = " ".join([*value, *([said["mark"]] if said["mark"] else [])])
    shown = best.format(shown) if cell.best else shown
    return f"{shown} [{said['baseline']}]" if said["baseline"] else shown


def _in_full(cell: Cell | str) -> dict[str, str]:
    """Return the pieces of a cell for CSV."""
    if isinstance(cell, str):
        return {"value": guarded(cell), **dict.fromkeys(BESIDE, "")}
    value = "" if np.isnan(cell.value) else repr(float(cell.value))
    return {**pieces(cell, full=True), "value": value if cell.text is None else guarded(cell.text)}


def _blanked(name: str) -> str:
    """Return the name on one line, with a space in place of each letter that cannot be printed."""
    return "".join(letter if letter.isprintable() else " " for letter in name)


def _in_markdown(name: str) -> str:
    escaped = re.sub(r"([\\`*|\[\]~#$]|(?<!\w)_|_(?!\w))", r"\\\1", _blanked(name))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _in_latex(name: str) -> str:
    shown = ""
    for letter in _blanked(name):
        known = letter.isascii() or letter in LETTERS
        shown += IN_LATEX.get(letter, letter) if known else f"U+{ord(letter):04X}"
    shown = re.sub("-(?=-)", "-{}", shown)  # LaTeX would print two hyphens as a dash
    return shown.replace(SIGNS, SIGNS.replace("=", MARKS_IN_LATEX["="]))


def _cell_in_latex(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return _in_latex(cell)
    said = {name: _in_latex(shown) for name, shown in pieces(cell).items()}
    around = (f"({said[key]})" for key in ("IQR", "saved") if said[key])
    value = "".join([said["value"], said["doubt"], *around])
    value += MARKS_IN_LATEX.get(cell.mark, "")
    value = rf"{GREY}\textbf{{{value}}}" if cell.best else value
    return f"{value} {{[}}{said['baseline']}{{]}}" if said["baseline"] else value
