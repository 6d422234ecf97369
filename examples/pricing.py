"""Find the prices that a shop should ask of a customer who packs a bag of limited size.

The leader is a shop. It chooses whole prices for its goods and earns what the customer pays. The
follower is the customer, who fills a bag with goods of the shop and with free goods, so that total
value minus total price is largest. That is a knapsack problem, an integer program, which HiGHS
solves exactly (`bilevo.followers.Milp`). The customer's choice jumps as prices pass certain values,
and at these values several bags are equally good. So it matters whether ties go to the shop (the
optimistic position) or against it (the pessimistic position).

    python examples/pricing.py [--small] [--out DIRECTORY]

There are two checks. First, a solver that tries all bags replaces HiGHS; it also shows how to write
a solver of your own. Second, there are so few goods that all whole prices can be tried, which finds
the best prices with certainty.

**When bilevo is the wrong tool**: if all prices can be tried, as here. That takes hardly any time
and proves the answer. Ten goods with twenty prices each have 1e13 combinations. Then a search is
the only way, unless the customer's program can be written into the shop's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import bilevo
from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.extras import need
from bilevo.followers import Milp, Solver


@dataclass(frozen=True, slots=True)
class Shop:
    """Goods (n,) with whole values and weights; the first `own` of them belong to the shop.

    Ties go to the shop if it is `optimistic`, and against it if not.
    """

    value: FloatArray
    weight: FloatArray
    room: float
    own: int
    optimistic: bool = True

    @classmethod
    def random(cls, rng: np.random.Generator, goods: int = 12, own: int = 5) -> Shop:
        """Make a shop with values up to 20, weights up to 10, and a bag for half of the weight."""
        value, weight = rng.integers(1, (21, 11), (goods, 2)).T.astype(float)
        return cls(value, weight, float(weight.sum() // 2), own)

    def prices(self, x: FloatArray) -> FloatArray:
        """Return the price of each good; goods that are not the shop's are free."""
        return np.append(x, np.zeros(self.value.size - self.own))

    def loss(self, x: FloatArray, bag: FloatArray) -> float:
        return -float(self.prices(x) @ bag)

    def packing(self, x: FloatArray) -> dict[str, Any]:
        """Return the customer's integer program."""
        return {
            "c": self.prices(x) - self.value,
            "integrality": 1,
            "bounds": (0, 1),
            "constraints": (self.weight[None], 0, self.room),
        }

    def tie(self, x: FloatArray) -> FloatArray:
        """Return the shop's loss from each good that is bought; its gain if ties go against it.

        Among equally good bags, the customer takes the bag with the smallest sum.
        """
        return -self.prices(x) if self.optimistic else self.prices(x)

    def problem(self, customer: Solver[Any] | None = None) -> bilevo.Problem:
        """Make the bilevel problem; the customer is HiGHS or another solver."""
        return bilevo.Problem(
            self.loss,
            None,
            x_bounds=[(0.0, value) for value in self.value[: self.own]],
            y_bounds=[(0.0, 1.0)] * self.value.size,
            x_integrality=1,  # prices are whole
            follower=customer or Milp(self.packing, self.tie),
            name="whole prices",
        )


class Enumeration:
    """A customer who tries all bags: a solver that is done after one step."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        rows = np.array(list(product((0.0, 1.0), repeat=shop.value.size)))
        self.bags = rows[rows @ shop.weight <= shop.room]

    def start(self, x: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
        return [x]

    def advance(self, state: list[FloatArray]) -> list[FloatArray]:
        (x,) = state
        worth = self.bags @ (self.shop.value - self.shop.prices(x))
        tied = self.bags[worth == worth.max()]  # the comparison is exact for whole numbers
        return [x, tied[(tied @ self.shop.tie(x)).argmin()]]

    def best(self, state: list[FloatArray]) -> tuple[FloatArray, float, float]:
        x, bag = state
        return bag, float((self.shop.prices(x) - self.shop.value) @ bag), 0.0

    def done(self, state: list[FloatArray]) -> bool:
        return len(state) == 2


def income(shop: Shop, x: FloatArray, customer: Any) -> float:
    """Return what the shop earns from this customer with these prices."""
    bag, _, _ = customer.best(customer.advance(customer.start(x, np.random.default_rng())))
    return -shop.loss(x, bag)


def best_income(shop: Shop) -> tuple[float, FloatArray]:
    """Return the most that the shop can earn, and prices for it, by trying all whole prices.

    The customer chooses among sets of the shop's goods. To each set belong the most
    valuable free goods that still fit; they are found only once, because prices do not matter.
    """
    sets: dict[tuple[float, ...], float] = {}
    for bag in Enumeration(shop).bags:
        mine = tuple(bag[: shop.own])
        sets[mine] = max(sets.get(mine, 0.0), float(bag @ shop.value))
    prices = np.array(list(product(*(np.arange(v + 1) for v in shop.value[: shop.own]))))
    paid = prices @ np.array(list(sets)).T
    worth = np.array(list(sets.values())) - paid
    chosen: BoolArray = worth == worth.max(axis=1, keepdims=True)
    if shop.optimistic:
        incomes = np.where(chosen, paid, -np.inf).max(axis=1)
    else:
        incomes = np.where(chosen, paid, np.inf).min(axis=1)
    return float(incomes.max()), prices[incomes.argmax()]


def searched(
    problem: bilevo.Problem, runs: int, evaluations: int, seed: int = 1
) -> list[bilevo.Result]:
    """Make some runs, and return their results, the best first.

    Several runs are needed, because income is flat between jumps, and a run may end on a flat part.
    """
    seeds = range(seed, seed + runs)
    results = [bilevo.minimize(problem, max_evals=evaluations, rng=seed) for seed in seeds]
    return sorted(results, key=lambda result: result.F)


def ties(count: int) -> FloatArray:
    """Return (count, 2): what random shops earn if ties go to the shop, and if they do not.

    HiGHS computes both, and enumeration checks both.
    """
    rng, incomes = np.random.default_rng(7), []
    for _ in range(count):
        shop = Shop.random(rng)
        x = np.floor(rng.uniform(0, shop.value[: shop.own] + 1))
        for position in (shop, replace(shop, optimistic=False)):
            by_highs = income(position, x, Milp(position.packing, position.tie))
            if by_highs != income(position, x, Enumeration(position)):
                raise ArithmeticError(f"HiGHS and enumeration differ at {x} of {position}")
            incomes.append(by_highs)
    return np.array(incomes).reshape(count, 2)


def picture(path: Path, shop: Shop, x: FloatArray, incomes: FloatArray) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    asked = np.arange(shop.value[0] + 1)
    for position, style in ((shop, "o-"), (replace(shop, optimistic=False), "x--")):
        customer, label = (
            Enumeration(position),
            "to the shop" if position.optimistic else "against it",
        )
        earned = [income(position, np.array([price, *x[1:]]), customer) for price in asked]
        left.plot(asked, earned, style, label=f"ties go {label}")
    left.set(xlabel="price of the first good, the others at their best", ylabel="income")
    left.legend(frameon=False)
    right.plot(*incomes.T, ".", color="#555555", alpha=0.5)
    right.axline((0, 0), slope=1, color="#c9c9c9", linewidth=1, zorder=0)
    right.set(xlabel="income if ties go to the shop", ylabel="if they go against it")
    right.set_title(f"{len(incomes)} shops with prices at random", loc="left", fontsize=10)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    bilevo.plot.save(figure, path)


SHOP = Shop(
    value=np.array([18.0, 11, 7, 2, 4, 13, 11, 20, 13, 12, 6, 14]),
    weight=np.array([7.0, 3, 1, 1, 9, 10, 7, 8, 6, 10, 9, 1]),
    room=36.0,
    own=3,
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Set prices for a customer who packs a knapsack.")
    parser.add_argument("--small", action="store_true", help="fewer runs and fewer shops")
    parser.add_argument("--out", type=Path, default=Path(), help="directory for the picture")
    options = parser.parse_args(arguments)

    need("pictures", "matplotlib", "plot")  # fails now, not after the runs
    runs, evaluations = (1, 150) if options.small else (4, 400)
    if options.small:
        print("One short run each, which may miss the best prices:")

    found = {}
    for shop in (SHOP, replace(SHOP, optimistic=False)):
        problem = shop.problem()
        results = searched(problem, runs, evaluations)
        result, seconds = results[0], sum(each.time for each in results)
        certificate = bilevo.verify(problem, result, follower=Enumeration(shop))
        best, prices = best_income(shop)
        found[shop.optimistic] = result
        print(f"Ties go {'to the shop' if shop.optimistic else 'against it'}:")
        print(f"  bilevo      {-result.F:g} by prices {result.x} ({seconds:.1f} s)")
        print(f"  verified    {-certificate.F:g} by a customer who tries all bags")
        print(f"  all prices  {best:g} by prices {prices}")
    print(
        "If ties go to the shop, it asks for exactly what its goods add to the value of the bag.\n"
        "If ties go against it, it asks for one coin less for each good."
    )
    incomes = ties(20 if options.small else 300)
    differing = int((incomes[:, 0] > incomes[:, 1]).sum())
    print(
        f"With random prices, ties matter to {differing} of {len(incomes)} shops. A solver may\n"
        "return any of several equally good bags, so it is told which one to choose (`tie`)."
    )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "pricing.png"
    picture(path, SHOP, found[True].x, incomes)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
