"""Kernels: small numerical functions that numba compiles where it is installed (`bilevo[fast]`).

A kernel is written once, in NumPy, and runs as plain Python without numba. Its signature is fixed,
so that nothing is compiled in the middle of a run; numba keeps compiled code for later processes.
Compiled and plain kernels round differently, but each repeats its own results to the bit. So a
run keeps the kernels it began with: `Result.kernel` and the header of a journal say which.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import cache
from importlib.util import find_spec
from threading import RLock, Timer
from typing import Any, Generic, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Name = Literal["numpy", "numba"]
NAMES: tuple[Name, ...] = ("numpy", "numba")
VARIABLE = "BILEVO_KERNEL"  # environment variable; "numpy" turns numba off

OLDEST = (0, 61)  # the oldest version of numba that works
NOTICE_AFTER = 1.0  # seconds of compiling before a message is printed

# True if compiled kernels are in use, False if plain ones are, None outside `using` and `enter`.
_compiled: ContextVar[bool | None] = ContextVar("compiled", default=None)
_lock = RLock()
_waiting: list[Kernel[Any]] = []  # kernels that are not compiled yet
_parts: list[Callable[..., Any]] = []  # helpers that numba has not been told about yet
_stand_ins: list[tuple[Callable[..., Any], Callable[..., Any]]] = []  # (replaced, stand-in)


class Kernel(Generic[R]):
    """A function that runs compiled where numba is in use, and as plain Python elsewhere."""

    def __init__(self, function: Callable[..., R], signature: str) -> None:
        self.plain = function
        self.signature = signature
        self.compiled: Callable[..., R] = self._not_yet
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> R:
        return self.compiled(*args) if _compiled.get() else self.plain(*args)

    def _not_yet(self, *args: Any) -> R:
        """Compile a kernel that was declared after the others were prepared, and call it."""
        prepare("numba")
        return self.compiled(*args)


def kernel(signature: str) -> Callable[[Callable[..., R]], Kernel[R]]:
    """Make a function a kernel with this signature, in numba's notation."""

    def declare(function: Callable[..., R]) -> Kernel[R]:
        made = Kernel(function, signature)
        _waiting.append(made)
        return made

    return declare


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Declare a helper of the kernels in the same file; it is compiled together with them."""
    _parts.append(function)
    return function


def stand_in(replaced: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a function that compiled kernels call in place of the function `replaced`."""

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        _stand_ins.append((replaced, function))
        return function

    return declare


@cache
def _numba() -> Any:
    """Return the module numba, or None if it is missing or does not work."""
    if find_spec("numba") is None:
        return None
    try:
        import numba
        import numba.extending
    except Exception as error:  # numba may refuse a new NumPy, or fail to load LLVM
        warnings.warn(f"numba cannot be used: {error}. Continuing without it", stacklevel=2)
        return None
    if tuple(map(int, numba.__version__.split(".")[:2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        warnings.warn(f"numba {numba.__version__} is older than {wanted}: not used", stacklevel=2)
        return None
    return numba


def chosen() -> Name | None:
    """Return the name of the kernels that `using` or the environment asks for.

    If neither asks for any, return None.
    """
    inside = _compiled.get()
    if inside is not None:
        return "numba" if inside else "numpy"
    wanted = os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in NAMES:
        raise ValueError(f"{VARIABLE} must be one of {NAMES}, got {wanted!r}")
    return wanted


def default() -> Name:
    """Return the name that `chosen` gives.

    If it gives None, return "numba" where numba can be used, and "numpy" elsewhere.
    """
    return chosen() or ("numpy" if _numba() is None else "numba")


@contextmanager
def using(name: Name) -> Iterator[None]:
    """Use these kernels in a `with` block; threads that start in it use the default."""
    prepare(name)
    token = enter(name)
    try:
        yield
    finally:
        leave(token)


def enter(name: Name) -> Token[bool | None]:
    """Use kernels that `prepare` has made ready, until `leave` is given the returned token."""
    return _compiled.set(name == "numba")


leave = _compiled.reset


def prepare(name: Name) -> None:
    """Make kernels ready for use; refuse them if they are not installed.

    numba compiles them or loads its cache, with a message if that takes more than a second.
    """
    if name not in NAMES:
        raise ValueError(f"kernels must be one of {NAMES}, got {name!r}")
    if name == "numpy":
        return
    numba = _numba()
    if numba is None:
        raise ValueError("the kernels 'numba' need numba: pip install 'bilevo[fast]'")
    with _lock:  # runs may begin in several threads
        if _waiting:
            _compile_waiting(numba)


def _compile_waiting(numba: Any) -> None:
    _register(numba.extending)
    notice = Timer(NOTICE_AFTER, _announce)
    notice.daemon = True
    notice.start()
    try:
        while _waiting:
            made = _waiting[-1]
            made.compiled = _compile(numba, made)
            _waiting.pop()
    finally:
        notice.cancel()


def _compile(numba: Any, made: Kernel[R]) -> Callable[..., R]:
    compiled: Callable[..., R]
    try:
        compiled = numba.njit(made.signature, cache=True, error_model="numpy")(made.plain)
    except RuntimeError:  # numba finds no directory for its cache
        compiled = numba.njit(made.signature, error_model="numpy")(made.plain)
    return compiled


def _register(extending: Any) -> None:
    """Tell numba about the helpers that kernels call."""
    while _parts:
        extending.register_jitable(_parts.pop())
    while _stand_ins:
        replaced, function = _stand_ins.pop()
        extending.overload(replaced, strict=False)(_giving(function))


def _giving(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *types: function


def _announce() -> None:
    print("bilevo: preparing compiled kernels (numba)", file=sys.stderr)
