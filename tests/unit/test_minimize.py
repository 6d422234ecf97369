"""`minimize`: what people rely on."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import fingerprint, minimize_counted, quadratic

import bilevo
from bilevo import Budget, Problem, StopReason, minimize
from bilevo.problems import get
from bilevo.testing import CountingProblem


def scalar(problem: Problem) -> Problem:
    """The same problem with functions of one pair."""

    def one(function):
        return lambda x, y: float(function(x[None], y[None])[0])

    return Problem(
        one(problem.F),
        one(problem.f),
        problem.x_bounds,
        problem.y_bounds,
        optimum=problem.optimum,
        name=problem.name,
    )


@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es", "bl-cma-es", "nested-cma-es"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(method: str) -> None:
    runs = [minimize_counted(get("smd1"), method=method, rng=s, max_evals=8000) for s in (5, 5, 6)]
    assert fingerprint(runs[0]) == fingerprint(runs[1])
    assert runs[0].x.tobytes() != runs[2].x.tobytes()


def test_scalar_and_vectorized_objectives_give_the_same_bits() -> None:
    vectorized = minimize_counted(get("smd1"), rng=3)
    assert fingerprint(vectorized) == fingerprint(minimize_counted(scalar(get("smd1")), rng=3))


def test_a_generator_is_reduced_to_one_seed_that_repeats_the_run() -> None:
    result = minimize(get("smd1"), rng=np.random.default_rng(9), max_evals=1000)
    again = minimize(get("smd1"), rng=result.seed, max_evals=1000)
    assert fingerprint(result) == fingerprint(again)


def test_smd1_is_solved_to_the_known_optimum() -> None:
    result = minimize_counted(get("smd1"))
    assert result.success and result.status == StopReason.TARGET
    assert abs(result.F) < 1e-6 and result.violation == 0
    assert result.nfev == result.nfev_upper + result.nfev_lower
    assert "target" in result.message


@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es"])
def test_without_a_known_optimum_the_run_settles_by_itself(method: str) -> None:
    result = minimize_counted(quadratic(), method=method)
    assert result.feasible and result.status == StopReason.STAGNATION
    assert result.F < 1e-5
    assert "settled" in result.message
    assert result.success == result.certified == (method == "drc-plus")
    assert bilevo.verify(quadratic(), result).confirmed and result.success


def test_plain_functions_need_no_problem_object() -> None:
    result = minimize(
        lambda x, y: x[0] ** 2 + y[0] ** 2,
        lambda x, y: (y[0] - x[0] + 1) ** 2,
        [(-5, 10)],
        [(-5, 10)],
    )
    assert result.x == pytest.approx([0.5], abs=0.01)
    assert result.y == pytest.approx([-0.5], abs=0.01)


def test_the_default_is_drc_plus_and_its_answer_has_a_certificate() -> None:
    result = minimize_counted(quadratic())
    assert result.method == "drc-plus" and 0 <= result.follower_gap < 1e-9
    assert result.certified and result.certificate is not None
    assert result.certificate.by == "drc-plus" and "certified: " in result.message
    assert math.isnan(minimize(quadratic(), method="drc-cma-es", max_evals=500).follower_gap)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_small_problem_ends_early_by_itself(seed: int) -> None:
    """The first descent ends among leaders whose F differ by rounding; that is not F's scale."""
    result = minimize(
        lambda x, y: (x[0] - 3) ** 2 + (y[0] - 1) ** 2,
        lambda x, y: (y[0] - x[0]) ** 2 + 0.1 * y[0],
        [(-5, 10)],
        [(-5, 10)],
        rng=seed,
    )
    assert result.status == StopReason.STAGNATION and result.nfev < 3000


@pytest.mark.parametrize("limit", [1, 30, 56, 57, 64, 500, 2345])
@pytest.mark.parametrize("which", ["max_evals", "max_evals_upper", "max_evals_lower"])
def test_limits_are_never_exceeded(which: str, limit: int) -> None:
    result = minimize_counted(get("smd1"), target=False, **{which: limit})
    used = {
        "max_evals": result.nfev,
        "max_evals_upper": result.nfev_upper,
        "max_evals_lower": result.nfev_lower,
    }
    assert used[which] <= limit
    assert result.status in (StopReason.MAX_EVALS, StopReason.BUDGET, StopReason.STAGNATION)


def test_a_run_stopped_before_any_pair_says_so() -> None:
    result = minimize_counted(get("smd1"), max_evals=1)
    assert not result.success and np.isnan(result.F) and np.isnan(result.x).all()
    assert "the limit on evaluations is reached; no value of F" in result.message


def test_a_run_stopped_in_its_first_generation_has_an_answer() -> None:
    result = minimize_counted(get("smd1"), max_evals=2)
    assert result.feasible and result.status == StopReason.MAX_EVALS and result.nit == 0
    assert not result.success and "stopped before it settled" in result.message
    F, _, f, _ = get("smd1").evaluate(result.x, result.y)
    assert (F[0], f[0]) == pytest.approx((result.F, result.f))


@pytest.mark.rest
@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es", "bl-cma-es"])
def test_rounding_at_an_active_constraint_does_not_cost_the_answer(method: str) -> None:
    """The follower answers y = min(x, 2), the leader's optimum lies on x + y = 5."""
    problem = Problem(
        lambda x, y: (x[:, 0] - 4) ** 2 + (y[:, 0] - 4) ** 2,
        lambda x, y: (y[:, 0] - x[:, 0]) ** 2,
        [(-5, 10)],
        [(-5, 10)],
        G=lambda x, y: x + y - 5,
        g=lambda x, y: y - 2,
        vectorized=True,
    )
    runs = [minimize(problem, method=method, rng=s, max_evals=12_000) for s in (3, 11, 12, 13)]
    assert all(run.feasible for run in runs)


def test_the_reported_values_are_those_at_the_reported_pair() -> None:
    for name in ("smd1", "smd9", "smd12", "tp3", "decision-making"):
        result = minimize_counted(get(name), max_evals=3000)
        F, G, f, g = get(name).evaluate(result.x, result.y)
        assert F[0] == result.F and f[0] == result.f
        repeated = get(name).repeats_lower
        upper = np.maximum(G[0, : G.shape[1] - repeated], 0).sum()
        assert result.violation == pytest.approx(upper + np.maximum(g, 0).sum(), abs=1e-12)


def test_time_is_a_hard_limit() -> None:
    result = minimize(get("smd1"), target=False, max_time=1e-9)
    assert result.status == StopReason.MAX_TIME and result.nfev == 0


@pytest.fixture
def slow_clock(monkeypatch) -> None:
    """A clock that ticks a second at each look."""
    ticks = iter(range(1, 10**6))
    monkeypatch.setattr("bilevo.run.clock.perf_counter", lambda: float(next(ticks)))


def test_time_is_looked_at_between_scalar_evaluations(slow_clock) -> None:
    result = minimize_counted(quadratic(), max_time=20)  # in the middle of the first batch of 48
    assert result.status == StopReason.MAX_TIME and 10 < result.nfev_lower < 20


def test_time_can_run_out_in_the_middle(slow_clock) -> None:
    result = minimize_counted(get("smd1"), target=False, max_time=200)
    assert result.status == StopReason.MAX_TIME and result.feasible and not result.success
    assert 190 < result.time < 210


def test_the_budget_is_the_algorithms_own_rule() -> None:
    smd8, small = get("smd8"), Budget(upper_max=200)
    result = minimize_counted(smd8, method="drc-cma-es", budget=small)
    assert result.status == StopReason.BUDGET
    assert 200 <= result.nfev_upper <= 200 + 100
    small = Budget(upper_max=50)
    default = minimize_counted(smd8, budget=small)  # its own is on evaluations of both levels
    assert default.status == StopReason.BUDGET and default.nfev_upper < 50
    assert 500 < default.nfev < 2500


def test_a_wanted_value_stops_at_or_below_it() -> None:
    result = minimize_counted(get("smd1"), target=0.5)
    assert result.status == StopReason.TARGET and result.F <= 0.5 + 1e-6
    assert minimize(get("smd1"), target=False, max_evals=30_000).F < 1e-6


def test_the_callback_sees_every_generation_and_can_stop() -> None:
    seen = []

    def callback(result: bilevo.Result) -> None:
        seen.append(result)
        if len(seen) == 3:
            raise StopIteration

    result = minimize_counted(get("smd1"), target=False, callback=callback)
    assert result.status == StopReason.CALLBACK and result.nit == 3
    assert result.feasible and not result.success
    assert [r.nit for r in seen] == [1, 2, 3]
    assert all(r.status == StopReason.RUNNING and not r.success for r in seen)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal; processes in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interruption_returns_the_best_pair_so_far(interruptible: None) -> None:
    calls = 0

    def F(x, y):
        nonlocal calls
        calls += 1
        if calls == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return float(x @ x)

    result = minimize(F, lambda x, y: float(y @ y), [(-5, 10)], [(-5, 10)])
    assert result.status == StopReason.INTERRUPTED and not result.success
    assert result.nfev_upper == 39  # the interrupted call has no value
    assert np.isfinite(result.F) and np.isfinite(result.x).all()


def test_the_history_has_the_executions_and_survival_of_each_task() -> None:
    result = minimize_counted(get("smd1"), method="drc-cma-es")
    assert len(result.history) == result.nit
    last = result.history[-1]
    assert (last.nfev_upper, last.nfev_lower) == (result.nfev_upper, result.nfev_lower)
    assert (last.F, last.f) == (result.F, result.f)
    for row in result.history:
        assert len(row.executions) == len(row.survived) == 8
        assert min(row.executions) >= 1 and sum(row.survived) == 4


@pytest.mark.rest
@pytest.mark.parametrize("factor", [1e-8, 1e8])
@pytest.mark.parametrize("level", ["F", "f", "both"])
def test_objectives_in_other_units_still_converge(factor: float, level: str) -> None:
    smd1 = get("smd1")

    def scaled(function, on: bool):
        return (lambda x, y: factor * function(x, y)) if on else function

    problem = Problem(
        scaled(smd1.F, level != "f"),
        scaled(smd1.f, level != "F"),
        smd1.x_bounds,
        smd1.y_bounds,
        vectorized=True,
    )
    errors = []
    for seed in (1, 2, 3):
        result = minimize_counted(problem, rng=seed)
        assert result.success
        F = smd1.F(result.x[None], smd1.response(result.x[None]))
        errors.append(float(F[0]))
    assert np.median(errors) < 1e-4


def test_x0_is_where_the_search_starts() -> None:
    seen = []

    def F(x, y):
        seen.append(x.copy())
        return float((x - 3) @ (x - 3))

    for method in ("drc-cma-es", "drc-plus"):
        options = {"method": method, "x0": [9.0, 9.0], "max_evals": 500}
        seen.clear()
        minimize(F, lambda x, y: float(y @ y), [(-5, 10)] * 2, [(-5, 10)], **options)
        assert np.allclose(seen[0], 9)
        assert np.mean(seen[:10]) > 5  # a uniform start has 2.5


def test_a_good_x0_is_not_lost() -> None:
    """At the optimal x the follower's first, rough answer leaves a small F; elsewhere it is 20."""
    for seed in range(5):
        result = minimize_counted(get("smd1"), x0=[0.0, 0.0], rng=seed, max_evals=1200)
        assert result.F < 3


@pytest.mark.parametrize("x0", [-0.1, 0.2])
def test_x0_at_a_bound_stays_inside(x0: float) -> None:
    """These bounds are rounded such that lower + width is beyond the upper one."""
    problem = Problem(
        lambda x, y: float(x[0]), lambda x, y: float(y[0]), [(-0.1, 0.2)], [(-0.1, 0.2)]
    )
    minimize_counted(problem, x0=[x0], max_evals=300)


def test_widths_of_very_different_size_work() -> None:
    """x in millions and in thousandths, y likewise; the follower copies x in its own units."""
    wide, narrow = 1e6, 1e-3
    unit = np.array([wide, narrow])
    result = minimize(
        lambda x, y: float((x / unit - 0.3) @ (x / unit - 0.3) + (y / unit) @ (y / unit)),
        lambda x, y: float((y / unit - x / unit) @ (y / unit - x / unit)),
        [(-wide, wide), (-narrow, narrow)],
        [(-wide, wide), (-narrow, narrow)],
    )
    assert result.success
    x, y = result.x / unit, result.y / unit
    assert np.allclose(x, y, atol=5e-3)
    assert (x - 0.3) @ (x - 0.3) + x @ x == pytest.approx(0.09, abs=2e-3)


@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es", "bl-cma-es", "nested-cma-es"])
@pytest.mark.parametrize("fixed", ["one of x", "one of y", "all x", "all y", "everything"])
def test_fixed_variables_stay_fixed(method: str, fixed: str) -> None:
    x_bounds, y_bounds = [(-5.0, 10.0)] * 2, [(-5.0, 10.0)] * 2
    if fixed in ("one of x", "all x", "everything"):
        x_bounds[0] = (1.5, 1.5)
    if fixed in ("one of y", "all y", "everything"):
        y_bounds[1] = (-2.0, -2.0)
    if fixed in ("all x", "everything"):
        x_bounds[1] = (0.25, 0.25)
    if fixed in ("all y", "everything"):
        y_bounds[0] = (3.0, 3.0)
    problem = Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float((y - x) @ (y - x)),
        x_bounds,
        y_bounds,
    )
    result = minimize_counted(problem, method=method, max_evals=8000)
    assert result.feasible
    for i, (low, high) in enumerate(x_bounds):
        assert low <= result.x[i] <= high
        if low == high:
            assert result.x[i] == low
    for i, (low, high) in enumerate(y_bounds):
        assert low <= result.y[i] <= high
        if low < high:
            assert result.y[i] == pytest.approx(result.x[i], abs=0.05)


@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es", "bl-cma-es", "nested-cma-es"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (4, 1), (30, 30)])
def test_sizes_from_one_to_thirty_work(method: str, m: int, n: int) -> None:
    problem = Problem(
        lambda x, y: np.vecdot(x, x) + np.vecdot(y, y),
        lambda x, y: np.vecdot(y - x[:, :1], y - x[:, :1]),
        [(-5, 10)] * m,
        [(-5, 10)] * n,
        vectorized=True,
    )
    short = Budget(lower_max=50)  # nested-cma-es solves a whole generation before its first pair
    result = minimize_counted(problem, method=method, max_evals=20_000, budget=short)
    assert result.feasible and result.x.shape == (m,) and result.y.shape == (n,)


@pytest.mark.parametrize(("ctol", "slack"), [(None, 1e-8), (0, 0.0)])
def test_constraints_at_both_levels_are_met(ctol: float | None, slack: float) -> None:
    """min x^2 + y, where y = argmin (y - x)^2 with y >= 1 - x, and x >= 0.2."""
    result = minimize(
        lambda x, y: float(x[0] ** 2 + y[0]),
        lambda x, y: float((y[0] - x[0]) ** 2),
        [(-2, 2)],
        [(-2, 2)],
        G=lambda x, y: [0.2 - x[0]],
        g=lambda x, y: [1 - x[0] - y[0]],
        ctol=ctol,
    )
    # y = max(x, 1 - x), so F = x^2 + 1 - x has its minimum 3/4 at x = 1/2.
    assert result.feasible and result.certified and result.violation <= slack
    assert pytest.approx(0.75, abs=1e-3) == result.F


@pytest.mark.parametrize("share", [0.01, 0.5])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["F", "f", "G", "g"])
def test_non_finite_values_never_win(where: str, bad: float, share: float) -> None:
    def spoil(value: float, x: np.ndarray, y: np.ndarray) -> float:
        chance = math.modf(abs(math.sin(1e4 * (x @ x + 3 * y @ y))))[0]
        return bad if chance < share else value

    functions = {
        "F": lambda x, y: float(x @ x + y @ y),
        "f": lambda x, y: float((y - x) @ (y - x)),
        "G": lambda x, y: -1.0,
        "g": lambda x, y: -1.0,
    }
    plain = functions[where]
    functions[where] = lambda x, y: spoil(plain(x, y), x, y)
    problem = Problem(x_bounds=[(-5, 10)] * 2, y_bounds=[(-5, 10)] * 2, **functions)
    result = minimize_counted(problem, max_evals=4000)
    assert np.isfinite([result.F, result.f]).all() and result.violation == 0
    assert np.isfinite(
        np.concatenate([v.ravel() for v in problem.evaluate(result.x, result.y)])
    ).all()
    assert result.F < 20


@pytest.mark.rest
@pytest.mark.parametrize("method", ["drc-plus", "drc-cma-es", "bl-cma-es", "nested-cma-es"])
@pytest.mark.parametrize("where", ["F", "f"])
def test_nothing_but_nan_ends_with_a_clear_status(method: str, where: str) -> None:
    functions = {"F": lambda x, y: 1.0, "f": lambda x, y: float(y @ y)}
    functions[where] = lambda x, y: math.nan
    problem = Problem(x_bounds=[(-5, 10)], y_bounds=[(-5, 10)], **functions)
    result = minimize_counted(problem, method=method, budget=Budget(lower_max=20, upper_max=200))
    assert not result.success and result.status in (StopReason.STAGNATION, StopReason.BUDGET)
    assert "no pair with finite values" in result.message


def raising(x, y):
    if x[0] > 2:
        raise ArithmeticError("singular")
    return float((y - x) @ (y - x))


def test_an_exception_of_the_objective_comes_through_by_default() -> None:
    with pytest.raises(ArithmeticError, match="singular"):
        minimize(lambda x, y: float(x @ x), raising, [(-5, 10)] * 2, [(-5, 10)] * 2)


@pytest.mark.parametrize("constrained", [False, True])
def test_failures_can_be_ranked_last_and_counted(constrained: bool) -> None:
    problem = Problem(
        lambda x, y: float(x @ x + y @ y),
        raising,
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        g=(lambda x, y: [y[0] - 8, y[1] - 8]) if constrained else None,
    )
    result = minimize_counted(problem, on_failure="worst")
    assert result.success and result.failures > 0 and result.F < 1e-4


def test_a_failing_vectorized_batch_fails_as_a_whole() -> None:
    def f(x, y):
        if (x[:, 0] > 9).any():
            raise ArithmeticError
        return np.vecdot(y - x, y - x)

    problem = Problem(
        lambda x, y: np.vecdot(x, x),
        f,
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        vectorized=True,
    )
    result = minimize_counted(problem, method="drc-cma-es", on_failure="worst", rng=2)
    assert result.failures > 0 and result.feasible


BAD_RETURNS = {
    "None": None,
    "string": "1.0",
    "complex": 1 + 2j,
    "vector": np.zeros(3),
    "object": object(),
    "dict": {},
    "ragged": [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("value", BAD_RETURNS.values(), ids=BAD_RETURNS.keys())
@pytest.mark.parametrize("level", ["upper", "lower"])
@pytest.mark.parametrize("vectorized", [False, True])
def test_wrong_returns_raise_bad_value_naming_the_level(value, level, vectorized) -> None:
    calls = 0

    def wrong(x, y):
        nonlocal calls
        calls += 1
        return value

    def right(x, y):
        return np.zeros(len(x)) if vectorized else 0.0

    F, f = (wrong, right) if level == "upper" else (right, wrong)
    for on_failure in ("raise", "worst"):
        with pytest.raises(bilevo.BadValue, match=f"{level}-level objective"):
            minimize(F, f, [(0, 1)], [(0, 1)], vectorized=vectorized, on_failure=on_failure)
    assert calls == 2  # at the first such value


@pytest.mark.parametrize(
    "value",
    [1, True, np.float32(1), np.array(1.0), np.array([1.0]), [1.0], np.int64(3)],
    ids=repr,
)
def test_anything_that_is_one_real_number_is_accepted(value) -> None:
    result = minimize(lambda x, y: value, lambda x, y: 0.0, [(0, 1)], [(0, 1)], max_evals=100)
    assert float(np.asarray(value).reshape(())) == result.F


@pytest.mark.parametrize("shape", [lambda k: (k,), lambda k: (k, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64, bool])
def test_vectorized_returns_of_other_real_types_are_accepted(shape, dtype) -> None:
    result = minimize(
        lambda x, y: np.ones(shape(len(x)), dtype),
        lambda x, y: np.zeros(shape(len(x)), dtype).tolist(),
        [(0, 1)],
        [(0, 1)],
        vectorized=True,
        max_evals=100,
    )
    assert result.F == 1.0


def test_functions_may_return_the_same_array_again() -> None:
    number, vector, batch = np.zeros(1), np.zeros(2), {}

    def f(x, y):
        number[0] = (y - x) @ (y - x)
        return number

    def g(x, y):
        vector[:] = y - 9
        return vector

    def fill(values):
        buffer = batch.setdefault(len(values), np.zeros(len(values)))
        buffer[:] = values
        return buffer

    bounds = [(-5, 10)] * 2, [(-5, 10)] * 2
    again = minimize(lambda x, y: float(x @ x), f, *bounds, g=g, max_evals=2000)
    fresh = minimize(
        lambda x, y: float(x @ x),
        lambda x, y: float((y - x) @ (y - x)),
        *bounds,
        g=lambda x, y: y - 9,
        max_evals=2000,
    )
    assert fingerprint(again) == fingerprint(fresh)
    rows = minimize(
        lambda x, y: fill(np.vecdot(x, x)),
        lambda x, y: fill(np.vecdot(y - x, y - x)),
        *bounds,
        g=lambda x, y: y - 9,
        vectorized=True,
        max_evals=2000,
    )
    assert pytest.approx(fresh.F) == rows.F


def test_more_repeated_constraints_than_there_are_is_an_error() -> None:
    with pytest.raises(bilevo.BadValue, match=r"upper-level constraints .* 3 of them repeat g"):
        minimize(
            Problem(
                lambda x, y: 0.0,
                lambda x, y: 0.0,
                [(0, 1)],
                [(0, 1)],
                G=lambda x, y: [1.0],
                g=lambda x, y: [0.0],
                repeats_lower=3,
            )
        )


@pytest.mark.rest
@pytest.mark.parametrize("method", ["drc-cma-es", "bl-cma-es"])
def test_a_search_that_has_collapsed_goes_on_without_harm(method: str) -> None:
    endless = Budget(upper_max=40_000, upper_window=40_000, lower_max=20)
    problem = Problem(
        lambda x, y: np.vecdot(x, x), lambda x, y: y[:, 0], [(0, 1)], [(0, 1)], vectorized=True
    )
    result = minimize_counted(problem, method=method, budget=endless, max_evals=120_000)
    assert result.feasible and result.nit > 1500


def test_ftol_says_which_change_counts_as_none() -> None:
    options = {"method": "drc-cma-es"}
    runs = [minimize(quadratic(), ftol=ftol, **options).nfev for ftol in (1e-1, 1e-6)]
    assert runs[0] < 0.9 * runs[1]


def test_a_window_of_one_generation_does_not_stop_a_run_that_improves() -> None:
    result = minimize(get("smd1"), method="drc-cma-es", budget=Budget(upper_window=1))
    assert result.nit > 3


def test_huge_constraint_values_are_no_trouble() -> None:
    result = minimize(
        lambda x, y: float(x @ x),
        lambda x, y: float(y @ y),
        [(-5, 10)],
        [(-5, 10)],
        g=lambda x, y: [1.7e308 * (y[0] > 1), 1.7e308 * (y[0] > 1)],
        max_evals=2000,
    )
    assert result.feasible


def test_widths_at_the_ends_of_floating_point_are_no_trouble() -> None:
    problem = Problem(
        lambda x, y: float(x[0] / 1e300),
        lambda x, y: float(y[0] * 1e300),
        [(0, 1e300)],
        [(0, 1e-300)],
    )
    assert minimize_counted(problem, max_evals=2000).feasible


def test_a_changing_number_of_constraints_is_refused() -> None:
    counts = iter([2] * 5 + [3] * 100)
    with pytest.raises(bilevo.BadValue, match=r"lower-level constraints .* not \(2,\)"):
        minimize(
            lambda x, y: 0.0,
            lambda x, y: 0.0,
            [(0, 1)],
            [(0, 1)],
            g=lambda x, y: np.zeros(next(counts)),
        )


def test_constraints_must_not_be_booleans() -> None:
    with pytest.raises(bilevo.BadValue, match=r"upper-level constraints .* bool"):
        minimize(lambda x, y: 0.0, lambda x, y: 0.0, [(0, 1)], [(0, 1)], G=lambda x, y: x[0] >= 1)


@pytest.mark.parametrize("vectorized", [False, True])
def test_masked_values_are_failures(vectorized: bool) -> None:
    def F(x, y):
        first = x[..., 0]
        return np.ma.masked_where(first > 0, -1e6 * first)

    problem = Problem(
        F,
        lambda x, y: (y**2).sum(axis=-1),
        [(-10, 5)],
        [(-5, 10)],
        vectorized=vectorized,
    )
    result = minimize(problem, max_evals=2000)
    assert result.x[0] <= 0 and np.isfinite(result.F)


def test_writing_into_x_is_an_error() -> None:
    def F(x, y):
        x[0] = 1.0
        return 0.0

    with pytest.raises(ValueError, match="read-only"):
        minimize(F, lambda x, y: 0.0, [(0, 1)], [(0, 1)])


def never(x, y):
    raise AssertionError("evaluated before the input was checked")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"x_bounds": [(0, math.inf)]}, "x_bounds.*not finite"),
        ({"x_bounds": [(math.nan, 1)]}, "x_bounds.*not finite"),
        ({"y_bounds": [(0, 1), (3, 2)]}, r"y_bounds\[1\] = \(3.0, 2.0\) is reversed"),
        ({"y_bounds": []}, "y_bounds must be a sequence"),
        ({"y_bounds": [(0, 1, 2)]}, "y_bounds must be a sequence"),
        ({"x_bounds": 5}, "x_bounds must be a sequence"),
        ({"x_bounds": bilevo.Bounds}, "x_bounds must be a sequence"),
        ({"x_bounds": [("a", "b")]}, "x_bounds must be a sequence"),
        ({"x_bounds": [(-1.7e308, 1.7e308)]}, "wider than floating point"),
        ({"method": "drc-cma"}, "unknown method 'drc-cma'; did you mean 'drc-cma-es'"),
        ({"method": "zzz"}, "unknown method 'zzz'; known are drc-cma-es"),
        ({"method": 3}, "method must be"),
        ({"method": bilevo.algorithms.DRC}, r"did you mean DRC\(\)"),
        ({"max_time": "5"}, "max_time must be a positive number, got '5'"),
        ({"ftol": "a"}, "ftol must be a positive number"),
        ({"max_evals": -5}, "max_evals must be a positive whole number or None, got -5"),
        ({"max_evals_upper": 0}, "max_evals_upper"),
        ({"max_evals_lower": 1.5}, "max_evals_lower"),
        ({"max_time": -1}, "max_time"),
        ({"budget": 100}, "budget must be a bilevo.Budget"),
        ({"ftol": 0}, "ftol"),
        ({"target": "best"}, "target"),
        ({"target": math.nan}, "target"),
        ({"target": True}, "target"),
        ({"x0": [0.5, 0.5]}, r"x0 must have shape \(1,\)"),
        ({"x0": [7.0]}, r"x0\[0\] = 7.0 is outside its bounds"),
        ({"x0": "here"}, "x0 must be 1 numbers"),
        ({"y0": [0.5, 0.5]}, r"y0 must have shape \(1,\)"),
        ({"y0": [7.0]}, r"y0\[0\] = 7.0 is outside its bounds"),
        ({"args": 3}, "args must be a tuple"),
        ({"max_evals": math.inf}, "max_evals must be a positive whole number"),
        ({"retries": 0.5}, "retries must be"),
        ({"workers": 1.5}, "workers must be"),
        ({"keep_archive": 0}, "keep_archive must be True, False or a number"),
        ({"rng": -1}, "rng must be"),
        ({"on_failure": "ignore"}, "on_failure"),
        ({"callback": 3}, "callback"),
        ({"G": 3}, "G must be a function"),
        ({"f": None}, "minimize takes F, f, x_bounds and y_bounds"),
    ],
    ids=str,
)
def test_wrong_input_is_refused_before_the_first_evaluation(wrong, says) -> None:
    options = {"F": never, "f": never, "x_bounds": [(0, 1)], "y_bounds": [(0, 1)], **wrong}
    with pytest.raises(ValueError, match=says):
        minimize(**options)


def test_a_problem_and_functions_together_are_refused() -> None:
    with pytest.raises(ValueError, match="brings its own functions"):
        minimize(get("smd1"), lambda x, y: 0.0)


def test_bounds_come_in_three_forms() -> None:
    from scipy.optimize import Bounds as ScipyBounds

    for bounds in ([(0, 1), (2, 3)], bilevo.Bounds([0, 2], [1, 3]), ScipyBounds([0, 2], [1, 3])):
        problem = Problem(never, never, bounds, [(0, 1)])
        assert problem.x_bounds.lower.tolist() == [0, 2]
        assert problem.x_bounds.upper.tolist() == [1, 3]


def test_progress_goes_to_standard_error_only(capfd) -> None:
    minimize(get("smd1"), max_evals=2000, progress=True)
    captured = capfd.readouterr()
    assert captured.out == "" and "generation" in captured.err


def test_no_global_random_state_is_touched() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    minimize(get("smd1"), max_evals=500)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_counting_helper_counts() -> None:
    counted = CountingProblem(get("smd1"))
    counted.problem.evaluate([0, 0], [0, 0, 0])
    assert (counted.upper, counted.lower) == (1, 1)
