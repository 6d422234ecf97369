"""Results of other programs: CSV files in and out, and IOHprofiler's format."""

import json
import math
import sys
from pathlib import Path

import iohinspector
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import bilevo
from bilevo import problems
from bilevo.lab.exchange import ATTRIBUTES, export_csv, export_ioh, import_csv
from bilevo.lab.store import FAILED, HISTORY, KEY, RUNS, in_order

STORED = Path(__file__).parents[2] / "docs" / "data" / "runs_2_3.csv"
HEADER = "problem,m,n,method,F,f,nfev_upper,nfev_lower"
LINE = "smd1,2,3,theirs,0.25,0.5,100,2000"
HOSTILE = ["../../up", "/etc/passwd", "a/b", "a-b", "a b", "..", "CON", "con", "", "é\n", "x" * 300]


def written(folder: Path, *lines: str) -> Path:
    path = folder / "theirs.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def a_run(**values) -> dict:
    """A row of all columns."""
    texts = {name: "" for name, kind in RUNS.items() if kind == pl.String}
    numbers = {name: math.nan for name, kind in RUNS.items() if kind == pl.Float64}
    row = {"problem": "smd1", "m": 2, "n": 3, "method": "theirs", "budget": 0, "target": True}
    row |= {"number": 0, "F": 0.25, "f": 0.5, "violation": 0.0, "status": "target", "time": 1.5}
    row |= {"nfev_upper": 100, "nfev_lower": 2000, "x": [], "y": []}
    return texts | numbers | row | values


def runs_of(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=RUNS)


def history_of(*rows: dict) -> pl.DataFrame:
    keys = {name: RUNS[name] for name in KEY}
    return pl.DataFrame(rows, schema=keys | HISTORY)


def test_a_short_file_of_another_program_becomes_runs(tmp_path: Path) -> None:
    runs = import_csv(written(tmp_path, HEADER, LINE, LINE, LINE.replace("smd1", "their-own")))
    assert dict(runs.schema) == RUNS
    assert runs["problem"].to_list() == ["smd1", "smd1", "their-own"]
    assert runs["number"].to_list() == [0, 1, 0]  # in the order of lines
    assert runs["Acc_u"].to_list()[:2] == [0.25, 0.25]
    assert runs["Acc_l"].to_list()[:2] == [0.5, 0.5]
    assert runs["Acc_u"].is_nan().to_list() == [False, False, True]  # no optimum is known
    assert runs["violation"].to_list() == [0, 0, 0]
    assert set(runs["status"]) == {"imported"}
    assert runs["verified"].is_nan().all() and runs["follower_gap"].is_nan().all()
    assert runs["x"].to_list() == [[], [], []]
    assert runs["seed"].is_null().all() and runs["near"].is_null().all()


def test_accuracies_are_distances_from_the_known_optimum_unless_given(tmp_path: Path) -> None:
    lines = ["tp1,2,2,theirs,224,101,10,10,", "tp1,2,2,theirs,224,101,10,10,0.125"]
    runs = import_csv(written(tmp_path, HEADER + ",Acc_u", *lines))
    assert runs["Acc_u"].to_list() == [1, 0.125]
    assert runs["Acc_l"].to_list() == [1, 1]


def test_numbers_are_read_as_other_programs_write_them(tmp_path: Path) -> None:
    lines = "SMD1,2,3,theirs,-1.5E-3,+2,1e2,2000.0,0.5;-1e-3,1;2;3,FALSE,18014398509481985"
    path = written(tmp_path, HEADER + ",x,y,target,seed", lines)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    row = import_csv(path).row(0, named=True)
    assert (row["problem"], row["F"], row["f"]) == ("smd1", -0.0015, 2)
    assert (row["nfev_upper"], row["nfev_lower"], row["seed"]) == (100, 2000, 18014398509481985)
    assert (row["x"], row["y"], row["target"]) == ([0.5, -0.001], [1, 2, 3], False)


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], "is empty"),
        ([HEADER], "has no runs"),
        (
            [HEADER + ",colour,F1", LINE],
            r"unknown columns \['colour', 'F1'\]; known are problem, m",
        ),
        ([HEADER + ",F", LINE], "more than one column of the names F"),
        (["problem,m,n,method,F,f", LINE], "no column nfev_upper, nfev_lower; it has problem, m"),
        ([HEADER, LINE, "", LINE + ",1"], "line 4: 9 values, but there are 8 columns"),
        ([HEADER, LINE.replace("0.25", "good")], "line 2: column F: 'good' is no number"),
        ([HEADER, LINE.replace("0.25", "")], "line 2: column F is empty"),
        ([HEADER, LINE.replace("0.25", "1_0")], "column F: '1_0' is no number"),
        ([HEADER, LINE.replace("0.25", "nan")], "column F: nan is no number"),
        ([HEADER, LINE.replace("2000", "2.5")], "column nfev_lower: '2.5' is no whole number"),
        ([HEADER, LINE.replace("2000", "inf")], "column nfev_lower: 'inf' is no whole number"),
        ([HEADER, LINE.replace("2000", "1" * 20)], "column nfev_lower: '1+' is no whole number"),
        ([HEADER, LINE.replace("2000", "-1")], "column nfev_lower: -1 is negative"),
        ([HEADER, LINE.replace(",2,", ",0,")], "column m: 0 is no size"),
        ([HEADER, LINE.replace("theirs", " ")], "column method is blank"),
        ([HEADER, LINE.replace("smd1", "tp1")], "line 2: tp1 has m=2, n=2 only"),
        ([HEADER + ",number", LINE + ","], "column number is empty"),
        ([HEADER + ",number", *[LINE + ",7"] * 2], "line 3: the same run as in line 2: number 7"),
        ([HEADER + ",violation", LINE + ",-0.5"], "column violation: -0.5 is negative"),
        ([HEADER + ",target", LINE + ",maybe"], "column target: 'maybe' is no truth value"),
        ([HEADER + ",x", LINE + ",1;2;3"], "column x: 3 numbers, but m is 2"),
        ([HEADER + ",x", LINE + ",1;b"], "column x: '1;b' is no list of numbers"),
        ([HEADER, 'smd1,2,3,"theirs'], "line 2: not CSV"),
        ([HEADER, f'"{LINE}"\n', LINE + ",1"], "line 2: 1 values"),
        ([HEADER + ",error", LINE + ',"a\nb\nc"', LINE + ",x,y"], "line 5: 10 values"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, lines: list[str], error: str) -> None:
    path = written(tmp_path, *lines) if lines else tmp_path / "theirs.csv"
    path.touch()
    with pytest.raises(ValueError, match=error) as raised:
        import_csv(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"problem,m\n\xff\xfe\x00", bytes(range(256)), b"\x00" * 99])
def test_a_file_that_is_no_text_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "theirs.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"theirs\.csv"):
        import_csv(path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(ValueError, match=f"cannot read {path}: |{path} is no regular file"):
            import_csv(path)


def test_a_failed_run_and_one_without_an_answer_need_no_numbers(tmp_path: Path) -> None:
    failed, nothing = LINE.replace("0.25,0.5", "nan,nan"), LINE.replace("0.25,0.5", "NaN,NaN")
    path = written(
        tmp_path, HEADER + ",violation,status", f"{failed},nan,{FAILED}", f"{nothing},inf,max_evals"
    )
    runs = import_csv(path)
    assert runs["F"].is_nan().all() and runs["Acc_u"].is_nan().all()
    assert runs["status"].to_list() == [FAILED, "max_evals"]


def test_a_name_in_a_file_loads_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('loaded')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    line = LINE.replace("smd1", "trap:problem").replace("theirs", "trap:method")
    runs = import_csv(written(tmp_path, HEADER, line))
    export_ioh(runs, history_of(), tmp_path / "ioh")
    assert "trap" not in sys.modules
    assert runs["problem"].to_list() == ["trap:problem"]


def test_stored_runs_of_ours_import_and_export_unchanged(tmp_path: Path) -> None:
    export_csv(import_csv(STORED), tmp_path / "once.csv")
    export_csv(import_csv(tmp_path / "once.csv"), tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "once.csv").read_bytes()
    assert import_csv(tmp_path / "again.csv").equals(import_csv(STORED))


@pytest.mark.parametrize("name", ["max_evals", "budget"])
def test_a_limit_has_the_name_of_the_option_and_may_have_its_old_one(
    tmp_path: Path, name: str
) -> None:
    runs = import_csv(written(tmp_path, f"{HEADER},{name}", f"{LINE},300"))
    assert runs["budget"].to_list() == [300]


def test_a_limit_cannot_have_both_names(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEADER},max_evals,budget", f"{LINE},300,300")
    with pytest.raises(ValueError, match="more than one column of the names max_evals"):
        import_csv(path)


numbers = st.floats(width=64)
counts = st.integers(0, 2**63 - 1)
names = st.text().filter(lambda text: text.strip() and text.lower() not in problems.names())


@st.composite
def any_runs(draw: st.DrawFn) -> pl.DataFrame:
    """Runs with any text and any numbers that can be there."""
    row = {"problem": names, "method": names, "m": st.integers(1, 3), "n": st.integers(1, 3)}
    row |= {"budget": counts, "target": st.booleans(), "number": counts, "seed": counts}
    signed = ("F", "f", "F_verified", "follower_gap", "F_star", "f_star")
    row |= dict.fromkeys(signed, numbers)
    distances = st.floats(0) | st.just(math.nan)
    positive = ("violation", "Acc_u", "Acc_l", "verified", "violation_verified")
    row |= dict.fromkeys((*positive, "time", "processor_time"), distances)
    row |= dict.fromkeys(("nfev_upper", "nfev_lower"), counts)
    row |= dict.fromkeys(("seed", "nit", "near", "revision"), st.none() | counts)
    row |= dict.fromkeys(("error", "form", "version", "kernel", "machine", "made"), st.text())
    made = draw(st.lists(st.fixed_dictionaries(row), min_size=1, max_size=4))
    for run in made:
        unanswered = any(math.isnan(run[name]) for name in ("F", "f", "violation"))
        run["status"] = FAILED if unanswered else draw(st.text(min_size=1))
        for name, size in (("x", "m"), ("y", "n")):
            vector = st.lists(numbers, min_size=run[size], max_size=run[size])
            run[name] = draw(st.just([]) | vector)
    return runs_of(*made).unique(list(KEY), maintain_order=True)


@given(any_runs())
def test_what_is_exported_imports_again_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, runs: pl.DataFrame
) -> None:
    path = tmp_path_factory.mktemp("csv") / "runs.csv"
    export_csv(runs, path)
    again = import_csv(path)
    key = list(KEY)
    assert_frame_equal(again.sort(key), runs.sort(key), check_exact=True)


def test_an_exported_file_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    stored = import_csv(STORED)
    for name, runs in (("a", stored), ("b", stored.sample(fraction=1, shuffle=True, seed=1))):
        export_csv(runs, tmp_path / name)
    text = (tmp_path / "a").read_text()
    assert text == (tmp_path / "b").read_text()
    names = ",".join(RUNS).replace("budget", "max_evals")
    assert text.startswith(names + "\nsmd1,2,3,bl-cma-es,0,true,0,29253113656564128,")
    assert import_csv(tmp_path / "a").equals(in_order(stored))


@pytest.mark.parametrize("problem", ["smd\u0663", "7" * 50, "a\r", "=1+1", "smd01"])
def test_a_problem_may_have_any_name(tmp_path: Path, problem: str) -> None:
    runs = runs_of(a_run(problem=problem), a_run(problem=problem + "x"))
    export_csv(runs, tmp_path / "runs.csv")
    assert import_csv(tmp_path / "runs.csv")["problem"].sort().to_list() == [problem, problem + "x"]


def test_exported_runs_may_lack_columns_that_files_may_lack(tmp_path: Path) -> None:
    some = runs_of(a_run()).drop("Acc_u", "F_star", "f_star", "seed", "x", "machine")
    export_csv(some, tmp_path / "some.csv")
    assert import_csv(tmp_path / "some.csv").select(some.columns).equals(some)
    with pytest.raises(ValueError, match="runs have no column F, number"):
        export_csv(some.drop("F", "number"), tmp_path / "less.csv")


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    mine = tmp_path / "folder" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    runs = runs_of(a_run())
    with pytest.raises(ValueError, match=r"cannot write .*thesis\.txt: File exists"):
        export_csv(runs, mine)
    for folder in (mine, mine.parent):
        with pytest.raises(ValueError, match="is not empty; name a new directory"):
            export_ioh(runs, history_of(), folder)
    assert [path.name for path in mine.parent.iterdir()] == ["thesis.txt"]
    assert mine.read_text() == "years of work"


def inspected(folder: Path) -> iohinspector.DataManager:
    """The folder as iohinspector reads it; what it cannot read is a warning, and so an error."""
    manager = iohinspector.DataManager()
    manager.add_folder(str(folder))
    return manager


def made_run(problem: str, number: int, **options) -> tuple[dict, list[dict]]:
    """A real run as a row, and its history."""
    made = problems.get(problem)
    result = bilevo.minimize(made, rng=number, **options)
    row = a_run(problem=problem, m=made.m, n=made.n, method=result.method, number=number)
    names = ("F", "f", "violation", "nfev_upper", "nfev_lower", "status", "version")
    row |= {name: getattr(result, name) for name in names}
    row |= {"x": result.x.tolist(), "y": result.y.tolist(), "status": str(result.status)}
    key = {name: row[name] for name in KEY}
    generations = result.history.to_dataframe().iter_rows(named=True)
    return row, [{**key, **generation} for generation in generations]


def test_iohinspector_reads_the_runs_that_were_exported(tmp_path: Path) -> None:
    made = [
        made_run(problem, number, method=method, max_evals=2000)
        for problem, method in (
            ("smd1", "drc-cma-es"),
            ("smd1", "nblea"),
            ("gold-mining", "bl-cma-es"),
        )
        for number in range(2)
    ]
    runs = runs_of(*(row for row, _ in made))
    history = history_of(*(step for _, steps in made for step in steps))
    export_ioh(runs, history, tmp_path)
    manager = inspected(tmp_path)
    assert manager.n_runs == len(runs)
    loaded = manager.load(monotonic=False, include_meta_data=True)
    for row, steps in made:
        mine = loaded.filter(
            pl.col("function_name") == row["problem"],
            pl.col("algorithm_name") == row["method"],
            pl.col("run_id") == row["number"] + 1,
        )
        size = (row["m"] + row["n"], row["m"], row["n"])
        assert mine.select("dimension", "m", "n").unique().rows() == [size]
        assert mine["evaluations"].is_sorted() and mine["evaluations"].is_unique().all()
        assert (mine["evaluations"][0], mine["raw_y"][0]) == (1, math.inf)
        ends = {step["nfev_upper"] + step["nfev_lower"]: step for step in (*steps, row)}
        assert mine["evaluations"].to_list()[1:] == list(ends)
        for name in ATTRIBUTES:
            assert mine[name].to_list()[1:] == [step[name] for step in ends.values()]
        distance = abs if row["problem"] == "smd1" else float  # from the optimum 0, if known
        expected = [
            math.inf if step["violation"] else distance(step["F"]) for step in ends.values()
        ]
        assert mine["raw_y"].to_list()[1:] == expected
        assert mine["best_y"][0] == min(expected)
        assert mine["evals"][0] == row["nfev_upper"] + row["nfev_lower"]


def test_iohinspector_sees_failed_and_imported_runs(tmp_path: Path) -> None:
    failed = {"F": math.nan, "f": math.nan, "violation": math.nan, "status": FAILED}
    rows = [
        a_run(number=0, nfev_upper=0, nfev_lower=0, **failed),
        a_run(number=1),
        a_run(number=2, violation=0.5),
        a_run(number=3, nfev_upper=1, nfev_lower=0),
    ]
    export_ioh(runs_of(*rows), history_of(), tmp_path / "new" / "folder")
    manager = inspected(tmp_path)
    assert manager.overview["best_y"].to_list() == [None, 0.25, None, 0.25]
    assert manager.overview["evals"].to_list() == [1, 2100, 2100, 1]
    loaded = manager.load(monotonic=False)
    found = loaded.select("run_id", "evaluations", "raw_y").rows()
    assert found == [
        (1, 1, math.inf),
        *[(2, 1, math.inf), (2, 2100, 0.25)],
        *[(3, 1, math.inf), (3, 2100, math.inf)],
        (4, 1, 0.25),
    ]


def test_hostile_names_stay_inside_the_folder_and_apart(tmp_path: Path) -> None:
    rows = [a_run(problem=problem, method=method) for problem in HOSTILE for method in HOSTILE]
    export_ioh(runs_of(*rows), history_of(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    overview = inspected(tmp_path / "out").overview
    pairs = set(overview.select("function_name", "algorithm_name").iter_rows())
    assert pairs == {(problem, method) for problem in HOSTILE for method in HOSTILE}
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert len({name.lower() for name in files}) == len(files)  # as some file systems see them
    assert all(name.isascii() and name.count(".") <= 1 and len(name) < 200 for name in files)


def test_names_are_not_evaluated_by_readers(tmp_path: Path) -> None:
    """iohinspector evaluates experiment attributes as Python."""
    trap = "__import__('pathlib').Path('trap').touch()"
    rows = runs_of(a_run(problem=trap, method=trap, version=trap, machine=trap, status=trap))
    export_ioh(rows, history_of(), tmp_path)
    (path,) = tmp_path.rglob("*.json")
    attributes = json.loads(path.read_text())["experiment_attributes"]
    assert attributes == [{"m": "2"}, {"n": "3"}]


def test_registered_problems_keep_their_numbers_and_others_follow(tmp_path: Path) -> None:
    rows = [a_run(problem=problem) for problem in ("theirs", "smd3", "alien")]
    export_ioh(runs_of(*rows), history_of(), tmp_path)
    overview = inspected(tmp_path).overview
    numbers = dict(overview.select("function_name", "function_id").iter_rows())
    known = len(problems.names())
    assert numbers == {"smd3": 3, "alien": known + 1, "theirs": known + 2}


def test_sizes_with_the_same_sum_cannot_be_exported_together(tmp_path: Path) -> None:
    runs = runs_of(a_run(), a_run(m=3, n=2), a_run(m=5, n=5))
    with pytest.raises(ValueError, match=r"smd1 with m, n = \(2, 3\) from \(3, 2\)"):
        export_ioh(runs, history_of(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_are_as_the_format_says(tmp_path: Path) -> None:
    """Golden: IOHanalyzer wants a line of names before every run, and names without dots."""
    key = {name: a_run(problem="tp1", n=2)[name] for name in KEY}
    step = {**key, "generation": 1, "nfev_upper": 10, "nfev_lower": 90, "f": 2.0}
    steps = [{**step, "F": 221.0, "violation": 0.0}]
    steps.append({**step, "generation": 2, "nfev_lower": 140, "F": 225.0, "violation": 0.25})
    answer = {"F": 224.5, "f": 99.0, "x": [20.0, 5.0], "y": [10.0, 5.25], "version": "1.2"}
    rows = [a_run(problem="tp1", n=2, number=number, **answer) for number in range(2)]
    export_ioh(runs_of(*rows), history_of(*steps), tmp_path)
    home, data = tmp_path / "a1_theirs", "data_f15_tp1/IOHprofiler_f15_DIM4.dat"
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {home / "IOHprofiler_f15_tp1_DIM4.json", home / data}
    start = "evaluations raw_y nfev_upper nfev_lower F f violation\n1 Inf NaN NaN NaN NaN NaN\n"
    end = "2100 0.5 100 2000 224.5 99.0 0.0\n"
    between = "100 4.0 10 90 221.0 2.0 0.0\n150 Inf 10 140 225.0 2.0 0.25\n"
    assert (home / data).read_text() == start + between + end + start + end
    best = {"evals": 2100, "y": 0.5, "x": [20.0, 5.0, 10.0, 5.25]}
    assert json.loads((home / "IOHprofiler_f15_tp1_DIM4.json").read_text()) == {
        "version": "0.3.5",
        "suite": "bilevo",
        "function_id": 15,
        "function_name": "tp1",
        "maximization": False,
        "algorithm": {"name": "theirs", "info": "1.2"},
        "experiment_attributes": [{"m": "2"}, {"n": "2"}, {"optimum": "225.0"}],
        "run_attributes": ["number"],
        "attributes": ["evaluations", "raw_y", *ATTRIBUTES],
        "scenarios": [
            {
                "dimension": 4,
                "path": data,
                "runs": [
                    {"instance": 1, "evals": 2100, "best": best, "number": number}
                    for number in range(2)
                ],
            }
        ],
    }
