"""The state of a drc-plus run, and the search by CMA-ES over x that is part of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.drc_plus.leader_view import LeaderView, is_better
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import LeaderState, best_pair, leader_values
from bilevo.core.arrays import TINY, BoolArray, FloatArray, IntArray
from bilevo.core.budget import StopReason
from bilevo.core.problem import Spec
from bilevo.core.stop_rules import BudgetUsed, Progress, Settled, first_met
from bilevo.optimizers.cma_es import CMAES, CMAState
from bilevo.optimizers.protocol import Start

# This many searches without a better elite end a run, and four times as many if it has a target.
FRUITLESS_SEARCHES = 2
RECHECK = 10  # A light check is trusted for this many times the evaluations that it took.
ONE_BASIN = 4  # phi seems to have one basin if this many descents have all ended at one x.
AWAY = 0.01  # Only descents that have led this far from their start count (fraction of the box).
NARROW = 0.03  # A search by CMA-ES is narrow if its deviations are smaller (fractions of the box).


@dataclass(slots=True, eq=False)
class LeaderSearch:
    """A search by CMA-ES over x."""

    leader: CMAState
    population: int
    best: Pair | None = None
    stale: int = 0  # generations without progress
    descended: float = math.inf  # width of the search when a descent last started from `best`

    @classmethod
    def start(cls, start: Start, population: int) -> LeaderSearch:
        return cls(CMAES().start(start), population)

    @classmethod
    def around(
        cls, x: FloatArray, hessian: FloatArray, left: float, widest: float = 0.1
    ) -> LeaderSearch:
        """Start a search around x (m,), over which a model of F rises by `left`.

        Its first deviations are at most `widest`.
        """
        eigenvalues, vectors = np.linalg.eigh(hessian)
        variances = 2 * left / np.maximum(eigenvalues, 1e-12 * max(eigenvalues[-1], TINY))
        covariance = (vectors * np.clip(variances, 1e-16, widest**2)) @ vectors.T
        start = Start(x, covariance, np.zeros(len(x)))
        return cls.start(start, CMAES().population_size(len(x)))

    @property
    def deviations(self) -> FloatArray:
        """Return the standard deviations (m,)."""
        return np.asarray(self.leader.sigma * np.sqrt(self.leader.C.diagonal()))

    @property
    def width(self) -> float:
        return float(self.deviations.max())

    @property
    def ended(self) -> bool:
        patience = 10 + math.ceil(30 * self.leader.d / self.population)
        return self.stale > patience or self.width < 1e-9 or not self.leader.sigma < 1e3

    def nears(self, ends: FloatArray) -> bool:
        """Tell whether the search narrows to where a local search has ended; `ends` is (k, m)."""
        near = np.abs(ends - self.leader.mean) <= 3 * self.deviations
        return self.width < NARROW and bool(near.all(axis=1).any())

    def tell(self, x: FloatArray, pairs: list[Pair], tolerance: float) -> None:
        """Learn from a generation; only a gain in F above the tolerance counts as progress."""
        F, violation = leader_values(pairs)
        CMAES(self.population).tell(self.leader, x, F, violation)
        best = best_pair(pairs)
        self.stale += 1
        if self.best is None or is_better(best, self.best, tolerance):
            self.stale = 0
        if self.best is None or best.no_worse(self.best):
            self.best = best


@dataclass(slots=True, eq=False)
class DRCPlusState(LeaderView):
    """The state of a run between two upper generations."""

    search: LeaderSearch = field(kw_only=True)  # CMA-ES over the whole box
    start_is_answer: bool = False  # whether another search has found y0, as the answer to x0
    checked_elite: Pair | None = None  # the last elite that was checked
    ends: FloatArray = field(kw_only=True)  # where descents ended, (k, m)
    descents: int = 0  # descents so far that started away from where they ended
    descending: int = 0  # evaluations that descents have used
    sampling: int = 0  # evaluations that `search` has used
    kinked: bool = False  # whether the last descent to a new elite ended at a kink of phi
    restart_elite: Pair | None = None  # the elite at the last restart that saw a gain
    fruitless: int = 0  # searches since then; none of them found a better elite
    smoothness_at: int = 0  # evaluations so far when the smoothness of f was last tested
    check_evals: int = 0  # evaluations that the last check of an elite took
    checked_at: int = 0  # evaluations so far when that check ended
    fallback: LeaderState | None = None  # the state of DRC, if it has taken over
    indifferent: bool = False  # whether a check has seen ties of a follower (see tie_stage)
    faces: bool = False  # whether these lie on active constraints, and the leader prefers some
    stop: StopReason | None = None
    executions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    survived: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    def progress(self, settled: bool = False) -> Progress:
        """Return how far the run has come; its best pair is the elite."""
        F, violation = self.the_elite.F, self.the_elite.violation
        lower = self.total - self.spent
        return Progress(F, violation, self.spent, lower, self.generation, settled=settled)

    @property
    def check_is_due(self) -> bool:
        """Tell whether the elite has passed a light check only, and the run has gone on for long.

        A wrong elite makes all further searches useless, because its F is too good.
        """
        since = self.total - self.checked_at
        return 0 < self.checked < 1 and since > RECHECK * max(self.check_evals, 100)

    def note_descent(self, before: int) -> None:
        """Note that a generation was a descent (one task); `total` was `before` at its start."""
        self.descending += self.total - before
        self.executions, self.survived = np.array([self.total - before]), np.ones(1, np.bool_)

    def restart(self, spec: Spec, searches: int) -> None:
        """Restart CMA-ES at random with twice the population, or stop after fruitless searches.

        `searches` is the number of searches since the last restart.
        """
        elite, tolerance = self.the_elite, self.F_tolerance(spec.ftol)
        if self.restart_elite is None or is_better(elite, self.restart_elite, tolerance):
            self.restart_elite, self.fruitless = elite, 0
        else:
            self.fruitless += searches
        most = FRUITLESS_SEARCHES if spec.target is None else 4 * FRUITLESS_SEARCHES
        self.stop = first_met([Settled()], self.progress(settled=self.fruitless >= most))
        rng = self.stream(spec, "restart")
        population = min(2 * self.search.population, 16 * CMAES().population_size(spec.m))
        self.search = LeaderSearch.start(Start.uniform(spec.spread[: spec.m], rng), population)

    def altered_elite(self, spec: Spec, rng: np.random.Generator) -> FloatArray:
        """Return the elite's x after some of its coordinates were changed."""
        chosen = rng.random(spec.m) < rng.random()
        chosen[rng.integers(spec.m)] = True
        step = rng.normal(0.0, spec.spread[: spec.m])
        if len(self.ends) > 2 and rng.random() < 0.5:  # optima often lie on a lattice
            a, b = rng.choice(len(self.ends), 2, replace=False)
            step = self.ends[a] - self.ends[b]
        return np.asarray(np.clip(self.the_elite.x + chosen * step, 0.0, 1.0))

    @property
    def seems_unimodal(self) -> bool:
        """Tell whether all descents have ended at one x, and there were enough of them.

        Constraints may divide the box, so that too few descents tell nothing.
        """
        enough = self.descents >= ONE_BASIN and not self.constrained
        return enough and len(self.ends) == 1

    def missing_descents(self, most: int) -> int:
        """Return how many more descents, `most` at most, show whether phi has one basin.

        One is made in any case, and one more than `ONE_BASIN`, because the one from the best leader
        may end where it starts. If descents have ended at several x, all are made.
        """
        if self.constrained or len(self.ends) > 1:
            return most
        return max(1, min(most, ONE_BASIN + 1 - self.descents))

    def may_end_soon(self, spec: Spec) -> bool:
        """Tell whether the run may end after its next look at other leaders.

        Then the last check follows soon. So far one optimum was found, and no answer was refuted.
        """
        one = len(self.ends) == 1 and not self.constrained
        return spec.target is None and one and not self.known.refuted.size

    def remember_end(self, x: FloatArray, start: FloatArray) -> None:
        """Remember where a descent ended, unless an earlier descent ended there."""
        self.descents += bool(np.abs(x - start).max() > AWAY)
        if (np.abs(self.ends - x).max(axis=1) > 1e-3).all():
            self.ends = np.concatenate([self.ends, x[None]])[-100:]


def spread_of(pairs: list[Pair]) -> float:
    """Return the range of F in the better half of the feasible pairs; inf if fewer than three."""
    feasible = sorted(pair.F for pair in pairs if pair.violation == 0)
    return feasible[len(feasible) // 2] - feasible[0] if len(feasible) > 2 else math.inf


def budget_of(spec: Spec) -> BudgetUsed:
    """Return the limit: in total about the evaluations that DRC would use.

    There is no limit on the upper level alone: a search over variables that the follower does not
    feel needs only upper evaluations.
    """
    return BudgetUsed(total=spec.budget.upper_max * spec.budget.lower_window / 2)
