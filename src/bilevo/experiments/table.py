"""What tables are made of: cells, names of methods and sizes, and notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from bilevo import registry
from bilevo.experiments.paper import FLOOR, RUNS
from bilevo.experiments.samples import Case, Groups
from bilevo.experiments.statistics import ALPHA, Test

SCIENTIFIC, WHOLE, SHARE, PLAIN = ".2e", ".0f", ".0%", ".2f"  # how figures are written
SIGNS = "+/-/="  # better, worse and alike, in the paper's order


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
    text: str | None = None  # what is written instead of the value

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
    paper: bool = False
    floor: float | None = FLOOR
    test: Test = "rank-sum"
    holm: bool = False
    alpha: float = ALPHA


@cache  # looking through what is installed is slow
def status(method: str) -> str:
    """How close a method is to its authors' program; what is not registered is its author's own."""
    known = registry.methods().get(method.partition("/")[0])
    return str(known.status if known else registry.Status.OWN)


def label(method: str) -> str:
    """A method's name; a reconstruction is called one wherever its figures stand."""
    rebuilt = status(method) == registry.Status.RECONSTRUCTION
    return f"{method} ({registry.Status.RECONSTRUCTION})" if rebuilt else method


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


def with_best(cells: Iterable[Cell], largest: bool = False) -> list[Cell]:
    """A row with its best cells marked: all that are written like the best one."""
    line = list(cells)
    known = [cell for cell in line if np.isfinite(cell.value)]
    if sum(not np.isnan(cell.value) for cell in line) < 2 or not known:
        return line
    best = (max if largest else min)(known, key=lambda cell: cell.value)
    if largest and best.value == 0:
        return line
    return [replace(cell, best=cell.written == best.written) for cell in line]


def run_notes(groups: Groups, settings: Settings, what: str = "Medians") -> list[str]:
    """How many runs there are, what is wrong with some, and what brackets mean."""
    counts: dict[str, list[int]] = {}
    for methods in groups.values():
        for method, group in methods.items():
            counts.setdefault(method, []).append(len(group))
    ranges = {method: _range(numbers) for method, numbers in counts.items()}
    usual = max(dict.fromkeys(ranges.values()), key=list(ranges.values()).count)
    other = [f"; {label(method)} {text}" for method, text in ranges.items() if text != usual]
    notes = [f"{what} of {usual} runs{''.join(other)}."]
    notes += _trouble(groups, "failed", "Runs that failed and are left out")
    notes += _trouble(groups, "infeasible", "Runs that ended infeasible")
    if settings.paper:
        notes.append(f"In brackets: what the DRC paper prints, medians of {RUNS} runs.")
    return notes


def _trouble(groups: Groups, attribute: str, what: str) -> list[str]:
    """How many runs of which method on which problem it befell."""
    sized = several_sizes(groups)
    found: dict[str, list[str]] = {}
    for case, methods in groups.items():
        for method, group in methods.items():
            if number := getattr(group, attribute):
                name = " ".join(case_names(case, sized))
                found.setdefault(label(method), []).append(f"{number} on {name}")
    lists = [f"{method} {', '.join(numbers)}" for method, numbers in found.items()]
    return [f"{what}: {'; '.join(lists)}."] if lists else []


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def test_note(settings: Settings) -> str:
    """What parentheses and marks mean."""
    corrected = ", with Holm's correction" if settings.holm else ""
    return (
        f"In parentheses: interquartile ranges. {SIGNS}: {settings.reference} is significantly "
        f"better, worse, neither (Wilcoxon {settings.test} test at {settings.alpha:g}{corrected})."
    )
