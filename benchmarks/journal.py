"""Measure the cost of storing a run: microseconds per record, and the share of a run's time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

import bilevo
from benchmarks.timing import interleaved, seconds
from bilevo.core.problem import Function
from bilevo.core.request import Level
from bilevo.run.encoding import piece
from bilevo.run.jobs import EvaluationOutcome
from bilevo.run.journal import JournalWriter
from bilevo.run.session import Batch

RECORDS = 50_000  # How many records are timed.
RUNS = 7  # How many runs with a journal, and how many without, are timed.


def record_cost(folder: Path) -> float:
    """Return the microseconds to make and append the record of a point at (10,10), best of 5."""
    batch = Batch(Level.LOWER, np.zeros((1, 10)), np.zeros((1, 10)))
    outcome, rows = EvaluationOutcome(np.zeros(1), np.empty((1, 0))), slice(0, 1)
    times = []
    for attempt in range(5):
        writer = JournalWriter.create(folder / f"{attempt}.bin", {})

        def append_all(writer: JournalWriter = writer) -> None:
            for number in range(RECORDS):
                writer.append(piece(batch, rows, outcome, number, number, 0.0))

        times.append(seconds(append_all))
        writer.close()
    return min(times) / RECORDS * 1e6


def run_times(folder: Path) -> tuple[float, float, int]:
    """Return the best seconds of drc-cma-es on SMD1 without and with a journal, and a count.

    The count is the number of evaluations, each of which is a record. Functions are scalar.
    """
    smd1 = bilevo.problems.get("smd1")

    def scalar(function: Function) -> Function:
        return lambda x, y: function(x[None], y[None])[0]

    problem = bilevo.Problem(
        scalar(smd1.F), scalar(smd1.f), smd1.x_bounds, smd1.y_bounds, optimum=smd1.optimum
    )
    names = map(str, range(RUNS))

    def plain() -> bilevo.Result:
        return bilevo.minimize(problem, method="drc-cma-es")

    def kept() -> bilevo.Result:
        return bilevo.minimize(problem, method="drc-cma-es", run_dir=folder / next(names))

    calls = {"plain": lambda: seconds(plain), "kept": lambda: seconds(kept)}
    best = interleaved(calls, RUNS)
    return best["plain"], best["kept"], plain().nfev


if __name__ == "__main__":
    os.fsync = lambda fd: None  # so that the time of the disk is not measured
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
