"""The verdict of a comparison in words; `best` finds which method is best on which problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bilevo.lab.analysis import samples
from bilevo.lab.analysis.best import (
    COST,
    QUALITY,
    Finding,
    best_by_group,
    find_best,
    how_best,
    single_best,
)
from bilevo.lab.analysis.problem_groups import ALL
from bilevo.lab.analysis.samples import Group
from bilevo.lab.analysis.table_parts import Study
from bilevo.lab.campaign import NEAR

ALIKE = "where answers do not differ significantly"
WORDS = {  # what a method does that is best by an indicator
    "verified": "gives better answers on {}",
    "Acc_u": "gives better answers, as reported and not verified, on {}",
    "F_verified": "finds a lower F on {}",
    "F": "finds a lower F, as reported and not verified, on {}",
    COST: f"needs fewer evaluations on {{}}, {ALIKE}",
}
MAX_LISTED = 6  # The most problems, methods or groups that a sentence names.
MAX_TIES = 3  # The most sentences about methods between which there is no difference.
LARGE = 1000.0  # Factors above it are written as "more than".


class Verdict(NamedTuple):
    """The verdict in words: a headline, sentences that say more, and how it was found."""

    headline: str
    points: list[str]
    how: list[str]


def make_verdict(study: Study) -> Verdict:
    """Find the best method of each problem, and say it in words."""
    findings = find_best(study)
    points = [
        *_by_method(study, findings),
        *_without_winner(study, findings),
        *_by_group(study, findings),
        *_over_all(study),
        *_solved(study),
        *_failures(study),
    ]
    return Verdict(_headline(study, findings), points, how_best(study) if findings else [])


def _headline(study: Study, findings: Sequence[Finding]) -> str:
    labels = [study.label(name) for name in study.methods]
    if len(labels) == 1:
        return f"Only {labels[0]} has runs: there is nothing to compare it with."
    if not findings:
        return "No two methods have runs on the same problem: there is nothing to compare."
    single = len(findings) == 1
    if not (wins := single_best(findings)):
        where = str(findings[0].case) if single else f"any of {len(findings)} problems"
        return _no_winner(labels, findings, where)
    most = max(map(len, wins.values()))
    first = [study.label(name) for name, found in wins.items() if len(found) == most]
    where = str(findings[0].case) if single else f"{most} of {len(findings)} problems"
    verb, each = ("is", "") if len(first) == 1 else ("are", " each")
    return f"{enumerated(first)} {verb} best on {where}{each}."


def _no_winner(labels: list[str], findings: Sequence[Finding], where: str) -> str:
    if all(found.undecided for found in findings):
        return "Too few runs for a test: no difference between the methods can be told."
    if all(found.best == found.compared for found in findings):
        return f"No significant difference between {enumerated(labels)} on {where}."
    return f"No method is the single best on {where}."


def _by_method(study: Study, findings: Sequence[Finding]) -> list[str]:
    """Say what each winner is better in, where, and by how much."""
    said = []
    for name, won in single_best(findings).items():
        for by, words in WORDS.items():
            if here := [found for found in won if found.by == by]:
                better = words.format(_listed(study, here)) + _how_much(here)
                said.append(f"{study.label(name)} {better}.")
    return said


def _how_much(won: Sequence[Finding]) -> str:
    """Say by how much the best is better than the next, as a factor with its range."""
    by = won[0].by
    if by not in (*samples.ACCURACIES, COST):
        if len(won) > 1 or not np.isfinite(won[0].theirs):
            return ""
        return f": {won[0].ours:.6g}, and the next best {won[0].theirs:.6g}"
    factors = [found.factor for found in won]
    middle, least, most = (float(f(factors)) for f in (_middle, np.min, np.max))
    if np.isinf(middle):
        return ": most runs of the next best have no good answer"
    between = f" (median; {_factor(least)} to {_factor(most)})" if len(won) > 1 else ""
    verb, what = ("needs", "as many") if by == COST else ("is", "as far from the optimum")
    return f": the next best {verb} {_factor(middle)} times {what}{between}"


def _middle(factors: Sequence[float]) -> float:
    """Return the median; `numpy.median` would warn about two infinite values in the middle."""
    return sorted(factors)[(len(factors) - 1) // 2]


def _factor(value: float) -> str:
    if value > LARGE:
        return f"more than {LARGE:,.0f}"
    if value < 1.05:  # "1.0 times as many" would say nothing
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _without_winner(study: Study, findings: Sequence[Finding]) -> list[str]:
    """Say on which problems there is no single best method, and between which there is none."""
    ties: dict[tuple[str, ...], list[Finding]] = {}
    for found in findings:
        if found.winner is None and not found.undecided:
            ties.setdefault(found.best, []).append(found)
    order = sorted(ties.items(), key=lambda pair: -len(pair[1]))
    said = []
    for best, here in order[:MAX_TIES]:
        if len(here) == len(findings) and best == here[0].compared:
            continue  # the headline says it
        names = few([study.label(name) for name in best])
        among = names if best == here[0].compared else f"the best, {names},"
        said.append(f"No significant difference between {among} on {_listed(study, here)}.")
    if others := [found for _, here in order[MAX_TIES:] for found in here]:
        said.append(f"No single best method on {_listed(study, others)} either.")
    if undecided := [found for found in findings if found.undecided]:
        said.append(f"Undecided for want of runs: {_listed(study, undecided)}.")
    if missed := [found for found in findings if found.missed]:
        said.append(
            f"No method comes within {NEAR:.0e} of the optimum in most of its runs on "
            f"{_listed(study, missed)}."
        )
    return said


def _by_group(study: Study, findings: Sequence[Finding]) -> list[str]:
    """Say how often each method is best in each group of problems, if there are a few groups."""
    groups = best_by_group(findings)
    del groups[ALL]
    if not 0 < len(groups) <= MAX_LISTED or not single_best(findings):
        return []
    said = []
    for name, (cases, wins) in groups.items():
        parts = [f"{study.label(one)} on {count}" for one, count in wins.items()]
        said.append(f"{name}, {enumerated(parts) or 'none'} of {cases}")
    return [f"Single best by group of problems: {'; '.join(said)}."]


def _over_all(study: Study) -> list[str]:
    """Say what average ranks over all problems tell (Friedman's test and Nemenyi's)."""
    part = study.known if study.known.groups else study
    preferred, other = QUALITY[bool(study.known.groups)]
    indicator = preferred if _all_have(part, preferred) else other
    try:
        names, found = samples.ranked(study.groups, indicator, study.floor, study.alpha)
    except ValueError:
        return []
    if found.blocks < 2:
        return []
    order = sorted(zip(found.average, names, strict=True))
    least = order[0][0]
    first = [study.label(name) for rank, name in order if rank == least]
    behind = [study.label(name) for rank, name in order if rank - least > found.critical_difference]
    ranks = few([f"{study.label(name)} {rank:.2f}" for rank, name in order])
    start = f"Average ranks of answers over {found.blocks} problems: {ranks}"
    if found.p >= study.alpha or not behind:
        return [f"{start}; no significant difference (Friedman p = {found.p:.2g})."]
    return [
        f"{start}; {few(first)} {'is' if len(first) == 1 else 'are'} significantly better than "
        f"{few(behind)} (Friedman p = {found.p:.2g}, Nemenyi)."
    ]


def _all_have(study: Study, indicator: str) -> bool:
    return all(indicator in group.known for of in study.groups.values() for group in of.values())


def _solved(study: Study) -> list[str]:
    """Say how many runs of each method found the optimum."""
    counts: dict[str, list[int]] = {}
    for of in study.known.groups.values():
        for name, group in of.items():
            if "verified" in group.known:
                good, runs = counts.get(name, [0, 0])
                counts[name] = [good + group.solved, runs + group.attempts]
    order = sorted(counts.items(), key=lambda pair: -pair[1][0] / pair[1][1])
    parts = [f"{study.label(name)} in {good} of {runs}" for name, (good, runs) in order]
    start = "Runs that found the optimum (F at the follower's true answer, and the reported f)"
    return [f"{start}: {few(parts)}."] if parts else []


def _failures(study: Study) -> list[str]:
    """Say how many runs of each method failed or ended infeasible."""
    said = []
    troubles: dict[str, Callable[[Group], int]] = {
        "failed": lambda group: group.failed,
        "ended infeasible": lambda group: group.infeasible,
        "are infeasible at the follower's true answer": lambda group: group.refuted,
    }
    for words, count in troubles.items():
        parts = []
        for name in study.methods:
            groups = [of[name] for of in study.groups.values() if name in of]
            if number := sum(map(count, groups)):
                runs = sum(group.attempts for group in groups)
                parts.append(f"{number} of {runs} of {study.label(name)}")
        start = f"Runs that {words}, and count as the worst in comparisons"
        said += [f"{start}: {few(parts)}."] if parts else []
    return said


def _listed(study: Study, findings: Sequence[Finding]) -> str:
    """Return the number and the names of problems; of many, only the first ones.

    A name has the size behind it if the study has the problem in several sizes.
    """
    sizes = Counter(case.problem for case in study.groups)
    cases = [found.case for found in findings]
    names = [str(case) if sizes[case.problem] > 1 else case.problem for case in cases]
    return names[0] if len(names) == 1 else f"{len(names)} problems ({few(names)})"


def few(names: Sequence[str]) -> str:
    """Enumerate names; of many, only the first ones."""
    more = len(names) - MAX_LISTED
    return enumerated(names if more <= 1 else [*names[:MAX_LISTED], f"{more} more"])


def enumerated(names: Sequence[str]) -> str:
    """Write names as "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
