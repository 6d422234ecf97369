"""How good the answers of drc-plus are when limits end its runs.

    python -m benchmarks.limited smd5 10 --limits 5000 10000 20000 40000 --seeds 1 2 3 4 5

A run does not know the optimum. Its answer is judged by F at the run's x with the follower's true
answer to this x (the verified F).
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from functools import partial

import numpy as np

import bilevo
from benchmarks.timing import in_processes, say

SOLVED = 1e-6  # An answer counts as solved if the error of its verified F is at most this.


def error_at_limit(task: tuple[int | None, int], name: str, size: int) -> float:
    """Return the error of the verified F after a run with a limit and a seed."""
    limit, seed = task
    problem = bilevo.problems.get(name, size, size)
    result = bilevo.minimize(problem, rng=seed, target=False, max_evals=limit)
    assert problem.optimum is not None and problem.response is not None
    x = result.x[None]
    return abs(float(np.asarray(problem.F(x, problem.response(x)))[0]) - problem.optimum.F)


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.limited", description=__doc__)
    parser.add_argument("problem", help="a problem of SMD with a known response")
    parser.add_argument("size", type=int, help="variables at each level")
    parser.add_argument("--limits", type=int, nargs="+", default=[5000, 10_000, 20_000, 40_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    tasks = [(limit, seed) for limit in given.limits for seed in given.seeds]
    one = partial(error_at_limit, name=given.problem, size=given.size)
    errors = np.array(in_processes(one, tasks, given.jobs)).reshape(len(given.limits), -1)
    for limit, row in zip(given.limits, errors, strict=True):
        say(f"{limit:>8} evaluations: {(row <= SOLVED).sum()} of {row.size}, worst {row.max():.1e}")
    return int((errors > SOLVED).any())


if __name__ == "__main__":
    sys.exit(main())
