"""The parts of DRC: selection probability, potential, cooperation; and optimizers exchanged."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

import numpy as np
import pytest
from conftest import fingerprint, minimize_counted
from hypothesis import given, settings
from hypothesis import strategies as st

import bilevo
from bilevo.algorithms.drc import (
    DRC,
    Task,
    competing_fitness,
    evolving_potential,
    fluctuation,
    last_entries,
    neighbours,
    rated,
    roulette,
    selection_probability,
)
from bilevo.algorithms.shared.follower_search import FollowerRule, FollowerSearch, Pair
from bilevo.algorithms.shared.leader import LeaderState, tell_leader
from bilevo.core.budget import Scale
from bilevo.core.order import ranking
from bilevo.core.request import BadRequest
from bilevo.optimizers import CMAES, DE, GA, PSO, Start

values = st.one_of(st.floats(-1e3, 1e3), st.sampled_from([0.0, 1e-300, 1e8, 1.7e308, -1.7e308]))
violations = st.sampled_from([0.0, 0.0, 0.0, 1e-9, 3.0, 1e12, np.inf])
archives = st.lists(st.lists(st.tuples(values, violations), min_size=1, max_size=6), min_size=2)


def pair(F: float, violation: float = 0.0) -> Pair:
    F = np.inf if np.isinf(violation) else F
    return Pair(np.zeros(1), np.zeros(1), 0.0, 0.0, F, violation)


def task_with(archive, index: int = 0, gamma: float = 0.5) -> Task:
    """A task whose archive holds these (F, violation), put there by `Task` itself."""
    cma, rng = CMAES(), np.random.default_rng(1)
    search = cma.start(Start.uniform(np.full(1, 0.3), rng))
    follower = FollowerSearch(np.zeros(1), cma, search, rng, FollowerRule(3, 9), Scale())
    task = Task(index, follower, cma, np.zeros((3, 1)), gamma)
    for F, violation in archive:
        follower.best = pair(F, violation)
        task.archive()
    return task


@settings(max_examples=300)
@given(archives, st.data())
def test_probabilities_are_finite_sum_to_one_and_keep_the_base(archive, data) -> None:
    tasks = [task_with(entries, i) for i, entries in enumerate(archive)]
    for task in tasks:
        for _ in range(data.draw(st.integers(0, 2))):
            task.add_potential(data.draw(st.floats(-1e6, 1e6)))
    drc = DRC()
    P = selection_probability(tasks, tasks, drc)
    assert np.isfinite(P).all()
    assert sum(P) == pytest.approx(1)
    assert min(P) >= drc.w_base / len(tasks) * (1 - 1e-12)


def test_competing_fitness_is_the_discounted_mean_of_the_archive() -> None:
    """Eq. (3) computed directly; one entry is infeasible, one has failed."""
    failed = (np.inf, np.inf)
    archives_of = [[(3.0, 0.0), failed, (5.0, 0.0), (1.0, 2.0)], [(4.0, 0.0), (2.0, 0.0)]]
    tasks = [task_with(entries, i) for i, entries in enumerate(archives_of)]
    fitness = iter(rated(*entries_of([entry for entries in archives_of for entry in entries])))
    CF = []
    for entries in archives_of:
        weights = [0.5 ** (len(entries) - t) for t in range(1, len(entries) + 1)]
        CF.append(np.average([next(fitness) for _ in entries], weights=weights))
    expected = 0.1 / 2 + 0.7 * np.array([0.0, 1.0]) + 0.2 / 2
    assert CF[0] < CF[1]
    np.testing.assert_allclose(selection_probability(tasks, tasks, DRC()), expected)
    np.testing.assert_allclose(competing_fitness(tasks, tasks), CF)


def test_better_tasks_are_drawn_more_often() -> None:
    tasks = [task_with([(F, 0.0)], i) for i, F in enumerate([1.0, 2.0, 5.0])]
    P = selection_probability(tasks, tasks, DRC())
    assert P[0] > P[1] > P[2]


def test_one_failure_is_soon_forgotten() -> None:
    """A task that failed once, long ago, is rated by what it has shown since."""
    good = [(2.0, 0.0)] * 8
    tasks = [
        task_with(a, i) for i, a in enumerate([good, [(np.inf, np.inf), *good], [(50.0, 0.0)]])
    ]
    P = selection_probability(tasks, tasks, DRC())
    assert P[1] == pytest.approx(P[0], rel=0.02) and P[2] < 0.6 * P[0]


def test_equal_tasks_are_equally_likely() -> None:
    tasks = [task_with([(2.0, 0.0)], i) for i in range(4)]
    np.testing.assert_allclose(selection_probability(tasks, tasks, DRC()), 0.25)


def entries_of(archive) -> tuple[list[float], list[float]]:
    """Fitness and violation of tasks whose last pairs have these (F, violation)."""
    return last_entries([task_with([entry]) for entry in archive])


def test_potential_rewards_a_new_best_and_punishes_a_new_worst() -> None:
    """Eq. (5) by hand, fitness being -F: from -4 to -1 against best -2 and worst -8."""
    before = entries_of([(4.0, 0.0), (2.0, 0.0), (8.0, 0.0)])
    assert evolving_potential(task_with([(1.0, 0.0)]), *before) == pytest.approx(3 / 4 + 1 / 2)
    assert evolving_potential(task_with([(10.0, 0.0)]), *before) == pytest.approx(-6 / 4 - 2 / 8)
    assert evolving_potential(task_with([(4.0, 0.0)]), *before) == 0


@settings(max_examples=200)
@given(st.lists(st.tuples(values, violations), min_size=2, max_size=9), values, violations)
def test_potential_is_always_a_bounded_number(entries, F, violation) -> None:
    task = task_with([(F, violation)])
    assert abs(evolving_potential(task, *entries_of(entries))) <= 1e6


@given(st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=3, max_size=3))
def test_fluctuation_is_the_norm_of_standard_deviations(means) -> None:
    expected = np.linalg.norm(np.std(means, axis=0, ddof=1))
    three = np.array(means)
    assert fluctuation(three) == pytest.approx(expected, abs=1e-12)
    assert three[:2].tolist() == means[1:]


def cooperating(mixing: str, p: int = 5) -> tuple[DRC, list[Task]]:
    """p tasks ready to cooperate; task 0 is the least settled."""
    rng = np.random.default_rng(4)
    tasks = [task_with([(1.0, 0.0)], i) for i in range(p)]
    for task in tasks:
        task.fluctuation = float(p - task.index)
        task.follower.x = np.array([float(task.index)])
        task.follower.search.mean[:] = rng.random(1)
        task.follower.answer.y = np.array([float(task.index)])
    return DRC(mixing=mixing), tasks


@pytest.mark.parametrize(("mixing", "total"), [("paper", 2.0), ("convex", 1.0)])
def test_mixing_weights_add_up_to_the_sources_or_to_one(mixing: str, total: float) -> None:
    drc, tasks = cooperating(mixing)
    for task in tasks:
        task.follower.search.mean[:] = 1.0
    guide = drc.cooperate(tasks[0], neighbours(tasks)[0])
    assert guide is not None
    assert tasks[0].follower.search.mean[0] == pytest.approx(total)  # p // 2 = 2 sources


def test_cooperation_takes_from_near_and_more_settled_tasks_only() -> None:
    drc, tasks = cooperating("paper")
    near = neighbours(tasks)
    assert drc.cooperate(tasks[4], near[4]) is None  # the most settled has no source
    guide = drc.cooperate(tasks[0], near[0])
    assert guide.tolist() in ([1.0], [2.0])  # its two nearest neighbours


def test_young_tasks_do_not_cooperate_and_the_switch_works() -> None:
    drc, tasks = cooperating("paper")
    near = neighbours(tasks)
    assert DRC(cooperation=False).cooperate(tasks[0], near[0]) is None
    tasks[0].fluctuation = np.inf  # as before the third execution
    assert drc.cooperate(tasks[0], near[0]) is None


def test_roulette_draws_by_probability() -> None:
    rng = np.random.default_rng(1)
    draws = [roulette([0.2, 0.5, 1.0], draw) for draw in rng.random(20_000)]
    np.testing.assert_allclose(np.bincount(draws) / len(draws), [0.2, 0.3, 0.5], atol=0.02)


@pytest.mark.parametrize(
    "bad",
    [
        {"mixing": "raw"},
        {"selection": "best"},
        {"stop": "quarter"},
        {"parallel": "tasks"},
        {"gamma": 2.0},
        {"w_base": 0.5},
        {"epsilon": 1.0},
        {"alpha": -0.1},
    ],
)
def test_settings_out_of_range_are_refused(bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        DRC(**bad)


@pytest.mark.parametrize(
    "switch",
    [
        {"cooperation": False},
        {"selection": "uniform"},
        {"stop": "all"},
        {"mixing": "convex"},
        {"parallel": "rounds"},
    ],
)
def test_every_ablation_runs_and_changes_the_course(switch) -> None:
    problem = bilevo.problems.get("smd1")
    plain = minimize_counted(problem, method=DRC(), max_evals=4000)
    ablated = minimize_counted(problem, method=DRC(**switch), max_evals=4000)
    assert np.isfinite(ablated.F) and (plain.method, ablated.method) == ("drc-cma-es", "drc")
    assert ablated.history[0] != plain.history[0]


def test_the_competition_ends_when_half_of_the_tasks_have_finished() -> None:
    half = minimize_counted(bilevo.problems.get("smd1"), method=DRC(), max_evals=4000)
    everyone = minimize_counted(bilevo.problems.get("smd1"), method=DRC(stop="all"), max_evals=4000)
    assert sum(half.history[0].executions) < sum(everyone.history[0].executions)


def test_a_round_draws_distinct_unfinished_tasks_and_better_ones_first() -> None:
    tasks = [task_with([(F, 0.0)], i) for i, F in enumerate([1.0, 2.0, 3.0, 9.0, 1.0])]
    tasks[4].follower.finished = True
    rng = np.random.default_rng(1)
    draws = [[task.index for task in DRC().draw(tasks, 2, rng)] for _ in range(2000)]
    assert all(len(set(draw)) == 2 and 4 not in draw for draw in draws)
    often = np.bincount(np.ravel(draws), minlength=4)
    assert often[0] > often[1] > often[2] > often[3] > 0
    assert len(DRC().draw(tasks, 9, rng)) == 4


def requests_of(problem: bilevo.Problem, method: DRC, seed: int) -> tuple[int, int]:
    """A run's requests and its points."""
    opt, requests = bilevo.Optimizer(problem, method=method, rng=seed), 0
    while not opt.done:
        batch = opt.ask()
        F, _, f, _ = problem.evaluate(batch.x, batch.y)
        opt.tell(batch, F if batch.level == "upper" else f)
        requests += 1
    return requests, opt.result.nfev


@pytest.mark.rest
def test_rounds_ask_for_thrice_the_points_at_once_and_for_hardly_more_in_all() -> None:
    """Figures over more problems and seeds: benchmarks/rounds.py."""
    evaluations = np.zeros(2)
    for name in ("smd1", "smd3", "smd5"):
        runs = [
            [requests_of(bilevo.problems.get(name), method, seed) for seed in range(4)]
            for method in (DRC(), DRC(parallel="rounds"))
        ]
        requests, points = np.array(runs, float).transpose(2, 0, 1)
        exact, rounds = np.median(points / requests, axis=1)
        assert rounds > 3 * exact
        evaluations += points.sum(axis=1)
    assert evaluations[1] < 1.1 * evaluations[0]


def test_rounds_stop_at_the_step_in_which_half_of_the_tasks_have_finished() -> None:
    """With budgets of two lower generations every task ends at its second execution."""
    problem, short = bilevo.problems.get("smd1"), bilevo.Budget(lower_max=14)
    result = minimize_counted(problem, method=DRC(parallel="rounds"), budget=short, max_evals=3000)
    assert {tuple(sorted(row.executions)) for row in result.history} == {(1,) * 4 + (2,) * 4}


def rebuilt(value):
    """A copy made of dataclasses, lists, arrays and numbers; anything else is refused."""
    if is_dataclass(value):
        return type(value)(**{f.name: rebuilt(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, list):
        return [rebuilt(item) for item in value]
    assert value is None or isinstance(value, np.ndarray | int | float | str)
    return value.copy() if isinstance(value, np.ndarray) else value


class Stored(DRC):
    """Each generation goes on from a copy of the state, as if it had been stored."""

    def generation(self, spec, state):
        return (yield from DRC.generation(self, spec, rebuilt(state)))


@pytest.mark.parametrize("parallel", ["points", "rounds"])
@pytest.mark.parametrize("x0", [None, [1.0, 1.0]])
def test_a_run_goes_on_from_its_stored_state_bit_for_bit(parallel, x0) -> None:
    runs = [
        minimize_counted(
            bilevo.problems.get("smd2"), method=method(parallel=parallel), max_evals=6000, x0=x0
        )
        for method in (DRC, Stored)
    ]
    assert runs[0].nit > 5 and fingerprint(runs[0]) == fingerprint(runs[1])


@dataclass
class Cloud:
    """A toy optimizer's state: a Gaussian with independent coordinates."""

    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class Toy:
    """A toy evolution strategy: move to the mean of the better half, take its spread."""

    keeps_values = False

    def population_size(self, d):
        return 24

    def start(self, start, rng):
        return Cloud(start.mean.copy(), np.sqrt(np.diag(start.covariance)))

    def ask(self, state, rng):
        points = state.mean + state.deviation * rng.normal(size=(24, len(state.mean)))
        return np.clip(points, 0, 1)

    def tell(self, state, points, objective, violation):
        better = points[ranking(objective, violation)[:12]]
        state.mean, state.deviation = better.mean(axis=0), 1.3 * better.std(axis=0) + 1e-9

    def mean(self, state):
        return state.mean

    def marginal(self, state, first):
        deviation = state.deviation[first:]
        return Start(state.mean[first:], np.diag(deviation**2), np.zeros(len(deviation)))

    def mix(self, state, own_weight, others, weights):
        total = own_weight + sum(weights)
        mixed = own_weight * state.mean
        for other, weight in zip(others, weights, strict=True):
            mixed = mixed + weight * other.mean
        state.mean = mixed / total

    def exhausted(self, state):
        return bool(state.deviation.max() < 1e-8)


class Living(Toy):
    """An optimizer that hands out a search's own population and writes into it when told."""

    populations: ClassVar[dict] = {}

    def population(self, state):
        return self.populations.setdefault(id(state), np.empty((24, 5)))

    def ask(self, state, rng):
        points = self.population(state)[:, : len(state.mean)]
        points[:] = super().ask(state, rng)
        return points

    def tell(self, state, points, objective, violation):
        super().tell(state, points.copy(), objective, violation)
        self.population(state)[:] = 0.5


class Shared(Living):
    """One population for all searches: they write into each other's points."""

    def population(self, state):
        return self.populations.setdefault("all", np.empty((24, 5)))


def test_answers_are_not_changed_by_an_optimizer_that_reuses_its_arrays() -> None:
    problem = bilevo.problems.get("smd1")
    result = minimize_counted(problem, method=DRC(lower=Living()), max_evals=3000)
    F, _, f, _ = problem.evaluate(result.x, result.y)
    assert (F[0], f[0]) == (result.F, result.f)


def test_an_optimizer_whose_searches_share_an_array_is_refused() -> None:
    with pytest.raises(BadRequest, match="pair was not evaluated at the lower level"):
        minimize_counted(bilevo.problems.get("smd1"), method=DRC(lower=Shared()), max_evals=3000)


@pytest.mark.rest
@pytest.mark.parametrize(("upper", "lower"), [(Toy(), CMAES()), (CMAES(), Toy()), (Toy(), Toy())])
def test_any_optimizer_can_serve_at_either_level(upper, lower) -> None:
    problem = bilevo.problems.get("smd1")
    method = DRC(upper=upper, lower=lower)
    assert method.name == "drc"
    runs = [minimize_counted(problem, method=method, rng=s, max_evals=20_000) for s in range(5)]
    gains = [run.history[0].F / run.F for run in runs]
    assert np.median(gains) > 5


def test_a_lower_budget_of_one_generation_is_kept() -> None:
    """Tasks that finish with their first execution are never executed again."""
    short = bilevo.Budget(lower_max=3)
    problem = bilevo.problems.get("smd1")
    result = minimize_counted(problem, method=DRC(), budget=short, max_evals=2000)
    assert {n for row in result.history for n in row.executions} == {1}


@pytest.mark.parametrize(("optimizer", "told"), [(CMAES(), -3.0), (DE(), 2.0)])
def test_a_population_is_not_told_that_an_unsolved_pair_beats_the_elite(optimizer, told) -> None:
    """It would keep the pair for good, while CMA-ES forgets it."""
    rng = np.random.default_rng(1)
    search = optimizer.start(Start.uniform(np.full(1, 0.3), rng), rng)
    points = optimizer.ask(search, rng)
    heard: list[np.ndarray] = []

    class Listening(type(optimizer)):
        def tell(self, state, points, objective, violation):
            heard.append(objective)

    elite, flattering, solved, poor = pair(2.0), pair(-3.0), pair(1.0), pair(5.0)
    solved.converged = True
    state = LeaderState(search, elite=elite)
    tell_leader(state, Listening(), points[:3], [flattering, solved, poor])
    assert heard[0].tolist() == [told, 1.0, 5.0]


@pytest.mark.rest
@pytest.mark.parametrize("lower", [CMAES(), DE(), GA(), PSO()])
@pytest.mark.parametrize("upper", [CMAES(), DE(), GA(), PSO()])
def test_every_pair_of_optimizers_improves(upper, lower) -> None:
    result = minimize_counted(bilevo.problems.get("smd1"), method=DRC(upper, lower), max_evals=6000)
    assert result.F < result.history[0].F / 3


def test_what_is_no_optimizer_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="has no ask, exhausted"):
        DRC(lower=object())
    with pytest.raises(ValueError, match="such as CMAES"):
        DRC(lower=DE)
