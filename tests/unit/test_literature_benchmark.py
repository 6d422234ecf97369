"""The benchmark on the suite of the literature: its judge, its baseline, its file and its page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import literature_page, literature_pictures
from benchmarks.follower_judge import judge_pair
from benchmarks.literature import (
    METHODS,
    NEAR,
    NEARER,
    Pair,
    Row,
    Task,
    carry_out,
    first_hit,
    merged,
    read,
    write,
)
from benchmarks.nested_scipy import NestedSLSQP
from bilevo.core.problem import Problem
from bilevo.problems import get

ROOT = Path(__file__).parents[2]
EASY = "henrionsurowiec2011"


def row(**changes) -> Row:
    """A run of drc-plus on a problem with m = n = 1 that found the optimum 2 exactly."""
    made = Row(
        *("vogel2012", "ties", 1, 1, "drc-plus", 1, 1000, 2.0, 2.0, 0.0, True, 0.0, 0.0, True),
        *(100, 500, "stagnation", 200, 300),
    )
    return replace(made, **changes)


@pytest.mark.parametrize("name", ["mitsosbarton2006ex320", "vogel2012", "anetal2009", "dempe1992b"])
@pytest.mark.rest
def test_the_optimum_is_called_right(name: str) -> None:
    best = get(name).optimum
    judgment = judge_pair(get(name), best.x, best.y)
    assert judgment.right and judgment.feasible


@pytest.mark.parametrize("quick", [False, True])
def test_a_local_answer_is_called_wrong(quick: bool) -> None:
    problem = get("mitsosbarton2006ex320")  # at x = 0.4 the follower prefers y = -1 to y = 0.4
    judgment = judge_pair(problem, np.array([0.4]), np.array([0.4]), quick=quick)
    assert judgment.feasible and not judgment.right and judgment.gap > 0.1
    assert judge_pair(problem, np.array([0.4]), np.array([-1.0]), quick=quick).right


def test_an_infeasible_pair_is_called_wrong() -> None:
    problem = get("vogel2012")  # g: y >= x
    judgment = judge_pair(problem, np.array([-1.0]), np.array([-1.01]))
    assert not judgment.feasible and not judgment.right
    upper = Problem(
        lambda x, y: x[0], lambda x, y: y[0] ** 2, [(0, 1)], [(-1, 1)], lambda x, y: [y[0] + 0.1]
    )
    assert not judge_pair(upper, np.zeros(1), np.zeros(1)).right  # G is not met


def test_a_pair_without_numbers_is_called_wrong() -> None:
    assert not judge_pair(get(EASY), np.full(1, np.nan), np.full(1, np.nan)).right
    no_number = Problem(lambda x, y: x[0], lambda x, y: np.nan, [(0, 1)], [(-1, 1)])
    assert not judge_pair(no_number, np.zeros(1), np.zeros(1)).right


def test_a_huge_f_does_not_hide_a_better_answer() -> None:
    problem = get("sinhamalodeb2014tp9")
    assert not judge_pair(problem, np.full(10, 5.0), np.full(10, 0.5), starts=3).right
    assert judge_pair(problem, np.full(10, 5.0), np.zeros(10), starts=3).right


def test_the_baseline_solves_an_easy_problem_and_counts_its_evaluations() -> None:
    made = get(EASY)
    counts = {"F": 0, "f": 0}

    def counted(name: str, function):
        def call(x, y):
            counts[name] += len(x)
            return function(x, y)

        return call

    problem = Problem(
        counted("F", made.F),
        counted("f", made.f),
        made.x_bounds,
        made.y_bounds,
        made.G,
        made.g,
        vectorized=True,
    )
    run = NestedSLSQP(problem, 600, seed=1)
    run.run()
    assert run.best is not None and abs(run.best.F - made.optimum.F) < 1e-6
    assert judge_pair(made, run.best.x, run.best.y).right
    assert [counts["F"], counts["f"]] == list(run.counts.values()) and sum(counts.values()) == 600


def test_the_baseline_keeps_constraints_of_the_leader() -> None:
    problem = get("sinhamalodeb2014tp3")
    run = NestedSLSQP(problem, 2500, seed=1)
    run.run()
    assert run.best is not None and abs(run.best.F - problem.optimum.F) < 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_a_run_becomes_a_row_that_can_be_stored(method: str, tmp_path: Path) -> None:
    made = carry_out(Task(EASY, method, 1, 800))
    assert made.nfev <= 800 and made.kind == "convex" and made.F_star == 0
    assert not made.wrong_success and (method != "nested-scipy" or not made.success)
    path = tmp_path / "rows.csv"
    write(path, [made])
    (stored,) = read(path)
    assert abs(stored.F - made.F) <= 1e-9 * max(1, abs(made.F))
    kept = {"F": 0.0, "F_star": 0.0, "error": 0.0, "gap": 0.0, "violation": 0.0}
    assert replace(stored, **kept) == replace(made, **kept)


def test_new_rows_replace_those_of_their_method_only() -> None:
    old = [row(), row(seed=2), row(method="nested-scipy"), row(problem=EASY, kind="convex")]
    rows = merged(old, [row(F=3.0)])
    assert [(one.method, one.problem, one.F) for one in rows] == [
        *(("drc-plus", EASY, 2.0), ("drc-plus", "vogel2012", 3.0)),
        ("nested-scipy", "vogel2012", 2.0),
    ]


def test_a_hit_needs_a_right_follower_and_an_F_that_is_neither_higher_nor_lower() -> None:
    problem = get("mitsosbarton2006ex320")
    pairs = [
        Pair(np.array([0.49]), np.array([0.49]), 0.3125, 10),  # wrong
        Pair(np.array([0.51]), np.array([0.51]), 0.3277, 20),  # right, but not near
        Pair(np.array([0.5001]), np.array([0.5001]), 0.312650, 30),
    ]
    assert first_hit(problem, pairs, 0.3125, 1e-3) == 30
    assert first_hit(problem, pairs, 0.3125, 1e-5) is None
    assert row(error=0.005).hits(NEAR) and not row(error=0.005).hits(NEARER)
    assert not row(error=-0.02).hits(NEAR) and not row(right=False).hits(NEAR)
    assert row(right=False).wrong_success and not row(right=False, success=False).wrong_success


def test_expected_evaluations_count_the_whole_of_runs_without_a_hit() -> None:
    rows = [row(), row(error=0.5, near=None, nearer=None), row(F_star=np.nan, error=np.nan)]
    known = literature_page.with_optimum(rows)
    assert literature_page.expected(known, NEAR) == "800"  # 200 + 600, one hit
    assert literature_page.expected(known[1:], NEAR) == "-"
    assert literature_page.share(known, NEARER) == "50%"
    assert literature_page.class_table(rows)[-1][:4] == ["all", "drc-plus", "2", "50%"]


def test_a_profile_steps_up_at_each_hit() -> None:
    rows = [row(near=30), row(near=90), row(error=1.0)]
    costs, shares = literature_pictures.profile(rows, NEAR, 100.0)
    assert costs == [10, 30, 100] and shares == [0, 1 / 3, 2 / 3]


def test_a_grid_shows_both_branches_of_a_follower() -> None:
    true = literature_pictures.landscape(get("mitsosbarton2006ex320"), (41, 401))
    assert abs(np.nanmin(true.phi) - 0.3125) < 0.05
    x, y = true.best
    assert np.all(y[np.abs(x) < 0.45] == -1) and np.all(y[np.abs(x) > 0.55] > 0.5)
    assert np.any(true.local[1] == -1)


def test_the_page_shows_the_stored_runs() -> None:
    page = (ROOT / "docs" / "literature.md").read_text(encoding="utf-8")
    rows = read(literature_page.DATA)
    again = "python -m benchmarks.literature --page"
    assert literature_page.with_tables(page, rows) == page, again
    assert {one.method for one in rows} == set(METHODS)
    assert not [one.problem for one in rows if one.wrong_success]
