"""A problem that counts, independently of the library, how often its functions are called."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from bilevo.api import minimize
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.result import Result
from bilevo.core.solver import bind_solver


class CountingProblem:
    """Wraps a problem: `upper` and `lower` count the points at which `problem` was evaluated.

    `upper_slopes` and `lower_slopes` count the points at which its gradients were asked for.

    Its functions also check that points are within the bounds and read-only. With a `follower`, the
    lower level is this solver, and its calls of f are counted.

    >>> from bilevo.problems import get
    >>> counting = CountingProblem(get("smd1"))
    >>> result = counting.minimize(max_evals=500)
    >>> (counting.upper, counting.lower) == (result.nfev_upper, result.nfev_lower)
    True
    """

    def __init__(self, problem: Problem, follower: Any = None) -> None:
        self.upper = self.lower = self.upper_slopes = self.lower_slopes = 0
        self._original, self.problem = problem, copy(problem)
        self.problem.F = self._counting(problem.F, "upper")
        if problem.f_is_known:
            self.problem.several = None  # f is counted, which is not called if points are packed
            self.problem.f = self._counting(problem.f, "lower")
        if problem.F_jac is not None:
            self.problem.F_jac = self._counting(problem.F_jac, "upper_slopes")
        if problem.f_jac is not None:
            self.problem.f_jac = self._counting(problem.f_jac, "lower_slopes")
        solver = problem.follower if follower is None else follower
        if solver is not None:
            self.problem.follower = bind_solver(solver, self.problem)

    def _counting(self, function: Callable[..., Any], counter: str) -> Callable[..., Any]:
        def call(x: FloatArray, y: FloatArray) -> Any:
            points = len(x) if self._original.vectorized else 1
            setattr(self, counter, getattr(self, counter) + points)
            self._require_within_bounds(x, y)
            return function(x, y)

        return call

    def _require_within_bounds(self, x: FloatArray, y: FloatArray) -> None:
        problem = self._original
        for name, point, bounds in (("x", x, problem.x_bounds), ("y", y, problem.y_bounds)):
            if point.flags.writeable:
                raise AssertionError(f"{name} can be changed by the function that is given it")
            if not bounds.contain(point):
                raise AssertionError(f"{name} = {point.tolist()} is outside its bounds")

    def minimize(self, **options: Any) -> Result:
        """Solve the problem, and check that the result has the same counts as this object.

        This works for runs without `run_dir` and without `workers`.
        """
        if options.get("run_dir") is not None or options.get("workers") is not None:
            raise ValueError("a CountingProblem counts runs without run_dir and workers")
        before = self._counts
        result = minimize(self.problem, **options)
        counted = tuple(now - then for now, then in zip(self._counts, before, strict=True))
        told = result.nfev_upper, result.nfev_lower, result.njev_upper, result.njev_lower
        if counted != told:
            raise AssertionError(
                f"the functions and gradients were given {counted} points, the result says {told}"
            )
        return result

    @property
    def _counts(self) -> tuple[int, ...]:
        return self.upper, self.lower, self.upper_slopes, self.lower_slopes
