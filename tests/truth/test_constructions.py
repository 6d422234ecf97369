"""The constructions are right: no point is better than the answers that they know."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.known.construction import Construction, judge, judge_pair, local_minima, optimum
from benchmarks.known.constructions import KINDS, NAMES, construct
from benchmarks.known.random_problems import random_problems
from benchmarks.truth import Task, carry_out, report, write
from bilevo import Problem

SEED = 1


def points_to_try(known: Construction, x: np.ndarray, rng: np.random.Generator, count: int):
    """Points all over the follower's box, near its answers, and along the axes through them."""
    bounds = known.problem.y_bounds
    answers = [np.atleast_1d(np.asarray(y, float)) for y in known.candidates(x)]
    if bounds.size == 1:
        tried = [np.linspace(bounds.lower, bounds.upper, count)]
    else:
        tried = [rng.uniform(bounds.lower, bounds.upper, (count, bounds.size))]
    for answer in answers[:8]:
        for step in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6):
            tried.append(answer + step * bounds.width * rng.normal(size=(count // 60, answer.size)))
        for i in range(answer.size):
            line = np.tile(answer, (count // 60, 1))
            line[:, i] = np.linspace(bounds.lower[i], bounds.upper[i], len(line))
            tried.append(line)
    return np.clip(np.concatenate(tried), bounds.lower, bounds.upper)


def check(known: Construction, count: int, places: int) -> None:
    rng = np.random.default_rng(SEED)
    bounds = known.problem.x_bounds
    for x in rng.uniform(bounds.lower, bounds.upper, (places, bounds.size)):
        y = points_to_try(known, x, rng, count)
        F, G, f, g = known.problem.evaluate(np.repeat(x[None], len(y), axis=0), y)
        least, true = known.response(x)
        allowed = (g <= 0).all(axis=1) & np.isfinite(f)
        scale = known.f_scale(x)
        rounding = 8 * np.finfo(float).eps * abs(least)
        slack = 1e-9
        if not allowed.any():  # an equality: points near it may be better by little
            allowed, slack = (g <= 1e-3).all(axis=1), 1e-2
        assert f[allowed].min() >= least - slack * scale - rounding
        if slack > 1e-9 or abs(least) > 1e3 * scale:  # points that differ little from ties
            continue
        tied = allowed & (f <= least + 1e-10 * scale) & (G <= 0).all(axis=1) & np.isfinite(F)
        assert (F[tied] >= true - 1e-3 * known.F_scale).all()


@pytest.mark.parametrize("name", NAMES)
def test_no_point_is_better_than_the_known_answers(name: str) -> None:
    check(construct(name, SEED), count=1200, places=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", (2, 3))
@pytest.mark.parametrize("name", NAMES)
def test_no_point_is_better_than_the_known_answers_in_full(name: str, seed: int) -> None:
    check(construct(name, seed), count=8000, places=3)


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_is_inside_the_box_and_is_judged_right(name: str) -> None:
    known = construct(name, SEED)
    rng = np.random.default_rng(2)
    bounds = known.problem.x_bounds
    for x in rng.uniform(bounds.lower, bounds.upper, (5, bounds.size)):
        least, true = known.response(x)
        assert math.isfinite(least) and known.f_scale(x) > 0
        for y in known.candidates(x):
            point = np.atleast_1d(np.asarray(y, float))
            assert known.problem.y_bounds.contain(point)
            F, _, f, _ = known.problem.evaluate(x, point)
            if math.isfinite(true) and f[0] <= least:
                assert not judge_pair(known, x, point, F[0]).wrong
            if known.F_star is not None and math.isfinite(true):
                assert true >= known.F_star - 1e-9 * known.F_scale


def test_all_kinds_and_sizes_are_there() -> None:
    assert len(NAMES) >= 72 and len(KINDS) == 13
    sizes = {(known.problem.m, known.problem.n) for known in map(one_of, NAMES)}
    assert {n for _, n in sizes} >= {1, 2, 3, 5} and {m for m, _ in sizes} >= {1, 2, 3, 5}


def one_of(name: str) -> Construction:
    return construct(name, SEED)


def test_a_seed_gives_the_same_construction_and_another_one_another() -> None:
    x, y = np.array([0.3]), np.array([0.4])
    first, again, other = (construct("penalty/wall-1e+06", seed) for seed in (1, 1, 2))
    F = [known.problem.evaluate(x, y)[0][0] for known in (first, again, other)]
    assert F[0] == F[1] != F[2]


@pytest.mark.parametrize("name", ["basin/cubic", "bound/concave-1", "valley/rosenbrock-1e+02"])
def test_a_scan_of_x_finds_the_leaders_best_value(name: str) -> None:
    known = one_of(name)
    bounds = known.problem.x_bounds
    best = optimum(known)
    grid = np.linspace(bounds.lower, bounds.upper, 333)
    assert best is not None
    assert best <= min(known.F_true(x) for x in grid) + 1e-9


def test_local_minima_are_found_at_bounds_and_inside() -> None:
    found = local_minima(lambda d: np.cos(2 * np.pi * d), -1.25, 1.1)
    assert found == pytest.approx([-1.25, -0.5, 0.5, 1.1], abs=1e-7)
    assert local_minima(lambda d: d, -1, 2) == [-1]


def result(x: float, y: float, F: float) -> SimpleNamespace:
    return SimpleNamespace(x=np.array([x]), y=np.array([y]), F=F)


def parabola(offset: float = 0.0, **options) -> Construction:
    """The follower copies x; the leader wants y = 3."""
    problem = Problem(
        lambda x, y: float((y[0] - 3) ** 2),
        lambda x, y: float((y[0] - x[0]) ** 2 + offset),
        [(-5, 5)],
        [(-5, 5)],
        **options,
    )
    return Construction("parabola", "test", problem, lambda x: [x[0]])


def test_the_judge_calls_an_unsolved_follower_wrong() -> None:
    verdict = judge(parabola(), result(1, 2, 1))
    assert verdict.wrong and verdict.f_gap == 1 and verdict.F_error == -3
    assert not judge(parabola(), result(1, 1, 4)).wrong


def test_the_judge_forgives_an_error_that_f_or_F_does_not_show() -> None:
    assert not judge(parabola(), result(1, 1 + 1e-5, (2 - 1e-5) ** 2)).wrong
    near = 0.9 * math.sqrt(8 * np.finfo(float).eps * 1e10)  # rounding hides this in f
    assert not judge(parabola(1e10), result(1, 1 + near, (2 - near) ** 2)).wrong
    assert judge(parabola(1e10), result(1, 1.1, 1.9**2)).wrong


def test_the_judge_calls_a_violation_and_a_false_F_wrong() -> None:
    known = parabola(G=lambda x, y: [y[0] - 1])
    assert not judge(known, result(1 + 1e-7, 1 + 1e-7, 4)).wrong
    assert "violated" in judge(known, result(1.1, 1.1, 1.9**2)).why
    assert "said" in judge(parabola(), result(1, 1, 3)).why


def test_the_judge_tells_answers_that_the_leader_dislikes() -> None:
    problem = Problem(
        lambda x, y: float(y[0]), lambda x, y: float(abs(y[0])) > 1, [(-1, 1)], [(-2, 2)]
    )
    known = Construction("flat", "test", problem, lambda x: [-1.0])
    assert judge(known, result(0, 0.5, 0.5)).disliked
    assert not judge(known, result(0, -1, -1)).disliked


def test_random_problems_repeat_and_have_finite_values() -> None:
    rng = np.random.default_rng(1)
    for problem, again in zip(random_problems(40, 1), random_problems(40, 1), strict=True):
        x = rng.uniform(problem.x_bounds.lower, problem.x_bounds.upper)
        y = rng.uniform(problem.y_bounds.lower, problem.y_bounds.upper)
        values = np.concatenate([value.ravel() for value in problem.evaluate(x, y)])
        repeated = np.concatenate([value.ravel() for value in again.evaluate(x, y)])
        assert np.isfinite(values).all() and (values == repeated).all()
        assert problem.name == again.name


def test_the_benchmark_reports_runs(tmp_path, capsys) -> None:
    rows = [carry_out(Task("scale/bowl-1e+04", SEED, run, 500)) for run in (1, 2)]
    report(rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "kind" and lines[1].split()[:2] == ["scale", "2"]
    write(str(tmp_path / "rows.csv"), rows)
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3
