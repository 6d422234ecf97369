"""Covariances at the ends of floating point, and the arithmetic of the competition."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from conftest import minimize_counted

from bilevo import CMAES, Budget, Problem
from bilevo.algorithms import BLCMAES, DRC, NestedCMAES
from bilevo.algorithms.drc import Task, neighbours, selection_probability
from bilevo.algorithms.nested import PatientCMAES
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch, Pair
from bilevo.core.budget import Scale
from bilevo.optimizers import Start


class Checked(CMAES):
    """CMA-ES that looks at its covariance whenever it samples."""

    def ask(self, state, rng):
        points = CMAES.ask(self, state, rng)
        check(state, points)
        return points


def check(state, points) -> None:
    eigenvalues = np.linalg.eigvalsh(state.C)
    assert np.isfinite(eigenvalues).all() and eigenvalues[0] > 0
    assert np.isfinite(state.mean).all() and 0 < state.sigma < math.inf
    assert points.min() >= 0 and points.max() <= 1


class Patient(PatientCMAES):
    ask = Checked.ask


METHODS = {
    "drc-cma-es": DRC(upper=Checked(), lower=Checked()),
    "bl-cma-es": BLCMAES(upper=Checked(), lower=Checked()),
    "nested-cma-es": NestedCMAES(upper=Checked(), lower=Patient()),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("where", ["above", "below", "both"])
@pytest.mark.parametrize("rotated", [False, True])
def test_ellipsoids_of_condition_1e20_are_searched(method, where, rotated, trials, figure) -> None:
    weights = np.logspace(0, 20, 3)
    rotation = (
        np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0] if rotated else np.eye(3)
    )
    above, below = (weights if where in (level, "both") else 1.0 for level in ("above", "below"))
    problem = Problem(
        lambda x, y: (((x - 1) @ rotation) ** 2 * above).sum(axis=1),
        lambda x, y: (((y - x) @ rotation) ** 2 * below).sum(axis=1),
        [(-5, 10)] * 3,
        [(-5, 10)] * 3,
        vectorized=True,
    )
    runs = trials(1, 40)
    for seed in range(runs):
        short = Budget(lower_max=60, upper_max=2000, upper_window=2000)
        result = minimize_counted(problem, method=method, rng=seed, budget=short, max_evals=5000)
        assert result.feasible and result.nit > 0
    figure(14, runs, "runs on ellipsoids of condition 1e20")


def flat_data(rng: np.random.Generator, points: np.ndarray, kind: int) -> np.ndarray:
    """Points on a line, in one place, at a corner, or a few places over and over."""
    k, d = points.shape
    line = rng.random(d) + np.outer(rng.normal(size=k), rng.normal(size=d))
    return np.clip(
        [line, np.tile(points[0], (k, 1)), np.zeros((k, d)), points[rng.integers(0, 2, k)]][kind],
        0.0,
        1.0,
    )


def near_singular(rng: np.random.Generator, d: int) -> np.ndarray:
    """Make covariances of rank one or two up to rounding, of any size that a search can reach."""
    axes = rng.normal(size=(d, rng.integers(1, 3)))
    return (axes @ axes.T) * 10.0 ** rng.uniform(-60, 20)


def test_flat_data_and_singular_covariances_leave_a_search_usable(trials, figure) -> None:
    rng, cma, searches = np.random.default_rng(14), CMAES(), trials(150, 10_000)
    for case in range(searches):
        d = int(rng.integers(1, 7))
        state = cma.start(Start.uniform(np.full(d, 0.3), rng))
        if case % 2:
            state.C[:] = near_singular(rng, d)
        for _ in range(40):
            points = cma.ask(state, rng)
            check(state, points)
            told = flat_data(rng, points, case // 2 % 4)
            cma.tell(state, told, rng.integers(0, 2, len(told)).astype(float), np.zeros(len(told)))
    figure(14, searches, "searches told points of rank one")


def test_cooperation_of_singular_searches_never_overflows(trials, figure) -> None:
    """Weights as in the paper, adding up to the number of sources, again and again."""
    rng, cma, groups, rounds = np.random.default_rng(15), CMAES(), trials(4, 200), 2500
    for case in range(groups):
        d = int(rng.integers(1, 9))
        states = [cma.start(Start.uniform(np.full(d, 0.3), rng)) for _ in range(6)]
        for state in states[: case % 7]:
            state.C[:] = near_singular(rng, d)
        for round_ in range(rounds):
            state, *others = states[round_ % 6 :] + states[: round_ % 6]
            weights = rng.dirichlet(np.ones(6)) * (1 if case % 4 == 3 else 5)
            cma.mix(state, weights[0], others, weights[1:])
            points = cma.ask(state, rng)
            if round_ % 10 == 0:
                check(state, points)
            cma.tell(state, points, rng.random(len(points)), np.zeros(len(points)))
    figure(14, groups * rounds, "mixtures of covariances")


NUMBERS = [0.0, -0.0, 1.0, 2.0, 1e-300, 5e-324, 1e8, 1e300, -1e300, 1.7e308, -1.7e308]
VIOLATIONS = [0.0, 0.0, 0.0, 5e-324, 1e-9, 3.0, 1e12, 1.7e308, math.inf]


@dataclass
class Mixed:
    """Stands in for an optimizer, and keeps the weights it is given."""

    weights: tuple[float, ...] = ()

    def mix(self, state, own_weight, others, weights) -> None:
        assert len(others) == len(weights)
        self.weights = (own_weight, *weights)


def random_tasks(rng: np.random.Generator, gamma: float) -> list[Task]:
    """Tasks after a few executions, with archives of ordinary, equal and extreme pairs."""
    rule, scale, kind = FollowerRule(3, 9), Scale(), rng.integers(3)
    tasks = []
    for i in range(int(rng.integers(2, 9))):
        mixed = Mixed()
        follower = FollowerSearch(np.zeros(1), mixed, None, rng, rule, scale)
        task = Task(i, follower, mixed, np.zeros((3, 1)), gamma)
        for _ in range(int(rng.integers(1, 6))):
            F = 2.0 if kind == 0 else NUMBERS[rng.integers(11)] if kind == 1 else rng.normal()
            violation = VIOLATIONS[rng.integers(9)] if kind else 0.0
            F = math.inf if violation == math.inf else float(F)
            task.follower.best = Pair(np.zeros(1), np.zeros(1), 0.0, 0.0, F, violation)
            task.archive()
        for _ in range(int(rng.integers(3))):
            task.add_potential([0.0, -1e6, 1e6, rng.normal()][rng.integers(4)])
        task.fluctuation = [0.0, 2e-162, 1e-100, 1.0, rng.random(), 1e60][rng.integers(6)]
        tasks.append(task)
    return tasks


def check_weights(task: Task, guide, mixing: str) -> None:
    if guide is not None:
        weights = task.follower.optimizer.weights
        total = len(weights) - 1 if mixing == "paper" else 1
        assert abs(sum(weights) - total) < 1e-9 and min(weights) > -1e-12


@pytest.mark.rest
@pytest.mark.parametrize("mixing", ["paper", "convex"])
def test_allocation_is_a_distribution_whatever_the_archives_hold(mixing, trials, figure) -> None:
    rng, archives = np.random.default_rng(16), trials(10_000, 100_000)
    methods = [DRC(mixing=mixing), DRC(mixing=mixing, gamma=0.0), DRC(mixing=mixing, epsilon=1e300)]
    for case in range(archives):
        drc = methods[case % 3]
        tasks = random_tasks(rng, drc.gamma)
        live = tasks[int(rng.integers(len(tasks))) :]
        P = selection_probability(tasks, live, drc)
        assert all(map(math.isfinite, P)) and abs(sum(P) - 1) < 1e-9
        assert min(P) >= drc.w_base / len(live) * (1 - 1e-12)
        x = rng.random((len(tasks), 2)) ** [1, 30][case % 2]
        x[rng.random(len(tasks)) < 0.3] = 0.5  # some leaders are equal
        target = tasks[int(rng.integers(len(tasks)))]
        for task, leader in zip(tasks, x, strict=True):
            task.follower.x = leader
        check_weights(target, drc.cooperate(target, neighbours(tasks)[target.index]), mixing)
    figure(15, archives, "archives")
