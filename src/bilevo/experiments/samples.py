"""From stored runs to what is compared: samples of an indicator by problem, size and method.

Runs that failed are left out and counted; those that ended infeasible stay in, and are counted too.
A run that found no finite pair at all counts as infinitely far from any optimum. A floor holds for
accuracies only: differences below it mean nothing, and it makes them ties.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bilevo import problems
from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.experiments import paper, statistics
from bilevo.experiments.statistics import Comparison, Ranking, Test
from bilevo.experiments.store import FAILED

ACCURACIES = ("Acc_u", "Acc_l", "verified")
FOUND = ("F", "F_verified", "f")
EVALUATIONS = ("FEs_u", "FEs_l", "FEs")
COLUMNS = {"FEs_u": "nfev_upper", "FEs_l": "nfev_lower"}  # FEs is their sum
REFERENCE = "drc-cma-es"


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
        """The problem's name without its number."""
        return self.problem.rstrip("0123456789")

    @property
    def order(self) -> tuple[int, str, int, int, int]:
        """Registered problems first; of others prob2 before prob10; small sizes first."""
        registered = problems.names()
        known = self.problem in registered
        place = registered.index(self.problem) if known else len(registered)
        number = int(self.problem[len(self.suite) :][:9] or 0)
        return place, self.suite, number, self.m, self.n


@dataclass(frozen=True, slots=True)
class Group:
    """The completed runs of a method on a case, column by column, and how many failed."""

    columns: dict[str, FloatArray]
    failed: int

    def __len__(self) -> int:
        return len(self.columns["number"])

    def values(self, indicator: str, floor: float | None = None) -> FloatArray:
        """One value a run, NaN where it has none; accuracies not below the floor."""
        if indicator == "FEs":
            return self.columns["nfev_upper"] + self.columns["nfev_lower"]
        found = self.columns.get(COLUMNS.get(indicator, indicator))
        if found is None:
            return np.full(len(self), np.nan)
        if indicator in (*ACCURACIES, *FOUND) and not np.isnan(found[~self.lost]).all():
            found = np.where(self.lost & np.isnan(found), np.inf, found)
        return np.maximum(found, floor) if indicator in ACCURACIES and floor else found

    @property
    def lost(self) -> BoolArray:
        """Runs without a finite pair, whose answer is the worst there is."""
        return np.isposinf(self.columns["violation"])

    def sample(self, indicator: str, floor: float | None = None) -> FloatArray:
        values = self.values(indicator, floor)
        return values[~np.isnan(values)]

    @property
    def infeasible(self) -> int:
        return int(np.sum(self.columns["violation"] > 0))

    def solved(self, indicator: str, accuracy: float) -> float:
        """The share of runs within an accuracy; failed and infeasible ones are not within it."""
        values = self.values(indicator)
        if len(self) and np.isnan(values).all():
            return np.nan
        good = (values <= accuracy) & ~(self.columns["violation"] > 0)
        return float(np.sum(good) / (len(self) + self.failed))

    @property
    def until_near(self) -> float:
        """Evaluations per run that came near the optimum, with those of other completed runs."""
        near = self.columns.get("near", np.full(len(self), np.nan))
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
        done = here[~failed[here]]
        group = Group(
            {name: column[done] for name, column in columns.items()}, len(here) - len(done)
        )
        found.setdefault(Case(problem, m, n), {})[method] = group
    return {
        case: {method: found[case][method] for method in methods if method in found[case]}
        for case in sorted(found, key=lambda case: case.order)
    }


def ordered_methods(methods: Iterable[str]) -> list[str]:
    """The paper's in its order, then others as they come; forms ("x/plain") after their method."""
    names = list(methods)
    known = [*paper.METHODS, *names]
    bases = [name.partition("/")[0] for name in names]
    places = {base: known.index(base) if base in known else len(known) for base in bases}
    return sorted(names, key=lambda name: (places[name.partition("/")[0]], "/" in name))


def of_known_optimum(groups: Groups) -> Groups:
    """The cases on which some run has an accuracy."""
    return {
        case: methods
        for case, methods in groups.items()
        if any(np.isfinite(group.sample("Acc_u")).any() for group in methods.values())
    }


def methods_of(groups: Groups) -> list[str]:
    return ordered_methods(dict.fromkeys(name for group in groups.values() for name in group))


def reference_of(groups: Groups, wanted: str | None) -> str:
    """The method that others are compared with: DRC-CMA-ES, or else the first."""
    methods = methods_of(groups)
    if wanted is not None and wanted not in methods:
        raise ValueError(f"the reference {wanted!r} has no runs; there are {', '.join(methods)}")
    return wanted or (REFERENCE if REFERENCE in methods else methods[0])


def compared(
    groups: Groups,
    indicator: str,
    reference: str,
    *,
    floor: float | None = None,
    test: Test = "rank-sum",
    holm: bool = False,
) -> dict[tuple[Case, str], Comparison]:
    """Every method against the reference, wherever both have runs.

    Holm's correction takes all of these as one family.
    """
    if test not in statistics.TESTS:
        raise ValueError(f"unknown test {test!r}; known are {', '.join(statistics.TESTS)}")
    found = {}
    for case, methods in groups.items():
        for method, group in methods.items():
            if reference in methods and method != reference:
                pair = _samples(group, methods[reference], indicator, floor, test)
                if all(len(sample) for sample in pair):
                    compare = statistics.rank_sum if test == "rank-sum" else statistics.signed_rank
                    found[case, method] = compare(*pair)
    if holm and found:
        adjusted = statistics.holm([one.p for one in found.values()])
        new = (Comparison(p, one.excess) for p, one in zip(adjusted, found.values(), strict=True))
        found = dict(zip(found, new, strict=True))
    return found


def ranked(
    groups: Groups, indicator: str, floor: float | None = None, alpha: float = statistics.ALPHA
) -> tuple[list[str], Ranking]:
    """The methods and their Friedman ranks by medians, over the cases that all of them have."""
    methods = methods_of(groups)
    rows = [
        [statistics.median(of[name].sample(indicator, floor)) for name in methods]
        for of in groups.values()
        if all(name in of and len(of[name].sample(indicator)) for name in methods)
    ]
    return methods, statistics.friedman(np.array(rows).reshape(-1, len(methods)), alpha)


def mean_effect(
    groups: Groups, indicator: str, method: str, reference: str, floor: float | None = None
) -> float:
    """A12 of a method against the reference, averaged over cases; NaN where there is none."""
    sizes = []
    for of in groups.values():
        if method != reference and method in of and reference in of:
            pair = [of[name].sample(indicator, floor) for name in (method, reference)]
            if all(len(sample) for sample in pair):
                sizes.append(statistics.effect_size(*pair))
    return float(np.mean(sizes)) if sizes else np.nan


def _samples(
    group: Group, reference: Group, indicator: str, floor: float | None, test: Test
) -> tuple[FloatArray, FloatArray]:
    """Two samples, for the signed-rank test by the numbers of runs that both have."""
    if test == "rank-sum":
        return group.sample(indicator, floor), reference.sample(indicator, floor)
    sides = [
        dict(zip(one.columns["number"], one.values(indicator, floor), strict=True))
        for one in (group, reference)
    ]
    both = sorted(sides[0].keys() & sides[1].keys())
    pairs = np.array([[side[number] for side in sides] for number in both]).reshape(-1, 2)
    ours, theirs = pairs[~np.isnan(pairs).any(axis=1)].T
    return ours, theirs
