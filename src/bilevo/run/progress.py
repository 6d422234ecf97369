"""Progress on standard error: a line that is drawn again and again by rich, or lines of a log."""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from bilevo.core.budget import Limits
from bilevo.core.request import Level

if TYPE_CHECKING:
    from rich.console import Console

    from bilevo.run.session import Session, Source

PACE_SECONDS = 30.0  # The time over which the rate of evaluations is measured.
FIRST_LINE = 1.0  # Seconds until the first line where standard error is no terminal,
LOG_EVERY = 10.0  # and seconds between two lines after it.


class Progress:
    """Says how far a run has come. A thread asks for it, so it also changes within a batch."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._watched: tuple[Session, Source] | None = None
        self._paces: deque[tuple[float, int]] = deque()  # times and evaluations

    def follow(self, session: Session, source: Source) -> None:
        """Tell of this run from now on."""
        self._watched = session, source

    def text(self) -> str:
        """Return the present state of the run in words."""
        if self._watched is None:
            return "starting"
        session, source = self._watched
        record = session.record
        batch, counts = session.batch, dict(record.counts)
        running = 0 if batch is None else source.counted
        if batch is not None:
            counts[batch.level] += running
        made = record.evaluations + running
        rate, elapsed = self._rate(made), session.clock.elapsed
        parts = [
            self._share(made),
            f"{rate:.3g}/s" if rate else "",
            self._left(made, rate, elapsed),
        ]
        parts += [_best(session), f"{record.failures} failed" if record.failures else ""]
        upper, lower = counts[Level.UPPER], counts[Level.LOWER]
        parts += [f"generation {record.history.count + 1}", f"{upper} upper + {lower} lower"]
        parts.append(f"{elapsed:.1f} s")
        return ", ".join(part for part in parts if part)

    def _share(self, made: int) -> str:
        limit = self._limits.evals
        if not limit < math.inf:
            return f"{made} evaluations"
        return f"{made} of {limit:.0f} evaluations ({made / limit:.0%})"

    def _rate(self, made: int) -> float:
        """Return the evaluations in a second, over the last half minute."""
        now = perf_counter()
        self._paces.append((now, made))
        while len(self._paces) > 2 and self._paces[1][0] < now - PACE_SECONDS:
            self._paces.popleft()
        since, before = self._paces[0]
        return (made - before) / (now - since) if now > since else 0.0

    def _left(self, made: int, rate: float, elapsed: float) -> str:
        left = [self._limits.time - elapsed]
        if rate:
            left.append((self._limits.evals - made) / rate)
        seconds = max(0.0, min(left))
        return f"at most {duration(seconds)} left" if seconds < math.inf else ""


def _best(session: Session) -> str:
    """Return the best F in words, and whether its follower is certified."""
    best = session.record.best
    if best is None:
        return "no pair yet"
    if best.violation > 0:
        return f"F {best.F:.5g} (violation {best.violation:.1e})"
    return f"F {best.F:.5g} ({'certified' if best.certified else 'not certified'})"


def duration(seconds: float) -> str:
    """Return a time in words, such as 45 s, 12 min or 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def run_progress(name: str, limits: Limits) -> Iterator[Progress]:
    """Show the progress of the run that the yielded object is told to follow.

    A terminal has one line, which changes several times a second. A log gets a line at the first
    evaluation, then every ten seconds, and at the end.
    """
    from rich.console import Console

    progress, console = Progress(limits), Console(stderr=True)
    if console.is_terminal or console.is_jupyter:
        with _drawn(name, progress, console):
            yield progress
        return
    ended = threading.Event()
    writer = threading.Thread(target=_write_log, args=(name, progress, ended), daemon=True)
    writer.start()
    try:
        yield progress
    finally:
        ended.set()
        writer.join()
        _say(name, progress)


@contextmanager
def _drawn(name: str, progress: Progress, console: Console) -> Iterator[None]:
    from rich.live import Live
    from rich.text import Text

    def line() -> Text:
        return Text(f"{name}: {progress.text()}", no_wrap=True, overflow="ellipsis")

    try:
        with Live(console=console, refresh_per_second=8, transient=True, get_renderable=line):
            yield
    finally:
        console.print(line())


def _write_log(name: str, progress: Progress, ended: threading.Event) -> None:
    """Write a line after a second, and then every ten."""
    wait = FIRST_LINE
    while not ended.wait(wait):
        _say(name, progress)
        wait = LOG_EVERY


def _say(name: str, progress: Progress) -> None:
    print(f"{name}: {progress.text()}", file=sys.stderr, flush=True)


@contextmanager
def status_line(name: str, first: str) -> Iterator[Callable[[str], None]]:
    """Show a line that begins with a name; yield the function that writes a text into it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    line = Text(f"{name}: {first}", no_wrap=True, overflow="ellipsis")

    def write(text: str) -> None:
        line.plain = f"{name}: {text}"

    try:
        with Live(line, console=console, refresh_per_second=8, transient=True):
            yield write
    finally:
        console.print(line)
