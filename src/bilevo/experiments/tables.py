"""Tables of stored runs: values with what stands beside them, which `formats` turns into text.

    accuracy      Acc_u and Acc_l as reported, and verified: F at the follower's true answer
    evaluations   of either level
    total         evaluations of both levels, and what the reference saves
    real          F and f where no optimum is known, and evaluations
    effort        what it costs to come near the optimum, and how many runs do
    ranks         average ranks over problems, and effect sizes
    summary       how near median evaluations are to the paper's

Nothing is run here. Medians are over completed runs. Marks are those of the DRC paper: "+" where
the reference is significantly better than the method of the column, "-" where it is worse, "="
where neither. `paper=True` sets beside our figures those that the paper prints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bilevo.experiments import samples, statistics
from bilevo.experiments.paper import FLOOR, METHODS, printed, printed_mark
from bilevo.experiments.samples import ACCURACIES, Case, Group, Groups
from bilevo.experiments.statistics import ALPHA, Test
from bilevo.experiments.table import (
    PLAIN,
    SCIENTIFIC,
    SHARE,
    SIGNS,
    WHOLE,
    Cell,
    Row,
    Settings,
    Table,
    case_heads,
    case_names,
    label,
    run_notes,
    several_sizes,
    status,
    test_note,
    titled,
    with_best,
)

__all__ = ["KINDS", "Cell", "Table", "make"]

NEAR = 1e-4  # what `near` of a run refers to
SOLVED = (NEAR, 1e-6)
FACTORS = (1.1, 1.5, 2.0)
RANKED = ("Acc_u", "verified", "FEs")

Marks = dict[tuple[Case, str], str]  # by case and method


def make(
    runs: Any,
    kind: str,
    *,
    paper: bool = False,
    reference: str | None = None,
    floor: float | None = FLOOR,
    test: Test = "rank-sum",
    holm: bool = False,
    alpha: float = ALPHA,
) -> Table:
    """A kind of table of a frame of runs; one that has nothing to show has no rows.

    Parameters
    ----------
    runs
        One row per run (bilevo.experiments.store.runs).
    kind
        One of KINDS.
    paper
        Whether to show what the DRC paper prints.
    reference
        The method that others are compared with: by default drc-cma-es, or else the first.
    floor
        Accuracies below it count as this; None: as they are.
    test
        "rank-sum", or "signed-rank" for pairs of runs of the same number.
    holm
        Whether p values of one indicator are corrected for their number.
    alpha
        The level of significance.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of table {kind!r}; known are {', '.join(KINDS)}")
    if test not in statistics.TESTS:
        raise ValueError(f"unknown test {test!r}; known are {', '.join(statistics.TESTS)}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it should be between 0 and 1")
    if floor is not None and not 0 <= floor < np.inf:
        raise ValueError(f"floor is {floor}; it should be a number from 0, or None")
    groups = samples.grouped(runs)
    against = samples.reference_of(groups, reference)
    return KINDS[kind](groups, Settings(against, paper, floor, test, holm, alpha))


def accuracy(groups: Groups, settings: Settings) -> Table:
    """Distances from the optimum, as reported and verified."""
    forms = dict.fromkeys(ACCURACIES, SCIENTIFIC)
    known = samples.of_known_optimum(groups)
    table = _of_indicators("accuracy", "Accuracy", known, forms, settings)
    return replace(table, notes=[*table.notes, *_floor_note(settings)])


def evaluations(groups: Groups, settings: Settings) -> Table:
    """Evaluations of either level."""
    forms = dict.fromkeys(("FEs_u", "FEs_l"), WHOLE)
    return _of_indicators("evaluations", "Evaluations", groups, forms, settings)


def real(groups: Groups, settings: Settings) -> Table:
    """What was found where no optimum is known; F_verified is F at the follower's true answer."""
    known = samples.of_known_optimum(groups)
    unknown = {case: methods for case, methods in groups.items() if case not in known}
    forms = dict.fromkeys(("F", "F_verified", "f"), PLAIN)
    forms |= dict.fromkeys(samples.EVALUATIONS, WHOLE)
    table = _of_indicators("real", "Problems of unknown optimum", unknown, forms, settings)
    return table if unknown else replace(table, notes=["The optima of all problems are known."])


def _of_indicators(
    name: str, title: str, groups: Groups, forms: dict[str, str], settings: Settings
) -> Table:
    """Rows are problems and indicators, columns methods; the last rows count the marks."""
    methods, sized = samples.methods_of(groups), several_sizes(groups)
    marks = {indicator: _marks(groups, indicator, settings) for indicator in forms}
    rows: list[Row] = []
    for case, of in groups.items():
        for indicator, form in forms.items():
            cells = [
                replace(
                    _median(case, method, of.get(method), indicator, form, settings),
                    mark=marks[indicator].get((case, method), ""),
                )
                for method in methods
            ]
            if any(not np.isnan(cell.value) for cell in cells):
                rows.append([*case_names(case, sized), indicator, *with_best(cells)])
    header = [*case_heads(sized), "indicator", *map(label, methods)]
    if not rows:
        return Table(name, title, header, [], [f"No run has any of {', '.join(forms)}."])
    counts: list[Row] = [
        [SIGNS, *[""] * sized, indicator, *_counts(found, indicator, methods, settings)]
        for indicator, found in marks.items()
        if found
    ]
    notes = [*run_notes(groups, settings), test_note(settings)]
    return Table(name, titled(title, groups), header, [*rows, *counts], notes, len(counts))


def _marks(groups: Groups, indicator: str, settings: Settings) -> Marks:
    found = samples.compared(
        groups,
        indicator,
        settings.reference,
        floor=settings.floor,
        test=settings.test,
        holm=settings.holm,
    )
    return {key: one.mark(settings.alpha) for key, one in found.items()}


def _median(
    case: Case, method: str, group: Group | None, indicator: str, form: str, settings: Settings
) -> Cell:
    theirs = printed(*case, method, indicator) if settings.paper else None
    sample = np.empty(0) if group is None else group.sample(indicator, settings.floor)
    spread = statistics.spread(sample) if len(sample) > 1 else np.nan
    value = statistics.median(sample)
    return Cell(value, form, None if np.isnan(spread) else spread, paper=theirs)


def _counts(marks: Marks, indicator: str, methods: list[str], settings: Settings) -> list[Cell]:
    """How often the reference is better, worse and alike; the paper's count beside ours."""
    line = []
    for method in methods:
        cases = [case for case, name in marks if name == method]
        text = _tally([marks[case, method] for case in cases]) if cases else ""
        theirs = [printed_mark(*case, method, indicator) for case in cases]
        if settings.paper and settings.reference == samples.REFERENCE and any(theirs):
            text += f" [{_tally(theirs)}]"
        line.append(Cell(np.nan, text=text))
    return line


def _tally(marks: list[str] | list[str | None]) -> str:
    return "/".join(str(marks.count(mark)) for mark in SIGNS.split("/"))


def _floor_note(settings: Settings) -> list[str]:
    floor = settings.floor
    return [f"Accuracies below {floor:g} are shown and tested as {floor:g}."] if floor else []


def total(groups: Groups, settings: Settings) -> Table:
    """Median evaluations of both levels, and their average over the problems of a suite."""
    methods, sized = samples.methods_of(groups), several_sizes(groups)
    medians = {
        case: [
            replace(_median(case, name, of.get(name), "FEs", WHOLE, settings), spread=None)
            for name in methods
        ]
        for case, of in groups.items()
    }
    at = methods.index(settings.reference)
    rows: list[Row] = [
        [*case_names(case, sized), *_with_savings(cells, at)] for case, cells in medians.items()
    ]
    averages: list[Row] = [
        [*case_names(average, sized), *_with_savings(cells, at)]
        for average, cells in _averages(medians).items()
    ]
    notes = run_notes(groups, settings)
    notes.append(
        f"In parentheses: how many evaluations fewer {settings.reference} needs, as a share of the "
        "larger number. Averages are over the problems that all methods of the size have."
    )
    header = [*case_heads(sized), *map(label, methods)]
    title = titled("Total evaluations", groups)
    return Table("total", title, header, [*rows, *averages], notes, len(averages))


def _with_savings(cells: list[Cell], at: int) -> list[Cell]:
    """What the reference, the cell `at`, saves: relative to the larger number, as in the paper."""
    ours = cells[at].value
    shares = [(cell.value - ours) / max(cell.value, ours, 1.0) for cell in cells]
    return with_best(
        replace(cell, saved=None if i == at or np.isnan(share) else share)
        for i, (cell, share) in enumerate(zip(cells, shares, strict=True))
    )


def _averages(medians: dict[Case, list[Cell]]) -> dict[Case, list[Cell]]:
    """By suite and size, where a suite has several problems; of the paper's values too."""
    suites: dict[Case, list[list[Cell]]] = {}
    for case, cells in medians.items():
        suites.setdefault(Case(case.suite, case.m, case.n), []).append(cells)
    found = {}
    for case, lines in suites.items():
        values = np.array([[cell.value for cell in line] for line in lines])
        missing = np.isnan(values)
        there = ~missing.all(axis=0)
        complete = ~missing[:, there].any(axis=1)
        whole = [line for line, is_whole in zip(lines, complete, strict=True) if is_whole]
        if len(whole) > 1:
            name = f"{case.suite} average of {len(whole)}"
            found[Case(name, case.m, case.n)] = [_mean(cells) for cells in zip(*whole, strict=True)]
    return found


def _mean(cells: tuple[Cell, ...]) -> Cell:
    theirs = [cell.paper for cell in cells if cell.paper is not None]
    known = len(theirs) == len(cells)
    value = float(np.mean([cell.value for cell in cells]))
    return Cell(value, WHOLE, paper=float(np.mean(theirs)) if known else None)


def effort(groups: Groups, settings: Settings) -> Table:
    """What one success costs, and the shares of runs that are one."""
    groups = samples.of_known_optimum(groups)
    if not groups:
        return Table("effort", "Effort", ["problem"], [], ["No optimum is known."])
    methods, sized = samples.methods_of(groups), several_sizes(groups)
    rows: list[Row] = []
    for case, of in groups.items():
        lines = {f"evaluations to {NEAR:.0e}": [_until_near(of.get(name)) for name in methods]}
        for indicator, accuracy in (*(("Acc_u", each) for each in SOLVED), ("verified", NEAR)):
            lines[f"{indicator} <= {accuracy:.0e}"] = [
                Cell(of[name].solved(indicator, accuracy) if name in of else np.nan, SHARE)
                for name in methods
            ]
        for what, cells in lines.items():
            if any(not np.isnan(cell.value) for cell in cells):
                shown = with_best(cells, largest="<=" in what)
                rows.append([*case_names(case, sized), what, *shown])
    notes = [
        *run_notes(groups, replace(settings, paper=False), "Figures"),
        f"Evaluations to {NEAR:.0e}: what one success costs, the evaluations of both levels that "
        "all completed runs spent until F was that near F*, or to their end, by the number of runs "
        "that came that near. Shares are of all runs; failed and infeasible ones are not among "
        "those counted.",
    ]
    header = [*case_heads(sized), "indicator", *map(label, methods)]
    return Table("effort", titled("Effort", groups), header, rows, notes)


def _until_near(group: Group | None) -> Cell:
    cost = np.nan if group is None else group.until_near
    return Cell(cost, WHOLE, text="never" if np.isinf(cost) else None)


def ranks(groups: Groups, settings: Settings) -> Table:
    """Friedman's average ranks of medians, and Vargha and Delaney's effect sizes."""
    methods = samples.methods_of(groups)
    columns: dict[str, list[Cell]] = {}
    notes = []
    for indicator in RANKED:
        try:
            _, found = samples.ranked(groups, indicator, settings.floor, settings.alpha)
        except ValueError as error:
            notes.append(f"{indicator} has no ranks: {error}.")
        else:
            columns[f"{indicator}: rank"] = [Cell(rank, PLAIN) for rank in found.average]
            notes.append(
                f"{indicator}: p = {found.p:.2g} (Friedman test over {found.blocks} problems), "
                f"critical difference {found.critical_difference:.2f} (Nemenyi, "
                f"{settings.alpha:g})."
            )
        columns[f"{indicator}: A12"] = [
            Cell(samples.mean_effect(groups, indicator, name, settings.reference, settings.floor))
            for name in methods
        ]
    rows: list[Row] = [
        [label(name), *(replace(cell, form=PLAIN) for cell in line)]
        for name, line in zip(methods, zip(*columns.values(), strict=True), strict=True)
    ]
    notes.append(
        f"A12: how often a run is worse than one of {settings.reference}, ties by half, as an "
        "average over problems; at 0.5 neither is better."
    )
    about = run_notes(groups, replace(settings, paper=False), "Ranks of medians")
    title = titled("Average ranks and effect sizes", groups)
    notes = [*about, *notes, *_floor_note(settings)]
    return Table("ranks", title, ["method", *columns], rows, notes)


def summary(groups: Groups, settings: Settings) -> Table:
    """Per method of the paper, on how many problems our figures are near the printed ones."""
    factors = ", ".join(f"{factor:g}" for factor in FACTORS)
    header = ["method", "status", "(m, n)", "problems"]
    header += [f"{key} within {factors}" for key in samples.EVALUATIONS]
    header += ["sum of FEs", "paper", "ratio", f"Acc_u <= {NEAR:.0e}", "paper"]
    rows: list[Row] = []
    for method in METHODS:
        sizes: dict[str, dict[Case, Group]] = {}
        for case, of in groups.items():
            if method in of and printed(*case, method, "FEs") is not None:
                sizes.setdefault(case.size, {})[case] = of[method]
        for size, cases in sizes.items():
            rows.append([method, status(method), size, *_closeness(method, cases)])
    notes = [
        *run_notes(groups, replace(settings, paper=False)),
        f"On how many problems our median evaluations are within a factor of {factors} of the "
        "paper's; the sums of these medians; and on how many problems most of our runs, and the "
        f"paper's median, have an Acc_u of at most {NEAR:.0e}.",
    ]
    return Table("summary", "Closeness to the DRC paper", header, rows, notes)


def _closeness(method: str, cases: dict[Case, Group]) -> list[Cell]:
    """The cells of a method at one size."""
    line = [Cell(len(cases), WHOLE)]
    for key in samples.EVALUATIONS:
        pairs = [
            (statistics.median(group.sample(key)), theirs)
            for case, group in cases.items()
            if (theirs := printed(*case, method, key)) is not None
        ]
        apart = [max(a / b, b / max(a, 1)) for a, b in pairs]
        within = [sum(ratio <= factor for ratio in apart) for factor in FACTORS]
        line.append(
            Cell(within[0], text=", ".join(map(str, within))) if pairs else Cell(np.nan, WHOLE)
        )
    ours, theirs = (float(np.sum(side)) for side in zip(*pairs, strict=True))
    solved = sum(group.solved("Acc_u", NEAR) > 0.5 for group in cases.values())
    known = [printed(*case, method, "Acc_u") for case in cases]
    good = [value <= NEAR for value in known if value is not None]
    line += [Cell(ours, WHOLE), Cell(theirs, WHOLE), Cell(ours / theirs, PLAIN)]
    return [*line, Cell(solved, WHOLE), Cell(sum(good) if good else np.nan, WHOLE)]


KINDS: dict[str, Callable[[Groups, Settings], Table]] = {
    "accuracy": accuracy,
    "evaluations": evaluations,
    "total": total,
    "real": real,
    "effort": effort,
    "ranks": ranks,
    "summary": summary,
}
