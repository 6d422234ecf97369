"""The watcher: a thread that reads runs and campaigns again and again, and keeps a row for each.

It looks at every directory about twice a second, and reads only what is new. Long journals are read
in slices, one directory after the other, so that no run waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event, RLock, Thread
from time import monotonic, thread_time, time
from typing import NamedTuple

from bilevo.core.terminal import on_one_line
from bilevo.lab.watch.campaign_files import FollowedCampaign
from bilevo.lab.watch.campaign_view import campaign_detail, campaign_row
from bilevo.lab.watch.places import Place, find_places
from bilevo.lab.watch.run_view import Plain, run_detail, run_row
from bilevo.run.follow import FollowedRun
from bilevo.run.state import RunState

EVERY = 0.5  # Seconds from one look at all directories to the next.
IDLE = 4  # A look that takes long is followed by a pause this many times as long.
SEARCH_EVERY = 3.0  # Seconds between searches for new directories.
REFRESH = 2.0  # Seconds after which the row of a running run is made again.
SLICE = 0.05  # Seconds that one directory is read at a time.
MAX_DETAILS = 8  # The most details of campaigns that are kept.


class _Row(NamedTuple):
    values: Plain
    version: int
    made: float  # by the monotonic clock


class Watcher:
    """Watches all runs and campaigns at or below some paths, from `start` to `stop`.

    `version` grows with every change; `rows_since` returns the rows that changed after a version.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._followed: dict[Place, FollowedRun | FollowedCampaign] = {}
        self._rows: dict[str, _Row] = {}
        self._unseen: set[Place] = set()  # directories that were found and not read yet
        self._removed: dict[str, int] = {}  # versions at which directories were missed
        self._details: dict[tuple[str, int], tuple[int, float, float, Plain]] = {}
        self._searched = self._looked = -SEARCH_EVERY
        self.version = 0
        self.settled = Event()  # set once all directories have been read to their ends
        self._guard, self._computing, self._stopping = RLock(), RLock(), Event()
        self._thread = Thread(target=self._watch, name="bilevo-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def read_all(self) -> None:
        """Read everything to its present end, without a thread."""
        while not self.settled.is_set():
            self.look()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            began = thread_time()  # not the time that other processes take
            unread = self.look()
            took = thread_time() - began
            self._stopping.wait(0.0 if unread else max(EVERY, IDLE * took))

    def look(self) -> bool:
        """Look at every directory once; return True if something is yet to be read.

        If the last look was a moment ago, only those that are not read to their ends are looked at.
        """
        if monotonic() - self._searched >= SEARCH_EVERY:
            self._search()
        unread, all_of_them = False, monotonic() - self._looked >= EVERY
        self._looked = monotonic() if all_of_them else self._looked
        for place, followed in list(self._followed.items()):
            if self._stopping.is_set():
                return False
            if not (all_of_them or followed.unread or place in self._unseen):
                continue
            with self._guard:
                self._unseen.discard(place)
                changed = followed.read(SLICE)
                unread = unread or bool(followed.unread)
                self._update(place, followed, changed)
        if not unread:
            self.settled.set()
        return unread

    def _search(self) -> None:
        found = find_places(self._paths)
        with self._guard:
            for place in [one for one in self._followed if one not in found]:
                del self._followed[place]
                if self._rows.pop(place.id, None):
                    self.version += 1
                    self._removed[place.id] = self.version
            for place in found:
                if place not in self._followed:
                    kind = FollowedRun if place.kind == "run" else FollowedCampaign
                    self._followed[place] = kind(place.path)
                    self._unseen.add(place)
                    self._removed.pop(place.id, None)
                    self.version += 1
                    self._rows[place.id] = _Row({**_unknown(place), "read": 0.0}, self.version, 0.0)
        self._searched = monotonic()

    def _update(
        self, place: Place, followed: FollowedRun | FollowedCampaign, changed: bool
    ) -> None:
        old, now = self._rows.get(place.id), monotonic()
        alive = old is not None and old.values["state"] == RunState.RUNNING
        if old is not None and not changed and not (alive and now - old.made >= REFRESH):
            return
        values = _row(place, followed)
        if old is None or values != old.values:
            self.version += 1
            self._rows[place.id] = _Row(values, self.version, now)

    def rows_since(self, version: int) -> tuple[list[Plain], list[str], int]:
        """Return rows that changed after a version, ids that are gone, and the present version."""
        with self._guard:
            rows = [row.values for row in self._rows.values() if row.version > version]
            gone = [id for id, at in self._removed.items() if at > version]
            return rows, gone, self.version

    def detail(self, id: str, group: int = 0) -> Plain | None:
        """Return the details of a run or a campaign, or None if there is none with this id."""
        with self._guard:
            found = [pair for pair in self._followed.items() if pair[0].id == id]
            if not found:
                return None
            place, followed = found[0]
            if isinstance(followed, FollowedRun):
                return _safely(place, partial(run_detail, id, followed, time()))
            followed = followed.copied()  # so that the thread goes on meanwhile
        with self._computing:
            return self._campaign_detail(place, followed, group)

    def _campaign_detail(self, place: Place, followed: FollowedCampaign, group: int) -> Plain:
        """Return the details of a campaign; those of a moment ago if making them takes long."""
        key, began = (place.id, group), monotonic()
        kept = self._details.get(key)
        if kept is not None:
            changes, made, took, detail = kept
            if changes == followed.changes or began - made < 1 + IDLE * took:
                return {**detail, **_row(place, followed), "stale": changes != followed.changes}
        detail = _safely(place, partial(campaign_detail, place.id, followed, time(), group))
        if len(self._details) >= MAX_DETAILS:
            self._details.clear()
        self._details[key] = followed.changes, monotonic(), monotonic() - began, detail
        return detail

    def ids(self) -> list[str]:
        """Return the ids of all runs and campaigns, in order."""
        return [place.id for place in self._followed]


def _row(place: Place, followed: FollowedRun | FollowedCampaign) -> Plain:
    if isinstance(followed, FollowedRun):
        return _safely(place, partial(run_row, place.id, followed, time()))
    return _safely(place, partial(campaign_row, place.id, followed, time()))


def _safely(place: Place, make: Callable[[], Plain]) -> Plain:
    """Return what a function makes; if it raises, a row that says so."""
    try:
        return make()
    except Exception as error:  # a foreign file can be wrong in any way
        said = on_one_line(f"it cannot be shown: {type(error).__name__}: {error}")[:500]
        return {**_unknown(place), "error": said}


def _unknown(place: Place) -> Plain:
    """Return the row of a directory of which nothing is known yet."""
    path = on_one_line(str(place.path))
    known = {"id": place.id, "kind": place.kind, "path": path, "error": ""}
    return {**known, "state": RunState.UNKNOWN}
