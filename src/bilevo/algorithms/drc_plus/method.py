"""drc-plus: DRC with followers that learn from each other, leaders that descend, and certificates.

The method is our own; docs/drc-plus.md measures what each ingredient saves. In DRC (see drc),
follower searches compete for evaluations. Here most follower searches need only one gradient and
one step, because they start from answers of other followers (see warm_follower). The other
ingredients build on that:

- **Competition** (see competition). Only the followers of the better leaders are solved exactly.
- **Descent** (`descend`; see descent, exact_descent, leader_gradient). A local search improves x.
- **Global search.** Descents from altered copies of the elite (`hop`; see also unfelt) alternate
  with CMA-ES over x with restarts (`sample`), which gets a quarter of the evaluations. If a descent
  ends at a kink, a small CMA-ES follows (`polish`).
- **Branches** (`explore`; see branches). Before the run ends, leaders all over the box are looked
  at, with searches of their followers from scratch. Descents start from the best leader of each
  branch of answers, and jumps between branches are located.
- **Certificate** (`certify_elite`). Independent searches solve the follower of the elite, the best
  pair so far, again: a few after a descent to a new elite, more before the run ends. If they find a
  better answer, it replaces the elite's answer, and the run continues.

All this needs followers whose local searches settle. If most do not, DRC takes over (see fallback).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bilevo.algorithms.drc_plus.box_search import first_answers, search_first, test_smoothness
from bilevo.algorithms.drc_plus.branches import (
    best_of_each_branch,
    descend_on_branch,
    explore_leaders,
    follow_jump,
    locate_jumps,
)
from bilevo.algorithms.drc_plus.certificate import (
    CLEARLY_MORE,
    LIGHT,
    are_distinct,
    check_answer,
    choose_checked,
    final_thoroughness,
    find_doubt,
    have_moved,
)
from bilevo.algorithms.drc_plus.competition import accept_best, compete
from bilevo.algorithms.drc_plus.descent import (
    descend_side_by_side,
    is_smooth_end,
    leading,
    may_end,
    start_descents,
)
from bilevo.algorithms.drc_plus.exact_descent import go_on_exactly, sample_on, settle_elite
from bilevo.algorithms.drc_plus.experience import Experience, WarmTask
from bilevo.algorithms.drc_plus.fallback import FallbackDRC, retest_smoothness, without_incumbents
from bilevo.algorithms.drc_plus.leader_view import is_better
from bilevo.algorithms.drc_plus.state import DRCPlusState, LeaderSearch, budget_of
from bilevo.algorithms.drc_plus.tie_stage import note_ties, resolve_all_ties, tie_stage_is_due
from bilevo.algorithms.drc_plus.unfelt import search_unfelt
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.gradients import check_gradients
from bilevo.algorithms.shared.leader import is_just_missed, note_tasks, reached
from bilevo.core.algorithm import Algorithm, registered
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.budget import StopReason, interquartile_range, require_count
from bilevo.core.feasibility import USUAL_CTOL
from bilevo.core.problem import Spec
from bilevo.core.request import Level, Procedure
from bilevo.core.stop_rules import AtTarget, first_met
from bilevo.core.streams import stream
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import Start
from bilevo.optimizers.sampling import latin_hypercube

DESCENT_SHARE = 3  # Evaluations that descents may use for each evaluation of CMA-ES.
MOST_REFUTATIONS = 3  # A descent is not repeated after this many refuted elites,
REPEATED_SHARE = 0.1  # or if it has taken more than this share of the run's budget.
RETEST = 4  # The fallback tests smoothness again when evaluations have grown by this factor.
RELIABLE = 0.8  # Branches are looked for if more than this share of local searches settles.
KINK_WIDTH = 0.01  # The first deviations of CMA-ES around an elite at a kink, before a restart.
# If F differs by less than this, relative to |F|, it does so by errors of the followers' answers,
# and says nothing about the scale of F.
LEVEL_F = 1e-10
EXPLORED_DESCENTS = 3  # How many descents follow a look at leaders all over the box.


@dataclass(frozen=True, slots=True)
class DRCPlus(Algorithm[DRCPlusState]):
    """The method. Each switch turns one ingredient off, to measure its effect.

    A larger `width` fills more workers and looks at more basins of phi, for more evaluations.
    """

    regression: bool = True  # WarmFollower and LocalFollower explain the first four switches
    curvature: bool = True
    probes: bool = True
    rivals: bool = True
    competition: bool = True
    descents: bool = True
    adjoint: bool = True  # gradients of phi from one follower (see leader_gradient)
    hops: bool = True
    unfelt: bool = True
    optimism: bool = True
    branches: bool = True
    certificate: bool = True
    fallback: bool = True
    width: int = 1  # how many descents run side by side

    name = registered("drc-plus")
    revision = 16
    certifies = True
    ctol = USUAL_CTOL
    State = DRCPlusState

    def __post_init__(self) -> None:
        require_count("width", self.width, optional=False)

    def follower(self, spec: Spec, state: DRCPlusState) -> WarmFollower:
        """Return the solver of followers, with what the run has learnt."""
        switches = self.curvature, self.probes, self.regression, self.rivals
        return WarmFollower(spec, state.known, *switches, wide=self.width > 1)

    def init(self, spec: Spec) -> Procedure[DRCPlusState]:
        yield from check_gradients(spec, stream(spec.seed, "gradients"))
        start = Start.uniform(spec.spread[: spec.m], stream(spec.seed, "start"))
        if spec.x0 is not None:
            start.mean[:] = spec.x0
        return DRCPlusState(
            Experience.none(spec.m, spec.n, spec.slopes.whole(Level.LOWER)),
            search=LeaderSearch.start(start, CMAES().population_size(spec.m)),
            ends=np.empty((0, spec.m)),
            given=spec.slopes,
        )

    def generation(self, spec: Spec, state: DRCPlusState) -> Procedure[DRCPlusState]:
        """Find the first pair; later, hop or make a generation of CMA-ES (see DESCENT_SHARE)."""
        before, fallback = state.total, self.fallback and state.known.rough
        if state.elite is not None and state.check_is_due:
            yield from self.certify_elite(spec, state, 1.0)
        if state.elite is None:
            yield from self.find_first_pair(spec, state)
            state.note_descent(before)
        elif fallback:
            yield from self.run_fallback(spec, state)
        elif spec.target is None and state.seems_unimodal and state.restart_elite is not None:
            yield from self.end_search(spec, state)
        elif self.may_hop(state):
            yield from self.hop(spec, state)
            state.note_descent(before)
        else:
            yield from self.sample(spec, state, state.search)
            yield from self.follow_up_search(spec, state)
            state.sampling += state.total - before
        if not fallback:
            yield from self.check_stop(spec, state)
        state.generation += 1
        return state

    def may_descend(self, state: DRCPlusState) -> bool:
        return self.descents and not state.known.rough

    def may_hop(self, state: DRCPlusState) -> bool:
        share = state.descending <= DESCENT_SHARE * state.sampling
        return self.hops and self.may_descend(state) and share

    def may_explore(self, spec: Spec, state: DRCPlusState) -> bool:
        """Tell whether leaders all over the box are looked at before the next restart.

        They are after the first restart; with a target, after the first fruitless restart.
        """
        late = state.restart_elite is not None if spec.target is None else state.fruitless > 0
        return self.sees_branches(state) and self.may_descend(state) and late

    def sees_branches(self, state: DRCPlusState) -> bool:
        """Tell whether local searches of followers are reliable enough to tell branches apart."""
        return self.branches and state.known.smooth > RELIABLE

    # The first pair, and the end

    def find_first_pair(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Solve the first follower from scratch, and descend from there.

        A run that is stopped early must have a pair. So the elite's answer is at first the middle
        of the follower's box or the user's y0, and then the answer of the first search.
        """
        x, follower = state.search.leader.mean.copy(), self.follower(spec, state)
        start = yield from follower.at(x, first_answers(spec))
        yield from state.accept_task(start)
        rng = state.stream(spec, "first")
        first = yield from search_first(follower, start, rng, state.start_is_answer)
        yield from state.accept_task(first)
        if state.known.smooth < 1:
            yield from test_smoothness(follower, first, rng)
        task = first
        if self.optimism:
            yield from state.find_flat_directions(task.pair)
            task = yield from state.resolve_ties(task)
        state.known.learn(task.pair)
        yield from state.accept_elite(task.pair)
        if self.may_descend(state):
            others = latin_hypercube(self.width - 1, spec.m, rng)
            tasks = yield from start_descents(state, follower, others)
            yield from self.descend(spec, state, task.pair, others=tasks)
            if self.hops and not may_end(spec, state):
                yield from self.improve_unfelt(spec, state)

    def check_stop(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Test the stop rules; before the run ends, certify the elite.

        This check is more thorough after a long run. If it refutes the elite, the run continues.
        """
        settled = not (state.stop and self.may_descend(state))
        if not settled:
            polish = partial(self.polish, spec, state)
            settled = yield from settle_elite(spec, state, self.follower(spec, state), polish)
        target, spent = AtTarget(spec.target), first_met([budget_of(spec)], state.progress())
        if spent or state.stop or target.met(state.progress()):
            elite = state.the_elite
            thorough = final_thoroughness(spec, elite, state.total)
            yield from self.certify_elite(spec, state, thorough)
            if have_moved(state.the_elite, elite) or not settled:
                state.stop, state.fruitless = None, 0
        state.stop = first_met([target], state.progress()) or spent or state.stop
        if tie_stage_is_due(spec, state):
            yield from resolve_all_ties(spec, state)

    def certify_elite(
        self, spec: Spec, state: DRCPlusState, thorough: float = LIGHT
    ) -> Procedure[Pair | None]:
        """Solve the elite's follower again by independent searches; replace a refuted elite.

        If the corrected elite is worse than the last elite that passed a check, that one becomes
        the elite again. It also does if followers are not smooth and the corrected elite fails.
        Only a check that is as thorough as usual, or more, gives a certificate. Returns the pair
        that refutes the elite, or None.
        """
        if state.checked > CLEARLY_MORE * thorough or not self.certificate:
            return None
        elite, last, rng = state.the_elite, state.checked_elite, state.stream(spec, "certify")
        own, follower = WarmTask.of_pair(elite, np.empty(0)), self.follower(spec, state)
        check = yield from check_answer(follower, own, rng, thorough)
        chosen = yield from choose_checked(spec, state, check, self.optimism)
        refuted = are_distinct(chosen.pair, elite) and not check.stands
        if refuted:
            state.known.refute(elite.y)
        if chosen is not own:
            state.known.learn(chosen.pair)
        pair = state.elite = chosen.pair
        check.doubt = yield from find_doubt(follower, check, chosen)
        pair.check = check.verdict(pair.f)
        note_ties(state, check, chosen)
        if last is not None and last is not elite:
            unsure = state.known.rough and not pair.passed
            if last.passed and (unsure or not pair.no_worse(last)):
                state.elite = last
        state.checked_elite = state.the_elite
        state.check_evals, state.checked_at = check.spent, state.total
        yield state.the_elite.incumbent
        return pair if refuted else None

    def run_fallback(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Make a generation of DRC, for followers that are not smooth.

        The best pair of DRC does not become the elite at once if the elite is certified: it must be
        better, and pass the check of `certify_elite`. Checks take about a fifth of the evaluations.
        """
        drc = FallbackDRC()
        if state.fallback is None:
            state.fallback = yield from drc.start_at(spec, state.the_elite)
            state.smoothness_at = state.total
        if state.total >= RETEST * state.smoothness_at:
            yield from retest_smoothness(
                self.follower(spec, state), state, state.stream(spec, "smoothness")
            )
            if not state.known.rough:
                state.fallback = None
                return
        other = yield from without_incumbents(drc.generation(spec, state.fallback), state.known)
        state.spent, state.stop = other.spent, other.stop
        state.executions, state.survived = other.executions, other.survived
        proposed = other.the_elite
        if not state.the_elite.passed:
            yield from state.accept_elite(proposed)
        due = state.total - state.checked_at >= 4 * state.check_evals
        wanted = state.the_elite.passed or reached(spec, proposed)
        if state.stop is StopReason.TARGET and not due:
            state.stop = other.stop = drc.budget_met(spec, other)
        if (due and wanted) or state.stop is not None:
            if state.is_improved_by(proposed) or proposed.refutes(state.the_elite):
                state.elite = proposed
            yield from self.certify_elite(spec, state, 1.0)
            other.elite = state.elite
            if other.stop is StopReason.TARGET and not reached(spec, state.the_elite):
                state.stop = other.stop = drc.budget_met(spec, other)

    # The leader's local search

    def descend(
        self,
        spec: Spec,
        state: DRCPlusState,
        pair: Pair,
        ceiling: float = math.inf,
        relaxed: bool = True,
        chosen: IntArray | None = None,
        others: Sequence[Pair] = (),
    ) -> Procedure[bool]:
        """Search locally from a pair; certify a new elite, and search again if it is refuted.

        Searches from `others` run beside the first search. Only the `chosen` variables change, if
        they are given. Returns True if the last search ended where phi is smooth and nothing better
        is near.
        """
        smooth, tolerance = False, state.F_tolerance(spec.ftol)
        most = state.total + REPEATED_SHARE * budget_of(spec).total
        for _ in range(MOST_REFUTATIONS):
            before = state.the_elite
            starts, others = [pair, *others], ()
            follower = self.follower(spec, state)
            settings = ceiling, relaxed, chosen, self.adjoint
            ended = yield from descend_side_by_side(state, follower, starts, *settings)
            for (end, _), start in zip(ended, starts, strict=True):
                if math.isfinite(end.objective):
                    state.remember_end(end.point, start.x)
            end, steps = leading(ended, state.the_elite)
            smooth = is_smooth_end(state, end)
            if not is_better(state.the_elite, before, tolerance):
                break
            if self.sees_branches(state) and not reached(spec, state.the_elite):
                yield from follow_jump(state, follower, steps)
            if not smooth:
                end = yield from go_on_exactly(spec, state, follower, end)
                smooth = is_smooth_end(state, end)
            if not smooth and end.hessian is not None:
                yield from self.polish(spec, state, end.hessian, end.left)
            if smooth and is_just_missed(spec, state.the_elite):
                yield from state.accept_elite((yield from state.sharpen(state.the_elite)))
            found, state.kinked = state.the_elite, not smooth
            at_target = reached(spec, found)
            thorough = final_thoroughness(spec, found, state.total) if at_target else LIGHT
            rival = yield from self.certify_elite(spec, state, thorough)
            if rival is not None and self.sees_branches(state):
                yield from self.stay_on_branch(spec, state, found, rival)
            pair = state.the_elite
            if pair is found or state.known.rough or state.total > most:
                break
        return smooth

    def stay_on_branch(
        self, spec: Spec, state: DRCPlusState, own: Pair, rival: Pair
    ) -> Procedure[None]:
        """Descend along the branch of a refuted elite, where its rival is not better."""
        found = yield from descend_on_branch(state, self.follower(spec, state), own, rival)
        if found is not None and state.is_improved_by(found.pair):
            yield from state.accept_elite(found.pair)
            yield from self.certify_elite(spec, state)

    def explore(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Look at leaders all over the box, and descend from the best ones."""
        rng, before = state.stream(spec, "explore"), state.total
        follower = self.follower(spec, state)
        tasks, several = yield from explore_leaders(state, follower, rng)
        if several or state.constrained:
            tasks += yield from locate_jumps(state, follower, tasks, state.total - before)
        count = EXPLORED_DESCENTS if several else state.missing_descents(EXPLORED_DESCENTS)
        best = [task.pair for task in best_of_each_branch(tasks, count)]
        for i in range(0, len(best), self.width):
            pair, *others = best[i : i + self.width]
            elite = state.the_elite
            if state.is_improved_by(pair):
                yield from state.accept_elite(pair)
            ceiling = elite.F if elite.violation == pair.violation == 0 else math.inf
            yield from self.descend(spec, state, pair, ceiling, relaxed=False, others=others)
        yield from self.certify_elite(spec, state)

    def polish(
        self, spec: Spec, state: DRCPlusState, hessian: FloatArray, left: float
    ) -> Procedure[None]:
        """Run CMA-ES where a descent ended at a kink; the Hessian gives its first covariance."""
        search = LeaderSearch.around(state.the_elite.x, hessian, left)
        yield from sample_on(spec, state, search, partial(self.sample, spec, state))

    def hop(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Search variables that are not felt; if in vain, descend from a copy of the elite."""
        if (yield from self.improve_unfelt(spec, state)):
            return
        rng, elite = state.stream(spec, "hop"), state.the_elite
        x = np.array([state.altered_elite(spec, rng) for _ in range(self.width)])
        first, *others = yield from start_descents(state, self.follower(spec, state), x)
        ceiling = elite.F if elite.violation == 0 else math.inf
        yield from self.descend(spec, state, first, ceiling, others=others)

    def improve_unfelt(self, spec: Spec, state: DRCPlusState) -> Procedure[bool]:
        """Search variables that followers do not feel, then the others; tell if F has improved."""
        if not self.unfelt:
            return False
        rng = state.stream(spec, "unfelt")
        task = yield from search_unfelt(state, self.follower(spec, state), rng)
        if task is not None:
            chosen = state.unfelt.others(spec.m)
            yield from self.descend(spec, state, task.pair, chosen=chosen)
        return task is not None

    # The leader's global search

    def sample(self, spec: Spec, state: DRCPlusState, search: LeaderSearch) -> Procedure[None]:
        """Make a generation of CMA-ES."""
        rng = state.stream(spec, "leader")
        x = CMAES(search.population).ask(search.leader, rng)
        follower = self.follower(spec, state)
        tasks = yield from compete(state, follower, x, search.deviations, self.competition)
        if search is state.search:  # other searches are too narrow to show how much F varies
            F = np.array([task.pair.F for task in tasks])
            if interquartile_range(F) > LEVEL_F * np.abs(F).min():
                state.F_scale.see(F)
        yield from accept_best(state, follower, tasks)
        pairs = [task.pair for task in tasks]
        note_tasks(state, [task.executions for task in tasks], pairs)
        search.tell(x, pairs, 0.1 * state.F_tolerance(spec.ftol))

    def follow_up_search(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Descend from the best pair once CMA-ES is narrow; restart CMA-ES once it has ended."""
        search = state.search
        assert search.best is not None
        ends = np.concatenate([state.ends, state.the_elite.x[None]])
        ended = search.ended or (self.may_descend(state) and search.nears(ends))
        if ended or search.width < search.descended / 8:
            search.descended = search.width
            if self.may_descend(state) and not reached(spec, state.the_elite):
                ended |= yield from self.descend(spec, state, search.best)
        if ended:
            yield from self.end_search(spec, state)

    def end_search(self, spec: Spec, state: DRCPlusState) -> Procedure[None]:
        """Check the elite, look at leaders all over the box, and restart CMA-ES or stop."""
        if not state.may_end_soon(spec):
            yield from self.certify_elite(spec, state, 1.0)
        if state.kinked and self.may_descend(state) and not reached(spec, state.the_elite):
            yield from self.polish(spec, state, np.eye(spec.m), KINK_WIDTH**2 / 2)
            yield from self.certify_elite(spec, state)
        explores = self.may_explore(spec, state)
        if explores:
            yield from self.explore(spec, state)
        state.restart(spec, 1 + explores)
