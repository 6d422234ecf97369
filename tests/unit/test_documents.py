"""Pages whose tables are made by the command that their marks name."""

from functools import cache
from pathlib import Path

import pytest

from bilevo.lab import exchange, store
from bilevo.lab.show import documents

ROOT = Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "<!-- table: docs/data/" in path.read_text(encoding="utf-8")
]


@pytest.fixture
def runs(tmp_path, monkeypatch) -> str:
    """The name of a file of a few runs in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("few.csv").write_text(
        "problem,m,n,method,F,f,nfev_upper,nfev_lower\nsmd1,2,3,a method,0,0,77,1000\n"
    )
    return "few.csv"


def test_only_what_stands_between_the_marks_is_replaced(runs: str) -> None:
    text = (
        f"before 77\n<!-- table: {runs} --kind evaluations -->\nold\n<!-- end -->\nbetween\n"
        f'<!-- table: {runs} --kind total --methods "a method" -->\nold\n<!-- end -->\nafter\n'
    )
    new = documents.with_new_tables(text)
    assert "| smd1 | FEs_u | 77 |" in new and "| smd1 | 1077 |" in new and "old" not in new
    assert [part in new for part in ("before 77\n", "\nbetween\n", "\nafter\n")] == [True] * 3
    assert documents.with_new_tables(new) == new


def test_a_mark_takes_several_files_and_kinds(runs: str) -> None:
    Path("more.csv").write_text(Path(runs).read_text().replace("a method", "another"))
    shown = documents.table_in_markdown(
        "few.csv more.csv --kind accuracy,total --reference another"
    )
    assert shown.count("| problem |") == 2 and "| a method | another |" in shown


def test_a_mark_that_is_not_right_is_told(runs: str) -> None:
    with pytest.raises(ValueError, match="a table has no end"):
        documents.with_new_tables(f"<!-- table: {runs} -->\n")
    with pytest.raises(ValueError, match="unknown kind of table 'all'"):
        documents.table_in_markdown(f"{runs} --kind all")
    with pytest.raises(Exception, match="Unknown option: --knd"):
        documents.table_in_markdown(f"{runs} --knd total")


def test_a_page_is_written_in_place(runs: str) -> None:
    page = Path("page.md")
    page.write_text(f"<!-- table: {runs} --kind evaluations -->\n<!-- end -->\n")
    documents.write_tables(page)
    assert "| smd1 | FEs_l | 1000 |" in page.read_text()


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_our_pages_show_the_stored_runs(path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(store, "runs", cache(store.runs))  # each file once
    page = path.read_text(encoding="utf-8")
    assert page.count("<!-- table: docs/data/") == page.count("<!-- end -->") > 0
    assert documents.with_new_tables(page) == page, "run scripts/tables"


def test_the_script_writes_all_pages_with_tables_of_stored_runs() -> None:
    script = (ROOT / "scripts" / "tables").read_text()
    assert {word for word in script.split() if word.endswith(".md")} == set(map(str, PAGES))


def test_runs_of_the_programs_are_told_as_they_were() -> None:
    found = exchange.import_csv(ROOT / "docs" / "data" / "programs.csv")
    assert sorted(found["method"].unique()) == [
        *("BL-CMA-ES program", "BLEAQ-II program", "TLEA-CMA-ES program")
    ]
    assert len(found) == 235 and found["verified"].is_nan().all()
    smd = found["problem"].str.starts_with("smd")
    assert found.filter(smd)["Acc_u"].is_finite().all()
    assert found.filter(~smd)["Acc_u"].is_nan().all()
