"""The published medians of DRC-CMA-ES and BL-CMA-ES beside ours: `scripts/reproduce`.

Ours are medians over runs of this library, each with a seed made from its problem, size, method and
run. The paper's are the values it prints, kept in paper.json. "verified" is |F(x, y*(x)) - F*|: the
leader's value when the follower really answers, by its known response or by `bilevo.verify`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from multiprocessing import get_context
from typing import Any

import numpy as np

from bilevo import problems
from bilevo.api import minimize, verify
from bilevo.core.problem import Problem
from bilevo.core.result import Result

METHODS = ("drc-cma-es", "bl-cma-es")
SMD = tuple(f"smd{i}" for i in range(1, 13))
FLOOR = 1e-6  # the paper prints accuracies below this as this


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the plan."""

    problem: str
    m: int
    n: int
    method: str
    number: int

    @property
    def seed(self) -> int:
        """A seed from the run's name: adding a method or problem changes no other run."""
        name = f"{self.problem}/{self.m},{self.n}/{self.method}/{self.number}"
        return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little")


@dataclass(frozen=True, slots=True)
class Row:
    """What a run gave; accuracies are NaN where the optimum is not known."""

    run: Run
    accuracy: float
    verified: float
    nfev_upper: int
    nfev_lower: int


def carry_out(run: Run) -> Row:
    problem = problems.get(run.problem, run.m, run.n)
    result = minimize(problem, method=run.method, rng=run.seed)
    best = np.nan if problem.optimum is None else problem.optimum.F
    return Row(
        run,
        abs(result.F - best),
        abs(verified_F(problem, result) - best) if np.isfinite(best) else np.nan,
        result.nfev_upper,
        result.nfev_lower,
    )


def verified_F(problem: Problem, result: Result) -> float:
    """F at the follower's true answer, from the known response or an independent re-solve."""
    if problem.response is not None:
        y = problem.response(result.x[None])
        if np.isfinite(y).all():
            return float(problem.evaluate(result.x, y[0])[0][0])
    return verify(problem, result).F


def carry_out_all(runs: list[Run], workers: int) -> Iterable[Row]:
    """Rows as they are done, with progress on standard error."""
    from rich.console import Console
    from rich.progress import track

    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one thread a process; children inherit it
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        pending = [pool.submit(carry_out, run) for run in runs]
        done = track(
            as_completed(pending),
            "runs",
            total=len(runs),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        for future in done:
            yield future.result()


def paper_values(problem: str, size: str, method: str) -> dict[str, float]:
    """What the paper prints: accuracy and evaluations per level at (2,3), totals elsewhere."""
    tables = json.loads((files("bilevo.experiments") / "paper.json").read_text())
    name, method = problem.upper(), method.upper()
    values = {"total": float(tables["total_evaluations"][name][size][method])}
    if size == "2,3":
        values["accuracy"] = tables["accuracy_m2_n3"][name]["Acc_u"][method]["median"]
        for column, key in (("FEs_u", "upper"), ("FEs_l", "lower")):
            values[key] = tables["evaluations_m2_n3"][name][column][method]["median"]
    return values


def compare(rows: list[Row], size: str) -> list[list[str]]:
    """Lines of the table: a header, then one line per method and problem, then sums."""
    detailed = size == "2,3"
    header = ["method", "problem", "Acc_u", *(["paper"] if detailed else []), "verified"]
    columns = ["FEs_u", "paper", "", "FEs_l", "paper", ""] if detailed else []
    lines = [[*header, *columns, "total", "paper", ""]]
    for method in dict.fromkeys(row.run.method for row in rows):
        ours_sum = paper_sum = 0.0
        for problem in dict.fromkeys(row.run.problem for row in rows):
            mine = [r for r in rows if (r.run.method, r.run.problem) == (method, problem)]
            paper = paper_values(problem, size, method)
            accuracy, verified = (
                float(np.median([getattr(row, name) for row in mine]))
                for name in ("accuracy", "verified")
            )
            line = [method, problem, _accuracy(accuracy)]
            line += [_accuracy(paper["accuracy"])] if detailed else []
            line += [_accuracy(verified)]
            if detailed:
                line += _against(np.median([row.nfev_upper for row in mine]), paper["upper"])
                line += _against(np.median([row.nfev_lower for row in mine]), paper["lower"])
            total = float(np.median([row.nfev_upper + row.nfev_lower for row in mine]))
            lines.append([*line, *_against(total, paper["total"])])
            ours_sum, paper_sum = ours_sum + total, paper_sum + paper["total"]
        empty = [""] * (len(lines[0]) - 5)
        lines.append([method, "sum", *empty, *_against(ours_sum, paper_sum)])
    return lines


def _accuracy(value: float) -> str:
    return "-" if np.isnan(value) else f"{max(value, FLOOR):.1e}"


def _against(ours: Any, paper: float) -> list[str]:
    """Our number, the paper's, and the difference in percent."""
    return [f"{ours:.0f}", f"{paper:.0f}", f"{100 * (ours / paper - 1):+.1f}%"]


def show(lines: list[list[str]], markdown: bool) -> str:
    if markdown:
        rule = ["---"] * len(lines[0])
        return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def reproduce(
    dim: str = "2,3",
    runs: int = 21,
    only: str = ",".join(SMD),
    methods: str = ",".join(METHODS),
    workers: int | None = None,
    markdown: bool = False,
) -> None:
    """Print the paper's medians beside ours.

    Parameters
    ----------
    dim
        Sizes M,N: 2,3 or 10,10 or 30,30, which the paper has.
    runs
        Runs per problem and method.
    only
        Problems, separated by commas.
    methods
        Methods, separated by commas.
    workers
        Processes; by default one per core.
    markdown
        Print a Markdown table.
    """
    m, n = (int(part) for part in dim.split(","))
    for problem in only.split(","):
        for method in methods.split(","):
            try:
                paper_values(problem, f"{m},{n}", method)
            except KeyError:
                sys.exit(f"the paper prints nothing for {problem} at {m},{n} with {method}")
    plan = [
        Run(problem, m, n, method, number)
        for method in methods.split(",")
        for problem in only.split(",")
        for number in range(runs)
    ]
    plan_order = {run: i for i, run in enumerate(plan)}
    rows = sorted(
        carry_out_all(plan, workers or os.cpu_count() or 1), key=lambda row: plan_order[row.run]
    )
    print(f"medians of {runs} runs at (m, n) = ({m}, {n}); '%' is ours against the paper's\n")
    print(show(compare(rows, f"{m},{n}"), markdown))


if __name__ == "__main__":
    from cyclopts import run

    run(reproduce)
