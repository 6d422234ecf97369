"""Documents that hold tables: `scripts/tables` makes those of our own pages anew.

A table stands between two marks, and only what stands between them is replaced. In a page on runs
the first mark has the arguments of `bilevo table`, with paths as seen from the root of the project:

    <!-- table: docs/data/runs_2_3.csv --kind accuracy --paper -->
    <!-- end -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

_SITE = ("reproduction", "drc-plus", "tutorial_researcher")
PAGES = tuple(Path(f"docs/{name}.md") for name in _SITE)
LIKE = "docs/data/runs_2_3.csv --kind accuracy"


def marked(name: str) -> re.Pattern[str]:
    """What a document has for a table: a mark with the table's name, a pattern, to its end."""
    return re.compile(rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def filled(text: str, pattern: re.Pattern[str], made: Callable[..., str], like: str) -> str:
    """A document with its `marked` tables made from their names; where nothing is made, it stays.

    `like` is a name that the pattern matches, to show where a mark is not right.
    """

    def fill(match: re.Match[str]) -> str:
        begin, *name, _, end = match.groups()
        new = made(*name)
        return f"{begin}\n{new}\n\n{end}" if new else match.group()

    new, count = pattern.subn(fill, text)
    if count != text.count("<!-- table:"):
        raise ValueError(f"a table has no end, or its mark is not like <!-- table: {like} -->")
    return new


def replaced(text: str) -> str:
    """A page with its tables made anew, each by `bilevo table` with the arguments of its mark."""
    return filled(text, marked("(.*?)"), shown, like=LIKE)


def shown(arguments: str) -> str:
    """What `bilevo table` shows, in Markdown."""
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
    """Write the tables of pages from stored runs.

    Parameters
    ----------
    pages
        Markdown files with marks for tables; by default those of our own that have any.
    """
    for page in pages or PAGES:
        page.write_text(replaced(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    from cyclopts import run

    run(write_tables)
