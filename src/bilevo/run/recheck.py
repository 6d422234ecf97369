"""One stored point evaluated again when a run is resumed: is it still the same problem?

A journal tells a run by its settings and sizes; it cannot see what functions compute. So the best
pair is evaluated again before the run goes on, and a solver takes the first step of one of its
searches again. A difference is a warning and no error, for functions may be noisy.
"""

from __future__ import annotations

import json
import math

import numpy as np

from bilevo.core.follower import Move
from bilevo.core.problem import Problem
from bilevo.core.request import Incumbent, Level
from bilevo.core.result import revive
from bilevo.run import encoding
from bilevo.run.advance import Advancer
from bilevo.run.evaluate import Evaluator
from bilevo.run.executors import Workers
from bilevo.run.labour import OnFailure
from bilevo.run.session import Batch, Session, Turns
from bilevo.run.stored import StoredRun
from bilevo.run.warn import warn_user

LONGEST = 60.0  # seconds of an evaluation that is not made for the sake of comparison
ROUNDING = 1e-9  # relative: vectorised functions may round otherwise for other numbers of rows


class Recheck:
    """Evaluates a stored point again, and warns where that gives another value."""

    def __init__(
        self,
        problem: Problem,
        seed: int,
        stored: StoredRun,
        labour: tuple[OnFailure, int, Workers | None],
    ) -> None:
        self._problem, self._seed, self._stored, self._labour = problem, seed, stored, labour

    def __call__(self, session: Session) -> None:
        """Compare, once, before a session goes on."""
        if self._stored.longest > LONGEST:
            return
        record = session.record
        if record.best is not None and math.isfinite(record.best.F):
            record.rechecked += self._evaluate_again(record.best)
        if self._stored.first_step is not None and self._problem.follower is not None:
            record.rechecked += self._step_again()

    def _evaluate_again(self, best: Incumbent) -> int:
        """Evaluate the best pair; return the number of evaluations."""
        levels = [(Level.UPPER, "F", best.F)]
        if self._problem.follower is None and math.isfinite(best.f):
            levels.append((Level.LOWER, "f", best.f))
        for level, name, stored in levels:
            place = f"{name} at x = {best.x.tolist()}, y = {best.y.tolist()}"
            try:
                batch = Batch(level, _row(best.x), _row(best.y))
                now = Evaluator(self._problem, *self._labour)(batch).objective.item()
            except Exception as error:  # that of the user's function
                self._warn(f"{place} was {stored!r} and now raises {type(error).__name__}")
                continue
            if not _same(now, stored):
                self._warn(f"{place} was {stored!r} and is {now!r} now")
        return len(levels)

    def _step_again(self) -> int:
        """Take the first step of a stored search; return what it cost."""
        assert self._stored.first_step is not None
        content = json.loads(self._stored.first_step.payload)
        stored, x = encoding.move(content), revive({"x": content["x"]})["x"]
        place = f"the follower's first step at x = {x.tolist()}"
        turns = Turns(np.array([content["task"]]), np.array([0]), _row(x))
        try:
            (now,) = Advancer(self._problem, self._seed, *self._labour)(turns)
        except Exception as error:  # that of the user's solver
            self._warn(f"{place} now raises {type(error).__name__}")
            return stored.cost
        if not _same_step(now, stored):
            before, after = stored.y.tolist(), now.y.tolist()
            self._warn(
                f"{place} led to y = {before}, f = {stored.f!r}, and now to y = {after}, "
                f"f = {now.f!r}"
            )
        return now.cost

    def _warn(self, what: str) -> None:
        warn_user(
            f"{what}: the stored part of the run and the rest are of different functions, unless "
            "they are noisy. recheck=False leaves the comparison out"
        )


def _row(point: np.ndarray) -> np.ndarray:
    row = np.array(point, dtype=np.float64)[None]
    row.setflags(write=False)
    return row


def _same(now: float, stored: float) -> bool:
    return now == stored or math.isclose(now, stored, rel_tol=ROUNDING)


def _same_step(now: Move, stored: Move) -> bool:
    alike = np.allclose(now.y, stored.y, rtol=ROUNDING, atol=0.0, equal_nan=True)
    return bool(alike) and _same(now.f, stored.f) and now.done == stored.done
