"""Rotated, non-smooth and noisy problems: their optima, their followers' answers, their rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevo.core.bounds import Bounds
from bilevo.core.problem import Problem
from bilevo.lab.checks import checked
from bilevo.lab.plans import SUITES, Experiment
from bilevo.problems import get, names, scalable
from bilevo.problems.variants import VARIANTS, Rotation

SIZES = [(2, 3), (5, 5), (10, 10)]
ROTATED = [f"smd{number}-rot" for number in range(1, 11)]
ANSWERED = ROTATED[:-1]  # SMD10's follower has no formula
NONSMOOTH = ["smd1-abs", "smd2-abs", "smd5-abs", "smd1-max"]
NOISY = [f"smd{number}-noise{digit}" for number in range(1, 9) for digit in (6, 3)]


def plain(name: str, size: tuple[int, int]) -> Problem:
    return get(name.partition("-")[0], *size)


def all_over(bounds: Bounds, count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(bounds.lower, bounds.upper, (count, bounds.size))


def pairs(problem: Problem, count: int) -> tuple[np.ndarray, np.ndarray]:
    return all_over(problem.x_bounds, count, 1), all_over(problem.y_bounds, count, 2)


def test_the_beds_are_scalable_problems_like_any_other() -> None:
    assert list(VARIANTS) == [*ROTATED, *NONSMOOTH, *NOISY]
    assert set(VARIANTS) < set(scalable()) < set(names())
    assert names()[0] == "smd1" and names()[-1] == "moore-bard"
    assert repr(get("SMD1-rot", 4, 6)) == "<Problem smd1-rot: m=4, n=6, F*=0>"


@pytest.mark.parametrize(
    ("name", "size", "says"),
    [
        ("smd11-rot", (), "unknown problem 'smd11-rot'"),
        ("smd3-abs", (), "unknown problem 'smd3-abs'"),
        ("smd9-noise3", (), "unknown problem 'smd9-noise3'"),
        ("smd5-rot", (2, 2), r"smd5-rot needs m >= 2 and n >= floor\(m/2\) \+ 2"),
        ("smd1-noise6", (1, 3), "m >= 2"),
    ],
)
def test_what_is_not_offered_is_refused(name: str, size: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        get(name, *size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_optimum_has_the_values_of_the_plain_problem(name: str, size) -> None:
    problem, known = get(name, *size), plain(name, size).optimum
    best = problem.optimum
    assert (best.F, best.f) == (known.F, known.f)
    F, G, f, g = problem.evaluate(best.x, best.y)
    assert F[0] == best.F and np.all(G <= 1e-12) and np.all(g <= 1e-12)
    noise = {"6": 1e-6, "3": 1e-3}.get(name[-1], 0.0)
    assert abs(f[0] - best.f) <= noise * (1 + abs(best.f))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*ANSWERED, *NONSMOOTH])
def test_no_point_of_the_followers_box_beats_its_answer(name: str, size) -> None:
    problem = get(name, *size)
    x = all_over(problem.x_bounds, 200)
    x[:50] *= 0.2  # near the optimum
    answer = problem.response(x)
    known = np.isfinite(answer).all(axis=1)
    assert known.sum() >= 10
    x, answer = x[known], answer[known]
    bounds, rng = problem.y_bounds, np.random.default_rng(3)
    assert np.all(bounds.lower <= answer) and np.all(answer <= bounds.upper)
    _, _, best, g = problem.evaluate(x, answer)
    assert np.all(g <= 0)
    for step in (1e-4, 1e-2, 0.1, 1.0):
        other = answer + rng.normal(0, step, answer.shape) * bounds.width
        _, _, f, g = problem.evaluate(x, np.clip(other, bounds.lower, bounds.upper))
        assert np.all((f >= best - 1e-9 * (1 + np.abs(best))) | (g > 0).any(axis=1))


@pytest.mark.parametrize("name", [*NONSMOOTH, *NOISY])
def test_the_leader_and_the_answers_are_those_of_smd(name: str) -> None:
    problem, known = get(name, 5, 5), plain(name, (5, 5))
    x, y = pairs(problem, 50)
    np.testing.assert_array_equal(problem.F(x, y), known.F(x, y))
    np.testing.assert_array_equal(problem.response(x), known.response(x))
    assert np.all(problem.f(x, y) != known.f(x, y))


def test_a_nonsmooth_follower_has_a_kink_where_it_answers() -> None:
    for name in NONSMOOTH:
        problem, step = get(name), 1e-6
        best = problem.optimum
        near = problem.f(best.x[None], best.y[None] + [[step, 0.0, 0.0]])
        assert near[0] - best.f >= 0.9 * step, name
    x, y = np.array([[2.0, 0.5]]), np.array([[-3.0, 1.0, np.arctan(-1.5)]])
    assert get("smd1-abs").f(x, y)[0] == pytest.approx(4 + 3 + 1 + 2)
    assert get("smd1-max").f(x, y)[0] == pytest.approx(4 + 3)
    y[0, 2] = 0.5  # ||v| - z^2| = 0.25, |w2 - w1^2| = 8, |w1 - 1| = 4
    assert get("smd5-abs").f(x, y)[0] == pytest.approx(4 + 8 + 4 + 0.25)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_a_rotated_box_is_the_largest_whose_image_stays_inside(d: int) -> None:
    bounds = Bounds([-5.0, *[0.25] * (d - 1)], [10.0, *[1.0] * (d - 1)])
    rotation = Rotation.about(np.array([1.0, *[0.5] * (d - 1)]), bounds, "test")
    corners = np.array(list(itertools.product([-rotation.reach, rotation.reach], repeat=d)))
    image = rotation.there(corners)
    assert np.all(image > bounds.lower) and np.all(image < bounds.upper)
    nearest = np.minimum(image - bounds.lower, bounds.upper - image) / bounds.width
    assert nearest.min() < 1e-5
    np.testing.assert_allclose(rotation.back(rotation.there(0.9 * corners)), 0.9 * corners)
    assert np.isnan(rotation.back(rotation.there(1.1 * corners))).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ROTATED)
def test_a_rotated_problem_is_defined_in_all_of_its_box(name: str, size) -> None:
    problem = get(name, *size)
    sides = zip(pairs(problem, 500), (problem.x_bounds, problem.y_bounds), strict=True)
    x, y = (np.where(points > 0, side.upper, side.lower) for points, side in sides)  # corners
    assert all(np.isfinite(values).all() for values in problem.evaluate(x, y))


def test_a_rotated_problem_is_not_separable_and_the_same_every_time() -> None:
    first, second = get("smd1-rot", 10, 10), get("smd1-rot", 10, 10)
    x, y = pairs(first, 5)
    np.testing.assert_array_equal(first.evaluate(x, y)[0], second.evaluate(x, y)[0])
    steps = 0.1 * np.eye(10)
    one, two, both = (
        first.F(step[None], np.zeros((1, 10)))[0] for step in (*steps[:2], sum(steps[:2]))
    )
    assert abs(both - one - two) > 1e-3  # F(0, 0) is 0
    twins = [get(name, *size).f for name, size in (("smd1-rot", (5, 5)), ("smd2-rot", (5, 5)))]
    x, y = pairs(get("smd1-rot", 5, 5), 1)
    assert twins[0](x / 2, y / 2) != twins[1](x / 2, y / 2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ANSWERED)
def test_where_the_box_cuts_off_an_answer_the_optimum_is_still_the_best(name: str, size) -> None:
    """Check that no y has an F below F* if it is as good for the follower as y* of the optimum.

    SMD10 has too few feasible pairs to be sampled.
    """
    problem = get(name, *size)
    x, y = pairs(problem, 20_000)
    y *= np.random.default_rng(3).uniform(0, 1, (len(y), 1)) ** 2
    best = problem.optimum
    at_best = problem.evaluate(x, np.repeat(best.y[None], len(x), axis=0))[2]
    F, G, f, g = problem.evaluate(x, y)
    allowed = (f <= at_best) & (G <= 0).all(axis=1) & (g <= 0).all(axis=1)
    assert allowed.any() and np.all(F[allowed] >= best.F)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([*ROTATED, *NONSMOOTH, "smd1-noise3", "smd5-noise6"]),
    st.sampled_from([(2, 3), (5, 5), (11, 17), (30, 30)]),
    st.integers(1, 70),
    st.integers(0, 100),
)
def test_a_row_has_the_same_bits_in_every_batch(name: str, size, count: int, seed: int) -> None:
    problem = get(name, *size)
    x, y = all_over(problem.x_bounds, count, seed), all_over(problem.y_bounds, count, seed + 1)
    together, row = problem.evaluate(x, y), seed % count
    for batch in (slice(row, row + 1), slice(row // 2, row + 1)):
        apart = problem.evaluate(x[batch], y[batch])
        assert all(np.array_equal(a[-1], b[row]) for a, b in zip(apart, together, strict=True))
    if problem.response is not None:
        alone = problem.response(x[row : row + 1])
        assert np.array_equal(alone[0], problem.response(x)[row], equal_nan=True)


@pytest.mark.parametrize(("name", "size"), [("smd1-noise6", 1e-6), ("smd3-noise3", 1e-3)])
def test_noise_repeats_and_has_the_size_it_says(name: str, size: float) -> None:
    problem, known = get(name), plain(name, (2, 3))
    x, y = pairs(problem, 4000)
    exact, seen = known.f(x, y), problem.f(x, y)
    np.testing.assert_array_equal(seen, get(name).f(x, y))
    u = (seen - exact) / (size * (1 + np.abs(exact)))
    assert np.all(np.abs(u) <= 1 + 1e-6)
    quantiles = np.quantile(u, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quantiles, [-0.5, 0.0, 0.5], atol=0.05)
    moved = y.copy()
    moved[:, 0] = np.nextafter(y[:, 0], np.inf)
    assert np.mean(problem.f(x, moved) == seen) < 0.01
    zero = np.zeros((1, 2)), np.zeros((1, 3))
    assert problem.f(*zero) == problem.f(-zero[0], -zero[1])


@pytest.mark.parametrize("name", ["smd1-rot", "smd2-rot", "smd1-max", "smd1-noise6"])
def test_an_answer_is_checked_by_the_followers_known_one(name: str) -> None:
    problem = get(name)
    x = problem.optimum.x + 0.02
    y = problem.response(x[None])[0]
    assert np.isfinite(y).all()
    moved = y + 0.05 * problem.y_bounds.width
    F, _, f, _ = problem.evaluate(x, y)
    found = checked(problem, x, moved, float(problem.evaluate(x, moved)[2][0]))
    assert found.F_verified == F[0] and found.follower_gap > 1e-4
    assert found.violation_verified == 0
    assert checked(problem, x, y, float(f[0])).follower_gap == 0


def test_a_rotated_followers_answer_outside_the_box_is_found_by_another_solver() -> None:
    problem = get("smd1-rot")
    x = all_over(problem.x_bounds, 200)
    away = x[np.isnan(problem.response(x)).any(axis=1)][0]
    *_, f, _ = problem.evaluate(away, problem.optimum.y)
    found = checked(problem, away, problem.optimum.y, float(f[0]))
    assert found.F_verified > 0 and found.follower_gap > 0


@pytest.mark.parametrize(("suite", "count"), [("rotated", 8), ("nonsmooth", 6), ("noisy", 8)])
def test_a_suite_names_problems_in_the_sizes_asked_for(suite: str, count: int) -> None:
    runs = Experiment(("bl-cma-es",), (suite,), ((5, 5),), runs=1).all_runs()
    assert len(runs) == count == len(SUITES[suite])
    own = {run.problem: (run.m, run.n) for run in runs if run.problem not in scalable()}
    assert own == ({"tp9": (5, 5), "tp10": (10, 10)} if suite == "nonsmooth" else {})
    assert all((run.m, run.n) == (5, 5) for run in runs if run.problem in scalable())
