"""The follower's answers over a grid of x, and their picture."""

import numpy as np
import pytest

import bilevo
from bilevo import plot
from bilevo.testing import CountingProblem
from bilevo.verification.landscape import follower_view, survey

GREY = plot.DROPPED


def two_minds(**options) -> bilevo.Problem:
    """A follower with two valleys, y near 1 and -1; x chooses which is deeper."""

    def f(x, y):
        return (y[0] ** 2 - 1) ** 2 + 0.3 * y[0] * x[0]

    return bilevo.Problem(lambda x, y: x[0] + y[0], f, [(-1, 1)], [(-2, 2)], **options)


@pytest.mark.parametrize("points", [9, 40])
def test_of_two_valleys_the_deeper_one_is_the_answer(points: int) -> None:
    found = survey(two_minds(), points)
    wanted = np.linspace(-1, 1, points)
    assert found.x[:, 0].tolist() == found.axes[0].tolist() == wanted.tolist()
    apart = wanted != 0
    assert (np.sign(found.y[apart, 0]) == -np.sign(wanted[apart])).all()
    slope = 4 * found.y * (found.y**2 - 1) + 0.3 * found.x
    assert np.abs(slope).max() < 1e-5
    assert np.allclose(found.F, (found.x + found.y)[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["tp1", "tp3"])
def test_answers_are_those_that_verification_finds(name: str) -> None:
    problem = bilevo.problems.get(name)
    found = survey(problem, 5)
    result = bilevo.minimize(problem, max_evals=200, rng=1)
    for i in (11, 18):
        assert found.lower_violation[i] == 0
        result.x, result.y = found.x[i], found.y[i]
        assert bilevo.verify(problem, result).follower_gap <= 1e-6 * (1 + abs(found.f[i]))


def test_a_better_island_of_feasible_answers_is_found_across_the_water() -> None:
    def g(x, y):
        return 1 - y**2  # answers are beyond 1 on either side

    def f(x, y):
        return (y[:, 0] - 0.5 * x[:, 0]) ** 2

    problem = bilevo.Problem(f, f, [(-1, 1)], [(-2, 2)], g=g, vectorized=True)
    found = survey(problem, 30)
    assert np.allclose(found.y[:, 0], np.sign(found.x[:, 0]), rtol=0, atol=1e-6)
    assert found.feasible.all()


def test_a_known_response_costs_one_evaluation_a_point() -> None:
    problem = bilevo.problems.get("smd1")
    found = survey(problem, 5)
    assert found.nfev_lower == 25
    assert np.allclose(found.y, problem.response(found.x), rtol=0, atol=1e-12)


def test_evaluations_are_counted_and_points_are_read_only_and_inside() -> None:
    counted = CountingProblem(bilevo.problems.get("gold-mining"))
    found = survey(counted.problem, 4)
    assert (counted.upper, counted.lower) == (16, found.nfev_lower)


def test_constraints_of_both_levels_are_told_apart() -> None:
    problem = two_minds(G=lambda x, y: x[0] - 0.5, g=lambda x, y: [-0.5 - x[0]])
    found = survey(problem, 5)  # x = -1, -0.5, 0, 0.5, 1
    assert (found.lower_violation > 0).tolist() == [True, False, False, False, False]
    assert (found.violation > 0).tolist() == [False, False, False, False, True]
    assert np.isnan(found.on_grid(found.F)).tolist() == [True, False, False, False, True]
    y, f = follower_view(problem, found.axes[0])
    assert f.shape == (len(y), 5) and np.isnan(f).all(axis=0).tolist() == [True] + [False] * 4
    assert f[-1, 2] == pytest.approx((y[-1] ** 2 - 1) ** 2)


def test_points_that_fail_are_not_drawn() -> None:
    def F(x, y):
        if x[0] > 0.9:
            raise ArithmeticError
        return x[0]

    problem = bilevo.Problem(F, lambda x, y: y[0] ** 2, [(0, 1)], [(-1, 1)])
    found = survey(problem, 5)
    assert np.isfinite(found.on_grid(found.F)).tolist() == [True] * 4 + [False]


def test_larger_problems_and_wrong_grids_are_refused() -> None:
    with pytest.raises(ValueError, match="1 or 2 upper variables; tp9 has 5"):
        plot.landscape(bilevo.problems.get("tp9"))
    for points in (1, 0, True, 2.5):
        with pytest.raises(ValueError, match="points must be a whole number"):
            plot.landscape(bilevo.problems.get("tp1"), points=points)


def test_one_variable_each_is_drawn_as_a_curve_over_a_map_of_f(tmp_path) -> None:
    problem = two_minds(name="two $minds", G=lambda x, y: x[0] - 0.5)
    result = bilevo.minimize(problem, max_evals=3000, rng=1)
    figure = plot.landscape(problem, result, points=21)
    upper, lower = figure.axes[:2]
    stars = {
        ax: [line for line in ax.lines if line.get_marker() == plot.ANSWER["marker"]]
        for ax in (upper, lower)
    }
    assert stars[upper][0].get_xydata().tolist() == [[result.x[0], result.F]]
    assert stars[lower][0].get_xydata().tolist() == [[result.x[0], result.y[0]]]
    curve = next(line for line in upper.lines if line.get_color() == plot.SURVIVED)
    assert np.isfinite(curve.get_ydata()).tolist() == (np.linspace(-1, 1, 21) <= 0.5).tolist()
    plot.save(figure, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


@pytest.mark.rest
@pytest.mark.parametrize(("name", "maps"), [("tp1", 1), ("gold-mining", 2)])
def test_two_variables_are_drawn_as_maps(name: str, maps: int) -> None:
    problem = bilevo.problems.get(name)
    result = bilevo.minimize(problem, max_evals=3000, rng=1)
    figure = plot.landscape(problem, result, points=5)
    drawn = [ax for ax in figure.axes if ax.lines]
    assert len(drawn) == maps
    for ax in drawn:
        assert ax.lines[0].get_xydata().tolist() == [result.x.tolist()]
        assert ax.collections[0].get_array().size == 25


def test_a_landscape_needs_no_result_and_stands_a_flat_or_infeasible_one() -> None:
    for F, G in ((lambda x, y: 0.0, None), (lambda x, y: x[0], lambda x, y: [1.0])):
        problem = bilevo.Problem(F, lambda x, y: float(y @ y), [(0, 1)] * 2, [(-1, 1)], G)
        figure = plot.landscape(problem, points=3)
        figure.draw_without_rendering()
        assert not any(ax.lines for ax in figure.axes)


class Halves:
    """y = x / 2 in two steps, with f known to it alone; it fails at x = 1."""

    def start(self, x, rng):
        return {"x": x[0], "steps": 0}

    def advance(self, state):
        if state["x"] == 1:
            raise ArithmeticError
        return {**state, "steps": state["steps"] + 1}

    def best(self, state):
        return [state["x"] / 2], 7.0, 0.0

    def done(self, state):
        return state["steps"] == 2


def test_a_follower_of_the_users_is_asked() -> None:
    problem = bilevo.Problem(lambda x, y: y[0], None, [(0, 1)], [(0, 1)], follower=Halves())
    found = survey(problem, 5)
    assert found.y[:4, 0].tolist() == (found.x[:4, 0] / 2).tolist() == found.F[:4].tolist()
    assert found.nfev_lower == 8 and found.f[0] == 7
    assert found.feasible.tolist() == [True] * 4 + [False]
    figure = plot.landscape(problem, points=5)
    assert len(figure.axes) == 1  # there is no f to show


def test_whole_numbers_stay_whole_and_their_followers_are_compared() -> None:
    def f(x, y):
        assert x[0] == round(x[0]) and y[0] == round(y[0])
        return float((y[0] - x[0] / 3) ** 2 + 2 * np.cos(3 * y[0]) + (y[1] - 0.25) ** 2)

    problem = bilevo.Problem(
        lambda x, y: float(y[0] + x[0]),
        f,
        [(0, 6)],
        [(0, 9), (0, 1)],
        x_integrality=1,
        y_integrality=[1, 0],
    )
    found = survey(problem)
    assert found.axes[0].tolist() == [*range(7)]
    for x, y in zip(found.x, found.y, strict=True):
        best = min(range(10), key=lambda k: f(x, [k, 0.25]))
        assert y[0] == best and y[1] == pytest.approx(0.25, abs=1e-4)
