"""The problem of one of several followers, with the answers of the others fixed.

It is a bilevel problem of its own. Its leader variables are z = (x, answers of the others), and its
follower variables are those of the one follower. So whatever searches, solves or verifies a
follower does the same for one of several.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.several import Several, part_of, side_by_side


class Beside:
    """A function of (x, y) as a function of z and the answer of follower `i`.

    If z has no answers of others, as for independent followers, `middle` (n,) stands for them.
    """

    __slots__ = ("block", "function", "m", "middle", "others")

    def __init__(self, function: Any, m: int, block: slice, middle: FloatArray) -> None:
        self.function, self.m, self.block, self.middle = function, m, block, middle
        self.others = np.setdiff1d(np.arange(len(middle)), np.arange(len(middle))[block])

    def __call__(self, z: FloatArray, own: FloatArray) -> Any:
        y = np.empty((*own.shape[:-1], len(self.middle)))
        y[...] = self.middle
        if z.shape[-1] > self.m:
            y[..., self.others] = z[..., self.m :]
        y[..., self.block] = own
        x = np.ascontiguousarray(z[..., : self.m])
        x.flags.writeable = y.flags.writeable = False
        return self.function(x, y)


class OwnObjective:
    """f_i of one follower, as a function of (x, y) with one number for each pair."""

    __slots__ = ("i", "several")

    def __init__(self, several: Several, i: int) -> None:
        self.several, self.i = several, i

    def __call__(self, x: FloatArray, y: FloatArray) -> Any:
        return self.several.objective(self.i, x, y)


class OwnConstraints:
    """g_i of one follower, as a function of (x, y)."""

    __slots__ = ("i", "several")

    def __init__(self, several: Several, i: int) -> None:
        self.several, self.i = several, i

    def __call__(self, x: FloatArray, y: FloatArray) -> Any:
        found = self.several.constraints(self.i, x, y)
        return found if self.several.vectorized else found[0]


def problem_of_one(problem: Problem, i: int, beside: bool = True) -> Problem:
    """Return the problem of follower `i`; `beside` says that z has the answers of the others."""
    several = problem.several
    assert several is not None
    block, one, bounds = several.blocks[i], several.followers[i], problem.y_bounds
    middle = bounds.lower + 0.5 * bounds.width
    others = Beside(None, problem.m, block, middle).others
    leader = problem.x_bounds
    if beside:
        m, rest = leader.size, part_of(bounds, others)
        leader = side_by_side((slice(0, m), slice(m, m + rest.size)), [leader, rest])

    def placed(function: Any) -> Any:
        return None if function is None else Beside(function, problem.m, block, middle)

    known = several.shared is not None or one.f is not None
    return Problem(
        placed(problem.F),
        placed(OwnObjective(several, i)) if known else None,
        leader,
        part_of(bounds, np.arange(problem.n)[block]),
        placed(problem.G),
        placed(OwnConstraints(several, i)) if one.g is not None else None,
        vectorized=problem.vectorized,
        name=f"{problem.name}, follower {i + 1}",
        follower=one.solver,
    )


def seen_by_one(problem: Problem, i: int, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return z of follower `i`: x (m,), and the answers of the others in y (n,)."""
    others = np.setdiff1d(np.arange(problem.n), np.arange(problem.n)[problem.blocks[i]])
    return np.concatenate([x, y[others]])


def values_of_each(problem: Problem, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return f_i (N,) of all followers at one pair, in the user's units; nothing is counted.

    It is NaN for a follower that only a solver knows.
    """
    found = []
    for i in range(len(problem.blocks)):
        one = problem_of_one(problem, i)
        z, own = seen_by_one(problem, i, x, y), y[problem.blocks[i]]
        found.append(one.values(Level.LOWER, z[None], own[None])[0][0])
    return np.array(found)
