"""The laboratory's commands, as they are typed."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bilevo.cli import main
from bilevo.lab import store
from bilevo.lab.show.documents import with_new_tables

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "data" / "runs_2_3.csv"
PAPER = ["--baseline", str(ROOT / "docs" / "data" / "drc_paper.json")]
QUICK = ["--problems", "smd1,tp1", "--methods", "drc-cma-es,bl-cma-es", "--runs", "2"]
QUICK += ["--max-evals", "3000", "--workers", "2"]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("campaign")
    assert main(["bench", *QUICK, "--out", str(folder), "--no-progress"]) == 0
    return folder


def test_a_campaign_from_options_is_stored_with_its_settings(campaign) -> None:
    runs = store.runs(campaign)
    assert len(runs) == 8 and set(runs["budget"]) == {3000}
    assert set(runs["problem"]) == {"smd1", "tp1"} and set(runs["number"]) == {0, 1}
    settings = json.loads((campaign / "settings.json").read_text())
    assert settings["experiments"][0]["methods"] == ["drc-cma-es", "bl-cma-es"]


def test_progress_tells_how_many_runs_are_stored(campaign, capsys) -> None:
    assert main(["bench", *QUICK, "--out", str(campaign)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"{campaign}: 8 of 8 runs are stored",
        f"{campaign}: all 8 runs are stored, none failed",
    ]


def test_failed_runs_are_told_and_made_again_when_asked(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "fickle.py").write_text(
        "import bilevo\n"
        "from pathlib import Path\n"
        "def F(x, y):\n"
        "    if Path('broken').exists():\n"
        "        raise RuntimeError('the simulator has no licence')\n"
        "    return float(x @ x)\n"
        "problem = bilevo.Problem(F, lambda x, y: float(y @ y), [(-1, 1)], [(-1, 1)])\n"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken").touch()
    words = ["bench", "--problems", "fickle:problem", "--methods", "nblea", "--runs", "1"]
    words += ["--max-evals", "200", "--out", "out"]
    assert main(words) == 1
    told = capsys.readouterr().err
    assert "failed: fickle:problem (1,1) nblea run 0: RuntimeError: the simulator has no" in told
    assert "(fickle.py:5)" in told
    again = "out: of 1 runs 1 failed; --again failed makes them again\n"
    assert told.endswith(again)
    (tmp_path / "broken").unlink()
    assert main(words) == 1  # it is stored as it is, and told again
    assert capsys.readouterr().err.endswith(again)
    assert store.runs(Path("out"))["status"].to_list() == ["failed"]
    assert main([*words, "--again", "failed"]) == 0
    assert store.runs(Path("out"))["status"].to_list() == ["max_evals"]


@pytest.mark.parametrize(
    "kind", ["accuracy", "evaluations", "total", "effort", "ranks", "summary", "solved"]
)
def test_tables_of_stored_runs_come_in_all_formats(kind, capsys) -> None:
    words = ["table", str(STORED), "--kind", kind, "--methods", "drc-cma-es,bl-cma-es,tlea-cma-es"]
    assert main([*words, "--format", "text,markdown,csv,latex", *PAPER]) == 0
    shown = capsys.readouterr().out
    assert "drc-cma-es" in shown and r"\toprule" in shown and "| --- |" in shown
    assert str(STORED) not in shown


def test_the_command_for_a_documents_table_stands_in_its_mark(capsys) -> None:
    arguments = f"{STORED} --kind total --methods drc-cma-es,nblea {' '.join(PAPER)}"
    page = with_new_tables(f"before\n<!-- table: {arguments} -->\nold\n<!-- end -->\nafter\n")
    assert main(["table", *arguments.split(), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.strip() in page and "old" not in page


@pytest.mark.rest
def test_figures_are_written_as_pdf_and_png(campaign, capsys) -> None:
    assert main(["figure", str(campaign)]) == 0
    shown = capsys.readouterr()
    missing = shown.err.splitlines()
    assert missing[0] == "no critical-difference: a Friedman test needs 3 methods or more, not 2"
    assert len(missing) == 2 and missing[1].startswith("no sensitivity: no method has runs both")
    told = [Path(line) for line in shown.out.splitlines()]
    assert len(told) == 8 and {path.parent for path in told} == {campaign / "figures"}
    for path in told:
        magic = b"%PDF" if path.suffix == ".pdf" else b"\x89PNG"
        assert path.read_bytes().startswith(magic)


def test_a_report_is_one_file_beside_the_runs(campaign, capsys) -> None:
    assert main(["report", str(campaign)]) == 0
    assert capsys.readouterr().out == f"{campaign / 'report.html'}\n"
    page = (campaign / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "drc-cma-es" in page


def test_there_is_a_report_for_each_limit(tmp_path, capsys) -> None:
    words = ["--problems", "smd1", "--methods", "nblea", "--runs", "1", "--max-evals", "100,200"]
    assert main(["bench", *words, "--out", str(tmp_path), "--report", "--no-progress"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [str(tmp_path / f"report-{budget}.html") for budget in (100, 200)]
    assert all(Path(path).exists() for path in told)


def test_a_table_shows_what_is_known_of_the_problems(tmp_path, capsys) -> None:
    theirs = tmp_path / "theirs.csv"
    head = "problem,m,n,method,F,f,nfev_upper,nfev_lower\n"
    theirs.write_text(head + "my own,2,3,a,1.5,0,4,30\n")
    assert main(["table", str(theirs)]) == 0
    shown = capsys.readouterr().out
    assert "unknown optimum" in shown and "Accuracy" not in shown
    theirs.write_text(head + "smd1,2,3,a,1.5,0,4,30\n")
    assert main(["table", str(theirs)]) == 0
    shown = capsys.readouterr().out
    assert "unknown optimum" not in shown and "Accuracy" in shown


def test_imported_methods_can_be_chosen_for_a_report(campaign, tmp_path, capsys) -> None:
    theirs = tmp_path / "theirs.csv"
    theirs.write_text(
        "problem,m,n,method,F,f,nfev_upper,nfev_lower,budget\nsmd1,2,3,Mine,0,0,9,9,3000\n"
    )
    words = [str(campaign), str(theirs), "--methods", "drc-cma-es,Mine", "--problems", "SMD"]
    assert main(["report", *words, "--out", str(tmp_path / "report.html")]) == 0
    assert "Mine" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_results_of_other_programs_stand_in_the_same_tables(campaign, tmp_path, capsys) -> None:
    theirs = tmp_path / "theirs.csv"
    theirs.write_text(
        "problem,m,n,method,F,f,nfev_upper,nfev_lower,budget,x,y\n"
        "smd1,2,3,my-solver,0,0,412,30122,3000,0;0,0;0;0\n"
        "smd1,2,3,my-solver,0,0,398,28874,3000,0;0,0;0;0\n"
    )
    into = tmp_path / "both"
    into.mkdir()
    for file in campaign.glob("runs-*.parquet"):
        (into / file.name).write_bytes(file.read_bytes())
    words = ["import", str(theirs), "--into", str(into), "--verify"]
    assert main(words) == 0
    assert main(["table", str(into), "--kind", "total", "--problems", "smd1"]) == 0
    assert "my-solver" in capsys.readouterr().out
    assert len(store.history(into)) == len(store.history(campaign)) > 0
    verified = store.runs(into).filter(method="my-solver")
    assert verified["verified"].to_list() == [0.0, 0.0] == verified["follower_gap"].to_list()
    assert main(words) == 2
    assert "has 2 of these runs, such as problem smd1, m 2, n 3" in capsys.readouterr().err
    theirs.write_text(theirs.read_text().replace("my-solver,0,", "my-solver,5,"))
    assert main([*words, "--replace"]) == 2
    assert "F = 5 of smd1 is not what its x and y give: 0" in capsys.readouterr().err
    theirs.write_text(theirs.read_text().replace("my-solver,5,", "my-solver,0,"))
    assert main([*words, "--replace"]) == 0
    assert len(store.runs(into)) == 8 + 2


def test_runs_are_exported_for_others(campaign, tmp_path) -> None:
    assert main(["export", str(campaign), "--out", str(tmp_path / "runs.csv")]) == 0
    again = store.runs(tmp_path / "runs.csv")
    assert again.equals(store.runs(campaign))
    into = tmp_path / "again"
    shutil.copytree(campaign, into)
    words = ["import", str(tmp_path / "runs.csv"), "--into", str(into), "--replace"]
    assert main(words) == 0
    assert store.runs(into).equals(store.runs(campaign))
    assert store.history(into).equals(store.history(campaign))  # CSV has none: it stays
    assert main(["export", str(campaign), "--format", "ioh", "--out", str(tmp_path / "ioh")]) == 0
    assert list((tmp_path / "ioh").rglob("*.json"))


def test_runs_of_unknown_problems_are_pointed_out(tmp_path, capsys) -> None:
    theirs, into = tmp_path / "theirs.csv", tmp_path / "new"
    theirs.write_text("problem,m,n,method,F,f,nfev_upper,nfev_lower\nsdm1,2,3,a,0,0,4,30\n")
    assert main(["import", str(theirs), "--into", str(into)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"1 runs imported into the new directory {into}, 0 in place of others",
        "note: bilevo has no problem sdm1, and does not know its optimum",
    ]


def test_a_command_that_is_terminated_stops_as_by_ctrl_c(tmp_path) -> None:
    words = ["--problems", "smd10", "--methods", "nblea", "--runs", "4", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "bilevo", "bench", *words, "--workers", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == f"{tmp_path}: 0 of 4 runs are stored\n"
        server = psutil.Process(process.pid)
        while not any(child.children() for child in server.children()):  # no run is under way yet
            time.sleep(0.02)
        process.terminate()
        assert process.wait() == 130
        assert process.stderr.read().endswith("stopped; the same command continues from here\n")


WRONG = {
    "workers must be from 1 to 4096, got 0": ["bench", "--suite", "smd", "--workers", "0"],
    "--max-time takes seconds, more than 0 up to 1e+09; got -1": [
        "bench",
        "--suite",
        "smd",
        "--max-time=-1",
    ],
    "--kind and --format need a word each": ["table", str(STORED), "--kind", ""],
    "cannot use": ["bench", "--problems", "smd1", "--out", "/proc/nowhere"],
    "unknown indicator 'foo'": [
        *(
            "figure",
            str(STORED),
            "--kind",
            "critical-difference",
            "--indicator",
            "foo",
            "--out",
            "o",
        )
    ],
    "give a plan, or --suite or --problems": ["bench"],
    "unknown problem 'smd99'": ["bench", "--problems", "smd99"],
    "unknown method 'drc'": ["bench", "--suite", "smd", "--methods", "drc"],
    "unknown executor 'slurm'": ["bench", "--suite", "smd", "--executor", "slurm"],
    "--max-evals takes numbers of evaluations like 50000; got '0.5'": [
        *("bench", "--suite", "smd", "--max-evals", "0.5")
    ],
    "runs must be a positive whole number, got 0": ["bench", "--suite", "smd", "--runs=0"],
    "sizes are two whole numbers such as 2,3; got '2'": ["bench", "--suite", "smd", "--dim", "2"],
    "max_evals and target are set in the plan's file": [
        *("bench", str(ROOT / "plans" / "quick.toml"), "--max-evals", "100")
    ],
    "nowhere does not exist": ["table", "nowhere"],
    "unknown kind of table 'colour'": ["table", str(STORED), "--kind", "colour"],
    "unknown format 'docx'": ["table", str(STORED), "--format", "docx"],
    "no runs of method ['nobody']": ["table", str(STORED), "--methods", "nobody"],
    "none of the runs is of the sizes": ["table", str(STORED), "--dim", "7,7"],
    "the same run is in two places": ["table", str(STORED), str(STORED)],
    "no run has a history": ["figure", str(STORED), "--kind", "convergence", "--out", "out"],
    "unknown figure 'pie'": ["figure", str(STORED), "--kind", "pie", "--out", "out"],
    "unknown format 'gif'; known are pdf, png, svg": [
        *("figure", str(STORED), "--format", "gif", "--out", "out")
    ],
}


@pytest.mark.parametrize("message", WRONG)
def test_bad_use_is_one_line_that_says_what_would_be_right(
    message, capsys, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(WRONG[message]) == 2
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and told.out == ""
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_limits_are_not_mixed(campaign, tmp_path, capsys) -> None:
    out = str(tmp_path)
    for budget in ("100", "200"):
        words = ["--problems", "smd1", "--methods", "nblea", "--runs", "1", "--max-evals", budget]
        assert main(["bench", *words, "--out", out, "--no-progress"]) == 0
    assert main(["table", out]) == 2
    assert (
        "there are runs with max_evals [100, 200]: choose by --max-evals" in capsys.readouterr().err
    )
    assert main(["table", out, "--max-evals", "200", "--kind", "total"]) == 0


MISSING = {
    "polars": ("bench", ["bench", "--suite", "smd"]),
    "matplotlib": ("plot", ["figure", str(STORED), "--out", "out"]),
    "plotly": ("report", ["report", str(STORED), "--out", "report.html"]),
    "jinja2": ("report", ["report", str(STORED), "--out", "report.html"]),
    "distributed": ("dask", ["bench", "--suite", "smd", "--executor", "dask"]),
    "ray": ("ray", ["bench", "--suite", "smd", "--executor", "ray"]),
}


def test_without_extras_the_other_commands_work(tmp_path) -> None:
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "from bilevo.cli import main\n"
        "assert main(['--help']) == main(['list']) == 0 and main(['frobnicate']) == 2"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stderr == "bilevo: unknown command; bilevo --help shows them\n"


@pytest.mark.rest
@pytest.mark.parametrize("library", MISSING)
def test_a_missing_extra_is_one_line_with_the_pip_command(library, tmp_path) -> None:
    extra, words = MISSING[library]
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"from bilevo.cli import main; sys.exit(main({words!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"need {library}: pip install 'bilevo[{extra}]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
