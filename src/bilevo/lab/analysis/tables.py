"""Tables of stored runs, as values; `formats` turns them into text.

    best, groups  the best methods of each problem and of groups of problems, see `best`
    accuracy      Acc_u and Acc_l as reported, and |F - F*| at the follower's true answer (verified)
    evaluations   evaluations of each level
    total         evaluations of both levels together, and the share that the reference saves
    real          F, f and evaluations on problems whose optimum is not known
    ranks         average ranks over problems, and effect sizes
    effort, solved, ablation              see `solved`
    agreement, differences, summary       see `agreement`
    sensitivity   what settings do to evaluations and answers, see `sensitivity`

Medians are of what completed runs report, feasible or not. Marks are those of the DRC paper: "+" if
the reference is significantly better than the method of the column, "-" if it is worse, and "=" if
neither holds. Tests, and the choice of a row's best, take answers of failed and infeasible runs as
the worst, but evaluations as they are. A `baseline` adds published medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bilevo.lab.analysis import agreement, best, samples, sensitivity, solved, statistics
from bilevo.lab.analysis import table_parts as parts
from bilevo.lab.analysis.samples import ACCURACIES, EVALUATIONS, QUALITIES, Case, Group
from bilevo.lab.analysis.table_parts import DOUBT, SIGNS, WHOLE, Cell, Study, Table, TableRow
from bilevo.lab.campaign import NEAR
from bilevo.lab.frames import pl

RANKED = ("Acc_u", "verified", "FEs")

Marks = dict[tuple[Case, str], str]  # by case and method


def make_table(runs: pl.DataFrame, kind: str, **options: Any) -> Table:
    """Make one of TABLES from a frame of runs; a table with nothing to show has no rows.

    `options` are fields of `table_parts.Study`: reference, baseline, floor, test, holm, alpha
    and tested.
    """
    if kind not in TABLES:
        raise ValueError(f"unknown kind of table {kind!r}; known are {', '.join(TABLES)}")
    return TABLES[kind](parts.study_of(runs, **options))


def accuracy(study: Study) -> Table:
    """Show distances from the optimum, as reported and verified."""
    forms = dict.fromkeys(ACCURACIES, parts.SCIENTIFIC)
    table = _of_indicators("accuracy", "Accuracy", study.known, forms)
    return replace(table, notes=[*table.notes, *_floor_note(study)])


def evaluations(study: Study) -> Table:
    """Show the evaluations of each level."""
    forms = dict.fromkeys(("FEs_u", "FEs_l"), WHOLE)
    return _of_indicators("evaluations", "Evaluations", study, forms)


def real(study: Study) -> Table:
    """Show answers on problems of unknown optimum.

    F_verified is F at the follower's true answer.
    """
    known = study.known.groups
    unknown = study.of({case: of for case, of in study.groups.items() if case not in known})
    forms = dict.fromkeys(("F", "F_verified", "f"), parts.GENERAL)
    forms |= dict.fromkeys(EVALUATIONS, WHOLE)
    table = _of_indicators("real", "Problems of unknown optimum", unknown, forms)
    none = ["The optima of all problems are known."]
    return table if unknown.groups else replace(table, notes=none)


def _of_indicators(name: str, title: str, study: Study, forms: dict[str, str]) -> Table:
    """Make a table with a row for each problem and indicator; the last rows count the marks."""
    methods = study.methods
    lines: dict[tuple[Case, str], list[Cell]] = {}
    counts: list[TableRow] = []
    too_few: set[int] = set()
    for indicator, form in forms.items():
        merits = {case: of for case, of in study.groups.items() if _is_merit(indicator, of, study)}
        marks, few = _marks(study.of(merits), indicator)
        too_few |= few
        for case, of in study.groups.items():
            cells = [_median_cell(study, case, name, indicator, form, marks) for name in methods]
            by = [_median_standing(study, of.get(name), indicator) for name in methods]
            lines[case, indicator] = parts.with_best(cells, by) if case in merits else cells
        counts += _count_rows(study, marks, indicator)
    rows: list[TableRow] = [
        [*study.place(case.problem, case.size), indicator, *lines[case, indicator]]
        for case in study.groups
        for indicator in forms
        if any(not np.isnan(cell.value) for cell in lines[case, indicator])
    ]
    header = [*study.heads, "indicator", *study.labels]
    if not rows:
        return Table(name, title, header, [], [f"No run has any of {', '.join(forms)}."])
    notes = parts.run_notes(study)
    notes += parts.standing_notes(study) if set(forms) & set(QUALITIES) else []
    notes += _limit_note(study) if set(forms) & set(EVALUATIONS) else []
    notes += parts.baseline_notes(study, rows)
    notes += [*parts.test_notes(study, bool(counts), too_few), *_doubt_note(rows)]
    return Table(name, study.titled(title), header, [*rows, *counts], notes, len(counts))


def _limit_note(study: Study) -> list[str]:
    note = f"All runs had {study.limit} evaluations: their numbers are not compared."
    return [note] if study.limit else []


def _floor_note(study: Study) -> list[str]:
    floor, what = study.floor, "shown and tested" if study.tested else "shown"
    return [f"Accuracies below {floor:g} are {what} as {floor:g}."] if floor else []


def _doubt_note(rows: list[TableRow]) -> list[str]:
    doubtful = [cell for cell in parts.cells_of(rows) if cell.doubt]
    if not doubtful:
        return []
    wrong = "failed or are infeasible, as they ended or at the follower's true answer"
    if any(cell.form == WHOLE for cell in doubtful):
        wrong = f"failed, ended infeasible or missed the known optimum by more than {NEAR:.0e}"
    return [f"{DOUBT}: at least half of the runs {wrong}; such a cell is never marked as the best."]


def _is_merit(indicator: str, of: dict[str, Group], study: Study) -> bool:
    """Tell whether smaller values of an indicator are better.

    A smaller f is not, because f at another x belongs to another problem. A smaller F is not if
    F_verified is stored: F may be small only because the follower is not solved.
    """
    if indicator in EVALUATIONS:
        return not study.limit
    unverified = indicator == "F" and any(len(one.sample("F_verified")) for one in of.values())
    return indicator != "f" and not unverified


def _median_standing(study: Study, group: Group | None, indicator: str) -> float:
    """Return the median of values in which failed and infeasible runs are the worst."""
    return np.nan if group is None else statistics.median(group.standing(indicator, study.floor))


def _median_cell(
    study: Study, case: Case, method: str, indicator: str, form: str, marks: Marks
) -> Cell:
    group, theirs = study.groups[case].get(method), study.beside(case, method, indicator)
    cell = Cell(np.nan, form, mark=marks.get((case, method), ""), baseline=theirs)
    if group is None or not len(group):
        return cell if group is None else replace(cell, text="failed")
    sample = group.sample(indicator, study.floor)
    spread = statistics.spread(sample) if len(sample) > 1 else np.nan
    return replace(
        cell,
        value=statistics.median(sample),
        spread=None if np.isnan(spread) else spread,
        doubt=_is_doubtful(study, group, indicator),
    )


def _is_doubtful(study: Study, group: Group, indicator: str) -> bool:
    """Tell whether half of the runs or more failed, are infeasible or (for evaluations) miss F*."""
    if indicator in QUALITIES:
        return bool(np.isposinf(_median_standing(study, group, indicator)))
    if study.limit:
        return False
    missed = _median_standing(study, group, "Acc_u") > NEAR
    return bool(missed or np.isposinf(_median_standing(study, group, "F")))


def _marks(study: Study, indicator: str) -> tuple[Marks, set[int]]:
    """Return the marks, and the sizes of samples that are too small for a test."""
    if not study.tested:
        return {}, set()
    how: dict[str, Any] = {
        name: getattr(study, name) for name in ("floor", "test", "holm", "alpha")
    }
    found, too_few = samples.compare_all(study.groups, indicator, study.reference, **how)
    return {key: one.mark(study.alpha) for key, one in found.items()}, too_few


def _count_rows(study: Study, marks: Marks, indicator: str) -> list[TableRow]:
    """Return rows that count how often the reference is better, worse, or neither.

    Each size has its own row if a problem has several sizes.
    """
    apart = len({case.problem for case in study.groups}) < len(study.groups)
    rows: list[TableRow] = []
    for size in dict.fromkeys(case.size if apart else "" for case, _ in marks):
        cases = [case for case in study.groups if size in ("", case.size)]
        line = [_count_cell(study, marks, indicator, name, cases) for name in study.methods]
        rows.append([*study.place(SIGNS, size), indicator, *line])
    return rows


def _count_cell(
    study: Study, marks: Marks, indicator: str, method: str, cases: Iterable[Case]
) -> Cell:
    """Count marks; add the baseline's count if the baseline has marks for the same problems."""
    ours = {case: marks[case, method] for case in cases if (case, method) in marks}
    text = _tally([*ours.values()]) if ours else ""
    baseline = study.baseline
    if ours and baseline and study.is_comparable and study.reference == baseline.reference:
        theirs = [baseline.marks.get((case, method, indicator)) for case in ours]
        text += f" [{_tally(theirs)}]" if None not in theirs else ""
    return Cell(np.nan, text=text)


def _tally(marks: list[str | None]) -> str:
    return "/".join(str(marks.count(mark)) for mark in SIGNS.split("/"))


def total(study: Study) -> Table:
    """Show median evaluations of both levels, and their average over the problems of a suite."""
    methods = study.methods
    medians = {
        case: [_median_cell(study, case, name, "FEs", WHOLE, {}) for name in methods]
        for case in study.groups
    }
    averages = _averages(medians)
    at = None if study.limit else methods.index(study.reference)
    rows: list[TableRow] = [
        [*study.place(case.problem, case.size), *_with_savings(cells, at)]
        for case, cells in (*medians.items(), *averages.items())
    ]
    notes = [*parts.run_notes(study), *parts.baseline_notes(study, rows), *_limit_note(study)]
    if not study.limit and len(methods) > 1:
        notes.append(
            f"In parentheses: the evaluations that {study.reference} saves, as a share of the "
            "larger number."
        )
    if averages:
        notes.append("Averages are over the problems that all methods of the size have.")
    header, title = [*study.heads, *study.labels], study.titled("Total evaluations")
    return Table("total", title, header, rows, [*notes, *_doubt_note(rows)], len(averages))


def _with_savings(cells: list[Cell], at: int | None) -> list[Cell]:
    """Add to each cell the share of evaluations that the reference saves, and mark the best cells.

    `at` is the index of the reference's cell, or None if evaluations are not compared.
    """
    cells = [replace(cell, spread=None) for cell in cells]
    if at is None:
        return cells
    ours = cells[at].value
    shares = [(cell.value - ours) / max(cell.value, ours, 1.0) for cell in cells]
    return parts.with_best(
        replace(cell, saved=None if i == at or np.isnan(share) else share)
        for i, (cell, share) in enumerate(zip(cells, shares, strict=True))
    )


def _averages(medians: dict[Case, list[Cell]]) -> dict[Case, list[Cell]]:
    """Average cells by suite and size if a suite has several problems."""
    suites: dict[Case, list[list[Cell]]] = {}  # by cases whose `problem` is a suite
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
    """Return the indicators to rank methods by; evaluations are left out if they were limited."""
    return tuple(one for one in RANKED if not (limit and one in EVALUATIONS))


def average_ranks(study: Study) -> Table:
    """Show Friedman's average ranks of medians, and Vargha and Delaney's effect sizes."""
    groups, floor = study.groups, study.floor
    columns: dict[str, list[Cell]] = {}
    notes = [*parts.run_notes(study, "Ranks of medians"), *parts.standing_notes(study)]
    for indicator in rankable(study.limit):
        try:
            _, found = samples.ranked(groups, indicator, floor, study.alpha)
        except ValueError as error:
            notes.append(f"{indicator} has no ranks: {error}.")
        else:
            columns[f"{indicator}: rank"] = [Cell(rank, parts.PLAIN) for rank in found.average]
            notes.append(
                f"{indicator}: p = {found.p:.2g} (Friedman test over {found.blocks} problems), "
                f"critical difference {found.critical_difference:.2f} (Nemenyi, {study.alpha:g})."
            )
        columns[f"{indicator}: A12"] = [
            Cell(samples.mean_effect(groups, indicator, name, study.reference, floor), parts.PLAIN)
            for name in study.methods
        ]
    rows: list[TableRow] = [
        [label, *line]
        for label, line in zip(study.labels, zip(*columns.values(), strict=True), strict=True)
    ]
    notes.append(
        f"A12: the share of pairs in which a run is worse than a run of {study.reference} (ties "
        "count half), averaged over problems; at 0.5 neither is better."
    )
    title = study.titled("Average ranks and effect sizes")
    notes += [*_floor_note(study), *_limit_note(study)]
    return Table("ranks", title, ["method", *columns], rows, notes)


TABLES: dict[str, Callable[[Study], Table]] = {
    "best": best.best_methods,
    "groups": best.best_in_groups,
    "accuracy": accuracy,
    "evaluations": evaluations,
    "total": total,
    "real": real,
    "effort": solved.effort,
    "ranks": average_ranks,
    "agreement": agreement.agreement,
    "differences": agreement.differences,
    "summary": agreement.summary,
    "solved": solved.solved,
    "ablation": solved.ablation,
    "sensitivity": sensitivity.sensitivity,
}
