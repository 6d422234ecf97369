"""The examples do what they say."""

import sys
from pathlib import Path

import pytest

import bilevo
from bilevo.cli import main
from bilevo.lab import store

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def algorithm(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "own_algorithm", raising=False)
    from own_algorithm import StepByStep

    return StepByStep()


def test_an_own_algorithm_solves_and_its_answer_holds(algorithm) -> None:
    problem = bilevo.problems.get("smd1")
    result = bilevo.minimize(problem, method=algorithm, rng=3, max_evals=60_000)
    assert result.status == "target" and result.nfev <= 60_000
    assert abs(bilevo.verify(problem, result).F) < 1e-5


def test_an_own_algorithm_resumes_to_the_same_bits(algorithm, tmp_path) -> None:
    problem = bilevo.problems.get("smd2")
    whole = bilevo.minimize(problem, method=algorithm, max_evals=5000)
    part = bilevo.minimize(problem, method=algorithm, max_evals=1234, run_dir=tmp_path)
    again = bilevo.minimize(problem, method=algorithm, max_evals=5000, run_dir=tmp_path)
    assert part.nfev < again.nfev == whole.nfev
    assert again.F == whole.F and again.x.tolist() == whole.x.tolist()


def test_an_own_algorithm_is_compared_by_its_name(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(EXAMPLES)
    methods = "bl-cma-es,own_algorithm:StepByStep"
    words = ["--problems", "smd1", "--methods", methods, "--runs", "2", "--max-evals", "2000"]
    assert main(["bench", *words, "--out", str(tmp_path), "--no-progress"]) == 0
    assert set(store.runs(tmp_path)["status"]) == {"max_evals"}
    assert main(["table", str(tmp_path), "--kind", "accuracy"]) == 0
    assert "own_algorithm:StepByStep" in capsys.readouterr().out
