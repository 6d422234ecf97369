"""Solvers made up for tests: y* = x / 2 by one step, or by many noisy ones."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import bilevo
from bilevo.core.algorithm import Algorithm, Followers
from bilevo.core.budget import StopReason
from bilevo.core.request import ALONE, Evaluate, Incumbent, Level, Step, together
from bilevo.core.streams import stream

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


class Warm(Walker):
    """Begins at the answer of a neighbour, and is done after fewer steps then.

    Its hint holds its number of steps, so that the steps of a search depend on all searches before.
    """

    def start(self, x: Any, rng: np.random.Generator, near: Any = None) -> Walk:
        walk = super().start(x, rng)
        if near is not None:
            assert not (near.x.flags.writeable or near.y.flags.writeable)
            walk.y = near.y + 1e-3 * (x - near.x) * near.hint[0] + 1e-6 * near.f
            walk.steps = self.length // 2
        return walk

    def hint(self, state: Walk) -> list[float]:
        return [state.y.sum(), state.steps]


class Steady(Warm):
    """Does not depend on luck, so that trust-region searches in regions."""

    def start(self, x: Any, rng: np.random.Generator, near: Any = None) -> Walk:
        return super().start(x, np.random.default_rng(1), near)


class SlowSteady(Steady):
    """Takes two milliseconds for a step."""

    def advance(self, state: Walk) -> Walk:
        time.sleep(0.002)
        return super().advance(state)


@dataclass
class Chained:
    """The state of `Chain`."""

    best: Incumbent
    tasks: int
    finished: list[int]
    stop: StopReason | None = None
    executions: Any = field(default_factory=lambda: np.zeros(0, int))
    survived: Any = field(default_factory=lambda: np.zeros(0, bool))


@dataclass(frozen=True)
class Chain(Algorithm[Chained]):
    """Solves the followers of random leaders, two at a time, each near the one before."""

    name = "chain"
    revision = 1
    State = Chained
    followers = Followers.SOLVER

    def init(self, spec: Any) -> Any:
        pair = yield from self.solve(spec, 0, ALONE)
        yield pair
        return Chained(pair, 1, [0])

    def generation(self, spec: Any, state: Chained) -> Any:
        near = state.finished[-1]
        pairs = yield from together(self.solve(spec, state.tasks + i, near) for i in (0, 1))
        for new in pairs:
            if new.F < state.best.F:
                state.best = new
                yield new
        state.tasks += 2
        state.finished = [*state.finished[-2:], state.tasks - 1]
        return state

    def solve(self, spec: Any, task: int, near: int) -> Any:
        x, taken, done = stream(spec.seed, "chain", task).random((1, spec.m)), 0, False
        while not done:
            step = Step(np.array([task]), np.array([taken]), x, np.array([near]))
            values = yield step
            taken, done = taken + 1, bool(values.done[0])
        if not np.isfinite(values.f[0]):  # it failed
            return Incumbent(x[0], values.y[0], math.inf, math.inf, math.inf)
        above = yield Evaluate(Level.UPPER, x, values.y)
        numbers = above.objective[0], values.f[0], above.violation[0] + values.violation[0]
        return Incumbent(x[0], values.y[0], *map(float, numbers))
