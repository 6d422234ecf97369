"""A steady-state genetic algorithm with parent-centric crossover, in ask and tell form.

A. Sinha, P. Malo and K. Deb, "An improved bilevel evolutionary algorithm based on quadratic
approximations", IEEE CEC, 2014 (NBLEA is its nested variant). Operators and constants are those of
the public BLEAQ-II program of Sinha, Lu, Deb and Malo, 2020.

The first `ask` gives the whole start population. Each later `ask` gives two children of the best
member and two winners of tournaments. Children compete with two random members for their places.

A run takes hundreds of thousands of such generations, so each may cost only tens of microseconds.
Therefore members are lists of floats, which for few variables are faster than arrays, and the sums
for the variance are updated, not added up again. They are relative to the mean of the start
population, so that cancellation does no harm before the search ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import mul

import numpy as np

from bilevo.core.arrays import FloatArray, row_dots
from bilevo.core.order import Key, order_key
from bilevo.optimizers.variation import (
    WIDTH,
    Row,
    crossed_rows,
    distinct,
    entrants,
    mutate_rows,
    tournaments,
)

CHILDREN = 2  # How many children a generation has.
ETA = 0.1  # The weight of the difference of the other two parents in the crossover.
SMALLEST_VARIANCE = 1e-5  # The search ends when the variance shrinks to this share of the first.


@dataclass(slots=True, eq=False)
class SteadyGAState:
    """A population: its members, their keys in Deb's order, and the sums of the variance."""

    members: list[Row]
    keys: list[Key] = field(default_factory=list)  # of known members; of all after the first `tell`
    places: list[int] = field(default_factory=list)  # the places for which the children compete
    best: int = 0
    infeasible: int = 0
    centre: Row = field(default_factory=list)  # mean of the start population
    total: Row = field(default_factory=list)  # sum of members - centre
    norms: list[float] = field(default_factory=list)  # squared lengths of the deviations
    squares: float = 0.0  # the sum of `norms`
    first_variance: float = 0.0

    @property
    def variance(self) -> float:
        """Return the sum of the coordinates' variances, times N - 1."""
        return self.squares - square_length(self.total) / len(self.keys)


class SteadyGA:
    """The genetic search."""

    def start(
        self, points: FloatArray, known: Sequence[tuple[FloatArray, Key]] = ()
    ) -> SteadyGAState:
        """Return a search that starts from points to evaluate and from members with known keys."""
        members = [point.tolist() for point, _ in known] + points.tolist()
        return SteadyGAState(members, [key for _, key in known])

    def ask(self, state: SteadyGAState, rng: np.random.Generator) -> FloatArray:
        """Return the members of the start population without keys, and later two children."""
        members, keys = state.members, state.keys
        if not state.norms:
            return np.array(members[len(keys) :])
        uniforms = rng.random(4 + 2 * CHILDREN).tolist()
        state.places = distinct(uniforms[4 : 4 + CHILDREN], len(keys))
        one, two = tournaments(entrants(keys, state.infeasible, uniforms[:4]), keys)
        parents = members[state.best], members[one], members[two]
        normals = rng.standard_normal(2 * CHILDREN).tolist()
        children = crossed_rows(parents, uniforms[4 + CHILDREN :], normals, ETA)
        mutate_rows(children, rng, 1 / len(parents[0]), scale=1 / WIDTH)
        return np.array(children)

    def tell(
        self, state: SteadyGAState, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        """Let evaluated points compete for the places; the best member is never lost."""
        keys = [*map(order_key, objective.tolist(), violation.tolist())]
        if not state.norms:
            _begin(state, keys)
            return
        places, rows = state.places, points.tolist()
        pool = [state.keys[place] for place in places] + keys
        ranked = sorted(range(len(pool)), key=pool.__getitem__)
        chosen = ranked[: len(places)]
        vacant = [place for i, place in enumerate(places) if i not in chosen]
        seats = [places[i] if i < len(places) else vacant.pop() for i in chosen]
        leads = state.best in places or pool[chosen[0]] < state.keys[state.best]
        for i, seat in zip(chosen, seats, strict=True):
            if i >= len(places):
                _replace(state, seat, rows[i - len(places)], pool[i])
        if leads:
            state.best = seats[0]

    def exhausted(self, state: SteadyGAState) -> bool:
        """Tell whether the population has shrunk around a feasible best member."""
        # Not "less than", because rounding can make both variances 0 or slightly negative.
        small = state.variance <= SMALLEST_VARIANCE * state.first_variance
        return small and state.keys[state.best][0] == 0


def _begin(state: SteadyGAState, keys: list[Key]) -> None:
    """Set the best member and the sums, once the start population is evaluated."""
    state.keys = state.keys + keys
    state.best = min(range(len(state.keys)), key=state.keys.__getitem__)
    state.infeasible = sum(violation > 0 for violation, _ in state.keys)
    points = np.array(state.members)
    centre = points.mean(axis=0)
    deviations = points - centre
    state.centre, state.total = centre.tolist(), deviations.sum(axis=0).tolist()
    state.norms = row_dots(deviations, deviations).tolist()
    state.squares = sum(state.norms)
    state.first_variance = state.variance


def _replace(state: SteadyGAState, place: int, member: Row, key: Key) -> None:
    """Put a point in a member's place, and update the sums."""
    old = state.members[place]
    norm = square_length([a - b for a, b in zip(member, state.centre, strict=True)])
    moved = zip(state.total, member, old, strict=True)
    state.total = [total + (new - before) for total, new, before in moved]
    state.squares += norm - state.norms[place]
    state.norms[place] = norm
    state.members[place] = member
    state.infeasible += (key[0] > 0) - (state.keys[place][0] > 0)
    state.keys[place] = key


def square_length(row: Row) -> float:
    return float(sum(map(mul, row, row)))
