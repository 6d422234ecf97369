"""How hard a verification looks."""

from __future__ import annotations

from typing import Any

from bilevo.algorithms.shared.independent_search import Effort
from bilevo.core.checks import require

CHEAP = 2000  # evaluations: the verification of a run with fewer is made with low effort


def effort_of(effort: Any, nfev: int) -> Effort:
    """Return the effort that a user asks for; None is in proportion to a run's evaluations."""
    if effort is None:
        return Effort.LOW if nfev < CHEAP else Effort.NORMAL
    known = isinstance(effort, str) and effort in tuple(Effort)
    require(known, "effort", '"low", "normal", "high" or None', effort)
    return Effort(effort)
