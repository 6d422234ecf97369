"""The parts of tables: cells, notes, and the study that a table shows."""

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

# The formats of accuracies, of counts, of shares, of ratios and ranks, and of F and f.
SCIENTIFIC, WHOLE, SHARE, PLAIN, GENERAL = ".2e", ".0f", ".0%", ".2f", ".6g"
SIGNS = "+/-/="  # The reference is better, worse, or neither, in the order of the DRC paper.
DOUBT = "!"  # The mark of a number for which at least half of the runs gave no good answer.
TROUBLES = {  # titles for attributes of `samples.Group` that count runs without a good answer
    "failed": "Runs that failed and are left out",
    "infeasible": "Runs that ended infeasible",
    "refuted": "Runs that are infeasible at the follower's true answer",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A number (NaN if there is none), its format, and what a table shows beside it."""

    value: float
    form: str = SCIENTIFIC
    spread: float | None = None  # the interquartile range
    mark: str = ""  # "+", "=" or "-"
    saved: float | None = None  # the share of evaluations that the reference saves
    baseline: float | None = None  # the baseline's median
    best: bool = False  # whether it is the best of its row
    doubt: bool = False  # whether too many runs gave no good answer; then it is never the best
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
    closing: int = 0  # how many of the last rows sum up the other rows


@dataclass(frozen=True, slots=True)
class Study:
    """Groups of runs, what they are compared with, and how they are compared."""

    groups: Groups
    reference: str  # the method that others are compared with
    statuses: Mapping[str, str]  # of each method; see `statuses`
    limit: int = 0  # on the evaluations of every run, or 0 if there is none
    cut_off: bool = False  # whether a limit ended runs
    to_target: bool = True  # whether runs ended at the known optimum
    baseline: Baseline | None = None  # published medians to show beside those of the runs
    floor: float | None = FLOOR  # accuracies below it count as the floor; None has no floor
    test: Test = "rank-sum"
    holm: bool = False  # whether p values of one indicator are corrected for their number
    alpha: float = ALPHA  # the level of significance
    tested: bool = True  # False for runs of which more are to come: a test would be made too early

    def __post_init__(self) -> None:
        statistics.find_test(self.test)
        samples.require_floor(self.floor)
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}; it should be between 0 and 1")

    def of(self, groups: Groups) -> Study:
        """Return the same study with only these groups."""
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
        """Return the names of the methods in tables."""
        return [self.label(method) for method in self.methods]

    def label(self, method: str) -> str:
        return method_label(method, self.statuses[method])

    @property
    def sizes(self) -> list[str]:
        return list(dict.fromkeys(case.size for case in self.groups))

    def place(self, problem: str, size: str) -> list[str]:
        """Return the first cells of a row: the problem, and the size if there are several."""
        return [problem, size] if len(self.sizes) > 1 else [problem]

    @property
    def heads(self) -> list[str]:
        """Return the heads of the columns that rows begin with."""
        return self.place("problem", "(m, n)")

    def titled(self, title: str) -> str:
        """Add the size to a title if all problems have one size."""
        return f"{title} at (m, n) = {self.sizes[0]}" if len(self.sizes) == 1 else title

    @property
    def has_same_limit(self) -> bool:
        """Tell whether the runs had the baseline's limit, or no limit if the baseline has none."""
        most = self.baseline.max_evals if self.baseline else 0
        return self.limit == most if most else not self.cut_off

    @property
    def is_comparable(self) -> bool:
        """Tell whether there is a baseline whose runs ended in the same way as these runs."""
        if self.baseline is None:
            return False
        return self.to_target == self.baseline.target and self.has_same_limit

    def beside(self, case: Case, method: str, indicator: str) -> float | None:
        """Return the baseline's median to show beside ours, or None if there is none to show."""
        if self.baseline is None or not self.is_comparable:
            return None
        return self.baseline.medians.get((case, method, indicator))


def study_of(runs: pl.DataFrame, reference: str | None = None, **options: Any) -> Study:
    """Make the study of a frame of runs; see `samples.reference_of` for the default reference."""
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
    """Return, for each method of a frame of runs, how close it is to its authors' program.

    A method that is not registered counts as its author's own program. A method whose completed
    runs were all imported has the status "imported".
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
    """Return the names of a frame's methods in tables and figures."""
    return {method: method_label(method, status) for method, status in statuses(runs).items()}


def method_label(method: str, status: str) -> str:
    """Return a method's name, followed by its status if it is a reconstruction."""
    rebuilt = status == registry.Status.RECONSTRUCTION
    return f"{method} ({status})" if rebuilt else method


def cells_of(rows: Iterable[TableRow]) -> list[Cell]:
    """Return the cells of rows, without the names of problems and methods."""
    return [cell for row in rows for cell in row if isinstance(cell, Cell)]


def with_best(
    cells: Iterable[Cell], by: Sequence[float] | None = None, largest: bool = False
) -> list[Cell]:
    """Return the cells of a row with the best ones marked.

    Cells are compared by their values, or by the values in `by`. The smallest value is the best, or
    the largest if `largest` is True. Other cells that look the same when written are marked, too.
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
    """Say how runs without a good answer count in comparisons of answers."""
    every = [group for methods in study.groups.values() for group in methods.values()]
    if not any(group.failed or group.infeasible or group.refuted for group in every):
        return []
    rule = "Medians are as completed runs report them; in tests, in ranks and for the best of a "
    rule += "row, the answers of failed and infeasible runs are the worst."
    return [*_trouble(study, "refuted"), rule]


def _trouble(study: Study, attribute: str) -> list[str]:
    """Say how many runs of each method on each problem have one of the TROUBLES."""
    found: dict[str, list[str]] = {}
    for case, methods in study.groups.items():
        for method, group in methods.items():
            if number := getattr(group, attribute):
                name = " ".join(study.place(case.problem, case.size))
                found.setdefault(study.label(method), []).append(f"{number} on {name}")
    lists = [f"{method} {', '.join(numbers)}" for method, numbers in found.items()]
    return [f"{TROUBLES[attribute]}: {'; '.join(lists)}."] if lists else []


def baseline_notes(study: Study, rows: Iterable[TableRow]) -> list[str]:
    """Say what the brackets in the rows mean, or why there are no brackets."""
    if (baseline := study.baseline) is None:
        return []
    if not study.is_comparable:
        return [baseline.left_out]
    if not any(cell.baseline is not None for cell in cells_of(rows)):
        return [f"{baseline.capitalized} prints none of these figures."]
    medians = f"medians of {baseline.runs} runs" if baseline.runs else "medians"
    return [f"In brackets: what {baseline.name} prints, {medians}."]


def test_notes(study: Study, marked: bool, too_few: set[int]) -> list[str]:
    """Say what parentheses and marks mean, and why some marks are missing."""
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
    """Write numbers as a range such as "3 to 5", or as one number if all are equal."""
    found = set(numbers)
    least, most = min(found), max(found)
    return str(least) if least == most else f"{least} to {most}"
