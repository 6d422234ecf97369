"""A check that the functions are still the same when a run is resumed.

A journal identifies a run by its settings and sizes, but not by what its functions compute. So the
best pair is evaluated again before the run continues. The problem's own solver also repeats the
first step of a search. A difference is a warning and no error, because functions may be noisy.
"""

from __future__ import annotations

import json
import math

import numpy as np

from bilevo.core.plain_data import revive_fields
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Incumbent, Level, Values
from bilevo.core.solver import StepOutcome
from bilevo.run import encoding
from bilevo.run.dispatch import OnFailure
from bilevo.run.evaluator import Evaluator
from bilevo.run.executors import Workers
from bilevo.run.session import Batch, Evaluated, Session, StepBatch
from bilevo.run.stepper import Stepper
from bilevo.run.stored import StoredRun
from bilevo.run.warn import warn_user

MAX_CHECK_TIME = 60.0  # There is no check if an evaluation took more than this many seconds.
ROUNDING = 1e-9  # The relative tolerance: rounding may depend on the number of rows in one call.


class Recheck:
    """Evaluates stored points again, and warns if their values have changed."""

    def __init__(
        self,
        problem: Problem,
        spec: Spec,
        stored: StoredRun,
        settings: tuple[OnFailure, float, Workers | None],
    ) -> None:
        self._problem, self._seed, self._stored = problem, spec.seed, stored
        self._settings = settings
        self._slight = spec.ftol if problem.vectorized else 0.0

    def __call__(self, session: Session) -> None:
        """Compare the stored values with new ones before a session continues."""
        if self._stored.longest > MAX_CHECK_TIME:
            return
        record = session.record
        if record.best is not None and math.isfinite(record.best.F):
            record.rechecked += self._evaluate_again(record.best)
        if self._stored.first_step is not None and self._problem.follower is not None:
            record.rechecked += self._step_again()

    def _evaluate_again(self, best: Incumbent) -> int:
        """Evaluate the best pair again, and return the number of evaluations."""
        levels = [(Level.UPPER, "F", best.F)]
        if self._problem.follower is None and math.isfinite(best.f):
            levels.append((Level.LOWER, "f", best.f))
        place, violation = f"at x = {best.x.tolist()}, y = {best.y.tolist()}", 0.0
        cost = len(levels) if self._problem.simulator is None else 1
        now: Evaluated | None = None
        for level, name, stored in levels:
            try:
                if now is not None and now.other is not None:  # a simulation gave both levels
                    now = Evaluated(*now.other, {})
                else:
                    batch = Batch(level, _row(best.x), _row(best.y))
                    now = Evaluator(self._problem, *self._settings)(batch)
            except Exception as error:  # the user's functions may raise anything
                self._warn(f"{name} {place} was {stored!r} and now raises {type(error).__name__}")
                return cost
            if now.errors:
                self._warn(f"{name} {place} was {stored!r} and now fails: {now.errors[0]}")
                return cost
            if not self._same(now.objective.item(), stored):
                self._warn(f"{name} {place} was {stored!r} and is {now.objective.item()!r} now")
            values = Values.of(*now[:2], self._problem.repeats(level), 0)
            violation += values.violation.item()
        before = best.violation + best.tolerated
        if len(levels) == 2 and not self._same(violation, before):
            self._warn(f"the violation {place} was {before!r} and is {violation!r} now")
        return cost

    def _step_again(self) -> int:
        """Take the first step of a stored search again, and return its cost in evaluations."""
        assert self._stored.first_step is not None
        content = json.loads(self._stored.first_step.payload)
        stored = encoding.step_outcome(content)
        x = revive_fields(Incumbent, {"x": content["x"]})["x"]
        if x.shape != (self._problem.m,) or not self._problem.x_bounds.contain(x):
            return 0  # no run writes such a journal
        place = f"the follower's first step at x = {x.tolist()}"
        batch = StepBatch(np.array([content["task"]]), np.array([0]), _row(x))
        try:
            (now,) = Stepper(self._problem, self._seed, *self._settings)(batch)
        except Exception as error:  # the user's solver may raise anything
            self._warn(f"{place} now raises {type(error).__name__}")
            return stored.cost
        if not self._same_step(now, stored):
            before, after = stored.y.tolist(), now.y.tolist()
            self._warn(
                f"{place} led to y = {before}, f = {stored.f!r}, and now to y = {after}, "
                f"f = {now.f!r}"
            )
        return now.cost

    def _same(self, now: float, stored: float) -> bool:
        tolerances = {"rel_tol": ROUNDING, "abs_tol": self._slight}
        return now == stored or math.isclose(now, stored, **tolerances)

    def _same_step(self, now: StepOutcome, stored: StepOutcome) -> bool:
        alike = np.allclose(now.y, stored.y, rtol=ROUNDING, atol=self._slight, equal_nan=True)
        return bool(alike) and self._same(now.f, stored.f) and now.done == stored.done

    def _warn(self, what: str) -> None:
        warn_user(
            f"{what}: the stored part of the run and the rest come from different functions, "
            "unless these are noisy. recheck=False leaves the comparison out"
        )


def _row(point: np.ndarray) -> np.ndarray:
    row = np.array(point, dtype=np.float64)[None]
    row.setflags(write=False)
    return row
