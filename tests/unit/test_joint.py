"""Simulators that return the values of both levels by one call."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bilevo
from bilevo import Problem
from bilevo.core.values import BadValue

BOX = [(-5, 10)]


class Simulator:
    """Counts calls and pairs; returns a tuple or a dictionary; may fail at some pairs."""

    def __init__(self, problem, as_dict=False, fails=None):
        self.problem, self.as_dict, self.fails = problem, as_dict, fails
        self.calls, self.pairs = 0, set()

    def __call__(self, x, y):
        self.calls += 1
        self.pairs.add((tuple(x), tuple(y)))
        if self.fails is not None and self.fails(x, y):
            raise RuntimeError("diverged")
        F, G, f, g = (part[0] for part in self.problem.evaluate(x, y))
        return {"F": F, "f": f, "G": G, "g": g} if self.as_dict else (F, f, G, g)


def joint(name="smd1", **settings):
    original = bilevo.problems.get(name)
    simulator = Simulator(original, **settings)
    bounds = original.x_bounds, original.y_bounds
    return Problem.joint(simulator, *bounds, optimum=original.optimum, name=name), simulator


def two_functions(x, y):
    return (x[0] - 3) ** 2 + (y[0] - 1) ** 2, (y[0] - x[0]) ** 2 + 0.1 * y[0]


def same(one, other):
    assert np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)
    assert (one.F, one.f, one.nfev) == (other.F, other.f, other.nfev)
    assert (one.nfev_upper, one.nfev_lower) == (other.nfev_upper, other.nfev_lower)


@pytest.mark.parametrize("as_dict", [False, True])
def test_counts_agree_with_the_simulators_own(as_dict):
    problem, simulator = joint(as_dict=as_dict)
    found = bilevo.minimize(problem, rng=3)
    assert found.success
    assert found.nfev == found.simulations == simulator.calls == len(simulator.pairs)
    assert found.nfev < found.nfev_upper + found.nfev_lower
    assert "simulations" in str(found)


@pytest.mark.parametrize("name", ["smd1", "smd2", "tp1", "smd9"])
def test_a_joint_run_takes_the_course_of_the_run_with_functions(name):
    problem, _ = joint(name)
    apart = bilevo.minimize(bilevo.problems.get(name), method="drc-plus", rng=7, max_evals=3000)
    together = bilevo.minimize(problem, method="drc-plus", rng=7, max_evals=3000)
    assert together.nfev <= 1.05 * apart.nfev_lower
    if apart.success:
        assert (together.F, together.f) == (apart.F, apart.f)
        assert together.nfev_upper == apart.nfev_upper
        assert together.nfev_lower == apart.nfev_lower


def test_limits_are_on_simulations():
    problem, simulator = joint()
    found = bilevo.minimize(problem, rng=1, max_evals=150, target=False)
    assert found.nfev == simulator.calls <= 150
    problem, simulator = joint()
    found = bilevo.minimize(problem, rng=1, max_evals_upper=5, target=False)
    assert found.nfev_upper <= 5


def test_a_simulator_may_return_two_values_only():
    found = bilevo.minimize(Problem.joint(two_functions, BOX, BOX))
    assert found.success
    assert pytest.approx(1.90125, abs=1e-6) == found.F


def test_a_vectorized_simulator_gets_rows():
    def rows(x, y):
        return two_functions(x.T, y.T)

    apart = bilevo.minimize(Problem.joint(two_functions, BOX, BOX))
    together = bilevo.minimize(Problem.joint(rows, BOX, BOX, vectorized=True))
    same(apart, together)


@pytest.mark.filterwarnings("ignore:workers slow")
def test_workers_give_the_same_result():
    here = bilevo.minimize(joint()[0], rng=2, max_evals=400)
    with ThreadPoolExecutor(2) as pool:
        problem, simulator = joint()
        there = bilevo.minimize(problem, rng=2, max_evals=400, workers=pool)
    same(here, there)
    assert simulator.calls == there.nfev


@pytest.mark.parametrize("cut", [1, 57, 200])
def test_a_run_is_resumed_without_another_simulation(tmp_path, cut):
    whole = bilevo.minimize(joint()[0], rng=2, max_evals=400, target=False)
    problem, first = joint()
    bilevo.minimize(problem, rng=2, max_evals=cut, run_dir=tmp_path, target=False)
    problem, second = joint()
    again = bilevo.minimize(
        problem, rng=2, max_evals=400, run_dir=tmp_path, target=False, recheck=False
    )
    same(whole, again)
    assert first.calls + second.calls == again.nfev
    assert not first.pairs & second.pairs
    same(bilevo.load(tmp_path), again)


def test_a_run_that_is_killed_has_its_counts_in_the_journal(tmp_path):
    stop = {}

    def fails(x, y):
        if len(stop["simulator"].pairs) > 120:
            raise KeyboardInterrupt
        return False

    problem, stop["simulator"] = joint(fails=fails)
    cut = bilevo.minimize(problem, rng=2, run_dir=tmp_path, target=False)
    stored = bilevo.load(tmp_path)
    assert stored.nfev == cut.nfev == 120
    assert (stored.nfev_upper, stored.nfev_lower) == (cut.nfev_upper, cut.nfev_lower)


def test_a_resumed_run_simulates_its_best_pair_once_again(tmp_path):
    bilevo.minimize(joint()[0], rng=2, max_evals=300, run_dir=tmp_path, target=False)
    problem, second = joint()
    again = bilevo.minimize(problem, rng=2, max_evals=320, run_dir=tmp_path, target=False)
    assert again.rechecked == 1
    assert second.calls == again.nfev - 300 + 1 or second.calls <= 21


def test_a_pair_that_fails_is_not_simulated_again():
    problem, simulator = joint(fails=lambda x, y: y[0] > 4)
    found = bilevo.minimize(problem, rng=2, max_evals=400, on_failure="worst", target=False)
    assert found.failures > 0
    assert found.nfev == simulator.calls == len(simulator.pairs)
    problem, _ = joint(fails=lambda x, y: True)
    with pytest.raises(RuntimeError, match="diverged"):
        bilevo.minimize(problem)


def test_the_archive_has_the_values_of_both_levels():
    found = bilevo.minimize(joint("smd9")[0], rng=2, max_evals=200, keep_archive=True)
    archive = found.archive()
    assert len(archive.F) == found.nfev
    assert np.isfinite(archive.F).all() and np.isfinite(archive.f).all()
    assert np.isfinite(archive.G).all() and np.isfinite(archive.g).all()


def test_verification_takes_joint_problems():
    problem, _ = joint()
    found = bilevo.minimize(problem, rng=3)
    assert bilevo.verify(problem, found).confirmed


def test_evaluate_simulates_a_pair_once():
    problem, simulator = joint("smd9")
    F, G, f, g = problem.evaluate(np.ones((2, 2)), np.ones((2, 3)))
    assert simulator.calls == 2
    assert [part.shape for part in (F, G, f, g)] == [(2,), (2, 1), (2,), (2, 1)]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (1.0, "return"),
        ((1.0, 2.0, 3.0), "return"),
        ({"F": 1.0}, "without 'f'"),
        ({"F": 1.0, "f": 2.0, "h": 0.0}, "with 'h'"),
        ((1.0, "two"), "not real numbers"),
    ],
)
def test_wrong_returns_are_refused(returned, words):
    with pytest.raises(BadValue, match=words):
        bilevo.minimize(Problem.joint(lambda x, y: returned, BOX, BOX))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="simulate"):
        Problem.joint(3, BOX, BOX)
    with pytest.raises(TypeError, match="F_jac"):
        Problem.joint(two_functions, BOX, BOX, F_jac=two_functions)
    with pytest.raises(ValueError, match="ask and tell"):
        bilevo.Optimizer(Problem.joint(two_functions, BOX, BOX))
