"""Suites with whole numbers: SMD, Moore and Bard, knapsack interdiction, and roads to build."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from bilevo import minimize
from bilevo.problems import get, knapsack, roads

ITEMS = {
    "profit": [9, 7, 6, 5, 4, 3, 8, 2],
    "follower_weight": [5, 4, 3, 3, 2, 2, 5, 1],
    "leader_weight": [4, 3, 3, 2, 2, 1, 4, 1],
    "follower_capacity": 10,
    "leader_capacity": 7,
}
NETWORK: dict[str, Any] = {
    "links": [(1, 2, 4.0, 0.15, 10.0), (2, 3, 4.0, 0.15, 10.0), (1, 3, 9.0, 0.15, 15.0)],
    "demand": [(1, 3, 30.0), (1, 2, 8.0)],
    "instances": {
        "4": {
            "candidates": [
                (1, 3, 5.0, 0.15, 10.0, 6.0),
                (2, 3, 3.0, 0.15, 12.0, 3.0),
                (1, 2, 3.0, 0.15, 12.0, 3.0),
                (2, 1, 3.0, 0.15, 12.0, 1.0),
            ]
        }
    },
}


@pytest.mark.parametrize("number", range(1, 10))
def test_smd_with_whole_numbers_keeps_its_optimum(number: int) -> None:
    plain, whole = get(f"smd{number}"), get(f"smd{number}-int")
    assert whole.x_integrality.tolist() == [1, 0] and whole.y_integrality.tolist() == [1, 1, 0]
    known = plain.optimum
    assert known is not None and known.x is not None and known.y is not None
    assert whole.x_bounds.not_whole(known.x) is None and whole.y_bounds.not_whole(known.y) is None
    assert whole.evaluate(known.x, known.y)[0][0] == known.F
    with pytest.raises(ValueError, match="m=1"):
        get(f"smd{number}-int", 1, 3)


def test_moore_and_bard() -> None:
    result = minimize(get("moore-bard"), target=False)
    assert result.success and (result.x[0], result.y[0], result.F) == (2, 2, -22)


def test_a_follower_packs_the_best_items() -> None:
    follower = knapsack.interdiction(ITEMS).follower
    profit, weight = np.array(ITEMS["profit"]), np.array(ITEMS["follower_weight"])
    packs = np.array([*product([0, 1], repeat=8)])
    for x in ([0] * 8, [1, 0, 0, 1, 0, 0, 1, 0], [1] * 8):
        allowed = (packs @ weight <= 10) & (packs @ np.array(x) == 0)
        y = follower.best_items(np.array(x, float))
        assert profit @ y == (packs @ profit)[allowed].max()
        assert weight @ y <= 10 and y @ np.array(x) == 0


def test_interdiction_is_solved() -> None:
    problem = knapsack.interdiction(ITEMS)
    designs = [np.array(x, float) for x in product([0, 1], repeat=8)]
    designs = [x for x in designs if x @ np.array(ITEMS["leader_weight"]) <= 7]
    best = min(float(np.array(ITEMS["profit"]) @ problem.follower.best_items(x)) for x in designs)
    result = minimize(problem, rng=3)
    assert result.success and best == result.F


def test_a_wrong_instance_is_refused() -> None:
    with pytest.raises(ValueError, match=r"instance\['profit'\] must be whole numbers"):
        knapsack.interdiction({**ITEMS, "profit": [1.5] * 8})
    with pytest.raises(ValueError, match=r"instance\['leader_weight'\] must be 8 numbers"):
        knapsack.interdiction({**ITEMS, "leader_weight": [1]})
    with pytest.raises(ValueError, match="instance must be one of 4"):
        roads.design(NETWORK, "5", 0.5)
    with pytest.raises(ValueError, match="budget must be a part of the cost"):
        roads.design(NETWORK, "4", 50)


def test_roads_are_built_where_they_help_most() -> None:
    problem = roads.design(NETWORK, "4", 0.5)
    assert problem.x_integrality.tolist() == [1] * 4 and problem.name == "roads-4-0.5"
    cost = np.array([row[5] for row in NETWORK["instances"]["4"]["candidates"]])
    best = np.inf
    for design in product([0.0, 1.0], repeat=4):
        x = np.array(design)
        if x @ cost <= 0.5 * cost.sum():
            flow = problem.follower.settle(x).flow
            assert abs(flow[3:][x == 0]).max(initial=0.0) < 1e-9  # closed roads are empty
            best = min(best, float(problem.F(x[None], flow[None])[0]))
    result = minimize(problem)
    assert result.success and pytest.approx(best, rel=1e-7) == result.F
