"""Frames of runs and histories that nobody made: small, the same every time, with given names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

PROBLEMS = ("smd1", "smd2", "smd10")
METHODS = ("drc-cma-es", "bl-cma-es", "tlea-cma-es")
TASKS = 4


def frames(
    problems: Sequence[str] = PROBLEMS,
    methods: Sequence[str] = METHODS,
    runs: int = 3,
    **values: Any,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs and their histories; `values` are put into every run."""
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    for problem in problems:
        for method in methods:
            for number in range(runs):
                key = {"problem": problem, "m": 2, "n": 3, "method": method, "number": number}
                generations = [_generation(i, float(rng.uniform(0.5, 2))) for i in range(1, 8)]
                history += [{**key, **generation} for generation in generations]
                rows.append({**_run(key, generations[-1]), **values})
    return pl.DataFrame(rows), pl.DataFrame(history)


def failing(runs: pl.DataFrame, error: str) -> pl.DataFrame:
    """The same with the last run failed."""
    last = runs.with_row_index("i")["i"] == runs.height - 1
    numbers = ("F", "f", "violation", "Acc_u", "Acc_l", "F_verified", "verified", "follower_gap")
    return runs.with_columns(
        *(pl.when(last).then(float("nan")).otherwise(pl.col(name)).alias(name) for name in numbers),
        status=pl.when(last).then(pl.lit("failed")).otherwise("status"),
        error=pl.when(last).then(pl.lit(error)).otherwise("error"),
    )


def _generation(number: int, size: float) -> dict[str, Any]:
    return {
        "generation": number,
        "nfev_upper": 10 * number,
        "nfev_lower": int(400 * number * size),
        "F": size * 10.0 ** (1 - number),
        "f": size,
        "violation": 0.0,
        "executions": [number + task for task in range(TASKS)],
        "survived": [task % 2 == 0 for task in range(TASKS)],
    }


def _run(key: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    counts = {name: last[name] for name in ("nfev_upper", "nfev_lower", "F", "f", "violation")}
    accuracy = {"Acc_u": last["F"], "Acc_l": last["f"], "verified": 2 * last["F"]}
    return {
        **key,
        **{"budget": 0, "target": True, "seed": 7 * key["number"]},
        **counts,
        **accuracy,
        **{"F_verified": last["F"], "violation_verified": 0.0, "follower_gap": 0.0},
        **{"F_star": 0.0, "f_star": 0.0, "nit": 7, "near": last["nfev_lower"]},
        **{"time": last["nfev_lower"] / 1000, "status": "target", "error": ""},
        **{"version": "0.1.0", "kernel": "numpy", "machine": "a machine"},
    }
