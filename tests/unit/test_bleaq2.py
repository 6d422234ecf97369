"""BLEAQ-II: its archives, its mappings, the competition for places, and its local searches."""

import math

import numpy as np
import pytest
from conftest import fingerprint, minimize_counted, quadratic

from bilevo import Budget, Problem, Result, minimize
from bilevo.algorithms import BLEAQ2
from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.rivals.bleaq2 import BLEAQ2Leaders
from bilevo.algorithms.rivals.mappings import JointModels, Mappings, Sizes
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.budget import Scale
from bilevo.problems import get

SIZES = Sizes(2, 2)


def answer(x):
    """Return the follower's answer, which is quadratic in x."""
    return np.column_stack([0.5 * x[:, 0], 0.1 + x[:, 0] * x[:, 1]])


def gap(x, y):
    return ((y - answer(x)) ** 2).sum(axis=1)


def archive(k: int, solved: bool = True) -> Archive:
    rng = np.random.default_rng(k)
    x = rng.random((k, 2))
    y = answer(x) if solved else rng.random((k, 2))
    F = (x**2).sum(axis=1) + y[:, 0]
    f = x[:, 0] + gap(x, y)
    columns = F[:, None], f[:, None], np.zeros((k, 1))
    return Archive(x, y, *columns, np.zeros((k, 0)), np.zeros((k, 0)))


def member(F: float, solved: bool, violation: float = 0.0) -> Pair:
    return Pair(np.full(2, F), np.zeros(2), 0.0, 0.0, F, violation, solved)


def test_an_archive_forgets_the_oldest_and_finds_the_nearest() -> None:
    pairs = archive(20).joined(Archive()).latest(12)
    assert len(pairs) == 12 and (pairs.x == archive(20).x[8:]).all()
    near = pairs.nearest(pairs.x[5], 3)
    assert (near.x[0] == pairs.x[5]).all()
    distances = np.linalg.norm(pairs.x - pairs.x[5], axis=1)
    assert np.linalg.norm(near.x - pairs.x[5], axis=1).max() == np.sort(distances)[2]


def test_mappings_find_what_is_quadratic_and_doubt_what_is_not() -> None:
    rng, pairs, x = np.random.default_rng(1), archive(40), np.array([0.4, 0.6])
    mappings = Mappings.around(x, pairs, SIZES, rng)
    assert mappings.answer(x) == pytest.approx(answer(x[None])[0], abs=1e-9)
    assert mappings.phi(x) == pytest.approx(0.4, abs=1e-9)
    assert mappings.psi_validation < 1e-9 and mappings.surrounds(x)
    assert not mappings.surrounds(np.array([0.4, 2.0]))
    pairs.y = np.sin(20 * pairs.y)
    doubtful = Mappings.around(x, pairs, SIZES, rng)
    assert doubtful.psi_validation > 1e-2 and doubtful.phi_validation < 1e-9


def test_joint_models_keep_the_follower_at_its_best_value() -> None:
    """Check that f <= phi leaves only the follower's answer, though F prefers a small y[0]."""
    rng, x = np.random.default_rng(2), np.array([0.5, 0.5])
    solved, others = archive(30), archive(31, solved=False)
    phi = Mappings.around(x, solved, SIZES, rng).phi
    # f is not quadratic in (x, y), because it contains a product; y itself is.
    near = solved.joined(others)
    near.f = near.x[:, :1] + ((near.y - 0.5 * near.x) ** 2).sum(axis=1, keepdims=True)
    models = JointModels.around(x, near, phi, Scale(), Sizes(2, 2))
    y = models.answer(x, np.array([0.6, 0.6]))
    assert y == pytest.approx([0.25, 0.25], abs=2e-3)


def test_solved_members_lead_and_win_tournaments() -> None:
    population = BLEAQ2Leaders([member(0.1, False), member(0.5, True), member(0.4, True, 1.0)])
    assert population.best == 1
    assert sorted(range(3), key=population.ranks.__getitem__) == [1, 2, 0]


def test_a_failed_member_does_not_count_as_solved() -> None:
    population = BLEAQ2Leaders([member(math.inf, True, math.inf), member(3.0, False)])
    assert population.best == 1


def test_the_best_solved_member_is_never_lost() -> None:
    rng = np.random.default_rng(0)
    best = member(0.5, True)
    population = BLEAQ2Leaders([best, *(member(0.6, True) for _ in range(3))])
    for _ in range(50):
        population.enter([member(0.1, False), member(0.2, False)], rng)
        assert population.members[population.best] is best
    better = member(0.4, True)
    population.enter([better, member(0.05, False)], rng)
    assert population.members[population.best] is better


def test_quadratic_followers_cost_a_model_and_its_answer() -> None:
    result = minimize_counted(quadratic(), method="bleaq2", rng=1, max_evals=700, target=False)
    first = result.history[0]
    assert first.nfev_upper == 1 + 50  # the first pair shows whether there are constraints
    assert first.nfev_lower == 1 + 50 * (6 + 2 + 1)


def test_pairs_are_sampled_where_there_are_constraints() -> None:
    problem = Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float((y - x) @ (y - x)),
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        G=lambda x, y: np.array([1.0 - x[0]]),
    )
    result = minimize_counted(problem, method="bleaq2", rng=1, max_evals=700, target=False)
    assert result.history[0].nfev_upper == 15 + 5 * 4 + 50
    assert result.violation == 0


def test_followers_that_are_not_quadratic_are_solved_twice_at_the_start() -> None:
    budget = Budget(lower_max=20)
    result = minimize_counted(get("smd1"), method="bleaq2", rng=1, budget=budget, max_evals=5_000)
    assert result.history[0].nfev_upper == 1 + 2 * 50


def test_local_search_on_exact_models_solves_smd6() -> None:
    """Check a follower that leaves a direction open, which only phi can use."""
    results = [
        minimize_counted(get("smd6"), method="bleaq2", rng=s, max_evals=9_000) for s in (0, 1, 2)
    ]
    assert min(result.F for result in results) < 1e-6


def test_models_can_take_the_place_of_searches() -> None:
    method = BLEAQ2(prob_search=0.0)
    assert method.name != "bleaq2"
    result = minimize_counted(
        quadratic(), method=method, rng=1, budget=Budget(upper_max=300, lower_max=100), target=False
    )
    searched = minimize_counted(
        quadratic(),
        method=BLEAQ2(),
        rng=1,
        budget=Budget(upper_max=300, lower_max=100),
        target=False,
    )
    assert result.nfev_lower < searched.nfev_lower / 2
    assert result.F < 1e-3 and result.y == pytest.approx(result.x, abs=1e-3)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        BLEAQ2(prob_search=1.5)
    with pytest.raises(ValueError, match="at least 4"):
        BLEAQ2(population=2)


@pytest.mark.rest
def test_a_run_goes_on_from_a_snapshot_of_its_archives(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bilevo.run.directory.SNAPSHOT_AFTER", 0.0)
    problem, budget = get("smd9"), Budget(lower_max=20, upper_max=230)

    def stop_early(result: Result) -> None:
        if result.nit == 12:
            raise StopIteration

    options = {"method": "bleaq2", "rng": 6, "budget": budget}
    whole = minimize_counted(problem, **options)
    assert whole.nit > 20
    minimize(problem, run_dir=tmp_path / "run", callback=stop_early, **options)
    again = minimize(problem, run_dir=tmp_path / "run", **options)
    assert fingerprint(again) == fingerprint(whole)
