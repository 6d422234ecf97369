"""The suites against reference values, and their optima against themselves."""

import json
from pathlib import Path

import numpy as np
import pytest

import bilevo
from bilevo.problems import get, names

DATA = Path(__file__).parents[1] / "data"
NAMES = {"GoldMining": "gold-mining", "DecisionMaking": "decision-making"}
REFERENCE = [
    reference
    for suite in ("smd", "tp", "real")
    for reference in json.loads((DATA / f"oracle_{suite}.json").read_text())["problems"]
]
# Of noisy problems f differs from f*; of roads and games only a solver knows f.
INEXACT = ("noise", "roads", "oligopoly", "cournot")
EXACT = [name for name in names() if not any(part in name for part in INEXACT)]
UNKNOWN = ("ludebsinha2016d", "ludebsinha2016f", "zlobec2001a")  # see docs/errata.md
SIZES = [(2, 3), (3, 4), (5, 5), (10, 10), (30, 30)]


def label(reference: dict) -> str:
    return f"{reference['name']}-{reference['m']}-{reference['n']}"


@pytest.mark.parametrize("reference", REFERENCE, ids=label)
def test_every_reference_value_is_reproduced(reference: dict) -> None:
    problem = get(NAMES.get(reference["name"], reference["name"]), reference["m"], reference["n"])
    stated = [reference["optimum"]] if reference["optimum"] else []
    for point in reference["points"] + stated:
        F, G, f, g = problem.evaluate(point["xu"], point["xl"])
        for ours, theirs in ((F, point["F"]), (G, point["G"]), (f, point["f"]), (g, point["g"])):
            expected = np.atleast_1d(np.array(theirs, float))
            assert ours.ravel().shape == expected.shape
            assert np.all(np.abs(ours.ravel() - expected) <= 1e-10 * (1 + np.abs(expected)))


@pytest.mark.parametrize("reference", REFERENCE, ids=label)
def test_bounds_are_those_of_the_reference(reference: dict) -> None:
    problem = get(NAMES.get(reference["name"], reference["name"]), reference["m"], reference["n"])
    for bounds, level in ((problem.x_bounds, "xu"), (problem.y_bounds, "xl")):
        np.testing.assert_allclose(bounds.lower, reference[f"{level}_lb"], rtol=1e-12)
        np.testing.assert_allclose(bounds.upper, reference[f"{level}_ub"], rtol=1e-12)
    repeats = reference["lower_constraints_repeated_in_upper"]
    assert (problem.repeats_lower > 0) == repeats


@pytest.mark.parametrize("name", EXACT)
def test_the_known_optimum_is_feasible_and_has_its_values(name: str) -> None:
    problem = get(name)
    if problem.optimum is None:
        assert name in ("gold-mining", "decision-making", *UNKNOWN)
        return
    F, G, f, g = problem.evaluate(problem.optimum.x, problem.optimum.y)
    assert F[0] == pytest.approx(problem.optimum.F, abs=1e-9)
    assert f[0] == pytest.approx(problem.optimum.f, abs=1e-9)
    assert np.all(G <= 1e-9) and np.all(g <= 1e-9)


@pytest.mark.parametrize("name", [n for n in EXACT if get(n).optimum is not None])
def test_no_sampled_follower_answer_beats_the_known_optimum(name: str) -> None:
    """Check that no feasible y has a smaller f at x*."""
    problem = get(name)
    rng = np.random.default_rng(7)
    best = problem.optimum
    y = rng.uniform(problem.y_bounds.lower, problem.y_bounds.upper, (4000, problem.n))
    near = best.y + rng.normal(0, 0.05, (4000, problem.n)) * problem.y_bounds.width
    near = np.clip(near, problem.y_bounds.lower, problem.y_bounds.upper)
    y = np.concatenate([y, near])
    y = np.where(problem.y_bounds.whole, np.round(y), y)
    _, _, f, g = problem.evaluate(np.repeat(best.x[None], len(y), axis=0), y)
    feasible = (g <= 0).all(axis=1) if g.size else np.ones(len(y), bool)
    assert np.all(f[feasible] >= best.f - 1e-9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("number", range(1, 10))
def test_the_known_response_minimizes_the_follower(number: int, size: tuple[int, int]) -> None:
    problem = get(f"smd{number}", *size)
    rng = np.random.default_rng(number)
    x = rng.uniform(problem.x_bounds.lower, problem.x_bounds.upper, (50, problem.m))
    answer = problem.response(x)
    known = np.isfinite(answer).all(axis=1)
    assert known.all() if number != 9 else known.any()
    x, answer = x[known], answer[known]
    assert np.all(answer >= problem.y_bounds.lower - 1e-12)
    assert np.all(answer <= problem.y_bounds.upper + 1e-12)
    _, _, best, g = problem.evaluate(x, answer)
    assert np.all(g <= 0)
    for step in (1e-3, 0.1, 1.0):
        other = answer + rng.normal(0, step, answer.shape)
        other = np.clip(other, problem.y_bounds.lower, problem.y_bounds.upper)
        assert np.all(problem.evaluate(x, other)[2] >= best - 1e-9 * (1 + np.abs(best)))


@pytest.mark.parametrize("number", range(1, 15))
def test_smd_works_at_any_valid_size(number: int) -> None:
    for m, n in [*SIZES, (4, 6), (7, 9)]:
        problem = get(f"smd{number}", m, n)
        middle = (problem.x_bounds.lower + problem.x_bounds.upper) / 2
        values = problem.evaluate(middle, (problem.y_bounds.lower + problem.y_bounds.upper) / 2)
        assert all(np.isfinite(value).all() for value in values)
        assert (problem.m, problem.n) == (m, n)


def test_smd12_has_no_known_optimum_where_the_stated_one_is_beaten() -> None:
    assert get("smd12", 2, 3).optimum.f == pytest.approx(4)
    problem = get("smd12", 10, 10)
    assert problem.optimum is None
    r, t, h = 5, 1 / 3, 1 / 2
    stated = np.full(r, np.arctan(t - 1 / np.sqrt(r)))
    better = np.zeros(r)
    better[-1] = np.arctan(t - np.sqrt(1 - (r - 1) * t**2))
    F, G, f, g = problem.evaluate(
        np.full((2, 10), t), [np.append(np.full(5, h), stated), np.append(np.full(5, h), better)]
    )
    assert F.tolist() == pytest.approx([28.5972, 28.4398], abs=1e-4)
    assert f[0] == pytest.approx(f[1])
    assert np.all(G[1] <= 1e-12) and np.all(g[1] <= 1e-12)


def test_smd6_and_smd14_use_every_follower_variable() -> None:
    """Check also sizes where n - r is even, at which the reference loses a variable."""
    for name in ("smd6", "smd14"):
        for m, n in ((2, 3), (2, 5), (2, 7), (4, 8)):
            problem = get(name, m, n)
            x = np.full(m, 0.3)
            base = problem.evaluate(x, np.full(n, 0.7))
            for i in range(n):
                y = np.full(n, 0.7)
                y[i] += 0.2
                moved = problem.evaluate(x, y)
                assert moved[0] != base[0] or moved[2] != base[2]


@pytest.mark.parametrize(
    ("name", "m", "n", "says"),
    [
        ("smd1", 1, 3, "m >= 2"),
        ("smd1", 4, 2, r"n >= floor\(m/2\) \+ 1"),
        ("smd10", 2, 2, r"n >= floor\(m/2\) \+ 2"),
        ("tp1", 3, 2, "m=2, n=2 only"),
        ("smd99", None, None, "unknown problem 'smd99'; similar names in `bilevo list`: smd9"),
    ],
)
def test_wrong_names_and_sizes_say_what_is_valid(name, m, n, says) -> None:
    with pytest.raises(ValueError, match=says):
        get(name, m, n)


def test_evaluate_takes_one_pair_or_many_and_refuses_other_shapes() -> None:
    problem = get("smd9")
    F, G, f, g = problem.evaluate(np.zeros((4, 2)), np.zeros((4, 3)))
    assert (F.shape, G.shape, f.shape, g.shape) == ((4,), (4, 1), (4,), (4, 1))
    with pytest.raises(ValueError, match=r"x of shape \(k, 2\) and y of shape \(k, 3\)"):
        problem.evaluate(np.zeros(3), np.zeros(3))


def test_problem_shows_its_sizes() -> None:
    assert repr(get("smd1")) == "<Problem smd1: m=2, n=3, F*=0>"
    assert bilevo.problems.names()[0] == "smd1"
