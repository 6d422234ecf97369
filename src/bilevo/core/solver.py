"""The protocol of solvers, which may be a problem's follower, and checks of their answers.

    state = solver.start(x, rng)
    while not solver.done(state):
        state = solver.advance(state)
        y, f, violation = solver.best(state)

One call of `advance` is a step, and tasks compete for steps. A step may be a linear program, some
epochs of training, some iterations, or a generation of a population. An exact solver is done after
one step.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.budget import require_count
from bilevo.core.checks import shown
from bilevo.core.values import BadValue, Returned

SolverState = TypeVar("SolverState")
MAX_STEPS = 1000  # a search ends after this number of steps if it never says it is done
# An answer may be outside a bound by this share of max(width, 1): that is taken for rounding.
BOUND_SLACK = 1e-6


class Neighbour(NamedTuple):
    """A finished search near by: its leader x (m,), its answer y (n,), f, and the solver's hint.

    All are read-only and in the user's units. `hint` is None if the solver gives none.
    """

    x: FloatArray
    y: FloatArray
    f: float
    hint: FloatArray | None = None


class Solver(Protocol[SolverState]):
    """A solver of the lower level. Four more members, and one argument, are optional:

    cost
        The largest cost of one `advance`, in the units of `max_evals`. It is 1 by default.
    spent(state)
        The total cost of a search so far. Without this member, each step costs `cost`.
    bind(problem)
        Return the solver to use for a problem. Solvers that need f, g or bounds take them here.
        `Problem` calls this once.
    start(x, rng, near=None)
        A solver whose `start` has an argument `near` may begin where a search near by has ended.
        `near` is a `Neighbour`, or None. It is decided by the signature (a parameter `near`, or
        any keyword), once for a run.
    hint(state)
        Return what such a later search needs beside y: an array (h,) of numbers. It is asked for
        when a search is done, and is stored in the journal with the answer.

    A state of arrays, numbers, texts, lists, dictionaries, dataclasses and numpy's generators is
    stored in the run directory; after a crash, any other state is computed again. `advance` may
    change its state in place, and must do the same for equal states. All that changes belongs into
    the state: the solver's fields are settings, by which a run directory recognizes the solver.
    """

    def start(self, x: FloatArray, rng: np.random.Generator) -> SolverState:
        """Return the state of a search for the answer to x (m,), before its first step."""

    def advance(self, state: SolverState) -> SolverState:
        """Take one step, and return the state after it."""

    def best(self, state: SolverState) -> tuple[Any, float, float]:
        """Return the best answer so far: y (n,) as the leader sees it, its f, and its violation."""

    def done(self, state: SolverState) -> bool:
        """Tell whether further steps would change nothing."""


class StepOutcome(NamedTuple):
    """The outcome of one step: the best answer y (n,) so far, and the cost of the step.

    f and violation are inf where the answer is not finite. A step that failed has an `error`.
    """

    y: FloatArray
    f: float
    violation: float
    done: bool
    cost: int
    error: str | None = None
    hint: FloatArray | None = None  # for searches near by, if the solver is done

    @property
    def counted(self) -> int:
        return self.cost


def bind_solver(follower: Any, problem: Any) -> Solver[Any]:
    """Return the solver to use for a problem; refuse anything that is no solver."""
    solver = require_solver(follower)
    bind = getattr(follower, "bind", None)
    return require_solver(bind(problem)) if callable(bind) else solver


def require_solver(follower: Any) -> Solver[Any]:
    needed = ("start", "advance", "best", "done")
    missing = [name for name in needed if not callable(getattr(follower, name, None))]
    if missing or isinstance(follower, type):
        raise ValueError(
            "a follower is an object with the methods start, advance, best and done, "
            f"got {shown(follower)}" + (f", which has no {', '.join(missing)}" if missing else "")
        )
    require_count("follower.cost", cost_of(follower), optional=False)
    solver: Solver[Any] = follower
    return solver


def takes_neighbours(follower: Any) -> bool:
    """Tell whether a solver's `start` has an argument `near`, or takes any keyword."""
    try:
        parameters = inspect.signature(follower.start).parameters
    except (TypeError, ValueError):  # some compiled functions have no signature
        return False
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return any(
        (name == "near" and one.kind in named) or one.kind is inspect.Parameter.VAR_KEYWORD
        for name, one in parameters.items()
    )


def cost_of(follower: Any) -> int:
    """Return the largest cost of a step."""
    cost: Any = getattr(follower, "cost", 1)
    return int(cost) if isinstance(cost, np.integer) else cost


def _require_state(state: Any, method: str) -> Any:
    if state is None:  # usually a forgotten `return`; elsewhere None stands for a lost state
        raise BadValue(
            f"the follower's {method} returned None: it must return the state, also one that it "
            "has changed in place; what changes with x belongs into the state"
        )
    return state


class CheckedSolver:
    """A solver whose answers are checked."""

    __slots__ = ("_lower", "_numbers", "_slack", "_upper", "follower")

    def __init__(self, follower: Solver[Any], lower: FloatArray, upper: FloatArray) -> None:
        self.follower = follower
        self._lower, self._upper = lower, upper
        self._slack = BOUND_SLACK * np.maximum(upper - lower, 1.0)
        self._numbers = Returned("lower", vectorized=False)

    def start(self, x: FloatArray, rng: np.random.Generator, near: Neighbour | None = None) -> Any:
        """Return the state of a search before its first step.

        Only a solver that takes neighbours may be given one: see `takes_neighbours`.
        """
        more: dict[str, Any] = {} if near is None else {"near": near}
        return _require_state(self.follower.start(x, rng, **more), "start")

    def advance(self, state: Any, first: bool) -> tuple[Any, StepOutcome]:
        """Take a step; return the state and the outcome. The first step also pays for the start."""
        before = 0 if first else self._spent(state)
        state = _require_state(self.follower.advance(state), "advance")
        answer, done, cost = self.best(state), self._done(state), self._cost(state, before)
        return state, StepOutcome(*answer, done, cost, hint=self._hint(state) if done else None)

    def best(self, state: Any) -> tuple[FloatArray, float, float]:
        """Return the best answer: y, f and violation.

        If one of these numbers is not finite, f and violation are inf.
        """
        told = self.follower.best(state)
        if not isinstance(told, tuple) or len(told) != 3:
            raise BadValue(f"the follower's best must be a tuple (y, f, violation), got {told!r}")
        y = self._inside(told[0])
        f = self._numbers.number(told[1], "f")
        violation = self._numbers.number(told[2], "violation")
        if violation < 0:
            raise BadValue(f"the follower's violation must be 0 or more, got {violation}")
        if not (np.isfinite(y).all() and math.isfinite(f) and math.isfinite(violation)):
            return y, math.inf, math.inf
        return y, f, violation

    def _inside(self, told: Any) -> FloatArray:
        y = self._numbers.real(told, "answer")
        if y.shape != self._lower.shape and not (y.ndim == 0 and self._lower.shape == (1,)):
            raise BadValue(f"the follower's y is of shape {y.shape}, not {self._lower.shape}")
        y = y.reshape(self._lower.shape)
        outside = (y < self._lower - self._slack) | (y > self._upper + self._slack)
        if outside.any():
            i = int(np.argmax(outside))
            raise BadValue(
                f"the follower's y[{i}] = {y[i]} is outside its bounds "
                f"({self._lower[i]}, {self._upper[i]})"
            )
        return frozen(np.clip(y, self._lower, self._upper))

    def _done(self, state: Any) -> bool:
        done = self.follower.done(state)
        if not isinstance(done, bool | np.bool_):
            raise BadValue(f"the follower's done must be True or False, got {done!r}")
        return bool(done)

    def _hint(self, state: Any) -> FloatArray | None:
        """Return what a search near by may start from, or None if the solver has no `hint`."""
        told = getattr(self.follower, "hint", None)
        if told is None:
            return None
        hint = self._numbers.real(told(state), "hint")
        if hint.ndim != 1:
            raise BadValue(f"the follower's hint must be an array (h,), got the shape {hint.shape}")
        return frozen(hint)

    def _spent(self, state: Any) -> int:
        """Return the cost of a search so far, or 0 if the solver does not say."""
        spent = getattr(self.follower, "spent", None)
        if spent is None:
            return 0
        told = self._numbers.number(spent(state), "spent")
        if not told.is_integer():
            raise BadValue(f"the follower's spent must be a whole number, got {told}")
        return int(told)

    def _cost(self, state: Any, before: int) -> int:
        most = cost_of(self.follower)
        if not hasattr(self.follower, "spent"):
            return most
        cost = self._spent(state) - before
        if not 0 <= cost <= most:
            raise BadValue(f"the follower spent {cost} in a step; its `cost` says at most {most}")
        return cost
