"""Method names and how to make them. Third parties join by entry points, group `bilevo.methods`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from bilevo import algorithms, optimizers
from bilevo.core.algorithm import Algorithm, Followers, require_algorithm

DEFAULT_METHOD = "drc-plus"
DEFAULT_FOR_FOLLOWERS = "drc-race"  # where the follower is a solver of the user's


class Status(StrEnum):
    """How close a method is to what its authors ran."""

    CODE = "published code followed"
    PAPER = "specified from the paper"
    RECONSTRUCTION = "reconstruction"  # the publication leaves too much open: results are ours
    OWN = "of bilevo"


@dataclass(frozen=True, slots=True)
class Method:
    """A registered method: its factory and where it comes from."""

    make: Callable[[], Algorithm[Any]]
    year: int
    reference: str
    status: Status = Status.OWN


def _make(algorithm: str, optimizer: str | None = None) -> Algorithm[Any]:
    """One of ours, loaded with its first use; by default with the optimizers of its paper."""
    levels = () if optimizer is None else (optimizer, optimizer)
    made: Algorithm[Any] = getattr(algorithms, algorithm)(
        *(getattr(optimizers, name)() for name in levels)
    )
    return made


_METHODS = {  # in the order of tables and of colours
    "drc-cma-es": Method(
        partial(_make, "DRC"),
        2024,
        "Xu, Ye, Zheng, Zhou, Yen, Jiang: DRC-BLEA, with CMA-ES",
        Status.PAPER,
    ),
    "bl-cma-es": Method(partial(_make, "BLCMAES"), 2019, "He, Zhou, Chen: BL-CMA-ES", Status.CODE),
    "tlea-cma-es": Method(
        partial(_make, "TLEA"), 2022, "Chen, Liu, Tan, Li: TLEA, with CMA-ES", Status.CODE
    ),
    "nblea": Method(partial(_make, "NBLEA"), 2014, "Sinha, Malo, Deb: NBLEA", Status.PAPER),
    "bleaq2": Method(partial(_make, "BLEAQ2"), 2020, "Sinha, Lu, Deb, Malo: BLEAQ-II", Status.CODE),
    "go-cma-es": Method(
        partial(_make, "GOCMAES"), 2020, "Huang, Wang: GO, with CMA-ES", Status.PAPER
    ),
    "mfbla": Method(
        partial(_make, "MFBLA"),
        2022,
        "Mamun, Singh, Ray: MFBLA, as far as known",
        Status.RECONSTRUCTION,
    ),
    "sa-bl-imode": Method(
        partial(_make, "SABLIMODE"),
        2023,
        "Lin et al.: SA-BL-IMODE, as far as known",
        Status.RECONSTRUCTION,
    ),
    "drc-de": Method(partial(_make, "DRC", "DE"), 2024, "DRC-BLEA with DE at both levels"),
    "drc-ga": Method(partial(_make, "DRC", "GA"), 2024, "DRC-BLEA with a GA at both levels"),
    "drc-plus": Method(
        partial(_make, "DRCPlus"), 2026, "DRC with followers that learn, descents, certificates"
    ),
    "drc-pso": Method(partial(_make, "DRC", "PSO"), 2024, "DRC-BLEA with PSO at both levels"),
    "drc-race": Method(
        partial(_make, "DRCRace"), 2026, "leaders compete for the steps of a user's own follower"
    ),
    "nested-cma-es": Method(
        partial(_make, "NestedCMAES"), 2001, "a CMA-ES for every follower of a CMA-ES; baseline"
    ),
    "tlea-de": Method(
        partial(_make, "TLEADE"), 2022, "Chen, Liu, Tan, Li: TLEA, with DE below", Status.CODE
    ),
}


def methods() -> dict[str, Method]:
    """All registered methods by name, ours first; entry points give a `Method`."""
    from importlib.metadata import entry_points  # late: slow to import

    found = {point.name: point for point in entry_points(group="bilevo.methods")}
    third_party = {name: found[name].load() for name in sorted(found) if name not in _METHODS}
    return {**_METHODS, **third_party}


def for_followers() -> list[str]:
    """The names of our methods that can do with a follower that is a solver of the user's."""
    return [name for name in _METHODS if Followers.SOLVER in _kinds(name)]


def for_functions() -> list[str]:
    """The names of our methods that search f themselves, where it is a function."""
    return [name for name in _METHODS if Followers.FUNCTION in _kinds(name)]


def _kinds(name: str) -> list[Followers]:
    """Return the kinds of followers that one of our methods drives."""
    try:
        followers = get_method(name).followers
    except ImportError:  # its extra is not installed: those that need one search f
        followers = Followers.FUNCTION
    return [kind for kind in (Followers.FUNCTION, Followers.SOLVER) if followers.include(kind)]


def get_method(method: str | Algorithm[Any] | None) -> Algorithm[Any]:
    """An algorithm from its name, or itself; None is the default."""
    if method is None:
        method = DEFAULT_METHOD
    if isinstance(method, str):
        return _find(method).make()
    return require_algorithm(method)


def _find(name: str) -> Method:
    if name in _METHODS:  # without loading what others have installed
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
    """What may have been meant, or all that is known."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), known, n=1)
    alike = [one for one in known if one.startswith(f"{name.lower()}-")] or close
    return (
        f"; did you mean {' or '.join(map(repr, alike))}?"
        if alike
        else f"; known are {', '.join(known)}"
    )
