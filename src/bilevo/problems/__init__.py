"""The test suites: SMD1-14 and variants, TP1-10, two real problems, the literature's, roads, and
problems with several followers.

Problems with whole numbers are in `whole`, `knapsack` and `roads.design`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bilevo.core.problem import Problem
from bilevo.problems import knapsack as knapsack
from bilevo.problems import literature, roads, several
from bilevo.problems.realworld import decision_making, gold_mining
from bilevo.problems.smd import SMD, smd
from bilevo.problems.ties import FIXED_TIES, SCALABLE_TIES
from bilevo.problems.tp import TP
from bilevo.problems.variants import VARIANTS
from bilevo.problems.whole import SMD_INT, moore_bard

__all__ = ["get", "names", "scalable"]

_FIXED = {
    **{f"tp{number}": make for number, make in TP.items()},
    "gold-mining": gold_mining,
    "decision-making": decision_making,
}
_LITERATURE = {name: partial(literature.make, name) for name in literature.CLASSES}
_ROADS = {name: partial(roads.make, name) for name in roads.BEST}
_SEVERAL = {name: partial(several.make, name) for name in several.NAMES}
_SMD: dict[str, Callable[[int, int], Problem]] = {
    f"smd{number}": partial(smd, number) for number in SMD
}
_SCALABLE = {**_SMD, **VARIANTS, **SCALABLE_TIES, **SMD_INT}
_WHOLE = {"moore-bard": moore_bard}
_ALONE: dict[str, Callable[[], Problem]] = {**_FIXED, **_LITERATURE, **_ROADS, **_SEVERAL}
_ALONE |= {**FIXED_TIES, **_WHOLE}


def names() -> list[str]:
    """Return the names of all problems.

    New names come last, because exports number problems by their places in this list.
    """
    own = [*_SMD, *_FIXED, *VARIANTS, *_LITERATURE, *_ROADS, *_SEVERAL]
    return [*own, *FIXED_TIES, *SCALABLE_TIES, *SMD_INT, *_WHOLE]


def scalable() -> list[str]:
    """Return the names of problems whose sizes can be chosen."""
    return list(_SCALABLE)


def get(name: str, m: int | None = None, n: int | None = None) -> Problem:
    """Return a problem by name.

    SMD problems and their variants take sizes, by default 2 and 3; the others have fixed sizes.
    """
    name = name.lower()
    for size, value in (("m", m), ("n", n)):
        if value is not None and not isinstance(value, int):
            raise ValueError(f"{size} must be a whole number, got {value!r}")
    if name in _SCALABLE:
        return _SCALABLE[name](2 if m is None else m, 3 if n is None else n)
    make = _ALONE.get(name)
    if make is None:
        from difflib import get_close_matches  # here, as few calls need it

        near = ", ".join(get_close_matches(name, names(), n=3))
        raise ValueError(
            f"unknown problem {name!r}; similar names in `bilevo list`: {near or 'none'}. On the "
            "command line, name a problem of your own as module:object"
        )
    problem = make()
    if (m is not None and m != problem.m) or (n is not None and n != problem.n):
        raise ValueError(f"{name} has m={problem.m}, n={problem.n} only; got m={m}, n={n}")
    return problem
