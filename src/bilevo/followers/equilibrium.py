"""Drivers as a follower: the user equilibrium of a road network.

In a user equilibrium (Wardrop, 1952) all routes that are used between two places take the same
time, and no other route is quicker. It minimizes Beckmann's function, the sum over links of the
integral of time over flow. `Equilibrium` finds it by gradient projection on the flows of routes
(Jayakrishnan et al., 1994): drivers of slower routes move to the quickest route of their pair, by a
Newton step on the difference of the two times. New routes come from trees of quickest routes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.checks import real_array, real_number, require, shown
from bilevo.core.solver import Neighbour
from bilevo.followers.equilibrium_kernels import run, shift
from bilevo.followers.road_network import LinkTimes, Network, Routes

PASSES = 20  # the most passes over all pairs in a step
LEAST_GAP = 1e-13  # rounding does not let a gap become much smaller


@dataclass(slots=True)
class Traffic:
    """The drivers' search for an equilibrium.

    `flow` (links,) is what all routes together put on each link, `time` (links,) is how long each
    link takes then, and `gap` is the relative gap.
    """

    times: LinkTimes
    routes: Routes
    flow: FloatArray
    time: FloatArray
    gap: float
    sweeps: int = 0


@dataclass(frozen=True, slots=True)
class Equilibrium:
    """Finds the user equilibrium of a network, whose links' times depend on the leader's x.

    `times(x)` returns a `LinkTimes` for all links. The answer y has the flow on each link, and f is
    Beckmann's function. A step is a sweep: it finds the quickest routes of all pairs
    and then moves drivers, in at most twenty passes over all pairs. The search is done when the
    relative gap is at most `gap`: the share of their time that drivers would save if everybody took
    the quickest route, at the times of the present flow.

    >>> net = Network([(1, 2), (1, 2)], [(1, 2, 10.0)])
    >>> drivers = Equilibrium(net, lambda x: LinkTimes(np.array([1.0 + x[0], 2.0]), 0.1, 1.0))
    >>> drivers.settle([3.0]).flow.round(6).tolist()  # 4 + 0.1 v = 2 + 0.1 (10 - v): all on one
    [0.0, 10.0]
    >>> drivers.settle([0.5]).flow.round(6).tolist()
    [7.5, 2.5]
    """

    network: Network
    times: Callable[[FloatArray], LinkTimes]
    gap: float = 1e-10

    def __post_init__(self) -> None:
        made = isinstance(self.network, Network)
        require(made, "network", "a bilevo.followers.Network", self.network)
        require(callable(self.times), "times", "a function of x", self.times)
        gap = real_number(self.gap)
        fine = gap is not None and LEAST_GAP <= gap < 1
        require(fine, "gap", f"a number from {LEAST_GAP} to 1", self.gap)

    def start(
        self, x: FloatArray, rng: np.random.Generator, near: Neighbour | None = None
    ) -> Traffic:
        """Put all drivers on the routes that are quickest when roads are empty.

        `near` is a finished search (see `bilevo.core.solver`), whose drivers keep their routes.
        """
        times = self._times(x)
        routes = None if near is None else self._routes_near(near)
        if routes is None:
            routes = self.network.quickest(times, np.zeros(self.network.size))
        return Traffic(times, *self.network.survey(routes, times))

    def advance(self, state: Traffic) -> Traffic:
        routes, times = state.routes, state.times
        excess = state.gap * float(state.flow @ state.time)
        work = (np.zeros(self.network.size), np.zeros(self.network.size, np.int32))
        changed = (routes.flow, state.flow, state.time, *work)
        run(shift, (*times, *routes.arrays[:3]), changed, excess, PASSES)
        return Traffic(times, *self.network.survey(routes, times), state.sweeps + 1)

    def best(self, state: Traffic) -> tuple[FloatArray, float, float]:
        return state.flow, state.times.beckmann(state.flow), 0.0

    def done(self, state: Traffic) -> bool:
        return state.gap <= self.gap

    def hint(self, state: Traffic) -> FloatArray:
        """Return the routes that the flow on links does not tell, for searches near by."""
        return state.routes.packed(self.network.quickest(state.times, state.flow))

    def settle(self, x: Any, near: Neighbour | None = None) -> Traffic:
        """Return the finished search at x, for use without a leader."""
        state = self.start(frozen(x), np.random.default_rng(0), near)
        while not self.done(state):
            state = self.advance(state)
        return state

    def relative_gap(self, x: Any, flow: Any) -> float:
        """Return the relative gap of flows on links (links,), if all trips together make them.

        It is computed from the flow on links only, so it checks an answer without its routes.
        """
        flow = frozen(flow)
        times = self._times(frozen(x))
        time = times.at(flow)
        quickest = self.network.load(self.network.quickest(times, flow))
        return 1.0 - float(quickest @ time) / float(flow @ time)

    def _routes_near(self, near: Neighbour) -> Routes | None:
        """Return the routes of a finished search; None if they are not known."""
        if near.hint is None or near.y.shape != (self.network.size,):
            return None
        quickest = self.network.quickest(self._times(near.x), near.y)
        return quickest.with_packed(self.network, near.hint)

    def _times(self, x: FloatArray) -> LinkTimes:
        """Return the times of links at x as arrays; refuse anything else."""
        told = self.times(x)
        require(isinstance(told, LinkTimes), "times(x)", "a LinkTimes", told)
        least = zip(LinkTimes._fields, told, (0.0, 0.0, 1.0), strict=True)
        return LinkTimes(*(self._numbers(x, *part) for part in least))

    def _numbers(self, x: FloatArray, name: str, part: Any, least: float) -> FloatArray:
        size, where = self.network.size, f"at x = {x.tolist()}"
        try:
            values = np.empty(size)
            values[:] = real_array(part)
        except ValueError:
            raise ValueError(
                f"times(x).{name} must be {size} numbers, one for each link, or one for all; got "
                f"{shown(part)} {where}"
            ) from None
        wrong = ~((values >= least) & (values < np.inf))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"times(x).{name}[{i}] must be at least {least:g} and finite, got {values[i]} "
                f"{where}"
            )
        return values
