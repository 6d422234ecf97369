"""Checks of single requests: their sizes and numbers, and what they claim.

Each check raises a `BadRequest` that says what is wrong and what would be right.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.bounds import Bounds
from bilevo.core.checks import described, is_whole, real_number
from bilevo.core.problem import Spec
from bilevo.core.request import (
    ALONE,
    Answer,
    BadRequest,
    Derive,
    Evaluate,
    Incumbent,
    Level,
    Question,
    Request,
    Step,
    StepValues,
    Values,
    require_rows,
)

FLOAT = np.dtype(np.float64)


class RequestChecks:
    """Checks that a request fits the problem's sizes, and its follower: a function or a solver."""

    def __init__(self, spec: Spec, answers: Bounds | None) -> None:
        self.solver = spec.step_cost is not None
        self._m, self._n = spec.m, spec.n
        self._slopes = spec.slopes
        self._answers = answers  # bounds of a solver's answers, which are in the user's units

    def check(self, request: Any) -> None:
        """Refuse a request that no driver can answer."""
        if isinstance(request, Incumbent):
            self._check_incumbent(request)
            return
        require_rows(request)
        if isinstance(request, Step):
            self._check_steps(request)
            return
        if self.solver and request.level is Level.LOWER:
            raise BadRequest(
                "it evaluates f, and the follower is a solver: ask for its steps by Step"
            )
        if isinstance(request, Derive) and not self._slopes.objective(request.level):
            name = "F" if request.level is Level.UPPER else "f"
            raise BadRequest(
                f"it asks for slopes of {name}, and the problem gives no {name}_jac: look at "
                f"spec.slopes.{name} first"
            )
        kind = type(request).__name__
        self._check_points(request.x, f"{kind}.x", self._m)
        self._check_answers(request.y, f"{kind}.y")

    def _check_answers(self, y: Any, name: str) -> None:
        """Check answers y, which are in the user's units if a solver gives them."""
        self._check_points(y, name, self._n, unit=not self.solver)
        if self.solver:
            assert self._answers is not None
            if not self._answers.contain(y):
                raise BadRequest(
                    f"{name} is outside the follower's bounds; give the y of StepValues"
                )

    def _check_points(self, points: Any, name: str, size: int, unit: bool = True) -> None:
        wanted = f"give an array (k, {size}) of float64"
        if points.dtype != FLOAT or points.shape[1] != size:
            raise BadRequest(f"{name} is {described(points)}; {wanted}")
        if not len(points):
            raise BadRequest(f"{name} has no rows; ask for one pair at least")
        if not np.isfinite(points).all():
            raise BadRequest(
                f"{name} has numbers that are not finite; values that failed are inf, and "
                "inf - inf is NaN"
            )
        if unit and not ((points >= 0) & (points <= 1)).all():
            outside = points[(points < 0) | (points > 1)][0]
            raise BadRequest(
                f"{name} has the coordinate {outside} outside the unit box; clip it to [0, 1]"
            )

    def _check_steps(self, request: Step) -> None:
        if not self.solver:
            raise BadRequest(
                "it asks for steps of a solver, and the follower is a function: use Evaluate"
            )
        task, taken, x, near = request
        for name, numbers, least in (("task", task, 0), ("taken", taken, 0), ("near", near, ALONE)):
            if numbers is not None and (numbers.dtype.kind != "i" or (numbers < least).any()):
                raise BadRequest(
                    f"Step.{name} is {described(numbers)}; give whole numbers from {least} on"
                )
        self._check_points(x, "Step.x", self._m)
        if len(set(task.tolist())) < len(task):
            raise BadRequest("Step asks for two steps of one task; ask for one after the other")

    def _check_incumbent(self, best: Incumbent) -> None:
        for name, point, size in (("x", best.x, self._m), ("y", best.y, self._n)):
            if type(point) is not np.ndarray or point.shape != (size,):
                raise BadRequest(f"Incumbent.{name} is {described(point)}; give an array ({size},)")
        for name in ("F", "f", "violation", "gap"):
            number = real_number(given := getattr(best, name))
            if number is None:
                raise BadRequest(f"Incumbent.{name} is {described(given)}; give a number")
            if math.isnan(number) and name != "gap":
                raise BadRequest(f"Incumbent.{name} is NaN; what failed has the value inf")
        for name in ("unfinished", "certified"):
            if not isinstance(given := getattr(best, name), bool | np.bool_):
                raise BadRequest(f"Incumbent.{name} is {described(given)}; give a bool")
        for name in ("searches", "agreeing", "check_evals"):
            if not is_whole(given := getattr(best, name)) or given < 0:
                raise BadRequest(f"Incumbent.{name} is {described(given)}; give a whole number")
        if not isinstance(best.doubt, str):
            raise BadRequest(f"Incumbent.doubt is {described(best.doubt)}; give a text")
        if best.violation < 0:
            raise BadRequest(f"Incumbent.violation is {best.violation}; it is 0 or more")
        self._check_points(best.x[None], "Incumbent.x", self._m)
        if not (self.solver and math.isinf(best.violation)):  # a solver that failed has no answer
            self._check_answers(best.y[None], "Incumbent.y")


class Pairs:
    """The hashes and the values of all pairs that were evaluated at a level."""

    def __init__(self) -> None:
        self._hashes, self._objective, self._violation = array("q"), array("d"), array("d")

    def add(
        self, x: FloatArray, y: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        """Keep the values of pairs."""
        self._hashes.extend(map(_hash, x, y))
        self._objective.extend(objective.tolist())
        self._violation.extend(violation.tolist())

    def at(self, best: Incumbent) -> list[tuple[float, float]]:
        """Return all values found at a pair, each with its violation. Noise may give several."""
        wanted = _hash(best.x, best.y)
        known = np.flatnonzero(np.frombuffer(self._hashes, np.int64) == wanted)
        return [(self._objective[i], self._violation[i]) for i in known]


class Memory:
    """Earlier requests and answers, to check later requests against them."""

    def __init__(self, earlier_unknown: bool, solver: bool) -> None:
        self._earlier_unknown, self._solver = earlier_unknown, solver
        self._asked: Question | None = None
        self._pairs = {level: Pairs() for level in Level}
        self._tasks: dict[int, tuple[int, bytes, bool, int]] = {}  # steps, leader, done, neighbour

    def check(self, request: Request) -> None:
        """Refuse a request that contradicts earlier requests and answers."""
        if isinstance(request, Incumbent):
            self._check_claim(request)
            return
        self._asked = request
        if isinstance(request, Step):
            self._check_order(request)

    def answered(self, answer: Answer) -> None:
        """Remember the answer to the last request."""
        asked = self._asked
        if isinstance(asked, Step) and isinstance(answer, StepValues):
            rows = zip(asked.task.tolist(), asked.taken.tolist(), asked.x, answer.done, strict=True)
            for row, (task, taken, x, done) in enumerate(rows):
                self._tasks[task] = taken + 1, x.tobytes(), bool(done), asked.neighbour(row)
            self._pairs[Level.LOWER].add(asked.x, answer.y, answer.f, answer.violation)
        elif isinstance(asked, Evaluate):
            assert isinstance(answer, Values)
            values = answer.objective, answer.violation
            self._pairs[asked.level].add(asked.x, asked.y, *values)

    def _check_claim(self, best: Incumbent) -> None:
        """Refuse a best pair whose values were not evaluated."""
        if self._solver and math.isinf(best.violation) and math.isinf(best.F):
            return  # the solver failed, so nothing is claimed
        upper = self._violations(Level.UPPER, best, "F", best.F)
        lower = self._violations(Level.LOWER, best, "f", best.f)
        totals = [above + below for above in upper for below in lower]
        if totals and not any(_close(best.violation, total) for total in totals):
            raise BadRequest(
                f"Incumbent.violation is {float(best.violation)!r}, and the sum of both levels' "
                f"violations was {totals[-1]!r}"
            )

    def _violations(self, level: Level, best: Incumbent, name: str, claimed: float) -> list[float]:
        """Return the violations that a level's evaluations of the pair gave with the claimed value.

        Raises `BadRequest` if there is none, unless earlier evaluations are not known here.
        """
        found = self._pairs[level].at(best)
        claims = [violation for value, violation in found if value == claimed]
        if claims or self._earlier_unknown:
            return claims
        if not found:
            raise BadRequest(
                f"the Incumbent's pair was not evaluated at the {level} level: "
                f"Evaluate(Level.{level.name}, x, y) first, at this very pair"
            )
        raise BadRequest(
            f"Incumbent.{name} is {float(claimed)!r}, and its pair was evaluated to "
            f"{found[-1][0]!r}"
        )

    def _check_order(self, request: Step) -> None:
        """Refuse a step that does not follow the last step of its task."""
        rows = zip(request.task.tolist(), request.taken.tolist(), request.x, strict=True)
        for row, (task, taken, x) in enumerate(rows):
            near = request.neighbour(row)
            if near != ALONE and not self._is_done(near):
                raise BadRequest(f"Step.near is {near} for task {task}: no task that is done")
            if task not in self._tasks:
                if taken and not self._earlier_unknown:
                    raise BadRequest(f"Step asks for step {taken + 1} of the new task {task}")
                continue
            had, leader, done, before = self._tasks[task]
            if done:
                raise BadRequest(f"Step asks for a step of task {task}, which is done")
            if taken != had:
                raise BadRequest(f"Step.taken is {taken} for task {task}, which has had {had}")
            if x.tobytes() != leader:
                raise BadRequest(f"Step.x is another leader for task {task} than before")
            if near != before:
                raise BadRequest(f"Step.near is {near} for task {task}, and was {before} before")

    def _is_done(self, task: int) -> bool:
        if task not in self._tasks:
            return self._earlier_unknown
        return self._tasks[task][2]


def _close(told: float, value: float) -> bool:
    return told == value or math.isclose(told, value, rel_tol=1e-9)


def _hash(x: FloatArray, y: FloatArray) -> int:
    return hash((x.tobytes(), y.tobytes()))
