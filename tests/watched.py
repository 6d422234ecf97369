"""Runs and campaigns for tests of `bilevo watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from made_up import frames

import bilevo
from bilevo.lab import store
from bilevo.lab.store import Store
from bilevo.lab.watch.watcher import Watcher

HOSTILE = '<img src=x onerror="alert(1)">\x1b[31m'


def make_run(folder: Path, name: str = "copy", **options: Any) -> bilevo.Result:
    problem = bilevo.Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float((y - x) @ (y - x)),
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        name=name,
    )
    given = {"method": "drc-cma-es", "rng": 1, "max_evals": 300, **options}
    return bilevo.minimize(problem, run_dir=folder, **given)


def make_campaign(folder: Path, **options: Any) -> None:
    """Store some runs that nobody made."""
    runs, history = frames(**options)
    lists = history.group_by("problem", "m", "n", "method", "number", maintain_order=True).agg(
        *store.HISTORY
    )
    kept = {
        tuple(row[key] for key in ("problem", "method", "number")): row
        for row in lists.iter_rows(named=True)
    }
    rows = [
        {
            **row,
            **{"made": "2026-01-01T00:00:00+00:00", "x": [], "y": [], "form": row["method"]},
            "history": {
                name: kept[row["problem"], row["method"], row["number"]][name]
                for name in store.HISTORY
            },
        }
        for row in runs.iter_rows(named=True)
    ]
    with Store(folder) as kept_rows:
        for start in range(0, len(rows), 5):
            kept_rows.add(store.frame(rows[start : start + 5]))


def watched(*paths: Path) -> Watcher:
    watcher = Watcher(paths)
    watcher.read_all()
    return watcher
