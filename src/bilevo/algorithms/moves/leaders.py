"""Leaders with a solved follower, for `moves`: the follower is a function, or a solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

import numpy as np

from bilevo.algorithms.drc_race.certify import check_elite
from bilevo.algorithms.moves.likely import (
    MOST_RECORDED,
    Records,
    compare_likely,
    guess_at,
    guessed_reals,
    place_of,
    record_of,
)
from bilevo.algorithms.shared.basin_moves import APART
from bilevo.algorithms.shared.cells import (
    Cells,
    Compared,
    Depth,
    search_spread,
    thorough_search,
)
from bilevo.algorithms.shared.follower_search import FollowerCheck, Pair, evaluate_answers
from bilevo.algorithms.shared.leader import (
    LeaderState,
    best_pair,
    evaluate_leaders,
    grids,
    solver_searches,
)
from bilevo.algorithms.shared.polish import End
from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Grid
from bilevo.core.problem import Spec
from bilevo.core.request import ALONE, Procedure, Values
from bilevo.core.streams import stream

SEARCHES = 3  # Independent searches in a check of the follower.
LATEST = 400  # The nearest leader is looked for among this number of the latest ones.
SPREAD = 1  # First searches start from so many other real numbers if one was led astray.
MOST_KEPT = 64  # What was found in at most this many cells is kept for another search.
SMALL = 24  # If the follower has at most this many cells, and all are whole, all are compared.
SMALL_COLD = 64  # All cells of the first follower are compared if they are at most so many.
CLOSE = 1e-3  # Leaders that are closer than this have answers in the same cell,
CLEAR = 1e-2  # if f in all other cells is larger by this fraction of the spread of f.
PRECISE = 1e-14  # What searches of real numbers ignore if F is then searched for real numbers of x.
DOUBT = (
    "only {agreeing} of {of} independent searches agree, and its answers are too many to compare"
)


class Trust(IntEnum):
    """How the cells of a follower were searched."""

    FIRST = 0  # from the answer of the nearest leader
    LIKELY = 1  # those that were expected to be the best were compared
    COMPARED = 2  # all were compared, or many were searched


@dataclass(slots=True, eq=False)
class Leader:
    """A leader's best pair in a cell of x, and the leader's constraints there."""

    pair: Pair
    G: FloatArray = field(default_factory=lambda: np.empty(0))
    trust: Trust = Trust.FIRST
    found: list[End] = field(default_factory=list)  # those of `Cells.found`, if these are few
    seen: list[End] = field(default_factory=list)
    hessian: FloatArray | None = None  # of f in the real numbers of y, as far as learnt
    spread: float = 0.0  # by how much f differed between cells
    rough: bool = False  # whether a constraint has stopped the follower's search of real numbers
    clear: bool = False  # whether f was clearly larger in all other cells
    searched: bool = True  # whether the real numbers of x were searched
    bend: FloatArray | None = None  # Hessian of F in the real numbers of x, as far as learnt


@dataclass(slots=True, eq=False)
class MovesState(LeaderState):
    """The state of a run between two generations."""

    known: dict[str, Leader] = field(default_factory=dict)  # the best leader of each cell of x
    top: Leader | None = None  # the leader that is the elite
    recent: list[Leader] = field(default_factory=list)  # the latest leaders that were solved
    records: Records = field(default_factory=Records)  # what followers with compared cells tell
    gains: list[float] = field(default_factory=list)  # of searches of real numbers after moves
    optima: list[str] = field(default_factory=list)  # cells where descents have ended
    fruitless: int = 0  # descents in a row without a better elite
    known_before: int = 0  # how many leaders were known when the elite was found
    lower: int = 0  # the follower's evaluations so far, repeats included
    doubts: Trust = Trust.FIRST  # searches of followers that are trusted less have missed an answer
    missed: int = 0  # how often a search has missed a better answer
    width: int = 1  # see `compare_likely`
    astray: bool = False  # whether a search of real numbers of y has ended at a wrong optimum
    audited: int = 0  # leaders whose followers were searched again
    tested: int = 0  # those of them that were searched again at the end of a run

    def doubt(self, trust: Trust) -> None:
        """Note that a search of a follower has missed a better answer.

        If that was a search of likely cells, more cells are compared from now on. Otherwise other
        followers are searched again.
        """
        self.missed += 1
        if trust == Trust.LIKELY:
            self.width *= 2
            return
        self.doubts = max(self.doubts, Trust(min(trust + 1, Trust.COMPARED)))
        self.known = {key: one for key, one in self.known.items() if one.trust >= self.doubts}
        self.recent = [one for one in self.recent if one.trust >= self.doubts]

    def doubt_reals(self) -> None:
        """Note that a search of real numbers of y has ended at a wrong optimum."""
        if not self.astray:
            self.astray, self.records = True, Records()
            self.known = {key: one for key, one in self.known.items() if one.pair.check}
            self.recent = list(self.known.values())


def key_of(grid: Grid, x: FloatArray) -> str:
    """Return the name of the cell of a leader."""
    return grid.cell(x).tobytes().hex()


def nearest(grid: Grid, state: MovesState, x: FloatArray, most: int = 1) -> list[Leader]:
    """Return the solved leaders that are nearest to x; choices differ or do not."""
    if not state.recent:
        return []
    places = np.array([leader.pair.x for leader in state.recent])
    apart = np.abs(places - x)
    apart[:, grid.unordered] = apart[:, grid.unordered] > 0
    order = np.argsort((apart**2).sum(axis=1), kind="stable")
    return [state.recent[i] for i in order[:most]]


def solve_leader(spec: Spec, state: MovesState, x: FloatArray) -> Procedure[Leader]:
    """Solve the follower of a leader x (m,), and evaluate F."""
    if spec.step_cost is not None:
        found = yield from _solve_by_solver(spec, state, x)
    else:
        found = yield from _solve_by_cells(spec, state, x)
    state.recent = [*state.recent[1 - LATEST :], found]
    return found


def _solve_by_cells(spec: Spec, state: MovesState, x: FloatArray) -> Procedure[Leader]:
    x_grid, y_grid = grids(spec)
    near = nearest(x_grid, state, x, 2 * spec.m + 2)
    rng = stream(spec.seed, "cold", len(state.known), state.generation)
    cells = cells_of(spec, state, x, near[0] if near else None)
    recorded, trust = y_grid.cells <= MOST_RECORDED, state.doubts
    if not near:
        start = spec.y0 if spec.y0 is not None else (yield from cells.start_cold(rng))
        if y_grid.cells <= SMALL_COLD:
            yield from thorough_search(cells, [start], rng, SEARCHES, Depth.QUICK)
            trust = Trust.COMPARED
        else:
            yield from cells.descend(start)
    else:
        start = likely_start(spec, near, x)
        if close_to(x_grid, near[0], x):
            yield from cells.search([cells.cell(start)], start)
            return (yield from best_of_ties(spec, state, x, cells, near[0].trust, near[0]))
        if y_grid.all_whole and y_grid.cells <= SMALL:
            yield from cells.compare_all(start)
            trust = Trust.COMPARED
        elif state.doubts == Trust.LIKELY and recorded and state.records.latest:
            place = place_of(x_grid, x)
            guess = guess_at(state.records.near(place), place)
            yield from compare_likely(cells, guess, state.width)
            state.records.add(record_of(cells, place, guess))
        elif state.doubts:
            yield from thorough_search(cells, [start], rng, SEARCHES, Depth.QUICK)
            trust = Trust.COMPARED
        else:
            yield from cells.descend(start)
    if state.astray:
        yield from search_spread(cells, rng, SPREAD, [])
    if trust == Trust.COMPARED:
        note_record(spec, state, x, cells)
    return (yield from best_of_ties(spec, state, x, cells, trust))


def note_record(spec: Spec, state: MovesState, x: FloatArray, cells: Cells) -> None:
    """Keep what was found in all cells, if they are few."""
    if cells.few and cells.grid.cells <= MOST_RECORDED:
        state.records.add(record_of(cells, place_of(grids(spec)[0], x)))


def close_to(grid: Grid, near: Leader, x: FloatArray) -> bool:
    """Tell whether a leader is so close to another one that its answer is in the same cell."""
    same = (grid.cell(x) == grid.cell(near.pair.x)).all()
    return bool(near.clear and same and np.abs(x - near.pair.x).max() <= CLOSE)


def likely_start(spec: Spec, near: list[Leader], x: FloatArray) -> FloatArray:
    """Return the answer of the nearest leader, with real numbers that others suggest."""
    x_grid, y_grid = grids(spec)
    y, real = near[0].pair.y.copy(), np.flatnonzero(y_grid.values == 0)
    cell = y_grid.cell(y)
    alike = [one for one in near if (y_grid.cell(one.pair.y) == cell).all()]
    if real.size:
        places = np.array([place_of(x_grid, one.pair.x) for one in alike])
        reals = np.array([one.pair.y[real] for one in alike])
        y[real] = guessed_reals(places, reals, place_of(x_grid, x))
    return y


def cells_of(spec: Spec, state: MovesState, x: FloatArray, near: Leader | None) -> Cells:
    """Return the follower's cells at x; its evaluations are counted in the state."""

    def at(rows: FloatArray) -> Procedure[Values]:
        values = yield from partial(evaluate_answers, x)(rows)
        state.lower = values.spent
        return values

    x_grid, y_grid = grids(spec)
    cells = Cells(at, y_grid)
    if near is not None:
        cells.hessian, cells.unit, cells.rough = near.hessian, near.spread, near.rough
    if not x_grid.all_whole:
        cells.fraction = PRECISE
    return cells


def best_of_ties(
    spec: Spec,
    state: MovesState,
    x: FloatArray,
    cells: Cells,
    trust: Trust,
    like: Leader | None = None,
) -> Procedure[Leader]:
    """Evaluate F at all answers that are equally good for the follower; return the best pair.

    If only one cell was searched, `like` is the leader whose other cells are taken to be alike.
    """
    ends = cells.ties()
    pairs = [Pair(x, end.y, end.f, end.violation, converged=True) for end in ends]
    values = yield from evaluate_leaders(state, pairs)
    best = best_pair(pairs)
    row = next(i for i, pair in enumerate(pairs) if pair is best)
    found = Leader(best, values.constraints[row].copy(), trust, hessian=cells.hessian)
    if like is None and len(cells.found) + len(cells.seen) <= MOST_KEPT:
        found.found, found.seen = list(cells.found.values()), list(cells.seen.values())
    found.rough = cells.rough
    found.spread = cells.spread if like is None else like.spread
    found.clear = like is not None or is_clear(cells, ends)
    return found


def is_clear(cells: Cells, ends: list[End]) -> bool:
    """Tell whether f is clearly larger, or infeasible, in all other cells that were looked at."""
    best, every = ends[0], {**cells.seen, **cells.found}
    own = cells.cell(best.y).tobytes()
    others = [end for key, end in every.items() if key != own and end.violation == 0]
    least = min((end.f for end in others), default=math.inf)
    return best.violation == 0 and least > best.f + CLEAR * cells.spread


def _solve_by_solver(spec: Spec, state: MovesState, x: FloatArray) -> Procedure[Leader]:
    near = nearest(grids(spec)[0], state, x)
    (search,) = solver_searches(spec, state, x[None])
    if near and near[0].pair.converged:
        search.near = near[0].pair.task if near[0].pair.task >= 0 else ALONE
    pair = yield from search.solve()
    state.lower = search.spent
    if pair.lower_violation == math.inf:
        return Leader(pair)
    values = yield from evaluate_leaders(state, [pair])
    return Leader(pair, values.constraints[0].copy(), Trust.COMPARED)


def search_again(
    spec: Spec, state: MovesState, leader: Leader, depth: Depth
) -> Procedure[tuple[Leader, Compared, Cells]]:
    """Search the follower of a leader again; note a better answer than the one before."""
    pair = leader.pair
    cells = cells_of(spec, state, pair.x, leader)
    cells.found = {cells.cell(end.y).tobytes(): end for end in leader.found}
    cells.seen = {cells.cell(end.y).tobytes(): end for end in leader.seen}
    rng = stream(spec.seed, "again", state.generation, state.audited)
    state.audited += 1
    found = yield from thorough_search(cells, [pair.y], rng, SEARCHES, depth)
    note_record(spec, state, pair.x, cells)
    if not cells.agrees(pair.f, pair.lower_violation):
        if (cells.cell(cells.best.y) != cells.cell(pair.y)).any():
            state.doubt(leader.trust)
        elif np.abs(cells.best.y - pair.y).max() > APART:
            state.doubt_reals()
    best = yield from best_of_ties(spec, state, pair.x, cells, Trust.COMPARED)
    best.searched, best.bend = leader.searched, leader.bend
    return best, found, cells


def audit_leader(spec: Spec, state: MovesState, leader: Leader) -> Procedure[Leader]:
    """Compare the cells of a leader's follower; return the leader with the better answer."""
    return (yield from search_again(spec, state, leader, Depth.QUICK))[0]


def check_leader(spec: Spec, state: MovesState, leader: Leader) -> Procedure[Leader]:
    """Search the follower of a leader thoroughly; return the leader with the better answer.

    The pair of what is returned has the check's verdict.
    """
    if spec.step_cost is not None:
        return (yield from _check_by_solver(spec, state, leader))
    before = state.lower
    best, found, cells = yield from search_again(spec, state, leader, Depth.CAREFUL)
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
    return Leader(check.best, values.constraints[0].copy(), Trust.COMPARED)
