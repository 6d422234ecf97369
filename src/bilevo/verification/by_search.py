"""Verification by searches: the follower's problem at a fixed x, solved again from scratch.

`independent_search` searches the whole box, and also starts at the answer under test. Then
`look_around` evaluates f around the best answer. This shows which differences of f count there
(`core.tolerances`), whether rounding hides the answer, and where f is level. Then `search_ties`
looks among the ties of the best answer for the leader's best and worst F. Finally, `find_steps`
tells whether functions round inside, so that searches say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bilevo.algorithms.shared.basin_moves import APART
from bilevo.algorithms.shared.gradients import POINTS, check_level, inner_points
from bilevo.algorithms.shared.independent_search import (
    Effort,
    Found,
    apart,
    independent_search,
)
from bilevo.algorithms.shared.polish import End
from bilevo.algorithms.shared.surroundings import Surroundings, hidden_distance, look_around
from bilevo.core.problem import Problem
from bilevo.core.request import Evaluate, Incumbent, Level, Request, Values, run, split
from bilevo.core.result import Certificate
from bilevo.core.slopes import WrongGradient
from bilevo.core.space import UnitBox
from bilevo.core.streams import stream
from bilevo.core.tolerances import rounding
from bilevo.run.plateaus import find_steps
from bilevo.run.session import Stopped
from bilevo.verification.certificate import UNKNOWN, Evidence, Tie, make_certificate
from bilevo.verification.follower_problem import (
    Answer,
    Claim,
    Evaluations,
    FollowerProblem,
    Settings,
    at_lower,
    at_upper,
    slopes_lower,
)
from bilevo.verification.inexact import settled
from bilevo.verification.tie_search import (
    TieRule,
    search_near_ties,
    search_ties,
    tied_ends,
)

# How many searches look for the tie with the best F, at most. As many look for the worst F.
TIE_SEARCHES = {Effort.LOW: 1, Effort.NORMAL: 2, Effort.HIGH: 3}


def verify_by_search(
    problem: Problem, claim: Claim, seed: int, effort: Effort, settings: Settings | None = None
) -> Certificate:
    """Return the certificate of a result's pair."""
    verification = Verification(problem, claim, seed, effort, settings)
    found = verification.evidence()
    evaluations = verification.evaluations
    made = make_certificate(found, claim, effort, evaluations.counts, evaluations.failures)
    return replace(made, njev_lower=evaluations.gradients)


class Verification:
    """A verification in progress. What it has found stays when a limit stops it."""

    def __init__(
        self, problem: Problem, claim: Claim, seed: int, effort: Effort, settings: Settings | None
    ) -> None:
        self.evaluations = Evaluations(problem, settings)
        self.follower = FollowerProblem(problem, claim.x, self.evaluations)
        self.searched = Found()
        self._problem, self._constrained = problem, problem.g is not None
        self._given, self._x, self._x_box = problem.slopes_given, claim.x, UnitBox(problem.x_bounds)
        self._y, self._seed, self._effort = claim.y, seed, effort
        self._settings = settings or Settings()
        self._around: Surroundings | None = None
        self._levels: list[End] = []  # answers that tie with the best one
        self._upper: dict[bytes, Values] = {}  # the leader's values, by the bytes of an answer's y

    def evidence(self) -> Evidence:
        """Make the searches, as far as the limits allow, and return what they found."""
        self.evaluations.progress = self._progress
        claimed, upper = Answer(self._y, np.nan, np.nan), UNKNOWN
        missing, hidden, steps = "", 0.0, ""
        try:
            claimed = self.follower.claimed(self._y)
            upper = self.follower.leader(self._y)
            self.evaluations.reserved = 1  # one evaluation is kept for F at a better answer
            self._search(claimed)
            hidden = self._hidden()
            steps = self._steps(claimed, upper)
        except Stopped as stopped:
            missing = self._missing(stopped)
        self.evaluations.reserved = 0
        found = Evidence(
            claimed=Tie(Answer(self._y, claimed.f, claimed.violation), upper),
            best=claimed,
            width=np.maximum(self.follower.box.bounds.width, np.finfo(float).tiny),
            searches=self.searched.made,
            missing=missing,
            hidden=hidden,
            steps=steps,
            stance=self._settings.stance,
            tie_tol=self._settings.tie_tol,
        )
        self._conclude(found, claimed)
        pairs = found.claimed, found.ties
        found.ties = settled(self._problem, self._x, *pairs, self.evaluations)
        return found

    def _search(self, claimed: Answer) -> None:
        """Search the box; look around the best answer; search its ties."""
        search, rng = self.follower.run, stream(self._seed, "verify")
        starts, n = claimed.y[None], self.follower.box.size
        derive = None
        if self._given.whole(Level.LOWER):
            self._check_gradient()
            derive = slopes_lower
        search(independent_search(at_lower, n, rng, self._effort, starts, self.searched, derive))
        best = self.best
        if best.violation > 0 or not np.isfinite(best.f):
            return
        self._around = around = search(look_around(at_lower, best))
        # Local searches end a margin away from constraints, so f of tied answers differs more.
        slack = around.negligible if self._constrained else around.sharp
        content = max(slack, self._settings.tie_tol or 0.0)
        rule = TieRule(best.f + content, best.violation, around.scale)
        twins = TieRule(max(best.f + around.negligible, rule.f), best.violation, around.scale)
        self._levels = tied_ends(apart(self.searched.ends), rule)
        self._levels += tied_ends(self.searched.polished, twins)
        if len(around.level):
            values = self.follower(Level.LOWER, around.level[-1:])
            self._levels += tied_ends([End(around.level[-1], values)], rule)
        self._evaluate_leader([best, *self._levels])
        ties = apart([best, *self._levels])
        F = [float(self._upper[tie.y.tobytes()].objective[0]) for tie in ties]
        most = TIE_SEARCHES[self._effort]
        if content > around.negligible:
            more = search_near_ties(ties, F, best, content, self._seed, most)
        else:
            more = search_ties(ties, F, rule, self._seed, most)
        found = tied_ends(search(more), rule)
        self._evaluate_leader(found)
        self._levels += found

    def _check_gradient(self) -> None:
        """Raise `WrongGradient` if the follower's gradient is wrong at this x."""
        rng, x_box, y_box = stream(self._seed, "verify gradient"), self._x_box, self.follower.box
        x, y = x_box.unit(self._x), inner_points(POINTS, y_box.size, rng)
        try:
            self.follower.run(check_level(Level.LOWER, np.tile(x, (POINTS, 1)), y, rng, "y"))
        except WrongGradient as error:
            error.tell_in_users_units(x_box, y_box)
            raise

    @property
    def best(self) -> End:
        """Return the best answer for the follower among all points that were evaluated."""
        assert self.follower.best is not None
        return self.follower.best

    def _hidden(self) -> float:
        """Return how far from the best answer rounding makes f equal although F differs."""
        if self._around is None or not len(self._around.unresolved):
            return 0.0
        self._evaluate_leader([self.best])
        F = float(self._upper[self.best.y.tobytes()].objective[0])
        return self.follower.run(hidden_distance(at_upper, self.best.y, F, self._around))

    def _steps(self, claimed: Answer, upper: Values) -> str:
        """Return that functions change in steps at the answer under test; "" if none does."""
        boxes, evaluate = (self._x_box, self.follower.box), self.evaluations

        def answer(request: Request) -> Values:
            assert isinstance(request, Evaluate)
            x, y = (box.real(part) for box, part in zip(boxes, request[1:], strict=True))
            return evaluate(request.level, x, y)

        F = float(upper.objective[0])
        pair = Incumbent(self._x, self._y, F, claimed.f, claimed.violation)
        return run(find_steps(pair, boxes), answer)

    def _evaluate_leader(self, ends: Sequence[End]) -> None:
        """Evaluate F, in one batch, at those of the answers where it is not known yet."""
        new = {end.y.tobytes(): end.y for end in ends}
        new = {key: y for key, y in new.items() if key not in self._upper}
        if new:
            values = self.follower(Level.UPPER, np.array(list(new.values())))
            self._upper.update(zip(new, split(values, [1] * len(new)), strict=True))

    def _conclude(self, found: Evidence, claimed: Answer) -> None:
        """Compare the claimed answer with all others, and list the ties."""
        ends = list(self._levels)
        if self.follower.best is not None and not claimed.no_worse(self._answer(self.best)):
            found.best = self._answer(self.best)
            ends.insert(0, self.best)
            with suppress(Stopped):
                self._evaluate_leader([self.best])
        around = self._around
        sharp = found.negligible = rounding(found.best.f)
        if around is not None:
            found.negligible, sharp = around.negligible, around.sharp
        if found.best is not claimed and not self._far(claimed):
            # Near the best answer, the claimed answer is the same answer with an error. Then it is
            # a tie only if both have the same f up to rounding.
            sharp = rounding(found.best.f)
        sharp = max(sharp, found.tie_tol or 0.0)
        if claimed.violation == found.best.violation and claimed.f <= found.best.f + sharp:
            found.ties.append(found.claimed)
        known = [end for end in ends if end.y.tobytes() in self._upper]
        for end in known:
            found.ties.append(Tie(self._answer(end), self._upper[end.y.tobytes()]))
        if not found.ties:
            found.ties.append(Tie(found.best, UNKNOWN))
        places = np.array([tie.answer.y for tie in found.ties])
        found.indifferent = bool((np.ptp(places, axis=0) > APART * found.width).any())
        level = [end for end in self.searched.ends if end.violation == found.best.violation]
        found.agreeing = sum(end.f <= found.best.f + found.negligible for end in level)

    def _far(self, claimed: Answer) -> bool:
        return bool(np.abs(claimed.y - self.best.y).max() > APART)

    def _answer(self, end: End) -> Answer:
        return Answer(self.follower.box.real(end.y[None])[0], end.f, end.violation)

    def _missing(self, stopped: Stopped) -> str:
        made, planned = self.searched.made, self.searched.planned
        if made < planned or not planned:
            return f"stopped at {stopped.reason} after {made} of {planned or 'its'} searches"
        stage = "ties were searched" if self.searched.complete else "the best answers were refined"
        return f"stopped at {stopped.reason} after {made} of {planned} searches, before {stage}"

    def _progress(self) -> str:
        best = "" if self.follower.best is None else f", f {self.follower.best.f:.5g}"
        return f"{self.searched.made} of {self.searched.planned or '?'} searches{best}"
