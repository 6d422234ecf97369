"""Sweeps of best responses: the followers answer one after another, until nobody moves.

If the moves do not become shorter, the next point is that of Anderson's acceleration, which takes
the last moves together, or lies half-way. No sweep says that an equilibrium was reached: `look`
searches every follower's box again for a better answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.order import best_index, no_worse
from bilevo.core.request import Values
from bilevo.core.tolerances import NEGLIGIBLE, SAME, rounding
from bilevo.followers.game import Table
from bilevo.followers.joint_newton import own_slopes
from bilevo.optimizers.gradient import Differences, descend, usual_method

STILL = 3e-7  # A shorter move, in the unit box, is none.
CONTRACTING = 0.5  # A sweep whose move is shorter than this part of the last one needs no help.
MEMORY = 5  # Anderson's acceleration uses this many moves.
POLLS = (1e-2, 1e-4, 1e-6)  # Distances at which a follower tries to leave its answer.
MOST_STARTS = 4  # The most local searches from samples in a stage of a look.
SAME_VALLEY = 1e-3  # Ends of local searches that are nearer than this are in one valley.
PROBE_STEPS = 3  # The steps of a short descent.


@dataclass(slots=True, eq=False)
class Reply:
    """An answer (d,) of one player to the others, with its f and its violation."""

    own: FloatArray
    f: float
    violation: float

    def gain_over(self, other: Reply) -> float:
        """Return how much better the player is with this answer than with another; at least 0.

        It is infinite if only this answer is feasible.
        """
        if self.violation < other.violation:
            return np.inf if self.violation == 0 else other.violation - self.violation
        return max(0.0, other.f - self.f) if self.violation == other.violation else 0.0


def _best_of(own: FloatArray, values: Values) -> Reply:
    i = best_index(values.objective, values.violation)
    return Reply(own[i].copy(), float(values.objective[i]), float(values.violation[i]))


def _better(one: Reply, other: Reply) -> Reply:
    return one if no_worse(one.f, one.violation, other.f, other.violation) else other


def value_at(table: Table, i: int, y: FloatArray) -> Reply:
    """Return the answer of player `i` in y, with its values."""
    own = y[table.game.players[i].place]
    return _best_of(own[None], table.values(i, y, own[None]))


def respond(table: Table, i: int, y: FloatArray, start: FloatArray, rough: bool = False) -> Reply:
    """Search the best response of player `i` to y (d,) from a start; `rough` copes with kinks."""
    player = table.game.players[i]
    if player.solver is not None:
        return Reply(*table.answer(i, y))
    best: list[Reply] = []

    def evaluate(rows: FloatArray) -> Values:
        values = table.values(i, y, rows)
        best[:] = [_best_of(rows, values) if not best else _better(best[0], _best_of(rows, values))]
        return values

    method = usual_method(player.constrained)
    if rough:
        method = "COBYLA" if player.constrained else "Nelder-Mead"
    base = float(evaluate(start[None]).objective[0])
    end = descend(Differences(evaluate, base), start, method)
    evaluate(end[None])
    return best[0]


@dataclass(slots=True, eq=False)
class Sweeps:
    """Sweeps of best responses from y (d,)."""

    y: FloatArray
    settled: bool = False

    def run(self, table: Table, count: int) -> None:
        """Make sweeps until the players stay where they are, at most `count` of them."""
        past: list[tuple[FloatArray, FloatArray]] = []
        for _ in range(count):
            target = self.sweep(table)
            move = target - self.y
            if np.abs(move).max() <= STILL:
                self.y, self.settled = target, True
                return
            past = [*past[-MEMORY:], (self.y, move)]
            self.y = _next_point(past)

    def sweep(self, table: Table) -> FloatArray:
        """Return where one sweep leads."""
        y = self.y.copy()
        for i, player in enumerate(table.game.players):
            y[player.place] = respond(table, i, y, y[player.place]).own
        return y


def _next_point(past: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return the point from which the next sweep starts, by the points and moves of the last."""
    y, move = past[-1]
    if len(past) < 2:
        return np.asarray(y + move)
    size, last = np.abs(move).max(), np.abs(past[-2][1]).max()
    if size < CONTRACTING * last:
        return np.asarray(y + move)
    points, moves = (np.diff([pair[k] for pair in past], axis=0).T for k in (0, 1))
    weights = np.linalg.lstsq(moves, move, rcond=1e-8)[0]
    mixed = y + move - (points + moves) @ weights
    if not np.isfinite(mixed).all() or np.abs(mixed - y).max() > 1:
        mixed = y + 0.5 * move
    return np.asarray(np.clip(mixed, 0, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What a look has found: the best replies of all players, and how much they gain by them."""

    replies: list[Reply]
    gains: FloatArray  # (N,): 0 where nothing is gained that counts

    @property
    def residual(self) -> float:
        return float(self.gains.max())


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How thoroughly a look searches.

    A full look samples (k, d) in stages; the next stage, which has more samples, follows if a local
    search shows that f_i has several valleys. Another look evaluates all samples, and lets the
    player `probed` descend from the best of them.
    """

    samples: FloatArray
    stages: tuple[int, ...]
    probed: int = -1


def look(
    table: Table,
    y: FloatArray,
    plan: Plan,
    stationary: tuple[FloatArray, FloatArray] | None = None,
) -> Look:
    """Search every player's box again for a better answer to y (d,).

    `stationary` has f_i (N,) and their scales (N,) where the players' slopes at y are known to be
    zero. Without it, a local search starts at y, too, and polls follow it.
    """
    replies: list[Reply] = []
    gains = np.zeros(len(table.game.players))
    for i, player in enumerate(table.game.players):
        if player.solver is not None:
            reply, gains[i] = _solved_again(table, i, y)
            replies.append(reply)
            continue
        if stationary is None:
            here = value_at(table, i, y)
        else:
            here = Reply(y[player.place], float(stationary[0][i]), 0.0)
        least = 4 * rounding(here.f)  # a smaller gain is none
        if stationary is not None:
            least += NEGLIGIBLE * float(stationary[1][i])
        reply, spread = _search_box(table, i, y, here, plan, least)
        if stationary is None:
            least += NEGLIGIBLE * spread
            reply = _better(reply, _from_here(table, i, y, reply))
        gain = reply.gain_over(here)
        gains[i] = gain if gain > least else 0.0
        replies.append(reply)
    return Look(replies, gains)


def _search_box(
    table: Table, i: int, y: FloatArray, here: Reply, plan: Plan, least: float
) -> tuple[Reply, float]:
    """Return the best answer of player `i` that samples lead to, and the range of f_i in them.

    A gain up to `least` is none.
    """
    player = table.game.players[i]
    best, spread, first = here, 0.0, 0
    for count in plan.stages:
        own = plan.samples[first : first + count, player.place]
        values = table.values(i, y, own)
        finite = values.objective[np.isfinite(values.objective)]
        spread = max(spread, float(np.ptp([*finite, here.f])))
        if len(plan.stages) == 1:
            sampled = _best_of(own, values)
            if i == plan.probed and np.isfinite(sampled.f):
                sampled = _descended(table, i, y, sampled)
            if sampled.gain_over(here) > least:
                best = respond(table, i, y, sampled.own)
            break
        ends = _from_samples(table, i, y, here, own, values)
        best = min([best, *ends], key=lambda end: (end.violation, end.f))
        if all(np.abs(end.own - here.own).max() <= SAME_VALLEY for end in ends):
            break
        first += count
    return best, spread


def _descended(table: Table, i: int, y: FloatArray, start: Reply) -> Reply:
    """Return where a few steps down along the parabolas of f_i lead: near the valley's bottom."""
    player, own, best = table.game.players[i], start.own, start
    if not player.smooth:
        return respond(table, i, y, own)
    for _ in range(PROBE_STEPS):
        slopes = own_slopes(table, i, y, own)
        if slopes is None:
            break
        best = _better(Reply(own, float(slopes.f[0]), 0.0), best)
        stiffness = np.maximum(np.abs(slopes.curvature), 10 * np.abs(slopes.gradient) + 1e-300)
        own = np.clip(own - slopes.gradient / stiffness, 0, 1)
    return best


def _from_samples(
    table: Table, i: int, y: FloatArray, here: Reply, own: FloatArray, values: Values
) -> list[Reply]:
    """Search from samples that no better point is near to; the answer itself is such a point."""
    points = np.concatenate([here.own[None], own])
    f = np.concatenate([[here.f], values.objective])
    violation = np.concatenate([[here.violation], values.violation])
    reach = 0.5 * (4.0 / len(points)) ** (1 / own.shape[1])
    ends: list[Reply] = []
    for k in np.lexsort((f, violation)):
        lower = (violation < violation[k]) | ((violation == violation[k]) & (f < f[k]))
        away = np.abs(points - points[k]).max(axis=1)
        if k == 0 or not np.isfinite(f[k]) or (lower & (away <= reach)).any():
            continue
        ends.append(respond(table, i, y, points[k]))
        if len(ends) == MOST_STARTS:
            break
    return ends


def _from_here(table: Table, i: int, y: FloatArray, here: Reply) -> Reply:
    """Search from an answer; if a poll around the end finds more, search without slopes."""
    best = _better(respond(table, i, y, here.own), here)
    axes = np.eye(len(best.own))
    steps = np.concatenate([np.concatenate([axes, -axes]) * distance for distance in POLLS])
    rows = np.clip(best.own + steps, 0, 1)
    polled = _best_of(rows, table.values(i, y, rows))
    if polled.gain_over(best) > 4 * rounding(best.f):
        return respond(table, i, y, polled.own, rough=True)
    return best


def _solved_again(table: Table, i: int, y: FloatArray) -> tuple[Reply, float]:
    """Start a player's own solver again; return its answer and its gain over the answer in y.

    If only the solver knows f, another answer counts as a gain, however small.
    """
    player = table.game.players[i]
    reply = respond(table, i, y, y[player.place])
    if np.abs(reply.own - y[player.place]).max() <= SAME:
        return reply, 0.0
    if player.lower is None:
        return reply, float(np.abs(reply.own - y[player.place]).max())
    here = value_at(table, i, y)
    gain = reply.gain_over(here)
    return reply, gain if gain > NEGLIGIBLE * abs(here.f) + 4 * rounding(here.f) else 0.0
