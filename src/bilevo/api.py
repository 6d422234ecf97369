"""The public functions: minimize, load, verify, Optimizer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bilevo import kernels
from bilevo.core.algorithm import Algorithm
from bilevo.core.budget import Budget, Limits
from bilevo.core.checks import is_truth, require
from bilevo.core.feasibility import CtolLike, ctol_of_levels, level_tolerances
from bilevo.core.keywords import explain_unknown
from bilevo.core.problem import Function, Problem
from bilevo.core.result import Certificate, Result
from bilevo.core.slopes import NO_SLOPES
from bilevo.core.solver import Solver, bind_solver
from bilevo.core.stance import StanceLike
from bilevo.core.streams import seed_of
from bilevo.core.terminal import printable
from bilevo.run.answers import Live
from bilevo.run.archive import ArchivingLive, Collected, StoredArchive, archive_limit
from bilevo.run.ask_tell import AskTell, constraint_count, never
from bilevo.run.clock import Clock
from bilevo.run.deriver import Deriver
from bilevo.run.directory import RunDir
from bilevo.run.dispatch import OnFailure
from bilevo.run.driver import drive
from bilevo.run.evaluator import Evaluator
from bilevo.run.executors import open_workers
from bilevo.run.progress import Progress, run_progress, status_line
from bilevo.run.recheck import Recheck
from bilevo.run.session import Session
from bilevo.run.stepper import StateFiles, Stepper
from bilevo.run.stored import load, stored_method, stored_seed
from bilevo.settings import TargetLike, Ties, problem_of, spec_of

__all__ = ["Optimizer", "load", "minimize", "verify"]


@explain_unknown
def minimize(
    F: Function | Problem,
    f: Function | None = None,
    x_bounds: Any = None,
    y_bounds: Any = None,
    G: Function | None = None,
    g: Function | None = None,
    *,
    x_integrality: Any = None,
    y_integrality: Any = None,
    method: str | Algorithm[Any] | None = None,
    rng: Any = 1,
    vectorized: bool = False,
    args: tuple[Any, ...] = (),
    max_evals: float | None = None,
    max_evals_upper: float | None = None,
    max_evals_lower: float | None = None,
    max_time: float | None = None,
    budget: Budget | None = None,
    target: TargetLike = None,
    x0: Any = None,
    y0: Any = None,
    ftol: float = 1e-6,
    ctol: CtolLike = None,
    stance: StanceLike = "optimistic",
    tie_tol: float | None = None,
    workers: Any = None,
    on_failure: OnFailure = "raise",
    retries: float = 0,
    timeout: float | None = None,
    run_dir: str | Path | None = None,
    recheck: bool = True,
    keep_archive: bool | float = False,
    callback: Callable[[Result], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Solve min F(x, y) over x, where y minimizes f(x, y), by black-box evaluations only.

    Give the functions and bounds, or one `Problem`. Both levels are minimized.

    Parameters
    ----------
    F, f : callable
        The objectives of the leader and of the follower: each takes (x, y) and returns a number. In
        place of F, a `Problem` may be given; then f, bounds, G, g, vectorized and args are left
        out.
    x_bounds, y_bounds : sequence of pairs, or scipy.optimize.Bounds
        The boxes of x and y, as (lower, upper) for each variable. A `bilevo.Choice` in place of a
        pair makes the variable one of several labels.
    G, g : callable, optional
        The constraints of the leader and of the follower: each returns a vector, which holds where
        it is <= 0.
    x_integrality, y_integrality : 0, 1, or a sequence of them, optional
        1 says that a variable is a whole number, as SciPy's `integrality` does.
    method : str or algorithm, optional
        A name from `bilevo list`, an algorithm object, or None for the default. That is drc-plus;
        few for up to five variables and 1,000 evaluations; trust-region where `follower` is a
        solver; and moves where variables are whole. "drc-cma-es" is the published DRC method.
    rng : int, SeedSequence, Generator or None, optional
        The source of random numbers. The default is 1, so the same call gives the same result
        twice. None draws a fresh seed; `result.seed` says which, and rng=result.seed repeats the
        run. A run in `run_dir` keeps its seed when the same call continues it.
    vectorized : bool, optional
        True says that functions take x (k, m) and y (k, n), and return (k,), or (k, c) for
        constraints. That is much faster.
    args : tuple, optional
        Extra arguments, which all functions get after (x, y).
    max_evals, max_evals_upper, max_evals_lower : int, optional
        Hard limits on the evaluations of both levels together, or of one level. They are never
        exceeded. Whole numbers may be written as 1e3, here and in all other counts.
    max_time : float, optional
        A hard limit in seconds, checked before every evaluation (or vectorized batch).
    budget : Budget, optional
        The algorithm's own stop rules for each level. Fields left None get defaults.
    target : float, False or None, optional
        A number stops the run when F is at or below it. None stops it when F is within `ftol` of
        the problem's known optimum. False never stops it.
    x0 : array (m,), optional
        A value of x to start from. Its follower is solved in the first generation.
    y0 : array (n,), optional
        A good answer to x0, if you know one. drc-plus and nested-ties compare it with what the
        first follower's search finds, and search from it if it is better. drc-cma-es, bl-cma-es,
        go-cma-es, moves, tlea-cma-es and tlea-de start their first searches of y there; other
        methods ignore it.
    ftol : float, optional
        How close F must come to the target. Smaller changes of F count as no change.
    ctol : float or pair, optional
        The tolerance on constraints: a number of 0 or more, or a pair (upper, lower). A constraint
        is met if it is at most `ctol` times its scale, or at most 1e-12 if that is larger; with
        ctol=0, if it is at most 0. The scale is the size that nine tenths of its values exceed at
        the first 32 points. None is the method's default: 1e-9 for drc-plus, drc-race, moves
        and trust-region, and 0 for published methods, so that they give the published figures. A
        violation that the problem's own solver reports has no scale: it counts as met if it is at
        most `ctol` itself.
    stance : {"optimistic", "pessimistic"}, optional
        Which of the follower's ties the leader expects: the one that is best for F, or the worst.
    tie_tol : float, optional
        How much larger than the best f a tie's f may be. A number above 0 is for followers that
        are content with a nearly best answer. None: ties have the same f at the run's precision.
    workers : int or executor, optional
        A number of processes (-1: as many as there are cores), or an executor: of
        concurrent.futures, Dask, MPI or loky, or `bilevo.RayExecutor()`. All of them give the same
        result, to the bit.
    on_failure : {"raise", "worst"}, optional
        What an exception in a function does: "raise" ends the run, "worst" ranks the point last.
    retries : int, optional
        How often an evaluation that failed is repeated before it counts as failed.
    timeout : float, optional
        Seconds after which an evaluation is stopped and has failed. Needs a number of `workers`.
    run_dir : str or Path, optional
        A directory that keeps every evaluation as it comes. The same call continues a run that was
        killed, to the same result. A call with larger limits continues a run that has ended. Only
        plain files in the directory are used; links are refused.
    recheck : bool, optional
        When a run in `run_dir` is resumed, evaluate its best pair again, and warn if its values
        have changed. `result.rechecked` counts these evaluations, and nfev does not. Nothing is
        evaluated again if any evaluation took over a minute.
    keep_archive : bool or int, optional
        True keeps the last 100,000 evaluations in memory for `result.archive()`; a number keeps
        that many. With `run_dir` there is an archive without it.
    callback : callable, optional
        Called after each upper generation with the result so far, and once when a run in `run_dir`
        is resumed. StopIteration stops the run.
    progress : bool, optional
        Show on standard error how far the run has come, from its first evaluation on: a line that
        changes on a terminal, and a line every ten seconds in a log.

    Returns
    -------
    Result
        The answer `x`, `y` with its values `F` and `f`, what it cost, why the run ended, and
        whether the follower's answer is certified. `success` says whether to trust it.

    Raises
    ------
    ValueError
        An argument is wrong. This is told before the first evaluation.
    BadValue
        A function returned something other than real numbers of the right shape.
    RunMismatch, RunLocked, JournalCorrupt
        The directory `run_dir` holds another run, is in use, or is damaged.

    See Also
    --------
    verify : check an answer by independent searches of the follower.
    Optimizer : ask for points and tell their values, in a loop of your own.
    load : look at a run in a directory.

    Notes
    -----
    No method can say that x is the best for the leader. `result.F_optimistic` and `F_pessimistic`
    are the best and the worst F among the follower's ties at x (docs/recipe_ties.md).

    Examples
    --------
    >>> import bilevo
    >>> result = bilevo.minimize(
    ...     lambda x, y: (x[0] - 3) ** 2 + (y[0] - 1) ** 2,
    ...     lambda x, y: (y[0] - x[0]) ** 2 + 0.1 * y[0],
    ...     x_bounds=[(-5, 10)],
    ...     y_bounds=[(-5, 10)],
    ... )
    >>> result.success, round(result.F, 3)
    (True, 1.901)
    """
    ties, whole = Ties.of(stance, tie_tol), (x_integrality, y_integrality)
    problem = ties.problem(problem_of(F, f, x_bounds, y_bounds, G, g, vectorized, args, whole))
    limits = Limits.of(max_evals, max_evals_upper, max_evals_lower, max_time)
    algorithm = ties.method(problem, method, limits, stored_method(run_dir))
    if rng is None and run_dir is not None:
        rng = stored_seed(run_dir)  # the same call continues the run that it began
    spec = spec_of(problem, algorithm, rng, budget, target, x0, y0, ftol, ctol, ties)
    memory = archive_limit(keep_archive)
    for name, value in (("progress", progress), ("recheck", recheck)):
        require(is_truth(value), name, "True or False", value)
    callbacks = [] if callback is None else [callback]
    require(all(map(callable, callbacks)), "callback", "a function of the result so far", callback)
    with ExitStack() as open_things:
        pool = open_workers(workers, problem, timeout)
        if pool is not None:
            open_things.enter_context(closing(pool))
        settings = on_failure, retries, pool
        evaluator = Evaluator(problem, *settings)  # refuses wrong settings before a file is written
        shown = Progress(limits)
        if progress:
            shown = open_things.enter_context(run_progress(printable(problem.name), limits))
        kept = None
        if run_dir is not None:
            kept = RunDir(run_dir, problem, algorithm, spec, limits)
            open_things.enter_context(closing(kept))
            spec = kept.spec
        clock = Clock(limits.time)
        stepper = None
        if problem.follower is not None:
            files = None if kept is None else StateFiles(kept.solver_states, problem, spec.seed)
            earlier = None if kept is None else kept.finished_searches
            stepper = Stepper(problem, spec.seed, *settings, files, earlier)
        deriver = Deriver(problem, evaluator.returned, *settings)
        live = Live(evaluator, stepper, clock, callbacks, deriver)
        if kept is not None:
            again = Recheck(problem, spec, kept.stored, settings) if recheck else None
            source, begun = kept.source(live, clock, again), (kept.state, kept.record)
            session = Session(problem, algorithm, spec, limits, source, *begun, clock)
            shown.follow(session, source)
            result = drive(session, source)
            result.keep_archive(StoredArchive(kept.path, problem, algorithm, spec, memory))
            return result
        collected = None if memory is None else Collected(memory)
        if collected is not None:
            live = ArchivingLive(live, collected, problem.vectorized)
        session = Session(problem, algorithm, spec, limits, live, clock=clock)
        shown.follow(session, live)
        result = drive(session, live)
        if collected is not None:
            result.keep_archive(collected.archive(problem))
        return result


@explain_unknown
def verify(
    problem: Problem,
    res: Result,
    *,
    rng: Any = 1,
    effort: Literal["low", "normal", "high"] | None = None,
    follower: Solver[Any] | None = None,
    ctol: CtolLike = None,
    stance: StanceLike | None = None,
    tie_tol: float | None = None,
    workers: Any = None,
    max_evals: float | None = None,
    max_time: float | None = None,
    timeout: float | None = None,
    retries: float = 0,
    on_failure: OnFailure = "worst",
    progress: bool = False,
) -> Certificate:
    """Check an answer: solve the follower at `res.x` again by independent searches.

    The searches are spread over the follower's whole box and use nothing of the run; one starts
    from res.y. The certificate is returned and kept in `res.certificate`; `res.certified` and
    `res.success` follow it.

    Parameters
    ----------
    problem : Problem
        The problem that was solved.
    res : Result
        The answer of `minimize`.
    rng : int, SeedSequence, Generator or None, optional
        The source of random numbers. The default is 1, so the same call gives the same certificate
        twice; None draws a fresh seed.
    effort : {"low", "normal", "high"}, optional
        How many searches are made. None is low after a run of fewer than 1,000 evaluations, high
        from 20,000 on. docs/concepts.md says what each finds and costs.
    follower : Solver, optional
        A second solver, which finds the follower's answer instead of the searches.
    ctol : float or pair, optional
        The tolerance on constraints, as in `minimize`. None is the tolerance of the run. The scales
        of constraints are also those of the run.
    stance, tie_tol : optional
        As in `minimize`. None is what the run had.
    workers, timeout, retries
        As in `minimize`. All searches run side by side, so that workers help.
    max_evals, max_time : optional
        Hard limits. An answer is not confirmed if they end the searches early; a better answer
        found by then is reported. The run's limits do not apply here.
    on_failure : {"worst", "raise"}, optional
        "worst" ranks points that fail last and counts them in `failures`; "raise" ends the
        verification. An exception at the answer itself is always raised.
    progress : bool, optional
        Show a line of progress on standard error.

    Returns
    -------
    Certificate
        It is `confirmed` only if all searches were made and none found a better answer, or a tie
        that is worse for a pessimistic leader. Among ties, it reports the one that the leader's
        stance expects; `F_best` and `F_worst` are the best and the worst F found.

    Notes
    -----
    A difference of f counts if it is more than 1e-9 of the scale of f around the answer, and more
    than rounding. If the problem has a solver as its `follower`, that solver is run again, with
    other random numbers. If the problem has no f, the solver's values of f are used. If y has whole
    numbers or choices, all their combinations are compared, or the neighbours of the answer if the
    combinations are too many; the message says which.

    Examples
    --------
    >>> import bilevo
    >>> problem = bilevo.problems.get("smd1")
    >>> result = bilevo.minimize(problem)
    >>> bilevo.verify(problem, result).confirmed
    True
    """
    from bilevo.verification.by_cells import verify_by_cells
    from bilevo.verification.by_follower import verify_each
    from bilevo.verification.by_search import verify_by_search
    from bilevo.verification.by_solver import verify_by_solver, with_solver
    from bilevo.verification.effort import effort_of
    from bilevo.verification.follower_problem import Settings, claim_of

    claim = claim_of(problem, res)
    chosen, seed = effort_of(effort, res.nfev), seed_of(rng)
    ties = Ties.of(stance or res.stance, res.tie_tol if tie_tol is None else tie_tol)
    limits = Limits.of(max_evals, max_time=max_time)
    require(is_truth(progress), "progress", "True or False", progress)
    allowed = res.ctol if ctol is None else ctol_of_levels(ctol, 0.0)
    tolerances = level_tolerances(allowed, res.constraint_scales)
    checked = problem
    if follower is not None:
        checked = with_solver(problem, bind_solver(follower, problem))
    checked = ties.problem(checked)
    by = verify_by_search if checked.follower is None else verify_by_solver
    if checked.follower is None and checked.y_bounds.has_whole:
        by = verify_by_cells
    elif follower is None and len(problem.blocks) > 1:
        by = verify_each
    with ExitStack() as open_things:
        pool = open_workers(workers, checked, timeout)
        if pool is not None:
            open_things.enter_context(closing(pool))
        Evaluator(checked, on_failure, retries, pool)  # refuses wrong settings
        settings = Settings(on_failure, retries, pool, limits, Clock(limits.time), tolerances)
        settings = replace(settings, stance=ties.stance, tie_tol=ties.tolerance)
        if progress:
            name = f"verification of {printable(problem.name)}"
            line = open_things.enter_context(status_line(name, "first searches"))
            settings = replace(settings, show=line)
        open_things.enter_context(kernels.using(kernels.default()))
        certificate = by(checked, claim, seed, chosen, settings)
    res.accept(certificate, same_ties=tie_tol is None)
    return certificate


class Optimizer(AskTell):
    """Ask and tell, for users who evaluate the functions themselves; each batch has a level.

    Give a `Problem`. If there are no functions to give, give `x_bounds`, `y_bounds` and the numbers
    of constraints `n_G` and `n_g` instead; variables may be whole. The other keywords are as in
    `minimize`.

    Examples
    --------
    >>> opt = Optimizer(x_bounds=[(-5, 10)], y_bounds=[(-5, 10)], max_evals=500)
    >>> while not opt.done:
    ...     batch = opt.ask()
    ...     x, y = batch.x[:, 0], batch.y[:, 0]
    ...     opt.tell(batch, x**2 + y**2 if batch.level == "upper" else (y - x) ** 2)
    >>> opt.result.nfev <= 500
    True
    """

    @explain_unknown
    def __init__(
        self,
        problem: Problem | None = None,
        *,
        x_bounds: Any = None,
        y_bounds: Any = None,
        x_integrality: Any = None,
        y_integrality: Any = None,
        n_G: float = 0,
        n_g: float = 0,
        method: str | Algorithm[Any] | None = None,
        rng: Any = 1,
        max_evals: float | None = None,
        max_evals_upper: float | None = None,
        max_evals_lower: float | None = None,
        max_time: float | None = None,
        budget: Budget | None = None,
        target: TargetLike = None,
        x0: Any = None,
        y0: Any = None,
        ftol: float = 1e-6,
        ctol: CtolLike = None,
        stance: StanceLike = "optimistic",
        tie_tol: float | None = None,
    ) -> None:
        declared = problem is None
        bounds = (x_bounds is not None, y_bounds is not None)
        if bounds != (declared, declared) or not isinstance(problem, Problem | None):
            raise ValueError("Optimizer takes either a Problem or both x_bounds and y_bounds")
        whole = {"x_integrality": x_integrality, "y_integrality": y_integrality}
        for name, given in whole.items():
            require(declared or given is None, name, "a part of the Problem", given)
        counts = [constraint_count("n_G", n_G, declared), constraint_count("n_g", n_g, declared)]
        if problem is None:
            problem = Problem(never, never, x_bounds, y_bounds, name="ask-tell", **whole)
        if problem.follower is not None:
            raise ValueError(
                "ask and tell is for functions; minimize drives a problem's own solver"
            )
        if problem.simulator is not None:
            raise ValueError("ask and tell has two levels; minimize drives a joint simulator")
        limits = Limits.of(max_evals, max_evals_upper, max_evals_lower, max_time)
        ties = Ties.of(stance, tie_tol)
        algorithm = ties.method(problem, method, limits)
        spec = spec_of(problem, algorithm, rng, budget, target, x0, y0, ftol, ctol, ties)
        spec = replace(spec, slopes=NO_SLOPES, blocks=None)  # `tell` takes values only
        super().__init__(
            Session(problem, algorithm, spec, limits),
            counts[0] if declared or problem.G is None else None,
            counts[1] if declared or problem.g is None else None,
        )
