"""Simulators that return the values of both levels by one call (`Problem.joint`).

A simulator returns a tuple (F, f) or (F, f, G, g), or a dictionary with F, f and maybe G and g. If
it is vectorized, each of them has k rows. `Simulator` calls it; `Part` picks one of the values, so
that a joint problem has functions F, f, G and g as others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.checks import described, require
from bilevo.core.keywords import with_args
from bilevo.core.request import Level
from bilevo.core.values import BadValue, Returned

NAMES = ("F", "f", "G", "g")
# Settings of `Problem`.
WHOLE = ("x_integrality", "y_integrality")
ALLOWED = ("name", "optimum", "response", "budget", "repeats_lower", *WHOLE)
WANTED = "return (F, f), (F, f, G, g), or a dictionary with F, f and maybe G and g"


def other_level(level: Level) -> Level:
    """Return the level that a level is not."""
    return Level.LOWER if level is Level.UPPER else Level.UPPER


class Simulated(NamedTuple):
    """What a simulator returned; G and g are empty where it returns none."""

    F: Any
    f: Any
    G: Any
    g: Any


class Simulator:
    """Calls a simulator, and takes apart what it returns."""

    __slots__ = ("simulate", "vectorized")

    def __init__(self, simulate: Callable[..., Any], vectorized: bool) -> None:
        require(callable(simulate), "simulate", "a function of (x, y)", simulate)
        self.simulate, self.vectorized = simulate, vectorized

    def __call__(self, x: FloatArray, y: FloatArray) -> Simulated:
        returned = self.simulate(x, y)
        if isinstance(returned, Mapping):
            found = self._of_mapping(returned)
        elif isinstance(returned, tuple | list) and len(returned) in (2, 4):
            found = dict(zip(NAMES, returned, strict=False))
        else:
            raise BadValue(f"the simulator returned {described(returned)}: {WANTED}")
        nothing = np.empty((len(x), 0) if self.vectorized else 0)
        return Simulated(
            found["F"], found["f"], *(_or(found.get(name), nothing) for name in ("G", "g"))
        )

    def _of_mapping(self, returned: Mapping[Any, Any]) -> dict[str, Any]:
        unknown = [name for name in returned if name not in NAMES]
        missing = [name for name in ("F", "f") if name not in returned]
        if unknown or missing:
            wrong = f"without {missing[0]!r}" if missing else f"with {unknown[0]!r}"
            raise BadValue(f"the simulator returned a dictionary {wrong}: {WANTED}")
        return dict(returned)

    def part(self, name: str) -> Part:
        """Return a function of (x, y) that gives one of the values."""
        return Part(self, name)

    def levels(
        self, x: FloatArray, y: FloatArray, upper: Returned, lower: Returned
    ) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """Simulate once; return objective and constraints of the upper and of the lower level."""
        F, f, G, g = self(x, y)

        def checked(level: Returned, value: Any, vector: Any) -> tuple[FloatArray, FloatArray]:
            objective = level.objective(lambda *_: value, x, y)
            return objective, level.constraints(lambda *_: vector, x, y)

        return checked(upper, F, G), checked(lower, f, g)

    def evaluate(
        self, x: FloatArray, y: FloatArray, repeats: int
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return F (k,), G (k, K), f (k,), g (k, J) at rows of pairs, by one simulation each."""
        upper = Returned(Level.UPPER, self.vectorized, least=repeats)
        lower = Returned(Level.LOWER, self.vectorized)
        batches = [(x, y)]
        if not self.vectorized:
            batches = list(zip(x, y, strict=True))
        found = [self.levels(*batch, upper=upper, lower=lower) for batch in batches]
        (F, G), (f, g) = (
            (_rows(one[i][0] for one in found), _rows(one[i][1] for one in found)) for i in (0, 1)
        )
        return F, G, f, g


def joint_simulator(
    simulate: Any, vectorized: Any, args: Any, settings: Mapping[str, Any]
) -> Simulator:
    """Return the simulator of a joint problem; refuse settings that joint problems do not have."""
    for name in settings:
        if name not in ALLOWED:
            hint = f"; it takes {', '.join(ALLOWED)}"
            raise TypeError(f"Problem.joint has no argument {name!r}{hint}")
    return Simulator(with_args({"simulate": simulate}, args)["simulate"], vectorized is True)


class Part:
    """One of a simulator's values, as a function of (x, y)."""

    __slots__ = ("name", "simulator")

    def __init__(self, simulator: Simulator, name: str) -> None:
        self.simulator, self.name = simulator, name

    def __call__(self, x: FloatArray, y: FloatArray) -> Any:
        return getattr(self.simulator(x, y), self.name)


def _rows(parts: Iterable[FloatArray]) -> FloatArray:
    return np.concatenate(list(parts))


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
