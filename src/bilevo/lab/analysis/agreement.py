"""The tables that hold our evaluations against a baseline.

agreement    on how many problems of each size evaluations are near those of the baseline
differences  the problems where our evaluations differ significantly from those of the baseline
summary      how near median evaluations are to the medians of the baseline
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.lab.analysis import table_parts as parts
from bilevo.lab.analysis.baseline import Baseline
from bilevo.lab.analysis.samples import EVALUATIONS, Case, Group, registered_methods
from bilevo.lab.analysis.statistics import control_median, least_control_p, median
from bilevo.lab.analysis.table_parts import PLAIN, WHOLE, Cell, Study, Table, TableRow
from bilevo.lab.campaign import NEAR

FACTORS = (1.1, 1.5, 2.0)  # Medians are counted that are within these factors of the baseline's.
FAR = FACTORS[-1]
NO_BASELINE = "There is no baseline to compare with: --baseline FILE names one."


def agreement(study: Study) -> Table:
    """Show for each method and size on how many problems our evaluations are near the baseline's.

    The last columns count the problems on which they differ significantly, and name those that are
    farther away than the last of FACTORS.
    """
    if (baseline := study.baseline) is None or not study.is_comparable:
        return _without_baseline("agreement", "Agreement", baseline)
    places: dict[str, list[Case]] = {}
    printed = {case for case, _, key in baseline.medians if key == "FEs"}
    for case in sorted(printed, key=lambda case: case.order):
        places.setdefault(f"{case.suite} {case.size}", []).append(case)
    rows: list[TableRow] = []
    for name in baseline.methods:
        found = {beside.case: beside for beside in _besides(study, baseline, name)}
        cells = [_count_near([found[case] for case in cases if case in found])
                 for cases in places.values()]  # fmt: skip
        tested = [beside for beside in found.values() if beside.can_differ(study.alpha)]
        differ = sum(beside.p < study.alpha for beside in tested)
        far = [f"{case} {beside.written}" for case, beside in found.items() if beside.apart > FAR]
        words = "; ".join(far) or ("none" if found else "")
        count = Cell(differ, WHOLE, text=f"{differ} of {len(tested)}")
        rows.append([_label(study, name), *cells, count, Cell(np.nan, text=words, named=True)])
    factors = ", ".join(f"{factor:g}" for factor in FACTORS)
    notes = [
        f"On how many problems our median evaluations of both levels are within a factor of "
        f"{factors} of those that {baseline.name} prints, and of how many. {_test_note(study)} "
        "Problems with too few runs for the test do not count. "
        f"Farther: the problems beyond a factor of {FAR:g}, and our "
        "evaluations divided by the printed ones.",
    ]
    header = ["method", *places, "differ", f"farther than {FAR:g}"]
    return Table("agreement", f"Agreement with {baseline.name}", header, rows, notes)


def differences(study: Study) -> Table:
    """Show the problems where our evaluations differ significantly from the baseline's."""
    if (baseline := study.baseline) is None or not study.is_comparable:
        return _without_baseline("differences", "Differences", baseline)
    found = [
        (name, beside)
        for name in baseline.methods
        for beside in _besides(study, baseline, name)
        if beside.can_differ(study.alpha)
    ]
    rows: list[TableRow] = [
        [
            _label(study, name),
            str(beside.case),
            Cell(median(beside.ours), WHOLE),
            Cell(beside.theirs, WHOLE),
            Cell(beside.ratio, PLAIN),
            Cell(beside.p, ".2g"),
        ]
        for name, beside in found
        if beside.p < study.alpha
    ]
    notes = [
        f"{len(rows)} of {len(found)} problems, counted for each method. {_test_note(study)} "
        f"By chance, up to {study.alpha:.0%} of the problems would be in this table."
    ]
    header = ["method", "problem", "evaluations", "printed", "ratio", "p"]
    return Table("differences", f"Differences from {baseline.name}", header, rows, notes)


def _test_note(study: Study) -> str:
    return (
        f"Differ: the printed median lies so far outside the middle of our runs that two samples "
        f"of one method would be that different with p below {study.alpha:g} (Mathisen's test, "
        "uncorrected)."
    )


def _without_baseline(kind: str, what: str, baseline: Baseline | None) -> Table:
    """Return a table that says why there is nothing to compare with."""
    if baseline is None:
        return Table(kind, f"{what} of a baseline", ["method"], [], [NO_BASELINE])
    return Table(kind, f"{what}: {baseline.name}", ["method"], [], [baseline.left_out])


class Beside(NamedTuple):
    """The evaluations of our runs on a problem, and the baseline's median of `runs` runs."""

    case: Case
    ours: FloatArray
    theirs: float
    runs: int

    @property
    def ratio(self) -> float:
        return median(self.ours) / self.theirs

    @property
    def apart(self) -> float:
        """Return the ratio of the medians or its inverse, whichever is larger."""
        return max(self.ratio, 1 / self.ratio)

    @property
    def written(self) -> str:
        return f"{self.ratio:.2g}" if self.ratio < 100 else f"{self.ratio:.0f}"

    @property
    def p(self) -> float:
        return control_median(self.ours, self.theirs, self.runs)

    def can_differ(self, alpha: float) -> bool:
        """Tell whether there are enough runs for a significant difference."""
        return bool(self.runs) and least_control_p(len(self.ours), self.runs) < alpha


def _besides(study: Study, baseline: Baseline, method: str) -> Iterator[Beside]:
    """Yield the problems of which both have evaluations by the method."""
    for case, of in study.groups.items():
        theirs = baseline.medians.get((case, method, "FEs"), 0.0)
        if method in of and theirs > 0 and median(of[method].sample("FEs")) > 0:
            yield Beside(case, of[method].sample("FEs"), theirs, baseline.runs or 0)


def _label(study: Study, method: str) -> str:
    """Return the name of a method in tables, even if it has no runs."""
    if method in study.statuses:
        return study.label(method)
    known = registered_methods().get(method)
    return parts.method_label(method, "" if known is None else str(known.status))


def _count_near(here: list[Beside]) -> Cell:
    if not here:
        return Cell(np.nan, text="no runs")
    within = [sum(beside.apart <= factor for beside in here) for factor in FACTORS]
    return Cell(within[-1], WHOLE, text=f"{', '.join(map(str, within))} of {len(here)}")


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
