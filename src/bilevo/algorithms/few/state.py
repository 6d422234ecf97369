"""The state of a run of `few`: all pairs so far, their values, and models of these."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.drc_plus.state import DRCPlusState
from bilevo.algorithms.few.model_search import LevelModel, Models
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Incumbent, Level, Procedure, Values, evaluate
from bilevo.core.stop_rules import Progress

KNOWN = 1e-5  # A pair is known if an evaluated one is closer.
SLIGHT = 1e-7  # Smaller violations are errors of models (as parts of the largest violation).
HUGE = 1e100  # Larger values are no use for models, and their sums would overflow.


@dataclass(slots=True, eq=False)
class FewState:
    """All pairs so far and their values; F is NaN where it was not evaluated."""

    x: FloatArray  # (k, m)
    y: FloatArray  # (k, n)
    f: FloatArray
    g: FloatArray  # (k, J)
    lower_violation: FloatArray
    F: FloatArray
    G: FloatArray  # (k, K)
    upper_violation: FloatArray
    best: int = -1  # the row of the best pair
    order: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # the best rows
    stale: int = 0
    generation: int = 0
    looks_for_doubts: bool = False  # whether drc-plus has taken over in this generation
    start: tuple[FloatArray, FloatArray] | None = None  # the pair from which drc-plus starts
    told: Incumbent | None = None  # the last best pair, once drc-plus has taken over
    unsolved: int = 0  # leaders in a row whose follower models did not solve
    radius: float = math.inf  # of the window in which models are fitted (see window)
    plus: DRCPlusState | None = None
    stop: StopReason | None = None
    executions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    survived: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    @classmethod
    def empty(cls, m: int, n: int) -> FewState:
        none = [np.zeros(0) for _ in range(4)]
        width = np.zeros((0, 0))
        x, y = np.zeros((0, m)), np.zeros((0, n))
        return cls(x, y, none[0], width, none[1], none[2], width, none[3])

    def add(self, x: FloatArray, y: FloatArray, lower: Values) -> None:
        """Add pairs and their values at the lower level."""
        k, unknown = len(self.x), np.full(len(x), np.nan)
        self.x, self.y = np.concatenate([self.x, x]), np.concatenate([self.y, y])
        self.f = np.append(self.f, lower.objective)
        self.g = np.concatenate([self.g.reshape(k, lower.constraints.shape[1]), lower.constraints])
        self.lower_violation = np.append(self.lower_violation, lower.violation)
        self.F = np.append(self.F, unknown)
        self.upper_violation = np.append(self.upper_violation, unknown)
        more = np.full((len(x), self.G.shape[1]), np.nan)
        self.G = np.concatenate([self.G, more])

    def set_upper(self, rows: IntArray, upper: Values) -> None:
        """Add the values of some rows at the upper level."""
        if self.G.shape[1] != upper.constraints.shape[1]:
            self.G = np.full((len(self.x), upper.constraints.shape[1]), np.nan)
        self.F[rows], self.G[rows] = upper.objective, upper.constraints
        self.upper_violation[rows] = upper.violation

    @property
    def looks_closer(self) -> bool:
        """Tell whether models are of a window."""
        return self.radius < math.inf

    @property
    def z(self) -> FloatArray:
        """Return all pairs as points (k, m + n)."""
        return np.concatenate([self.x, self.y], axis=1)

    def row_at(self, x: FloatArray) -> int:
        """Return the row of the best answer so far to a leader that has some."""
        own = np.flatnonzero((self.x == x).all(axis=1))
        return int(own[np.lexsort((self.f[own], self.lower_violation[own]))[0]])

    def see(self, spec: Spec, z: FloatArray) -> Procedure[None]:
        """Evaluate f at pairs (k, m + n), and F where that costs nothing more."""
        rows, (x, y) = np.arange(len(self.x), len(self.x) + len(z)), np.split(z, [spec.m], axis=1)
        self.add(x, y, (yield from evaluate(Level.LOWER, x, y)))
        if spec.joint:
            yield from self.see_upper(rows)

    def see_upper(self, rows: IntArray) -> Procedure[None]:
        """Evaluate F at rows."""
        upper = yield from evaluate(Level.UPPER, self.x[rows], self.y[rows])
        self.set_upper(rows, upper)

    @property
    def violation(self) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.asarray(self.lower_violation + self.upper_violation)

    @property
    def slight(self) -> float:
        """Return up to which violation a pair may owe it to an error of the models."""
        violation = self.violation
        return SLIGHT * float(violation[np.isfinite(violation)].max(initial=0.0))

    @property
    def clear_violation(self) -> FloatArray:
        """Return violations (k,), of which all slight ones are the same; feasible pairs have 0."""
        return np.where(self.violation > 0, np.maximum(self.violation, self.slight), 0.0)

    def incumbent(self, row: int) -> Incumbent:
        """Return a row as the best pair; without a finite f it has no F either."""
        violation, f = float(self.violation[row]), float(self.f[row])
        F = float(self.F[row]) if math.isfinite(violation) else math.inf
        return Incumbent(self.x[row], self.y[row], F, f, violation)

    def progress(self) -> Progress:
        return Progress(float(self.F[self.best]), float(self.violation[self.best]))

    @property
    def usable_upper(self) -> BoolArray:
        """Tell at which pairs (k,) models can use F and G."""
        return np.asarray((np.abs(self.F) < HUGE) & (np.abs(self.G) < HUGE).all(axis=1))

    @property
    def usable_lower(self) -> BoolArray:
        """Tell at which pairs (k,) models can use f and g."""
        return np.asarray((np.abs(self.f) < HUGE) & (np.abs(self.g) < HUGE).all(axis=1))

    def models(self) -> Models | None:
        """Fit models to all values of a moderate size; return None if these are too few."""
        upper = self._model(self.usable_upper, self.F, self.G, None)
        lower = self.lower_model(None)
        return None if upper is None or lower is None else Models(upper, lower)

    def lower_model(self, like: LevelModel | None) -> LevelModel | None:
        """Fit models to f and g; see `LevelModel.of`."""
        return self._model(self.usable_lower, self.f, self.g, like)

    def _model(
        self, usable: BoolArray, values: FloatArray, more: FloatArray, like: LevelModel | None
    ) -> LevelModel | None:
        z = self.z
        if usable.sum() <= z.shape[1]:
            return None
        return LevelModel.of(z[usable], values[usable], more[usable], like)

    def is_known(self, x: FloatArray, y: FloatArray) -> bool:
        near = np.abs(np.concatenate([self.x - x, self.y - y], axis=1)).max(axis=1)
        return bool(near.min() < KNOWN)
