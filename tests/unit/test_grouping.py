"""Differential grouping at two levels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bilevo import Problem
from bilevo.algorithms.rivals.grouping import Group, components, find_groups
from bilevo.core.budget import FullBudget
from bilevo.core.problem import Spec
from bilevo.core.request import Evaluate, Level, Values, run
from bilevo.core.space import UnitBox
from bilevo.problems import get


def groups_of(problem: Problem, seed: int = 1) -> list[Group]:
    """Find the groups of a problem by answering the requests."""
    boxes = UnitBox(problem.x_bounds), UnitBox(problem.y_bounds)
    m, n = problem.m, problem.n
    spec = Spec(m, n, seed, FullBudget.for_size(m, n), np.full(m + n, 0.3))

    def answer(request: Evaluate) -> Values:
        F, G, f, g = problem.evaluate(boxes[0].real(request.x), boxes[1].real(request.y))
        level = (F, G) if request.level is Level.UPPER else (f, g)
        return Values.of(*level, problem.repeats(request.level), len(F))

    return run(find_groups(spec), answer)


def variables(groups: list[Group]) -> list[tuple[list[int], list[int]]]:
    return [(group.x.tolist(), group.y.tolist()) for group in groups]


def made(F: Callable, f: Callable, m: int, n: int, G=None, g=None) -> Problem:
    return Problem(F, f, [(-2, 3)] * m, [(-2, 3)] * n, G, g)


APART = [([], [0]), ([], [1]), ([1], [2]), ([0], [])]
VALLEY = [([], [0, 1]), ([1], [2]), ([0], [])]
CORNER = [([], [0, 1]), ([0, 1], [2])]
EXPECTED = {
    **dict.fromkeys((1, 2, 3, 4, 7, 11), APART),
    **dict.fromkeys((5, 6, 8), VALLEY),
    **dict.fromkeys((10, 12), CORNER),
    9: [([0, 1], [0, 1, 2])],
}


@pytest.mark.parametrize("number", EXPECTED)
def test_finds_the_groups_of_smd_in_the_order_of_their_search(number: int) -> None:
    for seed in range(3):
        assert variables(groups_of(get(f"smd{number}"), seed)) == EXPECTED[number]


def test_leaders_that_share_a_followers_variable_above_stay_together() -> None:
    f = lambda x, y: float((y[0] - x[0]) ** 2 + (y[1] - x[1]) ** 2)  # noqa: E731
    apart = made(lambda x, y: float(x @ x), f, 3, 2)
    assert variables(groups_of(apart)) == [([0], [0]), ([1], [1]), ([2], [])]
    by_answer = made(lambda x, y: float((x[2] - y[0]) ** 2), f, 3, 2)
    assert variables(groups_of(by_answer)) == [([0, 2], [0]), ([1], [1])]
    by_answers = made(lambda x, y: float(y[0] * y[1]), f, 3, 2)
    assert variables(groups_of(by_answers)) == [([0, 1], [0, 1]), ([2], [])]


def test_variables_of_a_constraint_stay_together_and_others_leave_it_to_them() -> None:
    problem = made(
        lambda x, y: float(x @ x),
        lambda x, y: float((y - 1) @ (y - 1)),
        3,
        3,
        G=lambda x, y: [x[0] + x[1] - 1, 1 - x[2]],
        g=lambda x, y: [y[0] + y[1] - 1, x[2] - y[2]],
    )
    groups = groups_of(problem)
    assert variables(groups) == [([], [0, 1]), ([2], [2]), ([0, 1], [])]
    foreign = [(group.foreign_G.tolist(), group.foreign_g.tolist()) for group in groups]
    assert foreign == [
        ([True, True], [False, True]),
        ([True, False], [True, False]),
        ([False, True], [True, True]),
    ]


def test_where_evaluations_fail_variables_stay_together() -> None:
    problem = made(lambda x, y: np.nan, lambda x, y: np.nan, 2, 2)
    assert variables(groups_of(problem)) == [([0, 1], [0, 1])]


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_the_unit_of_an_objective_does_not_matter(unit: float) -> None:
    smd = get("smd5")
    scaled = Problem(
        lambda x, y: unit * smd.F(x, y), lambda x, y: unit * smd.f(x, y),
        np.transpose([smd.x_bounds.lower, smd.x_bounds.upper]),
        np.transpose([smd.y_bounds.lower, smd.y_bounds.upper]), vectorized=True,
    )  # fmt: skip
    assert variables(groups_of(scaled)) == VALLEY


def test_components_follow_chains_of_pairs() -> None:
    labels = components(6, [(0, 3), (4, 5), (3, 5)])
    assert [
        (labels == label).nonzero()[0].tolist() for label in dict.fromkeys(labels.tolist())
    ] == [
        [0, 3, 4, 5],
        [1],
        [2],
    ]
