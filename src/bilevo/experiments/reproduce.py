"""The runs behind the tables: `scripts/reproduce`.

Makes the runs of a plan that are not stored yet, and shows their medians beside the paper's. Stored
runs are plain text, one line a run, in docs/data; `scripts/tables` writes tables from them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from bilevo.experiments.campaign import Row, carry_out_all, complete, forget, read
from bilevo.experiments.plans import PLANS, Run
from bilevo.experiments.tables import DATA, grouped, method_table, paper_values, show


def longest_first(runs: Iterable[Run]) -> list[Run]:
    """By the evaluations the paper prints, so that no long run is left to the end."""

    def cost(run: Run) -> float:
        method = run.method.partition("/")[0]
        return paper_values(run.problem, f"{run.m},{run.n}", method).get("total", 0.0)

    return sorted(runs, key=cost, reverse=True)


def with_progress(rows: Iterable[Row], total: int) -> Iterator[Row]:
    """A bar on standard error where that is a terminal; failures are told at once."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    for row in track(rows, "runs", total, console=console, disable=not sys.stderr.isatty()):
        if row.failed:
            print(f"failed: {row.run}: {row.error}", file=sys.stderr)
        yield row


def reproduce(
    plan: Literal["paper", "field", "ablation"] = "paper",
    /,
    *,
    dim: str = "2,3",
    runs: int | None = None,
    only: str | None = None,
    methods: str | None = None,
    again: Literal["failed", "all"] | None = None,
    workers: int | None = None,
    max_time: float = 3600.0,
    data: Path = DATA,
) -> None:
    """Make the runs of a plan that are not stored yet, and show medians beside the paper's.

    Parameters
    ----------
    plan
        paper: DRC-CMA-ES and BL-CMA-ES; field: all methods; ablation: DRC with and without its
        ingredients, on SMD1-6, 11 runs each.
    dim
        Sizes M,N. The paper has 2,3 and 10,10 and 30,30.
    runs
        Runs per problem and method.
    only
        Problems, separated by commas.
    methods
        Methods, separated by commas.
    again
        Make stored runs of the plan again: those that failed, or all.
    workers
        Processes; by default one per core.
    max_time
        Seconds after which a run is ended and has failed.
    data
        The folder of stored runs.
    """
    try:
        m, n = (int(part) for part in dim.split(","))
        chosen = replace(
            PLANS[plan],
            runs=runs or PLANS[plan].runs,
            problems=tuple(only.split(",")) if only else PLANS[plan].problems,
            methods=tuple(methods.split(",")) if methods else PLANS[plan].methods,
        )
        wanted = chosen.at(m, n)
        path = data / f"runs_{m}_{n}.csv"
        if again is not None:
            stored = read(path)
            failed = [run for run in wanted if run in stored and stored[run].failed]
            forget(path, wanted if again == "all" else failed)

        def make(missing: list[Run]) -> Iterable[Row]:
            found = carry_out_all(longest_first(missing), workers or os.cpu_count() or 1, max_time)
            return with_progress(found, len(missing))

        stored = complete(path, wanted, make)
    except ValueError as error:
        sys.exit(f"scripts/reproduce: {error}")
    groups = grouped(stored[run] for run in wanted)
    for method in chosen.methods:
        print(show(method_table(method, groups, f"{m},{n}"), markdown=False), end="\n\n")


if __name__ == "__main__":
    from cyclopts import run

    run(reproduce)
