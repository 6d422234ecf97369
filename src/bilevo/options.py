"""Types of options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter


def whole(kind: type, tokens: Sequence[Any]) -> int:
    """Read a whole number, such as 1000 or 1e3; the parser's own converter would round 1.7."""
    text = tokens[0].value
    with suppress(ValueError):
        return int(text)
    number = float(text)
    if not number.is_integer():
        raise ValueError(f"{text} is no whole number")
    return int(number)


Whole = Annotated[int, Parameter(converter=whole)]
Flag = Annotated[bool, Parameter(negative="")]  # an option without a --no- form
Several = Annotated[tuple[str, ...], Parameter(negative="")]  # an option that may be repeated
Paths = Annotated[list[Path], Parameter(negative="")]
