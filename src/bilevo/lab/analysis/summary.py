"""The table "summary": how near the evaluations of stored runs are to a baseline's."""

from __future__ import annotations

import numpy as np

from bilevo.lab.analysis import statistics
from bilevo.lab.analysis.baseline import Baseline
from bilevo.lab.analysis.samples import EVALUATIONS, Case, Group, Groups
from bilevo.lab.analysis.table_parts import (
    PLAIN,
    WHOLE,
    Cell,
    Settings,
    Table,
    TableRow,
    baseline_notes,
    run_notes,
)
from bilevo.lab.campaign import NEAR

FACTORS = (1.1, 1.5, 2.0)
NO_BASELINE = "There is no baseline to compare with: --baseline FILE names one."


def summary(groups: Groups, settings: Settings) -> Table:
    """Count for each method of the baseline the problems where its figures are near."""
    baseline = settings.baseline
    if baseline is None:
        return Table("summary", "Closeness to a baseline", ["method"], [], [NO_BASELINE])
    factors = ", ".join(f"{factor:g}" for factor in FACTORS)
    near = f"Acc_u <= {NEAR:.0e}"
    header = ["method", "status", "(m, n)", "problems"]
    header += [f"{key} within {factors}" for key in EVALUATIONS]
    header += ["sum of FEs", "baseline's sum", "ratio", near, f"baseline's {near}"]
    rows: list[TableRow] = []
    for method in baseline.methods if settings.is_comparable else ():
        sizes: dict[str, dict[Case, Group]] = {}
        for case, of in groups.items():
            if method in of and (case, method, "FEs") in baseline.medians:
                sizes.setdefault(case.size, {})[case] = of[method]
        for size, cases in sizes.items():
            about = [method, settings.statuses[method], size]
            rows.append([*about, *_closeness(baseline, method, cases)])
    notes = baseline_notes(False, settings)
    if rows:
        notes = [
            *run_notes(groups, settings),
            f"On how many problems our median evaluations are within a factor of {factors} of "
            f"those of {baseline.name}; the sums of these medians; and on how many problems most "
            f"of our runs, and the baseline's median, have an Acc_u of at most {NEAR:.0e}.",
        ]
    return Table("summary", f"Closeness to {baseline.name}", header, rows, notes)


def _closeness(baseline: Baseline, method: str, cases: dict[Case, Group]) -> list[Cell]:
    """Return the cells of a method at one size."""
    line = [Cell(len(cases), WHOLE)]
    for key in EVALUATIONS:
        pairs = [
            (statistics.median(group.sample(key)), baseline.medians[case, method, key])
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
