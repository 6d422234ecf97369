"""Set tolls on a few roads so that travel is fastest when drivers choose their own routes.

The leader sets tolls and wants the least total travel time. The drivers together are the follower.
Each driver takes the route with the least time and toll, until nobody gains by changing (Wardrop's
user equilibrium). This equilibrium minimizes Beckmann's convex function. A Frank-Wolfe method of
conjugate directions finds it (Mitradjieva and Lindberg 2013, The stiff is moving, Transportation
Science 47(2)). The gap of the method says how far the flows still are from the equilibrium, and
so how large the error of the leader's objective can be. One `advance` is ten iterations. So the
competition decides how exactly F is known for given tolls: searches for hopeless tolls stop at a
large gap, and only those for the best tolls reach a small gap.

    python examples/tolls.py --out pictures            # two minutes with Sioux Falls
    python examples/tolls.py --out pictures --small    # a few seconds

The small network is from Hearn and Ramana (1998), Solving congestion toll pricing models. The
example reproduces the total times quoted for it: 2455.87 without tolls, and 2253.92 at best. Two
links may be tolled, and neither toll alone helps much. So a descent that starts without tolls ends
at 2453.88. A search may end there, too, so the example makes three runs. The best total time is
2419.87. Sioux Falls (76 links, 360,600 trips; LeBlanc, Morlok and Pierskalla 1975) is read from the
package aequilibrae, if that is installed. Tolls are in units of time.

**When bilevo is the wrong tool**: if every link can be tolled. Then the best tolls are the marginal
costs of the system optimum, which take one more equilibrium and no search. Also, an equilibrium has
derivatives with respect to the tolls (Tobin and Friesz 1988, Transportation Science 22(4)). From a
good start, a descent along these derivatives needs fewer equilibria than any search. The example
computes both for comparison. A search is useful if there are local optima or kinks, as here, or if
the drivers are a simulation without derivatives.
"""

from __future__ import annotations

import argparse
import importlib.util
import sqlite3
import zipfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.linalg import null_space, pinvh
from scipy.optimize import brentq, minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import bilevo
import bilevo.plot
from bilevo.core.arrays import FloatArray, IntArray

# Links: from, to, time when empty, capacity. Time with flow: time * (1 + 0.15 (flow / capacity)^4).
NINE_NODES = """
1 5 5 12   1 6 6 18   2 5 3 35   2 6 9 35   5 6 9 20   5 7 2 11   5 9 8 26   6 5 4 11   6 8 6 33
6 9 7 32   7 3 3 25   7 4 6 24   7 8 2 19   8 3 8 39   8 4 6 43   8 7 4 36   9 7 4 26   9 8 8 30
"""
MEANING = {
    "nine nodes": "Either of these tolls alone is worse than none, because drivers crowd the other "
    "link. Both together save 18% of what is possible. A descent from no tolls misses that.",
    "Sioux Falls": "Tolls on five of 38 roads save two thirds of what tolls on all of them could.",
}


@dataclass(frozen=True, slots=True)
class Network:
    """Links sorted by tail, with time = free + rise * flow^power, and the trips (n, n)."""

    tail: IntArray
    head: IntArray
    free: FloatArray
    rise: FloatArray
    power: FloatArray
    trips: FloatArray
    first: IntArray = field(init=False)  # index of the first link that leaves each node
    link: IntArray = field(init=False)  # (n, n): the index of the link from one node to another

    def __post_init__(self) -> None:
        nodes = len(self.trips)
        number = np.zeros((nodes, nodes), int)
        number[self.tail, self.head] = np.arange(len(self.tail))
        object.__setattr__(self, "link", number)
        object.__setattr__(self, "first", np.searchsorted(self.tail, np.arange(nodes + 1)))
        cut_off = (self.trips > 0) & ~np.isfinite(self.routes(self.free)[0])
        if cut_off.any():
            raise ValueError(f"no route for trips between nodes {np.argwhere(cut_off).tolist()}")

    @classmethod
    def of(cls, links: Any, trips: FloatArray) -> Network:
        """Make a network from rows (tail, head, free, capacity, factor, power); nodes from 0 on."""
        rows = np.array(sorted(map(tuple, links)))
        tail, head, (free, capacity, factor, power) = *rows.T[:2].astype(int), rows.T[2:]
        return cls(tail, head, free, free * factor / capacity**power, power, trips)

    def time(self, flow: FloatArray) -> FloatArray:
        return np.asarray(self.free + self.rise * flow**self.power)

    def slope(self, flow: FloatArray) -> FloatArray:
        return np.asarray(self.power * self.rise * flow ** (self.power - 1))

    def total_time(self, flow: FloatArray) -> float:
        return float(flow @ self.time(flow))

    def beckmann(self, flow: FloatArray) -> float:
        """Return the sum of the integrals of time over flow, which an equilibrium minimizes."""
        return float(flow @ (self.free + self.rise * flow**self.power / (self.power + 1)))

    def routes(self, cost: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return costs of the cheapest routes from every origin, and each node's predecessor."""
        positive = np.maximum(cost, 1e-9)  # with zeros, the order of nodes would be arbitrary
        graph = csr_array((positive, self.head, self.first), shape=self.trips.shape)
        distances, before = dijkstra(graph, return_predecessors=True)
        return distances, before

    def all_or_nothing(self, cost: FloatArray) -> FloatArray:
        """Return the flows of links when everybody takes the cheapest route."""
        distances, before = self.routes(cost)
        nodes = len(self.trips)
        # `load` has a row for each origin; its last column is the predecessor of the origin.
        rows = np.arange(nodes) * (nodes + 1)
        order = np.argsort(-distances, axis=1).T  # nodes, the farthest first
        previous = np.where(before < 0, nodes, before)[np.arange(nodes), order]
        load = np.pad(self.trips, ((0, 0), (0, 1)))
        flat = load.ravel()
        for node, towards in zip(rows + order, rows + previous, strict=True):
            flat[towards] += flat[node]
        origin, node = np.nonzero(before >= 0)
        links = self.link[before[origin, node], node]
        return np.bincount(links, weights=load[origin, node], minlength=len(cost)).astype(float)


@dataclass(slots=True)
class Traffic:
    """The state of Frank-Wolfe, in arrays and numbers: flows, the last two targets and the step."""

    toll: FloatArray
    flow: FloatArray
    last: FloatArray
    last_but_one: FloatArray
    step: float = 1.0
    gap: float = 1.0
    iterations: int = 1  # the start counts, because it also finds the cheapest routes


@dataclass(frozen=True, slots=True)
class Drivers:
    """The follower: bi-conjugate Frank-Wolfe until new routes save less than `gap` of all costs."""

    network: Network
    share: FloatArray  # (links, m): 1 if a toll of the leader applies to the link, else 0
    gap: float = 1e-6
    cost: int = 10  # iterations in one `advance`; each finds the cheapest routes
    limit: int = 3000

    def start(self, x: FloatArray, rng: np.random.Generator) -> Traffic:
        toll = self.share @ x
        flow = self.network.all_or_nothing(self.network.free + toll)
        return Traffic(toll, flow, flow, flow)

    def advance(self, state: Traffic) -> Traffic:
        until = (state.iterations // self.cost + 1) * self.cost
        while state.iterations < until and not self.done(state):
            self.iterate(state)
        return state

    def best(self, state: Traffic) -> tuple[FloatArray, float, float]:
        f = self.network.beckmann(state.flow) + float(state.toll @ state.flow)
        return state.flow, f, 0.0

    def done(self, state: Traffic) -> bool:
        return state.gap <= self.gap or state.iterations >= self.limit

    def spent(self, state: Traffic) -> int:
        return state.iterations

    def iterate(self, state: Traffic) -> None:
        cost = self.network.time(state.flow) + state.toll
        cheapest = self.network.all_or_nothing(cost)
        state.gap = float(cost @ (state.flow - cheapest) / (cost @ state.flow))
        state.iterations += 1
        if self.done(state):
            return
        target = self.conjugate(state, cheapest)
        if cost @ (target - state.flow) >= 0:  # no descent direction, because of rounding
            target = cheapest
        state.step = self.line_search(state, target - state.flow)
        state.flow = (1 - state.step) * state.flow + state.step * target
        state.last, state.last_but_one = target, state.last

    def conjugate(self, state: Traffic, cheapest: FloatArray) -> FloatArray:
        """Return the target whose direction is conjugate to the last two."""
        flow, step, curvature = state.flow, state.step, self.network.slope(state.flow)
        if step > 1 - 1e-9:  # the last target is reached, so there is no old direction
            return cheapest
        forward, one = cheapest - flow, state.last - flow
        two = step * state.last + (1 - step) * state.last_but_one - flow
        along_two = float(two @ (curvature * (state.last_but_one - state.last)))
        along_one = float(one @ (curvature * one))
        mu = max(0.0, -float(two @ (curvature * forward)) / along_two) if along_two else 0.0
        nu = -float(one @ (curvature * forward)) / along_one if along_one else 0.0
        nu = max(0.0, nu + mu * step / (1 - step))
        return np.asarray((cheapest + nu * state.last + mu * state.last_but_one) / (1 + nu + mu))

    def line_search(self, state: Traffic, direction: FloatArray) -> float:
        """Return the step in [0, 1] that minimizes Beckmann's function."""

        def slope(step: float) -> float:
            time = self.network.time(state.flow + step * direction)
            return float(direction @ (time + state.toll))

        return 1.0 if slope(1.0) <= 0 else float(brentq(slope, 0.0, 1.0, xtol=1e-12))


def settled(drivers: Drivers, x: Any) -> Traffic:
    """Return the state of the drivers' finished search at tolls x."""
    state = drivers.start(np.asarray(x, float), np.random.default_rng(1))
    while not drivers.done(state):
        state = drivers.advance(state)
    return state


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and the roads that may be tolled, as pairs of nodes (the first is 1)."""

    name: str
    network: Network
    roads: tuple[tuple[tuple[int, int], ...], ...]
    max_toll: float

    @property
    def share(self) -> FloatArray:
        share = np.zeros((len(self.network.tail), len(self.roads)))
        for column, road in enumerate(self.roads):
            share[[self.network.link[a - 1, b - 1] for a, b in road], column] = 1.0
        return share

    @property
    def names(self) -> list[str]:
        return [f"{road[0][0]}-{road[0][1]}" for road in self.roads]

    def problem(self, gap: float = 1e-6) -> bilevo.Problem:
        """Make the bilevel problem: F is the total travel time, and y has the flows of links."""
        return bilevo.Problem(
            lambda x, flow: self.network.total_time(flow),
            None,
            [(0.0, self.max_toll)] * len(self.roads),
            [(0.0, self.network.trips.sum())] * len(self.network.tail),
            follower=Drivers(self.network, self.share, gap),
            name=self.name,
        )

    def equilibrium(self, x: Any, gap: float) -> Traffic:
        return settled(Drivers(self.network, self.share, gap), x)

    def total_time(self, x: Any, gap: float) -> float:
        return self.network.total_time(self.equilibrium(x, gap).flow)


def nine_nodes() -> Case:
    rows = np.array(NINE_NODES.split(), float).reshape(-1, 4)
    trips = np.zeros((9, 9))
    trips[:2, 2:4] = [[10.0, 20.0], [30.0, 40.0]]  # from nodes 1 and 2 to nodes 3 and 4
    links = [(a - 1, b - 1, free, capacity, 0.15, 4.0) for a, b, free, capacity in rows]
    return Case("nine nodes", Network.of(links, trips), (((2, 5),), ((6, 8),)), max_toll=10.0)


def sioux_falls(archive: Path) -> Case:
    """Read the sample of aequilibrae; each road is tolled in both directions."""
    columns = "a_node, b_node, free_flow_time, capacity_ab, b, power"
    with zipfile.ZipFile(archive) as sample, closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(sample.read("project_database.sqlite"))
        rows = np.array(database.execute(f"SELECT {columns} FROM links").fetchall(), float)
        zones, trips = trip_matrix(sample.read("matrices/demand.aem"))
    nodes = np.unique(rows[:, :2])
    rows[:, :2] = np.searchsorted(nodes, rows[:, :2])
    everywhere = np.zeros((len(nodes), len(nodes)))
    everywhere[np.ix_(*[np.searchsorted(nodes, zones)] * 2)] = trips
    roads = ((5, 6), (11, 12), (13, 24), (15, 22), (17, 19))
    both_ways = tuple((road, road[::-1]) for road in roads)
    return Case("Sioux Falls", Network.of(rows, everywhere), both_ways, max_toll=15.0)


def trip_matrix(content: bytes) -> tuple[IntArray, FloatArray]:
    """Return the zones and the first matrix of a file in aequilibrae's matrix format."""
    (zones,) = np.frombuffer(content, "<u4", 1, offset=10)
    matrices, indices = content[14], content[15]
    start = 182 + 50 * matrices + 20 * indices
    index = np.frombuffer(content, "<u8", zones * indices, offset=start)
    cells = np.frombuffer(content, "<f8", zones**2 * matrices, offset=start + index.nbytes)
    first = cells.reshape(zones, zones, matrices)[:, :, 0]
    return index.reshape(zones, indices)[:, 0].astype(int), np.nan_to_num(first)


def sample_of_aequilibrae() -> Path | None:
    """Return where the package keeps Sioux Falls, without importing the package."""
    package = importlib.util.find_spec("aequilibrae")
    if package is None or package.origin is None:
        return None
    archive = Path(package.origin).parent / "reference_files" / "sioux_falls.zip"
    return archive if archive.is_file() else None


def system_optimum(network: Network, gap: float) -> FloatArray:
    """Return the flows with the least total time, in which drivers pay what others lose."""
    considerate = replace(network, rise=network.rise * (1 + network.power))
    return settled(Drivers(considerate, np.zeros((len(network.tail), 0)), gap), ()).flow


def sensitivity(case: Case, state: Traffic, tolerance: float = 1e-2) -> FloatArray:
    """Return derivatives of total time with respect to tolls at an equilibrium (Tobin, Friesz).

    The flow from an origin changes only on links that it uses, and stays balanced at nodes.
    """
    network, links = case.network, np.arange(len(case.network.tail))
    cost = network.time(state.flow) + state.toll
    balance = np.zeros((len(network.trips), len(links)))
    balance[network.tail, links], balance[network.head, links] = -1.0, 1.0
    shifts = []
    for distance in network.routes(cost)[0][network.trips.any(axis=1)]:
        excess = distance[network.tail] + cost - np.nan_to_num(distance[network.head], posinf=0.0)
        used = (state.flow > 0) & (excess < tolerance * cost.mean())
        inner = null_space(balance[:, used])
        shifts.append(np.zeros((len(links), inner.shape[1])))
        shifts[-1][used] = inner
    shift, slope = np.hstack(shifts), network.slope(state.flow)
    marginal = network.time(state.flow) + state.flow * slope
    inverse = pinvh(shift.T @ (slope[:, None] * shift), rtol=1e-9)
    return np.asarray(-case.share.T @ (shift @ (inverse @ (shift.T @ marginal))))


def descend(case: Case, start: Any, gap: float) -> tuple[FloatArray, int]:
    """Return tolls found by L-BFGS-B, and the number of equilibria that it needed."""
    scale = case.total_time(start, gap) / 1000  # L-BFGS-B's first step is as long as the derivative

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        state = case.equilibrium(x, gap)
        return case.network.total_time(state.flow) / scale, sensitivity(case, state) / scale

    box = [(0.0, case.max_toll)] * len(case.roads)
    found = minimize(value, start, jac=True, method="L-BFGS-B", bounds=box, options={"ftol": 1e-6})
    return found.x, int(found.nfev) + 1


@dataclass(frozen=True, slots=True)
class Study:
    """A case, and how exactly equilibria are solved for it."""

    case: Case
    gap: float  # the gap of equilibria in the search
    fine: float  # the gap of equilibria in checks and comparisons
    evals: int
    seeds: range  # one per run; a single run may end in a local optimum

    def bounds(self) -> tuple[float, float]:
        """Print and return total time without tolls, and the least possible total time."""
        case, network = self.case, self.case.network
        print(f"\n{case.name}: {len(network.tail)} links, {network.trips.sum():,.0f} trips")
        print("The follower's gap causes an error in total time. Without tolls:")
        for gap in (1e-2, 1e-3, 1e-4, 1e-5, self.fine):
            state = case.equilibrium(np.zeros(len(case.roads)), gap)
            total = network.total_time(state.flow)
            print(f"  gap {gap:.0e}: total time {total:,.2f} after {state.iterations} iterations")
        optimum = system_optimum(network, self.fine)
        least = network.total_time(optimum)
        all_links = Drivers(network, np.eye(len(network.tail)), self.fine)
        priced = network.total_time(settled(all_links, optimum * network.slope(optimum)).flow)
        print(f"The follower's objective (Beckmann) is {network.beckmann(state.flow):,.2f}.")
        print(f"The least total time is {least:,.2f}.")
        print(f"With tolls of marginal costs on all links it is {priced:,.2f}.")
        return total, least

    def search(self) -> bilevo.Result:
        """Make some runs, print what they found and spent, and return the best result."""
        problem = self.case.problem(self.gap)
        runs = [bilevo.minimize(problem, max_evals=self.evals, rng=seed) for seed in self.seeds]
        result = min(runs, key=lambda run: run.F)
        finer = Drivers(self.case.network, self.case.share, self.fine)
        found = bilevo.verify(problem, result, effort="low", follower=finer)
        steps = np.concatenate([row.executions for row in result.history])
        kept = np.concatenate([row.survived for row in result.history])
        listed = ", ".join(f"{run.F:,.2f}" for run in runs)
        print(f"bilevo finds {listed}. With a finer gap the best is {found.F:,.2f}.")
        means = f"{steps[kept].mean():.1f} if selected, {steps[~kept].mean():.1f} if not"
        print(f"  {result.nfev_lower} iterations for {len(steps)} tolls. Mean steps: {means}.")
        return result

    def compare(self, result: bilevo.Result, untolled: float, least: float) -> None:
        """Print the answer, and the answers of descents along derivatives."""
        case, answers = self.case, [("bilevo", result.x)]
        for name, start in (("no tolls", 0 * result.x), ("the answer", result.x)):
            x, count = descend(case, start, self.gap)
            answers.append((f"descent from {name}, {count} equilibria", x))
        for name, x in answers:
            total = case.total_time(x, self.fine)
            saved = (untolled - total) / (untolled - least)
            tolls = ", ".join(f"{a}: {b:.2f}" for a, b in zip(case.names, x, strict=True))
            print(f"  {name:42} {total:,.2f}, {saved:.1%} of what is possible; {tolls}")

    def pictures(self, result: bilevo.Result, folder: Path, points: int) -> list[Path]:
        """Draw the links where tolls change the time lost, and total time over two tolls."""
        figures = {"links": self.delays(result)}
        if len(result.x) == 2:
            figures["landscape"] = bilevo.plot.landscape(self.case.problem(1e-5), result, points)
        folder.mkdir(parents=True, exist_ok=True)
        name = self.case.name.replace(" ", "_").lower()
        paths = [folder / f"tolls_{name}_{what}.png" for what in figures]
        for path, figure in zip(paths, figures.values(), strict=True):
            figure.savefig(path, dpi=120)
        return paths

    def delays(self, result: bilevo.Result) -> Figure:
        """Draw bars of the time lost on the links where tolls change it most."""
        network = self.case.network
        flows = {
            "no tolls": self.case.equilibrium(0 * result.x, self.gap).flow,
            "bilevo's tolls": result.y,
            "system optimum": system_optimum(network, self.gap),
        }
        lost = np.array([flow * (network.time(flow) - network.free) for flow in flows.values()])
        most = np.argsort(-np.abs(lost[1] - lost[0]))[:10]
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for i, name in enumerate(flows):
            axes.bar(np.arange(len(most)) + 0.27 * (i - 1), lost[i, most], width=0.27, label=name)
        names = [f"{network.tail[i] + 1}-{network.head[i] + 1}" for i in most]
        axes.set_xticks(np.arange(len(most)), names, rotation=45)
        axes.set(title=self.case.name, xlabel="link", ylabel="time lost by all vehicles")
        axes.legend()
        return figure


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="directory for the pictures")
    parser.add_argument("--small", action="store_true", help="a few seconds, for tests")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(words)
    runs, evals, points = (1, 3000, 9) if asked.small else (3, 7000, 25)
    seeds = range(asked.seed, asked.seed + runs)
    studies = [Study(nine_nodes(), gap=1e-6, fine=1e-7, evals=evals, seeds=seeds)]
    sample = None if asked.small else sample_of_aequilibrae()
    if sample is not None:
        studies.append(Study(sioux_falls(sample), 1e-5, 1e-6, evals=40_000, seeds=seeds[:1]))
    for study in studies:
        known = study.bounds()
        result = study.search()
        study.compare(result, *known)
        print(MEANING[study.case.name])
        print("Pictures:", *study.pictures(result, asked.out, points))
    if sample is None and not asked.small:
        print("\nSioux Falls needs the data of aequilibrae: pip install --no-deps aequilibrae")


if __name__ == "__main__":
    main()
