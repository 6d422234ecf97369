"""Plans: what they name, and what is wrong with them."""

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

from bilevo.algorithms import DRCPlus
from bilevo.lab.plans import (
    SMD,
    SUITES,
    Experiment,
    Form,
    Plan,
    Run,
    members,
    plan_of,
    read_plan,
)

PLANS = Path(__file__).parents[2] / "plans"


def runs_of(**table) -> list[Run]:
    return plan_of({"methods": ["bl-cma-es"], **table}, "test").all_runs()


def test_seeds_come_from_the_runs_name_alone() -> None:
    assert Run("smd1", 2, 3, "drc-cma-es", 0).seed == 67166620609967819
    few = runs_of(problems=["smd1"], runs=3)
    many = runs_of(problems=["smd2", "smd1"], methods=["nblea", "bl-cma-es"], runs=50)
    assert len({run.seed for run in many}) == 200
    assert {run: run.seed for run in few}.items() <= {run: run.seed for run in many}.items()


def test_a_larger_limit_goes_on_with_the_same_seed() -> None:
    small, large = runs_of(problems=["smd1"], max_evals=[100, 200], runs=1)
    assert (small.budget, large.budget) == (100, 200) and small.seed == large.seed


def test_the_papers_plan_is_its_whole_experiment() -> None:
    runs = read_plan(PLANS / "paper.toml").all_runs()
    assert len(runs) == 8 * 21 * (12 * 3 + 10 + 2)
    sizes = {(run.m, run.n) for run in runs if run.problem.startswith("smd")}
    assert sizes == {(2, 3), (10, 10), (30, 30)}
    assert {run.problem for run in runs} == {*members(["smd", "tp", "real"])}


def test_the_quick_plan_is_five_runs_of_the_default_and_three_published_methods() -> None:
    plan = read_plan(PLANS / "quick.toml")
    assert plan.name == "quick" and len(plan.all_runs()) == 4 * 12 * 5


def test_the_plain_form_of_drc_has_none_of_its_ingredients() -> None:
    plan = read_plan(PLANS / "ablation.toml")
    assert len(plan.all_runs()) == 10 * 6 * 11
    plain = plan.form("drc-cma-es+de/plain").algorithm()
    assert (plain.cooperation, plain.selection, plain.stop) == (False, "uniform", "all")
    whole, below = (plan.form(name).algorithm() for name in ("drc-cma-es", "drc-de"))
    assert whole.cooperation
    assert plain.upper == whole.upper and plain.lower == below.lower != whole.lower


def test_the_plan_of_drc_plus_has_the_test_beds_with_drc_beside_it() -> None:
    runs = read_plan(PLANS / "drc-plus.toml").all_runs()
    variants = [run for run in runs if run.method == "drc-cma-es"]
    assert {run.problem for run in variants} == {*members(["rotated", "nonsmooth", "noisy"])}
    plus = [run for run in runs if run.method == "drc-plus"]
    assert {run.problem for run in plus} == {*members(SUITES.keys() - {"literature", "roads"})}
    large = Counter((run.m, run.n) for run in plus if run.problem == "smd3")
    assert large == {(2, 3): 32, (10, 10): 16, (30, 30): 5}


def test_the_ablation_of_drc_plus_leaves_out_each_ingredient_once() -> None:
    plan = read_plan(PLANS / "drc-plus-ablation.toml")
    switches = [switch.name for switch in fields(DRCPlus) if switch.default is True]
    assert [*plan.forms] == [f"drc-plus/no-{name}" for name in switches]
    for name in switches:
        assert plan.form(f"drc-plus/no-{name}").algorithm() == DRCPlus(**{name: False})
    small = [run for run in plan.all_runs() if run.m <= 3]
    assert len(small) == 12 * 11 * (1 + len(switches))


def test_a_part_of_a_plan_has_the_same_runs() -> None:
    plan = read_plan(PLANS / "paper.toml")
    part = plan.narrowed(["tp1", "SMD2"], methods=["nblea"], sizes=[(10, 10)], runs=2)
    assert set(part.all_runs()) <= set(plan.all_runs())
    assert [(run.problem, run.m, run.number) for run in part.all_runs()] == [
        ("smd2", 10, 0),
        ("smd2", 10, 1),
    ]
    with pytest.raises(ValueError, match=r"methods \['drc-de'\] are not in the plan paper"):
        plan.narrowed(methods=["drc-de"])


def test_sizes_are_for_problems_that_have_any() -> None:
    runs = runs_of(problems=["smd6", "tp1"], sizes=["10,10"], runs=1)
    assert [(run.problem, run.m, run.n) for run in runs] == [("smd6", 10, 10), ("tp1", 2, 2)]


def test_a_run_that_two_experiments_name_is_made_once() -> None:
    both = Experiment(("nblea",), ("smd1",), runs=2)
    assert len(Plan((both, replace(both, runs=3))).all_runs()) == 3


def test_own_problems_and_methods_are_named_by_module_and_object(tmp_path, monkeypatch) -> None:
    (tmp_path / "mine_here.py").write_text(
        "import bilevo\n"
        "from bilevo.algorithms import BLCMAES as Method\n"
        "def problem():\n"
        "    return bilevo.Problem(lambda x, y: float(x @ x), lambda x, y: float(y @ y),\n"
        "                          [(-1, 2)], [(-1, 2)] * 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    (run,) = runs_of(problems=["mine_here:problem"], methods=["mine_here:Method"], runs=1)
    assert (run.problem, run.m, run.n) == ("mine_here:problem", 1, 2)
    assert type(Form("mine_here:Method").algorithm()).__name__ == "BLCMAES"


WRONG = {
    "a plan has no key 'runz'; did you mean 'runs'": {"runz": 3},
    "an experiment has no key 'forms'": {"experiments": [{"forms": 3}]},
    "unknown problem 'smd99'": {"problems": ["smd99"]},
    "unknown method 'drc'": {"methods": ["drc"]},
    "runs must be a positive whole number, got 0": {"runs": 0},
    "a limit in max_evals must be a positive whole number": {"max_evals": [1.5]},
    "sizes are two whole numbers such as 2,3; got '2'": {"sizes": ["2"]},
    "methods must be a list of texts, got 'nblea'": {"methods": "nblea"},
    "an experiment needs problems": {"problems": []},
    "target must be true or false": {"target": "no"},
    "the form 'x' needs a method": {"forms": {"x": {}}},
    "drc-de has no parameter 'speed'": {
        "methods": ["x"],
        "forms": {"x": {"method": "drc-de", "speed": 1}},
    },
    "unknown optimizer 'cma'; known are cma-es, de, pso, ga": {
        "methods": ["x"],
        "forms": {"x": {"method": "drc-de", "lower": "cma"}},
    },
    "experiments must be tables": {"experiments": 3},
    "forms must be tables": {"forms": {"x": 3}},
    "cannot load 'nowhere:problem'": {"problems": ["nowhere:problem"]},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_with_a_plan_is_said(message) -> None:
    with pytest.raises(ValueError, match=message):
        runs_of(**WRONG[message])


def test_a_file_that_is_no_plan_is_named(tmp_path) -> None:
    (tmp_path / "no.toml").write_text("methods = [")
    for name in ("no.toml", "missing.toml"):
        with pytest.raises(ValueError, match=name):
            read_plan(tmp_path / name)


def test_smd_as_a_suite_is_the_twelve_of_the_paper() -> None:
    assert members(["SMD"]) == list(SMD) and len(SMD) == 12
