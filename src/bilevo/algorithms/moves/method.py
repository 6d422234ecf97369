"""moves: the leader moves from cell to cell of its whole numbers and choices.

A cell is one combination of whole numbers and choices of x. In each cell there is one best leader.
A run consists of descents. Each starts at a leader, and makes the best-looking move that leads to a
better leader, until no move does:

    step       one whole number changes by 1, by 4, by 16, ..., or one choice changes
    exchange   one whole number goes up by 1, and another one goes down by 1
    further    the last move again, twice as far

A model of the leaders so far orders the moves (`ranking`). Real numbers of x are searched locally
where that may decide a move, and at the end of a descent (`reals`). The follower is solved cell by
cell, from the answer of the nearest leader (`bilevo.algorithms.shared.cells`), or by the problem's
own solver. Where a descent ends, the cells of the follower are compared; more thoroughly, if the
end is better than all before. If that finds a better answer in another cell, first searches are no
longer trusted in this run: the cells of each follower are compared, those first that records of
other followers suggest (`likely`). If it finds a better answer with other real numbers, searches of
real numbers start from more points.

Descents start all over the box, and near the best leader. A run has settled if many descents in a
row, the more the more different ends there were, have found no better leader, or if all cells were
tried. Before a run ends, all moves from the best leader are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.moves.leaders import (
    Leader,
    MovesState,
    Trust,
    audit_leader,
    check_leader,
    key_of,
    solve_leader,
)
from bilevo.algorithms.moves.ranking import MoveModel, features
from bilevo.algorithms.moves.reals import gains, is_open, polish_real, search_real
from bilevo.algorithms.shared.cells import MOST_CELLS, all_cells, exchanges, steps
from bilevo.algorithms.shared.leader import grids, reached
from bilevo.core.algorithm import Algorithm, Followers, registered
from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.bounds import Grid
from bilevo.core.budget import StopReason
from bilevo.core.feasibility import USUAL_CTOL
from bilevo.core.problem import Spec
from bilevo.core.request import Procedure, together
from bilevo.core.streams import stream
from bilevo.core.tolerances import alike
from bilevo.optimizers.sampling import latin_hypercube

FIRST_STARTS = 3  # The first descents start all over the box; later ones in turn near the elite.
BESIDE = 4  # If all numbers of x are real, so many starts are searched side by side.
FRUITLESS = 6  # A run settles after at least this number of descents in a row without a gain.
PATIENCE = 8  # At most this many times so, if fewer new leaders are met than twice all exchanges.
KICKS = 60  # The number of leaders near the elite of which the best-looking one is taken.
KICK = (2, 7)  # A descent near the elite starts this many random steps away, at least and below.
FEW_MOVES = 60  # A descent tries all steps, and of the other moves those that look best.
REORDERED = 8  # Moves are put into a new order after this number of them.
MOST_MODELLED = 400  # A model is made of at most this number of leaders, the latest ones.
# At least so many followers are searched again before a run ends, to test first searches, and half
# as many more if that shows a mistake.
AUDITS = 20
AUDITED = 3  # More followers are searched again if that costs at most the run so far, over this.
SWEEP = 3000  # All cells are tried if this takes at most as many evaluations, or as the run so far.
APART = 0.02  # Ends of descents in one cell are different if real numbers differ by about this.
EACH_BIT = 2.0  # Descents for each doubling of the number of cells of x.
BITS = 3  # A real number of x counts as a whole number with 2 to the power of 3 values.
MOST_SWEPT = 20_000  # The most cells that are tried one by one.


@dataclass(frozen=True, slots=True)
class Moves(Algorithm[MovesState]):
    """Moves over whole numbers and choices, local searches of real numbers, and certificates."""

    name = registered("moves")
    revision = 4
    ctol = USUAL_CTOL
    whole = True
    State = MovesState
    followers = Followers.BOTH

    def init(self, spec: Spec) -> Procedure[MovesState]:
        yield from ()
        return MovesState(None)

    def generation(self, spec: Spec, state: MovesState) -> Procedure[MovesState]:
        """Make one descent, and take its end as the elite if it is better."""
        x = self.next_start(spec, state)
        before = len(state.known)
        end = yield from self.descend(spec, state, x)
        yield from self.accept(spec, state, end)
        state.generation += 1
        if self.settled(spec, state):
            yield from self.finish(spec, state)
        state.executions = np.array([max(1, len(state.known) - before)])
        state.survived = np.ones(1, np.bool_)
        state.elite_F.append(state.the_elite.F)
        if state.stop is None:
            state.stop = self.ended(spec, state)
        return state

    # Descents

    def next_start(self, spec: Spec, state: MovesState) -> FloatArray:
        """Return where the next descent starts."""
        if state.generation == 0 and spec.x0 is not None:
            return spec.x0
        rng = stream(spec.seed, "start", state.generation)
        spread = latin_hypercube(8 * FRUITLESS, spec.m, stream(spec.seed, "starts"))
        if state.generation < FIRST_STARTS or state.generation % 2 or state.elite is None:
            inside = state.generation < len(spread)
            x = spread[state.generation] if inside else rng.random(spec.m)
            return self.repaired(spec, state, np.asarray(x))
        return self.near_elite(spec, state, rng)

    def repaired(self, spec: Spec, state: MovesState, x: FloatArray) -> FloatArray:
        """Return x, or a leader near it that meets constraints which are known to be linear."""
        x_grid, _ = grids(spec)
        if state.elite is None:
            return x
        model = self.model(spec, state, state.known[key_of(x_grid, state.the_elite.x)])
        if model is None or not model.G_exact:
            return x
        for _ in range(int(x_grid.values.sum())):
            if not model.violation(features(x_grid, x_grid.cell(x[None]), x[None]))[0]:
                break
            cells = np.array([*steps(x_grid, x_grid.cell(x))])
            rows = features(x_grid, cells, np.repeat(x[None], len(cells), axis=0))
            x = x_grid.centre(cells[int(model.cost(rows, forgiving=True).argmin())], x)
        return x

    def near_elite(self, spec: Spec, state: MovesState, rng: np.random.Generator) -> FloatArray:
        """Return a leader some random steps away from the elite: of several, the best-looking.

        In turn, it is one with other real numbers.
        """
        x_grid, _ = grids(spec)
        real = x_grid.values == 0
        if real.any() and state.generation % 4 == 0:  # elsewhere in the cell of the elite
            return np.where(real, rng.random(spec.m), state.the_elite.x)
        centre = state.known[key_of(x_grid, state.the_elite.x)]
        cells = []
        for _ in range(KICKS):
            cell = x_grid.cell(centre.pair.x)
            for _ in range(int(rng.integers(*KICK))):
                moves = [*steps(x_grid, cell)]
                cell = moves[int(rng.integers(len(moves)))] if moves else cell
            cells.append(cell)
        new = [cell for cell in cells if cell.tobytes().hex() not in state.known]
        order = self.order(spec, state, centre, new) if new else []
        x = x_grid.centre(order[0] if order else cells[0], centre.pair.x)
        x[real] = np.clip(x[real] + 0.2 * rng.standard_normal(int(real.sum())), 0.0, 1.0)
        return x

    def descend(self, spec: Spec, state: MovesState, x: FloatArray) -> Procedure[Leader]:
        """Move to better leaders until there is no better one; check the follower of the end."""
        starts, last = [x], None
        if state.generation > 1 and grids(spec)[0].cells == 1:  # there are no moves
            rng = stream(spec.seed, "beside", state.generation)
            starts += list(rng.random((BESIDE - 1, spec.m)))
        solved = yield from together(self.solve(spec, state, one, again=True) for one in starts)
        here = next(one for one in solved if not any(gains(other, one) for other in solved))
        while True:
            there = yield from self.better_move(spec, state, here, last, FEW_MOVES)
            if there is None and not here.searched:
                here, last = (yield from self.solve(spec, state, here.pair.x)), None
                continue
            if there is None:
                checked = yield from self.check(spec, state, here)
                if checked.pair.no_worse(here.pair) or checked.pair.f == here.pair.f:
                    return checked
                here, last = checked, None  # the answer was wrong: go on with the true one
                continue
            x_grid, _ = grids(spec)
            last = x_grid.cell(there.pair.x) - x_grid.cell(here.pair.x)
            here = there
            if reached(spec, here.pair):
                return (yield from self.check(spec, state, here))

    def better_move(
        self, spec: Spec, state: MovesState, here: Leader, last: IntArray | None, most: int
    ) -> Procedure[Leader | None]:
        """Return the first leader, in the order of a model, that a move makes better than `here`.

        All single steps are tried, and at most `most` moves in all.
        """
        x_grid, _ = grids(spec)
        moves = list(moves_from(x_grid, here.pair.x, last))
        waiting = {cell.tobytes(): (cell, kind) for cell, kind in moves}
        queue: list[IntArray] = []
        for tried in range(len(waiting)):
            if not queue or tried % REORDERED == 0:  # with all that has been learnt since
                queue = self.order(spec, state, here, [cell for cell, _ in waiting.values()])
            if tried >= most:  # only single steps must all be tried
                queue = [cell for cell in queue if waiting[cell.tobytes()][1] == "step"]
            if not queue:
                return None
            cell = queue.pop(0)
            del waiting[cell.tobytes()]
            x = x_grid.centre(cell, here.pair.x)
            there = yield from self.solve(spec, state, x, here if most == FEW_MOVES else None)
            if gains(there, here):
                return there
        return None

    def order(
        self, spec: Spec, state: MovesState, here: Leader, cells: list[IntArray]
    ) -> list[IntArray]:
        """Return cells from the best-looking to the worst.

        Cells that are known not to be better, or to be infeasible, are left out.
        """
        x_grid, _ = grids(spec)
        keys = [cell.tobytes().hex() for cell in cells]
        known = [state.known.get(key) for key in keys]
        open_ones = [i for i, one in enumerate(known) if one is None or gains(one, here)]
        model = self.model(spec, state, here) if open_ones else None
        if model is None:
            return [cells[i] for i in open_ones]
        chosen = np.array([cells[i] for i in open_ones])
        rows = features(x_grid, chosen, np.repeat(here.pair.x[None], len(chosen), axis=0))
        # An infeasible leader may have infeasible neighbours only.
        cost = model.cost(rows, forgiving=here.pair.violation > 0)
        order = np.argsort(cost, kind="stable")
        return [cells[open_ones[i]] for i in order if np.isfinite(cost[i])]

    def model(self, spec: Spec, state: MovesState, here: Leader) -> MoveModel | None:
        """Return a model of the leaders so far, or None if they are too few."""
        x_grid, _ = grids(spec)
        latest = list(state.known.values())[-MOST_MODELLED:]
        usable = [one for one in latest if math.isfinite(one.pair.F)]
        usable = [one for one in usable if len(one.G) == len(here.G)]
        if len(usable) < 3:
            return None
        x = np.array([one.pair.x for one in usable])
        rows = features(x_grid, x_grid.cell(x), x)
        own = features(x_grid, x_grid.cell(here.pair.x[None]), here.pair.x[None])[0]
        F = np.array([one.pair.F for one in usable])
        return MoveModel.fit(rows, F, np.array([one.G for one in usable]), own)

    # Leaders

    def solve(
        self,
        spec: Spec,
        state: MovesState,
        x: FloatArray,
        rival: Leader | None = None,
        again: bool = False,
    ) -> Procedure[Leader]:
        """Return the best leader of the cell of x, which is searched if it is not known.

        `again` searches its real numbers from those of x in any case. They are not searched yet if
        that is unlikely to decide whether the leader is better than a `rival`.
        """
        x_grid, _ = grids(spec)
        x = x_grid.centre(x_grid.cell(x), x)
        key, real = key_of(x_grid, x), np.flatnonzero(x_grid.values == 0)
        known = state.known.get(key)
        done = known is not None and (known.searched or rival is not None)
        if known is not None and done and not (again and real.size):
            return known
        found = yield from solve_leader(spec, state, x)
        without = state.top is None or math.isinf(state.top.pair.F)
        if without and (state.elite is None or found.pair.no_worse(state.elite)):
            state.elite = found.pair  # a run that is stopped early must have a pair
            yield found.pair.incumbent
        found.bend = next((one.bend for one in (known, rival) if one is not None), None)
        if real.size and (rival is None or is_open(state, found, rival)):
            before = found.pair
            found = yield from search_real(spec, state, found, real)
            if not again and before.violation == found.pair.violation:
                state.gains.append(before.F - found.pair.F)
        else:
            found.searched = not real.size
        if known is None or gains(found, known):
            state.known[key] = found
        elif found.searched:
            known.searched = True
        return state.known[key]

    def check(self, spec: Spec, state: MovesState, leader: Leader) -> Procedure[Leader]:
        """Search a leader's follower again, and keep what is found.

        The search is thorough if the leader is better than the elite.
        """
        key = key_of(grids(spec)[0], leader.pair.x)
        doubtful = spec.step_cost is None and leader.trust < Trust.COMPARED
        if doubtful and not self.leads(state, leader):
            leader = state.known[key] = yield from audit_leader(spec, state, leader)
        if leader.pair.check is None and self.leads(state, leader):
            leader = state.known[key] = yield from check_leader(spec, state, leader)
        if state.top is not None and key == key_of(grids(spec)[0], state.top.pair.x):
            state.known[key] = leader if gains(leader, state.top) else state.top
        return leader

    def leads(self, state: MovesState, leader: Leader) -> bool:
        """Tell whether a leader is better than the elite."""
        return state.top is None or gains(leader, state.top)

    # The elite, and the end of a run

    def accept(self, spec: Spec, state: MovesState, end: Leader) -> Procedure[None]:
        """Take the end of a descent as the elite if it is better."""
        x_grid, _ = grids(spec)
        reals = np.round(end.pair.x[x_grid.values == 0] / APART)
        key = key_of(x_grid, end.pair.x) + reals.tobytes().hex()
        if key not in state.optima:
            state.optima.append(key)
        if self.leads(state, end):
            state.fruitless, state.known_before = 0, len(state.known)
            state.elite, state.top = end.pair, end
            yield end.pair.incumbent
        else:
            state.fruitless += 1 if x_grid.cells > 1 else BESIDE

    def settled(self, spec: Spec, state: MovesState) -> bool:
        """Tell whether descents have been fruitless for long enough, or the target is met."""
        if reached(spec, state.the_elite):
            return True
        x_grid, _ = grids(spec)
        if x_grid.all_whole and len(state.known) >= x_grid.cells:
            return True
        bits = math.log2(x_grid.cells) + BITS * int((x_grid.values == 0).sum())
        least = max(FRUITLESS, round(EACH_BIT * bits))
        enough = state.fruitless >= max(least, 2 + 2 * len(state.optima))
        whole = int(x_grid.whole.sum())
        new = len(state.known) - state.known_before
        return enough and (new >= 2 * whole * (whole - 1) or state.fruitless >= PATIENCE * least)

    def finish(self, spec: Spec, state: MovesState) -> Procedure[None]:
        """Try all moves from the elite, and all cells if they are few; end the run.

        If that finds a better leader, or a doubtful follower, the run goes on.
        """
        if reached(spec, state.the_elite):
            state.stop = StopReason.TARGET
            return
        here = state.known[key_of(grids(spec)[0], state.the_elite.x)]
        there = yield from self.better_move(spec, state, here, None, 10**9)
        if there is None:
            there = yield from self.sweep(spec, state, here)
        if there is not None:
            end = yield from self.descend(spec, state, there.pair.x)
            yield from self.accept(spec, state, end)
            return
        missed, doubts = state.missed, state.doubts
        yield from self.audit(spec, state)
        if state.missed > missed:  # go on with searches that are trusted more
            state.fruitless = max(0, state.fruitless - FRUITLESS) if doubts == state.doubts else 0
            return
        polished, before = (yield from polish_real(spec, state, here)), state.the_elite.F
        if polished is not here:
            yield from self.accept(spec, state, (yield from self.check(spec, state, polished)))
        if alike(state.the_elite.F, before):
            state.stop = StopReason.STAGNATION

    def audit(self, spec: Spec, state: MovesState) -> Procedure[None]:
        """Test first searches of followers at the best leaders, and at some others."""
        if spec.step_cost is not None:
            return
        keys = sorted(key for key, one in state.known.items() if one.trust < Trust.COMPARED)
        keys.sort(key=lambda key: (state.known[key].pair.violation, state.known[key].pair.F))
        rng, missed = stream(spec.seed, "audits", state.generation), state.missed
        each = min(grids(spec)[1].cells, MOST_CELLS) + AUDITS  # evaluations, about
        so_far = (state.lower + state.spent) / AUDITED / each
        count = max(AUDITS - state.tested, AUDITS // 2, int(so_far) - state.tested)
        count = len(keys) if 2 * count >= len(keys) else count  # the rest costs no more
        others = keys[count // 2 :]
        drawn = rng.permutation(len(others))[: count - count // 2]
        for key in [*keys[: count // 2], *(others[i] for i in drawn)]:
            audited = yield from audit_leader(spec, state, state.known[key])
            state.known[key], state.tested = audited, state.tested + 1
            if state.missed > missed:
                return

    def sweep(self, spec: Spec, state: MovesState, here: Leader) -> Procedure[Leader | None]:
        """Try all cells that are left, if that costs little; return the first better leader."""
        x_grid, _ = grids(spec)
        left = x_grid.cells - len(state.known)
        spent = state.lower + state.spent
        each = spent / max(1, len(state.known))
        affordable = max(SWEEP, spent) if spec.step_cost is None else spent
        if left <= 0 or left > MOST_SWEPT or left * each > affordable:
            return None
        for cell in all_cells(x_grid):
            if cell.tobytes().hex() in state.known:
                continue
            there = yield from self.solve(spec, state, x_grid.centre(cell, here.pair.x))
            if gains(there, here):
                return there
        return None

    def ended(self, spec: Spec, state: MovesState) -> StopReason | None:
        """Return why the run ends here by its own budget, or None."""
        budget = spec.budget
        total = budget.upper_max * (1 + budget.lower_window)
        used = state.spent >= budget.upper_max or state.spent + state.lower >= total
        return StopReason.BUDGET if used else None


def moves_from(grid: Grid, x: FloatArray, last: IntArray | None) -> Iterator[tuple[IntArray, str]]:
    """Yield the cells that a move from x leads to, and the kinds of the moves."""
    cell = grid.cell(x)
    top = np.maximum(grid.values - 1, 0)
    ordered = (grid.values > 0) & ~grid.unordered
    if last is not None and not last[~ordered].any() and last.any():
        further = np.clip(cell + 2 * last, 0, top)
        if (further != cell).any():
            yield further, "further"
    for i in np.flatnonzero(ordered).tolist():
        distance = 4
        while 2 * distance < grid.values[i]:
            for side in (distance, -distance):
                far = cell.copy()
                far[i] = min(max(far[i] + side, 0), top[i])
                if far[i] != cell[i]:
                    yield far, "leap"
            distance *= 4
    yield from ((one, "exchange") for one in exchanges(grid, cell))
    yield from ((one, "step") for one in steps(grid, cell))
