"""The command line, in real processes where that matters."""

import json
import subprocess
import sys

import pytest

from bilevo import algorithms, kernels, problems, registry
from bilevo.cli import main

FIELDS = ["x", "y", "F", "f", "violation", "nfev_upper", "nfev_lower", "nfev", "nit"]
FIELDS += ["success", "certified", "status", "message", "method", "seed", "version", "time"]
FIELDS += ["F_optimistic", "F_pessimistic", "ties", "certificate"]


def run(*arguments: str, cwd=None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "bilevo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_json_is_one_object_with_exactly_the_promised_fields(monkeypatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "numpy")  # a slow machine says that it prepares others
    first, second = (run("solve", "smd1", "--dim", "2,3", "--seed", "4", "--json") for _ in "ab")
    assert first.returncode == 0 and first.stderr == ""
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert list(one) == FIELDS
    assert {k: v for k, v in one.items() if k != "time"} == {
        k: v for k, v in two.items() if k != "time"
    }
    assert one["status"] == "target" and one["success"] is True is one["certified"]
    assert one["certificate"]["by"] == "drc-plus" and one["certificate"]["confirmed"] is True


@pytest.mark.rest
def test_a_problem_of_the_users_own_is_found_in_the_working_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "numpy")  # starts sooner
    (tmp_path / "mine.py").write_text(
        "import bilevo\n"
        "def make():\n"
        "    return bilevo.Problem(lambda x, y: float(x @ x + y @ y),\n"
        "                          lambda x, y: float((y - x) @ (y - x)), [(-1, 2)], [(-1, 2)])\n"
        "print('hello')\n"
        "problem = make()\n"
        "number = 3\n"
        "def broken():\n"
        "    return bilevo.Problem(lambda x, y: 1 / 0, lambda x, y: 0.0, [(0, 1)], [(0, 1)])\n"
        "def roots():\n"
        "    import math\n"
        "    F = lambda x, y: math.sqrt(-1)\n"
        "    return bilevo.Problem(F, lambda x, y: 0.0, [(0, 1)], [(0, 1)])\n"
        "from bilevo.core.algorithm import Algorithm\n"
        "class Failing(Algorithm):\n"
        "    name, revision, State = 'failing', 1, int\n"
        "    def init(self, spec):\n"
        "        raise ValueError('a mistake')\n"
        "    def generation(self, spec, state): ...\n"
        "class Careless(Failing):\n"
        "    def init(self, spec):\n"
        "        yield 3\n"
    )
    for name in ("mine:problem", "mine:make"):
        done = run("solve", name, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["F"] < 1e-4
    wrong = run("solve", "mine:number", cwd=tmp_path)
    assert wrong.returncode == 2 and "is a int, not a bilevo.Problem" in wrong.stderr
    failed = run("solve", "mine:broken", cwd=tmp_path)
    assert failed.returncode == 1 and "ZeroDivisionError" in failed.stderr
    domain = run("solve", "mine:roots", cwd=tmp_path)
    assert domain.returncode == 1 and "mine.py:12" in domain.stderr
    by_workers = run("solve", "mine:roots", "--workers", "1", cwd=tmp_path)
    assert by_workers.returncode == 1 and "mine.py:12" in by_workers.stderr
    assert len(by_workers.stderr.splitlines()) == 1
    algorithm = run("solve", "smd1", "--method", "mine:Failing", cwd=tmp_path)
    assert algorithm.returncode == 1 and "in init of failing" in algorithm.stderr
    careless = run("solve", "smd1", "--method", "mine:Careless", cwd=tmp_path)
    assert careless.returncode == 2 and "it yielded 3" in careless.stderr
    assert "mine.py:9" in failed.stderr and "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["solve"], "requires an argument"),
        (["solve", "smd99"], "unknown problem 'smd99'"),
        (["solve", "smd1", "--dim", "1,1"], "needs m >= 2"),
        (["solve", "smd1", "--dim", "2"], "sizes are two whole numbers such as 2,3"),
        (["solve", "smd1", "--method", "none"], "unknown method 'none'"),
        (["solve", "smd1", "--seed", "x"], "--seed"),
        (["solve", "smd1", "--seed", "1.7"], "--seed"),
        (["solve", "smd1", "--max-evals", "1.5"], "--max-evals"),
        (["solve", ".um:problem"], "cannot load '.um:problem'"),
        (["solve", "smd1", "--max-evals", "-5"], "max_evals must be a positive whole number"),
        (["solve", "smd1", "--frobnicate"], "--frobnicate"),
        (["solve", "nowhere:problem"], "cannot load 'nowhere:problem'"),
        (["solve", "os:nothing"], "cannot load 'os:nothing'"),
        (["solve", "os:path", "--dim", "2,3"], "--dim is for problems of the suites"),
        (["frobnicate"], "Unknown command"),
    ],
    ids=str,
)
def test_bad_use_is_one_line_and_status_2(capsys, arguments, says) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err and captured.err.startswith("bilevo: ")
    assert len(captured.err.splitlines()) == 1


def test_an_unsuccessful_run_has_status_1_and_valid_json(capsys) -> None:
    assert main(["solve", "smd1", "--max-evals", "1", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert shown["F"] is None and shown["x"] == [None, None] and shown["success"] is False


@pytest.mark.parametrize(("method", "noted"), [("mfbla", True), ("drc-cma-es", False)])
def test_a_reconstruction_is_called_so_where_its_result_is_shown(
    method, noted, tmp_path, capsys
) -> None:
    solve = ["solve", "smd1", "--method", method, "--max-evals", "300"]
    main([*solve, "--run-dir", str(tmp_path)])
    assert ("note: mfbla is a reconstruction" in capsys.readouterr().out) is noted
    main(["show", str(tmp_path)])
    assert ("note: mfbla is a reconstruction" in capsys.readouterr().out) is noted
    main([*solve, "--json"])
    shown = capsys.readouterr()
    assert json.loads(shown.out)["method"] == method and ("reconstruction" in shown.err) is noted


def test_a_known_optimum_need_not_be_the_target(capsys) -> None:
    assert main(["solve", "smd1", "--no-target", "--max-evals", "30000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] != "target"


def test_a_certificate_is_shown_whoever_made_it(tmp_path, capsys) -> None:
    solve = ["solve", "smd1", "--run-dir", str(tmp_path)]
    for command in (solve, ["show", str(tmp_path)]):
        assert main(command) == 0
        assert "certificate: confirmed by drc-plus: " in capsys.readouterr().out
    assert main([*solve, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == FIELDS and shown["certificate"]["by"] == "drc-plus"
    assert main([*solve, "--verify"]) == 0
    assert "certificate: confirmed by verify" in capsys.readouterr().out


def test_the_exit_status_is_that_after_verification(capsys) -> None:
    published = ["solve", "smd1", "--method", "drc-cma-es", "--json"]
    assert main(published) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"] == "target" and shown["certificate"] is None
    assert not shown["success"] and "bilevo.verify" in shown["message"]
    found = main([*published, "--verify"])
    shown = json.loads(capsys.readouterr().out)
    assert found == (0 if shown["success"] else 1)
    assert shown["success"] == shown["certified"] == shown["certificate"]["confirmed"]
    assert main(["solve", "smd1", "--max-evals", "400", "--no-target", "--verify"]) == 1
    assert "stopped before it settled" in capsys.readouterr().out


def test_a_run_without_an_answer_has_nothing_to_verify(capsys) -> None:
    assert main(["solve", "smd1", "--max-evals", "1", "--verify"]) == 1
    assert "no answer to verify" in capsys.readouterr().err


def test_json_stays_alone_on_standard_output_when_objectives_print(tmp_path) -> None:
    (tmp_path / "loud.py").write_text(
        "import bilevo\n"
        "def f(x, y):\n"
        "    print('evaluating')\n"
        "    return float(y @ y)\n"
        "problem = bilevo.Problem(lambda x, y: float(x @ x), f, [(0, 1)], [(0, 1)])\n"
    )
    done = run("solve", "loud:problem", "--max-evals", "200", "--json", "--verify", cwd=tmp_path)
    assert json.loads(done.stdout)["certificate"]["by"] == "verify"
    assert "evaluating" in done.stderr


def test_list_names_every_method_and_problem(capsys) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for name in ("drc-cma-es", "bl-cma-es", "nested-cma-es", "smd14", "tp10", "gold-mining"):
        assert name in shown


def test_list_shows_the_literature_by_itself(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    assert "vogel2012" not in (shown := capsys.readouterr().out) and "list literature" in shown
    assert main(["list", "literature"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = (line for line in lines if "vogel2012" in line)
    assert row.strip("│ ").split() == ["vogel2012", "│", "1", "│", "1", "│", "1", "│", "ties"]
    assert sum("20" in line or "19" in line for line in lines) >= len(problems.literature.CLASSES)


def test_list_reads_well_in_80_columns(capsys, monkeypatch) -> None:
    authors = "Sinha, Malo, Deb, Korhonen, Wallenius: an algorithm with quadratic approximations"
    fake = {
        f"{word}-bl-imode": registry.Method(algorithms.DRC, 2014, authors, status)
        for word, status in zip(("one", "two", "six", "ten"), registry.Status, strict=True)
    }
    monkeypatch.setattr(registry, "methods", lambda: fake)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "2014" in line]
    assert [row.split()[1] for row in rows] == list(fake)
    assert ["reconstruction" in row for row in rows] == [
        method.status == registry.Status.RECONSTRUCTION for method in fake.values()
    ]
    assert any(line.startswith("reconstruction: ") for line in lines)
    assert "Korhonen" in "".join(lines) and "approximations" in "".join(lines)


def test_show_tells_how_a_run_ended_and_how_far_one_has_come(capsys, tmp_path) -> None:
    run = ["solve", "smd1", "--max-evals", "200", "--run-dir", str(tmp_path / "run"), "--json"]
    main(run)
    solved = json.loads(capsys.readouterr().out)
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"state": "stopped", **solved}
    journal = tmp_path / "run" / "journal.bin"
    journal.write_bytes(journal.read_bytes()[:-700])
    for options in ([], ["--watch"]):  # nothing to wait for
        assert main(["show", str(tmp_path / "run"), *options]) == 0
        told = capsys.readouterr().out
        assert told.startswith("state: stopped: process ") and "not ended" in told
    assert main(["show", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"'{sys.executable}' -m bilevo list | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == "" and done.stdout.splitlines()[-1] in ("0", "1")


def test_a_warning_is_one_line_without_a_place_in_the_command_line(tmp_path) -> None:
    (tmp_path / "warns.py").write_text(
        "import warnings\nimport bilevo\n"
        "def F(x, y):\n    warnings.warn('the mesh is coarse')\n    return float(x @ x + y @ y)\n"
        "problem = bilevo.Problem(F, lambda x, y: float((y - x) @ (y - x)), [(-1, 2)], [(-1, 2)])\n"
    )
    ended = run("solve", "warns:problem", "--max-evals", "20", cwd=tmp_path)
    lines = [line for line in ended.stderr.splitlines() if "mesh" in line]
    assert lines == ["bilevo: warning: the mesh is coarse"]
