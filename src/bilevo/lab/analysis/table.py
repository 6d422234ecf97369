"""What tables are made of: cells, names of methods and sizes, and notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from bilevo import registry
from bilevo.lab.analysis.paper import FLOOR, RUNS
from bilevo.lab.analysis.samples import Case, Groups
from bilevo.lab.analysis.statistics import ALPHA, Test
from bilevo.lab.store import FAILED, IMPORTED

# How figures are written: accuracies, counts, shares, ratios and ranks, values of problems.
SCIENTIFIC, WHOLE, SHARE, PLAIN, GENERAL = ".2e", ".0f", ".0%", ".2f", ".6g"
SIGNS = "+/-/="  # better, worse and alike, in the paper's order
DOUBT = "!"  # beside a figure that is not what it looks like
NOT_PRINTED = "The DRC paper prints none of these figures."
OTHER_ENDS = (
    "No limit cut off the DRC paper's runs, and they ended at the known optimum: its figures do "
    "not stand beside these."
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure and how it is written, with what stands beside it; NaN where there is none."""

    value: float
    form: str = SCIENTIFIC
    spread: float | None = None  # the interquartile range
    mark: str = ""  # "+", "=" or "-"
    saved: float | None = None  # the share of evaluations that the reference needs less
    paper: float | None = None  # what the DRC paper prints for the value
    best: bool = False  # of its row
    doubt: bool = False  # too many of its runs gave no good answer; never the best
    text: str | None = None  # what is written instead of the value
    named: bool = False  # whether the text holds a name, which may be anybody's

    @property
    def written(self) -> str:
        """The value alone."""
        if self.text is not None:
            return self.text
        return "-" if np.isnan(self.value) else format(self.value, self.form)


Row = list[Cell | str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of names and cells, and what is to be said of them."""

    name: str
    title: str
    header: list[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    closing: int = 0  # last rows that sum up the others


@dataclass(frozen=True, slots=True)
class Settings:
    """What is compared with what, and how."""

    reference: str
    statuses: Mapping[str, str]  # of methods
    limit: int = 0  # on the evaluations of every run; 0: there is none
    paper: bool = False  # whether the paper's figures are asked for
    cut_off: bool = False  # whether a limit ended runs
    to_target: bool = True  # whether runs ended at the known optimum
    floor: float | None = FLOOR
    test: Test = "rank-sum"
    holm: bool = False
    alpha: float = ALPHA

    @property
    def like_paper(self) -> bool:
        """Say whether runs ended as the paper's did."""
        return self.to_target and not self.cut_off

    @property
    def beside(self) -> bool:
        """Whether the paper's figures stand beside ours."""
        return self.paper and self.like_paper

    def label(self, method: str) -> str:
        return label(method, self.statuses[method])


def statuses(runs: Any) -> dict[str, str]:
    """How close the methods of a frame of runs are to their authors' programs."""
    done = runs.filter(runs["status"].fill_null("") != FAILED)
    ours = set(done.filter(done["status"].fill_null("") != IMPORTED)["method"])
    foreign = set(done["method"]) - ours
    return {
        method: IMPORTED if method in foreign else _registered(method)
        for method in runs["method"].unique(maintain_order=True)
    }


@cache  # looking through what is installed is slow
def _registered(method: str) -> str:
    """What is not registered is its author's own."""
    known = registry.methods().get(method.partition("/")[0])
    return str(known.status if known else registry.Status.OWN)


def labels(runs: Any) -> dict[str, str]:
    """The names that methods of a frame of runs have in tables and figures."""
    return {method: label(method, status) for method, status in statuses(runs).items()}


def label(method: str, status: str) -> str:
    """A method's name; a reconstruction is called one wherever its figures stand."""
    rebuilt = status == registry.Status.RECONSTRUCTION
    return f"{method} ({status})" if rebuilt else method


def case_names(case: Case, sized: bool) -> list[str]:
    """What a row begins with; its size only where there are several."""
    return [case.problem, case.size] if sized else [case.problem]


def case_heads(sized: bool) -> list[str]:
    return ["problem", "(m, n)"] if sized else ["problem"]


def several_sizes(groups: Groups) -> bool:
    return len({case.size for case in groups}) > 1


def titled(title: str, groups: Groups) -> str:
    """With the size where there is one for all."""
    sizes = {case.size for case in groups}
    return f"{title} at (m, n) = {sizes.pop()}" if len(sizes) == 1 else title


def with_best(
    cells: Iterable[Cell], by: Sequence[float] | None = None, largest: bool = False
) -> list[Cell]:
    """A row with its best cells marked: all whose values are written like the best one.

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
    """How many runs there are, and what is wrong with some."""
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
    """What becomes of runs without a good answer where answers are compared."""
    what = "Runs that are infeasible where the follower really answers"
    refuted = _trouble(groups, settings, "refuted", what)
    every = [group for methods in groups.values() for group in methods.values()]
    if not any(group.failed or group.infeasible or group.refuted for group in every):
        return []
    rule = "Medians are as completed runs report them; in tests, in ranks and for the best of a "
    return [*refuted, f"{rule}row, the answers of failed and infeasible runs are the worst."]


def paper_notes(rows: Iterable[Row], settings: Settings) -> list[str]:
    """What brackets mean, or why there are none."""
    if not settings.paper:
        return []
    if not settings.like_paper:
        return [OTHER_ENDS]
    cells = [cell for row in rows for cell in row if isinstance(cell, Cell)]
    if any(cell.paper is not None for cell in cells):
        return [f"In brackets: what the DRC paper prints, medians of {RUNS} runs."]
    return [NOT_PRINTED]


def _trouble(groups: Groups, settings: Settings, attribute: str, what: str) -> list[str]:
    """How many runs of which method on which problem it befell."""
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
    """A number, or from which to which they are."""
    ordered = sorted(numbers)
    least, most = ordered[0], ordered[-1]
    return str(least) if least == most else f"{least} to {most}"


def test_notes(settings: Settings, marked: bool, too_few: set[int]) -> list[str]:
    """What parentheses and marks mean, and why some are missing."""
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
