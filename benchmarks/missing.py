"""Say which runs of plans/paper.toml are not stored, and what they and all runs cost.

    python -m benchmarks.missing

A line for each method and size gives the stored and the wanted runs, and the processor time that
the missing ones and all of them take. A run takes the evaluations that the DRC paper prints for it,
or those of the stored runs on the same problem if it prints none, at the time per evaluation of the
method's stored runs of the same size, or of all its stored runs if there are none of this size.
"""

from __future__ import annotations

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
ALL_SIZES = 0  # takes the place of n in rates that are of all sizes together


class Part(NamedTuple):
    """The runs of a method at one size: stored and wanted, and the hours of those that lack."""

    stored: int
    wanted: int
    hours: float  # of the missing runs
    hours_of_all: float


def stored_runs() -> pl.DataFrame:
    files = [runs(ROOT / "docs" / "data" / f"runs_{name}.csv") for name in FILES]
    evaluations = pl.col("nfev_upper") + pl.col("nfev_lower")
    return pl.concat(files).select(*KEY, "processor_time", evaluations=evaluations)


def seconds_per_evaluation(stored: pl.DataFrame) -> dict[tuple[str, int], float]:
    """Return the time per evaluation of each method by n, and that of all sizes together."""
    timed = stored.filter(pl.col("processor_time").is_finite())
    everywhere = timed.with_columns(n=pl.lit(ALL_SIZES, pl.Int64))
    sums = (
        pl.concat([timed.with_columns(pl.col("n").cast(pl.Int64)), everywhere])
        .group_by("method", "n")
        .agg(pl.col("processor_time", "evaluations").sum())
    )
    return {(method, n): time / max(count, 1) for method, n, time, count in sums.iter_rows()}


def seconds_of(
    run: Run, rates: dict[tuple[str, int], float], paper: Baseline, medians: dict[Case, float]
) -> float:
    """Return how long a run is expected to take, or NaN if nothing is known."""
    case = Case(run.problem, run.m, run.n)
    evaluations = paper.medians.get((case, run.method, "FEs"), medians.get(case, np.nan))
    of_all = rates.get((run.method, ALL_SIZES), np.nan)
    return evaluations * rates.get((run.method, run.n), of_all)


def parts(stored: pl.DataFrame) -> dict[tuple[str, str], Part]:
    """Return what is stored and what is missing, by method and by suite and size."""
    paper = read_baseline(ROOT / "docs" / "data" / "drc_paper.json")
    rates = seconds_per_evaluation(stored)
    by_case = stored.group_by("problem", "m", "n").agg(pl.col("evaluations").median()).iter_rows()
    medians = {Case(*case): count for *case, count in by_case}
    there = {Run.of(row) for row in stored.iter_rows(named=True)}
    have, want = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    lacking: defaultdict[tuple[str, str], float] = defaultdict(float)
    whole: defaultdict[tuple[str, str], float] = defaultdict(float)
    for run in read_plan(ROOT / "plans" / "paper.toml").all_runs():
        case = Case(run.problem, run.m, run.n)
        suite = case.suite if case.suite in ("smd", "tp") else "real"
        key = run.method, f"{suite} {case.size}" if suite == "smd" else suite
        hours = seconds_of(run, rates, paper, medians) / 3600
        want[key] += 1
        whole[key] += hours
        if run in there:
            have[key] += 1
        else:
            lacking[key] += hours
    return {key: Part(have[key], want[key], lacking[key], whole[key]) for key in want}


def main() -> None:
    found = parts(stored_runs())
    print(f"{'method':12} {'problems':14} {'runs':>12}   {'missing':>9} {'all':>9}")
    for (method, where), part in found.items():
        hours = f"{part.hours:7.1f} h" if part.stored < part.wanted else "none"
        counts = f"{part.stored} of {part.wanted}"
        print(f"{method:12} {where:14} {counts:>12}   {hours:>9} {part.hours_of_all:7.1f} h")
    stored, wanted, lacking, whole = (sum(column) for column in zip(*found.values(), strict=True))
    print(f"{stored} of {wanted} runs; the others take {lacking:.1f} h, and all {whole:.1f} h")


if __name__ == "__main__":
    main()
