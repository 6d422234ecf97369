"""Leaders with a solved follower, for `moves`: the follower is a function, or a solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bilevo.algorithms.drc_race.certify import check_elite
from bilevo.algorithms.shared.cells import Cells, thorough_search
from bilevo.algorithms.shared.follower_search import FollowerCheck, Pair, evaluate_answers
from bilevo.algorithms.shared.leader import (
    LeaderState,
    best_pair,
    evaluate_leaders,
    grids,
    solver_searches,
)
from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Grid
from bilevo.core.problem import Spec
from bilevo.core.request import ALONE, Procedure, Values
from bilevo.core.streams import stream

SEARCHES = 3  # Independent searches in a check of the follower.
LATEST = 400  # The nearest leader is looked for among this number of the latest ones.
SMALL = 24  # If the follower has at most this many cells, and all are whole, all are compared.
DOUBT = (
    "only {agreeing} of {of} independent searches agree, and its answers are too many to compare"
)


@dataclass(slots=True, eq=False)
class Leader:
    """A leader's best pair in a cell of x, and the leader's constraints there."""

    pair: Pair
    G: FloatArray = field(default_factory=lambda: np.empty(0))
    thorough: bool = False  # whether all of the follower's cells were compared, or many searched


@dataclass(slots=True, eq=False)
class MovesState(LeaderState):
    """The state of a run between two generations."""

    known: dict[str, Leader] = field(default_factory=dict)  # the best leader of each cell of x
    optima: list[str] = field(default_factory=list)  # cells where descents have ended
    fruitless: int = 0  # descents in a row without a better elite
    known_before: int = 0  # how many leaders were known when the elite was found
    lower: int = 0  # the follower's evaluations so far, repeats included
    doubts: bool = False  # whether a first search of a follower has missed a better answer
    audited: int = 0  # leaders whose followers were searched again, to test first searches


def key_of(grid: Grid, x: FloatArray) -> str:
    """Return the name of the cell of a leader."""
    return grid.cell(x).tobytes().hex()


def nearest(grid: Grid, state: MovesState, x: FloatArray) -> Leader | None:
    """Return the solved leader that is nearest to x; choices differ or do not."""
    if not state.known:
        return None
    known = list(state.known.values())[-LATEST:]
    places = np.array([leader.pair.x for leader in known])
    apart = np.abs(places - x)
    apart[:, grid.unordered] = apart[:, grid.unordered] > 0
    return known[int((apart**2).sum(axis=1).argmin())]


def solve_leader(spec: Spec, state: MovesState, x: FloatArray, fine: bool) -> Procedure[Leader]:
    """Solve the follower of a leader x (m,), and evaluate F; `fine` finds its last digits."""
    if spec.step_cost is not None:
        return (yield from _solve_by_solver(spec, state, x))
    x_grid, y_grid = grids(spec)
    cells, near = cells_of(state, x, y_grid), nearest(x_grid, state, x)
    rng = stream(spec.seed, "cold", len(state.known), state.generation)
    if near is not None:
        start = near.pair.y
    elif spec.y0 is not None:
        start = spec.y0
    else:
        start = yield from cells.start_cold(rng)
    thorough = False
    if state.doubts:
        yield from thorough_search(cells, [start], rng, SEARCHES, quick=True)
        thorough = True
    elif y_grid.all_whole and y_grid.cells <= SMALL:
        yield from cells.compare_all(start)
        thorough = True
    else:
        yield from cells.descend(start)
    if fine:
        yield from cells.refine(1)
    return (yield from best_of_ties(state, x, cells, thorough))


def cells_of(state: MovesState, x: FloatArray, grid: Grid) -> Cells:
    """Return the follower's cells at x; its evaluations are counted in the state."""

    def at(rows: FloatArray) -> Procedure[Values]:
        values = yield from partial(evaluate_answers, x)(rows)
        state.lower = values.spent
        return values

    return Cells(at, grid)


def best_of_ties(
    state: MovesState, x: FloatArray, cells: Cells, thorough: bool
) -> Procedure[Leader]:
    """Evaluate F at all answers that are equally good for the follower; return the best pair."""
    pairs = [Pair(x, end.y, end.f, end.violation, converged=True) for end in cells.ties()]
    values = yield from evaluate_leaders(state, pairs)
    best = best_pair(pairs)
    row = next(i for i, pair in enumerate(pairs) if pair is best)
    return Leader(best, values.constraints[row].copy(), thorough)


def _solve_by_solver(spec: Spec, state: MovesState, x: FloatArray) -> Procedure[Leader]:
    near = nearest(grids(spec)[0], state, x)
    (search,) = solver_searches(spec, state, x[None])
    if near is not None and near.pair.converged:
        search.near = near.pair.task if near.pair.task >= 0 else ALONE
    pair = yield from search.solve()
    state.lower = search.spent
    if pair.lower_violation == math.inf:
        return Leader(pair)
    values = yield from evaluate_leaders(state, [pair])
    return Leader(pair, values.constraints[0].copy(), thorough=True)


def audit_leader(spec: Spec, state: MovesState, leader: Leader) -> Procedure[Leader]:
    """Search the follower of a leader again; if a first search missed a better answer, note it."""
    pair = leader.pair
    cells = cells_of(state, pair.x, grids(spec)[1])
    rng = stream(spec.seed, "audit", state.generation, state.audited)
    state.audited += 1
    yield from thorough_search(cells, [pair.y], rng, SEARCHES, quick=True)
    missed = not cells.agrees(pair.f, pair.lower_violation)
    state.doubts = state.doubts or missed
    return (yield from best_of_ties(state, pair.x, cells, thorough=True))


def check_leader(spec: Spec, state: MovesState, leader: Leader) -> Procedure[Leader]:
    """Search the follower of a leader thoroughly; return the leader with the better answer.

    The pair of what is returned has the check's verdict.
    """
    if spec.step_cost is not None:
        return (yield from _check_by_solver(spec, state, leader))
    _, y_grid = grids(spec)
    pair, before = leader.pair, state.lower
    cells = cells_of(state, pair.x, y_grid)
    rng = stream(spec.seed, "check", state.generation, len(state.known))
    found = yield from thorough_search(cells, [pair.y], rng, SEARCHES)
    best = yield from best_of_ties(state, pair.x, cells, thorough=True)
    agree = found.agreeing >= 2 or not found.searches
    certified = best.pair.lower_violation == 0 and agree
    doubt = "" if certified else DOUBT.format(agreeing=found.agreeing, of=found.searches)
    best.pair.check = FollowerCheck(
        gap=max(0.0, best.pair.f - cells.best.f),
        certified=certified,
        searches=found.searches,
        agreeing=found.agreeing,
        check_evals=state.lower - before,
        doubt=doubt,
        compared=found.compared,
    )
    if not cells.agrees(pair.f, pair.lower_violation):
        state.doubts = True
    return best


def _check_by_solver(spec: Spec, state: MovesState, leader: Leader) -> Procedure[Leader]:
    pair = leader.pair
    if not pair.converged or pair.lower_violation > 0:
        return leader
    size = np.abs(np.array([one.pair.y for one in state.known.values()])).max(axis=0)
    check = yield from check_elite(spec, state, pair, size, state.lower)
    if check.best is pair:
        return leader
    values = yield from evaluate_leaders(state, [check.best])
    return Leader(check.best, values.constraints[0].copy(), thorough=True)
