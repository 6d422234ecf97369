"""Write an algorithm of your own in about fifty lines, and compare it.

The leader keeps its best x and tries a few points around it. At each of them, a simple evolution
strategy searches the follower from the best y so far. Run this file to see one run. These
commands, in the directory of this file, compare the algorithm with drc-cma-es:

    bilevo bench --problems smd1 --methods drc-cma-es,own_algorithm:StepByStep --out exp
    bilevo table exp
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import bilevo
from bilevo.core.algorithm import Algorithm
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Evaluate, Incumbent, Level, Procedure
from bilevo.core.stop_rules import AtTarget, Progress, Settled, first_met
from bilevo.core.streams import stream


@dataclass(slots=True)
class Walk:
    """The state: arrays and numbers, so that it can be stored between two generations."""

    best: Incumbent
    step: float = 0.25
    generation: int = 0
    stop: StopReason | None = None  # why the run ends; None while it goes on
    executions: IntArray = field(default_factory=lambda: np.zeros(0, int))  # how often a task ran
    survived: BoolArray = field(default_factory=lambda: np.zeros(0, bool))


@dataclass(frozen=True, slots=True)
class StepByStep(Algorithm[Walk]):
    """The algorithm. Its settings are fields of a frozen dataclass."""

    leaders: int = 6
    iterations: int = 40

    name = "step-by-step"
    revision = 1  # raise it when results change
    State = Walk

    def init(self, spec: Spec) -> Procedure[Walk]:
        """Make the first pair. An algorithm sees both levels as unit boxes."""
        middle = np.full((1, spec.m), 0.5), np.full((1, spec.n), 0.5)
        (best,) = yield from self.answered(spec, *middle, generation=0, step=0.25)
        yield best
        return Walk(best)

    def generation(self, spec: Spec, state: Walk) -> Procedure[Walk]:
        state.generation += 1
        rng = stream(spec.seed, "leaders", state.generation)  # a resumed run draws the same numbers
        x = state.best.x + state.step * rng.standard_normal((self.leaders, spec.m))
        y = np.repeat(state.best.y[None], self.leaders, axis=0)
        pairs = yield from self.answered(spec, x.clip(0, 1), y, state.generation, state.step)
        order = sorted(range(self.leaders), key=lambda i: (pairs[i].violation, pairs[i].F))
        new, old = pairs[order[0]], state.best
        better = (new.violation, new.F) < (old.violation, old.F)
        if better:
            state.best = new
            yield new  # `minimize` returns this pair if the run is stopped now
        state.step *= 1.3 if better else 0.8
        state.executions = np.full(self.leaders, self.iterations)
        state.survived = np.isin(np.arange(self.leaders), order[: self.leaders // 2])
        # The algorithm itself ends the run, also when it has reached the target.
        rules = AtTarget(spec.target), Settled()
        shrunk = state.step < 1e-7
        state.stop = first_met(rules, Progress(state.best.F, state.best.violation, settled=shrunk))
        return state

    def answered(
        self, spec: Spec, x: FloatArray, y: FloatArray, generation: int, step: float
    ) -> Procedure[list[Incumbent]]:
        """Search the followers of leaders x (k, m), starting from y (k, n), and return pairs."""
        rng = stream(spec.seed, "followers", generation)
        values = yield Evaluate(Level.LOWER, x, y)
        f, violation, steps = values.objective, values.violation, np.full((len(x), 1), step)
        for _ in range(self.iterations):
            tried = (y + steps * rng.standard_normal(y.shape)).clip(0, 1)
            values = yield Evaluate(Level.LOWER, x, tried)
            good = (values.violation < violation) | (
                (values.violation == violation) & (values.objective < f)
            )
            y = np.where(good[:, None], tried, y)
            f = np.where(good, values.objective, f)
            violation = np.where(good, values.violation, violation)
            steps *= np.where(good[:, None], 1.5, 0.85)
        above = yield Evaluate(Level.UPPER, x, y)
        both = above.violation + violation
        return [
            Incumbent(x[i], y[i], float(above.objective[i]), float(f[i]), float(both[i]))
            for i in range(len(x))
        ]


if __name__ == "__main__":
    problem = bilevo.problems.get("smd1")
    result = bilevo.minimize(problem, method=StepByStep(), max_evals=60_000)
    print(result)
    print(bilevo.verify(problem, result).message)
