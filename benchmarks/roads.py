"""How many equilibria methods need to add good capacities to roads (the suite `roads`).

    python -m benchmarks.roads --methods cobyqa drc-race --csv docs/data/roads.csv
    python -m benchmarks.roads --page
    python -m benchmarks.roads --best
    python -m benchmarks.roads --speed

The first command makes runs and shows a table. Runs replace those of the same method and problem
in the file. The second makes the tables of docs/roads.md from this file. The third searches for the
least F of each problem, by COBYQA and CMA-ES. The fourth times the solver.

An equilibrium is a distinct x for which any step of the solver was made. A level is reached when a
finished search has an F that is not above it. Both are counted in `Ledger`, for all methods alike.
cobyqa is what an expert would write with SciPy: COBYQA minimizes phi(x) = F(x, equilibrium at x),
with variables scaled to [0, 1]. Each equilibrium starts near the last one.
"""

from __future__ import annotations

import csv
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import median
from time import process_time
from typing import TypeVar

import numpy as np

import bilevo
from benchmarks.timing import in_processes, say
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.solver import Neighbour
from bilevo.followers import Equilibrium
from bilevo.followers.equilibrium import Traffic
from bilevo.lab.show.formats import Lines, show
from bilevo.problems import roads

T = TypeVar("T")

COBYQA = "cobyqa"
RADIUS = 0.1  # COBYQA's first trust region, as a share of the bounds' width
PROBLEMS = ("roads-sf", "roads-16-i", "roads-16-ii")
LEVELS = {"roads-sf": (81.5, 80.87, 80.75)}
SHARES = (1e-2, 1e-3, 1e-4)  # levels of the other problems: these shares above the best F
MOST = 1000  # the most equilibria of a run


def levels_of(problem: str) -> tuple[float, ...]:
    """Return the values of F that runs are to reach."""
    best = roads.BEST[problem].F
    return LEVELS.get(problem) or tuple(best * (1 + share) for share in SHARES)


class Ended(Exception):  # noqa: N818 (not an error: the run has all that it needs)
    """The last level is reached, or the equilibria are used up."""


@dataclass(slots=True)
class Ledger:
    """Counts equilibria and sweeps until each level is reached."""

    problem: Problem
    levels: tuple[float, ...]
    most: int
    seen: set[bytes] = field(default_factory=set)
    sweeps: int = 0
    reached: list[tuple[int, int]] = field(default_factory=list)  # equilibria, sweeps
    F: float = np.inf
    x: FloatArray = field(default_factory=lambda: np.empty(0))
    in_solver: float = 0.0  # seconds

    def begin(self, x: FloatArray) -> None:
        """Count a step at x, before it is made."""
        if x.tobytes() not in self.seen and len(self.seen) >= self.most:
            raise Ended
        self.seen.add(x.tobytes())
        self.sweeps += 1

    def finish(self, x: FloatArray, flow: FloatArray) -> None:
        """Note F of a search that is done."""
        F = float(self.problem.F(x[None], flow[None])[0])
        if self.F > F:
            self.F, self.x = F, x
        while len(self.reached) < len(self.levels) and self.levels[len(self.reached)] >= self.F:
            self.reached.append((len(self.seen), self.sweeps))
        if len(self.reached) == len(self.levels):
            raise Ended


@dataclass(slots=True)
class Tried:
    """A search, and the x that it is for."""

    x: FloatArray
    traffic: Traffic


class Counted:
    """The drivers' solver, with all of its steps noted in a ledger."""

    def __init__(self, drivers: Equilibrium, ledger: Ledger) -> None:
        self.drivers, self.ledger = drivers, ledger

    def start(
        self, x: FloatArray, rng: np.random.Generator, near: Neighbour | None = None
    ) -> Tried:
        return Tried(x, self._timed(lambda: self.drivers.start(x, rng, near)))

    def advance(self, state: Tried) -> Tried:
        self.ledger.begin(state.x)
        state.traffic = self._timed(lambda: self.drivers.advance(state.traffic))
        if self.done(state):
            self.ledger.finish(state.x, state.traffic.flow)
        return state

    def best(self, state: Tried) -> tuple[FloatArray, float, float]:
        return self.drivers.best(state.traffic)

    def done(self, state: Tried) -> bool:
        return self.drivers.done(state.traffic)

    def hint(self, state: Tried) -> FloatArray:
        return self._timed(lambda: self.drivers.hint(state.traffic))

    def _timed(self, call: Callable[[], T]) -> T:
        started = process_time()
        try:
            return call()
        finally:
            self.ledger.in_solver += process_time() - started


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make. `number` is the seed of a method of bilevo, or the start of COBYQA."""

    problem: str
    method: str
    number: int
    most: int = MOST


@dataclass(frozen=True, slots=True)
class Row:
    """A run: equilibria and sweeps to each level (0: never reached), and its own time per sweep."""

    problem: str
    method: str
    number: int
    equilibria_1: int
    equilibria_2: int
    equilibria_3: int
    sweeps_1: int
    sweeps_2: int
    sweeps_3: int
    F: float  # the best F of a finished search
    equilibria: int  # of the whole run, which ends at the last level
    sweeps: int
    own_ms: float


def carry_out(task: Task) -> Row:
    """Make a run, until the last level is reached or its equilibria are used up."""
    problem = bilevo.problems.get(task.problem)
    ledger = Ledger(problem, levels_of(task.problem), task.most)
    assert isinstance(problem.follower, Equilibrium)
    follower = Counted(problem.follower, ledger)
    follower.drivers.settle(np.zeros(problem.m))  # so that kernels are ready
    started = process_time()
    try:
        if task.method == COBYQA:
            descend(problem, follower, start_of(problem, task.number))
        else:
            counted = with_follower(problem, follower)
            bilevo.minimize(counted, method=task.method, rng=task.number)
    except Ended:
        pass
    own = 1e3 * (process_time() - started - ledger.in_solver) / max(ledger.sweeps, 1)
    (e1, s1), (e2, s2), (e3, s3) = [*ledger.reached, (0, 0), (0, 0), (0, 0)][:3]
    whole = (ledger.F, len(ledger.seen), ledger.sweeps, own)
    return Row(task.problem, task.method, task.number, e1, e2, e3, s1, s2, s3, *whole)


def with_follower(problem: Problem, follower: Counted) -> Problem:
    """Return a problem with another solver for its follower."""
    sides = (problem.x_bounds, problem.y_bounds)
    return Problem(problem.F, None, *sides, vectorized=True, name=problem.name, follower=follower)


def start_of(problem: Problem, number: int) -> FloatArray:
    """Return a start of COBYQA: nothing built, 8% or half of the bounds, and then random points."""
    upper = problem.x_bounds.upper
    if number <= 3:
        return np.asarray(upper * (0.0, 0.08, 0.5)[number - 1])
    return np.asarray(upper * np.random.default_rng(number).random(problem.m))


def make_phi(problem: Problem, follower: Counted) -> Callable[[FloatArray], float]:
    """Return F at the equilibrium of a point of the unit box; each starts near the last one."""
    near: list[Neighbour] = []

    def phi(unit: FloatArray) -> float:
        x = np.clip(unit, 0, 1) * problem.x_bounds.upper
        state = follower.start(x, np.random.default_rng(0), near.pop() if near else None)
        state = follower.advance(state)
        while not follower.done(state):
            state = follower.advance(state)
        flow, f, _ = follower.best(state)
        near.append(Neighbour(x, flow, f, follower.hint(state)))
        return float(problem.F(x[None], flow[None])[0])

    return phi


def descend(problem: Problem, follower: Counted, x0: FloatArray, last: float = 1e-7) -> None:
    """Minimize phi by COBYQA."""
    from scipy.optimize import Bounds, minimize

    options = {"initial_tr_radius": RADIUS, "final_tr_radius": last, "maxfev": 100_000}
    box = Bounds(np.zeros(problem.m), np.ones(problem.m))
    unit = x0 / problem.x_bounds.upper
    minimize(make_phi(problem, follower), unit, method="COBYQA", bounds=box, options=options)


def search_best(name: str, starts: int) -> tuple[float, FloatArray]:
    """Return the least F that COBYQA and CMA-ES find, and its x, rounded to seven decimals.

    COBYQA descends from several starts. CMA-ES goes on from the best end, because phi has kinks
    where drivers begin to use a route. F is of a new equilibrium, from nothing, at a gap of 1e-13.
    """
    problem = roads.make(name, gap=1e-12)
    assert isinstance(problem.follower, Equilibrium)
    drivers, ledger = problem.follower, Ledger(problem, (-np.inf,), 10**6)
    for number in range(1, starts + 1):
        one = Ledger(problem, (-np.inf,), 10**6)
        descend(problem, Counted(drivers, one), start_of(problem, number), 1e-5)
        say(f"{name} from start {number}: {one.F:.6f}, {len(one.seen)} equilibria")
        ledger = min(ledger, one, key=lambda each: each.F)
    polish(problem, Counted(drivers, ledger))
    x = np.round(ledger.x, 7)  # at a kink, F changes as much as x
    state = Equilibrium(drivers.network, drivers.times, 1e-13).settle(x)
    return float(problem.F(x[None], state.flow[None])[0]), x


def polish(problem: Problem, follower: Counted) -> None:
    """Search by CMA-ES around the best x that the follower's ledger has, with growing populations.

    The search also looks at the best x that the suite has already.
    """
    from cma import CMAEvolutionStrategy

    upper, phi = problem.x_bounds.upper, make_phi(problem, follower)
    if problem.name in roads.BEST:
        phi(np.array(roads.BEST[problem.name].x) / upper)
    for population in (10, 20):
        options = {"bounds": [0, 1], "verbose": -9, "seed": 1, "tolfun": 1e-9}
        options |= {"popsize": population, "maxfevals": 400 * population}
        CMAEvolutionStrategy(follower.ledger.x / upper, 0.003, options).optimize(phi)


def speed(repeats: int = 40) -> Lines:
    """Time the solver on roads-sf: from nothing and from near by, compiled and plain."""
    from bilevo import kernels

    problem = bilevo.problems.get("roads-sf")
    drivers = problem.follower
    assert isinstance(drivers, Equilibrium)
    lines = [["kernels", "start", "sweeps", "ms", "sweeps per ms"]]
    best = np.full(problem.m, 3.0)
    for kernel in kernels.NAMES:
        with kernels.using(kernel):
            state = drivers.settle(best)
            near = Neighbour(best, *drivers.best(state)[:2], drivers.hint(state))
            for start, width in (("cold", 10.0), ("near, 0.3", 0.3), ("near, 0.03", 0.03)):
                rng, sweeps, started = np.random.default_rng(1), 0, process_time()
                for _ in range(repeats):
                    x = rng.uniform(0, width, problem.m)
                    cold = start == "cold"
                    sweeps += drivers.settle(*((x,) if cold else (best + x, near))).sweeps
                taken = 1e3 * (process_time() - started)
                figures = (sweeps / repeats, taken / repeats, sweeps / taken)
                lines.append([kernel, start, *(f"{figure:.3g}" for figure in figures)])
    return lines


def read(path: Path) -> list[Row]:
    """Return the runs that a file holds; none if there is no file."""
    if not path.exists():
        return []
    kinds = {"problem": str, "method": str, "F": float, "own_ms": float}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**{name: kinds.get(name, int)(value) for name, value in line.items()})
            for line in csv.DictReader(file)
        ]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write runs to a file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: (row.problem, row.method, row.number)):
            rounded = {"F": f"{row.F:.6f}", "own_ms": f"{row.own_ms:.2f}"}
            writer.writerow({**asdict(row), **rounded})


def table(rows: Sequence[Row], problem: str) -> Lines:
    """Return a line for each method: equilibria (and sweeps) to each level, as medians.

    Runs that do not reach a level count as infinitely long. The range of all runs is in brackets.
    """
    header = ["method", "runs", *(f"to {level:.6g}" for level in levels_of(problem))]
    lines = [[*header, "own ms per sweep"]]
    methods = dict.fromkeys(row.method for row in rows if row.problem == problem)
    for method in sorted(methods, key=lambda name: (name != COBYQA, name)):
        some = [row for row in rows if (row.problem, row.method) == (problem, method)]
        cells = [level_cell(some, level) for level in (1, 2, 3)]
        own = f"{median(row.own_ms for row in some):.1f}"
        lines.append([method, str(len(some)), *cells, own])
    return lines


def level_cell(rows: Sequence[Row], level: int) -> str:
    """Return the median, the range, the sweeps, and how many runs reach a level if not all do."""
    counts = [getattr(row, f"equilibria_{level}") or np.inf for row in rows]
    sweeps = [getattr(row, f"sweeps_{level}") or np.inf for row in rows]
    hits = sum(np.isfinite(count) for count in counts)
    if not hits:
        return "never"
    words = [f"{value:.0f}" if np.isfinite(value) else "-" for value in quartet(counts, sweeps)]
    missing = f"; {hits} of {len(rows)} runs" if hits < len(rows) else ""
    return f"{words[0]} ({words[1]} to {words[2]}; {words[3]} sweeps{missing})"


def quartet(counts: Sequence[float], sweeps: Sequence[float]) -> tuple[float, ...]:
    """Return the median, the least and the largest count, and the median of sweeps."""
    return median(counts), min(counts), max(counts), median(sweeps)


def options() -> Namespace:
    parser = ArgumentParser("python -m benchmarks.roads", description=__doc__)
    add = parser.add_argument
    add("--methods", nargs="+", default=[COBYQA, "drc-race"])
    add("--problems", nargs="+", default=[*PROBLEMS], choices=[*roads.BEST])
    add("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="of bilevo's methods")
    add("--starts", type=int, default=11, help="of COBYQA")
    add("--most", type=int, default=MOST, help="equilibria of a run")
    add("--jobs", type=int, default=1)
    add("--csv", type=Path)
    for flag in ("--page", "--best", "--speed"):
        add(flag, action="store_true")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    if chosen.page:
        from benchmarks import roads_page

        roads_page.make()
    elif chosen.speed:
        say(show(speed(), markdown=False))
    elif chosen.best:
        for name in chosen.problems:
            F, x = search_best(name, chosen.starts)
            say(f"{name}: {F:.6f} at {x.tolist()}")
    else:
        make_runs(chosen)
    return 0


def make_runs(chosen: Namespace) -> None:
    """Make the runs that were asked for, show their tables, and store them."""
    tasks = [
        Task(problem, method, number, chosen.most)
        for problem in chosen.problems
        for method in chosen.methods
        for number in (range(1, chosen.starts + 1) if method == COBYQA else chosen.seeds)
    ]
    rows = in_processes(carry_out, tasks, chosen.jobs)
    for problem in chosen.problems:
        say(f"\n{problem}\n{show(table(rows, problem), markdown=False)}")
    if chosen.csv is not None:
        made = {(row.problem, row.method) for row in rows}
        old = [row for row in read(chosen.csv) if (row.problem, row.method) not in made]
        write(chosen.csv, [*old, *rows])


if __name__ == "__main__":
    sys.exit(main())
