"""The continuous network design problem of a network: the leader's costs, and times of links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray, frozen
from bilevo.core.checks import is_whole, real_number, require, shown
from bilevo.core.problem import Problem
from bilevo.followers.equilibrium import Equilibrium
from bilevo.followers.road_network import LinkTimes, Network

FACTOR, POWER, MOST = 0.001, 2.0, 25.0  # of Sioux Falls, for networks that do not say


@dataclass(frozen=True, slots=True)
class Roads:
    """A network whose leader may add capacity to the links in `candidates` (m,)."""

    name: str
    network: Network
    free: FloatArray  # (links,): time of an empty link
    b: FloatArray
    capacity: FloatArray
    candidates: IntArray
    price: FloatArray  # (m,): capacity x costs price * x**power
    power: float
    most: float

    @classmethod
    def read(cls, content: Any, demand_factor: Any = 1.0) -> Roads:
        """Make a network of a dictionary (see `capacities`); refuse one that has mistakes."""
        require(isinstance(content, Mapping), "network", "a dictionary", content)
        for key in ("links", "demand", "candidates"):
            require(key in content, "network", f"a dictionary with the key {key!r}", [*content])
        factor = _number("demand_factor", demand_factor, above=0)
        name = content.get("name", "roads")
        require(isinstance(name, str) and name != "", "network['name']", "a text", name)
        links = _table("links", content["links"], 5, "(tail, head, T, b, K)")
        demand = _table("demand", content["demand"], 3, "(origin, destination, trips)")
        free, b, capacity = (_column(links, i) for i in (2, 3, 4))
        trips = [(*row[:2], _scaled(row[2], factor)) for row in demand]
        candidates, prices, power, most = _candidates(content["candidates"], len(links))
        return cls(
            name if factor == 1 else f"{name}-{factor:g}",
            Network([tuple(row[:2]) for row in links], trips),
            free,
            b,
            capacity,
            candidates,
            prices,
            power,
            most,
        )

    def times(self, x: FloatArray) -> LinkTimes:
        """Return the times of links at the leader's x (m,)."""
        return LinkTimes(self.free, self.free * self.b / self.with_added(x[None])[0] ** 4)

    def with_added(self, x: FloatArray) -> FloatArray:
        """Return the capacities of all links at rows of x (k, m)."""
        capacity = np.repeat(self.capacity[None], len(x), axis=0)
        capacity[:, self.candidates] += x
        return capacity

    def total(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return F (k,): the time of all drivers, and the cost of capacity."""
        load = y / self.with_added(x)
        time = self.free * (1 + self.b * load**4)
        return np.asarray((y * time).sum(axis=1) + (self.price * x**self.power).sum(axis=1))

    def problem(self, gap: float) -> Problem:
        """Return the bilevel problem."""
        return Problem(
            self.total,
            None,
            [(0.0, self.most)] * len(self.candidates),
            [(0.0, float(self.network.trips.sum()))] * self.network.size,
            vectorized=True,
            name=self.name,
            follower=Equilibrium(self.network, self.times, gap),
        )


def _number(name: str, value: Any, least: float = -np.inf, above: float = -np.inf) -> float:
    """Return a finite number; refuse one below `least`, or not above `above`."""
    number = real_number(value)
    limit = f"above {above:g}" if above > -np.inf else f"of at least {least:g}"
    fine = number is not None and least <= number < np.inf and number > above
    require(fine, name, f"a number {limit}", value)
    assert number is not None
    return number


def _scaled(trips: Any, factor: float) -> Any:
    """Return the trips of a pair times a factor; anything else is left for `Network` to refuse."""
    number = real_number(trips)
    return trips if number is None else number * factor


def _table(name: str, given: Any, width: int, what: str) -> list[Sequence[Any]]:
    where = f"network[{name!r}]"
    fine = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    require(fine, where, f"a list of rows {what}", given)
    rows = list(given)
    require(len(rows) > 0, where, f"a list of rows {what}", given)
    for i, row in enumerate(rows):
        fine = isinstance(row, Sequence | np.ndarray) and not isinstance(row, str | bytes)
        require(fine and len(row) == width, f"{where}[{i}]", f"a row {what}", row)
    return rows


def _column(links: list[Sequence[Any]], place: int) -> FloatArray:
    """Return the numbers T, b or K of all links."""
    what, least, above = {
        2: ("free-flow time", -np.inf, 0.0),
        3: ("b", 0.0, -np.inf),
        4: ("capacity", -np.inf, 0.0),
    }[place]
    names = (f"the {what} of network['links'][{i}]" for i in range(len(links)))
    rows = zip(names, links, strict=True)
    return frozen([_number(name, row[place], least, above) for name, row in rows])


def _candidates(given: Any, links: int) -> tuple[IntArray, FloatArray, float, float]:
    """Return the candidates' links (from 0), their prices, the power of costs, and the bound."""
    where = "network['candidates']"
    fine = isinstance(given, Mapping) and "list" in given
    require(fine, where, "a dictionary with the key 'list'", given)
    rows = _table("candidates", given["list"], 2, "(number of a link, d)")
    factor = _number(f"{where}['factor']", given.get("factor", FACTOR), least=0)
    power = _number(f"{where}['power']", given.get("power", POWER), above=0)
    most = _number(f"{where}['most']", given.get("most", MOST), above=0)
    for i, (number, _) in enumerate(rows):
        if not is_whole(number) or not 1 <= number <= links:
            raise ValueError(
                f"{where}['list'][{i}] must name a link from 1 to {links}, got {shown(number)}"
            )
    numbers = [int(row[0]) for row in rows]
    twice = [number for number in numbers if numbers.count(number) > 1]
    require(not twice, where, "links that differ from each other", twice[:1])
    prices = [_number(f"d of {where}['list'][{i}]", row[1], least=0) for i, row in enumerate(rows)]
    return np.array(numbers) - 1, frozen(np.array(prices) * factor), power, most
