"""Measure how time depends on the number of variables, on runs in a campaign, and on workers.

The runs are drc-cma-es on SMD1, up to a fixed number of evaluations. A campaign has one process per
run, and a given number of processes run at once. The time includes the start of each run, but not
the start of the campaign. The last part measures `minimize(workers=)` with an objective that
sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import bilevo
from benchmarks import workers
from benchmarks.report import Target
from benchmarks.timing import Figures, interleaved, say, seconds
from bilevo import kernels
from bilevo.lab.campaign import tasks_of
from bilevo.lab.plans import Experiment, Plan
from bilevo.lab.show.formats import Lines
from bilevo.lab.workers import by_processes

SIZES = ((2, 3), (5, 5), (10, 10), (20, 20), (30, 30))
PROCESSES = (1, 2)
QUICK = {"repeats": 1, "longest": 5000, "runs": (8,), "sleeps": 150}


def time_per_evaluation(size: tuple[int, int], kernel: kernels.Name, longest: int) -> float:
    problem, evaluations = bilevo.problems.get("smd1", *size), 0

    def run() -> None:
        nonlocal evaluations
        evaluations = bilevo.minimize(problem, method="drc-cma-es", max_evals=longest).nfev

    with kernels.using(kernel):
        return seconds(run) / evaluations


def with_size(
    sizes: tuple[tuple[int, int], ...], names: tuple[kernels.Name, ...], repeats: int, longest: int
) -> list[Figures]:
    lines = []
    for size in sizes:
        say(f"  runs at {size}")
        measures: dict[str, Callable[[], float]]
        measures = {name: partial(time_per_evaluation, size, name, longest) for name in names}
        best = interleaved(measures, repeats)
        us = {name: 1e6 * time for name, time in best.items()}
        lines.append({"size": list(size), "us": us})
    return lines


def campaign_time(runs: int, processes: int) -> float:
    """Return the seconds of a campaign of runs at (2, 3), without storing them."""
    tasks = tasks_of(Plan((Experiment(("drc-cma-es",), ("smd1",), runs=runs),)))
    return seconds(lambda: list(by_processes(tasks, processes)))


def with_runs(runs: tuple[int, ...], repeats: int) -> list[Figures]:
    """Measure the runs per second of short and long campaigns, with one and more processes."""
    campaign_time(1, 1)  # starts the server that later runs are forked from
    lines = []
    for count in runs:
        say(f"  a campaign of {count} runs")
        measures = {str(k): partial(campaign_time, count, k) for k in PROCESSES}
        best = interleaved(measures, repeats)
        speeds = {processes: count / time for processes, time in best.items()}
        lines.append({"runs": count, "speed": speeds})
    return lines


def with_workers(evaluations: int) -> dict[str, float]:
    """Measure evaluations per second with one and more workers."""
    say("  workers")
    return {str(k): workers.speed(k, evaluations=evaluations) for k in PROCESSES}


def measure(
    sizes: tuple[tuple[int, int], ...] = SIZES,
    names: tuple[kernels.Name, ...] = kernels.NAMES,
    repeats: int = 3,
    longest: int = 20_000,
    runs: tuple[int, ...] = (8, 32),
    sleeps: int = 300,
) -> Figures:
    return {
        "sizes": with_size(sizes, names, repeats, longest),
        "campaigns": with_runs(runs, repeats),
        "workers": with_workers(sleeps),
        "longest": longest,
    }


def tables(figures: Figures) -> list[Lines]:
    names = list(figures["sizes"][0]["us"])
    sizes = [["(m, n)", *(f"{name} (us an evaluation)" for name in names)]]
    for line in figures["sizes"]:
        us = [f"{line['us'][name]:.1f}" for name in names]
        sizes.append(["({}, {})".format(*line["size"]), *us])
    counts = list(figures["workers"])
    header = [f"{count} process{'es' if count != '1' else ''}" for count in counts]
    speeds = [["", *header, "ratio"]]
    for line in figures["campaigns"]:
        what = f"runs a second, campaign of {line['runs']} at (2, 3)"
        speeds.append([what, *_speeds(line["speed"], counts)])
    what = f"evaluations a second, an objective of {1e3 * workers.SECONDS:.0f} ms at (10, 10)"
    speeds.append([what, *_speeds(figures["workers"], counts)])
    return [sizes, speeds]


def targets(figures: Figures) -> list[Target]:
    """Return an empty list, because these figures have no targets."""
    return []


def _speeds(speed: dict[str, float], counts: list[str]) -> list[str]:
    """Return the speeds, and the ratio of the last to the first."""
    ratio = speed[counts[-1]] / speed[counts[0]]
    return [*(f"{speed[count]:.1f}" for count in counts), f"{ratio:.2f}"]
