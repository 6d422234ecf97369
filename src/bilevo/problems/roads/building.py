"""The discrete network design problem: which new roads to build, if drivers choose their routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.checks import require
from bilevo.core.problem import Problem
from bilevo.followers.equilibrium import Equilibrium
from bilevo.followers.road_network import LinkTimes, Network
from bilevo.problems.roads.capacity import _column, _number, _table

CLOSED = 1e6  # A road that is not built takes this many times the longest empty road.
UNIT = 1000.0  # F is in thousands.
LINK = "(tail, head, T, b, K)"


@dataclass(frozen=True, slots=True)
class Building:
    """A network with `m` roads that the leader may build; they are the last ones of all."""

    name: str
    network: Network
    free: FloatArray  # (links,): time of an empty link
    b: FloatArray
    capacity: FloatArray
    cost: FloatArray  # (m,)
    budget: float

    @classmethod
    def read(cls, content: Any, instance: Any, budget: Any) -> Building:
        """Make a network of a dictionary (see `design`); refuse one that has mistakes."""
        require(isinstance(content, Mapping), "network", "a dictionary", content)
        for key in ("links", "demand", "instances"):
            require(key in content, "network", f"a dictionary with the key {key!r}", [*content])
        known = content["instances"]
        fine = isinstance(known, Mapping) and instance in known and "candidates" in known[instance]
        require(fine, "instance", f"one of {', '.join(map(str, known))}", instance)
        share = _number("budget", budget, least=0)
        require(share <= 1, "budget", "a part of the cost of all roads, from 0 to 1", budget)
        links = _table("links", content["links"], 5, LINK)
        demand = _table("demand", content["demand"], 3, "(origin, destination, trips)")
        new = _table("candidates", known[instance]["candidates"], 6, f"{LINK[:-1]}, cost)")
        rows = [*links, *(row[:5] for row in new)]
        free, b, capacity = (_column(rows, i) for i in (2, 3, 4))
        cost = [_number(f"the cost of candidate {i}", row[5], least=0) for i, row in enumerate(new)]
        ends = [tuple(row[:2]) for row in rows]
        return cls(
            f"roads-{instance}-{share:g}",
            Network(ends, [tuple(row) for row in demand]),
            free,
            b,
            capacity,
            frozen(cost),
            share * sum(cost),
        )

    def times(self, x: FloatArray) -> LinkTimes:
        """Return the times of links at the leader's x (m,): 1 for each road that is built."""
        fixed, rise = self.free.copy(), self.free * self.b / self.capacity**4
        closed = len(fixed) - len(x) + np.flatnonzero(x < 0.5)
        fixed[closed], rise[closed] = CLOSED * self.free.max(), 0.0
        return LinkTimes(fixed, rise)

    def total(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return F (k,): the time of all drivers."""
        time = self.free * (1 + self.b * (y / self.capacity) ** 4)
        return np.asarray((y * time).sum(axis=1) / UNIT)

    def overspent(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return G (k, 1): how far the cost is above the budget."""
        return np.asarray((x @ self.cost - self.budget)[:, None])

    def problem(self, gap: float) -> Problem:
        """Return the bilevel problem."""
        return Problem(
            self.total,
            None,
            [(0, 1)] * len(self.cost),
            [(0.0, float(self.network.trips.sum()))] * self.network.size,
            G=self.overspent,
            vectorized=True,
            name=self.name,
            follower=Equilibrium(self.network, self.times, gap),
            x_integrality=1,
        )
