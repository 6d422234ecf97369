"""The parts of tables: cells, the study that a table shows, and notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mode
from typing import Any

import numpy as np

from bilevo import registry
from bilevo.lab.analysis import samples, statistics
from bilevo.lab.analysis.baseline import Baseline
from bilevo.lab.analysis.samples import FLOOR, Case, Groups, base_method, registered_methods
from bilevo.lab.analysis.statistics import ALPHA, Test
from bilevo.lab.frames import pl
from bilevo.lab.store import FAILED, IMPORTED

# How figures are written: accuracies, counts, shares, ratios and ranks, values of problems.
SCIENTIFIC, WHOLE, SHARE, PLAIN, GENERAL = ".2e", ".0f", ".0%", ".2f", ".6g"
SIGNS = "+/-/="  # better, worse and alike, in the DRC paper's order
DOUBT = "!"  # marks a figure of which at least half of the runs gave no good answer
TROUBLES = {  # by attributes of `samples.Group` that count runs
    "failed": "Runs that failed and are left out",
    "infeasible": "Runs that ended infeasible",
    "refuted": "Runs that are infeasible at the follower's true answer",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure (NaN where there is none), its format, and what a table shows beside it."""

    value: float
    form: str = SCIENTIFIC
    spread: float | None = None  # the interquartile range
    mark: str = ""  # "+", "=" or "-"
    saved: float | None = None  # the share of evaluations that the reference needs less
    baseline: float | None = None  # the baseline's median
    best: bool = False  # of its row
    doubt: bool = False  # too many of its runs gave no good answer; never the best
    text: str | None = None  # what is written instead of the value
    named: bool = False  # whether the text holds a name, which is escaped

    @property
    def written(self) -> str:
        """Return the value alone as text."""
        if self.text is not None:
            return self.text
        return "-" if np.isnan(self.value) else format(self.value, self.form)


TableRow = list[Cell | str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of names and cells, and the notes below them."""

    name: str
    title: str
    header: list[str]
    rows: list[TableRow]
    notes: list[str] = field(default_factory=list)
    closing: int = 0  # last rows that sum up the others


@dataclass(frozen=True, slots=True)
class Study:
    """Groups of runs, what they are compared with, and how."""

    groups: Groups
    reference: str  # the method that others are compared with
    statuses: Mapping[str, str]  # of methods
    limit: int = 0  # on the evaluations of every run; 0: there is none
    cut_off: bool = False  # whether a limit ended runs
    to_target: bool = True  # whether runs ended at the known optimum
    baseline: Baseline | None = None  # published medians to show beside those of the runs
    floor: float | None = FLOOR  # accuracies below it count as this; None: as they are
    test: Test = "rank-sum"
    holm: bool = False  # whether p values of one indicator are corrected for their number
    alpha: float = ALPHA  # the level of significance

    def __post_init__(self) -> None:
        statistics.find_test(self.test)
        samples.require_floor(self.floor)
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}; it should be between 0 and 1")

    def of(self, groups: Groups) -> Study:
        """Return the study of some of the groups."""
        return replace(self, groups=groups)

    @property
    def known(self) -> Study:
        """Return the study of the problems with a known optimum."""
        return self.of(samples.of_known_optimum(self.groups))

    @property
    def methods(self) -> list[str]:
        return samples.methods_of(self.groups)

    @property
    def labels(self) -> list[str]:
        """Return the names that its methods have in tables."""
        return [self.label(method) for method in self.methods]

    def label(self, method: str) -> str:
        return method_label(method, self.statuses[method])

    @property
    def sizes(self) -> list[str]:
        return list(dict.fromkeys(case.size for case in self.groups))

    def place(self, problem: str, size: str) -> list[str]:
        """Return what a row begins with; the size only where there are several."""
        return [problem, size] if len(self.sizes) > 1 else [problem]

    @property
    def heads(self) -> list[str]:
        """Return the heads of the columns that rows begin with."""
        return self.place("problem", "(m, n)")

    def titled(self, title: str) -> str:
        """Add the size to a title where there is one for all."""
        return f"{title} at (m, n) = {self.sizes[0]}" if len(self.sizes) == 1 else title

    @property
    def has_same_limit(self) -> bool:
        """Tell whether runs had the limit of the baseline's, or none where those had none."""
        most = self.baseline.max_evals if self.baseline else 0
        return self.limit == most if most else not self.cut_off

    @property
    def is_comparable(self) -> bool:
        """Tell whether there is a baseline, and runs ended as its runs did."""
        if self.baseline is None:
            return False
        return self.to_target == self.baseline.target and self.has_same_limit

    def beside(self, case: Case, method: str, indicator: str) -> float | None:
        """Return the baseline's median that may stand beside ours."""
        if self.baseline is None or not self.is_comparable:
            return None
        return self.baseline.medians.get((case, method, indicator))


def study_of(runs: pl.DataFrame, reference: str | None = None, **options: Any) -> Study:
    """Make the study of a frame of runs; the reference is drc-cma-es by default, or the first."""
    groups = samples.grouped(runs)
    return Study(
        groups,
        samples.reference_of(groups, reference),
        statuses(runs),
        samples.limit_of(runs),
        samples.are_cut_off(runs),
        bool(runs["target"].fill_null(True).all()),
        **options,
    )


def statuses(runs: pl.DataFrame) -> dict[str, str]:
    """Tell how close the methods of a frame of runs are to their authors' programs.

    A method that is not registered is its author's own.
    """
    status = pl.col("status").fill_null("")
    ours = set(runs.filter(~status.is_in([FAILED, IMPORTED]))["method"])
    foreign = set(runs.filter(status != FAILED)["method"]) - ours
    known = {name: str(method.status) for name, method in registered_methods().items()}
    own = str(registry.Status.OWN)
    return {
        method: IMPORTED if method in foreign else known.get(base_method(method), own)
        for method in runs["method"].unique(maintain_order=True)
    }


def method_labels(runs: pl.DataFrame) -> dict[str, str]:
    """Return the names that methods of a frame of runs have in tables and figures."""
    return {method: method_label(method, status) for method, status in statuses(runs).items()}


def method_label(method: str, status: str) -> str:
    """Return a method's name; a reconstruction is called one wherever its figures stand."""
    rebuilt = status == registry.Status.RECONSTRUCTION
    return f"{method} ({status})" if rebuilt else method


def cells_of(rows: Iterable[TableRow]) -> list[Cell]:
    """Return the cells of rows without the names."""
    return [cell for row in rows for cell in row if isinstance(cell, Cell)]


def with_best(
    cells: Iterable[Cell], by: Sequence[float] | None = None, largest: bool = False
) -> list[Cell]:
    """Mark the best cells of a row: all whose values are written like the best one.

    The values are those of the cells, or others `by` which they are compared.
    """
    line = list(cells)
    pairs = list(zip(line, by or [cell.value for cell in line], strict=True))
    known = [value for cell, value in pairs if np.isfinite(value) and not cell.doubt]
    if sum(not np.isnan(value) for _, value in pairs) < 2 or not known:
        return line
    best = max(known) if largest else min(known)
    if largest and best == 0:
        return line
    return [
        replace(cell, best=not cell.doubt and format(value, cell.form) == format(best, cell.form))
        for cell, value in pairs
    ]


def run_notes(study: Study, what: str = "Medians") -> list[str]:
    """Say how many runs there are, and how many failed or ended infeasible."""
    every = study.groups.values()
    names = dict.fromkeys(name for of in every for name in of)
    counts = {name: span(len(of[name]) for of in every if name in of) for name in names}
    usual = mode(counts.values())
    other = [f"; {study.label(name)} {text}" for name, text in counts.items() if text != usual]
    unit = "run" if usual == "1" else "runs"
    counted = f"{what} of {usual} {unit}{''.join(other)}."
    return [counted, *_trouble(study, "failed"), *_trouble(study, "infeasible")]


def standing_notes(study: Study) -> list[str]:
    """Say how runs without a good answer count where answers are compared."""
    every = [group for methods in study.groups.values() for group in methods.values()]
    if not any(group.failed or group.infeasible or group.refuted for group in every):
        return []
    rule = "Medians are as completed runs report them; in tests, in ranks and for the best of a "
    rule += "row, the answers of failed and infeasible runs are the worst."
    return [*_trouble(study, "refuted"), rule]


def _trouble(study: Study, attribute: str) -> list[str]:
    """Say how many runs of which method on which problem have an attribute of TROUBLES."""
    found: dict[str, list[str]] = {}
    for case, methods in study.groups.items():
        for method, group in methods.items():
            if number := getattr(group, attribute):
                name = " ".join(study.place(case.problem, case.size))
                found.setdefault(study.label(method), []).append(f"{number} on {name}")
    lists = [f"{method} {', '.join(numbers)}" for method, numbers in found.items()]
    return [f"{TROUBLES[attribute]}: {'; '.join(lists)}."] if lists else []


def baseline_notes(study: Study, rows: Iterable[TableRow]) -> list[str]:
    """Say what brackets in the rows mean, or why there are none."""
    if (baseline := study.baseline) is None:
        return []
    if not study.is_comparable:
        return [baseline.left_out]
    if not any(cell.baseline is not None for cell in cells_of(rows)):
        return [f"{baseline.capitalized} prints none of these figures."]
    medians = f"medians of {baseline.runs} runs" if baseline.runs else "medians"
    return [f"In brackets: what {baseline.name} prints, {medians}."]


def test_notes(study: Study, marked: bool, too_few: set[int]) -> list[str]:
    """Say what parentheses and marks mean, and why some are missing."""
    corrected = ", with Holm's correction" if study.holm else ""
    paired = "; pairs are by number only" if study.test == "signed-rank" else ""
    notes = ["In parentheses: interquartile ranges."]
    if marked:
        notes.append(
            f"{SIGNS}: {study.reference} is significantly better, worse, neither (Wilcoxon "
            f"{study.test} test at {study.alpha:g}{corrected}{paired})."
        )
    if too_few:
        notes.append(f"Samples of {span(too_few)} are too few for a test at {study.alpha:g}.")
    return notes


def span(numbers: Iterable[int]) -> str:
    """Write numbers as the only one, or as a range such as "3 to 5"."""
    found = set(numbers)
    least, most = min(found), max(found)
    return str(least) if least == most else f"{least} to {most}"
