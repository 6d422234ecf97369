"""Single runs that nobody made, and what their tables say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bilevo.lab import store
from bilevo.lab.analysis import tables
from bilevo.lab.analysis.baseline import read_baseline
from bilevo.lab.analysis.table_parts import Cell, Table

PAPER_FILE = Path(__file__).parents[1] / "docs" / "data" / "drc_paper.json"
PAPER = read_baseline(PAPER_FILE)  # the figures of the DRC paper
LOST = {"violation": np.inf, **dict.fromkeys(("F", "f", "Acc_u", "Acc_l"), np.nan)}
LOST |= dict.fromkeys(("F_verified", "verified", "violation_verified"), np.nan)
FAILED = {**LOST, "violation": np.nan, "status": "failed", "F_star": np.nan, "f_star": np.nan}


def run(method: str, number: int, problem: str = "smd1", **given) -> dict:
    """A run as it might have been."""
    values = {"m": 2, "n": 3, "budget": 0, "target": True, "seed": number, "status": "target"}
    values |= {"F": 1e-7, "f": 1e-7, "violation": 0.0, "Acc_u": 1e-7, "Acc_l": 1e-7}
    values |= {"F_verified": 1e-7, "verified": 1e-7, "violation_verified": 0.0}
    values |= {"F_star": 0.0, "f_star": 0.0, "follower_gap": 0.0, "near": 10}
    values |= {"nfev_upper": 100, "nfev_lower": 1000}
    return {"problem": problem, "method": method, "number": number, **values, **given}


def runs_of(method: str, values: list, problem: str = "smd1", column: str = "Acc_u", **given):
    return [run(method, i, problem, **{column: value}, **given) for i, value in enumerate(values)]


def made(rows: list[dict], kind: str, **options) -> Table:
    return tables.make_table(store.frame(rows), kind, **options)


def row(table: Table, *names: str) -> list[Cell]:
    """The cells of the row that begins with these names."""
    (found,) = (line for line in table.rows if tuple(line[: len(names)]) == names)
    return [cell for cell in found if isinstance(cell, Cell)]
