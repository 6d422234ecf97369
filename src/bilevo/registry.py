"""The registered methods.

To add a method, write its module, and name it in `bilevo.algorithms` and in the table here. Other
packages add methods by entry points of the group `bilevo.methods`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from bilevo import algorithms, optimizers
from bilevo.core.algorithm import Algorithm, Followers, require_algorithm

DEFAULT_METHOD = "drc-plus"
DEFAULT_FOR_FEW = "few"  # the default for `FEW_VARIABLES` and limits of `FEW_EVALS` or less
FEW_VARIABLES, FEW_EVALS = 5, 1000
DEFAULT_FOR_FOLLOWERS = "trust-region"  # the default if the follower is a solver
DEFAULT_FOR_WHOLE = "moves"  # the default if there are whole numbers or choices
DEFAULT_FOR_STANCES = "nested-ties"  # the default with another stance than the optimistic one


class Status(StrEnum):
    """How close a method is to what its authors ran."""

    CODE = "published code followed"
    PAPER = "specified from the paper"
    RECONSTRUCTION = "reconstruction"  # the publication leaves much open, which we filled in
    OWN = "of bilevo"


@dataclass(frozen=True, slots=True)
class Method:
    """A registered method: its factory and where it comes from."""

    make: Callable[[], Algorithm[Any]]
    year: int
    reference: str
    status: Status = Status.OWN


def _make(algorithm: str, *levels: str) -> Algorithm[Any]:
    """Make one of our algorithms.

    `levels` names the optimizers of the upper and the lower level. Without these names, the
    algorithm has its default optimizers.
    """
    made: Algorithm[Any] = getattr(algorithms, algorithm)(*map(optimizers.make, levels))
    return made


def _ours(algorithm: str, year: int, reference: str, status: Status = Status.OWN) -> Method:
    return Method(partial(_make, algorithm), year, reference, status)


def _drc(optimizer: str) -> Method:
    """Return DRC with one optimizer at both levels."""
    reference = f"DRC-BLEA with {optimizers.NAMES[optimizer]} at both levels"
    return Method(partial(_make, "DRC", optimizer, optimizer), 2024, reference)


_METHODS = {  # their order decides the rows of tables and the colours of figures
    "drc-cma-es": _ours(
        "DRC", 2024, "Xu, Ye, Zheng, Zhou, Yen, Jiang: DRC-BLEA, with CMA-ES", Status.PAPER
    ),
    "bl-cma-es": _ours("BLCMAES", 2019, "He, Zhou, Chen: BL-CMA-ES", Status.CODE),
    "tlea-cma-es": _ours("TLEA", 2022, "Chen, Liu, Tan, Li: TLEA, with CMA-ES", Status.CODE),
    "nblea": _ours("NBLEA", 2014, "Sinha, Malo, Deb: NBLEA", Status.PAPER),
    "bleaq2": _ours("BLEAQ2", 2020, "Sinha, Lu, Deb, Malo: BLEAQ-II", Status.CODE),
    "go-cma-es": _ours("GOCMAES", 2020, "Huang, Wang: GO, with CMA-ES", Status.PAPER),
    "mfbla": _ours(
        "MFBLA", 2022, "Mamun, Singh, Ray: MFBLA, as far as known", Status.RECONSTRUCTION
    ),
    "sa-bl-imode": _ours(
        "SABLIMODE", 2023, "Lin et al.: SA-BL-IMODE, as far as known", Status.RECONSTRUCTION
    ),
    "drc-de": _drc("de"),
    "drc-ga": _drc("ga"),
    "drc-plus": _ours("DRCPlus", 2026, "DRC with followers that learn, descents, certificates"),
    "drc-pso": _drc("pso"),
    "drc-race": _ours("DRCRace", 2026, "leaders compete for the steps of a problem's own solver"),
    "nested-cma-es": _ours(
        "NestedCMAES", 2001, "a CMA-ES for every follower of a CMA-ES; baseline"
    ),
    "tlea-de": _ours("TLEADE", 2022, "Chen, Liu, Tan, Li: TLEA, lower-level DE", Status.CODE),
}
for _name in optimizers.NAMES:  # new optimizers come last, so that methods keep their colours
    _METHODS.setdefault(f"drc-{_name}", _drc(_name))
_METHODS["trust-region"] = _ours(
    "TrustRegion", 2026, "the leader learns a model of F, for a problem's own solver"
)
_METHODS["moves"] = _ours("Moves", 2026, "moves over whole numbers and choices, certificates")
_METHODS["nested-ties"] = _ours(
    "NestedTies", 2026, "every leader is judged by the tie that its stance expects"
)

_METHODS["few"] = _ours("Few", 2026, "models of both levels, for few evaluations")


def methods() -> dict[str, Method]:
    """Return all registered methods by name: ours, and then those of other packages.

    An entry point of another package must load a `Method`.
    """
    from importlib.metadata import entry_points  # late: slow to import

    found = {point.name: point for point in entry_points(group="bilevo.methods")}
    third_party = {name: found[name].load() for name in sorted(found) if name not in _METHODS}
    return {**_METHODS, **third_party}


def driving(kind: Followers) -> list[str]:
    """Return the names of our methods that can drive this kind of follower."""
    return [name for name in _METHODS if _followers(name).include(kind)]


def knowing_whole() -> list[str]:
    """Return the names of our methods with moves and checks for whole numbers and choices."""
    return [name for name in _METHODS if _knows_whole(name)]


def _knows_whole(name: str) -> bool:
    try:
        return get_method(name).whole
    except ImportError:  # an optional library is missing; no method with such moves needs one
        return False


def taking_stances() -> list[str]:
    """Return the names of our methods that take every stance and `tie_tol`."""
    return [name for name in (DEFAULT_FOR_STANCES,) if get_method(name).takes_stance]


def _followers(name: str) -> Followers:
    try:
        return get_method(name).followers
    except ImportError:  # an optional library is missing; only methods that search f need one
        return Followers.FUNCTION


def get_method(method: str | Algorithm[Any] | None) -> Algorithm[Any]:
    """Return the algorithm of this name, or the algorithm given; None means the default method."""
    if method is None:
        method = DEFAULT_METHOD
    if isinstance(method, str):
        return _find(method).make()
    return require_algorithm(method)


def _find(name: str) -> Method:
    if name in _METHODS:  # the entry points of other packages need not be loaded
        return _METHODS[name]
    known = methods()
    if name not in known:
        if ":" in name:
            raise ValueError(
                f"unknown method {name!r}: `module:object` is for the command line; import the "
                "object, and give it as the method"
            )
        raise ValueError(f"unknown method {name!r}{suggestion(name, list(known))}")
    return known[name]


def suggestion(name: str, known: list[str]) -> str:
    """Return the end of an error message: similar names, or else all known names."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), known, n=1)
    alike = [one for one in known if one.startswith(f"{name.lower()}-")] or close
    if alike:
        return f"; did you mean {' or '.join(map(repr, alike))}?"
    return f"; known are {', '.join(known)}"
