"""What the keywords of `minimize` and `Optimizer` mean: the problem, the method, and the spec."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from bilevo import kernels
from bilevo.core.algorithm import Algorithm, Followers
from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Grid, inside
from bilevo.core.budget import Budget, FullBudget, Limits, require_positive
from bilevo.core.checks import real_number, require, shown
from bilevo.core.feasibility import CtolLike, ctol_of_levels
from bilevo.core.problem import Function, Problem, Spec, Target
from bilevo.core.solver import MAX_STEPS, cost_of
from bilevo.core.space import AsGiven, UnitBox, answer_box
from bilevo.core.stance import Stance, stance_of, tie_tol_of
from bilevo.core.streams import seed_of
from bilevo.registry import (
    DEFAULT_FOR_FEW,
    DEFAULT_FOR_FOLLOWERS,
    DEFAULT_FOR_STANCES,
    DEFAULT_FOR_WHOLE,
    DEFAULT_METHOD,
    FEW_EVALS,
    FEW_VARIABLES,
    driving,
    get_method,
    taking_stances,
)

TargetLike = float | Literal[False] | None


def problem_of(
    F: Function | Problem,
    f: Function | None,
    x_bounds: Any,
    y_bounds: Any,
    G: Function | None,
    g: Function | None,
    vectorized: bool,
    args: tuple[Any, ...],
    integrality: tuple[Any, Any] = (None, None),
) -> Problem:
    """Return the problem that `minimize` is given, as one object or in parts."""
    if not isinstance(F, Problem):
        if f is None or x_bounds is None or y_bounds is None:
            raise ValueError("minimize takes F, f, x_bounds and y_bounds, or one Problem")
        whole = dict(zip(("x_integrality", "y_integrality"), integrality, strict=True))
        return Problem(F, f, x_bounds, y_bounds, G, g, vectorized, args=args, **whole)
    others = any(extra is not None for extra in (f, x_bounds, y_bounds, G, g, *integrality))
    if others or vectorized or not isinstance(args, tuple) or args:
        raise ValueError(
            "a Problem brings its own functions, bounds and args; give no others with it"
        )
    return F


def method_of(
    problem: Problem,
    method: str | Algorithm[Any] | None,
    limits: Limits,
    begun: str | None = None,
) -> Algorithm[Any]:
    """Return the algorithm to use; refuse one that cannot drive the problem's follower.

    The default depends on the limit on evaluations. A run that goes on keeps the default that it
    was `begun` with.
    """
    if method is None and problem.has_whole:
        method = DEFAULT_FOR_WHOLE
    elif method is None and problem.follower is None:
        few = problem.m + problem.n <= FEW_VARIABLES and limits.evals <= FEW_EVALS
        method = DEFAULT_FOR_FEW if few else DEFAULT_METHOD
        method = begun if begun in (DEFAULT_FOR_FEW, DEFAULT_METHOD) else method
    if problem.follower is None:
        algorithm = get_method(method)
        if not algorithm.followers.include(Followers.FUNCTION):
            raise ValueError(
                f"{algorithm.name} is for problems with a solver as their follower, and "
                f"{problem.name} has none: see bilevo.followers, or leave the method out"
            )
        return algorithm
    algorithm = get_method(method or DEFAULT_FOR_FOLLOWERS)
    if not algorithm.followers.include(Followers.SOLVER):
        raise ValueError(
            f"{algorithm.name} searches f itself, and {problem.name} has a solver: "
            f"take {', '.join(driving(Followers.SOLVER))}, or leave the method out"
        )
    return algorithm


class Ties(NamedTuple):
    """What the leader expects of ties: its stance, and the tolerance on f (see `core.stance`)."""

    stance: Stance = Stance.OPTIMISTIC
    tolerance: float | None = None

    @classmethod
    def of(cls, stance: Any, tie_tol: Any) -> Ties:
        return cls(stance_of(stance), tie_tol_of(tie_tol))

    @property
    def usual(self) -> bool:
        """Tell whether these are the defaults, which every method takes."""
        return self == USUAL_TIES

    def __str__(self) -> str:
        tolerance = "" if self.tolerance is None else f", tie_tol={self.tolerance:g}"
        return f'stance="{self.stance}"{tolerance}'

    def method(
        self,
        problem: Problem,
        method: str | Algorithm[Any] | None,
        limits: Limits,
        begun: str | None = None,
    ) -> Algorithm[Any]:
        """Return the algorithm to use; refuse one that cannot take the stance.

        If a solver is the follower, the solver takes the stance, and any algorithm can drive it.
        """
        if self.usual or problem.follower is not None:
            return method_of(problem, method, limits, begun)
        if problem.has_whole:
            raise ValueError(f"problems with whole numbers cannot be searched with {self} yet")
        if method is None:
            method = DEFAULT_FOR_STANCES
        algorithm = method_of(problem, method, limits, begun)
        self.require_taken_by(algorithm)
        return algorithm

    def require_taken_by(self, algorithm: Algorithm[Any]) -> None:
        """Refuse an algorithm that cannot take the stance and searches f itself."""
        able = getattr(algorithm, "takes_stance", False)
        if self.usual or able or algorithm.followers is Followers.SOLVER:
            return
        raise ValueError(
            f"{algorithm.name} cannot take {self}: it expects the follower's answer that is "
            f"best for the leader. Take {', '.join(taking_stances())}, or leave the method out"
        )

    def problem(self, problem: Problem) -> Problem:
        """Return the problem; if a solver is its follower, with a solver that takes the stance."""
        if self.usual:
            return problem
        apart = len(problem.blocks) > 1 and not problem.equilibrium
        if problem.y_bounds.has_whole or apart:
            kind = "independent followers" if apart else "followers with whole numbers"
            raise ValueError(f"{kind} cannot be searched with {self} yet")
        if problem.follower is None:
            return problem
        take = getattr(problem.follower, "take_stance", None)
        if not callable(take):
            raise ValueError(
                f"{type(problem.follower).__name__}, the follower of {problem.name}, cannot take "
                f"{self}: it has no method take_stance(stance, tie_tol); LinProg and Milp have one"
            )
        other = copy(problem)
        other.follower = take(self.stance, self.tolerance)
        return other


USUAL_TIES = Ties()


def spec_of(
    problem: Problem,
    algorithm: Algorithm[Any],
    rng: Any,
    budget: Budget | None,
    target: TargetLike,
    x0: Any,
    y0: Any,
    ftol: float,
    ctol: CtolLike,
    ties: Ties,
) -> Spec:
    """Return what the algorithm sees: sizes and settings, in the unit box."""
    require_positive("ftol", ftol, finite=True)
    require(isinstance(budget, Budget | None), "budget", "a bilevo.Budget", budget)
    x_box, y_box = UnitBox(problem.x_bounds), answer_box(problem)
    cost = None if problem.follower is None else cost_of(problem.follower)
    usual = problem.budget.over(_usual_budget(x_box.size, y_box.size, cost))
    searched = [x_box.width] if isinstance(y_box, AsGiven) else [x_box.width, y_box.width]
    return Spec(
        m=x_box.size,
        n=y_box.size,
        seed=seed_of(rng),
        budget=(budget or Budget()).over(algorithm.budget.over(usual)),
        spread=_spread(np.concatenate(searched)),
        target=_target(problem, target, float(ftol), ties),
        ftol=float(ftol),
        x0=None if x0 is None else x_box.unit(inside("x0", x0, problem.x_bounds)),
        y0=None if y0 is None else _first_answer(y0, problem),
        kernel=kernels.default(),
        step_cost=cost,
        ctol=ctol_of_levels(ctol, getattr(algorithm, "ctol", 0.0)),  # 0 where it has no such member
        slopes=problem.slopes_given,
        x_grid=Grid.of(problem.x_bounds),
        y_grid=Grid.of(problem.y_bounds) if problem.follower is None else None,
        equilibrium=problem.equilibrium,
        stance=ties.stance,
        tie_tol=ties.tolerance,
        blocks=problem.blocks if problem.separable else None,
        joint=problem.simulator is not None,
    )


def _usual_budget(m: int, n: int, step_cost: int | None) -> FullBudget:
    """Return the published budget; a solver as follower may take `MAX_STEPS` steps per search."""
    if step_cost is None:
        return FullBudget.for_size(m, n)
    return replace(FullBudget.for_size(m, m), lower_max=MAX_STEPS * step_cost)


def _spread(width: FloatArray) -> FloatArray:
    """Return standard deviations to start with, in the unit box.

    They are 0.3 of the median width, as published. If a variable's width is more than ten times
    larger or smaller, it probably has another unit, and starts with 0.3 of its own width.
    """
    with np.errstate(over="ignore"):
        ratio = np.median(width) / width
    return np.where((ratio >= 0.1) & (ratio <= 10), 0.3 * ratio, 0.3)


def _target(problem: Problem, target: TargetLike, ftol: float, ties: Ties) -> Target | None:
    if target is None:
        if not ties.usual:  # a known optimum is that of an optimistic leader
            return None
        return Target(problem.optimum.F, ftol, optimum=True) if problem.optimum else None
    if target is False:
        return None
    value = real_number(target)
    if value is None:
        raise ValueError(f"target must be None, False or a value of F, got {shown(target)}")
    if not abs(value) <= 1.7e308:
        raise ValueError(f"target must be finite, got {value}")
    return Target(value, ftol, optimum=False)


def _first_answer(y0: Any, problem: Problem) -> FloatArray:
    """Return the user's first answer, in the unit box."""
    if problem.follower is not None:
        raise ValueError("y0 is for a follower that is searched; a solver has a start of its own")
    return UnitBox(problem.y_bounds).unit(inside("y0", y0, problem.y_bounds))
