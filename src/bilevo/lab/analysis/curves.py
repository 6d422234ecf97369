"""The numbers in figures: `figures` draws them with matplotlib, `interactive` with plotly.

They are computed from two frames: `runs` has a row for each run, `history` for each generation. The
curve of a run is a step function over the evaluations of both levels: the best |F - F*| of its
feasible elites so far, its answer included. An elite is the best pair at the end of a generation.
The curve is inf before the first feasible elite, keeps its last value after the run's end, and is
inf everywhere for a run that failed. F can fall below F* while the follower is not solved; this
counts as a distance too, as in the accuracies of tables. If the optimum is not known, a curve shows
F of the present elite and not the best F so far, which may be low only because of a follower's
error.

Methods without histories, such as results of other programs, have no curve; `left_out` names them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilevo.core.arrays import FloatArray
from bilevo.lab.analysis.samples import Case, grouped, ordered_methods, ranked
from bilevo.lab.analysis.statistics import ALPHA
from bilevo.lab.frames import pl
from bilevo.lab.store import FAILED
from bilevo.plot import Stage, stages

TARGETS = np.logspace(2, -6, 51)  # For |F - F*|: 51 targets, as in COCO. Runs end at the last.
MAX_POINTS = 300  # The most points of a curve; a printed column cannot show more.
GRID_POINTS = 200  # The points of a grid that curves of several problems share.
QUARTILES = (0.25, 0.5, 0.75)

Counts = NDArray[np.int64]


class Trace(NamedTuple):
    """The evaluations at which a run's value changed, the new values, and the run's end."""

    evaluations: Counts
    values: FloatArray
    end: int


class Goal(NamedTuple):
    """F of the optimum if it is known, or else the best feasible F of all runs (NaN if none)."""

    F: float
    known: bool
    verified: bool = False  # whether F is taken at the follower's true answer

    @property
    def best(self) -> str:
        """Return words for the best F if the optimum is not known."""
        if math.isnan(self.F):
            return "optimum unknown"
        return f"best {'found' if self.verified else 'reported'} {self.F:.6g}"

    @property
    def label(self) -> str:
        """Return the label of the axis of a convergence curve."""
        return "|F - F*|" if self.known else f"F ({self.best})"


class Band(NamedTuple):
    """Median and quartiles of a method's runs over evaluations.

    They are inf while too many of the runs have no feasible pair.
    """

    method: str
    runs: int
    evaluations: Counts
    lower: FloatArray
    median: FloatArray
    upper: FloatArray


class Convergence(NamedTuple):
    """The curves of a case: |F - F*| over evaluations, or F if the optimum is not known."""

    case: Case
    goal: Goal
    bands: list[Band]
    left_out: list[str]


class Reached(NamedTuple):
    """The share of a method's (run, target) pairs that are reached after `evaluations`."""

    method: str
    pairs: int
    evaluations: Counts
    share: FloatArray


class Ecdf(NamedTuple):
    """Targets reached on the cases with a known optimum on which all these methods have runs."""

    cases: list[Case]
    reached: list[Reached]
    left_out: list[str]


class CaseTargets(NamedTuple):
    """How many (run, target) pairs of a method on a case are reached, at each point of a grid."""

    reached: Counts
    pairs: int
    end: int  # the evaluations of the longest run


class SharedTargets(NamedTuple):
    """Targets reached by method and case, over one grid; sums give the ECDF of any cases."""

    grid: Counts
    by_method: dict[str, dict[Case, CaseTargets]]
    left_out: list[str]


class Allocation(NamedTuple):
    """An early, a middle and a late generation of each method's run of median cost.

    `numbers` has the number of this run by method.
    """

    case: Case
    stages: dict[str, list[Stage]]
    numbers: dict[str, int]
    left_out: list[str]


class Quartiles(NamedTuple):
    """The quartiles of a sample."""

    lower: float
    median: float
    upper: float


Spreads = dict[tuple[str, Case], Quartiles]  # by method and case


class Times(NamedTuple):
    """The seconds per run and per evaluation."""

    cases: list[Case]
    methods: list[str]
    per_run: Spreads
    per_evaluation: Spreads
    left_out: list[str]

    def of_method(self, method: str, spreads: Spreads) -> tuple[list[int], FloatArray]:
        """Return the indices of the cases on which a method has runs, and the quartiles there."""
        places = [i for i, case in enumerate(self.cases) if (method, case) in spreads]
        return places, np.array([spreads[method, self.cases[i]] for i in places]).T


class Ranks(NamedTuple):
    """Average ranks of methods, sorted from the best (1).

    A clique is a group of methods that do not differ significantly.
    """

    indicator: str
    blocks: int  # the number of cases
    p: float  # of the Friedman test
    difference: float  # two average ranks farther apart differ significantly
    average: dict[str, float]
    cliques: list[tuple[str, ...]]


def cases(runs: pl.DataFrame) -> list[Case]:
    """Return the cases of a frame of runs in order, smd2 before smd10."""
    found = {Case(*row) for row in runs.select("problem", "m", "n").rows()}
    return sorted(found, key=lambda case: case.order)


def methods(runs: pl.DataFrame) -> list[str]:
    """Return the methods of a frame of runs, in the order of tables."""
    return ordered_methods(runs["method"].unique(maintain_order=True).to_list())


def goal(runs: pl.DataFrame, case: Case) -> Goal:
    """Return the optimum of a case if a run has stored it, or else the best F of all runs.

    Verified values are preferred: the leader may be unable to reach an F that is not verified.
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


def convergence(history: pl.DataFrame, runs: pl.DataFrame, case: Case) -> Convergence:
    """Compute median and quartiles of each method's runs on one case."""
    aim = goal(runs, case)
    found = _traces(history, runs, case, aim)
    bands = [
        _median_band(method, traces)
        for method, traces in found.items()
        if any(trace.values.size for trace in traces)
    ]
    if not bands:
        raise ValueError(f"no run on {case} has a history with a feasible pair")
    shown = {band.method for band in bands}
    others = [name for name in methods(runs.filter(_of(case))) if name not in shown]
    return Convergence(case, aim, bands, others)


def ecdf(history: pl.DataFrame, runs: pl.DataFrame) -> Ecdf:
    """Compute the share of (run, target) pairs reached over evaluations, by method.

    Only cases with a known optimum count, and only those on which every method with a history has
    runs: shares over different problems could not be compared.
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
    others += [str(place) for place in cases(runs) if place not in common]
    return Ecdf(common, reached, others)


def shared_targets(history: pl.DataFrame, runs: pl.DataFrame) -> SharedTargets:
    """Count the (run, target) pairs reached on each case with a known optimum, over one grid."""
    known = {place: aim for place in cases(runs) if (aim := goal(runs, place)).known}
    traces = {place: _traces(history, runs, place, aim) for place, aim in known.items()}
    found = {
        name: {place: of[name] for place, of in traces.items() if name in of}
        for name in methods(runs)
        if any(name in of for of in traces.values())
    }
    every = [trace for of in found.values() for some in of.values() for trace in some]
    if not any(trace.values.size for trace in every):
        raise ValueError("no run on a problem with a known optimum has a history")
    first = min(int(trace.evaluations[0]) for trace in every if trace.values.size)
    last = max(first, 1, *(trace.end for trace in every))
    even = np.geomspace(max(first, 1), last, GRID_POINTS)
    grid = np.unique([*np.ceil(even[:-1]).astype(np.int64).tolist(), last])
    counted = {
        name: {place: _counted(some, grid) for place, some in of.items()}
        for name, of in found.items()
    }
    others = [name for name in methods(runs) if name not in counted]
    return SharedTargets(grid, counted, others + [str(x) for x in cases(runs) if x not in known])


def allocation(history: pl.DataFrame, runs: pl.DataFrame, case: Case) -> Allocation:
    """Find the executions of each task in three generations of each method's median run."""
    kept = history.filter(_of(case) & (pl.col("executions").list.len() > 0))
    shown: dict[str, list[Stage]] = {}
    numbers: dict[str, int] = {}
    ours = runs.filter(_of(case))
    for method in methods(ours):
        with_history = kept.filter(_is("method", method))
        there = pl.col("number").is_in(with_history["number"].unique().to_list())
        found = ours.filter(_is("method", method) & there).sort(_evaluations(), "number")["number"]
        if len(found):
            numbers[method] = found[(len(found) - 1) // 2]
            rows = with_history.filter(_is("number", numbers[method])).sort("generation")
            columns = ("generation", "executions", "survived")
            shown[method] = stages(*(rows[column].to_list() for column in columns))
    if not shown:
        raise ValueError(f"no run on {case} has a history with executions of tasks")
    return Allocation(case, shown, numbers, [x for x in methods(ours) if x not in shown])


def times(runs: pl.DataFrame) -> Times:
    """Compute seconds per run and per evaluation, without runs that failed or have no time.

    They are seconds of processor time; runs without these have the time on the clock.
    """
    used = pl.col("^processor_time$").fill_nan(None)  # a frame may lack the column
    timed = runs.with_columns(time=pl.coalesce(used, "time"))
    timed = timed.filter(pl.col("time").is_finite() & (pl.col("status") != FAILED))
    if timed.is_empty():
        raise ValueError("no run has a time: they are older data or other programs' results")
    timed = timed.with_columns(each=pl.col("time") / pl.max_horizontal(_evaluations(), pl.lit(1)))
    rows = timed.group_by("method", "problem", "m", "n").agg("time", "each").rows()
    per_run = {(method, Case(*case)): _quartiles(whole) for method, *case, whole, _ in rows}
    per_evaluation = {(method, Case(*case)): _quartiles(each) for method, *case, _, each in rows}
    names = methods(timed)
    others = [name for name in methods(runs) if name not in names]
    return Times(cases(timed), names, per_run, per_evaluation, others)


def _quartiles(sample: list[float]) -> Quartiles:
    return Quartiles(*np.quantile(sample, QUARTILES).tolist())


def ranks(
    runs: pl.DataFrame, indicator: str, floor: float | None = None, alpha: float = ALPHA
) -> Ranks:
    """Rank the methods by their medians, over the cases on which all methods have runs."""
    names, found = ranked(grouped(runs), indicator, floor, alpha)
    average = dict(sorted(zip(names, found.average, strict=True), key=lambda pair: pair[1]))
    together = cliques(average, found.critical_difference)
    return Ranks(indicator, found.blocks, found.p, found.critical_difference, average, together)


def cliques(average: dict[str, float], difference: float) -> list[tuple[str, ...]]:
    """Return the largest groups of methods whose ranks differ by at most `difference`."""
    names = sorted(average, key=lambda name: average[name])
    groups: list[tuple[str, ...]] = []
    for start, first in enumerate(names):
        group = tuple(x for x in names[start:] if average[x] - average[first] <= difference)
        if len(group) > 1 and not any(set(group) <= set(other) for other in groups):
            groups.append(group)
    return groups


def _traces(
    history: pl.DataFrame, runs: pl.DataFrame, case: Case, aim: Goal
) -> dict[str, list[Trace]]:
    """Return the curve of each run by method, for methods whose completed runs have a history."""
    ours, theirs = runs.filter(_of(case)), history.filter(_of(case))
    silent = set(methods(ours.filter(pl.col("status") != FAILED))) - set(methods(theirs))
    names = [name for name in methods(ours) if name not in silent]
    total = _evaluations().cast(pl.Int64).alias("evaluations")
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


def _median_band(method: str, traces: Sequence[Trace]) -> Band:
    grid = _grid(np.concatenate([trace.evaluations for trace in traces]), traces)
    lower, median, upper = _quantiles(np.array([_at(trace, grid) for trace in traces]))
    return Band(method, len(traces), grid, lower, median, upper)


def _grid(counts: Counts, traces: Sequence[Trace]) -> Counts:
    """Thin out the counts evenly on a logarithmic scale, and add the end of the longest run."""
    found = np.unique([*counts.tolist(), max(trace.end for trace in traces)])
    if found.size <= MAX_POINTS:
        return found
    even = np.geomspace(max(found[0], 1), found[-1], MAX_POINTS)
    rows = np.searchsorted(found, even[:-1])  # the last may be rounded beyond the end
    return np.asarray(found[np.unique([0, *rows.tolist(), found.size - 1])])


def _at(trace: Trace, grid: Counts) -> FloatArray:
    """Return a run's value after each of these numbers of evaluations."""
    last = np.searchsorted(trace.evaluations, grid, side="right")
    return np.concatenate([[np.inf], trace.values])[last]


def _quantiles(values: FloatArray) -> FloatArray:
    """Return interpolated quartiles over the rows; a quartile that depends on an inf is inf."""
    high = np.quantile(values, QUARTILES, axis=0, method="higher")
    finite = np.minimum(values, np.finfo(float).max)
    return np.where(np.isinf(high), np.inf, np.quantile(finite, QUARTILES, axis=0))


def _hits(traces: Sequence[Trace]) -> Counts:
    """Return the sorted evaluations at which runs reached targets."""
    hits: list[int] = []
    for trace in traces:
        # Values fall, so this is the index of the first value at or below each target.
        first = np.searchsorted(-trace.values, -TARGETS)
        hits += trace.evaluations[first[first < trace.values.size]].tolist()
    return np.sort(np.array(hits, dtype=np.int64))


def _counted(traces: Sequence[Trace], grid: Counts) -> CaseTargets:
    reached = np.searchsorted(_hits(traces), grid, side="right")
    return CaseTargets(reached, len(traces) * TARGETS.size, max(trace.end for trace in traces))


def _reached(method: str, traces: Sequence[Trace]) -> Reached:
    when = _hits(traces)
    pairs = len(traces) * TARGETS.size
    grid = _grid(when, traces)
    return Reached(method, pairs, grid, np.searchsorted(when, grid, side="right") / pairs)


def _evaluations() -> pl.Expr:
    return pl.col("nfev_upper") + pl.col("nfev_lower")


def _feasible() -> pl.Expr:
    return (pl.col("violation") == 0) & pl.col("F").is_finite()


def _of(case: Case) -> pl.Expr:
    return _is("problem", case.problem) & _is("m", case.m) & _is("n", case.n)


def _is(column: str, value: str | int) -> pl.Expr:
    return pl.col(column) == pl.lit(value)
