"""The stored runs behind the tables are those of this code: slow."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.again import processes
from bilevo.lab.plans import Run
from bilevo.lab.store import FAILED, Row, runs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def shortest() -> list[Row]:
    """The run of each size and method that took the fewest evaluations."""
    found: dict[tuple[int, int, str], Row] = {}
    for path in sorted((ROOT / "docs" / "data").glob("runs_*.csv")):
        stored = [row for row in runs(path).iter_rows(named=True) if row["status"] != FAILED]
        for row in sorted(stored, key=lambda row: row["nfev_upper"] + row["nfev_lower"]):
            found.setdefault((row["m"], row["n"], row["method"]), row)
    return list(found.values())


def name(row: Row) -> str:
    return f"{row['method']}-{row['m']},{row['n']}"


@pytest.fixture(scope="module")
def make_again() -> Iterator[Callable[[Row], Row]]:
    with processes() as made:
        yield made


@pytest.mark.parametrize("row", shortest(), ids=name)
def test_a_stored_run_made_again_is_the_same(row: Row, make_again: Callable[[Row], Row]) -> None:
    run = Run(**{key: row[key] for key in Run.__slots__})
    again = make_again(row)
    wrong = f"{run} is of older code: make the runs of {run.method} again"
    for key in ("seed", "nfev_upper", "nfev_lower", "status", "error"):
        assert again[key] == row[key], wrong
    for key in ("F", "f"):
        assert again[key] == pytest.approx(row[key], rel=1e-9, abs=1e-12), wrong
