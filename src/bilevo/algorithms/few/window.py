"""Windows: a search by models of a part of the box, where one simulation gives both levels' values.

Models of the whole box may be too coarse to find a follower's answer. Then those of a window, which
is a smaller box around the best pair, are fitted to the pairs that are nearest to it. Every pair
has the values of both levels, so it serves both models, and a step takes few simulations:

- If the models expect another answer to the leader of the best pair, this answer is tried.
- If not, the leader that is best for the models in the window is tried, with the answer that they
  expect. The models learn the values. If they now expect another answer, this is tried as well.
- A leader becomes the best one if its answer is what the models expect, and if F is better by
  `Models.expected`, so that a follower that is not solved gains nothing.
- A pair where both F and f are lower than at the best one may become the best, too.

As in a trust region, the window doubles after a step to its edge, and shrinks with short steps.
After a failure it is halved, unless it has too few pairs to blame its size; then it gets a new one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.few.model_search import LevelModel, Models, answer, precise
from bilevo.algorithms.few.state import FewState
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure

FIRST_RADIUS = 0.25  # of the first window, as a fraction of the box
LARGEST_RADIUS = 0.5
LAST_RADIUS = 1e-4  # The search ends if the window becomes smaller.
SOLVED = 0.4  # A follower is solved if models move its answer by less (parts of the radius).
ANSWERS = 3  # The most answers in a row that are tried at a new leader.
NEAR = 1.5  # Pairs up to this distance from the best one count as near (parts of the radius).
CLOSE = 0.01  # A pair is not tried if an evaluated one is closer (parts of the radius).
EDGE = 0.9  # A longer step ends at the edge of the window (parts of the radius).
LONG = 4.0  # The next window has this many times the length of a step as its radius,
SHRINKING = 0.25  # but at least this part of the last radius.
DRAWN = 400  # How many random points compete for the place of a spread pair.
KNOWN_LEADERS = 8  # How many of the last leaders in the window are tried on models.


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A part of the unit box; its own coordinates go from 0 to 1, as those of the box do."""

    low: FloatArray  # (d,)
    width: FloatArray

    @classmethod
    def of(cls, state: FewState) -> Window:
        """Return the part of the box that is near the best pair."""
        centre = state.z[state.best]
        low = np.maximum(centre - state.radius, 0.0)
        return cls(low, np.minimum(centre + state.radius, 1.0) - low)

    def inner(self, points: FloatArray) -> FloatArray:
        """Return points (k, d) of the box in the window's coordinates."""
        return np.asarray((points - self.low) / self.width)

    def outer(self, points: FloatArray) -> FloatArray:
        """Return points (k, d) of the window in the coordinates of the box."""
        return np.clip(self.low + self.width * points, 0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What models say of a window. `pairs` (k, d) are all pairs in its coordinates."""

    window: Window
    models: Models
    pairs: FloatArray
    m: int

    @classmethod
    def of(cls, state: FewState) -> View:
        """Fit models to the nearest pairs: half as many again as a quadratic needs, or more."""
        window, z = Window.of(state), state.z
        d = z.shape[1]
        pairs, away = window.inner(z), away_from_best(state)
        order = np.argsort(away, kind="stable")
        within = int((away <= state.radius).sum())
        near = order[: max(3 * (d + 1) * (d + 2) // 4, within)]
        near = near[np.isfinite(away[near])]
        upper = LevelModel.of(pairs[near], state.F[near], state.G[near])
        lower = LevelModel.of(pairs[near], state.f[near], state.g[near])
        return cls(window, Models(upper, lower), pairs, state.x.shape[1])

    def answer(self, row: int, rng: np.random.Generator) -> tuple[FloatArray, bool]:
        """Return the expected answer (n,) to a row's leader; tell if the row has about the same."""
        x, y = np.split(self.pairs[row], [self.m])
        moved = answer(self.models.lower, x, y, rng)
        return moved, bool(2.0 * np.abs(moved - y).max() <= SOLVED)

    def best_leader(self, best: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return the best leader (m,) in the window for the models, and the answer (n,) to it."""
        within = (np.abs(self.pairs - 0.5) <= 0.5).all(axis=1)
        known = [*self.pairs[within][-KNOWN_LEADERS:], self.pairs[best]]
        n = self.pairs.shape[1] - self.m
        return self.models.best_leader(np.array(known)[:, : self.m], n, rng)

    def lower_row(self, state: FewState) -> int:
        """Return a row of the window where both F and f are lower than at the best pair, or -1."""
        best = state.best
        lower = (state.F[best] > state.F) & (state.f < state.f[best])
        lower &= (np.abs(self.pairs - 0.5) <= 0.5).all(axis=1)
        lower &= state.clear_violation <= state.clear_violation[best]
        rows = np.flatnonzero(lower)
        return int(rows[np.argmin(state.F[rows])]) if rows.size else -1

    def prefers(self, state: FewState, row: int, rng: np.random.Generator) -> bool:
        """Tell whether a row is expected to be better for the leader than the best pair."""
        rows = np.array([state.best, row])
        x, y = np.split(self.pairs[rows], [self.m], axis=1)
        F = self.models.expected(x, y, precise(y.shape[1]), rng)
        return bool(np.lexsort((F, state.clear_violation[rows]))[0] == 1)


def away_from_best(state: FewState) -> FloatArray:
    """Return the distances (k,) of pairs from the best pair; inf where models cannot use them."""
    z, usable = state.z, state.usable_upper & state.usable_lower
    return np.where(usable, np.abs(z - z[state.best]).max(axis=1), np.inf)


def open_window(state: FewState) -> Procedure[None]:
    """Begin the search in windows at the pair where both F and f are low, by their ranks."""
    ranks = np.argsort(state.F).argsort() + np.argsort(state.f).argsort()
    state.best = int(np.lexsort((ranks, state.clear_violation))[0])
    state.radius = FIRST_RADIUS
    yield state.incumbent(state.best)


def look_closer(spec: Spec, state: FewState, rng: np.random.Generator) -> Procedure[bool]:
    """Try to find a better pair in the window; tell whether the search in windows has ended."""
    d, before = spec.m + spec.n, state.best
    yield from add_spread(spec, state, d + 2 - count_near(state), rng)
    view = View.of(state)
    lower = view.lower_row(state)
    y, solved = view.answer(before, rng)
    if lower >= 0 and view.prefers(state, lower, rng):
        state.best, solved = lower, False
    elif solved:
        yield from try_best(spec, state, view, rng)
    else:
        yield from try_answer(spec, state, view, state.x[before], y)
        state.best = state.row_at(state.x[before])
    if state.best != before:
        yield state.incumbent(state.best)
        resize(state, float(np.abs(state.z[state.best] - state.z[before]).max()), solved)
    elif count_near(state) < 2 * d + 1:
        yield from add_spread(spec, state, 1, rng)
    else:
        state.radius /= 2
    return state.radius < LAST_RADIUS


def try_answer(
    spec: Spec, state: FewState, view: View, x: FloatArray, y: FloatArray
) -> Procedure[bool]:
    """Simulate a leader x (m,) of the box with an answer y (n,) of the window, unless it is known.

    Returns whether it was simulated.
    """
    z = view.window.outer(np.concatenate([np.zeros(spec.m), y]))
    z[: spec.m] = x
    known = np.abs(state.z - z).max(axis=1).min() < CLOSE * state.radius
    if not known:
        yield from state.see(spec, z[None])
    return not known


def try_best(spec: Spec, state: FewState, view: View, rng: np.random.Generator) -> Procedure[None]:
    """Try the best leader of the models; its pair becomes the best one if it is better."""
    inner, y = view.best_leader(state.best, rng)
    x = view.window.outer(np.concatenate([inner, y]))[: spec.m]
    for _ in range(ANSWERS):
        if not (yield from try_answer(spec, state, view, x, y)):
            break
        view, row = View.of(state), state.row_at(x)
        y, solved = view.answer(row, rng)
        if solved:
            if view.prefers(state, row, rng):
                state.best = row
            break


def resize(state: FewState, step: float, shrinks: bool) -> None:
    """Choose the next window by the length of a successful step."""
    if step > EDGE * state.radius:
        state.radius = min(2 * state.radius, LARGEST_RADIUS)
    elif shrinks:
        state.radius = min(state.radius, max(LONG * step, SHRINKING * state.radius))


def count_near(state: FewState) -> int:
    """Return how many pairs are in the window or close to it."""
    return int((away_from_best(state) <= NEAR * state.radius).sum())


def add_spread(
    spec: Spec, state: FewState, count: int, rng: np.random.Generator
) -> Procedure[None]:
    """Simulate pairs of the window, as far from others as random points are."""
    if count <= 0:
        return
    window = Window.of(state)
    pairs = window.inner(state.z)
    pairs = pairs[(np.abs(pairs - 0.5) <= 1.0).all(axis=1)]
    for _ in range(count):
        drawn = rng.random((DRAWN, pairs.shape[1]))
        away = ((drawn[:, None] - pairs) ** 2).sum(axis=2).min(axis=1)
        pairs = np.concatenate([pairs, drawn[away.argmax()][None]])
    yield from state.see(spec, window.outer(pairs[-count:]))
