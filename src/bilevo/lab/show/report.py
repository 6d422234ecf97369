"""The report of a campaign as one self-contained HTML file: `bilevo report`.

It begins with a verdict and one chart; tables and other charts follow. `page.assemble` says why the
file needs no network and is safe to open, whatever names the results have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bilevo.lab.analysis import curves, tables
from bilevo.lab.analysis.samples import FLOOR, Case
from bilevo.lab.analysis.statistics import ALPHA
from bilevo.lab.analysis.table_parts import Table, method_labels, span, study_of
from bilevo.lab.analysis.verdict import enumerated, make_verdict
from bilevo.lab.exchange import csv_lines
from bilevo.lab.frames import pl
from bilevo.lab.show import formats, interactive
from bilevo.lab.show.interactive import Chart
from bilevo.lab.show.page.assemble import Contents, Link, assemble
from bilevo.lab.show.page.cells import PageTable, shown_table, text_table
from bilevo.lab.show.page.terms import terms_of
from bilevo.lab.store import FAILED
from bilevo.safe_files import replacing

MAX_NAMED = 3  # The most methods that a headline names.
LISTS = ("methods", "problems")  # The settings of an experiment that are long.
FIRST_TABLES = ("best", "groups")  # The tables that belong to the verdict.
MAX_POINTS = 8  # The sentences of a verdict that are shown at first.
LIMITS = "max_evals"
OLD_LIMITS = "budgets"  # The name of LIMITS in settings until 0.1.0.

Settings = Mapping[str, Mapping[str, Any]]  # The settings of campaigns, by directory.


class Section(NamedTuple):
    """A table of the report, and what its words mean."""

    table: PageTable
    terms: dict[str, str]
    sums_up: bool  # whether its rows are about all problems


def write_page(
    path: str | Path,
    runs: pl.DataFrame,
    history: pl.DataFrame,
    *,
    settings: Settings,
    **options: Any,
) -> None:
    """Write the report of some runs; after a crash the old file is still there.

    `settings` are the settings of the runs' directories (`campaign.read_settings`), by path.
    `options` are the options of `tables.make_table`.
    """
    text = page(runs, history, settings, **options)
    with replacing(Path(path)) as file:
        file.write(text.encode())


def page(runs: pl.DataFrame, history: pl.DataFrame, settings: Settings, **options: Any) -> str:
    """Return the HTML of a report."""
    if runs.is_empty():
        raise ValueError("a report needs runs: there are none")
    level = {"floor": FLOOR, "alpha": ALPHA} | options
    charts, reasons = interactive.make_charts(runs, history, level["floor"], level["alpha"])
    made = _tables(runs, options)
    labels = {label: method for method, label in method_labels(runs).items()}
    sections = [_section(table, labels) for table in made]
    failed = runs.filter(pl.col("status") == FAILED)
    failures = _failures(failed) if failed.height else None
    names = interactive.page_names(runs)
    return assemble(
        "report.html.jinja",
        data={
            **names,
            "charts": {chart.name: chart.numbers for chart in charts},
            "views": {chart.name: [key for key, _ in chart.views] for chart in charts},
            "runs": _run_lines(runs, names),
            "tables": {table.name: formats.csv_text(table) for table in made},
        },
        scripts=("charts.js", "report.js"),
        styles=("report.css",),
        **_summary(runs, failed.height),
        verdict=make_verdict(study_of(runs, **options)),
        contents=_contents(charts, sections, failures),
        pickers=_pickers(names),
        charts=charts,
        first_tables=[one for one in sections if one.table.name in FIRST_TABLES],
        tables=[one for one in sections if one.table.name not in FIRST_TABLES],
        max_points=MAX_POINTS,
        failures=failures,
        facts=_facts(runs, options) | ({"not shown": reasons} if reasons else {}),
        folders=[_folder(name, kept) for name, kept in settings.items()],
    )


def _summary(runs: pl.DataFrame, failed: int) -> dict[str, Any]:
    """Return the title, and words that say what was compared, how often, and what failed."""
    names, cases = method_labels(runs), curves.cases(runs)
    methods = [names[method] for method in curves.methods(runs)]
    each = span(runs.group_by("problem", "m", "n", "method").len()["len"])
    few = len(methods) <= MAX_NAMED
    where = str(cases[0]) if len(cases) == 1 else f"{len(cases)} problems"
    title = f"{enumerated(methods) if few else f'{len(methods)} methods'} on {where}"
    told = f"{title}: {runs.height:,} runs, {each} of each method on each problem; "
    return {"title": title, "lead": f"{told}{failed or 'none'} failed."}


def _tables(runs: pl.DataFrame, options: Mapping[str, Any]) -> list[Table]:
    """Make the tables that have content; an ablation needs a form of a method, such as "x/y"."""
    has_forms = any("/" in name for name in curves.methods(runs))
    kinds = [kind for kind in tables.TABLES if kind != "ablation" or has_forms]
    every = (tables.make_table(runs, kind, **options) for kind in kinds)
    return [table for table in every if table.rows]


def _section(table: Table, labels: Mapping[str, str]) -> Section:
    shown = shown_table(table, labels)
    if table.name == FIRST_TABLES[0]:
        shown = shown._replace(notes=[])  # the verdict has them
    return Section(shown, terms_of(table), "problem" not in table.header)


def _contents(
    charts: Sequence[Chart], sections: Sequence[Section], failures: PageTable | None
) -> Contents:
    """Return the contents in the order of the page: a chart and a table are in the overview."""
    of_charts = [Link(chart.name, chart.title) for chart in charts]
    of_tables = [Link(one.table.name, one.table.name.capitalize()) for one in sections]
    first = sum(one.table.name in FIRST_TABLES for one in sections)
    last = [Link("failures", "Failures")] if failures else []
    return {
        "Overview": [Link("verdict", "Verdict"), *of_charts[:1], *of_tables[:first]],
        "Charts": of_charts[1:],
        "Tables": of_tables[first:],
        "Runs": [*last, Link("settings", "Settings")],
    }


def _pickers(names: Mapping[str, Any]) -> list[tuple[str, str, dict[str, list[tuple[str, str]]]]]:
    """Return the filters: what they choose, their titles, and options by group.

    There is no filter with a single option.
    """
    problems: dict[str, dict[str, str]] = {}
    for case in names["cases"]:
        problems.setdefault(case["suite"], {})[case["problem"]] = case["problem"]
    sizes = dict.fromkeys(case["size"] for case in names["cases"])
    found = [
        ("problem", "Problems", {suite: list(of.items()) for suite, of in problems.items()}),
        ("size", "Sizes", {"": [(size, size) for size in sizes]}),
        ("method", "Methods", {"": [(one["name"], one["label"]) for one in names["methods"]]}),
    ]
    return [one for one in found if sum(map(len, one[2].values())) > 1]


def _run_lines(runs: pl.DataFrame, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the runs as lines of CSV, each with the places of its case and of its method."""
    header, *lines = csv_lines(runs)
    cases = {case: place for place, case in enumerate(curves.cases(runs))}
    methods = {one["name"]: place for place, one in enumerate(names["methods"])}
    keys = runs.select("problem", "m", "n", "method").rows()
    rows = [
        [cases[Case(*case)], methods[method], line]
        for (*case, method), line in zip(keys, lines, strict=True)
    ]
    return {"header": header, "rows": rows}


def _failures(failed: pl.DataFrame) -> PageTable:
    """Return a table of the runs that failed, and why they failed."""
    kinds = {"problem": "text", "(m, n)": "text", "method": "text", "run": "number"}
    kinds |= {"seed": "number", "error": "prose"}
    size = pl.format("({}, {})", "m", "n")
    lines = failed.select("problem", size, "method", "number", "seed", "error").rows()
    return text_table("What failed", kinds, lines)


def _facts(runs: pl.DataFrame, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions and machines that the runs recorded, and the options of comparison."""
    facts: dict[str, Any] = {}
    for column, name in {"version": "bilevo", "kernel": "kernel", "machine": "machine"}.items():
        values = runs[column].drop_nulls().unique().sort()
        facts[name] = enumerated([value for value in values if value] or ["not recorded"])
    given = {name: value for name, value in options.items() if value is not None}
    return {**facts, **({"comparison": _as_text(given)} if given else {})}


def _folder(name: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a directory: a table of its experiments, and the rest as text.

    Anybody can edit the file, so experiments that do not have their usual form become text.
    """
    rest = {key: value for key, value in kept.items() if value not in (None, {}, [])}
    parts, table = rest.get("experiments"), None
    if isinstance(parts, list) and all(isinstance(part, Mapping) for part in parts):
        named = [{_setting_name(key): value for key, value in part.items()} for part in parts]
        kinds = {key: "prose" if key in LISTS else "text" for part in named for key in part}
        lines = [[_setting(key, part.get(key)) for key in kinds] for part in named]
        table = text_table("Experiments", kinds, lines)
        del rest["experiments"]
    if seconds := rest.pop("max_time", None):
        rest["longest time of a run"] = f"{seconds} s"
    facts = {key: _as_text(value) for key, value in rest.items()}
    return {"name": name, "experiments": table, "facts": facts}


def _setting_name(key: str) -> str:
    return LIMITS if key == OLD_LIMITS else key


def _setting(key: str, value: Any) -> str:
    """Return a setting of an experiment as text; a limit of 0 is written as none."""
    if key == LIMITS and isinstance(value, list):
        value = ["none" if limit == 0 else limit for limit in value]
    text = _as_text(value)
    return text if isinstance(text, str) else str(value)


def _as_text(value: Any) -> Any:
    """Return a setting as text, or as mappings and lists of mappings whose values are texts."""
    if value is None or value in ({}, [], ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return {name: _as_text(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_as_text(item) for item in value]
        if any(isinstance(item, dict) for item in items):
            return items
        nested = any(isinstance(item, list | tuple) for item in value)
        return ", ".join(f"({item})" for item in items) if nested else ", ".join(items)
    return str(value)
