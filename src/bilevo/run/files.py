"""Files of a run directory, which may come from a stranger.

No link is followed, only plain files are opened, and sizes are known before anything is read. So a
directory that somebody else has made can lead to nothing outside it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

from bilevo.run.errors import UnsafeFile, explained

# Without O_NONBLOCK, opening a pipe would wait for ever. Windows has neither, nor links as easily.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_CAREFULLY |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_STATE = re.compile(r"\d+\.npz(\.new)?")  # the names of stored followers


def exists(path: Path) -> bool:
    """Tell whether there is anything of this name, if only a link that leads nowhere."""
    return os.path.lexists(path)


def require_plain(path: Path) -> None:
    """Refuse anything but a plain file that has no second name; there may be none."""
    with suppress(FileNotFoundError):
        _check(path, os.lstat(path))


def require_folder(path: Path) -> None:
    """Refuse a name that stands for anything but a directory; there may be none."""
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise UnsafeFile(_refusal(path, f"is {_kind(os.lstat(path).st_mode)}, no directory"))


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file, and return its descriptor."""
    require_plain(path)  # before: opening a device may do something
    try:
        file = os.open(path, flags | _CAREFULLY, 0o666)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeFile(_refusal(path, "is a link")) from None
        raise explained(error, path) from error
    try:
        _check(path, os.fstat(file))
    except UnsafeFile:
        os.close(file)
        raise
    return file


def reading(path: Path) -> IO[bytes]:
    """Open a plain file for reading."""
    return os.fdopen(open_plain(path, os.O_RDONLY), "rb")


def beginning(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none if there is no file."""
    try:
        with reading(path) as file:
            return file.read(size)
    except FileNotFoundError:
        return b""


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file as a whole: after a crash there is the old one or the new one."""
    require_plain(path)
    temporary = path.with_name(path.name + ".new")
    remove(temporary)  # what a kill has left, or a link, which is not followed
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFULLY, 0o666)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise explained(error, path) from error


def _sync_folder(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove(path: Path) -> None:
    """Remove a file or link of a run's own; a directory of its name is refused."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            raise UnsafeFile(_refusal(path, "is a directory"))
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise explained(error, path) from error


def remove_states(folder: Path) -> None:
    """Remove the states of followers, and their folder if nothing else is in it."""
    if not exists(folder) or not stat.S_ISDIR(os.lstat(folder).st_mode):
        return
    with suppress(OSError):  # what is left does no harm
        for entry in list(os.scandir(folder)):
            if _STATE.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
        folder.rmdir()


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile(_refusal(path, f"is {_kind(status.st_mode)}"))
    if status.st_nlink > 1:
        raise UnsafeFile(_refusal(path, "has a second name (a hard link)"))


def _kind(mode: int) -> str:
    kinds = {"a link": stat.S_ISLNK, "a directory": stat.S_ISDIR, "a pipe": stat.S_ISFIFO}
    return next((name for name, test in kinds.items() if test(mode)), "no plain file")


def _refusal(path: Path, why: str) -> str:
    return (
        f"{path} {why}; a run directory holds plain files of its own only. Nothing was changed: "
        "remove it, replace it by a copy, or use another run_dir"
    )
