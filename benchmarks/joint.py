"""Joint simulators: how many simulations replace the evaluations of two functions.

    python -m benchmarks.joint --seed 9201

A problem is solved with two functions, and as a simulator that returns F and f together
(`Problem.joint`). Functions and simulators count their own calls.

The first table has runs of `few`, the default for a limit on evaluations, whose target is not
known. A run has solved a problem from when on all its best pairs have a relative error of at most
1e-2 (see benchmarks.few). A run that does not solve it counts with the limit. The errors are those
of the answers at the end. The second and third tables have runs under the same limit, with all that
they use, certificates included. The runs of the second know the best F, and end when their answer
has reached it and is certified. Those of the third do not, and use up their limit: the table counts
until the pair at the end was certified. A run without a certificate counts with the limit. The
last table has runs with all defaults. They know the best F, have no limit, and end with a
certificate.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import bilevo
from benchmarks.few import SOLVED, error_of
from benchmarks.timing import say
from bilevo.algorithms.few.method import Few
from bilevo.algorithms.few.state import FewState
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

    def solved_after(self, name: str, limit: int) -> tuple[int, float]:
        """Return the calls after which all best pairs are good, and the error of the last.

        If the last is not good, the limit takes the place of the calls.
        """
        problem, after = bilevo.problems.get(name), limit
        boxes = UnitBox(problem.x_bounds), UnitBox(problem.y_bounds)
        errors = []
        for calls, pair in reversed(self.best):
            x, y = (box.real(unit[None])[0] for box, unit in zip(boxes, pair[:2], strict=True))
            errors.append(error_of(name, (x, y)))
            if not errors[-1] <= SOLVED:
                break
            after = calls
        return min(after, limit), errors[0]

    def certified_after(self, limit: int) -> int:
        """Return the calls after which all best pairs are certified.

        If the last is not, the limit takes the place of the calls.
        """
        after = limit
        for calls, pair in reversed(self.best):
            if not pair.certified:
                break
            after = calls
        return min(after, limit)


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


def problems(name: str) -> tuple[tuple[Problem, Calls], tuple[Problem, Calls]]:
    """Return a problem with two functions, and as a simulator, each with the count of its calls."""
    original, apart, together = bilevo.problems.get(name), Calls(), Calls()

    def counted(calls: Calls, level: str, value: Callable[..., Any]) -> Callable[..., Any]:
        def function(x: FloatArray, y: FloatArray) -> Any:
            setattr(calls, level, getattr(calls, level) + 1)
            return value(x, y)

        return function

    bounds, optimum = (original.x_bounds, original.y_bounds), original.optimum
    F = counted(apart, "upper", lambda x, y: original.evaluate(x, y)[0][0])
    f = counted(apart, "lower", lambda x, y: original.evaluate(x, y)[2][0])
    simulate = counted(together, "both", lambda x, y: [v[0] for v in original.evaluate(x, y)[::2]])
    functions = Problem(F, f, *bounds, optimum=optimum)
    return (functions, apart), (Problem.joint(simulate, *bounds, optimum=optimum), together)


def until_solved(name: str, seed: int, limit: int) -> tuple[float, ...]:
    """Return evaluations and simulations until solved, their ratio, and the errors at the end."""
    found = []
    for problem, calls in problems(name):
        run = bilevo.minimize(
            problem, method=Watched(calls), rng=seed, target=False, max_evals=limit
        )
        assert run.nfev == calls.all
        found.append(calls.solved_after(name, limit))
    (evaluations, error), (simulations, joint_error) = found
    return evaluations, simulations, simulations / evaluations, error, joint_error


def under_limit(name: str, seed: int, limit: int, blind: bool) -> tuple[float, ...]:
    """Return evaluations and simulations used, their ratio, certificates and successes of both.

    If `blind`, the runs do not know the best F, and what they used until certified counts.
    """
    used, certified, succeeded = [], [], []
    for problem, calls in problems(name):
        more: dict[str, Any] = {"target": False} if blind else {}
        run = bilevo.minimize(problem, method=Watched(calls), rng=seed, max_evals=limit, **more)
        used.append(calls.certified_after(limit) if blind else run.nfev)
        certified.append(run.certified)
        succeeded.append(run.success)
    return *used, used[1] / used[0], *certified, *succeeded


def until_the_end(name: str, seed: int) -> tuple[float, ...]:
    """Return calls of F and of f, simulations, their ratio to those of f, and both successes."""
    (functions, apart), (simulator, together) = problems(name)
    first, second = (bilevo.minimize(each, rng=seed) for each in (functions, simulator))
    ratio = together.both / apart.lower
    return apart.upper, apart.lower, together.both, ratio, first.success, second.success


def first_table(seeds: range, limit: int) -> list[list[str]]:
    """Return the lines of the table of evaluations until solved."""
    head = ["problem", "evaluations until solved", "simulations until solved", "ratio"]
    lines = [[*head, "error", "error with a simulator"]]
    for name in PROBLEMS:
        made = [until_solved(name, seed, limit) for seed in seeds]
        middle = [median(column) for column in zip(*made, strict=True)]
        digits = [f"{middle[0]:.0f}", f"{middle[1]:.0f}", f"{middle[2]:.2f}"]
        lines.append([name, *digits, *(f"{error:.1g}" for error in middle[3:])])
    return lines


def strict_table(seeds: range, limit: int, blind: bool) -> list[list[str]]:
    """Return the lines of the table of all that runs under a limit use."""
    said = "until certified" if blind else "used"
    lines = [["problem", f"evaluations {said}", f"simulations {said}", "ratio"]]
    lines[0] += ["certified", "successes"]
    for name in PROBLEMS:
        made = [under_limit(name, seed, limit, blind) for seed in seeds]
        columns = list(zip(*made, strict=True))
        middle = [median(column) for column in columns[:3]]
        both = [f"{sum(columns[i]):.0f} and {sum(columns[i + 1]):.0f}" for i in (3, 5)]
        digits = [f"{middle[0]:.0f}", f"{middle[1]:.0f}", f"{middle[2]:.2f}"]
        lines.append([name, *digits, *(f"{each} of {len(seeds)}" for each in both)])
    return lines


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.joint", description="joint simulators")
    parser.add_argument("--runs", type=int, default=11, help="runs of a problem")
    parser.add_argument("--seed", type=int, default=71_001, help="seed of the first run")
    parser.add_argument("--limit", type=int, default=500, help="evaluations of a run")
    parser.add_argument(
        "--strict", action="store_true", help="make the second and third table only"
    )
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.runs)
    if not given.strict:
        say(show(first_table(seeds, given.limit), markdown=True))
    for blind in (False, True):
        say(show(strict_table(seeds, given.limit, blind), markdown=True))
    if given.strict:
        return 0
    lines = [["problem", "of F", "of f", "simulations", "ratio to those of f", "successes"]]
    for name in PROBLEMS:
        made = [until_the_end(name, seed) for seed in seeds]
        columns = list(zip(*made, strict=True))
        middle = [median(column) for column in columns[:4]]
        solved = f"{sum(columns[4]):.0f} and {sum(columns[5]):.0f} of {given.runs}"
        lines.append([name, *(f"{n:.0f}" for n in middle[:3]), f"{middle[3]:.2f}", solved])
    say(show(lines, markdown=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
