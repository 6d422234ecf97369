"""TLEA: rounds of all lower searches, and transfer between them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import minimize_counted

import bilevo
from bilevo.algorithms import TLEA, TLEADE
from bilevo.algorithms.rivals.tlea import (
    BalancedCMAES,
    TransferDE,
    has_stalled,
    nearest,
    task_distances,
)
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch, Pair
from bilevo.core.budget import Scale
from bilevo.core.order import ranking
from bilevo.optimizers import CMAES, Start
from bilevo.optimizers.success import NEVER, Memory

EYE = np.eye(2)


def search(x: float, y: float, record: list[float], finished: bool = False) -> FollowerSearch:
    """Return a lower search of two variables around (y, y) with the given record of best values."""
    x_point, y_point = np.full(2, x), np.full(2, y)
    state = CMAES().start(Start(y_point, EYE * (1 + y), np.zeros(2)))
    rule = FollowerRule(window=4, longest=40)
    follower = FollowerSearch(x_point, CMAES(), state, np.random.default_rng(1), rule, Scale())
    follower.best = Pair(x_point, y_point, record[-1], 0.0)
    follower.record, follower.finished = record, finished
    return follower


STALLED, MOVING = [4.0, 2.0, 1.0, 1.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0]


def test_a_search_stalls_when_f_stands_for_two_generations_past_the_window() -> None:
    assert has_stalled(search(0.5, 0.5, STALLED))
    assert not has_stalled(search(0.5, 0.5, MOVING))
    assert not has_stalled(search(0.5, 0.5, [4.0, 1.0, 1.0, 1.0]))


def test_a_stalled_search_takes_over_from_near_ones_that_have_ended() -> None:
    target = search(0.5, 0.5, STALLED)
    near, far = search(0.51, 0.6, MOVING, True), search(0.6, 0.9, MOVING, True)
    farthest = search(0.9, 0.1, MOVING, True)
    before = target.search.mean.copy(), target.search.C.copy()
    TLEA().transfer([farthest, far, near, target], [target])
    shares = nearest(task_distances([target, near, far])[0], 0)[1]
    a = [1.0, *TLEA().transfer_weights(shares)]
    weights = (np.array(a) / sum(a)).tolist()
    sources = [(target, before), (near, None), (far, None)]
    means = [old[0] if old else s.search.mean for s, old in sources]
    np.testing.assert_allclose(
        target.search.mean, sum(w * mean for w, mean in zip(weights, means, strict=True))
    )
    assert target.search.sigma == 1.0 and not target.search.p_c.any()
    assert np.trace(before[1]) < np.trace(target.search.C) < np.trace(far.search.C)


def test_nothing_comes_from_searches_that_go_on() -> None:
    target = search(0.5, 0.5, STALLED)
    others = [search(0.51, 0.6, MOVING), search(0.6, 0.9, STALLED), search(0.9, 0.1, MOVING, True)]
    TLEA().transfer([target, *others], [target])
    assert (target.search.mean == 0.5).all() and (target.search.C == 1.5 * EYE).all()


def test_equal_leaders_with_equal_answers_share_equally() -> None:
    target, twin = search(0.5, 0.5, STALLED), search(0.5, 0.5, STALLED, True)
    twin.search.mean[:] = 0.7
    TLEA().transfer([target, twin, search(0.5, 0.5, MOVING)], [target])
    np.testing.assert_allclose(target.search.mean, 0.6)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5])
def test_the_farther_neighbour_weighs_at_most_a_tenth(share: float) -> None:
    near, far = TLEA().transfer_weights(np.array([share, 1 - share]))
    assert far <= 0.1 and far <= near <= 1


def test_answers_count_for_distances_late_in_a_search() -> None:
    def ratio(rounds: int) -> float:
        tasks = [search(0.5, y, [1.0] * rounds) for y in (0.1, 0.9)]
        tasks.append(search(0.6, 0.1, [1.0] * rounds))
        distances = task_distances(tasks)
        return float(distances[0, 1] / distances[0, 2])

    assert 0 < ratio(5) < ratio(20) < ratio(40)


def test_infeasible_points_are_ordered_by_objective_and_violation() -> None:
    values = np.array([3.0, 1.0, -9.0]), np.array([0.3, 0.4, 0.5])
    assert ranking(*BalancedCMAES().ranked_by(*values)).tolist() == [2, 1, 0]
    assert ranking(*values).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("objective", "violation"),
    [
        ([3.0, 1.0, -9.0], [0.3, 0.4, 0.0]),
        ([300.0, 1.0, -9.0], [0.3, 0.4, 0.5]),
        ([3.0, 1.0, np.inf], [0.3, 0.4, np.inf]),
        ([1.7e308, 1.7e308, -9.0], [0.3, 0.4, 0.5]),
    ],
)
def test_deb_orders_where_something_is_feasible_failed_or_far_larger(objective, violation) -> None:
    points = np.array(objective), np.array(violation)
    assert ranking(*BalancedCMAES().ranked_by(*points)).tolist() == ranking(*points).tolist()


def test_all_searches_of_a_generation_share_a_batch() -> None:
    sizes: list[int] = []

    def f(x, y):
        sizes.append(len(x))
        return ((y - x) ** 2).sum(axis=1)

    bilevo.minimize(
        lambda x, y: (x**2).sum(axis=1), f, [(-5, 10)] * 2, [(-5, 10)] * 2,
        method="tlea-cma-es", vectorized=True, max_evals=2000, target=False,
    )  # fmt: skip
    assert sizes[:4] == [48] * 4  # 8 leaders, 6 points each


def test_solves_smd1_with_the_published_evaluations() -> None:
    result = minimize_counted(bilevo.problems.get("smd1"), method="tlea-cma-es", rng=3)
    assert result.status == "target"
    assert result.nfev_upper == pytest.approx(315, rel=0.25)
    assert result.nfev_lower == pytest.approx(20400, rel=0.25)


def test_de_transfers_its_memory_of_settings() -> None:
    optimizer, rng = TransferDE(), np.random.default_rng(1)
    states = [optimizer.start(Start(np.full(2, 0.5), EYE, np.zeros(2)), rng) for _ in range(3)]
    for state, value in zip(states, (0.2, 0.6, 1.0), strict=True):
        state.memory = Memory.of(6, value)
    states[0].memory.CR[0] = NEVER
    points = states[0].points.copy()
    optimizer.mix(states[0], 0.5, states[1:], [0.3, 0.2])
    np.testing.assert_allclose(states[0].memory.F, 0.48)
    np.testing.assert_allclose(states[0].memory.CR, [NEVER, *[0.48] * 5])
    assert (states[0].points == points).all() and (states[1].memory.F == 0.6).all()


def test_de_weighs_neighbours_by_how_much_they_differ() -> None:
    weights = [TLEADE().transfer_weights(np.array([a, 1 - a])) for a in (0.45, 0.35, 0.1)]
    exponents = [math.log(near) / math.log(1 + math.tan(math.pi * a / 2)) for (near, _), a in
                 zip(weights, (0.45, 0.35, 0.1), strict=True)]  # fmt: skip
    np.testing.assert_allclose(exponents, [-3, -2, -1])


def test_solves_smd1_with_de_below() -> None:
    result = minimize_counted(bilevo.problems.get("smd1"), method="tlea-de", rng=3)
    assert result.status == "target" and result.nfev_lower < 30_000
    assert max(max(row.executions) for row in result.history) <= 16  # 15 rounds and the start


def test_refuses_what_is_no_optimizer() -> None:
    with pytest.raises(ValueError, match="optimizer"):
        TLEA(tasks="cma-es")


def test_only_the_default_settings_have_the_registered_name() -> None:
    assert TLEA().name == "tlea-cma-es" and TLEA(lower=CMAES()).name == "tlea-cma-es-variant"
    assert TLEADE().name == "tlea-de" and TLEADE(lower=CMAES()).name == "tlea-de-variant"
