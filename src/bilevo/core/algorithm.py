"""The protocol of algorithms.

An algorithm has two generators. `init` returns its first state, and each call of `generation`
returns the state after one more upper generation. The driver reads the members of `Algorithm`, and
the members of a state that `AlgorithmState` lists. The rules for what the generators may yield are
in `bilevo.core.request`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol, TypeVar

from bilevo.core.arrays import BoolArray, IntArray
from bilevo.core.budget import Budget, StopReason
from bilevo.core.checks import require
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure


class Followers(StrEnum):
    """Which followers an algorithm drives."""

    FUNCTION = "function"  # f is a function: the algorithm searches y by `Evaluate`
    SOLVER = "solver"  # the problem has its own solver: the algorithm asks for steps by `Step`
    BOTH = "both"

    def include(self, kind: Followers) -> bool:
        """Tell whether this value includes a kind of follower."""
        return self in (kind, Followers.BOTH)


class AlgorithmState(Protocol):
    """The part of a state that the driver reads after each generation.

    A state is a tree of dataclasses, named tuples, lists, tuples, dictionaries, numbers, strings,
    enums and arrays, so that a run can be stored between two generations. Its classes must be
    declared by the type hints of `Algorithm.State`, or occur in the first state.
    """

    stop: StopReason | None  # TARGET, STAGNATION or BUDGET if the run ends here, else None
    executions: IntArray  # how often each task's follower search ran in the last generation
    survived: BoolArray  # whether each task's pair was selected at the upper level


StateT = TypeVar("StateT", bound=AlgorithmState)


class Algorithm(Protocol[StateT]):
    """A bilevel algorithm. Subclass it, or write a class with all of its members.

    name, revision
        Results carry both; raise the revision when results change.
    State
        The class of its states.
    followers
        The kind of followers it drives; functions by default.
    budget
        Its published settings. They override the problem's budget; a user's budget overrides both.
    ctol
        The tolerance on constraints where the user gives none; 0 by default.
    whole
        Whether it knows whole numbers and choices (`Spec.x_grid`, `Spec.y_grid`); False by default.
        Any other algorithm searches the decoded box, and its certificates do not count there.
    certifies
        Whether it checks its answers by independent searches from its first generation on; False by
        default. If True, the driver looks after that generation for functions that round inside; a
        state with a member `looks_for_doubts` says after which generation instead.
    takes_stance
        Whether it searches the follower's ties for `Spec.stance` and `Spec.tie_tol`. By default it
        does not: it is only used if the stance is optimistic and `tie_tol` is not given.
    init(spec)
        A generator that returns the first state; it may evaluate.
    generation(spec, state)
        A generator that returns the state after one more upper generation. It may change the state
        that it is given. It must yield an `Incumbent` before the first generation ends.
    """

    followers: Followers = Followers.FUNCTION
    budget: Budget = Budget()
    ctol: float = 0.0
    whole: bool = False
    certifies: bool = False
    takes_stance: bool = False

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> int: ...

    @property
    def State(self) -> type[StateT]: ...

    def init(self, spec: Spec) -> Procedure[StateT]: ...

    def generation(self, spec: Spec, state: StateT) -> Procedure[StateT]: ...


def require_algorithm(method: Any) -> Algorithm[Any]:
    """Return an object that has all members of an algorithm; refuse any other."""
    if isinstance(method, type):
        raise ValueError(
            f"method must be an object, not a class: did you mean {method.__name__}()?"
        )
    able = all(callable(getattr(method, name, None)) for name in ("init", "generation"))
    require(able, "method", "a name or an algorithm object", method)
    for member, (kind, what) in _MEMBERS.items():
        found = getattr(method, member, None)
        require(isinstance(found, kind), f"{type(method).__name__}.{member}", what, found)
    made: Algorithm[Any] = method
    return made


_MEMBERS = {
    "name": (str, "a string"),
    "revision": (int, "a whole number"),
    "State": (type, "the class of its states"),
    "followers": (Followers, "a Followers, such as Followers.FUNCTION"),
    "budget": (Budget, "a bilevo.Budget"),
}


def registered(name: str) -> Any:
    """Return a property that gives the name of a method.

    It is `name` if the method has its default settings, and `name`-variant otherwise.
    """
    return property(lambda method: name if method == type(method)() else f"{name}-variant")
