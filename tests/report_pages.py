"""Reports for tests in a browser, and what is done to them there."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from browsing import Page
from made_up import METHODS, PROBLEMS, frames

SCRIPT = "<script>alert(1)</script>"
IMAGE = "</script><img src=x onerror=alert(1)>"
LINK = '<a href="http://a.b">x</a>'
ESCAPED = "&lt;b&gt;bold&lt;/b&gt;"  # shown as it is, not as <b>bold</b>
HOSTILE = {SCRIPT, IMAGE, LINK, ESCAPED}
PART = {"methods": list(METHODS), "problems": list(PROBLEMS), "sizes": [[2, 3]], "runs": 4}
SETTINGS = {"experiments": [{**PART, "max_evals": [0], "target": True}], "forms": {}}


def sized_frames() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs on smd1 and smd2 in two sizes, on smd9, which has constraints, and on tp1."""
    small = frames(["smd1", "smd2", "smd9", "tp1"], runs=4)
    large = [
        one.with_columns(m=pl.lit(10, pl.Int64), n=pl.lit(10, pl.Int64))
        for one in frames(["smd1", "smd2"])
    ]
    runs, history = (pl.concat(pair) for pair in zip(small, large, strict=True))
    shift = pl.col("problem").replace_strict({"smd1": 1, "smd2": 4, "smd9": 2, "tp1": 3})
    lower = (pl.col("nfev_lower") * shift).cast(pl.Int64)
    errors = np.random.default_rng(3).uniform(1e-5, 1e-2, runs.height)  # so that ranks differ
    runs = runs.with_columns(nfev_lower=lower, Acc_u=pl.Series(errors))
    return runs, history.with_columns(nfev_lower=lower)


def choose(page: Page, kind: str, *values: str) -> None:
    """Leave only these values of a filter checked, by clicks."""
    picker = page.one(f"[data-picker={kind}]")
    picker.find_element("css selector", "summary").click()
    for box in picker.find_elements("css selector", f"input[name={kind}]"):
        if box.is_selected() != (box.get_attribute("value") in values):
            box.click()
    picker.find_element("css selector", "summary").click()


def shown_rows(page: Page, table: str) -> list[str]:
    return page.texts(f"#{table} tbody tr:not([hidden]) > :first-child")


def traces(page: Page, chart: str) -> dict[str, Any]:
    """The lines of a chart that a legend names, by these names."""
    code = "return document.querySelector(`[data-chart='${arguments[0]}']`).data"
    return {one["name"]: one for one in page.js(code, chart) if one.get("showlegend") is not False}


def colours(page: Page, scheme: str) -> list[str]:
    """Return the colours of the page, its text, the text of a figure and what is behind it.

    What the reader chose before is forgotten.
    """
    page.js("localStorage.clear(); delete document.documentElement.dataset.theme")
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    found = page.js(
        "const style = (s) => getComputedStyle(document.querySelector(s));"
        "return [style('body').backgroundColor, style('body').color,"
        " style('#ecdf .xtick text').fill, style('#ecdf .main-svg').backgroundColor]"
    )
    return list(found)
