"""Lookup of names: problems of the suites, registered methods, and `module:object`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from bilevo import problems
from bilevo.core.algorithm import Algorithm
from bilevo.core.problem import Problem
from bilevo.registry import get_method

MAX_SIZE = 1_000  # the most variables that a level of a suite's problem may have
_keep_directory: ContextVar[bool] = ContextVar("keep_directory", default=False)


def named_problem(name: str, m: int | None = None, n: int | None = None) -> Problem:
    """Return a problem of the suites, or the Problem that `module:object` is or returns.

    A Problem of `module:object` has its sizes already; other sizes m and n are refused.
    """
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
    """Return a registered method, or the algorithm that `module:object` is or returns."""
    if ":" not in name:
        return get_method(name)
    found = imported(name)
    if isinstance(found, type) or not hasattr(found, "generation"):
        found = _called(name, found) if callable(found) else found
    return get_method(found)


def imported(name: str) -> Any:
    """Return the object at `module:object`, in the working directory or an installed package.

    Afterwards `sys.path` is as it was before, except within `path_restored`: there the working
    directory is appended to it, so that functions of the module can import from there later.
    """
    module_name, _, attribute = name.partition(":")
    try:
        with _first_in_path(os.getcwd()):
            found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise _cannot_load(name, error) from None
    return found


@contextmanager
def _first_in_path(directory: str) -> Iterator[None]:
    """Let imports look in a directory before all others."""
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have removed it
            sys.path.remove(directory)
        if _keep_directory.get() and directory not in sys.path:
            sys.path.append(directory)  # at the end it hides nothing that is installed


@contextmanager
def path_restored() -> Iterator[None]:
    """Undo all changes of `sys.path` at the end of a command or of a campaign's run.

    Until then the directories of imported modules stay in `sys.path`.
    """
    before, token = sys.path.copy(), _keep_directory.set(True)
    try:
        yield
    finally:
        _keep_directory.reset(token)
        sys.path[:] = before


def _called(name: str, make: Any) -> Any:
    try:
        return make()
    except Exception as error:
        raise _cannot_load(name, error) from None


def _cannot_load(name: str, error: Exception) -> ValueError:
    hint = "; give the module's name without .py" if ".py:" in name else ""
    return ValueError(f"cannot load {name!r}: {type(error).__name__}: {error}{hint}")


def parse_sizes(text: str) -> tuple[int, int]:
    """Read sizes m and n from a text such as "2,3"."""
    try:
        m, n = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"sizes are two whole numbers such as 2,3; got {text[:60]!r}") from None
    require_sizes(m, n)
    return m, n


def require_sizes(m: int, n: int) -> None:
    """Refuse sizes that no problem of the suites can have; called before a problem is made."""
    if not (1 <= m <= MAX_SIZE and 1 <= n <= MAX_SIZE):
        raise ValueError(f"sizes are from 1 to {MAX_SIZE}; got m={m}, n={n}")
