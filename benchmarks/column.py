"""Time the first column of the paper: 21 runs of drc-cma-es on each of SMD1-12 at (2, 3).

Runs are made as `bilevo bench` makes them, two at a time, and each in its own process. Answers are
verified, but runs are not stored. Blocks of runs alternate between the kernels. Between blocks, a
generation of the library cma at n = 3 is timed. Times are shown in seconds and in such generations.
The share of time that verification takes is measured in this process, on one more run of each
problem.
"""

from __future__ import annotations

from functools import partial

from benchmarks.generation import cma_generation
from benchmarks.report import Target, at_most
from benchmarks.timing import Figures, say, seconds
from bilevo import kernels, minimize, problems
from bilevo.lab.campaign import Task, carry_out, tasks_of
from bilevo.lab.checks import checked
from bilevo.lab.plans import SMD, Experiment, Plan
from bilevo.lab.progress import longest_first, with_progress
from bilevo.lab.show.formats import Lines
from bilevo.lab.store import FAILED, Row
from bilevo.lab.workers import by_processes

WHOLE = 252  # The number of runs of the column.
WANTED = {"numpy": 150, "numba": 60}  # The most seconds that the whole column may take.
CMA_THEN = 441e-6  # The seconds of a generation of cma at n = 3 when these targets were set.
PROCESSES = 2  # How many runs are made at the same time.
QUICK = {"runs": 2, "blocks": 1}


def carry_out_with(kernel: kernels.Name, task: Task) -> Row:
    with kernels.using(kernel):
        return carry_out(task)


def verification_share(plan: list[Task], kernel: kernels.Name) -> float:
    """Return the share of time that verification takes, with one run of each problem."""
    running = verifying = 0.0
    with kernels.using(kernel):
        for run, form in ((task.run, task.form) for task in plan if task.run.number == 0):
            problem = problems.get(run.problem, run.m, run.n)
            result = minimize(problem, method=form.algorithm(), rng=run.seed)
            running += result.time
            verifying += seconds(partial(checked, problem, result.x, result.y, result.f))
    return verifying / (running + verifying)


def campaign(
    plan: list[Task], kernel: kernels.Name, processes: int = PROCESSES
) -> tuple[float, list[Row]]:
    """Make runs; return how many seconds they took, and their rows."""
    rows = by_processes(plan, processes, partial(carry_out_with, kernel))
    kept: list[Row] = []
    return seconds(lambda: kept.extend(with_progress(rows, plan))), kept


def measure(
    runs: int = 21,
    blocks: int = 3,
    only: tuple[str, ...] = SMD,
    names: tuple[kernels.Name, ...] = kernels.NAMES,
) -> Figures:
    """Measure the whole column with each kernel, in blocks that alternate."""
    plan = longest_first(tasks_of(Plan((Experiment(("drc-cma-es",), only, runs=runs),))))
    for name in names:
        campaign(plan[-1:], name, 1)  # starts the server that runs are forked from, and compiles
    times: dict[kernels.Name, list[float]] = {name: [] for name in names}
    rows: dict[kernels.Name, list[Row]] = {name: [] for name in names}
    units = []
    for block in range(blocks):
        part = [task for task in plan if task.run.number % blocks == block]
        for name in names:
            say(f"  {len(part)} of {len(plan)} runs with {name}")
            units.append(cma_generation())
            took, made = campaign(part, name)
            times[name].append(took)
            rows[name] += made
    unit = sum(units) / len(units)
    lines = [
        {
            "kernel": name,
            "runs": len(plan),
            "failed": sum(row["status"] == FAILED for row in rows[name]),
            "evaluations": sum(row["nfev_upper"] + row["nfev_lower"] for row in rows[name]),
            "seconds": sum(times[name]),
            "cma_generations": sum(times[name]) / unit,
            "verification": verification_share(plan, name),
        }
        for name in names
    ]
    return {"lines": lines}


def tables(figures: Figures) -> list[Lines]:
    header = ["kernel", "runs", "failed", "evaluations", "seconds", "cma generations, n = 3"]
    lines = [[*header, "verification's share"]]
    for line in figures["lines"]:
        counts = [str(line[key]) for key in ("kernel", "runs", "failed", "evaluations")]
        times = [f"{line['seconds']:.1f}", f"{line['cma_generations']:.0f}"]
        lines.append([*counts, *times, f"{100 * line['verification']:.0f}%"])
    return [lines]


def targets(figures: Figures) -> list[Target]:
    """Compare with targets in seconds and in generations of cma; the latter suit any machine."""
    made = []
    for line in figures["lines"]:
        what = f"{line['runs']} runs at (2, 3) on {PROCESSES} processes, {line['kernel']}"
        wanted = WANTED[line["kernel"]] * line["runs"] / WHOLE
        made.append(at_most(f"{what}: s", wanted, line["seconds"]))
        generations = wanted / CMA_THEN
        made.append(at_most(f"{what}: cma generations", generations, line["cma_generations"]))
    return made
