"""The Nash equilibrium of several followers, as a solver.

A search has three parts. `joint_newton` makes all followers' slopes zero at once. Where it does not
settle, or where functions are not smooth, `best_responses` lets followers answer one another. Then
every follower's box is searched again for a better answer. If one is found, the search goes on from
there; if none is found, the answers are an equilibrium.

What counts is the residual, the most that a follower could still gain by changing its answer alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.budget import require_count
from bilevo.core.problem import Problem
from bilevo.core.solver import Neighbour
from bilevo.core.stance import Stance
from bilevo.followers.best_responses import Look, Plan, Sweeps, look
from bilevo.followers.game import Game, Record, Table
from bilevo.followers.joint_newton import Stationary, newton
from bilevo.followers.minimize import Paused
from bilevo.optimizers.sampling import latin_hypercube

FIRST_SAMPLES = 4  # A first search looks at this many points of a box, ...
MORE_SAMPLES = 4  # ... and at this many more for each variable of the largest box.
STAGES = (1, 4, 16)  # A full look may go on with this many times as many points.
NEAR_SAMPLES = 2  # A search near a solved one looks at this many.
FIRST_SWEEPS, MORE_SWEEPS = 3, 15  # Sweeps before Newton's method is tried again.
ROUNDS = 4  # How often a search goes on from a better answer that a look has found.
# The violation where no equilibrium was found. The residual would depend on where a search ended.
NO_EQUILIBRIUM = 1.0
UNMEASURED = 1e30  # The residual of a search that has not measured one.
MAX_HINT = 64  # A game of more variables passes no matrix on.
STEPS = 7  # A search takes at most this many steps from each start.
APART = 1e-3  # Equilibria that are farther apart than this, in the unit box, are different.
STARTS = 5  # A search with a stance starts from this many places.


@dataclass(slots=True, eq=False)
class NashState:
    """A search for the equilibrium at x. Points are in the unit boxes of the followers.

    `matrix` (d, d) is that of a game near by, and empty if there is none. `y` is the point with the
    smallest residual so far; its `residual` is inf before the first one is known. `near` has the x
    and the point of the game near by, and `follows` (d, m) says how its answers follow x.
    `samples`, `stages` and `probed` are as in `Plan`. `others` (k, d) are more places to start
    from, if the leader's stance chooses among equilibria.
    """

    x: FloatArray
    begin: FloatArray
    matrix: FloatArray
    samples: FloatArray
    stages: tuple[int, ...]
    probed: int
    seed: int
    record: Record
    y: FloatArray
    near: tuple[FloatArray, FloatArray] | None = None
    follows: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    residual: float = np.inf
    hint: FloatArray = field(default_factory=lambda: np.empty(0))
    steps: int = 0
    finished: bool = False
    others: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    def note(self, y: FloatArray, residual: float) -> None:
        """Keep a point if its residual is the smallest so far."""
        if residual <= self.residual:
            self.y, self.residual = y, residual


@dataclass(frozen=True, slots=True)
class Nash:
    """Finds the Nash equilibrium of a problem's followers: `Problem(..., play="nash")`.

    A step makes at most `evaluations` evaluations of the f_i. The default is 25 for each follower
    and each of their variables. A search takes at most seven steps. Its `f` is the residual, which
    is 0 at an equilibrium. Where none is found, the answer has a violation of 1.

    With a `stance`, a search starts from five places, and takes the equilibrium of those found that
    is best or worst for the leader. The values of F that this needs count as evaluations, too.
    """

    evaluations: int | None = None
    game: Game | None = field(default=None, repr=False)
    stance: Stance | None = None

    def __post_init__(self) -> None:
        require_count("evaluations", self.evaluations)

    def bind(self, problem: Problem) -> Nash:
        if problem.several is None:
            raise ValueError(
                "Nash is for several followers: Problem(F, None, x_bounds, "
                'followers=[...], play="nash")'
            )
        if problem.y_bounds.has_whole:
            raise ValueError(
                'play="nash" is for followers with real variables only: a game of whole numbers or '
                "choices may have no equilibrium; give a solver of your own as `follower`, or "
                'play="independent"'
            )
        return replace(self, game=Game(problem))

    def take_stance(self, stance: Stance, tie_tol: float | None) -> Nash:
        """Return a solver that chooses among equilibria for the leader."""
        if tie_tol is not None:
            raise ValueError(
                f'tie_tol={tie_tol:g} does not go with play="nash": a stance chooses among '
                "equilibria, at which no follower gains anything; leave tie_tol out"
            )
        return replace(self, stance=stance)

    @property
    def cost(self) -> int:
        if self.game is None:
            return self.evaluations or 1
        return self._moves + (0 if self.stance is None else STARTS)

    @property
    def _moves(self) -> int:
        """Return how many evaluations of the f_i a step may make."""
        usual = 25 * (self._game.size + len(self._game.players))
        return (self.evaluations or usual) + self._game.solver_cost

    def start(
        self, x: FloatArray, rng: np.random.Generator, near: Neighbour | None = None
    ) -> NashState:
        game = self._game
        largest = max(player.box.size for player in game.players)
        count = FIRST_SAMPLES + MORE_SAMPLES * largest
        stages, probed = tuple(count * factor for factor in STAGES), -1
        if near is not None and not np.array_equal(near.x, x):  # else it is checked in full
            stages, probed = (NEAR_SAMPLES,), int(rng.integers(len(game.players)))
        samples = np.concatenate([latin_hypercube(k, game.size, rng) for k in stages])
        begin, seed = rng.random(game.size), int(rng.integers(2**31))
        nothing, record = np.empty((0, 0)), Record.empty(game.size)
        state = NashState(x, begin, nothing, samples, stages, probed, seed, record, begin)
        if near is not None:
            _start_near(state, game, near)
        if self.stance is not None:
            state.others = latin_hypercube(STARTS - 1, game.size, rng)
        return state

    @property
    def _game(self) -> Game:
        if self.game is None:
            raise ValueError('Nash must be given to a problem: Problem(..., play="nash")')
        return self.game

    def advance(self, state: NashState) -> NashState:
        table = Table(self._game, state.x, state.record, self._moves, state.seed)
        state.steps += 1
        try:
            _play(table, state)
            if self.stance is not None:
                _choose(table, state, self.stance)
            state.finished = True
        except Paused:
            state.finished = state.steps >= STEPS * (1 + len(state.others))
        return state

    def best(self, state: NashState) -> tuple[FloatArray, float, float]:
        y, residual = self._game.real(state.y), state.residual
        if not np.isfinite(residual):  # none was measured; a number ranks it before failures
            return y, UNMEASURED, NO_EQUILIBRIUM
        return y, residual, NO_EQUILIBRIUM if residual else 0.0

    def done(self, state: NashState) -> bool:
        return state.finished

    def spent(self, state: NashState) -> int:
        return state.record.spent

    def hint(self, state: NashState) -> FloatArray:
        return state.hint


def _start_near(state: NashState, game: Game, near: Neighbour) -> None:
    """Let a search start where the answers of a game near by lead to, as far as that is known."""
    y, d = game.unit(near.y), game.size
    away = game.leader_unit(state.x) - game.leader_unit(near.x)
    state.near, state.follows = (near.x, y), np.zeros((d, len(away)))
    if near.hint is not None and near.hint.size == d * (d + len(away)):
        state.matrix = near.hint[: d * d].reshape(d, d)
        state.follows = near.hint[d * d :].reshape(d, len(away))
    state.begin = state.y = np.clip(y + state.follows @ away, 0, 1)


def _hint(game: Game, state: NashState, matrix: FloatArray | None) -> FloatArray:
    """Return what a search near by starts from: the matrix, and how answers follow x.

    Broyden's update learns the latter from the way between two games.
    """
    if matrix is None or len(matrix) > MAX_HINT:
        return np.empty(0)
    follows = np.zeros((game.size, len(state.x)))
    if state.near is not None:
        x, y = state.near
        away = game.leader_unit(state.x) - game.leader_unit(x)
        follows = state.follows
        if away.any():
            surprise = state.y - y - follows @ away
            follows = follows + np.outer(surprise, away) / float(away @ away)
    return np.concatenate([matrix.ravel(), follows.ravel()])


def _play(table: Table, state: NashState) -> None:
    """Search for an equilibrium from the start of the search; keep the best point in the state."""
    y, matrix = state.begin, state.matrix if state.matrix.size else None
    for _ in range(ROUNDS):
        y, found = _settle(table, state, y, matrix)
        matrix = None if found is None else found.matrix
        plan = Plan(state.samples, state.stages, state.probed)
        if found is None:
            seen = look(table, y, plan)
        else:
            seen = look(table, found.measured, plan, (found.slopes.f, _scales(table, found)))
        state.note(y, seen.residual)
        if seen.residual == 0:
            state.hint = _hint(table.game, state, matrix)
            return
        y = _with_replies(table, y, seen)


def _choose(table: Table, state: NashState, stance: Stance) -> None:
    """Search from the other starts, too; keep the equilibrium that the leader's stance expects."""
    equilibria = [state.y] if state.residual == 0 else []
    for begin in state.others:
        other = replace(state, begin=begin, matrix=np.empty((0, 0)), residual=np.inf, near=None)
        _play(table, other)
        if not equilibria:
            state.note(other.y, other.residual)
        far = all(np.abs(other.y - y).max() > APART for y in equilibria)
        if other.residual == 0 and far:
            equilibria.append(other.y)
    if len(equilibria) < 2:
        return
    values = [table.game.leaders(state.x, y) for y in equilibria]
    state.record.spent += len(values)
    rank = [(np.inf, 0.0) if np.isnan(F) else (violation, F) for F, violation in values]
    chosen = min if stance is Stance.OPTIMISTIC else max
    state.y = equilibria[chosen(range(len(rank)), key=rank.__getitem__)]


def _settle(
    table: Table, state: NashState, y: FloatArray, matrix: FloatArray | None
) -> tuple[FloatArray, Stationary | None]:
    """Return where the followers settle, or where they are after all sweeps."""
    smooth = all(player.smooth for player in table.game.players)
    found = newton(table, y, matrix) if smooth else None
    if found is not None:
        return found.y, found
    sweeps = Sweeps(y)
    for count in (FIRST_SWEEPS, MORE_SWEEPS):
        sweeps.run(table, count)
        if sweeps.settled:
            break
        found = newton(table, sweeps.y, None) if smooth else None
        if found is not None:
            return found.y, found
    return sweeps.y, None


def _scales(table: Table, found: Stationary) -> FloatArray:
    """Return how much each f_i changes over its box, by its slopes and curvatures."""
    change = np.abs(found.slopes.gradient) + 0.5 * np.abs(found.slopes.curvature)
    return np.array([change[player.place].max() for player in table.game.players])


def _with_replies(table: Table, y: FloatArray, seen: Look) -> FloatArray:
    """Return y with the replies of the players that gain by them."""
    y = y.copy()
    for player, reply, gain in zip(table.game.players, seen.replies, seen.gains, strict=True):
        if gain > 0:
            y[player.place] = reply.own
    return y
