"""The numbers of the charts of pages, as plain lists and dictionaries that become JSON.

`curves` computes the numbers; page/files/charts.js draws them with plotly, for the methods and
problems that the reader chooses. So nothing here is summed over problems: charts.js adds up targets
and averages ranks. A case is named by its place in the list of cases. Names are as they are stored:
the page escapes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.lab.analysis import curves
from bilevo.lab.analysis.problem_groups import problem_groups
from bilevo.lab.analysis.samples import Case, Groups, grouped, limit_of, methods_of
from bilevo.lab.analysis.statistics import MIN_METHODS, critical_difference, median
from bilevo.lab.analysis.table_parts import method_labels
from bilevo.lab.analysis.tables import rankable
from bilevo.lab.analysis.verdict import few
from bilevo.lab.frames import pl
from bilevo.lab.show.figures import LOWEST, WORDS
from bilevo.lab.show.palette import page_styles
from bilevo.plot import Stage, task_ticks

PRECISION = 5  # The significant digits of numbers; a screen cannot show more.
BY_CASE = ("convergence", "allocation")  # The charts that have a view for each case.
SECONDS = ("a run", "an evaluation")

ABOUT = {  # the title of a chart, what it shows, and the name of its menu of views
    "ecdf": (
        "Targets reached",
        f"Share of pairs of a run and a target that are reached: {len(curves.TARGETS)} targets for "
        f"|F - F*| from {curves.TARGETS[0]:g} to {curves.TARGETS[-1]:f}, on the chosen problems "
        "with a known optimum that all chosen methods ran on. Higher and farther left is better.",
        "Problems",
    ),
    "convergence": (
        "Convergence",
        "Distance of the best feasible pair so far to the optimum, or F where the optimum is "
        "unknown: the median over runs, with the quartiles as a band. Distances below "
        f"{LOWEST:g} are drawn there. Lower is better.",
        "Problem",
    ),
    "critical-difference": (
        "Critical differences",
        "Average ranks of the methods' medians over the chosen problems, 1 the best. Grey bars "
        "join methods that do not differ significantly: their ranks are closer than Nemenyi's "
        "critical difference.",
        "Ranked by",
    ),
    "allocation": (
        "Allocation",
        "How often each task, the follower's search of one leader, was executed in an early, a "
        "middle and a late generation of the run of median cost. Coloured: the better half, which "
        "updates the upper level.",
        "Problem",
    ),
    "runtime": (
        "Running time",
        "Median over runs, with quartiles: processor time, or the clock's if a run has none. "
        "Times depend on the machine.",
        "Time of",
    ),
}


class Chart(NamedTuple):
    """A chart: what the page says about it, and its numbers."""

    name: str
    title: str
    about: str
    menu: str  # the name of the menu that chooses a view
    views: list[tuple[str, str]]  # the views that the menu offers: keys and labels
    numbers: dict[str, Any]
    missing: str  # what cannot be shown, and why


def make_charts(
    runs: pl.DataFrame, history: pl.DataFrame, floor: float | None, alpha: float
) -> tuple[list[Chart], dict[str, str]]:
    """Make the charts of a report, and say for the others why there is nothing to show.

    `floor` and `alpha` are for average ranks.
    """
    makers: dict[str, Callable[[], tuple[dict[str, Any], list[str]]]] = {
        "ecdf": lambda: target_numbers(runs, history),
        "convergence": lambda: _by_case(runs, lambda case: _bands(runs, history, case)),
        "critical-difference": lambda: _ranks(runs, floor, alpha),
        "allocation": lambda: _by_case(runs, lambda case: _executions(runs, history, case)),
        "runtime": lambda: _times(runs),
    }
    charts: list[Chart] = []
    reasons: dict[str, str] = {}
    for name, about in ABOUT.items():
        try:
            numbers, left_out = makers[name]()
        except ValueError as error:
            reasons[about[0]] = f"{str(error)[:1].upper()}{str(error)[1:]}."
        else:
            missing = f"Without {few(left_out)}." if left_out else ""
            charts.append(Chart(name, *about, _views(name, numbers, runs), numbers, missing))
    return charts, reasons


def _views(name: str, numbers: dict[str, Any], runs: pl.DataFrame) -> list[tuple[str, str]]:
    """Return the keys and the labels of a chart's views."""
    cases = curves.cases(runs)
    if name == "ecdf":
        return [(str(i), label) for i, label in enumerate(problem_groups(cases))]
    if name in BY_CASE:
        return [(place, str(cases[int(place)])) for place in numbers]
    return [(view, view) for view in numbers.get("medians", numbers)]


def page_names(runs: pl.DataFrame) -> dict[str, Any]:
    """Return the methods with their styles, the cases, and groups of cases, as charts name them."""
    looks = page_styles(method_labels(runs))
    cases = curves.cases(runs)
    groups = problem_groups(cases)
    return {
        "methods": [{"name": name, **looks[name]} for name in curves.methods(runs)],
        "cases": [{"problem": x.problem, "size": x.size, "suite": x.suite} for x in cases],
        "groups": [[name, [cases.index(x) for x in part]] for name, part in groups.items()],
    }


def _by_case(
    runs: pl.DataFrame, make: Callable[[Case], tuple[dict[str, Any], list[str]]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the numbers of the cases that have some, by their place, and what is left out."""
    found: dict[str, Any] = {}
    others: dict[str, None] = {}
    reasons: list[str] = []
    for place, case in enumerate(curves.cases(runs)):
        try:
            found[str(place)], left_out = make(case)
        except ValueError as error:
            reasons.append(str(error))
            others |= {str(case): None}
        else:
            others |= dict.fromkeys(left_out)
    if not found:
        raise ValueError(reasons[0])
    return found, list(others)


def _bands(
    runs: pl.DataFrame, history: pl.DataFrame, case: Case
) -> tuple[dict[str, Any], list[str]]:
    found = curves.convergence(history, runs, case)
    lowest = LOWEST if found.goal.known else -math.inf
    bands = [
        {
            "method": band.method,
            "x": band.evaluations.tolist(),
            "y": [
                rounded(np.maximum(values, lowest))
                for values in (band.lower, band.median, band.upper)
            ],
        }
        for band in found.bands
    ]
    return {"label": found.goal.label, "known": found.goal.known, "bands": bands}, found.left_out


def target_numbers(runs: pl.DataFrame, history: pl.DataFrame) -> tuple[dict[str, Any], list[str]]:
    """Return the counts of targets reached by method and case, and what is left out."""
    found = curves.shared_targets(history, runs)
    places = {case: str(place) for place, case in enumerate(curves.cases(runs))}
    counts = {
        method: {
            places[case]: {"reached": of.reached.tolist(), "pairs": of.pairs, "end": of.end}
            for case, of in by_case.items()
        }
        for method, by_case in found.by_method.items()
    }
    return {"grid": found.grid.tolist(), "counts": counts}, found.left_out


def _ranks(
    runs: pl.DataFrame, floor: float | None, alpha: float
) -> tuple[dict[str, Any], list[str]]:
    """Return medians by indicator, and the critical difference of one problem by methods."""
    groups = grouped(runs)
    methods = methods_of(groups)
    if len(methods) < MIN_METHODS:
        raise ValueError(f"ranks need {MIN_METHODS} methods or more, not {len(methods)}")
    checked = all("verified" in group.known for of in groups.values() for group in of.values())
    medians = {
        WORDS[one]: _medians(groups, one, floor)
        for one in sorted(
            rankable(limit_of(runs)), key=lambda one: one != "verified" or not checked
        )
        if any(len(group.standing(one)) for of in groups.values() for group in of.values())
    }
    counts = range(MIN_METHODS, len(methods) + 1)
    units = {str(count): critical_difference(count, 1, alpha) for count in counts}
    return {"medians": medians, "units": units, "alpha": alpha}, []


def _medians(groups: Groups, indicator: str, floor: float | None) -> list[dict[str, Any]]:
    """Return the medians by method for each case; an infinite one is the text "inf"."""
    return [
        {
            name: "inf" if math.isinf(value) else value
            for name, group in of.items()
            if not math.isnan(value := median(group.standing(indicator, floor)))
        }
        for of in groups.values()
    ]


def _executions(
    runs: pl.DataFrame, history: pl.DataFrame, case: Case
) -> tuple[dict[str, Any], list[str]]:
    found = curves.allocation(history, runs, case)
    stages = {name: [stage_numbers(one) for one in of] for name, of in found.stages.items()}
    return stages, found.left_out


def stage_numbers(stage: Stage) -> dict[str, Any]:
    """Return the executions of tasks in one generation, and the ticks for their axis."""
    return {
        "name": stage.name,
        "generation": stage.generation,
        "executions": list(stage.executions),
        "survived": list(stage.survived),
        "ticks": list(task_ticks(len(stage.executions))),
    }


def _times(runs: pl.DataFrame) -> tuple[dict[str, Any], list[str]]:
    found = curves.times(runs)
    places = {case: str(place) for place, case in enumerate(curves.cases(runs))}
    spreads = dict(zip(SECONDS, (found.per_run, found.per_evaluation), strict=True))
    numbers: dict[str, Any] = {
        what: {
            method: {
                places[case]: rounded(of[method, case])
                for case in found.cases
                if (method, case) in of
            }
            for method in found.methods
        }
        for what, of in spreads.items()
    }
    return numbers, found.left_out


def rounded(values: Iterable[float] | FloatArray) -> list[float | None]:
    """Return numbers for JSON, with few digits; None stands for what is not finite."""
    return [
        float(f"{float(value):.{PRECISION}g}") if math.isfinite(value) else None for value in values
    ]
