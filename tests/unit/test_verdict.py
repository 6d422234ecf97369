"""The verdict on samples whose statistics are known: what is claimed, and what is not.

Five runs against five that are all worse have p = 2/252 = 0.0079 in the rank-sum test; three
against three have p = 0.1, and cannot be significant.
"""

from __future__ import annotations

import numpy as np
import pytest
from made_runs import FAILED, made, run, runs_of

from bilevo.lab import store
from bilevo.lab.analysis.best import Finding, find_best
from bilevo.lab.analysis.problem_groups import ALL, problem_groups
from bilevo.lab.analysis.samples import Case
from bilevo.lab.analysis.statistics import false_discovery
from bilevo.lab.analysis.table_parts import Study, study_of
from bilevo.lab.analysis.verdict import Verdict, make_verdict

GOOD, BAD = [1e-5, 2e-5, 3e-5, 4e-5, 5e-5], [1e-2, 2e-2, 3e-2, 4e-2, 5e-2]
CHEAP, DEAR = [900, 950, 1000, 1050, 1100], [2900, 2950, 3000, 3050, 3100]


def study(*rows: list[dict], **options) -> Study:
    return study_of(store.frame([one for some in rows for one in some]), **options)


def verdict(*rows: list[dict], **options) -> Verdict:
    return make_verdict(study(*rows, **options))


def answers(method: str, values: list[float], problem: str = "smd1", **given) -> list[dict]:
    return runs_of(method, values, problem, column="verified", **given)


def costs(method: str, values: list[int], problem: str = "smd1", **given) -> list[dict]:
    return runs_of(method, values, problem, column="nfev_lower", nfev_upper=0, **given)


def test_a_clear_winner_by_answers_is_named_with_the_factor() -> None:
    found = verdict(answers("a", GOOD), answers("b", BAD))
    assert found.headline == "a is best on smd1 (2, 3)."
    assert found.points[0] == (
        "a gives better answers on smd1: the next best is 1000 times as far from the optimum."
    )
    [finding] = find_best(study(answers("a", GOOD), answers("b", BAD)))
    assert finding.winner == "a" and finding.next == "b" and finding.by == "verified"
    assert (finding.ours, finding.theirs) == (3e-5, 3e-2)


def test_equal_answers_are_told_apart_by_evaluations() -> None:
    found = verdict(costs("a", DEAR), costs("b", CHEAP), costs("c", DEAR))
    assert found.headline == "b is best on smd1 (2, 3)."
    assert found.points[0] == (
        "b needs fewer evaluations on smd1, where answers do not differ significantly: "
        "the next best needs 3.0 times as many."
    )


def test_answers_count_before_evaluations() -> None:
    dear = [{**one, "nfev_lower": 10**6} for one in answers("a", GOOD)]
    [finding] = find_best(study(dear, answers("b", BAD)))
    assert (finding.winner, finding.by) == ("a", "verified")


def test_no_difference_is_called_so() -> None:
    found = verdict(costs("a", CHEAP), costs("b", CHEAP))
    assert found.headline == "No significant difference between a and b on smd1 (2, 3)."
    assert not any("best" in point for point in found.points)
    both = [costs(name, CHEAP, problem) for name in "ab" for problem in ("smd1", "smd2")]
    assert (
        verdict(*both).headline == "No significant difference between a and b on any of 2 problems."
    )


def test_one_method_has_nothing_to_be_compared_with() -> None:
    found = verdict(costs("a", CHEAP))
    assert found.headline == "Only a has runs: there is nothing to compare it with."
    said = "Runs that found the optimum (F at the follower's true answer, and the reported f)"
    assert found.points == [f"{said}: a in 5 of 5."]
    assert found.how == []


def test_methods_on_different_problems_are_not_compared() -> None:
    found = verdict(costs("a", CHEAP), costs("b", DEAR, "smd2"))
    assert found.headline.startswith("No two methods have runs on the same problem")


def test_failed_runs_are_the_worst_and_are_told() -> None:
    lost = [run("b", i, **FAILED) for i in range(5)]
    found = verdict(answers("a", GOOD), lost)
    assert found.headline == "a is best on smd1 (2, 3)."
    assert found.points[0].endswith(": most runs of the next best have no good answer.")
    assert "Runs that failed, and count as the worst in comparisons: 5 of 5 of b." in found.points


def test_infeasible_runs_are_the_worst_and_are_told() -> None:
    wrong = answers("b", [1e-9] * 5, violation=1.0)
    refuted = answers("c", [1e-9] * 5, violation_verified=1.0)
    found = verdict(answers("a", GOOD), wrong, refuted)
    assert found.headline == "a is best on smd1 (2, 3)."
    said = "Runs that ended infeasible, and count as the worst in comparisons: 5 of 5 of b."
    assert said in found.points
    assert any(
        point.endswith("true answer, and count as the worst in comparisons: 5 of 5 of c.")
        for point in found.points
    )


def test_too_few_runs_decide_nothing() -> None:
    found = verdict(answers("a", GOOD[:3]), answers("b", BAD[:3]))
    assert (
        found.headline == "Too few runs for a test: no difference between the methods can be told."
    )
    assert "Undecided for want of runs: smd1." in found.points


def test_a_single_low_p_among_many_is_not_claimed() -> None:
    """Twelve problems without a difference, and one with p = 0.0079, which chance explains."""
    names = [f"smd{i}" for i in range(1, 13)]
    alike = [costs(method, CHEAP, name) for name in names for method in "ab"]
    lucky = [costs("a", CHEAP, "tp1"), costs("b", DEAR, "tp1")]
    assert verdict(*alike, *lucky).headline.startswith("No significant difference between a and b")
    assert verdict(*lucky).headline == "a is best on tp1 (2, 3)."


def test_the_correction_is_that_of_benjamini_and_hochberg() -> None:
    assert false_discovery([0.01, 0.04, 0.03, 0.5]) == pytest.approx(
        [0.04, 0.16 / 3, 0.16 / 3, 0.5]
    )
    assert false_discovery([]) == []


def test_evaluations_of_runs_that_miss_the_optimum_are_not_compared() -> None:
    far = dict.fromkeys(("verified", "Acc_u"), 0.5)
    found = verdict(costs("a", CHEAP, **far), costs("b", DEAR, **far))
    assert found.headline.startswith("No significant difference")
    assert (
        "No method comes within 1e-04 of the optimum in most of its runs on smd1." in found.points
    )


def test_evaluations_of_runs_with_a_limit_are_not_compared() -> None:
    found = verdict(costs("a", CHEAP, budget=5000), costs("b", DEAR, budget=5000))
    assert found.headline.startswith("No significant difference")
    assert "All runs had max_evals = 5,000: evaluations are not compared." in found.how


def test_where_no_optimum_is_known_the_lower_F_is_better() -> None:
    none = dict.fromkeys(("F_star", "f_star", "Acc_u", "Acc_l", "verified"), np.nan)
    low = runs_of("a", [-5.0, -5.1, -5.2, -5.3, -5.4], "gold", column="F_verified", **none)
    high = runs_of("b", [-1.0, -1.1, -1.2, -1.3, -1.4], "gold", column="F_verified", **none)
    found = verdict(low, high)
    assert found.headline == "a is best on gold (2, 3)."
    assert found.points == ["a finds a lower F on gold: -5.2, and the next best -1.2."]


def test_methods_that_were_not_verified_are_compared_as_they_report() -> None:
    theirs = runs_of("theirs", BAD, verified=np.nan)
    [finding] = find_best(study(runs_of("a", GOOD), theirs))
    assert (finding.winner, finding.by) == ("a", "Acc_u")


def test_a_method_without_answers_is_not_among_the_best() -> None:
    none = runs_of("theirs", [np.nan] * 5, verified=np.nan, Acc_l=np.nan)
    alike = runs_of("a", GOOD), runs_of("b", GOOD)
    [finding] = find_best(study(*alike, none))
    assert finding.compared == finding.best == ("a", "b")
    assert find_best(study(alike[0], none)) == []


def test_several_problems_are_counted_and_their_factors_summed_up() -> None:
    rows = []
    for problem, times in (("smd1", 2), ("smd2", 3), ("smd3", 4)):
        rows += [costs("a", CHEAP, problem), costs("b", [times * x for x in CHEAP], problem)]
    rows += [costs("a", DEAR, "smd9"), costs("b", CHEAP, "smd9")]
    rows += [costs("a", CHEAP, "smd10"), costs("b", CHEAP, "smd10")]
    found = verdict(*rows)
    assert found.headline == "a is best on 3 of 5 problems."
    assert found.points[:4] == [
        "a needs fewer evaluations on 3 problems (smd1, smd2 and smd3), where answers do not "
        "differ significantly: the next best needs 3.0 times as many (median; 2.0 to 4.0).",
        "b needs fewer evaluations on smd9, where answers do not differ significantly: the next "
        "best needs 3.0 times as many.",
        "No significant difference between a and b on smd10.",
        "Single best by group of problems: with constraints, b on 1 of 2; without constraints, a "
        "on 3 of 3.",
    ]


def test_two_that_win_as_often_are_both_named() -> None:
    rows = [costs("a", CHEAP), costs("b", DEAR), costs("a", DEAR, "tp1"), costs("b", CHEAP, "tp1")]
    assert verdict(*rows).headline == "a and b are best on 1 of 2 problems each."


def test_the_best_two_of_three_share_a_problem() -> None:
    found = verdict(costs("a", CHEAP), costs("b", CHEAP), costs("c", DEAR))
    assert found.headline == "No method is the single best on smd1 (2, 3)."
    assert "No significant difference between the best, a and b, on smd1." in found.points


def test_average_ranks_say_who_is_behind_and_who_is_not() -> None:
    names = [f"smd{i}" for i in range(1, 11)]
    rows = [
        answers(method, [1e-5 * k + 1e-6 * i for i in range(5)], name)
        for name in names
        for method, k in (("a", 1), ("b", 2), ("c", 90))
    ]
    [point] = [each for each in verdict(*rows).points if each.startswith("Average ranks")]
    assert point == (
        "Average ranks of answers over 10 problems: a 1.00, b 2.00 and c 3.00; a is significantly "
        "better than c (Friedman p = 4.5e-05, Nemenyi)."
    )


def test_many_problems_are_listed_in_part() -> None:
    names = [f"smd{i}" for i in range(1, 11)]
    rows = [costs(m, v, name) for name in names for m, v in (("a", CHEAP), ("b", DEAR))]
    assert "10 problems (smd1, smd2, smd3, smd4, smd5, smd6 and 4 more)" in verdict(*rows).points[0]


def test_the_table_of_the_best_says_by_how_much() -> None:
    rows = [
        *costs("a", CHEAP),
        *costs("b", DEAR),
        *costs("a", CHEAP, "tp1"),
        *costs("b", CHEAP, "tp1"),
    ]
    table = made(rows, "best")
    shown = [
        [cell if isinstance(cell, str) else cell.written for cell in row] for row in table.rows
    ]
    assert table.header == ["problem", "best", "by", "median", "next", "its median", "times"]
    assert shown == [
        ["smd1", "a", "FEs", "1000", "b", "3000", "3"],
        ["tp1", "a, b", "no difference", "-", "-", "-", "-"],
    ]
    assert made(costs("a", CHEAP), "best").rows == []


def test_the_table_of_groups_counts_who_is_best() -> None:
    rows = []
    for problem in ("smd1", "smd2", "smd9", "smd10"):
        rows += [*costs("a", CHEAP, problem), *costs("b", DEAR, problem)]
    rows += [*costs("a", CHEAP, "smd11"), *costs("b", CHEAP, "smd11")]
    table = made(rows, "groups")
    assert table.header == ["group", "problems", "a", "no single best"]
    assert [
        [cell if isinstance(cell, str) else cell.value for cell in row] for row in table.rows
    ] == [
        ["all problems", 5, 4, 1],
        ["with constraints", 3, 2, 1],
        ["without constraints", 2, 2, 0],
    ]
    assert made(rows[:10], "groups").rows == []


def test_a_name_has_its_size_if_the_problem_has_several() -> None:
    rows = [costs(m, v, "tp1") for m, v in (("a", CHEAP), ("b", DEAR))]
    for size in (2, 10):
        rows += [costs(m, v, m=size, n=size) for m, v in (("a", CHEAP), ("b", DEAR))]
    said = verdict(*rows).points[0]
    assert "on 3 problems (smd1 (2, 2), smd1 (10, 10) and tp1)," in said


def test_of_many_ties_and_methods_only_some_are_told() -> None:
    names = [f"m{i}" for i in range(9)]
    rows = [costs(name, CHEAP, "smd1") for name in names]
    for i in range(4):  # four problems, each with its own two that are best
        for k, name in enumerate(names[:4]):
            rows.append(costs(name, CHEAP if k in (i, (i + 1) % 4) else DEAR, f"smd{i + 2}"))
    points = verdict(*rows).points
    assert (
        points[0] == "No significant difference between m0, m1, m2, m3, m4, m5 and 3 more on smd1."
    )
    assert points[3] == "No single best method on 2 problems (smd4 and smd5) either."


def test_a_factor_of_zero_is_infinite() -> None:
    case = Case("smd1", 2, 3)
    assert Finding(case, ("a", "b"), ("a",), "verified", "b", 0.0, 1e-3).factor == np.inf
    assert np.isnan(Finding(case, ("a", "b"), ("a",), "F", "b", 1.0, 2.0).factor)


def test_groups_of_problems_are_parts_and_none_is_listed_twice() -> None:
    small = [Case(name, 2, 3) for name in ("smd1", "smd2", "smd9", "smd10")]
    large = [Case("smd1", 10, 10), Case("smd2", 10, 10)]
    groups = problem_groups([*small, *large])
    assert groups[ALL] == [*small, *large]
    assert groups["size (10, 10)"] == large
    assert groups["with constraints"] == small[2:]
    assert "suite smd" not in groups  # it has all of them
    assert problem_groups(small[:2]) == {ALL: small[:2]}
    own = [Case("mine1", 2, 3), Case("mine2", 2, 3)]
    assert "without constraints" not in problem_groups(own)
