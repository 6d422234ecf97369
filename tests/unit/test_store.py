"""Stored runs: whole at any moment, whoever reads or dies."""

import math
import os
from pathlib import Path

import polars as pl
import pytest

from bilevo.lab import store
from bilevo.lab.store import HISTORY, KEY, RUNS, Store, frame, history, in_order, runs

GENERATIONS = {
    "generation": [1, 2],
    "nfev_upper": [5, 9],
    "nfev_lower": [50, 90],
    "F": [1.0, 0.1 + 0.2],
    "f": [0.5, 0.25],
    "violation": [0.0, 0.0],
    "executions": [[1, 2, 3], [4]],
    "survived": [[True, False, True], [False]],
}


def row(number: int, problem: str = "smd1", **values) -> dict:
    given = {"problem": problem, "m": 2, "n": 3, "method": "nblea", "budget": 0, "target": True}
    given |= {"number": number, "seed": 2**55 + number, "F": number / 7, "status": "target"}
    return {**given, "history": GENERATIONS, **values}


def numbers(folder: Path) -> list[int]:
    return runs(folder)["number"].to_list()


def test_rows_and_histories_come_back_to_the_bit(tmp_path) -> None:
    with Store(tmp_path) as kept:
        kept.add(frame([row(1, F=math.inf, x=[0.1, 0.2]), row(0, F=math.nan)]))
    found = runs(tmp_path)
    assert found.schema == pl.Schema(RUNS)
    assert found["F"].to_list()[1] == math.inf and math.isnan(found["F"][0])
    assert found["seed"].to_list() == [2**55, 2**55 + 1]
    assert found["x"].to_list() == [None, [0.1, 0.2]]
    assert found["verified"].is_nan().all()  # not there: NaN, never null
    told = history(tmp_path)
    assert told.columns == [*KEY, "seed", *HISTORY]
    for name, values in GENERATIONS.items():
        assert told[name].to_list() == values * 2


def test_a_run_without_generations_has_no_history(tmp_path) -> None:
    with Store(tmp_path) as kept:
        kept.add(frame([row(0, history=None), row(1, history={name: [] for name in HISTORY})]))
    assert len(runs(tmp_path)) == 2 and len(history(tmp_path)) == 0


def test_problems_are_in_their_natural_order() -> None:
    names = ["smd10", "gold-mining", "smd9", "tp1", "a" * 50 + "9" * 30]
    found = in_order(frame([row(0, name) for name in names]))["problem"].to_list()
    assert found == [names[4], "gold-mining", "smd9", "smd10", "tp1"]


def test_merging_changes_nothing_that_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(store, "MERGE_AT", 4)
    with Store(tmp_path) as kept:
        for number in range(11):
            kept.add(frame([row(number)]))
            assert numbers(tmp_path) == list(range(number + 1))
        assert len(store.segments(tmp_path)) == 2 + 3
        kept.merge()
    assert [path.name for path in tmp_path.iterdir()] == ["runs-000001-000011.parquet"]
    assert numbers(tmp_path) == list(range(11))


def test_a_kill_while_files_are_merged_shows_no_run_twice(tmp_path, monkeypatch) -> None:
    with Store(tmp_path) as kept:
        for number in range(3):
            kept.add(frame([row(number)]))

        def killed(path: Path) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.merge()
        monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 4
    assert numbers(tmp_path) == [0, 1, 2]
    with Store(tmp_path) as kept:
        kept.add(frame([row(3)]))
        kept.merge()
    assert numbers(tmp_path) == [0, 1, 2, 3]


def test_a_file_that_was_being_written_does_not_count(tmp_path) -> None:
    with Store(tmp_path) as kept:
        kept.add(frame([row(0)]))
    (tmp_path / "runs-000002-000002.new").write_bytes(b"PAR1 half of")
    assert numbers(tmp_path) == [0]


def test_a_run_stored_again_takes_the_place_of_the_old_one(tmp_path) -> None:
    with Store(tmp_path) as kept:
        kept.add(frame([row(0), row(1)]))
        kept.add(frame([row(1, F=5.0, history=None), row(2)]))
        for _ in range(2):
            found = runs(tmp_path)
            assert found["number"].to_list() == [0, 1, 2] and found["F"][1] == 5.0
            assert history(tmp_path)["number"].to_list() == [0, 0, 2, 2]
            kept.merge()


def test_a_writer_clears_up_after_one_that_was_killed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(store, "MERGE_AT", 3)
    with Store(tmp_path) as kept:
        kept.add(frame([row(0)]))
        kept.add(frame([row(1)]))
        kept.merge()
    void, half = tmp_path / "runs-000002-000002.parquet", tmp_path / "runs-000003-000003.new"
    frame([row(1)]).write_parquet(void)
    half.write_bytes(b"PAR1 half of")
    for number in (2, 3, 4):  # one file each, of sessions that ended early
        with Store(tmp_path) as kept:
            kept.add(frame([row(number)]))
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "runs-000001-000002.parquet",
        "runs-000003-000005.parquet",
    ]


def test_a_file_that_is_missing_is_told(tmp_path) -> None:
    with Store(tmp_path) as kept:
        for number in range(3):
            kept.add(frame([row(number)]))
    (tmp_path / "runs-000002-000002.parquet").unlink()
    with pytest.raises(ValueError, match="lacks runs-000002 to 000002"):
        runs(tmp_path)


def test_folders_may_have_any_name(tmp_path) -> None:
    folder = tmp_path / "e[1]*?"
    with Store(folder) as kept:
        kept.add(frame([row(0)]))
    assert numbers(folder) == [0]


def test_a_reader_tries_again_when_its_files_are_merged_meanwhile(tmp_path, monkeypatch) -> None:
    with Store(tmp_path) as kept:
        kept.add(frame([row(0)]))
        kept.add(frame([row(1)]))
        seen = store.segments(tmp_path)
        kept.merge()
    listings = iter([seen])
    current = store.segments
    monkeypatch.setattr(store, "segments", lambda folder: next(listings, None) or current(folder))
    assert numbers(tmp_path) == [0, 1]


def test_only_one_campaign_writes_at_a_time(tmp_path) -> None:
    with Store(tmp_path), pytest.raises(ValueError, match="another campaign is writing to"):
        Store(tmp_path)
    Store(tmp_path).__exit__()


def test_files_of_earlier_versions_lack_processor_times(tmp_path) -> None:
    older = frame([row(0)]).drop("processor_time")
    older.write_parquet(tmp_path / "runs-000001-000001.parquet")
    with Store(tmp_path) as kept:
        kept.add(frame([row(1, processor_time=0.5)]))
        kept.merge()
    found = runs(tmp_path)
    assert found.columns == list(store.RUNS)
    assert found["processor_time"].is_nan().to_list() == [True, False]


def test_what_is_no_store_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match="has no stored runs"):
        runs(tmp_path)
    with pytest.raises(ValueError, match="gone does not exist"):
        runs(tmp_path / "gone")
    broken = tmp_path / "runs-000001-000001.parquet"
    for content in (b"", b"not Parquet", os.urandom(500)):
        broken.write_bytes(content)
        with pytest.raises(ValueError, match=r"runs-000001-000001\.parquet is no file of stored"):
            runs(tmp_path)
    other = frame([row(0)]).with_columns(m=pl.lit("two"))
    nameless = frame([row(0, problem=None)])
    for table in (other, other.select("problem"), nameless):
        table.write_parquet(broken)
        with pytest.raises(ValueError, match="is no file of stored runs"):
            runs(tmp_path)
