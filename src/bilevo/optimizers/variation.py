"""Genetic operators in the unit box: selection, crossover, mutation.

K. Deb, A. Anand and D. Joshi, "A computationally efficient evolutionary algorithm for
real-parameter optimization", Evolutionary Computation 10(4), 2002 (parent-centric crossover);
K. Deb and R. B. Agrawal, "Simulated binary crossover for continuous search space", Complex
Systems 9, 1995 (polynomial mutation).

The crossover is the planar variant of the public BLEAQ-II program (Sinha, Lu, Deb and Malo, 2020).
The mutation of that program does not scale its changes by the width of the box. The boxes of the
program's test problems are mostly `WIDTH` wide. Here lengths are divided by that width, so that the
operators do not depend on the user's units. The code is plain Python, which for small
populations is several times faster than numpy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.order import Key

Row = list[float]

WIDTH = 15.0  # width of the boxes for which the published lengths are meant
XI = 0.1  # size of a crossover's step along the way to the first parent
CROSSED = 0.9  # probability of a crossover
COINCIDENT = 1e-10 / WIDTH  # a smaller mean distance from parent to centre counts as 0


def distinct(uniforms: Sequence[float], size: int) -> list[int]:
    """Return distinct indices below `size`, one for each uniform number."""
    chosen: list[int] = []
    ascending: list[int] = []
    for uniform in uniforms:
        index = int(uniform * (size - len(chosen)))
        place = 0
        for taken in ascending:
            if index < taken:
                break
            index += 1
            place += 1
        chosen.append(index)
        ascending.insert(place, index)
    return chosen


def entrants(keys: Sequence[Key], infeasible: int, uniforms: Sequence[float]) -> list[int]:
    """Choose the members that enter the tournaments, one for each uniform number.

    If all members are feasible, members are drawn at random. Otherwise feasible members are drawn
    at random if there are more of them than needed. If there are not, the best members enter.
    `infeasible` is the number of infeasible members.
    """
    wanted, size = len(uniforms), len(keys)
    if infeasible == 0 and size >= wanted:
        return distinct(uniforms, size)
    if size - infeasible > wanted:
        feasible = [i for i, key in enumerate(keys) if key[0] == 0]
        return [feasible[i] for i in distinct(uniforms, len(feasible))]
    best = sorted(range(size), key=keys.__getitem__)[:wanted]
    return (best * wanted)[:wanted]


def tournaments(among: Sequence[int], keys: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the winners of tournaments between successive pairs of `among`; lower keys win."""
    pairs = zip(among[::2], among[1::2], strict=True)
    return [one if keys[one] <= keys[two] else two for one, two in pairs]


def adaptive_eta(parents: FloatArray) -> float:
    """Return `eta` for a crossover: the inverse of the first parent's distance to the centre."""
    distance = float(np.abs(parents[0] - parents.mean(axis=0)).mean())
    return 1 / (WIDTH * distance) if distance > COINCIDENT else 0.0


def parent_centric_crossover(
    parents: FloatArray, rng: np.random.Generator, eta: float, children: int
) -> FloatArray:
    """Return children (k, d) around the first of three parents (3, d), or copies of this parent.

    A child is the first parent moved by two normally distributed steps. `XI` scales the step along
    the way from the parents' centre to the first parent. `eta` scales the step along half the
    difference of the other two parents, whose order does not matter, because the normal
    distribution is symmetric.
    """
    crossed, normals = rng.random(children).tolist(), rng.standard_normal(2 * children).tolist()
    return np.array(crossed_rows(parents.tolist(), crossed, normals, eta))


def crossed_rows(
    parents: Sequence[Row], crossed: Sequence[float], normals: Sequence[float], eta: float
) -> list[Row]:
    """Return children as lists, one for each uniform number in `crossed`; each needs two normals.

    See `parent_centric_crossover`.
    """
    first, second, third = parents
    rows = []
    for k, uniform in enumerate(crossed):
        if uniform < CROSSED:
            along, across = XI / 3 * normals[2 * k], eta / 2 * normals[2 * k + 1]
            u, v, w = 1 + 2 * along, -along - across, across - along
            row = [u * a + v * b + w * c for a, b, c in zip(first, second, third, strict=True)]
            if min(row) < 0 or max(row) > 1:
                row = [0.0 if a < 0 else min(a, 1.0) for a in row]
            rows.append(row)
        else:
            rows.append(first.copy())
    return rows


def polynomial_mutation(
    points: FloatArray,
    rng: np.random.Generator,
    probability: float,
    index: float = 20.0,
    scale: float = 1.0,
) -> FloatArray:
    """Return points (k, d) in which each coordinate is changed with the given probability.

    A change is at most `scale`; with a larger `index` small changes are more likely.
    """
    rows = points.tolist()
    mutate_rows(rows, rng, probability, index, scale)
    return np.array(rows)


def mutate_rows(
    rows: Sequence[Row],
    rng: np.random.Generator,
    probability: float,
    index: float = 20.0,
    scale: float = 1.0,
) -> None:
    """Change rows of coordinates in place, as `polynomial_mutation` changes points."""
    d = len(rows[0])
    changed = rng.random(len(rows) * d).tolist()
    chosen = [i for i, uniform in enumerate(changed) if uniform < probability]
    if not chosen:
        return
    power = 1 / (index + 1)
    for i, uniform in zip(chosen, rng.random(len(chosen)).tolist(), strict=True):
        change = (2 * uniform) ** power - 1 if uniform < 0.5 else 1 - (2 - 2 * uniform) ** power
        row, j = rows[i // d], i % d
        row[j] = min(max(row[j] + scale * change, 0.0), 1.0)


def simulated_binary_crossover(
    mothers: FloatArray, fathers: FloatArray, rng: np.random.Generator, index: float
) -> FloatArray:
    """Return one child (k, d) of each mother and father.

    Each variable of a child is near that of one parent, and nearer with a larger `index`.
    """
    uniform, side = rng.random((2, *mothers.shape))
    spread = np.where(uniform <= 0.5, 2 * uniform, 1 / (2 - 2 * uniform)) ** (1 / (index + 1))
    spread = np.where(side < 0.5, spread, -spread)
    return np.asarray(np.clip(((1 + spread) * mothers + (1 - spread) * fathers) / 2, 0.0, 1.0))
