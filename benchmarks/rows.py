"""Rows of measurements as CSV files: a dataclass for each line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)
else:
    R = TypeVar("R")

READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda text: text == "True",
    "int | None": lambda text: int(text) if text else None,
    "float | None": lambda text: float(text) if text else None,
}


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """Return the stored rows, or none if there is no file."""
    if not path.exists():
        return []
    readers = {field.name: READERS[str(field.type)] for field in fields(kind)}
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return [kind(**{name: read(line[name]) for name, read in readers.items()}) for line in lines]


def write_rows(path: Path, rows: Sequence[R], digits: int = 10) -> None:
    """Store rows, with so many digits of each number."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            line = asdict(row).items()
            writer.writerow({k: f"{v:.{digits}g}" if isinstance(v, float) else v for k, v in line})
