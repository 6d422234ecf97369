"""Gradients that users give: their shapes, requests for them, and their counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradients as made
import numpy as np
import pytest
from gradients import GRADIENTS, Descent, M, N, paired, smooth, with_pairs
from hypothesis import given
from hypothesis import strategies as st

import bilevo
from bilevo.core.request import (
    Derive,
    Evaluate,
    Level,
    Procedure,
    Slopes,
    alongside,
    derive,
    evaluate,
    relayed,
    run,
    together,
)
from bilevo.core.slopes import NO_SLOPES, SlopesGiven
from bilevo.core.space import UnitBox
from bilevo.core.values import BadValue
from bilevo.testing import Driven

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(5)
X, Y = RNG.uniform(-4, 5, (4, M)), RNG.uniform(-6, 6, (4, N))


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_problem_gives_slopes_in_the_users_units(vectorized: bool, pairs: bool) -> None:
    problem = with_pairs(vectorized) if pairs else smooth(vectorized)
    assert problem.slopes_given == SlopesGiven(True, True, True, True)
    upper, lower = (problem.slopes(level, X, Y) for level in Level)
    for found, name in ((upper, "F"), (lower, "f")):
        for part, expected in zip(found[:2], GRADIENTS[f"{name}_jac"](X, Y), strict=True):
            np.testing.assert_array_equal(part, expected)
    for found, name in ((upper, "G"), (lower, "g")):
        for part, expected in zip(found[2:], GRADIENTS[f"{name}_jac"](X, Y), strict=True):
            np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("pairs", [False, True])
def test_functions_with_gradients_give_the_same_values(pairs: bool) -> None:
    problem = with_pairs() if pairs else smooth()
    for found, expected in zip(
        problem.evaluate(X, Y), smooth(**dict.fromkeys(GRADIENTS)).evaluate(X, Y), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_parts_that_are_not_given_are_nan() -> None:
    problem = smooth(f_jac=made.f_y, g_jac=None, G_jac=None)
    assert problem.slopes_given == SlopesGiven(F=True, f=True)
    lower, upper = problem.slopes(Level.LOWER, X, Y), problem.slopes(Level.UPPER, X, Y)
    assert np.isnan(lower.objective_x).all() and lower.objective_x.shape == (4, M)
    np.testing.assert_array_equal(lower.objective_y, made.f_y(X, Y))
    assert np.isfinite(upper.objective_x).all()
    none = smooth(**dict.fromkeys(GRADIENTS))
    assert none.slopes_given == NO_SLOPES
    with pytest.raises(ValueError, match="smooth gives no gradient of f"):
        none.slopes(Level.LOWER, X, Y)


def test_without_constraints_the_objectives_gradient_is_all() -> None:
    problem = smooth(G=None, g=None, G_jac=None, g_jac=None)
    assert problem.slopes_given == SlopesGiven(True, True, True, True)
    assert problem.slopes(Level.LOWER, X, Y).constraints_y.shape == (4, 0, N)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"F_jac": 3}, "F_jac must be a function of"),
        ({"jac": 1}, "jac must be True or False"),
        ({"jac": True}, "F_jac with jac=True: F itself returns its gradient"),
        ({"G": None}, "G_jac without G: give both"),
        ({"F_jac": None}, "G_jac without F_jac is of no use"),
        ({"f_jac": None}, "g_jac without f_jac is of no use"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smooth(**given)


@pytest.mark.parametrize(
    ("given", "level", "message"),
    [
        ({"F_jac": lambda x, y: 2 * y}, "upper", r"gradient of F returned is an array \(3,\)"),
        ({"F_jac": lambda x, y: (y, y)}, "upper", r"F_x returned is of shape \(3,\), not \(2,\)"),
        ({"f_jac": lambda x, y: x}, "lower", r"f_y returned is of shape \(2,\), not \(3,\)"),
        ({"f_jac": lambda x, y: "no"}, "lower", r"f_y returned is 'no' \(str of shape"),
        ({"g_jac": lambda x, y: np.ones((2, 3))}, "lower", r"of shape \(2, 3\), not \(1, 3\)"),
        (
            {"G_jac": lambda x, y: (np.ones((2, M)), np.ones((3, N)))},
            "upper",
            r"G_y returned is of shape \(3, 3\), not \(2, 3\)",
        ),
    ],
)
def test_a_wrong_shape_says_what_is_right(given: Any, level: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        bilevo.minimize(smooth(**given), method=Descent())
    if "g_jac" not in given:  # the number of constraints is not known there
        with pytest.raises(BadValue, match="returned"):
            smooth(**given).slopes(Level(level), X, Y)


def test_a_function_with_jac_that_returns_no_gradient_is_told() -> None:
    problem = smooth(**{**dict.fromkeys(GRADIENTS), "jac": True})
    with pytest.raises(BadValue, match=r"F returned .* with jac=True it must return a tuple"):
        problem.evaluate(X, Y)


sizes = st.integers(1, 3)


@given(m=sizes, n=sizes, c=sizes, k=sizes, vectorized=st.booleans(), both=st.booleans())
def test_slopes_have_the_right_shapes(m, n, c, k, vectorized, both) -> None:
    """Axes of length 1 may be missing in what a function returns."""
    rng = np.random.default_rng(1)
    rows = (k,) if vectorized else ()
    f_x, f_y = rng.random((*rows, m)), rng.random((*rows, n))
    g_x, g_y = rng.random((*rows, c, m)), rng.random((*rows, c, n))

    def squeezed(array: np.ndarray, axis: int) -> np.ndarray:
        return array.squeeze(axis) if array.shape[axis] == 1 else array

    problem = bilevo.Problem(
        lambda x, y: np.zeros(rows),
        lambda x, y: np.zeros(rows),
        [(0, 1)] * m,
        [(0, 1)] * n,
        g=lambda x, y: np.zeros((*rows, c)),
        f_jac=lambda x, y: (f_x, squeezed(f_y, -1)) if both else f_y,
        g_jac=lambda x, y: (squeezed(g_x, -2), g_y) if both else squeezed(g_y, -2),
        vectorized=vectorized,
    )
    found = problem.slopes(Level.LOWER, np.zeros((k, m)), np.zeros((k, n)))
    assert [part.shape for part in found] == [(k, m), (k, n), (k, c, m), (k, c, n)]
    for part, expected in ((found.objective_y, f_y), (found.constraints_y, g_y)):
        np.testing.assert_array_equal(part, np.broadcast_to(expected, part.shape))
    assert np.isnan(found.objective_x).all() != both


def test_two_numbers_are_the_two_slopes_of_a_follower_with_two_variables() -> None:
    bounds = [(0, 1)] * 2
    problem = bilevo.Problem(
        lambda x, y: 0.0, lambda x, y: 0.0, bounds, bounds, f_jac=lambda x, y: (1.0, 2.0)
    )
    found = problem.slopes(Level.LOWER, np.zeros((1, 2)), np.zeros((1, 2)))
    assert found.objective_y.tolist() == [[1.0, 2.0]] and np.isnan(found.objective_x).all()
    one = bilevo.Problem(
        lambda x, y: 0.0, lambda x, y: 0.0, [(0, 1)], [(0, 1)], f_jac=lambda x, y: (1.0, 2.0)
    )
    found = one.slopes(Level.LOWER, np.zeros((1, 1)), np.zeros((1, 1)))
    assert (found.objective_x.item(), found.objective_y.item()) == (1.0, 2.0)


def test_a_gradient_at_the_point_just_evaluated_needs_no_second_call() -> None:
    calls = []

    def f(x: np.ndarray, y: np.ndarray) -> Any:
        calls.append(1)
        reused[:] = 2 * y
        return float(y @ y), reused

    reused = np.zeros(N)
    functions = {"f": f, "F": paired("F"), "G": None, "g": None}
    problem = smooth(**functions, **dict.fromkeys(GRADIENTS), jac=True)
    problem.values(Level.LOWER, X, Y)
    np.testing.assert_array_equal(problem.slopes(Level.LOWER, X, Y).objective_y, 2 * Y)
    assert len(calls) == len(X)
    problem.slopes(Level.LOWER, X, Y)
    assert len(calls) == 2 * len(X)


# Requests.


def answer(request: Any) -> Any:
    k = len(request.x)
    assert isinstance(request, Derive)
    ones = np.ones((k, 1, 1))
    return Slopes(request.x * 2, request.y * 3, ones * request.x[:, None], ones, 7)


def test_requests_for_slopes_of_one_level_run_together_as_one_batch() -> None:
    asked: list[Any] = []

    def noted(request: Any) -> Any:
        asked.append(request)
        return answer(request)

    rows = [np.full((k, 1), 0.1 * k) for k in (1, 2, 3)]
    found = run(together(derive(Level.LOWER, x, x) for x in rows), noted)
    assert [len(request.x) for request in asked] == [6]
    for slopes, x in zip(found, rows, strict=True):
        np.testing.assert_array_equal(slopes.objective_x, 2 * x)
        np.testing.assert_array_equal(slopes.constraints_x[:, 0], x)
        assert slopes.spent == 7


def test_slopes_and_values_are_different_batches() -> None:
    kinds: list[Any] = []

    def noted(request: Any) -> Any:
        kinds.append((type(request), len(request.x)))
        return f"{type(request).__name__} {len(request.x)}"

    x = np.zeros((2, 1))
    procedures: list[Procedure[Any]] = [evaluate(Level.LOWER, x, x), derive(Level.LOWER, x, x)]

    class Text(str):
        def part(self, start: int, end: int) -> str:
            return f"{self} {start}:{end}"

    found = run(together(procedures), lambda request: Text(noted(request)))
    assert kinds == [(Evaluate, 2), (Derive, 2)]
    assert found == ["Evaluate 2 0:2", "Derive 2 0:2"]
    main, side = run(alongside(*procedures_again(x)), lambda request: Text(noted(request)))
    assert (main, side) == ("Evaluate 2 0:2", "Derive 2 0:2")


def procedures_again(x: np.ndarray) -> tuple[Procedure[Any], Procedure[Any]]:
    return evaluate(Level.LOWER, x, x), derive(Level.LOWER, x, x)


def test_relayed_slopes_are_passed_on() -> None:
    x = np.full((1, 1), 0.5)
    steps = relayed(derive(Level.LOWER, x, x), lambda r: r, lambda level, values: values)
    assert run(steps, answer).objective_x.tolist() == [[1.0]]


def test_driven_answers_requests_for_slopes() -> None:
    driven = Driven(
        lambda level, x, y: (y**2).sum(axis=1), m=1, n=2, slopes=lambda level, x, y: (0 * x, 2 * y)
    )
    x, y = np.zeros((3, 1)), np.full((3, 2), 0.25)
    found = driven.run(derive(Level.LOWER, x, y))
    assert found.objective_y.tolist() == [[0.5, 0.5]] * 3 and found.constraints_y.shape == (3, 0, 2)
    assert driven.gradients == {Level.UPPER: 0, Level.LOWER: 3} and found.spent == 3
    assert driven.spec().slopes.whole(Level.LOWER)


def test_slopes_are_in_unit_coordinates() -> None:
    method = Descent()
    bilevo.minimize(smooth(), method=method)
    below, above = method.asked[:2]
    x = UnitBox(smooth().x_bounds).real(np.linspace(0.2, 0.8, 3)[:, None] * np.ones(M))
    y = UnitBox(smooth().y_bounds).real(np.full((3, N), 0.5))
    x_width, y_width = np.array([10.0, 10.0]), np.array([40.0, 24.0, 14.0])
    for found, width, name in (
        (below.objective_x, x_width, ("f_jac", 0)),
        (below.objective_y, y_width, ("f_jac", 1)),
        (below.constraints_x, x_width, ("g_jac", 0)),
        (above.constraints_y, y_width, ("G_jac", 1)),
        (above.objective_x, x_width, ("F_jac", 0)),
    ):
        np.testing.assert_allclose(found, GRADIENTS[name[0]](x, y)[name[1]] * width)


def test_fixed_variables_are_left_out_of_slopes() -> None:
    box = UnitBox(bilevo.Problem(made.F, made.f, [(1, 1), (0, 4)], made.Y_BOUNDS).x_bounds)
    assert box.slopes(np.array([[3.0, 5.0]])).tolist() == [[20.0]]
    assert box.variable(0) == (1, 4.0)
    fixed = UnitBox(bilevo.Problem(made.F, made.f, [(1, 1)] * 2, made.Y_BOUNDS).x_bounds)
    assert fixed.slopes(np.array([[3.0, 5.0]])).tolist() == [[0.0]]
    free = UnitBox(smooth().x_bounds)
    assert np.isinf(free.slopes(np.array([[1e308, 5.0]]))[0, 0])
