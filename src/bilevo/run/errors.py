"""Errors that refuse a run directory. Each message says what to do; nothing is overwritten."""

from bilevo.safe_files import UnsafeFile

__all__ = ["JournalCorrupt", "RunLocked", "RunMismatch", "UnsafeFile"]


class JournalCorrupt(ValueError):  # noqa: N818 (a public name)
    """A journal is damaged in front of intact records, or the file is not a journal."""


class RunMismatch(ValueError):  # noqa: N818 (a public name)
    """A run directory holds a run of another problem, method, seed, setting or format."""


class RunLocked(ValueError):  # noqa: N818 (a public name)
    """Another run is writing in the run directory."""
