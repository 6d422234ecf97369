"""Searches over whole numbers and choices: cells, the moves between them, and answers in them.

A cell is one combination of whole numbers and choices. In a cell only real numbers are left, and a
local search finds the best ones. The follower's answer is searched cell by cell. If there are few
cells, all of them are compared (`Cells.compare_all`). If there are many, `Cells.descend` moves from
cell to cell as long as f falls. A move changes one whole number by 1, or one choice, or exchanges
two numbers of which one goes up by 1 and the other down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np

from bilevo.algorithms.shared.differences import At
from bilevo.algorithms.shared.independent_search import search_locally
from bilevo.algorithms.shared.polish import End
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
BATCH = 256  # How many cells are searched side by side.
MAX_TIES = 64  # How many cells with the same f are followed, and offered to the leader.
SAMPLE = 8  # A search without a start looks at this number of points, and at more if n is larger.
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

    `found` has the best answer of each cell that was searched. `hessian` is what the last search of
    the real numbers has learnt; the next one starts with it.
    """

    at: At
    grid: Grid
    found: dict[bytes, End] = field(default_factory=dict)
    hessian: FloatArray | None = None

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
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            rows = np.array([self.grid.centre(cell, near) for cell in part])
            if not self.real.size:
                values = yield from self.at(rows)
                ends = [End(*one) for one in zip(rows, split(values, [1] * len(rows)), strict=True)]
            else:
                ends = yield from together([self.in_cell(row, fine) for row in rows])
            for cell, end in zip(part, ends, strict=True):
                self.keep(cell, end)

    def keep(self, cell: IntArray, end: End) -> None:
        """Keep the answer of a cell, unless a better one is known there."""
        earlier = self.found.get(cell.tobytes())
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
        start = End(row[real], values)
        if fine or not self.found:
            end = yield from search_locally(at, start, self.spread)
            return End(full(end.y[None])[0], end.values, end.settled)
        if not np.isfinite(start.f):
            return End(row, values, settled=False)
        d = real.size
        tolerance = max(COARSE * self.spread, d * rounding(start.f))
        rule = LocalRule(20 * (d + 2), tolerance, unit=abs(start.f), trusting=True)
        best = _Best(start)
        box = np.zeros(d), np.ones(d)
        found = yield from sqp(best.watching(at), start.y, *box, rule, self.hessian, values)
        self.hessian = found.hessian
        return End(full(best.end.y[None])[0], best.end.values, found.converged)

    def descend(self, start: FloatArray, wide: bool = False) -> Procedure[None]:
        """Move from cell to cell as long as f falls; follow ties.

        `wide` tries moves of two numbers, too.
        """
        here = self.cell(start)
        yield from self.search([here], start)
        waiting, seen, last = [here], {here.tobytes()}, None
        while waiting:
            here = waiting.pop(0)
            before = self.best
            new = [*steps(self.grid, here), *self._further(here, last)]
            if wide:
                new += [*exchanges(self.grid, here), *diagonals(self.grid, here)]
            yield from self.search(new, self.found[here.tobytes()].y)
            best = self.best
            if best is not before and not self.tied(before, best):
                last = self.cell(best.y) - here
                waiting, seen = [self.cell(best.y)], {self.cell(best.y).tobytes()}
                continue
            level = [one for one in new if self.tied(self.found[one.tobytes()], best)]
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

    def compare_quickly(self, near: FloatArray) -> Procedure[None]:
        """Compare all cells, but search real numbers only where f may become the best.

        The cells are searched from the best f on, until f is further above the best one than the
        searches have gained so far.
        """
        cells = [cell for cell in all_cells(self.grid) if cell.tobytes() not in self.found]
        if not self.real.size or len(cells) <= LEAST_SEARCHED:
            yield from self.search(cells, near)
            return
        rows = np.array([self.grid.centre(cell, near) for cell in cells])
        values = yield from self.at(rows)
        parts, gain = list(split(values, [1] * len(rows))), 0.0
        for place, i in enumerate(ranking(values.objective, values.violation).tolist()):
            before, best = End(rows[i], parts[i]), self.best
            safe = before.violation == best.violation == 0
            if place >= LEAST_SEARCHED and safe and before.f - 4 * gain > best.f:
                return
            yield from self.search([cells[i]], near)
            gain = max(gain, before.f - self.found[cells[i].tobytes()].f)

    def refine(self, count: int) -> Procedure[None]:
        """Find the last digits of the best `count` answers."""
        if not self.real.size:
            return
        ends = list(self.found.values())
        f, violation = (np.array([getattr(end, name) for end in ends]) for name in _VALUES)
        for i in ranking(f, violation)[:count]:
            yield from self.search([self.cell(ends[i].y)], ends[i].y, fine=True)


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


def thorough_search(
    cells: Cells,
    starts: list[FloatArray],
    rng: np.random.Generator,
    searches: int,
    quick: bool = False,
) -> Procedure[Compared]:
    """Search for the follower's best answer as well as the number of cells allows.

    `starts` are answers (n,) under test. All cells are compared if they are few. Otherwise the
    neighbours of the best answer are compared, and `searches` searches start elsewhere. The real
    numbers of the best cell are searched from several starts, too. A `quick` search spends less on
    real numbers.
    """
    found = Compared()
    for start in starts:
        if quick and cells.few:  # the comparison moves on to better cells
            yield from cells.search([cells.cell(start)], start)
        else:
            yield from cells.descend(start)
    if cells.few:
        found.compared = int(cells.grid.cells)
        compare = cells.compare_quickly if quick else cells.compare_all
        yield from compare(cells.best.y)
    else:
        yield from cells.descend(cells.best.y, wide=True)
        for _ in range(searches):
            alone = Cells(cells.at, cells.grid, hessian=cells.hessian)
            yield from alone.descend((yield from alone.start_cold(rng)), wide=True)
            found.ends.append(alone.best)
            cells.keep(cells.cell(alone.best.y), alone.best)
        yield from cells.descend(cells.best.y, wide=True)
    if not quick:
        yield from cells.refine(2)
    if cells.real.size and not (quick and cells.grid.whole.any()):
        yield from _search_real(cells, rng, searches, found.ends)
        yield from cells.refine(1)
    found.searches = len(found.ends)
    found.agreeing = sum(cells.agrees(end.f, end.violation) for end in found.ends)
    return found


def _search_real(
    cells: Cells, rng: np.random.Generator, searches: int, ends: list[End]
) -> Procedure[None]:
    """Search the real numbers of the best cell from other starts."""
    best, d = cells.best, cells.real.size
    points = np.repeat(best.y[None], 4 * searches, axis=0)
    points[:, cells.real] = latin_hypercube(4 * searches, d, rng)
    values = yield from cells.at(points)
    for i in ranking(values.objective, values.violation)[:searches]:
        end = yield from cells.in_cell(points[i])
        ends.append(end)
        cells.keep(cells.cell(end.y), end)
