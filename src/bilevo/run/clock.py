"""The clock of a run, which also counts the seconds before the run was resumed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Clock:
    """Counts the seconds of a run until `stop`; during a replay it shows the journal's times."""

    __slots__ = ("_held", "_started", "_stopped", "limit")

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self._started = perf_counter()
        self._stopped: float | None = None
        self._held: float | None = None

    @property
    def elapsed(self) -> float:
        return self._now() - self._started if self._held is None else self._held

    @property
    def left(self) -> float:
        """Return the seconds that are left until the limit."""
        return self.limit - self.elapsed

    def set(self, seconds: float) -> None:
        """Let the clock run, starting at this number of seconds."""
        self._started, self._held = self._now() - seconds, None

    def hold(self, seconds: float) -> None:
        """Show this number of seconds until `set` is called."""
        self._held = seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time that is spent inside this context."""
        before = self._now()
        yield
        self._started += self._now() - before

    def stop(self) -> None:
        self._stopped = perf_counter()

    def _now(self) -> float:
        return perf_counter() if self._stopped is None else self._stopped
