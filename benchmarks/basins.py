"""How often checks find a deeper basin of a follower, and what that costs.

    python -m benchmarks.basins

The follower has a wide bowl, whose bottom is the answer under test, and a narrow, deeper basin at a
random place. The basin is a ball (where it leaves the box, a part of it) whose volume is a part of
the box. Each line is the share of problems in which the deeper basin was found.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial

import numpy as np

import bilevo
from bilevo import kernels
from bilevo.algorithms.drc_plus.certificate import check_answer
from bilevo.algorithms.drc_plus.experience import Experience
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.independent_search import Effort
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import FullBudget
from bilevo.core.problem import Spec
from bilevo.lab.show.formats import Lines, show
from bilevo.verification.by_search import verify_by_search
from bilevo.verification.follower_problem import Claim, FollowerProblem

SIZES = (1, 2, 5)  # of the follower
VOLUMES = (0.01, 0.03, 0.1)  # of the deeper basin, of the box
PROBLEMS = 50


def radius_of(volume: float, n: int) -> float:
    """Return the radius of a ball of this volume in n dimensions."""
    return float((volume * math.gamma(n / 2 + 1)) ** (1 / n) / math.sqrt(math.pi))


def follower(n: int, volume: float, rng: np.random.Generator) -> tuple[bilevo.Problem, FloatArray]:
    """Return a problem whose follower has a deeper basin, and the bottom of the wide bowl."""
    radius = radius_of(volume, n)
    bowl, deep = rng.random(n), rng.random(n)
    while np.linalg.norm(bowl - deep) < 1.2 * radius:
        bowl, deep = rng.random(n), rng.random(n)
    depth = 1.0 + n  # deeper than the bowl is high anywhere

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        high = ((y - bowl) ** 2).sum(axis=1)
        near = np.maximum(0.0, 1 - ((y - deep) ** 2).sum(axis=1) / radius**2)
        return np.asarray(high - depth * near**2)

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(y[:, 0])

    return bilevo.Problem(F, f, [(0, 1)], [(0, 1)] * n, vectorized=True), bowl


def measure(effort: Effort, n: int, volume: float, problems: int) -> tuple[float, float]:
    """Return the share of problems whose deeper basin is found, and the mean cost."""
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


def measure_run(n: int, volume: float, problems: int) -> tuple[float, float]:
    """Return the same for the certificate that drc-plus makes of its own answer."""
    found, spent = 0, 0
    for seed in range(problems):
        problem, y = follower(n, volume, np.random.default_rng([seed, n]))
        x = np.array([0.5])
        budget = FullBudget.for_size(1, n)
        spec = Spec(1, n, seed, budget, np.full(1 + n, 0.3))
        at_x = FollowerProblem(problem, x)
        solver = WarmFollower(spec, Experience.none(1, n))
        own = at_x.run(solver.at(x, y[None]))
        check = at_x.run(check_answer(solver, own, np.random.default_rng(seed)))
        found += not check.stands
        spent += at_x.evaluations.spent
    return found / problems, spent / problems


def table(problems: int) -> Lines:
    """Return a line for each effort and size."""
    lines: Lines = [["effort", "n", *(f"{volume:.0%} of the box" for volume in VOLUMES), "cost"]]
    measures: list[tuple[str, Callable[..., tuple[float, float]]]]
    measures = [("a run of drc-plus", measure_run)]
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
    problems = parser.parse_args().problems
    with kernels.using(kernels.default()):
        print(show(table(problems), markdown=True))


if __name__ == "__main__":
    main()
