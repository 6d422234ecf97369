"""The end of few's part with models: the answer is made exact, and checked once."""

from dataclasses import replace

import numpy as np
import pytest
from driven import Driven

from bilevo import Problem, minimize
from bilevo.algorithms.drc_plus.certificate import Check, check_answer, level_ends
from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.method import DRCPlus
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.request import Level
from bilevo.problems import get


def joint(name):
    problem = get(name)

    def simulate(x, y):
        F, _, f, _ = problem.evaluate(x, y)
        return F[0], f[0]

    bounds = problem.x_bounds, problem.y_bounds
    return Problem.joint(simulate, *bounds, optimum=problem.optimum)


@pytest.mark.parametrize("seed", [77, 78])
@pytest.mark.parametrize("name", ["smd1", "smd6"])
def test_a_simulator_at_its_target_is_certified_within_350_simulations(name, seed):
    found = minimize(joint(name), max_evals=350, rng=seed)
    assert found.success and found.certified
    assert abs(found.F) <= 1e-6 and abs(found.f) <= 1e-6


@pytest.mark.parametrize("name", ["smd1", "smd6"])
def test_a_simulator_without_a_target_has_its_certificate_early(name):
    found = minimize(joint(name), max_evals=370, target=False, rng=77)
    assert found.certified and not found.success
    assert abs(found.F) <= 1e-6


def test_two_functions_are_certified_sooner_where_f_is_level():
    found = minimize(get("smd6"), max_evals=500, rng=77)
    assert found.success


def driven_at(problem, x, y, sparing):
    """A run at a pair, the task there, and its follower."""
    driven = Driven(problem)
    state = driven.run(DRCPlus().init(driven.spec()))
    state.known.sparing = sparing
    F, _, f, _ = driven.problem.evaluate(x, y)
    units = driven.x_box.unit(np.array(x)), driven.y_box.unit(np.array(y))
    own = WarmTask.of_pair(Pair(*units, float(f[0]), 0.0, float(F[0]), 0.0), np.empty(0))
    return driven, own, DRCPlus().follower(driven.spec(), state)


def test_ties_with_a_level_path_between_them_need_no_search_of_the_whole_box():
    spent = []
    for sparing in (True, False):
        at = get("smd6"), [0.0, 0.0], [0.0, 0.0, 0.0]
        driven, own, follower = driven_at(*at, sparing)
        check = driven.run(check_answer(follower, own, np.random.default_rng(3)))
        assert check.unanimous == sparing and check.verdict(own.pair.f).certified
        spent.append(driven.counts[Level.LOWER])
    assert spent[0] < 0.6 * spent[1]


@pytest.mark.parametrize(
    ("f", "level"),
    [
        (lambda x, y: (y[0] + y[1]) ** 2, True),  # level between the ties
        (lambda x, y: np.sin(np.pi * y[0]) ** 2 + (y[0] + y[1]) ** 2, False),  # ripples between
        (lambda x, y: (y[0] + y[1]) ** 2 - 0.1 * max(0, 1 - abs(y[0] - 2)), False),  # a hole
    ],
)
def test_only_answers_with_the_same_f_all_between_them_lie_in_one_basin(f, level):
    problem = Problem(lambda x, y: 0.0, f, [(-1, 1)], [(-4, 4)] * 2)
    driven, own, follower = driven_at(problem, [0.0], [0.0, 0.0], True)
    y = driven.y_box.unit(np.array([4.0, -4.0]))  # a whole number of ripples away
    end = replace(own, pair=replace(own.pair, y=y), solved=True)
    check = Check(follower.known, own, local=[end])
    check.tied = driven.run(level_ends(follower, check, np.random.default_rng(1)))
    assert check.is_away(end) != level


@pytest.mark.parametrize("strict", [False, True])
def test_two_searches_must_agree_if_no_other_check_was_made_and_ends_differ(strict):
    _, own, follower = driven_at(get("smd3"), [0.0, 0.0], [0.0, 0.0, 0.0], True)
    follower.known.strict = strict
    elsewhere = replace(own, pair=replace(own.pair, y=own.pair.y + 0.2, f=1.0), solved=True)
    check = Check(follower.known, own, local=[elsewhere] * 2, ends=[elsewhere, own])
    assert check.agreeing == 1 and check.confirmed != strict
    check.local = [own] * 2
    assert check.unanimous and check.confirmed


def test_a_wrong_answer_is_refuted_by_a_sparing_check():
    at = get("smd3"), [0.0, 0.0], [0.99, 0.0, 0.0]
    driven, own, follower = driven_at(*at, True)
    check = driven.run(check_answer(follower, own, np.random.default_rng(3)))
    assert not check.stands and not check.verdict(own.pair.f).certified
    assert check.best.pair.f == pytest.approx(0.0, abs=1e-9)


def test_a_basin_that_models_did_not_see_is_not_certified():
    """The follower has a better basin far from where the models look."""

    def simulate(x, y):
        wide, narrow = (y[0] - x[0]) ** 2, 3 - 8 * np.exp(-2 * (y[0] + 3) ** 2)
        return (x[0] - 1) ** 2 + (y[0] - 1) ** 2, wide + narrow

    box = [(-5, 5)]
    for seed in (1, 2, 3):
        found = minimize(Problem.joint(simulate, box, box), max_evals=300, target=0.0, rng=seed)
        grid = np.linspace(-5, 5, 20_001)
        best = min(simulate(found.x, [y])[1] for y in grid)
        assert not found.certified or found.f <= best + 1e-6
