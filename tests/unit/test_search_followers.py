"""scipy's local searches and our population optimizers as followers."""

from dataclasses import replace

import numpy as np
import pytest

import bilevo
from bilevo.followers import Minimize, Population
from bilevo.run import snapshot
from bilevo.run.journal import Position
from bilevo.testing import CountingProblem

X = np.array([2.0])
METHODS = ["L-BFGS-B", "SLSQP", "Nelder-Mead", "COBYLA"]
READY = [Minimize(), Population(), Population(bilevo.DE(population=12))]


def bowl(x, y):
    """Lowest at y = (x, x / 2)."""
    return (y[0] - x[0]) ** 2 + 10 * (y[1] - x[0] / 2 + 0.1 * (y[0] - x[0])) ** 2 + 3.0


def bowls(x, y):
    return bowl(x.T, y.T)


def problem(follower, f=bowl, **options) -> bilevo.Problem:
    bounds = options.pop("y_bounds", [(-5, 10), (-3, 3)])
    return bilevo.Problem(lambda x, y: 0.0, f, [(0, 5)], bounds, follower=follower, **options)


def solve(made: bilevo.Problem, x=X, seed: int = 1):
    """Lead the follower of a problem to its end; every step's cost is checked."""
    solver, follower = made.checked_solver(), made.follower
    state, outcomes = follower.start(x, np.random.default_rng(seed)), []
    while not outcomes or not outcomes[-1].done:
        state, outcome = solver.advance(state, first=not outcomes)
        outcomes.append(outcome)
        assert len(outcomes) < 2000
    return outcomes


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_lowest_point(method: str) -> None:
    last = solve(problem(Minimize(method)))[-1]
    assert np.allclose(last.y, [2, 1], atol=1e-4) and last.f == pytest.approx(3, abs=1e-8)
    assert last.violation == 0


@pytest.mark.parametrize("method", ["SLSQP", "COBYLA"])
def test_constraints_are_kept(method: str) -> None:
    last = solve(problem(Minimize(method), g=lambda x, y: [y[0] - 1.5, -2 - y[1]]))[-1]
    assert last.violation == 0 and last.y[0] == pytest.approx(1.5, abs=1e-5)


def test_the_usual_method_goes_by_the_constraints() -> None:
    assert problem(Minimize()).follower.method == "L-BFGS-B"
    assert problem(Minimize(), g=lambda x, y: y[0]).follower.method == "SLSQP"


@pytest.mark.rest
@pytest.mark.parametrize("method", METHODS)
def test_a_search_in_small_steps_is_one_search_to_the_bit(method: str) -> None:
    whole = solve(problem(Minimize(method, evaluations=100_000)))
    assert len(whole) == 1
    for evaluations in (1, 7) if whole[0].cost < 100 else (60,):
        steps = solve(problem(Minimize(method, evaluations=evaluations)))
        assert sum(outcome.cost for outcome in steps) == whole[0].cost
        assert max(outcome.cost for outcome in steps) <= evaluations
        assert len(steps) >= whole[0].cost / evaluations
        assert steps[-1].y.tolist() == whole[0].y.tolist() and steps[-1].f == whole[0].f


@pytest.mark.parametrize("follower", READY, ids=str)
@pytest.mark.parametrize("vectorized", [False, True])
def test_what_was_spent_is_what_was_called(follower, vectorized: bool) -> None:
    made = problem(None, bowls if vectorized else bowl, vectorized=vectorized)
    counted = CountingProblem(made)
    outcomes = solve(
        bilevo.Problem(
            made.F,
            counted.problem.f,
            made.x_bounds,
            made.y_bounds,
            vectorized=vectorized,
            follower=follower,
        )
    )
    assert sum(outcome.cost for outcome in outcomes) == counted.lower
    assert outcomes[-1].f == bowl(X, outcomes[-1].y)


@pytest.mark.parametrize("follower", READY, ids=str)
def test_vectorized_functions_give_the_same_answers(follower) -> None:
    one, many = solve(problem(follower)), solve(problem(follower, bowls, vectorized=True))
    assert len(one) == len(many) and np.allclose(one[-1].y, many[-1].y, atol=1e-7)


@pytest.mark.parametrize("follower", READY[1:], ids=str)
def test_populations_settle_at_the_lowest_point(follower) -> None:
    outcomes = solve(problem(follower))
    assert np.allclose(outcomes[-1].y, [2, 1], atol=1e-3)
    f = [outcome.f for outcome in outcomes]
    assert f == sorted(f, reverse=True) and len(outcomes) < 150
    rough = solve(problem(replace(follower, precision=1e-2)))
    assert len(rough) < len(outcomes) / 2


@pytest.mark.parametrize("follower", READY[1:], ids=str)
def test_populations_end_where_f_is_flat(follower) -> None:
    assert len(solve(problem(follower, lambda x, y: 1e6))) == 1
    assert len(solve(problem(follower, lambda x, y: 1e6 + (y[0] - x[0]) ** 2))) < 200


def test_more_starts_find_the_deeper_valley() -> None:
    def f(x, y):
        return (y[0] ** 2 - 1) ** 2 + 0.2 * y[0] + y[1] ** 2

    deep = {
        starts: sum(
            solve(problem(Minimize(starts=starts), f), seed=s)[-1].y[0] < 0 for s in range(12)
        )
        for starts in (1, 8)
    }
    assert 0 < deep[1] < 12 and deep[8] == 12


@pytest.mark.parametrize("follower", [Minimize(evaluations=9, starts=2), *READY[1:]], ids=str)
def test_a_stored_state_goes_on_to_the_same_answer(follower, tmp_path) -> None:
    follower = problem(follower).follower
    state = follower.start(X, np.random.Generator(np.random.Philox(3)))
    like = follower.start(X, np.random.Generator(np.random.Philox(3)))
    for _ in range(4):
        state = follower.advance(state)
    snapshot.write(tmp_path / "state.npz", state, Position(0, 0))
    restored, _ = snapshot.read(tmp_path / "state.npz", snapshot.StateKind.of(None, like))
    ends = []
    for stored in (state, restored):
        while not follower.done(stored):
            assert follower.advance(stored) is stored
        y, f, violation = follower.best(stored)
        ends.append((y.tolist(), f, violation))
    assert ends[0] == ends[1]


def test_a_record_of_another_machine_is_used_as_far_as_it_agrees() -> None:
    follower = problem(Minimize(evaluations=12)).follower
    state = follower.start(X, np.random.default_rng(1))
    for _ in range(2):
        state = follower.advance(state)
    state.points[15:] += 1e-16  # other rounding
    state.points[15:] *= 1 + 4e-16
    while not follower.done(state):
        before = follower.spent(state)
        state = follower.advance(state)
        assert follower.spent(state) - before <= 12
    assert np.allclose(follower.best(state)[0], [2, 1], atol=1e-6)


@pytest.mark.parametrize("follower", [Minimize(starts=8), *READY[1:]], ids=str)
def test_values_that_are_not_finite_rank_last(follower) -> None:
    def holed(x, y):
        return np.nan if y[1] > 0.9 else bowl(x, y)

    last = solve(problem(follower, holed))[-1]
    assert np.isfinite(last.f) and last.y[1] <= 0.9
    nothing = solve(problem(follower, lambda x, y: np.nan))[-1]
    assert nothing.f == nothing.violation == np.inf


@pytest.mark.parametrize("follower", READY, ids=str)
def test_fixed_and_single_variables_are_no_special_case(follower) -> None:
    last = solve(problem(follower, y_bounds=[(1, 1), (-3, 3)]))[-1]
    assert last.y[0] == 1 and last.y[1] == pytest.approx(1.1, abs=0.2)


@pytest.mark.parametrize("follower", READY, ids=str)
def test_errors_of_the_user_come_through(follower) -> None:
    def f(x, y):
        raise ArithmeticError("no model")

    with pytest.raises(ArithmeticError, match="no model"):
        solve(problem(follower, f))


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="one of L-BFGS-B, SLSQP"):
        Minimize("BFGS")
    with pytest.raises(ValueError, match="precision must be a positive number"):
        Population(precision=0)
    with pytest.raises(ValueError, match="L-BFGS-B takes no constraints; these do: SLSQP"):
        problem(Minimize("L-BFGS-B"), g=lambda x, y: y[0])
    for wrong in ({"starts": 0}, {"evaluations": 2.5}):
        with pytest.raises(ValueError, match="positive whole number"):
            Minimize(**wrong)
    for kind in (Minimize, Population):
        with pytest.raises(ValueError, match=f"{kind.__name__} searches f, and problem has none"):
            problem(kind(), None)
        with pytest.raises(ValueError, match="must be given to a problem"):
            kind().start(X, np.random.default_rng(1))


@pytest.mark.rest
@pytest.mark.parametrize("follower", [Minimize(), Population()], ids=str)
def test_runs_are_solved_with_them(follower) -> None:
    smd = bilevo.problems.get("smd1")
    made = bilevo.Problem(
        smd.F, smd.f, smd.x_bounds, smd.y_bounds, vectorized=True, follower=follower, name="smd1"
    )
    result = bilevo.minimize(made, method="drc-cma-es", max_evals=30_000, target=0.05, rng=1)
    assert result.status == "target"
    answer = smd.response(result.x[None])[0]
    assert np.allclose(result.y, answer, atol=1e-3)
