"""What figures of stored runs show."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import METHODS, frames

import bilevo
from bilevo.lab.analysis import curves
from bilevo.lab.analysis.samples import Case
from bilevo.lab.store import HISTORY, RUNS

KEY = {"problem": "smd1", "m": 2, "n": 3, "method": "drc-cma-es", "number": 0}
RUN = {"violation": 0.0, "nfev_upper": 0, "status": "target", "F_star": 0.0, **KEY}
SMD1 = Case("smd1", 2, 3)
STEP = {"violation": 0.0, "nfev_upper": 0, "f": 0.0, **KEY}


def runs(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([RUN | row for row in rows], schema=RUNS)


def history(*rows: dict[str, Any]) -> pl.DataFrame:
    schema = {name: RUNS[name] for name in KEY} | HISTORY
    return pl.DataFrame([STEP | row for row in rows], schema=schema)


def steps(values: list[float], every: int = 10, **key: Any) -> list[dict[str, Any]]:
    """A history with one value of F each so many evaluations."""
    return [
        {"generation": i, "nfev_lower": i * every, "F": F, **key}
        for i, F in enumerate(values, start=1)
    ]


def test_a_run_keeps_its_best_distance_and_its_last_value() -> None:
    known = runs(
        {"F": 0.5, "nfev_lower": 30}, {"F": 0.25, "nfev_lower": 80, "number": 1}
    )  # F* of smd1 is 0
    told = history(*steps([4.0, -1.0, 2.0]), *steps([8.0, 4.0, 2.0, 1.0, 0.5], number=1))
    found = curves.convergence(told, known, SMD1)
    (band,) = found.bands
    first = {10: 4.0, 20: 1.0, 30: 0.5, 40: 0.5, 50: 0.5, 80: 0.5}
    second = {10: 8.0, 20: 4.0, 30: 2.0, 40: 1.0, 50: 0.5, 80: 0.25}
    assert band.evaluations.tolist() == list(first)
    assert band.median.tolist() == [(first[i] + second[i]) / 2 for i in first]
    assert found.goal.label == "|F - F*|"


def test_a_run_has_no_value_before_its_first_feasible_pair() -> None:
    known = runs(*({"F": 1.0, "nfev_lower": 30, "number": i} for i in range(2)))
    late = [step | {"violation": 0.1} for step in steps([3.0, 2.0], number=1)]
    (band,) = curves.convergence(history(*steps([3.0, 2.0]), *late), known, SMD1).bands
    assert band.evaluations.tolist() == [10, 20, 30]
    assert band.lower.tolist() == [math.inf, math.inf, 1.0]
    assert band.median.tolist() == [math.inf, math.inf, 1.0]


def test_a_failed_run_counts_as_one_that_reached_nothing() -> None:
    failed = {"status": "failed", "F": math.nan, "violation": math.nan, "number": 1}
    known = runs({"F": 1e-7, "nfev_lower": 10}, failed)
    told = history(*steps([1e-7]))
    (band,) = curves.convergence(told, known, SMD1).bands
    assert (band.runs, band.median.tolist()) == (2, [math.inf])
    (line,) = curves.ecdf(told, known).reached
    assert (line.pairs, line.share.tolist()) == (2 * 51, [0.5])


def test_a_problem_on_which_a_method_always_fails_stays_among_the_targets() -> None:
    failed = {"status": "failed", "F": math.nan, "problem": "smd2"}
    known = runs({"F": 1e-7, "nfev_lower": 10}, failed)
    found = curves.ecdf(history(*steps([1e-7])), known)
    assert [case.problem for case in found.cases] == ["smd1", "smd2"]
    assert found.reached[0].share.tolist() == [0.5]


def test_methods_without_a_history_have_no_curve_and_are_named() -> None:
    known = runs({"F": 1.0, "nfev_lower": 30}, {"F": 1.0, "nfev_lower": 9, "method": "a program"})
    told = history(*steps([2.0]))
    assert curves.convergence(told, known, SMD1).left_out == ["a program"]
    assert curves.ecdf(told, known).left_out == ["a program"]
    with pytest.raises(ValueError, match="no run on smd1 \\(2, 3\\) has a history"):
        curves.convergence(history(), known, SMD1)
    with pytest.raises(ValueError, match="methods with a history: none"):
        curves.ecdf(history(), known)


@pytest.mark.parametrize("problem", ["gold-mining", "somebody's: own"])
def test_where_the_optimum_is_unknown_a_curve_is_the_elites_F(problem: str) -> None:
    case = {"problem": problem, "m": 2, "n": 1}
    known = runs({"F": -3.0, "nfev_lower": 30, "F_star": math.nan, **case})
    found = curves.convergence(
        history(*steps([-1.0, -9.0, -3.0], **case)), known, Case(problem, 2, 1)
    )
    assert found.bands[0].median.tolist() == [-1.0, -9.0, -3.0]
    assert found.goal == curves.Goal(-3.0, known=False)
    assert found.goal.label == "F (best reported -3)"


def test_without_a_feasible_answer_there_is_no_best_one() -> None:
    own = {"problem": "own", "F_star": math.nan}
    known = runs({"F": -3.0, "violation": 1.0, "nfev_lower": 30, **own})
    told = history(*steps([-1.0], problem="own"))
    found = curves.convergence(told, known, Case("own", 2, 3))
    assert found.bands[0].median.tolist() == [-1.0, -1.0]
    assert found.goal.label == "F (optimum unknown)"


def test_the_best_found_is_a_verified_one() -> None:
    values = [(-9.0, -2.0, 0.0), (-3.0, -2.5, 0.0), (-4.0, -8.0, 0.5), (-5.0, -7.0, math.nan)]
    known = runs(
        *(
            {"F": F, "F_verified": true, "violation_verified": wrong, "F_star": math.nan}
            | {"number": i}
            for i, (F, true, wrong) in enumerate(values)
        )
    )
    found = curves.goal(known, Case("smd1", 2, 3))
    assert found == curves.Goal(-2.5, known=False, verified=True)
    assert found.label == "F (best found -2.5)"


def test_any_problem_is_known_whose_optimum_a_run_tells() -> None:
    own = {"problem": "mine:problem"}
    failed = {"status": "failed", "F": math.nan, "F_star": math.nan, "number": 1}
    known = runs(failed | own, {"F": 6.0, "nfev_lower": 10, "F_star": 5.0, **own})
    told = history(*steps([7.0], **own))
    found = curves.convergence(told, known, Case("mine:problem", 2, 3))
    assert found.goal == curves.Goal(5.0, known=True)
    assert [place.problem for place in curves.ecdf(told, known).cases] == ["mine:problem"]


def test_targets_are_reached_by_the_first_value_at_or_below_them() -> None:
    values = [200.0, 100.0, 1.0, 1e-6]
    known = runs({"F": 1e-6, "nfev_lower": 40})
    (line,) = curves.ecdf(history(*steps(values)), known).reached
    expected = [sum(value <= target for target in curves.TARGETS) / 51 for value in values[1:]]
    assert line.evaluations.tolist() == [20, 30, 40]
    assert line.share.tolist() == pytest.approx(expected)
    assert (expected[0], expected[-1]) == (1 / 51, 1.0)


def test_targets_are_of_problems_that_all_methods_have_run_on() -> None:
    other = {"method": "bl-cma-es"}
    known = runs(
        {"F": 1.0, "nfev_lower": 10},
        {"F": 1.0, "nfev_lower": 10, "problem": "smd10"},
        {"F": 1.0, "nfev_lower": 10, "problem": "smd2"},
        {"F": 1.0, "nfev_lower": 10, **other},
        {"F": 1.0, "nfev_lower": 10, "problem": "smd2", **other},
    )
    told = [steps([1.0], problem=problem) for problem in ("smd1", "smd10", "smd2")]
    told += [steps([1.0], problem=problem, **other) for problem in ("smd1", "smd2")]
    found = curves.ecdf(history(*(step for part in told for step in part)), known)
    assert found.cases == [Case("smd1", 2, 3), Case("smd2", 2, 3)]
    assert found.left_out == ["smd10 (2, 3)"]
    assert [line.method for line in found.reached] == ["drc-cma-es", "bl-cma-es"]


def test_long_curves_are_thinned_evenly_and_keep_both_ends() -> None:
    count = 5000
    values = np.geomspace(100, 1e-6, count).tolist()
    known = runs({"F": values[-1], "nfev_lower": 10 * count})
    (band,) = curves.convergence(history(*steps(values)), known, SMD1).bands
    assert 100 < band.evaluations.size <= curves.MAX_POINTS
    assert band.evaluations[[0, -1]].tolist() == [10, 10 * count]
    assert band.median.tolist() == [values[i // 10 - 1] for i in band.evaluations]


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.inf), min_size=1, max_size=9))
def test_quartiles_are_numpys_where_those_are_finite(values: list[float]) -> None:
    column = np.array(values)[:, None]
    found = curves._quantiles(column)[:, 0]
    ranked = sorted(values)
    for share, value in zip(curves.QUARTILES, found, strict=True):
        above = math.ceil(share * (len(values) - 1))
        if math.isinf(ranked[above]):
            assert value == math.inf
        else:
            finite = np.minimum(values, 1e300)
            assert value == pytest.approx(np.quantile(finite, share))


def test_allocation_is_of_the_run_of_median_cost() -> None:
    tasks = {"executions": [3, 1], "survived": [True, False]}
    known = runs(*({"F": 1.0, "nfev_lower": cost, "number": i} for i, cost in enumerate((9, 7, 8))))
    told = history(
        *(step | tasks for i in range(3) for step in steps([1.0] * (10 + i), number=i)),
    )
    found = curves.allocation(told, known, SMD1)
    assert found.numbers == {"drc-cma-es": 2}
    stages = found.stages["drc-cma-es"]
    assert [(stage.name, stage.generation) for stage in stages] == [
        ("early", 1),
        ("middle", 5),
        ("late", 10),
    ]
    assert (stages[0].executions, stages[0].survived) == ([3, 1], [True, False])
    with pytest.raises(ValueError, match="executions of tasks"):
        curves.allocation(history(*steps([1.0])), known, SMD1)


def test_times_are_of_completed_runs_that_have_one() -> None:
    rows = [{"F": 1.0, "nfev_lower": 10, "number": i, "time": float(i)} for i in range(1, 4)]
    lost = {"status": "failed", "time": 99.0, "number": 4, "nfev_lower": 0}
    foreign = {"method": "a program", "F": 1.0, "nfev_lower": 10, "time": math.nan}
    found = curves.times(runs(*rows, lost, foreign))
    place = Case("smd1", 2, 3)
    assert found.per_run == {("drc-cma-es", place): curves.Quartiles(1.5, 2.0, 2.5)}
    assert found.per_evaluation["drc-cma-es", place].median == pytest.approx(0.2)
    assert found.left_out == ["a program"]
    with pytest.raises(ValueError, match="no run has a time"):
        curves.times(runs(foreign))


def test_processor_times_go_before_times_on_the_clock() -> None:
    busy = {"F": 1.0, "nfev_lower": 10, "time": 60.0, "processor_time": 2.0}
    older = {"F": 1.0, "nfev_lower": 10, "time": 3.0, "processor_time": math.nan, "number": 1}
    found = curves.times(runs(busy, older))
    assert found.per_run["drc-cma-es", Case("smd1", 2, 3)].median == 2.5


def test_cliques_are_the_largest_groups_within_the_critical_difference() -> None:
    average = {"d": 4.0, "a": 1.0, "c": 2.5, "b": 1.5}
    assert curves.cliques(average, 1.0) == [("a", "b"), ("b", "c")]
    assert curves.cliques(average, 1.5) == [("a", "b", "c"), ("c", "d")]
    assert curves.cliques(average, 0.1) == []
    assert curves.cliques(average, 9.0) == [("a", "b", "c", "d")]


def test_ranks_come_best_first() -> None:
    accuracies = {"bl-cma-es": 3.0, "drc-cma-es": 1.0, "tlea-cma-es": 2.0}
    known = runs(
        *(
            {"method": name, "F": value, "Acc_u": value, "problem": f"smd{i}", "nfev_lower": 1}
            for i in range(1, 11)
            for name, value in accuracies.items()
        )
    )
    found = curves.ranks(known, "Acc_u")
    assert list(found.average.items()) == [
        ("drc-cma-es", 1.0),
        ("tlea-cma-es", 2.0),
        ("bl-cma-es", 3.0),
    ]
    assert (found.blocks, found.indicator) == (10, "Acc_u")
    assert found.cliques == [("drc-cma-es", "tlea-cma-es"), ("tlea-cma-es", "bl-cma-es")]


def test_a_real_run_ends_at_its_own_accuracy() -> None:
    result = bilevo.minimize(bilevo.problems.get("smd1"), rng=3)
    told = result.history.to_dataframe().with_columns(
        **{name: pl.lit(value, RUNS[name]) for name, value in KEY.items()}
    )
    answer = {"F": result.F, "violation": result.violation, "nfev_upper": result.nfev_upper}
    known = runs(answer | {"nfev_lower": result.nfev_lower})
    (band,) = curves.convergence(told, known, SMD1).bands
    assert band.evaluations[-1] == result.nfev
    assert band.median[-1] == min(abs(row.F) for row in result.history)
    assert (np.diff(band.median) <= 0).all()


def test_targets_over_one_grid_add_up_to_the_curve_of_all_problems() -> None:
    made, past = frames()
    shared, whole = curves.shared_targets(past, made), curves.ecdf(past, made)
    assert list(shared.by_method) == [line.method for line in whole.reached]
    for line in whole.reached:
        of = shared.by_method[line.method].values()
        pairs, end = sum(one.pairs for one in of), max(one.end for one in of)
        assert (pairs, end) == (line.pairs, line.evaluations[-1])
        summed = sum(one.reached for one in of) / pairs
        places = np.searchsorted(line.evaluations, shared.grid, side="right")
        assert summed == pytest.approx(np.append(0.0, line.share)[places])
        assert summed[-1] == line.share[-1]


def test_targets_over_one_grid_leave_out_what_has_none() -> None:
    made, past = frames()
    silent = past.filter(pl.col("method") != METHODS[1])
    unknown = pl.when(pl.col("problem") != "smd10").then("F_star")
    shared = curves.shared_targets(silent, made.with_columns(F_star=unknown))
    assert shared.left_out == [METHODS[1], "smd10 (2, 3)"]
    with pytest.raises(ValueError, match="no run on a problem with a known optimum has a history"):
        curves.shared_targets(past.clear(), made)
