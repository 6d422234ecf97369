"""The interface as people expect it: seeds, counts, extra arguments, starts, and names."""

import json
import math
import pickle
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bilevo
from bilevo import Problem, minimize, registry
from bilevo.core.checks import whole_number
from bilevo.core.keywords import FOREIGN, OF_PROBLEM
from bilevo.core.result import Result
from bilevo.options import whole
from bilevo.problems import get
from bilevo.testing.conformance import fingerprint

ROOT = Path(__file__).parents[2]
BOX = [(-5.0, 5.0)]


def F(x, y, wish=2.0, weight=1.0):
    return (x[0] - wish) ** 2 + weight * y[0] ** 2


def f(x, y, wish=2.0, weight=1.0):
    return (y[0] - x[0] / 2) ** 2


def test_the_same_call_gives_the_same_answer_and_a_fresh_seed_is_told() -> None:
    usual, again = (minimize(get("smd1"), max_evals=200) for _ in range(2))
    assert usual.seed == again.seed == 1 and fingerprint(usual) == fingerprint(again)
    fresh, other = (minimize(get("smd1"), max_evals=200, rng=None) for _ in range(2))
    assert fresh.seed != other.seed
    repeated = minimize(get("smd1"), max_evals=200, rng=fresh.seed)
    assert fingerprint(repeated) == fingerprint(fresh)


def test_a_stored_run_with_a_fresh_seed_is_continued_by_the_same_call(tmp_path: Path) -> None:
    first = minimize(get("smd1"), max_evals=200, rng=None, run_dir=tmp_path)
    then = minimize(get("smd1"), max_evals=400, rng=None, run_dir=tmp_path)
    whole_run = minimize(get("smd1"), max_evals=400, rng=first.seed)
    assert then.seed == first.seed and fingerprint(then) == fingerprint(whole_run)


def test_a_certificate_may_have_a_fresh_seed() -> None:
    problem = get("smd1")
    assert bilevo.verify(problem, minimize(problem), rng=None).confirmed


@pytest.mark.parametrize("name", ["seed", "random_state"])
def test_another_name_for_rng_is_refused_with_ours(name: str) -> None:
    problem = get("smd1")
    result = minimize(problem, max_evals=50)
    calls = {
        "minimize": lambda **k: minimize(problem, **k),
        "verify": lambda **k: bilevo.verify(problem, result, **k),
        "Optimizer": lambda **k: bilevo.Optimizer(problem, **k),
    }
    for called, call in calls.items():
        with pytest.raises(TypeError, match=f"{called} has no argument '{name}': use rng=7"):
            call(**{name: 7})


@pytest.mark.parametrize("name", FOREIGN)
def test_a_name_of_another_library_is_explained_by_names_that_there_are(name: str) -> None:
    with pytest.raises(TypeError, match=f"has no argument '{name}': use ") as caught:
        minimize(get("smd1"), **{name: 3})
    first = str(caught.value).partition(": use ")[2].split()[0].split("=")[0].rstrip(",")
    assert first == "-F" or first in signature(minimize).parameters


@pytest.mark.parametrize("name", OF_PROBLEM)
def test_what_belongs_to_a_problem_is_explained_so(name: str) -> None:
    assert name in signature(Problem).parameters
    with pytest.raises(TypeError, match=rf"use bilevo.Problem\(..., {name}=...\)"):
        minimize(F, f, BOX, BOX, **{name: 3})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"F": [F, F]}, "several objectives see docs/recipe_objectives.md"),
        ({"f": [f, f]}, "several followers see docs/recipe_several_followers.md"),
        ({"G": [F]}, "all constraints as one list"),
        ({"g": (f, f)}, "all constraints as one list"),
    ],
)
def test_a_list_of_functions_is_refused_with_what_to_do_instead(given: Any, words: str) -> None:
    functions = {"F": F, "f": f, **given}
    with pytest.raises(ValueError, match=words):
        minimize(functions.pop("F"), functions.pop("f"), BOX, BOX, **functions)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(TypeError, match="'max_eval'; did you mean 'max_evals'"):
        minimize(get("smd1"), max_eval=3)
    with pytest.raises(TypeError, match=r"'zzz'; help\(bilevo.minimize\)"):
        minimize(get("smd1"), zzz=3)
    with pytest.raises(TypeError, match="Problem has no argument 'constraints': use G"):
        Problem(F, f, BOX, BOX, constraints=[])


def test_the_check_of_names_leaves_the_signature_alone() -> None:
    assert next(iter(signature(minimize).parameters)) == "F"
    assert list(signature(Problem).parameters)[:4] == ["F", "f", "x_bounds", "y_bounds"]


@given(st.integers(-(2**70), 2**70) | st.floats(allow_nan=True, allow_infinity=True))
def test_a_count_is_a_whole_number_in_any_form(value: float) -> None:
    found = whole_number(value)
    if isinstance(value, int):
        assert found == value
    elif math.isfinite(value) and value == math.floor(value):
        assert found == value and isinstance(found, int)
    else:
        assert found is None
    assert whole_number(np.float64(value)) == whole_number(float(value))
    assert whole_number(bool(value)) is None


def test_counts_may_be_written_as_floats() -> None:
    problem, few = get("smd1"), bilevo.Budget(upper_max=1e2, lower_max=np.float64(40))
    assert few == bilevo.Budget(upper_max=100, lower_max=40) and type(few.upper_max) is int
    plain = minimize(problem, max_evals=300, budget=few)
    floats = minimize(problem, max_evals=3e2, max_evals_lower=3e2, retries=1.0, budget=few)
    assert fingerprint(plain) == fingerprint(floats)
    opt = bilevo.Optimizer(x_bounds=BOX, y_bounds=BOX, n_G=1.0, n_g=0.0, max_evals=1e2)
    assert opt.ask().x.shape[1] == 1


@pytest.mark.filterwarnings("ignore:workers slow this run down")
@pytest.mark.parametrize("workers", [1.0, -1])
def test_a_number_of_workers_may_be_a_float_or_stand_for_all_cores(workers: float) -> None:
    alone = minimize(get("smd1"), max_evals=60)
    assert fingerprint(minimize(get("smd1"), max_evals=60, workers=workers)) == fingerprint(alone)


def test_one_variable_may_start_at_a_number() -> None:
    options = {"max_evals": 60, "y0": 2}
    result = minimize(F, f, BOX, BOX, x0=1.5, **options)
    assert fingerprint(result) == fingerprint(minimize(F, f, BOX, BOX, x0=[1.5], **options))


@pytest.mark.parametrize(("text", "number"), [("1000", 1000), ("1e3", 1000), ("-2", -2)])
def test_the_command_line_reads_whole_numbers(text: str, number: int) -> None:
    token = type("Token", (), {"value": text})
    assert whole(int, [token]) == number
    for bad in ("1.5", "inf", "many"):
        with pytest.raises((ValueError, OverflowError)):
            whole(int, [type("Token", (), {"value": bad})])


def test_all_functions_get_the_extra_arguments() -> None:
    seen = set()

    def noted(name, value):
        def function(x, y, *given):
            seen.add((name, given))
            return value(x, y)

        return function

    functions = {
        "F": noted("F", F),
        "f": noted("f", f),
        "G": noted("G", lambda x, y: [x[0] - 4]),
        "g": noted("g", lambda x, y: [y[0] - 4]),
    }
    result = minimize(x_bounds=BOX, y_bounds=BOX, max_evals=200, args=(7, "a"), **functions)
    assert seen == {(name, (7, "a")) for name in "FfGg"} and result.nfev > 100


def test_extra_arguments_give_the_problem_that_they_stand_for() -> None:
    meant = Problem(lambda x, y: F(x, y, 1.0, 3.0), f, BOX, BOX)
    given_args = Problem(F, f, BOX, BOX, args=(1.0, 3.0))
    one, other = (minimize(p, max_evals=400) for p in (meant, given_args))
    assert fingerprint(one) == fingerprint(other)
    assert pickle.loads(pickle.dumps(given_args)).F([0], [0]) == 1.0  # noqa: S301 (ours)
    with pytest.raises(ValueError, match="brings its own functions"):
        minimize(given_args, args=(1.0, 3.0))
    with pytest.raises(ValueError, match=r"args must be a tuple such as \(data,\)"):
        Problem(F, f, BOX, BOX, args=[1.0])


def test_a_problem_with_a_solver_passes_extra_arguments_on() -> None:
    follower = bilevo.followers.Minimize()
    problem = Problem(F, f, BOX, BOX, follower=follower, args=(1.0,))
    assert abs(minimize(problem, max_evals=2000).x[0] - 0.8) < 1e-2


# The follower's best basin is a narrow well at 0.9, which a search from scratch may miss.
def needle(x, y):
    return float(np.sum((y - 0.2) ** 2) - 2 * np.exp(-np.sum((y - 0.9) ** 2) / 2e-5))


def wishes(x, y):
    return float((x[0] - 0.5) ** 2 - y[0])


BASIN = Problem(wishes, needle, [(0, 1)], [(0, 1)] * 3)


def test_a_first_answer_leads_to_a_basin_that_a_search_from_scratch_misses() -> None:
    blind = minimize(BASIN, max_evals=2000)
    told = minimize(BASIN, max_evals=2000, y0=[0.9, 0.9, 0.9])
    assert blind.f > -0.5 and told.f < -0.5
    assert abs(told.y - 0.9).max() < 1e-2


def test_a_first_answer_that_is_no_better_costs_one_evaluation() -> None:
    options = {"method": "drc-plus", "max_evals": 400, "keep_archive": True}
    usual = minimize(get("smd1"), **options).archive()
    told = minimize(get("smd1"), y0=[9.0, 9.0, 1.0], **options).archive()
    assert told.y[1].tolist() == [9.0, 9.0, 1.0]
    rest = np.delete(told.y, 1, axis=0)
    assert np.array_equal(rest[:200], usual.y[:200])


@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es", "bl-cma-es", "go-cma-es"])
def test_a_run_with_a_first_answer_resumes_exactly(method: str, tmp_path: Path) -> None:
    options = {"method": method, "x0": [1.0, 1.0], "y0": [1.0, 1.0, 0.5]}
    minimize(get("smd1"), max_evals=300, run_dir=tmp_path, **options)
    then = minimize(get("smd1"), max_evals=600, run_dir=tmp_path, **options)
    assert fingerprint(then) == fingerprint(minimize(get("smd1"), max_evals=600, **options))
    with pytest.raises(bilevo.RunMismatch, match="y0 is"):
        minimize(get("smd1"), max_evals=600, run_dir=tmp_path, **{**options, "y0": None})


def test_the_drc_family_searches_answers_around_the_first_one() -> None:
    def mean_of_first(y0):
        kept = minimize(
            get("smd1"), method="drc-cma-es", max_evals=200, keep_archive=True, y0=y0
        ).archive()
        return kept.y[kept.level == "lower"][:40].mean(axis=0)

    near = np.array([8.0, 8.0, 0.0])
    assert abs(mean_of_first(near) - near).max() < abs(mean_of_first(None) - near).max()


@pytest.mark.parametrize("method", sorted(set(registry.methods()) - {"drc-race", "trust-region"}))
def test_the_methods_that_use_a_first_answer_are_those_that_are_named(method: str) -> None:
    options = {"method": method, "max_evals": 170, "keep_archive": True, "x0": [1.0, 1.0]}
    without, told = (
        minimize(get("smd1"), y0=y0, **options).archive().y for y0 in (None, [1.0, 1.0, 0.5])
    )
    page = (ROOT / "docs" / "methods.md").read_text().partition("A first answer `y0`")[2]
    named = page.partition("The\nothers")[0].replace(",", " ").split()
    assert (method in named) == (not np.array_equal(without, told))


def test_a_solver_has_no_first_answer() -> None:
    problem = Problem(F, f, BOX, BOX, follower=bilevo.followers.Minimize())
    with pytest.raises(ValueError, match="a solver has a start of its own"):
        minimize(problem, y0=[1.0])


def test_a_result_is_a_mapping_of_its_fields() -> None:
    result = minimize(get("smd1"), max_evals=200)
    content = dict(result)
    assert {each.name for each in fields(Result)} | {"nfev", "feasible"} == set(content)
    assert content["F"] == result.F == result["F"] and "x" in list(result)
    with pytest.raises(KeyError, match="a result has x, y"):
        result["fun"]


def test_a_result_is_a_dictionary_of_plain_values() -> None:
    result = minimize(get("smd1"), max_evals=1200)
    content = result.to_dict()
    assert json.loads(json.dumps(content)) == content
    assert type(content["stance"]) is type(content["status"]) is str
    assert content["x"] == result.x.tolist() and content["status"] == str(result.status)
    last = content["history"][-1]
    assert last["generation"] == result.nit and last["F"] == result.F
    assert last["x"] == result.x.tolist() and last["y"] == result.y.tolist()
    assert set(content) == set(result.keys())


def test_a_history_is_a_table_of_pandas_and_of_polars() -> None:
    result = minimize(get("smd1"), method="drc-cma-es", max_evals=1200)
    table, other = result.to_pandas(), result.history.to_dataframe()
    assert list(table.columns) == other.columns and len(table) == len(other) == result.nit
    assert table["F"].tolist() == other["F"].to_list()
    assert list(table["x"].iloc[-1]) == result.x.tolist()


def test_a_loaded_history_has_the_points_of_the_live_one(tmp_path: Path) -> None:
    options = {"method": "drc-cma-es", "max_evals": 1200}
    live = minimize(get("smd1"), run_dir=tmp_path, **options)
    assert [row.x for row in bilevo.load(tmp_path).history] == [row.x for row in live.history]
    assert live.history[0].x and live.history[0].x != live.history[-1].x
    live.save(tmp_path / "answer.json")
    assert Result.load(tmp_path / "answer.json").history == live.history


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=60), st.text(max_size=300))
def test_a_printed_result_fits_a_mail(values: list[float], text: str) -> None:
    result = minimize(get("smd1"), max_evals=50)
    result.x, result.message = np.array(values), text
    lines = str(result).splitlines()
    assert str(result).isprintable() or all(line.isprintable() for line in lines)
    longest = max((len(word) for word in str(result).split()), default=0)
    assert max(map(len, lines)) <= max(79, longest + 15)


def test_a_printed_result_says_what_matters() -> None:
    result = minimize(get("smd1"))
    shown = str(result)
    assert shown.startswith(f"bilevo {bilevo.__version__}, drc-plus, seed 1: success\n")
    for part in (f"{result.nfev_upper} + {result.nfev_lower} = {result.nfev}", "certificate:"):
        assert part in shown
    assert "no success" in str(minimize(get("smd1"), max_evals=50))


@pytest.mark.parametrize("thing", [minimize, bilevo.verify, Problem], ids=lambda t: t.__name__)
def test_help_tells_every_argument(thing) -> None:
    text = thing.__doc__
    head, _, rest = text.partition("Parameters\n    ----------\n")
    told = rest.partition("\n\n    Returns")[0].partition("\n\n    Examples")[0]
    names = {
        name.strip()
        for line in told.splitlines()
        if line.startswith("    ") and not line.startswith("     ")
        for name in line.partition(" : ")[0].split(",")
    }
    assert names == set(signature(thing).parameters) and head and "Examples\n    --------" in text


def test_several_objectives_are_refused_by_naming_the_recipe() -> None:
    wrong = "returned is of shape .2,., not one number; for several objectives see docs/recipe"
    with pytest.raises(bilevo.BadValue, match=wrong):
        minimize(lambda x, y: [x[0], y[0]], f, BOX, BOX)
    with pytest.raises(bilevo.BadValue, match="for several objectives"):
        minimize(lambda x, y: np.zeros((len(x), 2)), f, BOX, BOX, vectorized=True, max_evals=9)


def test_the_pages_that_errors_name_are_there() -> None:
    import re

    for path in (ROOT / "src").rglob("*.py"):
        for name in re.findall(r"docs/([\w-]+\.md)", path.read_text()):
            assert (ROOT / "docs" / name).is_file(), f"{path}: docs/{name}"
