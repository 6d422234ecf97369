"""How hard a verification looks for a better answer."""

from __future__ import annotations

from typing import Any

from bilevo.algorithms.shared.independent_search import Effort
from bilevo.core.checks import require

CHEAP = 2000  # A run with fewer evaluations than this is verified with low effort.


def effort_of(effort: Any, nfev: int) -> Effort:
    """Return the effort that a user asks for.

    None asks for low effort after a run with few evaluations, and for normal effort otherwise.
    """
    if effort is None:
        return Effort.LOW if nfev < CHEAP else Effort.NORMAL
    known = isinstance(effort, str) and effort in tuple(Effort)
    require(known, "effort", '"low", "normal", "high" or None', effort)
    return Effort(effort)
