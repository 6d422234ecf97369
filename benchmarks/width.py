"""What `DRCPlus(width=...)` gains and costs with many workers.

    python -m benchmarks.width --problems smd1 smd7 --widths 1 8 --runs 3
    python -m benchmarks.width --threads 8

A round is the time of one evaluation: a request of k points takes ceil(k / workers) rounds. The
ideal speed-up is the number of evaluations divided by the number of rounds. It says how well
workers are used; how long a run takes is said by its rounds. With `--threads`, the speed-up is
measured instead, with an objective that sleeps 20 ms.
"""

from __future__ import annotations

from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from statistics import median

import bilevo
from benchmarks.timing import say
from benchmarks.workers import speed
from bilevo.algorithms import DRCPlus
from bilevo.core.request import Level
from bilevo.lab.show.formats import show

WORKERS = (8, 64)
HEADER = ["problem", "width", "solved", "evaluations", "points a request"]
HEADER += [f"ideal speed-up, {count} workers" for count in WORKERS]
HEADER += [f"rounds, {count} workers" for count in WORKERS]
NEAR = 1e-6


def batches_of(name: str, size: int, width: int, seed: int, known: bool) -> tuple[list[int], bool]:
    """Return the sizes of a run's requests, and whether it has come to the optimum.

    The run ends at the optimum if that is `known`.
    """
    problem = bilevo.problems.get(name, size, size)
    target = None if known else False
    run = bilevo.Optimizer(problem, method=DRCPlus(width=width), rng=seed, target=target)
    sizes = []
    while not run.done:
        batch = run.ask()
        F, G, f, g = problem.evaluate(batch.x, batch.y)
        run.tell(batch, *((F, G) if batch.level is Level.UPPER else (f, g)))
        sizes.append(len(batch.x))
    assert problem.optimum is not None
    return sizes, abs(run.result.F - problem.optimum.F) <= NEAR


def line(name: str, size: int, width: int, seeds: range, known: bool) -> list[str]:
    """Return a line of the table: medians over runs."""
    runs = [batches_of(name, size, width, seed, known) for seed in seeds]
    spent = [sum(sizes) for sizes, _ in runs]
    cells = [name, str(width), f"{sum(solved for _, solved in runs)} of {len(runs)}"]
    cells += [f"{median(spent):,.0f}", f"{median(sum(s) / len(s) for s, _ in runs):.1f}"]
    rounds = {w: [sum(ceil(k / w) for k in sizes) for sizes, _ in runs] for w in WORKERS}
    for count in WORKERS:
        ratios = [total / steps for total, steps in zip(spent, rounds[count], strict=True)]
        cells.append(f"{median(ratios):.1f}")
    return cells + [f"{median(rounds[count]):,.0f}" for count in WORKERS]


def main() -> None:
    """Print the table, or the measured speed-up."""
    parser = ArgumentParser(prog="python -m benchmarks.width", description=__doc__)
    parser.add_argument("--problems", nargs="+", default=["smd1", "smd2", "smd5", "smd7", "smd10"])
    parser.add_argument("--size", type=int, default=10, help="variables at each level")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--free", action="store_true", help="runs do not know the optimum")
    parser.add_argument("--threads", type=int, help="measure the speed-up with so many threads")
    given = parser.parse_args()
    if given.threads is not None:
        for width in given.widths:
            method, one = DRCPlus(width=width), speed(1, DRCPlus(width=width))
            with ThreadPoolExecutor(given.threads) as threads:
                gain = speed(threads, method) / one
            say(f"width {width}: {given.threads} threads make {gain:.2f} times the evaluations")
        return
    seeds = range(given.seed, given.seed + given.runs)
    rows = [
        line(name, given.size, width, seeds, not given.free)
        for name in given.problems
        for width in given.widths
    ]
    say(show([HEADER, *rows], markdown=True))


if __name__ == "__main__":
    main()
