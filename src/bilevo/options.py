"""Types of options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter


def whole(kind: type, tokens: Sequence[Any]) -> int:
    """Read a whole number; the parser's own converter would round 1.7."""
    return int(tokens[0].value)


Whole = Annotated[int, Parameter(converter=whole)]
Flag = Annotated[bool, Parameter(negative="")]  # an option without a --no- form
Several = Annotated[tuple[str, ...], Parameter(negative="")]  # an option that may be repeated
Paths = Annotated[list[Path], Parameter(negative="")]
