"""Why a run directory is refused. Each message says what to do; nothing is overwritten."""

from __future__ import annotations

from pathlib import Path


class JournalCorrupt(ValueError):  # noqa: N818 (a public name)
    """A journal is damaged before its tail, or is not a journal at all."""


class RunMismatch(ValueError):  # noqa: N818 (a public name)
    """A run directory holds a run of another problem, method, seed, setting or format."""


class RunLocked(ValueError):  # noqa: N818 (a public name)
    """Another run is writing in the run directory."""


class UnsafeFile(ValueError):  # noqa: N818 (reads as what is wrong)
    """A run directory holds a link or a special file where a plain file of its own should be."""


def explained(error: OSError, path: Path) -> OSError:
    """The same error, with the path and what to do."""
    advice = f"{error.strerror or error}; once that is mended the same call continues the run"
    return type(error)(error.errno, advice, str(path))
