"""Where there is something to watch: run directories and campaigns at or below given paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from bilevo.lab.campaign import SETTINGS
from bilevo.lab.store import SEGMENT
from bilevo.run.stored import JOURNAL

MAX_DEPTH = 4  # How far below a given path runs and campaigns are looked for.
MAX_ENTRIES = 100_000  # The most names of files and directories that are looked at.
MAX_PLACES = 2_000  # The most runs and campaigns that are shown.


class Place(NamedTuple):
    """A run directory or a campaign's directory."""

    path: Path
    kind: Literal["run", "campaign"]

    @property
    def id(self) -> str:
        """Return a short name for addresses, which depends on the path only."""
        return blake2b(os.fsencode(self.path), digest_size=6).hexdigest()


def require_directories(paths: Sequence[Path]) -> None:
    """Raise ValueError unless there are paths, and each is a directory."""
    if not paths:
        raise ValueError("name a run directory, a campaign's directory, or a directory of those")
    for path in paths:
        if not path.is_dir():
            why = "is no directory" if path.exists() else "does not exist"
            raise ValueError(f"{path} {why}; give the directory of a run or of a campaign")


def find_places(paths: Sequence[Path]) -> list[Place]:
    """Return what there is to watch, sorted by path, at most MAX_PLACES of it.

    Links to directories are not followed, except for the given paths themselves.
    """
    budget = [MAX_ENTRIES]
    found = {place: None for path in paths for place in _below(path.absolute(), MAX_DEPTH, budget)}
    return sorted(found, key=lambda place: (place.kind, place.path))[:MAX_PLACES]


def _below(directory: Path, depth: int, budget: list[int]) -> Iterator[Place]:
    names, folders = [], []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                budget[0] -= 1
                if budget[0] < 0:
                    return
                names.append(entry.name)
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    folders.append(entry.name)
    except OSError:  # it was removed meanwhile, or may not be read
        return
    if JOURNAL in names:
        yield Place(directory, "run")
    elif SETTINGS in names or any(map(SEGMENT.fullmatch, names)):
        yield Place(directory, "campaign")
    elif depth:
        for name in sorted(folders):
            yield from _below(directory / name, depth - 1, budget)
