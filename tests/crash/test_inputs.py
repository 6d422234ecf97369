"""Bad values, wrong shapes and types, degenerate bounds: what functions and people can give."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from conftest import minimize_counted
from hypothesis import given, settings
from hypothesis import strategies as st

import bilevo
from bilevo import BadValue, Budget, Problem, followers, minimize, optimizers
from bilevo.core.algorithm import Followers
from bilevo.registry import driving

METHODS = driving(Followers.FUNCTION)
LEVELS = {"F": "upper", "G": "upper", "f": "lower", "g": "lower"}


def vectorized(function):
    """The same function of rows."""
    return lambda x, y: [function(*pair) for pair in zip(x, y, strict=True)]


def spoilt(function, bad: float, share: float):
    """A function with a bad value at a share of all points, always the same ones."""

    def spoil(x, y):
        chance = math.modf(1e3 * abs(math.sin(1e4 * float(x[0] + 3 * y[0] + 1))))[0]
        return bad if chance < share else function(x, y)

    return spoil


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("where", LEVELS)
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_non_finite_values_rank_last_and_never_win(method, where, share, trials, figure) -> None:
    seeds, runs = range(trials(1, 30)), 0
    modes = ("raise", "worst")[trials(len(method) % 2, 0) :: trials(2, 1)]
    for seed in seeds:
        for bad in (math.nan, math.inf, -math.inf):
            for on_failure in modes:
                functions: dict[str, Any] = {
                    "F": lambda x, y: float(x[0] ** 2 + y[0] ** 2),
                    "f": lambda x, y: float((y[0] - x[0]) ** 2),
                    "G": lambda x, y: float(-1 - x[0] ** 2),
                    "g": lambda x, y: float(-1 - y[0] ** 2),
                }
                functions[where] = spoilt(functions[where], bad, share)
                if rows := bool((seed + len(where + method)) % 2):
                    functions = {name: vectorized(each) for name, each in functions.items()}
                problem = Problem(
                    x_bounds=[(-5, 10)], y_bounds=[(-5, 10)], vectorized=rows, **functions
                )
                result = minimize_counted(
                    problem,
                    method=method,
                    rng=seed,
                    on_failure=on_failure,
                    budget=Budget(lower_max=4, upper_max=30),
                    max_evals=trials(400, 4000),  # first leaders may all be without a value
                )
                check_last(result, problem, share)
                runs += 1
    figure(8, runs, "runs with NaN, inf or -inf in one of the four functions")


def check_last(result: bilevo.Result, problem: Problem, share: float) -> None:
    assert result.failures == 0  # a value, not a failure
    if share == 1:
        assert not result.success and not result.feasible
        assert result.status in ("budget", "stagnation", "max_evals")
        assert "no pair with finite values was found" in result.message
    else:
        assert result.feasible and result.violation == 0
        F, G, f, g = problem.evaluate(result.x, result.y)
        assert (F[0], f[0]) == (result.F, result.f)
        assert np.isfinite([result.F, result.f]).all() and max(G[0, 0], g[0, 0]) < 0
        assert all(not row.violation or not math.isfinite(row.F) for row in result.history)


REAL = [np.float64, np.float32, np.float16, np.longdouble, np.int8, np.int64, np.uint64]
UNREAL = [np.complex128, object, str, bytes, "datetime64[s]", "V8"]
FOREIGN = [None, object(), {}, {1.0}, "1.0", b"1", 1j, Decimal(1), 10**400, 10**5000, [[1], [1, 2]]]
SHAPES = ["", "1", "k", "k1", "1k", "11", "k2", "2", "0", "k11", "more"]


def shape_of(name: str, k: int) -> tuple[int, ...]:
    if name == "more":
        return (k + 1,)
    return tuple(k if letter == "k" else int(letter) for letter in name)


def right_shape(shape: tuple[int, ...], k: int | None, constraints: bool) -> bool:
    """The rule, for a function of one pair (k is None) or of k rows."""
    if k is None:
        return len(shape) < 2 if constraints else math.prod(shape) == 1
    if constraints:
        return shape == (k,) or (len(shape) == 2 and shape[0] == k)
    return shape in ((k,), (k, 1))


@st.composite
def returns(draw) -> tuple[Any, str, Any, bool]:
    """(number, shape, type, wrapping) of a returned array."""
    kind = draw(st.sampled_from([*REAL, *REAL, np.bool_, *UNREAL]))
    number = draw(st.sampled_from([0, 1, 3, 0.5] if kind in REAL[:4] else [0, 1]))
    wrapping = draw(st.sampled_from([np.asarray, np.ndarray.tolist, np.ma.array]))
    return number, draw(st.sampled_from(SHAPES)), kind, wrapping


def check_return(where: str, rows: bool, on_failure: str, made) -> None:
    number, shape_name, kind, wrapping = made
    calls: list[Any] = []

    def value(x, y):
        calls.append(wrapping(np.full(shape_of(shape_name, len(x)), number).astype(kind)))
        sizes.append(len(x) if rows else None)
        return calls[-1]

    def right(x, y):
        return np.zeros(len(x)) if rows else 0.0

    sizes: list[int | None] = []
    functions = {"F": right, "f": right, where: value}
    problem = Problem(x_bounds=[(0, 1)], y_bounds=[(0, 1)], vectorized=rows, **functions)
    options = {"method": "drc-cma-es", "max_evals": 60, "on_failure": on_failure}
    constraints = where in "Gg"
    try:
        result = minimize_counted(problem, **options)
    except BadValue as error:
        assert f"{LEVELS[where]}-level {'constraints' if constraints else 'objective'}" in str(
            error
        )
        result = None
    shape = np.shape(calls[0])
    real = kind in REAL or (kind is np.bool_ and not constraints)
    if wrapping is np.ndarray.tolist:  # of a list the numbers count: any, if there are none
        real = real or kind is object or not math.prod(shape)
    assert (result is not None) == (real and right_shape(shape, sizes[0], constraints))
    if result is None:
        assert len(calls) == 1  # at the first such value
    elif constraints:
        assert result.violation == number * (shape[-1] if len(shape) == 1 + rows else 1)
    else:
        assert getattr(result, where) == number


def test_shapes_and_types_are_accepted_by_rule_or_refused(trials, figure) -> None:
    examples = trials(300, 5000)
    case = st.sampled_from(list(LEVELS)), st.booleans(), st.sampled_from(["raise", "worst"])
    settings(max_examples=examples)(given(*case, returns())(check_return))()
    figure(9, examples, "returned shapes and types")


@pytest.mark.parametrize("value", FOREIGN, ids=lambda value: type(value).__name__)
def test_what_is_no_real_number_is_refused_at_once(value, figure) -> None:
    tried = 0
    for where, level in LEVELS.items():
        for rows in (False, True):
            for wrapped in (value, [value], np.ma.array([value], dtype=object)):
                for on_failure in ("raise", "worst"):
                    right = (lambda x, y: np.zeros(len(x))) if rows else lambda x, y: 0.0
                    functions = {"F": right, "f": right, where: lambda x, y, v=wrapped: v}
                    with pytest.raises(BadValue, match=f"{level}-level"):
                        minimize(
                            x_bounds=[(0, 1)],
                            y_bounds=[(0, 1)],
                            vectorized=rows,
                            on_failure=on_failure,
                            **functions,
                        )
                    tried += 1
    figure(9, tried, "returned values that are not numbers")


@pytest.mark.parametrize("where", LEVELS)
@pytest.mark.parametrize("written", ["x", "y"])
@pytest.mark.parametrize("rows", [False, True])
def test_writing_into_x_or_y_is_an_error(where, written, rows, figure) -> None:
    right = (lambda x, y: np.zeros(len(x))) if rows else lambda x, y: 0.0
    functions = {"F": right, "f": right, where: writing(written)}
    with pytest.raises(ValueError, match="read-only"):
        minimize(x_bounds=[(0, 1)], y_bounds=[(0, 1)], vectorized=rows, **functions)
    figure(9, 1, "functions that write into x or y")


def writing(name: str):
    def write(x, y):
        (x if name == "x" else y)[0] = 0.5
        return 0.0

    return write


def test_writing_into_x_is_an_error_in_worker_processes_too(figure) -> None:
    with pytest.raises(ValueError, match="read-only"):
        minimize(lambda x, y: 0.0, writing("x"), [(0, 1)], [(0, 1)], workers=2)
    figure(9, 1, "functions that write into x or y")


sizes = [0.0, 1.0, 0.1, 1 / 3, 1e16, 5e-324, 1e-300, 1e300, 8e307, 1.7e308]
ends = st.sampled_from([*sizes, *(-size for size in sizes)])
widths = st.one_of(
    st.just(0.0), st.floats(-300, 300).map(lambda power: 10.0**power), st.sampled_from([1.0, 15.0])
)
honest = st.tuples(ends, widths).map(lambda pair: (pair[0], pair[0] + pair[1]))
wrong = st.sampled_from([(math.nan, 1), (0, math.inf), (-math.inf, 0), (2, 1), (-1e308, 1e308)])
boxes = st.lists(honest, min_size=1, max_size=2)
numbers = st.sampled_from([0.0, 1.0, -1.0, 1e-300, 5e-324, 1e300, -1e300, 1.7e308, -1.7e308, 1e-8])
levels = st.tuples(numbers, numbers, st.integers(0, 2))


def usable(box: list[tuple[float, float]]) -> bool:
    return bool(box) and all(low <= high and math.isfinite(high - low) for low, high in box)


def objective(level: tuple[float, float, int], x_box, y_box):
    """`constant + factor * g(place in the box)`, without a warning whatever comes out."""
    constant, factor, power = level

    def value(x, y) -> float:
        inside = [*zip(x, x_box, strict=True), *zip(y, y_box, strict=True)]
        units = [(float(v) - low) / (high - low) for v, (low, high) in inside if high > low]
        return constant + factor * sum((unit - 0.3) ** power for unit in units)

    return value


@given(
    x_box=boxes,
    y_box=boxes,
    mistake=st.integers(0, 29),
    pair=wrong,
    upper=levels,
    lower=levels,
    rows=st.booleans(),
    constrained=st.booleans(),
    start=st.sampled_from([None, 0, 1]),
    rng=st.integers(0, 2**32),
)
def check_degenerate(
    x_box, y_box, mistake, pair, upper, lower, rows, constrained, start, rng
) -> None:
    x_box = {5: [*x_box, pair], 6: []}.get(mistake, x_box)
    y_box = {7: [pair, *y_box], 8: []}.get(mistake, y_box)
    method = METHODS[rng % len(METHODS)]
    rows = rows or method == "nested-cma-es"  # it needs many points
    F, f = objective(upper, x_box, y_box), objective(lower, x_box, y_box)
    functions = {"F": F, "f": f, **({"G": f, "g": F} if constrained else {})}
    if rows:
        functions = {name: vectorized(each) for name, each in functions.items()}
    options: dict[str, Any] = {"method": method, "rng": rng}
    options["max_evals"] = 161 if method == "nested-cma-es" else 50
    if start is not None:
        options["x0"] = [bounds[start] for bounds in x_box]
    options["budget"] = Budget(lower_max=1, upper_max=8 if rng % 4 == 0 else 1)
    if not (usable(x_box) and usable(y_box)):
        never = dict.fromkeys(functions, lambda x, y: pytest.fail("evaluated"))
        with pytest.raises(ValueError, match="x_bounds" if not usable(x_box) else "y_bounds"):
            minimize(x_bounds=x_box, y_bounds=y_box, **never, **options)
        return
    problem = Problem(x_bounds=x_box, y_bounds=y_box, vectorized=rows, **functions)
    result = minimize_counted(problem, **options)
    assert result.nfev <= options["max_evals"]
    if np.isnan(result.x).any():
        # Values of F may be in a batch that the limit cut off, which no algorithm has seen.
        assert result.nfev_upper == 0 or "values are not used" in result.message
        assert not result.success
        return
    for point, box in ((result.x, x_box), (result.y, y_box)):
        assert all(low <= v <= high for v, (low, high) in zip(point, box, strict=True))
    assert not result.feasible or (result.F, result.f) == (
        F(result.x, result.y),
        f(result.x, result.y),
    )


@pytest.mark.rest
def test_degenerate_bounds_and_scales_give_a_result_or_a_value_error(trials, figure) -> None:
    examples = trials(500, 20_000)
    settings(max_examples=examples)(check_degenerate)()
    figure(13, examples, "boxes and scales")


NOTHING_OF_THE_KIND: dict[str, Any] = {
    "object": object(),
    "text": "a",
    "bytes": b"1",
    "complex": 1 + 0j,
    "complex of numpy": np.complex128(1),
    "NaN": math.nan,
    "huge": 10**400,
    "too long to print": 10**5000,
    "long double": np.longdouble("1e4000"),
    "duration": np.timedelta64(1),
    "dict": {"a": 1},
    "array": np.array([[1.0, 2.0]]),
}
BOX = [(-1.0, 1.0)]
SETTINGS = ["method", "rng", "max_evals", "max_evals_upper", "max_evals_lower", "max_time"]
SETTINGS += ["budget", "target", "x0", "ftol", "retries", "callback", "progress", "workers"]
SETTINGS += ["y0", "keep_archive", "args"]


def never(x, y):
    return pytest.fail("evaluated")


def own(**given: Any) -> Problem:
    return Problem(**{"F": never, "f": never, "x_bounds": BOX, "y_bounds": BOX, **given})


def solution() -> bilevo.Result:
    return minimize(lambda x, y: x @ x, lambda x, y: y @ y, BOX, BOX, max_evals=30)


GATES: dict[str, tuple[Any, set[str]]] = {  # a call with one argument, and what it may take
    "Problem F": (lambda v: own(F=v), set()),
    "Problem x_bounds": (lambda v: own(x_bounds=v), {"array"}),
    "Optimizer y_bounds": (lambda v: bilevo.Optimizer(x_bounds=BOX, y_bounds=v), {"array"}),
    **{
        f"Problem {name}": (lambda v, n=name: own(**{n: v}), set())
        for name in ("G", "vectorized", "optimum", "repeats_lower", "response", "budget")
    },
    "Problem name": (lambda v: own(name=v), {"text"}),
    "Problem follower": (lambda v: own(follower=v), set()),
    "a bound": (lambda v: own(y_bounds=[(v, 10)]), set()),
    "Bounds lower": (lambda v: bilevo.core.problem.Bounds([v], [10]), set()),
    **{
        f"Optimum {name}": (lambda v, n=name: bilevo.Optimum(**{"F": 0, "f": 0, n: v}), set())
        for name in "Ffxy"
    },
    **{
        f"Budget {name}": (lambda v, n=name: Budget(**{n: v}), set())
        for name in ("upper_max", "upper_window", "lower_max", "lower_window")
    },
    **{
        f"minimize {name}": (lambda v, n=name: minimize(own(), **{n: v}), set())
        for name in SETTINGS
    },
    "minimize on_failure": (lambda v: minimize(own(), on_failure=v), {"too long to print"}),
    **{
        f"verify {name}": (lambda v, n=name: bilevo.verify(own(), solution(), **{n: v}), set())
        for name in ("max_evals", "max_time", "retries", "progress", "effort")
    },
    "verify follower": (lambda v: bilevo.verify(own(), solution(), follower=v), set()),
    "verify rng": (lambda v: bilevo.verify(own(), solution(), rng=v), set()),
    **{
        f"Optimizer {name}": (
            lambda v, n=name: bilevo.Optimizer(**{"x_bounds": BOX, "y_bounds": BOX, n: v}),
            set(),
        )
        for name in ("n_G", "n_g", "max_time", "target", "x0", "y0", "ftol", "rng")
    },
    **{
        f"LinProg {name}": (
            lambda v, n=name: followers.LinProg(**{"model": lambda x: {}, n: v}),
            set(),
        )
        for name in ("model", "tie", "answer")
    },
    **{
        f"Minimize {name}": (lambda v, n=name: followers.Minimize(**{n: v}), set())
        for name in ("method", "starts", "evaluations")
    },
    **{
        f"Population {name}": (lambda v, n=name: followers.Population(**{n: v}), set())
        for name in ("optimizer", "precision")
    },
    **{
        f"{name} population": (lambda v, n=name: getattr(optimizers, n)(population=v), set())
        for name in ("CMAES", "DE", "GA", "PSO")
    },
    **{
        f"GA {name}": (lambda v, n=name: optimizers.GA(**{n: v}), set())
        for name in ("crossover_index", "mutation_index")
    },
}


@pytest.mark.parametrize("gate", GATES)
def test_what_is_no_such_argument_is_refused_before_the_first_evaluation(gate, figure) -> None:
    call, fine = GATES[gate]
    for kind, value in NOTHING_OF_THE_KIND.items():
        if kind in fine:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a complex number is not cut to its real part
            with pytest.raises(ValueError) as raised:
                call(value)
        assert 10 < len(str(raised.value)) < 1000 and "4300 digits" not in str(raised.value)
    figure(13, len(NOTHING_OF_THE_KIND) - len(fine), "arguments of the wrong kind")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bilevo.Optimum(math.inf, 0.0), "optimum.F must be a finite number, got inf"),
        (lambda: own(optimum=bilevo.Optimum(0, 0, [1, 2])), r"optimum\.x must have shape \(1,\)"),
        (lambda: minimize(own(), ftol=math.inf), "ftol must be a positive number that is finite"),
        (lambda: minimize(own(), max_evals=2**63), r"whole number below 2\*\*63 or None, got 9223"),
        (lambda: bilevo.verify(own(), solution(), effort=2), "effort must be .* got 2"),
        (lambda: own(y_bounds=[("0", "1")]), "y_bounds must be a sequence"),
    ],
)
def test_errors_say_what_would_be_right(call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call()
