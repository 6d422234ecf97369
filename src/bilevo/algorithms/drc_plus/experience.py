"""What a run of drc-plus has learnt about its followers (`Experience`).

`WarmTask` is one follower while it is being solved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.algorithms.shared.basin_moves import PARTS
from bilevo.algorithms.shared.follower_search import FollowerSearch, Pair, evaluate_answers
from bilevo.algorithms.shared.gradients import hessian_by_gradients
from bilevo.algorithms.shared.sqp_model import is_definite
from bilevo.algorithms.shared.ties import measure_hessian
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import Scale
from bilevo.core.order import best_index
from bilevo.core.request import Level, Procedure, T, Values, relayed
from bilevo.core.tolerances import (
    AGREEMENT,
    DIFFERENCES,
    NEGLIGIBLE,
    SAME,
    SHARP,
    UNRESOLVED,
    rounding,
)

SMOOTH_SHARE = 0.5  # Followers count as smooth if this share of local searches settles.
FEW_SEARCHES = 2  # After this many searches that settled, followers are taken to be smooth.
ENOUGH_SEARCHES = 6  # Fewer local searches do not show that followers are not smooth.
DISTINCT = 0.01  # Answers farther apart than this fraction of the box count as different.
CAPACITY = 5000  # How many answers are remembered.
CLEARLY_CURVED = 1e-3  # f is curved in all directions if curvatures differ by less than this.
WIDE = 0.3  # Standard deviation of points all over the box, as a fraction of the box.
SOFTEST = 1e-6  # Curvatures that are kept are at least this fraction of the largest.
FAR_APART = 0.5  # Leaders farther apart say nothing about how answers change with x.
MAX_HOPS = 8  # How many steps between basins are remembered, for each variable.
MAX_REFUTED = 8  # How many refuted answers are remembered.


@dataclass(slots=True, eq=False)
class Experience:
    """What solved followers have shown: answers y (k, n) to leaders x (k, m), and curvature.

    A refuted answer is one that a check has replaced by a better answer in another basin.
    """

    x: FloatArray
    y: FloatArray
    hessian: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # empty if unknown
    smooth: float = 1.0  # share of recent local searches that settled
    searches: int = 0  # local searches so far
    f_scale: Scale = field(default_factory=Scale)
    spread: float = 0.0  # how much f varies over the box at one x (see `renew_scale`)
    widest: float = 0.0  # the largest `spread` so far
    spent: int = 0  # lower evaluations so far
    refuted: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # refuted answers (k, n)
    hops: FloatArray = field(
        default_factory=lambda: np.empty((0, 0))
    )  # steps (k, n) between basins
    measured: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # last measured Hessian
    gradients: bool = False  # whether the user gives the follower's gradients
    slopes: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # estimated dy*/dx (n, m)
    sparing: bool = False  # whether checks look for level paths between ties (see certificate)
    strict: bool = False  # whether two searches of a check must agree, unless all agree

    @classmethod
    def none(cls, m: int, n: int, gradients: bool = False) -> Experience:
        slopes = np.zeros((n, m))
        return cls(np.empty((0, m)), np.empty((0, n)), gradients=gradients, slopes=slopes)

    def evaluate(self, x: FloatArray, y: FloatArray) -> Procedure[Values]:
        """Request the follower's values at answers y (k, n) to a leader x (m,)."""
        values = yield from evaluate_answers(x, y)
        self.note(values)
        return values

    def note(self, values: Values) -> None:
        """Note values of the follower: how much f varies, and what was spent."""
        self.f_scale.see(values.objective)
        self.spent = values.spent

    def learn(self, pair: Pair) -> None:
        """Remember an answer, unless it is infeasible and others are known."""
        if pair.lower_violation > 0 and len(self.x):
            return
        self.learn_slopes(pair)
        others = (self.x != pair.x).any(axis=1)
        self.x = np.concatenate([self.x[others], pair.x[None]])[-CAPACITY:]
        self.y = np.concatenate([self.y[others], pair.y[None]])[-CAPACITY:]

    def learn_slopes(self, pair: Pair) -> None:
        """Learn from a new answer how answers change with x: Broyden's update of `slopes`."""
        if not len(self.x):
            return
        i = int(((self.x - pair.x) ** 2).sum(axis=1).argmin())
        step = pair.x - self.x[i]
        length = float(step @ step)
        if 0 < length <= FAR_APART**2:
            error = pair.y - self.y[i] - self.slopes @ step
            self.slopes = self.slopes + np.outer(error, step) / length

    def correct_hessian(self, v: FloatArray, Hv: FloatArray, basis: FloatArray) -> None:
        """Let the kept Hessian map v to Hv within a basis, if it stays positive definite (SR1)."""
        miss = basis @ (basis.T @ (Hv - self.hessian @ v))
        along = float(miss @ v)
        if abs(along) <= 1e-8 * float(np.linalg.norm(miss) * np.linalg.norm(v)):
            return
        new = self.hessian + np.outer(miss, miss) / along
        if np.isfinite(new).all() and is_definite(new):
            self.hessian = new

    def refute(self, y: FloatArray) -> None:
        """Forget all answers, because they may lie in the same wrong basin as the refuted y.

        y itself is kept as a rival, with which later answers are compared.
        """
        self.x, self.y = self.x[:0], self.y[:0]
        others = self.refuted.reshape(-1, len(y))
        far = np.abs(others - y).max(axis=1) > DISTINCT
        self.refuted = np.concatenate([others[far], y[None]])[-MAX_REFUTED:]

    def learn_hops(self, step: FloatArray) -> None:
        """Remember a step (n,) that has led to a better basin, and its parts along each axis."""
        long = np.abs(step) > DISTINCT
        if not long.any():
            return
        axes = np.diag(step)[long]
        rows = np.concatenate([*(axes / part for part in PARTS), np.where(long, step, 0.0)[None]])
        others = self.hops.reshape(-1, len(step))
        others = others[(others[:, ~long] != 0).any(axis=1)]  # they lead elsewhere
        self.hops = np.concatenate([others, rows, -rows])[-MAX_HOPS * len(step) :]

    def renew_scale(self, over_box: float, near: float, f: float) -> None:
        """Set the scale of f by how much f varies at one x.

        `over_box` is how much f varies over the box. `near` is how much it varies near an answer,
        extrapolated to the box. The smaller of the two counts, because a penalty or a stiff term
        makes f large far from the answer, which says nothing about differences between answers.
        """
        spread = near if rounding(f) < near < over_box else over_box
        if 0 < spread < math.inf:
            self.f_scale, self.spread = Scale.of(spread), spread
            self.widest = max(self.widest, spread)

    def renew_scale_at(self, task: WarmTask, over_box: float) -> None:
        """Set the scale of f by a local search that has ended, as `renew_scale` does.

        Near its answer, f varies by its slope, and by the curvature that the search has learnt.
        """
        B = task.hessian
        with np.errstate(over="ignore"):
            curvature = 0.0 if B is None or not B.size else float(np.linalg.norm(B))
        near = math.hypot(WIDE * task.slope, 0.75 * WIDE**2 * curvature)
        self.renew_scale(over_box, near, task.pair.f)

    def measure_hessian(self, pair: Pair) -> Procedure[FloatArray | None]:
        """Return the Hessian of f at an answer by differences; None if f fails near it.

        It is kept for later searches, made positive definite. If the follower has constraints, it
        is not kept, because searches need the Hessian of the Lagrangian.
        """
        constrained = False

        def at(rows: FloatArray) -> Procedure[Values]:
            nonlocal constrained
            values = yield from self.evaluate(pair.x, rows)
            constrained = values.constraints.size > 0
            return values

        hessian = None
        if self.gradients:
            yield from at(pair.y[None])
            hessian = yield from hessian_by_gradients(pair.x, pair.y)
        if hessian is None:
            hessian = yield from measure_hessian(at, pair.y)
        if hessian is not None and not constrained:
            self.measured = hessian
            self.learn_hessian(hessian)
        return hessian

    def learn_hessian(self, hessian: FloatArray) -> None:
        """Keep a measured Hessian for later searches, made positive definite."""
        curvatures, axes = np.linalg.eigh(hessian)
        curvatures = np.abs(curvatures)
        floor = SOFTEST * float(curvatures.max(initial=0.0))
        if floor > 0:
            self.hessian = (axes * np.maximum(curvatures, floor)) @ axes.T

    def count(self, settled: bool) -> None:
        """Count a local search that has ended; recent searches weigh most."""
        self.searches += 1
        self.smooth += (settled - self.smooth) * max(1 / self.searches, 0.1)

    @property
    def rough(self) -> bool:
        """Tell whether most local searches do not settle."""
        return self.searches >= ENOUGH_SEARCHES and self.smooth < SMOOTH_SHARE

    @property
    def surely_smooth(self) -> bool:
        """Tell whether all local searches have settled so far, and they were not too few."""
        return self.searches >= FEW_SEARCHES and self.smooth > 0.99

    @property
    def clearly_curved(self) -> bool:
        """Tell whether f was measured to be curved in all directions."""
        if not self.measured.size:
            return False
        curvatures = np.linalg.eigvalsh(self.measured)
        return bool(curvatures[0] > CLEARLY_CURVED * curvatures[-1])

    @property
    def unit(self) -> float:
        """Return the usual size of differences of f, from what the run has seen so far."""
        return self.f_scale.tolerance(1.0)

    def tie(self, f: float) -> float:
        """Return the largest difference from the value `f` with which an answer is still a tie."""
        return NEGLIGIBLE * self.unit + rounding(f)

    def equal(self, f: float) -> float:
        """Return the largest difference from `f` with which values of f are equal.

        It is far below that of a tie, because a search for the best x would use all that it allows.
        """
        return SHARP * self.unit + rounding(f)

    def agree(self, one: Pair, other: Pair) -> bool:
        """Tell whether two answers to one x are equally good, as far as searches can tell.

        In stiff directions a small error in y changes f much. So answers whose y are the same agree
        whatever their f is. f does not count either if constraints are violated.
        """
        if one.lower_violation != other.lower_violation:
            return False
        close = AGREEMENT * self.unit + rounding(one.f)
        same = bool(np.abs(one.y - other.y).max() <= SAME)
        return one.lower_violation > 0 or same or abs(one.f - other.f) <= close

    def clearly_resolves(self, f: float) -> bool:
        """Tell whether f clearly shows where its minimum is, in spite of rounding.

        `spread` is a rough estimate, so rounding must be far below what would hide the minimum.
        """
        return self.spread == 0 or rounding(f) <= 1e-4 * UNRESOLVED**2 * self.spread

    @property
    def nearly_level(self) -> float:
        """Return a difference of f that is negligible in this run, if f varies even less at one x.

        If f varies more over the box at the x of the last `renew_scale`, return 0.
        """
        negligible = NEGLIGIBLE * self.widest
        return negligible if self.spread < negligible else 0.0

    @property
    def tight(self) -> float:
        """Return the smallest tolerance on f with which a follower is solved.

        Finite differences leave an error in y. The tolerance is at least what that costs in f.
        """
        return max(SHARP * self.unit, DIFFERENCES * self.spread)

    def predictions(self, x: FloatArray, scale: FloatArray, regression: bool) -> FloatArray:
        """Return answers (k, n) to start from: a predicted one, and that of the nearest leader.

        The prediction is a linear regression over the 2 (m + 1) nearest leaders. Their weights fall
        with the distance, in units of `scale`. Without `regression`, or if fewer than m + 2 leaders
        are known, only the nearest leader's answer is returned.
        """
        away = (self.x - x) / scale
        squares = (away * away).sum(axis=1)
        order = squares.argsort(kind="stable")
        nearest: FloatArray = self.y[order[:1]]
        if not regression:
            return nearest
        if len(order) < len(x) + 2:
            moved = nearest + self.slopes @ (x - self.x[order[0]])
            known = np.concatenate([np.clip(moved, 0.0, 1.0), nearest])
            return known if self.slopes.any() else nearest
        near = order[: 2 * (len(x) + 1)]
        farthest = math.sqrt(squares[near[-1]]) or 1.0
        weights = (1 - (np.sqrt(squares[near]) / (1.001 * farthest)) ** 3) ** 1.5
        design = np.column_stack([np.ones(len(near)), away[near] / farthest])
        rows = weights[:, None]
        found = np.linalg.lstsq(design * rows, self.y[near] * rows, rcond=1e-10)[0]
        return np.asarray(np.concatenate([np.clip(found[:1], 0.0, 1.0), nearest]))

    def rivals(self, y: FloatArray, count: int) -> FloatArray:
        """Return up to `count` recent or refuted answers that are far from y and each other.

        If steps between basins are known, the points that they lead to are returned, too.
        """
        answers = np.concatenate([self.y[-200:], self.refuted.reshape(-1, len(y))])
        chosen: list[int] = []
        distance = np.abs(answers - y).max(axis=1, initial=0.0)
        while len(chosen) < count and distance.max(initial=0.0) > DISTINCT:
            chosen.append(int(distance.argmax()))
            distance = np.minimum(distance, np.abs(answers - answers[chosen[-1]]).max(axis=1))
        return np.concatenate(
            [answers[chosen], np.clip(y + self.hops.reshape(-1, len(y)), 0.0, 1.0)]
        )


@dataclass(slots=True, eq=False)
class WarmTask:
    """A leader's follower while it is solved: the answer so far, and how good it is."""

    pair: Pair
    lower: Values  # the follower's values at the answer, one row
    G: FloatArray = field(default_factory=lambda: np.empty(0))  # the leader's constraints at y
    solved: bool = False
    smooth: bool = True  # whether the last local search ended near a minimum
    arrived: bool = False  # whether it was stopped because it came near a known answer
    tolerance: float = math.inf  # the tolerance on f with which the last search was made
    hessian: FloatArray | None = None  # the Hessian that its next search starts with
    executions: int = 0  # evaluations so far; each one counts as an execution
    moved: float = math.inf  # how much the last search changed F; inf if that is not known
    slope: float = 0.0  # largest slope of f at the answer, as the last search expects it

    @classmethod
    def at(cls, x: FloatArray, y: FloatArray, values: Values) -> WarmTask:
        """Make a task from the best of some answers y (k, n)."""
        i = best_index(values.objective, values.violation)
        f, violation = float(values.objective[i]), float(values.violation[i])
        return cls(Pair(x, y[i].copy(), f, violation), values.part(i, i + 1), executions=len(y))

    @classmethod
    def of_pair(cls, pair: Pair, constraints: FloatArray) -> WarmTask:
        """Make a task from a pair and the follower's constraints (c,) there."""
        f, violation = np.array([pair.f]), np.array([pair.lower_violation])
        return cls(pair, Values(f, violation, constraints[None], 0))

    @classmethod
    def of_search(cls, search: FollowerSearch) -> WarmTask:
        """Make a solved task from a search by CMA-ES."""
        task = cls.of_pair(replace(search.answer), search.constraints)
        evaluations = search.executions * len(search.x_rows)
        return replace(task, solved=True, executions=evaluations)

    def better(self, other: WarmTask) -> WarmTask:
        """Return the other task if its answer is better for the follower, else this one."""
        return self if self.pair.follower_no_worse(other.pair) else other


def counted(search: Procedure[T], known: Experience) -> Procedure[T]:
    """Run a search that does not count itself, and note the lower evaluations it makes."""

    def note(level: Level, values: Values) -> Values:
        if level is Level.LOWER:
            known.spent = values.spent
        return values

    return relayed(search, lambda request: request, note)


def best_of(tasks: Sequence[WarmTask]) -> WarmTask:
    """Return the task with the best answer for the follower; all must have the same x."""
    best = tasks[0]
    for task in tasks[1:]:
        best = best.better(task)
    return best
