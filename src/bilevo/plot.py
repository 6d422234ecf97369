"""Pictures of results: how a run converges, and who got its evaluations.

Needs matplotlib (`pip install 'bilevo[plot]'`). Functions return a matplotlib figure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevo.core.extras import need
from bilevo.core.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURVIVED, DROPPED = "#2a7f62", "#c9c9c9"
TICKS = 8  # at most, of tasks: more would be printed over each other
STAGES = {"early": 0.0, "middle": 0.4, "late": 0.8}  # of a run's generations: the DRC paper's


@dataclass(frozen=True, slots=True)
class Stage:
    """How the tasks of one generation fared."""

    name: str
    generation: int
    executions: Sequence[int]
    survived: Sequence[bool]


def stages(
    numbers: Sequence[int],
    executions: Sequence[Sequence[int]],
    survived: Sequence[Sequence[bool]],
) -> list[Stage]:
    """An early, a middle and a late generation of those that a history has kept, by number."""
    found = []
    for name, share in STAGES.items():
        row = bisect_left(numbers, math.ceil(share * numbers[-1]))
        found.append(Stage(name, numbers[row], executions[row], survived[row]))
    return found


def task_ticks(count: int) -> list[int]:
    """Which of so many tasks an axis names, beginning with the first."""
    return list(range(1, count + 1, -(-count // TICKS) or 1))


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = need("pictures", "matplotlib.figure", "plot").Figure(
        figsize=size, layout="constrained"
    )
    return figure, figure.subplots(rows, columns, squeeze=False, sharey="row")


def convergence(results: Mapping[str, Result], F_star: float | None = None) -> Figure:
    """The elite's F, or its distance to `F_star`, over the evaluations of both levels."""
    figure, axes = _figure(1, 1, (5.5, 3.6))
    ax = axes[0][0]
    for name, result in results.items():
        evaluations = [row.nfev_upper + row.nfev_lower for row in result.history]
        F = np.array([row.F for row in result.history])
        ax.step(evaluations, F if F_star is None else np.abs(F - F_star), where="post", label=name)
    if F_star is not None:
        ax.set_yscale("log")
    ax.set_xlabel("evaluations of both levels")
    ax.set_ylabel("F of the elite" if F_star is None else "|F - F*| of the elite")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def allocation(results: Mapping[str, Result]) -> Figure:
    """Executions of each task in an early, a middle and a late generation; survivors coloured.

    A task is the follower's search of one leader. It survives when its pair is among the better
    half, which updates the upper level.
    """
    shown = []
    for name, result in results.items():
        if not result.history:
            raise ValueError(f"{name} has no generation to show: it ended in its first one")
        rows = result.history.generations
        executions, survived = [row.executions for row in rows], [row.survived for row in rows]
        shown.append((name, stages(result.history.numbers, executions, survived)))
    return draw_stages(shown)


def draw_stages(shown: Sequence[tuple[str, Sequence[Stage]]]) -> Figure:
    """A row of bar charts for each name, with a scale of its own: methods differ by far."""
    figure, axes = _figure(len(shown), len(STAGES), (8.0, 1.2 + 1.7 * len(shown)))
    for row, (name, found) in zip(axes, shown, strict=True):
        for ax, stage in zip(row, found, strict=True):
            tasks = np.arange(1, len(stage.executions) + 1)
            colours = [SURVIVED if survived else DROPPED for survived in stage.survived]
            ax.bar(tasks, stage.executions, color=colours)
            ax.set_title(f"{stage.name} (generation {stage.generation})", fontsize=9)
            ax.set_xticks(task_ticks(len(tasks)))
            ax.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(fill(name, 16), parse_math=False)
        row[0].locator_params(axis="y", integer=True, nbins=5)
    handles = [axes[0][0].bar(1, 0, color=colour) for colour in (SURVIVED, DROPPED)]
    labels = ("in the better half: updates the leader", "dropped")
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    figure.supylabel("executions", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("task")
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure: the same picture is the same file, without dates and random identifiers."""
    from matplotlib import rc_context

    path = Path(path)
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    settings: dict[Any, Any] = {"svg.hashsalt": path.name, "svg.fonttype": "none"}
    with rc_context({**settings, "pdf.fonttype": 42}):  # text that can be searched and edited
        figure.savefig(path, metadata=dates.get(path.suffix), dpi=300)
