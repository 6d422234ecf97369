"""The benchmark on roads: what it counts, its file, its tables and its page."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import roads as benchmark
from benchmarks import roads_page
from benchmarks.roads import Counted, Ended, Ledger, Row, Task, carry_out, level_cell, read, write
from bilevo.problems import get, roads

ROOT = Path(__file__).parents[2]


def row(number: int, **changes: float) -> Row:
    counts = {
        f"{name}_{level}": 10 * level for name in ("equilibria", "sweeps") for level in (1, 2)
    }
    whole = {"equilibria_3": 0, "sweeps_3": 0, "F": 81.0, "equilibria": 99, "sweeps": 400}
    values = {**counts, **whole, "own_ms": 1.25, **changes}
    return Row("roads-sf", "drc-race", number, **values)  # type: ignore[arg-type]


def test_an_equilibrium_is_counted_once_and_every_sweep_is() -> None:
    problem = get("roads-16-i")
    ledger = Ledger(problem, (250.0, 150.0), most=2)
    counted = Counted(problem.follower, ledger)  # type: ignore[arg-type]
    rng, best = np.random.default_rng(0), np.array(roads.BEST["roads-16-i"].x, float)
    first = counted.advance(counted.start(np.zeros(16), rng))
    counted.start(best, rng)  # no step, no equilibrium
    assert (len(ledger.seen), ledger.sweeps, ledger.reached) == (1, 1, [])
    while not counted.done(first):
        first = counted.advance(first)
    again = counted.start(np.zeros(16), rng)
    while not counted.done(again):
        again = counted.advance(again)
    assert len(ledger.seen) == 1 and ledger.sweeps == 2 * first.traffic.sweeps
    state = counted.start(best, rng)
    while not counted.done(state):
        assert ledger.reached == []  # only a finished search reaches a level
        state = counted.advance(state)
    assert ledger.reached == [(2, ledger.sweeps)]
    assert pytest.approx(roads.BEST["roads-16-i"].F, abs=1e-4) == ledger.F
    with pytest.raises(Ended):  # a third x is one too many
        counted.advance(counted.start(best + 1, rng))


def test_a_run_ends_at_its_last_level() -> None:
    made = carry_out(Task("roads-16-i", benchmark.COBYQA, 2))
    assert made.equilibria == made.equilibria_3 > made.equilibria_1 > 0
    assert benchmark.levels_of("roads-16-i")[2] >= made.F
    assert carry_out(Task("roads-16-i", "drc-race", 1, most=12)).equilibria == 12


def test_runs_are_stored_and_read_again(tmp_path: Path) -> None:
    rows = [row(1), row(2, F=80.5)]
    write(tmp_path / "roads.csv", rows)
    assert read(tmp_path / "roads.csv") == rows
    assert read(tmp_path / "nothing.csv") == []


def test_runs_that_miss_a_level_count_as_infinitely_long() -> None:
    rows = [row(1), row(2, equilibria_1=30, sweeps_1=70), row(3, equilibria_1=0, sweeps_1=0)]
    assert level_cell(rows, 1) == "30 (10 to -; 70 sweeps; 2 of 3 runs)"
    assert level_cell(rows, 2) == "20 (20 to 20; 20 sweeps)"
    assert level_cell(rows, 3) == "never"


def test_published_values_below_the_best_known_are_marked() -> None:
    shown = {line[0].partition(",")[0]: line for line in roads_page.published()}
    assert shown["SA"][1:4] == ["198.1 (!)", "528.5", "80.87"]
    assert "(!)" not in "".join(shown["PMILP"])


def test_the_page_has_the_tables_of_the_stored_runs() -> None:
    page = roads_page.PAGE.read_text(encoding="utf-8")
    again = "python -m benchmarks.roads --page"
    assert roads_page.with_tables(page) == page, again
    assert (ROOT / "docs" / "pictures" / "roads.png").exists()
