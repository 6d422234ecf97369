"""few on joint problems: F is known wherever f is, and windows narrow where models are coarse."""

import numpy as np
import pytest

from bilevo import Problem, minimize
from bilevo.algorithms.few.state import FewState
from bilevo.algorithms.few.window import (
    LARGEST_RADIUS,
    Window,
    add_spread,
    count_near,
    open_window,
    resize,
)
from bilevo.core.budget import OWN_ENDS, FullBudget
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Values, run
from bilevo.problems import get


def joint(name, fails=lambda y: False):
    original = get(name)

    def simulate(x, y):
        if fails(y):
            raise RuntimeError("diverged")
        F, G, f, g = (part[0] for part in original.evaluate(x, y))
        return {"F": F, "f": f, "G": G, "g": g}

    bounds = original.x_bounds, original.y_bounds
    return Problem.joint(simulate, *bounds, optimum=original.optimum, name=name)


def seen(z, F, f):
    """Return the state of a run that has simulated pairs z (k, 2) of one variable each."""
    state, none = FewState.empty(1, 1), np.empty((len(z), 0))
    z, feasible = np.array(z), np.zeros(len(z))
    state.add(z[:, :1], z[:, 1:], Values(np.array(f), feasible, none, len(z)))
    state.set_upper(np.arange(len(z)), Values(np.array(F), feasible, none, len(z)))
    state.best = 0
    return state


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize(("name", "simulations"), [("smd1", 160), ("smd6", 120)])
def test_a_simulator_is_solved_with_few_simulations(name, simulations, seed):
    found = minimize(joint(name), max_evals=simulations, target=False, rng=seed)
    assert found.nfev <= simulations
    assert abs(found.F) <= 1e-2 and abs(found.f) <= 1e-2


def test_F_is_asked_wherever_f_was_simulated_until_drc_plus_takes_over():
    found = minimize(joint("smd1"), max_evals=40, target=False, rng=11)
    assert found.nfev == found.nfev_lower == found.nfev_upper == 40
    apart = minimize(get("smd1"), max_evals=40, target=False, rng=11)
    assert apart.nfev_upper < apart.nfev_lower


@pytest.mark.parametrize("simulations", [50, 65, 80, 100])
def test_a_tie_of_the_follower_does_not_replace_the_answer_that_models_have_found(simulations):
    found = minimize(joint("smd6"), max_evals=simulations, target=False, rng=11)
    assert found.F <= 1e-2


def test_constraints_of_both_levels_are_met():
    found = minimize(joint("tp3"), max_evals=400, rng=11)
    assert found.feasible
    assert abs(found.F - get("tp3").optimum.F) <= 1e-2 * abs(get("tp3").optimum.F)


def test_a_window_avoids_pairs_that_fail():
    found = minimize(
        joint("smd1", lambda y: y[0] > 4), max_evals=300, target=False, rng=11, on_failure="worst"
    )
    assert found.failures > 0 and found.F <= 1e-2


def test_a_run_where_everything_is_known_ends():
    def simulate(x, y):
        return round(x[0]) ** 2 + round(y[0]), (round(y[0]) - round(x[0])) ** 2

    found = minimize(
        Problem.joint(simulate, [(-3, 3)], [(-3, 3)], x_integrality=1, y_integrality=1),
        method="few",
        max_evals=100,
        rng=3,
    )
    assert found.nfev <= 49 and found.status in OWN_ENDS


def test_a_window_stays_in_the_box_and_has_its_own_coordinates():
    state = seen([[0.1, 0.5]], [1.0], [1.0])
    state.radius = 0.25
    window = Window.of(state)
    assert window.low == pytest.approx([0.0, 0.25])
    assert window.width == pytest.approx([0.35, 0.5])
    points = np.random.default_rng(1).random((5, 2))
    assert window.inner(window.outer(points)) == pytest.approx(points)


def test_the_first_window_is_where_both_levels_are_low():
    pairs = [[0.1, 0.1], [0.5, 0.5], [0.9, 0.9], [0.9, 0.1]]
    state = seen(pairs, [1.0, 2.0, 9.0, 8.0], [9.0, 2.0, 1.0, 8.0])
    run(open_window(state), lambda request: None)
    assert state.best == 1 and state.looks_closer


def test_pairs_that_fill_a_window_keep_away_from_others():
    state, rng = seen([[0.5, 0.5], [0.55, 0.5]], [1.0, 2.0], [1.0, 2.0]), np.random.default_rng(1)
    state.radius = 0.1
    spec = Spec(1, 1, 1, FullBudget.for_size(1, 1), np.full(2, 0.3), joint=True)
    asked = []

    def answer(request):
        asked.append(request.level)
        return Values(np.ones(len(request.x)), np.zeros(len(request.x)), np.empty((3, 0)), 1)

    run(add_spread(spec, state, 3, rng), answer)
    assert asked == [Level.LOWER, Level.UPPER]
    assert count_near(state) == len(state.z) == 5
    distances = np.abs(state.z[:, None] - state.z).max(axis=2) + np.eye(5)
    assert distances[2:].min() > 0.05 and np.isfinite(state.F).all()


def test_a_window_doubles_after_a_step_to_its_edge_and_shrinks_with_short_ones():
    state = seen([[0.5, 0.5]], [1.0], [1.0])
    state.radius = 0.1
    resize(state, 0.1, shrinks=True)
    assert state.radius == 0.2
    resize(state, 0.01, shrinks=False)
    assert state.radius == 0.2
    resize(state, 0.02, shrinks=True)
    assert state.radius == pytest.approx(0.08)
    resize(state, 0.0, shrinks=True)
    assert state.radius == pytest.approx(0.02)
    state.radius = LARGEST_RADIUS
    resize(state, LARGEST_RADIUS, shrinks=True)
    assert state.radius == LARGEST_RADIUS
