"""Campaigns: many runs, each in a process of its own, and the file that keeps what they gave.

A run is known by its name (problem, sizes, method, number), and its seed comes from that name: the
same run gives the same row wherever and whenever it is made. So a campaign only makes what its file
lacks; one that was killed and started again ends with the same file as one that never was.

A row is written as soon as its run has ended; at the end the file is sorted. A run that raises,
dies or takes too long is a row too, with status "failed" and its error.
"""

from __future__ import annotations

import csv
import fcntl
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from io import StringIO
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from bilevo import problems
from bilevo.api import minimize, verify
from bilevo.core.problem import Problem
from bilevo.core.result import Result
from bilevo.experiments.plans import Run, algorithm
from bilevo.version import __version__

FAILED = "failed"
NEAR = 1e-4  # |F - F*| that counts as near the optimum


@dataclass(frozen=True, slots=True)
class Row:
    """What a run gave; NaN where it failed, accuracies also where the optimum is not known."""

    problem: str
    m: int
    n: int
    method: str
    number: int
    seed: int
    F: float = np.nan
    f: float = np.nan
    violation: float = np.nan
    Acc_u: float = np.nan  # |F - F*| as reported
    Acc_l: float = np.nan  # |f - f*|
    verified: float = np.nan  # |F(x, y*(x)) - F*|, where the follower really answers
    nfev_upper: int = 0
    nfev_lower: int = 0
    near: int = 0  # evaluations of both levels after which F was near F*; 0 if it never was
    status: str = FAILED  # or why the run stopped
    version: str = __version__
    error: str = ""

    @classmethod
    def of(cls, run: Run, **values: Any) -> Row:
        return cls(**asdict(run), seed=run.seed, **values)

    @property
    def run(self) -> Run:
        return Run(self.problem, self.m, self.n, self.method, self.number)

    @property
    def failed(self) -> bool:
        return self.status == FAILED

    @property
    def total(self) -> int:
        return self.nfev_upper + self.nfev_lower


COLUMNS = [field.name for field in fields(Row)]
TYPES = {"str": str, "int": int, "float": float}
READERS = {field.name: TYPES[str(field.type)] for field in fields(Row)}


def carry_out(run: Run) -> Row:
    """Make a run in this process; what it raises becomes its row."""
    try:
        problem = problems.get(run.problem, run.m, run.n)
        result = minimize(problem, method=algorithm(run.method), rng=run.seed)
        return describe(run, problem, result)
    except Exception as error:
        return Row.of(run, error=" ".join(f"{type(error).__name__}: {error}".split())[:300])


def describe(run: Run, problem: Problem, result: Result) -> Row:
    """A row of a result, with its distances from the known optimum."""
    best_F, best_f = np.nan, np.nan
    if problem.optimum is not None:
        best_F, best_f = problem.optimum.F, problem.optimum.f
    known = np.isfinite(best_F) and np.isfinite(result.x).all()
    return Row.of(
        run,
        status=str(result.status),
        F=float(result.F),
        f=float(result.f),
        violation=float(result.violation),
        Acc_u=float(abs(result.F - best_F)),
        Acc_l=float(abs(result.f - best_f)),
        verified=float(abs(verified_F(problem, result) - best_F)) if known else np.nan,
        nfev_upper=result.nfev_upper,
        nfev_lower=result.nfev_lower,
        near=evaluations_until_near(result, best_F),
    )


def evaluations_until_near(result: Result, best_F: float) -> int:
    """Of both levels, up to the first generation whose feasible elite was near the optimum."""
    counts = (
        row.nfev_upper + row.nfev_lower
        for row in result.history
        if row.violation == 0 and abs(row.F - best_F) <= NEAR
    )
    return next(counts, 0)


def verified_F(problem: Problem, result: Result) -> float:
    """F at the follower's true answer, from the known response or an independent re-solve."""
    if problem.response is not None:
        y = problem.response(result.x[None])
        if np.isfinite(y).all():
            return float(problem.evaluate(result.x, y[0])[0][0])
    return verify(problem, result).F


def carry_out_all(
    runs: Iterable[Run],
    workers: int,
    max_time: float | None = None,
    make: Callable[[Run], Row] = carry_out,
) -> Iterator[Row]:
    """Rows as they are done; each run has a process, which ends itself after `max_time` seconds."""
    for library in ("OPENBLAS", "OMP"):
        os.environ[f"{library}_NUM_THREADS"] = "1"  # one thread a process; children inherit it
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "bilevo.experiments.preload"])
    waiting = iter(runs)
    live: dict[Connection, tuple[Run, Any]] = {}
    try:
        while True:
            while len(live) < workers and (run := next(waiting, None)) is not None:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(make, run, max_time, theirs))
                process.start()
                theirs.close()
                live[ours] = run, process
            if not live:
                return
            for ended in connection.wait(list(live)):
                assert isinstance(ended, Connection)
                run, process = live.pop(ended)
                yield _answer(run, process, ended, max_time)
    finally:
        for _, process in live.values():
            process.kill()


def _child(
    make: Callable[[Run], Row], run: Run, max_time: float | None, answer: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    if max_time is not None:  # the alarm's default is to end the process, whatever it is doing
        signal.setitimer(signal.ITIMER_REAL, max_time)
    with suppress(BrokenPipeError):  # the campaign was killed
        answer.send(make(run))


def _answer(run: Run, process: Any, answer: Connection, max_time: float | None) -> Row:
    try:
        row: Row = answer.recv()
    except EOFError:
        process.join()
        late = process.exitcode == -signal.SIGALRM
        reason = f"more than {max_time:g} s" if late else f"process ended: {process.exitcode}"
        row = Row.of(run, error=reason)
    process.join()
    answer.close()
    return row


def read(path: Path) -> dict[Run, Row]:
    """Stored rows in order; a last line that was cut off by a kill is passed over."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    lines = csv.DictReader(StringIO(whole))
    if lines.fieldnames is not None and list(lines.fieldnames) != COLUMNS:
        raise ValueError(f"{path} has the columns {lines.fieldnames}, not {COLUMNS}")
    rows = [Row(**{name: READERS[name](line[name]) for name in COLUMNS}) for line in lines]
    return {row.run: row for row in sorted(rows, key=_order)}


def write(path: Path, rows: Iterable[Row]) -> None:
    """The whole file, in order; a crash leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    lines = [_line(COLUMNS), *(_line(asdict(row).values()) for row in sorted(rows, key=_order))]
    new.write_text("".join(lines), encoding="utf-8")
    os.replace(new, path)


def complete(
    path: Path,
    plan: Iterable[Run],
    rows_of: Callable[[list[Run]], Iterable[Row]],
) -> dict[Run, Row]:
    """Make the runs of the plan that the file lacks, and return all that is stored.

    `rows_of` makes runs and gives their rows in any order, such as `carry_out_all`.
    """
    with _alone(path.parent):
        stored = read(path)
        write(path, stored.values())
        missing = [run for run in plan if run not in stored]
        with path.open("a", encoding="utf-8") as file:
            for row in rows_of(missing):
                file.write(_line(asdict(row).values()))
                file.flush()
                stored[row.run] = row
        write(path, stored.values())
    return stored


def forget(path: Path, runs: Iterable[Run]) -> None:
    """Drop stored rows, so that their runs are made again."""
    with _alone(path.parent):
        stored = read(path)
        for run in runs:
            stored.pop(run, None)
        write(path, stored.values())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One campaign at a time writes to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another campaign is writing to {folder}") from None
        yield
    finally:
        os.close(handle)


def _order(row: Row) -> tuple[Any, ...]:
    """By method, then problem with smd2 before smd10, then number."""
    stem = row.problem.rstrip("0123456789")
    return row.method, stem, int(row.problem[len(stem) :] or 0), row.number


def _line(values: Iterable[Any]) -> str:
    file = StringIO()
    csv.writer(file, lineterminator="\n").writerow(values)
    return file.getvalue()
