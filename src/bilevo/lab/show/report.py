"""The report of a campaign as one self-contained HTML file: `bilevo report`.

The file holds everything, plotly included, and needs no network. Its Content-Security-Policy
forbids all requests, and all scripts but its own two, which it names by their hashes. Names of
problems and methods and messages of errors may come from anybody. They are escaped by the template
(jinja2), in the data of figures (JSON, where < and > are written as numbers) and for plotly
(`interactive.literal`). If that fails, the policy still protects the reader.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from bilevo.core.extras import need
from bilevo.lab.analysis import curves, tables
from bilevo.lab.analysis.samples import FLOOR
from bilevo.lab.analysis.statistics import ALPHA
from bilevo.lab.analysis.table_parts import Cell, Table, method_labels, span
from bilevo.lab.frames import pl
from bilevo.lab.show import formats, interactive
from bilevo.lab.store import FAILED
from bilevo.safe_files import replacing

POLICY = "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:"
POLICY += "; base-uri 'none'; form-action 'none'"
MEANINGS = {
    "+": "the reference is significantly better",
    "-": "the reference is significantly worse",
    "=": "no significant difference to the reference",
}
DOUBTFUL = "at least half of the runs gave no good answer"
MAX_NAMED = 3  # The most methods that a headline names.
LISTS = ("methods", "problems")  # The settings of an experiment that are long.

Settings = Mapping[str, Mapping[str, Any]]  # The settings of campaigns, by directory.


class PageCell(NamedTuple):
    """A cell of a table, as the page shows it."""

    shown: str
    kind: str = "text"
    value: str | None = None  # the sort key: None for its text, empty for no value
    mark: str = ""
    meaning: str = ""
    beside: tuple[str, ...] = ()
    best: bool = False
    doubt: str = ""


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
    jinja = need("reports", "jinja2", "report")
    scripts = [need("reports", "plotly.offline", "report").get_plotlyjs(), _file("report.js")]
    level = {"floor": FLOOR, "alpha": ALPHA} | options
    figures = interactive.make_figures(runs, history, level["floor"], level["alpha"])
    made = (tables.make_table(runs, kind, **options) for kind in tables.TABLES)
    failed = runs.filter(pl.col("status") == FAILED)
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    template = environment.from_string(_file("report.html.jinja"))
    text = template.render(
        **_summary(runs, failed.height),
        tables=[shown_table(table) for table in made if table.rows],
        figures=figures,
        views={one.name: [view._asdict() for view in one.views] for one in figures},
        failures=_failures(failed),
        facts=_facts(runs, options),
        folders=[_folder(name, kept) for name, kept in settings.items()],
        doubtful=DOUBTFUL,
        policy=POLICY.format(scripts=" ".join(map(_hash, scripts))),
        style=_file("report.css"),
        scripts=scripts,
    )
    return str(text)


def _file(name: str) -> str:
    return (files("bilevo.lab.show") / "templates" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return the hash by which a policy allows a script."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _summary(runs: pl.DataFrame, failed: int) -> dict[str, Any]:
    """Return texts that say what was compared, how often, and how many runs failed."""
    names, cases = method_labels(runs), curves.cases(runs)
    methods = [names[method] for method in curves.methods(runs)]
    each = span(runs.group_by("problem", "m", "n", "method").len()["len"])
    few = len(methods) <= MAX_NAMED
    lead = f"{each} runs of each method on each problem; {failed or 'none'} failed."
    tiles = {"methods": len(methods), "problems": len(cases), "runs": runs.height, "failed": failed}
    return {
        "compared": methods if few else [f"{len(methods)} methods"],
        "where": str(cases[0]) if len(cases) == 1 else f"{len(cases)} problems",
        "lead": lead if few else f"{_enumerated(methods)}: {lead}",
        "tiles": {name: f"{value:,}" for name, value in tiles.items()},
        "failed": failed,
    }


def shown_table(table: Table) -> dict[str, Any]:
    """Return a table as the page shows it; rows that sum up others stay at the end when sorted."""
    last = len(table.rows) - table.closing
    rows = [[_page_cell(cell) for cell in row] for row in table.rows]
    return {
        "name": table.name,
        "short": table.name.capitalize(),
        "title": table.title,
        "header": table.header,
        "kinds": [cell.kind for cell in rows[0]],
        "body": rows[:last],
        "foot": rows[last:],
        "notes": table.notes,
    }


def _page_cell(cell: Cell | str) -> PageCell:
    if isinstance(cell, str):
        return PageCell(cell)
    said = formats.pieces(cell)
    around = {"IQR": "({})", "saved": "({})", "baseline": "[{}]"}
    number = repr(float(cell.value)).replace("inf", "Infinity")  # as JavaScript reads it
    return PageCell(
        said["value"],
        kind="number",
        value="" if math.isnan(cell.value) else number,
        mark=cell.mark,
        meaning=MEANINGS.get(cell.mark, ""),
        beside=tuple(form.format(said[name]) for name, form in around.items() if said[name]),
        best=cell.best,
        doubt=said["doubt"],
    )


def _failures(failed: pl.DataFrame) -> dict[str, Any]:
    """Return a table of the runs that failed, and why they failed."""
    kinds = {"problem": "text", "(m, n)": "text", "method": "text", "run": "number"}
    kinds |= {"seed": "number", "error": "prose"}
    size = pl.format("({}, {})", "m", "n")
    lines = failed.select("problem", size, "method", "number", "seed", "error").rows()
    return _text_table("What failed", kinds, lines)


def _text_table(
    title: str, kinds: dict[str, str], lines: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    """Return a table of texts; `kinds` has the names and kinds of its columns."""
    body = [
        [
            PageCell("" if text is None else str(text), kind)
            for text, kind in zip(line, kinds.values(), strict=True)
        ]
        for line in lines
    ]
    about = {"title": title, "header": list(kinds), "kinds": list(kinds.values())}
    return {**about, "body": body, "foot": [], "notes": []}


def _facts(runs: pl.DataFrame, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions and machines that the runs recorded, and the options of comparison."""
    facts: dict[str, Any] = {}
    for column, name in {"version": "bilevo", "kernel": "kernel", "machine": "machine"}.items():
        values = runs[column].drop_nulls().unique().sort()
        facts[name] = _enumerated([value for value in values if value] or ["not recorded"])
    given = {name: value for name, value in options.items() if value is not None}
    return {**facts, **({"comparison": _as_text(given)} if given else {})}


def _folder(name: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a directory: a table of its experiments, and the rest as text.

    Anybody can edit the file, so experiments that do not have their usual form become text.
    """
    rest = {key: value for key, value in kept.items() if value not in (None, {}, [])}
    parts, table = rest.get("experiments"), None
    if isinstance(parts, list) and all(isinstance(part, Mapping) for part in parts):
        kinds = {key: "prose" if key in LISTS else "text" for part in parts for key in part}
        lines = [[_setting(key, part.get(key)) for key in kinds] for part in parts]
        table = _text_table("Experiments", kinds, lines)
        del rest["experiments"]
    if seconds := rest.pop("max_time", None):
        rest["longest time of a run"] = f"{seconds} s"
    facts = {key: _as_text(value) for key, value in rest.items()}
    return {"name": name, "experiments": table, "facts": facts}


def _setting(key: str, value: Any) -> str:
    """Return a setting of an experiment as text; a limit of 0 is written as none."""
    if key in ("max_evals", "budgets") and isinstance(value, list):  # budgets: the name until 0.1.0
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


def _enumerated(names: Sequence[str]) -> str:
    """Write names as "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
