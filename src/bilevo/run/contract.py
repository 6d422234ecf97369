"""The contract with algorithms: checks of what they ask for and return.

A `BadRequest` says what was wrong and what would be right. It is raised for a request of a wrong
type or shape, for points that are not finite or outside the unit box, for a best pair whose F was
not evaluated, and for a generation that returns no state.

Types, shapes and the unit box are checked for all algorithms, in less than three microseconds a
request. Checks against earlier requests are made only if the algorithm, or a part of it such as its
optimizer, comes from outside this package.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from bilevo.core.algorithm import Algorithm
from bilevo.core.budget import OWN_ENDS, StopReason
from bilevo.core.checks import described
from bilevo.core.problem import Problem, Spec
from bilevo.core.request import Answer, BadRequest, Evaluate, Incumbent, Level, Request
from bilevo.core.users_code import mark
from bilevo.run.request_checks import FLOAT, Memory, RequestChecks

MAX_IDLE = 10_000  # The most best pairs and generations in a row without an evaluation.
# The fields of a state with an entry per task: the kinds of their dtypes, and what they hold.
TASKS = {"executions": ("iu", "whole numbers"), "survived": ("b", "True and False")}
_BITS = np.dtype(np.uint64)
_ONE = np.array(1.0).view(_BITS)  # Bits of floats in [0, 1], as whole numbers, are at most this.
_above = np.greater  # To search the bytes of its result for a 1 is twice as fast as `any`.


class Contract:
    """Checks an algorithm's requests and states, one after another.

    `earlier_unknown` is True if the run continues from a stored state. Evaluations before that
    state are not known here, so a best pair that was not evaluated after it is accepted.
    """

    def __init__(
        self, algorithm: Algorithm[Any], spec: Spec, problem: Problem, earlier_unknown: bool = False
    ) -> None:
        self._name, self._state = algorithm.name, algorithm.State
        self._m, self._n = spec.m, spec.n
        self._checks = RequestChecks(spec, problem.y_bounds)
        self._memory = None
        if not _is_ours(algorithm):
            self._memory = Memory(earlier_unknown, self._checks.solver)
        self._idle = 0

    def run(
        self, method: Callable[..., Any], name: str, *arguments: Any
    ) -> Generator[Request, Any, Any]:
        """Run a method of the algorithm, which must be a generator, and return its return value."""
        try:
            made = method(*arguments)
            if isinstance(made, Generator):
                return (yield from made)
        except BadRequest:  # raised by this package
            raise
        except Exception as error:
            mark(error, f"in {name} of {self._name}")
            raise
        raise self._bad(
            f"{name} returned a {type(made).__name__} and is no generator, or is not defined: it "
            "needs a `yield`, and `yield from ()` will do where it asks for nothing"
        )

    def check(self, request: Any) -> None:
        """Refuse a request that breaks the rules."""
        fine = type(request) is Evaluate and not self._checks.solver and self._is_fine(request)
        if fine and self._memory is None:
            self._idle = 0
            return
        try:
            if not fine:
                self._checks.check(request)
            if self._memory is not None:
                self._memory.check(request)
        except BadRequest as error:
            raise self.named(error) from None
        self._idle = self._idle + 1 if isinstance(request, Incumbent) else 0
        self._require_work()

    def _is_fine(self, request: Evaluate) -> bool:
        """Return True if a quick look shows that a request is right; False asks for all checks."""
        level, x, y = request
        return (
            type(level) is Level
            and type(x) is type(y) is np.ndarray
            and x.dtype is y.dtype is FLOAT
            and x.ndim == 2
            and x.shape[1] == self._m
            and y.shape == (len(x), self._n)
            and len(x) > 0
            and 1 not in _above(x.view(_BITS), _ONE).tobytes()
            and 1 not in _above(y.view(_BITS), _ONE).tobytes()
        )

    def answered(self, answer: Answer | None) -> None:
        """Remember the answer to the last request."""
        if self._memory is not None and answer is not None:
            self._memory.answered(answer)

    def check_state(self, state: Any, method: str) -> None:
        """Refuse a method's return value that is not a state of the algorithm."""
        if not isinstance(state, self._state):
            raise self._bad(
                f"{method} returned an object of the class {type(state).__name__}; end it by "
                f"`return` and a state, which is a {self._state.__name__}"
            )
        if not hasattr(state, "stop"):
            raise self._bad("the state has no field `stop`: it is None while the run continues")
        stop = state.stop
        if stop is not None and not (isinstance(stop, StopReason) and stop in OWN_ENDS):
            reasons = ", ".join(f"StopReason.{reason.name}" for reason in OWN_ENDS)
            raise self._bad(f"state.stop is {described(stop)}; it is None, or one of {reasons}")

    def check_generation(self, state: Any, best: Incumbent | None) -> None:
        """Refuse the end of a generation that has no state, no tasks or no best pair."""
        self.check_state(state, "generation")
        for name, (kinds, what) in TASKS.items():
            tasks = getattr(state, name, None)
            fine = isinstance(tasks, np.ndarray) and tasks.ndim == 1 and tasks.dtype.kind in kinds
            if not fine:
                raise self._bad(f"state.{name} is {described(tasks)}; give an array (k,) of {what}")
        if len(state.executions) != len(state.survived):
            raise self._bad(
                f"state.executions has {len(state.executions)} tasks and state.survived has "
                f"{len(state.survived)}; give both for each task, or two empty arrays"
            )
        self.check_end(best)
        self._idle += 1
        self._require_work()

    def check_end(self, best: Incumbent | None) -> None:
        """Refuse to end a generation or a run that has no best pair."""
        if best is None:
            raise self._bad(
                "it has yielded no best pair: yield an Incumbent before the first generation ends"
            )

    def _require_work(self) -> None:
        """Refuse to continue if the algorithm has not asked for an evaluation for too long."""
        if self._idle > MAX_IDLE:
            raise self._bad(
                f"it made {MAX_IDLE} best pairs and generations without asking for an evaluation: "
                "set state.stop to end a run"
            )

    def named(self, error: BadRequest) -> BadRequest:
        """Return the error with the algorithm's name in front, which is added only once."""
        if not str(error).startswith(f"{self._name}: "):
            error.args = (f"{self._name}: {error}",)
        return error

    def _bad(self, what: str) -> BadRequest:
        return BadRequest(f"{self._name}: {what}")


def _is_ours(part: Any) -> bool:
    """Tell whether an algorithm and all its parts come from this package."""
    if is_dataclass(part) and not isinstance(part, type):
        if not _in_package(type(part)):
            return False
        return all(_is_ours(getattr(part, each.name)) for each in fields(part))
    return part is None or _in_package(type(part))


def _in_package(kind: type) -> bool:
    room = kind.__module__.split(".")[:2]
    return room[0] in ("bilevo", "builtins") and room != ["bilevo", "testing"]
