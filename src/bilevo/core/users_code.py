"""Marks on exceptions that come from code of the user's: functions, solvers, algorithms.

Such an exception reaches the caller as it was raised, with a note that says where in the run that
was. The note is a `Where`, so that a command can tell it from a refusal by this package.
"""

from __future__ import annotations


class Where(str):
    """A note on an exception: where in a run it was raised."""

    __slots__ = ()


def mark(error: BaseException, where: str) -> None:
    """Note on an exception of the user's code where it was raised."""
    error.add_note(Where(where))


def is_marked(error: BaseException) -> bool:
    """Tell whether an exception comes from code of the user's."""
    return any(isinstance(note, Where) for note in getattr(error, "__notes__", ()))
