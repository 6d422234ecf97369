"""Tests that every algorithm must pass; a subclass runs them on one algorithm.

The tests do not measure how good an algorithm is. They use small problems and few evaluations, and
together take some seconds for most algorithms.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bilevo import followers
from bilevo.api import Optimizer, minimize
from bilevo.core.algorithm import Algorithm, Followers, require_algorithm
from bilevo.core.budget import Budget
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Procedure
from bilevo.core.result import Result
from bilevo.problems import get
from bilevo.run.directory import SNAPSHOT, snapshots_after
from bilevo.testing.counting import CountingProblem

SHORT = Budget(upper_max=60, upper_window=60, lower_max=20, lower_window=10)
MAX_STOPS = 4  # a run is broken off and resumed at most this number of times


class AlgorithmTests:
    """Tests of one algorithm: subclass it, and have `algorithm` return the algorithm.

    Algorithms that drive both kinds of followers are tried on functions; set `solver = True` in a
    second subclass to try them on solvers. `max_evals` limits each run; raise it for an algorithm
    whose first pair takes more evaluations.
    """

    max_evals: int = 3000
    solver: bool | None = None

    def algorithm(self) -> Algorithm[Any]:
        """Return the algorithm to test; a new object each time, or always the same."""
        raise TypeError(f"{type(self).__name__}.algorithm must return the algorithm to test")

    # Helpers, also for your own tests

    @property
    def drives_solver(self) -> bool:
        """Tell whether the lower level of the problems is a solver."""
        if self.solver is None:
            return self.algorithm().followers is Followers.SOLVER
        return self.solver

    def counting(self, problem: Problem) -> CountingProblem:
        """Return the problem with functions that count, and with a solver if `drives_solver`."""
        return CountingProblem(problem, followers.Minimize() if self.drives_solver else None)

    def run(self, problem: Problem, **options: Any) -> Result:
        """Solve a problem, and check the result's counts of evaluations."""
        options = {"max_evals": self.max_evals, "method": self.algorithm(), **options}
        return self.counting(problem).minimize(**options)

    # What an algorithm must do

    def test_states_what_it_is(self) -> None:
        """Check that the algorithm has all members of `Algorithm`."""
        require_algorithm(self.algorithm())

    def test_repeats_to_the_bit(self) -> None:
        """Check that one seed gives one result. To pass, take all random numbers from `stream`."""
        runs = [self.run(get("smd2"), rng=8, budget=SHORT) for _ in "ab"]
        assert fingerprint(runs[0]) == fingerprint(runs[1])

    def test_another_seed_gives_another_run(self) -> None:
        runs = [self.run(get("smd2"), rng=seed, budget=SHORT) for seed in (1, 2)]
        assert fingerprint(runs[0]) != fingerprint(runs[1])

    def test_leaves_numpys_global_random_state_alone(self) -> None:
        before = repr(np.random.get_state())  # noqa: NPY002
        self.run(quadratic(), budget=SHORT)
        assert repr(np.random.get_state()) == before  # noqa: NPY002

    def test_never_exceeds_a_limit(self) -> None:
        for limit in (30, 700, self.max_evals):
            assert self.run(get("smd1"), max_evals=limit, target=False).nfev <= limit

    def test_has_an_answer_within_its_limit(self) -> None:
        assert np.isfinite(self.run(get("smd1")).F)

    def test_reports_the_values_at_the_pair_it_reports(self) -> None:
        for name in ("smd1", "smd9", "tp7"):  # the last two with constraints at both levels
            result = self.run(get(name), rng=2, budget=SHORT)
            F, _, f, _ = get(name).evaluate(result.x, result.y)
            assert same(result.F, F[0]) and same(result.f, f[0]), name
            if len(result.history) and result.status in ("target", "stagnation", "budget"):
                assert (result.F, result.f) == (result.history[-1].F, result.history[-1].f), name

    def test_stops_at_a_target(self) -> None:
        result = self.run(get("smd1"), target=1e6, max_evals=10 * self.max_evals)
        assert result.status == "target", f"{result.status}: use bilevo.core.stop_rules.AtTarget"

    def test_claims_no_more_than_it_has_checked(self) -> None:
        """Check that a success has a certificate of its own, with searches that were counted."""
        for options in ({}, {"target": 1e6}):
            result = self.run(get("smd1"), **options)
            assert result.certified or not result.success
            made = result.certificate
            if made is not None:
                assert made.by == result.method and made.confirmed == result.certified
                assert 0 <= made.agreeing <= made.searches
                assert made.nfev_lower <= result.nfev_lower and not made.follower_gap < 0

    def test_ends_when_its_time_is_up(self) -> None:
        options = {"target": False, "max_time": 0.01, "max_evals": None}
        assert self.run(get("smd10"), **options).status in ("max_time", "budget", "stagnation")

    def test_handles_one_dimensional_levels(self) -> None:
        for m, n in ((1, 1), (3, 1), (1, 3)):
            result = self.run(squares(m, n), budget=SHORT)
            assert np.isfinite(result.F) and result.x.shape == (m,) and result.y.shape == (n,)

    def test_survives_the_smallest_budget(self) -> None:
        least = Budget(upper_max=1, upper_window=1, lower_max=1, lower_window=1)
        assert np.isfinite(self.run(quadratic(), budget=least).F)

    def test_survives_failures_of_one_point_in_ten(self) -> None:
        def fails(x: Any) -> bool:
            return bool(math.modf(1e3 * abs(x[0]))[0] < 0.1)

        def F(x: Any, y: Any) -> float:
            if fails(x):
                raise ArithmeticError
            return float(x @ x)

        def f(x: Any, y: Any) -> float:
            if fails(y) and not self.drives_solver:  # a solver treats errors in its own way
                raise ArithmeticError
            return float((y - x) @ (y - x))

        problem = Problem(F, f, [(-5, 10)] * 2, [(-5, 10)] * 2)
        result = self.run(problem, on_failure="worst", budget=SHORT)
        assert result.failures > 0 and np.isfinite(result.F)

    def test_ends_when_nothing_is_finite(self) -> None:
        problem = Problem(lambda x, y: math.nan, lambda x, y: math.nan, [(0, 1)], [(0, 1)])
        assert not self.run(problem, budget=SHORT).success

    def test_returns_within_the_bounds_of_wide_narrow_and_fixed_variables(self) -> None:
        bounds = [(-1e6, 1e6), (3.0, 3.0), (0.0, 1e-6)]
        problem = Problem(
            lambda x, y: float(abs(x).sum()), lambda x, y: float(abs(y).sum()), bounds, bounds
        )
        result = self.run(problem, budget=SHORT)
        assert result.x[1] == result.y[1] == 3.0

    def test_takes_gradients_that_are_right_or_not_available(self) -> None:
        """Check that gradients are counted, if they are used, and that NaN does no harm."""
        for share in (0.0, 0.5, 1.0):
            result = self.run(with_gradients(share), budget=SHORT)
            assert np.isfinite(result.F), f"gradients are not available at {share} of the points"

    def test_keeps_a_history(self) -> None:
        """Check that each generation has a row in the history.

        The arrays of a row are empty if the algorithm reports no tasks.
        """
        result = self.run(get("smd1"), budget=SHORT, max_evals=10 * self.max_evals)
        assert len(result.history) == result.nit > 0
        for row in result.history:
            assert len(row.executions) == len(row.survived)

    def test_starts_from_a_given_point(self) -> None:
        result = self.run(get("smd1"), x0=[0.5, 0.25], budget=SHORT)
        assert np.isfinite(result.F)

    def test_works_by_ask_and_tell(self) -> None:
        if self.drives_solver:
            return  # ask and tell is for functions
        options: dict[str, Any] = {"rng": 4, "max_evals": self.max_evals, "budget": SHORT}
        opt = Optimizer(get("smd1"), method=self.algorithm(), **options)
        while not opt.done:
            batch = opt.ask()
            F, _, f, _ = get("smd1").evaluate(batch.x, batch.y)
            opt.tell(batch, F if batch.level == "upper" else f)
        expected = minimize(get("smd1"), method=self.algorithm(), **options)
        assert fingerprint(opt.result) == fingerprint(expected)

    def test_resumes_from_a_snapshot_to_the_same_bits(self) -> None:
        """Resume a run that was broken off between two generations from its stored state.

        If this fails with a warning, the state holds something that cannot be stored.
        """
        budget = Budget(upper_max=1000, lower_max=20)
        options = {"rng": 6, "budget": budget, "target": False, "max_evals": 2 * self.max_evals}
        whole = self._watched_run(None, options)
        assert whole.nit > 1, "more than one generation is needed here: raise max_evals"
        for stop in range(1, whole.nit, math.ceil(whole.nit / MAX_STOPS)):
            with tempfile.TemporaryDirectory() as folder, snapshots_after(0.0):
                self._watched_run(folder, options, stop)
                assert (Path(folder) / SNAPSHOT).exists(), "no snapshot was written"
                watched = Watched(self.algorithm())
                resumed = self._watched_run(folder, options, method=watched)
                assert fingerprint(resumed) == fingerprint(whole)
                # One generation is tried out before a snapshot is used.
                assert watched.begun <= whole.nit - stop + 2, "the whole run was replayed"

    def _watched_run(
        self,
        folder: str | None,
        options: dict[str, Any],
        stop: int | None = None,
        method: Watched | None = None,
    ) -> Result:
        def callback(result: Result) -> None:
            if result.nit == stop:
                raise StopIteration

        problem = self.counting(get("smd9")).problem
        method = Watched(self.algorithm()) if method is None else method
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return minimize(problem, method=method, callback=callback, run_dir=folder, **options)


class Watched:
    """An algorithm, and how many of its generations have begun."""

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self._algorithm, self.begun = algorithm, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copying reads such names before `_algorithm` is set
            raise AttributeError(name)
        return getattr(self._algorithm, name)

    def init(self, spec: Spec) -> Procedure[Any]:
        return self._algorithm.init(spec)

    def generation(self, spec: Spec, state: Any) -> Procedure[Any]:
        self.begun += 1
        return self._algorithm.generation(spec, state)


def fingerprint(result: Result) -> dict[str, Any]:
    """Return all of a result that must repeat to the bit."""
    content = asdict(result)
    for name in ("time", "version", "rechecked"):
        del content[name]
    return {
        **content,
        "x": result.x.tobytes(),
        "y": result.y.tobytes(),
        "failed_points": None,
        "follower_gap": repr(result.follower_gap),
        "certificate": repr(result.certificate),
        "F": repr(result.F),
        "f": repr(result.f),
        "F_optimistic": repr(result.F_optimistic),
        "F_pessimistic": repr(result.F_pessimistic),
    }


def same(told: float, value: float) -> bool:
    """Tell whether a result's number is this value; all numbers that are not finite are equal."""
    return told == value or not (math.isfinite(told) or math.isfinite(value))


def quadratic() -> Problem:
    """Return a small smooth problem: the follower copies x, and F* = 0 at x = y = 0."""
    return Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float((y - x) @ (y - x)),
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        name="quadratic",
    )


def with_gradients(missing: float = 0.0) -> Problem:
    """Return `quadratic` with gradients, of which a share is not available."""

    def known(point: Any) -> float:
        return math.nan if math.modf(1e3 * abs(float(point[0])))[0] < missing else 1.0

    plain = quadratic()
    return Problem(
        plain.F,
        plain.f,
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        F_jac=lambda x, y: (known(x) * 2 * x, known(y) * 2 * y),
        f_jac=lambda x, y: known(y) * 2 * (y - x),
        name="quadratic with gradients",
    )


def squares(m: int, n: int) -> Problem:
    """Return a vectorized problem of any size, in which every entry of y follows x[0]."""
    return Problem(
        lambda x, y: (x**2).sum(axis=1) + (y**2).sum(axis=1),
        lambda x, y: ((y - x[:, :1]) ** 2).sum(axis=1),
        [(-1, 3)] * m,
        [(-1, 3)] * n,
        vectorized=True,
        name="squares",
    )
