"""Quadratic models: their fit, and their minimization."""

import numpy as np
import pytest

from bilevo.algorithms.rivals.quadratic import Quadratic, fit, free_variables, minimize, terms

RNG = np.random.default_rng(5)
POINTS = RNG.random((25, 3))
ZERO, ONE = np.zeros(3), np.ones(3)


def model_of(f, points=POINTS) -> Quadratic:
    return fit(points, np.array([[f(p)] for p in points]))[0]


def bowl(p) -> float:
    return 3 + (p[0] - 0.2) ** 2 + 2 * (p[1] - 0.4) ** 2 + (p[2] - p[0]) ** 2


def test_a_quadratic_is_found_exactly_also_from_points_close_together() -> None:
    near = 0.5 + 1e-4 * (POINTS - 0.5)
    for points in (POINTS, near):
        model = model_of(bowl, points)
        for p in points:
            assert model(p) == pytest.approx(bowl(p), abs=1e-12)
            slope = 2 * np.array([2 * p[0] - p[2] - 0.2, 2 * (p[1] - 0.4), p[2] - p[0]])
            assert model.gradient(p) == pytest.approx(slope, abs=1e-6)


def test_the_smallest_sufficient_model_is_chosen() -> None:
    points = RNG.random((400, 3))
    noise = 1e-3 * RNG.standard_normal(len(points))
    straight, bent = points[:, 0] - points[:, 1], points**2 @ [5, -4, 0]
    line, pure = fit(points, np.column_stack([straight + noise, bent + noise]))
    assert not line.square.any()
    assert (pure.square == np.diag(np.diag(pure.square))).all()
    assert np.diag(pure.square) == pytest.approx([5, -4, 0], abs=0.02)


def test_the_normalized_error_does_not_depend_on_units() -> None:
    one = model_of(lambda p: np.sin(9 * p[0]))
    other = model_of(lambda p: 1e6 * np.sin(9 * p[0]) + 3e6)
    assert 0 < one.mse_norm < 1
    assert other.mse_norm == pytest.approx(one.mse_norm, rel=1e-6)


def test_a_coordinate_that_never_changes_does_no_harm() -> None:
    points = POINTS.copy()
    points[:, 1] = 0.5
    model = model_of(bowl, points)
    assert model(points[0]) == pytest.approx(bowl(points[0]))
    assert np.isfinite(model.square).all()


def test_several_values_are_modelled_at_once() -> None:
    values = np.column_stack([POINTS[:, 0], POINTS[:, 1] ** 2])
    first, second = fit(POINTS, values)
    assert (first(POINTS[3]), second(POINTS[3])) == pytest.approx(tuple(values[3]))
    assert terms(3) == 10


def test_a_convex_model_is_minimized_inside_the_box_and_at_its_bounds() -> None:
    model = model_of(bowl)
    assert minimize(model, [], ONE, ZERO, ONE) == pytest.approx([0.2, 0.4, 0.2], abs=1e-8)
    low = np.array([0.6, 0.0, 0.0])
    assert minimize(model, [], ONE, low, ONE) == pytest.approx([0.6, 0.4, 0.6], abs=1e-6)


def test_constraints_hold_exactly_at_the_answer() -> None:
    wall = model_of(lambda p: 1.0 - p[0] - p[1])
    answer = minimize(model_of(bowl), [wall], ONE, ZERO, ONE)
    assert -1e-6 < wall(answer) <= 0
    assert bowl(answer) == pytest.approx(3 + 0.4**2 / (1 + 0.5), abs=1e-5)


def test_linear_models_are_a_linear_program() -> None:
    wall = model_of(lambda p: p[0] + p[1] - 1.5)
    answer = minimize(model_of(lambda p: -2 * p[0] - p[1]), [wall], ZERO, ZERO, ONE)
    assert answer[:2] == pytest.approx([1.0, 0.5], abs=1e-6) and wall(answer) <= 0


def test_fixed_coordinates_stay() -> None:
    low, high = np.array([0.0, 0.7, 0.0]), np.array([1.0, 0.7, 1.0])
    answer = minimize(model_of(bowl), [], ONE, low, high)
    assert answer == pytest.approx([0.2, 0.7, 0.2], abs=1e-6) and answer[1] == 0.7


def test_directions_that_a_model_leaves_open_are_told() -> None:
    valley = model_of(lambda p: (p[0] - p[1]) ** 2 + (p[2] - 0.5) ** 2)
    inside = np.array([0.4, 0.4, 0.5])
    assert free_variables(valley, [], inside).tolist() == [False, True, False]
    assert not free_variables(valley, [], np.array([1.0, 1.0, 0.5])).any()
    # A constraint that holds it fixes the direction.
    wall = model_of(lambda p: 0.4 - p[0])
    assert not free_variables(valley, [wall], inside).any()
