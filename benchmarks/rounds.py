"""Compare the two modes of DRC: what `parallel="rounds"` gains and costs.

    python benchmarks/rounds.py --runs 21

The table shows medians over runs. A request is a batch of points that can be evaluated at once.
With enough workers, the time of a run is proportional to the number of requests. "verified" is
|F(x, y*(x)) - F*|, the leader's error with the follower's true answer.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import NamedTuple

import numpy as np

import bilevo
from bilevo.algorithms import DRC
from bilevo.core.request import Level
from bilevo.lab.checks import checked
from bilevo.lab.show.formats import show

PROBLEMS = ("smd1", "smd2", "smd3", "smd4", "smd5", "smd6", "smd9", "smd12")
HEADER = [
    "problem",
    "parallel",
    "evaluations",
    "",
    "upper",
    "",
    "requests",
    "points/request",
    "",
    "error",
    "target met",
    "verified",
]


class Run(NamedTuple):
    """The cost and the accuracy of one run."""

    evaluations: int
    upper: int
    requests: int
    points: float  # the average number of points in a request
    error: float
    met: bool
    verified: float


def carry_out(name: str, m: int, n: int, method: DRC, seed: int) -> Run:
    problem = bilevo.problems.get(name, m, n)
    assert problem.optimum is not None
    opt = bilevo.Optimizer(problem, method=method, rng=seed)
    requests = 0
    while not opt.done:
        batch = opt.ask()
        F, G, f, g = problem.evaluate(batch.x, batch.y)
        opt.tell(batch, *((F, G) if batch.level is Level.UPPER else (f, g)))
        requests += 1
    result, best = opt.result, problem.optimum.F
    return Run(
        result.nfev,
        result.nfev_upper,
        requests,
        result.nfev / requests,
        abs(result.F - best),
        result.status == "target",
        abs(checked(problem, result.x, result.y, result.f).F_verified - best),
    )


def median_of(runs: list[Run]) -> Run:
    return Run(*np.median(np.array(runs, float), axis=0))


def line(name: str, mode: str, runs: list[Run], exact: Run) -> list[str]:
    """Return a line of the table; columns with an "x" are ratios to the exact mode."""
    median = median_of(runs)
    return [
        name,
        mode,
        f"{median.evaluations:.0f}",
        f"x{median.evaluations / exact.evaluations:.2f}",
        f"{median.upper:.0f}",
        f"x{median.upper / exact.upper:.2f}",
        f"{median.requests:.0f}",
        f"{median.points:.1f}",
        f"x{median.points / exact.points:.2f}",
        f"{median.error:.1e}",
        f"{sum(run.met for run in runs)}/{len(runs)}",
        f"{median.verified:.1e}",
    ]


def compare(name: str, m: int, n: int, count: int) -> list[list[str]]:
    """Return the two lines of a problem."""
    exact, rounds = (
        [carry_out(name, m, n, method, seed) for seed in range(count)]
        for method in (DRC(), DRC(parallel="rounds"))
    )
    base = median_of(exact)
    return [line(name, "points", exact, base), line(name, "rounds", rounds, base)]


if __name__ == "__main__":
    parser = ArgumentParser(description="DRC's exact mode against parallel='rounds'")
    parser.add_argument("--runs", type=int, default=21, help="runs per problem and mode")
    parser.add_argument("--dim", default="2,3", help="sizes M,N")
    parser.add_argument("--only", default=",".join(PROBLEMS), help="problems, separated by commas")
    options = parser.parse_args()
    m, n = (int(part) for part in options.dim.split(","))
    table = [HEADER]
    for name in options.only.split(","):
        table += compare(name, m, n, options.runs)
    print(show(table, markdown=False))
