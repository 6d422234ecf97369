"""Solvers for a linear program (`LinProg`) or a mixed-integer one (`Milp`), by HiGHS.

Both are exact: one step solves the program for the leader's x, and the solver is done.

- **Ties.** Where several solutions are optimal, HiGHS gives any one of them, and the leader's value
  may jump. `tie(x)` is the leader's own cost vector d, and a second solve decides: it takes the
  least d @ y among optimal solutions for an optimistic leader, and the largest for a pessimistic
  one. `minimize(..., stance=..., tie_tol=...)` sets the stance (`take_stance`). Solutions are tied
  if their reduced costs are below 1e-7 (`LinProg`), or their costs agree to 1e-9 (`Milp`). With a
  `tie_tol`, they are tied if their costs are at most `tie_tol` above the least one.
- **No feasible solution.** The leader has caused that, so it is a value and not an error. A further
  solve relaxes rows (and bounds that cross) by the least possible sum. This sum is the violation,
  which leads the leader back to feasible programs. f is the cost of the relaxed solution. y is the
  middle of the problem's y_bounds, because there are no duals from which `answer` (see `LinProg`)
  could make y.
- **Anything else** (an unbounded program, a limit of the solver, keywords that scipy does not take)
  is a mistake in the model, and raises ValueError.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.checks import require
from bilevo.core.problem import Problem
from bilevo.core.stance import Stance

Model = Callable[[FloatArray], Mapping[str, Any]]
Tie = Callable[[FloatArray], Any]
MakeAnswer = Callable[[FloatArray, Any], Any]

TIED = 1e-9  # mixed-integer solutions are tied if their costs differ by less than this share
TOLERANCE = 1e-7  # HiGHS takes smaller violations and reduced costs for 0
LIMIT = 1  # scipy's status of a solve that a limit ended


@dataclass(frozen=True, slots=True)
class Solve:
    """The leader's x, and the solution of its program; y is empty before the solve."""

    x: FloatArray
    y: FloatArray = field(default_factory=lambda: np.empty(0))
    f: float = math.inf
    violation: float = math.inf


@dataclass(frozen=True, slots=True)
class Program:
    """min c @ y s.t. row_lower <= rows @ y <= row_upper, lower <= y <= upper, some of y integer."""

    c: FloatArray
    integrality: FloatArray
    lower: FloatArray
    upper: FloatArray
    rows: Any  # (k, n), dense or sparse
    row_lower: FloatArray
    row_upper: FloatArray

    def excess(self) -> tuple[float, float]:
        """Return the least sum by which rows and crossed bounds must be relaxed, and c @ y then."""
        from scipy.sparse import eye_array, hstack

        k = len(self.row_lower)
        crossed = np.maximum(self.lower - self.upper, 0)
        elastic = replace(
            self,
            c=np.append(np.zeros_like(self.c), np.ones(2 * k)),
            integrality=np.append(self.integrality, np.zeros(2 * k)),
            lower=np.append(self.lower, np.zeros(2 * k)),
            upper=np.append(self.upper + crossed, np.full(2 * k, np.inf)),
            rows=hstack([self.rows, eye_array(k), -eye_array(k)], format="csc"),
        ).solve()
        if not elastic.success:
            raise ValueError(f"its constraints cannot be relaxed: {elastic.message}")
        total = float(elastic.fun + crossed.sum())
        size = max(1.0, float(np.abs(elastic.x).max()))
        return total if total > TOLERANCE * size else 0.0, float(self.c @ elastic.x[: self.c.size])

    def solve(self) -> Any:
        from scipy.optimize import Bounds, LinearConstraint, milp

        return milp(
            self.c,
            integrality=self.integrality,
            bounds=Bounds(self.lower, self.upper),
            constraints=LinearConstraint(self.rows, self.row_lower, self.row_upper),
            options={"mip_rel_gap": 0.0},
        )


@dataclass(frozen=True, slots=True)
class _Exact(ABC):
    """The common part of both solvers; `LinProg` explains `model`, `tie` and `answer`."""

    model: Model
    tie: Tie | None = None
    answer: MakeAnswer | None = None
    middle: FloatArray | None = field(default=None, repr=False, kw_only=True)  # middle of y_bounds
    # Stored runs are older than the next two fields, which `take_stance` sets.
    stance: Stance = field(
        default=Stance.OPTIMISTIC, repr=False, kw_only=True, metadata={"newer": True}
    )
    tie_tol: float | None = field(default=None, repr=False, kw_only=True, metadata={"newer": True})

    cost: ClassVar[int] = 1
    solver: ClassVar[str]

    def __post_init__(self) -> None:
        for name in ("model", "tie", "answer"):
            given = getattr(self, name)
            fine = callable(given) or (given is None and name != "model")
            require(fine, name, "a function", given)

    def bind(self, problem: Problem) -> Self:
        box = problem.y_bounds
        return replace(self, middle=frozen(box.lower + 0.5 * box.width))

    def take_stance(self, stance: Stance, tie_tol: float | None) -> Self:
        """Return this solver for a leader of a stance; `tie` must say what the leader wants."""
        if self.tie is None:
            name = type(self).__name__
            raise ValueError(
                f'{name} needs tie=... for stance="{stance}" or a tie_tol: a function of x that '
                "returns the leader's cost of each variable"
            )
        return replace(self, stance=stance, tie_tol=tie_tol)

    def start(self, x: FloatArray, rng: np.random.Generator) -> Solve:
        return Solve(x)

    def advance(self, state: Solve) -> Solve:
        words = self._words(state.x)
        try:
            solution = self._first(words)
        except (TypeError, ValueError, KeyError) as error:
            takes = f"is not what scipy.optimize.{self.solver} takes: {error}"
            raise self._wrong(state.x, f"the model {takes}") from error
        if not solution.success:
            return self._infeasible(state.x, solution, self._program(words))
        if self.tie is not None:
            program = self._program(words)
            best_ones = self._best_ones(program, solution)
            if self.tie_tol:
                best_ones = _nearly_best(program, float(solution.fun) + self.tie_tol)
            solution.x = self._tied(state.x, self.tie(state.x), best_ones)
            if self.tie_tol:
                solution.fun = float(program.c @ solution.x)
        y = solution.x if self.answer is None else self.answer(state.x, solution)
        return Solve(state.x, np.array(y, dtype=float).reshape(-1), float(solution.fun), 0.0)

    def best(self, state: Solve) -> tuple[FloatArray, float, float]:
        return state.y, state.f, state.violation

    def done(self, state: Solve) -> bool:
        return state.y.size > 0

    def _words(self, x: FloatArray) -> dict[str, Any]:
        words = self.model(x)
        if not isinstance(words, Mapping) or "c" not in words:
            wanted = f"a dict of keywords of scipy.optimize.{self.solver}, with c at least"
            raise self._wrong(x, f"the model must be {wanted}, got {words!r}")
        return dict(words)

    def _tied(self, x: FloatArray, given: Any, best_ones: Program) -> FloatArray:
        d = np.asarray(given, dtype=float)
        if d.shape != best_ones.c.shape or not np.isfinite(d).all():
            wanted = f"{best_ones.c.size} finite numbers, one for each variable of the model"
            raise self._wrong(x, f"tie must give {wanted}; got {given!r}")
        second = replace(best_ones, c=self.stance.seen(d)).solve()
        if not second.success:
            raise self._wrong(x, f"the tie cannot be broken by {given!r}: {second.message}")
        return _whole(second.x, best_ones.integrality)

    def _infeasible(self, x: FloatArray, solution: Any, program: Program) -> Solve:
        violation, f = (0.0, math.inf) if solution.status == LIMIT else program.excess()
        if violation == 0:
            raise self._wrong(x, f"no optimal solution, though it is feasible: {solution.message}")
        if self.middle is None:
            raise self._wrong(x, "no feasible solution, and no Problem to take a y from")
        return Solve(x, self.middle, f, violation)

    def _wrong(self, x: FloatArray, what: str) -> ValueError:
        return ValueError(f"{type(self).__name__} at x = {np.array2string(x)}: {what}")

    @abstractmethod
    def _first(self, words: dict[str, Any]) -> Any:
        """Return scipy's result for the model as it is given."""

    @abstractmethod
    def _program(self, words: dict[str, Any]) -> Program:
        """Return the model as a program, which can be solved again with other costs or limits."""

    @abstractmethod
    def _best_ones(self, program: Program, solution: Any) -> Program:
        """Return a program whose feasible solutions are the optimal ones of this program."""


@dataclass(frozen=True, slots=True)
class LinProg(_Exact):
    """Solves a linear program by `scipy.optimize.linprog`.

    `model(x)` returns its keywords as a dict: c, and A_ub, b_ub, A_eq, b_eq, bounds if needed.
    `tie(x)` says which of several optimal solutions is taken; see the head of this file. By default
    the leader sees scipy's `solution.x`. A function `answer(x, solution)` may return another y, so
    that duals, such as prices, can be part of y. Duals come from the first solve and hold for every
    optimal solution.

    >>> cheapest = LinProg(lambda x: {"c": [1.0, x[0]], "A_ub": [[-1, -1]], "b_ub": [-3]})
    >>> state = cheapest.start(np.array([0.5]), np.random.default_rng(1))
    >>> y, f, violation = cheapest.best(cheapest.advance(state))
    >>> y.tolist(), f, violation
    ([0.0, 3.0], 1.5, 0.0)
    """

    solver: ClassVar[str] = "linprog"

    def _first(self, words: dict[str, Any]) -> Any:
        from scipy.optimize import linprog

        if words.get("integrality") is not None:
            raise ValueError("integer variables need bilevo.followers.Milp")
        return linprog(**words)

    def _program(self, words: dict[str, Any]) -> Program:
        c = np.array(words["c"], dtype=float).reshape(-1)
        ends = np.array((0, None) if words.get("bounds") is None else words["bounds"], dtype=float)
        lower, upper = np.broadcast_to(ends, (c.size, 2)).T  # None has become NaN
        blocks = []
        if words.get("A_ub") is not None:
            blocks.append((words["A_ub"], -np.inf, words["b_ub"]))
        if words.get("A_eq") is not None:
            blocks.append((words["A_eq"], words["b_eq"], words["b_eq"]))
        return Program(
            c,
            np.zeros_like(c),
            np.where(np.isnan(lower), -np.inf, lower),
            np.where(np.isnan(upper), np.inf, upper),
            *_rows(blocks, c.size),
        )

    def _best_ones(self, program: Program, solution: Any) -> Program:
        """Fix at its bound each variable or row whose dual is not 0 (complementary slackness)."""
        prices = np.append(solution.ineqlin.marginals, np.zeros_like(solution.eqlin.marginals))
        at_lower = solution.lower.marginals > TOLERANCE
        at_upper = solution.upper.marginals < -TOLERANCE
        return replace(
            program,
            lower=np.where(at_upper, program.upper, program.lower),
            upper=np.where(at_lower, program.lower, program.upper),
            row_lower=np.where(prices < -TOLERANCE, program.row_upper, program.row_lower),
        )


@dataclass(frozen=True, slots=True)
class Milp(_Exact):
    """Solves a mixed-integer linear program by `scipy.optimize.milp`.

    `model(x)` returns its keywords as a dict: c, and integrality, bounds, constraints if needed.
    The optimality gap is 0 unless options say otherwise. Integer variables are rounded. `tie` and
    `answer` are as in `LinProg`.

    >>> knapsack = Milp(lambda x: {"c": -x, "integrality": 1, "bounds": (0, 1),
    ...                            "constraints": ([[2, 3, 4]], 0, 6)})
    >>> state = knapsack.start(np.array([3.0, 4.0, 5.0]), np.random.default_rng(1))
    >>> y, f, violation = knapsack.best(knapsack.advance(state))
    >>> y.tolist(), f, violation
    ([1.0, 0.0, 1.0], -8.0, 0.0)
    """

    solver: ClassVar[str] = "milp"

    def _first(self, words: dict[str, Any]) -> Any:
        from scipy.optimize import milp

        options = {"mip_rel_gap": 0.0, **(words.get("options") or {})}
        solution = milp(**{**words, "options": options})
        if solution.success:
            solution.x = _whole(solution.x, _integrality(words))
            solution.fun = np.asarray(words["c"], dtype=float) @ solution.x
        return solution

    def _program(self, words: dict[str, Any]) -> Program:
        from scipy.optimize import Bounds

        c = np.array(words["c"], dtype=float).reshape(-1)
        box = (0, np.inf) if words.get("bounds") is None else words["bounds"]
        box = box if isinstance(box, Bounds) else Bounds(*box)
        each = (_integrality(words), box.lb, box.ub)
        integrality, lower, upper = (np.broadcast_to(one, c.shape).astype(float) for one in each)
        return Program(
            c,
            integrality,
            lower,
            upper,
            *_rows([(one.A, one.lb, one.ub) for one in _constraints(words)], c.size),
        )

    def _best_ones(self, program: Program, solution: Any) -> Program:
        slack = TIED * max(1.0, float(np.abs(program.c * solution.x).sum()))
        return _nearly_best(program, program.c @ solution.x + slack)


def _nearly_best(program: Program, most: float) -> Program:
    """Return a program whose feasible solutions cost at most `most` in this program."""
    from scipy.sparse import vstack

    return replace(
        program,
        rows=vstack([program.rows, program.c[None]], format="csc"),
        row_lower=np.append(program.row_lower, -np.inf),
        row_upper=np.append(program.row_upper, most),
    )


def _integrality(words: dict[str, Any]) -> Any:
    given = words.get("integrality")
    return np.zeros(1) if given is None else np.asarray(given)


def _constraints(words: dict[str, Any]) -> list[Any]:
    """Return a list of constraints; `milp` also takes one alone, or tuples (A, lower, upper)."""
    from scipy.optimize import LinearConstraint

    given = words.get("constraints")
    if given is None or isinstance(given, LinearConstraint):
        return [] if given is None else [given]
    try:
        return [LinearConstraint(*given)]
    except (TypeError, ValueError):
        return [
            one if isinstance(one, LinearConstraint) else LinearConstraint(*one) for one in given
        ]


def _rows(blocks: list[tuple[Any, Any, Any]], n: int) -> tuple[Any, FloatArray, FloatArray]:
    """Join blocks (A, lower, upper) into a sparse matrix (k, n) and the limits of its rows."""
    from scipy.sparse import csc_array, vstack

    matrices, ends = [csc_array((0, n))], [np.empty((2, 0))]
    for matrix, lower, upper in blocks:
        matrices.append(csc_array(matrix))
        k = matrices[-1].shape[0]
        ends.append(np.array([np.broadcast_to(np.reshape(end, -1), k) for end in (lower, upper)]))
    row_lower, row_upper = np.concatenate(ends, axis=1)
    return vstack(matrices, format="csc"), row_lower, row_upper


def _whole(y: FloatArray, integrality: FloatArray) -> FloatArray:
    """Round the integer variables of y, which HiGHS gives to within a millionth."""
    return np.where(integrality % 2 == 1, np.round(y), y)
