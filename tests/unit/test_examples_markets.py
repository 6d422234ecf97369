"""Electricity and pricing as examples: their exact answers, both ways of ties, and the searches."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bilevo.followers import Milp

EXAMPLES = Path(__file__).parents[2] / "examples"
BRIGHTON = 9330.1031  # at an offer of 30


@pytest.fixture
def electricity(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "electricity", raising=False)
    import electricity

    return electricity


@pytest.fixture
def pricing(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "pricing", raising=False)
    import pricing

    return pricing


@pytest.mark.rest
def test_the_small_electricity_example_runs_and_says_what_it_found(
    electricity, tmp_path, capsys
) -> None:
    electricity.main(["--small", "--out", str(tmp_path / "pictures")])
    said = capsys.readouterr().out
    assert "Brighton: profit in $/h" in said and "Brighton and Alta: profit" in said
    assert (tmp_path / "pictures" / "electricity.png").stat().st_size > 5000


def test_another_producer_can_be_asked_for(electricity, capsys) -> None:
    electricity.main(["--small", "--units", "Solitude", "Sundance"])
    said = capsys.readouterr().out
    assert "single level       8,655.40  at 56.7559, 80.0000" in said


@pytest.mark.rest
def test_companies_answer_brighton_in_equilibrium(electricity, capsys) -> None:
    """West sells all it can; of East, Solitude sells q with 30 + 0.07 q = price."""
    electricity.main(["--companies"])
    said = capsys.readouterr().out
    x = np.linspace(0, 600, 600_001)
    q = (80 - 0.05 * (x + 210) - 30) / 0.12
    profit = (80 - 0.05 * (x + 210 + q) - 10 - 0.01 * x) * x
    best = int(profit.argmax())
    assert f"profit of Brighton {profit[best]:,.2f} $/h" in said
    assert (
        f"Brighton sells {x[best]:.1f} MW; Alta 40.0, Park City 170.0, Solitude {q[best]:.1f}"
        in said
    )
    assert said.count("success: True; confirmed: True") == 2


@pytest.mark.parametrize(
    ("offer", "friendly", "hostile"),
    [
        (10, 0, 0),
        (29.9999999, BRIGHTON, BRIGHTON),
        (30, BRIGHTON, 5400),
        (30.0000001, 5400, 5400),
        (40, 8100, 2100),
    ],
)
def test_brighton_earns_what_is_known_on_both_sides_of_the_jump(
    electricity, offer, friendly, hostile
) -> None:
    brighton = electricity.Producer("Brighton")
    assert brighton.profit(offer) == pytest.approx(friendly, abs=1e-3)
    assert brighton.profit(offer, optimistic=False) == pytest.approx(hostile, abs=1e-3)


def test_truthful_dispatch_and_prices_are_those_of_the_system(electricity) -> None:
    market = electricity.Producer("Brighton").market()
    state = market.advance(market.start(np.array([10.0]), np.random.default_rng(1)))
    y, cost, _ = market.best(state)
    assert y[:5] == pytest.approx([40, 170, 323.4948, 0, 466.5052], abs=1e-3)  # MATPOWER's case5
    assert y[5:] == pytest.approx([16.977, 26.384, 30, 39.943, 10], abs=1e-3)
    assert cost == pytest.approx(y[:5] @ [14, 15, 30, 40, 10])


@pytest.mark.parametrize("units", [("Brighton",), ("Brighton", "Alta"), ("Solitude", "Sundance")])
def test_what_the_single_level_program_claims_is_what_the_market_pays(electricity, units) -> None:
    producer = electricity.Producer(*units)
    claim = electricity.single_level(producer, 1e4)
    assert claim.profit == pytest.approx(producer.profit(*claim.offers), rel=1e-6)
    assert claim.profit > producer.profit(*producer.cost) + 1000


def test_too_small_and_too_large_an_m_are_silently_wrong(electricity) -> None:
    brighton = electricity.Producer("Brighton")
    claims = {M: electricity.single_level(brighton, M).profit for M in (20, 40, 100, 1e6, 1e8)}
    assert math.isnan(claims[20])
    assert claims[40] == pytest.approx(8100)
    assert claims[100] == pytest.approx(BRIGHTON) and claims[1e6] == pytest.approx(BRIGHTON)
    assert claims[1e8] > 1.1 * BRIGHTON


@pytest.mark.parametrize("seed", [0, 3])
def test_a_search_finds_brighton_s_best_offer(electricity, seed) -> None:
    (result,) = electricity.searched(electricity.Producer("Brighton"), 1, 800, seed)
    assert pytest.approx(BRIGHTON, rel=1e-4) == -result.F
    assert result.nfev_lower <= 420


@pytest.mark.rest
def test_the_small_pricing_example_runs_and_says_what_it_found(pricing, tmp_path, capsys) -> None:
    pricing.main(["--small", "--out", str(tmp_path / "pictures")])
    said = capsys.readouterr().out
    assert "all prices  21 by prices [7. 9. 5.]" in said
    assert "all prices  18 by prices [6. 8. 4.]" in said
    assert (tmp_path / "pictures" / "pricing.png").stat().st_size > 5000


def test_ties_matter_to_a_fifth_of_shops_at_random_prices_and_highs_tells_both_ways(
    pricing,
) -> None:
    friendly, hostile = pricing.ties(40).T  # compares with enumeration itself
    assert (friendly >= hostile).all()
    assert 0.1 <= (friendly > hostile).mean() <= 0.35


def test_the_best_whole_prices_hold_up_before_a_customer_solved_by_highs(pricing) -> None:
    for shop in (pricing.SHOP, replace(pricing.SHOP, optimistic=False)):
        best, prices = pricing.best_income(shop)
        assert pricing.income(shop, prices, Milp(shop.packing, shop.tie)) == best


@pytest.mark.rest
@pytest.mark.parametrize(("seed", "optimistic"), [(4, True), (12, True), (4, False)])
def test_searches_find_the_best_whole_prices_either_way(pricing, seed, optimistic) -> None:
    shop = replace(pricing.SHOP, optimistic=optimistic)
    problem = shop.problem(pricing.Enumeration(shop))
    found = pricing.searched(problem, runs=4, evaluations=400, seed=seed)[0]
    assert pricing.best_income(shop)[0] == -found.F
