"""Trust regions: boxes around the best leader near by, in which a model of F is believed.

The rules are those of ORBIT (S. M. Wild, R. G. Regis, C. A. Shoemaker, SIAM Journal on Scientific
Computing 30(6), 2008), with another model. A leader at the model's lowest point is tried. If F
falls as predicted, the region moves there, and may grow. If it does not, the region shrinks, but
only if the leaders near the centre show F in all directions. If they do not, a leader in the
direction that is missing is tried first, unless the model is sure that F rises there. Many
variables of an answer are at bounds, and need not be tried again in each smaller region.

A region is *level* if F is the same all over it. It is *rough* if F rises again and again where
the model predicts a fall, although the region has shrunk. Then F has a jump or a kink near the
centre, and no smooth model helps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bilevo.algorithms.trust_region.surface import Seen, Surface, lowest
from bilevo.core.arrays import FloatArray
from bilevo.core.order import no_worse

FIRST_RADIUS = 0.4  # In units of the box, as all lengths here.
MAX_RADIUS = 0.5
SMALL_RADIUS = 0.05
FINE = 1e-7  # A smaller region has converged.
NEAR = 3.0  # Leaders within this many radii of the centre show F near by.
MAX_LEARNT = 100  # The most leaders that a model learns from.
RELEARN = 1.2  # Settings are learnt again after the leaders grew by this factor.
GOOD, FAIR = 0.7, 0.1  # A gain of this part of the predicted one is good, or fair.
INDEPENDENT = 0.15  # A direction counts if a leader lies this many radii off all others.
ROUGH = 5  # A region is rough after this many rises in a row.
KEPT_AWAY = 2.0  # How many times its last violation a constraint is kept away from.
SURE = 4.0  # A direction is of no use if F rises there by this many deviations of the model.
UNSEEN = 0.1  # An axis is missing if this part of its square is.
LEARNING = 12  # The most steps of L-BFGS that learn the settings.


@dataclass(slots=True, eq=False)
class Known:
    """A leader x (m,) whose F is known, with G (c,): all constraints, then the lower violation.

    `error` is the standard deviation of F if the follower was not finished, else 0.
    """

    x: FloatArray
    F: float
    violation: float
    G: FloatArray
    task: int
    error: float = 0.0
    done: bool = True  # whether the follower is finished
    solved: bool = True  # whether the solver was done, so that other searches may start near it

    def no_worse(self, other: Known) -> bool:
        return no_worse(self.F, self.violation, other.F, other.violation)

    def ties(self, other: Known, negligible: float) -> bool:
        return abs(self.F - other.F) <= negligible and self.violation == other.violation

    @property
    def usable(self) -> bool:
        """Tell whether a model can learn from it."""
        numbers = (self.F, self.error, *self.G.tolist())
        return all(map(math.isfinite, numbers))


class Trial(NamedTuple):
    """A leader x (m,) to try, and the predicted gain; 0 if it shall only show a direction."""

    x: FloatArray
    gain: float


@dataclass(slots=True, eq=False)
class Region:
    """A box around the best leader near by. `settings` are those of the model, in unit lengths."""

    centre: Known
    settings: FloatArray
    radius: float = FIRST_RADIUS
    learnt: int = 0  # number of leaders when the settings were learnt
    jumps: bool = False  # whether F has risen where a small region predicted a fall
    rises: int = 0  # failures in a row in which F has risen by more than the predicted gain
    doubtful: bool = False  # whether the last trial failed, so that directions must be checked
    fruitful: bool = False  # whether it has improved the run's answer by much
    gain: float = math.inf  # the last predicted gain
    accurate: bool = False  # whether the last gain was about as predicted
    level: bool = False  # whether F is the same all over the region
    # How far below 0 the models of G (c,) must be; empty if the models have not erred yet.
    margins: FloatArray = field(default_factory=lambda: np.empty(0))
    own: list[Known] | None = None  # the only leaders that its model learns from; None: all

    @property
    def rough(self) -> bool:
        return self.rises >= ROUGH

    def trial(self, known: list[Known], negligible: float) -> Trial | None:
        """Return the next leader to try, or None if the region has converged."""
        known = known if self.own is None else self.own
        points = [point for point in known if point.usable]
        x = np.array([point.x for point in points])
        while self.radius > FINE:
            surface = self.surface(points, x)
            if not self.doubtful:
                found, useful = self._lowest(surface, x)
                self.gain = found.gain
                if useful and found.gain > 0:
                    return found
                self.doubtful = True
            missing = self._missing_direction(x, surface)
            if missing is not None:
                return missing
            self.doubtful = False
            self.level = self._is_level(points, x, negligible)
            if self.level or (self.accurate and self.gain <= negligible):
                break
            self.radius *= 0.5
            self.margins *= 0.5
        return None

    def _is_level(self, points: list[Known], x: FloatArray, negligible: float) -> bool:
        """Tell whether F does not differ among the leaders near the centre."""
        away = np.abs(x - self.centre.x).max(axis=1)
        near = [points[i] for i in np.flatnonzero(away <= NEAR * self.radius)]
        return all(self.centre.ties(point, negligible) for point in near)

    def surface(self, points: list[Known], x: FloatArray) -> Surface:
        """Return a model of the leaders near the centre."""
        centre, radius, m = self.centre.x, self.radius, len(self.centre.x)
        away = np.abs(x - centre).max(axis=1)
        count = max(2 * m + 2, int((away <= NEAR * radius).sum()))
        near = np.argsort(away, kind="stable")[: min(count, MAX_LEARNT)]
        rows = [points[i] for i in near]
        values = np.array([[point.F, *point.G] for point in rows])
        if not values[:, -1].any():  # no follower without a feasible answer
            values = values[:, :-1]
        seen = Seen(x[near], values, np.array([point.error**2 for point in rows]))
        settings = self.settings.copy()
        settings[:m] -= math.log(radius)
        learn = LEARNING if len(points) >= RELEARN * self.learnt else 0
        surface = Surface(seen, centre, radius, settings, learn)
        if learn:
            self.learnt, self.settings = len(points), surface.settings.copy()
            self.settings[:m] += math.log(radius)
        return surface

    def _lowest(self, surface: Surface, x: FloatArray) -> tuple[Trial, bool]:
        """Return the model's lowest point in the region, and whether a trial there is useful."""
        centre, radius = self.centre, self.radius
        lower, upper = np.maximum(centre.x - radius, 0), np.minimum(centre.x + radius, 1)
        margins = self.margins[: len(surface.scale) - 1] if self.margins.size else 0.0
        found = lowest(surface, centre.x, lower, upper, margins)
        values = surface.at(found)[0]
        violation = float(np.maximum(values[1:], 0).sum())
        gain = centre.F - values[0] if centre.violation == 0 else centre.violation - violation
        step = np.abs(found - centre.x).max()
        apart = np.abs(x - found).max(axis=1).min()
        useful = bool(step >= 0.1 * radius and apart >= 0.02 * radius)
        return Trial(found, max(float(gain), 0.0)), useful

    def _missing_direction(self, x: FloatArray, surface: Surface) -> Trial | None:
        """Return a leader in a direction that no leader near by shows, or None if none is missing.

        It is on an axis, because costs of leaders are often separable. Of all such leaders, it is
        the one where F may be lowest. A direction is not missing if F surely rises there.
        """
        centre, radius = self.centre.x, self.radius
        away = np.abs(x - centre).max(axis=1)
        near = (x[(away > 0) & (away <= NEAR * radius)] - centre) / radius
        unseen = 1 - (independent_directions(near) ** 2).sum(axis=0) > UNSEEN
        moves = np.concatenate(
            [np.diag(np.minimum(radius, 1 - centre)), -np.diag(np.minimum(radius, centre))]
        )
        moves = moves[np.tile(unseen, 2) & (np.abs(moves).max(axis=1) > 0.3 * radius)]
        if not len(moves):
            return None
        trials = np.clip(centre + moves, 0.0, 1.0)
        F = np.array([surface.at(trial)[0][0] for trial in trials])
        least = F - SURE * surface.deviations(trials)
        best = int(least.argmin())
        if self.centre.violation == 0 and least[best] >= self.centre.F:
            return None
        return Trial(trials[best], 0.0)

    def note(self, tried: Trial, found: Known) -> None:
        """Move, grow or doubt the region after a trial, by what was found."""
        centre = self.centre
        if self.own is not None:
            self.own.append(found)
        better = found.done and not centre.no_worse(found)
        if centre.violation > 0:
            gained = centre.violation - found.violation
        else:
            gained = centre.F - found.F if found.violation == 0 else -math.inf
        if better:
            self.centre = found
        if tried.gain == 0:  # it has only shown a direction
            self.doubtful = self.doubtful and not better
            return
        if centre.violation == 0:
            self._set_margins(found)
        ratio = gained / tried.gain
        step = np.abs(found.x - centre.x).max()
        self.doubtful = ratio < FAIR
        self.accurate = 0.5 < ratio < 2.0
        self.rises = self.rises + 1 if ratio < -1 else 0
        self.jumps = self.jumps or (ratio < -1 and self.radius < SMALL_RADIUS)
        if ratio > GOOD and step > 0.9 * self.radius:
            self.radius = min(2 * self.radius, MAX_RADIUS)

    def _set_margins(self, found: Known) -> None:
        """Keep away from constraints by twice what a trial has violated; else by half as much.

        A model errs, so that of two trials at a constraint about one would be infeasible.
        """
        if found.violation == 0:
            self.margins *= 0.5
        elif math.isfinite(found.violation) and found.usable:
            self.margins = KEPT_AWAY * np.maximum(found.G, 0.0)


def independent_directions(steps: FloatArray) -> FloatArray:
    """Return an orthonormal basis (k, m) of the directions that steps (p, m) show well."""
    basis, rest = np.empty((0, steps.shape[1])), steps
    while len(rest) and len(basis) < steps.shape[1]:
        sizes = np.linalg.norm(rest, axis=1)
        longest = int(sizes.argmax())
        if sizes[longest] < INDEPENDENT:
            break
        direction = rest[longest] / sizes[longest]
        basis = np.vstack([basis, direction])
        rest = rest - np.outer(rest @ direction, direction)
    return basis
