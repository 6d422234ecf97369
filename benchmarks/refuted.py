"""How often a thorough `verify` refutes a success, on random problems.

    python -m benchmarks.refuted --count 300 --seed 1

The true answers to these problems are not known. So the program only counts how many successes are
refuted, which must be none.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import bilevo
from benchmarks.known.construction import confirms
from benchmarks.known.random_problems import random_problem
from benchmarks.timing import in_processes, say

MOST = 20_000  # The most evaluations of a run.


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run on a random problem.

    `refuted` is the certificate's message if it refutes a success, and empty otherwise.
    """

    name: str
    success: bool
    status: str
    F: float
    evaluations: int
    refuted: str
    checks: int  # lower evaluations that `verify` made
    seconds: float


def verify_thoroughly(problem: bilevo.Problem, result: bilevo.Result) -> bilevo.Certificate:
    """Verify with high effort."""
    return bilevo.verify(problem, result, effort="high")


def attempt(index: int, seed: int, max_evals: int = MOST, run: int = 1) -> Outcome:
    """Solve a random problem, and verify the answer if the run claims success."""
    started = perf_counter()
    problem = random_problem(index, seed)
    result = bilevo.minimize(problem, rng=run, max_evals=max_evals)
    message, checks = "", 0
    if result.success:
        certificate = verify_thoroughly(problem, result)
        checks = certificate.nfev_lower
        if not confirms(certificate):
            message = certificate.message
    return Outcome(
        problem.name,
        result.success,
        result.status,
        result.F,
        result.nfev,
        message,
        checks,
        perf_counter() - started,
    )


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.refuted", description="refuted successes")
    parser.add_argument("--count", type=int, default=300, help="number of problems")
    parser.add_argument("--seed", type=int, default=1, help="seed of the problems")
    parser.add_argument("--run", type=int, default=1, help="seed of the runs")
    parser.add_argument("--max-evals", type=int, default=MOST, help="most evaluations of a run")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    given = parser.parse_args()
    one = partial(attempt, seed=given.seed, max_evals=given.max_evals, run=given.run)
    outcomes = in_processes(one, range(given.count), given.jobs)
    refuted = [outcome for outcome in outcomes if outcome.refuted]
    sure = sum(outcome.success for outcome in outcomes)
    say(f"{len(outcomes)} runs, {sure} with success, {len(refuted)} of these REFUTED")
    for outcome in refuted:
        say(f"  {outcome.name}: F = {outcome.F:.6g}, {outcome.status}; {outcome.refuted}")
    return int(bool(refuted))


if __name__ == "__main__":
    sys.exit(main())
