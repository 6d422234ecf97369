"""The pictures of the README: `python docs/make_pictures.py`."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

import bilevo
from bilevo import plot

FOLDER = Path(__file__).parent / "pictures"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    problem = bilevo.problems.get("smd1")
    results = {
        method: bilevo.minimize(problem, method=method, rng=1)
        for method in ("bl-cma-es", "drc-cma-es")
    }
    save(plot.allocation(results), "allocation.svg")
    save(plot.convergence(results, F_star=0.0), "convergence.svg")


def save(figure: Figure, name: str) -> None:
    """The same picture is the same file: no date, no random identifiers."""
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(FOLDER / name, metadata={"Date": None})


if __name__ == "__main__":
    main()
