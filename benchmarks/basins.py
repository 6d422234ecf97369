"""How often checks find a deeper basin of a follower, and what that costs.

    python -m benchmarks.basins
    python -m benchmarks.basins --ripples

The follower has a wide bowl, whose bottom is the answer under test, and a narrow, deeper basin at a
random place. The basin is a ball, whose volume is a given fraction of the box. A part of the ball
may lie outside the box. Each line of the table shows for some volumes the share of problems in
which a check found the deeper basin, and the mean number of evaluations that the check cost.

With `--ripples`, followers of SMD3 and SMD4 have many basins. The answer under test is in a wrong
one along two variables, and the table shows how often `verify` finds the best basin.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial

import numpy as np

import bilevo
from bilevo import kernels
from bilevo.algorithms.drc_plus.certificate import LEAST_THOROUGH, check_answer
from bilevo.algorithms.drc_plus.experience import Experience
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.independent_search import Effort
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import FullBudget
from bilevo.core.problem import Spec
from bilevo.lab.show.formats import Lines, show
from bilevo.verification.by_search import verify_by_search
from bilevo.verification.follower_problem import Claim, FollowerProblem

SIZES = (1, 2, 5)  # The follower's numbers of variables.
VOLUMES = (0.01, 0.03, 0.1)  # Volumes of the deeper basin, as fractions of the box.
RIPPLED_SIZES = (4, 6, 10)  # The same where f has ripples.
NEAR = 1e-6  # The best basin was found if f is this near to its best value.
PROBLEMS = 50  # How many problems each share is measured with.


def radius_of(volume: float, n: int) -> float:
    """Return the radius of a ball of this volume in n dimensions."""
    return float((volume * math.gamma(n / 2 + 1)) ** (1 / n) / math.sqrt(math.pi))


def follower(n: int, volume: float, rng: np.random.Generator) -> tuple[bilevo.Problem, FloatArray]:
    """Return a problem whose follower has a deeper basin, and the bottom of the wide bowl."""
    radius = radius_of(volume, n)
    bowl, deep = rng.random(n), rng.random(n)
    while np.linalg.norm(bowl - deep) < 1.2 * radius:
        bowl, deep = rng.random(n), rng.random(n)
    depth = 1.0 + n  # more than the height of the bowl anywhere in the box

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        high = ((y - bowl) ** 2).sum(axis=1)
        near = np.maximum(0.0, 1 - ((y - deep) ** 2).sum(axis=1) / radius**2)
        return np.asarray(high - depth * near**2)

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(y[:, 0])

    return bilevo.Problem(F, f, [(0, 1)], [(0, 1)] * n, vectorized=True), bowl


def measure(effort: Effort, n: int, volume: float, problems: int) -> tuple[float, float]:
    """Return the share of problems whose deeper basin `verify` finds, and the mean evaluations."""
    found, spent = 0, 0
    for seed in range(problems):
        problem, y = follower(n, volume, np.random.default_rng([seed, n]))
        x = np.array([0.5])
        F, _, f, _ = problem.evaluate(x, y)
        claim = Claim(x, y, float(F[0]), float(f[0]), 0.0)
        certificate = verify_by_search(problem, claim, seed, effort)
        found += not certificate.confirmed
        spent += certificate.nfev_lower + certificate.nfev_upper
    return found / problems, spent / problems


def measure_ripples(name: str, effort: Effort, n: int, problems: int) -> tuple[float, float]:
    """Return in which share of problems `verify` finds the best of many basins, and the cost."""
    problem, found, spent = bilevo.problems.get(name, n, n), 0, 0
    assert problem.response is not None
    for seed in range(problems):
        x = np.random.default_rng([seed, n]).uniform(0.1, 0.3, n)
        best = problem.response(x[None])[0]
        wrong = best.copy()
        wrong[:2] = 1.0  # a basin beside the best one
        F, _, f, _ = problem.evaluate(x, wrong)
        claim = Claim(x, wrong, float(F[0]), float(f[0]), 0.0)
        certificate = verify_by_search(problem, claim, seed, effort)
        found += abs(certificate.f - float(problem.evaluate(x, best)[2][0])) < NEAR
        spent += certificate.nfev_lower + certificate.nfev_upper
    return found / problems, spent / problems


def ripples(problems: int) -> Lines:
    """Return a line for each effort, problem and size."""
    lines: Lines = [["effort", "problem", "n", "found", "cost"]]
    for effort in Effort:
        for name in ("smd3", "smd4"):
            for n in RIPPLED_SIZES:
                share, cost = measure_ripples(name, effort, n, problems)
                lines.append([str(effort), name, str(n), f"{share:.0%}", f"{cost:,.0f}"])
    return lines


def measure_run(thorough: float, n: int, volume: float, problems: int) -> tuple[float, float]:
    """Return the share and the mean evaluations for the check that a run of drc-plus makes."""
    found, spent = 0, 0
    for seed in range(problems):
        problem, y = follower(n, volume, np.random.default_rng([seed, n]))
        x = np.array([0.5])
        budget = FullBudget.for_size(1, n)
        spec = Spec(1, n, seed, budget, np.full(1 + n, 0.3))
        at_x = FollowerProblem(problem, x)
        solver = WarmFollower(spec, Experience.none(1, n))
        rng = np.random.default_rng(seed)
        own = at_x.run(solver.at(x, y[None]))
        check = at_x.run(check_answer(solver, own, rng, thorough=thorough))
        found += not check.stands
        spent += at_x.evaluations.spent
    return found / problems, spent / problems


def table(problems: int) -> Lines:
    """Return a line for each effort and size."""
    lines: Lines = [["effort", "n", *(f"{volume:.0%} of the box" for volume in VOLUMES), "cost"]]
    measures: list[tuple[str, Callable[..., tuple[float, float]]]]
    measures = [("a run of drc-plus", partial(measure_run, 1.0))]
    end = f"the end of its run, {LEAST_THOROUGH} times as thorough"
    measures += [(end, partial(measure_run, LEAST_THOROUGH))]
    measures += [(effort, partial(measure, effort)) for effort in Effort]
    for name, measured in measures:
        for n in SIZES:
            rows = [measured(n, volume, problems) for volume in VOLUMES]
            shares = [f"{share:.0%}" for share, _ in rows]
            cost = f"{sum(spent for _, spent in rows) / len(rows):,.0f}"
            lines.append([str(name), str(n), *shares, cost])
    return lines


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(description="How often checks find a deeper basin.")
    parser.add_argument("--problems", type=int, default=PROBLEMS, help="for each cell")
    parser.add_argument("--ripples", action="store_true", help="followers with many basins")
    given = parser.parse_args()
    with kernels.using(kernels.default()):
        lines = ripples(given.problems) if given.ripples else table(given.problems)
        print(show(lines, markdown=True))


if __name__ == "__main__":
    main()
