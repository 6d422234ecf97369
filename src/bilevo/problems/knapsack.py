"""Knapsack interdiction: the leader forbids items, and the follower packs the best of the others.

The problem is that of A. Caprara, M. Carvalho, A. Lodi and G. Woeginger, "Bilevel knapsack with
interdiction constraints", INFORMS Journal on Computing, 2016. F is the follower's profit, which the
leader minimizes. The follower's answer is exact, by dynamic programming over the capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.checks import require, whole_number
from bilevo.core.problem import Problem

__all__ = ["Packing", "interdiction"]
MOST = 10**6  # The largest capacity and weight; the search needs memory for each unit.


@dataclass(frozen=True, slots=True)
class Packing:
    """A follower that packs the items with the largest profit; x (n,) says which are forbidden.

    It takes one step, and its answer is exact.
    """

    profit: IntArray
    weight: IntArray
    capacity: int

    def start(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Find the best items; this is all of the search."""
        return self.best_items(x)

    def advance(self, state: FloatArray) -> FloatArray:
        return state

    def best(self, state: FloatArray) -> tuple[FloatArray, float, float]:
        return state, -float(self.profit @ state), 0.0

    def done(self, state: FloatArray) -> bool:
        return True

    def best_items(self, x: FloatArray) -> FloatArray:
        """Return y (n,): 1 for each item that is packed."""
        allowed = np.flatnonzero((x < 0.5) & (self.weight <= self.capacity)).tolist()
        value = np.zeros(self.capacity + 1, np.int64)
        taken = np.zeros((len(allowed), self.capacity + 1), np.bool_)
        for row, i in enumerate(allowed):
            heavy = int(self.weight[i])
            with_it = np.full(self.capacity + 1, -1, np.int64)
            with_it[heavy:] = value[: self.capacity + 1 - heavy] + self.profit[i]
            taken[row] = with_it > value
            value = np.where(taken[row], with_it, value)
        y, left = np.zeros(len(self.profit)), self.capacity
        for row in range(len(allowed) - 1, -1, -1):
            if taken[row, left]:
                y[allowed[row]] = 1.0
                left -= int(self.weight[allowed[row]])
        return y


def interdiction(instance: Mapping[str, Any]) -> Problem:
    """Make the interdiction problem of a dictionary.

    It has "profit", "follower_weight" and "leader_weight", a whole number for each item, and
    "follower_capacity" and "leader_capacity". The leader may forbid items x of at most its
    capacity; the follower packs others of at most its own.
    """
    require(isinstance(instance, Mapping), "instance", "a dictionary", instance)
    names = ("profit", "follower_weight", "leader_weight")
    profit, weight, price = (_numbers(instance, name) for name in names)
    n = len(profit)
    for name, values in zip(names, (profit, weight, price), strict=True):
        require(len(values) == n, f"instance[{name!r}]", f"{n} numbers, as profit", len(values))
    capacity, limit = (
        int(_numbers({name: [instance.get(name)]}, name)[0])
        for name in ("follower_capacity", "leader_capacity")
    )

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(y @ profit)

    def G(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray((x @ price - limit)[:, None])

    return Problem(
        F,
        None,
        [(0, 1)] * n,
        [(0, 1)] * n,
        G=G,
        vectorized=True,
        name=f"interdiction-{n}",
        follower=Packing(profit, weight, capacity),
        x_integrality=1,
        y_integrality=1,
    )


def _numbers(instance: Mapping[str, Any], name: str) -> IntArray:
    given, where = instance.get(name), f"instance[{name!r}]"
    fine = isinstance(given, list | tuple | np.ndarray) and len(given) > 0
    require(fine, where, "a list of whole numbers", given)
    numbers = [whole_number(one) for one in given or ()]
    fine = all(one is not None and 0 <= one <= MOST for one in numbers)
    require(fine, where, f"whole numbers from 0 to {MOST}", given)
    return np.array(numbers, np.int64)
