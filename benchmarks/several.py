"""Measure runs with several followers: `python -m benchmarks.several [--seed N] [--seeds K]`.

It prints, as lines for docs/recipe_several_followers.md:

- the ten oligopolies and the linear markets, where the optimum is known: how far F is from it, how
  many evaluations a run takes, and the residual that `verify` finds, which searches each follower's
  box again;
- what ten independent followers that share one function cost, relative to one;
- what runs say about games without an equilibrium, and where best responses diverge.

Runs do not know the optima, and other seeds than those of the tests are used. The exit status is 1
if a limit is missed. It takes about a quarter of an hour.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

import bilevo
from bilevo import Follower, Problem
from bilevo.problems.several import COURNOT, INSTANCES, make, smd1_copies

MOST_ERROR = 1e-5  # of F in an oligopoly, relative to F
MOST_LINEAR_ERROR = 1e-6  # of F in a linear market
MOST_RESIDUAL = 1e-6
MOST_EVALUATIONS = 5000
MOST_RATIO = 2.0  # the cost of ten followers, relative to one
BOX = [(-1.0, 1.0)]


class Row(NamedTuple):
    """What runs on one problem have shown: the worst of each."""

    name: str
    error: float  # of F: relative in oligopolies, absolute in linear markets
    residual: float
    evaluations: int
    solved: int  # runs that are certified, confirmed, and within all limits
    runs: int

    @property
    def line(self) -> str:
        numbers = f"{self.error:.1e} | {self.residual:.1e} | {self.evaluations:,}"
        return f"| `{self.name}` | {numbers} | {self.solved} of {self.runs} |"


def measured(name: str, seeds: Iterable[int]) -> Row:
    """Solve and verify a market with each seed."""
    problem = make(name)
    assert problem.optimum is not None
    linear = name.startswith("cournot")
    scale = 1.0 if linear else abs(problem.optimum.F)
    limit = MOST_LINEAR_ERROR if linear else MOST_ERROR
    errors, residuals, evaluations, fine = [], [], [], []
    for seed in seeds:
        result = bilevo.minimize(problem, rng=seed, target=False)
        certificate = bilevo.verify(problem, result, rng=seed)
        errors.append(abs(result.F - problem.optimum.F) / scale)
        residuals.append(certificate.follower_gap)
        evaluations.append(result.nfev)
        few = linear or result.nfev <= MOST_EVALUATIONS
        good = errors[-1] <= limit and residuals[-1] <= MOST_RESIDUAL and certificate.confirmed
        fine.append(bool(result.success and good and few))
    return Row(name, max(errors), max(residuals), max(evaluations), sum(fine), len(fine))


class Cost(NamedTuple):
    """The evaluations of runs with some followers: the median, and the most."""

    median: float
    most: int


def cost_of_copies(count: int, seeds: Iterable[int], target: Any) -> Cost:
    """Solve SMD1 with `count` followers; `target` is as in `minimize`."""
    problem, spent = smd1_copies(count), []
    assert problem.optimum is not None
    for seed in seeds:
        result = bilevo.minimize(problem, rng=seed, target=target)
        if not (result.success and abs(result.F - problem.optimum.F) <= 1e-5):
            raise RuntimeError(f"{problem.name} was not solved with the seed {seed}: {result}")
        spent.append(result.nfev)
    return Cost(float(np.median(spent)), max(spent))


def game(f1: Any, f2: Any, width: float = 1.0) -> Problem:
    """Make a game of two followers with one variable each."""
    box = [(-width, width)]
    return Problem(
        lambda x, y: float((x[0] - 0.5) ** 2 + y @ y),
        None,
        BOX,
        followers=[Follower(f1, box), Follower(f2, box)],
        play="nash",
    )


WITHOUT = {
    "pursuit": game(lambda x, y: (y[0] - y[1]) ** 2, lambda x, y: -((y[0] - y[1]) ** 2)),
    "pursuit, moved by x": game(
        lambda x, y: (y[0] - y[1] - 0.2 * x[0]) ** 2, lambda x, y: -((y[0] - y[1]) ** 2)
    ),
}
# Each answer overshoots that of the other, so that best responses spiral out to the box. The only
# equilibrium is y = (x, -s x) / (1 + s^2).
DIVERGING = {
    f"spiral, s = {s}": game(
        lambda x, y, s=s: (y[0] - s * y[1] - x[0]) ** 2, lambda x, y, s=s: (y[1] + s * y[0]) ** 2, 9
    )
    for s in (1.5, 3, 10)
}


def said_of(problem: Problem, seeds: Iterable[int]) -> tuple[int, int, int]:
    """Count runs: certified and confirmed, without an equilibrium and honest, and all others."""
    counts = [0, 0, 0]
    for seed in seeds:
        result = bilevo.minimize(problem, rng=seed, max_evals=MOST_EVALUATIONS)
        honest = not result.success and "no equilibrium of the followers was found" in (
            result.message
        )
        if result.success and bilevo.verify(problem, result, rng=seed, effort="low").confirmed:
            counts[0] += 1
        else:
            counts[1 if honest else 2] += 1
    return counts[0], counts[1], counts[2]


def markets(seeds: range) -> bool:
    """Print the table of markets; return whether all runs are within the limits."""
    names = [f"oligopoly{number}" for number in range(1, len(INSTANCES) + 1)]
    names += [f"cournot{count}" for count in COURNOT]
    print("| problem | largest error of F | largest residual | most evaluations | solved |")
    print("|---|---|---|---|---|")
    fine = True
    for name in names:
        row = measured(name, seeds)
        fine &= row.solved == row.runs
        print(row.line, flush=True)
    return fine


def copies(seeds: range) -> bool:
    """Print what followers cost; return whether ten cost at most twice one."""
    print("\n| end of the run | one follower | ten | ratio of medians |")
    print("|---|---|---|---|")
    ratios = []
    for words, target in (("the search has settled", False), ("at the optimum's F", None)):
        one, ten = (cost_of_copies(count, seeds, target) for count in (1, 10))
        ratios.append(ten.median / one.median)
        medians = f"{one.median:,.0f} (at most {one.most:,}) | {ten.median:,.0f} ({ten.most:,})"
        print(f"| {words} | {medians} | {ratios[-1]:.2f} |", flush=True)
    return max(ratios) <= MOST_RATIO


def games(seeds: range) -> bool:
    """Print what runs say about odd games; return whether no run claims what is not so."""
    print("\n| game | certified and confirmed | no equilibrium found | other |")
    print("|---|---|---|---|")
    fine = True
    for name, problem in (WITHOUT | DIVERGING).items():
        certified, none, other = said_of(problem, seeds)
        fine &= other == 0 and not (certified and name in WITHOUT)
        print(f"| {name} | {certified} | {none} | {other} |", flush=True)
    return fine


PARTS = {"markets": markets, "copies": copies, "games": games}


def main(arguments: list[str] | None = None) -> int:
    parser = ArgumentParser(description="Measure runs with several followers.")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all of them by default")
    parser.add_argument("--seed", type=int, default=9301, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.seeds)
    fine = [PARTS[part](seeds) for part in options.parts or PARTS]
    return int(not all(fine))


if __name__ == "__main__":
    sys.exit(main())
