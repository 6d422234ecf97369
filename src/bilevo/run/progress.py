"""A line of progress on standard error, drawn by rich."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from bilevo.core.result import Result

if TYPE_CHECKING:
    from rich.live import Live


class ProgressLine:
    """Shows generation, evaluations, the best pair and the time, while a run goes on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live: Live | None = None

    def __enter__(self) -> ProgressLine:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._live is not None
        self._live.stop()

    def __call__(self, result: Result) -> None:
        assert self._live is not None
        from rich.text import Text

        feasible = "" if result.violation == 0 else f"  violation {result.violation:.2e}"
        self._live.update(
            Text(
                f"{self._name}  generation {result.nit}  evaluations "
                f"{result.nfev_upper:,} + {result.nfev_lower:,}  F {result.F:.6g}  "
                f"f {result.f:.6g}{feasible}  {result.time:.1f} s"
            )
        )
