"""The figures of a report, in plotly's notation; `curves` computes what they show.

A view is one picture: traces and a layout, as plain lists and dictionaries that become JSON. plotly
interprets some HTML in texts (tags, links, entities), so names from results pass through `literal`.
plotly also reads names like "2" or "2020-1" as numbers or dates, so axes have numbered positions
with labels. The look of axes and legends is set in templates/report.js.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.lab.analysis import curves
from bilevo.lab.analysis.samples import Case, limit_of
from bilevo.lab.analysis.table_parts import method_labels
from bilevo.lab.analysis.tables import rankable
from bilevo.lab.frames import pl
from bilevo.lab.show.figures import LOWEST, WORDS, X_LABEL, Data
from bilevo.lab.show.palette import short_name, styles
from bilevo.plot import STAGES, SURVIVED, Stage, task_ticks

PRECISION = 5  # The significant digits of numbers; a screen cannot show more.
BAND = "26"  # The opacity of a band between quartiles, in hexadecimal.
DROPPED = "rgba(128, 134, 140, 0.4)"  # A colour that is pale on light and on dark pages.
ROW = 34  # The height of a method in a list of methods, in pixels.
CHART = 170  # The height of one of several charts, in pixels.
MAX_TICKS = 5  # The most ticks above 0 on a small chart.
WHOLE_STEPS = [digit * 10**power for power in range(19) for digit in (1, 2, 5)]  # tick distances
SECONDS = ("a run", "an evaluation")

PlotlyTrace = dict[str, Any]
Layout = dict[str, Any]
Picture = tuple[list[PlotlyTrace], Layout, list[str]]  # traces, layout, and names left out

ABOUT = {  # the title of a figure, what it shows, and the name of its menu of views
    "convergence": (
        "Convergence",
        "Distance of the best feasible pair so far to the optimum, or F where the optimum is "
        "unknown: the median over runs, with the quartiles as a band. Distances below "
        f"{LOWEST:g} are drawn there.",
        "Problem",
    ),
    "ecdf": (
        "Targets",
        f"Share of pairs of a run and a target that are reached: {len(curves.TARGETS)} targets for "
        f"|F - F*| from {curves.TARGETS[0]:g} to {curves.TARGETS[-1]:f}, on the problems with a "
        "known optimum that all methods ran on.",
        "",
    ),
    "critical-difference": (
        "Average ranks",
        "Average ranks of the methods' medians over problems, 1 the best. Methods whose bars "
        "overlap do not differ significantly: a bar is as long as Nemenyi's critical difference.",
        "Ranked by",
    ),
    "allocation": (
        "Allocation",
        "How often each task, the follower's search of one leader, was executed in an early, a "
        "middle and a late generation of the run of median cost. Coloured: the better half, which "
        "updates the upper level.",
        "Problem",
    ),
    "runtime": (
        "Running time",
        "Median over runs, with quartiles. Times depend on the machine, and on what else it does.",
        "Time of",
    ),
}


class View(NamedTuple):
    """One picture of a figure, under the name that a menu shows."""

    label: str
    data: list[PlotlyTrace]
    layout: Layout


class FigureViews(NamedTuple):
    """A figure with its views, and words for what is missing."""

    name: str
    title: str
    about: str
    menu: str  # the name of the menu that chooses a view
    views: list[View]
    missing: str


def make_figures(
    runs: pl.DataFrame, history: pl.DataFrame, floor: float | None, alpha: float
) -> list[FigureViews]:
    """Make the figures of a report in order; `floor` and `alpha` are for average ranks."""
    names = {method: literal(label) for method, label in method_labels(runs).items()}
    data = Data(runs, history, names, styles(curves.methods(runs)), floor, alpha)
    cases = curves.cases(runs)
    pictures: dict[str, dict[str, Callable[[], Picture]]] = {
        "convergence": {str(case): partial(_bands, data, case) for case in cases},
        "ecdf": {"": partial(_targets, data)},
        "critical-difference": {
            WORDS[one]: partial(_ranks, data, one) for one in rankable(limit_of(runs))
        },
        "allocation": {str(case): partial(_executions, data, case) for case in cases},
        "runtime": {what: partial(_times, data, what) for what in SECONDS},
    }
    return [FigureViews(name, *about, *_views(pictures[name])) for name, about in ABOUT.items()]


def literal(name: str) -> str:
    """Return a name, escaped so that plotly shows it unchanged."""
    return escape(short_name(name), quote=False)


def _views(pictures: dict[str, Callable[[], Picture]]) -> tuple[list[View], str]:
    """Draw the pictures that can be drawn, and say in sentences what is missing."""
    views: list[View] = []
    reasons: dict[str, None] = {}
    others: dict[str, None] = {}
    for label, draw in pictures.items():
        try:
            data, layout, left_out = draw()
        except ValueError as error:
            reasons |= {f"{str(error)[:1].upper()}{str(error)[1:]}.": None}
        else:
            views.append(View(label, data, layout))
            others |= dict.fromkeys(left_out)
    told = [f"Without {', '.join(others)}."] if others else []
    told += list(reasons)[:1]
    told += [f"And {len(reasons) - 1} more like this."] if len(reasons) > 1 else []
    return views, " ".join(told)


def _bands(data: Data, case: Case) -> Picture:
    found = curves.convergence(data.history, data.runs, case)
    lowest = LOWEST if found.goal.known else -math.inf
    traces = [trace for band in found.bands for trace in _band_traces(data, band, lowest)]
    scale = _logarithmic(traces, "y") if found.goal.known else {}
    layout = {
        "xaxis": {**_logarithmic(traces, "x"), "title": {"text": X_LABEL}},
        "yaxis": {**scale, "title": {"text": found.goal.label}},
    }
    return traces, layout, found.left_out


def _band_traces(data: Data, band: curves.Band, lowest: float) -> list[PlotlyTrace]:
    """Return a line for the median, and a band where both quartiles are finite."""
    median = _step(data, band.method, band.evaluations, np.maximum(band.median, lowest))
    median |= {"hovertemplate": "%{y:.3g} after %{x:,}"}
    whole = np.isfinite(band.upper) & np.isfinite(band.lower)
    edges = [
        _step(data, band.method, band.evaluations[whole], np.maximum(values[whole], lowest))
        | {"line": {"width": 0, "shape": "hv"}, "showlegend": False, "hoverinfo": "skip"}
        for values in (band.lower, band.upper)
    ]
    edges[1] |= {"fill": "tonexty", "fillcolor": data.styles[band.method].colour + BAND}
    return [*edges, median]


def _targets(data: Data) -> Picture:
    found = curves.ecdf(data.history, data.runs)
    traces = [
        _step(data, one.method, one.evaluations, one.share)
        | {"hovertemplate": "%{y:.1%} after %{x:,}"}
        for one in found.reached
    ]
    layout = {
        "xaxis": {**_logarithmic(traces, "x"), "title": {"text": X_LABEL}},
        "yaxis": {"range": [0, 1.02], "tickformat": ".0%", "title": {"text": "share reached"}},
    }
    return traces, layout, found.left_out


def _step(data: Data, method: str, x: curves.Counts, y: FloatArray) -> PlotlyTrace:
    """Return a step line that holds each value until the next; the legend groups by method."""
    colour, dash = data.styles[method]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": data.names[method],
        "legendgroup": method,
        "x": x.tolist(),
        "y": [float(f"{v:.{PRECISION}g}") if math.isfinite(v) else None for v in y.tolist()],
        "line": {"color": colour, "dash": dash, "width": 2, "shape": "hv"},
    }


def _logarithmic(traces: Sequence[PlotlyTrace], axis: str) -> Layout:
    """Return a logarithmic axis, labelled also between powers of ten if it shows few of them."""
    values = [value for trace in traces for value in trace[axis] if value]
    few = bool(values) and max(values) < 1000 * min(values)
    return {"type": "log", "dtick": "D2" if few else 1}


def _ranks(data: Data, indicator: str) -> Picture:
    """Draw the methods, best first, with bars that overlap if methods do not differ."""
    found = curves.ranks(data.runs, indicator, data.floor, data.alpha)
    traces = [
        _points(data, method, [rank], [row], 11)
        | {
            "showlegend": False,
            "error_x": {"array": [found.difference / 2], "thickness": 3, "width": 0},
            "hovertemplate": "%{x:.2f}",
        }
        for row, (method, rank) in enumerate(found.average.items())
    ]
    test = f"{found.blocks} problems, Friedman p = {found.p:.2g}"
    below = f"average rank<br>{test}<br>critical difference {found.difference:.2f}"
    names = [data.names[method] for method in found.average]
    layout = {
        "height": 150 + ROW * len(names),
        "xaxis": {"title": {"text": below}},
        "yaxis": {**_labelled(names), "range": [len(names) - 0.5, -0.5], "showgrid": False},
    }
    return traces, layout, []


def _points(data: Data, method: str, x: list[Any], y: list[Any], size: int) -> PlotlyTrace:
    marker = {"color": data.styles[method].colour, "size": size}
    name = data.names[method]
    return {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "marker": marker}


def _labelled(names: Sequence[str]) -> Layout:
    """Return an axis with these names at 0, 1, 2 ..."""
    places = list(range(len(names)))
    return {"tickvals": places, "ticktext": list(names), "autotickangles": [0, -45, -90]}


def _executions(data: Data, case: Case) -> Picture:
    """Draw a row of bar charts for each method, with its own scale and a column for each stage."""
    found = curves.allocation(data.history, data.runs, case)
    traces: list[PlotlyTrace] = []
    notes: list[dict[str, Any]] = []
    layout: Layout = {"showlegend": False, "bargap": 0.2, "margin": {"b": 8}}
    rows, columns = len(found.stages), len(STAGES)
    for row, (method, stages) in enumerate(found.stages.items()):
        top, upper, lower = (1 - (row + part) / rows for part in (0.0, 0.3, 0.84))
        notes.append(_note(f"<b>{data.names[method]}</b>", 0, top, "top"))
        first = str(len(traces) + 1) if traces else ""
        highest = max((count for stage in stages for count in stage.executions), default=0)
        step = next(step for step in WHOLE_STEPS if highest <= MAX_TICKS * step)
        for column, stage in enumerate(stages):
            axis = str(len(traces) + 1) if traces else ""
            left, right = column / columns, (column + 0.93) / columns
            traces.append(_bars(stage, axis))
            notes.append(_note(f"{stage.name} ({stage.generation})", left, upper, "bottom"))
            ticks = {"tickvals": task_ticks(len(stage.executions))}
            layout[f"xaxis{axis}"] = {"domain": [left, right], "anchor": f"y{axis}", **ticks}
            up = {"domain": [lower, upper], "anchor": f"x{axis}", "dtick": step}
            shared = {"matches": f"y{first}"} if column else {}
            layout[f"yaxis{axis}"] = {**up, **shared, "showticklabels": column == 0}
    return traces, {**layout, "annotations": notes, "height": 60 + CHART * rows}, found.left_out


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


def _times(data: Data, what: str) -> Picture:
    """Draw medians with bars from quartile to quartile, with methods side by side."""
    found = curves.times(data.runs)
    spreads = found.per_run if what == SECONDS[0] else found.per_evaluation
    names = [f"{literal(case.problem)} {case.size}" for case in found.cases]
    traces = []
    for method in found.methods:
        there, (lower, median, upper) = found.of_method(method, spreads)
        trace = _points(data, method, there, median.tolist(), 8)
        trace |= {"text": [names[i] for i in there], "hovertemplate": "%{text}: %{y:.3g} s"}
        bars = {"array": (upper - median).tolist(), "arrayminus": (median - lower).tolist()}
        trace["error_y"] = {**bars, "symmetric": False, "thickness": 2, "width": 0}
        traces.append(trace)
    layout = {
        **{"scattermode": "group", "scattergap": 0.4},
        "xaxis": {**_labelled(names), "range": [-0.5, len(names) - 0.5], "showgrid": False},
        "yaxis": {**_logarithmic(traces, "y"), "title": {"text": f"seconds for {what}"}},
    }
    return traces, layout, found.left_out
