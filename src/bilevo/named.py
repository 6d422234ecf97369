"""What a name stands for: a problem of the suites or a registered method, or `module:object`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from bilevo import problems
from bilevo.core.algorithm import Algorithm
from bilevo.core.problem import Problem
from bilevo.registry import get_method


def named_problem(name: str, m: int | None = None, n: int | None = None) -> Problem:
    """A problem of the suites, or a `Problem` of the user's or a function that makes one."""
    if ":" not in name:
        return problems.get(name, m, n)
    found = imported(name)
    if not isinstance(found, Problem) and callable(found):
        found = _called(name, found)
    if not isinstance(found, Problem):
        raise ValueError(f"{name!r} is a {type(found).__name__}, not a bilevo.Problem or its maker")
    if (m, n) not in ((None, None), (found.m, found.n)):
        raise ValueError(f"{name} has m={found.m}, n={found.n} only; got m={m}, n={n}")
    return found


def named_method(name: str) -> Algorithm[Any]:
    """A registered method, or an algorithm of the user's, its class, or a function making one."""
    if ":" not in name:
        return get_method(name)
    found = imported(name)
    if isinstance(found, type) or not hasattr(found, "generation"):
        found = _called(name, found) if callable(found) else found
    return get_method(found)


def imported(name: str) -> Any:
    """The object of `module:object`, from where the command is run or from what is installed."""
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's module lies where the command is run
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise _cannot_load(name, error) from None
    return found


def _called(name: str, make: Any) -> Any:
    try:
        return make()
    except Exception as error:
        raise _cannot_load(name, error) from None


def _cannot_load(name: str, error: Exception) -> ValueError:
    return ValueError(f"cannot load {name!r}: {type(error).__name__}: {error}")


def parse_sizes(text: str) -> tuple[int, int]:
    """Sizes m and n from a text such as "2,3"."""
    try:
        m, n = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"sizes are two whole numbers such as 2,3; got {text!r}") from None
    return m, n
