"""A line of progress on standard error, drawn by rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bilevo.core.result import Result


@contextmanager
def progress_line(name: str) -> Iterator[Callable[[Result], None]]:
    """Show a line during a run; yield a function that writes the present result into the line."""
    with status_line(name, "first generation") as write:

        def show(result: Result) -> None:
            feasible = "" if result.violation == 0 else f", violation {result.violation:.1e}"
            write(
                f"generation {result.nit}, {result.nfev_upper}+{result.nfev_lower} evaluations, "
                f"F {result.F:.5g}, f {result.f:.5g}{feasible}, {result.time:.1f} s"
            )

        yield show


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
