"""The tables of success: which runs found the optimum, and how many evaluations they took.

effort     the evaluations that it takes to come near the optimum, and the share of runs that do
solved     the number of runs that found the verified optimum (`samples.Group.solved`), and their
           evaluations relative to the baseline's reference method
ablation   evaluations and solved runs of many forms of a method, relative to the reference
agreement  on how many problems of each size evaluations are near those of a baseline, at a glance
summary    how near median evaluations are to the medians of a baseline
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bilevo.lab.analysis import table_parts as parts
from bilevo.lab.analysis.baseline import Baseline
from bilevo.lab.analysis.samples import (
    EVALUATIONS,
    F_ERROR,
    F_LOWER_ERROR,
    Case,
    Group,
    registered_methods,
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
FACTORS = (1.1, 1.5, 2.0)  # "summary" counts the problems within these factors of a baseline.
FAR = FACTORS[-1]
NO_BASELINE = "There is no baseline to compare with: --baseline FILE names one."
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


def agreement(study: Study) -> Table:
    """Show for each method and size on how many problems our evaluations are near the baseline's.

    The last column names the problems that are farther away than the last of FACTORS.
    """
    if (baseline := study.baseline) is None:
        return Table("agreement", "Agreement with a baseline", ["method"], [], [NO_BASELINE])
    title = f"Agreement with {baseline.name}"
    if not study.is_comparable:
        return Table("agreement", title, ["method"], [], [baseline.left_out])
    printed = {(case, name): value for (case, name, key), value in baseline.medians.items()
               if key == "FEs"}  # fmt: skip
    places: dict[str, list[Case]] = {}
    for case in sorted({case for case, _ in printed}, key=lambda case: case.order):
        places.setdefault(f"{case.suite} {case.size}", []).append(case)
    rows: list[TableRow] = []
    for name in baseline.methods:
        ratios = {
            case: _median_evaluations(study.groups[case].get(name)) / printed[case, name]
            for case in study.groups
            if (case, name) in printed
        }
        ratios = {case: ratio for case, ratio in ratios.items() if ratio > 0}
        cells = [_agreement_cell(cases, ratios) for cases in places.values()]
        far = [f"{case} {_ratio(ratio)}" for case, ratio in ratios.items() if _apart(ratio) > FAR]
        words = "; ".join(far) or ("none" if ratios else "")
        rows.append([_label(study, name), *cells, Cell(np.nan, text=words, named=True)])
    factors = [f"{factor:g}" for factor in FACTORS]
    notes = [
        f"On how many problems our median evaluations of both levels are within a factor of "
        f"{', '.join(factors)} of those that {baseline.name} prints, and of how many. "
        f"Farther: the problems beyond a factor of {FAR:g}, and our "
        "evaluations divided by the printed ones.",
    ]
    header = ["method", *places, f"farther than {FAR:g}"]
    return Table("agreement", title, header, rows, notes)


def _label(study: Study, method: str) -> str:
    """Return the name of a method in tables, even if it has no runs."""
    if method in study.statuses:
        return study.label(method)
    known = registered_methods().get(method)
    return parts.method_label(method, "" if known is None else str(known.status))


def _agreement_cell(cases: list[Case], ratios: dict[Case, float]) -> Cell:
    here = [_apart(ratios[case]) for case in cases if case in ratios]
    if not here:
        return Cell(np.nan, text="no runs")
    within = [sum(ratio <= factor for ratio in here) for factor in FACTORS]
    return Cell(within[-1], WHOLE, text=f"{', '.join(map(str, within))} of {len(here)}")


def _apart(ratio: float) -> float:
    """Return a ratio or its inverse, whichever is larger."""
    return max(ratio, 1 / ratio)


def _ratio(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}"


def summary(study: Study) -> Table:
    """Show, for each method of the baseline, on how many problems our medians are near its own."""
    if (baseline := study.baseline) is None:
        return Table("summary", "Closeness to a baseline", ["method"], [], [NO_BASELINE])
    factors = ", ".join(f"{factor:g}" for factor in FACTORS)
    near = f"Acc_u <= {NEAR:.0e}"
    header = ["method", "status", "(m, n)", "problems"]
    header += [f"{key} within {factors}" for key in EVALUATIONS]
    header += ["sum of FEs", "baseline's sum", "ratio", near, f"baseline's {near}"]
    rows: list[TableRow] = []
    for method in baseline.methods if study.is_comparable else ():
        sizes: dict[str, dict[Case, Group]] = {}
        for case, of in study.groups.items():
            if method in of and (case, method, "FEs") in baseline.medians:
                sizes.setdefault(case.size, {})[case] = of[method]
        for size, cases in sizes.items():
            about = [method, study.statuses[method], size]
            rows.append([*about, *_closeness(baseline, method, cases)])
    notes = parts.baseline_notes(study, rows=[])
    if rows:
        notes = [
            *parts.run_notes(study),
            f"On how many problems our median evaluations are within a factor of {factors} of "
            f"those of {baseline.name}; the sums of these medians; and on how many problems most "
            f"of our runs, and the baseline's median, have an Acc_u of at most {NEAR:.0e}.",
        ]
    return Table("summary", f"Closeness to {baseline.name}", header, rows, notes)


def _closeness(baseline: Baseline, method: str, cases: dict[Case, Group]) -> list[Cell]:
    """Return the cells of a method for the cases of one size."""
    line = [Cell(len(cases), WHOLE)]
    for key in EVALUATIONS:
        pairs = [
            (median(group.sample(key)), baseline.medians[case, method, key])
            for case, group in cases.items()
            if (case, method, key) in baseline.medians
        ]
        apart = [max(ours / theirs, theirs / max(ours, 1)) for ours, theirs in pairs]
        within = [sum(ratio <= factor for ratio in apart) for factor in FACTORS]
        text = ", ".join(map(str, within)) if pairs else None
        line.append(Cell(within[0] if pairs else np.nan, WHOLE, text=text))
    ours, theirs = (float(np.sum(side)) for side in zip(*pairs, strict=True))
    near = sum(group.share_within("Acc_u", NEAR) > 0.5 for group in cases.values())
    printed = [baseline.medians.get((case, method, "Acc_u")) for case in cases]
    good = [value <= NEAR for value in printed if value is not None]
    line += [Cell(ours, WHOLE), Cell(theirs, WHOLE), Cell(ours / theirs, PLAIN)]
    return [*line, Cell(near, WHOLE), Cell(sum(good) if good else np.nan, WHOLE)]
