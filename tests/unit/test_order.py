"""Deb's order."""

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bilevo.core.order import best_index, no_worse, ranking

members = st.lists(
    st.tuples(st.floats(-1e3, 1e3), st.sampled_from([0.0, 0.0, 0.5, 2.0, math.inf])),
    min_size=1,
    max_size=12,
)


def arrays(pairs):
    objective, violation = (np.array(column) for column in zip(*pairs, strict=True))
    return np.where(np.isinf(violation), np.inf, objective), violation


@given(members)
def test_ranking_agrees_with_pairwise_comparison(pairs) -> None:
    objective, violation = arrays(pairs)
    order = ranking(objective, violation)
    assert sorted(order) == list(range(len(pairs)))
    assert best_index(objective, violation) == order[0]
    for better, worse in pairwise(order):
        assert no_worse(objective[better], violation[better], objective[worse], violation[worse])


@given(members, members)
def test_no_worse_is_total_and_prefers_feasible(first, second) -> None:
    a, b = arrays(first), arrays(second)
    one, two = (a[0][0], a[1][0]), (b[0][0], b[1][0])
    assert no_worse(*one, *two) or no_worse(*two, *one)
    if one[1] == 0 < two[1]:
        assert no_worse(*one, *two) and not no_worse(*two, *one)


def test_ties_keep_their_order_and_failures_come_last() -> None:
    objective = np.array([1.0, np.inf, 1.0, 0.0, 5.0])
    violation = np.array([0.0, np.inf, 0.0, 0.0, 2.0])
    assert ranking(objective, violation).tolist() == [3, 0, 2, 4, 1]
