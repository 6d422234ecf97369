"""nested-ties: each leader is judged by the tie that the leader's stance expects.

The method is our own. phi(x) is the best F (optimistic stance) or the worst F (pessimistic stance)
among the follower's ties at x; `response` computes it. phi has kinks and may jump, in particular
for a pessimistic leader: the worst tie changes from one to another. So the search over x has these
parts:

- **Exploration.** phi is computed at leaders spread over the box; later rounds spread more of them.
- **Descent.** SQP searches phi from the best of these leaders, and from others if most of them
  violate constraints.
- **Polish.** Where a descent ends at a kink, a CMA-ES continues, as narrow as the descent's model
  of phi says.
- **Certificate.** Independent searches solve the elite's follower again, and its ties are searched
  thoroughly, for both stances. If that changes F of the elite, the search continues.

A pessimistic leader may have no best x: phi may fall towards an x where it jumps up. `find_jump`
evaluates phi close to the elite, and an answer next to a jump is not certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.algorithms.drc_plus.box_search import first_answers
from bilevo.algorithms.drc_plus.certificate import (
    CLEARLY_MORE,
    Check,
    are_distinct,
    check_answer,
    final_thoroughness,
    find_doubt,
)
from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.leader_view import is_better
from bilevo.algorithms.drc_plus.state import LeaderSearch
from bilevo.algorithms.nested_ties.response import MAX_BASES, Responder, Response, TieMemory
from bilevo.algorithms.shared.follower_search import Pair, TieFindings
from bilevo.algorithms.shared.gradients import check_gradients
from bilevo.algorithms.shared.leader import best_pair, reached
from bilevo.algorithms.shared.sqp import LocalRule, SearchEnd, sqp
from bilevo.algorithms.shared.tie_sets import TieSet
from bilevo.core.algorithm import Algorithm, registered
from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.budget import Scale, StopReason
from bilevo.core.feasibility import USUAL_CTOL
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, Values, together
from bilevo.core.stance import Stance
from bilevo.core.stop_rules import AtTarget, BudgetUsed, Progress, first_met
from bilevo.core.streams import stream
from bilevo.core.tolerances import SAME, alike
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.sampling import latin_hypercube

BUDGET = 2  # The most evaluations, for each upper evaluation and lower window of the budget.
LEADERS = 4  # A round explores this number of leaders plus LEADERS for each variable of x.
LEADER_DIFFERENCE = 1e-5  # The step of finite differences in x, as a fraction of the box.
MORE_STARTS = 3  # So many more descents follow where most of these leaders violate constraints.
DESCENT_ITERATIONS = 20  # The most iterations of a descent, of m + 1 leaders each.
KINK_WIDTH = 0.02  # The largest first deviation of a polish; a descent's model may say less.
POLISH_SHARE = 1.0  # A polish takes at most this many times the evaluations before it.
SLACKENS = 10, 0.05  # A polish ends if this many generations make at most this part of its gain.
AT_LIMIT = 1e-8  # Differences of the leader's constraints that are smaller come from searches.
FRUITLESS_ROUNDS = 2  # This many rounds without a better elite end a run.
CORRECTIONS = 4  # How often a round continues after its elite was corrected.
TOLERANCE = 1e-9  # The least gain in F that is worth a step, in units of the scale of F.
NEXT_TO = 1e-6  # phi is compared at this distance from the elite, to see jumps.
JUMP = 1e-3  # A change of phi over that distance is a jump if it is larger, in units of F's scale.


@dataclass(slots=True, eq=False)
class NestedTiesState:
    """The state of a run between two upper generations."""

    memory: TieMemory
    generation: int = 0
    elite: Pair | None = None
    elite_best: Pair | None = None  # the elite's x with the follower's best answer
    certified: Pair | None = None  # the last elite that passed a check
    F_scale: Scale = field(default_factory=Scale)
    start: Pair | None = None  # where the next descent starts; None before an exploration
    corrections: int = 0  # descents since the last exploration
    rounds: int = 0  # explorations that descents have followed
    round_elite: Pair | None = None  # the elite before the last exploration
    fruitless: int = 0  # rounds since one found a better elite
    stop: StopReason | None = None
    executions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    survived: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def the_elite(self) -> Pair:
        assert self.elite is not None
        return self.elite

    @property
    def total(self) -> int:
        """Return the number of evaluations of both levels so far."""
        return self.memory.spent + self.memory.known.spent

    def progress(self) -> Progress:
        """Return how far the run has come."""
        elite, upper = self.the_elite, self.memory.spent
        return Progress(elite.F, elite.violation, upper, self.memory.known.spent, self.generation)

    def F_tolerance(self, absolute: float) -> float:
        return max(self.F_scale.tolerance(absolute), 1e-12 * abs(self.the_elite.F))

    def offer(self, response: Response) -> Procedure[None]:
        """Make a response's pair the elite, if it is better by more than what does not count."""
        pair = response.pair
        if self.elite is None or is_better(pair, self.elite, self.F_tolerance(TOLERANCE)):
            self.elite, self.elite_best = pair, response.best
            yield pair.incumbent


@dataclass(slots=True, eq=False)
class Phi:
    """phi as a function that `sqp` can call; better pairs become the elite."""

    state: NestedTiesState
    responder: Responder
    count: int = 0  # how many constraints leaders have; failed ones show none

    def __call__(self, rows: FloatArray) -> Procedure[Values]:
        found = yield from self.responses(rows)
        F = np.array([one.pair.F for one in found])
        F = np.where([one.pair.lower_violation == 0 for one in found], F, np.inf)
        violation = np.array([one.pair.violation for one in found])
        self.count = max(self.count, *(one.G.size for one in found))
        failed = np.full(self.count, np.inf)
        G = np.array([one.G if one.G.size == self.count else failed for one in found])
        if self.responder.memory.faces:  # the choice of the tie holds a constraint at its limit
            G = np.where(np.abs(G) <= AT_LIMIT, -AT_LIMIT, G)
        return Values(F, violation, G.reshape(len(found), self.count), 0)

    def responses(self, rows: FloatArray) -> Procedure[list[Response]]:
        """Return what leaders (k, m) get."""
        found = yield from together(self.responder.respond(row) for row in rows)
        for one in found:
            yield from self.state.offer(one)
        return found


@dataclass(frozen=True, slots=True)
class NestedTies(Algorithm[NestedTiesState]):
    """The method. It takes every stance and `tie_tol`."""

    name = registered("nested-ties")
    revision = 8
    certifies = True
    ctol = USUAL_CTOL
    takes_stance = True
    State = NestedTiesState

    def init(self, spec: Spec) -> Procedure[NestedTiesState]:
        yield from check_gradients(spec, stream(spec.seed, "gradients"))
        return NestedTiesState(TieMemory.none(spec))

    def generation(self, spec: Spec, state: NestedTiesState) -> Procedure[NestedTiesState]:
        """Explore, or improve on the best leader of the last exploration."""
        before = state.total
        if state.start is None:
            if state.elite is None:
                yield from self.find_first_pair(spec, state)
            else:
                state.round_elite = state.elite
            starts = yield from self.explore(spec, state)
            first = state.rounds == 0
            state.start = best_pair([starts[0], state.the_elite]) if first else starts[-1]
            state.corrections = 0
        else:
            corrected = yield from self.improve_once(spec, state, state.start)
            state.corrections += 1
            state.start = state.elite if corrected else None
            if not corrected or state.corrections == CORRECTIONS:
                yield from self.end_round(spec, state)
        state.generation += 1
        state.executions, state.survived = np.array([state.total - before]), np.ones(1, np.bool_)
        return state

    def end_round(self, spec: Spec, state: NestedTiesState) -> Procedure[None]:
        """Count the round; end the run if rounds find nothing better."""
        elite, state.start = state.round_elite, None
        fruitful = elite is None or is_better(state.the_elite, elite, state.F_tolerance(spec.ftol))
        state.fruitless = 0 if fruitful else state.fruitless + 1
        state.rounds += 1
        yield from self.check_stop(spec, state)

    def round(self, spec: Spec, state: NestedTiesState, pair: Pair) -> Procedure[None]:
        """Go on from a pair of another method: improve it, explore, and certify thoroughly.

        If that method has checked the pair thoroughly, this is enough, unless a better leader or a
        better answer of its follower is found.
        """
        checked = 0.0 if pair.check is None or not pair.check.passed else pair.check.thorough
        yield from self.certify(spec, state, 1.0)
        yield from self.improve(spec, state, state.the_elite)
        starts = [] if reached(spec, state.the_elite) else (yield from self.explore(spec, state))
        for start in starts:
            if not reached(spec, state.the_elite):
                yield from self.improve(spec, state, start)
        thorough = final_thoroughness(spec, state.the_elite, state.total)
        best, tie = state.elite_best, state.memory.known.tie(pair.f)
        stays = bool(np.abs(state.the_elite.x - pair.x).max() <= SAME)
        stays = stays and best is not None and pair.f - best.f <= tie
        if not (stays and state.the_elite.passed and checked > CLEARLY_MORE * thorough):
            yield from self.certify(spec, state, thorough)

    def find_first_pair(self, spec: Spec, state: NestedTiesState) -> Procedure[None]:
        """Solve the first follower from scratch; a run that is stopped early must have a pair."""
        responder, rng = Responder(spec, state.memory), stream(spec.seed, "start")
        x = rng.random(spec.m) if spec.x0 is None else spec.x0
        start = yield from responder.follower.at(x, first_answers(spec))
        upper = yield from responder.upper(x, start.pair.y[None])
        F, violation = float(upper.objective[0]), float(upper.violation[0])
        own = start.pair.lower_violation
        pair = replace(start.pair, F=F, violation=violation + own)
        yield pair.incumbent  # its follower is not solved: it is no elite
        first = yield from responder.first(x, start)
        state.elite, state.elite_best = first.pair, first.best
        yield first.pair.incumbent

    def explore(self, spec: Spec, state: NestedTiesState) -> Procedure[list[Pair]]:
        """Compute phi at leaders spread over the box; return where descents should start.

        This is the best leader. If most leaders violate constraints, to be the best of them says
        little, and others follow.
        """
        rng = state.memory.stream(spec, "explore")
        count = (LEADERS + LEADERS * spec.m) * (1 + state.rounds)
        points = latin_hypercube(count, spec.m, rng)
        found = yield from Phi(state, Responder(spec, state.memory)).responses(points)
        pairs = [one.pair for one in found]
        F = np.array([pair.F for pair in pairs])
        if np.isfinite(F).sum() > 1:
            state.F_scale.see(F[np.isfinite(F)])
        best = best_pair(pairs)
        if np.mean([pair.violation > 0 for pair in pairs]) <= 0.5:
            return [best]
        return [best, *(pair for pair in pairs if pair is not best)][: 1 + MORE_STARTS]

    def improve(self, spec: Spec, state: NestedTiesState, pair: Pair) -> Procedure[None]:
        """Improve on a pair, and go on as long as the elite is corrected."""
        for _ in range(CORRECTIONS):
            corrected = yield from self.improve_once(spec, state, pair)
            if not corrected:
                return
            pair = state.the_elite

    def improve_once(self, spec: Spec, state: NestedTiesState, pair: Pair) -> Procedure[bool]:
        """Descend from a pair, polish, and certify a new elite; return True if it was corrected."""
        before = state.the_elite
        end = yield from self.descend(spec, state, pair)
        smooth = end.violation == 0 and end.left <= 100 * state.F_tolerance(TOLERANCE)
        at_target = reached(spec, state.the_elite)
        if not smooth and not at_target and state.the_elite is not before:
            yield from self.polish(spec, state, end)
        if state.the_elite.check is not None:
            return False
        return (yield from self.certify(spec, state, 1.0))

    def descend(self, spec: Spec, state: NestedTiesState, pair: Pair) -> Procedure[SearchEnd]:
        """Search phi locally from a pair."""
        phi, m = Phi(state, Responder(spec, state.memory)), spec.m
        rule = LocalRule(
            DESCENT_ITERATIONS * (m + 1),
            state.F_tolerance(TOLERANCE),
            difference=LEADER_DIFFERENCE,
            unit=state.F_scale.tolerance(1.0),
            repairing=True,
            corrects=True,
            done=lambda point, F: reached(spec, state.the_elite),
        )
        return (yield from sqp(phi, pair.x, np.zeros(m), np.ones(m), rule))

    def polish(self, spec: Spec, state: NestedTiesState, end: SearchEnd) -> Procedure[None]:
        """Run a narrow CMA-ES around the elite where a descent ended, until gains get small."""
        phi, m = Phi(state, Responder(spec, state.memory)), spec.m
        hessian, left = end.hessian, end.left
        if hessian is None or not 0 < left < math.inf:
            hessian, left = np.eye(m), KINK_WIDTH**2 / 2
        search = LeaderSearch.around(state.the_elite.x, hessian, left, KINK_WIDTH)
        rng = state.memory.stream(spec, "polish")
        most = BudgetUsed(total=int((1 + POLISH_SHARE) * state.total))
        ends = AtTarget(spec.target), budget_of(spec), most
        tolerance, record = 0.1 * state.F_tolerance(spec.ftol), [state.the_elite.F]
        while not (search.ended or search.width < 1e-8 or first_met(ends, state.progress())):
            x = CMAES(search.population).ask(search.leader, rng)
            found = yield from phi.responses(x)
            search.tell(x, [one.pair for one in found], tolerance)
            record.append(state.the_elite.F)
            if slackens(record):
                break

    # The certificate

    def certify(self, spec: Spec, state: NestedTiesState, thorough: float) -> Procedure[bool]:
        """Solve the elite's follower again, and search its ties; return True if F changed.

        The elite gets the tie that was found. If it is worse than the last elite that passed a
        check, that one becomes the elite again.
        """
        elite, best = state.the_elite, state.elite_best
        assert best is not None
        responder, rng = Responder(spec, state.memory), state.memory.stream(spec, "certify")
        own = WarmTask.of_pair(best, np.empty(0))
        check = yield from check_answer(responder.follower, own, rng, thorough)
        if not check.stands and are_distinct(check.best.pair, best):
            state.memory.known.refute(best.y)
        base = best if check.stands else check.best.pair
        state.memory.known.learn(base)
        ties, other = yield from self.search_both(responder, base, check, elite)
        new = responder.response(base, ties)
        check.doubt = yield from find_doubt(responder.follower, check, self.task_of(new, base))
        changed = not alike(new.pair.F, elite.F) or new.pair.violation != elite.violation
        nearly = yield from responder.search_nearly_level(base)
        if spec.stance is Stance.PESSIMISTIC and not check.doubt and not changed:
            check.doubt = yield from self.find_jump(spec, state, new.pair, nearly)
        verdict = check.verdict(base.f)._replace(gap=max(0.0, new.pair.f - base.f))
        new.pair.check, new.pair.ties = verdict, findings(ties, other, nearly)
        state.elite, state.elite_best = new.pair, new.best
        last = state.certified
        if last is not None and last is not elite and last.passed and not new.pair.no_worse(last):
            state.elite = last
        if state.elite is new.pair and new.pair.passed:
            state.certified = new.pair
        yield state.the_elite.incumbent
        return changed and state.elite is new.pair

    def task_of(self, new: Response, base: Pair) -> WarmTask:
        """Return the task whose answer `find_doubt` looks at: the follower's best one."""
        answer = replace(base, F=new.pair.F, violation=new.pair.violation)
        return WarmTask.of_pair(answer, np.empty(0))

    def search_both(
        self, responder: Responder, base: Pair, check: Check, elite: Pair
    ) -> Procedure[tuple[TieSet, TieSet]]:
        """Search the ties at the elite's x for its stance, and for the other one."""
        width, stance = responder.width(base.f), responder.spec.stance
        bases = [base.y]
        for task in check.found:
            pair = task.pair
            far = all(np.abs(pair.y - y).max() > 0.01 for y in bases)
            if far and pair.lower_violation == 0 and pair.f <= base.f + width:
                bases.append(pair.y)
        bases = [*bases[: MAX_BASES - 1], elite.y]
        other = Stance.PESSIMISTIC if stance is Stance.OPTIMISTIC else Stance.OPTIMISTIC
        ties = yield from responder.search(base, stance, bases, thorough=True)
        return ties, (yield from responder.search(base, other, bases, thorough=True))

    def find_jump(
        self, spec: Spec, state: NestedTiesState, pair: Pair, nearly: TieSet | None
    ) -> Procedure[str]:
        """Evaluate phi next to a pair; return what speaks against it, or an empty text.

        `nearly` holds the answers to the pair's x if the follower is nearly indifferent there.
        """
        steps = NEXT_TO * np.concatenate([np.eye(spec.m), -np.eye(spec.m)])
        rows = np.clip(pair.x + steps, 0.0, 1.0)
        responder = Responder(spec, state.memory)
        found = yield from together(responder.respond(row, thorough=True) for row in rows)
        feasible = [one.pair.F for one in found if one.pair.violation == 0]
        if nearly is not None and nearly.found is not None:
            feasible.append(nearly.found.F)
        rise = max([F - pair.F for F in feasible if math.isfinite(F)], default=0.0)
        if rise <= JUMP * state.F_scale.tolerance(1.0) + JUMP * abs(pair.F):
            return ""
        tol = spec.tie_tol
        precision = "the precision of the run" if tol is None else f"tie_tol = {tol:g}"
        return (
            f"no x attains the smallest F: at {precision} it is {pair.F:.6g} here, and "
            f"{pair.F + rise:.6g} next to x, where another answer ties; with a larger tie_tol an x "
            "may attain it"
        )

    def check_stop(self, spec: Spec, state: NestedTiesState) -> Procedure[None]:
        """Test the stop rules; before the run ends, certify the elite thoroughly."""
        target = AtTarget(spec.target).met(state.progress())
        spent = first_met([budget_of(spec)], state.progress())
        settled = state.fruitless >= FRUITLESS_ROUNDS
        if target or spent or settled:
            thorough = final_thoroughness(spec, state.the_elite, state.total)
            corrected = yield from self.certify(spec, state, thorough)
            target = target and reached(spec, state.the_elite)
            if corrected and not spent:
                state.fruitless, settled = 0, False
        if target:
            state.stop = StopReason.TARGET
        elif spent or settled:
            state.stop = spent or StopReason.STAGNATION


def budget_of(spec: Spec) -> BudgetUsed:
    """Return the limit on the evaluations of both levels, from the published budget."""
    return BudgetUsed(total=BUDGET * spec.budget.upper_max * spec.budget.lower_window)


def slackens(record: list[float]) -> bool:
    """Tell whether the last generations of a polish have gained little; `record` has F's course."""
    last, part = SLACKENS
    return len(record) > last and record[-last] - record[-1] <= part * (record[0] - record[-1])


def findings(ties: TieSet, other: TieSet, nearly: TieSet | None) -> TieFindings:
    """Return what was found about ties, from the searches for a leader's stance and the other.

    `nearly` holds the answers for the worst F if the follower is nearly indifferent.
    """
    values = [one.found.F for one in (ties, other) if one.found is not None]
    if not values:
        return TieFindings(math.nan, math.nan, "F fails at the follower's answers")
    found = TieFindings.of(values[0], values[-1])
    if nearly is None or nearly.found is None:
        return found
    worst = max(nearly.found.F, found.F_pessimistic)
    if alike(worst, found.F_pessimistic):
        return found
    words = (
        f"the follower is nearly indifferent: F is from {found.F_optimistic:.8g} to {worst:.8g} "
        f"among answers whose f is within {nearly.width:.1g} of the best"
    )
    return TieFindings(found.F_optimistic, worst, words)
