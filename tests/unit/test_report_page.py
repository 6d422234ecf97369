"""The HTML of a report, without a browser; tests/browser opens it in one."""

from __future__ import annotations

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

from bilevo.lab.analysis.table_parts import Cell, Table
from bilevo.lab.show import interactive, report

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


def views(text: str) -> Any:
    return json.loads(Elements(text).scripts[0])


def test_the_policy_names_the_two_scripts_and_forbids_all_else() -> None:
    elements = Elements(page())
    [policy] = [meta for meta in elements.attributes("meta") if "http-equiv" in meta]
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy["content"]).split(";"))
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in elements.scripts[1:]]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == " ".join(f"'sha256-{each}'" for each in hashes)
    assert len(hashes) == 2


def test_nothing_in_the_page_refers_to_another_place() -> None:
    for tag, attributes in Elements(page()).found:
        for name in ("src", "href", "action", "data", "srcset"):
            assert str(attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


def test_names_are_escaped_also_in_the_data_of_figures() -> None:
    runs, history = frames([EVIL], [EVIL, "b", "c"], machine=EVIL)
    text = report.page(failing(runs, EVIL), history, {EVIL: {EVIL: [EVIL]}}, reference=EVIL)
    assert EVIL not in text
    assert len(Elements(text).scripts) == 3
    assert views(text)["convergence"][0]["label"] == f"{EVIL} (2, 3)"


def test_what_plotly_would_read_as_html_is_shown_as_it_is() -> None:
    assert interactive.literal("<b>a</b> &lt;") == "&lt;b&gt;a&lt;/b&gt; &amp;lt;"


def test_numbers_that_are_not_finite_become_gaps() -> None:
    runs, history = frames(["smd1"])
    late = history.with_columns(
        violation=pl.when(pl.col("generation") < 4).then(1.0).otherwise("violation")
    )
    early = late.filter(pl.col("number") > 0)  # two of three runs have nothing to show at first
    text = report.page(runs, pl.concat([early, history.filter(pl.col("number") == 0)]), {})
    medians = [trace["y"] for trace in views(text)["convergence"][0]["data"] if "fill" not in trace]
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
    assert "none failed." in page() and "No run failed." in page()


PART = {"methods": ["a", "b"], "problems": ["smd1"], "sizes": [[2, 3], [10, 10]], "runs": 21}
KEPT = {"experiments": [{**PART, "budgets": [0, 500], "target": True}], "anew_since": None}
KEPT |= {"forms": {"a/plain": "a: cooperation=False"}, "max_time": 60.0}


def test_settings_and_what_the_runs_say_of_themselves_are_told() -> None:
    text = page(settings={"results/one": KEPT})
    section = text.split('id="settings"')[1]
    assert [section.count(tag) for tag in ("<table", "<h3>", "<tbody>\n<tr>")] == [1, 1, 1]
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
    for words in ("aexperimentsall", "x", "budgets", "z2"):
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


def test_tasks_have_whole_ticks_and_methods_scales_of_their_own() -> None:
    runs, history = frames(["smd1"])
    many = pl.when(pl.col("method") == METHODS[1]).then(pl.lit([350] * 50)).otherwise("executions")
    text = report.page(runs, history.with_columns(executions=many), {})
    [view] = views(text)["allocation"]
    axes = [view["layout"][name] for name in ("yaxis", "yaxis3", "yaxis4", "yaxis6")]
    assert [axis.get("matches") for axis in axes] == [None, "y", None, "y4"]
    assert [axis["dtick"] for axis in axes] == [2, 2, 100, 100]
    assert view["layout"]["xaxis"]["tickvals"] == [1, 2, 3, 4]
    assert view["layout"]["xaxis4"]["tickvals"] == [1, 8, 15, 22, 29, 36, 43, 50]


def test_runs_without_history_have_their_tables_and_a_word_on_figures() -> None:
    runs, history = frames()
    text = report.page(runs.with_columns(time=float("nan")), history.clear(), {})
    assert all(name in text for name in ('id="accuracy"', 'id="total"', 'id="ranks"'))
    assert "No run has a time" in text and "has a history with a feasible pair" in text
    assert set(views(text)) == {
        "convergence",
        "ecdf",
        "critical-difference",
        "allocation",
        "runtime",
    }
    assert not views(text)["convergence"] and views(text)["critical-difference"]


def test_ranks_need_three_methods_and_say_so() -> None:
    text = report.page(*frames(methods=METHODS[:2]), {})
    assert not views(text)["critical-difference"]
    assert "A Friedman test needs 3 methods or more, not 2." in text


def test_rows_that_only_count_others_stand_apart() -> None:
    nan = float("nan")
    rows: list[list[Cell | str]] = [["smd1", Cell(2.0)], ["smd2", Cell(nan)]]
    counts: list[Cell | str] = ["+/-/=", Cell(nan, text="1/0/0")]
    shown = report.shown_table(Table("a", "A", ["problem", "m"], [*rows, counts], closing=1))
    assert [row[0].shown for row in shown["body"]] == ["smd1", "smd2"]
    assert [row[0].shown for row in shown["foot"]] == ["+/-/="]


@pytest.mark.parametrize(("value", "key"), [(0.5, "0.5"), (float("inf"), "Infinity"), (7, "7.0")])
def test_cells_sort_by_their_values(value: float, key: str) -> None:
    [[cell]] = report.shown_table(Table("a", "A", ["m"], [[Cell(value)]]))["body"]
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
