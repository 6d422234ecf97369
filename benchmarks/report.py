"""Make tables, targets, the document docs/performance.md and its picture from figures.

docs/data/performance.json stores the figures of each part with the machine that they come from. The
tables and the picture of the document are made from this file. So one part can be run again without
the other parts.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import bilevo
from bilevo.lab.show.documents import filled, marked
from bilevo.lab.show.formats import Lines, show

DOCS = Path(__file__).parents[1] / "docs"
DOCUMENT, PICTURE = DOCS / "performance.md", DOCS / "performance.svg"
DATA = DOCS / "data" / "performance.json"
MARKED = marked(r"(\w+)")
LIBRARIES = ("numpy", "scipy", "numba", "cma", "cmaes", "pymoo")

Stored = dict[str, dict[str, Any]]  # The figures of each part, and the machine that made them.


class Target(NamedTuple):
    """A limit for a figure, and whether the figure meets it."""

    what: str
    wanted: str
    measured: str
    met: bool

    @property
    def verdict(self) -> str:
        return "met" if self.met else "MISSED"


def at_least(what: str, wanted: float, measured: float) -> Target:
    return Target(what, f">= {wanted:g}", f"{measured:.1f}", measured >= wanted)


def at_most(what: str, wanted: float, measured: float, digits: int = 1) -> Target:
    return Target(what, f"<= {wanted:g}", f"{measured:.{digits}f}", measured <= wanted)


def target_table(targets: list[Target]) -> Lines:
    rows = [[target.what, target.wanted, target.measured, target.verdict] for target in targets]
    return [["target", "wanted", "measured", ""], *rows]


def machine() -> dict[str, str]:
    """Return the hardware and the versions that figures depend on."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
        "bilevo": bilevo.__version__,
        **{name: _version(name) for name in LIBRARIES},
    }


def machine_table(stored: Stored) -> Lines:
    """Return a table with a column for each machine, named by the parts that ran on it."""
    columns: dict[str, list[str]] = {}
    for part, kept in stored.items():
        columns.setdefault(json.dumps(kept["machine"]), []).append(part)
    machines = [json.loads(key) for key in columns]
    header = ["", *(", ".join(parts) for parts in columns.values())]
    return [header, *([key, *(m[key] for m in machines)] for key in machines[0])]


def read() -> Stored:
    return dict(json.loads(DATA.read_text(encoding="utf-8"))) if DATA.exists() else {}


def write(stored: Stored, blocks: Mapping[str, list[Lines]], draw: Callable[[Stored], Any]) -> None:
    """Store the figures, and make the document's tables and its picture from them."""
    DATA.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(with_tables(text, blocks), encoding="utf-8")
    bilevo.plot.save(draw(stored), PICTURE)


def with_tables(text: str, blocks: Mapping[str, list[Lines]]) -> str:
    """Return a document with the tables of these blocks replaced."""

    def made(name: str) -> str:
        return "\n\n".join(show(lines, markdown=True) for lines in blocks.get(name, []))

    return filled(text, MARKED, made, like="generation")


def rounded(figures: Any) -> Any:
    """Round figures to four digits."""
    if isinstance(figures, float):
        return float(f"{figures:.4g}")
    if isinstance(figures, dict):
        return {key: rounded(value) for key, value in figures.items()}
    return [rounded(value) for value in figures] if isinstance(figures, list) else figures


def _processor() -> str:
    """Return the processor's model as Linux names it, or as Python does on other systems."""
    names = Path("/proc/cpuinfo")
    lines = names.read_text().splitlines() if names.exists() else []
    models = (line.split(": ")[1] for line in lines if line.startswith("model name"))
    return next(models, platform.processor())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"
