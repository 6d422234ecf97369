"""The pictures of the README: `python docs/make_pictures.py`."""

from pathlib import Path

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
    plot.save(plot.allocation(results), FOLDER / "allocation.svg")
    plot.save(plot.convergence(results, F_star=0.0), FOLDER / "convergence.svg")


if __name__ == "__main__":
    main()
