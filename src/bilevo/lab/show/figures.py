"""Figures of stored runs for print: convergence, allocation, times, targets, ranks, settings.

`curves` computes what they show; this module draws it with matplotlib, in sizes for a column or a
page of a paper. Names of problems and methods may come from anybody's files and may contain `$` or
`_`, so matplotlib must not parse them, and legends get their labels afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bilevo.core.extras import need
from bilevo.lab.analysis import curves
from bilevo.lab.analysis.curves import Band, Convergence, Ranks, Spreads, Times
from bilevo.lab.analysis.samples import FLOOR, require_floor
from bilevo.lab.analysis.sensitivity import families
from bilevo.lab.analysis.statistics import ALPHA
from bilevo.lab.analysis.table_parts import study_of
from bilevo.lab.frames import pl
from bilevo.lab.show import sensitivity
from bilevo.lab.show.palette import Style, short_name, styles
from bilevo.plot import draw_stages, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "draw", "save"]
Shown = TypeVar("Shown")

COLUMN, PAGE = 3.5, 7.16  # The widths of a column and of a page with two columns, in inches.
ACROSS = 3  # The number of panels in a row.
LINE, LETTER = 0.17, 0.063  # The height of a line and the width of a letter, in inches.
LOWEST = 1e-10  # The lower end of an axis of |F - F*|; smaller values are rounding errors.
LOOK: dict[Any, Any] = {
    **{"font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 8},
    **{"xtick.labelsize": 7, "ytick.labelsize": 7, "axes.linewidth": 0.6},
    **{"axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.3},
}
LINE_STYLES: dict[str, Any] = {
    **{"solid": "-", "dash": (0, (4, 1.5)), "dashdot": "-.", "dot": (0, (1, 1.2))},
    "longdashdot": (0, (7, 1.5, 1, 1.5)),
}
X_LABEL = "evaluations of both levels"
WORDS = {  # labels of the indicators that methods can be ranked by
    **{"Acc_u": "|F - F*|", "Acc_l": "|f - f*|", "verified": "verified |F - F*|"},
    **{"F": "F", "F_verified": "verified F"},
    **{"FEs_u": "upper evaluations", "FEs_l": "lower evaluations", "FEs": "evaluations"},
}
SMALL: dict[str, Any] = {"fontsize": 8, "parse_math": False}
MARKERS = {"solid": "o", "dash": "v", "dashdot": "s", "dot": "^", "longdashdot": "D"}


class Data(NamedTuple):
    """The runs that figures show, and the names and styles of methods in them."""

    runs: pl.DataFrame
    history: pl.DataFrame
    names: dict[str, str]
    styles: dict[str, Style]
    floor: float | None = FLOOR
    alpha: float = ALPHA
    indicator: str = "Acc_u"


def draw(
    kind: str,
    runs: pl.DataFrame,
    history: pl.DataFrame,
    *,
    indicator: str = "Acc_u",
    floor: float | None = FLOOR,
) -> Figure:
    """Draw one of FIGURES from all runs in the frames.

    Convergence has a panel for each problem. Allocation shows the first problem whose histories
    have executions of tasks. Methods without a history, or without times, are named below the
    figure. The critical-difference diagram ranks methods by `indicator`, with this `floor`.
    """
    if kind not in FIGURES:
        raise ValueError(f"unknown figure {kind!r}; known are {', '.join(FIGURES)}")
    if indicator not in WORDS:
        raise ValueError(f"unknown indicator {indicator!r}; known are {', '.join(WORDS)}")
    require_floor(floor)
    need("figures", "matplotlib", "plot")
    from matplotlib import rc_context

    methods = curves.methods(runs)
    names = {method: short_name(method) for method in methods}
    data = Data(runs, history, names, styles(methods), floor, indicator=indicator)
    with rc_context(LOOK):
        return FIGURES[kind](data)


def _of_cases(data: Data, compute: Callable[..., Shown]) -> tuple[list[Shown], list[str]]:
    """Compute the curves of each case with a history; return also the cases without curves."""
    found, missing = [], []
    for case in curves.cases(data.history):
        try:
            found.append(compute(data.history, data.runs, case))
        except ValueError:
            missing.append(str(case))
    return found, missing


def _convergence(data: Data) -> Figure:
    """Draw medians and quartiles over evaluations, with a panel for each problem."""
    found, missing = _of_cases(data, curves.convergence)
    if not found:
        raise ValueError("no run has a history with a feasible pair: convergence cannot be shown")
    figure, panels = _panels(len(found))
    for ax, panel in zip(panels, found, strict=True):
        for band in panel.bands:
            _draw_band(ax, band, data.styles[band.method])
        ax.set_title(short_name(str(panel.case)), parse_math=False)
        ax.set_xscale("log")
        _few_ticks(ax.xaxis)
        if panel.goal.known:
            ax.set_yscale("log", nonpositive="clip")
            ax.set_ylim(bottom=max(ax.get_ylim()[0], LOWEST))
            _few_ticks(ax.yaxis)
            ax.set_ylabel(panel.goal.label)
        else:
            _show_unknown(ax, panel)
    drawn = {band.method for panel in found for band in panel.bands}
    missing = [name for name in data.names if name not in drawn] + missing
    figure.supxlabel(X_LABEL + _unseen(figure, missing), **SMALL)
    _legend(figure, data, [name for name in data.names if name in drawn])
    return figure


def _draw_band(ax: Axes, band: Band, look: Style) -> None:
    """Draw the median and the quartiles of a band as far as they are finite."""
    x, between = band.evaluations, np.isfinite(band.upper)
    quartiles = band.lower[between], band.upper[between]
    ax.fill_between(x[between], *quartiles, step="post", color=look.colour, alpha=0.18, lw=0)
    half = np.isfinite(band.median)
    line = {"color": look.colour, "linestyle": LINE_STYLES[look.dash]}
    ax.step(x[half], band.median[half], where="post", **line)


def _show_unknown(ax: Axes, panel: Convergence) -> None:
    """Show F itself and the best F found, at the scale of the later half of each curve."""
    later = [band.median[len(band.median) // 2 :] for band in panel.bands]
    values = np.concatenate([*later, [panel.goal.F]])
    values = values[np.isfinite(values)]
    if values.size:
        margin = 0.25 * float(np.ptp(values)) or 1.0
        ax.set_ylim(values.min() - margin, values.max() + 2 * margin)
    ax.set_ylabel("F")
    text = "optimum unknown"
    if np.isfinite(panel.goal.F):
        ax.axhline(panel.goal.F, color="0.5", linewidth=0.8, zorder=0)
        text += f",\n{panel.goal.best}"
    ax.annotate(text, (1, 1), xycoords="axes fraction", ha="right", va="top", fontsize=7)


def _allocation(data: Data) -> Figure:
    """Draw the allocation on the first problem that has executions to show."""
    found, _ = _of_cases(data, curves.allocation)
    if not found:
        raise ValueError("no run has a history with executions: allocation cannot be shown")
    first = found[0]
    figure = draw_stages([(data.names[name], stages) for name, stages in first.stages.items()])
    figure.set_size_inches(PAGE, 0.9 + 1.3 * len(first.stages))
    text = f"{short_name(str(first.case))}: each method's run of median cost"
    figure.supxlabel(text + _unseen(figure, first.left_out), **SMALL)
    return figure


def _runtime(data: Data) -> Figure:
    """Draw medians and quartiles of seconds per run and per evaluation, for each problem."""
    found = curves.times(data.runs)
    figure = _figure(PAGE if len(found.cases) * len(found.methods) > 16 else COLUMN, 3.8)
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_times(above, data, found, found.per_run, 1.0)
    _draw_times(below, data, found, found.per_evaluation, 1e6)
    above.set_ylabel("seconds a run")
    below.set_ylabel("\N{MICRO SIGN}s an evaluation")
    names = [short_name(str(case)) for case in found.cases]
    turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    below.set_xticks(range(len(names)), names, parse_math=False, **turned)
    below.set_xlabel(_unseen(figure, found.left_out), **SMALL)
    _legend(figure, data, found.methods, points=True)
    return figure


def _draw_times(ax: Axes, data: Data, found: Times, spreads: Spreads, unit: float) -> None:
    """Draw points, not bars, because a logarithmic scale has no zero at which bars could begin."""
    width = 0.7 / len(found.methods)
    for i, method in enumerate(found.methods):
        shift = (i - (len(found.methods) - 1) / 2) * width
        places, quartiles = found.of_method(method, spreads)
        lower, median, upper = quartiles * unit
        colour, dash = data.styles[method]
        look: dict[str, Any] = {"fmt": MARKERS[dash], "color": colour}
        look |= {"markersize": 3.5, "elinewidth": 1}
        ax.errorbar(np.array(places) + shift, median, [median - lower, upper - median], **look)
    for edge in range(1, len(found.cases)):
        ax.axvline(edge - 0.5, color="0.9", linewidth=0.6, zorder=0)
    ax.set_yscale("log")
    ax.set_xlim(-0.5, len(found.cases) - 0.5)
    ax.tick_params(axis="x", length=0)
    _few_ticks(ax.yaxis)


def _ecdf(data: Data) -> Figure:
    """Draw the share of targets reached, with a cross at the end of a method's longest run."""
    found = curves.ecdf(data.history, data.runs)
    figure = _figure(COLUMN, 2.4)
    ax = figure.subplots()
    for line in found.reached:
        colour, dash = data.styles[line.method]
        ax.step(line.evaluations, line.share, where="post", color=colour, ls=LINE_STYLES[dash])
        ax.plot(line.evaluations[-1], line.share[-1], "x", color=colour, markersize=4)
    ax.set_xscale("log")
    ax.set_ylim(0, 1.02)  # a line at 1 is seen
    _few_ticks(ax.xaxis)
    ax.set_xlabel(X_LABEL + _unseen(figure, found.left_out), **SMALL)
    ax.set_ylabel("share of targets reached")
    cases, targets = len(found.cases), len(curves.TARGETS)
    text = f"{cases} problem{'s' * (cases > 1)}, {targets} targets"
    ax.annotate(text, (1, 0.03), xycoords="axes fraction", ha="right", fontsize=7)
    _legend(figure, data, [line.method for line in found.reached])
    return figure


def _critical_difference(data: Data) -> Figure:
    """Draw average ranks on a line, the best on the left; bars join methods that do not differ.

    One unit of height is a line of text.
    """
    found = curves.ranks(data.runs, data.indicator, data.floor, data.alpha)
    last = len(found.average)
    depth = 0.5 + 0.35 * len(found.cliques)
    bottom = depth + (last + 1) // 2 + 1.4
    names = [0.6 + LETTER * len(data.names[name]) for name in found.average]
    left, right = max(names[: (last + 1) // 2]), max(names[(last + 1) // 2 :])
    scale = max(2.4, 0.3 * (last - 1))
    figure = _figure(left + scale + right, LINE * (bottom + 3.2))
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    inch = (last - 1) / scale  # how many ranks an inch stands for
    ax.set_xlim(1 - left * inch, max(last + right * inch, 1.1 + found.difference))
    ax.set_ylim(bottom, -3.2)
    _draw_scale(ax, found, bottom)
    for i, clique in enumerate(found.cliques):
        ends = [found.average[clique[0]] - 0.01 * last, found.average[clique[-1]] + 0.01 * last]
        ax.plot(ends, [0.45 + 0.35 * i] * 2, color="0.25", linewidth=2.5, solid_capstyle="butt")
    _draw_ranks(ax, data, found, depth)
    return figure


def _sensitivity(data: Data) -> Figure:
    """Draw what settings do; `show.sensitivity` has the panels."""
    study = study_of(data.runs, floor=data.floor, alpha=data.alpha, holm=True)
    found = families(study)
    shown = [family for family in found if sensitivity.is_drawable(family)]
    if not shown:
        raise ValueError(
            "no method has runs both without and with one setting, or three that sum to 1, in its "
            'name ("method/setting=0.5"): sensitivity cannot be shown'
        )
    figure = sensitivity.draw_families(shown, data.styles, data.alpha)
    missing = [", ".join(family.names) for family in found if family not in shown]
    what = "star: the method itself; filled: significantly different (Holm)"
    figure.supxlabel(what + _unseen(figure, missing), **SMALL)
    return figure


def _draw_scale(ax: Axes, found: Ranks, bottom: float) -> None:
    last = len(found.average)
    ax.plot([1, last], [0, 0], color="black", linewidth=0.8)
    for rank in range(1, last + 1):
        ax.plot([rank, rank], [0, -0.25], color="black", linewidth=0.8)
        ax.annotate(str(rank), (rank, -0.35), ha="center", va="bottom", fontsize=7)
    ax.plot([1, 1 + found.difference], [-1.9] * 2, "|-", color="black", lw=0.8, markersize=5)
    ax.annotate(f"critical difference {found.difference:.2f}", (1, -2.1), va="bottom", fontsize=7)
    what = WORDS.get(found.indicator, found.indicator)
    cases = f"{found.blocks} problem{'s' * (found.blocks > 1)}"
    text = f"average rank of {what}, {cases}, Friedman p = {found.p:.2g}"
    place = (1 + last) / 2, bottom - 0.2
    ax.annotate(text, place, ha="center", va="bottom", fontsize=7, parse_math=False)


def _draw_ranks(ax: Axes, data: Data, found: Ranks, depth: float) -> None:
    """Write the better half on the left, downwards, and the other half on the right, upwards."""
    last = len(found.average)
    half = (last + 1) // 2
    for i, (method, rank) in enumerate(found.average.items()):
        left, name = i < half, data.names[method]
        row = depth + 0.6 + (i if left else last - 1 - i)
        end = 1 - 0.02 * last if left else 1.02 * last
        ax.plot([rank, rank, end], [0, row, row], color=data.styles[method].colour, linewidth=1.1)
        text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
        side: dict[str, Any] = {"xytext": (-3 if left else 3, 0), "ha": "right" if left else "left"}
        side |= {"textcoords": "offset points", "va": "center", "parse_math": False}
        ax.annotate(text, (end, row), **side)


def _panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    across = 2 if count in (2, 4) else min(count, ACROSS)
    down = -(-count // across)
    each = 1.65 if across == ACROSS else 2.0
    figure = _figure(COLUMN if across == 1 else PAGE, 0.4 + each * down)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for ax in panels[count:]:
        ax.remove()
    return figure, panels[:count]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _unseen(figure: Figure, left_out: Sequence[str]) -> str:
    """Return lines for a label that name what is missing, and make room for these lines."""
    if not left_out:
        return ""
    names = ", ".join(map(short_name, left_out))
    lines = fill(f"not shown: {names}", int(figure.get_figwidth() / LETTER))
    figure.set_figheight(figure.get_figheight() + LINE * (lines.count("\n") + 1))
    return "\n" + lines


def _legend(figure: Figure, data: Data, methods: Sequence[str], points: bool = False) -> None:
    """Add a legend at the top; labels are set later, because matplotlib drops labels like `_x`."""
    from matplotlib.lines import Line2D

    handles = []
    for name in methods:
        colour, dash = data.styles[name]
        line = {"ls": "", "marker": MARKERS[dash], "ms": 4} if points else {"ls": LINE_STYLES[dash]}
        handles.append(Line2D([], [], color=colour, **line))
    widest = 0.5 + LETTER * max(len(data.names[name]) for name in methods)
    across = min(len(handles), max(int(figure.get_figwidth() / widest), 1))
    figure.set_figheight(figure.get_figheight() + LINE * -(-len(handles) // across))
    legend = figure.legend(
        handles,
        ["method"] * len(handles),
        loc="outside upper center",
        ncols=across,
        **{"frameon": False, "handlelength": 1.8, "columnspacing": 1.2},
    )
    for text, name in zip(legend.get_texts(), methods, strict=True):
        text.set(text=data.names[name], parse_math=False)


def _few_ticks(axis: Any) -> None:
    """Label powers of ten, or plain numbers if an axis has fewer than two powers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = np.log10(axis.get_view_interval())
    if np.floor(high) - np.ceil(low) < 1:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        axis.set_major_locator(LogLocator(numticks=6))
    axis.set_minor_formatter(NullFormatter())


FIGURES: dict[str, Callable[[Data], Figure]] = {
    "convergence": _convergence,
    "allocation": _allocation,
    "runtime": _runtime,
    "ecdf": _ecdf,
    "critical-difference": _critical_difference,
    "sensitivity": _sensitivity,
}
