"""A game of several followers as `Nash` plays it: f_i and g_i of each player in the unit box.

Values are recorded, as those of `bilevo.followers.Minimize` are: a step plays the game again from
its start, takes known values from the record, and breaks off when its evaluations are used up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.one_follower import problem_of_one
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values
from bilevo.core.several import INDEPENDENT
from bilevo.core.solver import CheckedSolver, cost_of
from bilevo.core.space import UnitBox
from bilevo.followers.lower import Lower
from bilevo.followers.minimize import Paused

OWN_STEPS = 50  # The most steps of a follower's own solver in one best response.


class Player:
    """One follower: its problem, its place in y (n,), and its coordinates in the unit box."""

    def __init__(self, problem: Problem, i: int, first: int) -> None:
        assert problem.several is not None
        self.beside = problem.several.play != INDEPENDENT
        one = problem_of_one(problem, i, self.beside)
        self.solver: CheckedSolver | None = None
        self.solver_cost = 0
        if one.follower is not None:
            self.solver, self.solver_cost = one.checked_solver(), cost_of(one.follower)
        self.lower = Lower(one, "Nash") if one.f_is_known else None
        self.block = problem.several.blocks[i]
        self.others = np.setdiff1d(np.arange(problem.n), np.arange(problem.n)[self.block])
        self.constrained = one.g is not None
        self.box = UnitBox(one.y_bounds)
        self.place = slice(first, first + self.box.size)  # in unit coordinates of all players
        self.smooth = self.solver is None and not self.constrained


class Game:
    """The players of a problem, and the map between their unit coordinates and y."""

    def __init__(self, problem: Problem) -> None:
        self.players: list[Player] = []
        self.size = 0
        for i in range(len(problem.blocks)):
            self.players.append(Player(problem, i, self.size))
            self.size += self.players[-1].box.size
        self.n, self._bounds = problem.n, problem.x_bounds
        self._problem = problem

    def leader_unit(self, x: FloatArray) -> FloatArray:
        """Return x in units of the leader's box; variables with equal bounds stay as they are."""
        width = self._bounds.width
        return np.asarray((x - self._bounds.lower) / np.where(width > 0, width, 1.0))

    def real(self, unit: FloatArray) -> FloatArray:
        """Map unit coordinates of all players to y (n,)."""
        y = np.empty(self.n)
        for player in self.players:
            y[player.block] = player.box.real(unit[player.place][None])[0]
        return y

    def unit(self, y: FloatArray) -> FloatArray:
        """Map y (n,) to unit coordinates of all players."""
        unit = np.empty(self.size)
        for player in self.players:
            unit[player.place] = player.box.unit(y[player.block])
        return unit

    def seen(self, i: int, x: FloatArray, unit: FloatArray) -> FloatArray:
        """Return what player `i` sees: x, and the answers of the others in a Nash game."""
        player = self.players[i]
        return np.concatenate([x, self.real(unit)[player.others]]) if player.beside else x

    def leaders(self, x: FloatArray, unit: FloatArray) -> tuple[float, float]:
        """Return F and the sum of the leader's violations at unit coordinates of all players."""
        F, G = self._problem.values(Level.UPPER, x[None], self.real(unit)[None])
        return float(F[0]), float(np.maximum(G[0], 0.0).sum())

    @property
    def solver_cost(self) -> int:
        """Return the most that a best response by a follower's own solver may cost."""
        return OWN_STEPS * max(player.solver_cost for player in self.players)


@dataclass(slots=True, eq=False)
class Record:
    """What was computed so far: the player (k,), its coordinates (k, d), its values, its costs.

    Players of different sizes share the arrays; the entries that a player does not need are 0.
    """

    who: IntArray
    points: FloatArray
    objective: FloatArray
    violation: FloatArray
    constraints: FloatArray
    cost: IntArray
    spent: int = 0

    @classmethod
    def empty(cls, size: int) -> Record:
        nothing = np.empty(0)
        none = np.empty(0, dtype=np.int64)
        return cls(none, np.empty((0, size)), nothing, nothing, np.empty((0, 0)), none)

    def keep(self, count: int) -> None:
        """Keep only the first `count` rows."""
        self.who, self.points, self.cost = self.who[:count], self.points[:count], self.cost[:count]
        self.objective, self.violation = self.objective[:count], self.violation[:count]
        self.constraints = self.constraints[:count]

    def add(self, i: int, points: FloatArray, values: Values, cost: int) -> None:
        """Add rows of a player, each of which has cost `cost`."""
        width = max(self.constraints.shape[1], values.constraints.shape[1])
        wide = np.zeros((len(self.who) + len(points), width))
        wide[: len(self.who), : self.constraints.shape[1]] = self.constraints
        wide[len(self.who) :, : values.constraints.shape[1]] = values.constraints
        rows = np.zeros((len(points), self.points.shape[1]))
        rows[:, : points.shape[1]] = points
        self.constraints = wide
        self.who = np.concatenate([self.who, np.full(len(points), i)])
        self.points = np.concatenate([self.points, rows])
        self.objective = np.concatenate([self.objective, values.objective])
        self.violation = np.concatenate([self.violation, values.violation])
        self.cost = np.concatenate([self.cost, np.full(len(points), cost)])
        self.spent += cost * len(points)


@dataclass(slots=True, eq=False)
class Table:
    """The game at a leader's x, as one step plays it: at most `most` new evaluations."""

    game: Game
    x: FloatArray
    record: Record
    most: int
    seed: int
    place: int = 0
    widths: dict[int, int] = field(default_factory=dict)  # numbers of constraints by player

    def values(self, i: int, unit: FloatArray, own: FloatArray) -> Values:
        """Return the values of player `i` at rows of own coordinates; `unit` has the others'."""
        player, record, place = self.game.players[i], self.record, self.place
        assert player.lower is not None
        known = self._known(i, own)
        new = own[known : known + self.most]
        if len(new):
            found = player.lower(self.game.seen(i, self.x, unit), new)
            record.add(i, new, found, 1)
            self.most -= len(new)
            self.widths[i] = found.constraints.shape[1]
        if known + len(new) < len(own):
            raise Paused
        self.place += len(own)
        part = slice(place, self.place)
        width = self.widths.get(i, record.constraints.shape[1]) if player.constrained else 0
        constraints = record.constraints[part, :width]
        return Values(record.objective[part], record.violation[part], constraints, record.spent)

    def answer(self, i: int, unit: FloatArray) -> tuple[FloatArray, float, float]:
        """Return the best response (d,) of player `i` that its own solver gives, f and violation.

        Each call is a new start of the solver, with other random numbers.
        """
        player, record = self.game.players[i], self.record
        size = player.box.size
        if self._known(i, np.full((1, size), np.nan)) == 0:
            if self.most < self.game.solver_cost:
                raise Paused
            own, f, violation, cost = self._solve(player, self.game.seen(i, self.x, unit))
            found = Values(np.array([f]), np.array([violation]), np.empty((1, 0)), 0)
            record.add(i, own[None], found, cost)
            self.most -= cost
        row, self.place = self.place, self.place + 1
        own = record.points[row, :size].copy()
        return own, float(record.objective[row]), float(record.violation[row])

    def _solve(self, player: Player, z: FloatArray) -> tuple[FloatArray, float, float, int]:
        assert player.solver is not None
        rng = np.random.default_rng([self.seed, self.place])
        state: Any = player.solver.start(z, rng)
        cost = 0
        for taken in range(OWN_STEPS):
            state, outcome = player.solver.advance(state, taken == 0)
            cost += outcome.cost
            if outcome.done:
                break
        violation = outcome.violation if outcome.done else math.inf
        return player.box.unit(outcome.y), outcome.f, violation, cost

    def _known(self, i: int, own: FloatArray) -> int:
        """Return how many of the rows are recorded. NaN stands for any coordinates.

        A record from another machine, whose rounding differs, is cut off where it differs.
        """
        record, place = self.record, self.place
        rows = slice(place, place + len(own))
        recorded = record.points[rows, : own.shape[1]]
        wanted = own[: len(recorded)]
        same = ((recorded == wanted) | np.isnan(wanted)).all(axis=1) & (record.who[rows] == i)
        known = int(same.cumprod().sum())
        if known < len(recorded):
            record.keep(place + known)
        return known
