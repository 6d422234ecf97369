"""Which variables of a bilevel problem can be optimized apart: differential grouping at two levels.

The idea is that of X. Huang and Y. Wang (see go_cma_es); the test is the usual differential
grouping (M. N. Omidvar, X. Li, Y. Mei and X. Yao, "Cooperative co-evolution with differential
grouping for large scale optimization", IEEE Transactions on Evolutionary Computation 18(3), 2014),
which is inferred: two variables interact if the effect of one depends on the value of the other.

- Below, pairs (x_i, y_j) and (y_i, y_j) are tested on f, and all variables that change a constraint
  of the follower belong together.
- A y that no leader's variable moves is a constant for the leader. The other variables are tested
  on F in pairs of different groups, and those that change a constraint of the leader belong
  together.
- Each test is made at two random places. A place where an evaluation failed counts as interaction:
  in doubt, variables stay together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.budget import Scale
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure, Values, evaluate, split
from bilevo.core.streams import stream

PLACES = 2  # where interaction is looked for
SAME = 1e-6  # relative difference of effects that counts as none
UNCHANGED = 1e-9  # relative change of a constraint that counts as none

Pairs = list[tuple[int, int]]


@dataclass(slots=True, eq=False)
class Group:
    """Variables to be optimized together, and the constraints that other groups answer for."""

    x: IntArray
    y: IntArray
    foreign_G: BoolArray
    foreign_g: BoolArray

    def foreign(self, level: Level) -> BoolArray:
        return self.foreign_G if level is Level.UPPER else self.foreign_g


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What one level shows: pairs that belong together, and who changes which constraint."""

    pairs: Pairs
    changes: BoolArray  # (variables, constraints); False for variables that were not looked at


def find_groups(spec: Spec) -> Procedure[list[Group]]:
    """Groups of the follower's variables only, then of both levels', then of the leader's only."""
    m, size = spec.m, spec.m + spec.n
    rng = stream(spec.seed, "grouping")
    places = [Place.random(size, rng) for _ in range(PLACES)]
    wanted = [(i, j) for i, j in combinations(range(size), 2) if j >= m]
    below = yield from look(spec, Level.LOWER, places, list(range(size)), wanted)
    labels = components(size, below.pairs)
    moved = [i for i in range(size) if labels[i] in labels[:m]]
    wanted = [(i, j) for i, j in combinations(moved, 2) if labels[i] != labels[j]]
    above = yield from look(spec, Level.UPPER, places, moved, wanted)
    labels = components(size, below.pairs + above.pairs)
    foreign_G = foreign_constraints(labels, above.changes)
    foreign_g = foreign_constraints(labels, below.changes)
    groups = [
        Group(
            x=np.flatnonzero(labels[:m] == label),
            y=np.flatnonzero(labels[m:] == label),
            foreign_G=foreign_G[label],
            foreign_g=foreign_g[label],
        )
        for label in dict.fromkeys(labels.tolist())
    ]
    return sorted(groups, key=lambda group: (len(group.x) > 0, len(group.y) == 0))


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A point of the joint box and another value for each of its variables."""

    point: FloatArray
    other: FloatArray

    @classmethod
    def random(cls, size: int, rng: np.random.Generator) -> Place:
        point = 0.5 * rng.random(size)
        return cls(point, point + 0.2 + 0.3 * rng.random(size))

    def changed(self, sets: Iterable[tuple[int, ...]]) -> FloatArray:
        """The point with each set of variables changed, one row each."""
        rows = [self.point.copy() for _ in sets]
        for row, variables in zip(rows, sets, strict=True):
            row[list(variables)] = self.other[list(variables)]
        return np.array(rows)


def look(
    spec: Spec, level: Level, places: list[Place], variables: list[int], wanted: Pairs
) -> Procedure[Found]:
    """Test the wanted pairs of variables on a level's objective, and its constraints: one batch."""
    sets: list[tuple[int, ...]] = [(), *((i,) for i in variables), *wanted]
    z = np.concatenate([place.changed(sets) for place in places])
    values = yield from evaluate(level, z[:, : spec.m], z[:, spec.m :])
    scale = Scale()
    scale.see(values.objective)
    pairs: Pairs = []
    changes = np.zeros((spec.m + spec.n, values.constraints.shape[1]), np.bool_)
    for here in split(values, [len(sets)] * len(places)):
        pairs += interactions(here.objective, variables, wanted, scale.tolerance(SAME))
        changes[variables] |= constraint_changes(here, len(variables))
    for column in changes.T:
        pairs += pairwise(np.flatnonzero(column).tolist())
    return Found(pairs, changes)


def interactions(h: FloatArray, variables: list[int], wanted: Pairs, tolerance: float) -> Pairs:
    """The wanted pairs whose effects on h do not add up."""
    single = dict(zip(variables, h[1:], strict=False))
    found: Pairs = []
    for (i, j), both in zip(wanted, h[1 + len(variables) :], strict=True):
        four = np.array([h[0], both, single[i], single[j]])
        with np.errstate(invalid="ignore", over="ignore"):
            gap = abs((four[2] - four[0]) - (four[1] - four[3]))
            same = gap <= tolerance + SAME * np.abs(four).sum()
        if not (same and np.isfinite(four).all()):
            found.append((i, j))
    return found


def constraint_changes(values: Values, singles: int) -> BoolArray:
    """Which constraints each single change of a variable changes: (singles, constraints)."""
    first, changed = values.constraints[0], values.constraints[1 : 1 + singles]
    with np.errstate(invalid="ignore", over="ignore"):
        same: BoolArray = np.abs(changed - first) <= UNCHANGED * (np.abs(changed) + np.abs(first))
    return ~same


def components(size: int, pairs: Pairs) -> IntArray:
    """Labels of variables: equal for those that a chain of pairs connects."""
    labels = np.arange(size)
    for i, j in pairs:
        labels[labels == labels[j]] = labels[i]
    return labels


def foreign_constraints(labels: IntArray, changes: BoolArray) -> dict[int, BoolArray]:
    """For each group, the constraints that another group's variables change."""
    return {label: changes[labels != label].any(axis=0) for label in dict.fromkeys(labels.tolist())}
