"""Make the tables and the picture of docs/roads.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

import bilevo
from benchmarks.roads import PROBLEMS, read, table
from bilevo.core.arrays import FloatArray
from bilevo.followers import Equilibrium
from bilevo.lab.show.documents import filled, marked
from bilevo.lab.show.formats import Lines, show
from bilevo.problems import roads

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DATA = DOCS / "roads.md", DOCS / "data" / "roads.csv"
PICTURE = DOCS / "pictures" / "roads.png"
MARKED = marked(r"([\w-]+)")
BELOW = 0.005  # a published F that is lower than the best known F by more cannot be attained

# Published results: F of the three problems, and equilibria. None: no value is known to us.
PUBLISHED: dict[str, tuple[tuple[float | None, ...], str]] = {
    "H-J, Hooke and Jeeves (1979)": ((215.08, 557.22, 81.25), "54, 134, 58"),
    "IOA, in turns (1974)": ((210.86, 556.61, None), ""),
    "EDO, decomposition (1987)": ((201.84, 540.74, 83.47), "10, 12, 12"),
    "SA, simulated annealing (1992)": ((198.10, 528.50, 80.87), "18,300, 24,300, 3,900"),
    "SAB, sensitivities (1990)": ((204.7, None, 84.2), "about 10, with derivatives"),
    "GP, gradient projection (2005)": ((202.24, 534.02, 82.7), "about 10, with derivatives"),
    "CG, conjugate gradients (2005)": ((199.27, 534.11, 82.5), "about 10, with derivatives"),
    "PMILP, integer programs (2010)": ((199.63, 523.63, None), ""),
    "LMILP, integer programs (2011)": ((None, 522.71, None), ""),
    "PSCP, EBA (2025)": ((None, None, 80.75), ""),
}
ORDER = ("roads-16-i", "roads-16-ii", "roads-sf")

# Places of the 24 nodes of Sioux Falls in the usual drawing.
COLUMNS = {1: 0, 3: 0, 12: 0, 13: 0, 4: 1, 11: 1, 14: 1, 23: 1, 24: 1, 5: 2, 9: 2, 10: 2, 15: 2}
COLUMNS |= {22: 2, 21: 2, 2: 3, 6: 3, 8: 3, 16: 3, 17: 3, 19: 3, 20: 3, 7: 4, 18: 4}
LEVELS = ((1, 2), (3, 4, 5, 6), (9, 8, 7), (12, 11, 10, 16, 18), (17,), (14, 15, 19), (23, 22))
ROWS = {node: -row for row, nodes in enumerate((*LEVELS, (13, 24, 21, 20))) for node in nodes}


def make() -> None:
    """Write the tables and the picture of the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tables(text), encoding="utf-8")
    PICTURE.parent.mkdir(exist_ok=True)
    picture().savefig(PICTURE, dpi=130)


def with_tables(text: str) -> str:
    """Return the page with its tables replaced."""
    rows = read(DATA)
    tables = {"published": published(), **{name: table(rows, name) for name in PROBLEMS}}
    tables["best"] = best_values()
    return filled(text, MARKED, lambda name: show(tables[name], markdown=True), like="published")


def published() -> Lines:
    """Return published values; one that is below the best known F is marked."""
    lines = [["method", *ORDER, "equilibria"]]
    for method, (values, equilibria) in PUBLISHED.items():
        cells = []
        for name, value in zip(ORDER, values, strict=True):
            low = value is not None and value < roads.BEST[name].F - BELOW
            cells.append("" if value is None else f"{value}{' (!)' if low else ''}")
        lines.append([method, *cells, equilibria])
    best = (f"**{roads.BEST[name].F:.4f}**" for name in ORDER)
    return [*lines, ["best known here", *best, "see below"]]


def best_values() -> Lines:
    """Return F without new capacity and the best known F of each problem."""
    lines = [["problem", "nothing built", "best known", "saved"]]
    for name, (best, _) in roads.BEST.items():
        problem = bilevo.problems.get(name)
        nothing = total(problem, np.zeros(problem.m))
        lines.append([name, f"{nothing:.4f}", f"{best:.4f}", f"{1 - best / nothing:.0%}"])
    return lines


def total(problem: bilevo.Problem, x: FloatArray) -> float:
    """Return F at the equilibrium of x."""
    assert isinstance(problem.follower, Equilibrium)
    return float(problem.F(x[None], problem.follower.settle(x).flow[None])[0])


def picture() -> Figure:
    """Draw Sioux Falls without new capacity and with the best known one."""
    figure = Figure(figsize=(10.4, 6.6), layout="constrained")
    problem = bilevo.problems.get("roads-sf")
    colours = LinearSegmentedColormap.from_list(
        "slow", ["#b9c7d6", "#e8b04a", "#c0392b", "#5b0f14"]
    )
    scale = ScalarMappable(Normalize(1.0, 6.0), colours)
    axes = figure.subplots(1, 2)
    best = np.array(roads.BEST["roads-sf"].x)
    for ax, x, title in zip(
        axes, (np.zeros(10), best), ("Nothing built", "Best known"), strict=True
    ):
        draw(ax, problem, x, scale)
        F, cost = total(problem, x), float(problem.F(x[None], np.zeros((1, problem.n)))[0])
        words = f"{title}: F = {F:.2f}" + (
            f" ({F - cost:.2f} time, {cost:.2f} cost)" if cost else ""
        )
        ax.set_title(words, loc="left", fontsize=12)
    bar = figure.colorbar(scale, ax=axes, shrink=0.6, pad=0.01, extend="max")
    bar.set_label("time on the road / time when it is empty")
    bar.outline.set_visible(False)
    return figure


def draw(ax: Any, problem: bilevo.Problem, x: FloatArray, scale: ScalarMappable) -> None:
    """Draw the network: lines as wide as flows, with each capacity that is added."""
    drivers, content = problem.follower, roads.network("roads-sf")
    assert isinstance(drivers, Equilibrium)
    state = drivers.settle(x)
    slowness = state.time / state.times.at(np.zeros_like(state.flow))
    added = dict(zip((row[0] - 1 for row in content["candidates"]["list"]), x, strict=True))
    for a, (tail, head, *_) in enumerate(content["links"]):
        begin, end = np.array(place(tail)), np.array(place(head))
        along = (end - begin) / np.hypot(*(end - begin))
        across = np.array([along[1], -along[0]])  # drivers keep to the right
        begin, end = begin + 0.15 * along, end - 0.15 * along
        if a in added:
            candidate(ax, begin, end, across, float(added[a]))
        ends = zip(begin + 0.055 * across, end + 0.055 * across, strict=True)
        width, colour = 1.0 + 4.0 * state.flow[a] / 25, scale.to_rgba(slowness[a])
        ax.plot(*ends, color=colour, lw=width, solid_capstyle="butt")
    for node in COLUMNS:
        ax.text(*place(node), str(node), ha="center", va="center", fontsize=8.5, color="#333333")
    ax.set_aspect("equal")
    ax.set_xlim(-0.4, 4.4)
    ax.set_ylim(-5.95, 0.25)
    ax.axis("off")


def candidate(
    ax: Any, begin: FloatArray, end: FloatArray, across: FloatArray, added: float
) -> None:
    """Mark one side of a road that may be widened, and say by how much it is."""
    corners = [begin, end, end + 0.13 * across, begin + 0.13 * across]
    ax.fill(*zip(*corners, strict=True), color="#bfe3cd", lw=0, zorder=0)
    if added > 0:
        beside = (begin + end) / 2 + (0.16 + 0.13 * abs(across[0])) * across
        look = {"ha": "center", "va": "center", "fontsize": 9, "color": "#17603a"}
        beside += 0.04 * across + np.array([0.18 * abs(across[1]), 0.0])  # beside other roads
        ax.text(*beside, f"+{added:.1f}", **look)


def place(node: int) -> tuple[float, float]:
    return float(COLUMNS[node]), 0.8 * ROWS[node]
