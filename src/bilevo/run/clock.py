"""The clock of a run: the seconds it has taken, also over several sittings."""

from __future__ import annotations

import math
from time import perf_counter


class Clock:
    """Counts a run's seconds from `start` to `stop`. A run that is resumed sets it on."""

    __slots__ = ("_started", "_stopped", "limit")

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self._started = perf_counter()
        self._stopped: float | None = None

    @property
    def elapsed(self) -> float:
        return self._now() - self._started

    @property
    def left(self) -> float:
        """Seconds to the limit."""
        return self.limit - self.elapsed

    def set(self, seconds: float) -> None:
        """Say how long the run has taken so far."""
        self._started = self._now() - seconds

    def stop(self) -> None:
        self._stopped = perf_counter()

    def _now(self) -> float:
        return perf_counter() if self._stopped is None else self._stopped
