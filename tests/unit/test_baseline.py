"""Baselines: files of published medians, which anybody may write, well or badly."""

import json
import os

import pytest
from made_runs import PAPER_FILE, made, row, runs_of

from bilevo.cli import main
from bilevo.lab.analysis.baseline import MAX_BASELINE, baseline_of, read_baseline
from bilevo.lab.analysis.samples import Case

BY_HAND = """{
  "name": "Smith (2020)",
  "source": "J. Smith, A bilevel method, Journal of Examples 1, 2020",
  "medians": [
    {"problem": "SMD1", "m": 2, "n": 3, "method": "smith", "FEs": 2200, "Acc_u": 3e-5},
    {"problem": "smd1", "m": 2, "n": 3, "method": "nblea", "FEs": 523000, "marks": {"FEs": "+"}},
    {"problem": "own", "m": 1, "n": 1, "method": "smith", "F": -3.5}
  ]
}
"""


def entry(**given) -> dict:
    return {"problem": "smd1", "m": 2, "n": 3, "method": "a", "FEs": 10, **given}


def test_a_file_by_hand_stands_beside_the_runs(tmp_path, capsys) -> None:
    theirs, runs = tmp_path / "smith.json", tmp_path / "runs.csv"
    theirs.write_text(BY_HAND)
    lines = ["problem,m,n,method,F,f,nfev_upper,nfev_lower", "smd1,2,3,smith,0,0,100,1000"]
    runs.write_text("\n".join([*lines, "smd1,2,3,mine,0,0,50,500", ""]))
    words = ["table", str(runs), "--baseline", str(theirs), "--format", "markdown"]
    assert main([*words, "--kind", "total"]) == 0
    shown = capsys.readouterr().out
    assert "| smd1 | **550** | 1100 (50.0%) [2200] |" in shown
    assert "In brackets: what Smith (2020) prints, medians." in shown
    assert main([*words, "--kind", "summary,solved"]) == 0
    shown = capsys.readouterr().out
    assert (
        "| smith | imported | (2, 3) | 1 | - | - | 0, 0, 1 | 1100 | 2200 | 0.50 | 1 | 1 |" in shown
    )
    assert "the ratio to the median that Smith (2020) prints for smith." in shown


def test_the_example_of_the_documentation_is_one() -> None:
    page = (PAPER_FILE.parents[1] / "laboratory.md").read_text(encoding="utf-8")
    example = page.partition("```json\n")[2].partition("```")[0]
    assert baseline_of(json.loads(example)).methods == ("nblea", "smith")


def test_what_a_file_leaves_out_has_usual_values(tmp_path) -> None:
    (tmp_path / "smith.json").write_text(BY_HAND)
    found = read_baseline(tmp_path / "smith.json")
    assert (found.runs, found.reference, found.max_evals, found.target) == (None, "smith", 0, True)
    assert found.methods == ("smith", "nblea") and str(found).startswith("Smith (2020): J. Smith")
    assert found.medians[Case("smd1", 2, 3), "smith", "FEs"] == 2200  # in any case of letters
    assert found.marks == {(Case("smd1", 2, 3), "nblea", "FEs"): "+"}


def test_a_method_that_the_baseline_lacks_has_no_brackets() -> None:
    theirs = baseline_of({"name": "it", "medians": [entry(FEs=1100)]})
    table = made(runs_of("a", [1e-7]) + runs_of("b", [1e-7]), "total", baseline=theirs)
    assert [cell.baseline for cell in row(table, "smd1")] == [1100, None]
    other = made(runs_of("b", [1e-7]), "total", baseline=theirs)
    assert "It prints none of these figures." in other.notes
    assert made(runs_of("b", [1e-7]), "summary", baseline=theirs).rows == []


def test_without_a_baseline_nothing_stands_beside() -> None:
    assert "evaluations" in made(runs_of("drc-cma-es", [1e-7]), "solved").header[1]
    summary = made(runs_of("drc-cma-es", [1e-7]), "summary")
    assert summary.rows == [] and "--baseline FILE" in summary.notes[0]


@pytest.mark.parametrize(
    ("ends", "beside"), [({"budget": 500}, True), ({"budget": 400}, False), ({}, False)]
)
def test_a_baseline_with_a_limit_stands_beside_runs_of_the_same_limit(ends, beside) -> None:
    theirs = baseline_of({"name": "it", "max_evals": 500, "medians": [entry(Acc_u=1e-3)]})
    table = made(runs_of("a", [1e-7], **ends), "accuracy", baseline=theirs)
    assert (row(table, "smd1", "Acc_u")[0].baseline == 1e-3) == beside
    told = "The runs of it had a limit of 500 evaluations and ended at the known optimum;"
    assert any(note.startswith(told) for note in table.notes) != beside


def test_the_baseline_is_in_the_report_and_in_its_settings(tmp_path, capsys) -> None:
    data = PAPER_FILE.parent / "runs_real.csv"
    words = ["--baseline", str(PAPER_FILE), "--out", str(tmp_path / "report.html")]
    assert main(["report", str(data), *words]) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "In brackets: what the DRC paper prints" in page
    assert "the DRC paper: D. Xu" in page


BAD = {
    "it should be an object": [],
    "a baseline has no key 'nmae'; did you mean 'name'?": {"nmae": "x", "medians": [entry()]},
    "name should be a text of 1 to 500 letters, got 'None'": {"medians": [entry()]},
    "name should be a text of 1 to 500 letters, got ' '": {"name": " ", "medians": [entry()]},
    "name should be a text of 1 to 500 letters, got 'xxx": {
        "name": "x" * 501,
        "medians": [entry()],
    },
    "medians should be a list of objects": {"name": "x"},
    "medians should be a list": {"name": "x", "medians": []},
    "medians[0]: it should be an object, got 3": {"name": "x", "medians": [3]},
    "medians[1]: problem should be a text": {"name": "x", "medians": [entry(), entry(problem=1)]},
    "medians[0]: m should be a whole number from 1, got '2.5'": {
        **{"name": "x", "medians": [entry(m=2.5)]}
    },
    "medians[0]: n should be a whole number from 1, got 'True'": {
        **{"name": "x", "medians": [entry(n=True)]}
    },
    "medians[0]: an entry has no key 'methd'; did you mean 'method'?": {
        **{"name": "x", "medians": [entry(methd="a")]}
    },
    "medians[0]: FEs should be a number from 1, got '0'": {
        **{"name": "x", "medians": [entry(FEs=0)]}
    },
    "medians[0]: F should be a number, got 'nan'": {
        "name": "x",
        "medians": [entry(F=float("nan"))],
    },
    "medians[0]: Acc_u should be a number from 0, got '1e-6'": {
        **{"name": "x", "medians": [entry(Acc_u="1e-6")]}
    },
    "medians[0]: it has no median; indicators are Acc_u": {
        **{"name": "x", "medians": [{"problem": "p", "m": 1, "n": 1, "method": "a"}]}
    },
    "medians[1]: FEs of a on smd1 (2, 3) is given twice": {
        **{"name": "x", "medians": [entry(), entry()]}
    },
    "medians[0]: marks should be like": {"name": "x", "medians": [entry(marks={"FEs": "better"})]},
    "medians[0]: marks has no key 'F'": {"name": "x", "medians": [entry(marks={"F": "+"})]},
    "the reference 'b' is none of its methods ['a']": {
        **{"name": "x", "reference": "b", "medians": [entry()]}
    },
    "runs should be a whole number from 1, got '0'": {
        **{"name": "x", "runs": 0, "medians": [entry()]}
    },
    "max_evals should be a whole number from 0, got '-1'": {
        **{"name": "x", "max_evals": -1, "medians": [entry()]}
    },
    "target should be true or false, got 1": {"name": "x", "target": 1, "medians": [entry()]},
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_wrong_in_a_file_is_told_in_one_line(message, tmp_path, capsys) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(BAD[message]))
    words = ["table", str(PAPER_FILE.parent / "runs_real.csv"), "--baseline", str(path)]
    assert main(words) == 2
    told = capsys.readouterr()
    assert f"baseline {path}: " in told.err and message in told.err
    assert told.err.count("\n") == 1 and told.out == ""


def test_a_file_that_is_none_or_too_large_is_refused(tmp_path) -> None:
    pipe, large, deep = tmp_path / "pipe", tmp_path / "large.json", tmp_path / "deep.json"
    os.mkfifo(pipe)
    large.write_bytes(b" " * (MAX_BASELINE + 1))
    deep.write_text("[" * 100_000)
    (tmp_path / "text.json").write_bytes(b"\xff{")
    messages = {"pipe": "is no regular file", "large.json": "bytes; at most", "text.json": "decode"}
    messages |= {
        "deep.json": "recursion",
        "nowhere.json": "No such file",
        ".": "is no regular file",
    }
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message):
            read_baseline(tmp_path / name)


def test_a_bad_baseline_is_refused_before_runs_are_made(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["bench", "--problems", "smd1", "--report", "--baseline", "nowhere.json"]
    assert main(words) == 2
    assert "baseline nowhere.json: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
