"""A lock on a run directory, so that only one process writes in it.

The lock is made by `flock` and ends with its process. Unlike a POSIX record lock, it is not lost
when the process opens and closes the file again, for example to copy the directory. A forked child
would keep the file open, and so locked, after its parent's death. So children close the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep

from bilevo import safe_files
from bilevo.core.terminal import printable
from bilevo.run.errors import RunLocked
from bilevo.safe_files import explained

_held: set[int] = set()  # the open files of this process's locks


def _leave_to_parent() -> None:
    """Close the files of locks in a forked child."""
    for file in _held:
        os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class DirectoryLock:
    """A lock that is held from construction to `release`."""

    def __init__(self, directory: Path) -> None:
        try:
            import fcntl
        except ImportError:
            raise OSError("run_dir needs a POSIX system: it locks files by fcntl") from None
        from socket import gethostname  # late: slow to import

        path = directory / "lock"
        self._file = safe_files.open_plain(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.write(self._file, f"process {os.getpid()} on {gethostname()}\n".encode())
        except BlockingIOError:
            owner = _owner(self._file)
            os.close(self._file)
            raise RunLocked(
                f"{directory} is in use by {owner}; wait for it, end it, or use another run_dir"
            ) from None
        except OSError as error:
            os.close(self._file)
            raise explained(error, path) from error
        _held.add(self._file)

    def release(self) -> None:
        if self._file in _held:  # a child that was forked meanwhile has closed it
            _held.remove(self._file)
            os.close(self._file)


def _owner(file: int) -> str:
    """Return the name of the process that holds the lock, as it stands in the file.

    Wait a moment if the name is not written yet; return "another process" if it stays missing.
    """
    until = monotonic() + 0.5
    while monotonic() < until:
        text = os.pread(file, 300, 0).decode(errors="replace")
        if text.endswith("\n"):
            return printable(text.strip())
        sleep(0.01)
    return "another process"
