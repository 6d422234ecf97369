"""What the DRC paper prints, beside which our figures stand (paper.json).

D. Xu, K. Ye, Z. Zheng, T. Zhou, G. G. Yen and M. Jiang, "An Efficient Dynamic Resource Allocation
Framework for Evolutionary Bilevel Optimization", 2024: medians of 21 runs of eight methods. At
(2, 3) it prints all indicators, at (10, 10) and (30, 30) total evaluations only.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

METHODS = {  # ours, and the paper's name for it, in the order of its tables
    "drc-cma-es": "DRC-CMA-ES",
    "bl-cma-es": "BL-CMA-ES",
    "tlea-cma-es": "TLEA-CMA-ES",
    "nblea": "NBLEA",
    "bleaq2": "BLEAQ-II",
    "go-cma-es": "GO-CMA-ES",
    "mfbla": "MFBLA",
    "sa-bl-imode": "SA-BL-IMODE",
}
REAL = {("gold-mining", 2, 1): "GM", ("decision-making", 3, 3): "DM"}
FLOOR = 1e-6  # accuracies below this are printed as this, and tested as this
RUNS = 21


def printed(problem: str, m: int, n: int, method: str, indicator: str) -> float | None:
    """The median it prints of Acc_u, Acc_l, FEs_u, FEs_l, FEs, F or f; None where it has none."""
    value = _entry(problem, m, n, indicator).get(METHODS.get(method, ""))
    if isinstance(value, dict):
        value = value["median"]
    return None if value is None else float(value)


def printed_mark(problem: str, m: int, n: int, method: str, indicator: str) -> str | None:
    """Its verdict on a method (+, = or -: DRC-CMA-ES is better, alike, worse), at (2, 3)."""
    value = _entry(problem, m, n, indicator).get(METHODS.get(method, ""))
    return value["vs_drc"] if isinstance(value, dict) else None


@cache
def _tables() -> dict[str, Any]:
    text = (files("bilevo.lab.analysis") / "paper.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _entry(problem: str, m: int, n: int, indicator: str) -> dict[str, Any]:
    """By the paper's names of methods; empty where the paper has nothing."""
    tables, size, entry = _tables(), f"{m},{n}", None
    if real := REAL.get((problem, m, n)):
        entry = tables["real_world"][real].get(indicator)
    elif indicator == "FEs":
        entry = tables["total_evaluations"].get(problem.upper(), {}).get(size)
    elif size == "2,3":
        kind = "evaluations_m2_n3" if indicator.startswith("FEs") else "accuracy_m2_n3"
        entry = tables[kind].get(problem.upper(), {}).get(indicator)
    return entry or {}
