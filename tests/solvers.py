"""Solvers made up for tests: y* = x / 2 by one step, or by many noisy ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import bilevo

HALF = 0.5


def F(x: Any, y: Any) -> float:
    return float(((x - 1) ** 2).sum() + ((y - 1) ** 2).sum())  # least at x = 1.2, y = 0.6: 0.4 m


def f(x: Any, y: Any) -> float:
    return float(((y - HALF * x) ** 2).sum())


class Exact:
    """Done after one step."""

    def start(self, x: Any, rng: np.random.Generator) -> Any:
        return x

    def advance(self, state: Any) -> Any:
        return state

    def best(self, state: Any) -> tuple[Any, float, float]:
        return HALF * state, 0.0, 0.0

    def done(self, state: Any) -> bool:
        return True


@dataclass
class Walk:
    """The state of a `Walker`: changed in place."""

    x: Any
    y: Any
    rng: np.random.Generator
    steps: int = 0


class Walker:
    """Comes nearer by each of `length` steps, and not straight; a step costs `cost`."""

    def __init__(self, length: int = 12, cost: int = 1) -> None:
        self.length, self.cost = length, cost
        self.taken = 0  # steps in this process, for tests to look at

    def start(self, x: Any, rng: np.random.Generator) -> Walk:
        return Walk(x, rng.uniform(-4, 4, x.size), rng)

    def advance(self, state: Walk) -> Walk:
        self.taken += 1
        state.steps += 1
        step = HALF * state.x - state.y
        if state.steps < self.length:
            step = 0.6 * step + 0.05 * 0.5**state.steps * state.rng.standard_normal(step.size)
        state.y = state.y + step
        return state

    def best(self, state: Walk) -> tuple[Any, float, float]:
        return state.y, f(state.x, state.y), 0.0

    def done(self, state: Walk) -> bool:
        return state.steps >= self.length


class Opaque(Walker):
    """Its states hold what no file can keep."""

    def start(self, x: Any, rng: np.random.Generator) -> Any:
        walk = super().start(x, rng)
        walk.x = Wrapped(walk.x)
        return walk

    def advance(self, state: Any) -> Any:
        wrapped, state.x = state.x, state.x.value
        state = super().advance(state)
        state.x = wrapped
        return state

    def best(self, state: Any) -> tuple[Any, float, float]:
        return state.y, f(state.x.value, state.y), 0.0


class Wrapped:
    def __init__(self, value: Any) -> None:
        self.value = value


def problem(follower: Any, m: int = 2, known: bool = False, **options: Any) -> bilevo.Problem:
    box = [(-5, 5)] * m
    return bilevo.Problem(F, f if known else None, box, box, follower=follower, **options)
