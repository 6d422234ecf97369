"""The problems of the literature: formulas, optima and classes, each checked in another way."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from bilevo.core.problem import Problem
from bilevo.lab.analysis.samples import Case
from bilevo.lab.plans import SUITES, Experiment
from bilevo.problems import get, names, scalable
from bilevo.problems.literature import CLASSES

VALUES = json.loads((Path(__file__).parents[1] / "data" / "literature_values.json").read_text())
UNKNOWN = {"ludebsinha2016d", "ludebsinha2016f", "zlobec2001a"}
KNOWN = [name for name in CLASSES if name not in UNKNOWN]
# F* to the digits of the best answers that other solvers found, where docs/errata.md has no entry.
FOUND = {
    "anetal2009": 2251.5535,
    "bard1988ex2": -6600,
    "calamaivicente1994c": 0.3125,
    "colson2002bipa4": 88.78633,
    "macalhurter1997": 81.32787,
    "mitsosbarton2006ex322": 0.209505,
    "mitsosbarton2006ex324": -1.754718,
    "muuquy2003ex1": -2.076923,
    "niewangye2017ex54": -0.437016,
    "niewangye2017ex58": -3.487957,
    "outrata1990ex1a": -8.917203,
    "outrata1993ex31": 1.562874,
    "outrata1994ex31": 3.207700,
    "sinhamalodeb2014tp3": -18.678711,
    "sinhamalodeb2014tp7": -1.960784,
}
CORRECTED = {
    "aiyoshishimizu1984ex2": 0,
    "dempe1992b": 28.25,
    "dempedutta2012ex31": -2,
    "ludebsinha2016b": 4 / 13,
    "mitsosbarton2006ex318": -1,
    "outrata1990ex1e": -3.92,
    "outrata1990ex2d": 0.848505,
}


# Followers with one feasible y at the optimum, or a cusp there: g = 1e-10 allows much lower f.
PINCHED = {"dempe1992b", "dempedutta2012ex31", "niewangye2017ex34"}


def somewhere(problem: Problem, count: int, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    boxes = problem.x_bounds, problem.y_bounds
    x, y = (rng.uniform(box.lower, box.upper, (count, box.size)) for box in boxes)
    return x, y


def test_the_suite_is_complete_and_last() -> None:
    assert len(CLASSES) == 62 and list(CLASSES) == list(VALUES["problems"])
    first = names().index(next(iter(CLASSES)))
    assert names()[first : first + 62] == list(CLASSES) and not set(scalable()) & set(CLASSES)
    assert SUITES["literature"] == tuple(CLASSES)
    assert [name for name in CLASSES if get(name).optimum is not None] == KNOWN


def test_a_plan_takes_the_suite_and_tables_count_it_as_one() -> None:
    runs = Experiment(("bl-cma-es",), ("literature",), ((5, 5),), runs=1).all_runs()
    assert [run.problem for run in runs] == list(CLASSES)
    assert max((run.m, run.n) for run in runs) == (10, 10)
    assert {Case(run.problem, run.m, run.n).suite for run in runs} == {"literature"}


def test_other_sizes_are_refused() -> None:
    assert get("Vogel2012", 1, 1).name == "vogel2012"
    with pytest.raises(ValueError, match="bard1991ex1 has m=1, n=2 only; got m=2, n=3"):
        get("bard1991ex1", 2, 3)


@pytest.mark.parametrize("name", CLASSES)
def test_values_and_bounds_are_those_of_another_program(name: str) -> None:
    problem, stated = get(name), VALUES["problems"][name]
    for bounds, level in ((problem.x_bounds, "x_bounds"), (problem.y_bounds, "y_bounds")):
        assert [bounds.lower.tolist(), bounds.upper.tolist()] == np.transpose(
            stated[level]
        ).tolist()
    for point in stated["points"]:
        for ours, letter in zip(problem.evaluate(point["x"], point["y"]), "FGfg", strict=True):
            theirs = np.atleast_1d(np.array(point[letter], float))
            assert ours.ravel().shape == theirs.shape
            assert np.all(np.abs(ours.ravel() - theirs) <= 1e-12 * (1 + np.abs(theirs)))


@pytest.mark.parametrize("name", CLASSES)
def test_a_batch_has_the_values_of_its_rows(name: str) -> None:
    problem = get(name)
    x, y = somewhere(problem, 23)
    batch = problem.evaluate(x, y)
    for row in range(len(x)):
        for one, all_of_them in zip(problem.evaluate(x[row], y[row]), batch, strict=True):
            assert np.array_equal(one[0], all_of_them[row])


@pytest.mark.parametrize("name", FOUND | CORRECTED)
def test_the_optimum_is_the_one_that_was_found(name: str) -> None:
    found, best = (FOUND | CORRECTED)[name], get(name).optimum
    assert abs(best.F - found) <= 1e-6 * max(1, abs(found))


def best_answers(problem: Problem, x: np.ndarray, starts: int) -> list[tuple[float, np.ndarray]]:
    """Return f and y of the local solutions that SLSQP finds, by f."""
    found, ctol = [], 0 if problem.name in PINCHED else 1e-10
    _, y = somewhere(problem, starts)
    for start in [problem.optimum.y, *y]:
        rule = {"type": "ineq", "fun": lambda y: -g_of(problem, x, y)}
        box = list(zip(problem.y_bounds.lower, problem.y_bounds.upper, strict=True))
        with np.errstate(all="ignore"):
            answer = minimize(
                lambda y: float(problem.f(x[None], y[None])[0]),
                start,
                bounds=box,
                constraints=[] if problem.g is None else [rule],
                method="SLSQP",
                options={"ftol": 1e-13, "maxiter": 200},
            )
        y_found = np.clip(answer.x, problem.y_bounds.lower, problem.y_bounds.upper)
        if problem.g is None or (g_of(problem, x, y_found) <= ctol).all():
            found.append((float(problem.f(x[None], y_found[None])[0]), y_found))
    return sorted(found, key=lambda one: one[0])


def g_of(problem: Problem, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return problem.g(x[None], y[None])[0]


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", KNOWN)
def test_no_start_of_a_solver_beats_the_followers_answer(name: str) -> None:
    problem = get(name)
    best = problem.optimum
    F, G, f, g = problem.evaluate(best.x, best.y)
    assert (F[0], f[0]) == (best.F, best.f)
    assert problem.x_bounds.contain(best.x) and problem.y_bounds.contain(best.y)
    assert np.all(G <= 2e-12) and np.all(g <= 2e-12)
    for value, _ in best_answers(problem, best.x, 12):
        assert value >= best.f - 1e-8 * (1 + abs(best.f))


@pytest.mark.parametrize("name", [name for name in KNOWN if CLASSES[name] == "ties"])
def test_ties_are_answers_with_another_F(name: str) -> None:
    problem = get(name)
    best = problem.optimum
    y = np.concatenate([somewhere(problem, 20_000)[1], _corners(problem), _mirrored(best.y)])
    if name == "mitsosbarton2006ex324":  # the other root
        y = np.append(y, [[2 + 0.2 * best.x[0] - best.y[0]]], axis=0)
    x = np.repeat(best.x[None], len(y), axis=0)
    F, _, f, g = problem.evaluate(x, y)
    tied = (g <= 0).all(axis=1) & (f <= best.f + 1e-12)
    assert np.any(np.abs(F[tied] - best.F) > 1e-3)


def _corners(problem: Problem) -> np.ndarray:
    """Return points whose entries are bounds of y, or the values 0, 1, 2 and 6."""
    axes = [
        [low, *(v for v in (0, 1, 2, 6) if low < v < high), high]
        for low, high in zip(problem.y_bounds.lower, problem.y_bounds.upper, strict=True)
    ]
    return np.array(np.meshgrid(*axes)).reshape(problem.n, -1).T


def _mirrored(y: np.ndarray) -> np.ndarray:
    return np.array([np.where(np.arange(y.size) == i, 0, y) for i in range(y.size)])


@pytest.mark.parametrize("name", CLASSES)
def test_classes_agree_with_the_formulas(name: str) -> None:
    """Compare f and g half-way between two random y with their means: equal, below or above."""
    problem, kind = get(name), CLASSES[name]
    x, y = somewhere(problem, 4000)
    other = somewhere(problem, 4000, seed=6)[1]
    y[::2] /= 20  # a box may be far wider than the part that matters
    other[::2] /= 20
    if name == "sinhamalodeb2014tp9":
        x /= 10  # f is not finite everywhere
    first, half, second = (problem.evaluate(x, rows) for rows in (y, (y + other) / 2, other))
    above = []
    for i in (2, 3):
        mean = (first[i] + second[i]) / 2
        above.append(((half[i] - mean) / (1 + np.abs(first[i]) + np.abs(second[i]))).ravel())
    bulge = np.concatenate(above)
    if kind == "nonconvex":
        assert bulge.max() > 1e-6
    elif kind != "ties":
        assert bulge.max() <= 1e-12
        assert (bulge.min() >= -1e-12) == (kind == "linear")
    changes = half[1].size and not np.array_equal(half[1], first[1])  # in G, as y moves
    if kind in ("coupled", "convex", "linear"):
        assert bool(changes) == (kind == "coupled")


def test_the_printed_optima_that_are_wrong_are_beaten_or_refuted() -> None:
    """Check the statements of docs/errata.md."""
    circles = get("dempedutta2012ex31")
    y2 = 1.9 - np.sqrt(1 - 0.81)  # where the circles of x = (0.9, 0.9) meet
    F, G, _, g = circles.evaluate([0.9, 0.9], [0, y2])
    assert F[0] < -1.46 and np.all(G <= 0) and np.all(np.abs(g) < 1e-12)
    unbounded = get("zlobec2001a")
    for x in (1e-4, 1e-6):
        F, _, f, g = unbounded.evaluate([x], [1 - 1000 * x, 1000])
        assert F[0] < -0.8 / x and g[0, 0] <= 1e-12 and f[0] < -1000
    bumps = get("ludebsinha2016b")
    f = bumps.evaluate([[0.5], [0.5]], [[1], [1 / 3]])[2]
    assert f[0] > 1.6 and f[1] < 1.001
