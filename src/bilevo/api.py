"""The public functions: minimize, load, verify, Optimizer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bilevo import kernels
from bilevo.core.algorithm import Algorithm, Followers
from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.budget import Budget, FullBudget, Limits, require_positive
from bilevo.core.checks import is_truth, is_whole, real_array, real_number, require, shown
from bilevo.core.feasibility import CtolLike, ctol_of_levels, level_tolerances
from bilevo.core.problem import Function, Problem, Spec, Target
from bilevo.core.result import Certificate, Result
from bilevo.core.solver import MAX_STEPS, Solver, bind_solver, cost_of
from bilevo.core.space import AsGiven, UnitBox, answer_box
from bilevo.core.streams import seed_of
from bilevo.core.terminal import printable
from bilevo.registry import DEFAULT_FOR_FOLLOWERS, driving, get_method
from bilevo.run.answers import Live
from bilevo.run.ask_tell import AskTell
from bilevo.run.clock import Clock
from bilevo.run.directory import RunDir
from bilevo.run.dispatch import OnFailure
from bilevo.run.driver import drive
from bilevo.run.evaluator import Evaluator
from bilevo.run.executors import open_workers
from bilevo.run.progress import progress_line, status_line
from bilevo.run.recheck import Recheck
from bilevo.run.session import Session
from bilevo.run.stepper import StateFiles, Stepper
from bilevo.run.stored import load

if TYPE_CHECKING:
    from bilevo.verification.follower_problem import Claim

__all__ = ["Optimizer", "load", "minimize", "verify"]

MAX_CONSTRAINTS = 2**31  # A level must have fewer constraints than this.
TargetLike = float | Literal[False] | None


def minimize(
    F: Function | Problem,
    f: Function | None = None,
    x_bounds: Any = None,
    y_bounds: Any = None,
    G: Function | None = None,
    g: Function | None = None,
    *,
    method: str | Algorithm[Any] | None = None,
    rng: Any = 1,
    vectorized: bool = False,
    max_evals: int | None = None,
    max_evals_upper: int | None = None,
    max_evals_lower: int | None = None,
    max_time: float | None = None,
    budget: Budget | None = None,
    target: TargetLike = None,
    x0: Any = None,
    ftol: float = 1e-6,
    ctol: CtolLike = None,
    workers: Any = None,
    on_failure: OnFailure = "raise",
    retries: int = 0,
    timeout: float | None = None,
    run_dir: str | Path | None = None,
    recheck: bool = True,
    callback: Callable[[Result], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Solve min F(x, y) over x, where y minimizes f(x, y), by black-box evaluations only.

    Give the functions and bounds, or one `Problem`. Functions take x (m,) and y (n,). Objectives
    return a number, constraints a vector: G <= 0 and g <= 0. With `vectorized=True` functions take
    (k, m) and (k, n); objectives return (k,), constraints (k, c). Both levels are minimized.

    method
        A name from `bilevo list`, an algorithm object, or None for the default: drc-plus, or
        drc-race where the problem has a solver as its `follower`. "drc-cma-es" is the published
        DRC method.
    rng
        An int, numpy SeedSequence or Generator: the same seed gives the same result.
    max_evals, max_evals_upper, max_evals_lower, max_time
        Hard limits of the whole run. The first three limit the evaluations of both levels together,
        or of one level; they are never exceeded. The last one is in seconds, and is checked before
        every evaluation (or vectorized batch).
    budget
        A `Budget`: the algorithm's own stop rules for each level. Fields left None get defaults.
    target
        A number stops the run when F is at or below it. None stops it when F is within `ftol` of
        the problem's known optimum. False never stops it.
    x0
        A value of x to start from. Its follower is solved in the first generation.
    ftol
        How close F must come to the target. Smaller changes of F count as no change.
    ctol
        The tolerance on constraints: a number of 0 or more, or a pair (upper, lower). A constraint
        is met if it is at most `ctol` times its scale, or at most 1e-12 if that is larger; with
        ctol=0, if it is at most 0. The scale is the size that nine tenths of its values exceed at
        the first 32 points. None is the method's default: 1e-9 for drc-plus and drc-race, and 0 for
        published methods, so that they give the published figures. A violation that the problem's
        own solver reports has no scale: it counts as met if it is at most `ctol` itself.
    workers
        A number of processes, or an executor: of concurrent.futures, Dask, MPI or loky, or
        `bilevo.RayExecutor()`. All of them give the same result, to the bit.
    on_failure
        What an exception in a function does: "raise" ends the run, "worst" ranks the point last.
    retries
        How often an evaluation that failed is repeated before it counts as failed.
    timeout
        Seconds after which an evaluation is stopped and has failed. Needs a number of `workers`.
    run_dir
        A directory that keeps every evaluation as it comes. The same call continues a run that was
        killed, to the same result. A call with larger limits continues a run that has ended. Only
        plain files in the directory are used; links are refused.
    recheck
        When a run in `run_dir` is resumed, evaluate its best pair again, and warn if its values
        have changed. `result.rechecked` counts these evaluations, and nfev does not. Nothing is
        evaluated again if any evaluation took over a minute.
    callback
        Called after each upper generation with the result so far, and once when a run in `run_dir`
        is resumed. StopIteration stops the run.
    progress
        Show a line of progress on standard error.
    """
    problem = _problem(F, f, x_bounds, y_bounds, G, g, vectorized)
    algorithm = _method(problem, method)
    spec = _spec(problem, algorithm, rng, budget, target, x0, ftol, ctol)
    limits = Limits.of(max_evals, max_evals_upper, max_evals_lower, max_time)
    for name, value in (("progress", progress), ("recheck", recheck)):
        require(is_truth(value), name, "True or False", value)
    able = callback is None or callable(callback)
    require(able, "callback", "a function of the result so far", callback)
    with ExitStack() as open_things:
        pool = open_workers(workers, problem, timeout)
        if pool is not None:
            open_things.enter_context(closing(pool))
        settings = on_failure, retries, pool
        evaluator = Evaluator(problem, *settings)  # refuses wrong settings before a file is written
        callbacks = [] if callback is None else [callback]
        if progress:
            line = open_things.enter_context(progress_line(printable(problem.name)))
            callbacks.insert(0, line)
        kept = None
        if run_dir is not None:
            kept = RunDir(run_dir, problem, algorithm, spec, limits)
            open_things.enter_context(closing(kept))
            spec = kept.spec
        clock = Clock(limits.time)
        stepper = None
        if problem.follower is not None:
            files = None if kept is None else StateFiles(kept.solver_states, problem, spec.seed)
            stepper = Stepper(problem, spec.seed, *settings, files)
        live = Live(evaluator, stepper, clock, callbacks)
        if kept is None:
            return drive(Session(problem, algorithm, spec, limits, live, clock=clock), live)
        again = Recheck(problem, spec, kept.stored, settings) if recheck else None
        source = kept.source(live, clock, again)
        session = Session(problem, algorithm, spec, limits, source, kept.state, kept.record, clock)
        return drive(session, source)


def verify(
    problem: Problem,
    res: Result,
    *,
    rng: Any = 1,
    effort: Literal["low", "normal", "high"] | None = None,
    follower: Solver[Any] | None = None,
    ctol: CtolLike = None,
    workers: Any = None,
    max_evals: int | None = None,
    max_time: float | None = None,
    timeout: float | None = None,
    retries: int = 0,
    on_failure: OnFailure = "worst",
    progress: bool = False,
) -> Certificate:
    """Check an answer: solve the follower at `res.x` again by independent searches.

    The searches are spread over the follower's whole box and use nothing of the run; one starts
    from res.y. The certificate is returned and kept in `res.certificate`; `res.certified` and
    `res.success` follow it. It is `confirmed` only if all searches were made and none found a
    better answer. A difference of f counts if it is more than 1e-9 of the scale of f around the
    answer, and more than rounding. Among answers that tie in f, the certificate reports the one
    that is best for the leader (the optimistic position), and also the worst F found.

    If the problem has a solver as its `follower`, that solver is run again instead, with other
    random numbers. A second solver may be given here as `follower`, for any problem. If the problem
    has no f, the solver's values of f are used.

    rng
        An int, numpy SeedSequence or Generator: the same seed gives the same certificate.
    effort
        "low", "normal" or "high": how many searches are made. None is low after a run of fewer than
        2,000 evaluations, high from 20,000 on. docs/concepts.md says what each finds and costs.
    ctol
        The tolerance on constraints, as in `minimize`. None is the tolerance of the run. The scales
        of constraints are also those of the run.
    max_evals, max_time
        Hard limits. An answer is not confirmed if they end the searches early; a better answer
        found by then is reported. The run's limits do not apply here.
    workers, timeout, retries
        As in `minimize`. All searches run side by side, so that workers help.
    on_failure
        "worst" ranks points that fail last and counts them in `failures`; "raise" ends the
        verification. An exception at the answer itself is always raised.
    progress
        Show a line of progress on standard error.
    """
    from bilevo.verification.by_search import verify_by_search
    from bilevo.verification.by_solver import verify_by_solver, with_solver
    from bilevo.verification.effort import effort_of
    from bilevo.verification.follower_problem import Settings

    claim = _claim(problem, res)
    chosen, seed = effort_of(effort, res.nfev), seed_of(rng)
    limits = Limits.of(max_evals, max_time=max_time)
    require(is_truth(progress), "progress", "True or False", progress)
    allowed = res.ctol if ctol is None else ctol_of_levels(ctol, 0.0)
    tolerances = level_tolerances(allowed, res.constraint_scales)
    checked = problem
    if follower is not None:
        checked = with_solver(problem, bind_solver(follower, problem))
    by = verify_by_search if checked.follower is None else verify_by_solver
    with ExitStack() as open_things:
        pool = open_workers(workers, checked, timeout)
        if pool is not None:
            open_things.enter_context(closing(pool))
        Evaluator(checked, on_failure, retries, pool)  # refuses wrong settings
        settings = Settings(on_failure, retries, pool, limits, Clock(limits.time), tolerances)
        if progress:
            name = f"verification of {printable(problem.name)}"
            line = open_things.enter_context(status_line(name, "first searches"))
            settings = replace(settings, show=line)
        open_things.enter_context(kernels.using(kernels.default()))
        certificate = by(checked, claim, seed, chosen, settings)
    res.accept(certificate)
    return certificate


def _claim(problem: Problem, res: Result) -> Claim:
    """Return the pair of a result, to be verified; refuse a result that is not of this problem."""
    from bilevo.verification.follower_problem import Claim

    if not isinstance(problem, Problem) or not isinstance(res, Result):
        raise ValueError(
            f"verify takes a Problem and a Result, got {shown(problem)} and {shown(res)}"
        )
    x, y = frozen(res.x), frozen(res.y)
    if x.shape != (problem.m,) or y.shape != (problem.n,):
        raise ValueError(
            f"the result has {x.size} and {y.size} variables, {problem.name} has "
            f"{problem.m} and {problem.n}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(f"the result has no answer to verify: {res.message}")
    for point, bounds, name in ((x, problem.x_bounds, "x"), (y, problem.y_bounds, "y")):
        if not bounds.contain(point):
            raise ValueError(f"the result's {name} = {point.tolist()} is outside its bounds")
    return Claim(x, y, float(res.F), float(res.f), float(res.violation))


class Optimizer(AskTell):
    """Ask and tell, for users who evaluate the functions themselves; each batch has a level.

    Give a `Problem`. If there are no functions to give, give `x_bounds`, `y_bounds` and the numbers
    of constraints `n_G` and `n_g` instead. The other keywords are as in `minimize`.

    >>> opt = Optimizer(x_bounds=[(-5, 10)], y_bounds=[(-5, 10)], max_evals=500)
    >>> while not opt.done:
    ...     batch = opt.ask()
    ...     x, y = batch.x[:, 0], batch.y[:, 0]
    ...     opt.tell(batch, x**2 + y**2 if batch.level == "upper" else (y - x) ** 2)
    >>> opt.result.nfev <= 500
    True
    """

    def __init__(
        self,
        problem: Problem | None = None,
        *,
        x_bounds: Any = None,
        y_bounds: Any = None,
        n_G: int = 0,
        n_g: int = 0,
        method: str | Algorithm[Any] | None = None,
        rng: Any = 1,
        max_evals: int | None = None,
        max_evals_upper: int | None = None,
        max_evals_lower: int | None = None,
        max_time: float | None = None,
        budget: Budget | None = None,
        target: TargetLike = None,
        x0: Any = None,
        ftol: float = 1e-6,
        ctol: CtolLike = None,
    ) -> None:
        declared = problem is None
        bounds = (x_bounds is not None, y_bounds is not None)
        if bounds != (declared, declared) or not isinstance(problem, Problem | None):
            raise ValueError("Optimizer takes either a Problem or both x_bounds and y_bounds")
        for name, count in (("n_G", n_G), ("n_g", n_g)):
            fine = is_whole(count) and 0 <= count < MAX_CONSTRAINTS and (declared or not count)
            what = f"a number of constraints below {MAX_CONSTRAINTS}, without a Problem only"
            require(fine, name, what, count)
        if problem is None:
            problem = Problem(_never, _never, x_bounds, y_bounds, name="ask-tell")
        if problem.follower is not None:
            raise ValueError(
                "ask and tell is for functions; minimize drives a problem's own solver"
            )
        algorithm = _method(problem, method)
        spec = _spec(problem, algorithm, rng, budget, target, x0, ftol, ctol)
        limits = Limits.of(max_evals, max_evals_upper, max_evals_lower, max_time)
        super().__init__(
            Session(problem, algorithm, spec, limits),
            n_G if declared or problem.G is None else None,
            n_g if declared or problem.g is None else None,
        )


def _problem(
    F: Function | Problem,
    f: Function | None,
    x_bounds: Any,
    y_bounds: Any,
    G: Function | None,
    g: Function | None,
    vectorized: bool,
) -> Problem:
    if not isinstance(F, Problem):
        if f is None or x_bounds is None or y_bounds is None:
            raise ValueError("minimize takes F, f, x_bounds and y_bounds, or one Problem")
        return Problem(F, f, x_bounds, y_bounds, G, g, vectorized)
    if any(extra is not None for extra in (f, x_bounds, y_bounds, G, g)) or vectorized:
        raise ValueError("a Problem brings its own functions and bounds; give no others with it")
    return F


def _method(problem: Problem, method: str | Algorithm[Any] | None) -> Algorithm[Any]:
    """Return the algorithm to use; refuse one that cannot drive the problem's follower."""
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


def _spec(
    problem: Problem,
    algorithm: Algorithm[Any],
    rng: Any,
    budget: Budget | None,
    target: TargetLike,
    x0: Any,
    ftol: float,
    ctol: CtolLike,
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
        target=_target(problem, target, float(ftol)),
        ftol=float(ftol),
        x0=None if x0 is None else x_box.unit(_inside(x0, problem)),
        kernel=kernels.default(),
        step_cost=cost,
        ctol=ctol_of_levels(ctol, getattr(algorithm, "ctol", 0.0)),  # 0 where it has no such member
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


def _target(problem: Problem, target: TargetLike, ftol: float) -> Target | None:
    if target is None:
        return Target(problem.optimum.F, ftol, optimum=True) if problem.optimum else None
    if target is False:
        return None
    value = real_number(target)
    if value is None:
        raise ValueError(f"target must be None, False or a value of F, got {shown(target)}")
    if not abs(value) <= 1.7e308:
        raise ValueError(f"target must be finite, got {value}")
    return Target(value, ftol, optimum=False)


def _inside(x0: Any, problem: Problem) -> FloatArray:
    """Return the start point; refuse one outside the bounds."""
    try:
        point = real_array(x0)
    except ValueError:
        raise ValueError(f"x0 must be {problem.m} numbers, got {shown(x0)}") from None
    if point.shape != (problem.m,):
        raise ValueError(f"x0 must have shape ({problem.m},), got {point.shape}")
    outside = ~((problem.x_bounds.lower <= point) & (point <= problem.x_bounds.upper))
    if outside.any():
        i = int(np.argmax(outside))
        low, high = problem.x_bounds.lower[i], problem.x_bounds.upper[i]
        raise ValueError(f"x0[{i}] = {point[i]} is outside its bounds ({low}, {high})")
    return point


def _never(x: FloatArray, y: FloatArray) -> float:
    raise RuntimeError("with ask and tell, the caller evaluates the functions")
