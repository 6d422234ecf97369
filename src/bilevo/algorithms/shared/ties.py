"""Ties: equally good answers of a follower, and the one that the leader expects.

An optimistic leader expects the tie that is best for F, a pessimistic leader the worst tie.
Ties appear in two ways. Searches from different starts may end at different answers with the same f
(`is_tie`, `preferred`, `tie_order`). Or f is flat around an answer. Then all answers of a `FlatSet`
are ties, as far as f stays level. A search of F over that set finds the tie that the leader
expects, either locally (`FlatSet.search`) or in the whole set (`search_widely`).

In a run, the driver answers the requests of these procedures. Verification answers them itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd, sqp
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.order import best_index, ranking
from bilevo.core.request import Procedure, Values
from bilevo.core.stance import Stance
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start

APART = 0.01  # Answers farther apart than this fraction of the box are different answers.
FLAT_DIFFERENCE = 1e-4  # The step of differences for curvatures of f, as a fraction of the box.
FLAT = 1e-6  # A curvature below this fraction of the largest counts as none.


def is_tie(one: Pair, other: Pair, tolerance: float) -> bool:
    """Tell whether two answers are feasible, different, and equally good for the follower."""
    apart = bool(np.abs(one.y - other.y).max() > APART)
    feasible = one.lower_violation == other.lower_violation == 0
    return apart and feasible and abs(other.f - one.f) < tolerance


def preferred(upper: Values, stance: Stance = Stance.OPTIMISTIC) -> int:
    """Return the index of the tie that the leader expects, from the leader's values at all ties."""
    if stance is Stance.OPTIMISTIC:
        return best_index(upper.objective, upper.violation)
    return int(ranking(upper.objective, upper.violation)[-1])


def tie_order(
    f: FloatArray, violation: FloatArray, tied: BoolArray, upper: Values | None
) -> IntArray:
    """Return indices from best to worst: ties in the leader's order, then others in the follower's.

    `upper` holds the leader's values at the tied points, in their order.
    """
    first = np.empty(0, np.int64)
    if upper is not None:
        first = np.flatnonzero(tied)[ranking(upper.objective, upper.violation)]
    rest = [i for i in ranking(f, violation).tolist() if not tied[i]]
    return np.concatenate([first, np.array(rest, np.int64)])


def flat_directions(at: At, y: FloatArray, scale: float = 0.0) -> Procedure[FloatArray]:
    """Return directions (k, n) in which f has no curvature at y, by finite differences.

    `at` evaluates the follower at rows of y. If f fails near y, no direction is returned.
    """
    hessian = yield from measure_hessian(at, y)
    return np.empty((0, len(y))) if hessian is None else flat_axes(hessian, scale)


def measure_hessian(at: At, y: FloatArray) -> Procedure[FloatArray | None]:
    """Return the Hessian of f at y (n,) by finite differences, or None if f fails near y.

    This takes (n + 1) (n + 2) / 2 evaluations.
    """
    n = len(y)
    h = np.where(y > 0.5, -FLAT_DIFFERENCE, FLAT_DIFFERENCE)
    i, j = np.triu_indices(n)
    steps = np.concatenate([np.zeros((1, n)), np.diag(h), np.diag(h)[i] + np.diag(h)[j]])
    values = (yield from at(y + steps)).objective
    single = values[1 : n + 1]
    with np.errstate(all="ignore"):
        hessian = np.zeros((n, n))
        hessian[i, j] = hessian[j, i] = values[n + 1 :] - single[i] - single[j] + values[0]
        hessian /= np.outer(h, h)
    return hessian if np.isfinite(hessian).all() else None


def flat_axes(hessian: FloatArray, scale: float = 0.0) -> FloatArray:
    """Return principal directions (k, n) of a Hessian in which there is no curvature.

    A curvature counts as none if it is at most `FLAT` times the sum of the largest curvature and
    `scale`.
    """
    eigenvalues, vectors = np.linalg.eigh(hessian)
    largest = float(np.abs(eigenvalues).max())
    return np.asarray(vectors[:, np.abs(eigenvalues) <= FLAT * (largest + scale)].T)


@dataclass(frozen=True, slots=True, eq=False)
class FlatSet:
    """The answers y + t @ directions within the unit box, for coordinates t (k,)."""

    y: FloatArray
    directions: FloatArray  # (k, n)

    @property
    def size(self) -> int:
        return len(self.directions)

    def points(self, t: FloatArray) -> FloatArray:
        """Return the answers (j, n) at coordinates (j, k)."""
        return np.clip(self.y + t @ self.directions, 0.0, 1.0)

    def search(
        self,
        at: At,
        rule: LocalRule,
        hessian: FloatArray | None = None,
        values: Values | None = None,
        stance: Stance = Stance.OPTIMISTIC,
    ) -> Procedure[SearchEnd]:
        """Search F locally over the set from y; `at` gives the leader's values at rows of t."""

        def seen(t: FloatArray) -> Procedure[Values]:
            found = yield from at(t)
            return found._replace(objective=stance.seen(found.objective))

        reach = np.full(self.size, math.sqrt(len(self.y)))  # the diagonal of the box
        return (yield from sqp(seen, np.zeros(self.size), -reach, reach, rule, hessian, values))


BothLevels = Callable[[FloatArray], Procedure[tuple[Values, Values]]]  # y (k, n) -> lower, upper


def search_widely(
    flat: FlatSet,
    at: BothLevels,
    f: float,
    violation: float,
    rng: np.random.Generator,
    stance: Stance = Stance.OPTIMISTIC,
) -> Procedure[tuple[FloatArray, float, float] | None]:
    """Search F in a whole flat set by CMA-ES; return the preferred tie, or None if there is none.

    An answer's excess is its violation plus the amount by which its value exceeds `f`. An answer is
    a tie if its excess is at most `violation`; other answers count as infeasible. The returned tie
    is y (n,), the follower's value and the follower's violation.
    """
    cma, k = CMAES(), flat.size
    reach = 2 * math.sqrt(len(flat.y))  # 0 to 1 in CMA-ES stands for -reach / 2 to reach / 2
    state = cma.start(Start(np.full(k, 0.5), 0.01 * np.eye(k), np.zeros(k)))
    chosen, chosen_F = None, math.inf
    for _ in range(50 + 30 * k):
        asked = cma.ask(state, rng)
        points = flat.points(reach * (asked - 0.5))
        lower, upper = yield from at(points)
        F = stance.seen(upper.objective)
        excess = lower.violation + np.maximum(lower.objective - f, 0.0)
        total = upper.violation + np.maximum(excess - violation, 0.0)
        cma.tell(state, asked, F, total)
        i = best_index(F, total)
        if excess[i] <= violation and F[i] < chosen_F:
            chosen = points[i], float(lower.objective[i]), float(lower.violation[i])
            chosen_F = float(F[i])
        if cma.exhausted(state):
            break
    return chosen
