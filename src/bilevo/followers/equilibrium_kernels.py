"""The arithmetic of `Equilibrium`, as kernels (see bilevo.kernels).

Routes are stored pair by pair; a pair is an origin and a destination. The routes of pair p have the
numbers from `route_first[p]` up to `route_first[p + 1]`. Route k has the links `links[j]`, from its
origin to its destination, with j from `link_first[k]` up to `link_first[k + 1]`. The time of a link
with flow v is fixed + rise * v**power. Sums are taken in a fixed order, one number at a time, so
that compiled kernels give the same bits as plain Python, for which arrays become lists (see `run`).
"""

from __future__ import annotations

import math
from typing import Any

from bilevo import kernels
from bilevo.core.arrays import TINY
from bilevo.kernels import Kernel, kernel, part

ENOUGH = 0.1  # passes end when they have reduced the time that can be saved to this share

# Types of the kernels' arrays, in the order of `Network.graph` and of `Routes.arrays`.
_GRAPH = ", ".join(["i4[::1]"] * 7)
_LINKS = ", ".join(["f8[::1]"] * 3)
_TREES = ", ".join(["i4[::1]"] * 4)
_ROUTES = "i4[::1], i4[::1], i4[::1], f8[::1]"


@part
def travel(v: float, fixed: float, rise: float, power: float) -> float:
    """Return the time that a link takes."""
    if power == 4.0:
        return fixed + rise * (v * v * (v * v))
    return float(fixed + rise * v**power)


@part
def slope(v: float, rise: float, power: float) -> float:
    """Return the derivative of a link's time with respect to its flow."""
    if power == 4.0:
        return 4.0 * rise * (v * v * v)
    return float(power * rise * v ** (power - 1.0))


@part
def grow_tree(
    root: int,
    head: Any,
    first: Any,
    out: Any,
    time: Any,
    distance: Any,
    tree: Any,
    queue: Any,
    waiting: Any,
) -> None:
    """Find the quickest routes from a root to all nodes; `tree` gets the last link of each.

    Nodes whose time has become shorter wait in a queue until their links are looked at (Bellman,
    Ford, Moore). On road networks this is as fast as Dijkstra's algorithm, and shorter. Of two
    equally quick routes, the one that is found first is kept. `queue` is a ring, and `waiting`
    says which nodes are in it.
    """
    n = len(queue)
    for node in range(n):
        distance[node] = math.inf
        waiting[node] = 0
    distance[root], queue[0], size, top = 0.0, root, 1, 0
    while size > 0:
        node = queue[top]
        top = top + 1 if top + 1 < n else 0
        size -= 1
        waiting[node] = 0
        for j in range(first[node], first[node + 1]):
            other = head[out[j]]
            reached = distance[node] + time[out[j]]
            if reached < distance[other]:
                distance[other] = reached
                tree[other] = out[j]
                if waiting[other] == 0:
                    waiting[other] = 1
                    queue[top + size if top + size < n else top + size - n] = other
                    size += 1


@part
def put_on_links(
    link_first: Any, links: Any, flow: Any, fixed: Any, rise: Any, power: Any, load: Any, time: Any
) -> None:
    """Compute the flow on links from the flows of routes, and the times of links."""
    for a in range(len(load)):
        load[a] = 0.0
    for k in range(len(flow)):
        for j in range(link_first[k], link_first[k + 1]):
            load[links[j]] += flow[k]
    for a in range(len(load)):
        time[a] = travel(load[a], fixed[a], rise[a], power[a])


@part
def taken(k: int, link_first: Any, links: Any, time: Any) -> float:
    """Return the time of a route, added up from its origin.

    A tree adds in the same order, so that equal routes have equal times to the bit.
    """
    total = 0.0
    for j in range(link_first[k], link_first[k + 1]):
        total += time[links[j]]
    return total


@part
def quickest(start: int, stop: int, link_first: Any, links: Any, time: Any) -> int:
    """Return the quickest of the routes from `start` up to `stop`."""
    best, least = start, math.inf
    for k in range(start, stop):
        spends = taken(k, link_first, links, time)
        if spends < least:
            best, least = k, spends
    return best


@kernel(f"Tuple((f8, f8, i8, i8))({_GRAPH}, {_ROUTES}, {_LINKS}, {_LINKS}, {_TREES})")
def survey(
    tail: Any,
    head: Any,
    first: Any,
    out: Any,
    origins: Any,
    pair_first: Any,
    destination: Any,
    route_first: Any,
    link_first: Any,
    links: Any,
    flow: Any,
    fixed: Any,
    rise: Any,
    power: Any,
    load: Any,
    time: Any,
    distance: Any,
    queue: Any,
    waiting: Any,
    before: Any,
    length: Any,
) -> tuple[float, float, int, int]:
    """Compute the flow on links (`load`) and their times, and find the quickest routes of pairs.

    Return the time that drivers would save on the quickest routes, the time that they spend, and
    how many routes and links `renew` will write. `before` (origins * nodes,) gets the last link of
    the route from each origin to each node. `length` (pairs,) gets the number of links of the
    quickest route; 0 if the pair has a route that is as quick. `distance`, `queue` and `waiting`
    (nodes,) are work space.
    """
    put_on_links(link_first, links, flow, fixed, rise, power, load, time)
    saved, spent, n, routes, ends = 0.0, 0.0, len(queue), 0, 0
    for o in range(len(origins)):
        tree = before[o * n : (o + 1) * n]
        grow_tree(origins[o], head, first, out, time, distance, tree, queue, waiting)
        before[o * n : (o + 1) * n] = tree  # a slice of a list is a copy
        for p in range(pair_first[o], pair_first[o + 1]):
            least, known = distance[destination[p]], math.inf
            for k in range(route_first[p], route_first[p + 1]):
                spends = taken(k, link_first, links, time)
                known = min(known, spends)
                saved += flow[k] * (spends - least)
                spent += flow[k] * spends
                if flow[k] > 0.0:
                    routes += 1
                    ends += link_first[k + 1] - link_first[k]
            length[p] = 0
            if least < known:
                node = destination[p]
                while node != origins[o]:
                    node = tail[tree[node]]
                    length[p] += 1
                routes += 1
                ends += length[p]
    return saved, spent, routes, ends


@kernel(f"void({_GRAPH}, {_ROUTES}, i4[::1], i4[::1], {_ROUTES})")
def renew(
    tail: Any,
    head: Any,
    first: Any,
    out: Any,
    origins: Any,
    pair_first: Any,
    destination: Any,
    route_first: Any,
    link_first: Any,
    links: Any,
    flow: Any,
    before: Any,
    length: Any,
    new_route_first: Any,
    new_link_first: Any,
    new_links: Any,
    new_flow: Any,
) -> None:
    """Write the routes that are in use, and the quickest routes that `survey` has found."""
    routes, end, n = 0, 0, len(first) - 1
    for o in range(len(origins)):
        for p in range(pair_first[o], pair_first[o + 1]):
            for k in range(route_first[p], route_first[p + 1]):
                if flow[k] > 0.0:
                    for j in range(link_first[k], link_first[k + 1]):
                        new_links[end] = links[j]
                        end += 1
                    new_flow[routes] = flow[k]
                    routes += 1
                    new_link_first[routes] = end
            if length[p] > 0:
                node = destination[p]
                end += length[p]
                for back in range(1, length[p] + 1):
                    new_links[end - back] = before[o * n + node]
                    node = tail[before[o * n + node]]
                new_flow[routes] = 0.0
                routes += 1
                new_link_first[routes] = end
            new_route_first[p + 1] = routes


@part
def compare(
    k: int, best: int, link_first: Any, links: Any, time: Any, rate: Any, mark: Any
) -> tuple[float, float]:
    """Return how much longer route k takes than `best`, and the sum of the two routes' slopes.

    Links of both routes do not count. `mark` is left at 1 for links of `best`, and at 2 for links
    of both.
    """
    longer, steepness = 0.0, 0.0
    for j in range(link_first[best], link_first[best + 1]):
        mark[links[j]] = 1
    for j in range(link_first[k], link_first[k + 1]):
        a = links[j]
        if mark[a] == 0:
            longer += time[a]
            steepness += rate[a]
        else:
            mark[a] = 2
    for j in range(link_first[best], link_first[best + 1]):
        a = links[j]
        if mark[a] == 1:
            longer -= time[a]
            steepness += rate[a]
    return longer, steepness


@part
def carry(
    k: int,
    marked: int,
    moved: float,
    link_first: Any,
    links: Any,
    load: Any,
    time: Any,
    rate: Any,
    mark: Any,
    law: Any,
) -> None:
    """Change the flow on the links of a route that have this mark, with their times and slopes."""
    fixed, rise, power = law
    for j in range(link_first[k], link_first[k + 1]):
        a = links[j]
        if mark[a] == marked:
            v = max(load[a] + moved, 0.0)
            load[a] = v
            time[a] = travel(v, fixed[a], rise[a], power[a])
            rate[a] = slope(v, rise[a], power[a])


@kernel(f"void({_LINKS}, {_ROUTES}, {_LINKS}, i4[::1], f8, i8)")
def shift(
    fixed: Any,
    rise: Any,
    power: Any,
    route_first: Any,
    link_first: Any,
    links: Any,
    flow: Any,
    load: Any,
    time: Any,
    rate: Any,
    mark: Any,
    excess: float,
    passes: int,
) -> None:
    """Move drivers to the quickest known route of their pair, in passes over all pairs.

    Each move is a Newton step on the difference of two routes' times, at most all drivers of the
    slower one. The flow on links (`load`), their times and slopes (`rate`) follow at once.
    Passes end early when the time that can be saved is a small share of `excess`. `mark` (links,)
    is 0.
    """
    law = (fixed, rise, power)
    for a in range(len(load)):
        rate[a] = slope(load[a], rise[a], power[a])
    for _ in range(passes):
        left = 0.0
        for p in range(len(route_first) - 1):
            start, stop = route_first[p], route_first[p + 1]
            if stop - start < 2:
                continue
            best = start  # of two routes, `compare` tells which is the quicker
            if stop - start > 2:
                best = quickest(start, stop, link_first, links, time)
            for k in range(start, stop):
                if k == best:
                    continue
                longer, steepness = compare(k, best, link_first, links, time, rate, mark)
                slower = flow[k]
                if longer < 0.0:
                    slower = -flow[best] if stop - start == 2 else 0.0
                if longer * slower > 0.0:
                    left += longer * slower
                    moved = longer / max(steepness, TINY)
                    if abs(moved) > abs(slower):
                        moved = slower
                    flow[k] -= moved
                    flow[best] += moved
                    carry(k, 0, -moved, link_first, links, load, time, rate, mark, law)
                    carry(best, 1, moved, link_first, links, load, time, rate, mark, law)
                for j in range(link_first[best], link_first[best + 1]):
                    mark[links[j]] = 0
        if left <= ENOUGH * excess:
            break


def run(function: Kernel[Any], given: tuple[Any, ...], changed: tuple[Any, ...], *more: Any) -> Any:
    """Call a kernel with arrays that it reads, arrays that it changes, and numbers.

    Plain Python is several times faster with lists than with arrays.
    """
    with kernels.using(kernels.default()):
        if kernels.chosen() == "numba":
            return function(*given, *changed, *more)
        lists = [array.tolist() for array in changed]
        told = function(*(array.tolist() for array in given), *lists, *more)
        for array, values in zip(changed, lists, strict=True):
            array[:] = values
        return told
