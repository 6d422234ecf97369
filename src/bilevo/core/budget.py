"""Budgets of an algorithm's two levels, hard limits of a run, and the reasons why a run ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np

from bilevo.core.arrays import TINY, FloatArray
from bilevo.core.checks import is_whole, real_number, shown, whole_number

COUNT_LIMIT = 2**63  # counts must be below this number


class StopReason(StrEnum):
    """Why a run ended, as `Result.status` says it."""

    TARGET = "target"
    STAGNATION = "stagnation"
    BUDGET = "budget"
    MAX_EVALS = "max_evals"
    MAX_TIME = "max_time"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    RUNNING = "running"


# Reasons that an algorithm itself gives; limits and users give the other ones.
OWN_ENDS = (StopReason.TARGET, StopReason.STAGNATION, StopReason.BUDGET)
SUCCESSFUL_ENDS = (StopReason.TARGET, StopReason.STAGNATION)


# Sizes (m + n, n) for which settings are published, and these settings.
_SIZES = np.array([[5, 3], [10, 5], [20, 10], [60, 30]], dtype=float)
_UPPER_MAX = [2500, 3500, 5000, 12500]
_UPPER_WINDOW = [350, 500, 750, 750]
_LOWER_MAX = [250, 350, 500, 1000]
_LOWER_WINDOW = [25, 35, 50, 50]


@dataclass(frozen=True, slots=True)
class Budget:
    """The algorithms' own stop rules, in evaluations; a field left None takes its default.

    An upper-level search ends after `upper_max` evaluations, or when its best value hardly changed
    over the last `upper_window` of them. `lower_max` and `lower_window` do the same for a search of
    the lower level. Defaults are interpolated between the sizes in the DRC paper. drc-plus has no
    upper window: it ends after `upper_max` evaluations of the upper level, or after
    `upper_max * lower_window / 2` evaluations of both levels.
    """

    upper_max: int | None = None
    upper_window: int | None = None
    lower_max: int | None = None
    lower_window: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            count = count_of(f"budget.{field.name}", getattr(self, field.name))
            object.__setattr__(self, field.name, count)

    def over(self, default: FullBudget) -> FullBudget:
        """Return this budget, with fields that are None taken from `default`."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        return FullBudget(**{k: getattr(default, k) if v is None else v for k, v in mine.items()})


@dataclass(frozen=True, slots=True)
class FullBudget:
    """A budget in which every field is set, as algorithms get it."""

    upper_max: int
    upper_window: int
    lower_max: int
    lower_window: int

    @classmethod
    def for_size(cls, m: int, n: int) -> FullBudget:
        """Return the default for m and n variables.

        Beyond the published sizes, `upper_max` and `lower_max` go on growing; windows do not.
        """

        def at(size: int, sizes: FloatArray, settings: list[int], grows: bool) -> int:
            growth = max(1.0, size / sizes[-1]) if grows else 1.0
            return round(float(np.interp(size, sizes, settings)) * growth)

        upper, lower = _SIZES.T
        return cls(
            upper_max=at(m + n, upper, _UPPER_MAX, grows=True),
            upper_window=at(m + n, upper, _UPPER_WINDOW, grows=False),
            lower_max=at(n, lower, _LOWER_MAX, grows=True),
            lower_window=at(n, lower, _LOWER_WINDOW, grows=False),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of a whole run, checked before every request and never exceeded."""

    evals: float = math.inf  # evaluations of both levels
    upper: float = math.inf  # evaluations of the upper level
    lower: float = math.inf  # evaluations of the lower level
    time: float = math.inf  # seconds

    @classmethod
    def of(
        cls,
        max_evals: float | None = None,
        max_evals_upper: float | None = None,
        max_evals_lower: float | None = None,
        max_time: float | None = None,
    ) -> Limits:
        """Make limits from users' keywords; None means no limit."""
        if max_time is not None:
            require_positive("max_time", max_time)
        given = (
            count_of("max_evals", max_evals),
            count_of("max_evals_upper", max_evals_upper),
            count_of("max_evals_lower", max_evals_lower),
            max_time,
        )
        return cls(*(math.inf if limit is None else limit for limit in given))

    def exceeded(self, upper: int, lower: int, together: int) -> bool:
        """Tell whether these counts of evaluations at the two levels pass a limit.

        `together` is the number of all evaluations, or of simulations that give both levels.
        """
        return upper > self.upper or lower > self.lower or together > self.evals


def require_count(name: str, value: int | None, optional: bool = True) -> None:
    """Refuse anything but a positive whole number below 2**63, or None if `optional`."""
    if value is None and optional:
        return
    if value is None or not is_whole(value) or not 1 <= value < COUNT_LIMIT:
        kind = "a positive whole number"
        kind += " below 2**63" if is_whole(value) and value is not None and value > 0 else ""
        raise ValueError(f"{name} must be {kind}{' or None' * optional}, got {shown(value)}")


def count_of(name: str, value: float | None) -> int | None:
    """Return a count that a user gives, or None; a whole number may be written as 1e3."""
    whole = None if value is None else whole_number(value)
    count: Any = value if whole is None else whole
    require_count(name, count)
    return whole


def require_positive(name: str, value: float, finite: bool = False) -> None:
    """Refuse anything but a positive real number; with `finite`, refuse infinity too."""
    number = real_number(value)
    if number is None or not number > 0 or (finite and number == math.inf):
        kind = "a positive number" + " that is finite" * (number == math.inf)
        raise ValueError(f"{name} must be {kind}, got {shown(value)}")


ROUNDING = 1e-12  # smaller relative differences of an objective are rounding errors


@dataclass(slots=True)
class Scale:
    """The size of an objective's differences, by which absolute tolerances are scaled.

    Tolerances of the published algorithms suit objectives that differ by 1 to 1e4 over the box.
    Outside that range they are scaled by the differences of the first finite values, so that an
    objective in other units converges in the same way.
    """

    factor: float | None = None

    def see(self, objective: FloatArray) -> None:
        """Set the scale by the first values that differ."""
        if self.factor is not None:
            return
        spread = interquartile_range(objective)
        if 0 < spread < math.inf and spread > ROUNDING * np.abs(objective).min():
            self.factor = Scale.of(spread).factor

    @classmethod
    def of(cls, spread: float) -> Scale:
        """Return the scale of an objective that differs by `spread` over the box."""
        return cls(spread / min(max(spread, 1.0), 1e4))

    def tolerance(self, absolute: float) -> float:
        """Return an absolute tolerance, scaled to the objective's units."""
        return absolute if self.factor is None else absolute * self.factor


def interquartile_range(values: FloatArray) -> float:
    """Return the interquartile range of the finite values, or 0 if there are none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0
    low, high = np.percentile(finite / 4, [25, 75])  # the difference of quarters cannot overflow
    return float(high - low) * 4


def change_over(record: Sequence[float], window: int) -> tuple[float, float]:
    """Return the absolute and relative change of a record over its last `window` entries.

    The relative change is the absolute one over |first finite entry| + |last entry|. Both changes
    are inf if the record is not longer than the window.
    """
    window = max(window, 2)
    if len(record) <= window:
        return math.inf, math.inf
    last, before = record[-1], record[-window]
    if last == before:  # also inf == inf: a search that never saw a finite value
        return 0.0, 0.0
    first = next((value for value in record if math.isfinite(value)), math.inf)
    change = abs(last - before)
    return change, change / (abs(first) + abs(last) + TINY)
