"""The figure of settings: lines over one setting, triangles over three that sum to 1.

A column of panels belongs to a family of settings (see `analysis.sensitivity`). Above are
evaluations relative to the method itself, below is the share of runs near the optimum. A filled
point differs significantly from the method itself, which a star marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.lab.analysis.sensitivity import Effect, Family
from bilevo.lab.grids import Setting
from bilevo.lab.show.palette import Style, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 1.6, 2.0  # The size of a panel, in inches.
ROWS = {"evaluations": "evaluations, relative", "near": "share near the optimum"}
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
CLOSE = 0.1  # Values stand side by side if two are closer than this share of the axis.
PLAIN_TEXT: dict[str, Any] = {"parse_math": False}


def is_drawable(family: Family) -> bool:
    """Tell whether there is a panel for a family: one setting, or three that sum to 1."""
    names = family.names
    if len(names) == 1:
        return True
    return len(names) == 3 and family.is_mixture and _spans_a_triangle(family)


def draw_families(families: Sequence[Family], styles: dict[str, Style], alpha: float) -> Figure:
    """Draw a column of two panels for each family; all must be drawable."""
    from matplotlib.figure import Figure

    widths = [1.0 if len(family.names) == 1 else 1.5 for family in families]
    size = WIDTH * sum(widths) + 0.3, len(ROWS) * HEIGHT + 0.3
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(ROWS), len(families), squeeze=False, width_ratios=widths)
    several = len({family.method for family in families}) > 1
    lines = [ax for ax, one in zip(panels[0], families, strict=True) if len(one.names) == 1]
    for ax in lines[1:]:
        ax.sharey(lines[0])
    for column, family in enumerate(families):
        for ax, what in zip(panels[:, column], ROWS, strict=True):
            if len(family.names) == 1:
                _draw_line(ax, family, what, styles[family.method].colour, alpha)
                first = len(families[column - 1].names) > 1 or column == 0
                ax.set_ylabel(ROWS[what] if first else "")
            else:
                _draw_triangle(ax, family, what)
        if several:
            panels[0, column].set_title(short_name(family.method), **PLAIN_TEXT)
    return figure


def _draw_line(ax: Axes, family: Family, what: str, colour: str, alpha: float) -> None:
    """Draw an indicator over one setting."""
    (name,) = family.names
    shown = family.everything
    values = [one.settings[name] for one in shown]
    x = _places(values)
    ax.set_xticks(x, [short_name(_written(value)) for value in values], **PLAIN_TEXT)
    y = [getattr(one, what) for one in shown]
    ax.plot(x, y, color=colour)
    ax.axhline(getattr(family.own, what), color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    for place, height, one in zip(x, y, shown, strict=True):
        if one is family.own:
            ax.plot(place, height, "*", color=colour, markersize=9)
        else:
            face = colour if _is_significant(one, what, alpha) else "white"
            ax.plot(place, height, "o", color=colour, markerfacecolor=face, markersize=5)
    ax.set_xlabel(short_name(name), **PLAIN_TEXT)
    if what == "near":
        ax.set_ylim(-0.03, 1.03)


def _places(values: Sequence[Setting]) -> list[float]:
    """Return the places of values on an axis; texts and close numbers stand side by side."""
    if len(values) > 1 and not any(isinstance(value, str | bool) for value in values):
        numbers = [float(value) for value in values]
        if min(np.diff(numbers)) > CLOSE * (numbers[-1] - numbers[0]):
            return numbers
    return [float(i) for i in range(len(values))]


def _written(value: Setting) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _draw_triangle(ax: Axes, family: Family, what: str) -> None:
    """Draw a heat map over three settings that sum to 1, with the number at each point."""
    shown = [one for one in family.everything if np.isfinite(getattr(one, what))]
    ax.set_aspect("equal")
    ax.set_axis_off()
    if not shown:
        return
    at = _points(shown, family.names)
    values = np.array([getattr(one, what) for one in shown])
    colours = "viridis_r" if what == "evaluations" else "viridis"
    if len(shown) >= 3:
        ax.tripcolor(at[:, 0], at[:, 1], values, shading="gouraud", cmap=colours, alpha=0.75)
    for (x, y), value, one in zip(at, values, shown, strict=True):
        text = f"{value:.2f}" if what == "evaluations" else f"{value:.0%}"
        own = one is family.own
        ax.plot(x, y, "*" if own else ".", color="black", markersize=6 if own else 2)
        side: dict[str, Any] = {"xytext": (0, 2.5), "ha": "center", "va": "bottom"}
        if own:  # points of the grid may be above and below it
            side = {"xytext": (4, 0), "ha": "left", "va": "center"}
        ax.annotate(text, (x, y), fontsize=6, textcoords="offset points", **side)
    sides = (("right", "top"), ("left", "top"), ("center", "bottom"))
    for corner, name, (ha, va) in zip(CORNERS, family.names, sides, strict=True):
        shift = (8 if ha == "right" else -8 if ha == "left" else 0, -3 if va == "top" else 9)
        words: dict[str, Any] = {"xytext": shift, "textcoords": "offset points", "fontsize": 7}
        text = f"{short_name(name)} 1"
        ax.annotate(text, corner, ha="center", va=va, annotation_clip=False, **words, **PLAIN_TEXT)
    ax.set_title(ROWS[what], fontsize=7, pad=14)
    ax.margins(0.1, 0.12)


def _points(effects: Sequence[Effect], names: Sequence[str]) -> FloatArray:
    """Return the places (k, 2) of settings in a triangle."""
    rows = [[float(one.settings[name]) for name in names] for one in effects]
    shares = np.array(rows)
    return np.asarray(shares @ CORNERS)


def _spans_a_triangle(family: Family) -> bool:
    at = _points(family.effects, family.names)
    return bool(np.linalg.matrix_rank(at - at[0], tol=1e-6) == 2)


def _is_significant(one: Effect, what: str, alpha: float) -> bool:
    return bool(getattr(one, f"p_{what}") < alpha)
