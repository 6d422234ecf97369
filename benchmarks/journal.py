"""What keeping a run costs: microseconds a record, and the share of a whole run's time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

import bilevo
from bilevo.core.problem import Function
from bilevo.core.request import Level
from bilevo.run.encoding import piece
from bilevo.run.jobs import EvaluationOutcome
from bilevo.run.journal import JournalWriter
from bilevo.run.session import Batch

RECORDS = 50_000
RUNS = 7


def record_cost(folder: Path) -> float:
    """Microseconds to make and append the record of one point at (10,10), best of five."""
    batch = Batch(Level.LOWER, np.zeros((1, 10)), np.zeros((1, 10)))
    outcome, rows = EvaluationOutcome(np.zeros(1), np.empty((1, 0))), slice(0, 1)
    times = []
    for attempt in range(5):
        writer = JournalWriter.create(folder / f"{attempt}.bin", {})
        started = perf_counter()
        for number in range(RECORDS):
            writer.append(piece(batch, rows, outcome, number, number, 0.0))
        times.append(perf_counter() - started)
        writer.close()
    return min(times) / RECORDS * 1e6


def run_times(folder: Path) -> tuple[float, float, int]:
    """Seconds of drc-cma-es on SMD1, scalar, without and with a journal, best of several.

    And the number of its evaluations, each of which is a record.
    """
    smd1 = bilevo.problems.get("smd1")

    def scalar(function: Function) -> Function:
        return lambda x, y: function(x[None], y[None])[0]

    problem = bilevo.Problem(
        scalar(smd1.F), scalar(smd1.f), smd1.x_bounds, smd1.y_bounds, optimum=smd1.optimum
    )
    plain, kept = [], []
    for attempt in range(RUNS):
        started = perf_counter()
        result = bilevo.minimize(problem, method="drc-cma-es")
        plain.append(perf_counter() - started)
        started = perf_counter()
        bilevo.minimize(problem, method="drc-cma-es", run_dir=folder / str(attempt))
        kept.append(perf_counter() - started)
    return min(plain), min(kept), result.nfev


if __name__ == "__main__":
    os.fsync = lambda fd: None  # what the disk takes is the disk's affair
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as name:
        print("journal, without fsync")
        print(f"  a record: {record_cost(Path(name)):.1f} us (best of 5)")
        without, with_journal, records = run_times(Path(name))
        extra = with_journal - without
        allowed = 5e-6 * records + 0.1 * without
        print(
            f"  SMD1 (2,3), scalar functions: {without:.3f} s, kept {with_journal:.3f} s: "
            f"{100 * extra / without:.1f}% more, {1e6 * extra / records:.1f} us a record "
            f"({records} records, best of {RUNS}); 5 us a record + 10% would be {allowed:.3f} s, "
            f"it is {extra:.3f} s"
        )
