"""Progress of a campaign: a bar with the time left, or lines if there is no terminal.

The time left is estimated from the expected cost of runs, because the longest runs are made first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from time import monotonic

from bilevo.core.terminal import on_one_line
from bilevo.lab.campaign import Task
from bilevo.lab.plans import Run
from bilevo.lab.store import FAILED, Row

EVERY = 15.0  # Seconds from one line of progress to the next.
EXPECTED = 5_000.0  # The evaluations that a run is expected to take, for each variable.


def expected_cost(run: Run) -> float:
    """Guess the number of evaluations of a run from its sizes and its limit."""
    guess = EXPECTED * (run.m + run.n)
    return min(guess, run.budget or guess)


def longest_first(tasks: Iterable[Task]) -> list[Task]:
    """Sort runs so that no long run is left for the end."""
    return sorted(tasks, key=lambda task: -expected_cost(task.run))


def with_progress(rows: Iterable[Row], tasks: list[Task], show: bool = True) -> Iterator[Row]:
    """Yield the rows, show progress, and print each failure at once."""
    costs = {task.run: expected_cost(task.run) for task in tasks}
    shown = _bar if sys.stderr.isatty() else _lines
    for row in shown(rows, costs) if show else rows:
        if row["status"] == FAILED:
            run = f"{row['problem']} ({row['m']},{row['n']}) {row['method']} run {row['number']}"
            print(on_one_line(f"failed: {run}: {row['error']}"), file=sys.stderr)
        yield row


def _bar(rows: Iterable[Row], costs: dict[Run, float]) -> Iterator[Row]:
    from rich import progress
    from rich.console import Console

    count = progress.TextColumn("{task.fields[done]} of {task.fields[all]} runs")
    times = progress.TimeElapsedColumn(), progress.TimeRemainingColumn(compact=True)
    columns = progress.BarColumn(), count, *times
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=sum(costs.values()), done=0, all=len(costs))
        for done, row in enumerate(rows, 1):
            bar.update(task, advance=costs[Run.of(row)], done=done)
            yield row


def _lines(rows: Iterable[Row], costs: dict[Run, float]) -> Iterator[Row]:
    start = last = monotonic()
    whole, spent = sum(costs.values()), 0.0
    for done, row in enumerate(rows, 1):
        spent += costs[Run.of(row)]
        now = monotonic()
        if now - last >= EVERY and done < len(costs):
            left = (now - start) * (whole - spent) / spent
            print(f"{done} of {len(costs)} runs, about {duration(left)} left", file=sys.stderr)
            last = now
        yield row


def duration(seconds: float) -> str:
    """Write a time such as 40 s, 12 min or 3.1 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
