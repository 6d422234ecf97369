"""How near the evaluations of our runs are to those that the DRC paper prints, in one table."""

from __future__ import annotations

import numpy as np

from bilevo.lab.analysis import samples, statistics
from bilevo.lab.analysis.paper import METHODS, printed
from bilevo.lab.analysis.samples import Case, Group, Groups
from bilevo.lab.analysis.table import (
    NOT_PRINTED,
    OTHER_ENDS,
    PLAIN,
    WHOLE,
    Cell,
    Row,
    Settings,
    Table,
    run_notes,
)
from bilevo.lab.campaign import NEAR

TITLE = "Closeness to the DRC paper"
FACTORS = (1.1, 1.5, 2.0)


def summary(groups: Groups, settings: Settings) -> Table:
    """Per method of the paper, on how many problems our figures are near the printed ones."""
    if not settings.like_paper:
        return Table("summary", TITLE, ["method"], [], [OTHER_ENDS])
    factors = ", ".join(f"{factor:g}" for factor in FACTORS)
    header = ["method", "status", "(m, n)", "problems"]
    header += [f"{key} within {factors}" for key in samples.EVALUATIONS]
    near = f"Acc_u <= {NEAR:.0e}"
    header += ["sum of FEs", "paper's sum", "ratio", near, f"paper's {near}"]
    rows: list[Row] = []
    for method in METHODS:
        sizes: dict[str, dict[Case, Group]] = {}
        for case, of in groups.items():
            if method in of and printed(*case, method, "FEs") is not None:
                sizes.setdefault(case.size, {})[case] = of[method]
        for size, cases in sizes.items():
            rows.append([method, settings.statuses[method], size, *_cells(method, cases)])
    if not rows:
        return Table("summary", TITLE, header, [], [NOT_PRINTED])
    notes = [
        *run_notes(groups, settings),
        f"On how many problems our median evaluations are within a factor of {factors} of the "
        "paper's; the sums of these medians; and on how many problems most of our runs, and the "
        f"paper's median, have an Acc_u of at most {NEAR:.0e}.",
    ]
    return Table("summary", TITLE, header, rows, notes)


def _cells(method: str, cases: dict[Case, Group]) -> list[Cell]:
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
