"""The record of a run: its counters, best pair and history, from which its result is made.

A live run updates its record as it goes. Reading the journal of the run gives an equal record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Choice
from bilevo.core.budget import StopReason
from bilevo.core.feasibility import Tolerances, level_tolerances
from bilevo.core.request import Derive, Incumbent, Level, Question
from bilevo.core.result import NOT_CERTIFIED, Certificate, Failure, Generation, History, Result
from bilevo.core.stance import Stance
from bilevo.version import __version__

Choices = tuple[dict[int, Choice], dict[int, Choice]]
MAX_LISTED = 100  # The most failed points that a result lists.

NO_EQUILIBRIUM = (
    "no equilibrium of the followers was found: at the best pair, a follower gains {residual:.3g} "
    "by another answer"
)
_UNSETTLED = "stopped before it settled"
REACHED = f"{_UNSETTLED}: the limit on evaluations is reached"
UNUSED = " (it cut a step off, and the last {points} values are not used)"
_REASONS = {
    StopReason.TARGET: "F reached the target",
    StopReason.STAGNATION: "the search has settled: F improves no more",
    StopReason.BUDGET: f"{_UNSETTLED}: the method's own budget is used up",
    StopReason.MAX_EVALS: f"{_UNSETTLED}: the limit on evaluations leaves no room for the next "
    "batch of {points}",
    StopReason.MAX_TIME: f"{_UNSETTLED}: the time limit is reached",
    StopReason.CALLBACK: f"{_UNSETTLED}: the callback ended the run",
    StopReason.INTERRUPTED: f"{_UNSETTLED}: interrupted by the user",
    StopReason.RUNNING: "still running",
}


@dataclass(slots=True)
class RunRecord:
    """A run's counters, failures, history, and best pair in the user's coordinates."""

    counts: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    gradients: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    # Points that were evaluated before; only whole numbers and choices have any.
    repeats: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    failures: int = 0
    history: History = field(default_factory=History)
    best: Incumbent | None = None
    rechecked: int = 0  # evaluations made again when the run was resumed, which `counts` leaves out
    tolerances: Tolerances = field(default_factory=level_tolerances)
    simulations: int | None = None  # of a joint problem; None if each level is evaluated alone
    _failed: list[tuple[int, Failure]] = field(default_factory=list)  # (piece's number, failure)

    def counter(self, request: Question) -> dict[Level, int]:
        """Return the counters of evaluations, or of gradients, to which a request adds."""
        return self.gradients if isinstance(request, Derive) else self.counts

    def count(self, request: Question, points: int) -> None:
        """Count evaluations, or gradients, that were made for a request."""
        self.counter(request)[request.level] += points
        if self.simulations is not None and not isinstance(request, Derive):
            self.simulations += points

    @property
    def evaluations(self) -> int:
        """Return the evaluations of both levels; of a joint problem, the simulations."""
        return sum(self.counts.values()) if self.simulations is None else self.simulations

    def note_failures(self, batch: Question, y: FloatArray, errors: Mapping[int, str]) -> None:
        """Add the failed rows of the present batch; `y` (k, n) has the answers of all its rows."""
        for row, error in errors.items():
            if not self.lists_more:
                self.failures += 1
                continue
            number = self.counter(batch)[batch.level] + row + 1
            self.add_failures([Failure(batch.level.value, number, batch.x[row], y[row], error)])

    def add_failures(self, failures: list[Failure], piece: int | None = None) -> None:
        """Add failed points to the list.

        A piece is a part of a batch that is evaluated by one job. Pieces of one batch may be read
        in any order, so the list is sorted by the number `piece`. Failures without a number are put
        at the end.
        """
        last = self._failed[-1][0] if self._failed else 0
        place = last if piece is None else piece
        self.failures += len(failures)
        self._failed += [(place, failure) for failure in failures]
        if place < last:
            self._failed.sort(key=lambda failed: failed[0])
        if len(self._failed) > 2 * MAX_LISTED:
            del self._failed[MAX_LISTED:]

    def note(self, row: Generation) -> None:
        """Add a generation to the history, with the x and y of the best pair."""
        if self.best is not None:
            last = self.history[-1] if len(self.history) else row
            x, y = tuple(self.best.x.tolist()), tuple(self.best.y.tolist())
            same = (x, y) == (last.x, last.y)  # long histories need less memory if rows share them
            row = replace(row, x=last.x if same else x, y=last.y if same else y)
        self.history.add(row)

    @property
    def lists_more(self) -> bool:
        """Tell whether a result would list the next failure."""
        return len(self._failed) < MAX_LISTED

    @property
    def failed_points(self) -> list[Failure]:
        """Return the first failed points, in the order of their requests."""
        return [failure for _, failure in self._failed[:MAX_LISTED]]

    def result(
        self,
        m: int,
        n: int,
        reason: StopReason,
        refused: int,
        time: float,
        method: str,
        seed: int,
        kernel: str,
        choices: Choices = ({}, {}),
        equilibrium: bool = False,
        stance: Stance = Stance.OPTIMISTIC,
        tie_tol: float | None = None,
        unused: int = 0,
    ) -> Result:
        """Return the result so far; `refused` is how many points a limit left no room for.

        `unused` is how many were evaluated in a batch that a limit cut off.

        `choices` has the choices among the variables of x and of y, by their indices.
        `equilibrium` says that the follower's answers are equilibria of several followers.
        """
        best = self.best or Incumbent(
            np.full(m, np.nan), np.full(n, np.nan), np.nan, np.nan, np.inf
        )
        result = Result(
            x=best.x.copy(),
            y=best.y.copy(),
            F=best.F,
            f=best.f,
            violation=best.violation + best.tolerated,
            nfev_upper=self.counts[Level.UPPER],
            nfev_lower=self.counts[Level.LOWER],
            njev_upper=self.gradients[Level.UPPER],
            njev_lower=self.gradients[Level.LOWER],
            nit=self.history.count,
            success=False,
            status=reason,
            message="",
            time=time,
            method=method,
            seed=seed,
            version=__version__,
            kernel=kernel,
            failures=self.failures,
            failed_points=self.failed_points,
            history=self.history.copy(),
            rechecked=self.rechecked,
            within_ctol=best.violation == 0,
            ctol=tuple(tolerance.ctol for tolerance in self.tolerances.values()),
            constraint_scales=tuple(one.settled_scales for one in self.tolerances.values()),
            simulations=self.simulations,
            repeats=sum(self.repeats.values()),
            labels=_labels(best, choices),
            stance=stance,
            tie_tol=tie_tol,
        )
        told = _answer(result, best)
        if equilibrium and best.f > 0:
            told = NO_EQUILIBRIUM.format(residual=best.f)
        why = _REASONS[reason].format(points=refused)
        if reason is StopReason.MAX_EVALS and not refused:
            why = REACHED + (UNUSED.format(points=unused) if unused else "")
        result.message = f"{why}; {told}"
        if best.searches or best.compared:
            result.accept(own_certificate(result, best))
        return result


def _labels(best: Incumbent, choices: Choices) -> list[str]:
    """Return the label of each choice in the answer, as in "x[2] = coal"."""
    return [
        f"{name}[{i}] = {choice.labels[int(point[i])]}"
        for name, point, ones in zip("xy", (best.x, best.y), choices, strict=True)
        for i, choice in ones.items()
        if np.isfinite(point[i])
    ]


def own_certificate(result: Result, best: Incumbent) -> Certificate:
    """Return the certificate that the method itself made for its best pair.

    If searches found nothing better, but too few agree, the gap is not known, and is NaN.
    """
    confirmed = best.certified and not best.unfinished
    return Certificate(
        y=best.y.copy(),
        F=best.F,
        f=best.f - max(best.gap, 0.0),
        follower_gap=best.gap if confirmed or best.gap > 0 else np.nan,
        feasible=result.feasible,
        nfev_lower=best.check_evals,
        nfev_upper=0,
        message=_answer(result, best),
        confirmed=confirmed,
        by=result.method,
        searches=best.searches,
        agreeing=best.agreeing,
        indifferent=best.F_optimistic != best.F_pessimistic and bool(best.ties),
        F_best=best.F_optimistic if best.ties else best.F,
        F_worst=best.F_pessimistic if best.ties else best.F,
        ties=best.ties,
    )


def _answer(result: Result, best: Incumbent) -> str:
    """Return, in words, whether the answer is feasible, and what is known about its follower."""
    if result.feasible:
        return f"the answer is feasible, {_certainty(best)}"
    if np.isfinite(result.F) and np.isfinite(result.f):
        return f"the best pair violates constraints by {result.violation:.3g}"
    if np.isnan(result.x).any():
        return "no value of F was computed before that"
    return "no pair with finite values was found"


def _certainty(best: Incumbent) -> str:
    """Return, in words, whether the follower's answer is certified, and if not, why."""
    if best.unfinished:
        return "but its follower's solver was not done"
    if not (best.searches or best.doubt or best.compared):
        return NOT_CERTIFIED
    agree = f"{best.agreeing} of {best.searches} independent searches agree"
    if best.certified and best.compared:
        real = f" ({agree} on its real numbers)" if best.searches else ""
        cells = f"all {best.compared} combinations of its whole numbers"
        return f"and its follower is certified: {cells} were compared{real}"
    if best.certified:
        return f"and its follower is certified: {agree}, and none found a better answer"
    few = "too few searches: " if best.agreeing == best.searches else "only "
    return f"but its follower is not certified: {best.doubt or few + agree}"
