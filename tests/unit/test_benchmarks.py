"""Check that benchmarks run; no time is tested."""

import pytest

from benchmarks import basins, memory, missing, report, ties_page, timing, workers
from benchmarks.__main__ import PARTS, blocks_of
from benchmarks.picture import draw
from bilevo import plot
from bilevo.algorithms.shared.independent_search import Effort
from bilevo.lab.show.formats import show

TINY = {
    "generation": {"sizes": (3,), "repeats": 1, "starts": 1},
    "whole": {"sizes": ((2, 3),), "repeats": 1, "longest": 500, "slow_evaluations": 60},
    "scaling": {"sizes": ((2, 3),), "repeats": 1, "longest": 500, "runs": (), "sleeps": 10},
    "startup": {"repeats": 1, "imports": ("nothing",)},
    "column": {"runs": 1, "blocks": 1, "only": ("smd1",)},
    "memory": {"evaluations": 2000},
}


@pytest.mark.rest
@pytest.mark.parametrize("name", PARTS)
def test_a_benchmark_gives_tables_and_targets(name: str, monkeypatch) -> None:
    monkeypatch.setattr(memory, "alone", lambda function, *args: function(*args))
    monkeypatch.setattr(workers, "speed", lambda count, evaluations: float(count))  # it is slow
    part = PARTS[name]
    figures = report.rounded(part.measure(names=("numpy",), **TINY[name]))
    for lines in part.tables(figures):
        assert len(lines) > 1 and len({len(line) for line in lines}) == 1
    assert all(target.verdict in ("met", "MISSED") for target in part.targets(figures))
    assert set(part.QUICK) <= set(part.measure.__annotations__)


def test_alternatives_take_turns_and_the_best_of_each_counts() -> None:
    calls: list[str] = []
    given = {"a": [3.0, 1.0, 2.0], "b": [5.0, 6.0, 4.0]}

    def measure(name: str) -> float:
        calls.append(name)
        return given[name][calls.count(name) - 1]

    best = timing.interleaved({name: lambda name=name: measure(name) for name in given}, 3)
    assert best == {"a": 1.0, "b": 4.0} and calls == ["a", "b"] * 3


def test_a_target_says_whether_it_is_met() -> None:
    targets = [report.at_least("a", 6, 5.9), report.at_most("b", 6, 5.9)]
    assert [target.verdict for target in targets] == ["MISSED", "met"]
    assert show(report.target_table(targets), markdown=True).endswith("| b | <= 6 | 5.9 | met |")


def test_machines_that_differ_have_columns_of_their_own() -> None:
    here, there = report.machine(), report.machine() | {"cores": "99"}
    parts = {"generation": here, "whole": there, "memory": here}
    lines = report.machine_table({part: {"machine": made} for part, made in parts.items()})
    assert lines[0] == ["", "generation, memory", "whole"]
    assert lines[2] == ["cores", here["cores"], "99"]


def test_the_page_shows_the_stored_figures() -> None:
    stored, page = report.read(), report.DOCUMENT.read_text()
    assert report.with_tables(page, blocks_of(stored)) == page, "run scripts/bench"
    marks = {name for _, name, *_ in report.MARKED.findall(page)}
    assert marks == {*PARTS, "targets", "machine"}


def test_the_same_figures_are_the_same_picture(tmp_path) -> None:
    pictures = []
    for _ in range(2):
        plot.save(draw(report.read()), tmp_path / "picture.svg")
        pictures.append((tmp_path / "picture.svg").read_bytes())
    assert pictures[0] == pictures[1] and b"<dc:date>" not in pictures[0]


def test_a_wide_deeper_basin_is_always_found() -> None:
    share, spent = basins.measure(Effort.NORMAL, 1, 0.1, 3)
    assert share == 1 and spent > 200


def test_missing_runs_are_those_that_are_not_stored() -> None:
    found = missing.parts(missing.stored_runs())
    whole, none = found["drc-cma-es", "smd (2, 3)"], found["nblea", "smd (30, 30)"]
    assert (whole.stored, whole.wanted, whole.hours) == (252, 252, 0.0)
    assert none.stored < none.wanted == 252
    assert 1 < none.hours <= none.hours_of_all


def test_the_page_on_ties_shows_the_stored_runs() -> None:
    page = ties_page.PAGE.read_text(encoding="utf-8")
    assert ties_page.with_tables(page) == page, "run python -m benchmarks.ties --page"
