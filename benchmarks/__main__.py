"""`scripts/bench`: run benchmarks, check their targets, and write docs/performance.md.

    scripts/bench                       everything, in about ten minutes
    scripts/bench generation whole      some parts
    scripts/bench --quick               rough figures, which are not written

The exit status is 1 when a target is missed. Each part runs in its own process, so that no part is
affected by what another part has imported.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from typing import Any

from benchmarks import column, generation, memory, report, scaling, startup, whole
from benchmarks.picture import draw
from benchmarks.report import Stored, Target, target_table
from benchmarks.timing import alone, say
from bilevo.lab.show.formats import Lines, show

PARTS: dict[str, Any] = {
    "generation": generation,
    "whole": whole,
    "scaling": scaling,
    "startup": startup,
    "column": column,
    "memory": memory,
}
SHOWN = ("driver", "journal", "workers")  # These parts only print figures, and have no targets.


def measured(name: str, quick: bool) -> dict[str, Any]:
    """Run a part and print its tables; return its figures and the machine that made them."""
    part = PARTS[name]
    say(f"{name}: {part.__doc__.splitlines()[0]}")
    figures = report.rounded(alone(part.measure, **(part.QUICK if quick else {})))
    for lines in part.tables(figures):
        say(f"\n{show(lines, markdown=False)}")
    say("")
    return {"machine": report.machine(), "figures": figures}


def targets_of(stored: Stored) -> list[Target]:
    return [
        target for name, kept in stored.items() for target in PARTS[name].targets(kept["figures"])
    ]


def blocks_of(stored: Stored) -> dict[str, list[Lines]]:
    """Return the tables of the document by the names of their marks."""
    blocks = {name: PARTS[name].tables(kept["figures"]) for name, kept in stored.items()}
    if stored:
        blocks["targets"] = [target_table(targets_of(stored))]
        blocks["machine"] = [report.machine_table(stored)]
    return blocks


def main() -> int:
    parser = ArgumentParser(prog="scripts/bench", description="measure times, and check targets")
    known = (*PARTS, *SHOWN)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(known)}; by default all")
    parser.add_argument("--quick", action="store_true", help="rough figures, which are not written")
    options = parser.parse_args()
    chosen = options.parts or known
    if unknown := set(chosen) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    new = {name: measured(name, options.quick) for name in PARTS if name in chosen}
    for name in SHOWN:
        if name in chosen:
            subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
    if not options.quick:
        together = report.read() | new
        stored = {name: together[name] for name in PARTS if name in together}
        report.write(stored, blocks_of(stored), draw)
    checked = targets_of(new)
    if checked:
        say(f"\n{show(target_table(checked), markdown=False)}")
    return int(not all(target.met for target in checked))


if __name__ == "__main__":
    sys.exit(main())
