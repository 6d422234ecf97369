"""Say which runs of plans/paper.toml are not stored, and what they would cost.

    python -m benchmarks.missing

A line for each method and size gives the stored and the wanted runs, and the processor time that
the missing ones would take. A run takes the evaluations that the DRC paper prints for it, or those
of the stored runs on the same problem if it prints none, at the time per evaluation of the method's
stored runs (of all sizes together). `--rate` is the time per evaluation, in microseconds, of
methods whose stored runs have no times.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bilevo.lab.analysis.baseline import Baseline, read_baseline
from bilevo.lab.analysis.samples import Case
from bilevo.lab.frames import pl
from bilevo.lab.plans import Run, read_plan
from bilevo.lab.store import KEY, runs

ROOT = Path(__file__).parents[1]
FILES = ("2_3", "10_10", "30_30", "tp", "real")  # the stored runs of plans/paper.toml
RATE = 45.0  # of NBLEA and BLEAQ-II, in microseconds: tests of 10,000 evaluations on SMD1 and SMD3


class Part(NamedTuple):
    """The runs of a method at one size: stored, wanted, and the hours that the others take."""

    stored: int
    wanted: int
    hours: float


def stored_runs() -> pl.DataFrame:
    files = [runs(ROOT / "docs" / "data" / f"runs_{name}.csv") for name in FILES]
    evaluations = pl.col("nfev_upper") + pl.col("nfev_lower")
    return pl.concat(files).select(*KEY, "time", evaluations=evaluations)


def seconds_per_evaluation(stored: pl.DataFrame, rate: float) -> dict[str, float]:
    """Return the time per evaluation of each method."""
    timed = stored.filter(pl.col("time").is_finite())
    sums = timed.group_by("method").agg(pl.col("time", "evaluations").sum()).iter_rows()
    known = {method: time / count for method, time, count in sums}
    return defaultdict(lambda: rate * 1e-6, known)


def evaluations_of(run: Run, paper: Baseline, medians: dict[tuple[str, int], float]) -> float:
    """Return how many evaluations a run is expected to take, or NaN if nothing is known."""
    case = Case(run.problem, run.m, run.n)
    known = medians.get((run.problem, run.n), np.nan)
    return paper.medians.get((case, run.method, "FEs"), known)


def parts(stored: pl.DataFrame, rate: float) -> dict[tuple[str, str], Part]:
    """Return what is stored and what is missing, by method and by suite and size."""
    paper = read_baseline(ROOT / "docs" / "data" / "drc_paper.json")
    speed = seconds_per_evaluation(stored, rate)
    by_problem = stored.group_by("problem", "n").agg(pl.col("evaluations").median()).iter_rows()
    medians = {(problem, n): count for problem, n, count in by_problem}
    there = {Run.of(row) for row in stored.iter_rows(named=True)}
    have, want = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for run in read_plan(ROOT / "plans" / "paper.toml").all_runs():
        case = Case(run.problem, run.m, run.n)
        suite = case.suite if case.suite in ("smd", "tp") else "real"
        key = run.method, f"{suite} {case.size}" if suite == "smd" else suite
        want[key] += 1
        have[key] += run in there
        if run not in there:
            seconds[key] += evaluations_of(run, paper, medians) * speed[run.method]
    return {key: Part(have[key], want[key], seconds[key] / 3600) for key in want}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=float, default=RATE)
    found = parts(stored_runs(), parser.parse_args().rate)
    for (method, where), part in found.items():
        hours = f"{part.hours:7.1f} h" if part.stored < part.wanted else "complete"
        print(f"{method:12} {where:14} {part.stored:4} of {part.wanted:4}  {hours:>9}")
    stored, wanted = (sum(part[i] for part in found.values()) for i in (0, 1))
    print(f"{stored} of {wanted} runs; the others: {sum(p.hours for p in found.values()):.0f} h")


if __name__ == "__main__":
    main()
