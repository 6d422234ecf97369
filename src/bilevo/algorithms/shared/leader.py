"""What algorithms share at the leader's level: state, elite, order and stop rules.

The elite is the best pair so far, and the candidate is the best pair of a generation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilevo.algorithms.shared.follower_search import (
    AnyFollowerSearch,
    Pair,
    SolverSearch,
    evaluate_pairs,
)
from bilevo.core.algorithm import AlgorithmState
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.bounds import Grid
from bilevo.core.budget import Scale, StopReason, interquartile_range
from bilevo.core.order import best_index, ranking
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, T, Values, together
from bilevo.core.stop_rules import AtTarget, BudgetUsed, Progress, Stagnation, StopRule, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.protocol import AnyOptimizer, PopulationOptimizer, Start

JUST_MISSED = 100  # A target is just missed if F differs by less than this number times ftol.


@dataclass(slots=True, eq=False)
class LeaderState:
    """The state of a run between two upper generations."""

    leader: Any  # state of the upper optimizer
    generation: int = 0
    provisional: Pair | None = None  # the best pair before the first elite
    elite: Pair | None = None
    pending: Pair | None = None  # a candidate to refine beside the next generation's search
    # F after each generation, which shows whether the search has stagnated: usually the elite's
    elite_F: list[float] = field(default_factory=list)
    F_scale: Scale = field(default_factory=Scale)
    f_scale: Scale = field(default_factory=Scale)
    F_spread: float = 0.0  # interquartile range of F in the last generation
    spent: int = 0  # upper evaluations so far
    tasks: int = 0  # how many searches the problem's own solver has begun
    stop: StopReason | None = None
    executions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    survived: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def the_elite(self) -> Pair:
        assert self.elite is not None
        return self.elite

    def progress(self, settled: bool = False, lower: int = 0) -> Progress:
        """Return how far the run has come; before the first elite, the best values are infinite."""
        best = (math.inf, math.inf) if self.elite is None else (self.elite.F, self.elite.violation)
        return Progress(*best, self.spent, lower, self.generation, self.elite_F, settled)


def start_leader(spec: Spec, optimizer: AnyOptimizer, d: int) -> LeaderState:
    """Return a run's first state, with an upper search over the first d variables of (x, y).

    The search starts at a random mean, with x at x0 and y at y0 if these are given.
    """
    rng = stream(spec.seed, "start")
    start = Start.uniform(spec.spread[:d], rng)
    if spec.x0 is not None:
        start.mean[: spec.m] = spec.x0
    if spec.y0 is not None and d > spec.m:
        start.mean[spec.m :] = spec.y0
    return LeaderState(optimizer.start(start, rng))


def grids(spec: Spec) -> tuple[Grid, Grid]:
    """Return the grids of x and y; one of real variables has a single cell."""
    x_grid = Grid.of_reals(spec.m) if spec.x_grid is None else spec.x_grid
    y_grid = Grid.of_reals(spec.n) if spec.y_grid is None else spec.y_grid
    return x_grid, y_grid


def has_grid(spec: Spec) -> bool:
    """Tell whether any variable that is searched is a whole number or a choice."""
    return spec.x_grid is not None or spec.y_grid is not None


def first_leaders(count: int, spec: Spec, rng: np.random.Generator) -> FloatArray:
    """Draw leaders x (count, m) uniformly; the first is x0, if given."""
    x = rng.random((count, spec.m))
    if spec.x0 is not None:
        x[0] = spec.x0
    return x


def first_by_itself(tasks: Iterable[Procedure[T]]) -> Procedure[list[T]]:
    """Run the first task alone, so that there is an answer soon, and then the others together."""
    first, *others = tasks
    result = yield from first
    return [result, *(yield from together(others))]


def sample_leaders(spec: Spec, state: LeaderState, optimizer: AnyOptimizer) -> FloatArray:
    """Sample the leaders x (p, m) of a generation; the first leader of a run is x0, if given."""
    rng = stream(spec.seed, "leader", state.generation)
    x = np.array(optimizer.ask(state.leader, rng)[:, : spec.m], order="C")
    if state.generation == 0 and spec.x0 is not None:
        x[0] = spec.x0
    return x


def evaluate_leaders(state: LeaderState, pairs: list[Pair]) -> Procedure[Values]:
    """Fill in F and the total violation of pairs; before the first elite, report the best pair."""
    values = yield from evaluate_pairs(pairs)
    state.spent = values.spent
    for pair in pairs if state.elite is None else ():
        if state.provisional is None or pair.no_worse(state.provisional):
            state.provisional = pair
            yield pair.incumbent
    return values


def evaluate_leader(state: LeaderState, pair: Pair) -> Procedure[Values]:
    """Fill in F and the total violation of one pair."""
    return evaluate_leaders(state, [pair])


def evaluate_answer(state: LeaderState, pair: Pair) -> Procedure[Values | None]:
    """Fill in F of a pair, unless it has no answer because the problem's own solver failed."""
    if pair.task < 0 or pair.lower_violation < math.inf:
        return (yield from evaluate_leader(state, pair))
    return None


def leader_values(pairs: list[Pair]) -> tuple[FloatArray, FloatArray]:
    """Return F and the violation of pairs, (k,) each."""
    return np.array([pair.F for pair in pairs]), np.array([pair.violation for pair in pairs])


def leader_ranking(pairs: list[Pair]) -> IntArray:
    return ranking(*leader_values(pairs))


def best_pair(pairs: list[Pair]) -> Pair:
    return pairs[best_index(*leader_values(pairs))]


def solve_follower(state: LeaderState, follower: AnyFollowerSearch) -> Procedure[None]:
    """Run a follower search to its end and evaluate F at its answer."""
    pair = yield from follower.solve()
    yield from evaluate_answer(state, pair)


def solver_searches(spec: Spec, state: LeaderState, leaders: FloatArray) -> list[SolverSearch]:
    """Return a search by the problem's own solver for each leader."""
    first, state.tasks = state.tasks, state.tasks + len(leaders)
    longest = most_steps(spec)
    return [SolverSearch(x, first + i, longest) for i, x in enumerate(leaders)]


def most_steps(spec: Spec) -> int:
    """Return how many steps the solver may take for one leader."""
    assert spec.step_cost is not None
    return max(1, spec.budget.lower_max // spec.step_cost)


def note_tasks(state: AlgorithmState, executions: Sequence[int], pairs: list[Pair]) -> None:
    """Note how often a generation's tasks ran, and which survive: the better half of the pairs."""
    state.executions = np.array(executions)
    state.survived = np.zeros(len(pairs), np.bool_)
    state.survived[leader_ranking(pairs)[: len(pairs) // 2]] = True


def close_generation(
    spec: Spec,
    state: LeaderState,
    executions: Sequence[int],
    pairs: list[Pair],
    rules: Sequence[StopRule] | None = None,
    settled: bool = False,
    lower: int = 0,
    recorded_F: float | None = None,
) -> None:
    """End a generation whose elite is chosen: note the tasks, and test the stop rules.

    `rules` are by default the published rules of the upper level. `settled`, and the number `lower`
    of lower evaluations so far, are for rules that need them. The search has stagnated if
    `recorded_F` changes no more, which is by default the elite's F.
    """
    F, _ = leader_values(pairs)
    state.F_scale.see(F)
    state.F_spread = interquartile_range(F)
    state.elite_F.append(state.the_elite.F if recorded_F is None else recorded_F)
    note_tasks(state, executions, pairs)
    state.generation += 1
    rules = upper_rules(spec, state, len(pairs)) if rules is None else rules
    state.stop = first_met(rules, state.progress(settled, lower))


def tell_leader(
    state: LeaderState, optimizer: AnyOptimizer, points: FloatArray, pairs: list[Pair]
) -> None:
    """Update the upper search with pairs; `points` are the pairs in the variables of this search.

    A pair that waits for its refinement counts as failed. A pair whose follower is not solved may
    have an F that is too good. An optimizer that keeps values would keep that F for ever, so it is
    told the elite's values instead.
    """
    F, violation = leader_values(pairs)
    for i, pair in enumerate(pairs):
        if pair is state.pending:
            F[i] = violation[i] = math.inf
        elif optimizer.keeps_values and is_unproven(pair, state.elite):
            F[i], violation[i] = state.the_elite.F, state.the_elite.violation
    optimizer.tell(state.leader, points, F, violation)


def is_unproven(pair: Pair, elite: Pair | None) -> bool:
    """Tell whether a pair seems better than the elite, but its follower is not solved."""
    return elite is not None and not pair.converged and not elite.no_worse(pair)


def reached(spec: Spec, pair: Pair) -> bool:
    """Tell whether a pair meets the target, which only a feasible pair can do."""
    return AtTarget(spec.target).reached(pair.F, pair.violation)


def is_just_missed(spec: Spec, pair: Pair) -> bool:
    """Tell whether a feasible pair misses the target by so little that its last digits count."""
    if spec.target is None or pair.violation > 0 or reached(spec, pair):
        return False
    return abs(pair.F - spec.target.F) < JUST_MISSED * spec.target.ftol


def upper_rules(spec: Spec, state: LeaderState, p: int) -> tuple[StopRule, ...]:
    """Return the published rules of the upper level, for generations of p pairs."""
    budget = spec.budget
    return (
        AtTarget(spec.target),
        Stagnation(
            math.ceil(budget.upper_window / p), state.F_scale.tolerance(spec.ftol), spec.ftol
        ),
        BudgetUsed(upper=budget.upper_max, generations=math.ceil(budget.upper_max / p)),
    )


def require_optimizer(optimizer: Any) -> None:
    """Refuse an object that lacks a member of `PopulationOptimizer`."""
    needed = [name for name in dir(PopulationOptimizer) if not name.startswith("_")]
    missing = [name for name in needed if not hasattr(optimizer, name)]
    if missing or isinstance(optimizer, type):
        raise ValueError(
            f"an optimizer such as CMAES() is needed, got {optimizer!r}"
            + (f", which has no {', '.join(missing)}" if missing else "")
        )


def finish(spec: Spec, state: LeaderState, pair: Pair) -> Procedure[Pair]:
    """Let the solver end its search for a pair's answer; return the pair with the last answer."""
    if pair.converged:
        return pair
    new = yield from SolverSearch.again(pair, most_steps(spec)).solve()
    if new is not pair:
        yield from evaluate_answer(state, new)
    return new


def candidate_index(pairs: list[Pair]) -> int:
    """Return the index of the best converged pair, or of the best pair if none has converged.

    A pair whose evaluation failed is chosen only if all pairs have failed.
    """
    converged = [i for i, p in enumerate(pairs) if p.converged and p.violation < math.inf]
    among = converged or range(len(pairs))
    return next(int(i) for i in leader_ranking(pairs) if i in among)


def alone_reaches(spec: Spec, pair: Pair, elite: Pair) -> bool:
    """Tell whether a pair meets the target and the elite does not."""
    return reached(spec, pair) and not reached(spec, elite)
