"""The tables of success: which runs found the optimum, and what they cost.

effort     what it costs to come near the optimum, and how many runs do
solved     how many runs found the verified optimum (`samples.Group.solved`), and evaluations
           beside the baseline's median of its reference method
ablation   the same of many forms of a method beside the reference, one row for each
"""

from __future__ import annotations

import numpy as np

from bilevo.lab.analysis.samples import (
    F_ERROR,
    F_LOWER_ERROR,
    Case,
    Group,
    Groups,
    methods_of,
    of_known_optimum,
)
from bilevo.lab.analysis.statistics import median
from bilevo.lab.analysis.table_parts import (
    DOUBT,
    PLAIN,
    SHARE,
    WHOLE,
    Cell,
    Settings,
    Table,
    TableRow,
    case_heads,
    case_names,
    cells_of,
    run_notes,
    several_sizes,
    titled,
    with_best,
)
from bilevo.lab.campaign import NEAR

MEANING = (
    f"Solved: F at the follower's true answer within {F_ERROR:.0e} of F*, and f within "
    f"{F_LOWER_ERROR:.0e} of f*"
)
RATIO = "of the baseline's"
WITHIN = (("Acc_u", NEAR), ("Acc_u", 1e-6), ("verified", NEAR))  # shares of runs in "effort"


def effort(groups: Groups, settings: Settings) -> Table:
    """Show what one success costs, and the shares of runs that are one."""
    groups = of_known_optimum(groups)
    if not groups:
        return Table("effort", "Effort", ["problem"], [], ["No optimum is known."])
    methods, sized = methods_of(groups), several_sizes(groups)
    rows: list[TableRow] = []
    for case, of in groups.items():
        lines = {f"evaluations to {NEAR:.0e}": [_until_near(of.get(name)) for name in methods]}
        for indicator, accuracy in WITHIN:
            lines[f"{indicator} <= {accuracy:.0e}"] = [
                Cell(of[name].share_within(indicator, accuracy) if name in of else np.nan, SHARE)
                for name in methods
            ]
        for what, cells in lines.items():
            if any(not np.isnan(cell.value) for cell in cells):
                line = with_best(cells, largest="<=" in what)
                rows.append([*case_names(case, sized), what, *line])
    notes = [
        *run_notes(groups, settings, "Figures"),
        f"Evaluations to {NEAR:.0e}: what one success costs, the evaluations of both levels that "
        "all completed runs spent until F was that near F*, or to their end, by the number of runs "
        "that came that near. Shares are of all runs; failed and infeasible ones are not among "
        "those counted.",
    ]
    if any(cell.doubt for cell in cells_of(rows)):
        notes.append(f"{DOUBT}: half of the runs or more failed; never the best of a row.")
    header = [*case_heads(sized), "indicator", *map(settings.label, methods)]
    return Table("effort", titled("Effort", groups), header, rows, notes)


def _until_near(group: Group | None) -> Cell:
    """Show what a success costs; doubtful where half of the runs failed, whose cost is unknown."""
    if group is None:
        return Cell(np.nan, WHOLE)
    cost = group.until_near
    text = "never" if np.isinf(cost) else None
    return Cell(cost, WHOLE, text=text, doubt=2 * group.failed >= group.attempts)


def solved(groups: Groups, settings: Settings) -> Table:
    """Show median evaluations, their ratio to the baseline's reference, and solved runs."""
    groups = of_known_optimum(groups)
    if not groups:
        return Table("solved", "Solved and verified", ["problem"], [], ["No optimum is known."])
    methods, sized = methods_of(groups), several_sizes(groups)
    beside = settings.baseline is not None and settings.has_same_limit
    rows: list[TableRow] = []
    for case, of in groups.items():
        row: TableRow = [*case_names(case, sized)]
        for name in methods:
            cost = _median_evaluations(of.get(name))
            row += _method_cells(cost, _ratio(case, cost, settings), [of.get(name)], beside)
        rows.append(row)
    closing: list[TableRow] = []
    for size in dict.fromkeys(case.size for case in groups):
        row = ["all", size] if sized else ["all"]
        cases = {case: of for case, of in groups.items() if case.size == size}
        for name in methods:
            costs = {case: _median_evaluations(of.get(name)) for case, of in cases.items()}
            ratios = [_ratio(case, cost, settings) for case, cost in costs.items()]
            known = [ratio for ratio in ratios if not np.isnan(ratio)]
            mean = float(np.mean(known)) if known else np.nan
            row += _method_cells(np.nan, mean, [of.get(name) for of in cases.values()], beside)
        closing.append(row)
    columns = ("evaluations", *([RATIO] if beside else []), "solved")
    heads = [
        f"{settings.label(name)}: {what}" if len(methods) > 1 else what
        for name in methods
        for what in columns
    ]
    notes = [*run_notes(groups, settings), f"{MEANING}.", *_ratio_notes(settings, beside)]
    header = [*case_heads(sized), *heads]
    title = titled("Solved and verified", groups)
    return Table("solved", title, header, [*rows, *closing], notes, len(closing))


def _method_cells(
    cost: float, ratio: float, groups: list[Group | None], beside: bool
) -> list[Cell]:
    """Return the cells of one method; the ratio to the baseline's where there is one."""
    return [Cell(cost, WHOLE), *([Cell(ratio, PLAIN)] if beside else []), _solved_cell(groups)]


def _median_evaluations(group: Group | None) -> float:
    return np.nan if group is None else median(group.sample("FEs"))


def _ratio(case: Case, cost: float, settings: Settings) -> float:
    """Return the ratio of a cost to the baseline's median of its reference method."""
    if (baseline := settings.baseline) is None:
        return np.nan
    return cost / baseline.medians.get((case, baseline.reference, "FEs"), np.nan)


def _ratio_notes(settings: Settings, beside: bool) -> list[str]:
    """Say what the ratio is, or why there is none."""
    if (baseline := settings.baseline) is None:
        return []
    if not beside:
        return [settings.other_ends]
    what = f"the median that {baseline.name} prints for {baseline.reference}"
    notes = [f"{RATIO.capitalize()}: the ratio to {what}."]
    if baseline.target and not settings.to_target:
        late = "runs ended at the known optimum; these were not told it and end later"
        notes.append(f"{baseline.capitalized}'s {late}.")
    return notes


def _solved_cell(groups: list[Group | None]) -> Cell:
    """Count the solved runs among all; failed and infeasible ones are not solved."""
    found = [group for group in groups if group is not None]
    good, runs = sum(group.solved for group in found), sum(group.attempts for group in found)
    share = good / runs if runs else np.nan
    return Cell(share, PLAIN, text=f"{good} of {runs}" if runs else None)


def ablation(groups: Groups, settings: Settings) -> Table:
    """Show what forms of a method cost beside the reference over all problems, and what they solve.

    Problems without runs of the reference are left out.
    """
    groups = {case: of for case, of in groups.items() if settings.reference in of}
    known = of_known_optimum(groups)
    rows: list[TableRow] = []
    for name in methods_of(groups):
        ratios = {
            case: _median_evaluations(of[name]) / _median_evaluations(of[settings.reference])
            for case, of in groups.items()
            if name in of
        }
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        worst = max(ratios, key=lambda case: ratios[case])
        most = Cell(ratios[worst], PLAIN, text=f"{ratios[worst]:.2f} ({worst.problem})", named=True)
        share = _solved_cell([of.get(name) for of in known.values()])
        rows.append([settings.label(name), Cell(mean, PLAIN), most, share])
    notes = [
        *run_notes(groups, settings, "Figures"),
        f"Evaluations: the ratio of medians to those of {settings.reference}, its geometric mean "
        f"over the problems, and where it is largest. {MEANING}, which kinked and noisy followers "
        "do not allow.",
    ]
    header = ["method", "evaluations", "at most", "solved"]
    return Table("ablation", "Ablation", header, rows, notes)
