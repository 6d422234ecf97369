"""The figures of a report, as plotly describes them; `curves` computes what they show.

A view is one picture: traces and a layout, plain lists and dictionaries that become JSON. plotly
reads a small HTML in texts (tags, links, entities), so names from results pass through `literal`;
and it takes numbers and dates in names for such, so positions on axes are counted and labelled.
How axes and legends look is said once, in templates/report.js.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.lab.analysis import curves
from bilevo.lab.analysis.samples import Case, limit_of
from bilevo.lab.analysis.table_parts import method_labels
from bilevo.lab.analysis.tables import rankable
from bilevo.lab.show.figures import LOWEST, WORDS, X_LABEL
from bilevo.lab.show.palette import short_name, styles
from bilevo.plot import STAGES, SURVIVED, Stage, task_ticks

if TYPE_CHECKING:
    from polars import DataFrame

PRECISION = 5  # significant digits: more than a screen can show
BAND = "26"  # opacity, in hexadecimal
DROPPED = "rgba(128, 134, 140, 0.4)"  # pale on light and on dark pages
ROW = 34  # pixels for a method in a list of them
CHART = 170  # pixels for one of several charts
HIGH = 5  # ticks above 0 on a small chart

PlotlyTrace = dict[str, Any]
Item = TypeVar("Item")


class Look(NamedTuple):
    """How a method is drawn, and what it is called: a reconstruction is called one."""

    name: str
    colour: str
    dash: str


Looks = dict[str, Look]  # by method


@dataclass(frozen=True, slots=True)
class View:
    """One picture of a figure, under the name that a menu shows."""

    label: str
    data: list[PlotlyTrace]
    layout: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FigureViews:
    """A figure with its views, and what it lacks."""

    name: str
    title: str
    about: str
    menu: str  # what its views differ in
    views: list[View]
    missing: str


def make_figures(
    runs: DataFrame, history: DataFrame, floor: float | None, alpha: float
) -> list[FigureViews]:
    """Make the figures of a report in order; `floor` and `alpha` are for average ranks."""
    names = method_labels(runs)
    known = styles(curves.methods(runs)).items()
    looks = {method: Look(literal(names[method]), *style) for method, style in known}
    return [
        convergence_views(runs, history, looks),
        target_views(runs, history, looks),
        rank_views(runs, looks, floor, alpha),
        allocation_views(runs, history, looks),
        time_views(runs, looks),
    ]


def convergence_views(runs: DataFrame, history: DataFrame, looks: Looks) -> FigureViews:
    """Show median and quartiles over evaluations, one view for each case."""

    def view(case: Case) -> tuple[View, list[str]]:
        found = curves.convergence(history, runs, *case)
        lowest = LOWEST if found.goal.known else -math.inf
        data = [x for band in found.bands for x in _band_traces(band, looks[band.method], lowest)]
        scale = _logarithmic(data, "y") if found.goal.known else {}
        layout = {
            "xaxis": {**_logarithmic(data, "x"), "title": {"text": X_LABEL}},
            "yaxis": {**scale, "title": {"text": found.goal.label}},
        }
        return View(str(case), data, layout), found.left_out

    about = (
        "Distance of the best feasible pair so far to the optimum, or F where the optimum is "
        "unknown: the median over runs, with the quartiles as a band. Distances below "
        f"{LOWEST:g} are drawn there."
    )
    return FigureViews(
        "convergence", "Convergence", about, "Problem", *_views(curves.cases(runs), view)
    )


def target_views(runs: DataFrame, history: DataFrame, looks: Looks) -> FigureViews:
    """Show the share of targets reached over evaluations."""

    def view(what: str) -> tuple[View, list[str]]:
        found = curves.ecdf(history, runs)
        data = [
            _step(one.method, one.evaluations, one.share, looks[one.method])
            | {"hovertemplate": "%{y:.1%} after %{x:,}"}
            for one in found.reached
        ]
        layout = {
            "xaxis": {**_logarithmic(data, "x"), "title": {"text": X_LABEL}},
            "yaxis": {"range": [0, 1.02], "tickformat": ".0%", "title": {"text": "share reached"}},
        }
        return View(what, data, layout), found.left_out

    first, last, count = curves.TARGETS[0], curves.TARGETS[-1], len(curves.TARGETS)
    about = (
        f"Share of pairs of a run and a target that are reached: {count} targets for |F - F*| "
        f"from {first:g} to {last:f}, on the problems with a known optimum that all methods ran on."
    )
    return FigureViews("ecdf", "Targets", about, "", *_views([""], view))


def rank_views(runs: DataFrame, looks: Looks, floor: float | None, alpha: float) -> FigureViews:
    """Show average ranks, with intervals that overlap where methods do not differ."""

    def view(indicator: str) -> tuple[View, list[str]]:
        found = curves.ranks(runs, indicator, floor, alpha)
        return _ranks(WORDS[indicator], found, looks), []

    about = (
        "Average ranks of the methods' medians over problems, 1 the best. Methods whose bars "
        "overlap do not differ significantly: a bar is as long as Nemenyi's critical difference."
    )
    views = _views(rankable(limit_of(runs)), view)
    return FigureViews("critical-difference", "Average ranks", about, "Ranked by", *views)


def allocation_views(runs: DataFrame, history: DataFrame, looks: Looks) -> FigureViews:
    """Show executions of tasks in three generations, one view for each case."""

    def view(case: Case) -> tuple[View, list[str]]:
        found = curves.allocation(history, runs, *case)
        return _stages(str(case), found, looks), found.left_out

    about = (
        "How often each task, the follower's search of one leader, was executed in an early, a "
        "middle and a late generation of the run of median cost. Coloured: the better half, which "
        "updates the upper level."
    )
    return FigureViews(
        "allocation", "Allocation", about, "Problem", *_views(curves.cases(runs), view)
    )


def time_views(runs: DataFrame, looks: Looks) -> FigureViews:
    """Show seconds a run and an evaluation, as two views."""

    def view(what: str) -> tuple[View, list[str]]:
        found = curves.times(runs)
        spreads = found.per_run if what == "a run" else found.per_evaluation
        return _times(what, found, spreads, looks), found.left_out

    about = (
        "Median over runs, with quartiles. Times depend on the machine, and on what else it does."
    )
    views = _views(["a run", "an evaluation"], view)
    return FigureViews("runtime", "Running time", about, "Time of", *views)


def literal(name: str) -> str:
    """Return a name that plotly shows as it is."""
    return escape(short_name(name), quote=False)


def numbers(values: FloatArray) -> list[float | None]:
    """Round numbers for JSON; None where they are not finite."""
    return [float(f"{v:.{PRECISION}g}") if math.isfinite(v) else None for v in values.tolist()]


def _views(
    items: Sequence[Item], view: Callable[[Item], tuple[View, list[str]]]
) -> tuple[list[View], str]:
    """Make a view of each item that has one, and sentences on what is missing."""
    views: list[View] = []
    reasons: dict[str, None] = {}
    others: dict[str, None] = {}
    for item in items:
        try:
            made, left_out = view(item)
        except ValueError as error:
            reasons |= {f"{str(error)[:1].upper()}{str(error)[1:]}.": None}
            continue
        views.append(made)
        others |= dict.fromkeys(left_out)
    told = [f"Without {', '.join(others)}."] if others else []
    told += list(reasons)[:1]
    told += [f"And {len(reasons) - 1} more like this."] if len(reasons) > 1 else []
    return views, " ".join(told)


def _step(method: str, x: curves.Counts, y: FloatArray, look: Look) -> PlotlyTrace:
    """Make a line that holds each value until the next; the legend switches all of a method's."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": look.name,
        "legendgroup": method,
        "x": x.tolist(),
        "y": numbers(y),
        "line": {"color": look.colour, "dash": look.dash, "width": 2, "shape": "hv"},
    }


def _band_traces(band: curves.Band, look: Look, lowest: float) -> list[PlotlyTrace]:
    """Make the median, over a band that begins where both quartiles are there."""
    median = _step(band.method, band.evaluations, np.maximum(band.median, lowest), look)
    median |= {"hovertemplate": "%{y:.3g} after %{x:,}"}
    whole = np.isfinite(band.upper) & np.isfinite(band.lower)
    edges = [
        _step(band.method, band.evaluations[whole], np.maximum(values[whole], lowest), look)
        | {"line": {"width": 0, "shape": "hv"}, "showlegend": False, "hoverinfo": "skip"}
        for values in (band.lower, band.upper)
    ]
    edges[1] |= {"fill": "tonexty", "fillcolor": look.colour + BAND}
    return [*edges, median]


def _ranks(title: str, found: curves.Ranks, looks: Looks) -> View:
    """List the methods, best first."""
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": looks[method].name,
            "showlegend": False,
            "x": [rank],
            "y": [row],
            "error_x": {"array": [found.difference / 2], "thickness": 3, "width": 0},
            "marker": {"color": looks[method].colour, "size": 11},
            "hovertemplate": "%{x:.2f}",
        }
        for row, (method, rank) in enumerate(found.average.items())
    ]
    test = f"{found.blocks} problems, Friedman p = {found.p:.2g}"
    below = f"average rank<br>{test}<br>critical difference {found.difference:.2f}"
    names = [looks[name].name for name in found.average]
    layout = {
        "height": 150 + ROW * len(data),
        "xaxis": {"title": {"text": below}},
        "yaxis": {**_labelled(names), "range": [len(data) - 0.5, -0.5], "showgrid": False},
    }
    return View(title, data, layout)


def _logarithmic(data: Sequence[PlotlyTrace], axis: str) -> dict[str, Any]:
    """Label an axis by powers of ten, or also between them where it shows few."""
    values = [value for trace in data for value in trace[axis] if value]
    few = bool(values) and max(values) < 1000 * min(values)
    return {"type": "log", "dtick": "D2" if few else 1}


def _labelled(names: Sequence[str]) -> dict[str, Any]:
    """Label an axis by names at 0, 1, 2 ..."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "autotickangles": [0, -45, -90],
    }


def _stages(title: str, found: curves.Allocation, looks: Looks) -> View:
    """Draw a row of bar charts for each method, on a scale of its own, a column for each stage."""
    data: list[PlotlyTrace] = []
    notes: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"showlegend": False, "bargap": 0.2, "margin": {"b": 8}}
    rows, columns = len(found.stages), len(STAGES)
    for row, (method, stages) in enumerate(found.stages.items()):
        top, upper, lower = (1 - (row + part) / rows for part in (0.0, 0.3, 0.84))
        notes.append(_note(f"<b>{looks[method].name}</b>", 0, top, "top"))
        first = str(len(data) + 1) if data else ""
        highest = max((count for stage in stages for count in stage.executions), default=0)
        for column, stage in enumerate(stages):
            axis = str(len(data) + 1) if data else ""
            left, right = column / columns, (column + 0.93) / columns
            data.append(_bars(stage, axis))
            notes.append(_note(f"{stage.name} ({stage.generation})", left, upper, "bottom"))
            ticks = {"tickvals": task_ticks(len(stage.executions))}
            layout[f"xaxis{axis}"] = {"domain": [left, right], "anchor": f"y{axis}", **ticks}
            up = {"domain": [lower, upper], "anchor": f"x{axis}", "dtick": _whole_step(highest)}
            shared = {"matches": f"y{first}"} if column else {}
            layout[f"yaxis{axis}"] = {**up, **shared, "showticklabels": column == 0}
    return View(title, data, {**layout, "annotations": notes, "height": 60 + CHART * rows})


def _whole_step(highest: int) -> int:
    """Return the step of a few ticks from 0: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if highest <= HIGH * step:
                return step
        power *= 10


def _bars(stage: Stage, axis: str) -> PlotlyTrace:
    return {
        "type": "bar",
        "x": list(range(1, len(stage.executions) + 1)),
        "y": list(stage.executions),
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
        "marker": {"color": [SURVIVED if s else DROPPED for s in stage.survived]},
        "hovertemplate": "task %{x}: %{y}<extra></extra>",
    }


def _note(text: str, x: float, y: float, side: str) -> dict[str, Any]:
    place = {"x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False}
    return {"text": text, "xanchor": "left", "yanchor": side, "font": {"size": 12}, **place}


def _times(
    title: str,
    found: curves.Times,
    spreads: dict[tuple[str, Case], curves.Quartiles],
    looks: Looks,
) -> View:
    """Draw points with bars from quartile to quartile, methods side by side."""
    data = []
    names = [f"{literal(case.problem)} {case.size}" for case in found.cases]
    for method in found.methods:
        there = [i for i, case in enumerate(found.cases) if (method, case) in spreads]
        values = [spreads[method, found.cases[i]] for i in there]
        bars = {
            "array": [value.upper - value.median for value in values],
            "arrayminus": [value.median - value.lower for value in values],
            "symmetric": False,
            "thickness": 2,
            "width": 0,
        }
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": looks[method].name,
                "x": there,
                "y": [value.median for value in values],
                "text": [names[i] for i in there],
                "error_y": bars,
                "marker": {"color": looks[method].colour, "size": 8},
                "hovertemplate": "%{text}: %{y:.3g} s",
            }
        )
    layout = {
        "scattermode": "group",
        "scattergap": 0.4,
        "xaxis": {**_labelled(names), "range": [-0.5, len(names) - 0.5], "showgrid": False},
        "yaxis": {**_logarithmic(data, "y"), "title": {"text": f"seconds for {title}"}},
    }
    return View(title, data, layout)
