"""The parts of tables: cells, settings, names of methods and sizes, and notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bilevo import registry
from bilevo.lab.analysis.baseline import Baseline
from bilevo.lab.analysis.samples import FLOOR, Case, Groups, base_method, registered_methods
from bilevo.lab.analysis.statistics import ALPHA, Test
from bilevo.lab.store import FAILED, IMPORTED

# How figures are written: accuracies, counts, shares, ratios and ranks, values of problems.
SCIENTIFIC, WHOLE, SHARE, PLAIN, GENERAL = ".2e", ".0f", ".0%", ".2f", ".6g"
SIGNS = "+/-/="  # better, worse and alike, in the DRC paper's order
DOUBT = "!"  # beside a figure that most of its runs do not bear out


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure and how it is written, with what stands beside it; NaN where there is none."""

    value: float
    form: str = SCIENTIFIC
    spread: float | None = None  # the interquartile range
    mark: str = ""  # "+", "=" or "-"
    saved: float | None = None  # the share of evaluations that the reference needs less
    baseline: float | None = None  # the baseline's median
    best: bool = False  # of its row
    doubt: bool = False  # too many of its runs gave no good answer; never the best
    text: str | None = None  # what is written instead of the value
    named: bool = False  # whether the text holds a name, which may be anybody's

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
class Settings:
    """What is compared with what, and how."""

    reference: str
    statuses: Mapping[str, str]  # of methods
    limit: int = 0  # on the evaluations of every run; 0: there is none
    baseline: Baseline | None = None
    cut_off: bool = False  # whether a limit ended runs
    to_target: bool = True  # whether runs ended at the known optimum
    floor: float | None = FLOOR
    test: Test = "rank-sum"
    holm: bool = False
    alpha: float = ALPHA

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

    @property
    def other_ends(self) -> str:
        """Say why a baseline's figures do not stand beside those of the runs."""
        if self.baseline is None:
            return ""
        name, ended = self.baseline.name, self.baseline.ended
        return f"The runs of {name} {ended}; these ended otherwise: its figures are left out."

    def beside(self, case: Case, method: str, indicator: str) -> float | None:
        """Return the baseline's median that may stand beside ours."""
        if self.baseline is None or not self.is_comparable:
            return None
        return self.baseline.medians.get((case, method, indicator))

    def label(self, method: str) -> str:
        """Return the name that a method has in tables."""
        return method_label(method, self.statuses[method])


def statuses(runs: Any) -> dict[str, str]:
    """Tell how close the methods of a frame of runs are to their authors' programs."""
    done = runs.filter(runs["status"].fill_null("") != FAILED)
    ours = set(done.filter(done["status"].fill_null("") != IMPORTED)["method"])
    foreign = set(done["method"]) - ours
    return {
        method: IMPORTED if method in foreign else _registered_status(method)
        for method in runs["method"].unique(maintain_order=True)
    }


def _registered_status(method: str) -> str:
    """Return a method's status; one that is not registered is its author's own."""
    known = registered_methods().get(base_method(method))
    return str(known.status if known else registry.Status.OWN)


def method_labels(runs: Any) -> dict[str, str]:
    """Return the names that methods of a frame of runs have in tables and figures."""
    return {method: method_label(method, status) for method, status in statuses(runs).items()}


def method_label(method: str, status: str) -> str:
    """Return a method's name; a reconstruction is called one wherever its figures stand."""
    rebuilt = status == registry.Status.RECONSTRUCTION
    return f"{method} ({status})" if rebuilt else method


def case_names(case: Case, sized: bool) -> list[str]:
    """Return what a row begins with; the size only where there are several."""
    return [case.problem, case.size] if sized else [case.problem]


def case_heads(sized: bool) -> list[str]:
    return ["problem", "(m, n)"] if sized else ["problem"]


def several_sizes(groups: Groups) -> bool:
    return len({case.size for case in groups}) > 1


def titled(title: str, groups: Groups) -> str:
    """Add the size to a title where there is one for all."""
    sizes = {case.size for case in groups}
    return f"{title} at (m, n) = {sizes.pop()}" if len(sizes) == 1 else title


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


def run_notes(groups: Groups, settings: Settings, what: str = "Medians") -> list[str]:
    """Say how many runs there are, and how many failed or ended infeasible."""
    counts: dict[str, list[int]] = {}
    for methods in groups.values():
        for method, group in methods.items():
            counts.setdefault(method, []).append(len(group))
    ranges = {method: span(numbers) for method, numbers in counts.items()}
    usual = max(dict.fromkeys(ranges.values()), key=list(ranges.values()).count)
    other = [
        f"; {settings.label(method)} {text}" for method, text in ranges.items() if text != usual
    ]
    unit = "run" if usual == "1" else "runs"
    notes = [f"{what} of {usual} {unit}{''.join(other)}."]
    notes += _trouble(groups, settings, "failed", "Runs that failed and are left out")
    notes += _trouble(groups, settings, "infeasible", "Runs that ended infeasible")
    return notes


def standing_notes(groups: Groups, settings: Settings) -> list[str]:
    """Say how runs without a good answer count where answers are compared."""
    what = "Runs that are infeasible where the follower really answers"
    refuted = _trouble(groups, settings, "refuted", what)
    every = [group for methods in groups.values() for group in methods.values()]
    if not any(group.failed or group.infeasible or group.refuted for group in every):
        return []
    rule = "Medians are as completed runs report them; in tests, in ranks and for the best of a "
    return [*refuted, f"{rule}row, the answers of failed and infeasible runs are the worst."]


def baseline_notes(shown: bool, settings: Settings) -> list[str]:
    """Say what brackets mean, or why there are none."""
    if (baseline := settings.baseline) is None:
        return []
    if not settings.is_comparable:
        return [settings.other_ends]
    if not shown:
        return [f"{baseline.capitalized} prints none of these figures."]
    medians = f"medians of {baseline.runs} runs" if baseline.runs else "medians"
    return [f"In brackets: what {baseline.name} prints, {medians}."]


def _trouble(groups: Groups, settings: Settings, attribute: str, what: str) -> list[str]:
    """Say how many runs of which method on which problem have an attribute."""
    sized = several_sizes(groups)
    found: dict[str, list[str]] = {}
    for case, methods in groups.items():
        for method, group in methods.items():
            if number := getattr(group, attribute):
                name = " ".join(case_names(case, sized))
                found.setdefault(settings.label(method), []).append(f"{number} on {name}")
    lists = [f"{method} {', '.join(numbers)}" for method, numbers in found.items()]
    return [f"{what}: {'; '.join(lists)}."] if lists else []


def span(numbers: Iterable[int]) -> str:
    """Write a number, or from which to which they are."""
    ordered = sorted(numbers)
    least, most = ordered[0], ordered[-1]
    return str(least) if least == most else f"{least} to {most}"


def test_notes(settings: Settings, marked: bool, too_few: set[int]) -> list[str]:
    """Say what parentheses and marks mean, and why some are missing."""
    corrected = ", with Holm's correction" if settings.holm else ""
    paired = "; pairs are by number only" if settings.test == "signed-rank" else ""
    notes = ["In parentheses: interquartile ranges."]
    if marked:
        notes.append(
            f"{SIGNS}: {settings.reference} is significantly better, worse, neither (Wilcoxon "
            f"{settings.test} test at {settings.alpha:g}{corrected}{paired})."
        )
    if too_few:
        notes.append(f"Samples of {span(too_few)} are too few for a test at {settings.alpha:g}.")
    return notes
