"""Any of our population optimizers as a solver; a step is a generation.

A search ends when its points are close together, or when their values of f are. The published rule,
on changes of f over a window, suits searches that are refined later. Here it would end some
searches too early. The leader would prefer these, because their errors make F look better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import require_positive
from bilevo.core.checks import require
from bilevo.core.order import best_index, no_worse, ranking
from bilevo.core.problem import Problem
from bilevo.core.request import Values
from bilevo.followers.lower import Lower, required
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import PopulationOptimizer, Start

DEVIATION = 0.3  # standard deviation at the start of a search, in the unit box


@dataclass(slots=True, eq=False)
class PopulationState:
    """An optimizer's search for a leader's x, and its best point in the unit box."""

    x: FloatArray
    rng: np.random.Generator
    search: Any
    best: FloatArray
    f: float = math.inf
    violation: float = math.inf
    spread: float = 0.0  # the largest range of f in the better half of a generation so far
    generations: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Population:
    """Searches f by CMA-ES, DE or another of `bilevo.optimizers`.

    A search is done after at most 100 + 50 n generations. It is done sooner if, in the better half
    of a generation, no variable differs by more than `precision` times the width of its bounds. It
    is also done if f differs there by at most `precision**2` times the largest such difference so
    far; the square is taken because f is quadratic near a smooth minimum.
    """

    optimizer: PopulationOptimizer[Any] = field(default_factory=CMAES)
    precision: float = 1e-5
    lower: Lower | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        needed = ("population_size", "start", "ask", "tell")
        able = all(callable(getattr(self.optimizer, name, None)) for name in needed)
        what = f"an object with {', '.join(needed)}, such as bilevo.optimizers.CMAES()"
        fine = able and not isinstance(self.optimizer, type)
        require(fine, "optimizer", what, self.optimizer)
        require_positive("precision", self.precision, finite=True)

    def bind(self, problem: Problem) -> Population:
        return replace(self, lower=Lower(problem, "Population"))

    @property
    def cost(self) -> int:
        return self.optimizer.population_size(1 if self.lower is None else self.lower.box.size)

    def start(self, x: FloatArray, rng: np.random.Generator) -> PopulationState:
        d = required(self.lower, "Population").box.size
        begin = Start.uniform(np.full(d, DEVIATION), rng)
        return PopulationState(x, rng, self.optimizer.start(begin, rng), begin.mean)

    def advance(self, state: PopulationState) -> PopulationState:
        points = self.optimizer.ask(state.search, state.rng)
        values = required(self.lower, "Population")(state.x, points)
        self.optimizer.tell(state.search, points, values.objective, values.violation)
        i = best_index(values.objective, values.violation)
        f, violation = values.objective.item(i), values.violation.item(i)
        if no_worse(f, violation, state.f, state.violation):
            state.best, state.f, state.violation = points[i].copy(), f, violation
        state.generations += 1
        longest = 100 + 50 * len(state.best)
        state.finished = state.generations >= longest or self._settled(state, points, values)
        return state

    def _settled(self, state: PopulationState, points: FloatArray, values: Values) -> bool:
        better = ranking(values.objective, values.violation)[: len(points) // 2 + 1]
        if float(np.ptp(points[better], axis=0).max()) < self.precision:
            return True
        if values.violation[better].any():
            return False
        spread = float(np.ptp(values.objective[better]))
        state.spread = max(state.spread, spread)
        rounding = 4 * np.finfo(float).eps * abs(state.f)
        return bool(spread <= self.precision**2 * state.spread + rounding)

    def best(self, state: PopulationState) -> tuple[FloatArray, float, float]:
        return required(self.lower, "Population").answer(state.best), state.f, state.violation

    def done(self, state: PopulationState) -> bool:
        return state.finished
