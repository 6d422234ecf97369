"""The command `bilevo bench`: campaigns from the command line."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from bilevo import registry
from bilevo.core.terminal import on_one_line, printable
from bilevo.lab.campaign import Task, complete, stored_runs
from bilevo.lab.choices import Against, Which, split_words
from bilevo.lab.commands import write_report
from bilevo.lab.plans import MAX_EVALUATIONS, SUITES, Experiment, Plan, read_plan
from bilevo.lab.progress import longest_first, with_progress
from bilevo.lab.store import FAILED, Row
from bilevo.lab.workers import executor as named_executor
from bilevo.lookup import named_problem, parse_sizes
from bilevo.options import Flag, Several, Whole

MAX_SECONDS = 1e9  # The largest --max-time, in seconds.
STOPPED = 130  # The exit status after Ctrl-C.


def bench(
    plan: Path | None = None,
    /,
    *,
    suite: str | None = None,
    problems: str | None = None,
    dim: Several = (),
    methods: str | None = None,
    runs: Whole | None = None,
    max_evals: str | None = None,
    target: bool = True,
    out: Path | None = None,
    executor: str = "processes",
    workers: Whole | None = None,
    max_time: float | None = None,
    again: Literal["failed", "all"] | None = None,
    report: Flag = False,
    baseline: Path | None = None,
    progress: bool = True,
) -> int:
    """Make the runs of a plan that are not stored yet. After a kill, repeat the command.

    Parameters
    ----------
    plan
        A TOML file. If it is given, --problems, --dim and --methods choose a part of the plan, and
        --runs sets another number of runs.
    suite
        smd (SMD1-12), tp, real, rotated, nonsmooth, noisy, literature or roads; several are
        separated by commas.
    problems
        Names from `bilevo list` or module:object, separated by commas.
    dim
        Sizes M,N of scalable problems; may be given several times.
    methods
        Names from `bilevo list` or module:object, separated by commas; drc-plus by default.
    runs
        Runs of each method on each problem; 21 unless the plan says otherwise.
    max_evals
        Limits on the evaluations of both levels together, separated by commas.
    target
        Whether runs end at the known optimum.
    out
        The directory of stored runs; by default results/NAME, with the plan's name.
    executor
        processes, dask, dask://HOST:PORT, ray or ray://HOST:PORT.
    workers
        The number of processes; by default one per core.
    max_time
        Seconds after which a run counts as failed. They include the time to verify its answer.
    again
        Make stored runs of the plan again: only those that failed, or all.
    report
        Write report.html into the directory at the end; if limits differ, a report for each limit.
    baseline
        A JSON file of published medians to show in the report, as in `bilevo report`.
    progress
        Show the progress on standard error.
    """
    wanted: dict[str, Any] = {
        "problems": split_words(suite) + split_words(problems),
        "methods": split_words(methods),
        "sizes": tuple(map(parse_sizes, dim)),
        "runs": runs,
    }
    limits = tuple(_parse_limit(word) for word in split_words(max_evals))
    if max_time is not None and not 0 < max_time <= MAX_SECONDS:
        raise ValueError(
            f"--max-time takes seconds, more than 0 up to {MAX_SECONDS:g}; got {max_time:g}"
        )
    if plan is not None:
        if limits or not target:
            raise ValueError("max_evals and target are set in the plan's file")
        chosen = read_plan(plan).narrowed(**wanted)
    else:
        chosen = _plan_of_options({**wanted, "max_evals": limits, "target": target})
    against = Against(baseline)
    against.options()  # a file that cannot be read is refused before the runs are made
    folder = out or Path("results") / chosen.name
    rows_of = named_executor(executor, workers)
    total = len(chosen.all_runs())

    def make(tasks: list[Task]) -> Iterable[Row]:
        ordered = longest_first(tasks)
        if progress:
            _tell(f"{folder}: {total - len(tasks)} of {total} runs are stored")
        return with_progress(rows_of(ordered), ordered, progress)

    try:
        with _stopped_by_sigterm():
            for _ in complete(folder, chosen, make, again, max_time):
                pass
    except KeyboardInterrupt:
        _tell("stopped; the same command continues from here")
        return STOPPED
    if report:
        _write_reports(folder, chosen, against)
    return _tell_failures(folder, chosen, progress)


def _plan_of_options(wanted: dict[str, Any]) -> Plan:
    if not wanted["problems"]:
        suites = ", ".join(SUITES)
        raise ValueError(f"give a plan, or --suite or --problems (suites are {suites})")
    given = {name: value for name, value in wanted.items() if value not in ((), None)}
    return Plan((Experiment(**{"methods": (_usual_method(wanted["problems"]),), **given}),))


def _usual_method(names: tuple[str, ...]) -> str:
    """Return the default method, or the default for solvers if all problems have a solver."""
    solvers = all(":" in name and named_problem(name).follower is not None for name in names)
    return registry.DEFAULT_FOR_FOLLOWERS if solvers else registry.DEFAULT_METHOD


def _parse_limit(word: str) -> int:
    """Read a number of evaluations, which may be written like 5e4."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 1 <= number <= MAX_EVALUATIONS or number != int(number):
        raise ValueError(f"--max-evals takes numbers of evaluations like 50000; got {word[:60]!r}")
    return int(number)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Stop at SIGTERM as at Ctrl-C, because batch systems end a command by SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write_reports(folder: Path, plan: Plan, against: Against) -> None:
    """Write a report for each limit and target, because a report does not mix them."""
    ways = sorted({(run.budget, run.target) for run in plan.all_runs()})
    for limit, target in ways:
        parts = [str(limit)] if limit else []
        parts += [] if target else ["no-target"]
        name = "-".join(["report", *(parts if len(ways) > 1 else [])])
        path = folder / f"{name}.html"
        which = Which(max_evals=limit, target=target)
        print(printable(str(write_report([folder], path, which, against))))


def _tell_failures(folder: Path, plan: Plan, progress: bool) -> int:
    """Say how many of all runs failed; return the exit status, which is 1 if any failed."""
    stored, wanted = stored_runs(folder), plan.all_runs()
    failed = sum(stored[run]["status"] == FAILED for run in wanted)
    if failed:
        _tell(f"{folder}: of {len(wanted)} runs {failed} failed; --again failed makes them again")
    elif progress:
        _tell(f"{folder}: all {len(wanted)} runs are stored, none failed")
    return 1 if failed else 0


def _tell(text: str) -> None:
    print(on_one_line(text), file=sys.stderr)
