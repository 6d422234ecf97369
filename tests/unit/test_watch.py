"""What `bilevo watch` finds, says and serves."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from watched import HOSTILE, make_campaign, make_run, watched

import bilevo
from bilevo.cli import main
from bilevo.lab import store
from bilevo.lab.campaign import SETTINGS
from bilevo.lab.store import Store
from bilevo.lab.watch import places
from bilevo.lab.watch.campaign_files import Cell, FollowedCampaign, planned_cells
from bilevo.lab.watch.watcher import Watcher
from bilevo.run.lock import DirectoryLock
from bilevo.run.stored import JOURNAL

PART = {"methods": ["drc-cma-es"], "problems": ["smd1", "smd2"], "sizes": [[2, 3]], "runs": 4}
PLAN = {"experiments": [{**PART, "max_evals": [0], "target": True}], "forms": {}}


def rows_of(watcher: Watcher) -> dict[str, dict[str, Any]]:
    return {Path(row["path"]).name: row for row in watcher.rows_since(0)[0]}


def test_runs_and_campaigns_are_found_below_a_path_but_not_behind_links(tmp_path: Path) -> None:
    make_run(tmp_path / "here/a")
    make_campaign(tmp_path / "here/deep/campaign")
    (tmp_path / "here/link").symlink_to(tmp_path / "here/deep")
    (tmp_path / "here/.hidden").mkdir()
    shutil.copytree(tmp_path / "here/a", tmp_path / "here/.hidden/b")
    found = places.find_places([tmp_path / "here", tmp_path / "here/a"])
    assert [(place.kind, place.path.name) for place in found] == [
        ("campaign", "campaign"),
        ("run", "a"),
    ]
    assert len({place.id for place in found}) == 2


def test_the_row_of_a_run_says_how_it_stands(tmp_path: Path) -> None:
    result = make_run(tmp_path / "a")
    row = rows_of(watched(tmp_path))["a"]
    assert row["state"] == "stopped" and "max_evals" in row["sentence"]
    assert row["F"] == result.F and row["certified"] is False and row["feasible"] is True
    assert row["nfev_upper"] + row["nfev_lower"] == result.nfev
    assert row["limits"] == {"max_evals": [result.nfev, 300]}
    assert row["share"] == result.nfev / 300
    assert row["left"] is None and row["rate"] > 0 and row["problem"] == "copy"


def test_details_have_the_course_of_a_run_and_how_it_goes_on(tmp_path: Path) -> None:
    result = make_run(tmp_path / "a", max_evals=900)
    watcher = watched(tmp_path)
    detail = watcher.detail(watcher.ids()[0])
    assert detail is not None
    pairs = detail["pairs"]
    assert pairs["F"][-1] == result.F and len(pairs["x"]) == len(pairs["y"]) == 2
    assert pairs["x"][0][-1] == pytest.approx(result.x[0], rel=1e-5)
    assert [stage["name"] for stage in detail["allocation"]] == ["early", "middle", "late"]
    assert detail["resume"] == [
        f"bilevo.minimize(problem, method='drc-cma-es', rng=1, run_dir='{tmp_path / 'a'}')"
    ]
    json.dumps(detail, allow_nan=False)


def test_a_problem_of_the_suites_is_continued_by_a_command(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    bilevo.minimize(bilevo.problems.get("smd1", 2, 3), max_evals=50, rng=7, run_dir=folder)
    watcher = watched(tmp_path)
    detail = watcher.detail(watcher.ids()[0])
    assert detail is not None
    assert detail["resume"][0] == (
        f"bilevo solve smd1 --dim 2,3 --method few --seed 7 --run-dir '{folder}'"
    )


def test_failures_are_shown_with_their_points(tmp_path: Path) -> None:
    calls = [0]

    def f(x: Any, y: Any) -> float:
        calls[0] += 1
        if calls[0] == 5:
            raise ValueError(HOSTILE)
        return float((y - x) @ (y - x))

    bilevo.minimize(
        bilevo.Problem(lambda x, y: float(x @ x), f, [(-5, 10)], [(-5, 10)]),
        **{"method": "drc-cma-es", "max_evals": 60, "on_failure": "worst", "run_dir": tmp_path},
    )
    watcher = watched(tmp_path)
    detail = watcher.detail(watcher.ids()[0])
    assert detail is not None and detail["failures"] == 1
    (failed,) = detail["failed"]
    assert failed["level"] == "lower" and failed["evaluation"] == 5 and len(failed["x"]) == 1
    assert "<img src=x" in failed["error"] and "\\x1b" in failed["error"]


def test_rows_follow_a_run_and_forget_a_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SEARCH_EVERY", "EVERY"):
        monkeypatch.setattr(f"bilevo.lab.watch.watcher.{name}", 0.0)
    make_run(tmp_path / "a")
    watcher = watched(tmp_path)
    rows, gone, version = watcher.rows_since(0)
    assert len(rows) == 1 and gone == []
    watcher.look()
    assert watcher.rows_since(version) == ([], [], version), "nothing is new"
    make_run(tmp_path / "a", max_evals=600)
    watcher.look()
    ((row,), _, version) = watcher.rows_since(version)
    assert row["limits"]["max_evals"][1] == 600
    held = DirectoryLock(tmp_path / "a")
    watcher.look()
    ((row,), _, version) = watcher.rows_since(version)
    assert row["state"] == "running"
    held.release()
    shutil.rmtree(tmp_path / "a")
    make_run(tmp_path / "b")
    watcher.look()
    rows, gone, _ = watcher.rows_since(version)
    assert [Path(row["path"]).name for row in rows] == ["b"] and len(gone) == 1


def test_all_directories_are_listed_before_they_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name)
    watcher = Watcher([tmp_path])
    watcher._search()
    rows, _, version = watcher.rows_since(0)
    assert [row["read"] for row in rows] == [0, 0] and version == 2
    watcher.read_all()
    assert {row["state"] for row in watcher.rows_since(version)[0]} == {"stopped"}


def test_a_run_without_an_evaluation_yet_is_not_damaged(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    path = tmp_path / "a" / JOURNAL
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n")
    watcher = watched(tmp_path)
    (row,), _, _ = watcher.rows_since(0)
    assert row["error"] == "" and row["problem"] == "copy" and "F" not in row
    detail = watcher.detail(row["id"])
    assert detail is not None and detail["pairs"]["F"] == [] and detail["allocation"] == []


def test_a_campaign_shows_progress_tables_and_targets_as_they_fill(tmp_path: Path) -> None:
    make_campaign(tmp_path / "c", runs=2)
    (tmp_path / "c" / SETTINGS).write_text(json.dumps(PLAN))
    watcher = watched(tmp_path)
    row = rows_of(watcher)["c"]
    assert row["made"] == 18 and row["planned"] == 8 and row["failed"] == 0
    detail = watcher.detail(row["id"])
    assert detail is not None and detail["error"] == ""
    progress = detail["progress"]
    assert progress["counts"][progress["cases"].index("smd1 (2, 3)")][0] == [2, 4]
    assert [table["title"].split()[0] for table in detail["tables"]] == [
        "Accuracy",
        "Evaluations",
        "Total",
    ]
    assert len(detail["ecdf"]["counts"]) == len(detail["names"]["methods"]) == 3
    assert "tests" not in str(detail["tables"]), "no test before the campaign ends"
    json.dumps(detail, allow_nan=False)


def test_the_targets_of_a_campaign_are_those_of_its_report(tmp_path: Path) -> None:
    """Only changes of the best pair are kept of a history: curves must not differ by that."""
    from bilevo.lab.analysis import curves

    make_campaign(tmp_path, runs=3)
    campaign = FollowedCampaign(tmp_path)
    campaign.read(10)
    ours = curves.ecdf(campaign.history(), store.runs(tmp_path))
    theirs = curves.ecdf(store.history(tmp_path), store.runs(tmp_path))
    for one, other in zip(ours.reached, theirs.reached, strict=True):
        assert one.method == other.method and one.pairs == other.pairs
        assert np.array_equal(one.evaluations, other.evaluations)
        assert np.array_equal(one.share, other.share)


def test_a_campaign_that_is_merged_meanwhile_keeps_its_runs(tmp_path: Path) -> None:
    make_campaign(tmp_path, runs=3)
    campaign = FollowedCampaign(tmp_path)
    campaign.read(10)
    assert campaign.runs.height == 27 and not campaign.unread
    before = campaign.history().height
    with Store(tmp_path) as kept:
        assert campaign.read() and campaign.running
        kept.merge()
    assert campaign.read(10) and not campaign.running
    assert campaign.runs.height == 27 and campaign.history().height == before
    make_campaign(tmp_path, runs=3)  # made again: the later rows count
    campaign.read(10)
    assert campaign.runs.height == 27 and campaign.history().height == before


def test_a_plan_is_counted_without_importing_what_it_names(tmp_path: Path) -> None:
    part = {**PART, "problems": ["nowhere:problem", "tp1"], "max_evals": [10], "target": True}
    cells = planned_cells({"experiments": [part, {**part, "runs": 2}], "forms": {}})
    assert cells[Cell("nowhere:problem", 0, 0, "drc-cma-es", 10, True)] == 4
    assert sum(cells.values()) == 8
    huge = {**part, "methods": ["m"] * 1000, "problems": ["p"] * 1000}
    with pytest.raises(ValueError, match="more than"):
        planned_cells({"experiments": [huge]})


def broken_places(folder: Path) -> None:
    """Make directories that are damaged or hostile, each in another way."""
    make_run(folder / "sound", name=HOSTILE)
    whole = (folder / "sound" / JOURNAL).read_bytes()
    for name in ("link", "pipe", "lock pipe", "noise", "empty", "sparse", "middle", "header"):
        (folder / name).mkdir()
    (folder / "link" / JOURNAL).symlink_to(folder / "sound" / JOURNAL)
    os.mkfifo(folder / "pipe" / JOURNAL)
    os.mkfifo(folder / "lock pipe" / "lock")
    (folder / "lock pipe" / JOURNAL).write_bytes(whole)
    (folder / "noise" / JOURNAL).write_bytes(os.urandom(5000))
    (folder / "empty" / JOURNAL).touch()
    with (folder / "sparse" / JOURNAL).open("wb") as file:
        file.write(whole)
        file.truncate(20 * 2**30)
    (folder / "middle" / JOURNAL).write_bytes(whole[:1500] + b"\0\1\2" + whole[1503:])
    (folder / "header" / JOURNAL).write_bytes(b"bilevo-journal-1 " + b"[" * 5000)
    for name in ("plan", "parquet", "segment pipe"):
        (folder / name).mkdir()
    (folder / "plan" / SETTINGS).write_text('{"experiments": [{"runs": 1e9}], "forms": {}}')
    (folder / "parquet" / "runs-000001-000001.parquet").write_bytes(b"PAR1" + os.urandom(99))
    os.mkfifo(folder / "segment pipe" / "runs-000001-000001.parquet")


def test_damaged_and_hostile_directories_are_named_and_hurt_no_other(tmp_path: Path) -> None:
    broken_places(tmp_path)
    watcher = watched(tmp_path)
    rows = rows_of(watcher)
    assert rows["sound"]["error"] == "" and rows["sound"]["state"] == "stopped"
    for name in ("link", "pipe", "lock pipe", "noise", "sparse", "middle", "header"):
        assert rows[name]["error"], name
    for name in ("plan", "parquet", "segment pipe"):
        assert rows[name]["error"], name
    assert "is a link" in rows["link"]["error"] and "is a pipe" in rows["pipe"]["error"]
    assert rows["sound"]["problem"].isprintable() and "<img" in rows["sound"]["problem"]
    for id in watcher.ids():
        json.dumps(watcher.detail(id), allow_nan=False)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.booleans(),
        lambda part: (
            st.lists(part, max_size=3)
            | st.dictionaries(st.sampled_from(["experiments", "forms", *PART]), part)
        ),
    )
)
def test_no_settings_raise(tmp_path: Path, content: Any) -> None:
    (tmp_path / SETTINGS).write_text(json.dumps(content))
    campaign = FollowedCampaign(tmp_path)
    campaign.read()
    assert isinstance(campaign.error, str)


def test_an_exported_page_has_everything_and_escapes_it(tmp_path: Path, capsys) -> None:
    broken_places(tmp_path / "runs")
    make_campaign(tmp_path / "runs/campaign", problems=("smd1", HOSTILE))
    out = tmp_path / "page.html"
    assert main(["watch", str(tmp_path / "runs"), "--export", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    text = out.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert len(data["rows"]) == len(data["details"]) == 13
    assert "connect-src 'none'" in text.replace("&#39;", "'")
    assert "<img src=x" not in text


def test_mistakes_are_told(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    for words, told in {
        (str(tmp_path / "nowhere"),): "does not exist",
        (str(tmp_path / "file"),): "is no directory",
        (str(tmp_path), "--port", "99999"): "--port must be",
    }.items():
        assert main(["watch", *words, "--no-browser"]) == 2
        assert told in capsys.readouterr().err
