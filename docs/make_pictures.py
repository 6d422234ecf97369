"""Draw the pictures of the README and of the pages: `python docs/make_pictures.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import bilevo
from bilevo import plot
from bilevo.core.result import Generation
from bilevo.lab.bench import bench
from bilevo.lab.choices import Which
from bilevo.lab.show.figures import draw

PICTURES = Path(__file__).parent / "pictures"
DATA = Path(__file__).parent / "data"
PLANS = Path(__file__).parents[1] / "plans"
THUMBNAIL = (360, 240)  # The largest size of a picture in the gallery, in pixels.
GALLERY = ("electricity", "gold_mining", "pricing", "roads", "tolls_nine_nodes_landscape", "tuning")
METHODS = {"bl-cma-es": "BL-CMA-ES: each to its end", "drc-cma-es": "DRC-CMA-ES: they compete"}
ALLOCATED = "drc-cma-es,bl-cma-es,tlea-cma-es"  # The methods in the paper's picture.

# Sizes (in pixels) and times (in seconds) of the animation.
WIDTH, HEIGHT, BASE, UNIT, BAR = 640, 300, 250, 10, 22
LOOP, GROWING, CHOOSING = 12.0, 8.0, 9.0


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    problem = bilevo.problems.get("smd1")
    results = {method: bilevo.minimize(problem, method=method, rng=1) for method in METHODS}
    plot.save(plot.allocation(results), PICTURES / "allocation.svg")
    plot.save(plot.convergence(results, F_star=0.0), PICTURES / "convergence.svg")
    shop = wholesale()
    plot.save(plot.landscape(shop, bilevo.minimize(shop)), PICTURES / "wholesale.svg")
    plot.save(tie(), PICTURES / "tie.svg")
    plot.save(idea(), PICTURES / "idea.svg")
    plot.save(weights(), PICTURES / "weights.svg")
    plot.save(paper_allocation(), PICTURES / "paper_allocation.svg")
    plot.save(paper_times(), PICTURES / "paper_times.svg")
    shown = {title: first_generation(problem, method) for method, title in METHODS.items()}
    (PICTURES / "competition.svg").write_text(animation(shown), encoding="utf-8")
    for name in GALLERY:
        thumbnail(name)


def thumbnail(name: str) -> None:
    """Make the small copy of an example's picture that the gallery shows, on white ground."""
    small = Image.open(PICTURES / f"{name}.png").convert("RGB")
    small.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
    ground = Image.new("RGB", THUMBNAIL, "white")
    ground.paste(small, ((THUMBNAIL[0] - small.width) // 2, (THUMBNAIL[1] - small.height) // 2))
    ground.quantize(64).save(PICTURES / f"small_{name}.png", optimize=True)


def wholesale() -> bilevo.Problem:
    """Make the problem of the practitioner's tutorial."""
    return bilevo.Problem(
        lambda x, y: -(x[0] - 10) * (100 - 2 * y[0]),
        lambda x, y: -(y[0] - x[0]) * (100 - 2 * y[0]),
        [(10, 50)],
        [(10, 50)],
        name="wholesale",
    )


def idea() -> Figure:
    """Draw the problem of the landing page: what the leader wants, and what the follower allows."""
    problem = bilevo.Problem(
        lambda x, y: (x[0] - 3) ** 2 + (y[0] - 1) ** 2,
        lambda x, y: (y[0] - x[0]) ** 2 + 0.1 * y[0],
        [(-5, 10)],
        [(-5, 10)],
    )
    result = bilevo.minimize(problem)
    figure = Figure(figsize=(6.2, 4.2), layout="constrained")
    ax = figure.subplots()
    x, y = np.meshgrid(np.linspace(0, 5.4, 200), np.linspace(-0.4, 3.6, 200))
    F = (x - 3) ** 2 + (y - 1) ** 2
    ax.contour(x, y, F, levels=result.F * np.array([0.3, 1, 2.4]), colors="#c4cad4")
    ax.plot([0, 3.65], [-0.05, 3.6], color=plot.SURVIVED, linewidth=2.5)
    style = {"arrowstyle": "->", "color": plot.SURVIVED, "linewidth": 1.5, "linestyle": "--"}
    ax.annotate("", (3, 2.9), (3, 1.15), arrowprops=style)
    ax.plot(3, 1, "*", color="#b5651d", markersize=16)
    ax.plot(*result.x, *result.y, "o", color="black", markersize=9)
    words = {"size": 12.5, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5}}
    green = {"color": plot.SURVIVED, **words}
    ax.text(3.75, 3.05, "the follower's\nanswer to each x", **green)
    ax.text(3.12, 1.85, "with x = 3, the follower\nwould go up to the line", **green)
    ax.text(3.2, 0.95, "what the leader\nwould like", color="#b5651d", va="center", **words)
    ax.text(1.8, 2.15, "the best that the\nleader can get", ha="right", **words)
    ax.set_xlabel("x, chosen by the leader", size=12.5)
    ax.set_ylabel("y, chosen by the follower", size=12.5)
    ax.set_aspect("equal")
    ax.set_xlim(0, 5.4)
    ax.set_ylim(-0.4, 3.6)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def weights() -> Figure:
    """Draw what the settings of DRC-CMA-ES do, from the stored runs."""
    paths = [DATA / "runs_weights.csv", DATA / "runs_2_3.csv"]
    return draw("sensitivity", *Which().runs_and_history(paths))


def paper_allocation() -> Figure:
    """Draw what the DRC paper draws of SMD1: the run of median cost of three methods."""
    with TemporaryDirectory() as place:
        folder, plan = Path(place) / "runs", PLANS / "paper.toml"
        bench(plan, problems="smd1", dim=("2,3",), methods=ALLOCATED, out=folder, progress=False)
        return draw("allocation", *Which().runs_and_history([folder]))


def paper_times() -> Figure:
    """Draw the processor time of the stored runs with thirty variables at each level."""
    return draw("runtime", *Which().runs_and_history([DATA / "runs_30_30.csv"]))


def tie() -> Figure:
    """Draw F over x for the two answers of an indifferent follower, and what both leaders risk."""
    figure = Figure(figsize=(5.5, 3.4), layout="constrained")
    ax = figure.subplots()
    x = np.linspace(0, 2.2, 1000)
    kind, unkind = (x - 1) ** 2 - np.sqrt(x), (x - 1) ** 2 + np.sqrt(x)
    ax.fill_between(x, kind, unkind, color="#888888", alpha=0.12, linewidth=0)
    for F, name, colour in (
        (kind, "optimistic: y = -sqrt(x)", plot.SURVIVED),
        (unkind, "pessimistic: y = +sqrt(x)", "#b5651d"),
    ):
        best = int(F.argmin())
        ax.plot(x, F, color=colour, label=name)
        ax.plot([x[best]] * 2, [kind[best], unkind[best]], ":", color=colour)
        ax.plot(x[best], F[best], "o", color=colour)
        other = unkind if F is kind else kind
        for value in (F[best], other[best]):
            ax.annotate(f"{value:.2f}", (x[best], value), (5, 6), textcoords="offset points")
        ax.annotate(f"x = {x[best]:.2f}", (x[best], 0.05), (5, 0), textcoords="offset points")
    ax.set_xlabel("x")
    ax.set_ylabel("F(x, y)")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def first_generation(problem: bilevo.Problem, method: str) -> tuple[list[int], Generation]:
    """Return which task ran in each execution, and how the generation ended.

    A lower batch has points of one or more tasks. A task is recognized by its leader's x.
    """
    optimizer = bilevo.Optimizer(problem, method=method, rng=1)
    leaders: dict[bytes, int] = {}
    executed: list[int] = []
    while optimizer.result.nit == 0:
        batch = optimizer.ask()
        rows = [leaders.setdefault(x.tobytes(), len(leaders)) for x in batch.x]
        if batch.level == "lower":
            executed += sorted(set(rows))
        F, _, f, _ = problem.evaluate(batch.x, batch.y)
        optimizer.tell(batch, F if batch.level == "upper" else f)
    row = optimizer.result.history[0]
    competed = executed[: sum(row.executions)]  # later executions are refinement
    assert tuple(map(competed.count, range(len(leaders)))) == row.executions
    return competed, row


def animation(shown: dict[str, tuple[list[int], Generation]]) -> str:
    """Return an SVG with a panel for each method, in which executions appear one by one."""
    longest = max(len(executed) for executed, _ in shown.values())
    panels = [
        panel(title, 20 + i * WIDTH // 2, executed, row.survived, longest)
        for i, (title, (executed, row)) in enumerate(shown.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            f' width="{WIDTH}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *panels,
            "</svg>\n",
        ]
    )


def panel(
    title: str, left: int, executed: Sequence[int], survived: Sequence[bool], longest: int
) -> str:
    """Return the panel of a method: a column of blocks for each task, a block per execution."""
    lines = [f'<text x="{left}" y="20" font-weight="bold">{title}</text>']
    height = [0] * len(survived)
    for number, task in enumerate(executed, 1):
        height[task] += 1
        place = f'x="{left + task * (BAR + 10)}" y="{BASE - height[task] * UNIT}"'
        colour = plot.SURVIVED if survived[task] else plot.DROPPED
        lines.append(
            f'<rect {place} width="{BAR}" height="{UNIT - 1}" fill="{colour}">'
            f"{switched('opacity', '0', '1', GROWING * number / longest)}"
            f"{switched('fill', '#8fb4d9', colour, CHOOSING)}</rect>"
        )
    lines += [
        f'<text x="{left + task * (BAR + 10) + BAR / 2}" y="{BASE + 15}"'
        f' text-anchor="middle">{task + 1}</text>'
        for task in range(len(survived))
    ]
    lines.append(f'<text x="{left}" y="{BASE + 37}">{len(executed)} executions in all</text>')
    return "\n".join(lines)


def switched(attribute: str, before: str, after: str, time: float) -> str:
    """Return an SVG attribute that changes at a time, in a loop; still pictures show `after`."""
    return (
        f'<animate attributeName="{attribute}" values="{before};{after}" calcMode="discrete"'
        f' keyTimes="0;{time / LOOP:.4f}" dur="{LOOP}s" repeatCount="indefinite"/>'
    )


if __name__ == "__main__":
    main()
