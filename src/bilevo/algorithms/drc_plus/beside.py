"""What descents that run side by side know of each other.

Most descents end in a few optima, and the last ones of a group would run alone for long. So a
descent ends where another one has ended before, and where it is not expected to become better than
that one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bilevo.algorithms.shared.sqp import SearchEnd
from bilevo.core.arrays import FloatArray
from bilevo.core.order import no_worse

SAME_END = 1e-3  # Descents have one end if their x differ by less than this (fraction of the box).


@dataclass(slots=True, eq=False)
class Beside:
    """Where the descents of a group have ended so far."""

    ends: list[SearchEnd] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Return the lowest F at a feasible end; inf if there is none."""
        return min((end.objective for end in self.ends if end.violation == 0), default=math.inf)

    def have_ended_at(self, x: FloatArray, F: float) -> bool:
        """Tell whether a descent has ended near a leader x (m,), at an F that is no worse."""
        good = [end for end in self.ends if no_worse(end.objective, end.violation, F, 0.0)]
        return any(np.abs(x - end.point).max() <= SAME_END for end in good)
