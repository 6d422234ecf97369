"""Bilevel problems: bounds, the two levels' functions, and the part that an algorithm sees.

    min F(x, y)  s.t.  G(x, y) <= 0,  y in argmin_y { f(x, y) : g(x, y) <= 0 }

Upper case is the leader (x, m variables), lower case the follower (y, n variables).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray, frozen
from bilevo.core.bounds import Bounds, Grid, inside
from bilevo.core.budget import Budget, FullBudget
from bilevo.core.checks import is_truth, require, shown, whole_number
from bilevo.core.joint import Simulator, joint_simulator
from bilevo.core.keywords import explain_unknown, with_args
from bilevo.core.notebook import table
from bilevo.core.optimum import Optimum, require_sizes
from bilevo.core.request import Level
from bilevo.core.several import Follower, several_of
from bilevo.core.slopes import NO_SLOPES, RawSlopes, ReturnedSlopes, SlopesGiven, with_gradients
from bilevo.core.solver import CheckedSolver, Solver, bind_solver
from bilevo.core.stance import Stance
from bilevo.core.values import Returned

Function = Callable[[FloatArray, FloatArray], Any]
Response = Callable[[FloatArray], FloatArray]
MAX_BOUNDS = 4  # a notebook's table shows at most this number of distinct bounds

# What to give in place of a list of functions.
INSTEAD_OF_LISTS = {
    "F": " that returns one number; for several objectives see docs/recipe_objectives.md",
    "f": " that returns one number; for several followers see docs/recipe_several_followers.md",
    **dict.fromkeys("Gg", " that returns the values of all constraints as one list"),
}


def _unknown(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return NaN for each pair, in place of an f that only a solver knows."""
    return np.full(y.shape[:-1], np.nan)


class Problem:
    """A bilevel problem: two objectives, two boxes, and constraints (feasible when <= 0).

    Both levels are minimized. Functions take x of shape (m,) and y of shape (n,).

    Parameters
    ----------
    F, f : callable
        The objectives of the leader and of the follower: each takes (x, y) and returns a number.
        f may be None if there is a `follower`.
    x_bounds, y_bounds : sequence of pairs, or scipy.optimize.Bounds
        The boxes, as (lower, upper) for each variable. Bounds must be finite; equal bounds fix a
        variable. A `bilevo.Choice` in place of a pair makes the variable one of several labels.
    G, g : callable, optional
        The constraints of the leader and of the follower: each takes (x, y) and returns a vector.
        They hold where they are <= 0.
    vectorized : bool, optional
        True says that functions take x (k, m) and y (k, n), and return (k,) or, for constraints,
        (k, c).
    name : str, optional
        A name, which results of `bilevo bench` and run directories show.
    optimum : Optimum, optional
        The known solution.
    repeats_lower : int, optional
        How many of the last entries of G repeat g; they add no violation.
    response : callable, optional
        The follower's known answers: it takes x (k, m) and returns y* (k, n), with NaN in rows
        where y* is not known.
    budget : Budget, optional
        The settings that are usual for the problem.
    follower : Solver, optional
        A solver that finds the follower's answers (see `bilevo.followers`). Algorithms do not
        search f then. F and G get the answers as the solver gives them.
    F_jac, f_jac, G_jac, g_jac : callable, optional
        Gradients, as functions of (x, y). `F_jac` returns a tuple (F_x, F_y) of the shapes (m,) and
        (n,), and `G_jac` a tuple (G_x, G_y) of the shapes (c, m) and (c, n). `f_jac` returns f_y,
        or a tuple (f_x, f_y), and `g_jac` likewise. NaN means that a slope is not available there.
        When vectorized, gradients have k rows, too.
    jac : bool, optional
        True says that F, f, G and g return (value, gradient) instead.
    args : tuple, optional
        Extra arguments, which all functions get after (x, y).
    x_integrality, y_integrality : 0, 1, or a sequence of them, optional
        1 says that a variable is a whole number, as SciPy's `integrality` does. Functions get whole
        floats. Gradients are not used if a variable is whole.
    followers : list of Follower, optional
        Several followers in place of one. f and y_bounds are left out then (or f returns the values
        of all followers), and y holds their answers side by side; `blocks` says which part is
        whose.
    play : {"independent", "nash"}, optional
        How several followers answer: each by itself, or each to the others' answers.

    Examples
    --------
    >>> from bilevo import Problem
    >>> def F(x, y, wish):
    ...     return (x[0] - wish) ** 2 + y[0] ** 2
    >>> def f(x, y, wish):
    ...     return (y[0] - x[0]) ** 2
    >>> Problem(F, f, [(-5, 5)], [(-5, 5)], args=(2.0,))
    <Problem problem: m=1, n=1>
    """

    @explain_unknown
    def __init__(
        self,
        F: Function,
        f: Function | None,
        x_bounds: Any,
        y_bounds: Any = None,
        G: Function | None = None,
        g: Function | None = None,
        vectorized: bool = False,
        name: str | None = None,
        optimum: Optimum | None = None,
        repeats_lower: int = 0,
        response: Response | None = None,
        budget: Budget | None = None,
        follower: Solver[Any] | None = None,
        F_jac: Function | None = None,
        f_jac: Function | None = None,
        G_jac: Function | None = None,
        g_jac: Function | None = None,
        jac: bool = False,
        args: tuple[Any, ...] = (),
        x_integrality: Any = None,
        y_integrality: Any = None,
        followers: list[Follower] | None = None,
        play: str | None = None,
    ) -> None:
        others = {
            "y_bounds": y_bounds,
            "g": g,
            "follower": follower,
            "y_integrality": y_integrality,
        }
        others |= {"f_jac": f_jac, "g_jac": g_jac, "jac": jac}
        several = several_of(followers, play, f, others, bool(vectorized), args)
        if several is not None:
            (f, g, follower), y_bounds = several.lower_level, several.bounds
        dispensable = "Gg" if follower is None else "Ggf"
        for label, function in (("F", F), ("f", f), ("G", G), ("g", g)):
            fine = callable(function) or (function is None and label in dispensable)
            hint = INSTEAD_OF_LISTS[label] if isinstance(function, list | tuple) else ""
            require(fine, label, f"a function of (x, y){hint}", function)
        if f is None and g is not None:
            raise ValueError("g without f: give f too, or leave both to the solver")
        repeats = whole_number(repeats_lower)
        if repeats is None or repeats < 0 or (repeats and (G is None or g is None)):
            raise ValueError(
                f"repeats_lower={shown(repeats_lower)} says how many last entries of G repeat g: "
                "0, or at most their number when both G and g are given"
            )
        known = isinstance(optimum, Optimum | None)
        require(known, "optimum", "a bilevo.Optimum or None", optimum)
        require(isinstance(budget, Budget | None), "budget", "a bilevo.Budget or None", budget)
        require(isinstance(name, str | None), "name", "a text or None", name)
        require(is_truth(vectorized), "vectorized", "True or False", vectorized)
        require(response is None or callable(response), "response", "a function of x", response)
        functions = {"F": F, "f": f, "G": G, "g": g}
        given = {"F": F_jac, "f": f_jac, "G": G_jac, "g": g_jac}
        functions, given = with_gradients(with_args(functions, args), with_args(given, args), jac)
        self.F, self.f = functions["F"] or F, functions["f"] or _unknown
        self.G, self.g = functions["G"], functions["g"]
        self.F_jac, self.f_jac = given["F"], given["f"]
        self.G_jac, self.g_jac = given["G"], given["g"]
        self.x_bounds = Bounds.of(x_bounds, "x_bounds", x_integrality)
        self.y_bounds = Bounds.of(y_bounds, "y_bounds", y_integrality)
        require_sizes(optimum, self.x_bounds.size, self.y_bounds.size)
        self.vectorized = bool(vectorized)
        self.name = name or "problem"
        self.optimum = optimum
        self.repeats_lower = repeats
        self.response = response
        self.budget = budget or Budget()
        self.several = several
        self.follower = None if follower is None else bind_solver(follower, self)
        self.simulator: Simulator | None = None

    @classmethod
    def joint(
        cls,
        simulate: Callable[..., Any],
        x_bounds: Any,
        y_bounds: Any,
        vectorized: bool = False,
        args: tuple[Any, ...] = (),
        **settings: Any,
    ) -> Problem:
        """Make a problem of a simulator that returns the values of both levels by one call.

        `simulate` takes (x, y), and returns (F, f), (F, f, G, g), or a dictionary with F, f and
        maybe G and g. A call counts as one evaluation, and no pair is simulated twice in a run:
        `result.nfev` and `max_evals` count simulations, and `nfev_upper` and `nfev_lower` say how
        many values each level asked for. `settings` are other keywords of `Problem`.
        """
        simulator = joint_simulator(simulate, vectorized, args, settings)
        given: dict[str, Any] = {name: simulator.part(name) for name in "FfGg"} | settings
        made = cls(**given, x_bounds=x_bounds, y_bounds=y_bounds, vectorized=vectorized)
        made.simulator = simulator
        return made

    @property
    def m(self) -> int:
        return self.x_bounds.size

    @property
    def n(self) -> int:
        return self.y_bounds.size

    @property
    def x_integrality(self) -> IntArray:
        return self.x_bounds.integrality

    @property
    def y_integrality(self) -> IntArray:
        return self.y_bounds.integrality

    @property
    def has_whole(self) -> bool:
        """Tell whether an algorithm searches whole numbers or choices."""
        searched = self.follower is None and self.y_bounds.has_whole
        return self.x_bounds.has_whole or searched

    def decode(self, x: Any = None, *, y: Any = None) -> list[Any]:
        """Return x (m,), or y (n,), as a list: whole numbers as ints, choices as their labels."""
        require((x is None) != (y is None), "decode", "given x, or y by name", (x, y))
        bounds, given = (self.x_bounds, x) if y is None else (self.y_bounds, y)
        point = inside("x" if y is None else "y", given, bounds)
        return bounds.decode(point)

    @property
    def f_is_known(self) -> bool:
        """Tell whether f is given as a function; if not, only a solver knows its values."""
        return self.f is not _unknown

    @property
    def equilibrium(self) -> bool:
        """Tell whether the follower's answer is an equilibrium of several followers."""
        return self.several is not None and self.follower is not None and len(self.blocks) > 1

    @property
    def separable(self) -> bool:
        """Tell whether one function returns f_i of all followers, which are independent."""
        return self.several is not None and self.several.separable and not self.has_whole

    @property
    def blocks(self) -> tuple[slice, ...]:
        """Return the place of each follower's variables in y."""
        return (slice(0, self.n),) if self.several is None else self.several.blocks

    def functions(self, level: Level) -> tuple[Function, Function | None]:
        """Return a level's objective and constraints."""
        return (self.F, self.G) if level is Level.UPPER else (self.f, self.g)

    def gradients(self, level: Level) -> tuple[Function | None, Function | None]:
        """Return the gradients of a level's objective and constraints; None if they are missing."""
        upper = level is Level.UPPER
        return (self.F_jac, self.G_jac) if upper else (self.f_jac, self.g_jac)

    @property
    def slopes_given(self) -> SlopesGiven:
        """Say which gradients an algorithm can ask for; none of f if a solver is the follower.

        There are none if a variable is whole: along it, a function has no slope.
        """
        if self.has_whole:
            return NO_SLOPES
        lower = self.follower is None and self.f_jac is not None
        return SlopesGiven(
            F=self.F_jac is not None,
            f=lower,
            G=self.F_jac is not None and (self.G is None or self.G_jac is not None),
            g=lower and (self.g is None or self.g_jac is not None),
        )

    def checked_solver(self, follower: Solver[Any] | None = None) -> CheckedSolver:
        """Return `follower`, or else the problem's own solver, with checks of its answers."""
        chosen = self.follower if follower is None else follower
        assert chosen is not None
        return CheckedSolver(chosen, self.y_bounds.lower, self.y_bounds.upper)

    def repeats(self, level: Level) -> int:
        """Return how many of a level's last constraints repeat g; its violation leaves them out."""
        return self.repeats_lower if level is Level.UPPER else 0

    def __repr__(self) -> str:
        known = f", F*={self.optimum.F:g}" if self.optimum else ""
        solver = "" if self.follower is None else f", follower {type(self.follower).__name__}"
        solver += ", joint" if self.simulator is not None else ""
        return f"<Problem {self.name}: m={self.m}, n={self.n}{solver}{known}>"

    def _repr_html_(self) -> str:
        """Show sizes, bounds, constraints and the known solution in notebooks."""
        shown = {"upper": self._described(self.x_bounds, "x", self.G)}
        shown["lower"] = self._described(self.y_bounds, "y", self.g)
        if self.follower is not None:
            shown["follower"] = type(self.follower).__name__
        if self.optimum is not None:
            shown["optimum"] = f"F = {self.optimum.F:.8g}, f = {self.optimum.f:.8g}"
        return table(f"Problem {self.name}", shown)

    def _described(self, bounds: Bounds, variable: str, constraints: Function | None) -> str:
        boxes = dict.fromkeys(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))
        shown = [f"[{low:g}, {high:g}]" for low, high in boxes][:MAX_BOUNDS]
        more = ", ..." if len(boxes) > MAX_BOUNDS else ""
        text = (
            f"{bounds.size} variable{'s'[: bounds.size > 1]} {variable} in {', '.join(shown)}{more}"
        )
        return text + (", with constraints" if constraints is not None else "")

    def evaluate(self, x: Any, y: Any) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return F (k,), G (k, K), f (k,), g (k, J) at pairs of points; no evaluation is counted.

        f is NaN if only a solver knows it.
        """
        x_rows, y_rows = np.atleast_2d(frozen(x)), np.atleast_2d(frozen(y))
        if x_rows.shape[1] != self.m or y_rows.shape[1] != self.n or len(x_rows) != len(y_rows):
            raise ValueError(
                f"{self.name} takes x of shape (k, {self.m}) and y of shape (k, {self.n}); "
                f"got {x_rows.shape} and {y_rows.shape}"
            )
        if self.simulator is not None:
            return self.simulator.evaluate(x_rows, y_rows, self.repeats_lower)
        return *self.values(Level.UPPER, x_rows, y_rows), *self.values(Level.LOWER, x_rows, y_rows)

    def values(self, level: Level, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a level's objective (k,) and constraints (k, c) at x (k, m), y (k, n)."""
        if self.simulator is not None:
            values = self.simulator.evaluate(x, y, self.repeats_lower)
            return values[:2] if level is Level.UPPER else values[2:]
        objective, constraints = self.functions(level)
        returned = Returned(level, self.vectorized, least=self.repeats(level))
        batches = [(x, y)] if self.vectorized else list(zip(x, y, strict=True))
        return (
            np.concatenate([returned.objective(objective, *batch) for batch in batches]),
            np.concatenate([returned.constraints(constraints, *batch) for batch in batches]),
        )

    def slopes(self, level: Level, x: FloatArray, y: FloatArray) -> RawSlopes:
        """Return the slopes of a level's objective and constraints at x (k, m), y (k, n).

        They are in the user's units; NaN stands for gradients that are not given.
        """
        returned = Returned(level, self.vectorized, least=self.repeats(level))
        batches: list[tuple[FloatArray, FloatArray]] = [(x, y)]
        if not self.vectorized:
            batches = list(zip(x, y, strict=True))
        found = [self.slopes_at(level, *pairs, returned) for pairs in batches]
        return RawSlopes(*map(np.concatenate, zip(*found, strict=True)))

    def slopes_at(
        self, level: Level, x: FloatArray, y: FloatArray, returned: Returned
    ) -> RawSlopes:
        """Return a level's slopes at one pair, or at rows of pairs if the problem is vectorized.

        `returned` knows the number of constraints, or learns it here.
        """
        objective, constraints = self.gradients(level)
        if objective is None:
            raise ValueError(f"{self.name} gives no gradient of {'F' if level == 'upper' else 'f'}")
        constrained = self.functions(level)[1] is not None
        calls = ReturnedSlopes(returned, self.m, self.n, constrained)
        return calls.at((objective, constraints), x, y)


@dataclass(frozen=True, slots=True)
class Target:
    """A value of F that ends a run: a known optimum, or a number that F must not exceed.

    `optimum` tells the two apart. F may miss the value by `ftol`.
    """

    F: float
    ftol: float
    optimum: bool

    def reached(self, F: float, violation: float) -> bool:
        if violation > 0:
            return False
        return abs(F - self.F) < self.ftol if self.optimum else self.F + self.ftol >= F


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """All that an algorithm sees of a problem. Both levels are searched in the unit box.

    The driver maps [0, 1]^m x [0, 1]^n to the user's bounds, so an algorithm needs no bounds, and
    variables of very different widths look alike. `spread` (m + n,) holds the standard deviations
    that a search over the whole box starts with. `x0` (m,) and `y0` (n,) are the user's start, or
    None. `kernel` says what computes CMA-ES: "numpy", or compiled "numba". `ctol` (upper, lower) is
    what the driver forgives in constraints (see `bilevo.core.feasibility`).

    `step_cost` is the largest cost of a step of the problem's own solver, or None if there is no
    solver. A solver's answers are in the user's units, because no algorithm searches them; `spread`
    is (m,) then. `slopes` says which gradients an algorithm can ask for by `Derive`. `equilibrium`
    says that the solver's answers are equilibria, which all have the same f.

    `blocks` says which part of y is whose, if a point probes all followers at once: they are
    independent, and `Values.parts` has the f_i of each. It is None otherwise.

    `joint` says that one simulation gives the values of both levels: a pair at which one level has
    asked costs the other level nothing.

    `x_grid` and `y_grid` say which coordinates are whole numbers or choices; None says that none
    is. An algorithm that ignores them searches points that are decoded (see `core.space`).
    """

    m: int
    n: int
    seed: int
    budget: FullBudget
    spread: FloatArray
    target: Target | None = None
    ftol: float = 1e-6
    x0: FloatArray | None = None
    y0: FloatArray | None = None
    kernel: Literal["numpy", "numba"] = "numpy"
    step_cost: int | None = None
    ctol: tuple[float, float] = (0.0, 0.0)
    slopes: SlopesGiven = NO_SLOPES
    x_grid: Grid | None = None
    y_grid: Grid | None = None
    equilibrium: bool = False
    stance: Stance = Stance.OPTIMISTIC  # see core.stance, also for `tie_tol`
    tie_tol: float | None = None
    blocks: tuple[slice, ...] | None = None
    joint: bool = False

    @property
    def n_each(self) -> int:
        """Return how many variables a search has: those of the largest block, if there are any."""
        if self.blocks is None:
            return self.n
        return max(int(block.stop - block.start) for block in self.blocks)
