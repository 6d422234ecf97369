"""Verification by a solver: the problem's own solver, or a second solver, answers again.

The solver is started several times. Each start has its own random stream and knows nothing of the
run. All starts take their steps side by side. If the problem has f as a function, answers are
compared by this function; otherwise, by the values of f that the solver reports.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from bilevo.algorithms.shared.basin_moves import APART
from bilevo.algorithms.shared.independent_search import Effort
from bilevo.algorithms.shared.polish import End
from bilevo.algorithms.shared.surroundings import look_around
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import StopReason
from bilevo.core.problem import Problem
from bilevo.core.request import Level, Values, split
from bilevo.core.result import Certificate
from bilevo.core.solver import MAX_STEPS, Solver, StepOutcome, cost_of
from bilevo.core.stance import Stance
from bilevo.core.streams import SEED_LIMIT, stream
from bilevo.core.tolerances import reported
from bilevo.run.dispatch import NOTHING
from bilevo.run.session import StepBatch, Stopped
from bilevo.run.stepper import Stepper
from bilevo.verification.certificate import UNKNOWN, Evidence, Tie, make_certificate
from bilevo.verification.follower_problem import (
    Answer,
    Claim,
    Evaluations,
    FollowerProblem,
    Settings,
    answers_at,
    at_lower,
    best_answer,
)
from bilevo.verification.inexact import settled

STARTS = {Effort.LOW: 2, Effort.NORMAL: 5, Effort.HIGH: 20}  # How often the solver is started.


def with_solver(problem: Problem, solver: Solver[Any]) -> Problem:
    """Return a copy of a problem whose follower is the given solver."""
    other = copy(problem)
    other.follower = solver
    return other


def verify_by_solver(
    problem: Problem, claim: Claim, seed: int, effort: Effort, settings: Settings | None = None
) -> Certificate:
    """Return the certificate of a result's pair that new starts of the problem's solver give."""
    evaluations = Evaluations(problem, settings)
    starts = Starts(problem, claim.x, STARTS[effort], seed, evaluations)
    evaluations.progress = lambda: f"{starts.ended} of {len(starts.last)} starts"
    nothing = Answer(claim.y, math.nan, math.nan)
    used = evaluations.settings
    found = Evidence(
        Tie(nothing, UNKNOWN),
        nothing,
        problem.y_bounds.width,
        stance=used.stance,
        tie_tol=used.tie_tol,
    )
    try:
        found.claimed = _claimed(problem, claim, evaluations)
        found.best = found.claimed.answer
        evaluations.reserved = 1  # one evaluation is kept for F at a better answer
        starts.run()
    except Stopped as stopped:
        ended = f"{starts.ended} of {len(starts.last)} starts"
        found.missing = f"stopped at {stopped.reason} after {ended}"
    try:
        _compare(found, problem, claim.x, starts, evaluations)
    except Stopped as stopped:
        found.missing = found.missing or f"stopped at {stopped.reason} before F was compared"
    _add_other_stance(found, problem, claim.x, evaluations)
    found.ties = settled(problem, claim.x, found.claimed, found.ties, evaluations)
    found.searches = sum(answer.done for answer in starts.answers)
    _note_unfinished(found, starts)
    if not found.ties:
        found.ties.append(Tie(found.best, UNKNOWN))
    return make_certificate(found, claim, effort, evaluations.counts, evaluations.failures)


def _claimed(problem: Problem, claim: Claim, evaluations: Evaluations) -> Tie:
    """Return the result's pair with its values now.

    F is evaluated again, and so is f if it is a function. Otherwise f is as the result reports it.
    """
    y = claim.y[None].copy()
    upper = evaluations(Level.UPPER, claim.x, y, on_failure="raise")
    if problem.f_is_known:
        lower = evaluations(Level.LOWER, claim.x, y, on_failure="raise")
        return Tie(answers_at(claim.y[None], lower)[0], upper)
    if not math.isfinite(claim.f):
        return Tie(Answer(claim.y, math.inf, math.inf), upper)
    # The result's violation is the sum over both levels, and tolerances leave nothing out of it.
    # So the follower's part is what remains after the leader's part, computed in the same way.
    above = Values.of(upper.objective, upper.constraints, problem.repeats(Level.UPPER), 0)
    below = claim.violation - float(above.violation[0])
    least = max(1e-9 * claim.violation, evaluations.solver_tolerance)
    return Tie(Answer(claim.y, claim.f, below if below > least else 0.0), upper)


class Starts:
    """Independent starts of the problem's solver at x, which take their steps side by side."""

    def __init__(
        self, problem: Problem, x: FloatArray, count: int, seed: int, evaluations: Evaluations
    ) -> None:
        used = evaluations.settings
        own = int(stream(seed, "verify own").integers(SEED_LIMIT))  # not the seed of the run
        self._stepper = Stepper(problem, own, used.on_failure, used.retries, used.workers)
        self._x, self._evaluations, self._cost = x, evaluations, cost_of(problem.follower)
        self.last: list[StepOutcome | None] = [None] * count

    @property
    def ended(self) -> int:
        """Return how many starts are done."""
        return sum(last is not None and last.done for last in self.last)

    @property
    def answers(self) -> list[Answer]:
        """Return the latest answer of each start that has taken a step and did not fail."""
        given = [last for last in self.last if last is not None and last.error is None]
        least = self._evaluations.solver_tolerance
        return [
            Answer(last.y, last.f, last.violation if last.violation > least else 0.0, last.done)
            for last in given
        ]

    @property
    def error(self) -> str | None:
        """Return what went wrong in the first start that failed; None if none failed."""
        return next((last.error for last in self.last if last and last.error), None)

    def run(self) -> None:
        """Take steps until all starts are done, but at most `MAX_STEPS` of each.

        Raises `Stopped` if a limit leaves no room for all of the next steps.
        """
        for taken in range(MAX_STEPS):
            tasks = [i for i, last in enumerate(self.last) if last is None or not last.done]
            if not tasks:
                return
            room = self._evaluations.room(self._cost * len(tasks)) // self._cost
            self._step(tasks[:room], taken)
            if room < len(tasks):
                raise Stopped(StopReason.MAX_EVALS, 0)

    def _step(self, tasks: list[int], taken: int) -> None:
        """Take the next step in each of some starts, which have taken `taken` steps so far."""
        if not tasks:
            return
        x = np.repeat(self._x[None], len(tasks), axis=0)
        x.flags.writeable = False
        batch = StepBatch(np.array(tasks), np.full(len(tasks), taken), x)
        evaluations = self._evaluations

        def keep(batch: StepBatch, i: int, outcome: StepOutcome) -> None:
            self.last[tasks[i]] = outcome
            evaluations.counts[Level.LOWER] += outcome.cost
            evaluations.failures += outcome.error is not None

        self._stepper(batch, NOTHING, keep, lambda: evaluations.time_left)
        evaluations.show()


def _compare(
    found: Evidence, problem: Problem, x: FloatArray, starts: Starts, evaluations: Evaluations
) -> None:
    """Compare the claimed answer with the answers of the starts, and list the ties."""
    claimed, answers = found.claimed.answer, starts.answers
    if not answers or math.isnan(claimed.f):
        found.ties.append(found.claimed)
        return
    if problem.f_is_known:
        y = np.array([answer.y for answer in answers])
        values = evaluations(Level.LOWER, x, y)
        done = [answer.done for answer in answers]
        answers = [replace(a, done=d) for a, d in zip(answers_at(y, values), done, strict=True)]
    found.best = best_answer([claimed, *answers])
    found.negligible = reported(found.best.f)
    whole = problem.y_bounds.has_whole  # then f around the answer says nothing
    if problem.f_is_known and found.best.violation == 0 and not (found.missing or whole):
        found.negligible = _negligible(problem, x, found.best, evaluations)
    evaluations.reserved = 0
    level = [a for a in answers if _is_tied(a, found)]
    found.agreeing = len(level)
    tied = [answer for answer in level if answer is not found.best]
    tied = tied if found.best is claimed else [found.best, *tied]
    if _is_tied(claimed, found):
        found.ties.append(found.claimed)
    if tied:
        y = np.array([answer.y for answer in tied])
        upper = split(evaluations(Level.UPPER, x, y), [1] * len(tied))
        found.ties += [Tie(*pair) for pair in zip(tied, upper, strict=True)]
    places = np.array([tie.answer.y for tie in found.ties])
    found.indifferent = bool((np.ptp(places, axis=0) > APART * found.width).any())


def _add_other_stance(
    found: Evidence, problem: Problem, x: FloatArray, evaluations: Evaluations
) -> None:
    """Ask a solver that takes a stance for the tie that the opposite stance expects."""
    take = getattr(problem.follower, "take_stance", None)
    chooses = any(getattr(problem.follower, name, None) is not None for name in ("tie", "stance"))
    if take is None or found.missing or not chooses:
        found.one_sided = True
        return
    other = next(stance for stance in Stance if stance is not found.stance)
    opposite = with_solver(problem, take(other, found.tie_tol))
    starts = Starts(opposite, x, 1, 1, evaluations)
    try:
        starts.run()
        answers = [answer for answer in starts.answers if answer.done and _is_tied(answer, found)]
        if answers:
            upper = evaluations(Level.UPPER, x, answers[0].y[None].copy())
            found.ties.append(Tie(answers[0], upper))
    except Stopped as stopped:
        found.missing = f"stopped at {stopped.reason} before ties were searched"
    places = np.array([tie.answer.y for tie in found.ties])
    found.indifferent = bool((np.ptp(places, axis=0) > APART * found.width).any())


def _is_tied(answer: Answer, found: Evidence) -> bool:
    best = found.best
    return answer.f <= best.f + found.allowed and answer.violation <= best.violation


def _negligible(problem: Problem, x: FloatArray, best: Answer, evaluations: Evaluations) -> float:
    """Return the largest difference of f that does not count around the best answer."""
    follower = FollowerProblem(problem, x, evaluations)
    row = Values(np.array([best.f]), np.array([best.violation]), np.empty((1, 0)), 0)
    return follower.run(look_around(at_lower, End(follower.box.unit(best.y), row))).negligible


def _note_unfinished(found: Evidence, starts: Starts) -> None:
    """Note how many starts were cut off, and how many failed.

    If starts were cut off, or all failed, that goes to `found.missing`, and the answer is not
    confirmed. If only some failed, it goes to `found.note`.
    """
    answers, count = starts.answers, len(starts.last)
    cut_off = sum(not answer.done for answer in answers)
    if cut_off and not found.missing:
        found.missing = f"{cut_off} of {count} starts were not done after {MAX_STEPS} steps"
    failed = sum(last is not None and last.error is not None for last in starts.last)
    if failed and answers:
        found.note = f"{failed} of {count} starts failed"
    if not answers and starts.error is not None:
        found.missing = f"all starts of the solver failed: {starts.error}"
