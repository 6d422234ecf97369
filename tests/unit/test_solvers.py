"""Problems whose follower is a solver of the user's: answers, counting, errors, verification."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from solvers import HALF, Exact, F, Opaque, Walker, f, problem

import bilevo
from bilevo import BadValue, minimize, verify
from bilevo.core.algorithm import Followers
from bilevo.core.budget import OWN_ENDS
from bilevo.lab.checks import checked
from bilevo.registry import driving

METHODS = driving(Followers.SOLVER)
pytestmark = pytest.mark.filterwarnings("ignore:workers slow this run down")


@pytest.mark.rest
@pytest.mark.parametrize("method", METHODS)
def test_an_exact_follower_is_one_step_per_leader(method: str) -> None:
    seen: list[bytes] = []

    class Counted(Exact):
        def start(self, x: Any, rng: np.random.Generator) -> Any:
            seen.append(x.tobytes())
            return super().start(x, rng)

    result = minimize(problem(Counted()), method=method, max_evals=4000)
    assert pytest.approx(0.8 / 2, abs=1e-5) == result.F
    assert result.y == pytest.approx(result.x / 2, abs=0)  # as the follower gave it
    assert result.nfev_lower == len(seen)
    checks = 0 if result.certificate is None else result.certificate.nfev_lower
    if method == "trust-region":  # it also checks earlier answers, and solves no other x twice
        checks = len(seen) - len(set(seen))
    assert result.nfev_lower == result.nfev_upper + checks


@pytest.mark.rest
@pytest.mark.parametrize("method", METHODS)
def test_a_follower_of_many_steps_is_solved(method: str) -> None:
    result = minimize(problem(Walker()), method=method, max_evals=6000)
    assert result.feasible
    assert pytest.approx(0.4, abs=0.02) == result.F
    assert verify(problem(Walker()), result).follower_gap < 1e-12  # it was done
    assert result.certified


@pytest.mark.parametrize("method", METHODS)
def test_the_cost_of_steps_is_counted_and_limits_are_kept(method: str) -> None:
    follower = Walker(cost=3)
    result = minimize(problem(follower), method=method, max_evals_lower=700)
    assert result.nfev_lower == 3 * follower.taken
    assert 600 < result.nfev_lower <= 700


def test_a_follower_tells_what_its_steps_really_cost() -> None:
    class Frugal(Walker):
        def spent(self, state: Any) -> int:
            return 1 + 2 * int(state.steps)

    follower = Frugal(cost=5)
    result = minimize(problem(follower), method="nested-cma-es", max_evals_lower=500)
    assert result.nfev_lower <= 500
    tasks = follower.taken // 12
    assert result.nfev_lower == pytest.approx(2 * follower.taken + tasks, abs=8)

    class Spendthrift(Walker):
        def spent(self, state: Any) -> int:
            return 7 * int(state.steps)

    with pytest.raises(BadValue, match="spent 7 in a step; its `cost` says at most 5"):
        minimize(problem(Spendthrift(cost=5)))


class Cheap(Walker):
    """Its steps cost 2, and might cost 20."""

    def __init__(self) -> None:
        super().__init__(cost=20)

    def spent(self, state: Any) -> int:
        return 2 * int(state.steps)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [200, 330, 500])
def test_a_limit_leaves_less_unused_than_a_step_may_cost(method: str, limit: int) -> None:
    result = minimize(problem(Cheap()), method=method, max_evals=limit)
    assert limit - 20 < result.nfev <= limit or result.status in OWN_ENDS


@pytest.mark.parametrize("method", METHODS)
def test_steps_that_a_limit_has_parted_are_found_by_a_longer_run(method: str, tmp_path) -> None:
    for limit in (150, 171, 400):
        parted = minimize(problem(Cheap()), method=method, max_evals=limit, run_dir=tmp_path)
    whole = minimize(problem(Cheap()), method=method, max_evals=400)
    assert (parted.x == whole.x).all() and parted.F == whole.F
    assert (parted.nfev_upper, parted.nfev_lower) == (whole.nfev_upper, whole.nfev_lower)


@pytest.mark.parametrize("told", [2.5, np.nan, np.inf])
def test_what_was_spent_is_a_whole_number(told: float) -> None:
    class Vague(Walker):
        def spent(self, state: Any) -> float:
            return told

    with pytest.raises(BadValue, match=f"spent must be a whole number, got {told}"):
        minimize(problem(Vague(cost=5)), on_failure="worst")


def test_a_cost_may_be_of_numpy(tmp_path: Path) -> None:
    result = minimize(problem(Walker(cost=np.int64(3))), max_evals=90, run_dir=tmp_path)
    assert result.nfev_lower == bilevo.load(tmp_path).nfev_lower > 30


@pytest.mark.rest
@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_result_under_any_executor(method: str) -> None:
    def run(workers: Any) -> Any:
        result = minimize(problem(Walker()), method=method, max_evals=900, workers=workers, rng=3)
        return result.x.tobytes(), result.y.tobytes(), result.F, result.nfev_lower

    alone = run(None)
    assert alone == run(None)
    with ThreadPoolExecutor(2) as threads:
        assert alone == run(threads)


def test_worker_processes_give_the_same_result() -> None:
    results = [
        minimize(problem(follower), max_evals=400, workers=workers)
        for workers in (None, 2)
        for follower in (Walker(), Opaque())
    ]
    assert len({(result.F, result.nfev_lower, result.x.tobytes()) for result in results}) == 1


def test_the_leader_may_have_constraints() -> None:
    for seed in (1, 2, 9):
        result = minimize(problem(Exact(), G=lambda x, y: y[0] - 0.25), max_evals=4000, rng=seed)
        assert result.feasible
        assert pytest.approx(1.0125, abs=1e-6) == result.F and result.x[0] <= 0.5 + 1e-9


class Wrong(Exact):
    """Returns what a test wants it to."""

    def __init__(self, best: Any = None, done: Any = True, raises: Any = None) -> None:
        self.told, self.over, self.raises = best, done, raises

    def best(self, state: Any) -> Any:
        return self.told

    def done(self, state: Any) -> Any:
        return self.over

    def advance(self, state: Any) -> Any:
        if self.raises is not None:
            raise self.raises
        return state


@pytest.mark.parametrize(
    ("follower", "says"),
    [
        (Wrong(([0.0, 7.0], 0.0, 0.0)), r"y\[1\] = 7.0 is outside its bounds \(-5.0, 5.0\)"),
        (Wrong(([0.0], 0.0, 0.0)), r"y is of shape \(1,\), not \(2,\)"),
        (Wrong((["a", "b"], 0.0, 0.0)), "not real numbers"),
        (Wrong(([0.0, 0.0], 0.0)), r"must be a tuple \(y, f, violation\)"),
        (Wrong(([0.0, 0.0], 0.0, -1.0)), "violation must be 0 or more, got -1.0"),
        (Wrong(([0.0, 0.0], [0.0, 1.0], 0.0)), "not one number"),
        (Wrong(([0.0, 0.0], 0.0, 0.0), done=None), "done must be True or False, got None"),
    ],
)
def test_a_wrong_answer_is_an_error_under_either_rule(follower: Any, says: str) -> None:
    for on_failure in ("raise", "worst"):
        with pytest.raises(BadValue, match=says):
            minimize(problem(follower), on_failure=on_failure)


@pytest.mark.parametrize("method", ["start", "advance"])
def test_a_state_that_is_not_returned_is_named(method: str) -> None:
    forgetful = Walker()
    setattr(forgetful, method, lambda *_: None)
    for on_failure in ("raise", "worst"):
        with pytest.raises(BadValue, match=f"{method} returned None: it must return the state"):
            minimize(problem(forgetful), on_failure=on_failure)


@pytest.mark.parametrize("method", METHODS)
def test_the_leaders_first_steps_do_not_depend_on_the_units_of_answers(method: str) -> None:
    def first_leaders(width: float, n: int) -> Any:
        box, answers = [(0, width)] * 2, [(0, 1)] * n
        seen: list[Any] = []

        class Constant(Exact):
            def best(self, state: Any) -> tuple[Any, float, float]:
                seen.append(state / width)
                return np.zeros(n), 0.0, 0.0

        wide = bilevo.Problem(F, None, box, answers, follower=Constant())
        minimize(wide, method=method, max_evals=24)
        return np.array(seen)[:first]

    # `moves` and `trust-region` choose their sixth leader by values of F.
    first = 5 if method in ("moves", "trust-region") else 6
    expected = first_leaders(1, 1)
    for width, n in ((1, 7), (8, 1), (8, 7)):
        assert first_leaders(width, n) == pytest.approx(expected)


def test_an_answer_outside_by_rounding_is_put_on_the_bound() -> None:
    result = minimize(problem(Wrong(([5.0 + 1e-9, -5.0 - 1e-9], 0.0, 0.0))), max_evals=50)
    assert result.y.tolist() == [5.0, -5.0]


@pytest.mark.rest
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("told", [([0.0, 0.0], np.nan, 0.0), ([np.nan, 0.0], 0.0, 0.0)])
def test_an_answer_that_is_not_finite_is_never_the_result(method: str, told: Any) -> None:
    class Sometimes(Exact):
        def best(self, state: Any) -> tuple[Any, float, float]:
            return told if state[0] > 1 else super().best(state)

    result = minimize(problem(Sometimes()), method=method, max_evals=2000, x0=[0, 0])
    assert result.feasible and result.x[0] <= 1
    nothing = minimize(problem(Wrong(told)), method=method, max_evals=2000)
    assert not nothing.success and "no " in nothing.message


@pytest.mark.rest
@pytest.mark.parametrize("method", METHODS)
def test_a_follower_that_raises_is_an_error_or_counts_as_failed(method: str) -> None:
    class Fails(Walker):
        def advance(self, state: Any) -> Any:
            if state.x[0] > 1 and state.steps == 3:
                raise ZeroDivisionError("no way")
            return super().advance(state)

    with pytest.raises(ZeroDivisionError, match="no way"):
        minimize(problem(Fails()), method=method)
    options = {"method": method, "on_failure": "worst", "max_evals": 3000}
    result = minimize(problem(Fails()), x0=[0, 0], **options)
    assert result.feasible and result.x[0] <= 1 and result.failures > 0
    failed = result.failed_points[0]
    assert failed.level == "lower" and "ZeroDivisionError: no way" in failed.error
    assert failed.x[0] > 1 and np.isnan(failed.y).all()


def test_a_step_that_fails_now_and_then_is_repeated_to_the_same_result() -> None:
    class Moody(Walker):
        calls = 0

        def advance(self, state: Any) -> Any:
            self.calls += 1
            if self.calls % 50 == 0:
                state.y = state.y + 1  # half changed
                raise OSError("busy")
            return super().advance(state)

    calm = minimize(problem(Walker()), max_evals=500)
    moody = minimize(problem(Moody()), max_evals=500, retries=2)
    assert (moody.F, moody.nfev, moody.failures) == (calm.F, calm.nfev, 0)


def test_a_follower_that_is_never_done_does_not_run_for_ever() -> None:
    follower = Walker(length=10**9)
    budget = bilevo.Budget(upper_max=12, lower_max=40)
    result = minimize(problem(follower), method="nested-cma-es", budget=budget)
    assert result.status == "budget"
    assert follower.taken == 40 * result.nfev_upper


def test_no_task_takes_more_steps_than_its_budget() -> None:
    steps: list[int] = []

    class Endless(Walker):
        def advance(self, state: Any) -> Any:
            state = super().advance(state)
            steps.append(state.steps)
            return state

    budget = bilevo.Budget(upper_max=60, lower_max=10)
    minimize(problem(Endless(length=10**9)), method="bl-cma-es", budget=budget)
    assert max(steps) == 10


@pytest.mark.parametrize("method", METHODS)
def test_an_answer_may_become_feasible_without_a_change(method: str) -> None:
    class Dual(Exact):
        """Its answer is right at once; that it violates nothing, it knows later."""

        def start(self, x: Any, rng: np.random.Generator) -> Any:
            return [x, 3.0]

        def advance(self, state: Any) -> Any:
            return [state[0], max(state[1] - 1, 0.0)]

        def best(self, state: Any) -> tuple[Any, float, float]:
            return HALF * state[0], 0.0, state[1]

        def done(self, state: Any) -> bool:
            return bool(state[1] == 0)

    assert minimize(problem(Dual()), method=method, max_evals=200).feasible


@pytest.mark.parametrize("method", METHODS)
def test_a_generation_whose_best_follower_fails_has_a_result(method: str) -> None:
    class Late(Walker):
        def advance(self, state: Any) -> Any:
            good.add(bool(state.x[0] <= state.x[1]))
            if state.x[0] > state.x[1] and state.steps == 3:
                raise ZeroDivisionError("no way")
            return super().advance(state)

    for rng in range(8):
        good: set[bool] = set()
        options = {"method": method, "on_failure": "worst", "rng": rng}
        first = minimize(problem(Late()), callback=stop, **options)
        assert first.feasible is (True in good)


def stop(result: bilevo.Result) -> None:
    raise StopIteration


def test_methods_that_search_f_refuse_and_name_those_that_do_not() -> None:
    with pytest.raises(ValueError, match=r"drc-plus searches f itself.*take .*drc-cma-es"):
        minimize(problem(Exact()), method="drc-plus")
    with pytest.raises(ValueError, match="minimize drives a problem's own solver"):
        bilevo.Optimizer(problem(Exact()))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Exact, "an object with the methods start, advance, best and done"),
        (object(), "which has no start, advance, best, done"),
        (Walker(cost=0), "follower.cost must be a positive whole number"),
    ],
)
def test_what_is_no_follower_is_refused(wrong: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        problem(wrong)


def test_f_is_dispensable_with_a_follower_only() -> None:
    with pytest.raises(ValueError, match="f must be a function"):
        bilevo.Problem(F, None, [(0, 1)], [(0, 1)])
    with pytest.raises(ValueError, match="g without f"):
        bilevo.Problem(F, None, [(0, 1)], [(0, 1)], g=f, follower=Exact())
    *_, f_values, g = problem(Exact()).evaluate([1, 1], [1, 1])
    assert np.isnan(f_values).all() and g.shape == (1, 0)


def test_verify_starts_the_follower_again() -> None:
    class Trapped(Walker):
        """Ends in the wrong place in half of its starts."""

        def start(self, x: Any, rng: np.random.Generator) -> Any:
            walk = super().start(x, rng)
            walk.wrong = rng.random() < 0.5  # type: ignore[attr-defined]
            return walk

        def best(self, state: Any) -> tuple[Any, float, float]:
            y = state.y + 0.5 * state.wrong
            return y, f(state.x, y), 0.0

    trapped = problem(Trapped())
    result = minimize(trapped, max_evals=3000)
    certificate = verify(trapped, result)
    assert certificate.nfev_lower == 5 * 12
    assert (certificate.effort, certificate.searches) == ("normal", 5)
    if result.f > 0.1:  # the leader gains by a follower that errs
        assert certificate.follower_gap == pytest.approx(0.5, abs=0.01)
        assert "the follower has an answer better by 0.5" in certificate.message
    assert pytest.approx(F(result.x, result.x / 2), abs=0.02) == certificate.F


def test_verify_takes_a_second_solver_and_the_word_of_f() -> None:
    class Liar(Exact):
        def best(self, state: Any) -> tuple[Any, float, float]:
            return np.ones(2), -1.0, 0.0

    flattered = minimize(problem(Liar()), max_evals=500)
    assert verify(problem(Liar()), flattered).message.startswith("confirmed")
    certificate = verify(problem(Liar(), known=True), flattered, follower=Exact())
    assert certificate.follower_gap == pytest.approx(f(flattered.x, np.ones(2)))
    assert certificate.y == pytest.approx(flattered.x / 2)
    by_functions = bilevo.Problem(F, f, [(-5, 5)] * 2, [(-5, 5)] * 2)
    result = minimize(by_functions, max_evals=3000)
    assert verify(by_functions, result, follower=Exact()).follower_gap < 1e-9


def test_an_answer_without_a_value_is_not_confirmed() -> None:
    nameless = problem(Wrong(([0.0, 0.0], np.nan, 0.0)))
    certificate = verify(nameless, minimize(nameless, max_evals=50))
    assert not certificate.feasible
    assert certificate.message == "no finite value of the follower was found at this x"


def test_campaigns_take_followers_at_their_word() -> None:
    x, y = np.ones(2), np.full(2, HALF)
    assert checked(problem(Exact()), x, y, 0.0) == (F(x, y), 0.0, 0.0)
    infeasible = problem(Wrong((y, -1.0, 2.0)))
    assert checked(infeasible, x, y, -1.0, 2.0) == (F(x, y), np.inf, np.inf)
    assert np.isnan(checked(infeasible, x, np.full(2, np.nan), np.inf, np.inf)).all()
    answered = problem(Exact(), response=lambda x: x / 2)
    assert checked(answered, x, np.zeros(2), 0.5) == (F(x, y), 0.0, 0.5)


def test_starts_that_fail_are_counted_and_without_others_nothing_is_confirmed() -> None:
    class Flaky(Walker):
        def start(self, x: Any, rng: np.random.Generator) -> Any:
            if rng.random() < 0.5:
                raise OSError("no licence")
            return super().start(x, rng)

    result = minimize(problem(Walker()), max_evals=600)
    flaky = verify(problem(Flaky()), result, effort="normal")
    assert flaky.confirmed and 0 < flaky.failures < 5
    assert flaky.searches == 5 - flaky.failures
    assert flaky.message.endswith(f"; {flaky.failures} of 5 starts failed")
    broken = problem(Wrong(raises=OSError("broken")))
    certificate = verify(broken, result)
    assert not certificate.confirmed and certificate.failures == 2
    assert "all starts of the solver failed: OSError: broken" in certificate.message
    with pytest.raises(OSError, match="broken"):
        verify(broken, result, on_failure="raise")


def test_a_follower_that_agrees_to_rounding_is_confirmed() -> None:
    searched = problem(bilevo.followers.Minimize(), known=True)
    result = minimize(searched, max_evals=600)
    assert verify(searched, result).message.startswith("confirmed")


def test_a_certificate_says_where_a_follower_never_came_to_an_end() -> None:
    class Restless(Walker):
        def done(self, state: Any) -> bool:
            return False

    result = minimize(problem(Walker()), max_evals=300)
    certificate = verify(problem(Restless()), result, effort="normal")
    assert not certificate.confirmed
    assert "5 of 5 starts were not done after 1000 steps" in certificate.message


def test_a_problem_says_that_it_has_a_solver() -> None:
    assert "follower Walker" in repr(problem(Walker()))


@pytest.mark.parametrize("method", ["drc-race", "drc-cma-es"])  # others rate answers at their ends
def test_a_result_says_that_its_follower_was_not_done(method: str, tmp_path: Path) -> None:
    early = {"method": method, "max_evals": 40, "run_dir": tmp_path}
    result = minimize(problem(Walker(length=100)), **early)
    assert result.message.endswith("the answer is feasible, but its follower's solver was not done")
    assert bilevo.load(tmp_path).message == result.message
    assert "not done" not in minimize(problem(Exact()), method=method, max_evals=40).message


def test_an_error_says_where_it_happened() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        minimize(problem(Wrong(raises=ZeroDivisionError("no way"))))
    assert raised.value.__notes__[0].startswith("in step 1 of the follower at x = [")
    functions = bilevo.Problem(lambda x, y: 1 / 0, f, [(0, 1)], [(0, 1)])
    with pytest.raises(ZeroDivisionError) as raised:
        minimize(functions)
    assert raised.value.__notes__[0].startswith("in an evaluation of the upper level at x = [")


def test_methods_are_named_also_where_an_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ValueError, match=r"take .*drc-race"):
        minimize(problem(Exact()), method="drc-plus")
