"""What an algorithm is: two generators over a plain state, one step being an upper generation.

The state holds arrays and numbers only, so that a run can be stored between two generations: a
tree of dataclasses, lists, numbers, strings, enums and arrays, whose classes its first state holds
or declares by type hints.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from bilevo.core.arrays import BoolArray, IntArray
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.request import Steps


class AlgorithmState(Protocol):
    """What the driver reads of a state after each generation."""

    stop: StopReason | None
    executions: IntArray  # per task of the last generation: how often its follower search ran
    survived: BoolArray  # per task: whether its pair was selected at the upper level


S = TypeVar("S", bound=AlgorithmState)


def variant_name(algorithm: object, name: str) -> str:
    """A method's registered name for its own settings; other settings are a variant of it."""
    return name if algorithm == type(algorithm)() else f"{name}-variant"


class Algorithm(Protocol[S]):
    """`init` makes the first state, `generation` the next one. `revision` changes with results.

    An algorithm with published settings of its own has an attribute `budget` (a `Budget`), whose
    fields go before the problem's; those of the user go before both.
    """

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> int: ...

    def init(self, spec: Spec) -> Steps[S]: ...

    def generation(self, spec: Spec, state: S) -> Steps[S]: ...
