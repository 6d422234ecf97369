"""Stop rules: when an algorithm ends its own run.

After each generation an algorithm says how far it has come, and takes the reason of the first rule
that is met:

    progress = Progress(best.F, best.violation, upper=values.spent)
    rules = AtTarget(spec.target), BudgetUsed(upper=spec.budget.upper_max)
    state.stop = first_met(rules, progress)

The driver enforces the hard limits of a run: see `bilevo.core.budget.Limits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from bilevo.core.budget import StopReason, change_over
from bilevo.core.problem import Target


class Progress(NamedTuple):
    """How far a run has come, as stop rules see it."""

    F: float  # F of the best pair
    violation: float  # violation of the best pair at both levels
    upper: int = 0  # upper evaluations so far
    lower: int = 0  # lower evaluations so far
    generations: int = 0
    record: Sequence[float] = ()  # F after each generation, usually that of the best pair
    settled: bool = False  # the algorithm judges that its search has shrunk or is idle


class StopRule(Protocol):
    """One rule, and the reason that a run gives for its end when the rule is met."""

    reason: ClassVar[StopReason]

    def met(self, progress: Progress) -> bool: ...


def first_met(rules: Iterable[StopRule], progress: Progress) -> StopReason | None:
    """Return the reason of the first rule that is met, or None if no rule is met."""
    return next((rule.reason for rule in rules if rule.met(progress)), None)


@dataclass(frozen=True, slots=True)
class AtTarget:
    """The best pair is feasible, and its F is good enough. Never met without a target."""

    target: Target | None
    reason: ClassVar = StopReason.TARGET

    def met(self, progress: Progress) -> bool:
        return self.reached(progress.F, progress.violation)

    def reached(self, F: float, violation: float) -> bool:
        """Tell whether a pair with these values would end the run."""
        return self.target is not None and self.target.reached(F, violation)


@dataclass(frozen=True, slots=True)
class BudgetUsed:
    """One of the algorithm's own budgets is used up."""

    upper: float = math.inf  # evaluations of the upper level
    lower: float = math.inf  # evaluations of the lower level
    total: float = math.inf  # evaluations of both levels
    generations: float = math.inf
    reason: ClassVar = StopReason.BUDGET

    def met(self, progress: Progress) -> bool:
        return (
            progress.upper >= self.upper
            or progress.lower >= self.lower
            or progress.upper + progress.lower >= self.total
            or progress.generations >= self.generations
        )


@dataclass(frozen=True, slots=True)
class Stagnation:
    """The recorded F hardly changed over the last `window` generations.

    Both its absolute and its relative change (see `change_over`) are below their tolerances.
    """

    window: int
    absolute: float
    relative: float
    reason: ClassVar = StopReason.STAGNATION

    def met(self, progress: Progress) -> bool:
        change, relative_change = change_over(progress.record, self.window)
        return change < self.absolute and relative_change < self.relative


@dataclass(frozen=True, slots=True)
class Settled:
    """The algorithm itself says, by `Progress.settled`, that further search is of no use."""

    reason: ClassVar = StopReason.STAGNATION

    def met(self, progress: Progress) -> bool:
        return progress.settled
