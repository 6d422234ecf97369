"""Problems whose followers have ties, with known answers for both stances, and PMM1-6.

`pes-1`, `near-1`, `jump` and `line` are our own; `VALUES` has their best F, which follow from the
formulas below:

- `pes-1`: SMD1 with one more follower variable t in [-1, 1], which f does not see, and
  F = F_1 + a t (x_1 - c). With phi_1 = |x|^2, an optimistic leader has phi_1 - a |x_1 - c|, a
  pessimistic one phi_1 + a |x_1 - c|.
- `near-1`: the same with f = f_1 + t^2, so that the answer is unique, and nearly best answers are
  within |t| <= sqrt(tie_tol).
- `jump`: f = -x y and F = x - y on the unit square. At x = 0 the follower is indifferent. No x
  attains the pessimistic infimum -1. With `tie_tol` e, the worst y is 1 - e / x, and the best x is
  sqrt(e).
- `line`: the follower does not see y_2, and F = (x - 1/2)^2 + cos(3 pi y_2) + x y_2 has its best
  and worst ties inside the range of y_2.

PMM1-6: J.-A. Mejia-de-Dios, E. Mezura-Montes and P. Toledo-Hernandez, "Pseudo-feasible solutions in
evolutionary bilevel optimization: test problems and performance assessment", Applied Mathematics
and Computation, 2022. f = p_1 + p_2 and F = |p_1| + |p_2|, where p = q(x, y) - r(x), and q is 0 at
the follower's answer only (PMM1: smallest there). So many wrong answers give F = 0 at any x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray, row_dots
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Problem
from bilevo.problems.smd import smd

A, C = 1.0, 0.25  # the defaults of a and c in `pes-1`
NEAR_A, NEAR_C = 2.0, 1.0  # the same in `near-1`


class Known(NamedTuple):
    """The best F for a stance and a tolerance of ties; None is the precision of a run."""

    stance: str
    tie_tol: float | None
    F: float


VALUES = {
    "pes-1": (
        Known("optimistic", None, -A * A / 4 - A * C),
        Known("pessimistic", None, C * C if A / 2 >= C else A * C - A * A / 4),
    ),
    "near-1": (
        Known("optimistic", None, 0.0),
        Known("pessimistic", None, 0.0),
        Known("pessimistic", 0.01, 0.19),
    ),
    "jump": (Known("optimistic", None, -1.0), Known("pessimistic", 1e-4, -0.98)),
    "line": (
        Known("optimistic", None, -1.1969614),
        Known("pessimistic", None, 1.0013997),
    ),
    "smd6": (Known("optimistic", None, 0.0), Known("pessimistic", None, 200.0)),  # at (2, 3)
}


def with_range(name: str, a: float, c: float, kappa: float, m: int, n: int) -> Problem:
    """Make SMD1 with a last follower variable t: F + a t (x_1 - c), and f + kappa t^2."""
    if n < 2:
        raise ValueError(f"{name} needs n >= 2, got {n}")
    plain = smd(1, m, n - 1)
    best = plain.optimum
    assert best is not None and best.y is not None

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(plain.F(x, y[:, :-1]) + a * y[:, -1] * (x[:, 0] - c))

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(plain.f(x, y[:, :-1]) + kappa * y[:, -1] ** 2)

    lower = [*zip(plain.y_bounds.lower, plain.y_bounds.upper, strict=True), (-1.0, 1.0)]
    x, y = np.zeros(m), np.zeros(n)
    optimum = Optimum(0.0, 0.0, x, y)
    if not kappa:
        x[0], y[-1] = -a / 2, 1.0
        optimum = Optimum(-a * a / 4 - a * c, a * a / 4, x, y)
    return Problem(F, f, plain.x_bounds, lower, vectorized=True, name=name, optimum=optimum)


def pes(m: int, n: int, a: float = A, c: float = C) -> Problem:
    """Make pes-1: an indifferent follower, whose last variable only the leader feels."""
    return with_range("pes-1", a, c, 0.0, m, n)


def near(m: int, n: int, a: float = NEAR_A, c: float = NEAR_C, kappa: float = 1.0) -> Problem:
    """Make near-1: a follower that may be content with a nearly best answer."""
    return with_range("near-1", a, c, kappa, m, n)


def jump() -> Problem:
    """Make jump: a pessimistic leader's infimum is not attained."""
    return Problem(
        lambda x, y: x[:, 0] - y[:, 0],
        lambda x, y: -x[:, 0] * y[:, 0],
        [(0.0, 1.0)],
        [(0.0, 1.0)],
        vectorized=True,
        name="jump",
        optimum=Optimum(-1.0, 0.0, np.zeros(1), np.ones(1)),
    )


def line() -> Problem:
    """Make line: the best and the worst tie lie inside a range."""
    return Problem(
        lambda x, y: (x[:, 0] - 0.5) ** 2 + np.cos(3 * math.pi * y[:, 1]) + x[:, 0] * y[:, 1],
        lambda x, y: (y[:, 0] - x[:, 0]) ** 2,
        [(-1.0, 1.0)],
        [(-1.0, 1.0), (-0.5, 0.5)],
        vectorized=True,
        name="line",
        optimum=_best_of_line(),
    )


def _best_of_line() -> Optimum:
    """Return the optimistic optimum: x = 1/2 - y_2 / 2, and sin(3 pi y_2) = x / (3 pi)."""
    x, y2 = 0.67, -1 / 3
    for _ in range(40):  # this converges like a geometric series, with a factor below 0.01
        y2 = -(math.pi + math.asin(x / (3 * math.pi))) / (3 * math.pi)
        x = 0.5 - y2 / 2
    F = (x - 0.5) ** 2 + math.cos(3 * math.pi * y2) + x * y2
    return Optimum(F, 0.0, np.array([x]), np.array([x, y2]))


def _square(rows: FloatArray) -> FloatArray:
    return row_dots(rows, rows)


def _ripples(rows: FloatArray) -> FloatArray:
    """Return Rastrigin's function, whose minimum is 0 at 0."""
    waves = np.cos(2 * math.pi * rows).sum(axis=1)
    return np.asarray(10 * rows.shape[1] + _square(rows) - 10 * waves)


def _valley(rows: FloatArray) -> FloatArray:
    """Return Rosenbrock's function, whose minimum is 0 at 1; (1 - v)^2 for one variable."""
    if rows.shape[1] == 1:
        return np.asarray((1 - rows[:, 0]) ** 2)
    head = rows[:, :-1]
    return 100 * _square(rows[:, 1:] - head * head) + _square(1 - head)


def _stiff(rows: FloatArray) -> FloatArray:
    """Return r_1^2 + 1e6 times the sum of the other squares."""
    return np.asarray(rows[:, 0] ** 2 + 1e6 * _square(rows[:, 1:]))


def _waves(rows: FloatArray) -> FloatArray:
    product = np.prod(np.cos(10 * rows / np.sqrt(np.arange(1.0, rows.shape[1] + 1))), axis=1)
    return np.asarray(1 + _square(rows) / 4 - product)


def _bowl(v: FloatArray, first: int) -> FloatArray:
    """Return Zakharov's function around sqrt(i), where i is the index of a variable in y."""
    d = v - np.sqrt(np.arange(first, first + v.shape[1], dtype=float))
    half = d.sum(axis=1) / 2
    return np.asarray(_square(d) + half**2 + half**4)


def _powers(v: FloatArray) -> FloatArray:
    return np.asarray((np.abs(v) ** np.arange(2.0, v.shape[1] + 2)).sum(axis=1))


Q = Callable[[FloatArray, FloatArray], FloatArray]  # of parts of x and y
R = Callable[[FloatArray], FloatArray]  # of a part of x
_CUBES: Q = lambda a, u: _square(u - a**3 / 100)  # noqa: E731
_PMM: dict[int, tuple[Q, Callable[[FloatArray, int], FloatArray], R]] = {
    1: (_CUBES, lambda v, i: 10 + v[:, 0] + 1e6 * _square(v[:, 1:]), _square),
    2: (lambda a, u: _stiff(u - a * np.sin(a)), _bowl, _stiff),
    3: (_CUBES, lambda v, i: _valley(v), _square),
    4: (lambda a, u: _square(u - 10 / (1 + 2.5 * a * a)), lambda v, i: _ripples(v), _square),
    5: (lambda a, u: _ripples(u - a), lambda v, i: _powers(v), _square),
    6: (lambda a, u: _waves(u - a), lambda v, i: _ripples(v), _ripples),
}


def pmm(number: int, m: int, n: int) -> Problem:
    """Make PMM`number`; its optimum is x = 0, with F* = f* = 0."""
    if m < 2 or n < 2:
        raise ValueError(f"pmm{number} needs m, n >= 2, got {m}, {n}")
    k, (q1, q2, r2) = min(m, n) // 2, _PMM[number]

    def parts(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        a, b, u, v = x[:, :k], x[:, k:], y[:, :k], y[:, k:]
        return q1(a, u) - _square(a), q2(v, k + 1) - r2(b)

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        one, two = parts(x, y)
        return np.asarray(np.abs(one) + np.abs(two))

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        one, two = parts(x, y)
        return np.asarray(one + two)

    box = (-10.0, 10.0)
    answer = {1: [-10.0] + [0.0] * (n - k - 1), 2: np.sqrt(np.arange(k + 1.0, n + 1)), 3: 1.0}
    y = np.zeros(n)
    y[:k], y[k:] = 10.0 if number == 4 else 0.0, answer.get(number, 0.0)
    best = Optimum(0.0, 0.0, np.zeros(m), y)
    name = f"pmm{number}"
    return Problem(F, f, [box] * m, [box] * n, vectorized=True, name=name, optimum=best)


FIXED_TIES: dict[str, Callable[[], Problem]] = {"jump": jump, "line": line}
SCALABLE_TIES: dict[str, Callable[[int, int], Problem]] = {
    "pes-1": pes,
    "near-1": near,
    **{f"pmm{number}": partial(pmm, number) for number in _PMM},
}
