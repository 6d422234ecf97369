"""Reading and writing files in directories that may come from a stranger.

Such a directory may hold a pipe that never ends, a device, or a link to one of the reader's own
files. So only regular files are opened, and their size is checked before they are read. A file is
never changed, but replaced by a new one, so that no link is followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# Without O_NONBLOCK, opening a pipe would wait for ever. Windows lacks some of these flags.
_SAFELY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _SAFELY


class UnsafeFile(ValueError):  # noqa: N818 (the name says what is wrong)
    """A link or a special file is in the place of a plain file."""


def explained(error: OSError, path: Path) -> OSError:
    """Return the same error with the path, and with advice on what to do."""
    advice = f"{error.strerror or error}; once that is fixed, the same call continues the run"
    return type(error)(error.errno, advice, str(path))


def require_plain(path: Path) -> None:
    """Refuse anything but a plain file without a second name (a hard link).

    A missing file is fine.
    """
    with suppress(FileNotFoundError):
        _check(path, os.lstat(path))


def require_directory(path: Path) -> None:
    """Refuse anything but a directory; a missing directory is fine."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISDIR(mode):
            raise _unsafe(path, f"is {_kind(mode)}, no directory")


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file without following a link, and return its descriptor."""
    require_plain(path)  # checked first, because opening a device may have effects
    try:
        file = os.open(path, flags | _NO_LINK | _SAFELY, 0o666)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _unsafe(path, "is a link") from None
        raise explained(error, path) from error
    try:
        _check(path, os.fstat(file))
    except UnsafeFile:
        os.close(file)
        raise
    return file


def reading(path: Path) -> BinaryIO:
    """Open a plain file to read, without following a link."""
    return os.fdopen(open_plain(path, os.O_RDONLY), "rb")


def beginning(path: Path, size: int) -> bytes:
    """Return the first `size` bytes of a plain file, or no bytes if there is no file."""
    try:
        with reading(path) as file:
            return file.read(size)
    except FileNotFoundError:
        return b""


def opened(path: Path, most: int) -> BinaryIO:
    """Open a regular file of at most `most` bytes to read; links to regular files are followed."""
    number = os.open(path, os.O_RDONLY | _SAFELY)
    try:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"{path} is no regular file")
        if about.st_size > most:
            raise ValueError(f"{path} has {about.st_size:,} bytes; at most {most:,} are read")
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def content(path: Path, most: int) -> bytes:
    """Return what a regular file of at most `most` bytes holds."""
    with opened(path, most) as file:
        return file.read(most)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file to write, which replaces `path` once it is complete and on the disk.

    After a crash, `path` is either the old file or the new one. If `path` is a link, the link is
    replaced, not followed; a link at the temporary name of the new file is removed.
    """
    new = path.with_name(path.name + ".new")
    remove(new)  # a killed process may have left it, or it may be a link
    try:
        with os.fdopen(os.open(new, _NEW, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        _sync_directory(path.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def write_whole(path: Path, written: bytes) -> None:
    """Replace a plain file as a whole; refuse to replace anything else."""
    require_plain(path)
    try:
        with replacing(path) as file:
            file.write(written)
    except OSError as error:
        raise explained(error, path) from error


def remove(path: Path) -> None:
    """Remove a file or a link, if there is one; refuse to remove a directory."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            raise _unsafe(path, "is a directory")
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise explained(error, path) from error


def _sync_directory(path: Path) -> None:
    """Force new names in a directory to the disk, on systems where directories can be opened."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(path, f"is {_kind(status.st_mode)}")
    if status.st_nlink > 1:
        raise _unsafe(path, "has a second name (a hard link)")


def _kind(mode: int) -> str:
    kinds = {"a link": stat.S_ISLNK, "a directory": stat.S_ISDIR, "a pipe": stat.S_ISFIFO}
    return next((name for name, test in kinds.items() if test(mode)), "no plain file")


def _unsafe(path: Path, why: str) -> UnsafeFile:
    return UnsafeFile(
        f"{path} {why}; a run directory holds plain files of its own only. Nothing was changed: "
        "remove it, replace it by a copy, or use another run_dir"
    )
