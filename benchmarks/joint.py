"""Joint simulators: how many simulations replace the evaluations of two functions.

    python -m benchmarks.joint --seed 9201

The first run of `few`, the default for such limits, has two functions and a limit on all
evaluations. The second run has the same problem as a simulator that returns F and f together
(`Problem.joint`). It takes the same course, up to the evaluations of the first run at each level.
Functions and simulators count their own calls.

A run has solved a problem from when on all its best pairs have a relative error of at most 1e-2
(see benchmarks.few).
"""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import bilevo
from benchmarks.few import SOLVED, error_of
from benchmarks.timing import say
from bilevo.algorithms.few.method import Few, FewState
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Incumbent, Procedure, Request, relayed
from bilevo.core.space import UnitBox
from bilevo.lab.show.formats import show

PROBLEMS = [f"smd{i}" for i in range(1, 7)]


@dataclass(slots=True)
class Calls:
    """Counts calls, and the best pairs with the calls before them."""

    upper: int = 0
    lower: int = 0
    both: int = 0
    best: list[tuple[int, Incumbent]] = field(default_factory=list)

    @property
    def all(self) -> int:
        return self.upper + self.lower + self.both

    def solved_after(self, name: str) -> float:
        """Return the calls after which all best pairs are good; infinite if the last is not."""
        problem, after = bilevo.problems.get(name), math.inf
        boxes = UnitBox(problem.x_bounds), UnitBox(problem.y_bounds)
        for calls, pair in reversed(self.best):
            x, y = (box.real(unit[None])[0] for box, unit in zip(boxes, pair[:2], strict=True))
            if not error_of(name, (x, y)) <= SOLVED:
                break
            after = calls
        return after


@dataclass(frozen=True, slots=True)
class Watched(Few):
    """The method, with notes of its best pairs."""

    calls: Calls = field(default_factory=Calls)

    def generation(self, spec: Spec, state: FewState) -> Procedure[FewState]:
        def noted(request: Request) -> Request:
            if isinstance(request, Incumbent):
                self.calls.best.append((self.calls.all, request))
            return request

        return relayed(Few.generation(self, spec, state), noted, lambda _, values: values)


def run(problem: Problem, calls: Calls, seed: int, **limits: Any) -> None:
    found = bilevo.minimize(problem, method=Watched(calls), rng=seed, target=False, **limits)
    assert found.nfev == calls.all


def compare(name: str, seed: int, limit: int) -> tuple[float, ...]:
    """Return calls of F and of f, simulations, and the calls of both runs until it is solved."""
    problem, apart, together = bilevo.problems.get(name), Calls(), Calls()

    def counted(calls: Calls, level: str, value: Callable[..., Any]) -> Callable[..., Any]:
        def function(x: FloatArray, y: FloatArray) -> Any:
            setattr(calls, level, getattr(calls, level) + 1)
            return value(x, y)

        return function

    bounds = problem.x_bounds, problem.y_bounds
    F = counted(apart, "upper", lambda x, y: problem.evaluate(x, y)[0][0])
    f = counted(apart, "lower", lambda x, y: problem.evaluate(x, y)[2][0])
    run(Problem(F, f, *bounds), apart, seed, max_evals=limit)
    simulate = counted(together, "both", lambda x, y: [v[0] for v in problem.evaluate(x, y)[::2]])
    levels = {"max_evals_upper": apart.upper, "max_evals_lower": apart.lower}
    run(Problem.joint(simulate, *bounds), together, seed, **levels)
    until = apart.solved_after(name), together.solved_after(name)
    return apart.upper, apart.lower, together.both, *until


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.joint", description="joint simulators")
    parser.add_argument("--runs", type=int, default=11, help="runs of a problem")
    parser.add_argument("--seed", type=int, default=71_001, help="seed of the first run")
    parser.add_argument("--limit", type=int, default=500, help="evaluations of a run")
    given = parser.parse_args()
    head = ["problem", "of F", "of f", "simulations", "evaluations until solved"]
    lines = [[*head, "simulations until solved", "ratio of these"]]
    for name in PROBLEMS:
        made = [compare(name, given.seed + i, given.limit) for i in range(given.runs)]
        middle = [median(column) for column in zip(*made, strict=True)]
        ratio = median(one[4] / one[3] if one[3] < math.inf else math.inf for one in made)
        lines.append([name, *(f"{number:.0f}" for number in middle), f"{ratio:.2f}"])
    say(show(lines, markdown=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
