"""Kernels: small numerical functions that numba compiles where it is installed (`bilevo[fast]`).

A kernel is written once, in NumPy, and runs as it stands without numba. Its signature is fixed, so
that nothing is compiled in the middle of a run; numba keeps what it compiled for later processes.
Both ways agree to rounding, and each repeats its own results to the bit. So a run stays with the
kernels it began with: `Result.kernel` and a run directory's journal say which.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import cache
from importlib.util import find_spec
from threading import Timer
from typing import Any, Generic, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Name = Literal["numpy", "numba"]
NAMES: tuple[Name, ...] = ("numpy", "numba")
VARIABLE = "BILEVO_KERNEL"  # of the environment: "numpy" does without numba

_compiled: ContextVar[bool | None] = ContextVar("compiled", default=None)
_waiting: list[Kernel[Any]] = []  # to be compiled
_parts: list[Callable[..., Any]] = []
_stand_ins: list[tuple[Callable[..., Any], Callable[..., Any]]] = []


class Kernel(Generic[R]):
    """A function that runs compiled where numba is in use, and as it stands elsewhere."""

    def __init__(self, function: Callable[..., R], signature: str) -> None:
        self.plain = function
        self.signature = signature
        self.compiled: Callable[..., R] = self._compile  # until `compile_all`
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> R:
        return self.compiled(*args) if _compiled.get() else self.plain(*args)

    def _compile(self, *args: Any) -> R:
        """A kernel declared since the others were compiled."""
        compile_all()
        return self.compiled(*args)


def kernel(signature: str) -> Callable[[Callable[..., R]], Kernel[R]]:
    """Make a function a kernel with this signature, in numba's notation."""

    def declare(function: Callable[..., R]) -> Kernel[R]:
        made = Kernel(function, signature)
        _waiting.append(made)
        return made

    return declare


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that kernels of the same file call; in a kernel it is compiled with it."""
    _parts.append(function)
    return function


def stand_in(replaced: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that takes another one's place in compiled kernels: where NumPy is no help."""

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        _stand_ins.append((replaced, function))
        return function

    return declare


@cache
def _numba() -> Any:
    """The module, or None where there is none that works with this NumPy."""
    if find_spec("numba") is None:
        return None
    try:
        import numba
        import numba.extending
    except (ImportError, SystemError):  # it refuses NumPy versions newer than itself
        return None
    return numba


def available() -> tuple[Name, ...]:
    """The kernels that can be used here."""
    return NAMES if _numba() is not None else NAMES[:1]


def default() -> Name:
    """What runs that say nothing else use: numba where it is installed."""
    chosen = _compiled.get()
    if chosen is not None:
        return "numba" if chosen else "numpy"
    wanted = os.environ.get(VARIABLE, "numba")
    if wanted not in NAMES:
        raise ValueError(f"{VARIABLE} must be one of {NAMES}, got {wanted!r}")
    return "numba" if wanted == "numba" and _numba() is not None else "numpy"


def choose(name: Name) -> Token[bool | None]:
    """Use these kernels from now on in the present context, such as that of a run."""
    if name != "numpy" and name not in available():  # without importing numba in vain
        raise ValueError(
            f"kernels must be one of {available()}, got {name!r}; for compiled ones, "
            "pip install 'bilevo[fast]'"
        )
    if name == "numba":
        compile_all()
    return _compiled.set(name == "numba")


@contextmanager
def using(name: Name) -> Iterator[None]:
    """Run what is inside with these kernels."""
    token = choose(name)
    try:
        yield
    finally:
        _compiled.reset(token)


def compile_all() -> None:
    """Compile the kernels that are not yet, or load them; says so when that takes a second."""
    if not _waiting:
        return
    numba = _numba()
    _register(numba.extending)
    notice = Timer(1.0, _announce)
    notice.daemon = True
    notice.start()
    try:
        while _waiting:
            made = _waiting[-1]
            made.compiled = numba.njit(made.signature, cache=True, error_model="numpy")(made.plain)
            _waiting.pop()
    finally:
        notice.cancel()


def _register(extending: Any) -> None:
    """Tell numba of the functions that kernels call."""
    while _parts:
        extending.register_jitable(_parts.pop())
    while _stand_ins:
        replaced, function = _stand_ins.pop()
        extending.overload(replaced, strict=False)(_giving(function))


def _giving(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *types: function


def _announce() -> None:
    print("bilevo: compiling its kernels with numba; they are kept for later", file=sys.stderr)
