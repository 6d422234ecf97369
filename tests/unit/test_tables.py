"""Tables of runs: what stands in them, beside what, and what is said of it."""

from pathlib import Path

import numpy as np
import pytest
from made_runs import PAPER, made, row, run, runs_of

from bilevo import registry
from bilevo.lab import store
from bilevo.lab.analysis import samples, tables
from bilevo.lab.analysis.samples import Case
from bilevo.lab.analysis.table_parts import Cell

DATA = Path(__file__).parents[2] / "docs" / "data"


def test_a_cell_has_the_median_the_spread_the_mark_and_the_best() -> None:
    good, bad = [float(i) for i in range(1, 12)], [float(i) for i in range(101, 112)]
    table = made(runs_of("drc-cma-es", good) + runs_of("bl-cma-es", bad), "accuracy")
    assert table.header == ["problem", "indicator", "drc-cma-es", "bl-cma-es"]
    reference, other = row(table, "smd1", "Acc_u")
    assert (reference.value, reference.spread, reference.mark, reference.best) == (6, 5, "", True)
    assert (other.value, other.spread, other.mark, other.best) == (106, 5, "+", False)
    assert [cell.written for cell in row(table, "+/-/=", "Acc_u")] == ["", "1/0/0"]
    turned = made(
        runs_of("drc-cma-es", good) + runs_of("bl-cma-es", bad), "accuracy", reference="bl-cma-es"
    )
    assert [cell.mark for cell in row(turned, "smd1", "Acc_u")] == ["-", ""]
    assert [cell.written for cell in row(turned, "+/-/=", "Acc_u")] == ["0/1/0", ""]


def test_the_floor_makes_ties_and_is_told() -> None:
    rows = runs_of("drc-cma-es", [1e-9] * 11) + runs_of("bl-cma-es", [1e-8] * 11)
    floored = row(made(rows, "accuracy"), "smd1", "Acc_u")
    assert [(cell.value, cell.best) for cell in floored] == [(1e-6, True)] * 2
    assert floored[1].mark == "="
    bare = made(rows, "accuracy", floor=None)
    assert [cell.mark for cell in row(bare, "smd1", "Acc_u")] == ["", "+"]
    assert any("below 1e-06" in note for note in made(rows, "accuracy").notes)
    assert not any("below" in note for note in bare.notes)


def test_failed_runs_are_left_out_and_infeasible_ones_are_told() -> None:
    rows = runs_of("drc-cma-es", [1.0, 2.0, 3.0])
    rows.append(run("drc-cma-es", 3, status="failed", Acc_u=np.nan, F=np.nan, nfev_upper=0))
    rows.append(run("drc-cma-es", 4, Acc_u=4.0, violation=0.5))
    table = made(rows, "accuracy")
    assert row(table, "smd1", "Acc_u")[0].value == 2.5
    assert "Medians of 4 runs." in table.notes
    assert "Runs that failed and are left out: drc-cma-es 1 on smd1." in table.notes
    assert "Runs that ended infeasible: drc-cma-es 1 on smd1." in table.notes


def test_what_a_foreign_program_does_not_tell_is_a_dash() -> None:
    rows = runs_of("drc-cma-es", [1.0] * 3)
    rows += runs_of("theirs", [1.0] * 3, verified=np.nan, near=None)
    table = made(rows, "accuracy")
    assert [cell.written for cell in row(table, "smd1", "verified")] == ["1.00e-06", "-"]
    assert not row(table, "smd1", "verified")[1].mark
    assert row(made(rows, "effort"), "smd1", "evaluations to 1e-04")[1].written == "-"


def test_the_papers_figures_stand_beside_ours_and_its_marks_beside_our_counts() -> None:
    rows = [
        one
        for problem in ("smd1", "smd2")
        for method in ("drc-cma-es", "nblea", "drc-de")
        for one in runs_of(method, [1e-7] * 5, problem)
    ]
    table = made(rows, "accuracy", baseline=PAPER)
    assert [cell.baseline for cell in row(table, "smd1", "Acc_u")] == [1e-6, 3.47e-5, None]
    assert [cell.baseline for cell in row(table, "smd1", "verified")] == [None] * 3
    assert [cell.written for cell in row(table, "+/-/=", "Acc_u")] == ["", "0/0/2 [2/0/0]", "0/0/2"]
    assert row(made(rows, "accuracy"), "smd1", "Acc_u")[0].baseline is None


def test_counts_stand_beside_the_papers_only_over_the_same_problems() -> None:
    rows = [
        one
        for problem, m, n in (("smd1", 2, 3), ("smd2", 2, 3), ("smd1", 10, 10), ("own", 10, 10))
        for method in ("drc-cma-es", "nblea")
        for one in runs_of(method, [1e-7] * 5, problem, m=m, n=n)
    ]
    table = made(rows, "accuracy", baseline=PAPER)
    assert row(table, "+/-/=", "(2, 3)", "Acc_u")[1].written == "0/0/2 [2/0/0]"
    assert row(table, "+/-/=", "(10, 10)", "Acc_u")[1].written == "0/0/2"
    mixed = [one for one in rows if one["m"] == 2]
    mixed += [{**one, "problem": "own"} for one in mixed if one["problem"] == "smd2"]
    table = made(mixed, "accuracy", baseline=PAPER)
    assert row(table, "+/-/=", "Acc_u")[1].written == "0/0/3"


def test_problems_of_sizes_of_their_own_are_counted_together() -> None:
    rows = [
        one
        for problem, m, n in (("tp1", 2, 2), ("tp5", 2, 2), ("tp6", 1, 2))
        for method in ("drc-cma-es", "nblea")
        for one in runs_of(method, [1e-7] * 5, problem, m=m, n=n)
    ]
    assert row(made(rows, "accuracy"), "+/-/=", "", "Acc_u")[1].written == "0/0/3"


@pytest.mark.parametrize("ends", [{"budget": 500}, {"target": False}])
def test_runs_that_ended_otherwise_do_not_stand_beside_the_papers(ends: dict) -> None:
    table = made(runs_of("drc-cma-es", [1e-7] * 5, **ends), "accuracy", baseline=PAPER)
    assert row(table, "smd1", "Acc_u")[0].baseline is None
    assert any("had no limit and ended at the known optimum" in note for note in table.notes)
    assert not any(note.startswith("In brackets") for note in table.notes)
    summary = made(runs_of("drc-cma-es", [1e-7] * 5, **ends), "summary", baseline=PAPER)
    assert not summary.rows and "these ended otherwise" in summary.notes[0]


@pytest.mark.parametrize("ends", [{"budget": 500}, {"status": "max_evals"}, {"status": "max_time"}])
def test_runs_cut_off_by_a_limit_are_not_compared_with_the_papers(ends: dict) -> None:
    told = made(runs_of("drc-cma-es", [1e-7] * 5), "solved", baseline=PAPER)
    assert told.header == ["problem", "evaluations", "of the baseline's", "solved"]
    assert len(told.rows[0]) == 4 and told.rows[-1][2].value > 0
    table = made(runs_of("drc-cma-es", [1e-7] * 5, **ends), "solved", baseline=PAPER)
    assert table.header == ["problem", "evaluations", "solved"]
    assert {len(line) for line in table.rows} == {3}
    assert any("The runs of the DRC paper had no limit" in note for note in table.notes)
    assert not any("ratio" in note for note in table.notes)


def test_runs_that_did_not_know_the_optimum_say_so_beside_the_papers() -> None:
    table = made(runs_of("drc-cma-es", [1e-7] * 5, target=False), "solved", baseline=PAPER)
    assert "of the baseline's" in table.header and "did not know it" in table.notes[-1]


def test_brackets_are_explained_only_where_there_are_any() -> None:
    here, elsewhere = runs_of("nblea", [1e-7]), runs_of("nblea", [1e-7], "tp1", m=2, n=2)
    nothing = "The DRC paper prints none of these figures."
    for kind in ("accuracy", "evaluations", "total"):
        assert any(
            note.startswith("In brackets") for note in made(here, kind, baseline=PAPER).notes
        )
        assert nothing in made(elsewhere, kind, baseline=PAPER).notes
        assert nothing not in made(elsewhere, kind).notes
    assert made(elsewhere, "summary", baseline=PAPER).notes == [nothing]


def printed(problem: str, m: int, n: int, method: str, indicator: str) -> float | None:
    """What the DRC paper prints."""
    return PAPER.medians.get((Case(problem, m, n), method, indicator))


def test_the_paper_is_quoted_as_it_is() -> None:
    assert printed("smd1", 2, 3, "drc-cma-es", "FEs_u") == 818
    assert printed("smd12", 10, 10, "bl-cma-es", "FEs") == 418000
    assert printed("smd6", 2, 3, "bleaq2", "FEs") == 3450
    assert printed("gold-mining", 2, 1, "sa-bl-imode", "F") == -311
    assert printed("decision-making", 3, 3, "drc-cma-es", "FEs_l") == 38900
    assert PAPER.marks[Case("smd8", 2, 3), "bl-cma-es", "Acc_u"] == "-"
    nothing = [("smd1", 2, 3, "drc-de", "FEs"), ("smd1", 10, 10, "nblea", "Acc_u")]
    nothing += [("tp1", 2, 2, "nblea", "FEs"), ("smd1", 2, 3, "nblea", "verified")]
    assert [printed(*asked) for asked in nothing] == [None] * 4


def test_the_papers_own_counts_come_out_of_its_marks() -> None:
    """Its Table of accuracies ends with 1/1/10 & 3/1/8 for BL-CMA-ES."""
    marks = [
        [PAPER.marks[Case(f"smd{i}", 2, 3), "bl-cma-es", key] for i in range(1, 13)]
        for key in ("Acc_u", "Acc_l")
    ]
    counts = ["/".join(str(line.count(mark)) for mark in "+-=") for line in marks]
    assert counts == ["1/1/10", "3/1/8"]


def test_savings_and_averages_are_reckoned_as_in_the_paper() -> None:
    """Runs that need what the paper prints, so the percentages must be the printed ones."""
    rows = []
    for method in ("drc-cma-es", "nblea", "bleaq2"):
        for i in range(1, 13):
            total = printed(f"smd{i}", 2, 3, method, "FEs")
            rows += runs_of(method, [total], f"smd{i}", "nfev_lower", nfev_upper=0)
    table = made(rows, "total", baseline=PAPER)
    expected = {"smd1": ("97.2%", "73.2%"), "smd6": ("40.1%", "-83.5%")}
    expected["smd average of 12"] = ("97.3%", "89.6%")  # smd6: 40.2% from figures not rounded
    for name, shares in expected.items():
        reference, *others = row(table, name)
        assert reference.saved is None
        assert tuple(f"{cell.saved:.1%}" for cell in others) == shares
    average = row(table, "smd average of 12")
    assert [f"{cell.value:.2e}" for cell in average] == ["2.42e+04", "9.00e+05", "2.32e+05"]
    assert [cell.baseline for cell in average] == [cell.value for cell in average]
    assert [cell.best for cell in row(table, "smd6")] == [False, False, True]


@pytest.mark.parametrize("kind", ["total", "evaluations"])
def test_with_a_limit_evaluations_are_not_compared(kind: str) -> None:
    rows = runs_of("drc-cma-es", [900, 910, 920, 930, 940], column="nfev_lower", budget=1000)
    rows += runs_of("bl-cma-es", [800, 810, 820, 830, 840], column="nfev_lower", budget=1000)
    table = made(rows, kind)
    cells = [cell for line in table.rows for cell in line if isinstance(cell, Cell)]
    assert not any(cell.best or cell.mark or cell.saved is not None for cell in cells)
    assert "All runs had 1000 evaluations: their numbers are not compared." in table.notes
    assert not any("fewer" in note for note in table.notes)
    assert not any("FEs" in name for name in made(rows, "ranks").header)


@pytest.mark.parametrize("kind", ["total", "evaluations"])
def test_few_evaluations_that_miss_the_optimum_are_not_the_best(kind: str) -> None:
    rows = runs_of("drc-cma-es", [1e-5] * 3) + runs_of("bl-cma-es", [1.0] * 3, nfev_upper=10)
    table = made(rows, kind)
    near, missed = [cell for cell in table.rows[0] if isinstance(cell, Cell)]
    assert (near.best, near.doubt) == (True, False)
    assert (missed.best, missed.doubt) == (False, True)
    assert any("missed the known optimum by more than 1e-04" in note for note in table.notes)


def test_averages_are_of_problems_that_all_have() -> None:
    rows = [
        one
        for method, problems in (("drc-cma-es", 3), ("bl-cma-es", 2))
        for i in range(problems)
        for one in runs_of(method, [1000 * (i + 1)], f"smd{i + 1}", "nfev_lower", nfev_upper=0)
    ]
    rows += runs_of("drc-cma-es", [7], "smd1", "nfev_lower", m=10, n=10)
    table = made(rows, "total")
    assert [cell.value for cell in row(table, "smd average of 2", "(2, 3)")] == [1500, 1500]
    assert [line[:2] for line in table.rows][:2] == [["smd1", "(2, 3)"], ["smd1", "(10, 10)"]]
    assert sum("average" in line[0] for line in table.rows) == 1


def test_problems_of_unknown_optimum_have_a_table_of_their_own() -> None:
    unknown = {"m": 2, "n": 1, "Acc_l": np.nan, "verified": np.nan, "F_verified": -313.0}
    unknown |= {"F_star": np.nan, "f_star": np.nan}
    rows = runs_of("drc-cma-es", [-314.25, -314.25], "gold-mining", "F", Acc_u=np.nan, **unknown)
    rows += runs_of("drc-cma-es", [1e-7], "smd1")
    table = made(rows, "real", baseline=PAPER)
    assert [line[1] for line in table.rows[:6]] == ["F", "F_verified", "f", "FEs_u", "FEs_l", "FEs"]
    (cell,) = row(table, "gold-mining", "F")
    assert cell.written == "-314.25" and cell.baseline == -314
    assert row(table, "gold-mining", "F_verified")[0].value == -313
    assert {line[0] for line in made(rows, "accuracy").rows} == {"smd1"}
    assert {line[0] for line in made(rows, "effort").rows} == {"smd1"}
    known = made(runs_of("drc-cma-es", [1e-7]), "real")
    assert known.rows == [] and known.notes == ["The optima of all problems are known."]


def test_the_followers_value_and_an_unverified_one_are_no_merit() -> None:
    unknown = {"m": 2, "n": 1, "F_star": np.nan, "Acc_u": np.nan, "Acc_l": np.nan}
    unknown |= {"verified": np.nan, "problem": "gold-mining", "column": "f"}
    rows = runs_of("drc-cma-es", [2e-5] * 5, F=-3.0, F_verified=-2.0, **unknown)
    rows += runs_of("bl-cma-es", [1e-5] * 5, F=-9.0, F_verified=-1.0, **unknown)
    table = made(rows, "real")
    for indicator in ("F", "f"):
        cells = row(table, "gold-mining", indicator)
        assert not any(cell.best or cell.mark for cell in cells)
    assert [cell.written for cell in cells] == ["2e-05", "1e-05"]
    assert [cell.best for cell in row(table, "gold-mining", "F_verified")] == [True, False]
    assert next(line[1] for line in table.rows if line[0] == "+/-/=") == "F_verified"
    bare = [{**one, "F_verified": np.nan} for one in rows]
    cells = row(made(bare, "real"), "gold-mining", "F")
    assert [(cell.best, cell.mark) for cell in cells] == [(False, ""), (True, "-")]


def test_the_effort_is_what_one_success_costs() -> None:
    counts = {"nfev_upper": 0, "nfev_lower": 100}
    rows = [run("drc-cma-es", i, near=30, Acc_u=1e-5, **counts) for i in range(9)]
    rows.append(run("drc-cma-es", 9, near=0, Acc_u=1.0, verified=1.0, **counts))
    rows.append(run("drc-cma-es", 10, status="failed", F=np.nan))
    rows += [run("drc-ga", i, near=0, Acc_u=1.0, violation=1.0, **counts) for i in range(3)]
    table = made(rows, "effort")
    whole, never = row(table, "smd1", "evaluations to 1e-04")
    assert whole.value == pytest.approx((9 * 30 + 100) / 9) and whole.best
    assert never.written == "never" and not never.best
    shares = [row(table, "smd1", name)[0].value for name in ("Acc_u <= 1e-04", "Acc_u <= 1e-06")]
    assert shares == [9 / 11, 0]
    assert [cell.written for cell in row(table, "smd1", "verified <= 1e-04")] == ["82%", "0%"]


def test_ranks_come_with_a_test_and_effect_sizes() -> None:
    rows = [
        one
        for place, method in enumerate(("drc-cma-es", "bl-cma-es", "nblea"), start=1)
        for i in range(1, 11)
        for one in runs_of(method, [place * 10.0 + k for k in range(5)], f"smd{i}")
    ]
    table = made(rows, "ranks")
    assert table.header[:3] == ["method", "Acc_u: rank", "Acc_u: A12"]
    shown = [[cell.written for cell in row(table, name)[:2]] for name in ("drc-cma-es", "nblea")]
    assert shown == [["1.00", "-"], ["3.00", "1.00"]]
    assert any(note.startswith("Acc_u: p = 4.5e-05") for note in table.notes)
    assert any("critical difference 1.05" in note for note in table.notes)
    two = made([one for one in rows if one["method"] != "nblea"], "ranks")
    assert two.header[1] == "Acc_u: A12"
    assert any("needs 3 methods or more" in note for note in two.notes)


def test_the_summary_counts_problems_near_the_paper() -> None:
    shares = {"smd1": 1.05, "smd2": 1 / 1.4, "smd3": 1.9, "smd4": 2.5}  # of the paper's 818, ...
    rows = []
    for problem, share in shares.items():
        upper, lower = (printed(problem, 2, 3, "drc-cma-es", key) for key in ("FEs_u", "FEs_l"))
        counts = {"nfev_upper": round(share * upper), "nfev_lower": int(lower)}
        rows.append(run("drc-cma-es", 0, problem, Acc_u=1e-3, **counts))
    rows.append(run("drc-de", 0))
    (line,) = made(rows, "summary", baseline=PAPER).rows
    assert line[:3] == ["drc-cma-es", "specified from the paper", "(2, 3)"]
    assert [cell.written for cell in line[3:6]] == ["4", "1, 2, 3", "4, 4, 4"]
    assert [cell.written for cell in line[-2:]] == ["0", "4"]
    header = made(rows, "summary", baseline=PAPER).header
    assert len(set(header)) == len(header)


def test_the_agreement_names_the_problems_that_are_far_from_the_paper() -> None:
    shares = {"smd1": 1.05, "smd2": 1 / 1.4, "smd3": 1.9, "smd4": 2.5}
    rows = [
        run("drc-cma-es", 0, problem, nfev_upper=0, nfev_lower=round(share * printed_FEs))
        for problem, share in shares.items()
        for printed_FEs in [printed(problem, 2, 3, "drc-cma-es", "FEs")]
    ]
    table = made(rows, "agreement", baseline=PAPER)
    assert table.header[:2] == ["method", "smd (2, 3)"] and "smd (30, 30)" in table.header
    assert len(table.rows) == 8
    line = [cell if isinstance(cell, str) else cell.written for cell in table.rows[0]]
    assert line == ["drc-cma-es", "1, 2, 3 of 4", *["no runs"] * 4, "0 of 0", "smd4 (2, 3) 2.5"]
    assert "--baseline FILE" in made(rows, "agreement").notes[0]


def test_differences_are_told_from_chance_if_there_are_enough_runs() -> None:
    theirs = round(printed("smd1", 2, 3, "drc-cma-es", "FEs"))
    other = round(printed("smd2", 2, 3, "drc-cma-es", "FEs"))
    few = round(printed("smd3", 2, 3, "drc-cma-es", "FEs"))
    rows = [
        *(run("drc-cma-es", i, "smd1", nfev_lower=2 * theirs + i) for i in range(21)),
        *(run("drc-cma-es", i, "smd2", nfev_lower=other + 999 * (i - 8)) for i in range(21)),
        *(run("drc-cma-es", i, "smd3", nfev_lower=9 * few) for i in range(3)),
    ]
    table = made(rows, "differences", baseline=PAPER)
    (line,) = table.rows
    assert line[:2] == ["drc-cma-es", "smd1 (2, 3)"]
    assert table.notes[0].startswith("1 of 2 problems")
    of_all = made(rows, "agreement", baseline=PAPER).rows[0]
    assert [cell if isinstance(cell, str) else cell.written for cell in of_all][-2] == "1 of 2"


def test_signed_ranks_take_runs_of_the_same_number() -> None:
    rows = [run("drc-cma-es", i, Acc_u=1.0 + i) for i in range(12)]
    rows += [run("bl-cma-es", i, Acc_u=1.001 + i) for i in reversed(range(2, 14))]
    paired = row(made(rows, "accuracy", test="signed-rank"), "smd1", "Acc_u")
    unpaired = row(made(rows, "accuracy", test="rank-sum"), "smd1", "Acc_u")
    assert (paired[1].mark, unpaired[1].mark) == ("+", "=")
    notes = made(rows, "accuracy", test="signed-rank").notes
    assert any("pairs are by number only" in note for note in notes)
    apart = [run("drc-cma-es", 0, Acc_u=1.0), run("bl-cma-es", 1, Acc_u=2.0)]
    assert row(made(apart, "accuracy", test="signed-rank"), "smd1", "Acc_u")[1].mark == ""


def test_holms_correction_takes_the_tests_of_an_indicator_as_one_family() -> None:
    weak = [1.0, 2.0, 3.0, 4.0, 5.5], [5.0, 6.0, 7.0, 8.0, 9.0]  # p = 0.016 each
    rows = [
        one
        for i in range(1, 6)
        for method, values in zip(("drc-cma-es", "bl-cma-es"), weak, strict=True)
        for one in runs_of(method, values, f"smd{i}")
    ]
    assert row(made(rows, "accuracy"), "+/-/=", "Acc_u")[1].written == "5/0/0"
    corrected = made(rows, "accuracy", holm=True)
    assert row(corrected, "+/-/=", "Acc_u")[1].written == "0/0/5"
    assert any("Holm" in note for note in corrected.notes)


def test_reconstructions_are_called_so_in_every_table() -> None:
    assert registry.methods()["mfbla"].status == registry.Status.RECONSTRUCTION
    rows = [run(name, 0) for name in ("mfbla", "mfbla/plain", "drc-cma-es")]
    rows += [{**one, "problem": "mine", "F_star": np.nan} for one in rows]
    for kind in tables.TABLES:
        table = made(rows, kind, baseline=PAPER)
        names = [*table.header, *(cell for line in table.rows for cell in line)]
        told = [name for name in names if isinstance(name, str) and "reconstruction" in name]
        none = dict.fromkeys(("groups", "sensitivity", "differences"), 0)
        assert len(told) == {"summary": 1, "solved": 6, **none}.get(kind, 2)


def test_other_programs_results_are_no_reconstructions_of_ours() -> None:
    rows = [run("mfbla", i, status="imported") for i in range(2)]
    rows += [run("mfbla", 2, status="failed"), run("drc-cma-es", 0)]
    assert made(rows, "total").header == ["problem", "drc-cma-es", "mfbla"]
    assert [line[1] for line in made(rows, "summary", baseline=PAPER).rows] == [
        "specified from the paper",
        "imported",
    ]
    both = [*rows, run("mfbla", 3, status="target")]
    assert made(both, "total").header[-1] == "mfbla (reconstruction)"


def test_problems_and_methods_stand_in_their_natural_order() -> None:
    names = ["prob10", "prob2", "smd10-rot", "smd2-rot", "gold-mining", "tp1", "smd10", "smd2"]
    found = samples.grouped(store.frame([run("x", 0, name) for name in names]))
    assert [case.problem for case in found] == names[::-1]
    methods = ["zeta", "drc-de/plain", "bleaq2", "drc-de", "drc-cma-es/plain", "drc-cma-es"]
    assert samples.ordered_methods(methods) == [
        *("drc-cma-es", "drc-cma-es/plain", "bleaq2", "drc-de", "drc-de/plain", "zeta")
    ]


def test_an_average_is_over_one_kind_of_problem() -> None:
    names = ["smd1", "smd2", "smd1-rot", "smd10-rot", "smd1-noise6", "smd2-noise6", "smd1-noise3"]
    rows = made([run("x", 0, name) for name in names], "total").rows
    assert [row[0] for row in rows[len(names) :]] == [
        *("smd average of 2", "smd-rot average of 2", "smd-noise6 average of 2")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "all"}, "unknown kind of table 'all'; known are best, groups, accuracy"),
        ({"reference": "nobody"}, "the reference 'nobody' has no runs; there are drc-cma-es"),
        ({"test": "t"}, "unknown test 't'"),
        ({"alpha": 1.0}, "alpha is 1.0"),
        ({"floor": -1.0}, "floor is -1.0"),
    ],
)
def test_what_is_asked_wrongly_is_told(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made([run("drc-cma-es", 0)], **{"kind": "accuracy", **options})


def test_no_runs_are_an_error() -> None:
    with pytest.raises(ValueError, match="there are no runs"):
        made([], "accuracy")


def test_our_runs_of_bl_cma_es_do_not_differ_from_its_authors_program() -> None:
    programs = store.runs(DATA / "programs.csv")
    ours = store.runs(DATA / "runs_2_3.csv")
    rows = [*ours.filter(method="bl-cma-es").rows(named=True)]
    rows += programs.filter(programs["problem"].str.starts_with("smd")).rows(named=True)
    table = made(
        [one for one in rows if one["method"] in ("bl-cma-es", "BL-CMA-ES program")], "evaluations"
    )
    for indicator in ("FEs_u", "FEs_l"):
        assert row(table, "+/-/=", indicator)[1].written == "0/0/12"
