"""Tables of stored runs: values with what stands beside them, which `formats` turns into text.

    accuracy      Acc_u and Acc_l as reported, and verified: F at the follower's true answer
    evaluations   of either level
    total         evaluations of both levels, and what the reference saves
    real          F and f where no optimum is known, and evaluations
    ranks         average ranks over problems, and effect sizes
    summary       how near median evaluations are to a baseline's
    effort, solved, ablation   see `solved`

Medians are over completed runs, as they report them. Marks are the DRC paper's: "+" where the
reference is significantly better than the method of the column, "-" where it is worse, "=" where
neither. In tests and for the best of a row, the answers of failed and infeasible runs are the
worst; evaluations are compared as they are. A `baseline` adds what somebody else has published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bilevo.lab.analysis import samples, solved, statistics, summary
from bilevo.lab.analysis.baseline import Baseline
from bilevo.lab.analysis.samples import ACCURACIES, FLOOR, Case, Group, Groups, methods_of
from bilevo.lab.analysis.statistics import ALPHA, Test
from bilevo.lab.analysis.table_parts import (
    DOUBT,
    GENERAL,
    PLAIN,
    SCIENTIFIC,
    SIGNS,
    WHOLE,
    Cell,
    Settings,
    Table,
    TableRow,
    baseline_notes,
    case_heads,
    case_names,
    cells_of,
    run_notes,
    several_sizes,
    standing_notes,
    statuses,
    test_notes,
    titled,
    with_best,
)
from bilevo.lab.campaign import NEAR

RANKED = ("Acc_u", "verified", "FEs")

Marks = dict[tuple[Case, str], str]  # by case and method


def make_table(
    runs: Any,
    kind: str,
    *,
    baseline: Baseline | None = None,
    reference: str | None = None,
    floor: float | None = FLOOR,
    test: Test = "rank-sum",
    holm: bool = False,
    alpha: float = ALPHA,
) -> Table:
    """Make a kind of table of a frame of runs; one that has nothing to show has no rows.

    Parameters
    ----------
    runs
        One row per run (bilevo.lab.store.runs).
    kind
        One of TABLES.
    baseline
        Published medians to show beside those of the runs.
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
    if kind not in TABLES:
        raise ValueError(f"unknown kind of table {kind!r}; known are {', '.join(TABLES)}")
    if test not in statistics.TESTS:
        raise ValueError(f"unknown test {test!r}; known are {', '.join(statistics.TESTS)}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it should be between 0 and 1")
    samples.require_floor(floor)
    groups = samples.grouped(runs)
    settings = Settings(
        reference=samples.reference_of(groups, reference),
        statuses=statuses(runs),
        limit=samples.limit_of(runs),
        baseline=baseline,
        cut_off=samples.are_cut_off(runs),
        to_target=bool(runs["target"].fill_null(True).all()),
        floor=floor,
        test=test,
        holm=holm,
        alpha=alpha,
    )
    return TABLES[kind](groups, settings)


def accuracy(groups: Groups, settings: Settings) -> Table:
    """Show distances from the optimum, as reported and verified."""
    forms = dict.fromkeys(ACCURACIES, SCIENTIFIC)
    known = samples.of_known_optimum(groups)
    table = _of_indicators("accuracy", "Accuracy", known, forms, settings)
    return replace(table, notes=[*table.notes, *_floor_note(settings)])


def evaluations(groups: Groups, settings: Settings) -> Table:
    """Show evaluations of either level."""
    forms = dict.fromkeys(("FEs_u", "FEs_l"), WHOLE)
    return _of_indicators("evaluations", "Evaluations", groups, forms, settings)


def real(groups: Groups, settings: Settings) -> Table:
    """Show the answers where no optimum is known; F_verified is F at the follower's true answer."""
    known = samples.of_known_optimum(groups)
    unknown = {case: methods for case, methods in groups.items() if case not in known}
    forms = dict.fromkeys(("F", "F_verified", "f"), GENERAL)
    forms |= dict.fromkeys(samples.EVALUATIONS, WHOLE)
    table = _of_indicators("real", "Problems of unknown optimum", unknown, forms, settings)
    return table if unknown else replace(table, notes=["The optima of all problems are known."])


def _of_indicators(
    name: str, title: str, groups: Groups, forms: dict[str, str], settings: Settings
) -> Table:
    """Make a table whose rows are problems and indicators, whose last rows count the marks."""
    methods, sized = methods_of(groups), several_sizes(groups)
    lines: dict[tuple[Case, str], list[Cell]] = {}
    counts: list[TableRow] = []
    too_few: set[int] = set()
    for indicator, form in forms.items():
        merits = {case: of for case, of in groups.items() if _is_merit(indicator, of, settings)}
        marks, few = _marks(merits, indicator, settings)
        too_few |= few
        for case, of in groups.items():
            cells = [
                replace(
                    _median_cell(case, method, of.get(method), indicator, form, settings),
                    mark=marks.get((case, method), ""),
                )
                for method in methods
            ]
            by = [_median_standing(of.get(method), indicator, settings) for method in methods]
            lines[case, indicator] = with_best(cells, by) if case in merits else cells
        counts += _count_rows(marks, indicator, groups, settings)
    rows: list[TableRow] = [
        [*case_names(case, sized), indicator, *lines[case, indicator]]
        for case in groups
        for indicator in forms
        if any(not np.isnan(cell.value) for cell in lines[case, indicator])
    ]
    header = [*case_heads(sized), "indicator", *map(settings.label, methods)]
    if not rows:
        return Table(name, title, header, [], [f"No run has any of {', '.join(forms)}."])
    notes = run_notes(groups, settings)
    notes += standing_notes(groups, settings) if set(forms) & set(samples.QUALITIES) else []
    notes += _limit_note(settings) if set(forms) & set(samples.EVALUATIONS) else []
    notes += _bracket_notes(rows, settings)
    notes += [*test_notes(settings, bool(counts), too_few), *_doubt_note(rows)]
    return Table(name, titled(title, groups), header, [*rows, *counts], notes, len(counts))


def _bracket_notes(rows: Iterable[TableRow], settings: Settings) -> list[str]:
    return baseline_notes(any(cell.baseline is not None for cell in cells_of(rows)), settings)


def _limit_note(settings: Settings) -> list[str]:
    if not settings.limit:
        return []
    return [f"All runs had {settings.limit} evaluations: their numbers are not compared."]


def _floor_note(settings: Settings) -> list[str]:
    floor = settings.floor
    return [f"Accuracies below {floor:g} are shown and tested as {floor:g}."] if floor else []


def _doubt_note(rows: list[TableRow]) -> list[str]:
    """Say what the sign of doubt means, where it stands."""
    doubtful = [cell for cell in cells_of(rows) if cell.doubt]
    if not doubtful:
        return []
    wrong = "failed or are infeasible, as they ended or where the follower really answers"
    if any(cell.form == WHOLE for cell in doubtful):
        wrong = f"failed, ended infeasible or missed the known optimum by more than {NEAR:.0e}"
    return [f"{DOUBT}: half of the runs or more {wrong}; never the best of a row."]


def _is_merit(indicator: str, of: dict[str, Group], settings: Settings) -> bool:
    """Tell whether smaller is better.

    The follower's f at another x is that of another problem, and an F that is not verified may owe
    its value to a follower that is not solved.
    """
    if indicator in samples.EVALUATIONS:
        return not settings.limit
    unverified = indicator == "F" and any(len(one.sample("F_verified")) for one in of.values())
    return indicator != "f" and not unverified


def _median_standing(group: Group | None, indicator: str, settings: Settings) -> float:
    """Return the median of what runs count as in comparisons."""
    if group is None:
        return np.nan
    return statistics.median(group.standing(indicator, settings.floor))


def _median_cell(
    case: Case, method: str, group: Group | None, indicator: str, form: str, settings: Settings
) -> Cell:
    theirs = settings.beside(case, method, indicator)
    if group is None or not len(group):
        return Cell(np.nan, form, baseline=theirs, text=None if group is None else "failed")
    sample = group.sample(indicator, settings.floor)
    spread = statistics.spread(sample) if len(sample) > 1 else np.nan
    return Cell(
        statistics.median(sample),
        form,
        spread=None if np.isnan(spread) else spread,
        baseline=theirs,
        doubt=_is_doubtful(group, indicator, settings),
    )


def _is_doubtful(group: Group, indicator: str, settings: Settings) -> bool:
    """Tell whether half of the runs or more have no good answer; for counts, a near one."""
    if indicator in samples.QUALITIES:
        return bool(np.isposinf(_median_standing(group, indicator, settings)))
    if settings.limit:
        return False
    missed = _median_standing(group, "Acc_u", settings) > NEAR
    return bool(missed or np.isposinf(_median_standing(group, "F", settings)))


def _marks(groups: Groups, indicator: str, settings: Settings) -> tuple[Marks, set[int]]:
    """Return the marks, and sizes of samples too small for any."""
    found, too_few = samples.compare_all(
        groups,
        indicator,
        settings.reference,
        floor=settings.floor,
        test=settings.test,
        holm=settings.holm,
        alpha=settings.alpha,
    )
    return {key: one.mark(settings.alpha) for key, one in found.items()}, too_few


def _count_rows(marks: Marks, indicator: str, groups: Groups, settings: Settings) -> list[TableRow]:
    """Count how often the reference is better, worse and alike.

    Sizes are counted apart where a problem has several. The baseline's count stands beside ours
    where both are over the same problems.
    """
    sized = several_sizes(groups)
    apart = len({case.problem for case in groups}) < len(groups)
    tested: dict[str, dict[Case, None]] = {}
    for case, _ in marks:
        tested.setdefault(case.size if apart else "", {})[case] = None
    rows: list[TableRow] = []
    for size, cases in tested.items():
        line = [_count_cell(marks, indicator, name, cases, settings) for name in methods_of(groups)]
        rows.append([SIGNS, *([size] if sized else []), indicator, *line])
    return rows


def _count_cell(
    marks: Marks, indicator: str, method: str, cases: Iterable[Case], settings: Settings
) -> Cell:
    ours = {case: marks[case, method] for case in cases if (case, method) in marks}
    text = _tally(ours.values()) if ours else ""
    baseline = settings.baseline
    if ours and baseline and settings.is_comparable and settings.reference == baseline.reference:
        theirs = [baseline.marks.get((case, method, indicator)) for case in ours]
        text += f" [{_tally(theirs)}]" if None not in theirs else ""
    return Cell(np.nan, text=text)


def _tally(marks: Iterable[str | None]) -> str:
    found = list(marks)
    return "/".join(str(found.count(mark)) for mark in SIGNS.split("/"))


def total(groups: Groups, settings: Settings) -> Table:
    """Show median evaluations of both levels, and their average over the problems of a suite."""
    methods, sized = methods_of(groups), several_sizes(groups)
    medians = {
        case: [
            replace(_median_cell(case, name, of.get(name), "FEs", WHOLE, settings), spread=None)
            for name in methods
        ]
        for case, of in groups.items()
    }
    averages = _averages(medians)
    at = None if settings.limit else methods.index(settings.reference)
    rows: list[TableRow] = [
        [*case_names(case, sized), *_with_savings(cells, at)]
        for case, cells in (*medians.items(), *averages.items())
    ]
    notes = [*run_notes(groups, settings), *_bracket_notes(rows, settings), *_limit_note(settings)]
    if not settings.limit and len(methods) > 1:
        notes.append(
            f"In parentheses: how many evaluations fewer {settings.reference} needs, as a share of "
            "the larger number."
        )
    if averages:
        notes.append("Averages are over the problems that all methods of the size have.")
    header = [*case_heads(sized), *map(settings.label, methods)]
    title = titled("Total evaluations", groups)
    return Table("total", title, header, rows, [*notes, *_doubt_note(rows)], len(averages))


def _with_savings(cells: list[Cell], at: int | None) -> list[Cell]:
    """Add the share of the larger number that the reference, the cell `at`, saves."""
    if at is None:
        return cells
    ours = cells[at].value
    shares = [(cell.value - ours) / max(cell.value, ours, 1.0) for cell in cells]
    return with_best(
        replace(cell, saved=None if i == at or np.isnan(share) else share)
        for i, (cell, share) in enumerate(zip(cells, shares, strict=True))
    )


def _averages(medians: dict[Case, list[Cell]]) -> dict[Case, list[Cell]]:
    """Average cells by suite and size, where a suite has several problems."""
    suites: dict[Case, list[list[Cell]]] = {}  # under the name of the suite
    for case, cells in medians.items():
        suites.setdefault(Case(case.suite, case.m, case.n), []).append(cells)
    found = {}
    for case, lines in suites.items():
        missing = np.isnan(np.array([[cell.value for cell in line] for line in lines]))
        there = ~missing.all(axis=0)
        complete = ~missing[:, there].any(axis=1)
        whole = [line for line, is_whole in zip(lines, complete, strict=True) if is_whole]
        if len(whole) > 1:
            name = f"{case.problem} average of {len(whole)}"
            found[Case(name, case.m, case.n)] = [_mean(cells) for cells in zip(*whole, strict=True)]
    return found


def _mean(cells: tuple[Cell, ...]) -> Cell:
    theirs = [cell.baseline for cell in cells if cell.baseline is not None]
    value = float(np.mean([cell.value for cell in cells]))
    beside = float(np.mean(theirs)) if len(theirs) == len(cells) else None
    doubt = 2 * sum(cell.doubt for cell in cells) >= len(cells)
    return Cell(value, WHOLE, baseline=beside, doubt=doubt)


def rankable(limit: int) -> tuple[str, ...]:
    """Return what methods are ranked by: evaluations only where no limit was set on them."""
    return tuple(one for one in RANKED if not (limit and one in samples.EVALUATIONS))


def average_ranks(groups: Groups, settings: Settings) -> Table:
    """Show Friedman's average ranks of medians, and Vargha and Delaney's effect sizes."""
    methods = methods_of(groups)
    columns: dict[str, list[Cell]] = {}
    notes = [*run_notes(groups, settings, "Ranks of medians"), *standing_notes(groups, settings)]
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
        against = settings.reference, settings.floor
        columns[f"{indicator}: A12"] = [
            Cell(samples.mean_effect(groups, indicator, name, *against), PLAIN) for name in methods
        ]
    rows: list[TableRow] = [
        [settings.label(name), *line]
        for name, line in zip(methods, zip(*columns.values(), strict=True), strict=True)
    ]
    notes.append(
        f"A12: how often a run is worse than one of {settings.reference}, ties by half, as an "
        "average over problems; at 0.5 neither is better."
    )
    title = titled("Average ranks and effect sizes", groups)
    notes += [*_floor_note(settings), *_limit_note(settings)]
    return Table("ranks", title, ["method", *columns], rows, notes)


TABLES: dict[str, Callable[[Groups, Settings], Table]] = {
    "accuracy": accuracy,
    "evaluations": evaluations,
    "total": total,
    "real": real,
    "effort": solved.effort,
    "ranks": average_ranks,
    "summary": summary.summary,
    "solved": solved.solved,
    "ablation": solved.ablation,
}
