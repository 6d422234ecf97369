"""Find groups of variables that can be optimized apart, by differential grouping.

X. Huang and Y. Wang group the variables of both levels (see go_cma_es). We infer that they use the
usual test: two variables interact if the effect of one depends on the value of the other
(M. N. Omidvar, X. Li, Y. Mei and X. Yao, "Cooperative co-evolution with differential grouping for
large scale optimization", IEEE Transactions on Evolutionary Computation 18(3), 2014).

- At the lower level, pairs (x_i, y_j) and (y_i, y_j) are tested on f. All variables that change the
  same constraint of the follower belong together.
- If no leader's variable has an effect on some y, this y is a constant for the leader. All other
  variables are tested on F in pairs of different groups. Those that change the same constraint of
  the leader belong together.
- Each test is made at two random places. A failed evaluation counts as an interaction, so that
  variables stay together in doubt.
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

PLACES = 2  # At how many random places interaction is tested.
SAME_EFFECT = 1e-6  # Smaller relative differences of effects count as none.
UNCHANGED = 1e-9  # Smaller relative changes of a constraint count as none.

Pairs = list[tuple[int, int]]


@dataclass(slots=True, eq=False)
class Group:
    """Variables to be optimized together, and the constraints that other groups can change."""

    x: IntArray
    y: IntArray
    foreign_G: BoolArray
    foreign_g: BoolArray

    def foreign(self, level: Level) -> BoolArray:
        return self.foreign_G if level is Level.UPPER else self.foreign_g


def find_groups(spec: Spec) -> Procedure[list[Group]]:
    """Return groups: of the follower alone, then of both levels, then of the leader alone."""
    m, size = spec.m, spec.m + spec.n
    rng = stream(spec.seed, "grouping")
    places = [Place.random(size, rng) for _ in range(PLACES)]
    wanted = [(i, j) for i, j in combinations(range(size), 2) if j >= m]
    everyone = list(range(size))
    below, changes_g = yield from find_interactions(spec, Level.LOWER, places, everyone, wanted)
    labels = components(size, below)
    moved = [i for i in range(size) if labels[i] in labels[:m]]
    wanted = [(i, j) for i, j in combinations(moved, 2) if labels[i] != labels[j]]
    above, changes_G = yield from find_interactions(spec, Level.UPPER, places, moved, wanted)
    labels = components(size, below + above)
    groups = [
        Group(
            x=np.flatnonzero(labels[:m] == label),
            y=np.flatnonzero(labels[m:] == label),
            foreign_G=changes_G[labels != label].any(axis=0),
            foreign_g=changes_g[labels != label].any(axis=0),
        )
        for label in dict.fromkeys(labels.tolist())
    ]
    return sorted(groups, key=lambda group: (len(group.x) > 0, len(group.y) == 0))


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A point (x, y), and another value for each of its variables."""

    point: FloatArray
    other: FloatArray

    @classmethod
    def random(cls, size: int, rng: np.random.Generator) -> Place:
        point = 0.5 * rng.random(size)
        return cls(point, point + 0.2 + 0.3 * rng.random(size))

    def changed(self, sets: Iterable[tuple[int, ...]]) -> FloatArray:
        """Return one row per set of variables: the point with these variables changed."""
        rows = [self.point.copy() for _ in sets]
        for row, variables in zip(rows, sets, strict=True):
            row[list(variables)] = self.other[list(variables)]
        return np.array(rows)


def find_interactions(
    spec: Spec, level: Level, places: list[Place], variables: list[int], wanted: Pairs
) -> Procedure[tuple[Pairs, BoolArray]]:
    """Test the wanted pairs on a level's objective, and the variables on its constraints.

    Returns the pairs that belong together, and an array (m + n, c) that tells which variables
    change which constraints. The rows of variables that were not tested are False.
    """
    sets: list[tuple[int, ...]] = [(), *((i,) for i in variables), *wanted]
    z = np.concatenate([place.changed(sets) for place in places])
    values = yield from evaluate(level, z[:, : spec.m], z[:, spec.m :])
    scale = Scale()
    scale.see(values.objective)
    pairs: Pairs = []
    changes = np.zeros((spec.m + spec.n, values.constraints.shape[1]), np.bool_)
    for here in split(values, [len(sets)] * len(places)):
        pairs += interacting(here.objective, variables, wanted, scale.tolerance(SAME_EFFECT))
        changes[variables] |= constraint_changes(here, len(variables))
    for column in changes.T:
        pairs += pairwise(np.flatnonzero(column).tolist())
    return pairs, changes


def interacting(h: FloatArray, variables: list[int], wanted: Pairs, tolerance: float) -> Pairs:
    """Return the wanted pairs of variables whose effects on the objective do not add up.

    `h` holds the objective at a place, then with each variable changed alone, then with both
    variables of each wanted pair changed.
    """
    single = dict(zip(variables, h[1:], strict=False))
    found: Pairs = []
    for (i, j), both in zip(wanted, h[1 + len(variables) :], strict=True):
        four = np.array([h[0], both, single[i], single[j]])
        with np.errstate(invalid="ignore", over="ignore"):
            gap = abs((four[2] - four[0]) - (four[1] - four[3]))
            same = gap <= tolerance + SAME_EFFECT * np.abs(four).sum()
        if not (same and np.isfinite(four).all()):
            found.append((i, j))
    return found


def constraint_changes(values: Values, singles: int) -> BoolArray:
    """Tell which constraints change with each single variable: an array (singles, c)."""
    first, changed = values.constraints[0], values.constraints[1 : 1 + singles]
    with np.errstate(invalid="ignore", over="ignore"):
        same: BoolArray = np.abs(changed - first) <= UNCHANGED * (np.abs(changed) + np.abs(first))
    return ~same


def components(size: int, pairs: Pairs) -> IntArray:
    """Return labels of variables; variables that a chain of pairs connects have the same label."""
    labels = np.arange(size)
    for i, j in pairs:
        labels[labels == labels[j]] = labels[i]
    return labels
