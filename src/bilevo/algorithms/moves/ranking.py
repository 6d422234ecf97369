"""Which moves of the leader look best: a linear model of F and G over the leaders that were solved.

F of a whole number is modelled by a parabola, that of a choice by a number for each label. Leaders
near the present one count more. A model costs no evaluation, and it only orders moves: a wrong
model makes a search longer, not worse. There is one exception. If G is an exact linear function of
all leaders so far, as a budget is, then leaders that violate it are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray
from bilevo.core.bounds import Grid

RIDGE = 1e-3  # How strongly coefficients are drawn to 0, in units of the features.
EXACT = 1e-7  # G is an exact linear function if it is so to this fraction of its size.
PENALTY = 10.0  # A violation counts as much as this many spreads of F, for all its spread.
MOST_LABELS = 50  # A choice among more labels is not modelled.


def features(grid: Grid, cells: IntArray, unit: FloatArray) -> FloatArray:
    """Return the features (k, p) of leaders: cells (k, m) and unit points (k, m)."""
    columns = [np.ones(len(cells))]
    for i, count in enumerate(grid.values.tolist()):
        if grid.unordered[i]:
            labels = range(1, count) if count <= MOST_LABELS else ()
            columns += [(cells[:, i] == label).astype(float) for label in labels]
            continue
        place = cells[:, i] / (count - 1.0) if count else unit[:, i]
        columns.append(place - 0.5)
        if count != 2:
            columns.append((place - 0.5) ** 2)
    return np.array(columns).T


@dataclass(frozen=True, slots=True, eq=False)
class MoveModel:
    """A model of F and G around a leader's features (p,)."""

    F: FloatArray  # coefficients (p,)
    G: FloatArray  # coefficients (p, c)
    G_exact: bool  # whether G is known to be linear
    F_spread: float
    G_spread: FloatArray  # (c,)

    @classmethod
    def fit(cls, rows: FloatArray, F: FloatArray, G: FloatArray, here: FloatArray) -> MoveModel:
        """Fit a model to F (k,) and G (k, c) of leaders with features (k, p)."""
        away = ((rows - here) ** 2).sum(axis=1)
        typical = float(np.median(away)) or 1.0
        weight = np.sqrt(1.0 / (1.0 + 4 * away / typical))[:, None]
        middle, spread = float(np.median(F)), float(np.ptp(F)) or 1.0
        G_spread = np.where(np.ptp(G, axis=0) > 0, np.ptp(G, axis=0), 1.0)
        A, target = rows * weight, np.column_stack([(F - middle) / spread, G / G_spread]) * weight
        p = rows.shape[1]
        ridge = RIDGE * np.eye(p)
        ridge[0, 0] = 1e-9
        solved = np.linalg.solve(A.T @ A + ridge, A.T @ target)
        found = solved[:, 0] * spread
        found[0] += middle
        G_found, exact = solved[:, 1:] * G_spread, False
        if G.shape[1] and len(rows) > p:
            plain, _, rank, _ = np.linalg.lstsq(rows, G, rcond=None)
            exact = bool(rank == p and (np.abs(rows @ plain - G) <= EXACT * G_spread).all())
            G_found = plain if exact else G_found
        return cls(found, G_found, exact, spread, G_spread)

    def cost(self, rows: FloatArray, forgiving: bool = False) -> FloatArray:
        """Return how bad leaders with features (k, p) look.

        It is inf if they are surely infeasible, unless `forgiving`.
        """
        F, over = rows @ self.F, self.violation(rows)
        if self.G_exact and not forgiving:
            return np.where(over > 0, np.inf, F)
        return np.asarray(F + PENALTY * self.F_spread * over)

    def violation(self, rows: FloatArray) -> FloatArray:
        """Return by how much leaders seem to violate constraints, in units of their spreads."""
        over = rows @ self.G / self.G_spread
        return np.asarray(np.where(over > EXACT, over, 0.0).sum(axis=1))
