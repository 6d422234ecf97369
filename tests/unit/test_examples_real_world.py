"""The paper's two real problems as examples: answers, and the checks that they are held against."""

import sys
from pathlib import Path

import pytest

import bilevo

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPANY, MINE = -1094.47744, -314.22058


@pytest.fixture
def real_world(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "real_world", raising=False)
    import real_world

    return real_world


@pytest.mark.rest
def test_the_small_example_runs_and_says_what_it_found(real_world, tmp_path, capsys) -> None:
    mine, company = real_world.main(["--small", "--out", str(tmp_path / "pictures")])
    said = capsys.readouterr().out
    assert "gold mining: a tax of " in said and "decision making: the executive sets" in said
    for name in ("gold_mining.png", "decision_making.png"):
        assert (tmp_path / "pictures" / name).stat().st_size > 5000
    assert mine.check == pytest.approx(MINE, abs=1e-4)
    assert mine.certificate.feasible and mine.certificate.F >= MINE - 1e-4
    assert company.check == pytest.approx(COMPANY, abs=1e-4)
    assert company.certificate.feasible
    assert abs(company.certificate.F - COMPANY) < 1e-4 * abs(COMPANY)


def test_the_mine_is_solved_as_scipy_solves_it(real_world) -> None:
    problem = bilevo.problems.get("gold-mining")
    answer = real_world.solved(problem, [1], None, MINE)
    assert abs(answer.certificate.F - MINE) < 1e-4 * abs(MINE)
    assert answer.certificate.follower_gap <= 1e-6


def test_the_company_can_have_all_that_it_would_have_without_divisions() -> None:
    """The leader's weight can be such that the follower's answer is the linear program's."""
    problem = bilevo.problems.get("decision-making")
    start = [93.76144, 69.1023818, 0.1]
    result = bilevo.minimize(problem, x0=start, max_evals=3000, rng=1)
    certificate = bilevo.verify(problem, result)
    assert certificate.message.startswith("confirmed")
    F, G, _, g = problem.evaluate(result.x, certificate.y)
    assert abs(F[0] - COMPANY) < 1e-6 * abs(COMPANY)
    assert max(G.max(), g.max()) < 1e-4  # where four constraints meet, of hundreds


def test_the_best_verified_run_is_taken(real_world, monkeypatch) -> None:
    found = iter([(-3.0, False), (-1.0, True), (-2.0, True)])

    def verify(problem, result):
        F, feasible = next(found)
        return bilevo.Certificate(result.y, F, 0.0, 0.0, feasible, 0, 0, "")

    monkeypatch.setattr(bilevo, "verify", verify)
    answer = real_world.solved(bilevo.problems.get("tp1"), [1, 2, 3], 100, 0.0)
    assert answer.certificate.F == -2 and answer.result.seed == 3
    assert answer.found == [-3, -1, -2]
