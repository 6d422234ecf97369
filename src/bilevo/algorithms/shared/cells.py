"""Searches over whole numbers and choices: cells, the moves between them, and answers in them.

A cell is one combination of whole numbers and choices. In a cell only real numbers are left, and a
local search finds the best ones. The follower's answer is searched cell by cell. If there are few
cells, all of them are compared (`Cells.compare_all`). If there are many, `Cells.descend` moves from
cell to cell as long as f falls. A move changes one whole number by 1, or one choice, or exchanges
two numbers of which one goes up by 1 and the other down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations, product

import numpy as np

from bilevo.algorithms.shared.compass import compass_search
from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.independent_search import search_locally
from bilevo.algorithms.shared.polish import End, is_active
from bilevo.algorithms.shared.sqp import LocalRule, sqp
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.bounds import Grid
from bilevo.core.order import best_index, ranking
from bilevo.core.request import Procedure, Values, split, together
from bilevo.core.tolerances import AGREEMENT, NEGLIGIBLE, rounding
from bilevo.optimizers.sampling import latin_hypercube

MOST_CELLS = 4096  # Up to this number of cells, all are compared if all variables are whole.
MOST_MIXED_CELLS = 512  # The same if there are real variables, too.
LEAST_SEARCHED = 3  # A quick comparison searches the real numbers of at least this many cells.
LEAST_CAREFUL = 8  # A careful comparison does so for this many, and for as many at random.
GAINS = 4  # A cell is not searched if f there is above the best by this many times the usual gain.
BATCH = 256  # How many cells are searched side by side.
MAX_TIES = 64  # How many cells with the same f are followed, and offered to the leader.
SAMPLE = 8  # A search without a start looks at this number of points, and at more if n is larger.
MOST_BY_COMPASS = 2  # With more real numbers, a compass search costs too much.
MOST_POINTS = 10  # A first search with d real numbers looks at (d + 2) times as many points.
COARSE = 1e-11  # The gain that a first search in a cell ignores, in units of the spread of f.


def steps(grid: Grid, cell: IntArray) -> Iterator[IntArray]:
    """Yield the cells in which one number differs by 1, or one choice is another."""
    for i in np.flatnonzero(grid.values > 0).tolist():
        count, now = int(grid.values[i]), int(cell[i])
        others = range(count) if grid.unordered[i] else (now - 1, now + 1)
        for value in others:
            if 0 <= value < count and value != now:
                moved = cell.copy()
                moved[i] = value
                yield moved


def exchanges(grid: Grid, cell: IntArray) -> Iterator[IntArray]:
    """Yield the cells in which one number is larger by 1, and another one smaller by 1."""
    ordered = np.flatnonzero((grid.values > 0) & ~grid.unordered).tolist()
    for i, j in combinations(ordered, 2):
        for up, down in ((i, j), (j, i)):
            if cell[up] + 1 < grid.values[up] and cell[down] > 0:
                moved = cell.copy()
                moved[up] += 1
                moved[down] -= 1
                yield moved


def diagonals(grid: Grid, cell: IntArray) -> Iterator[IntArray]:
    """Yield the cells in which two numbers are both larger by 1, or both smaller by 1."""
    ordered = np.flatnonzero((grid.values > 0) & ~grid.unordered).tolist()
    for i, j in combinations(ordered, 2):
        for change in (1, -1):
            moved = cell.copy()
            moved[[i, j]] += change
            if ((moved >= 0) & (moved < np.maximum(grid.values, 1))).all():
                yield moved


def all_cells(grid: Grid) -> Iterator[IntArray]:
    """Yield all cells of a grid."""
    for values in product(*(range(max(1, count)) for count in grid.values.tolist())):
        yield np.array(values, np.int64)


@dataclass(slots=True, eq=False)
class Cells:
    """The answers that were found in cells of the follower's box; `at` gives values of f.

    `found` has the best answer of each cell that was searched. `seen` has a point of each other
    cell that was looked at. `hessian` is what the last search of the real numbers has learnt; the
    next one starts with it. `gain` is the most that a search of the real numbers of a further cell
    has gained. `unit` is how much f differed between cells of a leader near by; 0 if not known.
    """

    at: At
    grid: Grid
    found: dict[bytes, End] = field(default_factory=dict)
    seen: dict[bytes, End] = field(default_factory=dict)
    hessian: FloatArray | None = None
    gain: float = 0.0
    unit: float = 0.0
    fraction: float = COARSE  # the gain that a search ignores, in units of the spread of f
    rough: bool = False  # whether a constraint has stopped the last search of real numbers

    @property
    def real(self) -> IntArray:
        """Return the coordinates of real numbers."""
        return np.flatnonzero(self.grid.values == 0)

    @property
    def few(self) -> bool:
        """Tell whether all cells can be compared."""
        return self.grid.cells <= (MOST_CELLS if self.grid.all_whole else MOST_MIXED_CELLS)

    @property
    def best(self) -> End:
        """Return the best answer so far; at least one cell must have been searched."""
        ends = list(self.found.values())
        f, violation = (np.array([getattr(end, name) for end in ends]) for name in _VALUES)
        return ends[best_index(f, violation)]

    @property
    def spread(self) -> float:
        """Return by how much f differs between the answers of cells."""
        f = [end.f for end in self.found.values() if np.isfinite(end.f)]
        return max(f) - min(f) if f else 0.0

    def ties(self) -> list[End]:
        """Return the answers that are as good as the best one, which comes first."""
        best = self.best
        level = [end for end in self.found.values() if end is not best and self.tied(end, best)]
        return [best, *level[: MAX_TIES - 1]]

    def tied(self, end: End, best: End) -> bool:
        """Tell whether an answer is as good as the best one, within rounding."""
        error = 4 * rounding(best.f)
        if self.real.size:
            error = max(error, NEGLIGIBLE * min(self.spread, 1.0 + abs(best.f)))
        return end.violation == best.violation and end.f <= best.f + error

    def agrees(self, f: float, violation: float) -> bool:
        """Tell whether values are those of the best answer, up to what a first search leaves."""
        best = self.best
        error = 4 * rounding(best.f)
        if self.real.size:
            error = max(error, AGREEMENT * min(self.spread, 1.0 + abs(best.f)))
        return violation == best.violation and f <= best.f + error

    def cell(self, y: FloatArray) -> IntArray:
        return self.grid.cell(y)

    def search(
        self, cells: list[IntArray], near: FloatArray, fine: bool = False
    ) -> Procedure[None]:
        """Search cells; in those that were searched before, only if `fine`.

        Real numbers start at those of `near` (n,). `fine` searches find their last digits.
        """
        wanted = {one.tobytes(): one for one in cells}
        new = [one for key, one in wanted.items() if fine or key not in self.found]
        rows = [self.grid.centre(cell, near) for cell in new]
        if not self.real.size:
            yield from self.look(new, rows)
            return
        for start in range(0, len(new), BATCH):
            part = rows[start : start + BATCH]
            for end in (yield from together([self.in_cell(row, fine) for row in part])):
                self.keep(self.cell(end.y), end)

    def look(self, cells: list[IntArray], rows: Sequence[FloatArray]) -> Procedure[None]:
        """Evaluate f at one point (n,) of each cell; without real numbers, this is a search."""
        known = self.found.keys() | self.seen.keys()
        new = [i for i, cell in enumerate(cells) if cell.tobytes() not in known]
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            points = np.array([rows[i] for i in part])
            values = yield from self.at(points)
            for i, point, one in zip(part, points, split(values, [1] * len(part)), strict=True):
                if self.real.size:
                    self.seen[cells[i].tobytes()] = End(point, one)
                else:
                    self.keep(cells[i], End(point, one))

    def search_likely(self, cells: list[IntArray], least: int) -> Procedure[None]:
        """Search the real numbers of those cells seen before which may have the best answer.

        The cells are searched from the best f on, until at least `least` of all `cells` have been
        searched, and f is further above the best one than the searches have gained so far.
        """
        keys = {one.tobytes() for one in cells}
        ends = [end for key, end in self.seen.items() if key in keys]
        least -= len(keys & self.found.keys())
        for place, end in enumerate(ordered(ends)):
            best = self.best
            safe = end.violation == best.violation == 0 or not np.isfinite(end.f)
            if place >= least and safe and end.f - GAINS * self.gain > best.f:
                return
            yield from self.search_seen(end)

    def search_seen(self, start: End) -> Procedure[None]:
        """Search the real numbers of a cell from the point at which it was seen."""
        end = yield from self.in_cell(start.y)
        if self.found and end.violation == start.violation and np.isfinite(start.f):
            self.gain = max(self.gain, start.f - end.f)
        self.keep(self.cell(end.y), end)

    def keep(self, cell: IntArray, end: End) -> None:
        """Keep the answer of a cell, unless a better one is known there."""
        earlier = self.found.get(cell.tobytes())
        self.seen.pop(cell.tobytes(), None)
        if earlier is None or not earlier.no_worse(end):
            self.found[cell.tobytes()] = end

    def in_cell(self, row: FloatArray, fine: bool = False) -> Procedure[End]:
        """Search the real numbers locally, from those of a point (n,), in its cell."""
        real = self.real

        def full(points: FloatArray) -> FloatArray:
            rows = np.repeat(row[None], len(points), axis=0)
            rows[:, real] = points
            return rows

        def at(points: FloatArray) -> Procedure[Values]:
            return (yield from self.at(full(points)))

        values = yield from at(row[real][None])
        end, rough = End(row[real], values), self.rough
        if np.isfinite(end.f):
            if not rough or fine:
                end = yield from self.smoothly(at, end, fine)
            doubtful = rough or not end.settled or is_active(end.values)
            if doubtful and len(end.y) <= MOST_BY_COMPASS:
                end, self.rough = yield from compass_search(at, end)
            if rough and not self.rough:  # the neighbour's constraint is not met here
                end = yield from self.smoothly(at, end, fine)
        return End(full(end.y[None])[0], end.values, end.settled and np.isfinite(end.f))

    def smoothly(self, at: At, start: End, fine: bool) -> Procedure[End]:
        """Search real numbers (d,) by slopes of f."""
        unit, d = max(self.spread, self.unit), len(start.y)
        if fine or not (unit or self.hessian is not None):
            return (yield from search_locally(at, start, unit))
        tolerance = max(self.fraction * unit, d * rounding(start.f))
        rule = LocalRule(MOST_POINTS * (d + 2), tolerance, unit=abs(start.f), trusting=True)
        best = _Best(start)
        box = np.zeros(d), np.ones(d)
        found = yield from sqp(best.watching(at), start.y, *box, rule, self.hessian, start.values)
        self.hessian = found.hessian
        return End(best.end.y, best.end.values, found.converged)

    def descend(self, start: FloatArray, wide: bool = False) -> Procedure[None]:
        """Move from cell to cell as long as f falls; follow ties.

        `wide` tries moves of two numbers, too, and searches the real numbers of all neighbours.
        """
        here = self.cell(start)
        yield from self.search([here], start)
        waiting, seen, last = [here], {here.tobytes()}, None
        while waiting:
            here = waiting.pop(0)
            before, y = self.best, self.found[here.tobytes()].y
            new = [*steps(self.grid, here), *self._further(here, last)]
            if wide:
                new += [*exchanges(self.grid, here), *diagonals(self.grid, here)]
                yield from self.search(new, y)
            else:
                yield from self.look(new, [self.grid.centre(cell, y) for cell in new])
                yield from self.search_likely(new, 1)
            best = self.best
            if best is not before and not self.tied(before, best):
                last = self.cell(best.y) - here
                waiting, seen = [self.cell(best.y)], {self.cell(best.y).tobytes()}
                continue
            searched = [one for one in new if one.tobytes() in self.found]
            level = [one for one in searched if self.tied(self.found[one.tobytes()], best)]
            fresh = {one.tobytes(): one for one in level if one.tobytes() not in seen}
            seen |= set(fresh)
            waiting += list(fresh.values()) if len(seen) <= MAX_TIES else []

    def _further(self, here: IntArray, last: IntArray | None) -> list[IntArray]:
        """Return a cell twice as far in the direction of the last move of an ordered number."""
        if last is None or self.grid.unordered[last != 0].any():
            return []
        moved = np.clip(here + 2 * last, 0, np.maximum(self.grid.values - 1, 0))
        return [moved] if (moved != here).any() else []

    def start_cold(self, rng: np.random.Generator) -> Procedure[FloatArray]:
        """Return the best of some points spread over the box."""
        n = len(self.grid.values)
        points = latin_hypercube(SAMPLE + 2 * n, n, rng)
        points = self.grid.centre(self.cell(points), points)
        values = yield from self.at(points)
        return np.asarray(points[ranking(values.objective, values.violation)[0]])

    def compare_all(self, near: FloatArray) -> Procedure[None]:
        """Search all cells, with real numbers that start at those of `near` (n,)."""
        yield from self.search(list(all_cells(self.grid)), near)

    def compare(self, near: FloatArray, least: int) -> Procedure[None]:
        """Look at all cells, and search the real numbers of those that may have the best answer.

        These are at least `least` cells, and as many that violate constraints where f is smaller.
        """
        cells = list(all_cells(self.grid))
        yield from self.look(cells, [self.grid.centre(cell, near) for cell in cells])
        yield from self.search_likely(cells, least)
        best = self.best
        barred = [end for end in self.seen.values() if end.violation > best.violation]
        for end in sorted(barred, key=lambda end: end.f)[:least]:
            if end.f < best.f:
                yield from self.search_seen(end)

    def refine(self, count: int) -> Procedure[None]:
        """Find the last digits of the best `count` answers."""
        if not self.real.size:
            return
        for end in ordered(self.found.values())[:count]:
            yield from self.search([self.cell(end.y)], end.y, fine=True)


def ordered(ends: Iterable[End]) -> list[End]:
    """Return answers from the follower's best to its worst."""
    kept = list(ends)
    f, violation = (np.array([getattr(end, name) for end in kept]) for name in _VALUES)
    return [kept[i] for i in ranking(f, violation)]


_VALUES = ("f", "violation")


class _Best:
    """Keeps the best point that a local search sees."""

    def __init__(self, start: End) -> None:
        self.end = start

    def watching(self, at: At) -> Callable[[FloatArray], Procedure[Values]]:
        def watched(points: FloatArray) -> Procedure[Values]:
            values = yield from at(points)
            i = ranking(values.objective, values.violation)[0]
            new = End(points[i].copy(), values.part(i, i + 1))
            if not self.end.no_worse(new):
                self.end = new
            return values

        return watched


@dataclass(slots=True, eq=False)
class Compared:
    """What a thorough search of the follower's cells has found."""

    compared: int = 0  # how many cells there are, if all were compared; else 0
    searches: int = 0  # how many independent searches were made
    agreeing: int = 0  # how many of them ended at the best f
    ends: list[End] = field(default_factory=list)  # ends of the independent searches


class Depth(Enum):
    """How thorough a search of the follower's cells is; the values are explained at `Cells`."""

    QUICK = LEAST_SEARCHED  # the real numbers of at least this many cells are searched
    CAREFUL = LEAST_CAREFUL  # the same, and as many cells at random; then last digits
    FULL = None  # the real numbers of all cells are searched; then last digits


def thorough_search(
    cells: Cells,
    starts: list[FloatArray],
    rng: np.random.Generator,
    searches: int,
    depth: Depth = Depth.FULL,
) -> Procedure[Compared]:
    """Search for the follower's best answer as well as the number of cells allows.

    `starts` are answers (n,) under test. All cells are compared if they are few. Otherwise the
    neighbours of the best answer are compared, and `searches` searches start elsewhere. Unless the
    search is quick, the real numbers of the best cell are searched from several starts, too.
    """
    found = Compared()
    for start in starts:
        if cells.few:  # the comparison moves on to better cells
            yield from cells.search([cells.cell(start)], start)
        else:
            yield from cells.descend(start)
    if cells.few:
        found.compared = int(cells.grid.cells)
        yield from _compare(cells, rng, depth)
    else:
        yield from cells.descend(cells.best.y, wide=True)
        for _ in range(searches):
            alone = Cells(cells.at, cells.grid, hessian=cells.hessian)
            yield from alone.descend((yield from alone.start_cold(rng)), wide=True)
            found.ends.append(alone.best)
            cells.keep(cells.cell(alone.best.y), alone.best)
        yield from cells.descend(cells.best.y, wide=True)
    if depth is not Depth.QUICK:
        yield from cells.refine(2)
    if cells.real.size and not (depth is Depth.QUICK and cells.grid.whole.any()):
        yield from search_spread(cells, rng, searches, found.ends)
        yield from cells.refine(1)
    found.searches = len(found.ends)
    found.agreeing = sum(cells.agrees(end.f, end.violation) for end in found.ends)
    return found


def _compare(cells: Cells, rng: np.random.Generator, depth: Depth) -> Procedure[None]:
    """Compare all cells; a careful search also tests some cells that look bad."""
    if depth is Depth.FULL:
        yield from cells.compare_all(cells.best.y)
        return
    yield from cells.compare(cells.best.y, depth.value)
    if depth is Depth.CAREFUL and cells.seen:
        left = list(cells.seen.values())
        for i in rng.permutation(len(left))[: depth.value]:
            yield from cells.search_seen(left[i])
        yield from cells.search_likely(list(all_cells(cells.grid)), 0)


def search_spread(
    cells: Cells, rng: np.random.Generator, searches: int, ends: list[End]
) -> Procedure[None]:
    """Search the real numbers of the best cell from other starts."""
    best, d = cells.best, cells.real.size
    count = max(4 * searches, SAMPLE)
    points = np.repeat(best.y[None], count, axis=0)
    points[:, cells.real] = latin_hypercube(count, d, rng)
    values = yield from cells.at(points)
    for i in ranking(values.objective, values.violation)[:searches]:
        end = yield from cells.in_cell(points[i])
        ends.append(end)
        cells.keep(cells.cell(end.y), end)
