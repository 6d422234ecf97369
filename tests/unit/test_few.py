"""few: models of both levels, the choice of the method by the limit, and the end as drc-plus."""

import numpy as np
import pytest

import bilevo
from bilevo import Problem, minimize
from bilevo.algorithms.few.joint_model import JointModels
from bilevo.core.budget import OWN_ENDS
from bilevo.problems import get

BOX = [(-5, 10)]
RNG = np.random.default_rng(5)


def F(x, y):
    return (x[0] - 3) ** 2 + (y[0] - 1) ** 2


def f(x, y):
    return (y[0] - x[0]) ** 2 + 0.1 * y[0]


def model_of(points, values, signed=False):
    """A model of one function, in the units of its values."""
    models = JointModels.of(points, values[:, None], np.array([signed]))
    return lambda others: models.mean[0] + models.unit[0] * models(others)[:, 0]


@pytest.mark.parametrize("signed", [False, True])
def test_a_model_of_a_quadratic_is_exact(signed):
    points, others = RNG.random((12, 3)), RNG.random((20, 3))

    def quadratic(z):
        return 1 + z @ [3.0, -2.0, 1.0] + (z @ [1.0, 2.0, -1.0]) ** 2

    model = model_of(points, quadratic(points), signed)
    assert model(others) == pytest.approx(quadratic(others), abs=1e-10)


def test_a_function_with_a_kink_is_not_taken_for_a_quadratic():
    points, others = RNG.random((30, 2)), RNG.random((20, 2))

    def kinked(z):
        return np.abs(z[:, 0] - 0.5) + z[:, 1]

    models = JointModels.of(points, kinked(points)[:, None], np.array([False]))
    assert models.settings[0] is not None
    model = model_of(points, kinked(points))
    assert model(points) == pytest.approx(kinked(points), abs=1e-4)
    assert model(others) == pytest.approx(kinked(others), abs=0.2)


def test_models_with_the_settings_of_others_meet_the_same_values():
    points = RNG.random((40, 2))
    values = np.sin(3 * points) + points[:, ::-1] ** 3
    signed = np.array([False, True])
    first = JointModels.of(points[:39], values[:39], signed)
    then = JointModels.of(points, values, signed, first.settings)
    assert then.settings == first.settings
    assert then.mean + then.unit * then(points) == pytest.approx(values, abs=1e-4)


def test_a_model_meets_the_values_of_a_smooth_function():
    points = RNG.random((40, 2))
    values = np.sin(3 * points[:, 0]) + points[:, 1] ** 3
    assert model_of(points, values)(points) == pytest.approx(values, abs=1e-4)


def test_a_model_keeps_the_order_of_values_over_many_orders():
    points = np.linspace(0, 1, 21)[:, None]
    values = 10 ** (8 * np.abs(points[:, 0] - 0.3))
    told = model_of(points, values)(points)
    assert told.argmin() == values.argmin()


def test_it_is_chosen_where_the_limit_is_small_and_there_are_few_variables():
    assert minimize(F, f, BOX, BOX, max_evals=60).method == "few"
    assert minimize(F, f, BOX, BOX, max_evals=1001).method == "drc-plus"
    assert minimize(get("smd1"), max_evals=60).method == "few"
    assert minimize(get("smd1", 2, 4), max_evals=60).method == "drc-plus"
    assert minimize(F, f, BOX, BOX, max_evals=60, method="drc-plus").method == "drc-plus"


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_forty_evaluations_are_enough_for_quadratics(seed):
    found = minimize(F, f, BOX, BOX, max_evals=40, rng=seed)
    assert found.nfev <= 40
    assert pytest.approx(1.90125, abs=1e-3) == found.F


@pytest.mark.parametrize("name", ["calamaivicente1994a", "dempe1992b", "shimizuetal1997b"])
def test_constraints_at_both_levels_are_learnt(name):
    problem = get(name)
    found = minimize(problem, max_evals=120, target=False, rng=21)
    assert found.method == "few" and found.feasible
    assert abs(found.F - problem.optimum.F) <= 1e-2 * max(1, abs(problem.optimum.F))


@pytest.mark.parametrize("limit", [30, 47, 75, 120])
def test_a_limit_leaves_little_unused(limit):
    found = minimize(get("clarkwesterberg1990a"), max_evals=limit, target=False, rng=3)
    assert 0.9 * limit <= found.nfev <= limit or found.status in OWN_ENDS


def test_a_run_goes_on_as_drc_plus_and_is_certified():
    found = minimize(F, f, BOX, BOX, method="few", rng=2)
    assert found.success and found.certified
    assert pytest.approx(1.90125, abs=1e-6) == found.F


def test_an_answer_is_certified_within_a_small_limit():
    for seed in (1, 2, 3):
        found = minimize(F, f, BOX, BOX, max_evals=250, rng=seed)
        assert found.certified and not found.success  # the limit ended the run
        assert "its follower is certified" in found.message


def test_more_variables_are_left_to_drc_plus():
    found = minimize(get("smd1", 3, 3), method="few", rng=2, max_evals=4000)
    assert found.success


def test_a_call_with_a_larger_limit_goes_on_with_the_method_that_it_began_with(tmp_path):
    calls = []

    def counted(x, y):
        calls.append(1)
        return f(x, y)

    first = minimize(F, counted, BOX, BOX, max_evals=50, run_dir=tmp_path, target=False)
    made = len(calls)
    then = minimize(
        F, counted, BOX, BOX, max_evals=3000, run_dir=tmp_path, target=False, recheck=False
    )
    assert first.method == then.method == "few"
    assert len(calls) - made == then.nfev_lower - first.nfev_lower
    assert then.F == minimize(F, f, BOX, BOX, max_evals=3000, method="few", target=False).F


def test_a_simulator_of_both_levels_needs_few_simulations():
    def simulate(x, y):
        return F(x, y), f(x, y)

    together = minimize(Problem.joint(simulate, BOX, BOX), max_evals=25)
    assert together.method == "few" and together.nfev <= 25
    assert pytest.approx(1.90125, abs=1e-3) == together.F


def test_points_that_fail_are_left_out_of_models():
    def fails(x, y):
        if y[0] > 6:
            raise RuntimeError("diverged")
        return f(x, y)

    found = minimize(F, fails, BOX, BOX, max_evals=100, on_failure="worst", rng=4)
    assert found.failures > 0
    assert pytest.approx(1.90125, abs=1e-2) == found.F


def test_success_is_claimed_only_with_a_certificate():
    found = minimize(F, f, BOX, BOX, max_evals=30)
    assert not found.success and not found.certified
    assert bilevo.verify(Problem(F, f, BOX, BOX), minimize(F, f, BOX, BOX, method="few")).confirmed


def test_a_follower_that_is_indifferent_at_the_best_leader_loses_nothing():
    found = minimize(get("yezza1996ex31"), max_evals=60, target=False, rng=31)
    assert abs(found.F - 1.5) <= 5e-3


@pytest.mark.parametrize("seed", [303, 307])
def test_an_answer_where_the_feasible_answers_shrink_to_a_point_is_found(seed):
    found = minimize(get("colson2002bipa2"), max_evals=80, target=False, rng=seed)
    assert found.feasible and abs(found.F - 17) <= 0.08


def test_a_user_who_rounds_is_warned_once_drc_plus_takes_over():
    calls = []

    def rounded(x, y):
        calls.append(1)
        return (round(y[0]) - 1.7 * x[0]) ** 2 + 0.1 * round(y[0])

    with pytest.warns(UserWarning, match="f changes in steps along y"):
        found = minimize(F, rounded, [(0, 20)], [(0, 30)], max_evals=200, method="few")
    assert found.nfev_lower == len(calls) and not found.success
