"""Road networks: their links and trips, the times of links, and routes with their flows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilevo.core.arrays import BoolArray, FloatArray, frozen
from bilevo.core.checks import is_whole, real_number, require, shown
from bilevo.followers.equilibrium_kernels import renew, run, survey

Int32Array = NDArray[np.int32]


class LinkTimes(NamedTuple):
    """The times of links: fixed + rise * flow**power, entry by entry. A power is at least 1."""

    fixed: Any
    rise: Any
    power: Any = 4.0

    def at(self, flow: FloatArray) -> FloatArray:
        """Return the time of each link."""
        return np.asarray(self.fixed + self.rise * flow**self.power)

    def beckmann(self, flow: FloatArray) -> float:
        """Return the sum of the integrals of time over flow."""
        return float(flow @ (self.fixed + self.rise * flow**self.power / (self.power + 1.0)))


class Network:
    """A road network: links (tail, head) between nodes, and demand (origin, destination, trips).

    Nodes may be named by numbers or texts. Every trip needs a route.

    >>> net = Network([(1, 2), (1, 2), (2, 1)], [(1, 2, 10.0)])
    >>> net.size, net.trips.tolist()
    (3, [10.0])
    """

    def __init__(self, links: Iterable[Any], demand: Iterable[Any]) -> None:
        ends = _rows("links", links, 2, "(tail, head)")
        rows = _rows("demand", demand, 3, "(origin, destination, trips)")
        nodes: dict[Any, int] = {}
        for i, (tail, head) in enumerate(ends):
            require(tail != head, f"links[{i}]", "a link between two nodes", (tail, head))
            for node in (tail, head):
                require(is_whole(node) or isinstance(node, str), "a node", "a number or text", node)
                nodes.setdefault(node, len(nodes))
        self.nodes = list(nodes)
        self.size = len(ends)  # the number of links
        self.tail, self.head = (_whole([nodes[end[side]] for end in ends]) for side in (0, 1))
        pairs = [_pair(i, row, nodes) for i, row in enumerate(rows)]
        pairs = sorted(pair for pair in pairs if pair[2] > 0)
        require(len(pairs) > 0, "demand", "trips between at least two nodes", demand)
        for one, other in pairwise(pairs):
            if one[:2] == other[:2]:
                names = " to ".join(str(self.nodes[node]) for node in one[:2])
                raise ValueError(f"demand has two rows for the trips from {names}: give their sum")
        self.trips = frozen([trips for _, _, trips in pairs])
        origin = np.array([origin for origin, _, _ in pairs])
        origins = np.unique(origin)
        out = np.argsort(self.tail, kind="stable")
        first = np.searchsorted(self.tail[out], np.arange(len(nodes) + 1))
        pair_first = np.searchsorted(origin, [*origins, len(nodes)])
        self.origin = _whole(origin)
        self.destination = _whole([destination for _, destination, _ in pairs])
        # What kernels read, in the order of their arguments.
        graph = (first, out, origins, pair_first)
        self.graph = (self.tail, self.head, *map(_whole, graph), self.destination)
        self._require_routes()

    def __repr__(self) -> str:
        return f"<Network: {len(self.nodes)} nodes, {self.size} links, {len(self.trips)} pairs>"

    def _require_routes(self) -> None:
        """Refuse trips to a node that cannot be reached. This compiles no kernel."""
        heads: list[list[int]] = [[] for _ in self.nodes]
        for tail, head in zip(self.tail.tolist(), self.head.tolist(), strict=True):
            heads[tail].append(head)
        reached: dict[int, set[int]] = {}
        for origin, destination in zip(
            self.origin.tolist(), self.destination.tolist(), strict=True
        ):
            if origin not in reached:
                reached[origin] = _reachable(origin, heads)
            if destination not in reached[origin]:
                ends = f"from {self.nodes[origin]} to {self.nodes[destination]}"
                raise ValueError(f"there is no route for the trips {ends}")

    def survey(self, routes: Routes, times: LinkTimes) -> Survey:
        """Return what routes and their flows mean at these times (arrays), and new routes."""
        n = len(self.nodes)
        on_links, on_nodes = np.zeros((2, self.size)), np.zeros((2, n), np.int32)
        before = np.full(len(self.graph[4]) * n, -1, np.int32)
        length = np.zeros(len(self.trips), np.int32)
        work = (*on_links, np.zeros(n), *on_nodes, before, length)
        saved, spent, *sizes = run(survey, (*self.graph, *routes.arrays, *times), work)
        new = Routes.empty(len(self.trips), *sizes)
        run(renew, (*self.graph, *routes.arrays, before, length), new.arrays)
        gap = saved / spent if spent > 0 else 0.0
        return Survey(new, on_links[0], on_links[1], gap)

    def quickest(self, times: LinkTimes, flow: FloatArray) -> Routes:
        """Return routes for all drivers: the quickest ones at the times of this flow on links."""
        none = Routes.empty(len(self.trips), 0, 0)
        time = LinkTimes(times.at(flow), np.zeros(self.size), np.ones(self.size))
        routes = self.survey(none, time).routes
        routes.flow[:] = self.trips
        return routes

    def load(self, routes: Routes) -> FloatArray:
        """Return the flow on each link."""
        weights = np.repeat(routes.flow, np.diff(routes.link_first))
        return np.bincount(routes.links, weights, self.size).astype(float)


class Survey(NamedTuple):
    """The routes in use with new, quicker ones; flow and time of each link; and the gap.

    The gap is the share of all time that drivers would save if everybody took the quickest route,
    at these times.
    """

    routes: Routes
    flow: FloatArray
    time: FloatArray
    gap: float


def _reachable(origin: int, heads: list[list[int]]) -> set[int]:
    """Return the nodes that can be reached from an origin; `heads` has each node's next nodes."""
    found, waiting = {origin}, [origin]
    while waiting:
        new = [node for node in heads[waiting.pop()] if node not in found]
        found.update(new)
        waiting += new
    return found


def _whole(values: Any) -> Int32Array:
    return np.ascontiguousarray(values, dtype=np.int32)  # kernels take no read-only arrays


def _rows(name: str, given: Any, width: int, what: str) -> list[Sequence[Any]]:
    """Return rows of a table; refuse rows of another length."""
    fine = isinstance(given, Iterable) and not isinstance(given, str | bytes | dict)
    rows: list[Any] = list(given) if fine else []
    require(len(rows) > 0, name, f"a list of rows {what}", given)
    for i, row in enumerate(rows):
        fine = isinstance(row, Sequence | np.ndarray) and not isinstance(row, str | bytes)
        require(fine and len(row) == width, f"{name}[{i}]", what, row)
    return rows


def _pair(i: int, row: Sequence[Any], nodes: dict[Any, int]) -> tuple[int, int, float]:
    """Return the numbers of a pair's two nodes, and its trips."""
    origin, destination, number = row
    for node in (origin, destination):
        if not (is_whole(node) or isinstance(node, str)) or node not in nodes:
            known = f"{shown(node)}, which no link touches"
            raise ValueError(f"demand[{i}] = {shown(row)} names the node {known}")
    trips = real_number(number)
    if trips is None or not 0 <= trips < np.inf:
        raise ValueError(f"demand[{i}] must have trips of 0 or more, got {shown(row)}")
    require(origin != destination, f"demand[{i}]", "trips between two different nodes", row)
    return nodes[origin], nodes[destination], trips


@dataclass(slots=True)
class Routes:
    """Routes of all pairs and their flows, as the kernels take them."""

    route_first: Int32Array
    link_first: Int32Array
    links: Int32Array
    flow: FloatArray

    @classmethod
    def empty(cls, pairs: int, routes: int, links: int) -> Routes:
        firsts = (np.zeros(pairs + 1, np.int32), np.zeros(routes + 1, np.int32))
        return cls(*firsts, np.zeros(links, np.int32), np.zeros(routes))

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.route_first, self.link_first, self.links, self.flow

    def packed(self, quickest: Routes) -> FloatArray:
        """Return the routes in use as one array of numbers.

        Pairs whose only route is the one in `quickest` are left out. The array holds two sizes,
        the pairs, how many routes each has, how many links each route has, the flows, and the
        links.
        """
        used = self.flow > 0
        lengths = np.diff(self.link_first)
        pair = np.repeat(np.arange(len(quickest.flow)), np.diff(self.route_first))[used]
        counts = np.bincount(pair, minlength=len(quickest.flow))
        links = self.links[np.repeat(used, lengths)]
        listed = counts > 1
        listed |= ~_same(lengths[used], links, pair, quickest)
        kept = listed[pair]
        parts = (np.flatnonzero(listed), counts[listed], lengths[used][kept], self.flow[used][kept])
        sizes = [listed.sum(), kept.sum()]
        return np.concatenate([sizes, *parts, links[np.repeat(kept, lengths[used])]])

    def with_packed(self, network: Network, numbers: FloatArray) -> Routes | None:
        """Return these routes, one for each pair, with others in place of some.

        `numbers` is what `packed` returned, maybe from a file. Return None if it is not that.
        """
        found = _unpacked(network, numbers)
        if found is None:
            return None
        pairs, pair, lengths, flow, links = found
        stay = np.ones(len(network.trips), bool)
        stay[pairs] = False
        own = np.diff(self.link_first)
        all_pairs = np.concatenate([np.flatnonzero(stay), pair])
        all_lengths = np.concatenate([own[stay], lengths])
        all_links = np.concatenate([self.links[np.repeat(stay, own)], links])
        all_flows = np.concatenate([self.flow[stay], flow])
        order = np.argsort(all_pairs, kind="stable")
        begins = (np.cumsum(all_lengths) - all_lengths)[order]
        new = Routes.empty(len(network.trips), len(order), len(all_links))
        np.cumsum(np.bincount(all_pairs, minlength=len(network.trips)), out=new.route_first[1:])
        np.cumsum(all_lengths[order], out=new.link_first[1:])
        shifts = np.repeat(begins - new.link_first[:-1], all_lengths[order])
        new.links[:] = all_links[shifts + np.arange(len(all_links))]
        new.flow[:] = all_flows[order]
        return new


def _same(lengths: Any, links: Any, pair: Any, quickest: Routes) -> BoolArray:
    """Tell for each pair whether all of its routes are the route that it has in `quickest`.

    Routes are given by their numbers of links, their links one after another, and their pairs.
    """
    other = np.diff(quickest.link_first)[pair]
    place = np.arange(len(links)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    theirs = np.minimum(
        np.repeat(quickest.link_first[pair], lengths) + place, len(quickest.links) - 1
    )
    wrong = np.repeat(lengths != other, lengths) | (quickest.links[theirs] != links)
    return np.asarray(np.bincount(np.repeat(pair, lengths), wrong, len(quickest.flow)) == 0)


def _unpacked(network: Network, numbers: FloatArray) -> tuple[Any, ...] | None:
    """Return the parts of packed routes: pairs, each route's pair, lengths, flows and links.

    Return None if they are no routes of this network.
    """
    if numbers.size < 2 or not np.abs(numbers).max() < 2**31:  # also if one is NaN
        return None
    whole = numbers.astype(np.int64)
    if not (0 <= whole[0] <= numbers.size and 0 <= whole[1] <= numbers.size):
        return None
    ends = np.cumsum([2, whole[0], whole[0], whole[1], whole[1]])
    pairs, counts, lengths, _, links = np.split(whole, ends)[1:]
    flow = numbers[ends[3] : ends[4]]
    steps: BoolArray = np.diff(pairs) > 0
    fine = len(flow) == whole[1] and steps.all() and (flow > 0).all() and (flow < np.inf).all()
    fine = fine and bool(((pairs >= 0) & (pairs < len(network.trips)) & (counts > 0)).all())
    fine = fine and counts.sum() == whole[1] and (lengths > 0).all()
    fine = fine and lengths.sum() == len(links)
    if not fine or not ((links >= 0) & (links < network.size)).all():
        return None
    pair = np.repeat(pairs, counts)
    stops = np.cumsum(lengths)
    joined = network.head[links[:-1]] == network.tail[links[1:]]
    joined[stops[:-1] - 1] = True
    if len(pair) and not (
        joined.all()
        and (network.tail[links[stops - lengths]] == network.origin[pair]).all()
        and (network.head[links[stops - 1]] == network.destination[pair]).all()
    ):
        return None
    total = np.bincount(pair, flow, len(network.trips))
    return pairs, pair, lengths, flow * (network.trips[pair] / total[pair]), links
