"""How often answers are wrong, and how often wrong answers are said to be right.

    python -m benchmarks.truth --seed 1 --seeds 1 2 3

The problems are constructions (see `known`), whose true answers are known. `--seed` draws the
parameters of the constructions, and `--seeds` are the seeds of the runs. Each answer is judged, and
given to `verify`. These are columns of the table:

    unsure             right answers of runs that do not claim success
    WRONG+SUCCESS      wrong answers of runs that claim success; must be 0
    WRONG+CONFIRMED    verifications that confirm, although the run's answer or the certificate's
                       answer is wrong; must be 0
    disliked           right answers, but the follower has another one that the leader likes more
    best, of           right answers with F within 1e-3 of the leader's best value, in units of the
                       scale of F, and how many runs have a known best value
"""

from __future__ import annotations

import csv
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from time import perf_counter

import numpy as np

import bilevo
from benchmarks.known.construction import (
    Construction,
    confirms,
    judge,
    judge_certificate,
    optimum,
)
from benchmarks.known.constructions import KINDS, NAMES, construct
from benchmarks.timing import in_processes, say
from bilevo.lab.show.formats import show

MOST = 30_000  # The most evaluations of a run.
NEAR = 1e-3  # F is the best if it is at most this above the best value, in units of its scale.
HEADER = ["kind", "runs", "right", "unsure", "wrong", "WRONG+SUCCESS", "WRONG+CONFIRMED"]
HEADER += ["disliked", "best", "of", "errors", "evaluations"]


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make: the name of its construction, and seeds."""

    name: str
    seed: int  # the seed of the construction
    run: int  # the seed of the run
    max_evals: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """What a run and its verification said, and how much of it is true."""

    name: str
    kind: str
    seed: int
    run: int
    status: str
    success: bool
    confirmed: bool
    wrong: str  # why the run's answer is wrong; empty if it is right
    wrongly_confirmed: str  # why `verify` should not have confirmed; empty if it is right
    disliked: bool
    best: bool | None  # whether F is the leader's best; None if the best is not known
    x: str
    y: str
    F: float
    F_true: float
    F_star: float | None
    f_gap: float
    violation: float
    evaluations: int
    seconds: float
    message: str
    error: str = ""

    @property
    def bad(self) -> bool:
        return bool((self.wrong and self.success) or self.wrongly_confirmed)


def carry_out(task: Task) -> Row:
    """Make a run and its verification, and judge both."""
    known = construct(task.name, task.seed)
    started = perf_counter()
    result = bilevo.minimize(known.problem, rng=task.run, max_evals=task.max_evals)
    verdict = judge(known, result)
    confirmed, why, error = False, "", ""
    try:
        certificate = bilevo.verify(known.problem, result)
    except Exception as failure:  # one run of many: the table counts it
        error = repr(failure)
    else:
        confirmed = confirms(certificate)
        if confirmed:
            why = verdict.why or judge_certificate(known, result.x, certificate).why
    best = optimum(known)
    answered = np.isfinite(result.x).all()
    return Row(
        task.name,
        known.kind,
        task.seed,
        task.run,
        result.status,
        result.success,
        confirmed,
        verdict.why,
        why,
        verdict.disliked,
        None if best is None else is_best(known, result.F, best) and not verdict.wrong,
        " ".join(f"{value:.6g}" for value in result.x),
        " ".join(f"{value:.6g}" for value in result.y),
        result.F,
        known.F_true(result.x) if answered else np.nan,
        best,
        verdict.f_gap,
        verdict.violation,
        result.nfev,
        perf_counter() - started,
        result.message,
        error,
    )


def is_best(known: Construction, F: float, best: float) -> bool:
    return F - best <= NEAR * known.F_scale


def line(kind: str, rows: Sequence[Row]) -> list[str]:
    """Return a line of the table."""
    counts = [
        len(rows),
        sum(not row.wrong and row.success for row in rows),
        sum(not row.wrong and not row.success for row in rows),
        sum(bool(row.wrong) and not row.success for row in rows),
        sum(bool(row.wrong) and row.success for row in rows),
        sum(bool(row.wrongly_confirmed) for row in rows),
        sum(row.disliked for row in rows),
        sum(bool(row.best) for row in rows),
        sum(row.best is not None for row in rows),
        sum(bool(row.error) for row in rows),
    ]
    return [kind, *map(str, counts), f"{median(row.evaluations for row in rows):.0f}"]


def details(row: Row) -> str:
    said = " and ".join(["success"] * row.success + ["confirmed"] * row.confirmed)
    why = row.wrong or f"the certificate: {row.wrongly_confirmed}"
    return (
        f"{row.name} (run {row.run}): {said}; {why}; x = {row.x}, y = {row.y}, F = {row.F:.6g}, "
        f"truly {row.F_true:.6g}; {row.status} after {row.evaluations}"
    )


def report(rows: Sequence[Row]) -> None:
    """Print the table, and then details of each answer that is wrong with success or confirmed."""
    kinds = {kind: [row for row in rows if row.kind == kind] for kind in KINDS}
    lines = [line(kind, some) for kind, some in kinds.items() if some]
    say(show([HEADER, *lines, line("all", rows)], markdown=False))
    for title, chosen in (
        ("Wrong with success", [row for row in rows if row.wrong and row.success]),
        ("Wrong and confirmed", [row for row in rows if row.wrongly_confirmed]),
    ):
        if chosen:
            say(f"\n{title}:")
        for row in chosen:
            say(f"  {details(row)}")
    for row in rows:
        if row.error:
            say(f"\n{row.name} (run {row.run}): verify raised {row.error}")


def write(path: str, rows: Sequence[Row]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(map(asdict, rows))


def options() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.truth", description="answers and the truth")
    parser.add_argument("--seed", type=int, default=1, help="seed of the constructions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="seeds of the runs")
    parser.add_argument("--max-evals", type=int, default=MOST, help="limit of a run; 0 for none")
    parser.add_argument("--class", dest="kind", choices=tuple(KINDS), help="one kind only")
    parser.add_argument("--only", default="", help="constructions whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--csv", help="a file for all rows")
    return parser.parse_args()


def main() -> int:
    given = options()
    names = [name for name in NAMES if given.only in name]
    names = [name for name in names if given.kind in (None, name.split("/", maxsplit=1)[0])]
    most = given.max_evals or None
    tasks = [Task(name, given.seed, run, most) for name in names for run in given.seeds]
    rows = in_processes(carry_out, tasks, given.jobs)
    if given.csv:
        write(given.csv, rows)
    if rows:
        report(rows)
    return int(any(row.bad for row in rows))


if __name__ == "__main__":
    sys.exit(main())
