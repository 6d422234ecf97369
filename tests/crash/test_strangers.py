"""Plans, stored runs and texts of strangers: bounded, escaped, and never written through."""

from __future__ import annotations

import builtins
import csv
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import quadratic
from made_runs import run

import bilevo
from bilevo import cli
from bilevo.lab import campaign, exchange, plans, store
from bilevo.lab.parquet_size import size_of
from bilevo.lab.store import Store, frame

CONTROLS = [*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u202e", "\u2066"]
CONTROLS += ["\u200b", "\u200d", "\ufeff", "\u2028", "\x1b[2J", "\x1b]0;title\x07", "\x9b31m"]
SIGNS = ["=", "+", "-", "@", "\t", "\r", "\n", "'=", "''+", "\uff1d"]


def harmless(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def stored(folder: Path, *rows: dict[str, Any]) -> Path:
    with Store(folder) as kept:
        kept.add(frame(rows))
    return folder


# Texts.


def test_results_are_shown_without_what_a_terminal_obeys(
    capsys, monkeypatch, trials, figure
) -> None:
    result = bilevo.minimize(quadratic(), max_evals=50)
    for control in (controls := CONTROLS[-trials(12, len(CONTROLS)) :]):
        forged = replace(result, method=f"m{control}m", message=f"a{control}success: True")
        monkeypatch.setattr(cli, "load", lambda _, forged=forged: forged)
        assert cli.main(["show", "somewhere"]) == 0
        shown = capsys.readouterr().out
        state, *lines, ties = shown.splitlines()
        assert harmless(shown) and state.startswith("state: ") and ties.startswith("ties: ")
        assert len(lines) == len(repr(result).splitlines())
        assert cli.main(["show", "somewhere", "--json"]) == 0
        shown = capsys.readouterr().out
        assert harmless(shown) and json.loads(shown)["method"] == forged.method
    figure(40, 2 * len(controls), "results shown")


def test_errors_are_told_without_what_a_terminal_obeys(capsys, tmp_path, trials, figure) -> None:
    for control in (controls := CONTROLS[-trials(12, len(CONTROLS)) :]):
        word = f"no{control}problem"
        assert cli.main(["solve", word]) == 2
        (tmp_path / "plan.toml").write_text(f"methods = [{json.dumps(word)}]", encoding="utf-8")
        assert cli.main(["bench", str(tmp_path / "plan.toml")]) == 2
        told = capsys.readouterr().err
        assert harmless(told) and len(told.splitlines()) == 2
    figure(40, 2 * len(controls), "errors")


def test_tables_and_notes_are_shown_without_what_a_terminal_obeys(
    capsys, tmp_path, trials, figure
) -> None:
    for i, control in enumerate(controls := CONTROLS[-trials(12, len(CONTROLS)) :]):
        bad = f"n{control}[red]x[/red]"
        row = {"error": bad, "machine": bad, "version": bad, "form": bad, "status": "failed"}
        rows = [run(bad, 0, bad), run("nblea", 0, bad), run("nblea", 1, bad, **row)]
        folder = str(stored(tmp_path / str(i), *rows))
        kinds = "accuracy,evaluations,total,effort,ranks,solved,ablation"
        assert cli.main(["table", folder, "--kind", kinds, "--format", "text,markdown"]) == 0
        shown = capsys.readouterr().out
        assert harmless(shown) and "[red]" in shown
        assert cli.main(["export", folder, "--out", str(tmp_path / f"{i}.csv")]) == 0
        assert cli.main(["import", str(tmp_path / f"{i}.csv"), "--into", f"{folder}x"]) == 0
        captured = capsys.readouterr()
        assert harmless(captured.out + captured.err) and "bilevo has no problem" in captured.out
    figure(40, 2 * len(controls), "tables and notes")


def test_names_of_installed_methods_are_no_markup(capsys, monkeypatch, figure) -> None:
    method = cli.registry.methods()["nblea"]
    odd = {"[blink]odd[/blink]": replace(method, reference="[bold]me[/bold]\x1b[5m")}
    monkeypatch.setattr(cli.registry, "methods", lambda: odd)
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "[blink]odd[/blink]" in shown and "[bold]me[/bold]\\x1b[5m" in shown
    figure(40, 1, "lists of methods")


def test_an_error_says_where_a_function_failed(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_module.py").write_text(
        "import bilevo\n"
        "problem = bilevo.Problem(lambda x, y: 1 / 0, lambda x, y: 0.0, [(2, 2)], [(3, 3)])\n"
    )
    assert cli.main(["solve", "failing_module:problem"]) == 1
    told = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero" in told and len(told.splitlines()) == 1
    assert "in an evaluation of the upper level at x = [2.0], y = [3.0]" in told
    task = campaign.Task(plans.Run("failing_module:problem", 1, 1, "nblea", 0), plans.Form("nblea"))
    assert "at x = [2.0], y = [3.0]" in campaign.carry_out(task)["error"]


# Formulas.


def test_formulas_in_names_are_text_in_csv_and_come_back(tmp_path, trials, figure) -> None:
    rng, tried = np.random.default_rng(1), 0
    for i in range(trials(100, 5000)):
        sign = SIGNS[i % len(SIGNS)]
        name = sign + "".join(rng.choice(list("=+-@'1a,;\"(!)|"), rng.integers(1, 9)))
        row = run(name, 0, name, error=name, F=-1.5, f=-2.5, x=[-1.0, 2.0], y=[-1.0, 0.0, 1.0])
        runs = store.runs(stored(tmp_path / str(i), {**row, "machine": name}))
        exchange.export_csv(runs, path := tmp_path / f"{i}.csv")
        back = exchange.import_csv(path)
        for column in ("problem", "method", "error", "machine", "F", "x"):
            assert back[column].to_list() == runs[column].to_list()
        with path.open(encoding="utf-8", newline="") as file:
            header, cells = csv.reader(file)
        for column, cell in zip(header, cells, strict=True):
            text = column != "max_evals" and store.RUNS[column] == pl.String
            assert not text or cell[:1] not in ("=", "+", "-", "@", "\t", "\r")
        assert cells[header.index("F")] == "-1.5"
        tried += 1
    figure(41, tried, "exported runs")


def test_tables_as_csv_hold_no_formula_of_a_name(tmp_path, capsys, figure) -> None:
    name = '=HYPERLINK("http://x";"y")'
    folder = stored(tmp_path / "runs", run(name, 0, name), run("@sum(a1)", 0, name))
    kinds = "accuracy,evaluations,total,real,effort,ranks,solved,ablation"
    for kind in kinds.split(","):
        assert cli.main(["table", str(folder), "--kind", kind, "--format", "csv"]) == 0
        for line in csv.reader(capsys.readouterr().out.splitlines()):
            assert not any(cell[:2] in ("=H", "@s") for cell in line)
    figure(41, 8, "kinds of tables")


# Plans.


@contextmanager
def quick(most: int = 2**25) -> Iterator[None]:
    """Little time and memory is taken."""
    tracemalloc.start()
    began = monotonic()
    try:
        yield
        assert monotonic() - began < 5 and tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


ABSURD = {
    "runs = 1000000000000": "at most 1,000,000 runs",
    f"runs = 1{'0' * 400}": "runs must be a positive whole number below",
    f"max_evals = [{', '.join(map(str, range(1, 60_000)))}]": "at most 1,000,000 runs",
    f"max_evals = [{10**17}]": "a limit in max_evals is at most",
    'sizes = ["1000000000000,3"]': "sizes are from 1 to 1000",
    "sizes = ['2," + "9" * 5000 + "']": "sizes are two whole numbers",
    "sizes = [" + "'2,3', " * 50_000 + "]": "at most 1,000,000 runs",
    f"problems = {'[' * 3000}": "plan",
    "# " + "x" * 2**21: "at most 1,048,576 are read",
}


@pytest.mark.rest
@pytest.mark.parametrize("line", ABSURD, ids=lambda line: line[:20])
def test_plans_of_absurd_size_are_refused_before_anything_is_made(line, tmp_path, figure) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(f'methods = ["nblea", "drc-cma-es"]\n{line}\n')
    with quick(2**27), pytest.raises(ValueError, match=ABSURD[line]):
        plans.read_plan(path)
    figure(42, 1, "plans")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--runs", str(10**12)], "at most 1,000,000 runs"),
        (["--dim", "2,1000000000"], "sizes are from 1 to 1000"),
        (["--max-evals", "1e400"], "--max-evals takes numbers of evaluations"),
        (["--max-evals", "inf"], "--max-evals takes numbers of evaluations"),
        (["--workers", str(10**9)], "workers must be from 1 to 4096"),
        (["--max-time", "1e300"], "--max-time takes seconds"),
    ],
)
def test_options_of_absurd_size_are_refused(words, says, capsys, tmp_path, figure) -> None:
    with quick():
        assert cli.main(["bench", "--suite", "smd", "--out", str(tmp_path / "out"), *words]) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "out").exists()
    figure(42, 1, "options")


# Files.


def test_pipes_and_devices_are_refused_at_once(tmp_path, figure) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(pipe)
    readers = [plans.read_plan, exchange.import_csv, store.runs]
    places = [pipe, Path("/dev/zero"), tmp_path]
    for place in places:
        for read in readers:
            if place is not tmp_path or read is not store.runs:
                with quick(), pytest.raises(ValueError, match=r"no regular file"):
                    read(place)
    (folder / "runs-000001-000001.parquet").symlink_to("/dev/zero")
    (folder / "settings.json").symlink_to(pipe)
    for look in (store.runs, campaign.read_settings):
        with quick(), pytest.raises(ValueError, match=r"no regular file"):
            look(folder)
    figure(42, len(places) * len(readers) + 1, "pipes, devices and folders in a file's place")


def bombs(folder: Path, rows: int, numbers: int) -> Iterator[tuple[Path, str]]:
    """Write small files that stand for much: of many rows, and of a row with a long list."""
    one = frame([run("nblea", 0)])
    many = one.drop("number").select(pl.all().repeat_by(rows).explode())
    many = many.with_columns(pl.int_range(rows).alias("number")).select(one.columns)
    many.write_parquet(folder / "rows.parquet", compression="zstd")
    yield folder / "rows.parquet", f"it has {rows:,} rows; at most"
    long = one.with_columns(pl.lit(1.5).repeat_by(numbers).alias("x")).select(one.columns)
    long.write_parquet(folder / "list.parquet", compression="zstd")
    yield folder / "list.parquet", "it would take some"


def test_small_files_that_stand_for_gigabytes_are_refused_unread(
    tmp_path, trials, figure, monkeypatch
) -> None:
    part = trials(20, 1)  # the short run makes smaller files, and allows less
    monkeypatch.setattr(store, "MAX_ROWS", store.MAX_ROWS // part)
    monkeypatch.setattr(store, "MAX_MEMORY", store.MAX_MEMORY // part)
    monkeypatch.setattr(store, "PER_BYTE", store.PER_BYTE // part)
    for path, says in bombs(tmp_path, store.MAX_ROWS + 1, 30_000_000 // part):
        assert path.stat().st_size < 3_000_000
        with quick(2**22), pytest.raises(ValueError, match=says):
            store.runs(path)
        figure(42, 1, "Parquet files that are much larger in memory")


def test_damaged_headers_of_stored_runs_are_refused_in_no_time(tmp_path, trials, figure) -> None:
    folder = stored(tmp_path / "runs", *(run("nblea", i) for i in range(5)))
    path = folder / "runs-000001-000001.parquet"
    honest, rng = path.read_bytes(), np.random.default_rng(3)
    footer = int.from_bytes(honest[-8:-4], "little") + 8
    count = trials(300, 20_000)
    for _ in range(count):
        data = bytearray(honest)
        for _ in range(rng.integers(1, 4)):
            data[-int(rng.integers(1, footer))] = rng.integers(256)
        path.write_bytes(data)
        with path.open("rb") as file:
            began = monotonic()
            try:
                size_of(file)
            except ValueError as error:
                assert len(str(error)) < 300
            assert monotonic() - began < 3
    figure(42, count, "Parquet files with damaged headers")


def test_an_honest_file_is_measured_by_what_it_takes() -> None:
    history = {name: [[1] if name == "executions" else 1] * 50 for name in store.HISTORY}
    history["survived"] = [[True]] * 50
    rows = frame([{**run("nblea", i), "history": history} for i in range(100)])
    for compression in ("zstd", "snappy", "uncompressed"):
        with open(os.memfd_create("runs"), "w+b") as file:
            rows.write_parquet(file, compression=compression)
            file.flush()
            size = size_of(file)
        assert size.rows == 100 and size.memory >= rows.estimated_size() / 2


def test_writing_into_a_folder_follows_no_link(tmp_path, figure) -> None:
    folder, mine = tmp_path / "theirs", tmp_path / "mine.txt"
    mine.write_text("precious")
    stored(folder, run("nblea", 0), run("nblea", 1))
    names = ["runs-000002-000002.parquet", "settings.json", "report.html"]
    for name in [*names, *(f"{name}.new" for name in names), "runs-000002-000002.new"]:
        (folder / name).unlink(missing_ok=True)
        if not name.startswith("runs-000002-000002.parquet"):
            (folder / name).symlink_to(mine)
    (folder / "runs-000002-000002.parquet.new").symlink_to(mine)
    plan = plans.Plan((plans.Experiment(("nblea",), ("smd1",), runs=1),))
    with Store(folder) as kept:
        (folder / "runs-000002-000002.parquet.new").unlink(missing_ok=True)
        (folder / "runs-000002-000002.parquet.new").symlink_to(mine)
        kept.add(frame([run("nblea", 2)]))
        with pytest.raises(ValueError, match="settings"):
            campaign.keep_settings(folder, plan, None, anew=False)
        (folder / "settings.json").unlink()
        campaign.keep_settings(folder, plan, None, anew=False)
        kept.merge()
    assert cli.main(["report", str(folder)]) == 0
    assert cli.main(["figure", str(folder), "--kind", "critical-difference"]) in (0, 2)
    assert mine.read_text() == "precious" and len(store.runs(folder)) == 3
    assert not any(path.is_symlink() for path in folder.iterdir())
    figure(42, 4, "files written where a link was")


def test_stored_runs_can_be_read_where_folders_cannot_be_locked(tmp_path, monkeypatch) -> None:
    folder = stored(tmp_path / "runs", run("nblea", 0))
    code = "import sys; sys.modules['fcntl'] = None; from pathlib import Path\n"
    code += "from bilevo.lab import store\n"
    code += f"assert len(store.runs(Path({str(folder)!r}))) == 1"
    subprocess.run([sys.executable, "-c", code], check=True)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "fcntl":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OSError, match="campaigns need a POSIX system"):
        Store(tmp_path / "new")
    assert not (tmp_path / "new").exists()


# Code, and a cluster.


MODULE = """
import bilevo
import helper_at_once

def F(x, y):
    import helper_in_time  # when it is called
    return helper_in_time.value(x, y)

def make():
    return bilevo.Problem(F, lambda x, y: float((y - x) @ (y - x)), [(-1, 2)], [(-1, 2)])
"""


@pytest.fixture
def code(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_module.py").write_text(MODULE)
    (tmp_path / "helper_at_once.py").write_text("")
    (tmp_path / "helper_in_time.py").write_text("def value(x, y): return float(x @ x + y @ y)")
    (tmp_path / "polars.py").write_text("raise SystemExit('not the one that is installed')")
    yield tmp_path
    for name in ("named_module", "helper_at_once", "helper_in_time"):
        sys.modules.pop(name, None)


def test_named_modules_leave_the_path_as_it_was(code, capsys, figure) -> None:
    before, words = sys.path.copy(), ["solve", "named_module:make", "--max-evals", "40"]
    for extra in ([], ["--workers", "2"], ["--method", "nowhere:at_all"]):
        refused = "--method" in extra
        assert cli.main([*words, *extra]) == (2 if refused else 1)
        assert ("the limit on evaluations" in capsys.readouterr().out) is not refused
        assert sys.path == before
    bilevo.lookup.named_problem("named_module:make")
    assert sys.path == before
    task = campaign.Task(
        plans.Run("named_module:make", 1, 1, "nblea", 0, 40), plans.Form("nblea"), None
    )
    assert campaign.carry_out(task)["error"] == "" and sys.path == before
    figure(43, 5, "commands and runs")


@pytest.mark.rest
@pytest.mark.parametrize("executor", ["processes", pytest.param("dask", marks=pytest.mark.cluster)])
def test_workers_find_named_modules_and_what_these_import_late(code, executor, figure) -> None:
    pytest.importorskip("distributed")
    words = ["bench", "--problems", "named_module:make", "--methods", "nblea", "--runs", "2"]
    words += ["--max-evals", "60", "--out", "out", "--no-progress", "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bilevo", *words, "--executor", executor],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1"},  # -m alone would put the folder first itself
    )
    assert done.returncode == 0, done.stderr
    assert set(store.runs(code / "out")["error"]) == {""}
    figure(43, 1, "campaigns whose workers import a module")


def test_a_local_cluster_listens_on_the_loopback_interface_only(figure) -> None:
    psutil = pytest.importorskip("psutil")
    pytest.importorskip("distributed")

    from bilevo.lab import workers

    me, seen = psutil.Process(), []
    before = {one.laddr for one in me.net_connections() if one.status == "LISTEN"}
    task = campaign.Task(plans.Run("smd1", 2, 3, "nblea", 0, 50), plans.Form("nblea"))
    for _ in workers.executor("dask", 1)([task]):
        for process in (me, *me.children(recursive=True)):
            found = process.net_connections(kind="inet")
            seen += [one.laddr for one in found if one.status == "LISTEN"]
    new = [place for place in seen if place not in before]
    assert len(new) >= 3 and {place.ip for place in new} == {"127.0.0.1"}  # and two dashboards
    figure(44, len(new), "listening sockets")
