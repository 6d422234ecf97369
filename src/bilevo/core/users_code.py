"""Marks on exceptions from user code: functions, solvers and algorithms.

Such an exception reaches the caller as it was raised, with a note that says where in the run this
happened. The note is a `Where`, by which the command line recognizes exceptions from user code.
"""

from __future__ import annotations


class Where(str):
    """A note on an exception: where in a run it was raised."""

    __slots__ = ()


def mark(error: BaseException, where: str) -> None:
    """Add to an exception from user code a note that says where in the run it was raised."""
    error.add_note(Where(where))


def is_marked(error: BaseException) -> bool:
    """Tell whether an exception comes from user code."""
    return any(isinstance(note, Where) for note in getattr(error, "__notes__", ()))
