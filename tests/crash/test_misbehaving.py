"""Algorithms that break the rules: each ends in `BadRequest` or in a right result.

An algorithm is made up of requests, right and wrong ones. Its problem checks every call: a point
outside the bounds, or one that can be changed, is an error of another kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bilevo
from bilevo.core.algorithm import Algorithm, Followers
from bilevo.core.budget import StopReason
from bilevo.core.request import BadRequest, Evaluate, Incumbent, Level, Step, together
from bilevo.followers import Minimize
from bilevo.testing import CountingProblem, Driven

M, N = 2, 3


@dataclass
class Odd:
    """The state of a made-up algorithm."""

    generation: int = 0
    stop: StopReason | None = None
    executions: Any = field(default_factory=lambda: np.zeros(0, int))
    survived: Any = field(default_factory=lambda: np.zeros(0, bool))


def right(rows: int, size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, size))


POINTS = {
    "right": right,
    "corner": lambda rows, size, seed: np.round(right(rows, size, seed)),
    "minus zero": lambda rows, size, seed: -0.0 * right(rows, size, seed),
    "outside": lambda rows, size, seed: right(rows, size, seed) + 0.5,
    "far outside": lambda rows, size, seed: 1e300 * right(rows, size, seed),
    "below": lambda rows, size, seed: np.full((rows, size), -1e-12),
    "nan": lambda rows, size, seed: np.where(right(rows, size, seed) > 0.5, np.nan, 0.5),
    "inf": lambda rows, size, seed: np.full((rows, size), np.inf),
    "float32": lambda rows, size, seed: right(rows, size, seed).astype(np.float32),
    "whole": lambda rows, size, seed: np.ones((rows, size), int),
    "objects": lambda rows, size, seed: right(rows, size, seed).astype(object),
    "complex": lambda rows, size, seed: right(rows, size, seed) + 0j,
    "list": lambda rows, size, seed: right(rows, size, seed).tolist(),
    "None": lambda rows, size, seed: None,
    "flat": lambda rows, size, seed: right(rows, size, seed)[0],
    "deep": lambda rows, size, seed: right(rows, size, seed)[None],
    "wide": lambda rows, size, seed: right(rows, size + 1, seed),
    "more rows": lambda rows, size, seed: right(rows + 1, size, seed),
    "no rows": lambda rows, size, seed: np.empty((0, size)),
    "strided": lambda rows, size, seed: right(rows, 2 * size, seed)[:, ::2],
    "masked": lambda rows, size, seed: np.ma.masked_array(right(rows, size, seed)),
}
LEVELS = [Level.UPPER, Level.LOWER, Level.UPPER, Level.LOWER, "upper", None, 3]
RETURNS = ["state"] * 8 + ["nothing", "number", "another class", "stop as text", "stop as limit"]
RETURNS += ["tasks as lists", "tasks of two lengths", "tasks as floats"]
CLAIMS = ["true"] * 4 + ["better", "better below", "nan", "text", "feasible", "another pair"]
CLAIMS += ["more infeasible", "negative", "None", "nothing"]
usual = st.sampled_from(["right"] * 12 + list(POINTS))
evaluation = st.tuples(
    st.just("evaluate"), st.sampled_from(LEVELS), usual, usual, st.integers(1, 4), st.integers(0, 9)
)
incumbent = st.tuples(st.just("incumbent"), st.sampled_from(CLAIMS))
step = st.tuples(st.just("step"), st.integers(-1, 2), st.integers(-1, 2), usual)
strange = st.tuples(st.just("strange"), st.sampled_from([3, None, "evaluate", (), Level.UPPER, []]))
requests = st.one_of(evaluation, evaluation, evaluation, incumbent, incumbent, step, strange)


@dataclass(frozen=True)
class MadeUp(Algorithm[Odd]):
    """An algorithm that makes its requests in every generation, and at last returns something."""

    requests: tuple[Any, ...] = ()
    returns: str = "state"
    opening: str = "right"  # how it begins: with a best pair, or without; or not as a generator
    closing: str = "right"
    begun: list[int] = field(default_factory=list, compare=False)  # tasks of a solver

    name = "made-up"
    revision = 1
    State = Odd
    followers = Followers.BOTH

    def init(self, spec: Any) -> Any:
        return Odd() if self.opening == "no generator" else self.begin(spec)

    def begin(self, spec: Any) -> Any:
        yield from ()
        return 3 if self.opening == "no state" else Odd()

    def generation(self, spec: Any, state: Any) -> Any:
        if self.closing == "no generator":
            return state
        return self.steps(spec, state)

    def steps(self, spec: Any, state: Any) -> Any:
        known: list[Incumbent] = []
        if self.opening == "right":
            yield from self.first_pair(spec, known)
            yield known[-1]
        try:
            for request in self.requests:
                yield from self.make(spec, request, known)
        except GeneratorExit:
            if self.closing == "goes on when closed":
                yield known
            raise
        while self.closing == "idle":
            yield known[-1] if known else 3
        state.generation += 1
        if state.generation > 3:
            state.stop = StopReason.BUDGET
        return self.returned(state)

    def first_pair(self, spec: Any, known: list[Incumbent]) -> Any:
        x, y = right(1, spec.m, 1), right(1, spec.n, 2)
        f = None
        if spec.step_cost is not None:
            task = np.array([100 + len(self.begun)])
            self.begun.append(1)
            step = yield Step(task, np.array([0]), x)
            y, f = step.y, step.f[0]
        yield from self.evaluated(spec, Evaluate(Level.UPPER, x, y), known, f)

    def evaluated(
        self, spec: Any, request: Evaluate, known: list[Incumbent], f: float | None = None
    ) -> Any:
        values = yield request
        if request.level is Level.UPPER:
            x, y = request.x[0].copy(), request.y[0].copy()
            if f is None and spec.step_cost is None:
                f = (yield Evaluate(Level.LOWER, x[None], y[None])).objective[0]
            known.append(Incumbent(x, y, values.objective[0], f or 0.0, values.violation[0]))
        request.x[:], request.y[:] = 7.0, 7.0  # an algorithm may use its arrays again

    def make(self, spec: Any, request: tuple[Any, ...], known: list[Incumbent]) -> Any:
        kind, *parts = request
        if kind == "evaluate":
            level, x, y, rows, seed = parts
            points = POINTS[x](rows, spec.m, seed), POINTS[y](rows, spec.n, seed + 1)
            yield from self.evaluated(spec, Evaluate(level, *points), known)
        elif kind == "incumbent":
            yield claimed(parts[0], known)
        elif kind == "step":
            task, taken, x = parts
            yield Step(np.array([task]), np.array([taken]), POINTS[x](1, spec.m, 1))
        else:
            yield parts[0]

    def returned(self, state: Odd) -> Any:
        changes = {
            "stop as text": {"stop": "target"},
            "stop as limit": {"stop": StopReason.MAX_TIME},
            "tasks as lists": {"executions": [1], "survived": [True]},
            "tasks of two lengths": {"executions": np.ones(2, int)},
            "tasks as floats": {"executions": np.ones(1), "survived": np.ones(1, bool)},
        }
        for name, value in changes.get(self.returns, {}).items():
            setattr(state, name, value)
        others = {"nothing": None, "number": 3, "another class": dataclass(type("Other", (), {}))()}
        return others.get(self.returns, state)


def claimed(how: str, known: list[Incumbent]) -> Any:
    """The last pair evaluated above, with a claim that may be false."""
    best = known[-1] if known else Incumbent(np.full(M, 0.5), np.full(N, 0.5), 1.0, 1.0, 0.0)
    changed = {
        "better": {"F": best.F - 1},
        "better below": {"f": best.f - 1},
        "more infeasible": {"violation": best.violation + 1},
        "nothing": {"x": 1 - best.x, "F": math.inf, "f": math.inf, "violation": math.inf},
        "nan": {"F": math.nan},
        "text": {"F": "small"},
        "feasible": {"violation": 0.0},
        "another pair": {"x": 1 - best.x},
        "negative": {"violation": -1.0},
        "huge": {"violation": 10**400},
        "None": {"x": None},
    }
    return best._replace(**changed.get(how, {}))


def problem(solver: bool, constrained: bool) -> CountingProblem:
    made = bilevo.Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float((y - x[0]) @ (y - x[0])),
        [(-1, 3)] * M,
        [(-1, 3)] * N,
        G=(lambda x, y: [0.5 - x[0]]) if constrained else None,
    )
    return CountingProblem(made, Minimize() if solver else None)


def outcome(method: MadeUp, solver: bool, constrained: bool) -> str:
    """Run it, check what comes of it, and say in a word what that was."""
    counting = problem(solver, constrained)
    try:
        result = counting.minimize(method=method, max_evals=200)
    except BadRequest as error:
        assert str(error).startswith("made-up: ")
        return "refused"
    if np.isfinite(result.F):
        made = counting.problem
        assert made.F(frozen(result.x), frozen(result.y)) == result.F
        if constrained:
            assert result.violation >= max(0.0, 0.5 - result.x[0])
    return "ended"


def frozen(point: np.ndarray) -> np.ndarray:
    point.setflags(write=False)
    return point


@pytest.mark.rest
def test_misbehaving_algorithms_are_refused_or_end_with_a_right_result(trials, figure) -> None:
    seen: list[str] = []

    @settings(max_examples=trials(500, 5000), suppress_health_check=list(HealthCheck))
    @given(
        method=st.builds(
            MadeUp,
            st.lists(requests, max_size=6).map(tuple),
            st.sampled_from(RETURNS),
            st.sampled_from(["right"] * 6 + ["no pair", "no generator", "no state"]),
            st.sampled_from(["right"] * 8 + ["no generator", "idle", "goes on when closed"]),
        ),
        solver=st.booleans(),
        constrained=st.booleans(),
    )
    def try_out(method: MadeUp, solver: bool, constrained: bool) -> None:
        seen.append(outcome(method, solver, constrained))

    try_out()
    assert set(seen) == {"refused", "ended"}
    figure(23, len(seen), "algorithms, each refused with `BadRequest` or ended with a right result")


@pytest.mark.parametrize("kind", sorted(set(POINTS) - {"right", "corner", "minus zero", "strided"}))
@pytest.mark.parametrize("which", ["x", "y"])
def test_each_kind_of_wrong_points_is_refused(kind: str, which: str) -> None:
    chosen = (kind, "right") if which == "x" else ("right", kind)
    method = MadeUp((("evaluate", Level.LOWER, *chosen, 2, 5),))
    with pytest.raises(BadRequest, match=r"^made-up: Evaluate"):
        problem(False, False).minimize(method=method, max_evals=200)


@pytest.mark.parametrize("kind", ["corner", "minus zero", "strided"])
def test_unusual_points_that_are_right_are_taken(kind: str) -> None:
    method = MadeUp((("evaluate", Level.UPPER, kind, kind, 2, 5), ("incumbent", "true")))
    assert outcome(method, False, False) == "ended"


@pytest.mark.parametrize("returns", sorted(set(RETURNS) - {"state"}))
def test_a_generation_that_returns_no_state_is_refused(returns: str) -> None:
    with pytest.raises(BadRequest, match=r"made-up: (generation returned|state)"):
        problem(False, False).minimize(method=MadeUp(returns=returns), max_evals=200)


@pytest.mark.parametrize("claim", sorted(set(CLAIMS) - {"true", "feasible"}))
def test_a_best_pair_with_a_false_claim_is_refused(claim: str) -> None:
    with pytest.raises(BadRequest, match=r"Incumbent"):
        problem(False, False).minimize(method=MadeUp((("incumbent", claim),)), max_evals=200)


def test_a_best_pair_that_hides_its_violation_is_refused() -> None:
    requests = ("evaluate", Level.UPPER, "corner", "right", 1, 2), ("incumbent", "feasible")
    counting = problem(False, True)
    assert np.round(right(1, M, 2))[0, 0] == 0  # where x[0] is -1: infeasible
    with pytest.raises(BadRequest, match=r"violation is 0\.0, and the sum of both levels"):
        counting.minimize(method=MadeUp(requests), max_evals=200)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (MadeUp(opening="no pair"), "yielded no best pair"),
        (MadeUp(opening="no generator"), "init returned .* is no generator"),
        (MadeUp(opening="no state"), "init returned an object of the class int"),
        (MadeUp(closing="no generator"), "generation returned .* is no generator"),
        (MadeUp(closing="idle"), "without asking for an evaluation"),
        (MadeUp((("strange", 3),)), r"it yielded 3 \(int\); yield an Evaluate"),
        (MadeUp((("step", 0, 0, "right"),)), "the follower is a function: use Evaluate"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_the_message_says_what_was_wrong(method: MadeUp, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        problem(False, False).minimize(method=method, max_evals=200)


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ((("step", 0, 1, "right"),), "step 2 of the new task 0"),
        (
            (("step", 0, 0, "right"), ("step", 0, 0, "right")),
            "taken is 0 for task 0, which",
        ),
        ((("step", 0, 0, "right"), ("step", 0, 1, "corner")), "another leader for task 0"),
        ((("step", -1, 0, "right"),), "whole numbers from 0 on"),
        ((("evaluate", Level.LOWER, "right", "right", 1, 1),), "ask for its steps by Step"),
        (
            (("evaluate", Level.UPPER, "right", "far outside", 1, 1),),
            "outside the follower",
        ),
    ],
)
def test_steps_of_a_solver_in_a_wrong_order_are_refused(requests: Any, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        problem(True, False).minimize(method=MadeUp(requests), max_evals=200)


def test_an_optimizer_from_outside_is_checked_like_an_algorithm_from_outside() -> None:
    @dataclass(frozen=True)
    class Stray(bilevo.CMAES):
        def ask(self, state: Any, rng: np.random.Generator) -> np.ndarray:
            return super().ask(state, rng) + 1.0

    method = bilevo.algorithms.DRC(lower=Stray())
    with pytest.raises(BadRequest, match="outside the unit box"):
        problem(False, False).minimize(method=method, max_evals=200)


def procedures(*requests: Any) -> Any:
    def one(request: Any) -> Any:
        yield request

    return together(one(request) for request in requests)


ROWS = np.full((2, M), 0.5), np.full((2, N), 0.5)


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ([(ROWS[0], ROWS[1][:1])], "2 rows of x, 1 rows of y: give the same number"),
        ([(ROWS[0], ROWS[1][:1]), (ROWS[0][:1], ROWS[1])], "2 rows of x, 1 rows of y: give"),
        ([ROWS, (ROWS[0], np.full((2, 9), 0.5))], r"sizes \(2, 9\) run together with others of"),
        ([(ROWS[0].tolist(), ROWS[1])], r"Evaluate.x is \[\[0.5, 0.5\]"),
    ],
)
def test_requests_of_procedures_are_checked_before_they_are_joined(
    requests: Any, told: str
) -> None:
    """Rows of one would be paired with those of another, or numpy would tell of sizes."""
    steps = procedures(*(Evaluate(Level.LOWER, *points) for points in requests))
    with pytest.raises(BadRequest, match=told) as error:
        Driven(lambda level, x, y: x[:, 0], M, N).run(steps)
    assert "one" in [frame.name for frame in error.traceback]  # the line that has asked


@pytest.mark.parametrize(
    "strange", [3, None, Evaluate("upper", *ROWS), np.zeros(2)], ids=lambda one: type(one).__name__
)
def test_procedures_that_yield_something_else_are_refused(strange: Any) -> None:
    with pytest.raises(BadRequest, match=r"it yielded|Evaluate.level is 'upper'"):
        Driven(lambda level, x, y: x[:, 0], M, N).run(procedures(strange))
    with pytest.raises(BadRequest, match="are generators, got 1"):
        Driven(lambda level, x, y: x[:, 0], M, N).run(together([1, 2]))


def test_the_traceback_has_the_line_that_asked_and_the_generation() -> None:
    method = MadeUp((("evaluate", Level.LOWER, "outside", "right", 2, 5),))
    with pytest.raises(BadRequest) as error:
        problem(False, False).minimize(method=method, max_evals=200)
    assert "evaluated" in [frame.name for frame in error.traceback]
    assert error.value.__notes__ == ["in generation 1, counted from 1"]


def test_the_error_of_a_yielded_generator_suggests_yield_from() -> None:
    with pytest.raises(BadRequest, match="did you mean `yield from`"):
        Driven(lambda level, x, y: x[:, 0], M, N).run(iter_once(procedures(3)))


def iter_once(value: Any) -> Any:
    yield value


@pytest.mark.parametrize(
    "told",
    [{"unfinished": np.bool_(False)}, {"gap": np.float32(0.0)}, {"F": None}],
    ids=["a bool of numpy", "a small float", "a long double"],
)
def test_numbers_of_numpy_can_be_written_down(told: dict[str, Any], tmp_path: Any) -> None:
    class Telling(MadeUp):
        def steps(self, spec: Any, state: Any) -> Any:
            known: list[Incumbent] = []
            yield from self.first_pair(spec, known)
            changes = {
                key: np.longdouble(known[-1].F) if told[key] is None else told[key] for key in told
            }
            yield known[-1]._replace(**changes)
            state.stop = StopReason.BUDGET
            return state

    made = problem(False, False).problem
    assert bilevo.minimize(made, method=Telling(), run_dir=tmp_path).feasible


def test_a_number_that_no_float_can_hold_is_refused() -> None:
    claim = ("incumbent", "huge")
    with pytest.raises(BadRequest, match=r"Incumbent\.violation is .*; give a number"):
        problem(False, False).minimize(method=MadeUp((claim,)), max_evals=200)


def test_an_answer_that_the_solver_never_gave_is_refused() -> None:
    requests = (("evaluate", Level.UPPER, "right", "right", 1, 3), ("incumbent", "true"))
    with pytest.raises(BadRequest, match="pair was not evaluated at the lower level"):
        problem(True, False).minimize(method=MadeUp(requests), max_evals=200)
