"""Branches of followers: leaders that are explored, and jumps of the answer."""

from dataclasses import replace

import numpy as np
import pytest
from driven import Driven

import bilevo
from benchmarks.known.branches import Branches
from bilevo import Problem
from bilevo.algorithms.drc_plus.branches import (
    best_of_each_branch,
    descend_on_branch,
    distinct_answers,
    explore_leaders,
    has_jumped,
    has_several,
    is_between,
    jumps_between,
    locate_change,
)
from bilevo.algorithms.drc_plus.descent import LeaderView, Phi, descent
from bilevo.algorithms.drc_plus.experience import Experience, WarmTask
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.streams import stream

# The follower answers near y = 1 if x < 0, and near y = -1 if x > 0. The leader's best is at x = 0.
TWO_BRANCHES = Problem(
    lambda x, y: (x[0] - 0.5) ** 2 + (y[0] - 1) ** 2,
    lambda x, y: (y[0] ** 2 - 1) ** 2 + 0.5 * x[0] * y[0],
    [(-2, 2)],
    [(-2, 2)],
)
# For x in (0, 1) the follower answers y = 1, and for x < 0 it answers y = -1. F* = -1 at x = 0.
BETTER_HALF = Problem(
    lambda x, y: x[0] - y[0],
    lambda x, y: x[0] * y[0] ** 2 * (0.5 - y[0]),
    [(-1, 1)],
    [(-1, 1)],
)
# The follower's f is linear: y = 1 if x < 1/4, and y = 0 if x > 1/4. F jumps from 3.5 to 1.5.
LINEAR = Problem(
    lambda x, y: 2 * x[0] + y[0] * (3 - 4 * x[0]) + 1,
    lambda x, y: y[0] * (4 * x[0] - 1),
    [(0, 1)],
    [(0, 1)],
)


class Scene:
    """A problem with what a run has learnt about it."""

    def __init__(self, problem: Problem) -> None:
        self.driven = Driven(problem)
        spec = self.driven.spec()
        self.state = LeaderView(Experience.none(spec.m, spec.n))
        self.follower = WarmFollower(spec, self.state.known)

    def task(self, x: float, y: float) -> WarmTask:
        """Return the task of a local search from an answer, in unit coordinates."""
        start = self.driven.run(self.follower.at(np.array([x]), np.array([[y]])))
        task: WarmTask = self.driven.run(self.follower.search_afresh(start))
        self.driven.run(self.state.evaluate_leaders([task]))
        return task


def pair(x: float, y: float, violation: float = 0.0) -> Pair:
    return Pair(np.array([x]), np.array([y]), 0.0, violation, 0.0, violation)


def made_task(x: float, y: float, F: float) -> WarmTask:
    made = pair(x, y)
    made.F = F
    return WarmTask.of_pair(made, np.empty(0))


def test_an_answer_jumps_if_it_changes_more_than_x_explains() -> None:
    assert has_jumped(pair(0.5, 0.2), pair(0.5, 0.8))
    assert not has_jumped(pair(0.5, 0.2), pair(0.7, 0.8))
    assert has_jumped(pair(0.5, 0.2), pair(0.7, 0.8), slope=0.0)
    assert has_jumped(pair(0.5, 0.2), pair(0.5, 0.2, violation=1.0))


def test_distinct_answers_are_far_from_each_other() -> None:
    y = distinct_answers([np.array([value]) for value in (0.1, 0.9, 0.101, 0.5, 0.899)])
    assert sorted(y.ravel().tolist()) == [0.1, 0.5, 0.9]


def test_neighbours_with_different_answers_are_found_the_best_first() -> None:
    tasks = [made_task(x, y, F) for x, y, F in ((0.1, 0.2, 3), (0.9, 0.8, 1), (0.5, 0.2, 2))]
    tasks.append(made_task(0.3, 0.9, 4))
    found = [{float(one.pair.x[0]), float(other.pair.x[0])} for one, other in jumps_between(tasks)]
    assert found == [{0.9, 0.5}, {0.5, 0.3}, {0.1, 0.3}]


def test_each_branch_has_a_descent_before_any_has_two() -> None:
    tasks = [made_task(0.5, y, F) for y, F in ((0.2, 1.0), (0.21, 2.0), (0.8, 3.0))]
    assert [task.pair.F for task in best_of_each_branch(tasks, 2)] == [1.0, 3.0]
    assert [task.pair.F for task in best_of_each_branch(tasks, 3)] == [1.0, 3.0, 2.0]


def test_an_answer_in_between_shows_that_there_is_no_jump() -> None:
    middle, one_end = made_task(0.5, 0.5, 0.0), made_task(0.5, 0.2, 0.0)
    assert is_between([middle, middle], pair(0.4, 0.2), pair(0.6, 0.8))
    assert not is_between([one_end, one_end], pair(0.4, 0.2), pair(0.6, 0.8))
    assert not is_between([middle, one_end], pair(0.4, 0.2), pair(0.6, 0.8))
    assert not is_between([middle, middle], pair(0.4, 0.2), pair(0.6, 0.8, violation=1.0))


def test_a_branch_is_followed_to_where_another_becomes_better() -> None:
    scene = Scene(TWO_BRANCHES)
    own, rival = scene.task(0.6, 0.75), scene.task(0.6, 0.25)
    assert rival.pair.f < own.pair.f
    scene.state.elite = rival.pair
    found = scene.driven.run(descend_on_branch(scene.state, scene.follower, own.pair, rival.pair))
    assert found is not None
    assert found.pair.x[0] == pytest.approx(0.5, abs=1e-8)
    assert pytest.approx(0.25, abs=1e-6) == found.pair.F


def test_a_descent_along_a_branch_takes_a_small_share_of_the_budget() -> None:
    costs = []
    for upper_max in (10_000, 40):
        scene = Scene(TWO_BRANCHES)
        spec = scene.follower.spec
        spec = replace(spec, budget=replace(spec.budget, upper_max=upper_max, lower_window=10))
        own, rival = scene.task(0.6, 0.75), scene.task(0.6, 0.25)
        scene.state.elite = rival.pair
        before, follower = scene.state.total, replace(scene.follower, spec=spec)
        scene.driven.run(descend_on_branch(scene.state, follower, own.pair, rival.pair))
        costs.append(scene.state.total - before)
    assert costs[1] < costs[0] / 2


@pytest.mark.parametrize(("problem", "x", "F"), [(TWO_BRANCHES, 0.5, 0.25), (LINEAR, 0.25, 1.5)])
def test_a_jump_is_located(problem: Problem, x: float, F: float) -> None:
    scene = Scene(problem)
    one, other = scene.task(0.1, 0.9), scene.task(0.8, 0.1)
    scene.state.elite = one.pair
    best = scene.driven.run(locate_change(scene.state, scene.follower, one, other))
    assert best.pair.x[0] == pytest.approx(x, abs=1e-9)
    assert pytest.approx(F, abs=1e-6) == best.pair.F


def test_a_continuous_change_of_the_answer_costs_one_bisection() -> None:
    scene = Scene(Problem(lambda x, y: y[0], lambda x, y: (y[0] - x[0]) ** 2, [(0, 1)], [(0, 1)]))
    one, other = scene.task(0.1, 0.1), scene.task(0.9, 0.9)
    scene.state.elite = one.pair
    before = scene.driven.counts.copy()
    scene.driven.run(locate_change(scene.state, scene.follower, one, other))
    assert sum(scene.driven.counts.values()) - sum(before.values()) < 30


def test_explored_leaders_have_their_followers_answers() -> None:
    scene = Scene(BETTER_HALF)
    rng = stream(1, "explore")
    scene.state.known.learn(scene.task(0.1, 0.0).pair)
    tasks, _ = scene.driven.run(explore_leaders(scene.state, scene.follower, rng))
    for task in tasks:
        right = 1.0 if task.pair.x[0] > 0.5 else 0.0
        assert task.pair.y[0] == pytest.approx(right, abs=1e-6)
    assert {float(task.pair.y[0]) > 0.5 for task in tasks} == {True, False}


@pytest.mark.parametrize(("several", "leaders"), [(False, 8), (True, 16)])
def test_fewer_leaders_are_looked_at_if_followers_have_one_answer(
    several: bool, leaders: int
) -> None:
    one = Problem(lambda x, y: y[0], lambda x, y: (y[0] - x[0]) ** 2, [(0, 1)], [(0, 1)])
    scene = Scene(BETTER_HALF if several else one)
    scene.state.known.learn(scene.task(0.1, 0.1).pair)
    rng = stream(1, "explore")
    tasks, found = scene.driven.run(explore_leaders(scene.state, scene.follower, rng))
    assert found == several and len(tasks) == leaders


def test_a_search_with_constraints_solves_no_follower_again() -> None:
    problem = Problem(
        lambda x, y: x[0] + y[0],
        lambda x, y: (y[0] - x[0]) ** 2,
        [(0, 1)],
        [(0, 1)],
        G=lambda x, y: 0.5 - x[0],
    )
    scene = Scene(problem)
    task = scene.task(0.3, 0.3)
    scene.state.elite = task.pair
    scene.state.known.learn(task.pair)
    phi, rows = Phi(scene.state, scene.follower), np.array([[0.2], [0.21]])
    relaxed = scene.driven.run(phi(rows))
    before, phi.relaxed = dict(scene.driven.counts), False
    values = scene.driven.run(phi(rows))
    assert scene.driven.counts == before and (values.objective == relaxed.objective).all()
    assert relaxed.violation.tolist() == [0.0, 0.0]
    assert values.violation == pytest.approx([0.3, 0.29])


def ended(y: float, f: float, solved: bool) -> WarmTask:
    """Return the task of a search of y that has ended, settled or not."""
    made = Pair(np.array([0.5]), np.array([y]), f, 0.0)
    return replace(WarmTask.of_pair(made, np.empty(0)), solved=solved)


def test_a_follower_has_several_answers_if_settled_searches_end_apart() -> None:
    follower = Scene(BETTER_HALF).follower
    assert not has_several(follower, [ended(0.2, 1.0, True), ended(0.9, 2.0, False)])
    assert has_several(follower, [ended(0.2, 1.0, True), ended(0.9, 2.0, True)])
    assert has_several(follower, [ended(0.2, 1.0, False)])


def test_a_long_search_that_ends_beside_a_settled_one_is_no_second_answer() -> None:
    follower = Scene(BETTER_HALF).follower
    assert not has_several(follower, [ended(0.201, 0.9, False), ended(0.2, 1.0, True)])
    assert has_several(follower, [ended(0.5, 0.9, False), ended(0.2, 1.0, True)])


@pytest.mark.rest
def test_a_descent_may_start_where_the_follower_has_no_feasible_answer() -> None:
    """The follower needs x[0] >= 0.6 for its constraint y >= 1.6 - x[0] within y <= 1."""
    problem = Problem(
        lambda x, y: x[0] + (x[1] - 0.3) ** 2,
        lambda x, y: y[0],
        [(0, 1), (0, 1)],
        [(0, 1)],
        g=lambda x, y: [1.6 - x[0] - y[0]],
    )
    scene = Scene(problem)
    start = scene.driven.run(scene.follower.at(np.array([0.2, 0.9]), np.array([[0.5]])))
    start = scene.driven.run(scene.follower.search_afresh(start))
    scene.driven.run(scene.state.evaluate_leaders([start]))
    assert start.pair.lower_violation > 0
    scene.state.elite = start.pair
    scene.state.known.learn(start.pair)
    scene.driven.run(descent(scene.state, scene.follower, start.pair))
    assert scene.state.the_elite.violation == 0
    assert scene.state.the_elite.x == pytest.approx([0.6, 0.3], abs=1e-4)


@pytest.mark.rest
@pytest.mark.parametrize("seed", [21])
def test_the_better_branch_is_found(seed: int) -> None:
    result = bilevo.minimize(TWO_BRANCHES, rng=seed)
    assert pytest.approx(0.25, abs=1e-4) == result.F
    result = bilevo.minimize(BETTER_HALF, rng=seed)
    assert pytest.approx(-1.0, abs=1e-4) == result.F


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(31, 41))
def test_the_better_branch_is_found_with_other_seeds(seed: int) -> None:
    test_the_better_branch_is_found(seed)


def test_the_grid_finds_what_a_finer_one_finds() -> None:
    for index in range(4):
        known = Branches.random(index, 5)
        rng = np.random.default_rng(index)
        x = rng.uniform(-1, 1, (2000, known.m))
        assert known.best() <= known.phi(x).min() + 1e-9
        minima = known.minima(x[:50])
        for y in rng.uniform(-1.5, 1.5, (500, known.n)):
            f = np.array([known.f(x[:50], near) for near in minima]).min(axis=0)
            assert (f <= known.f(x[:50], np.repeat(y[None], 50, axis=0)) + 1e-9).all()


def is_right(index: int, seed: int) -> bool:
    """Solve a random problem with branches; an answer with success has a right follower."""
    known, best = Branches.random(index, seed), Branches.random(index, seed).best()
    result = bilevo.minimize(known.problem, rng=seed + index)
    x = result.x[None]
    lowest = min(float(known.f(x, y)[0]) for y in known.minima(x))
    right = result.f - lowest < 1e-8
    assert right or not result.success
    return right and best + 1e-4 * (1 + abs(best)) >= result.F


@pytest.mark.parametrize("index", [0, 4])
def test_a_problem_with_branches_is_solved(index: int) -> None:
    assert is_right(index, seed=4001)


@pytest.mark.slow
def test_nearly_all_problems_with_branches_are_solved() -> None:
    assert sum(is_right(index, seed=4001) for index in range(40)) >= 38
