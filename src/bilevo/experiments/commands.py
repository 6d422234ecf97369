"""The laboratory's commands: `bilevo bench`, `table`, `figure`, `report`, `import` and `export`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bilevo import registry
from bilevo.experiments.campaign import Row, Task, complete
from bilevo.experiments.plans import Experiment, Plan, read_plan
from bilevo.experiments.progress import longest_first, with_progress
from bilevo.experiments.spread import executor as named_executor
from bilevo.experiments.store import FAILED
from bilevo.named import parse_sizes

SETTINGS = "settings.json"  # in a campaign's folder: what it was asked for
Flag = Annotated[bool, Parameter(negative="")]


def bench(
    plan: Path | None = None,
    /,
    *,
    suite: str | None = None,
    problems: str | None = None,
    dim: list[str] | None = None,
    methods: str | None = None,
    runs: int | None = None,
    budgets: str | None = None,
    target: bool = True,
    out: Path | None = None,
    executor: str = "processes",
    workers: int | None = None,
    max_time: float | None = None,
    again: Literal["failed", "all"] | None = None,
    report: Flag = False,
    progress: bool = True,
) -> int:
    """Make the runs of a plan that are not stored yet; the same command continues a killed one.

    Parameters
    ----------
    plan
        A TOML file. With one, --problems, --dim, --methods and --runs choose a part of it.
    suite
        smd (SMD1-12), tp or real.
    problems
        Names from `bilevo list` or module:object, separated by commas.
    dim
        Sizes M,N of scalable problems; may be given several times.
    methods
        Names from `bilevo list` or module:object, separated by commas.
    runs
        Runs of each method on each problem; 21 unless the plan says otherwise.
    budgets
        Evaluations of both levels at which runs end, separated by commas.
    target
        Do not end runs at the known optimum.
    out
        The folder of stored runs; results/NAME of the plan by default.
    executor
        processes, dask, dask://HOST:PORT, ray or ray://HOST:PORT.
    workers
        Processes; by default one per core.
    max_time
        Seconds after which a run has failed.
    again
        Make stored runs of the plan again: those that failed, or all.
    report
        Write report.html into the folder at the end.
    progress
        Show how far it has come on standard error.
    """
    wanted = {"problems": _listed(suite) + _listed(problems), "methods": _listed(methods)}
    sizes = tuple(map(parse_sizes, dim or ()))
    limits = tuple(_count("--budgets", word) for word in _listed(budgets))
    if plan is not None:
        if limits or not target:
            raise ValueError("budgets and targets stand in the plan's file")
        chosen = read_plan(plan).narrowed(sizes=sizes, runs=runs, **wanted)
    else:
        chosen = _plan_of_options(wanted, sizes, runs, limits, target)
    folder = out or Path("results") / chosen.name
    spread = named_executor(executor, workers)
    total = len(chosen.all_runs())

    def make(tasks: list[Task]) -> Iterable[Row]:
        ordered = longest_first(tasks)
        if progress:
            print(f"{total} runs, {total - len(tasks)} of them stored: {folder}", file=sys.stderr)
        return with_progress(spread(ordered), ordered, progress)

    _keep_settings(folder, chosen, executor, workers, max_time)
    failures = 0
    try:
        for row in complete(folder, chosen, make, again, max_time):
            failures += row["status"] == FAILED
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    if report:
        write_report([folder], out=folder / "report.html")
    if failures:
        print(f"{failures} runs failed; --again failed makes them again", file=sys.stderr)
    return 1 if failures else 0


def _plan_of_options(
    wanted: dict[str, tuple[str, ...]],
    sizes: tuple[tuple[int, int], ...],
    runs: int | None,
    budgets: tuple[int, ...],
    target: bool,
) -> Plan:
    if not wanted["problems"]:
        raise ValueError("give a plan, or --suite or --problems (smd, tp and real are suites)")
    given: dict[str, Any] = {"sizes": sizes, "runs": runs, "budgets": budgets}
    values = {name: value for name, value in given.items() if value not in ((), None)}
    methods = wanted["methods"] or (registry.DEFAULT_METHOD,)
    return Plan((Experiment(methods, wanted["problems"], target=target, **values),))


def _keep_settings(
    folder: Path, plan: Plan, executor: str, workers: int | None, max_time: float | None
) -> None:
    """What the report says about how runs were made; the last command's."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {"executor": executor, "workers": workers or os.cpu_count(), "max_time": max_time}
    text = json.dumps({"plan": asdict(plan), **options}, indent=1)
    new = folder / f"{SETTINGS}.new"
    new.write_text(text + "\n", encoding="utf-8")
    os.replace(new, folder / SETTINGS)


def _listed(words: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip()) if words else ()


def _count(option: str, word: str) -> int:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if number < 1 or number != int(number):
        raise ValueError(f"{option} takes numbers of evaluations such as 50000; got {word!r}")
    return int(number)
