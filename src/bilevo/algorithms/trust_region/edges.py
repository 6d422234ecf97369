"""Edges of plateaus: where F is level around a region, a better leader may lie just outside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.trust_region.region import Known
from bilevo.core.arrays import FloatArray

HALVINGS = 6  # How often the way to the edge of a plateau is halved.
EDGE_WIDTH = 1e-3  # The edge of a plateau is known if it lies between leaders this near.


@dataclass(slots=True, eq=False)
class Edge:
    """The edge of a plateau, between a leader on it and another one: it is found by halving."""

    on: Known
    off: Known
    left: int = HALVINGS

    @property
    def middle(self) -> FloatArray:
        return 0.5 * (self.on.x + self.off.x)

    @property
    def width(self) -> float:
        return float(np.abs(self.on.x - self.off.x).max())


def nearest_edge(known: list[Known], on: Known, negligible: float) -> Edge | None:
    """Return the nearest edge of the plateau that a leader stands on, if one is known."""
    level = [point for point in known if point.usable and on.ties(point, negligible)]
    others = [point for point in known if point.usable and not on.ties(point, negligible)]
    if not others:
        return None
    places = np.array([point.x for point in level])
    away = [np.linalg.norm(places - point.x, axis=1) for point in others]
    nearest = int(np.argmin([distances.min() for distances in away]))
    edge = Edge(level[int(away[nearest].argmin())], others[nearest])
    return None if edge.width < EDGE_WIDTH else edge
