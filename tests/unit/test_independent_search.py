"""Searches of the follower's box that know nothing of a run, and the tolerances of f."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilevo.algorithms.shared.independent_search import (
    APART_STARTS,
    PLANS,
    Effort,
    Found,
    basin_points,
    independent_search,
)
from bilevo.algorithms.shared.polish import End, polish
from bilevo.algorithms.shared.surroundings import look_around
from bilevo.core import tolerances
from bilevo.core.request import Evaluate, Level, Values, run
from bilevo.core.streams import stream


class Follower:
    """A function of y, evaluated by requests."""

    def __init__(self, f, g=None) -> None:
        self.f, self.g, self.count = f, g, 0

    def at(self, rows):
        return (yield Evaluate(Level.LOWER, np.empty((len(rows), 0)), rows))

    def answer(self, request) -> Values:
        rows = request.y
        self.count += len(rows)
        assert (rows >= 0).all() and (rows <= 1).all()
        constraints = np.array([self.g(y) for y in rows]) if self.g else np.empty((len(rows), 0))
        return Values.of(np.array([self.f(y) for y in rows]), constraints, 0, self.count)

    def search(self, n: int, effort: Effort = Effort.LOW, seed: int = 1, **options) -> Found:
        starts = options.pop("starts", np.full((1, n), 0.9))
        rng = stream(seed, "test")
        return run(independent_search(self.at, n, rng, effort, starts, **options), self.answer)

    def end(self, y) -> End:
        y = np.array(y, float)
        return End(y, self.answer(Evaluate(Level.LOWER, np.empty((1, 0)), y[None])))


def valley(k: float):
    """Rosenbrock's function in the unit box; its minimum is 0 at (0.8, 0.64)."""
    return lambda y: k * (y[1] - y[0] ** 2) ** 2 + (y[0] - 0.8) ** 2


def rotated(k: float, n: int = 3):
    axes = np.linalg.qr(np.random.default_rng(3).standard_normal((n, n)))[0]
    return lambda y: float(np.geomspace(1, k, n) @ (axes @ (y - 0.37)) ** 2)


HARD = {
    "a curved valley": (2, valley(1e4), 0.0),
    "a very curved valley": (2, valley(1e6), 0.0),
    "stiff": (2, lambda y: 1e12 * (y[0] - 0.4) ** 2 + (y[1] - 0.4) ** 2, 0.0),
    "stiff and rotated": (3, rotated(1e8), 0.0),
    "a kink": (2, lambda y: abs(y[0] - 0.3) + 5 * abs(y[1] - y[0]), 0.0),
    "a penalty": (1, lambda y: (y[0] - 0.4) ** 2 + 1e12 * max(0, abs(y[0] - 0.4) - 0.2) ** 2, 0.0),
    "a large constant": (2, lambda y: 1e8 + float((y - 0.4) @ (y - 0.4)), 1e8),
    "constant": (2, lambda y: 1.0, 1.0),
}


@pytest.mark.rest
@pytest.mark.parametrize("effort", [Effort.LOW, Effort.NORMAL])
@pytest.mark.parametrize("name", HARD)
def test_hard_followers_are_solved_to_the_last_digits(name: str, effort: Effort) -> None:
    n, f, best = HARD[name]
    found = Follower(f).search(n, effort)
    assert found.best.f == pytest.approx(best, abs=1e-8, rel=1e-15)
    assert found.complete and found.made == found.planned > 1


def test_constraints_are_kept_and_a_thin_feasible_set_is_found() -> None:
    def g(y):
        s = y[0] - y[1] ** 2 - 0.1
        return [s - 1e-3, -s - 1e-3]

    found = Follower(lambda y: y[0] + 2 * y[1], g).search(2)
    assert found.best.violation == 0 and found.best.f == pytest.approx(0.099, abs=1e-8)


def test_the_start_counts_as_one_of_the_searches() -> None:
    deep = 0.123456

    def f(y):  # a hole that nothing else would find
        return float((y[0] - 0.7) ** 2) - 10 * max(0.0, 1 - ((y[0] - deep) / 1e-7) ** 2)

    without = Follower(f).search(1)
    assert without.best.f > -1
    assert Follower(f).search(1, starts=np.array([[deep + 5e-8]])).best.f < -7


def test_a_list_that_is_passed_in_is_filled_while_searches_run() -> None:
    follower, found = Follower(lambda y: float((y - 0.4) @ (y - 0.4))), Found()

    class Enough(Exception):  # noqa: N818
        pass

    def answer(request):
        if found.made:
            raise Enough
        return follower.answer(request)

    search = independent_search(
        follower.at, 2, stream(1, "test"), Effort.NORMAL, np.empty((0, 2)), found
    )
    with pytest.raises(Enough):
        run(search, answer)
    assert 0 < found.made < found.planned and not found.complete


@pytest.mark.rest
def test_more_effort_costs_more_and_the_same_seed_repeats() -> None:
    costs = []
    for effort in Effort:
        one, other = Follower(valley(10)), Follower(valley(10))
        first, again = one.search(2, effort), other.search(2, effort)
        assert (first.best.y == again.best.y).all() and one.count == other.count
        costs.append(one.count)
    assert costs == sorted(costs) and costs[0] > PLANS[Effort.LOW].points


@given(st.integers(1, 4), st.integers(0, 1000))
def test_the_best_point_is_always_a_basin(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, f = rng.random((30, n)), rng.integers(0, 5, 30).astype(float)
    values = Values(f, np.zeros(30), np.empty((30, 0)), 0)
    chosen = basin_points(points, values, 0, 6)
    assert f[chosen[0]] == f.min() and 3 <= len(chosen) <= 6
    assert len(set(chosen.tolist())) == len(chosen)


def test_few_starts_are_enough_where_no_constraint_divides_a_basin() -> None:
    points = np.linspace(0, 1, 50)[:, None]
    f = (points[:, 0] - 0.3) ** 2
    values = Values(f, np.zeros(50), np.empty((50, 0)), 0)
    assert len(basin_points(points, values, 0, 20, 3)) == 3
    assert len(basin_points(points, values, 0, 20)) == 10
    divided = values._replace(violation=np.where(points[:, 0] > 0.8, 1.0, 0.0))
    assert len(basin_points(points, divided, 0, 20, 3)) == 10


def test_all_basins_that_points_show_are_starts_even_if_few_are_enough() -> None:
    points = np.linspace(0, 1, 200)[:, None]
    f = np.cos(40 * np.pi * points[:, 0])
    values = Values(f, np.zeros(200), np.empty((200, 0)), 0)
    assert len(basin_points(points, values, 0, 60, 3)) >= 20


def test_where_constraints_divide_the_box_starts_are_far_apart() -> None:
    points = np.random.default_rng(3).random((60, 2))
    near = np.linalg.norm(points - 0.1, axis=1)  # only the points in one corner are feasible
    values = Values(near, np.maximum(near - 0.2, 0.0), np.empty((60, 0)), 0)
    chosen = points[basin_points(points, values, 0, 6)]
    assert len(chosen) == APART_STARTS
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert (np.linalg.norm(corners[:, None] - chosen, axis=2).min(axis=1) < 0.4).all()


def test_polishing_leaves_a_false_minimum_that_a_poll_can_leave() -> None:
    follower = Follower(lambda y: abs(y[0] - 0.5) + 0.2 * math.cos(80 * y[0]))
    start = follower.end([0.5 + 0.05])
    assert run(polish(follower.at, start), follower.answer).f < start.f


@given(st.floats(1e-8, 1e8), st.floats(0.1, 0.9), st.sampled_from([0.0, 1.0, -7.0]))
def test_the_scale_of_a_parabola_is_its_change_over_the_box(k, centre, offset) -> None:
    follower = Follower(lambda y: offset * k + k * (y[0] - centre) ** 2)
    around = run(look_around(follower.at, follower.end([centre])), follower.answer)
    assert around.scale == pytest.approx(k, rel=0.01)
    assert not len(around.level) and not len(around.unresolved)


@given(st.floats(1, 1e14))
def test_a_stiff_variable_does_not_set_the_scale(k: float) -> None:
    follower = Follower(lambda y: k * (y[0] - 0.5) ** 2 + (y[1] - 0.5) ** 2)
    around = run(look_around(follower.at, follower.end([0.5, 0.5])), follower.answer)
    assert around.scale == pytest.approx(1, rel=0.01)


def test_a_level_f_has_no_scale_and_a_flat_direction_is_left_out() -> None:
    for f, scale in ((lambda y: 2.0, 0.0), (lambda y: 2.0 + (y[0] - 0.5) ** 2, 1.0)):
        follower = Follower(f)
        around = run(look_around(follower.at, follower.end([0.5, 0.5])), follower.answer)
        assert around.scale == pytest.approx(scale, rel=0.01) and len(around.level)
        assert around.negligible >= tolerances.rounding(2.0)


@pytest.mark.parametrize(("offset", "hidden"), [(1.0, 0.0), (1e4, 0.0), (1e10, 3e-3), (1e13, 0.09)])
def test_what_rounding_hides_is_known(offset: float, hidden: float) -> None:
    follower = Follower(lambda y: offset + (y[0] - 0.5) ** 2)
    around = run(look_around(follower.at, follower.end([0.5])), follower.answer)
    away = np.abs(around.unresolved - 0.5).max(initial=0.0)
    assert away == pytest.approx(hidden, rel=0.3)
