"""Pictures: convergence of runs, allocation of evaluations to tasks, and the leader's landscape.

They need matplotlib (`pip install 'bilevo[plot]'`). Functions return a matplotlib figure, which
notebooks show.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.extras import need
from bilevo.core.problem import Problem
from bilevo.core.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bilevo.verification.landscape import Landscape

SURVIVED, DROPPED = "#2a7f62", "#c9c9c9"
ANSWER = {"marker": "*", "markersize": 13, "color": "#D55E00", "markeredgecolor": "white"}
SHADES = 24  # number of shades in a heat map
FEW = 30  # up to this number of generations, each one is marked
SMALL: dict[str, Any] = {"frameon": False, "fontsize": 9}
MAX_TICKS = 8  # the most tasks that an axis names; more names would overlap
# The share of the run that comes before each stage, as in the DRC paper.
STAGES = {"early": 0.0, "middle": 0.4, "late": 0.8}


@dataclass(frozen=True, slots=True)
class Stage:
    """How often each task of one generation was executed, and which tasks survived."""

    name: str
    generation: int
    executions: Sequence[int]
    survived: Sequence[bool]


def stages(
    numbers: Sequence[int],
    executions: Sequence[Sequence[int]],
    survived: Sequence[Sequence[bool]],
) -> list[Stage]:
    """Choose an early, a middle and a late generation from those that a history has kept.

    `numbers` holds the numbers of these generations, in ascending order.
    """
    found = []
    for name, share in STAGES.items():
        row = bisect_left(numbers, math.ceil(share * numbers[-1]))
        found.append(Stage(name, numbers[row], executions[row], survived[row]))
    return found


def task_ticks(count: int) -> list[int]:
    """Choose the tasks that an axis names, beginning with the first."""
    return list(range(1, count + 1, -(-count // MAX_TICKS) or 1))


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = _empty(size)
    axes = figure.subplots(rows, columns, squeeze=False, sharey="row")
    return figure, axes


def _empty(size: tuple[float, float]) -> Figure:
    """Make a figure that need not be closed, and that notebooks show.

    Notebooks show pyplot's figures by themselves, but pyplot keeps figures until they are closed.
    So this figure is made without pyplot, and with a method that notebooks call.
    """
    made = need("pictures", "matplotlib.figure", "plot")
    figure: Figure = made.Figure(figsize=size, layout="constrained")
    vars(figure)["_repr_png_"] = partial(_png, figure)
    return figure


def _png(figure: Figure) -> bytes:
    image = BytesIO()
    figure.savefig(image, format="png", dpi=100)
    return image.getvalue()


def run(result: Result, F_star: float | None = None) -> Figure:
    """Draw a run in one figure: its convergence, and below it the allocation of evaluations.

    `result.plot()` does the same. The allocation is left out if generations have only one task. If
    the run ended in its first generation, the figure shows its answer as a single point.
    """
    shown = _stages_of(result.method, result) if len(result.history) else []
    competed = any(len(stage.executions) > 1 for stage in shown)
    figure = _empty((7.0, 5.2 if competed else 3.2))
    layout = [["convergence"] * (len(shown) or 1)] + [[stage.name for stage in shown]] * competed
    axes: Any = figure.subplot_mosaic(layout, height_ratios=[3, 2][: len(layout)])  # type: ignore[arg-type]
    _draw_convergence(axes["convergence"], {result.method: result}, F_star)
    if competed:
        below = [axes[stage.name] for stage in shown]
        for ax in below[1:]:
            ax.sharey(below[0])
            ax.tick_params(labelleft=False)
        _draw_stages(below, shown)
        below[0].set_ylabel("executions", fontsize=9)
        figure.legend(*_meanings(below[0]), loc="outside lower center", ncols=2, **SMALL)
    return figure


def convergence(results: Mapping[str, Result], F_star: float | None = None) -> Figure:
    """Draw F of the elite, which is a run's best pair so far, over evaluations of both levels.

    With `F_star`, draw the distance of F to `F_star` instead, on a logarithmic scale.
    """
    figure, axes = _figure(1, 1, (5.5, 3.6))
    _draw_convergence(axes[0][0], results, F_star)
    return figure


def _draw_convergence(ax: Any, results: Mapping[str, Result], F_star: float | None) -> None:
    for name, result in results.items():
        if not result.history and not math.isfinite(result.F):
            raise ValueError(f"{name} has nothing to show: it ended before F had a value")
        evaluations = [row.nfev_upper + row.nfev_lower for row in result.history] or [result.nfev]
        F = np.array([row.F for row in result.history] or [result.F])
        shown = F if F_star is None else np.abs(F - F_star)
        marker = "o" if len(shown) <= FEW else ""  # a line of one point is invisible
        ax.step(evaluations, shown, where="post", marker=marker, markersize=3, label=name)
    if F_star is not None:
        ax.set_yscale("log")
    ax.set_xlabel("evaluations of both levels")
    ax.set_ylabel("F of the elite" if F_star is None else "|F - F*| of the elite")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)


def allocation(results: Mapping[str, Result]) -> Figure:
    """Draw how often each task was executed in an early, a middle and a late generation.

    A task is the follower's search for one leader. It survives if its pair is in the better half,
    which updates the upper level. Survivors are coloured.
    """
    return draw_stages([(name, _stages_of(name, result)) for name, result in results.items()])


def _stages_of(name: str, result: Result) -> list[Stage]:
    if not result.history:
        raise ValueError(f"{name} has no generation to show: it ended in its first one")
    rows = result.history.generations
    executions, survived = [row.executions for row in rows], [row.survived for row in rows]
    return stages(result.history.numbers, executions, survived)


def draw_stages(shown: Sequence[tuple[str, Sequence[Stage]]]) -> Figure:
    """Draw a row of bar charts for each name, each row on its own scale."""
    figure, axes = _figure(len(shown), len(STAGES), (8.0, 1.2 + 1.7 * len(shown)))
    for row, (name, found) in zip(axes, shown, strict=True):
        _draw_stages(row, found)
        row[0].set_ylabel(fill(name, 16), parse_math=False)
    figure.legend(*_meanings(axes[0][0]), loc="outside upper center", ncols=2, **SMALL)
    figure.supylabel("executions", fontsize=9)
    return figure


def _draw_stages(row: Sequence[Any], found: Sequence[Stage]) -> None:
    for ax, stage in zip(row, found, strict=True):
        tasks = np.arange(1, len(stage.executions) + 1)
        colours = [SURVIVED if survived else DROPPED for survived in stage.survived]
        ax.bar(tasks, stage.executions, color=colours)
        ax.set_title(f"{stage.name} (generation {stage.generation})", fontsize=9)
        ax.set_xticks(task_ticks(len(tasks)))
        ax.set_xlabel("task")
        ax.spines[["top", "right"]].set_visible(False)
    row[0].locator_params(axis="y", integer=True, nbins=5)


def _meanings(ax: Any) -> tuple[list[Any], tuple[str, str]]:
    """Return the bars and the texts of a legend."""
    bars = [ax.bar(1, 0, color=colour) for colour in (SURVIVED, DROPPED)]
    return bars, ("in the better half: updates the leader", "dropped")


def landscape(problem: Problem, result: Result | None = None, points: int | None = None) -> Figure:
    """Draw F(x, y*(x)) over x, where y*(x) is the follower's answer, for one or two variables x.

    One variable gives a curve, two give a heat map. A star marks the result. If the star is off the
    curve, the follower was not solved there. If y is one variable, a second picture shows y*(x). If
    x is one variable too, the second picture also shows f(x, y), so it needs an f that is known. If
    several answers are equally good for the follower, one of them is shown, which need not be the
    best for the leader.

    The grid has `points` points per side: by default 121, or 25 for two variables. At each point F
    is evaluated once and the follower is solved. To solve it takes 50 to 200 evaluations of f per
    variable of y. It takes only 1 if the problem's `response` is known. If the problem has its own
    solver, it takes one search by that solver. A picture of f takes 121 more evaluations of f for
    each x of the grid.
    """
    from bilevo.verification.landscape import survey  # imported here, as few calls need it

    found = survey(problem, points)
    draw = _draw_curves if problem.m == 1 else _draw_maps
    figure = draw(problem, found, result)
    figure.suptitle(problem.name, fontsize=10, parse_math=False)
    return figure


def _draw_curves(problem: Problem, found: Landscape, result: Result | None) -> Figure:
    """Draw F over one variable; if y is one number and f is known, draw f and y*(x) too."""
    both = problem.n == 1 and problem.f_is_known
    figure, axes = _figure(1 + both, 1, (5.5, 5.6 if both else 3.4))
    x, upper = found.axes[0], axes[0][0]
    outside = (found.violation > 0) & (found.lower_violation == 0)
    if outside.any():
        style = {"color": DROPPED, "label": "the leader's constraints are violated"}
        upper.plot(x, np.where(found.lower_violation == 0, found.F, np.nan), ":", **style)
    upper.plot(x, found.on_grid(found.F), ".-", markersize=3, linewidth=1, color=SURVIVED)
    upper.set_ylabel("F(x, y*(x))")
    if result is not None:
        upper.plot(result.x, [result.F], **ANSWER, linestyle="", label="the result")
    if outside.any() or result is not None:
        upper.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, **SMALL)
    if both:
        axes[1][0].sharex(upper)
        _draw_follower(axes[1][0], problem, found, result)
    axes[-1][0].set_xlabel("x")
    return figure


def _draw_follower(ax: Any, problem: Problem, found: Landscape, result: Result | None) -> None:
    from bilevo.verification.landscape import follower_view

    y, f = follower_view(problem, found.axes[0])
    _shade(ax, found.axes[0], y, f, "f(x, y)")
    answers = np.where(found.lower_violation == 0, found.y[:, 0], np.nan)
    dots = {"color": "white", "markeredgecolor": "black", "markeredgewidth": 0.4, "markersize": 3}
    ax.plot(found.axes[0], answers, "o", **dots, label="y*(x)")
    if result is not None:
        ax.plot(result.x, result.y, **ANSWER, linestyle="")
    ax.legend(fontsize=9)
    ax.set_ylabel("y")


def _draw_maps(problem: Problem, found: Landscape, result: Result | None) -> Figure:
    """Draw F over two variables; if y is one number, draw the follower's answer too."""
    shown = {"F(x, y*(x))": found.F}
    if problem.n == 1:
        shown["y*(x)"] = found.y[:, 0]
    figure, axes = _figure(1, len(shown), (5.2 * len(shown), 4.2))
    for ax, (name, values) in zip(axes[0], shown.items(), strict=True):
        _shade(ax, found.axes[0], found.axes[1], found.on_grid(values).T, name)
        if result is not None:
            ax.plot(*result.x[:, None], **ANSWER, linestyle="")
        ax.set_xlabel("x[0]")
    axes[0][0].set_ylabel("x[1]")
    return figure


def _shade(ax: Any, x: FloatArray, y: FloatArray, values: FloatArray, name: str) -> None:
    """Draw a heat map of values (len(y), len(x)), grey where they are NaN.

    Every shade covers an equal share of the points, so that basins are visible at any scale.
    """
    from matplotlib.colors import BoundaryNorm

    finite = values[np.isfinite(values)]
    shares = np.linspace(0, 1, SHADES + 1)
    limits: FloatArray = np.unique(np.quantile(finite, shares)) if finite.size else finite
    norm = BoundaryNorm(limits, 256) if len(limits) > 2 else None
    mesh = ax.pcolormesh(x, y, values, norm=norm, shading="nearest", rasterized=True)
    ticks = limits[:: SHADES // 6] if norm else None
    ax.figure.colorbar(mesh, ax=ax, ticks=ticks, format="%.4g")
    ax.set_facecolor(DROPPED)
    grey = "" if np.isfinite(values).all() else "; grey: a constraint is violated"
    ax.set_title(name + grey, fontsize=9)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, without dates and random names.

    So the same picture always gives the same file.
    """
    from matplotlib import rc_context

    path = Path(path)
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    settings: dict[Any, Any] = {"svg.hashsalt": path.name, "svg.fonttype": "none"}
    with rc_context({**settings, "pdf.fonttype": 42}):  # text that can be searched and edited
        figure.savefig(path, metadata=dates.get(path.suffix), dpi=300)
