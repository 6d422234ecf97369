"""Draw the pictures of docs/literature.md: data profiles, and followers with two branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bilevo
from benchmarks.literature import METHODS, NEAR, NEARER, Row
from bilevo import plot
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COLOURS = dict(zip(METHODS, ("#2a7f62", "#b5651d", "#7f7f7f"), strict=True))
TRUE, LOCAL, SEEN = "#2a7f62", "#c9c9c9", "#0072B2"
# The problems whose followers are drawn, and the part of y that is shown.
BRANCHES = {
    "mitsosbarton2006ex320": (-1.1, 1.1),
    "paulaviciusadjiman2017a": (-1.1, 1.1),
    "vogel2012": (-3.2, 2.2),
}
RING: dict[str, Any] = {"marker": "o", "markersize": 15, "color": "black", "fillstyle": "none"}
RING["linestyle"] = "none"
GRID = (1201, 4001)  # The numbers of x and of y of a grid.
TIE = 1e-6  # On the grid, answers tie if f differs by this share of the range of f.


def draw_all(rows: Sequence[Row]) -> None:
    """Draw all pictures; those of followers need a run each."""
    plot.save(profiles(rows), PICTURES / "literature_profile.svg")
    for name in BRANCHES:
        plot.save(branches(name), PICTURES / f"literature_{name}.svg")


def profiles(rows: Sequence[Row]) -> Figure:
    """Draw the share of runs with a hit, against evaluations divided by m + n + 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.3), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    known = [row for row in rows if not np.isnan(row.F_star)]
    most = max((row.nfev / (row.m + row.n + 1) for row in known), default=1.0)
    for ax, tolerance in zip(axes, (NEAR, NEARER), strict=True):
        for method in METHODS:
            some = [row for row in known if row.method == method]
            if some:
                ax.step(*profile(some, tolerance, most), color=COLOURS[method], label=method)
        ax.set(xscale="log", xlim=(10, most), ylim=(0, 1), title=f"within {tolerance:g} of F*")
        ax.set_xlabel("evaluations / (m + n + 1)")
        clean(ax)
    axes[0].set_ylabel("share of the runs")
    axes[0].legend(frameon=False, loc="upper left")
    return figure


def profile(rows: Sequence[Row], tolerance: float, most: float) -> tuple[list[float], list[float]]:
    """Return the steps of a profile: evaluations in units of m + n + 1, and shares."""
    hits = [(row.evaluations_to(tolerance), row.m + row.n + 1) for row in rows]
    costs = sorted(cost / size for cost, size in hits if cost is not None)
    shares = [number / len(rows) for number in range(len(costs) + 1)]
    # Each share holds from the left end of its step; `step` draws it up to the next cost.
    return [*costs, most], shares


@dataclass(frozen=True, slots=True)
class Landscape:
    """The follower's answers on a grid of x, and the leader's best F among the global ones."""

    best: tuple[FloatArray, FloatArray]  # x and y of the global answers
    local: tuple[FloatArray, FloatArray]  # x and y of other local minima
    x: FloatArray
    phi: FloatArray  # NaN where no answer is feasible for the leader


def landscape(problem: Problem, grid: tuple[int, int] = GRID) -> Landscape:
    """Compute all local minima of f over y, for a problem with one x and one y."""
    xs = np.linspace(problem.x_bounds.lower[0], problem.x_bounds.upper[0], grid[0])
    ys = np.linspace(problem.y_bounds.lower[0], problem.y_bounds.upper[0], grid[1])
    best: list[tuple[float, float]] = []
    local: list[tuple[float, float]] = []
    phi = np.full(len(xs), np.nan)
    for i, x in enumerate(xs):
        F, G, f, g = problem.evaluate(np.full((len(ys), 1), x), ys[:, None])
        met = (g <= 1e-12).all(axis=1)
        if not met.any():
            continue
        lowest = f[met].min()
        feasible_f = np.where(met, f, np.inf)
        beside = np.pad(feasible_f, 1, constant_values=np.inf)
        minima = met & (feasible_f <= beside[:-2]) & (feasible_f <= beside[2:])
        answers = minima & (f <= lowest + TIE * max(np.ptp(f[met]), 1e-300))
        best += [(x, y) for y in ys[answers]]
        local += [(x, y) for y in ys[minima & ~answers]]
        allowed = answers & (G <= 1e-12).all(axis=1)
        if allowed.any():
            phi[i] = F[allowed].min()
    return Landscape(columns(best), columns(local), xs, phi)


def columns(points: Sequence[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    table = np.array(points, float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def seen_by_a_run(problem: Problem, seed: int = 1) -> tuple[FloatArray, bilevo.Result]:
    """Run drc-plus; return x, y and F of all upper evaluations (k, 3), and the result."""
    seen: list[FloatArray] = []

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        values = problem.F(x, y)
        seen.append(np.column_stack([x[:, 0], y[:, 0], values]))
        return np.asarray(values)

    watched = Problem(
        F,
        problem.f,
        problem.x_bounds,
        problem.y_bounds,
        problem.G,
        problem.g,
        vectorized=True,
        name=problem.name,
    )
    result = bilevo.minimize(watched, method=METHODS[0], rng=seed)
    return np.concatenate(seen), result


def branches(name: str, grid: tuple[int, int] = GRID) -> Figure:
    """Draw the follower's answers over x, and phi below; dots are the pairs that a run saw."""
    from matplotlib.figure import Figure

    problem = bilevo.problems.get(name)
    true = landscape(problem, grid)
    seen, result = seen_by_a_run(problem)
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    dots = {"color": SEEN, "s": 9, "alpha": 0.45, "linewidths": 0, "zorder": 3}
    line = {"s": 2.0, "linewidths": 0, "rasterized": True}
    upper.scatter(*true.local, color=LOCAL, label="other local minima of f", **line)
    upper.scatter(*true.best, color=TRUE, label="global minima of f: y*(x)", **line)
    upper.scatter(seen[:, 0], seen[:, 1], label="pairs that the run evaluated", **dots)
    upper.set(ylabel="y", ylim=BRANCHES.get(name))
    lower.scatter(true.x, true.phi, color=TRUE, label="phi(x) = F(x, y*(x))", **line)
    lower.scatter(seen[:, 0], seen[:, 2], **dots)
    lower.set(xlabel="x", ylabel="F")
    finite = true.phi[np.isfinite(true.phi)]
    room = 0.08 * np.ptp(finite) if np.ptp(finite) > 0 else 1.0
    lower.set_ylim(min(finite.min(), result.F) - room, finite.max() + room)
    mark_optimum(problem, upper, lower)
    lower.plot(*result.x, result.F, label="the run's answer", **RING)
    upper.plot(*result.x, *result.y, **RING)
    for ax in (upper, lower):
        clean(ax)
        legend = ax.legend(frameon=False, fontsize=8, loc="best")
        for handle in legend.legend_handles:
            if hasattr(handle, "set_sizes"):
                handle.set_sizes([16])
    upper.set_title(f"{name}: {result.nfev_upper} upper and {result.nfev_lower} lower evaluations")
    return figure


def mark_optimum(problem: Problem, upper: Axes, lower: Axes) -> None:
    best = problem.optimum
    if best is not None and best.x is not None and best.y is not None:
        star: dict[str, Any] = {**plot.ANSWER, "linestyle": "none", "zorder": 5}
        upper.plot(*best.x, *best.y, **star)
        lower.plot(*best.x, best.F, label="optimum", **star)


def clean(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#eeeeee", linewidth=0.6)
    ax.set_axisbelow(True)
