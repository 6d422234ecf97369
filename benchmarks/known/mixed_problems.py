"""Random bilevel problems with whole numbers, choices and real numbers, and their true answers.

The follower's f is a quadratic form in y, some with waves and tables of random costs, so that many
have several local answers. At most one entry of y is real; f is a parabola in it, so its best value
has a closed form. A real entry of x adds a parabola to F only. All the rest is enumerated.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import bilevo

MANY = 40_000  # a problem has at most this number of pairs of whole numbers


@dataclass(frozen=True)
class Mixed:
    """A problem, its optimal F, and words that say what it is like."""

    problem: bilevo.Problem
    F: float
    about: str


def mixed_problem(seed: int) -> Mixed:
    """Make the random problem of a seed."""
    rng = np.random.default_rng([seed, 7])
    while True:
        x_counts, y_counts = _counts(rng), _counts(rng)
        if np.prod(x_counts) * np.prod(y_counts) <= MANY:
            break
    real_x, real_y = rng.random() < 0.25, rng.random() < 0.5
    x_choice, y_choice = (
        int(rng.integers(len(c))) if rng.random() < 0.4 else -1 for c in (x_counts, y_counts)
    )
    model = _Model(rng, x_counts, y_counts, x_choice, y_choice, real_x, real_y)
    about = f"x {x_counts} y {y_counts} choices {x_choice} {y_choice} real {real_x} {real_y}"
    about += f" waves {model.waves:.2g} G {model.budget is not None} g {model.limit is not None}"
    return Mixed(model.problem(f"mixed-{seed}"), model.optimum(), about)


def _counts(rng: np.random.Generator) -> list[int]:
    size = int(rng.integers(1, 4))
    return [int(rng.integers(2, (25, 12, 7)[size - 1])) for _ in range(size)]


class _Model:
    def __init__(
        self,
        rng: np.random.Generator,
        x_counts: list[int],
        y_counts: list[int],
        x_choice: int,
        y_choice: int,
        real_x: bool,
        real_y: bool,
    ) -> None:
        self.x_counts, self.y_counts = x_counts, y_counts
        self.x_choice, self.y_choice = x_choice, y_choice
        self.real_x, self.real_y = real_x, real_y
        m, n = len(x_counts), len(y_counts)
        self.low_x = rng.integers(-5, 3, m) * (np.arange(m) != x_choice)
        self.low_y = rng.integers(-5, 3, n) * (np.arange(n) != y_choice)
        self.A = rng.normal(size=(n, m)) * np.array(y_counts)[:, None] / np.array(x_counts) / m
        root = rng.normal(size=(n, n)) + 1.5 * np.eye(n)
        self.Q = root @ root.T
        self.b = rng.uniform(0, y_counts)
        self.waves = float(rng.choice([0.0, 0.0, 2.0, 6.0]))
        self.phase = rng.uniform(0, 6, n)
        self.x_table = rng.normal(0, 3, max(x_counts))
        self.y_table = rng.normal(0, 3, max(y_counts))
        self.c, self.d = rng.uniform(0, x_counts), rng.uniform(0, y_counts)
        self.B = rng.normal(size=(m, n)) * 0.3
        self.w = rng.uniform(-1, 1)
        self.budget = 0.7 * (sum(x_counts) - m) if rng.random() < 0.3 else None
        self.limit = 0.7 * (sum(y_counts) - n) if rng.random() < 0.3 else None

    def _parts(self, x: Any, y: Any) -> tuple[Any, Any]:
        u = np.asarray(x[: len(self.x_counts)]) - self.low_x
        return u, np.asarray(y[: len(self.y_counts)]) - self.low_y

    def follower(self, u: Any, v: Any) -> float:
        """f without its real part; u and v start at 0."""
        at = np.where(np.arange(len(u)) == self.x_choice, 0, u)
        away = v - self.b - self.A @ at
        away = np.where(np.arange(len(v)) == self.y_choice, 0.0, away)
        f = float(away @ self.Q @ away) + self.waves * float(np.sin(2 * v + self.phase).sum())
        if self.y_choice >= 0:
            shift = int(u[self.x_choice]) if self.x_choice >= 0 else 0
            f += float(self.y_table[(int(v[self.y_choice]) + shift) % len(self.y_table)])
        return f

    def effort(self, u: Any, v: Any) -> float:
        """The follower's best real number, in [0, 1]."""
        return float(np.clip(0.5 + 0.3 * np.sin(u.sum() + 1.7 * v.sum()), 0.0, 1.0))

    def leader(self, u: Any, v: Any, e: float) -> float:
        at = np.where(np.arange(len(u)) == self.x_choice, self.c, u)
        F = float(((at - self.c) ** 2).sum() + ((v - self.d) ** 2).sum() + at @ self.B @ v)
        if self.x_choice >= 0:
            F += float(self.x_table[int(u[self.x_choice])])
        return F + self.w * e

    def problem(self, name: str) -> bilevo.Problem:
        def f(x: Any, y: Any) -> float:
            u, v = self._parts(x, y)
            f = self.follower(u, v)
            return f + 5 * float(y[-1] - self.effort(u, v)) ** 2 if self.real_y else f

        def F(x: Any, y: Any) -> float:
            u, v = self._parts(x, y)
            F = self.leader(u, v, float(y[-1]) if self.real_y else 0.0)
            return F + 4 * float(x[-1] - 0.3) ** 2 if self.real_x else F

        def box(
            low: Any, counts: list[int], choice: int, real: bool
        ) -> tuple[list[Any], list[int]]:
            bounds: list[Any] = [(a, a + k - 1) for a, k in zip(low.tolist(), counts, strict=True)]
            if choice >= 0:
                bounds[choice] = bilevo.Choice(*(f"label {i}" for i in range(counts[choice])))
            return bounds + [(0.0, 1.0)] * real, [1] * len(counts) + [0] * real

        x_bounds, x_whole = box(self.low_x, self.x_counts, self.x_choice, self.real_x)
        y_bounds, y_whole = box(self.low_y, self.y_counts, self.y_choice, self.real_y)
        G = g = None
        if self.budget is not None:

            def G(x: Any, y: Any) -> Any:
                return [self._parts(x, y)[0].sum() - self.budget]

        if self.limit is not None:

            def g(x: Any, y: Any) -> Any:
                return [self._parts(x, y)[1].sum() - self.limit]

        return bilevo.Problem(
            F, f, x_bounds, y_bounds, G, g, name=name, x_integrality=x_whole, y_integrality=y_whole
        )

    def optimum(self) -> float:
        """Enumerate all pairs; the leader chooses among answers that tie."""
        cells = [np.array(v) for v in product(*map(range, self.y_counts))]
        if self.limit is not None:
            cells = [v for v in cells if v.sum() <= self.limit]
        best = np.inf
        for one in product(*map(range, self.x_counts)):
            u = np.array(one)
            if self.budget is not None and u.sum() > self.budget:
                continue
            f = np.array([self.follower(u, v) for v in cells])
            ties = np.flatnonzero(f <= f.min() + 1e-9 * (1 + abs(f.min())))
            best = min(
                [
                    best,
                    *(
                        self.leader(u, cells[i], self.effort(u, cells[i]) * self.real_y)
                        for i in ties
                    ),
                ]
            )
        return float(best)
