"""The HTML of a report, without a browser; tests/browser opens it in one."""

from __future__ import annotations

import csv
import json
import re
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from made_up import METHODS, failing, frames

from bilevo.lab.analysis import tables
from bilevo.lab.analysis.table_parts import Cell, Table
from bilevo.lab.exchange import import_csv
from bilevo.lab.show import report
from bilevo.lab.show.page.cells import shown_table
from bilevo.lab.show.page.terms import TERMS

EVIL = "</script><script>alert(1)</script>"


class Elements(HTMLParser):
    """The elements of a page, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.scripts += [""] if tag == "script" else []

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def page(*problems: str, settings: report.Settings | None = None) -> str:
    return report.page(*frames(problems or ("smd1",)), settings or {})


def told(text: str) -> str:
    """What the section on settings says, without spaces."""
    return re.sub(r"<[^>]*>|\s", "", text.split('id="settings"')[1].partition("</section>")[0])


def data(text: str) -> Any:
    """What the scripts of the page get."""
    return json.loads(Elements(text).scripts[0])


def sections(text: str) -> list[str]:
    found = [each.get("id") for each in Elements(text).attributes("section")]
    return [str(name) for name in found]


def test_the_policy_names_the_scripts_of_the_page_and_forbids_all_else() -> None:
    elements = Elements(page())
    [policy] = [meta for meta in elements.attributes("meta") if "http-equiv" in meta]
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy["content"]).split(";"))
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in elements.scripts[1:]]
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["script-src"] == " ".join(f"'sha256-{each}'" for each in hashes)
    assert len(hashes) == 4  # plotly, and three of ours


def test_nothing_in_the_page_refers_to_another_place() -> None:
    for tag, attributes in Elements(page()).found:
        for name in ("src", "href", "action", "data", "srcset"):
            assert str(attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


def test_names_are_escaped_also_in_the_data_of_figures() -> None:
    runs, history = frames([EVIL], [EVIL, "b", "c"], machine=EVIL)
    text = report.page(failing(runs, EVIL), history, {EVIL: {EVIL: [EVIL]}}, reference=EVIL)
    assert EVIL not in text
    assert len(Elements(text).scripts) == 5
    assert data(text)["cases"] == [{"problem": EVIL, "size": "(2, 3)", "suite": EVIL}]


def test_numbers_that_are_not_finite_become_gaps() -> None:
    runs, history = frames(["smd1"])
    late = history.with_columns(
        violation=pl.when(pl.col("generation") < 4).then(1.0).otherwise("violation")
    )
    early = late.filter(pl.col("number") > 0)  # two of three runs have nothing to show at first
    text = report.page(runs, pl.concat([early, history.filter(pl.col("number") == 0)]), {})
    medians = [band["y"][1] for band in data(text)["charts"]["convergence"]["0"]["bands"]]
    assert any(y and y[0] is None and y[-1] is not None for y in medians)


def test_the_same_runs_make_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        report.write_page(tmp_path / name, *frames(), settings={"results": {"forms": {"x": "y"}}})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_failed_runs_are_counted_and_told() -> None:
    runs, history = frames()
    text = report.page(failing(runs, "ValueError: no such thing"), history, {})
    assert "1 failed." in text and "ValueError: no such thing" in text
    assert "failures" in sections(text)
    assert "none failed." in page() and "failures" not in sections(page())


PART = {"methods": ["a", "b"], "problems": ["smd1"], "sizes": [[2, 3], [10, 10]], "runs": 21}
KEPT = {"experiments": [{**PART, "budgets": [0, 500], "target": True}], "anew_since": None}
KEPT |= {"forms": {"a/plain": "a: cooperation=False"}, "max_time": 60.0}


def test_settings_and_what_the_runs_say_of_themselves_are_told() -> None:
    text = page(settings={"results/one": KEPT})
    section = text.split('id="settings"')[1]
    assert [section.count(tag) for tag in ("<table", "<h3>", "<tbody><tr>")] == [1, 1, 1]
    assert section.count("<button") == 6
    line = re.sub(r"<[^>]*>", "|", section.split("<tbody>")[1].split("</tbody>")[0])
    assert [cell for cell in line.split("|") if cell.strip()] == [
        *("a, b", "smd1", "(2, 3), (10, 10)", "21", "none, 500", "yes")
    ]
    for words in ("a/plaina:cooperation=False", "longesttimeofarun60.0s", "machineamachine"):
        assert words in told(text)
    assert "anew" not in told(text)


def test_folders_do_not_take_the_place_of_facts_or_of_each_other() -> None:
    names = ("kernel", "a/results", "b/results", "machine")
    text = page(settings={name: {"forms": {"of": name}} for name in names})
    assert re.findall("<h3>(.*?)</h3>", text) == list(names)
    for fact in ("kernelnumpy", "machineamachine", *(f"of{name}" for name in names)):
        assert fact in told(text)


def test_settings_that_somebody_has_edited_are_shown_as_they_are() -> None:
    odd: report.Settings = {"a": {"experiments": "all"}, "b": {"experiments": [1, {"x": [{}]}]}}
    odd = {**odd, "c": {"experiments": [{"budgets": {"y": 1}}], "more": [[1], {"z": 2}]}, "d": {}}
    for words in ("aexperimentsall", "x", "max_evals", "z2"):
        assert words in told(page(settings=odd))


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    with pytest.raises(IsADirectoryError):
        report.write_page(tmp_path / "report", *frames(["smd1"]), settings={})
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_figures_to_be_doubted_have_a_sign_that_says_why() -> None:
    runs, history = frames(["smd1"], violation=1.0)
    text = report.page(runs, history, {})
    assert '<b title="at least half of the runs gave no good answer">!</b>' in text
    assert "gave no good answer" not in page()


def test_charts_without_numbers_are_left_out_and_the_settings_say_why() -> None:
    runs, history = frames()
    text = report.page(runs.with_columns(time=float("nan")), history.clear(), {})
    charts = {"ecdf", "convergence", "allocation", "runtime"}
    assert not charts & {*sections(text), *data(text)["charts"]}
    assert {"verdict", "accuracy", "total", "ranks", "critical-difference"} <= {*sections(text)}
    assert "Norunhasatime" in told(text) and "hasahistorywithafeasiblepair" in told(text)
    links = [str(each["href"])[1:] for each in Elements(text).attributes("a")]
    assert set(links) == {"main", *sections(text)}


def test_ranks_need_three_methods_and_the_settings_say_so() -> None:
    text = report.page(*frames(methods=METHODS[:2]), {})
    assert "critical-difference" not in data(text)["charts"]
    assert "Ranksneed3methodsormore,not2." in told(text)


def test_an_ablation_is_shown_only_if_a_method_has_forms() -> None:
    without, of_forms = ["drc-cma-es", "bl-cma-es"], ["drc-cma-es", "drc-cma-es/plain"]
    assert "ablation" not in sections(report.page(*frames(methods=without), {}))
    assert "ablation" in sections(report.page(*frames(methods=of_forms), {}))


def test_the_verdict_and_a_chart_come_before_all_tables() -> None:
    order = sections(page())
    assert order[:3] == ["verdict", "ecdf", "best"]
    runs, history = frames()
    assert sections(report.page(runs, history.clear(), {}))[1] == "critical-difference"


def test_the_runs_are_in_the_page_as_csv_that_can_be_imported(tmp_path: Path) -> None:
    names = ["=1+1", '+a"b,c', "plain"]
    runs, history = frames(names, names)
    held = data(report.page(failing(runs, "=x\ny"), history, {}))
    lines = [line for _, _, line in held["runs"]["rows"]]
    assert all(line.startswith(("'=1+1,", "\"'+a", "plain,")) for line in lines)
    assert "max_evals" in held["runs"]["header"] and "budget" not in held["runs"]["header"]
    path = tmp_path / "runs.csv"
    path.write_bytes("".join([held["runs"]["header"], *lines]).encode())
    again = import_csv(path)
    same = ["problem", "method", "number", "nfev_lower", "verified", "status"]
    assert again.select(same).equals(failing(runs, "=x\ny").select(same))
    for text in held["tables"].values():
        for cells in csv.reader(text.splitlines()):
            assert not any(cell.startswith(("=1", "+a")) for cell in cells)
    cases = [held["cases"][case]["problem"] for case, _, _ in held["runs"]["rows"]]
    methods = [held["methods"][method]["name"] for _, method, _ in held["runs"]["rows"]]
    assert (cases, methods) == (again["problem"].to_list(), again["method"].to_list())


def test_every_table_is_in_the_page_as_csv() -> None:
    text = page()
    held = data(text)["tables"]
    assert set(held) == set(sections(text)) & {*tables.TABLES}
    assert held["accuracy"].startswith("problem,indicator,drc-cma-es,")


def test_every_indicator_is_explained_where_it_stands() -> None:
    text = page("smd1", "goldmining")
    for section in text.split("<section ")[1:]:
        used = set(re.findall(r"<td class=\"text[^>]*>([A-Z]\w*_\w+|FEs|verified)</td>", section))
        assert used <= set(re.findall("<dt>(.*?)</dt>", section)) & set(TERMS), section[:60]
    known = {"Acc_u", "Acc_l", "verified", "FEs_u", "FEs_l", "A12", "rank", "solved", "times"}
    assert known <= set(re.findall("<dt>(.*?)</dt>", text))


def test_limits_are_called_max_evals_also_where_settings_have_their_old_name() -> None:
    runs, history = frames(["smd1"], budget=500)
    text = report.page(runs, history, {"results": KEPT})
    shown = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    assert "budget" not in shown.lower()
    assert "All runs had max_evals = 500: evaluations are not compared." in shown


def test_rows_that_only_count_others_stand_apart() -> None:
    nan = float("nan")
    rows: list[list[Cell | str]] = [["smd1", Cell(2.0)], ["smd2", Cell(nan)]]
    counts: list[Cell | str] = ["+/-/=", Cell(nan, text="1/0/0")]
    shown = shown_table(Table("a", "A", ["problem", "m"], [*rows, counts], closing=1), {})
    assert [row.cells[0].shown for row in shown.body] == ["smd1", "smd2"]
    assert [row.cells[0].shown for row in shown.foot] == ["+/-/="]
    assert shown.body[0].about == {"problem": "smd1"}


def test_columns_and_rows_know_their_methods() -> None:
    labels = {"a": "a", "a: b": "ab", "c (like d)": "c"}
    heads = ["method", "a", "a: b", "a: cost", "a: b: cost", "c (like d)", "else"]
    row: list[Cell | str] = ["c (like d)", *(Cell(1.0) for _ in heads[1:])]
    shown = shown_table(Table("a", "A", heads, [row]), labels)
    assert [column.method for column in shown.columns] == [None, "a", "ab", "a", "ab", "c", None]
    assert [cell.method for cell in shown.body[0].cells] == [None, "a", "ab", "a", "ab", "c", None]
    assert shown.body[0].about == {"method": "c"}


@pytest.mark.parametrize(("value", "key"), [(0.5, "0.5"), (float("inf"), "Infinity"), (7, "7.0")])
def test_cells_sort_by_their_values(value: float, key: str) -> None:
    [[[cell], _]] = shown_table(Table("a", "A", ["m"], [[Cell(value)]]), {}).body
    assert cell.value == key


def test_no_runs_make_no_report() -> None:
    runs, history = frames()
    with pytest.raises(ValueError, match="a report needs runs"):
        report.page(runs.clear(), history.clear(), {})


@pytest.mark.parametrize("library", ["plotly", "jinja2"])
def test_a_missing_library_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError, match=rf"^reports need {library}: pip install 'bilevo\[report]"
    ):
        page()
