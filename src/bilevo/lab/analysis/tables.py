"""Tables of stored runs: values with what stands beside them, which `formats` turns into text.

    accuracy      Acc_u and Acc_l as reported, and verified: F at the follower's true answer
    evaluations   of either level
    total         evaluations of both levels, and what the reference saves
    real          F and f where no optimum is known, and evaluations
    effort        what it costs to come near the optimum, and how many runs do
    ranks         average ranks over problems, and effect sizes
    summary       how near median evaluations are to the paper's
    solved, ablation   see solved

Medians are over completed runs, as they report them. Marks are the DRC paper's: "+" where the
reference is significantly better than the method of the column, "-" where it is worse, "=" where
neither. In tests and for the best of a row answers of failed and infeasible runs are the worst;
evaluations are compared as they are. `paper=True` adds what the paper prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bilevo.lab.analysis import closeness, samples, solved, statistics
from bilevo.lab.analysis.paper import FLOOR, printed, printed_mark
from bilevo.lab.analysis.samples import ACCURACIES, Case, Group, Groups, methods_of
from bilevo.lab.analysis.statistics import ALPHA, Test
from bilevo.lab.analysis.table import (
    DOUBT,
    GENERAL,
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
    paper_notes,
    run_notes,
    several_sizes,
    standing_notes,
    statuses,
    test_notes,
    titled,
    with_best,
)
from bilevo.lab.campaign import NEAR

__all__ = ["KINDS", "Cell", "Table", "make", "rankable"]
SOLVED = (NEAR, 1e-6)
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
        One row per run (bilevo.lab.store.runs).
    kind
        One of KINDS.
    paper
        Whether to show what the DRC paper prints.
    reference
        The method that others are compared with: by default drc-cma-es, or else the first.
    floor
        Accuracies below it count as this; None: as they are.
    test
        "rank-sum", or "signed-rank" for pairs of runs of the same number; they share nothing else.
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
    samples.require_floor(floor)
    groups = samples.grouped(runs)
    against, limit = samples.reference_of(groups, reference), samples.limit_of(runs)
    ends = samples.are_cut_off(runs), bool(runs["target"].fill_null(True).all())
    about = (against, statuses(runs), limit, paper, *ends)
    return KINDS[kind](groups, Settings(*about, floor, test, holm, alpha))


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
    forms = dict.fromkeys(("F", "F_verified", "f"), GENERAL)
    forms |= dict.fromkeys(samples.EVALUATIONS, WHOLE)
    table = _of_indicators("real", "Problems of unknown optimum", unknown, forms, settings)
    return table if unknown else replace(table, notes=["The optima of all problems are known."])


def _of_indicators(
    name: str, title: str, groups: Groups, forms: dict[str, str], settings: Settings
) -> Table:
    """Rows are problems and indicators, columns methods; the last rows count the marks."""
    methods, sized = methods_of(groups), several_sizes(groups)
    rows: list[Row] = []
    counts: list[Row] = []
    lines: dict[tuple[Case, str], list[Cell]] = {}
    too_few: set[int] = set()
    for indicator, form in forms.items():
        merits = {case: of for case, of in groups.items() if _is_merit(indicator, of, settings)}
        marks, few = _marks(merits, indicator, settings)
        too_few |= few
        for case, of in groups.items():
            cells = [
                replace(
                    _median(case, method, of.get(method), indicator, form, settings),
                    mark=marks.get((case, method), ""),
                )
                for method in methods
            ]
            by = [_counting(of.get(method), indicator, settings) for method in methods]
            lines[case, indicator] = with_best(cells, by) if case in merits else cells
        counts += _counts(marks, indicator, groups, settings)
    for case in groups:
        for indicator in forms:
            if any(not np.isnan(cell.value) for cell in lines[case, indicator]):
                rows.append([*case_names(case, sized), indicator, *lines[case, indicator]])
    header = [*case_heads(sized), "indicator", *map(settings.label, methods)]
    if not rows:
        return Table(name, title, header, [], [f"No run has any of {', '.join(forms)}."])
    notes = [*run_notes(groups, settings), *_kind_notes(groups, forms, settings)]
    notes += [*paper_notes(rows, settings), *test_notes(settings, bool(counts), too_few)]
    notes += _doubts(rows)
    return Table(name, titled(title, groups), header, [*rows, *counts], notes, len(counts))


def _kind_notes(groups: Groups, indicators: Iterable[str], settings: Settings) -> list[str]:
    """On answers and on evaluations, as a table has them."""
    found = set(indicators)
    notes = standing_notes(groups, settings) if found & set(samples.QUALITIES) else []
    return notes + (_limit_note(settings) if found & set(samples.EVALUATIONS) else [])


def _limit_note(settings: Settings) -> list[str]:
    if not settings.limit:
        return []
    return [f"All runs had {settings.limit} evaluations: their numbers are not compared."]


def _is_merit(indicator: str, of: dict[str, Group], settings: Settings) -> bool:
    """Whether smaller is better.

    The follower's f at another x is that of another problem, and an F that is not verified may owe
    its value to a follower that is not solved.
    """
    if indicator in samples.EVALUATIONS:
        return not settings.limit
    unverified = indicator == "F" and any(len(one.sample("F_verified")) for one in of.values())
    return indicator != "f" and not unverified


def _counting(group: Group | None, indicator: str, settings: Settings) -> float:
    """The median of what runs count as in comparisons."""
    if group is None:
        return np.nan
    return statistics.median(group.compared(indicator, settings.floor))


def _marks(groups: Groups, indicator: str, settings: Settings) -> tuple[Marks, set[int]]:
    """The marks, and sizes of samples too small for any."""
    found, too_few = samples.compared(
        groups,
        indicator,
        settings.reference,
        floor=settings.floor,
        test=settings.test,
        holm=settings.holm,
        alpha=settings.alpha,
    )
    return {key: one.mark(settings.alpha) for key, one in found.items()}, too_few


def _median(
    case: Case, method: str, group: Group | None, indicator: str, form: str, settings: Settings
) -> Cell:
    theirs = printed(*case, method, indicator) if settings.beside else None
    if group is None:
        return Cell(np.nan, form, paper=theirs)
    if not len(group):
        return Cell(np.nan, form, paper=theirs, text="failed")
    sample = group.sample(indicator, settings.floor)
    spread = statistics.spread(sample) if len(sample) > 1 else np.nan
    shown = None if np.isnan(spread) else spread
    doubt = _is_doubtful(group, indicator, settings)
    return Cell(statistics.median(sample), form, shown, paper=theirs, doubt=doubt)


def _is_doubtful(group: Group, indicator: str, settings: Settings) -> bool:
    """Whether half of the runs or more have no good answer; for counts, none near the optimum."""
    if indicator in samples.QUALITIES:
        return bool(np.isposinf(_counting(group, indicator, settings)))
    if settings.limit:
        return False
    missed = _counting(group, "Acc_u", settings) > NEAR
    return bool(missed or np.isposinf(_counting(group, "F", settings)))


def _doubts(rows: list[Row]) -> list[str]:
    """What the sign of doubt means, where it stands."""
    cells = [cell for row in rows for cell in row if isinstance(cell, Cell) and cell.doubt]
    if not cells:
        return []
    wrong = "failed or are infeasible, as they ended or where the follower really answers"
    if any(cell.form == WHOLE for cell in cells):
        wrong = f"failed, ended infeasible or missed the known optimum by more than {NEAR:.0e}"
    return [f"{DOUBT}: half of the runs or more {wrong}; never the best of a row."]


def _counts(marks: Marks, indicator: str, groups: Groups, settings: Settings) -> list[Row]:
    """How often the reference is better, worse and alike.

    Sizes are counted apart where a problem has several. The paper's count stands beside ours where
    both are over the same problems.
    """
    sized = several_sizes(groups)
    apart = len({case.problem for case in groups}) < len(groups)
    tested: dict[str, dict[Case, None]] = {}
    for case, _ in marks:
        tested.setdefault(case.size if apart else "", {})[case] = None
    rows: list[Row] = []
    for size, cases in tested.items():
        line = [_count(marks, indicator, name, cases, settings) for name in methods_of(groups)]
        rows.append([SIGNS, *([size] if sized else []), indicator, *line])
    return rows


def _count(
    marks: Marks, indicator: str, method: str, cases: Iterable[Case], settings: Settings
) -> Cell:
    ours = {case: marks[case, method] for case in cases if (case, method) in marks}
    text = _tally(list(ours.values())) if ours else ""
    theirs = [printed_mark(*case, method, indicator) for case in ours]
    same = settings.beside and settings.reference == samples.REFERENCE
    if same and theirs and None not in theirs:
        text += f" [{_tally(theirs)}]"
    return Cell(np.nan, text=text)


def _tally(marks: list[str] | list[str | None]) -> str:
    return "/".join(str(marks.count(mark)) for mark in SIGNS.split("/"))


def _floor_note(settings: Settings) -> list[str]:
    floor = settings.floor
    return [f"Accuracies below {floor:g} are shown and tested as {floor:g}."] if floor else []


def total(groups: Groups, settings: Settings) -> Table:
    """Median evaluations of both levels, and their average over the problems of a suite."""
    methods, sized = methods_of(groups), several_sizes(groups)
    medians = {
        case: [
            replace(_median(case, name, of.get(name), "FEs", WHOLE, settings), spread=None)
            for name in methods
        ]
        for case, of in groups.items()
    }
    at = None if settings.limit else methods.index(settings.reference)
    rows: list[Row] = [
        [*case_names(case, sized), *_with_savings(cells, at)] for case, cells in medians.items()
    ]
    averages: list[Row] = [
        [*case_names(average, sized), *_with_savings(cells, at)]
        for average, cells in _averages(medians).items()
    ]
    notes = [*run_notes(groups, settings), *paper_notes(rows, settings), *_limit_note(settings)]
    saved = (
        f"In parentheses: how many evaluations fewer {settings.reference} needs, as a share of the "
        "larger number."
    )
    notes += [] if settings.limit or len(methods) == 1 else [saved]
    if averages:
        notes.append("Averages are over the problems that all methods of the size have.")
    notes += _doubts([*rows, *averages])
    header = [*case_heads(sized), *map(settings.label, methods)]
    title = titled("Total evaluations", groups)
    return Table("total", title, header, [*rows, *averages], notes, len(averages))


def _with_savings(cells: list[Cell], at: int | None) -> list[Cell]:
    """What the reference, the cell `at`, saves: relative to the larger number, as in the paper."""
    if at is None:
        return cells
    ours = cells[at].value
    shares = [(cell.value - ours) / max(cell.value, ours, 1.0) for cell in cells]
    return with_best(
        replace(cell, saved=None if i == at or np.isnan(share) else share)
        for i, (cell, share) in enumerate(zip(cells, shares, strict=True))
    )


def _averages(medians: dict[Case, list[Cell]]) -> dict[Case, list[Cell]]:
    """By suite and size, where a suite has several problems; of the paper's values too."""
    suites: dict[Case, list[list[Cell]]] = {}  # under the name of the suite
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
            name = f"{case.problem} average of {len(whole)}"
            found[Case(name, case.m, case.n)] = [_mean(cells) for cells in zip(*whole, strict=True)]
    return found


def _mean(cells: tuple[Cell, ...]) -> Cell:
    theirs = [cell.paper for cell in cells if cell.paper is not None]
    known = len(theirs) == len(cells)
    value = float(np.mean([cell.value for cell in cells]))
    doubt = 2 * sum(cell.doubt for cell in cells) >= len(cells)
    return Cell(value, WHOLE, paper=float(np.mean(theirs)) if known else None, doubt=doubt)


def effort(groups: Groups, settings: Settings) -> Table:
    """What one success costs, and the shares of runs that are one."""
    groups = samples.of_known_optimum(groups)
    if not groups:
        return Table("effort", "Effort", ["problem"], [], ["No optimum is known."])
    methods, sized = methods_of(groups), several_sizes(groups)
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
        *run_notes(groups, settings, "Figures"),
        f"Evaluations to {NEAR:.0e}: what one success costs, the evaluations of both levels that "
        "all completed runs spent until F was that near F*, or to their end, by the number of runs "
        "that came that near. Shares are of all runs; failed and infeasible ones are not among "
        "those counted.",
    ]
    if any(cell.doubt for row in rows for cell in row if isinstance(cell, Cell)):
        notes.append(f"{DOUBT}: half of the runs or more failed; never the best of a row.")
    header = [*case_heads(sized), "indicator", *map(settings.label, methods)]
    return Table("effort", titled("Effort", groups), header, rows, notes)


def _until_near(group: Group | None) -> Cell:
    """Doubtful where half of the runs failed: nobody knows what those spent."""
    if group is None:
        return Cell(np.nan, WHOLE)
    cost, runs = group.until_near, len(group) + group.failed
    text = "never" if np.isinf(cost) else None
    return Cell(cost, WHOLE, text=text, doubt=2 * group.failed >= runs)


def rankable(limit: int) -> tuple[str, ...]:
    """What methods are ranked by: evaluations only where these are theirs to choose."""
    return tuple(one for one in RANKED if not (limit and one in samples.EVALUATIONS))


def ranks(groups: Groups, settings: Settings) -> Table:
    """Friedman's average ranks of medians, and Vargha and Delaney's effect sizes."""
    methods = methods_of(groups)
    columns: dict[str, list[Cell]] = {}
    notes = []
    for indicator in rankable(settings.limit):
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
        [settings.label(name), *(replace(cell, form=PLAIN) for cell in line)]
        for name, line in zip(methods, zip(*columns.values(), strict=True), strict=True)
    ]
    notes.append(
        f"A12: how often a run is worse than one of {settings.reference}, ties by half, as an "
        "average over problems; at 0.5 neither is better."
    )
    about = [*run_notes(groups, settings, "Ranks of medians"), *standing_notes(groups, settings)]
    title = titled("Average ranks and effect sizes", groups)
    notes = [*about, *notes, *_floor_note(settings), *_limit_note(settings)]
    return Table("ranks", title, ["method", *columns], rows, notes)


KINDS: dict[str, Callable[[Groups, Settings], Table]] = {
    "accuracy": accuracy,
    "evaluations": evaluations,
    "total": total,
    "real": real,
    "effort": effort,
    "ranks": ranks,
    "summary": closeness.summary,
    "solved": solved.solved,
    "ablation": solved.ablation,
}
