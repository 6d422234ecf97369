"""What figures show, as plain numbers: `figures` draws them with matplotlib, `report` with plotly.

All of it is computed from two frames, `runs` (one row a run) and `history` (one row a generation).
A run is seen as a step function: over the evaluations of both levels, the best |F - F*| of its
feasible elites so far, its answer included. It has the value inf before the first feasible one, and
keeps its last value after its end. A run that failed reached nothing: inf throughout. F can pass
below F* while the follower is not solved; |F - F*| takes that as a distance like any other, as the
accuracy in tables does. Where the optimum is not known, a curve shows the elite's F as it was
at the time: its best value would be the one with the greatest error of the follower.

Methods of which only the answers are known (other programs' results) have no curve; they are
named in `left_out`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bilevo.core.arrays import FloatArray
from bilevo.core.extras import need
from bilevo.lab.analysis.samples import Case, grouped, ordered_methods, ranked
from bilevo.lab.analysis.statistics import ALPHA
from bilevo.lab.store import FAILED
from bilevo.plot import Stage, stages

if TYPE_CHECKING:
    import polars as pl
else:
    pl = need("figures of stored runs", "polars", "bench")

TARGETS = np.logspace(2, -6, 51)  # as many as COCO has; a run ends where the last one is met
POINTS = 300  # of a curve at most: more than a printed column can show
QUARTILES = (0.25, 0.5, 0.75)

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One run: the evaluations at which its value changed, the new values, and its end."""

    evaluations: Counts
    values: FloatArray
    end: int


@dataclass(frozen=True, slots=True)
class Goal:
    """The optimum's F where it is known, or else the best feasible F of all runs (NaN if none)."""

    F: float
    known: bool
    verified: bool = False  # whether the best is F where the follower really answers

    @property
    def best(self) -> str:
        """In words, where the optimum is not known."""
        if math.isnan(self.F):
            return "optimum unknown"
        return f"best {'found' if self.verified else 'reported'} {self.F:.6g}"

    @property
    def label(self) -> str:
        """What a curve towards it shows."""
        return "|F - F*|" if self.known else f"F ({self.best})"


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Median and quartiles of a method's runs; inf where too many have no feasible pair yet."""

    method: str
    runs: int
    evaluations: Counts
    lower: FloatArray
    median: FloatArray
    upper: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Convergence:
    """|F - F*| over evaluations, or F where the optimum is unknown."""

    case: Case
    goal: Goal
    bands: list[Band]
    left_out: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """The share of a method's pairs of run and target that are reached after `evaluations`."""

    method: str
    pairs: int
    evaluations: Counts
    share: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Ecdf:
    """Over the cases with a known optimum that all these methods have run on."""

    cases: list[Case]
    reached: list[Reached]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The run of median cost of each method, in an early, a middle and a late generation."""

    case: Case
    stages: dict[str, list[Stage]]
    numbers: dict[str, int]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles."""

    lower: float
    median: float
    upper: float


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds a run, and seconds an evaluation, by method and case."""

    cases: list[Case]
    methods: list[str]
    per_run: dict[tuple[str, Case], Spread]
    per_evaluation: dict[tuple[str, Case], Spread]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Average ranks, 1 the best, best first; cliques are methods that do not differ."""

    indicator: str
    blocks: int  # the cases ranked over
    p: float  # of the Friedman test
    difference: float  # beyond which two average ranks differ significantly
    average: dict[str, float]
    cliques: list[tuple[str, ...]]


def cases(runs: pl.DataFrame) -> list[Case]:
    """Those that runs are of, smd2 before smd10."""
    found = {Case(*row) for row in runs.select("problem", "m", "n").rows()}
    return sorted(found, key=lambda case: case.order)


def methods(runs: pl.DataFrame) -> list[str]:
    """In the order of tables."""
    return ordered_methods(runs["method"].unique(maintain_order=True).to_list())


def goal(runs: pl.DataFrame, case: Case) -> Goal:
    """What runs on a case were after: the optimum that some of them tells, or the best of all.

    The best is a verified one where there is any: an F that is not may be out of reach.
    """
    ours = runs.filter(_of(case))
    known = ours.filter(pl.col("F_star").is_finite())["F_star"]
    if len(known):
        return Goal(float(known[0]), known=True)
    true = (pl.col("violation_verified") == 0) & pl.col("F_verified").is_finite()
    verified, reported = ours.filter(true)["F_verified"], ours.filter(_feasible())["F"]
    found = verified if len(verified) else reported
    best = float(found.to_numpy().min()) if len(found) else math.nan
    return Goal(best, known=False, verified=len(verified) > 0)


def convergence(
    history: pl.DataFrame, runs: pl.DataFrame, problem: str, m: int, n: int
) -> Convergence:
    """Median and quartiles of each method's runs on one case."""
    case = Case(problem, m, n)
    aim = goal(runs, case)
    found = _traces(history, runs, case, aim)
    bands = [_band(method, traces) for method, traces in found.items()]
    seen = [band for band in bands if band is not None]
    if not seen:
        raise ValueError(f"no run on {label(case)} has a history with a feasible pair")
    shown = {band.method for band in seen}
    others = [name for name in methods(runs.filter(_of(case))) if name not in shown]
    return Convergence(case, aim, seen, others)


def ecdf(history: pl.DataFrame, runs: pl.DataFrame) -> Ecdf:
    """The share of (run, target) pairs reached over evaluations, by method.

    Only cases with a known optimum that every method with a history has runs on: shares over
    different problems could not be compared.
    """
    names = [name for name in methods(runs) if name in set(methods(history))]
    known = {place: aim for place in cases(runs) if (aim := goal(runs, place)).known}
    traces = {place: _traces(history, runs, place, aim) for place, aim in known.items()}
    common = [place for place, found in traces.items() if all(name in found for name in names)]
    if not common or not names:
        raise ValueError(
            "targets need runs with histories on problems with a known optimum that all methods "
            f"have run on; methods with a history: {', '.join(names) or 'none'}"
        )
    pooled = {name: [t for place in common for t in traces[place][name]] for name in names}
    reached = [_reached(name, found) for name, found in pooled.items()]
    others = [name for name in methods(runs) if name not in names]
    others += [label(place) for place in cases(runs) if place not in common]
    return Ecdf(common, reached, others)


def allocation(
    history: pl.DataFrame, runs: pl.DataFrame, problem: str, m: int, n: int
) -> Allocation:
    """Executions of each task in three generations of each method's run of median cost."""
    case = Case(problem, m, n)
    kept = history.filter(_of(case) & (_list_length("executions") > 0))
    shown: dict[str, list[Stage]] = {}
    numbers: dict[str, int] = {}
    ours = runs.filter(_of(case))
    for method in methods(ours):
        with_history = kept.filter(_is("method", method))
        number = _median_run(ours.filter(_is("method", method)), with_history["number"].to_list())
        if number is None:
            continue
        rows = with_history.filter(_is("number", number)).sort("generation")
        columns = ("generation", "executions", "survived")
        shown[method] = stages(*(rows[column].to_list() for column in columns))
        numbers[method] = number
    if not shown:
        raise ValueError(f"no run on {label(case)} has a history that tells executions of tasks")
    return Allocation(case, shown, numbers, [x for x in methods(ours) if x not in shown])


def times(runs: pl.DataFrame) -> Times:
    """Seconds a run and an evaluation; failed runs and those without a time are left out."""
    timed = runs.filter(pl.col("time").is_finite() & (pl.col("status") != FAILED))
    if timed.is_empty():
        raise ValueError("no run has a time: they are older data or other programs' results")
    total = pl.col("nfev_upper") + pl.col("nfev_lower")
    timed = timed.with_columns(each=pl.col("time") / pl.max_horizontal(total, pl.lit(1)))
    per_run: dict[tuple[str, Case], Spread] = {}
    per_evaluation: dict[tuple[str, Case], Spread] = {}
    for place in cases(timed):
        there = timed.filter(_of(place))
        for method in methods(there):
            rows = there.filter(_is("method", method))
            per_run[method, place] = _spread(rows["time"].to_numpy())
            per_evaluation[method, place] = _spread(rows["each"].to_numpy())
    names = methods(timed)
    others = [name for name in methods(runs) if name not in names]
    return Times(cases(timed), names, per_run, per_evaluation, others)


def ranks(
    runs: pl.DataFrame, indicator: str, floor: float | None = None, alpha: float = ALPHA
) -> Ranks:
    """Average ranks of the methods' medians, over the cases that all of them have runs on."""
    names, found = ranked(grouped(runs), indicator, floor, alpha)
    average = dict(sorted(zip(names, found.average, strict=True), key=lambda pair: pair[1]))
    together = cliques(average, found.critical_difference)
    return Ranks(indicator, found.blocks, found.p, found.critical_difference, average, together)


def cliques(average: dict[str, float], difference: float) -> list[tuple[str, ...]]:
    """Largest groups of two or more methods whose average ranks differ by no more."""
    names = sorted(average, key=lambda name: average[name])
    groups: list[tuple[str, ...]] = []
    for start, first in enumerate(names):
        group = tuple(x for x in names[start:] if average[x] - average[first] <= difference)
        if len(group) > 1 and not any(set(group) <= set(other) for other in groups):
            groups.append(group)
    return groups


def label(case: Case) -> str:
    return f"{case.problem} {case.size}"


def _traces(
    history: pl.DataFrame, runs: pl.DataFrame, case: Case, aim: Goal
) -> dict[str, list[Trace]]:
    """Each run's changes, by method; not of methods whose completed runs have no history."""
    ours, theirs = runs.filter(_of(case)), history.filter(_of(case))
    silent = set(methods(ours.filter(pl.col("status") != FAILED))) - set(methods(theirs))
    names = [name for name in methods(ours) if name not in silent]
    total = (pl.col("nfev_upper") + pl.col("nfev_lower")).cast(pl.Int64).alias("evaluations")
    columns = ["method", pl.col("number").cast(pl.Int64), total, "F", "violation"]
    one = ["method", "number"]
    value = (pl.col("F") - aim.F).abs().cum_min().over(one) if aim.known else pl.col("F")
    steps = (
        pl.concat([theirs.select(columns), ours.select(columns)])
        .filter(_feasible())
        .sort(*one, "evaluations", maintain_order=True)
        .with_columns(value=value)
        .filter((pl.col("value") != pl.col("value").shift(1).over(one)).fill_null(True))
    )
    found: dict[str, list[Trace]] = {name: [] for name in names}
    parts = steps.partition_by(one, as_dict=True)
    for method, number, end in ours.select(*one, total.fill_null(0)).rows():
        part = parts.get((method, number), steps.clear())
        if method in found:
            counts, values = part["evaluations"].to_numpy(), part["value"].to_numpy()
            found[method].append(Trace(counts, values, end))
    return found


def _band(method: str, traces: Sequence[Trace]) -> Band | None:
    counts = np.concatenate([trace.evaluations for trace in traces])
    if counts.size == 0:
        return None
    grid = _grid(counts, traces)
    lower, median, upper = _quantiles(np.array([_at(trace, grid) for trace in traces]))
    return Band(method, len(traces), grid, lower, median, upper)


def _grid(counts: Counts, traces: Sequence[Trace]) -> Counts:
    """The counts, or some that are even on a logarithmic scale, and the end of the longest run."""
    found = np.unique([*counts.tolist(), max(trace.end for trace in traces)])
    if found.size <= POINTS:
        return found
    even = np.geomspace(max(found[0], 1), found[-1], POINTS)
    rows = np.searchsorted(found, even[:-1])  # the last one may be beyond the end by rounding
    return np.asarray(found[np.unique([0, *rows.tolist(), found.size - 1])])


def _at(trace: Trace, grid: Counts) -> FloatArray:
    """A run's value after so many evaluations."""
    last = np.searchsorted(trace.evaluations, grid, side="right")
    return np.concatenate([[np.inf], trace.values])[last]


def _quantiles(values: FloatArray) -> FloatArray:
    """Quartiles down the rows, interpolated as usual; inf where they would lean on inf."""
    high = np.quantile(values, QUARTILES, axis=0, method="higher")
    finite = np.minimum(values, np.finfo(float).max)
    return np.where(np.isinf(high), np.inf, np.quantile(finite, QUARTILES, axis=0))


def _spread(values: FloatArray) -> Spread:
    return Spread(*(float(value) for value in np.quantile(values, QUARTILES)))


def _reached(method: str, traces: Sequence[Trace]) -> Reached:
    hits: list[int] = []
    for trace in traces:
        first = np.searchsorted(-trace.values, -TARGETS)  # values fall: the first at or below
        hits += trace.evaluations[first[first < trace.values.size]].tolist()
    when = np.sort(np.array(hits, dtype=np.int64))
    pairs = len(traces) * TARGETS.size
    grid = _grid(when, traces)
    return Reached(method, pairs, grid, np.searchsorted(when, grid, side="right") / pairs)


def _median_run(runs: pl.DataFrame, with_history: Sequence[int]) -> int | None:
    """The number of the run of median cost among those with a history; of two, the cheaper."""
    cost = pl.col("nfev_upper") + pl.col("nfev_lower")
    done = runs.filter(pl.col("number").is_in(list(set(with_history))))
    numbers = done.sort(cost, "number")["number"].to_list()
    return int(numbers[(len(numbers) - 1) // 2]) if numbers else None


def _feasible() -> pl.Expr:
    return (pl.col("violation") == 0) & pl.col("F").is_finite()


def _of(case: Case) -> pl.Expr:
    return _is("problem", case.problem) & _is("m", case.m) & _is("n", case.n)


def _is(column: str, value: str | int) -> pl.Expr:
    return pl.col(column) == pl.lit(value)


def _list_length(column: str) -> pl.Expr:
    return pl.col(column).list.len()
