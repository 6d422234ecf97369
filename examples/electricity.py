"""Find the offers that a producer should make to a market that clears at the least cost.

The leader is a producer. It chooses the offers of its units and earns (price - cost) x quantity.
The follower is the market operator, who serves the demand at the least offered cost. That is a
linear program over a DC network with line limits; its duals are the prices at the buses. The system
is PJM's with five buses:

    F. Li, R. Bo (2010). Small test systems for power system economic studies. IEEE PES General
    Meeting. The numbers are from MATPOWER's case5, a modified form of their system.

Lines without a limit get a limit of 1000 MW here, which is the whole demand. Demand may be left
unserved at the price cap, 80 $/MWh. Without the cap, a producer that is always needed could ask for
any price.

    python examples/electricity.py [--small] [--out DIRECTORY]
    python examples/electricity.py --units Solitude Sundance
    python examples/electricity.py --companies

With `--companies`, the other units are not operated at cost: their owners are companies of their
own, which choose how much they sell. They are two followers in a Nash equilibrium.

**When bilevo is the wrong tool**: if the market is really this linear program. Then the program can
be replaced by its optimality conditions. The whole problem becomes one mixed-integer program
(`single_level` below), which HiGHS solves faster than a run of bilevo, and with a proof. That
program needs a bound M on the duals, which is not known beforehand. If M is too small or too
large, the answer is wrong without a warning; the example shows that, too. Also, a search proves
nothing. For the owner of Solitude and Sundance the best offers lie at a jump and on an edge of the
box, where a search can miss them. bilevo is for markets that are not linear programs, such as
markets with unit commitment or AC flows, or the simulator of somebody else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bilevo
from bilevo.core.arrays import FloatArray
from bilevo.core.extras import need
from bilevo.followers import LinProg

BUSES = "ABCDE"
UNITS = {  # name: bus, capacity (MW), cost ($/MWh)
    "Alta": ("A", 40, 14),
    "Park City": ("A", 170, 15),
    "Solitude": ("C", 520, 30),
    "Sundance": ("D", 200, 40),
    "Brighton": ("E", 600, 10),
}
DEMAND = {"B": 300, "C": 300, "D": 400}  # MW
LINES = {  # from, to: reactance (p.u.), limit (MW)
    ("A", "B"): (0.0281, 400),
    ("A", "D"): (0.0304, 1000),
    ("A", "E"): (0.0064, 1000),
    ("B", "C"): (0.0108, 1000),
    ("C", "D"): (0.0297, 1000),
    ("D", "E"): (0.0297, 240),
}
PRICE_CAP = 80.0  # $/MWh

# The market can dispatch the units, and can leave demand unserved at the price cap.
COST = np.array([cost for _, _, cost in UNITS.values()] + [PRICE_CAP] * len(DEMAND))
SIZE = np.array([size for _, size, _ in UNITS.values()] + list(DEMAND.values()), dtype=float)
BUS = np.array([BUSES.index(bus) for bus in [*(bus for bus, _, _ in UNITS.values()), *DEMAND]])
LOAD = np.array([DEMAND.get(bus, 0.0) for bus in BUSES])


def flow_factors() -> FloatArray:
    """Return (lines, buses): the flow on each line per MW fed in at each bus (DC approximation)."""
    ends = np.array([[float(bus == a) - float(bus == b) for bus in BUSES] for a, b in LINES])
    by_angle = ends / np.array([[reactance] for reactance, _ in LINES.values()])
    factors: FloatArray = by_angle @ np.linalg.pinv(ends.T @ by_angle)
    return factors


FACTORS = flow_factors()
LIMIT = np.array([limit for _, limit in LINES.values()], dtype=float)
# ROWS @ dispatch <= ROOM keeps the flow on each line within its limit, in both directions.
ROWS = np.vstack([FACTORS[:, BUS], -FACTORS[:, BUS]])
ROOM = np.append(LIMIT + FACTORS @ LOAD, LIMIT - FACTORS @ LOAD)


class Producer:
    """The owner of some units: the leader. Its x are the offers of these units in $/MWh.

    The market's answer y is what each unit sells, and the price at each bus.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.owned = [list(UNITS).index(name) for name in names]
        self.cost = COST[self.owned]

    def clearing(self, x: FloatArray) -> dict[str, Any]:
        """Return the market's linear program: the dispatch of the least offered cost."""
        offers = COST.copy()
        offers[self.owned] = x
        whole = {"A_eq": np.ones((1, SIZE.size)), "b_eq": [LOAD.sum()]}
        return {"c": offers, "A_ub": ROWS, "b_ub": ROOM, "bounds": [(0, s) for s in SIZE], **whole}

    def seen(self, x: FloatArray, cleared: Any) -> FloatArray:
        """Return quantities and prices; a price is the energy price plus what lines add."""
        there, back = np.split(cleared.ineqlin.marginals, 2)
        prices = cleared.eqlin.marginals + FACTORS.T @ (there - back)
        return np.append(cleared.x[: len(UNITS)], prices)

    def loss(self, x: FloatArray, y: FloatArray) -> float:
        prices = y[len(UNITS) :]
        return float((self.cost - prices[BUS[self.owned]]) @ y[self.owned])

    def at_its_offer(self, x: FloatArray) -> FloatArray:
        """Return the loss per MW of each unit if it is paid its own offer, as happens in a tie."""
        d = np.zeros_like(COST)
        d[self.owned] = self.cost - x
        return d

    def market(self, optimistic: bool = True) -> LinProg:
        """Make the market's solver. Ties go to the producer if `optimistic`, else against it."""
        sign = 1.0 if optimistic else -1.0
        return LinProg(self.clearing, lambda x: sign * self.at_its_offer(x), self.seen)

    def problem(self) -> bilevo.Problem:
        quantities = [(0.0, size) for size in SIZE[: len(UNITS)]]
        # Full lines can push the price at a bus beyond the cap.
        prices = [(-10 * PRICE_CAP, 10 * PRICE_CAP)] * len(BUSES)
        return bilevo.Problem(
            self.loss,
            None,
            x_bounds=[(0.0, PRICE_CAP)] * len(self.owned),
            y_bounds=[*quantities, *prices],
            follower=self.market(),
            name=f"offers of {' and '.join(self.names)}",
        )

    def profit(self, *offers: float, optimistic: bool = True) -> float:
        """Return what the producer earns per hour with these offers."""
        x, follower = np.array(offers, dtype=float), self.market(optimistic)
        y, _, _ = follower.best(follower.advance(follower.start(x, np.random.default_rng())))
        return -self.loss(x, y)


class Claim(NamedTuple):
    """The answer of the single-level program, and the seconds that it took."""

    profit: float  # NaN if the program has no solution
    offers: FloatArray
    time: float


def conditions(owned: list[int], big_m: float) -> list[tuple[Any, Any, dict[str, Any]]]:
    """Return the optimality conditions of the dispatch as rows: low, high, coefficients.

    The first rows are stationarity: offer - price of energy + what lines and bounds add = 0. The
    others are complementarity: of the room that a limit leaves and its dual, one is zero. A binary
    variable chooses which. This needs a bound on both; the room has one, and the dual gets `big_m`.
    """
    each, line, none, span = np.eye(SIZE.size), np.eye(ROOM.size), -np.inf, 2 * np.tile(LIMIT, 2)
    known = np.where(np.isin(np.arange(SIZE.size), owned), 0.0, COST)
    stationary = {"offer": each[:, owned], "energy": -np.ones((SIZE.size, 1)), "line": ROWS.T}
    return [
        (-known, -known, {**stationary, "upper": each, "lower": -each}),
        (LOAD.sum(), LOAD.sum(), {"amount": np.ones((1, SIZE.size))}),
        (none, ROOM, {"amount": ROWS}),
        (none, span - ROOM, {"amount": -ROWS, "loaded": span * line}),
        (none, 0, {"line": line, "loaded": -big_m * line}),
        (none, 0, {"amount": -each, "full": SIZE * each}),
        (none, 0, {"upper": each, "full": -big_m * each}),
        (none, SIZE, {"amount": each, "empty": SIZE * each}),
        (none, 0, {"lower": each, "empty": -big_m * each}),
    ]


class Variables(NamedTuple):
    """Some variables of the single-level program: the profit per unit of each, and bounds."""

    profit: FloatArray
    lower: float = 0.0
    upper: float = np.inf
    binary: bool = False


def single_level(producer: Producer, big_m: float) -> Claim:
    """Solve one mixed-integer program with the market's optimality conditions.

    Income, price x quantity, is linear by strong duality: C. Ruiz, A. Conejo (2009). Pool strategy
    of a producer with endogenous formation of locational marginal prices. IEEE Trans. Power Syst.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    began, n, k, s = time.perf_counter(), SIZE.size, ROOM.size, len(producer.owned)
    foreign = np.where(np.isin(np.arange(n), producer.owned), 0.0, SIZE)
    groups = {
        "offer": Variables(np.zeros(s), upper=PRICE_CAP),
        "amount": Variables(-COST),
        "energy": Variables(LOAD.sum(keepdims=True), lower=-np.inf),
        "line": Variables(-ROOM),
        "upper": Variables(-foreign),
        "lower": Variables(np.zeros(n)),
        "loaded": Variables(np.zeros(k), upper=1, binary=True),
        "full": Variables(np.zeros(n), upper=1, binary=True),
        "empty": Variables(np.zeros(n), upper=1, binary=True),
    }
    sizes = {name: group.profit.size for name, group in groups.items()}
    profit, lower, upper, binary = (
        np.concatenate([np.broadcast_to(group[i], group.profit.size) for group in groups.values()])
        for i in range(4)
    )
    rows = []
    for low, high, blocks in conditions(producer.owned, big_m):
        count = len(next(iter(blocks.values())))
        all_blocks = [blocks.get(name, np.zeros((count, size))) for name, size in sizes.items()]
        rows.append(LinearConstraint(np.hstack(all_blocks), low, high))
    exact = {"mip_rel_gap": 0.0}
    solved = milp(
        -profit, integrality=binary, bounds=Bounds(lower, upper), constraints=rows, options=exact
    )
    value, offers = (-solved.fun, solved.x[:s]) if solved.success else (np.nan, np.full(s, np.nan))
    return Claim(value, offers, time.perf_counter() - began)


def searched(producer: Producer, runs: int, evaluations: int, seed: int = 1) -> list[bilevo.Result]:
    """Make some runs, and return their results, the best first.

    Several runs are needed, because profit jumps and has several local optima.
    """
    problem = producer.problem()
    seeds = range(seed, seed + runs)
    results = [bilevo.minimize(problem, max_evals=evaluations, rng=seed) for seed in seeds]
    return sorted(results, key=lambda result: result.F)


# Companies that choose how much they sell, while Brighton decides first. The price falls with all
# sales: it is the cap if nobody sells, and 30 $/MWh if the whole demand is served. There are no
# limits of lines, and the next MW of a unit costs `RISE` more than the last.
COMPANIES = {"West": ("Alta", "Park City"), "East": ("Solitude", "Sundance")}
FALL, RISE = 0.05, 0.02  # $/MWh for each MW
MARGINAL = {name: cost for name, (_, _, cost) in UNITS.items()}


def clearing_price(x: FloatArray, y: FloatArray) -> float:
    """Return the price if Brighton sells x[0], and the units of the companies sell y, in MW."""
    return float(PRICE_CAP - FALL * (x.sum() + y.sum()))


def loss_of(units: Sequence[str], sold: FloatArray, price: float) -> float:
    """Return the costs of some units less their income, in $/h."""
    cost = np.array([MARGINAL[name] for name in units])
    return float((cost + RISE / 2 * sold - price) @ sold)


def company(name: str, first: int) -> bilevo.Follower:
    """Make a company whose units are at place `first` of y, and the next ones."""
    units = COMPANIES[name]
    own = slice(first, first + len(units))
    sizes = [(0.0, float(UNITS[unit][1])) for unit in units]
    return bilevo.Follower(lambda x, y: loss_of(units, y[own], clearing_price(x, y)), sizes)


def brightons_loss(x: FloatArray, y: FloatArray) -> float:
    return loss_of(["Brighton"], x, clearing_price(x, y))


def market_of_companies() -> bilevo.Problem:
    """Make the problem of Brighton, whom the other two companies answer in equilibrium."""
    return bilevo.Problem(
        brightons_loss,
        None,
        x_bounds=[(0.0, UNITS["Brighton"][1])],
        followers=[company("West", 0), company("East", 2)],
        play="nash",
        name="Brighton and two companies",
    )


def cartel_of_companies() -> bilevo.Problem:
    """Make the problem that adds the companies' losses up, as if they were one company."""
    market = market_of_companies()
    assert market.several is not None
    both = [one.f for one in market.several.followers if one.f is not None]
    return bilevo.Problem(
        brightons_loss,
        lambda x, y: sum(f(x, y) for f in both),
        market.x_bounds,
        market.y_bounds,
        name="Brighton and a cartel",
    )


def report_companies() -> None:
    """Solve the market of companies, and what a sum of their losses would say."""
    for problem in (market_of_companies(), cartel_of_companies()):
        result = bilevo.minimize(problem, rng=1, max_evals=20_000)
        confirmed = bilevo.verify(problem, result, effort="low").confirmed
        others = [name for units in COMPANIES.values() for name in units]
        sold = ", ".join(f"{name} {q:.1f}" for name, q in zip(others, result.y, strict=True))
        price = clearing_price(result.x, result.y)
        print(f"{problem.name}: profit of Brighton {-result.F:,.2f} $/h at {price:.2f} $/MWh")
        print(f"  Brighton sells {result.x[0]:.1f} MW; {sold}")
        print(f"  success: {result.success}; confirmed: {confirmed}")
    print(
        "The companies compete, so they sell more than a cartel would, and Brighton earns less.\n"
        "Who adds the losses of followers up solves the market of the cartel."
    )


def report(producer: Producer, results: list[bilevo.Result], exact: Claim) -> None:
    found, clearings = results[0], sum(result.nfev_lower for result in results)
    runs = "1 run" if len(results) == 1 else f"{len(results)} runs"
    cost = f"{runs}, {clearings:,} clearings, {sum(r.time for r in results):.1f} s"
    at_cost = round(producer.profit(*producer.cost), 2) + 0.0  # + 0.0 turns -0.00 into 0.00
    print(f"{' and '.join(producer.names)}: profit in $/h")
    print(f"  offering at cost {at_cost:10,.2f}")
    print(f"  bilevo           {-found.F:10,.2f}  at {_listed(found.x)} ({cost})")
    print(
        f"  single level     {exact.profit:10,.2f}  at {_listed(exact.offers)} ({exact.time:.2f} s)"
    )


def _listed(offers: FloatArray) -> str:
    return ", ".join(f"{offer:.4f}" for offer in offers)


def picture(
    path: Path,
    offers: FloatArray,
    profits: FloatArray,
    found: bilevo.Result,
    claims: dict[float, Claim],
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot(offers, profits, color="#555555", label="a grid of offers")
    left.plot(found.x, [-found.F], "o", color="#2a7f62", label="bilevo")
    left.set(xlabel="offer of Brighton ($/MWh)", ylabel="profit ($/h)")
    left.set_title("Profit falls where another unit is cheaper", loc="left", fontsize=10)
    right.semilogx(list(claims), [claim.profit for claim in claims.values()], "s", color="#b3452c")
    right.axhline(profits.max(), color="#555555", linewidth=1, label="the best of the grid")
    right.set(xlabel="M of the single-level program")
    right.set_title("What that program calls optimal", loc="left", fontsize=10)
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    bilevo.plot.save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Find a producer's best offers on five buses.")
    parser.add_argument("--small", action="store_true", help="a coarse grid and short runs")
    parser.add_argument("--out", type=Path, default=Path(), help="directory for the picture")
    parser.add_argument("--units", nargs="+", choices=UNITS, help="units of another producer")
    parser.add_argument("--companies", action="store_true", help="two companies in equilibrium")
    options = parser.parse_args(arguments)
    if options.companies:
        report_companies()
        return
    need("pictures", "matplotlib", "plot")  # fails now, not after the runs
    runs, evaluations = (1, 300) if options.small else (3, 800)
    if options.small:
        print("One short run each, which may miss the best offers:")

    if options.units:
        other = Producer(*options.units)
        report(other, searched(other, runs, 2 * evaluations), single_level(other, 1e4))
        return
    brighton = Producer("Brighton")
    claims = {M: single_level(brighton, M) for M in (20, 40, 50, 1e2, 1e4, 1e6, 1e7, 1e8)}
    results = searched(brighton, runs, evaluations)
    report(brighton, results, claims[1e4])
    offers = np.linspace(0, PRICE_CAP, 41 if options.small else 401)
    profits = np.array([brighton.profit(offer) for offer in offers])
    best = int(profits.argmax())
    print(f"  a grid           {profits[best]:10,.2f}  at {offers[best]:.4f}")
    print("  single level, profit for each M (nan: it finds no solution):")
    print("    " + ", ".join(f"{M:g}: {claim.profit:,.0f}" for M, claim in claims.items()))
    for offer in (30.0, 30.0000001, 40.0):
        friendly, hostile = (brighton.profit(offer, optimistic=good) for good in (True, False))
        print(f"  at {offer:.7f} {friendly:10,.2f} if ties go to Brighton, {hostile:,.2f} if not")
    print(
        "If Brighton offers at its own cost, it earns nothing. But it sets the price at its bus.\n"
        "So it can ask for 30, the cost of Solitude, and run as much as before. If it asks for\n"
        "more, Solitude runs instead. At 30 the two are tied, so a careful producer asks for 29.99."
    )

    pair = Producer("Brighton", "Alta")
    report(pair, searched(pair, runs, 2 * evaluations), single_level(pair, 1e4))
    print(
        "Brighton's offer sets the price at Alta's bus, too, and Alta runs at any offer up to\n"
        "that price. So an owner of both asks for 30 again, and also earns Alta's profit."
    )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "electricity.png"
    picture(path, offers, profits, results[0], claims)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
