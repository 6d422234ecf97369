"""Optional libraries: they are loaded with their first use; an error says how to install them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class MissingExtra(ImportError):  # noqa: N818
    """A library that this needs is not installed; the message names the pip command."""


def need(what: str, module: str, extra: str) -> Any:
    """Return a module of an optional library; the error names the pip command if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != library:
            raise  # it is installed, and broken
        hint = f"{what} need {library}: pip install 'bilevo[{extra}]'"
        raise MissingExtra(hint, name=library) from None
