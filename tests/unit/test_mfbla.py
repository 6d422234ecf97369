"""MFBLA's fidelities and its total budget."""

import numpy as np
import pytest
from conftest import fingerprint, minimize_counted

import bilevo
from bilevo import Budget
from bilevo.algorithms import MFBLA
from bilevo.algorithms.rivals.mfbla import rank_correlation
from bilevo.problems import get

SMALL = Budget(lower_max=60, upper_max=1500)


def test_solves_smd1_within_its_total_budget() -> None:
    budget = Budget(lower_max=120, upper_max=1500)
    result = minimize_counted(get("smd1"), method="mfbla", rng=1, budget=budget)
    assert result.status == "target"
    assert abs(result.F) < 1e-6 and abs(result.f) < 1e-6
    assert result.nfev_lower <= 1.2 * 0.12 * 120 * 1500


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_ends_when_its_share_of_lower_evaluations_is_used(share: float) -> None:
    method = MFBLA(population=20, share=share)
    result = minimize_counted(get("smd6"), method=method, rng=1, budget=SMALL)
    assert result.status == "budget"
    total = share * 60 * 1500
    assert 0.9 * total <= result.nfev_lower <= total + 20 * 60 * 1.5


def test_spends_less_on_followers_than_solving_them_all() -> None:
    result = minimize_counted(get("smd1"), method="mfbla", rng=2, budget=SMALL, target=False)
    assert result.nfev_lower / result.nfev_upper < 60 / 2


def test_resumes_after_several_generations(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilevo.run.directory.SNAPSHOT_AFTER", 0.0)

    def stop_at_three(result: bilevo.Result) -> None:
        if result.nit == 3:
            raise StopIteration

    options = {"method": MFBLA(population=10), "rng": 6, "budget": SMALL, "max_evals": 3000}
    whole = bilevo.minimize(get("smd9"), **options)
    assert whole.nit > 4
    bilevo.minimize(get("smd9"), run_dir=tmp_path / "run", callback=stop_at_three, **options)
    again = bilevo.minimize(get("smd9"), run_dir=tmp_path / "run", **options)
    assert fingerprint(again) == fingerprint(whole)


def test_rank_correlation_is_spearmans() -> None:
    order = np.array([2, 0, 1, 3])
    assert rank_correlation(order, order) == 1
    assert rank_correlation(order, order[::-1]) == pytest.approx(-1)
    assert rank_correlation(np.array([0, 1, 2]), np.array([1, 0, 2])) == pytest.approx(0.5)


@pytest.mark.parametrize("settings", [{"share": 0.0}, {"share": 1.5}, {"population": 3}])
def test_refuses_settings_it_cannot_use(settings: dict) -> None:
    with pytest.raises(ValueError):
        MFBLA(**settings)
