"""Several followers of one leader, and the lower level that they make together.

    y = (y_1, ..., y_N),  y_i in argmin_{y_i} { f_i(x, y) : g_i(x, y) <= 0 }

If the followers are independent, f_i and g_i depend on x and y_i only. Then all answers together
minimize the sum of the f_i, and the problem is one with a single follower. In a Nash equilibrium,
f_i may depend on the answers of others. Then no sum says what they answer, and a solver finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.bounds import Bounds, Choice
from bilevo.core.checks import require, shown
from bilevo.core.solver import require_solver
from bilevo.core.values import BadValue, Returned

INDEPENDENT, NASH = "independent", "nash"
WHAT_PLAYS = (
    '"independent", if no follower minds what the others do, or "nash", if each of them answers '
    "the others' answers (docs/recipe_several_followers.md)"
)
# Makes the solver of a game; `bilevo.followers` puts it here, as core imports no other package.
game_solvers: list[Callable[[], Any]] = []


class Follower:
    """One of several followers: its objective, its box, and its constraints.

    Parameters
    ----------
    f : callable, optional
        The objective: it takes (x, y), where y holds the answers of all followers side by side, and
        returns a number. If followers share one function, it returns one number for each of them,
        in the order of the list. It may be None if there is a `solver`, or if the problem's own f
        returns the numbers of all followers.
    y_bounds : sequence of pairs, or scipy.optimize.Bounds
        The box of this follower's own variables. A `bilevo.Choice` in place of a pair makes the
        variable one of several labels.
    g : callable, optional
        The constraints: it takes (x, y) and returns a vector, which holds where it is <= 0.
    solver : Solver, optional
        A solver that finds this follower's answer (see `bilevo.followers`). It is started with x;
        in a Nash game, with x and the other followers' answers behind it.
    block : pair, optional
        Where this follower's variables are in y, as (first, end). By default followers are side by
        side, in the order of the list.
    y_integrality : 0, 1, or a sequence of them, optional
        1 says that a variable of this follower is a whole number.

    Examples
    --------
    >>> from bilevo import Follower, Problem
    >>> followers = [
    ...     Follower(lambda x, y: (y[0] - x[0]) ** 2, [(-5, 5)]),
    ...     Follower(lambda x, y: (y[1] + x[0]) ** 2, [(-5, 5)]),
    ... ]
    >>> problem = Problem(
    ...     lambda x, y: x[0] ** 2 + y @ y, None, [(-5, 5)], followers=followers, play="independent"
    ... )
    >>> problem.blocks
    (slice(0, 1, None), slice(1, 2, None))
    """

    __slots__ = ("block", "f", "g", "solver", "y_bounds", "y_integrality")

    def __init__(
        self,
        f: Callable[..., Any] | None = None,
        y_bounds: Any = None,
        g: Callable[..., Any] | None = None,
        solver: Any = None,
        block: tuple[int, int] | None = None,
        y_integrality: Any = None,
    ) -> None:
        for label, function in (("f", f), ("g", g)):
            fine = function is None or callable(function)
            require(fine, label, "a function of (x, y) or None", function)
        if y_bounds is None:
            raise ValueError("a Follower needs y_bounds, the box of its own variables")
        self.f, self.g, self.y_bounds = f, g, y_bounds
        self.solver = None if solver is None else require_solver(solver)
        self.block, self.y_integrality = block, y_integrality

    def __repr__(self) -> str:
        return f"Follower(y_bounds={shown(self.y_bounds)})"


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """The followers of a problem: their functions, and their places in y (n,).

    `shared` is the function that returns the values of all followers, if there is one. `args` are
    the extra arguments of all functions. One follower in a list is like a follower without a list.
    """

    followers: tuple[Follower, ...]
    blocks: tuple[slice, ...]
    bounds: Bounds
    play: str
    vectorized: bool
    args: tuple[Any, ...]
    shared: Callable[..., Any] | None

    @property
    def searched(self) -> bool:
        """Tell whether algorithms can search the sum of the f_i."""
        return self.play == INDEPENDENT and all(one.solver is None for one in self.followers)

    @property
    def separable(self) -> bool:
        """Tell whether a point shows f_i of all followers, each at an answer of its own."""
        free = all(one.g is None for one in self.followers)
        return self.searched and self.shared is not None and free

    @property
    def lower_level(self) -> tuple[Any, Any, Any]:
        """Return f, g and the solver of the problem; None for those that it does not have."""
        if len(self.followers) == 1:
            (only,) = self.followers
            return only.f, only.g, only.solver
        if not self.searched:
            return None, None, game_solvers[-1]()
        constrained = any(one.g is not None for one in self.followers)
        return Total(self), Joined(self) if constrained else None, None

    def each(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return f_i of all followers: (N,) at one pair, or (k, N) at rows if vectorized."""
        count = len(self.followers)
        if self.shared is not None:
            return self._of_shared(self.shared(x, y, *self.args), len(x))
        parts = [self.objective(i, x, y) for i in range(count)]
        return np.stack(parts, axis=-1) if self.vectorized else np.concatenate(parts)

    def objective(self, i: int, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return f_i at one pair (1,), or at rows (k,) if vectorized."""
        if self.shared is not None:
            found = self._of_shared(self.shared(x, y, *self.args), len(x))
            return np.asarray(found[..., i]).reshape(-1)
        function = self.followers[i].f
        assert function is not None
        returned = Returned("lower", self.vectorized)
        try:
            return returned.objective(lambda x, y: function(x, y, *self.args), x, y)
        except BadValue as error:
            raise BadValue(f"follower {i + 1}: {error}") from None

    def constraints(self, i: int, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return g_i at one pair (1, c), or at rows (k, c) if vectorized."""
        function = self.followers[i].g
        called = None if function is None else lambda x, y: function(x, y, *self.args)
        try:
            return Returned("lower", self.vectorized).constraints(called, x, y)
        except BadValue as error:
            raise BadValue(f"follower {i + 1}: {error}") from None

    def _of_shared(self, value: Any, rows: int) -> FloatArray:
        """Return the values of all followers that one function has returned; check their shape."""
        wanted = (rows, len(self.followers)) if self.vectorized else (len(self.followers),)
        found = Returned("lower", self.vectorized).real(value, "objective")
        if found.shape != wanted:
            raise BadValue(
                f"the followers share f, so it must return one number for each of them: the shape "
                f"{wanted}, got {found.shape}"
            )
        return found


class Total:
    """The sum of f_i over the followers: the objective of independent followers together."""

    __slots__ = ("several",)

    def __init__(self, several: Several) -> None:
        self.several = several

    def __call__(self, x: FloatArray, y: FloatArray, *args: Any) -> FloatArray:
        return np.asarray(self.several.each(x, y).sum(axis=-1))


class Joined:
    """The constraints g_i of all followers, one after another."""

    __slots__ = ("several",)

    def __init__(self, several: Several) -> None:
        self.several = several

    def __call__(self, x: FloatArray, y: FloatArray, *args: Any) -> FloatArray:
        several = self.several
        parts = [several.constraints(i, x, y) for i in range(len(several.followers))]
        joined = np.concatenate(parts, axis=1)
        return joined if several.vectorized else np.asarray(joined[0])


def several_of(
    followers: Any,
    play: Any,
    f: Any,
    others: dict[str, Any],
    vectorized: bool,
    args: Any,
) -> Several | None:
    """Return the followers that a problem is given in a list; None without a list.

    `others` are keywords that do not go with a list.
    """
    if followers is None:
        if play is not None:
            raise ValueError(f"play={shown(play)} is for a list of followers, and there is none")
        return None
    listed = _checked_list(followers)
    _require_play(play, len(listed))
    if len(listed) == 1 and listed[0].f is None and f is not None:
        (only,) = listed
        rest = only.y_bounds, only.g, only.solver, only.block, only.y_integrality
        listed, f = [Follower(f, *rest)], None
    for name, value in others.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} does not go with followers=: each Follower has its own")
    boxes = [
        Bounds.of(one.y_bounds, f"y_bounds of follower {i + 1}", one.y_integrality)
        for i, one in enumerate(listed)
    ]
    blocks = _blocks(listed, [box.size for box in boxes])
    bounds = side_by_side(blocks, boxes)
    extra = args if isinstance(args, tuple) else ()  # `Problem` refuses anything else
    shared = _shared(listed, f)
    _require_objectives(listed, shared)
    return Several(tuple(listed), blocks, bounds, play or INDEPENDENT, vectorized, extra, shared)


def side_by_side(blocks: tuple[slice, ...], boxes: list[Bounds]) -> Bounds:
    """Return the bounds of y, in which each follower's bounds are in their place."""
    lower, upper, integrality = np.empty((3, sum(box.size for box in boxes)))
    choices: dict[int, Choice] = {}
    for block, box in zip(blocks, boxes, strict=True):
        lower[block], upper[block], integrality[block] = box.lower, box.upper, box.integrality
        choices |= {block.start + i: choice for i, choice in box.choices.items()}
    return Bounds(lower, upper, "y_bounds", integrality, choices)


def part_of(bounds: Bounds, places: IntArray) -> Bounds:
    """Return the bounds of some variables."""
    chosen = places.tolist()
    choices = {k: bounds.choices[i] for k, i in enumerate(chosen) if i in bounds.choices}
    lower, upper = bounds.lower[places], bounds.upper[places]
    return Bounds(lower, upper, "bounds", bounds.integrality[places], choices)


def _checked_list(followers: Any) -> list[Follower]:
    listed = list(followers) if isinstance(followers, list | tuple) else []
    fine = bool(listed) and all(isinstance(one, Follower) for one in listed)
    require(fine, "followers", "a list of bilevo.Follower objects, at least one", followers)
    return listed


def _require_play(play: Any, count: int) -> None:
    known = isinstance(play, str) and play in (INDEPENDENT, NASH)
    require(known or (play is None and count == 1), "play", WHAT_PLAYS, play)


def _blocks(listed: list[Follower], sizes: list[int]) -> tuple[slice, ...]:
    """Return each follower's place in y; refuse places that overlap or leave gaps."""
    given = [one.block for one in listed]
    if all(block is None for block in given):
        ends = np.cumsum(sizes).tolist()
        return tuple(slice(end - size, end) for end, size in zip(ends, sizes, strict=True))
    if any(block is None for block in given):
        raise ValueError("either all followers have a block, or none of them")
    places = [_place(i, given[i], size) for i, size in enumerate(sizes)]
    order = sorted(range(len(places)), key=lambda i: places[i])
    end = 0
    for i in order:
        first, last = places[i]
        if first != end:
            what = "overlaps another one" if first < end else f"leaves y[{end}:{first}] to nobody"
            raise ValueError(f"the block ({first}, {last}) of follower {i + 1} {what}")
        end = last
    return tuple(slice(first, last) for first, last in places)


def _place(i: int, block: Any, size: int) -> tuple[int, int]:
    numbers = isinstance(block, tuple) and len(block) == 2 and all(type(b) is int for b in block)
    if not numbers or block[0] < 0 or block[1] - block[0] != size:
        raise ValueError(
            f"the block of follower {i + 1} must be (first, first + {size}), because it has {size} "
            f"variables; got {shown(block)}"
        )
    return block[0], block[1]


def _shared(listed: list[Follower], f: Any) -> Callable[..., Any] | None:
    """Return the function that gives the values of all followers, or None if there is none."""
    if f is not None:
        require(callable(f), "f", "a function of (x, y)", f)
        if any(one.f is not None for one in listed):
            raise ValueError("give f to the problem or to its followers, not to both")
        shared: Callable[..., Any] = f
        return shared
    first = listed[0].f
    if first is not None and len(listed) > 1 and all(one.f is first for one in listed):
        return first
    return None


def _require_objectives(listed: list[Follower], shared: Any) -> None:
    if shared is not None:
        return
    for i, one in enumerate(listed):
        if one.f is None and one.solver is None:
            raise ValueError(f"follower {i + 1} of {len(listed)} needs f or a solver")
        if one.f is None and one.g is not None:
            raise ValueError(f"follower {i + 1}: g without f: give f too, or leave both out")
    functions = [one.f for one in listed if one.f is not None]
    twice = [f for i, f in enumerate(functions) if any(f is other for other in functions[:i])]
    if twice:
        raise ValueError(
            f"some followers share {shown(twice[0])}, and others do not: a function that returns "
            "the numbers of all followers belongs to all of them"
        )
