"""Measure how workers speed up DRC-CMA-ES at (10, 10), with an objective that sleeps 20 ms.

The speed-up is the number of evaluations per second divided by that number with one worker. An
objective that sleeps uses no core. So threads, and more processes than cores, can be compared on
every machine.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, sleep
from typing import Any

import bilevo
from bilevo.core.problem import Function

SECONDS = 0.02  # The seconds that the objective sleeps.
EVALUATIONS = 1500  # The evaluations of a run.


def slow(function: Function) -> Function:
    def evaluate(x: Any, y: Any) -> Any:
        sleep(SECONDS)
        return function(x[None], y[None])[0]

    return evaluate


def speed(workers: Any, method: Any = "drc-cma-es", evaluations: int = EVALUATIONS) -> float:
    """Return evaluations per second; the time includes the start of the workers."""
    smd1 = bilevo.problems.get("smd1", 10, 10)
    problem = bilevo.Problem(slow(smd1.F), slow(smd1.f), smd1.x_bounds, smd1.y_bounds)
    started = perf_counter()
    result = bilevo.minimize(problem, method=method, workers=workers, max_evals=evaluations)
    return result.nfev / (perf_counter() - started)


if __name__ == "__main__":
    print(
        f"speed-up by workers (an objective of {1000 * SECONDS:.0f} ms, {EVALUATIONS} evaluations)"
    )
    one = speed(1)
    print(f"  1 process: {one:.1f} evaluations a second")
    print(f"  2 processes: {speed(2) / one:.2f} times that")
    with ThreadPoolExecutor(8) as threads:
        print(f"  8 threads: {speed(threads) / one:.2f} times that")
    rounds = bilevo.algorithms.DRC(parallel="rounds")
    with ThreadPoolExecutor(32) as threads:
        print(f"  32 threads: {speed(threads) / one:.2f} times that")
        print(f'  32 threads, parallel="rounds": {speed(threads, rounds) / one:.2f} times that')
