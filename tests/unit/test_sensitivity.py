"""Grids of settings in plans, and the table and the figure that show what settings do."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from bilevo.algorithms import DRC
from bilevo.lab.analysis import sensitivity, tables
from bilevo.lab.analysis.statistics import stratified_rank_sum
from bilevo.lab.analysis.table_parts import study_of
from bilevo.lab.grids import form_name, settings_of
from bilevo.lab.plans import plan_of, read_plan
from bilevo.lab.show import figures
from bilevo.lab.store import HISTORY, RUNS

PLANS = Path(__file__).parents[2] / "plans"
GRID = {"method": "drc-cma-es", "settings": {"gamma": [0.0, 1.0]}}
THIRDS = {"method": "drc-cma-es", "shares": ["w_base", "w_performance", "w_potential"], "steps": 3}


def plan_with(**grids):
    table = {"methods": ["drc-cma-es", *grids], "problems": ["smd1"], "runs": 1, "grids": grids}
    return plan_of(table, "test")


def test_a_grid_stands_for_a_form_of_each_setting() -> None:
    plan = plan_with(g=GRID)
    names = ["drc-cma-es", "drc-cma-es/gamma=0", "drc-cma-es/gamma=1"]
    assert [run.method for run in plan.all_runs()] == names
    assert plan.form(names[1]).algorithm() == DRC(gamma=0.0)
    assert [run.method for run in plan.narrowed(methods=["g"]).all_runs()] == names[1:]
    assert [run.method for run in plan.narrowed(methods=names[2:]).all_runs()] == names[2:]


def test_several_lists_give_all_combinations() -> None:
    lists = {"gamma": [0.0, 1.0], "cooperation": [True, False], "lower": ["de"]}
    plan = plan_with(g={**GRID, "settings": lists})
    assert [*plan.forms][1] == "drc-cma-es/gamma=0 cooperation=false lower=de"
    assert len(plan.forms) == 4 and len(plan.all_runs()) == 5


def test_shares_sum_to_one_in_all_ways() -> None:
    plan = plan_with(triangle=THIRDS)
    algorithms = [form.algorithm() for form in plan.forms.values()]
    assert len(set(algorithms)) == 10
    for one in algorithms:
        assert one.w_base + one.w_performance + one.w_potential == pytest.approx(1)


def test_the_plan_of_the_weights_changes_every_setting_of_drc() -> None:
    plan = read_plan(PLANS / "weights.toml")
    changed = {name for form in plan.forms for name in settings_of(form)}
    weights = {"w_base", "w_performance", "w_potential"}
    assert changed == {*weights, "gamma", "epsilon", "alpha"}
    assert len(plan.all_runs()) == 12 * 11 * (1 + len(plan.forms))


def test_a_forms_name_tells_its_settings() -> None:
    settings = {"gamma": 0.25, "mixing": "convex", "cooperation": True}
    assert settings_of(form_name("drc-cma-es", settings)) == settings
    for name in ("drc-cma-es", "drc-cma-es/plain", "drc-plus/no-hops", "a/=1", "a/b="):
        assert settings_of(name) == {}


WRONG = {
    "needs a method": {"settings": {"gamma": [0.1]}},
    "needs settings or shares": {"method": "drc-cma-es"},
    "settings of the grid 'g' must be a table, got 3": {**GRID, "settings": 3},
    r"must be a list of values, got 0\.5": {**GRID, "settings": {"gamma": 0.5}},
    r"must be a list of values, got \[\]": {**GRID, "settings": {"gamma": []}},
    "has the value 'a b'; it should be a number": {**GRID, "settings": {"mixing": ["a b"]}},
    r"has a value twice: \[0\.5, 0\.5\]": {**GRID, "settings": {"gamma": [0.5, 0.5]}},
    "has no key 'setings'": {**GRID, "setings": {}},
    "has steps without shares": {**GRID, "steps": 3},
    r"two or more different names, got \['w_base'\]": {**THIRDS, "shares": ["w_base"]},
    "steps of the grid 'g' must be a positive whole number, got None": {**THIRDS, "steps": None},
    "steps of the grid 'g' are too many: 10000000": {**THIRDS, "steps": 10**7},
    "at most 1000 settings; 'g' has 5151": {**THIRDS, "steps": 100},
    "both in settings and in shares": {**THIRDS, "settings": {"w_base": [1.0]}},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_grid_is_refused_with_what_would_be_right(message: str) -> None:
    grid = {key: value for key, value in WRONG[message].items() if value is not None}
    with pytest.raises(ValueError, match=message):
        plan_with(g=grid)


def test_a_setting_that_the_method_lacks_or_refuses_is_refused_before_any_run() -> None:
    with pytest.raises(ValueError, match="has no parameter 'gama'"):
        plan_with(g={**GRID, "settings": {"gama": [0.1]}}).all_runs()
    with pytest.raises(ValueError, match=r"gamma must be from 0 to 1, got 7\.0"):
        plan_with(g={**GRID, "settings": {"gamma": [7.0]}}).all_runs()
    with pytest.raises(ValueError, match="the grid 'nblea' has the name of a method"):
        plan_of({"methods": ["nblea"], "grids": {"nblea": GRID}}, "test")
    with pytest.raises(ValueError, match=r'grids must be tables: \[grids\."name"\]'):
        plan_of({"methods": ["nblea"], "grids": [GRID]}, "test")


def made_runs(costs: dict[str, float], misses: dict[str, int] | None = None) -> pl.DataFrame:
    """Make up eight runs of each method on three problems, with these typical evaluations."""
    rng, rows = np.random.default_rng(5), []
    for problem in ("smd1", "smd2", "smd3"):
        for method, cost in costs.items():
            for number in range(8):
                error = 1.0 if number < (misses or {}).get(method, 0) else 1e-6
                row = {"problem": problem, "m": 2, "n": 3, "method": method, "number": number}
                row |= {"Acc_u": error, "verified": error, "F": error, "F_star": 0.0, "f": 0.0}
                row |= {"violation": 0.0, "nfev_upper": 0, "status": "target", "target": True}
                row |= {"nfev_lower": int(cost * rng.uniform(0.9, 1.1)), "time": 0.1, "budget": 0}
                rows.append(row)
    return pl.DataFrame(rows, schema=RUNS)


NO_HISTORY = pl.DataFrame(
    [], schema={name: RUNS[name] for name in ("problem", "m", "n", "method", "number")} | HISTORY
)
COSTS = {"drc-cma-es": 1e4, "drc-cma-es/gamma=0": 3e4, "drc-cma-es/gamma=1": 1e4}
MINE = {"$my_m$": 5e3, "$my_m$/_k$=a": 6e3, "$my_m$/_k$=b": 5e3}


def test_effects_are_ratios_and_shares_with_p_values() -> None:
    runs = made_runs(COSTS, misses={"drc-cma-es/gamma=1": 8})
    (family,) = sensitivity.families(study_of(runs))
    assert family.own.settings == {"gamma": 0.5}
    dear, wrong = family.effects
    assert dear.evaluations == pytest.approx(3, rel=0.1) and dear.p_evaluations < 1e-6
    assert (dear.near, dear.p_near) == (1.0, 1.0)
    assert wrong.evaluations == pytest.approx(1, abs=0.05) and wrong.p_evaluations > 0.01
    assert wrong.near == 0 and wrong.p_near < 1e-6
    (corrected,) = sensitivity.families(study_of(runs, holm=True))
    assert corrected.effects[0].p_evaluations == pytest.approx(2 * dear.p_evaluations)


def test_the_table_has_a_row_for_each_setting_and_tests_of_each_family() -> None:
    table = tables.make_table(made_runs(COSTS), "sensitivity")
    names = [row[0] for row in table.rows]
    assert names == ["gamma 0.5 (default)", "gamma 0", "gamma 1"]
    assert "gamma: Friedman tests of 3 settings" in table.notes[-1]
    assert not tables.make_table(made_runs({"drc-cma-es": 1e4}), "sensitivity").rows
    both = tables.make_table(made_runs({**COSTS, **MINE}), "sensitivity")
    assert [row[0] for row in both.rows][3:5] == ["$my_m$ (default)", "$my_m$: _k$ a"]


def test_a_method_that_was_never_registered_has_lines_over_its_texts() -> None:
    figure = figures.draw("sensitivity", made_runs(MINE), NO_HISTORY)
    above = figure.axes[0]
    assert above.get_xlabel() == "_k$"
    assert [label.get_text() for label in above.get_xticklabels()] == ["a", "b"]
    assert above.lines[0].get_ydata()[0] == pytest.approx(1.2, abs=0.03)


def test_three_shares_are_a_triangle_and_other_pairs_are_named_below(tmp_path) -> None:
    costs = dict.fromkeys(["drc-cma-es", *plan_with(triangle=THIRDS).forms], 1e4)
    costs |= {"drc-cma-es/gamma=0 alpha=0": 1e4}
    figure = figures.draw("sensitivity", made_runs(costs), NO_HISTORY)
    assert len(figure.axes) == 2 and len(figure.axes[0].collections) == 1
    words = [text.get_text() for text in figure.axes[0].texts]
    assert {"w_base 1", "w_performance 1", "w_potential 1"} <= {*words}
    assert figure.get_supxlabel().endswith("not shown: gamma, alpha")
    figures.save(figure, tmp_path / "figure.svg")


def test_without_settings_there_is_no_figure() -> None:
    runs = made_runs({"drc-cma-es": 1e4, "drc-cma-es/plain": 1e4, "other/k=1": 1e4})
    with pytest.raises(ValueError, match="sensitivity cannot be shown"):
        figures.draw("sensitivity", runs, NO_HISTORY)


def test_the_stratified_test_of_one_problem_is_the_rank_sum_test() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(0.5, size=11), rng.normal(size=21)
    expected = stats.mannwhitneyu(ours, theirs, method="asymptotic", use_continuity=False)
    assert stratified_rank_sum([(ours, theirs)]).p == pytest.approx(expected.pvalue)
    tied = np.round(ours), np.round(theirs)
    expected = stats.mannwhitneyu(*tied, method="asymptotic", use_continuity=False)
    assert stratified_rank_sum([tied]).p == pytest.approx(expected.pvalue)
    assert stratified_rank_sum([(ours, theirs)] * 9).p < stratified_rank_sum([(ours, theirs)]).p
    assert stratified_rank_sum([(np.ones(3), np.ones(3)), (np.empty(0), ours)]).p == 1


def test_the_stratified_test_is_rarely_wrong_where_nothing_differs() -> None:
    rng = np.random.default_rng(2)
    draws = [stratified_rank_sum([(rng.random(5), rng.random(5)) for _ in range(6)]).p < 0.05
             for _ in range(400)]  # fmt: skip
    assert np.mean(draws) == pytest.approx(0.05, abs=0.03)
