"""Files of a campaign, which may come from a stranger: read with a bound, written through no link.

A folder that somebody sends may hold a pipe that never ends, a device, or a link to a file of the
reader's. So only regular files of a known size are read, and a file is written under a new name
that no link can have, and then put in the place of the old one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL
WRITING |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def opened(path: Path, most: int) -> BinaryIO:
    """Open a regular file of at most `most` bytes to read; anything else is a ValueError."""
    number = os.open(path, READING)  # without waiting for somebody to write to a pipe
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
    """Write a file that takes the place of `path` when it is whole and on the disk.

    A link of that name is replaced, not followed; so is one of the name it is written under.
    """
    new = path.with_name(path.name + ".new")
    with suppress(FileNotFoundError):
        os.unlink(new)  # what a kill has left; of a link, the link alone
    try:
        with os.fdopen(os.open(new, WRITING, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise
