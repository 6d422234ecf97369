"""SA-BL-IMODE: its classifier, its choice of leaders, and its followers."""

import numpy as np
import pytest
from conftest import fingerprint, minimize_counted

import bilevo
from bilevo import Budget
from bilevo.algorithms import SABLIMODE
from bilevo.algorithms.rivals.scikit_learn import probability_good
from bilevo.problems import get


def test_the_classifier_follows_its_neighbours() -> None:
    x = np.linspace(0, 1, 20)[:, None]
    chances = probability_good(x, x[:, 0] < 0.4, np.array([[0.1], [0.9], [0.42]]))
    assert chances[:2].tolist() == [1.0, 0.0] and 0 < chances[2] < 1


@pytest.mark.parametrize("good", [True, False])
def test_the_classifier_needs_no_second_class(good: bool) -> None:
    chances = probability_good(np.zeros((3, 2)), np.full(3, good), np.ones((2, 2)))
    assert chances.tolist() == [float(good)] * 2


def test_solves_few_leaders() -> None:
    result = minimize_counted(get("smd2"), method="sa-bl-imode", rng=1)
    assert result.status == "target" and result.nfev_upper < 250
    assert max(len(row.executions) for row in result.history[1:]) < 50


def test_chooses_the_answer_best_for_the_leader_where_the_follower_has_several() -> None:
    result = minimize_counted(get("smd6"), method="sa-bl-imode", rng=1)
    assert result.status == "target"


def test_does_not_live_on_local_optima_of_its_followers() -> None:
    # In SMD4, F is better than F* where the follower has stopped in a local optimum.
    result = minimize_counted(get("smd4"), method="sa-bl-imode", rng=3)
    assert abs(result.F) < 1e-6 and abs(result.f) < 1e-6


def test_resumes_after_several_generations(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilevo.run.directory.SNAPSHOT_AFTER", 0.0)

    def stop_at_five(result: bilevo.Result) -> None:
        if result.nit == 5:
            raise StopIteration

    options = {"method": SABLIMODE(population=6), "rng": 6, "budget": Budget(lower_max=40)}
    options |= {"max_evals_upper": 150, "target": False}  # goes on when it has solved the problem
    whole = bilevo.minimize(get("smd9"), **options)
    assert whole.nit > 6
    bilevo.minimize(get("smd9"), run_dir=tmp_path / "run", callback=stop_at_five, **options)
    again = bilevo.minimize(get("smd9"), run_dir=tmp_path / "run", **options)
    assert fingerprint(again) == fingerprint(whole)


def test_says_what_it_needs_where_scikit_learn_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilevo.algorithms.rivals.scikit_learn.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="scikit-learn"):
        SABLIMODE()


def test_refuses_a_population_it_cannot_use() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        SABLIMODE(population=3)
