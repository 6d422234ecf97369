"""Campaigns and their stored runs, and the tables made from them."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bilevo import registry
from bilevo.experiments import campaign, tables
from bilevo.experiments.campaign import Row, carry_out, carry_out_all, complete, forget, read
from bilevo.experiments.plans import PLANS, Plan, Run, algorithm
from bilevo.experiments.reproduce import longest_first, reproduce
from bilevo.experiments.tables import grouped, method_table, paper_values, replaced, show

ROOT = Path(__file__).parents[2]
PLAN = [Run(f"smd{i}", 2, 3, "bl-cma-es", number) for i in (10, 9) for number in range(4)]


def made_up(run: Run, **values) -> Row:
    """A row as its run might have given it: the same whenever it is made."""
    number = run.seed % 1000
    given = {"F": number / 7, "f": 1e-7, "violation": 0.0, "Acc_u": number / 7, "Acc_l": 1e-7}
    given |= {"verified": 2e-5, "nfev_upper": number, "nfev_lower": 10 * number}
    return Row.of(run, **{**given, "status": "target", **values})


def troubled(run: Run) -> Row:
    """Of four runs one raises, one dies, one hangs."""
    if run.number == 1:
        os._exit(3)
    if run.number == 2:
        time.sleep(60)
    return carry_out(replace(run, problem="smd99")) if run.number == 3 else made_up(run)


def slow(run: Run) -> Row:
    time.sleep(0.2)
    return made_up(run)


def run_slowly(path: str) -> None:
    complete(Path(path), PLAN, lambda missing: carry_out_all(missing, workers=1, make=slow))


def stored(folder: Path, rows: list[Row], size: str = "2_3") -> Path:
    campaign.write(folder / f"runs_{size}.csv", rows)
    return folder


def test_seeds_come_from_the_runs_name_alone() -> None:
    plan = Plan(("drc-cma-es", "bl-cma-es"), ("smd1", "smd2"), 50)
    assert len({run.seed for run in plan.at(2, 3)}) == 200
    assert Run("smd1", 2, 3, "drc-cma-es", 0).seed == 67166620609967819


def test_a_run_is_verified_beside_what_it_reports() -> None:
    row = carry_out(Run("smd4", 2, 3, "drc-cma-es", 1))
    assert row.status == "target" and row.Acc_u == abs(row.F) < 1e-6 and row.Acc_l == abs(row.f)
    assert np.isfinite(row.verified) and row.verified != row.Acc_u


def test_stored_rows_come_back_to_the_bit(tmp_path) -> None:
    rows = [made_up(run, F=0.1 + 0.2, verified=np.inf) for run in PLAN]
    rows.append(Row.of(PLAN[0], error='with, comma and "quotes"'))
    path = stored(tmp_path, rows[1:]) / "runs_2_3.csv"
    found = read(path)
    assert {run: repr(row) for run, row in found.items()} == {r.run: repr(r) for r in rows[1:]}
    assert [(run.problem, run.number) for run in found][3:5] == [("smd9", 3), ("smd10", 0)]


def test_a_campaign_that_was_killed_goes_on_to_the_same_file(tmp_path) -> None:
    whole, killed = tmp_path / "whole" / "runs.csv", tmp_path / "killed" / "runs.csv"
    complete(whole, PLAN, lambda missing: map(made_up, missing))
    code = f"import test_experiments as t; t.run_slowly({str(killed)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(read(killed)) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = read(killed)
    assert 2 <= len(done) < len(PLAN)
    with killed.open("a") as file:
        file.write("smd9,2,3,bl-cma")  # a line that was being written
    made: list[Run] = []
    complete(killed, PLAN, lambda missing: (made.append(run) or made_up(run) for run in missing))
    assert set(made) == set(PLAN) - set(done)
    assert killed.read_bytes() == whole.read_bytes()


def test_runs_are_made_again_only_when_forgotten(tmp_path) -> None:
    path = tmp_path / "runs.csv"
    complete(path, PLAN, lambda missing: map(made_up, missing))
    complete(path, PLAN, lambda missing: [made_up(run, F=1.0) for run in missing])
    assert not any(row.F == 1.0 for row in read(path).values())
    forget(path, PLAN[:2])
    complete(path, PLAN, lambda missing: [made_up(run, F=1.0) for run in missing])
    assert [run for run, row in read(path).items() if row.F == 1.0] == PLAN[:2]


def test_runs_that_raise_die_or_hang_are_rows_and_end_nothing() -> None:
    plan = [Run("smd1", 2, 3, "bl-cma-es", number) for number in range(5)]
    rows = {row.number: row for row in carry_out_all(plan, 2, max_time=3, make=troubled)}
    assert [rows[i].failed for i in range(5)] == [False, True, True, True, False]
    assert rows[1].error == "process ended: 3"
    assert rows[2].error == "more than 3 s"
    assert rows[3].error.startswith("ValueError: unknown problem 'smd99'")


def test_only_one_campaign_writes_at_a_time(tmp_path) -> None:
    path = tmp_path / "runs.csv"

    def meanwhile(missing: list[Run]) -> list[Row]:
        with pytest.raises(ValueError, match="another campaign is writing"):
            complete(path, PLAN, lambda missing: map(made_up, missing))
        return [made_up(run) for run in missing]

    assert len(complete(path, PLAN, meanwhile)) == len(PLAN)


def test_a_file_of_other_columns_is_refused(tmp_path) -> None:
    (tmp_path / "runs.csv").write_text("problem,F\nsmd1,0\n")
    with pytest.raises(ValueError, match="has the columns"):
        complete(tmp_path / "runs.csv", PLAN, lambda missing: [])


def test_the_longest_runs_come_first() -> None:
    short, long = Run("smd6", 2, 3, "bleaq2", 0), Run("smd9", 2, 3, "nblea", 0)
    assert longest_first([short, long]) == [long, short]


def test_the_command_makes_what_is_missing_and_shows_the_papers_medians(tmp_path, capsys) -> None:
    chosen = {"only": "smd1", "methods": "drc-cma-es", "data": tmp_path, "workers": 1}
    reproduce(runs=1, **chosen)
    (first,) = read(tmp_path / "runs_2_3.csv").values()
    campaign.write(tmp_path / "runs_2_3.csv", [replace(first, nfev_upper=409)])
    capsys.readouterr()
    reproduce(runs=1, **chosen)
    assert "409    818   0.50" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="unknown method 'drc-cma'"):
        reproduce(**{**chosen, "methods": "drc-cma"})


def test_the_plain_form_of_drc_has_none_of_its_ingredients() -> None:
    plain = algorithm("drc-cma-es/plain")
    assert (plain.cooperation, plain.selection, plain.stop) == (False, "uniform", "all")
    assert algorithm("drc-cma-es").cooperation
    with pytest.raises(ValueError, match="unknown form 'fancy'"):
        algorithm("drc-cma-es/fancy")


def test_every_method_of_the_plans_can_be_made() -> None:
    assert len(PLANS["field"].at(2, 3)) == 9 * 12 * 11
    assert len(PLANS["ablation"].at(2, 3)) == 10 * 6 * 11
    mixed = algorithm("drc-cma-es+de/plain")
    assert mixed.upper == algorithm("drc-cma-es").upper
    assert mixed.lower == algorithm("drc-de").lower != mixed.upper and mixed.stop == "all"


def test_the_paper_and_the_programs_are_quoted_as_they_are() -> None:
    assert paper_values("smd1", "2,3", "drc-cma-es") == {
        "total": 14600,
        "Acc_u": 1e-6,
        "Acc_l": 1e-6,
        "FEs_u": 818,
        "FEs_l": 13700,
    }
    assert paper_values("smd12", "10,10", "bl-cma-es") == {"total": 418000}
    assert paper_values("smd6", "2,3", "bleaq2")["total"] == 3450
    assert paper_values("smd1", "2,3", "drc-de") == {}
    assert tables.program_values("smd10", "2,3", "bleaq2")["FEs_l"] == 83722
    assert tables.program_values("smd1", "10,10", "bleaq2") == {}


def test_a_methods_table_shows_ours_the_papers_and_its_programs() -> None:
    runs = [Run("smd1", 2, 3, "bl-cma-es", i) for i in range(4)]
    rows = [made_up(run, Acc_u=1e-9, nfev_upper=630, nfev_lower=20400) for run in runs[:3]]
    lines = method_table("bl-cma-es", grouped([*rows, Row.of(runs[3], error="x")]), "2,3")
    assert lines[0][0] == "bl-cma-es (published code followed)"
    assert lines[1][:2] == ["smd1", "3, 1 failed"]
    assert lines[1][2:5] == ["1.0e-06", "1.0e-06", "1.0e-06"]
    assert lines[0][5:7] == ["verified", "Acc_l"] and lines[1][5] == "2.0e-05"
    assert lines[0][9:13] == ["FEs_u", "paper", "ratio", "program"]
    assert lines[1][9:13] == ["630", "315", "2.00", "318"]
    assert lines[1][-1] == "9"  # runs of the program
    assert len({len(line) for line in show(lines, markdown=False).splitlines()}) == 1
    unknown = method_table("drc-de", grouped([made_up(Run("smd1", 2, 3, "drc-de", 0))]), "2,3")
    assert "paper" not in unknown[0] and "ratio" not in unknown[0]


def test_the_summary_counts_problems_near_the_paper() -> None:
    shares = {"smd1": 1.05, "smd2": 1 / 1.4, "smd3": 1.9, "smd4": 2.5}  # of the paper's 818, ...
    rows = []
    for problem, share in shares.items():
        paper = paper_values(problem, "2,3", "drc-cma-es")
        counts = {"nfev_upper": round(share * paper["FEs_u"]), "nfev_lower": int(paper["FEs_l"])}
        rows.append(made_up(Run(problem, 2, 3, "drc-cma-es", 0), Acc_u=1e-3, **counts))
    line = tables.summary_table(grouped(rows), "2,3")[1]
    assert line[:5] == ["drc-cma-es", "specified from the paper", "4", "1, 2, 3", "4, 4, 4"]
    assert line[-2:] == ["0", "4"]


def test_the_ablation_sets_each_pair_against_its_plain_form() -> None:
    whole = [
        made_up(
            Run("smd1", 2, 3, "drc-cma-es", i), nfev_upper=0, nfev_lower=50, near=30, Acc_u=1e-5
        )
        for i in range(21)
    ]
    plain = [replace(row, method="drc-cma-es/plain", nfev_lower=100) for row in whole[:10]]
    plain[0] = replace(plain[0], near=0)
    plain.append(Row.of(Run("smd1", 2, 3, "drc-cma-es/plain", 10), error="x"))
    (_, line, total) = tables.ablation_table([*whole, *plain])
    assert total[6:9] == ["50", "100", "0.50"]
    assert line[:3] == ["drc-cma-es", "smd1", "11 / 10, 1 failed"]
    assert line[3:9] == ["30", f"{(100 + 9 * 30) / 9:.0f}", "0.73", "50", "100", "0.50"]
    assert line[9:13] == ["100%", "91%", "0%", "0%"]


def test_a_run_notes_when_it_came_near_the_optimum() -> None:
    row = carry_out(Run("smd1", 2, 3, "drc-cma-es", 0))
    assert row.Acc_u < 1e-6 and 0 < row.near < row.total


def test_reconstructions_are_called_so_in_every_table(tmp_path, monkeypatch) -> None:
    rebuilt = replace(registry.methods()["bl-cma-es"], status=registry.Status.RECONSTRUCTION)
    known = {"bl-cma-es": rebuilt, "drc-cma-es": rebuilt}
    monkeypatch.setattr(registry, "methods", lambda: known)
    forms = ("bl-cma-es", "drc-cma-es", "drc-cma-es/plain")
    rows = [made_up(Run("smd1", 2, 3, form, 0)) for form in forms]
    for kind in ("summary", "methods", "ablation"):
        assert "reconstruction" in tables.block(kind, rows, "2,3")


def test_only_what_stands_between_the_marks_is_replaced(tmp_path) -> None:
    data = stored(tmp_path, [made_up(Run("smd1", 2, 3, "bl-cma-es", 0), nfev_upper=77)])
    text = (
        "before 77\n<!-- table: methods 2,3 -->\nold\n<!-- end -->\nbetween\n"
        "<!-- table: methods 10,10 -->\nkept\n<!-- end -->\nafter\n"
    )
    new = replaced(text, data)
    first, last = new.index("\n| bl-cma-es"), new.index("\n<!-- end -->\nbetween")
    assert "| 77 |" in new[first:last] and "old" not in new
    assert new[:first] + "old\n" + new[last + 1 :] == text
    assert replaced(new, data) == new
    for wrong in ("<!-- end -->\nbetween", "<!-- end -->\nafter", " 10,10"):
        with pytest.raises(ValueError, match="a table has no end, or its mark is not like"):
            replaced(text.replace(wrong, ""), data)
    with pytest.raises(ValueError, match="unknown kind of table 'all'"):
        replaced(text.replace("methods", "all"), data)


def test_tables_run_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(campaign, "minimize", None)
    page = tmp_path / "page.md"
    page.write_text("<!-- table: methods 2,3 -->\n<!-- end -->\n")
    tables.write_tables(page, stored(tmp_path, [made_up(run) for run in PLAN]))
    assert "| smd9 | 4 |" in page.read_text()


def test_the_page_shows_the_stored_runs() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text()
    kinds = [match[1:4] for match in tables.MARKED.findall(page)]
    assert {kind for kind, m, n in kinds if (m, n) == ("2", "3")} == {
        "summary",
        "methods",
        "ablation",
    }
    assert replaced(page, ROOT / "docs" / "data") == page, "run scripts/tables"
