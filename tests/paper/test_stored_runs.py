"""The stored runs behind the tables are those of this code: slow."""

from pathlib import Path

import pytest

from bilevo.experiments.campaign import Row, carry_out, read

pytestmark = pytest.mark.slow

STORED = [
    row
    for path in sorted((Path(__file__).parents[2] / "docs" / "data").glob("runs_*.csv"))
    for row in read(path).values()
    if not row.failed
]


def shortest() -> list[Row]:
    """The run of each size and method that took the fewest evaluations."""
    found: dict[tuple[int, int, str], Row] = {}
    for row in sorted(STORED, key=lambda row: row.total):
        found.setdefault((row.m, row.n, row.method), row)
    return list(found.values())


@pytest.mark.parametrize("row", shortest(), ids=lambda row: f"{row.method}-{row.m},{row.n}")
def test_a_stored_run_made_again_is_the_same(row: Row) -> None:
    again = carry_out(row.run)
    assert not again.error
    wrong = f"{row.run} is of older code: scripts/reproduce --again all --methods {row.method}"
    counts = (again.nfev_upper, again.nfev_lower, again.status)
    assert counts == (row.nfev_upper, row.nfev_lower, row.status), wrong
    assert (again.F, again.f) == pytest.approx((row.F, row.f), rel=1e-9, abs=1e-12), wrong
