"""The examples do what they say."""

import subprocess
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


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "compare", raising=False)
    import compare

    return compare


def test_the_demo_shows_a_wrong_answer_and_what_verification_finds(
    compare, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(compare, "SEEDS", range(3, 4))
    compare.main([])
    shown = " ".join(capsys.readouterr().out.split())
    assert "drc-cma-es reports x = 1.00, y = 1.98, f = 0.98, F = 1.03 (seed 3)" in shown
    assert "verification finds x = 1.00, y = 1.00, f = 0.00, F = 4.00" in shown
    assert "drc-cma-es wrong answers in 1 of 1 runs drc-plus wrong answers in 0 of 1 runs" in shown
    assert "right" in shown and "wrong by 16" in shown
    assert "Why does drc-plus need 0." in shown


def test_the_demo_compares_on_other_problems(compare, capsys) -> None:
    compare.main(["smd2"])
    head, *rows = capsys.readouterr().out.splitlines()[:4]
    assert head.split()[0] == "smd2"
    counts = {row.split()[0]: int(row.split()[1].replace(",", "")) for row in rows}
    assert list(counts) == ["bl-cma-es", "drc-cma-es", "drc-plus"]
    assert counts["bl-cma-es"] > counts["drc-cma-es"] > 5 * counts["drc-plus"]


def test_the_demo_needs_no_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('numba', 'matplotlib', 'polars'))); "
        "import compare; compare.main(['smd2'])"
    )
    subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, check=True, capture_output=True)


def test_the_tuning_comparison_finds_its_files_from_any_folder(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    import compare_tuning

    assert len(compare_tuning.stored()) == len(compare_tuning.SEEDS) * 3 * 7
    assert compare_tuning.PAGE.exists() and compare_tuning.PICTURE.exists()


def test_the_page_of_examples_has_the_table_of_the_stored_runs() -> None:
    from benchmarks import examples

    page = examples.PAGE.read_text(encoding="utf-8")
    assert examples.with_table(page) == page, "python -m benchmarks.examples --page"
    table = examples.table(examples.read(examples.DATA))
    assert [line[0] for line in table[1:]] == [*examples.EXAMPLES]
