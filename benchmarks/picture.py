"""Draw the picture of docs/performance.md: times of a generation, and of an evaluation by size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Stored
from bilevo import kernels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"numpy": "#2a7f62", "numba": "#14483a"}
OTHERS = {"cma": "#b5651d", "cmaes": "#d9a05b", "pymoo": "#8c8c8c"}


def draw(stored: Stored) -> Figure:
    """Draw the stored figures; a panel stays empty if its figures are not stored."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    if "generation" in stored:
        generations(left, stored)
    if "scaling" in stored:
        evaluations(right, stored)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False
    )
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def generations(ax: Axes, stored: Stored) -> None:
    lines = stored["generation"]["figures"]["lines"]
    for name, colour in {**OTHERS, **COLOURS}.items():
        label = f"bilevo, {name}" if name in kernels.NAMES else name
        times = [line["us"][name] for line in lines]
        ax.plot([line["n"] for line in lines], times, "o-", color=colour, label=label)
    ax.set(xscale="log", yscale="log", xlabel="variables", ylabel="us", title="a CMA-ES generation")
    ax.set_xticks([line["n"] for line in lines], [str(line["n"]) for line in lines])
    ax.minorticks_off()


def evaluations(ax: Axes, stored: Stored) -> None:
    lines = stored["scaling"]["figures"]["sizes"]
    sizes = ["({}, {})".format(*line["size"]) for line in lines]
    for name, colour in COLOURS.items():
        times = [line["us"][name] for line in lines]
        ax.plot(sizes, times, "o-", color=colour)
    ax.set_ylim(bottom=0)
    ax.set(xlabel="(m, n)", ylabel="us", title="an evaluation of drc-cma-es on SMD1")
