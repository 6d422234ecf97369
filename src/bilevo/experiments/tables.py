"""Tables of stored runs: values with what stands beside them, which `formats` turns into text.

    accuracy      Acc_u and Acc_l as reported, and verified: F at the follower's true answer
    evaluations   of either level
    total         evaluations of both levels, and what the reference saves
    real          F and f where no optimum is known, and evaluations
    effort        what it costs to come near the optimum, and how many runs do
    ranks         average ranks over problems, and effect sizes
    summary       how near median evaluations are to the paper's

Nothing is run here. Medians are over completed runs. Marks are those of the DRC paper: "+" where
the reference is significantly better than the method of the column, "-" where it is worse, "="
where neither. `paper=True` sets beside our figures those that the paper prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bilevo import registry
from bilevo.experiments import samples, statistics
from bilevo.experiments.paper import FLOOR, RUNS, printed, printed_mark
from bilevo.experiments.samples import ACCURACIES, Case, Group, Groups
from bilevo.experiments.statistics import Test

SCIENTIFIC, WHOLE, SHARE, PLAIN = ".2e", ".0f", ".0%", ".2f"
NEAR, SOLVED = 1e-4, (1e-4, 1e-6)
FACTORS = (1.1, 1.5, 2.0)
RANKED = ("Acc_u", "verified", "FEs")


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
    text: str | None = None  # where it is not a number

    @property
    def written(self) -> str:
        """The value alone."""
        if self.text is not None:
            return self.text
        return "-" if np.isnan(self.value) else format(self.value, self.form)


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    title: str
    header: list[str]
    rows: list[list[Cell | str]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is compared with what, and how."""

    reference: str
    paper: bool = False
    floor: float | None = FLOOR
    test: Test = "rank-sum"
    holm: bool = False
    alpha: float = statistics.ALPHA


def make(
    runs: Any,
    kind: str,
    *,
    paper: bool = False,
    reference: str | None = None,
    floor: float | None = FLOOR,
    test: Test = "rank-sum",
    holm: bool = False,
    alpha: float = statistics.ALPHA,
) -> Table:
    """A kind of table of a frame of runs; one that has nothing to show has no rows.

    Parameters
    ----------
    runs
        One row per run (bilevo.experiments.store.runs).
    kind
        One of KINDS.
    paper
        Whether to show what the DRC paper prints.
    reference
        The method that others are compared with: by default drc-cma-es, or else the first.
    floor
        Accuracies below it count as this; None: as they are.
    test
        "rank-sum", or "signed-rank" for pairs of runs of the same number.
    holm
        Whether p values of one indicator are corrected for their number.
    alpha
        The level of significance.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of table {kind!r}; known are {', '.join(KINDS)}")
    if test not in statistics.TESTS:
        raise ValueError(f"unknown test {test!r}; known are {', '.join(statistics.TESTS)}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it should be between 0 and 1")
    groups = samples.grouped(runs)
    against = samples.reference_of(groups, reference)
    return KINDS[kind](groups, Settings(against, paper, floor, test, holm, alpha))


def status(method: str) -> str:
    """How close a method is to its authors' program; what is not registered is its author's own."""
    known = registry.methods().get(method.partition("/")[0])
    return str(known.status if known else registry.Status.OWN)


def label(method: str) -> str:
    """A method's name; a reconstruction is called one wherever its figures stand."""
    rebuilt = status(method) == registry.Status.RECONSTRUCTION
    return f"{method} ({registry.Status.RECONSTRUCTION})" if rebuilt else method


def accuracy(groups: Groups, settings: Settings) -> Table:
    """Distances from the optimum, as reported and verified."""
    forms = dict.fromkeys(ACCURACIES, SCIENTIFIC)
    table = _of_indicators("accuracy", "Accuracy", groups, forms, settings)
    floor = settings.floor
    below = [f"Values below {floor:g} are shown and tested as {floor:g}."] if floor else []
    return replace(table, notes=[*table.notes, *below])


def evaluations(groups: Groups, settings: Settings) -> Table:
    """Evaluations of either level."""
    forms = dict.fromkeys(("FEs_u", "FEs_l"), WHOLE)
    return _of_indicators("evaluations", "Evaluations", groups, forms, settings)


def real(groups: Groups, settings: Settings) -> Table:
    """What was found where no optimum is known."""
    unknown = {
        case: methods
        for case, methods in groups.items()
        if all(len(group.sample("Acc_u")) == 0 for group in methods.values())
    }
    forms = dict.fromkeys(("F", "F_verified", "f"), PLAIN)
    forms |= dict.fromkeys(samples.EVALUATIONS, WHOLE)
    table = _of_indicators("real", "Problems of unknown optimum", unknown, forms, settings)
    return table if unknown else replace(table, notes=["The optima of all problems are known."])


def _of_indicators(
    name: str, title: str, groups: Groups, forms: dict[str, str], settings: Settings
) -> Table:
    """Rows are problems and indicators, columns methods; the last rows count the marks."""
    methods, sized = samples.methods_of(groups), _several_sizes(groups)
    rows: list[list[Cell | str]] = []
    marks: dict[str, dict[tuple[Case, str], str]] = {}
    for indicator in forms:
        found = samples.compared(
            groups,
            indicator,
            settings.reference,
            floor=settings.floor,
            test=settings.test,
            holm=settings.holm,
        )
        marks[indicator] = {key: one.mark(settings.alpha) for key, one in found.items()}
    for case, of in groups.items():
        for indicator, form in forms.items():
            cells = [
                _median(case, method, of.get(method), indicator, form, settings)
                for method in methods
            ]
            if any(not np.isnan(cell.value) for cell in cells):
                marked = (
                    replace(cell, mark=marks[indicator].get((case, method), ""))
                    for cell, method in zip(cells, methods, strict=True)
                )
                rows.append([*_names(case, sized), indicator, *_best(marked)])
    rows += _counts(groups, marks, methods, sized, settings)
    header = [*_heads(sized), "indicator", *map(label, methods)]
    if not rows:
        return Table(name, title, header, [], [f"No run has any of {', '.join(forms)}."])
    notes = [*_notes(groups, settings), _test_note(settings)]
    return Table(name, title + _size(groups), header, rows, notes)


def _median(
    case: Case, method: str, group: Group | None, indicator: str, form: str, settings: Settings
) -> Cell:
    theirs = printed(*case, method, indicator) if settings.paper else None
    if group is None:
        return Cell(np.nan, form, paper=theirs)
    sample = group.sample(indicator, settings.floor)
    spread = statistics.spread(sample)
    value = statistics.median(sample)
    return Cell(value, form, None if np.isnan(spread) else spread, paper=theirs)


def _counts(
    groups: Groups,
    marks: dict[str, dict[tuple[Case, str], str]],
    methods: list[str],
    sized: bool,
    settings: Settings,
) -> list[list[Cell | str]]:
    """How often the reference is better, worse and alike, in the paper's order."""
    rows: list[list[Cell | str]] = []
    for indicator, found in marks.items():
        line: list[Cell | str] = []
        for method in methods:
            ours = [found[case, method] for case in groups if (case, method) in found]
            theirs = [
                mark
                for case in groups
                if (mark := printed_mark(*case, method, indicator)) is not None
            ]
            text = _tally(ours) if ours else ""
            if settings.paper and settings.reference == samples.REFERENCE and theirs and ours:
                text += f" [{_tally(theirs)}]"
            line.append(Cell(ours.count("+") if ours else np.nan, text=text))
        if found:
            rows.append(["+/-/=", *[""] * sized, indicator, *line])
    return rows


def _tally(marks: list[str]) -> str:
    return "/".join(str(marks.count(mark)) for mark in "+-=")


def _names(case: Case, sized: bool) -> list[str]:
    return [case.problem, case.size] if sized else [case.problem]


def _heads(sized: bool) -> list[str]:
    return ["problem", "(m, n)"] if sized else ["problem"]


def _several_sizes(groups: Groups) -> bool:
    return len({case.size for case in groups}) > 1


def _size(groups: Groups) -> str:
    sizes = {case.size for case in groups}
    return f" at (m, n) = {sizes.pop()}" if len(sizes) == 1 else ""


def _best(cells: Iterable[Cell], largest: bool = False) -> list[Cell]:
    """With the best marked: those that are written like the smallest value."""
    line = list(cells)
    known = [cell for cell in line if not np.isnan(cell.value)]
    if len(known) < 2:
        return line
    best = (max if largest else min)(known, key=lambda cell: cell.value)
    return [replace(cell, best=cell in known and cell.written == best.written) for cell in line]


def _notes(groups: Groups, settings: Settings) -> list[str]:
    """How many runs there are, what is wrong with some, and what brackets mean."""
    counts: dict[str, list[int]] = {}
    trouble = []
    for case, methods in groups.items():
        for method, group in methods.items():
            counts.setdefault(method, []).append(len(group))
            for number, what in ((group.failed, "failed"), (group.infeasible, "infeasible")):
                if number:
                    trouble.append(
                        f"{method} on {' '.join(_names(case, _several_sizes(groups)))}: "
                        f"{number} of {len(group) + group.failed} runs {what}"
                    )
    ranges = {method: _range(numbers) for method, numbers in counts.items()}
    usual = max(dict.fromkeys(ranges.values()), key=list(ranges.values()).count)
    other = [f"{method} {text}" for method, text in ranges.items() if text != usual]
    notes = [f"Medians of {usual} runs" + "".join(f"; {text}" for text in other) + "."]
    if trouble:
        notes.append("; ".join(trouble) + ".")
    if settings.paper:
        notes.append(f"In brackets: what the DRC paper prints, medians of {RUNS} runs.")
    return notes


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _test_note(settings: Settings) -> str:
    corrected = ", Holm's correction" if settings.holm else ""
    return (
        "In parentheses: interquartile ranges. "
        f"+, - and =: {settings.reference} is significantly better, worse, neither "
        f"(Wilcoxon {settings.test} test at {settings.alpha:g}{corrected})."
    )


KINDS: dict[str, Callable[[Groups, Settings], Table]] = {
    "accuracy": accuracy,
    "evaluations": evaluations,
    "real": real,
}
