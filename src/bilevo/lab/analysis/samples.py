"""From stored runs to what is compared: samples of an indicator by problem, size and method.

There are two views of a sample. What is shown (`sample`) is of completed runs, as they reported it,
infeasible ones included. What is compared (`standing`: tests, ranks, effect sizes, the best of a
row) puts feasible answers first: an infeasible or failed run is infinitely far from any optimum.
Evaluations are those of completed runs in both views. A run that found no finite pair at all is
infinitely far in both. A floor holds for accuracies only: differences below it mean nothing, and it
makes them ties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bilevo import problems
from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.budget import StopReason
from bilevo.lab.analysis import paper, statistics
from bilevo.lab.analysis.statistics import Comparison, Ranking, Test
from bilevo.lab.store import FAILED

ACCURACIES = ("Acc_u", "Acc_l", "verified")
FOUND = ("F", "F_verified", "f")
QUALITIES = (*ACCURACIES, *FOUND)  # of an answer
EVALUATIONS = ("FEs_u", "FEs_l", "FEs")
VERIFIED = ("verified", "F_verified")
COLUMNS = {"FEs_u": "nfev_upper", "FEs_l": "nfev_lower"}  # FEs is their sum
REFERENCE = "drc-cma-es"
DIGITS = "0123456789"
BED = re.compile(r"smd\d+(-.+)")  # a harder kind of SMD, such as smd1-rot or smd1-noise6


class Case(NamedTuple):
    """A problem of one size."""

    problem: str
    m: int
    n: int

    @property
    def size(self) -> str:
        return f"({self.m}, {self.n})"

    @property
    def suite(self) -> str:
        """The problem's name without its number: smd of smd10, smd-rot of smd10-rot."""
        bed = BED.fullmatch(self.problem)
        return f"smd{bed[1]}" if bed else self.problem.rstrip(DIGITS)

    @property
    def order(self) -> tuple[int, str, int, int, int]:
        """Registered problems first; of others prob2 before prob10; small sizes first."""
        registered = problems.names()
        known = self.problem in registered
        place = registered.index(self.problem) if known else len(registered)
        word = self.problem.rstrip(DIGITS)
        number = int(self.problem[len(word) :][:9] or 0)
        return place, word, number, self.m, self.n


@dataclass(frozen=True, slots=True)
class Group:
    """The completed runs of a method on a case, column by column, and which failed."""

    columns: dict[str, FloatArray]
    failures: FloatArray  # their numbers
    F_star: float = np.nan  # NaN: not known
    told: frozenset[str] = frozenset()  # qualities in which a run without an answer is the worst

    def __len__(self) -> int:
        return len(self.columns["number"])

    @property
    def failed(self) -> int:
        return len(self.failures)

    def values(self, indicator: str, floor: float | None = None) -> FloatArray:
        """One value a completed run, NaN where it has none; accuracies not below the floor."""
        if indicator == "FEs":
            return self.columns["nfev_upper"] + self.columns["nfev_lower"]
        found = self._column(COLUMNS.get(indicator, indicator))
        if indicator in self.told:
            found = np.where(self.lost & np.isnan(found), np.inf, found)
        return np.maximum(found, floor) if indicator in ACCURACIES and floor else found

    def standing(self, indicator: str, floor: float | None = None) -> tuple[FloatArray, FloatArray]:
        """Numbers of runs and what they count as in comparisons; those not known are left out."""
        numbers, values = self.columns["number"], self.values(indicator, floor)
        if indicator in self.told:
            wrong = self._violates("violation")
            if indicator in VERIFIED:
                wrong = wrong | self._violates("violation_verified")
            values = np.append(np.where(wrong, np.inf, values), np.full(self.failed, np.inf))
            numbers = np.append(numbers, self.failures)
        known = ~np.isnan(values)
        return numbers[known], values[known]

    def compared(self, indicator: str, floor: float | None = None) -> FloatArray:
        """What its runs count as in comparisons."""
        return self.standing(indicator, floor)[1]

    @property
    def lost(self) -> BoolArray:
        """Runs without a finite pair, whose answer is the worst there is."""
        return np.isposinf(self.columns["violation"])

    def sample(self, indicator: str, floor: float | None = None) -> FloatArray:
        """What completed runs report."""
        values = self.values(indicator, floor)
        return values[~np.isnan(values)]

    @property
    def infeasible(self) -> int:
        return int(np.sum(self._violates("violation")))

    @property
    def refuted(self) -> int:
        """Runs that are feasible as reported, but not where the follower really answers."""
        return int(np.sum(self._violates("violation_verified") & ~self._violates("violation")))

    def solved(self, indicator: str, accuracy: float) -> float:
        """The share of runs within an accuracy; failed and infeasible ones are not within it."""
        if indicator not in self.told:
            return np.nan
        good = self.compared(indicator) <= accuracy
        return float(np.sum(good) / (len(self) + self.failed))

    def _violates(self, column: str) -> BoolArray:
        return self._column(column) > 0

    def _column(self, name: str) -> FloatArray:
        found = self.columns.get(name)
        return np.full(len(self), np.nan) if found is None else found

    @property
    def until_near(self) -> float:
        """Evaluations per run that came near the optimum, with those of other completed runs."""
        near = self._column("near")
        if np.isnan(near).any():
            return np.nan
        spent = np.where(near > 0, near, self.values("FEs"))
        return float(spent.sum() / np.sum(near > 0)) if near.any() else np.inf


Groups = dict[Case, dict[str, Group]]  # cases and methods in the order of tables


def grouped(runs: Any) -> Groups:
    """A frame of runs, by case and method."""
    if not len(runs):
        raise ValueError("there are no runs")
    from polars import selectors

    methods = ordered_methods(runs["method"].unique(maintain_order=True))
    numbers = runs.select(selectors.numeric())
    columns = {one.name: one.cast(float).fill_null(np.nan).to_numpy() for one in numbers}
    failed = (runs["status"].fill_null("") == FAILED).to_numpy()
    keys = runs.select("problem", "m", "n", "method").with_row_index("row")
    found: dict[Case, dict[str, Group]] = {}
    for problem, m, n, method, rows in keys.group_by(*keys.columns[1:]).agg("row").iter_rows():
        here = np.sort(rows)
        done, lost = here[~failed[here]], here[failed[here]]
        of_completed = {name: column[done] for name, column in columns.items()}
        optimum = _first_finite(columns["F_star"][here]) if "F_star" in columns else np.nan
        group = Group(of_completed, columns["number"][lost], optimum)
        found.setdefault(Case(problem, m, n), {})[method] = group
    complete = {case: _with_told(of) for case, of in found.items()}
    return {
        case: {method: complete[case][method] for method in methods if method in complete[case]}
        for case in sorted(complete, key=lambda case: case.order)
    }


def _with_told(of: dict[str, Group]) -> dict[str, Group]:
    """Groups of a case that know their qualities: their own, or without any answer the case's."""
    own = {name: {one for one in QUALITIES if len(group.sample(one))} for name, group in of.items()}
    case = set().union({"F", "f"}, *own.values())
    case |= {"Acc_u", "Acc_l"} if _is_known(of) else set()
    return {
        name: replace(group, told=frozenset(case if group.lost.all() else own[name]))
        for name, group in of.items()
    }


def _first_finite(values: FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[0]) if len(finite) else np.nan


def _is_known(of: dict[str, Group]) -> bool:
    return any(np.isfinite(group.F_star) for group in of.values())


def ordered_methods(methods: Iterable[str]) -> list[str]:
    """The paper's in its order, then others as they come; forms ("x/plain") after their method."""
    names = list(methods)
    known = [*paper.METHODS, *names]
    bases = [name.partition("/")[0] for name in names]
    places = {base: known.index(base) if base in known else len(known) for base in bases}
    return sorted(names, key=lambda name: (places[name.partition("/")[0]], "/" in name))


def of_known_optimum(groups: Groups) -> Groups:
    """The cases whose optimum some run tells."""
    return {case: methods for case, methods in groups.items() if _is_known(methods)}


def require_floor(floor: float | None) -> None:
    if floor is not None and not 0 <= floor < np.inf:
        raise ValueError(f"floor is {floor}; it should be a number from 0, or None")


def limit_of(runs: Any) -> int:
    """Return the largest limit on evaluations (column `budget`); 0 where no run had one."""
    return int(runs["budget"].max() or 0)


def are_cut_off(runs: Any) -> bool:
    """Say whether some runs had a limit on evaluations, or were ended by one of any kind."""
    ended = runs["status"].fill_null("").is_in([StopReason.MAX_EVALS, StopReason.MAX_TIME])
    return bool(limit_of(runs) or ended.any())


def methods_of(groups: Groups) -> list[str]:
    return ordered_methods(dict.fromkeys(name for group in groups.values() for name in group))


def reference_of(groups: Groups, wanted: str | None) -> str:
    """The method that others are compared with: DRC-CMA-ES, or else the first."""
    methods = methods_of(groups)
    if wanted is not None and wanted not in methods:
        raise ValueError(f"the reference {wanted!r} has no runs; there are {', '.join(methods)}")
    return wanted or (REFERENCE if REFERENCE in methods else methods[0])


class Compared(NamedTuple):
    """Methods against the reference, and sizes of samples that no test could tell apart."""

    found: dict[tuple[Case, str], Comparison]
    too_few: set[int]


def compared(
    groups: Groups,
    indicator: str,
    reference: str,
    *,
    floor: float | None = None,
    test: Test = "rank-sum",
    holm: bool = False,
    alpha: float = statistics.ALPHA,
) -> Compared:
    """Every method against the reference, wherever both have runs enough.

    Holm's correction takes all of these as one family.
    """
    if test not in statistics.TESTS:
        raise ValueError(f"unknown test {test!r}; known are {', '.join(statistics.TESTS)}")
    compare = statistics.rank_sum if test == "rank-sum" else statistics.signed_rank
    found, too_few = {}, set()
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
    if holm and found:
        adjusted = statistics.holm([one.p for one in found.values()])
        new = (Comparison(p, one.excess) for p, one in zip(adjusted, found.values(), strict=True))
        found = dict(zip(found, new, strict=True))
    return Compared(found, too_few)


def ranked(
    groups: Groups, indicator: str, floor: float | None = None, alpha: float = statistics.ALPHA
) -> tuple[list[str], Ranking]:
    """The methods and their Friedman ranks by medians, over the cases that all of them have."""
    methods = methods_of(groups)
    rows = [
        [statistics.median(of[name].compared(indicator, floor)) for name in methods]
        for of in groups.values()
        if all(name in of and len(of[name].compared(indicator)) for name in methods)
    ]
    return methods, statistics.friedman(np.array(rows).reshape(-1, len(methods)), alpha)


def mean_effect(
    groups: Groups, indicator: str, method: str, reference: str, floor: float | None = None
) -> float:
    """A12 of a method against the reference, averaged over cases; NaN where there is none."""
    sizes = []
    for of in groups.values():
        if method != reference and method in of and reference in of:
            pair = [of[name].compared(indicator, floor) for name in (method, reference)]
            if all(len(sample) for sample in pair):
                sizes.append(statistics.effect_size(*pair))
    return float(np.mean(sizes)) if sizes else np.nan


def _samples(
    group: Group, reference: Group, indicator: str, floor: float | None, test: Test
) -> tuple[FloatArray, FloatArray]:
    """Two samples, for the signed-rank test by the numbers of runs that both have.

    Pairs are by number only: runs of different methods share no seed and no start.
    """
    ours, theirs = group.standing(indicator, floor), reference.standing(indicator, floor)
    if test == "rank-sum":
        return ours[1], theirs[1]
    _, *places = np.intersect1d(ours[0], theirs[0], return_indices=True)
    return ours[1][places[0]], theirs[1][places[1]]
