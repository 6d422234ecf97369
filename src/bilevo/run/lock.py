"""One writer for a run directory. The lock is the kernel's, so it ends with its process, however.

A POSIX record lock is used rather than `flock`, which processes started by the owner would inherit
and hold on to after its death. Such locks do not keep two threads of one process apart, so the
directories in use by this process are remembered as well.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from time import monotonic, sleep

from bilevo.run.errors import RunLocked

_ours: set[Path] = set()
_guard = threading.Lock()


class DirectoryLock:
    """Held from construction to `release`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._key = self._path.resolve()
        with _guard:
            if self._key in _ours:
                raise RunLocked(f"{directory} is in use by another run of this process")
            _ours.add(self._key)
        try:
            self._file = self._acquire(directory)
        except BaseException:
            self._forget()
            raise

    def _acquire(self, directory: Path) -> int:
        try:
            import fcntl
        except ImportError:
            raise OSError("run_dir needs a POSIX system: it locks files by fcntl") from None
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            owner = self._owner()
            os.close(file)
            raise RunLocked(
                f"{directory} is in use by {owner}; wait for it, end it, or use another run_dir"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return file

    def _owner(self) -> str:
        """What the owner wrote; it may be about to."""
        until = monotonic() + 0.5
        while monotonic() < until:
            text = self._path.read_text(errors="replace")[:300]
            if text.endswith("\n"):
                return text.strip()
            sleep(0.01)
        return "another process"

    def release(self) -> None:
        os.close(self._file)
        self._forget()

    def _forget(self) -> None:
        with _guard:
            _ours.discard(self._key)
