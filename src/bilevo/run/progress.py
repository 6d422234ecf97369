"""A line of progress on standard error, drawn by rich."""

from __future__ import annotations

from types import TracebackType

from bilevo.core.result import Result


class ProgressLine:
    """Shows generation, evaluations, the best pair and the time, while a run goes on."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> ProgressLine:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._console = Console(stderr=True)
        self._line = Text(f"{self._name}: first generation", no_wrap=True, overflow="ellipsis")
        self._live = Live(self._line, console=self._console, refresh_per_second=8, transient=True)
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        self._console.print(self._line)

    def __call__(self, result: Result) -> None:
        feasible = "" if result.violation == 0 else f", violation {result.violation:.1e}"
        self._line.plain = (
            f"{self._name}: generation {result.nit}, {result.nfev_upper}+{result.nfev_lower} "
            f"evaluations, F {result.F:.5g}, f {result.f:.5g}{feasible}, {result.time:.1f} s"
        )
