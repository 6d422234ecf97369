"""Runs without a good answer: infeasible ones, failed ones, and too few of any kind."""

import numpy as np
from made_runs import FAILED, LOST, made, row, run, runs_of

from bilevo.lab import store
from bilevo.lab.analysis import samples


def test_a_run_without_any_answer_is_the_worst_and_not_left_out() -> None:
    rows = [*runs_of("drc-cma-es", [1.0]), run("drc-cma-es", 1, **LOST)]
    rows.append(run("drc-cma-es", 2, **LOST))
    table = made(rows, "accuracy")
    assert row(table, "smd1", "Acc_u")[0].value == np.inf
    assert row(table, "smd1", "verified")[0].value == np.inf


def test_a_method_that_never_found_a_pair_is_the_worst_in_all_that_others_tell() -> None:
    rows = runs_of("drc-cma-es", [1.0] * 5)
    rows += [run("bl-cma-es", i, **LOST) for i in range(5)]
    table = made(rows, "accuracy")
    for indicator in ("Acc_u", "Acc_l", "verified"):
        good, lost = row(table, "smd1", indicator)
        assert (lost.value, lost.mark, lost.best, lost.doubt) == (np.inf, "+", False, True)
        assert good.best
    untold = [{**one, "verified": np.nan} for one in rows]
    assert {line[1] for line in made(untold, "accuracy").rows} == {"Acc_u", "Acc_l"}


def test_infeasible_answers_do_not_win() -> None:
    rows = runs_of("drc-cma-es", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    rows += runs_of("bl-cma-es", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], violation=1.0)
    rows += runs_of("nblea", [0.1] * 3 + [9.0] * 3)
    for one in rows[-6:-4]:
        one["violation"] = 1e-9
    table = made(rows, "accuracy")
    feasible, infeasible, mixed = row(table, "smd1", "Acc_u")
    assert (infeasible.value, infeasible.mark) == (0.35, "+")  # shown as reported
    assert infeasible.doubt and not mixed.doubt
    assert mixed.value == 4.55 and not mixed.best  # counts as 9
    assert feasible.best and not infeasible.best
    assert any(note.startswith("!: at least half of the runs failed or") for note in table.notes)
    assert any("infeasible runs are the worst" in note for note in table.notes)
    average = {line[0]: line[1].value for line in made(rows, "ranks").rows}
    assert average == {"drc-cma-es": 1, "nblea": 2, "bl-cma-es": 3}


def test_failed_runs_are_the_worst_in_tests_and_for_the_best() -> None:
    rows = runs_of("drc-cma-es", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    rows += runs_of("bl-cma-es", [0.1, 0.1])
    rows += [run("bl-cma-es", i, **FAILED) for i in range(2, 6)]
    rows += [run("nblea", i, **FAILED) for i in range(6)]
    whole, mostly, always = row(made(rows, "accuracy"), "smd1", "Acc_u")
    assert (mostly.value, mostly.doubt, mostly.best, whole.best) == (0.1, True, False, True)
    assert (always.written, always.mark) == ("failed", "+")
    signed = row(made(rows, "accuracy", test="signed-rank"), "smd1", "Acc_u")
    assert signed[2].mark == "+"
    counts = row(made(rows, "evaluations"), "smd1", "FEs_u")
    assert [cell.mark for cell in counts] == ["", "", ""]  # two that completed are too few


def test_what_is_infeasible_at_the_true_answer_does_not_win_where_that_counts() -> None:
    rows = runs_of("drc-cma-es", [1.0] * 5, column="verified", Acc_u=1.0)
    rows += runs_of("bl-cma-es", [0.1] * 5, column="verified", Acc_u=0.1, violation_verified=0.5)
    table = made(rows, "accuracy")
    reported, verified = row(table, "smd1", "Acc_u"), row(table, "smd1", "verified")
    assert (reported[1].mark, reported[1].best, reported[1].doubt) == ("-", True, False)
    assert (verified[1].mark, verified[1].best, verified[1].doubt) == ("+", False, True)
    note = "Runs that are infeasible at the follower's true answer: bl-cma-es 5 on smd1."
    assert note in table.notes


def test_a_problem_is_known_by_what_runs_tell_of_its_optimum() -> None:
    failed = [run("drc-cma-es", 0, "smd9", **{**FAILED, "F_star": -1.0})]
    own = [run("drc-cma-es", 0, "mine:problem"), run("drc-cma-es", 0, "other", F_star=np.nan)]
    found = samples.grouped(store.frame(failed + own))
    known = [case.problem for case in samples.of_known_optimum(found)]
    assert sorted(known) == ["mine:problem", "smd9"]
    assert {line[0] for line in made(failed + own, "real").rows} == {"other"}


def test_too_few_runs_have_no_marks_and_no_counts() -> None:
    rows = runs_of("drc-cma-es", [1.0, 2.0, 3.0]) + runs_of("bl-cma-es", [7.0, 8.0, 9.0])
    table = made(rows, "accuracy")
    assert [cell.mark for cell in row(table, "smd1", "Acc_u")] == ["", ""]
    assert not table.closing and "Samples of 3 are too few for a test at 0.05." in table.notes
    assert not any("Wilcoxon" in note for note in table.notes)
    lax = made(rows, "accuracy", alpha=0.11)
    assert row(lax, "smd1", "Acc_u")[1].mark == "+" and lax.closing
    pairs = runs_of("drc-cma-es", [float(i) for i in range(5)])
    pairs += runs_of("bl-cma-es", [10.0 * i + 10 for i in range(5)])
    assert row(made(pairs, "accuracy"), "smd1", "Acc_u")[1].mark == "+"
    paired = made(pairs, "accuracy", test="signed-rank")
    assert row(paired, "smd1", "Acc_u")[1].mark == ""
    assert "Samples of 5 are too few for a test at 0.05." in paired.notes
