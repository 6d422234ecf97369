"""The local search by sequential quadratic programming."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from bilevo.algorithms.shared.differences import Iterate
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd, sqp
from bilevo.algorithms.shared.sqp_model import Model
from bilevo.core.request import Level, Procedure, Values, evaluate, run
from bilevo.problems import get

Function = Callable[[np.ndarray], float]


def at(rows: np.ndarray) -> Procedure[Values]:
    return evaluate(Level.LOWER, np.zeros((len(rows), 1)), rows)


class Driver:
    """Answers a search's requests and counts its points."""

    def __init__(
        self,
        f: Function,
        g: Callable[[np.ndarray], list[float]] | None = None,
        tolerance: float | None = None,
    ) -> None:
        self.f, self.g, self.tolerance = f, g, tolerance
        self.batches: list[int] = []

    def values(self, rows: np.ndarray) -> Values:
        assert rows.min() >= 0 and rows.max() <= 1
        self.batches.append(len(rows))
        constraints = np.array([self.g(row) if self.g else [] for row in rows])
        allowed = None if self.tolerance is None else np.full(constraints.shape[1], self.tolerance)
        return Values.of(np.array([self.f(row) for row in rows]), constraints, 0, 0, allowed)

    def run(
        self,
        start: list[float],
        max_points: int = 500,
        low: float = 0.0,
        high: float = 1.0,
        **rule: float,
    ) -> SearchEnd:
        d = len(start)
        box = np.full(d, low), np.full(d, high)
        steps = sqp(at, np.array(start), *box, LocalRule(max_points, **rule))
        end = run(steps, lambda request: self.values(request.y))
        assert end.points == sum(self.batches) <= max_points
        return end


def sphere(u: np.ndarray) -> float:
    return float(((u - 0.3) ** 2).sum())


def rosenbrock(u: np.ndarray) -> float:
    z = 4 * u - 1
    return float((100 * (z[1:] - z[:-1] ** 2) ** 2 + (z[:-1] - 1) ** 2).sum())


def test_solves_a_sphere_with_its_first_step() -> None:
    driver = Driver(sphere)
    answer = driver.run([0.9, 0.1, 0.5])
    assert answer.converged and answer.objective < 1e-14
    assert driver.batches == [1, 6, 1, 3]  # the start, its neighbours, one step, neighbours


@pytest.mark.parametrize(("d", "most"), [(2, 150), (5, 350)])
def test_follows_a_curved_valley(d: int, most: int) -> None:
    answer = Driver(rosenbrock).run([0.1] * d, max_points=most)
    assert answer.converged and answer.objective < 1e-8
    assert answer.point == pytest.approx(0.5, abs=1e-4)


def test_a_trusting_search_follows_a_narrow_smooth_valley_as_fast_as_another() -> None:
    def valley(u: np.ndarray) -> float:
        z = 20 * u - 10
        return float((1000 * (z[1:] - z[:-1] ** 2) ** 2 + (z[:-1] - 1) ** 2).sum())

    points = {}
    for trusting in (False, True):
        starts = 0.5 + 0.1 * np.random.default_rng(3).uniform(-1, 1, (6, 3))
        ends = [
            Driver(valley).run(list(start), 3000, trusting=trusting, smooth=True)
            for start in starts
        ]
        assert all(end.objective < 1e-4 for end in ends)
        points[trusting] = sum(end.points for end in ends)
    assert points[True] < 2.5 * points[False]


def test_a_search_that_requests_neighbours_early_goes_the_same_way_in_fewer_requests() -> None:
    usual, wide = Driver(rosenbrock), Driver(rosenbrock)
    one = usual.run([0.1] * 5, max_points=2000, smooth=True)
    other = wide.run([0.1] * 5, max_points=2000, smooth=True, ahead=True)
    assert other.converged and (other.point == one.point).all()
    assert len(wide.batches) < 0.8 * len(usual.batches)
    assert other.points < 1.2 * one.points


def test_curvatures_are_requested_early_too() -> None:
    requests, points = {}, {}
    for ahead in (False, True):
        requests[ahead] = points[ahead] = 0
        for start in np.random.default_rng(2).random((10, 5)):
            driver = Driver(rosenbrock)
            end = driver.run(list(start), 2000, trusting=True, ahead=ahead)
            requests[ahead] += len(driver.batches)
            points[ahead] += end.points
    assert requests[True] < 0.95 * requests[False] and points[True] < 1.2 * points[False]


def test_neighbours_are_requested_early_up_to_the_last_point() -> None:
    for most in range(2, 60):
        assert Driver(rosenbrock).run([0.1] * 3, max_points=most, ahead=True).points <= most


def test_huge_values_are_no_error() -> None:
    def huge(u: np.ndarray) -> float:
        return 1e200 * (sphere(u) + 0.01 * float((u**3).sum()))

    answer = Driver(huge).run([0.9, 0.1, 0.5], trusting=True, smooth=True)
    assert answer.objective < huge(np.full(3, 0.3)) < huge(np.full(3, 0.35))


def test_needs_few_points_for_the_follower_of_smd1() -> None:
    problem, rng = get("smd1"), np.random.default_rng(3)
    bounds, points = problem.y_bounds, []
    for _ in range(9):
        x = problem.x_bounds.lower + rng.random(problem.m) * problem.x_bounds.width

        def f(u: np.ndarray, x: np.ndarray = x) -> float:
            return float(problem.evaluate(x, bounds.lower + u * bounds.width)[2][0])

        answer = Driver(f).run(rng.random(problem.n).tolist())
        assert problem.response is not None
        best = problem.evaluate(x, problem.response(x[None]))[2][0]
        assert answer.objective == pytest.approx(best, abs=1e-8)
        points.append(answer.points)
    assert np.median(points) <= 80


def test_rests_on_active_bounds() -> None:
    answer = Driver(lambda u: float((u[0] - 2) ** 2 + 3 * u[1] + (u[2] - 0.4) ** 2)).run([0.5] * 3)
    assert answer.converged
    assert answer.point == pytest.approx([1.0, 0.0, 0.4], abs=1e-7)


def test_stays_in_a_box_of_its_own() -> None:
    answer = Driver(sphere).run([0.5, 0.55], low=0.45, high=0.6)
    assert answer.point.tolist() == [0.45, 0.45]


def test_moves_to_the_far_corner_of_a_linear_objective() -> None:
    answer = Driver(lambda u: float(u @ [1.0, -2.0])).run([0.5, 0.5])
    assert answer.point == pytest.approx([0.0, 1.0], abs=1e-12)
    assert answer.points <= 12


def test_ends_on_a_linear_constraint_without_violating_it() -> None:
    driver = Driver(sphere, lambda u: [1.0 - u[0] - u[1], u[0] - 0.95])
    answer = driver.run([0.9, 0.9])
    assert answer.converged and answer.violation == 0
    assert answer.point == pytest.approx([0.5, 0.5], abs=1e-8)


@pytest.mark.parametrize("start", [0.3, 0.3 + 1e-9, 0.3 + 1e-7])
@pytest.mark.parametrize("f", [sphere, lambda u: 1.0])
def test_leaves_an_infeasible_start_at_which_nothing_pulls(f, start) -> None:
    answer = Driver(f, lambda u: [0.7 - u[0]]).run([start, 0.3])
    assert answer.converged and answer.violation == 0
    if f is sphere:
        assert answer.point == pytest.approx([0.7, 0.3], abs=1e-6)


def test_does_not_call_an_infeasible_end_converged() -> None:
    answer = Driver(sphere, lambda u: [0.7 - u[0], u[0] - 0.6]).run([0.5, 0.5])
    assert answer.violation > 0 and not answer.converged


def test_ends_on_a_curved_constraint_without_violating_it() -> None:
    # From an infeasible start; the optimum is where the circle's normal is (1, 2).
    driver = Driver(
        lambda u: float(-u[0] - 2 * u[1]), lambda u: [float(u @ u) - 0.25, 0.1 - u[0] * u[1]]
    )
    answer = driver.run([0.9, 0.8])
    assert answer.converged and answer.violation == 0
    assert answer.point == pytest.approx(np.array([1, 2]) / math.sqrt(20), abs=1e-4)
    assert answer.objective == pytest.approx(-math.sqrt(5) / 2, abs=1e-7)


def test_violates_contradictory_constraints_as_little_as_it_can() -> None:
    answer = Driver(sphere, lambda u: [0.8 - u[0], u[0] - 0.6]).run([0.1, 0.2])
    assert answer.violation == pytest.approx(0.2, abs=1e-6)
    assert answer.point[1] == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e308])
def test_passes_a_region_that_fails(bad: float) -> None:
    def f(u: np.ndarray) -> float:
        return bad if 0.55 < u[0] < 0.85 else sphere(u)

    answer = Driver(f).run([0.5499999999, 0.9])
    assert answer.objective < 1e-9


def test_passes_failures_of_one_point_in_five() -> None:
    def f(u: np.ndarray) -> float:
        return math.nan if math.modf(math.pi * 1e9 * float(u.sum()))[0] < 0.2 else sphere(u)

    answers = [Driver(f).run([start] * 3) for start in np.linspace(0.5, 0.9, 9)]
    answers = [answer for answer in answers if answer.points > 1]  # the start did not fail
    assert len(answers) > 4
    assert np.median([answer.objective for answer in answers]) < 1e-8


def test_stays_in_the_box_when_neighbours_at_a_bound_fail() -> None:
    # The driver checks the box; the first step leads to the bounds, whose neighbours fail.
    answer = Driver(lambda u: -u.sum() if u.min() == 1 or u.max() < 0.99 else math.nan).run(
        [0.5] * 2
    )
    assert answer.objective <= -1.9


def test_gives_back_a_start_that_fails() -> None:
    driver = Driver(lambda u: math.nan)
    answer = driver.run([0.5, 0.5])
    assert not answer.converged and answer.objective == math.inf
    assert driver.batches == [1]


def test_gives_back_a_start_on_a_plateau() -> None:
    answer = Driver(lambda u: 3.0).run([0.25, 0.5])
    assert answer.converged and answer.objective == 3.0


@pytest.mark.parametrize("max_points", range(1, 30))
def test_never_exceeds_its_points(max_points: int) -> None:
    answer = Driver(rosenbrock).run([0.1] * 3, max_points=max_points)
    assert answer.objective <= rosenbrock(np.full(3, 0.1))


@pytest.mark.parametrize("trusting", [False, True])
@pytest.mark.parametrize("start", [[0.9, 0.8, 0.1], [0.1, 0.5, 0.6], [0.5, 0.05, 0.9]])
def test_meets_equalities_written_as_two_inequalities(start: list[float], trusting: bool) -> None:
    """A linear objective on a hyperbola and a plane, of which one is given twice."""

    def g(u: np.ndarray) -> list[float]:
        curve, plane = 16 * u[0] * u[1] - 1, u[2] - u[0]
        return [curve, -curve, plane, -plane, -2 * plane, 2 * plane, 0.01 - u[0]]

    answer = Driver(lambda u: float(u[0] + u[1]), g, tolerance=1e-9).run(
        start, 300, trusting=trusting
    )
    assert answer.converged and answer.violation == 0
    assert answer.point == pytest.approx(0.25, abs=1e-5)
    assert max(g(answer.point)) <= 1e-9


def test_feasible_points_are_not_better_because_they_use_up_the_tolerance() -> None:
    """On u0 + u1 = 1, f falls by as much as the constraint is exceeded."""

    def g(u: np.ndarray) -> list[float]:
        return [u[0] + u[1] - 1, 1 - u[0] - u[1]]

    driver = Driver(lambda u: float(((u - 0.8) ** 2).sum()), g, tolerance=1e-4)
    answer = driver.run([0.3, 0.69999])
    assert answer.point == pytest.approx(0.5, abs=1e-7)


def test_a_search_does_not_end_at_a_neighbour_that_uses_up_the_tolerance() -> None:
    """The neighbour that gives a slope exceeds a constraint a little, and has a smaller f."""
    driver = Driver(lambda u: float(((u - 0.8) ** 2).sum()), lambda u: [u.sum() - 1], 1e-4)
    start = [0.5 - 1e-10, 0.5 - 1e-10]
    answer = driver.run(start, trusting=True, tolerance=1e-8)
    assert answer.converged and answer.point.sum() <= 1
    assert answer.point == pytest.approx(0.5, abs=1e-7)


class Given:
    """Gives derivatives of the follower's functions, and counts how often it is asked."""

    def __init__(
        self,
        gradient: Callable[[np.ndarray], np.ndarray],
        jacobian: Callable[[np.ndarray], np.ndarray] = lambda u: np.empty((0, len(u))),
    ) -> None:
        self.gradient, self.jacobian, self.calls = gradient, jacobian, 0

    def __call__(self, u: np.ndarray) -> Procedure[tuple[np.ndarray, np.ndarray] | None]:
        self.calls += 1
        return self.gradient(u), self.jacobian(u)
        yield


def given_run(
    driver: Driver, given: Given, start: list[float], trusting: bool, bends: bool = False
) -> SearchEnd:
    d = len(start)
    rule = LocalRule(500, trusting=trusting, bends=bends)
    steps = sqp(at, np.array(start), np.zeros(d), np.ones(d), rule, derive=given)
    return run(steps, lambda request: driver.values(request.y))


STIFF = np.geomspace(1.0, 100.0, 20)


@pytest.mark.parametrize("trusting", [False, True])
def test_given_derivatives_replace_all_differences(trusting: bool) -> None:
    driver = Driver(lambda u: float(STIFF @ (u - 0.3) ** 2))
    given = Given(lambda u: 2 * STIFF * (u - 0.3))
    answer = given_run(driver, given, [0.9] * 20, trusting)
    assert answer.converged and answer.objective < 1e-9
    assert set(driver.batches) == {1}
    assert given.calls <= answer.points <= 100  # differences need 20 points for each


@pytest.mark.parametrize("trusting", [False, True])
def test_differences_of_given_gradients_give_the_whole_hessian(trusting: bool) -> None:
    turned = np.linalg.qr(np.random.default_rng(2).standard_normal((20, 20)))[0]
    A = turned * np.geomspace(1.0, 1e6, 20) @ turned.T
    driver = Driver(lambda u: float((u - 0.3) @ A @ (u - 0.3)))
    given = Given(lambda u: 2 * A @ (u - 0.3))
    answer = given_run(driver, given, [0.9] * 20, trusting, bends=True)
    assert answer.converged and answer.objective < 1e-9
    assert set(driver.batches) == {1} and answer.points <= 5
    assert given.calls <= 2 * 20 + answer.points
    assert answer.hessian is not None
    assert np.linalg.norm(answer.hessian - 2 * A) < 1e-4 * np.linalg.norm(A)


def test_hessians_that_are_not_available_are_done_without() -> None:
    """All neighbours of the start fail, but no other point does."""
    given = Given(lambda u: 2 * (u - 0.3) if 0.9 not in u or (u == 0.9).all() else u * math.nan)
    answer = given_run(Driver(sphere), given, [0.9] * 3, trusting=False, bends=True)
    assert answer.converged and answer.objective < 1e-12


def test_given_jacobians_lead_to_a_curved_constraint() -> None:
    driver = Driver(
        lambda u: float(-u[0] - 2 * u[1]), lambda u: [float(u @ u) - 0.25, 0.1 - u[0] * u[1]]
    )
    given = Given(
        lambda u: np.array([-1.0, -2.0]), lambda u: np.array([2 * u, [-u[1], -u[0]]], float)
    )
    answer = given_run(driver, given, [0.9, 0.8], trusting=False)
    assert answer.converged and answer.violation == 0
    assert answer.objective == pytest.approx(-math.sqrt(5) / 2, abs=1e-7)
    assert set(driver.batches) == {1}


def test_differences_replace_derivatives_that_are_not_available() -> None:
    def gradient(u: np.ndarray) -> np.ndarray:
        return 2 * (u - 0.3) if u[0] < 0.5 else np.full(2, math.nan)

    driver = Driver(sphere)
    answer = given_run(driver, Given(gradient), [0.9, 0.9], trusting=False)
    assert answer.converged and answer.objective < 1e-12
    assert 4 in driver.batches  # the neighbours of the start, on both sides


def test_derivatives_that_are_wrong_end_a_search() -> None:
    driver = Driver(sphere)
    answer = given_run(driver, Given(lambda u: -2 * (u - 0.3)), [0.9, 0.1], trusting=False)
    assert answer.points < 50


def test_a_step_without_any_curvature_is_no_error() -> None:
    """The slope of a linear function is the same after the first step, to the bit."""

    def derive(point: np.ndarray) -> Procedure[tuple[np.ndarray, np.ndarray]]:
        yield from ()
        return np.array([1.0, 2.0]), np.empty((0, 2))

    driver = Driver(lambda y: float(y[0] + 2 * y[1]))
    search = sqp(
        at, np.array([0.9, 0.8]), np.zeros(2), np.ones(2), LocalRule(100, 1e-9), derive=derive
    )
    end = run(search, lambda request: driver.values(request.y))
    assert end.converged and end.objective == pytest.approx(0.0, abs=1e-12)


def test_steps_that_break_a_curved_constraint_are_corrected_and_not_shortened() -> None:
    def corner(u: np.ndarray) -> float:  # like TP7: two constraints with very different multipliers
        return float(2 * u[1] - 2.1 * u[0] - 0.02 * u[1] ** 2)

    def constraints(u: np.ndarray) -> list[float]:
        return [100 * float(u @ u) - 100 * 0.5, float(u[0] - u[1])]

    used = []
    for corrects in (False, True):
        driver = Driver(corner, constraints)
        end = driver.run([0.3, 0.35], corrects=corrects)
        assert end.point == pytest.approx(0.5, abs=1e-6) and end.violation == 0
        used.append(end.points)
    assert used[1] < used[0]


def test_a_constraint_that_cannot_change_gets_no_multiplier() -> None:
    values = Values.of(np.zeros(1), np.array([[-0.5, -1e-10]]), 0, 0)
    jacobian = np.array([[1.0, 0.0], [-1e-9, 1e-11]])
    here = Iterate(np.full(2, 0.3), values, np.ones(2), jacobian, np.zeros(2, bool))
    for corrects, most in ((False, math.inf), (True, 10.0)):
        model = Model(np.eye(2))
        proposal = model.propose(here, np.zeros(2), np.ones(2), 1e-9, corrects)
        assert model.penalty < most
        assert corrects == (proposal.multipliers[1] == 0)
