"""The paper's first column: drc-cma-es on SMD1-12 at (2, 3), 21 runs each, on two processes.

Made as `scripts/reproduce` makes it, each run in a process of its own with its answer verified, but
nothing is stored. The time is shown in seconds and in generations of cma at n = 3, timed before and
after. Verification's share is that of one run of each problem, made again in this process.
"""

from __future__ import annotations

from functools import partial

from benchmarks.generation import cma_generation
from benchmarks.report import Target, at_most
from benchmarks.timing import Figures, say, seconds
from bilevo import kernels, minimize, problems
from bilevo.experiments.campaign import Row, carry_out, carry_out_all, verified_F
from bilevo.experiments.plans import SMD, Plan, Run, algorithm
from bilevo.experiments.reproduce import longest_first, with_progress
from bilevo.experiments.tables import Lines

WANTED = {"numpy": 150, "numba": 60}  # seconds
PROCESSES = 2
QUICK = {"runs": 2}


def carry_out_with(kernel: str, run: Run) -> Row:
    with kernels.using(kernel):
        return carry_out(run)


def verification_share(plan: list[Run], kernel: str) -> float:
    """Of the time of a run of each problem with the verification of its answer."""
    running = verifying = 0.0
    with kernels.using(kernel):
        for run in plan:
            if run.number == 0:
                problem, method = problems.get(run.problem, run.m, run.n), algorithm(run.method)
                result = minimize(problem, method=method, rng=run.seed)
                running += result.time
                verifying += seconds(partial(verified_F, problem, result))
    return verifying / (running + verifying)


def with_kernel(kernel: str, plan: list[Run]) -> Figures:
    """The whole column, once."""
    say(f"  {len(plan)} runs with {kernel}")
    make = partial(carry_out_with, kernel)
    warm = plan[:1]
    list(carry_out_all(warm, 1, make=make))  # starts the server that runs are forked from
    rows: list[Row] = []

    def campaign() -> None:
        rows.extend(with_progress(carry_out_all(plan, PROCESSES, make=make), len(plan)))

    before = cma_generation()
    took = seconds(campaign)
    unit = min(before, cma_generation())
    return {
        "kernel": kernel,
        "runs": len(plan),
        "failed": sum(row.failed for row in rows),
        "evaluations": sum(row.total for row in rows),
        "seconds": took,
        "cma_generations": took / unit,
        "verification": verification_share(plan, kernel),
    }


def measure(
    runs: int = 21, only: tuple[str, ...] = SMD, names: tuple[str, ...] = kernels.NAMES
) -> Figures:
    kernels.warm_up()
    plan = longest_first(Plan(("drc-cma-es",), only, runs).at(2, 3))
    return {"lines": [with_kernel(kernel, plan) for kernel in names]}


def tables(figures: Figures) -> list[Lines]:
    header = ["kernel", "runs", "failed", "evaluations", "seconds", "cma generations, n = 3"]
    lines = [[*header, "verification's share"]]
    for line in figures["lines"]:
        counts = [str(line[key]) for key in ("kernel", "runs", "failed", "evaluations")]
        times = [f"{line['seconds']:.1f}", f"{line['cma_generations']:.0f}"]
        lines.append([*counts, *times, f"{100 * line['verification']:.0f}%"])
    return [lines]


def targets(figures: Figures) -> list[Target]:
    return [
        at_most(
            f"{line['runs']} runs at (2, 3) on {PROCESSES} processes, {line['kernel']}: s",
            WANTED[line["kernel"]],
            line["seconds"],
        )
        for line in figures["lines"]
    ]
