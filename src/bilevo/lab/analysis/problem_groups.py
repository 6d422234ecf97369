"""Groups of problems, for verdicts and charts: by suite, by class, by constraints and by size.

A group has two problems or more, but not all of them, and no other group has the same problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from bilevo import problems
from bilevo.lab.analysis.samples import Case

ALL = "all problems"


def problem_groups(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the groups by name, the whole first; a problem may be in several groups."""
    whole = list(cases)
    found: dict[str, list[Case]] = {}
    for case in whole:
        for name in _names(case):
            found.setdefault(name, []).append(case)
    groups = {ALL: whole}
    for name, part in sorted(found.items()):
        if len(part) > 1 and part not in groups.values():
            groups[name] = part
    return groups


def _names(case: Case) -> list[str]:
    """Return the names of the groups that a case belongs to."""
    names = [f"suite {case.suite}", f"size {case.size}"]
    if kind := problems.literature.CLASSES.get(case.problem):
        names.append(f"class {kind}")
    constrained = _has_constraints(case.problem)
    if constrained is not None:
        names.append("with constraints" if constrained else "without constraints")
    return names


@cache
def _has_constraints(name: str) -> bool | None:
    """Tell whether a registered problem has constraints; return None for other problems."""
    if name not in problems.names():
        return None
    problem = problems.get(name)
    return problem.G is not None or problem.g is not None
