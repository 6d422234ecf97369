"""Measure the memory of a run of drc-cma-es with a million evaluations, on SMD1 at (2, 3).

Resident memory is read after each upper generation, in a new process for each kernel.
"""

from __future__ import annotations

import psutil

import bilevo
from benchmarks.report import Target, at_most
from benchmarks.timing import Figures, alone, say
from bilevo import kernels
from bilevo.lab.show.formats import Lines

EVALUATIONS = 1_000_000  # The evaluations of a run.
ENDLESS = bilevo.Budget(upper_max=10**9, upper_window=10**9)  # A budget that never ends a run.
SETTLED = 0.3  # Memory should not grow after this share of the run.
WANTED_PEAK, WANTED_GROWTH = 300, 20  # The most MB at the peak, and of growth after SETTLED.
QUICK = {"evaluations": 100_000}


def resident(kernel: kernels.Name, evaluations: int) -> Figures:
    """Return the megabytes before a run, at some points of the run, and at the peak."""
    process = psutil.Process()
    samples: list[tuple[float, float]] = []  # share of the run, MB

    def read(result: bilevo.Result) -> None:
        samples.append((result.nfev / evaluations, process.memory_info().rss / 1e6))

    problem = bilevo.problems.get("smd1")
    with kernels.using(kernel):
        before = process.memory_info().rss / 1e6
        result = bilevo.minimize(
            problem,
            method="drc-cma-es",
            max_evals=evaluations,
            budget=ENDLESS,
            target=False,
            callback=read,
        )
    late = [megabytes for share, megabytes in samples if share >= SETTLED]
    return {
        "kernel": kernel,
        "evaluations": result.nfev,
        "generations": result.nit,
        "seconds": result.time,
        "before": before,
        "settled": late[0],
        "end": late[-1],
        "peak": max(megabytes for _, megabytes in samples),
        "growth": max(late) - late[0],
    }


def measure(
    names: tuple[kernels.Name, ...] = kernels.NAMES, evaluations: int = EVALUATIONS
) -> Figures:
    lines = []
    for kernel in names:
        say(f"  {evaluations} evaluations with {kernel}")
        lines.append(alone(resident, kernel, evaluations))
    return {"lines": lines}


def tables(figures: Figures) -> list[Lines]:
    header = ["kernel", "evaluations", "generations above", "seconds", "before (MB)"]
    lines = [[*header, f"after {SETTLED:.0%} (MB)", "at the end (MB)", "peak (MB)"]]
    for line in figures["lines"]:
        counts = [str(line[key]) for key in ("kernel", "evaluations", "generations")]
        sizes = [f"{line[key]:.1f}" for key in ("before", "settled", "end", "peak")]
        lines.append([*counts, f"{line['seconds']:.0f}", *sizes])
    return [lines]


def targets(figures: Figures) -> list[Target]:
    made = []
    for line in figures["lines"]:
        what = f"memory over {line['evaluations']} evaluations, {line['kernel']}"
        made.append(at_most(f"{what}: peak, MB", WANTED_PEAK, line["peak"]))
        made.append(
            at_most(f"{what}: growth after {SETTLED:.0%}, MB", WANTED_GROWTH, line["growth"])
        )
    return made
