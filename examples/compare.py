"""The default against DRC- and BL-CMA-ES: what an answer costs, and whether it holds up."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

import bilevo

SEED = 1


def main() -> None:
    for name in ("smd1", "gold-mining"):
        problem = bilevo.problems.get(name)
        best = None if problem.optimum is None else problem.optimum.F
        title = f"{name}: m={problem.m}, n={problem.n}, F* {'unknown' if best is None else best}"
        table = Table(title=title, title_justify="left")
        columns = ["F", "verified F"] if best is None else ["|F - F*|", "verified"]
        for column in ("method", "upper", "lower", *columns, "follower gap", "time"):
            table.add_column(column, justify="left" if column == "method" else "right")
        for method in ("drc-plus", "drc-cma-es", "bl-cma-es"):
            result = bilevo.minimize(problem, method=method, rng=SEED)
            certificate = bilevo.verify(problem, result)
            values = (result.F, certificate.F)
            shown = [f"{F:.4f}" if best is None else f"{abs(F - best):.1e}" for F in values]
            table.add_row(
                method,
                f"{result.nfev_upper:,}",
                f"{result.nfev_lower:,}",
                *shown,
                f"{certificate.follower_gap:.1e}",
                f"{result.time:.2f} s",
            )
        Console(file=sys.stdout).print(table)
    print(
        "upper and lower are evaluations. 'verified' is F after the follower was solved again at\n"
        "the answer's x, from independent starts; 'follower gap' is what it gained by that."
    )


if __name__ == "__main__":
    main()
