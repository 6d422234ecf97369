"""How hard a verification looks for a better answer."""

from __future__ import annotations

from typing import Any

from bilevo.algorithms.shared.independent_search import Effort
from bilevo.core.checks import require

CHEAP = 1000  # A run with fewer evaluations than this is verified with low effort,
COSTLY = 20_000  # and one with at least this many with high effort.


def effort_of(effort: Any, nfev: int) -> Effort:
    """Return the effort that a user asks for.

    None asks for an effort that suits the number of evaluations that the run has made.
    """
    if effort is None:
        if nfev < CHEAP:
            return Effort.LOW
        return Effort.NORMAL if nfev < COSTLY else Effort.HIGH
    known = isinstance(effort, str) and effort in tuple(Effort)
    require(known, "effort", '"low", "normal", "high" or None', effort)
    return Effort(effort)
