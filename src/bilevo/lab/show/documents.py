"""Documents that hold tables: `python -m bilevo.lab.show.documents PAGE...` updates the tables.

A table is between two marks, and only the text between the marks is replaced. In a page about runs
the first mark has the arguments of `bilevo table`, with paths relative to the working directory:

    <!-- table: results/quick --kind accuracy -->
    <!-- end -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

LIKE = "results/quick --kind accuracy"


def marked(name: str) -> re.Pattern[str]:
    """Return a pattern that finds marked tables; `name` is a pattern for their names."""
    return re.compile(rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def filled(text: str, pattern: re.Pattern[str], made: Callable[..., str], like: str) -> str:
    """Return a document whose `marked` tables are replaced by what `made` returns for their names.

    If `made` returns an empty text, the table stays as it is. `like` is an example of a right name,
    which the error about a wrong mark shows.
    """

    def fill(match: re.Match[str]) -> str:
        begin, *name, _, end = match.groups()
        new = made(*name)
        return f"{begin}\n{new}\n\n{end}" if new else match.group()

    new, count = pattern.subn(fill, text)
    if count != text.count("<!-- table:"):
        raise ValueError(f"a table has no end, or its mark is not like <!-- table: {like} -->")
    return new


def with_new_tables(text: str) -> str:
    """Return a page with new tables, each made by `bilevo table` with the arguments of its mark."""
    return filled(text, marked("(.*?)"), table_in_markdown, like=LIKE)


def table_in_markdown(arguments: str) -> str:
    """Return the output of `bilevo table` in Markdown."""
    from cyclopts import App

    from bilevo.lab.commands import table

    app = App()
    app.default(table)
    words = [*shlex.split(arguments), "--format", "markdown"]
    output = StringIO()
    with redirect_stdout(output):
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    return output.getvalue().strip()


def write_tables(*pages: Path) -> None:
    """Update the tables of pages from stored runs.

    Parameters
    ----------
    pages
        Markdown files with marks for tables.
    """
    for page in pages:
        page.write_text(with_new_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    from cyclopts import run

    run(write_tables)
