"""CMA-ES with margin for whole numbers, and probabilities for choices.

R. Hamano, S. Saito, M. Nomura and S. Shirakawa, "CMA-ES with margin", GECCO 2022, and R. Hamano,
M. Nomura, S. Saito, K. Uchida and S. Shirakawa, "CatCMA with margin", GECCO 2025.

Real and whole numbers share one Gaussian N(m, s^2 A C A), where the scales A belong to the whole
numbers. Without more, its deviation would fall below the width of a cell, and a whole number would
be stuck. The following is done for whole numbers:
- centring: of the best points, those that have left the mean's cell are moved to the middle of
  their own cell; the others are shifted so that the mean is not biased;
- margin: after each update the mean and A are changed so that the next cells have a probability of
  at least alpha together. The probability of a change only rises after a successful one.
A choice has a probability for each label. These are updated by ASNG (Y. Akimoto et al., "Adaptive
stochastic natural gradient method for one-shot neural architecture search", ICML 2019), and none
falls below a least value.

What differs from the publication: the Gaussian is that of `cma_es`, without negative weights. A
whole number beyond the box is put at the bound. Mixtures of searches are convex, because
probabilities need that, and a start may be a mixture; both then get their margin at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.bounds import Grid
from bilevo.core.order import ranking
from bilevo.optimizers.cma_es import CMAES, CMAState, parameters
from bilevo.optimizers.cma_kernels import parts, repaired, sample
from bilevo.optimizers.protocol import Start

UNCHANGED = 0.73  # 1 - alpha of one variable; alpha is less if there are more
LEAST = 1e-8  # the least probability of a cell, for rounding
SIGNAL = 1.5  # ASNG's threshold of the signal-to-noise ratio
SETTLED = 1.1  # a number or choice has settled if it changes at most with this many alpha
STILL = 10  # a search is not exhausted before all have been so for this many generations


class Layout(NamedTuple):
    """Which coordinates of a search are in its Gaussian, and which are choices."""

    ordered: IntArray  # coordinates of the Gaussian
    whole: IntArray  # places of whole numbers among these
    values: IntArray  # how many values these whole numbers have
    choices: IntArray  # coordinates of choices
    labels: IntArray  # how many labels these have
    alpha: float  # the least probability that a whole number changes

    @classmethod
    def of(cls, grid: Grid) -> Layout:
        ordered, choices = np.flatnonzero(~grid.unordered), np.flatnonzero(grid.unordered)
        whole = np.flatnonzero(grid.values[ordered] > 0)
        alpha = 1 - UNCHANGED ** (1 / max(1, whole.size + choices.size))
        values = grid.values[ordered][whole]
        return cls(ordered, whole, values, choices, grid.values[choices], alpha)

    @property
    def real(self) -> IntArray:
        """Return the places of real numbers in the Gaussian."""
        return np.setdiff1d(np.arange(self.ordered.size), self.whole)

    @property
    def size(self) -> int:
        return self.ordered.size + self.choices.size

    def least(self, choice: int) -> float:
        """Return the least probability of a label of a choice."""
        return self.alpha / float(self.labels[choice] - 1)


class Margin(NamedTuple):
    """What margins of whole numbers (k,) depend on."""

    mean: FloatArray
    A: FloatArray
    changes: FloatArray  # the probability that each number changed, in the last generation


@dataclass(frozen=True, slots=True, eq=False)
class GridStart(Start):
    """A start with the probabilities of labels of each choice."""

    probabilities: tuple[FloatArray, ...] = ()


@dataclass(slots=True, eq=False)
class Choosing:
    """The probabilities of all choices' labels, and what ASNG has learnt about its step."""

    probabilities: tuple[FloatArray, ...]
    path: FloatArray
    gamma: float = 0.0
    step: float = 1.0  # length of the next step of the natural gradient
    caution: float = 1.0  # the step after it is divided by this

    @classmethod
    def of(cls, probabilities: tuple[FloatArray, ...]) -> Choosing:
        return cls(probabilities, np.zeros(sum(len(q) - 1 for q in probabilities)))

    def draw(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw labels (count, choices)."""
        columns = []
        for q in self.probabilities:
            drawn = np.searchsorted(np.cumsum(q), rng.random(count), side="right")
            columns.append(np.minimum(drawn, len(q) - 1))
        return np.array(columns, np.int64).reshape(-1, count).T

    def learn(self, labels: IntArray, weights: FloatArray) -> None:
        """Follow the natural gradient of the best labels (mu, choices) with their weights (mu,)."""
        gradients, whitened = [], []
        for column, q in zip(labels.T, self.probabilities, strict=True):
            gradient = np.bincount(column, weights, len(q)) - q
            gradients.append(gradient)
            roots, last = np.sqrt(q[:-1]), q[-1]
            lever = gradient[:-1].sum() / (last + math.sqrt(last))
            whitened.append(gradient[:-1] / roots + roots * lever)
        white = np.concatenate(whitened)
        length = float(np.linalg.norm(white))
        if length == 0.0:
            return
        self.probabilities = tuple(
            q + self.step / (length + LEAST) * gradient
            for q, gradient in zip(self.probabilities, gradients, strict=True)
        )
        self.step = 1.0 / self.caution
        beta = self.step / math.sqrt(len(white))
        push = math.sqrt(max(0.0, beta * (2 - beta)))
        self.path = (1 - beta) * self.path + push * white / length
        self.gamma = (1 - beta) ** 2 * self.gamma + beta * (2 - beta)
        self.caution *= math.exp(beta * (self.gamma - float(self.path @ self.path) / SIGNAL))

    def keep_margin(self, layout: Layout) -> None:
        """Raise probabilities that are below the least one."""
        self.probabilities = tuple(
            at_least(layout.least(i), q) for i, q in enumerate(self.probabilities)
        )


@dataclass(slots=True, eq=False)
class MarginState:
    """A Gaussian with scales A (d,) of its variables, and probabilities of choices.

    `changes` (k,) belongs to the whole numbers: how probable a change of each may be.
    """

    gaussian: CMAState
    A: FloatArray
    changes: FloatArray
    choosing: Choosing
    still: int = 0  # generations since all whole numbers and choices have settled


@dataclass(frozen=True, slots=True, eq=False)
class MarginCMAES:
    """CMA-ES with margin over the coordinates of a layout; `base` has its settings."""

    base: CMAES
    layout: Layout

    keeps_values: ClassVar[bool] = False

    def population_size(self, d: int) -> int:
        return self.base.population_size(d)

    def start(self, start: Start, rng: np.random.Generator | None = None) -> MarginState:
        layout = self.layout
        chosen = layout.ordered
        square = start.covariance[np.ix_(chosen, chosen)]
        gaussian = self.base.start(Start(start.mean[chosen], square, start.path[chosen]))
        given = start.probabilities if isinstance(start, GridStart) else ()
        probabilities = given or tuple(np.full(k, 1 / k) for k in layout.labels.tolist())
        state = MarginState(
            gaussian,
            np.ones(chosen.size),
            np.full(layout.whole.size, 0.5 - LEAST),
            Choosing.of(tuple(q.copy() for q in probabilities)),
        )
        self.keep_margin(state, np.ones(layout.whole.size, np.bool_))
        return state

    def ask(self, state: MarginState, rng: np.random.Generator) -> FloatArray:
        layout = self.layout
        count = self.population_size(layout.size)
        points = np.empty((count, layout.size))
        if layout.ordered.size:
            normals = rng.standard_normal((count, layout.ordered.size))
            points[:, layout.ordered] = self._drawn(state, normals)
        if layout.choices.size:
            labels = state.choosing.draw(count, rng)
            points[:, layout.choices] = (labels + 0.5) / layout.labels
        return points

    def _drawn(self, state: MarginState, normals: FloatArray) -> FloatArray:
        """Return points of the Gaussian, inside the unit box."""
        gaussian = state.gaussian
        sample(gaussian.packed, normals.copy())  # factorizes C; its points lack the scales
        _, C, inverse_root, _, _ = parts(gaussian.packed, gaussian.d)
        root = C @ inverse_root
        drawn = gaussian.mean + gaussian.sigma * state.A * (normals @ root)
        real = self.layout.real
        drawn[:, real] = repaired(drawn[:, real], gaussian.mean[real])
        return np.clip(drawn, 0.0, 1.0)

    def tell(
        self, state: MarginState, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        layout = self.layout
        objective, violation = self.base.ranked_by(objective, violation)
        weights = parameters(layout.size, self.population_size(layout.size)).weights[0]
        best = ranking(objective, violation)[: len(weights)]
        if layout.ordered.size:
            self._tell_gaussian(state, points[:, layout.ordered], best, objective, violation)
        if layout.choices.size:
            cells = points[best][:, layout.choices] * layout.labels
            labels = np.minimum(cells.astype(np.int64), layout.labels - 1)
            state.choosing.learn(labels, weights)
            state.choosing.keep_margin(layout)
        state.still = state.still + 1 if self.has_settled(state) else 0

    def _tell_gaussian(
        self,
        state: MarginState,
        points: FloatArray,
        best: IntArray,
        objective: FloatArray,
        violation: FloatArray,
    ) -> None:
        layout, gaussian = self.layout, state.gaussian
        rows, whole = points.copy(), np.ix_(best, layout.whole)
        rows[whole], changed = centred(rows[whole], gaussian.mean[layout.whole], layout.values)
        rows = gaussian.mean + (rows - gaussian.mean) / state.A
        count = self.population_size(layout.size)  # that of all coordinates, also of choices
        CMAES(count).tell(gaussian, np.ascontiguousarray(rows), objective, violation)
        self.keep_margin(state, changed)

    def keep_margin(self, state: MarginState, changed: BoolArray) -> None:
        """Give whole numbers their margins; `changed` (k,) says which were changed with success."""
        layout, gaussian = self.layout, state.gaussian
        if layout.whole.size:
            deviation = gaussian.sigma * np.sqrt(gaussian.C.diagonal()[layout.whole])
            before = Margin(gaussian.mean[layout.whole], state.A[layout.whole], state.changes)
            after = with_margin(before, deviation, changed, layout.values, layout.alpha)
            gaussian.mean[layout.whole], state.A[layout.whole], state.changes = after
        state.choosing.keep_margin(layout)

    def mean(self, state: MarginState) -> FloatArray:
        layout = self.layout
        found = np.empty(layout.size)
        found[layout.ordered] = state.gaussian.mean
        found[layout.choices] = [q @ _middles(len(q)) for q in state.choosing.probabilities]
        return found

    def marginal(self, state: MarginState, first: int) -> Start:
        """Return the distribution of the variables from `first` on."""
        layout, gaussian, mean = self.layout, state.gaussian, self.mean(state)
        covariance, path = np.zeros((mean.size, mean.size)), np.zeros(mean.size)
        scale = gaussian.sigma * state.A
        covariance[np.ix_(layout.ordered, layout.ordered)] = gaussian.C * np.outer(scale, scale)
        path[layout.ordered] = gaussian.p_c * scale
        kept = []
        for i, q in zip(layout.choices.tolist(), state.choosing.probabilities, strict=True):
            covariance[i, i] = q @ (_middles(len(q)) - mean[i]) ** 2
            kept += [q] if i >= first else []
        return GridStart(
            mean[first:], covariance[first:, first:], path[first:], probabilities=tuple(kept)
        )

    def mix(
        self,
        state: MarginState,
        own_weight: float,
        others: Sequence[MarginState],
        weights: Sequence[float],
    ) -> None:
        """Mix means, covariances and probabilities by weights that are made to add up to 1."""
        shares = np.array([own_weight, *weights]) / (own_weight + sum(weights))
        states = [state, *others]
        mean = shares @ np.array([one.gaussian.mean for one in states])
        scaled = [one.gaussian.C * np.outer(one.A, one.A) for one in states]
        C = np.tensordot(shares, np.array(scaled), 1) / np.outer(state.A, state.A)
        state.gaussian.mean[:], state.gaussian.C[:] = mean, C
        columns = zip(*(one.choosing.probabilities for one in states), strict=True)
        state.choosing.probabilities = tuple(shares @ np.array(column) for column in columns)
        self.keep_margin(state, np.ones(self.layout.whole.size, np.bool_))

    def exhausted(self, state: MarginState) -> bool:
        """Tell whether the real numbers are exhausted, and the others have settled for a while."""
        gaussian, real = state.gaussian, self.layout.real
        if state.still < STILL or not real.size:
            return state.still >= STILL
        square = gaussian.C[np.ix_(real, real)]
        part = self.base.start(Start(gaussian.mean[real], square, gaussian.p_c[real]))
        part.sigma = gaussian.sigma
        return self.base.exhausted(part)

    def has_settled(self, state: MarginState) -> bool:
        """Tell whether whole numbers and choices hardly change any more."""
        most = SETTLED * self.layout.alpha
        changes = [*state.changes, *(1 - q.max() for q in state.choosing.probabilities)]
        return all(change <= most for change in changes)


def on_grid(optimizer: CMAES, grid: Grid) -> MarginCMAES:
    """Return CMA-ES with margin, for the whole numbers and choices of a grid."""
    return MarginCMAES(optimizer, Layout.of(grid))


def centred(points: FloatArray, mean: FloatArray, values: IntArray) -> tuple[FloatArray, BoolArray]:
    """Centre the whole numbers of the best points (mu, k); `values` (k,) is how many there are.

    Also returns which of the k numbers differ from the mean's in any of these points.
    """
    own = _cells(mean, values)
    cells = _cells(points, values)
    middles, away = (cells + 0.5) / values, cells != own
    moved = np.where(away, middles, points)
    bias = (moved - points).sum(axis=0)
    inwards = np.where(away, 0.0, middles - points)
    against = np.where(inwards * bias < 0, inwards, 0.0)  # shifts that take the bias away
    room = against.sum(axis=0)
    part = np.minimum(1.0, -bias / np.where(room == 0, 1.0, room)) * (room != 0)
    return moved + part * against, np.asarray(away.any(axis=0))


def with_margin(
    before: Margin, deviation: FloatArray, changed: BoolArray, values: IntArray, alpha: float
) -> Margin:
    """Return the mean, A and rates (k,) of whole numbers with a margin of alpha.

    `deviation` (k,) is theirs without A; `changed` says which had a successful change.
    """
    mean, A, rates = before
    own = _cells(mean, values)
    first, last = own == 0, own == values - 1
    edge = first | last
    below = np.where(first, 1, own) / values  # the thresholds to the next cells, or the only one
    above = np.where(last, own, own + 1) / values
    p_below, p_above = (
        ndtr((below - mean) / (A * deviation)),
        ndtr((mean - above) / (A * deviation)),
    )
    # A first or last cell: there is one threshold.
    rate = np.maximum(np.minimum(p_below, p_above), alpha)
    rate = np.clip(np.where(changed, rate, np.minimum(rate, rates)), LEAST, 0.5 - LEAST)
    A_edge = np.maximum(A, 0.5 / values / (deviation * quantile(alpha)))
    side = np.where(first, -1.0, 1.0)
    mean_edge = above + side * deviation * A_edge * quantile(rate)
    # Any other cell.
    low, high = np.maximum(p_below, alpha / 2), np.maximum(p_above, alpha / 2)
    stay = 1 - p_below - p_above
    stay = np.where(changed, stay, np.maximum(stay, 1 - rates))
    floor = np.where(changed, 1.5 * alpha, alpha + 1 - rates)
    total = low + high + stay
    room = total - floor
    excess = np.where(room > 0, (1 - total) / np.where(room > 0, room, 1.0), 0.0)
    low, high = (np.clip(p + excess * (p - alpha / 2), LEAST, 0.5 - LEAST) for p in (low, high))
    q_low, q_high = quantile(low), quantile(high)
    width = q_low + q_high
    A_inner = (above - below) / (width * deviation)
    mean_inner = (below * q_high + above * q_low) / width
    return Margin(
        np.where(edge, mean_edge, mean_inner),
        np.where(edge, A_edge, A_inner),
        np.where(edge, rate, low + high),
    )


def at_least(least: float, q: FloatArray) -> FloatArray:
    """Return probabilities of which none is below the least one."""
    q = np.maximum(q, least)
    room = float((q - least).sum())
    if room > 0:
        q = q - (q.sum() - 1) * (q - least) / room
    return np.asarray(q / q.sum())


def quantile(p: FloatArray | float) -> FloatArray:
    """Return the distance, in deviations, beyond which a Gaussian has the probability p."""
    return np.asarray(-ndtri(p))


def _cells(points: FloatArray, values: IntArray) -> IntArray:
    cells = np.floor(points * values)
    return np.asarray(np.clip(cells, 0, values - 1), np.int64)


def _middles(labels: int) -> FloatArray:
    return (np.arange(labels) + 0.5) / labels
