"""Late loading of parts of this package, and of optional libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class MissingExtra(ImportError):  # noqa: N818
    """An optional library is not installed; the message names the pip command for it."""


def need(what: str, module: str, extra: str) -> Any:
    """Return a module of an optional library.

    If the library is missing, raise a `MissingExtra`. Its message says that `what` need the
    library, and names `extra`, the option of pip that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != library:
            raise  # the library is installed, but broken
        hint = f"{what} need {library}: pip install 'bilevo[{extra}]'"
        raise MissingExtra(hint, name=library) from None


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that loads names when first used (PEP 562).

    `homes` maps each of these names to the module that defines it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(import_module(package), name, value)  # the next use needs no call
        return value

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return load, names
