"""few: a method for runs of few evaluations, which learns models of both levels over (x, y).

Functions are evaluated at pairs spread over both boxes. Models of F, f and all constraints are
fitted to these values (see joint_model). The models' own bilevel problem is solved (see
model_search), and f is evaluated at the leader and the answer that are best there. The models learn
this value, and may now expect another answer to the same leader; then f is evaluated again, a few
times. F is evaluated at the answer that the follower likes best. All values teach the models, so no
evaluation serves one leader only.

If the best leader of the models is known already, or promises too little, the best one of those far
from all others is tried. When that does not help any more, or after a number of pairs, the run goes
on as drc-plus from the best pair. It finds the last digits, searches on, and certifies. The course
of a run does not depend on its limits. With more than `MOST_VARIABLES` variables, models would need
too many pairs, and drc-plus takes over at once.

Where one simulation gives the values of both levels (`Spec.joint`), F is known at all pairs. If
models of the whole box do not find answers there, those of smaller boxes follow (see window), and
drc-plus relies on the answer that it begins with (see closing).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bilevo.algorithms.drc_plus.method import DRCPlus
from bilevo.algorithms.few.closing import conclude
from bilevo.algorithms.few.model_search import Models, answer, precise, rough
from bilevo.algorithms.few.state import FewState
from bilevo.algorithms.few.window import look_closer, open_window
from bilevo.core.algorithm import Algorithm, registered
from bilevo.core.arrays import FloatArray
from bilevo.core.feasibility import USUAL_CTOL
from bilevo.core.problem import Spec
from bilevo.core.request import Incumbent, Procedure, T
from bilevo.core.stop_rules import AtTarget
from bilevo.core.streams import stream
from bilevo.core.tolerances import rounding
from bilevo.optimizers.sampling import latin_hypercube

FIRST_PAIRS = 2  # The first models are fitted to this number plus 2 (m + n) spread pairs.
MOST_ANSWERS = 5  # The most evaluations of f in a row at one leader.
SETTLED = 1e-5  # The follower is solved if models move its answer by less (fraction of the box).
LOOKED_AT = 8  # How many of the best pairs are compared by precise searches on models.
PROMISE = 1e-4  # A leader is explored if the best one promises a smaller gain (units of F's model).
CLEARLY_BETTER = 1e-4  # A smaller gain of F, relative to F, does not count as one.
DISTANCES = (0.1, 0.3, 0.6)  # How far explored leaders are, as parts of the largest distance.
UNSOLVED = 0.01  # Models do not solve a follower if they still move its answer by more.
MAX_UNSOLVED = 2  # After so many leaders in a row without an answer, a joint run looks closer.
MAX_STALE = 5  # So many explored leaders in a row without a gain end the part with models.
MOST_VARIABLES = 5  # With more variables of both levels, drc-plus takes over at once.
MOST_PAIRS = 30, 14  # That part ends after so many pairs, and so many more for each variable.
MOST_IN_WINDOWS = 30, 24  # The same for a run that searches in windows.


@dataclass(frozen=True, slots=True)
class Few(Algorithm[FewState]):
    """The method."""

    name = registered("few")
    revision = 7
    ctol = USUAL_CTOL
    certifies = True
    State = FewState

    def init(self, spec: Spec) -> Procedure[FewState]:
        yield from ()
        return FewState.empty(spec.m, spec.n)

    def generation(self, spec: Spec, state: FewState) -> Procedure[FewState]:
        """Look at one more leader, by models or as drc-plus does."""
        state.generation += 1
        state.executions, state.survived = np.ones(1, np.int64), np.ones(1, np.bool_)
        if state.plus is not None:
            state.looks_for_doubts = False
            yield from self.go_on(spec, state)
            return state
        rng = stream(spec.seed, "few", state.generation)
        if state.looks_closer:
            ended = yield from look_closer(spec, state, rng)
        else:
            ended = yield from self.look_by_models(spec, state, rng)
        first, each = MOST_IN_WINDOWS if state.looks_closer else MOST_PAIRS
        most = first + each * (spec.m + spec.n)
        if ended or AtTarget(spec.target).met(state.progress()) or len(state.x) >= most:
            yield from self.hand_over(spec, state)
        elif spec.joint and state.unsolved >= MAX_UNSOLVED and not state.looks_closer:
            yield from open_window(state)
        return state

    def look_by_models(
        self, spec: Spec, state: FewState, rng: np.random.Generator
    ) -> Procedure[bool]:
        """Look at one more leader by models of the whole box; tell whether these have ended."""
        if not len(state.x):
            yield from self.look_all_over(spec, state)
        models = state.models()
        if models is None:
            return True
        models = yield from self.try_leader(spec, state, models, rng)
        yield from self.choose_best(spec, state, models, rng)
        return state.stale >= MAX_STALE

    def look_all_over(self, spec: Spec, state: FewState) -> Procedure[None]:
        """Evaluate both levels at spread pairs; the first is the user's start, or the centre."""
        m, d = spec.m, spec.m + spec.n
        first = np.full((1, d), 0.5)
        if spec.x0 is not None:
            first[0, :m] = spec.x0
        if spec.y0 is not None:
            first[0, m:] = spec.y0
        spread = latin_hypercube(FIRST_PAIRS + 2 * d, d, stream(spec.seed, "few", 0))
        for z in (first, spread) if d <= MOST_VARIABLES else (first,):
            yield from state.see(spec, z)
            if not spec.joint:
                yield from state.see_upper(np.arange(len(state.x) - len(z), len(state.x)))
            if state.best < 0:
                state.best = 0
                yield state.incumbent(0)

    def try_leader(
        self, spec: Spec, state: FewState, models: Models, rng: np.random.Generator
    ) -> Procedure[Models]:
        """Evaluate the best leader of the models, or else explore; return what models are then."""
        lower = models.lower
        x, y = models.best_leader(state.x[state.order], spec.n, rng)
        if state.is_known(x, y) or not self.promises(state, models, x, y, rng):
            state.stale += 1
            x, y = self.far_leader(spec, state, models, rng)
        missed = 0.0
        for _ in range(MOST_ANSWERS):
            if state.is_known(x, y) and (state.x == x).all(axis=1).any():
                break
            yield from state.see(spec, np.concatenate([x, y])[None])
            lower = state.lower_model(like=lower) or lower
            moved = answer(lower, x, y, rng)
            missed = float(np.abs(moved - y).max())
            if missed < SETTLED:
                break
            y = moved
        state.unsolved = state.unsolved + 1 if missed > UNSOLVED else 0
        row = state.row_at(x)
        if np.isnan(state.F[row]):
            yield from state.see_upper(np.array([row]))
        return Models(models.upper, lower)

    def promises(
        self,
        state: FewState,
        models: Models,
        x: FloatArray,
        y: FloatArray,
        rng: np.random.Generator,
    ) -> bool:
        """Tell whether a pair promises a clearly better F than the best pair."""
        best = [state.best]
        if state.violation[state.best] > state.slight:
            return True
        now = models.expected(state.x[best], state.y[best], precise(len(y)), rng)
        return bool(now[0] - models.F(x[None], y[None])[0][0] > PROMISE)

    def far_leader(
        self, spec: Spec, state: FewState, models: Models, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return the best leader that is far from all others, and the answer to it."""
        drawn = rng.random((64 * spec.m, spec.m))
        far = np.abs(drawn[:, None] - state.x[None]).max(axis=2).min(axis=1)
        least = DISTANCES[state.stale % len(DISTANCES)] * far.max()
        return models.best_of(drawn[far >= least], spec.n, rng)

    def choose_best(
        self, spec: Spec, state: FewState, models: Models, rng: np.random.Generator
    ) -> Procedure[None]:
        """Report the pair with the best F, where a follower that is not solved gains nothing."""
        rows = np.flatnonzero(np.isfinite(state.F))
        if not rows.size:
            return
        for widths in (rough(spec.n), precise(spec.n)):
            F = models.expected(state.x[rows], state.y[rows], widths, rng)
            rows = rows[np.lexsort((F, state.clear_violation[rows]))][:LOOKED_AT]
        state.order = rows
        row = int(rows[0])
        if row != state.best:
            gain = float(state.F[state.best]) - float(state.F[row])
            counts = gain > max(spec.ftol, CLEARLY_BETTER * abs(float(state.F[row])))
            if counts or state.violation[state.best] > 0:
                state.stale = 0
            state.best = row
            yield state.incumbent(row)

    # drc-plus

    def start_of(self, spec: Spec, state: FewState) -> Spec:
        """Return the problem as drc-plus sees it: it starts from the best pair of the models."""
        assert state.start is not None
        return replace(spec, x0=state.start[0], y0=state.start[1])

    def hand_over(self, spec: Spec, state: FewState) -> Procedure[None]:
        """Let drc-plus go on from the best pair."""
        state.start = state.x[state.best].copy(), state.y[state.best].copy()
        state.told = state.incumbent(state.best)
        state.plus = yield from DRCPlus().init(self.start_of(spec, state))
        state.plus.start_is_answer = spec.joint and state.order.size > 0
        state.plus.known.sparing = True
        state.looks_for_doubts = True

    def go_on(self, spec: Spec, state: FewState) -> Procedure[None]:
        """Make a generation of drc-plus; after the first, certify the answer if that is possible.

        Few evaluations may be left, so the answer is not left to the check that ends a run.
        """
        assert state.plus is not None
        plus, own = DRCPlus(), self.start_of(spec, state)
        first = not state.plus.generation
        if first and state.plus.start_is_answer:
            values = state.f[state.usable_lower]
            if (yield from self.relay(state, conclude(plus, own, state.plus, values))):
                self.take_over(state)
                return
        state.plus = yield from self.relay(state, plus.generation(own, state.plus))
        if first and state.plus.stop is None:
            yield from self.relay(state, plus.certify_elite(own, state.plus, 1.0))
        self.take_over(state)

    def take_over(self, state: FewState) -> None:
        """Note what a generation of drc-plus did."""
        assert state.plus is not None
        state.executions, state.survived = state.plus.executions, state.plus.survived
        state.stop = state.plus.stop

    def relay(self, state: FewState, part: Procedure[T]) -> Procedure[T]:
        """Run a part of drc-plus, and report its best pair only if it is no worse."""
        answer = None
        while True:
            try:
                request = part.send(answer)
            except StopIteration as end:
                done: T = end.value
                return done
            answer = None
            if isinstance(request, Incumbent):
                if self.is_accepted(state.told, request):
                    state.told = request
                    yield request
            else:
                answer = yield request

    def is_accepted(self, own: Incumbent | None, other: Incumbent) -> bool:
        """Tell whether a pair of drc-plus replaces the best pair.

        It does if it is certified, if it answers the same leader better, or if it is no worse.
        """
        if own is None or other.certified:
            return True
        if np.array_equal(own.x, other.x) and own.f - other.f > rounding(own.f):
            return True
        return (other.violation, other.F) <= (own.violation, own.F)
