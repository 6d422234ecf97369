"""A lock on a run directory, so that only one process writes in it.

The lock is made by `flock` and ends with its process. Unlike a POSIX record lock, it is not lost
when the process opens and closes the file again, for example to copy the directory. A forked child
would keep the file open, and so locked, after its parent's death. So children close the file.

The file has up to three lines: the name of the process, a JSON object (when the process took the
lock, and the limits of its run), and `left` if the process released the lock and was not killed.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import monotonic, sleep, time
from typing import NamedTuple

from bilevo import safe_files
from bilevo.core.budget import Limits
from bilevo.core.plain_data import plain, revive
from bilevo.core.terminal import on_one_line, printable
from bilevo.run.errors import RunLocked
from bilevo.safe_files import explained

LOCK = "lock"
MAX_LOCK = 2000  # The most bytes of a lock's file that are read.
TRIES, PAUSE = 3, 0.002  # Who looks whether a lock is held (`is_held`) holds it for a moment.
LEFT = "left"
_held: set[int] = set()  # the open files of this process's locks


def _leave_to_parent() -> None:
    """Close the files of locks in a forked child."""
    for file in _held:
        os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def take_alone(file: int) -> None:
    """Take the lock of an open file or directory; raise BlockingIOError if another one has it."""
    import fcntl

    for left in reversed(range(TRIES)):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            sleep(PAUSE)


def is_held(file: int) -> bool | None:
    """Tell whether somebody holds the lock of an open file; None if the system has no such locks.

    The question takes a shared lock for some microseconds, so the file must be closed at once.
    """
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


class DirectoryLock:
    """A lock that is held from construction to `release`."""

    def __init__(self, directory: Path, limits: Limits | None = None) -> None:
        try:
            import fcntl  # noqa: F401 (only to see whether it is there)
        except ImportError:
            raise OSError("run_dir needs a POSIX system: it locks files by fcntl") from None
        from socket import gethostname  # late: slow to import

        path = directory / LOCK
        self._file = safe_files.open_plain(path, os.O_RDWR | os.O_CREAT)
        about = {"since": time(), "limits": plain(asdict(limits or Limits()))}
        name = f"process {os.getpid()} on {gethostname()}"
        try:
            take_alone(self._file)
            os.ftruncate(self._file, 0)
            os.write(self._file, f"{name}\n{json.dumps(about)}\n".encode())
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
            with suppress(OSError):  # the disk may be full
                os.write(self._file, f"{LEFT}\n".encode())
            os.close(self._file)


class Owner(NamedTuple):
    """The process that last took a directory's lock, as the lock's file describes it."""

    held: bool | None = False  # whether the lock is held now; None if nobody knows
    name: str = ""  # such as "process 12 on host"; empty if the file does not say
    since: float | None = None  # when the process took the lock, in seconds since 1970
    limits: Limits | None = None
    left: bool = False  # whether the process released the lock; False if it was killed


def owner_of(directory: Path) -> Owner:
    """Return who writes in a directory, or who did so last; change nothing.

    Raise `UnsafeFile` if the lock is no plain file. Whatever else the file holds, there is no
    error: what makes no sense is left out.
    """
    try:
        file = safe_files.open_plain(directory / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return Owner()
    try:
        held = is_held(file)
        lines = os.pread(file, MAX_LOCK, 0).decode(errors="replace").split("\n")
    finally:
        os.close(file)
    since, limits = _about(lines[1]) if len(lines) > 1 else (None, None)
    return Owner(held, on_one_line(lines[0]), since, limits, LEFT in lines[2:])


def _about(line: str) -> tuple[float | None, Limits | None]:
    """Return when a process took a lock, and its run's limits; None for what the line lacks."""
    try:
        content = json.loads(line)
        since, limits = revive(float, content["since"]), revive(Limits, content["limits"])
        counts = limits.evals, limits.upper, limits.lower, limits.time
        return (since, limits) if math.isfinite(since) and min(counts) > 0 else (None, None)
    except Exception:  # a foreign file can be wrong in any way; files of older versions lack it
        return None, None


def _owner(file: int) -> str:
    """Return the name of the process that holds the lock, as it stands in the file.

    Wait a moment if the name is not written yet; return "another process" if it stays missing.
    """
    until = monotonic() + 0.5
    while monotonic() < until:
        name, ended, _ = os.pread(file, 300, 0).decode(errors="replace").partition("\n")
        if ended:
            return printable(name.strip())
        sleep(0.01)
    return "another process"
