"""The best methods of each problem: who is best, in what, and by how much.

On each problem, the methods' answers are compared first, and then the evaluations of those methods
whose answers are not worse. In both steps, the method with the best median is compared with each of
the others. A method that is not significantly worse is as good. So a problem has one best method,
or several between which there is no significant difference.

Many problems are tested at once. The p values are corrected by the procedure of Y. Benjamini and
Y. Hochberg (1995), so that at most a share alpha of the differences that are named is expected to
be false. A test of a few runs cannot be significant; such a problem is undecided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from bilevo.lab.analysis import samples, statistics
from bilevo.lab.analysis import table_parts as parts
from bilevo.lab.analysis.problem_groups import problem_groups
from bilevo.lab.analysis.samples import Case, Group
from bilevo.lab.analysis.table_parts import (
    GENERAL,
    SCIENTIFIC,
    WHOLE,
    Cell,
    Study,
    Table,
    TableRow,
)
from bilevo.lab.campaign import NEAR

COST = "FEs"
FACTOR = ".3g"  # The format of factors, which may be huge.
QUALITY = {True: ("verified", "Acc_u"), False: ("F_verified", "F")}  # by: is the optimum known?


class Finding(NamedTuple):
    """What was found on a problem."""

    case: Case
    compared: tuple[str, ...]  # the methods with answers
    best: tuple[str, ...]  # one method, or several that do not differ significantly
    by: str = ""  # the indicator in which a single best method is better; empty if there is none
    next: str = ""  # the best of the others in this indicator
    ours: float = np.nan  # the median of the best
    theirs: float = np.nan  # the median of the next
    undecided: bool = False  # whether there are too few runs for a test
    missed: bool = False  # whether no method comes near the optimum in most of its runs

    @property
    def winner(self) -> str | None:
        return self.best[0] if self.by else None

    @property
    def factor(self) -> float:
        """Return how many times as large the next median is; NaN for F, inf if the next fails."""
        if self.by not in (*samples.ACCURACIES, COST):
            return np.nan
        return self.theirs / self.ours if self.ours > 0 else np.inf


def find_best(study: Study) -> list[Finding]:
    """Find the best methods of each problem on which two methods or more have answers."""
    quality = {case: _quality(of) for case, of in study.groups.items()}
    answering = {case: _answering(study, case, by) for case, by in quality.items()}
    fields = {case: names for case, names in answering.items() if len(names) > 1}
    answers = _compare(study, fields, quality)
    missing = {case: _missing(study, case, quality[case]) for case in fields}
    alike = {
        case: list(found.best)
        for case, found in answers.items()
        if len(found.best) > 1 and not study.limit and not missing[case] & set(found.best)
    }
    costs = _compare(study, alike, dict.fromkeys(alike, COST))
    both = {case: costs.get(case, found) for case, found in answers.items()}
    return [
        found._replace(compared=tuple(fields[case]), missed=missing[case] == set(fields[case]))
        for case, found in both.items()
    ]


def _quality(of: dict[str, Group]) -> str:
    """Return the indicator of answers that all methods of a case have."""
    known = any(np.isfinite(group.F_star) for group in of.values())
    first, second = QUALITY[known]
    return first if all(first in group.known for group in of.values()) else second


def _answering(study: Study, case: Case, indicator: str) -> list[str]:
    """Return the methods of a case that have values of an indicator, failures included."""
    of = study.groups[case]
    return [name for name, group in of.items() if len(group.standing(indicator, study.floor))]


def _compare(
    study: Study, fields: dict[Case, list[str]], by: dict[Case, str]
) -> dict[Case, Finding]:
    """Compare these methods on each case by one indicator; the tests of all cases are a family."""
    leaders: dict[Case, str] = {}
    tests: samples.Comparisons = {}
    small: set[Case] = set()
    for case, names in fields.items():
        of = {name: study.groups[case][name] for name in names}
        medians = {name: _median(study, group, by[case]) for name, group in of.items()}
        leaders[case] = min(names, key=medians.__getitem__)
        how: dict[str, Any] = {x: getattr(study, x) for x in ("floor", "test", "alpha")}
        found, too_few = samples.compare_all({case: of}, by[case], leaders[case], **how)
        tests |= found
        small |= {case} if too_few else set()
    corrected = statistics.false_discovery([test.p for test in tests.values()])
    worse = {
        key
        for (key, test), p in zip(tests.items(), corrected, strict=True)
        if p < study.alpha and test.excess > 0
    }
    return {
        case: _finding(study, case, by[case], leader, fields[case], worse)._replace(
            undecided=case in small
        )
        for case, leader in leaders.items()
    }


def _finding(
    study: Study, case: Case, by: str, leader: str, names: list[str], worse: set[tuple[Case, str]]
) -> Finding:
    others = [name for name in names if name != leader]
    equal = [name for name in others if (case, name) not in worse]
    if equal:
        best = tuple(name for name in names if name == leader or name in equal)
        return Finding(case, tuple(names), best)
    medians = {name: _median(study, study.groups[case][name], by) for name in names}
    second = min(others, key=medians.__getitem__)
    return Finding(case, tuple(names), (leader,), by, second, medians[leader], medians[second])


def _median(study: Study, group: Group, indicator: str) -> float:
    return statistics.median(group.standing(indicator, study.floor))


def _missing(study: Study, case: Case, indicator: str) -> set[str]:
    """Return the methods of which most runs have no good answer: their evaluations say nothing."""
    most = NEAR if indicator in samples.ACCURACIES else np.finfo(float).max
    medians = {name: _median(study, of, indicator) for name, of in study.groups[case].items()}
    return {name for name, median in medians.items() if median > most}


def best_methods(study: Study) -> Table:
    """Show the best methods of each problem, and by how much a single best one is better."""
    header = [*study.heads, "best", "by", "median", "next", "its median", "times"]
    rows: list[TableRow] = []
    for found in find_best(study):
        best = ", ".join(map(study.label, found.best))
        line: TableRow = [*study.place(found.case.problem, found.case.size), best]
        if found.winner is None:
            none = "undecided" if found.undecided else "no difference"
            dashes: TableRow = [Cell(np.nan), "-", Cell(np.nan), Cell(np.nan)]
            rows.append([*line, none, *dashes])
            continue
        form = forms_of(found.by)
        medians = Cell(found.ours, form), Cell(found.theirs, form)
        times = Cell(found.factor, FACTOR)
        after: TableRow = [found.by, medians[0], study.label(found.next), medians[1], times]
        rows.append([*line, *after])
    title = study.titled("The best methods")
    return Table("best", title, header, rows, how_best(study) if rows else ["Nothing to compare."])


def single_best(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return what each method is the single best on, the method that is best most often first."""
    wins: dict[str, list[Finding]] = {}
    for found in findings:
        if found.winner is not None:
            wins.setdefault(found.winner, []).append(found)
    return dict(sorted(wins.items(), key=lambda pair: -len(pair[1])))


def best_by_group(findings: Iterable[Finding]) -> dict[str, tuple[int, dict[str, int]]]:
    """Return for each group of problems how many it has, and on how many each method is best."""
    of_case = {found.case: found for found in findings}
    wins = {
        name: single_best(of_case[case] for case in cases)
        for name, cases in problem_groups(of_case).items()
    }
    sizes = {name: len(cases) for name, cases in problem_groups(of_case).items()}
    return {
        name: (sizes[name], {one: len(won) for one, won in of.items()}) for name, of in wins.items()
    }


def best_in_groups(study: Study) -> Table:
    """Show on how many problems of each group each method is the single best."""
    findings = find_best(study)
    methods = list(single_best(findings))
    header = ["group", "problems", *map(study.label, methods), "no single best"]
    groups = best_by_group(findings)
    rows: list[TableRow] = []
    for name, (cases, wins) in groups.items() if len(groups) > 1 and methods else ():
        counts = [wins.get(method, 0) for method in methods]
        cells = parts.with_best([Cell(count, WHOLE) for count in counts], largest=True)
        rest = Cell(cases - sum(counts), WHOLE)
        rows.append([name, Cell(cases, WHOLE), *cells, rest])
    note = "On how many problems of a group a method is significantly better than all others."
    return Table("groups", "The best methods by group of problems", header, rows, [note])


def forms_of(indicator: str) -> str:
    """Return the format of an indicator's medians."""
    if indicator == COST:
        return WHOLE
    return SCIENTIFIC if indicator in samples.ACCURACIES else GENERAL


def how_best(study: Study) -> list[str]:
    """Say how the best methods are found."""
    said = [
        "On each problem, answers are compared first: |F - F*| at the follower's true answer, or "
        "as reported where not all methods were verified; F where no optimum is known.",
        f"The method with the best median is compared with each other one (Wilcoxon {study.test} "
        f"test at {study.alpha:g}, corrected for the number of comparisons by Benjamini and "
        "Hochberg). A method is best if it is significantly better than all others.",
    ]
    if study.limit:
        said.append(f"All runs had max_evals = {study.limit:,}: evaluations are not compared.")
    else:
        said.append(
            "Where answers do not differ, evaluations of both levels are compared, unless most "
            f"runs of such a method are farther than {NEAR:.0e} from the optimum."
        )
    if study.floor:
        said.append(f"Accuracies below {study.floor:g} count as equal.")
    return said
