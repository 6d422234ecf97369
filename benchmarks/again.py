"""Make stored runs again: `python -m benchmarks.again --runs 40 --seed 17`.

Runs of docs/data are drawn at random, one of each method in turn. A line for each run says whether
its evaluations and its answer are the same as the stored ones to the last bit, or close (the same
evaluations, and F to nine digits), or different. `--out` writes the new answers to a file, exact to
the last bit, so that two versions can be compared. Runs of an older revision of their method cannot
be repeated by the present code. They are counted at the end.

Sums are rounded in another way by other kernels of OpenBLAS. So a run is made again with one thread
and the kernels that its row names, or with those for AVX-512 if it names none. A processor without
AVX-512 cannot repeat all runs to the bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bilevo.lab.analysis.samples import base_method
from bilevo.lab.campaign import BLAS_KERNELS, Task, carry_out
from bilevo.lab.grids import settings_of
from bilevo.lab.plans import Form, Run, read_plan
from bilevo.lab.store import FAILED, Row, runs

ROOT = Path(__file__).parents[1]
# Plans that name forms of methods, which are methods with some of their settings changed.
PLANS = ("ablation.toml", "drc-plus-ablation.toml", "weights.toml")
FORMS = [read_plan(ROOT / "plans" / name) for name in PLANS]
MAX_EVALUATIONS = 400_000  # Runs with more evaluations than this are not made again.
NATIVE = "SkylakeX"  # The kernels of OpenBLAS on the machine that made most of the runs.
KEPT = ("seed", "nfev_upper", "nfev_lower", "status", "F", "f", "violation", "x", "y")


def all_rows(folder: Path) -> Iterator[Row]:
    """Yield all stored runs."""
    for path in sorted(folder.glob("runs_*.csv")):
        yield from runs(path).iter_rows(named=True)


def stored(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the runs that are not too long, by method; a grid's settings are one."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["status"] != FAILED and row["nfev_upper"] + row["nfev_lower"] <= MAX_EVALUATIONS:
            name = row["method"]
            found[base_method(name) + "/settings" if settings_of(name) else name].append(row)
    return found


@cache
def revision_of(method: str) -> int:
    """Return the present revision of a method or form."""
    return form_of(method).algorithm().revision


def is_older(row: Row) -> bool:
    """Tell whether a run was made by an older revision of its method."""
    return row["revision"] is not None and row["revision"] != revision_of(row["method"])


def drawn(count: int, seed: int, rows: Iterable[Row]) -> list[Row]:
    """Draw runs at random, one of each method in turn."""
    rng = random.Random(seed)
    methods = sorted(stored(rows).items())
    by_method = [rng.sample(rows, min(count, len(rows))) for _, rows in methods]
    in_turn = [row for row in chain(*zip_longest(*by_method)) if row is not None]
    return in_turn[:count]


def form_of(method: str) -> Form:
    """Return the form of a method: that of a plan that names it, or the registered method."""
    return next((plan.forms[method] for plan in FORMS if method in plan.forms), Form(method))


def made_again(row: Row) -> Row:
    """Make a stored run again, and return its new row."""
    run = Run(**{key: row[key] for key in Run.__slots__})
    return carry_out(Task(run, form_of(run.method)))


@contextmanager
def processes() -> Iterator[Callable[[Row], Row]]:
    """Give a function like `made_again` that uses the kernels of OpenBLAS that rows name.

    OpenBLAS chooses its kernels when it is loaded, so each choice has a process of its own.
    """
    pools: dict[str, ProcessPoolExecutor] = {}

    def make(row: Row) -> Row:
        named = re.search(rf"{BLAS_KERNELS} (\w+)", row["machine"] or "")
        kernels = named.group(1) if named else NATIVE
        if kernels not in pools:
            pools[kernels] = process_with(kernels)
        return pools[kernels].submit(made_again, row).result()

    try:
        yield make
    finally:
        for pool in pools.values():
            pool.shutdown()


def process_with(kernels: str) -> ProcessPoolExecutor:
    """Start a process with these kernels of OpenBLAS, one thread, and all of numpy's kernels."""
    with patch.dict(os.environ, {BLAS_KERNELS: kernels, "OPENBLAS_NUM_THREADS": "1"}):
        os.environ.pop("NPY_DISABLE_CPU_FEATURES", None)
        pool = ProcessPoolExecutor(1, get_context("spawn"))
        pool.submit(int).result()  # it starts with the first task
    return pool


def likeness(row: Row, again: Row) -> str:
    """Say how alike a stored run and the same run made again are."""
    if all(again[key] == row[key] for key in KEPT):
        return "same"
    counts = all(again[key] == row[key] for key in ("nfev_upper", "nfev_lower", "status"))
    close = abs(again["F"] - row["F"]) <= 1e-9 * abs(row["F"]) + 1e-12
    return "close" if counts and close else "DIFFERENT"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--data", type=Path, default=ROOT / "docs" / "data")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    answers: dict[str, Any] = {}
    found: Counter[str] = Counter()
    rows = list(all_rows(options.data))
    present = [row for row in rows if not is_older(row)]
    with processes() as make:
        for row in drawn(options.runs, options.seed, present):
            again = make(row)
            name = " ".join(str(row[key]) for key in Run.__slots__)
            answers[name] = {key: again[key] for key in KEPT}
            found[how := likeness(row, again)] += 1
            print(f"{how:9} {name}", flush=True)
    print(", ".join(f"{count} {how}" for how, count in found.items()))
    if len(present) < len(rows):
        older = sorted({row["method"] for row in rows if is_older(row)})
        print(f"{len(rows) - len(present)} runs are of older revisions: {', '.join(older)}")
    if options.out is not None:
        options.out.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
