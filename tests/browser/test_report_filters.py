"""The report in a browser: what filters do to its charts and tables, and files that it saves."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from browsing import Page, needs_browser
from made_up import frames
from report_pages import HOSTILE, SCRIPT, choose, shown_rows, traces

from bilevo.lab.analysis import curves
from bilevo.lab.exchange import csv_lines
from bilevo.lab.show import report

pytestmark = [pytest.mark.browser, needs_browser]


def test_filters_hold_for_tables_and_charts(browser: Page, sized: Path) -> None:
    browser.open(sized)
    every = shown_rows(browser, "total")
    assert browser.texts("#count") == ["all 66 runs"]
    choose(browser, "problem", "smd1", "tp1")
    assert set(shown_rows(browser, "total")) == {"smd1", "tp1"} < set(every)
    assert not browser.one("#total tfoot").is_displayed()
    options = browser.all("#menu-convergence option")
    open_ = [each.text for each in options if each.is_enabled()]
    assert open_ == ["smd1 (2, 3)", "smd1 (10, 10)", "tp1 (2, 3)"]
    choose(browser, "size", "(10, 10)")
    assert shown_rows(browser, "total") == ["smd1"]
    assert browser.texts("#runtime .xtick text") == ["smd1 (10, 10)"]
    choose(browser, "method", "drc-cma-es", "tlea-cma-es")
    heads = [each.text for each in browser.all("#total thead th") if each.is_displayed()]
    assert [head.split()[0] for head in heads] == ["problem", "(m,", "drc-cma-es", "tlea-cma-es"]
    assert shown_rows(browser, "ranks") == ["drc-cma-es", "tlea-cma-es"]
    for chart in ("ecdf", "convergence", "runtime"):
        assert set(traces(browser, chart)) == {"drc-cma-es", "tlea-cma-es"}
    assert browser.texts("#count") == ["6 of 66 runs"]
    assert browser.one("#verdict [data-when=filtered]").is_displayed()
    browser.one("#reset").click()
    assert shown_rows(browser, "total") == every
    assert browser.one("#total tfoot").is_displayed()
    assert browser.texts("#count") == ["all 66 runs"]


def test_with_nothing_chosen_charts_say_so(browser: Page, sized: Path) -> None:
    browser.open(sized)
    choose(browser, "method")
    for chart in ("ecdf", "convergence", "runtime", "allocation"):
        assert not browser.one(f"#{chart} .plot").is_displayed()
        assert browser.texts(f"#{chart} .missing.now") == [
            "Nothing to show for the chosen methods and problems."
        ]
    assert browser.complaints() == []


GROUPS = {
    "all problems": pl.lit(True),
    "size (10, 10)": pl.col("m") == 10,
    "suite smd": pl.col("problem") != "tp1",
    "with constraints": pl.col("problem").is_in(["smd9", "tp1"]),
}


def test_targets_are_those_of_the_group_of_problems(
    browser: Page, sized: Path, sized_runs: tuple[pl.DataFrame, pl.DataFrame]
) -> None:
    from selenium.webdriver.support.ui import Select

    browser.open(sized)
    for group, wanted in GROUPS.items():
        Select(browser.one("#menu-ecdf")).select_by_visible_text(group)
        runs, history = (one.filter(wanted) for one in sized_runs)
        found = curves.ecdf(history, runs)
        drawn = traces(browser, "ecdf")
        assert f"{len(found.cases)} problems" in browser.texts("#ecdf .ytitle")[0]
        for line in found.reached:
            trace = drawn[line.method]
            assert trace["y"][-1] == pytest.approx(line.share[-1])
            exact = [line.share[line.evaluations <= x][-1:].sum() for x in trace["x"]]
            assert trace["y"] == pytest.approx(exact)


@pytest.mark.parametrize("problems", [None, ("smd1", "smd9", "tp1"), ("smd2",)])
def test_ranks_are_those_of_the_chosen_problems(
    browser: Page,
    sized: Path,
    sized_runs: tuple[pl.DataFrame, pl.DataFrame],
    problems: tuple[str, ...] | None,
) -> None:
    """The page computes them itself, and scipy is the judge."""
    browser.open(sized)
    runs = sized_runs[0]
    if problems:
        choose(browser, "problem", *problems)
        runs = runs.filter(pl.col("problem").is_in(problems))
    found = curves.ranks(runs, "verified", 1e-6)
    names = browser.texts("#critical-difference .ytick text")
    points = [text.strip() for text in browser.texts("#critical-difference .textpoint text")]
    assert dict(zip(names, points, strict=True)) == {
        name: f"{rank:.2f}" for name, rank in found.average.items()
    }
    said = browser.texts("#critical-difference .xtitle")[0]
    assert f"Friedman p = {found.p:#.2g}" in said
    assert f"critical difference {found.difference:.2f}" in said
    bars = "return document.querySelector('[data-chart=critical-difference]').data"
    wide = [one["y"] for one in browser.js(bars) if one.get("line", {}).get("width") == 7]
    order = list(found.average)
    assert [(round(y[0] + 0.28), round(y[1] - 0.28)) for y in wide] == [
        (order.index(clique[0]), order.index(clique[-1])) for clique in found.cliques
    ]


def test_the_friedman_test_of_the_page_is_that_of_scipy(page: Page) -> None:
    from bilevo.lab.analysis.statistics import critical_difference, friedman

    for blocks, methods in product((1, 3, 12), (3, 4, 7, 8)):
        medians = np.random.default_rng(blocks * methods).integers(0, 9, (blocks, methods))
        expected = friedman(medians.astype(float))
        units = {str(methods): critical_difference(methods, 1)}
        code = "return bilevo.charts.friedman(arguments[0], arguments[1])"
        found = page.js(code, medians.tolist(), units)
        assert found["p"] == pytest.approx(expected.p, rel=1e-8)
        assert found["average"] == pytest.approx(expected.average)
        assert found["difference"] == pytest.approx(expected.critical_difference)


def saved(page: Page, folder: Path, button: str) -> str:
    """Click a button, and return the file that the browser then saves."""
    behaviour = {"behavior": "allow", "downloadPath": str(folder)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    page.one(button).click()
    deadline = time.monotonic() + 20
    while not (files := [path for path in folder.iterdir() if path.suffix == ".csv"]):
        assert time.monotonic() < deadline, "nothing was saved"
        time.sleep(0.05)
    with files[0].open(newline="", encoding="utf-8") as file:
        return file.read()


def test_runs_are_saved_as_they_are_chosen(
    browser: Page, sized: Path, sized_runs: tuple[pl.DataFrame, pl.DataFrame], tmp_path: Path
) -> None:
    browser.open(sized)
    header, *lines = csv_lines(sized_runs[0])
    (tmp_path / "all").mkdir()
    assert saved(browser, tmp_path / "all", "#save-runs") == "".join([header, *lines])
    choose(browser, "problem", "smd9")
    choose(browser, "method", "bl-cma-es")
    (tmp_path / "some").mkdir()
    chosen = [line for line in lines if line.startswith("smd9,2,3,bl-cma-es,")]
    assert saved(browser, tmp_path / "some", "#save-runs") == "".join([header, *chosen])
    assert len(chosen) == 4


def test_names_that_objects_of_javascript_have_are_only_names(
    browser: Page, tmp_path: Path
) -> None:
    names = ["__proto__", "constructor", "2"]
    report.write_page(tmp_path / "report.html", *frames(names, names), settings={})
    browser.open(tmp_path / "report.html")
    for chart in ("ecdf", "convergence", "runtime"):
        assert set(traces(browser, chart)) == set(names)
    choose(browser, "method", "constructor", "2")
    assert set(traces(browser, "ecdf")) == {"constructor", "2"}
    choose(browser, "problem", "__proto__")
    assert set(shown_rows(browser, "total")) == {"__proto__"}
    assert browser.complaints() == []


def test_a_table_is_saved_with_its_name(page: Page, tmp_path: Path) -> None:
    text = saved(page, tmp_path, "[data-csv=accuracy]")
    assert text.startswith("problem,indicator,drc-cma-es,")
    assert [path.name for path in tmp_path.iterdir()] == ["accuracy.csv"]


def test_hostile_names_are_harmless_in_files(browser: Page, hostile: Path, tmp_path: Path) -> None:
    browser.open(hostile)
    choose(browser, "method", SCRIPT)
    text = saved(browser, tmp_path, "#save-runs")
    rows = len(HOSTILE) * 3  # three runs of the chosen method on each problem
    assert text.count("\n") == 1 + rows and SCRIPT in text
