"""Samples of an indicator by problem, size and method, and their comparison.

There are two views of a sample. Tables show what completed runs report (`sample`), even if they are
infeasible. Tests, ranks, effect sizes and the best of a row use `standing`, in which the answer of
an infeasible or failed run is inf. Evaluations are those of completed runs in both views. A run
that found no finite pair has the answer inf in both views. The floor is for accuracies only:
differences below it mean nothing, so accuracies below it count as equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from bilevo import problems, registry
from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.budget import StopReason
from bilevo.lab.analysis import statistics
from bilevo.lab.analysis.statistics import Comparison, Ranking, Test
from bilevo.lab.frames import pl
from bilevo.lab.store import FAILED

ACCURACIES = ("Acc_u", "Acc_l", "verified")
QUALITIES = (*ACCURACIES, "F", "F_verified", "f")  # The indicators of an answer.
EVALUATIONS = ("FEs_u", "FEs_l", "FEs")
VERIFIED = ("verified", "F_verified")
STORED_AS = {"FEs_u": "nfev_upper", "FEs_l": "nfev_lower"}  # FEs is the sum of both.
REFERENCE = "drc-cma-es"
FLOOR = 1e-6  # Accuracies below the floor count as the floor.
F_ERROR, F_LOWER_ERROR = 1e-6, 2e-6  # The largest errors of a solved run in verified F and in f.
DECIMALS = "0123456789"
VARIANT = re.compile(r"smd\d+(-.+)")  # A variant of SMD, such as smd1-rot or smd1-noise6.


class Case(NamedTuple):
    """A problem of one size."""

    problem: str
    m: int
    n: int

    def __str__(self) -> str:
        return f"{self.problem} {self.size}"

    @property
    def size(self) -> str:
        return f"({self.m}, {self.n})"

    @property
    def suite(self) -> str:
        """Return the problem's name without its number: smd for smd10, smd-rot for smd10-rot.

        Problems of the literature are one suite, because their names end with years and examples;
        so are those of roads, because their names end with cases.
        """
        for suite, members in (
            ("literature", problems.literature.CLASSES),
            ("roads", problems.roads.BEST),
        ):
            if self.problem in members:
                return suite
        variant = VARIANT.fullmatch(self.problem)
        return f"smd{variant[1]}" if variant else self.problem.rstrip(DECIMALS)

    @property
    def order(self) -> tuple[int, str, int, int, int]:
        """Return a sort key: registered problems first, prob2 before prob10, small sizes first."""
        names = problems.names()
        place = names.index(self.problem) if self.problem in names else len(names)
        word = self.problem.rstrip(DECIMALS)
        number = int(self.problem[len(word) :][:9] or 0)
        return place, word, number, self.m, self.n


@dataclass(frozen=True, slots=True)
class Group:
    """The completed runs of a method on a case, by column, and its failed runs by `number`."""

    columns: dict[str, FloatArray]
    failures: FloatArray  # `number` of each failed run
    F_star: float = np.nan  # NaN if it is not known
    known: frozenset[str] = frozenset()  # qualities in which a failed run counts as the worst

    def __len__(self) -> int:
        return len(self.columns["number"])

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def attempts(self) -> int:
        """Return the number of all runs, completed or failed."""
        return len(self) + self.failed

    def values(self, indicator: str, floor: float | None = None) -> FloatArray:
        """Return the value of each completed run, or NaN if it has none, with the floor applied."""
        if indicator == "FEs":
            return self.columns["nfev_upper"] + self.columns["nfev_lower"]
        found = self._column(STORED_AS.get(indicator, indicator))
        if indicator in self.known:
            found = np.where(self.lost & np.isnan(found), np.inf, found)
        return np.maximum(found, floor) if indicator in ACCURACIES and floor else found

    def sample(self, indicator: str, floor: float | None = None) -> FloatArray:
        """Return the values that completed runs report, without missing values."""
        values = self.values(indicator, floor)
        return values[~np.isnan(values)]

    def numbered_standing(
        self, indicator: str, floor: float | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the `number` of each run, and the value that the run has in comparisons."""
        numbers, values = self.columns["number"], self.values(indicator, floor)
        if indicator in self.known:
            wrong = self._violates("violation")
            if indicator in VERIFIED:
                wrong = wrong | self._violates("violation_verified")
            values = np.append(np.where(wrong, np.inf, values), np.full(self.failed, np.inf))
            numbers = np.append(numbers, self.failures)
        there = ~np.isnan(values)
        return numbers[there], values[there]

    def standing(self, indicator: str, floor: float | None = None) -> FloatArray:
        """Return the values that runs have in comparisons; see the docstring of this module."""
        return self.numbered_standing(indicator, floor)[1]

    @property
    def lost(self) -> BoolArray:
        """Tell which runs found no finite pair; their answers count as the worst."""
        return np.isposinf(self.columns["violation"])

    @property
    def infeasible(self) -> int:
        return int(self._violates("violation").sum())

    @property
    def refuted(self) -> int:
        """Count the feasible runs that are infeasible at the follower's true answer."""
        return int(np.sum(self._violates("violation_verified") & ~self._violates("violation")))

    @property
    def solved(self) -> int:
        """Count the runs that found the verified optimum.

        In such a run F at the follower's true answer is within F_ERROR of F*, and the reported f is
        within F_LOWER_ERROR of f*. F alone can be right although the follower is wrong.
        """
        good = (self.values("verified") <= F_ERROR) & ~self._violates("violation")
        near = np.abs(self._column("f") - self._column("f_star")) <= F_LOWER_ERROR
        return int(np.sum(good & near))

    def share_within(self, indicator: str, accuracy: float) -> float:
        """Return the share of all runs that reach an accuracy, or NaN if no accuracy is known."""
        if indicator not in self.known:
            return np.nan
        return float(np.sum(self.standing(indicator) <= accuracy) / self.attempts)

    @property
    def until_near(self) -> float:
        """Return the cost of a success: all evaluations, divided by the runs that came near F*.

        The evaluations of a run count until it came near. The cost is inf if no run came near, and
        NaN if the stored runs do not say when they came near.
        """
        near = self._column("near")
        if np.isnan(near).any():
            return np.nan
        spent = np.where(near > 0, near, self.values("FEs"))
        return float(spent.sum() / np.sum(near > 0)) if near.any() else np.inf

    def _violates(self, column: str) -> BoolArray:
        return self._column(column) > 0

    def _column(self, name: str) -> FloatArray:
        found = self.columns.get(name)
        return np.full(len(self), np.nan) if found is None else found


Groups = dict[Case, dict[str, Group]]  # cases and methods in the order of tables


def grouped(runs: pl.DataFrame) -> Groups:
    """Group a frame of runs by case and method."""
    if runs.is_empty():
        raise ValueError("there are no runs")
    methods = ordered_methods(runs["method"].unique(maintain_order=True))
    numbers = runs.select(pl.selectors.numeric())
    columns = {one.name: one.cast(float).fill_null(np.nan).to_numpy() for one in numbers}
    failed = (runs["status"].fill_null("") == FAILED).to_numpy()
    keys = runs.select("problem", "m", "n", "method").with_row_index("row")
    found: Groups = {}
    for problem, m, n, method, rows in keys.group_by(*keys.columns[1:]).agg("row").iter_rows():
        here = np.sort(rows)
        done, lost = here[~failed[here]], here[failed[here]]
        completed = {name: column[done] for name, column in columns.items()}
        optima = columns["F_star"][here] if "F_star" in columns else np.empty(0)
        optimum = next((float(F) for F in optima if np.isfinite(F)), np.nan)
        group = Group(completed, columns["number"][lost], optimum)
        found.setdefault(Case(problem, m, n), {})[method] = group
    return {
        case: _with_known({name: found[case][name] for name in methods if name in found[case]})
        for case in sorted(found, key=lambda case: case.order)
    }


def _with_known(of: dict[str, Group]) -> dict[str, Group]:
    """Return the groups of a case by method, with `known` set to the qualities that a group has.

    A group in which no run found a pair gets the qualities of all groups of the case.
    """
    own = {name: {one for one in QUALITIES if len(group.sample(one))} for name, group in of.items()}
    case = set().union({"F", "f"}, *own.values())
    case |= {"Acc_u", "Acc_l"} if _has_optimum(of) else set()
    return {
        name: replace(group, known=frozenset(case if group.lost.all() else own[name]))
        for name, group in of.items()
    }


def _has_optimum(of: dict[str, Group]) -> bool:
    return any(np.isfinite(group.F_star) for group in of.values())


@cache  # searching all installed packages is slow
def registered_methods() -> dict[str, registry.Method]:
    """Return the registered methods, in the order of tables and colours."""
    return registry.methods()


def ordered_methods(methods: Iterable[str]) -> list[str]:
    """Sort methods: registered ones first, each before its variations ("x/plain", "x+y")."""
    names, known = list(methods), list(registered_methods())
    bases = list(dict.fromkeys([*known, *map(base_method, names)]))

    def place(name: str) -> tuple[int, int, bool]:
        base = base_method(name)
        method = base.partition("+")[0]
        first = known.index(method) if method in known else len(known)
        return first, bases.index(base), "/" in name

    return sorted(names, key=place)


def base_method(name: str) -> str:
    """Return the method that a form belongs to, such as "x" for "x/plain"."""
    return name.partition("/")[0]


def of_known_optimum(groups: Groups) -> Groups:
    """Return the cases whose optimum is stored with a run."""
    return {case: methods for case, methods in groups.items() if _has_optimum(methods)}


def require_floor(floor: float | None) -> None:
    """Refuse a floor that is neither None nor a finite number of at least 0."""
    if floor is not None and not 0 <= floor < np.inf:
        raise ValueError(f"floor is {floor}; it should be a number from 0, or None")


def limit_of(runs: pl.DataFrame) -> int:
    """Return the largest limit on evaluations (column `budget`), or 0 if no run had a limit."""
    return max(runs["budget"].drop_nulls(), default=0)


def are_cut_off(runs: pl.DataFrame) -> bool:
    """Tell whether a run had a limit on evaluations, or was ended by any limit."""
    ended = runs["status"].fill_null("").is_in([StopReason.MAX_EVALS, StopReason.MAX_TIME])
    return bool(limit_of(runs) or ended.any())


def methods_of(groups: Groups) -> list[str]:
    """Return the methods of all cases in order."""
    return ordered_methods(dict.fromkeys(name for group in groups.values() for name in group))


def reference_of(groups: Groups, wanted: str | None) -> str:
    """Return the reference: the wanted method, or else DRC-CMA-ES, or else the first method."""
    methods = methods_of(groups)
    if wanted is not None and wanted not in methods:
        raise ValueError(f"the reference {wanted!r} has no runs; there are {', '.join(methods)}")
    return wanted or (REFERENCE if REFERENCE in methods else methods[0])


Comparisons = dict[tuple[Case, str], Comparison]  # by case and method


def compare_all(
    groups: Groups,
    indicator: str,
    reference: str,
    *,
    floor: float | None = None,
    test: Test = "rank-sum",
    holm: bool = False,
    alpha: float = statistics.ALPHA,
) -> tuple[Comparisons, set[int]]:
    """Compare every method with the reference on each case where both have enough runs.

    Return also the sizes of samples that are too small for the test. Holm's correction treats all
    comparisons as one family.
    """
    compare = statistics.find_test(test)
    found: Comparisons = {}
    too_few: set[int] = set()
    for case, methods in groups.items():
        for method, group in methods.items():
            if reference not in methods or method == reference:
                continue
            pair = _samples(group, methods[reference], indicator, floor, test)
            sizes = len(pair[0]), len(pair[1])
            if min(sizes) and statistics.least_p(*sizes, test) < alpha:
                found[case, method] = compare(*pair)
            elif min(sizes):
                too_few.add(min(sizes))
    if holm:
        adjusted = statistics.holm([one.p for one in found.values()])
        for key, p in zip(found, adjusted, strict=True):
            found[key] = Comparison(p, found[key].excess)
    return found, too_few


def _samples(
    group: Group, reference: Group, indicator: str, floor: float | None, test: Test
) -> tuple[FloatArray, FloatArray]:
    """Return the two samples of a test; the signed-rank test pairs runs of the same number.

    Nothing but the number connects a pair: runs of different methods share no seed and no start.
    """
    ours, theirs = (one.numbered_standing(indicator, floor) for one in (group, reference))
    if test == "rank-sum":
        return ours[1], theirs[1]
    _, *places = np.intersect1d(ours[0], theirs[0], return_indices=True)
    return ours[1][places[0]], theirs[1][places[1]]


def ranked(
    groups: Groups, indicator: str, floor: float | None = None, alpha: float = statistics.ALPHA
) -> tuple[list[str], Ranking]:
    """Rank the methods by their medians, over the cases on which all methods have values."""
    methods = methods_of(groups)
    rows = [
        [statistics.median(of[name].standing(indicator, floor)) for name in methods]
        for of in groups.values()
        if all(name in of and len(of[name].standing(indicator)) for name in methods)
    ]
    return methods, statistics.friedman(np.array(rows).reshape(-1, len(methods)), alpha)


def mean_effect(
    groups: Groups, indicator: str, method: str, reference: str, floor: float | None = None
) -> float:
    """Return the mean A12 over cases of a method against the reference, or NaN without a case."""
    both = [of for of in groups.values() if method != reference and {method, reference} <= set(of)]
    pairs = [[of[name].standing(indicator, floor) for name in (method, reference)] for of in both]
    sizes = [statistics.effect_size(*pair) for pair in pairs if all(map(len, pair))]
    return float(np.mean(sizes)) if sizes else np.nan
