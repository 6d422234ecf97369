"""Searches of independent followers side by side: each point has an answer of every follower.

Where one function returns f_i of all followers (see `Spec.blocks`), each of them is searched on its
own, and their points are put together. So searches cost what the longest of them costs. Answers are
put together, too: the best answer of each follower may come from another point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bilevo.algorithms.shared.independent_search import basin_points
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd, sqp
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Evaluate, Level, Procedure, T, Values
from bilevo.optimizers.sampling import lattice

NEAR = 0.01  # A search has come near an answer if it is within this fraction of the box.
Blocks = tuple[slice, ...]


def side_by_side(
    x: FloatArray, y: FloatArray, blocks: Blocks, searches: Sequence[Procedure[T]]
) -> Procedure[list[T]]:
    """Run one search for each follower, from the answer y (n,) to x (m,); return their results.

    A search asks for values at answers (k, d) of its own follower, by `ask_own`. If others ask for
    fewer points, their last point is repeated. Single points, which line searches ask for, are
    evaluated first, so that neighbours for slopes gather in one batch.
    """
    last = y.copy()
    results: dict[int, T] = {}
    waiting: dict[int, FloatArray] = {}
    sent: dict[int, Values | None] = dict.fromkeys(range(len(searches)))
    while sent:
        for i, values in sent.items():
            try:
                request = searches[i].send(values)
                assert isinstance(request, Evaluate)
                waiting[i] = request.y
            except StopIteration as end:
                results[i] = end.value
        single = {i: own for i, own in waiting.items() if len(own) == 1}
        asked = single or waiting.copy()
        sent = {}
        if asked:
            rows = np.repeat(last[None], max(map(len, asked.values())), axis=0)
            for i, own in asked.items():
                rows[: len(own), blocks[i]] = own
                rows[len(own) :, blocks[i]] = last[blocks[i]] = own[-1]
            whole = yield Evaluate(Level.LOWER, np.repeat(x[None], len(rows), axis=0), rows)
            sent = {i: values_of_one(whole.part(0, len(waiting.pop(i))), i) for i in asked}
    return [results[i] for i in range(len(searches))]


def ask_own(x: FloatArray, own: FloatArray) -> Procedure[Values]:
    """Request the values of one follower at its own answers (k, d); see `side_by_side`."""
    values: Values = yield Evaluate(Level.LOWER, np.repeat(x[None], len(own), axis=0), own)
    return values


def values_of_one(values: Values, i: int) -> Values:
    """Return the values of one follower; those that are not finite are inf."""
    assert values.parts is not None
    own = values.parts[:, i]
    fine = np.isfinite(own)
    violation = np.where(fine, 0.0, np.inf)
    return Values(np.where(fine, own, np.inf), violation, np.empty((len(own), 0)), values.spent)


def values_together(parts: FloatArray, spent: int) -> Values:
    """Return the values of answers whose f_i are known (k, N)."""
    return Values.of(parts.sum(axis=-1), np.empty((len(parts), 0)), 0, spent)._replace(parts=parts)


def spread_points(
    count: int, n: int, blocks: Blocks | None, rng: np.random.Generator
) -> FloatArray:
    """Return points (count, n) that fill the follower's box evenly.

    With independent followers, they fill the box of each of these evenly, in orders that have
    nothing to do with each other.
    """
    if blocks is None:
        return lattice(count, n, rng)
    points = np.empty((count, n))
    for block in blocks:
        points[:, block] = rng.permutation(lattice(count, block.stop - block.start, rng))
    return points


def basin_answers(
    points: FloatArray, values: Values, blocks: Blocks, most: int, fewest: int | None = None
) -> tuple[FloatArray, Values]:
    """Return up to `most` answers (k, n) to search from, and their values, which are known.

    For each follower, the points (k, n) that have no better neighbour are chosen. The first answer
    has the best of them for every follower. For `fewest`, see `basin_points`.
    """
    assert values.parts is not None
    chosen = [
        basin_points(points[:, block], values_of_one(values, i), 0, most, fewest)
        for i, block in enumerate(blocks)
    ]
    count = max(map(len, chosen))
    y, parts = np.empty((count, points.shape[1])), np.empty((count, len(blocks)))
    for i, (block, found) in enumerate(zip(blocks, chosen, strict=True)):
        places = found[np.arange(count) % len(found)]
        y[:, block], parts[:, i] = points[places, block], values.parts[places, i]
    return y, values_together(parts, values.spent)


@dataclass(slots=True, eq=False)
class OwnSearch:
    """A local search of one of several followers, the one at `block` of y.

    It also ends when it comes near its part of the answer `towards` (n,). `end` is how it ended.
    """

    rule: LocalRule
    x: FloatArray
    block: slice
    hessian: FloatArray | None = None
    towards: FloatArray | None = None
    tolerance: float = 0.0
    end: SearchEnd | None = None

    def run(self, start: FloatArray, values: Values) -> Procedure[None]:
        """Search from an own answer (d,), whose values are known."""
        d = len(start)
        self.tolerance = at_least_rounding(self.rule.tolerance, d, float(values.objective[0]))
        rule = replace(
            self.rule, tolerance=self.tolerance, done=lambda point, f: self.is_near(point)
        )
        box = np.zeros(d), np.ones(d)
        self.end = yield from sqp(partial(ask_own, self.x), start, *box, rule, self.hessian, values)

    def go_on(self) -> Procedure[None]:
        """Search to the end, if the search has stopped before that because it came near."""
        if not self.stopped:
            return
        end = self.ended
        self.towards, self.hessian = None, end.hessian
        here = np.array([end.objective]), np.array([end.violation]), np.empty((1, 0))
        yield from self.run(end.point, Values(*here, 0))

    @property
    def ended(self) -> SearchEnd:
        assert self.end is not None
        return self.end

    @property
    def settled(self) -> bool:
        return self.ended.left <= 10 * self.tolerance and self.ended.violation == 0

    @property
    def near(self) -> bool:
        return self.is_near(self.ended.point)

    @property
    def stopped(self) -> bool:
        """Tell whether the search came near `towards` and has not reached a minimum."""
        return self.near and not self.settled

    def is_near(self, point: FloatArray) -> bool:
        if self.towards is None:
            return False
        return bool(np.abs(point - self.towards[self.block]).max() <= NEAR)


def at_least_rounding(tolerance: float, d: int, f: float) -> float:
    """Return a tolerance that a search can meet.

    Finite differences leave rounding errors of f in each of d coordinates of a step.
    """
    return max(tolerance, 4 * d * np.finfo(float).eps * abs(f))


def joined_end(searches: Sequence[OwnSearch], n: int) -> tuple[SearchEnd, FloatArray]:
    """Return the end of searches of all followers as one, and f_i (N,) there."""
    point, gradient, hessian = np.empty(n), np.empty(n), np.zeros((n, n))
    known = True
    for search in searches:
        end, block = search.ended, search.block
        point[block] = end.point
        if end.hessian is None or end.gradient is None:
            known = False
        else:
            gradient[block], hessian[block, block] = end.gradient, end.hessian
    ends = [search.ended for search in searches]
    parts = np.array([end.objective for end in ends])
    whole = SearchEnd(
        point,
        float(parts[None].sum(axis=-1)[0]),
        max(end.violation for end in ends),
        max(end.points for end in ends),
        all(end.converged for end in ends),
        hessian if known else None,
        sum(end.left for end in ends),
        gradient if known else None,
    )
    return whole, parts
