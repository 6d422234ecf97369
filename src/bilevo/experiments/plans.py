"""What is run: runs and their seeds, methods under the names runs know them by, and plans of runs.

Beside registered methods there are forms of DRC for its ablation: a mixed pair of optimisers, and
for each pair the plain form, DRC without its ingredients (no cooperation, tasks drawn uniformly,
all followers solved): "drc-cma-es/plain".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from bilevo import problems
from bilevo.core.algorithm import Algorithm
from bilevo.registry import get_method

SMD = tuple(f"smd{i}" for i in range(1, 13))
PRINTED = (  # the methods of the paper's tables, in their order
    "drc-cma-es",
    "bl-cma-es",
    "tlea-cma-es",
    "nblea",
    "bleaq2",
    "go-cma-es",
    "mfbla",
    "sa-bl-imode",
)
FIELD = (*PRINTED, "tlea-de")
MIXED = "drc-cma-es+de"  # CMA-ES above, differential evolution below
PAIRS = ("drc-cma-es", "drc-de", "drc-pso", "drc-ga", MIXED)
PLAIN: dict[str, Any] = {"cooperation": False, "selection": "uniform", "stop": "all"}


@dataclass(frozen=True, slots=True)
class Run:
    """The name of a run."""

    problem: str
    m: int
    n: int
    method: str
    number: int

    @property
    def seed(self) -> int:
        """A seed from the run's name: adding a method or problem changes no other run."""
        name = f"{self.problem}/{self.m},{self.n}/{self.method}/{self.number}"
        return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little")


@dataclass(frozen=True, slots=True)
class Plan:
    """Every method on every problem, `runs` times."""

    methods: tuple[str, ...]
    problems: tuple[str, ...] = SMD
    runs: int = 21

    def at(self, m: int, n: int) -> list[Run]:
        """Its runs at one size; what is not known raises ValueError."""
        for method in self.methods:
            algorithm(method)
        for problem in self.problems:
            problems.get(problem, m, n)
        return [
            Run(problem, m, n, method, number)
            for method in self.methods
            for problem in self.problems
            for number in range(self.runs)
        ]


PLANS = {
    "paper": Plan(("drc-cma-es", "bl-cma-es")),
    "field": Plan(FIELD, runs=11),
    "ablation": Plan((*PAIRS, *(f"{pair}/plain" for pair in PAIRS)), SMD[:6], 11),
}


def algorithm(name: str) -> Algorithm[Any]:
    """A registered method, the mixed pair, or the plain form of either."""
    base, slash, form = name.partition("/")
    if slash and form != "plain":
        raise ValueError(f"unknown form {form!r} of {base}; known is 'plain'")
    made: Any = get_method("drc-cma-es" if base == MIXED else base)
    if base == MIXED:
        below: Any = get_method("drc-de")
        made = replace(made, lower=below.lower)
    chosen: Algorithm[Any] = replace(made, **PLAIN) if slash else made
    return chosen
