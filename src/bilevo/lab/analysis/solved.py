"""The tables of success: which runs found the optimum, and how many evaluations they took.

effort     the evaluations that it takes to come near the optimum, and the share of runs that do
solved     the number of runs that found the verified optimum (`samples.Group.solved`), and their
           evaluations relative to the baseline's reference method
ablation   evaluations and solved runs of many forms of a method, relative to the reference
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bilevo.lab.analysis import table_parts as parts
from bilevo.lab.analysis.baseline import Baseline
from bilevo.lab.analysis.samples import (
    F_ERROR,
    F_LOWER_ERROR,
    Case,
    Group,
)
from bilevo.lab.analysis.statistics import median
from bilevo.lab.analysis.table_parts import PLAIN, SHARE, WHOLE, Cell, Study, Table, TableRow
from bilevo.lab.campaign import NEAR

MEANING = (
    f"Solved: F at the follower's true answer within {F_ERROR:.0e} of F*, and f within "
    f"{F_LOWER_ERROR:.0e} of f*"
)
RATIO = "of the baseline's"
WITHIN = (("Acc_u", NEAR), ("Acc_u", 1e-6), ("verified", NEAR))  # The shares of runs in "effort".
NO_OPTIMUM = "No optimum is known."


def effort(study: Study) -> Table:
    """Show the cost of one success, and the shares of runs that succeed."""
    study = study.known
    if not study.groups:
        return Table("effort", "Effort", ["problem"], [], [NO_OPTIMUM])
    rows: list[TableRow] = []
    for case, of in study.groups.items():
        groups = [of.get(name) for name in study.methods]
        lines = {f"evaluations to {NEAR:.0e}": [_until_near(group) for group in groups]}
        for indicator, accuracy in WITHIN:
            lines[f"{indicator} <= {accuracy:.0e}"] = [
                Cell(np.nan if group is None else group.share_within(indicator, accuracy), SHARE)
                for group in groups
            ]
        for what, cells in lines.items():
            if any(not np.isnan(cell.value) for cell in cells):
                line = parts.with_best(cells, largest="<=" in what)
                rows.append([*study.place(case.problem, case.size), what, *line])
    notes = [
        *parts.run_notes(study, "Figures"),
        f"Evaluations to {NEAR:.0e} are the cost of one success: the evaluations of both levels "
        "that all completed runs made until F was this near to F*, or until they ended, divided by "
        "the number of runs that came this near. Shares are of all runs; failed and infeasible "
        "runs count as not near.",
    ]
    if any(cell.doubt for cell in parts.cells_of(rows)):
        failed = "at least half of the runs failed; such a cell is never marked as the best"
        notes.append(f"{parts.DOUBT}: {failed}.")
    header = [*study.heads, "indicator", *study.labels]
    return Table("effort", study.titled("Effort"), header, rows, notes)


def _until_near(group: Group | None) -> Cell:
    """Show the cost of a success. It is doubtful if half of the runs failed at unknown cost."""
    if group is None:
        return Cell(np.nan, WHOLE)
    text = "never" if np.isinf(group.until_near) else None
    return Cell(group.until_near, WHOLE, text=text, doubt=2 * group.failed >= group.attempts)


def solved(study: Study) -> Table:
    """Show median evaluations, their ratio to the baseline's reference method, and solved runs."""
    study = study.known
    if not study.groups:
        return Table("solved", "Solved and verified", ["problem"], [], [NO_OPTIMUM])
    beside = study.baseline if study.has_same_limit else None
    columns = ("evaluations", *([RATIO] if beside else []), "solved")
    rows: list[TableRow] = [
        [*study.place(case.problem, case.size), *_solved_cells(study, [case], beside)]
        for case in study.groups
    ]
    by_size = {size: [case for case in study.groups if case.size == size] for size in study.sizes}
    closing: list[TableRow] = [
        [*study.place("all", size), *_solved_cells(study, cases, beside, is_sum=True)]
        for size, cases in by_size.items()
    ]
    several = len(study.methods) > 1
    heads = [f"{label}: {what}" if several else what for label in study.labels for what in columns]
    notes = [*parts.run_notes(study), f"{MEANING}.", *_ratio_notes(study)]
    title, header = study.titled("Solved and verified"), [*study.heads, *heads]
    return Table("solved", title, header, [*rows, *closing], notes, len(closing))


def _solved_cells(
    study: Study, cases: list[Case], beside: Baseline | None, is_sum: bool = False
) -> list[Cell]:
    """Return the cells of each method: evaluations, the mean ratio over cases, and solved runs.

    If `is_sum` is True, the cell of evaluations is empty, because the cells sum up several cases.
    The ratio is to the median of the baseline's reference method.
    """
    line = []
    for name in study.methods:
        groups = [study.groups[case].get(name) for case in cases]
        costs = [_median_evaluations(group) for group in groups]
        line.append(Cell(np.nan if is_sum else costs[0], WHOLE))
        if beside:
            keys = [(case, beside.reference, "FEs") for case in cases]
            theirs = [beside.medians.get(key, np.nan) for key in keys]
            ratios = [cost / other for cost, other in zip(costs, theirs, strict=True)]
            known = [ratio for ratio in ratios if not np.isnan(ratio)]
            line.append(Cell(float(np.mean(known)) if known else np.nan, PLAIN))
        line.append(_solved_cell(groups))
    return line


def _median_evaluations(group: Group | None) -> float:
    return np.nan if group is None else median(group.sample("FEs"))


def _ratio_notes(study: Study) -> list[str]:
    """Say what the ratio is, or why there is none."""
    if (baseline := study.baseline) is None:
        return []
    if not study.has_same_limit:
        return [baseline.left_out]
    what = f"the median that {baseline.name} prints for {baseline.reference}"
    notes = [f"{RATIO.capitalize()}: the ratio to {what}."]
    if baseline.target and not study.to_target:
        late = "runs ended at the known optimum; these did not know it and ended later"
        notes.append(f"{baseline.capitalized}'s {late}.")
    return notes


def _solved_cell(groups: Iterable[Group | None]) -> Cell:
    """Count the solved runs among all runs; failed and infeasible runs are not solved."""
    found = [group for group in groups if group is not None]
    good, runs = sum(group.solved for group in found), sum(group.attempts for group in found)
    return Cell(good / runs, PLAIN, text=f"{good} of {runs}") if runs else Cell(np.nan, PLAIN)


def ablation(study: Study) -> Table:
    """Show the cost of a method's forms relative to the reference, and their solved runs.

    Problems without runs of the reference are left out.
    """
    study = study.of({case: of for case, of in study.groups.items() if study.reference in of})
    known = study.known.groups
    rows: list[TableRow] = []
    for name in study.methods:
        ratios = {
            case: _median_evaluations(of[name]) / _median_evaluations(of[study.reference])
            for case, of in study.groups.items()
            if name in of
        }
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        worst = max(ratios, key=lambda case: ratios[case])
        most = Cell(ratios[worst], PLAIN, text=f"{ratios[worst]:.2f} ({worst.problem})", named=True)
        share = _solved_cell(of.get(name) for of in known.values())
        rows.append([study.label(name), Cell(mean, PLAIN), most, share])
    notes = [
        *parts.run_notes(study, "Figures"),
        f"Evaluations: the ratio of medians to those of {study.reference}, its geometric mean "
        f"over the problems, and where it is largest. {MEANING}, which kinked and noisy followers "
        "do not allow.",
    ]
    return Table(
        "ablation", "Ablation", ["method", "evaluations", "at most", "solved"], rows, notes
    )
