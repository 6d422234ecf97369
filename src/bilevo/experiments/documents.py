"""Documents that hold tables: `scripts/tables` makes those of docs/reproduction.md anew.

A table stands between two marks, and only what stands between them is replaced:

    <!-- table: docs/data/runs_2_3.csv --kind accuracy --paper -->
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable


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
