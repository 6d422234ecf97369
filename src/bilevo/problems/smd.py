"""SMD1-14: scalable bilevel test problems with m upper and n lower variables.

A. Sinha, P. Malo and K. Deb, "Test problem construction for single-objective bilevel
optimization", Evolutionary Computation 22(3), 2014 (SMD1-12); SMD13 and SMD14 are later additions.

x = (u, v) and y = (w, z) with v and z of size r = floor(m/2). SMD6 and SMD14 split w = (a, b).
What differs from the reference programs, and why (see docs/errata.md):
- w is split in whole numbers; those programs lose a variable at some sizes by rounding;
- SMD12's stated optimum is not the best point when r >= 2; it is given as unknown there;
- SMD13's and SMD14's stated f* hold at some sizes only; f* is computed at the optimum instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray, frozen, row_dots
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Function, Problem

Box = tuple[float, float]
Point = tuple[float, float, float, float]  # entries of u, v, w, z
Parts = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]  # of u, v, w, z
MARGIN = 1e-5  # distance of bounds from points where tan or log is infinite
WIDE: Box = (-5.0, 10.0)


class Sizes(NamedTuple):
    """The sizes of the parts of x and y."""

    p: int  # size of u
    r: int  # size of v and z
    q: int  # size of w

    @classmethod
    def of(cls, m: int, n: int) -> Sizes:
        r = m // 2
        return cls(m - r, r, n - r)


def _square(rows: FloatArray) -> FloatArray:
    """Return the sum of squares of each row."""
    return row_dots(rows, rows)


def _total(rows: FloatArray) -> FloatArray:
    # rows.sum calls this; calling it directly takes two thirds of the time.
    total: FloatArray = np.add.reduce(rows, axis=1)
    return total


def _cube(rows: FloatArray) -> FloatArray:
    return rows * rows * rows  # a power takes up to ten times as long


@cache
def _ramp(size: int) -> FloatArray:
    """Return 1, 2, ..., size."""
    return frozen(np.arange(1.0, size + 1.0))


def _valley(w: FloatArray) -> FloatArray:
    """Return R(w), Rosenbrock's valley."""
    head = w[:, :-1]
    return _square(w[:, 1:] - head * head) + _square(head - 1.0)


def _ripples(w: FloatArray) -> FloatArray:
    """Return q + sum (w^2 - cos 2 pi w), whose minimum is 0 at 0."""
    return np.asarray(_square(w) + w.shape[1] - _total(np.cos(math.tau * w)))


def _pairs(b: FloatArray) -> FloatArray:
    """Return the sum of squared differences in disjoint pairs, without an odd last entry."""
    even = b.shape[1] // 2 * 2
    return _square(b[:, 1:even:2] - b[:, 0:even:2])


def _halves(w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split w = (a, b) of SMD6 and SMD14; a is always the shorter part."""
    a = (w.shape[1] - 1) // 2
    return w[:, :a], w[:, a:]


def _descending(rows: FloatArray) -> FloatArray:
    """Return sum_i sum_{j<=i} row_j^2."""
    return row_dots(rows * rows, _ramp(rows.shape[1])[::-1])


def _staircase(u: FloatArray) -> FloatArray:
    """Return the valley of u in SMD13 and SMD14."""
    head = u[:, :-1]
    return (u[:, 0] - 1.0) ** 2 + _square(head - 1.0) + _square(u[:, 1:] - head * head)


def _powers(a: FloatArray) -> FloatArray:
    """Return sum_i |a_i|^(i+1)."""
    return _total(np.abs(a) ** (_ramp(a.shape[1]) + 1.0))


def _cubes(rows: FloatArray) -> FloatArray:
    """Return the entries sum_j t_j^3 - t_i^3 - t_i of SMD10 and SMD12."""
    cubes = _cube(rows)
    return np.asarray(_total(cubes)[:, None] - cubes - rows)


def _column(values: FloatArray) -> FloatArray:
    return values[:, None]


def _frac(total: FloatArray) -> FloatArray:
    """Return floor(t + 1/2) - t: at most 0 if t is in the first half of a unit interval."""
    return _column(np.floor(total + 0.5) - total)


def _ackley(u: FloatArray) -> FloatArray:
    p = u.shape[1]
    mean_square, mean_cosine = _square(u) / p, _total(np.cos(math.tau * u)) / p
    hill = 20 * np.exp(-0.2 * np.sqrt(mean_square)) + np.exp(mean_cosine)
    return np.asarray(20 + math.e - hill)


def _griewank(u: FloatArray) -> FloatArray:
    waves = np.multiply.reduce(np.cos(u / np.sqrt(_ramp(u.shape[1]))), axis=1)
    return np.asarray(1 + _square(u) / 400 - waves)


def _F6(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    a, b = _halves(w)
    return _square(u) - _square(a) + _square(b) + _square(v) - _square(v - z)


def _f6(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    a, b = _halves(w)
    return _square(u) + _square(a) + _pairs(b) + _square(v - z)


def _F13(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    return _staircase(u) - _descending(w) + _descending(v) - _square(v - np.log(z))


def _f13(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    steep = _total(np.abs(u) + 2 * np.abs(np.sin(u)))
    return steep + _descending(w) + _square(v - np.log(z))


def _F14(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    a, b = _halves(w)
    rising = row_dots(v * v, _ramp(v.shape[1]))
    return _staircase(u) - _powers(a) + _square(b) + rising + _total(np.abs(z))


def _f14(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    a, b = _halves(w)
    return _total(np.floor(u)) + _powers(a) + _pairs(b) + _total(np.abs(v * v - z * z))


def _F10(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    return _square(u - 2.0) + _square(w) + _square(v - 2.0) - _square(v - np.tan(z))


def _f10(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    return _square(u) + _square(w - 2.0) + _square(v - np.tan(z))


def _G10(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    return _cubes(np.concatenate([u, v], axis=1))


def _g12(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
    return np.concatenate([_cubes(w), _column(1.0 - _square(v - np.tan(z)))], axis=1)


@dataclass(frozen=True, slots=True)
class Definition:
    """One problem of the suite.

    `point` gives the optimal entries of u, v, w and z for given sizes, or None if they are not
    known. If the follower's answer is known, it is w = `w_star` and z = `z_of(v)`. `least_q` is the
    smallest size that w may have.
    """

    F: Parts
    f: Parts
    v: Box
    z: Box
    point: Callable[[Sizes], Point | None]
    z_of: Callable[[FloatArray], FloatArray] | None = None
    w_star: float = 0.0
    G: Parts | None = None
    g: Parts | None = None
    least_q: int = 1


def _at(u: float, v: float, w: float, z: float) -> Callable[[Sizes], Point]:
    return lambda sizes: (u, v, w, z)


def _point10(s: Sizes) -> Point:
    t = 1 / math.sqrt(s.p + s.r - 1)
    return t, t, 1 / math.sqrt(s.q - 1), math.atan(t)


def _point12(s: Sizes) -> Point | None:
    if s.r >= 2:
        return None
    t, _, h, _ = _point10(s)
    return t, t, h, math.atan(t - 1 / math.sqrt(s.r))


_TANGENT: Box = (-math.pi / 2 + MARGIN, math.pi / 2 - MARGIN)
_POSITIVE: Box = (MARGIN, math.e)

SMD: dict[int, Definition] = {
    1: Definition(
        F=lambda u, v, w, z: _square(u) + _square(w) + _square(v) + _square(v - np.tan(z)),
        f=lambda u, v, w, z: _square(u) + _square(w) + _square(v - np.tan(z)),
        v=WIDE,
        z=_TANGENT,
        point=_at(0, 0, 0, 0),
        z_of=np.arctan,
    ),
    2: Definition(
        F=lambda u, v, w, z: _square(u) - _square(w) + _square(v) - _square(v - np.log(z)),
        f=lambda u, v, w, z: _square(u) + _square(w) + _square(v - np.log(z)),
        v=(-5.0, 1.0),
        z=_POSITIVE,
        point=_at(0, 0, 0, 1),
        z_of=np.exp,
    ),
    3: Definition(
        F=lambda u, v, w, z: _square(u) + _square(w) + _square(v) + _square(v * v - np.tan(z)),
        f=lambda u, v, w, z: _square(u) + _ripples(w) + _square(v * v - np.tan(z)),
        v=WIDE,
        z=_TANGENT,
        point=_at(0, 0, 0, 0),
        z_of=lambda v: np.arctan(v * v),
    ),
    4: Definition(
        F=lambda u, v, w, z: (
            _square(u) - _square(w) + _square(v) - _square(np.abs(v) - np.log1p(z))
        ),
        f=lambda u, v, w, z: _square(u) + _ripples(w) + _square(np.abs(v) - np.log1p(z)),
        v=(-1.0, 1.0),
        z=(0.0, math.e),
        point=_at(0, 0, 0, 0),
        z_of=lambda v: np.expm1(np.abs(v)),
    ),
    5: Definition(
        F=lambda u, v, w, z: _square(u) - _valley(w) + _square(v) - _square(np.abs(v) - z * z),
        f=lambda u, v, w, z: _square(u) + _valley(w) + _square(np.abs(v) - z * z),
        v=WIDE,
        z=WIDE,
        point=_at(0, 0, 1, 0),
        z_of=lambda v: np.sqrt(np.abs(v)),
        w_star=1.0,
        least_q=2,
    ),
    6: Definition(F=_F6, f=_f6, v=WIDE, z=WIDE, point=_at(0, 0, 0, 0), z_of=np.positive),
    7: Definition(
        F=lambda u, v, w, z: _griewank(u) - _square(w) + _square(v) - _square(v - np.log(z)),
        f=lambda u, v, w, z: _total(_cube(u)) + _square(w) + _square(v - np.log(z)),
        v=(-5.0, 1.0),
        z=_POSITIVE,
        point=_at(0, 0, 0, 1),
        z_of=np.exp,
    ),
    8: Definition(
        F=lambda u, v, w, z: _ackley(u) - _valley(w) + _square(v) - _square(v - _cube(z)),
        f=lambda u, v, w, z: _total(np.abs(u)) + _valley(w) + _square(v - _cube(z)),
        v=WIDE,
        z=WIDE,
        point=_at(0, 0, 1, 0),
        z_of=np.cbrt,
        w_star=1.0,
        least_q=2,
    ),
    9: Definition(
        F=lambda u, v, w, z: _square(u) - _square(w) + _square(v) - _square(v - np.log1p(z)),
        f=lambda u, v, w, z: _square(u) + _square(w) + _square(v - np.log1p(z)),
        v=(-5.0, 1.0),
        z=(-1 + MARGIN, -1 + math.e),
        point=_at(0, 0, 0, 0),
        z_of=np.expm1,
        G=lambda u, v, w, z: _frac(_square(u) + _square(v)),
        g=lambda u, v, w, z: _frac(_square(w) + _square(z)),
    ),
    10: Definition(
        F=_F10,
        f=_f10,
        v=WIDE,
        z=_TANGENT,
        point=_point10,
        G=_G10,
        g=lambda u, v, w, z: _cubes(w),
        least_q=2,
    ),
    11: Definition(
        F=lambda u, v, w, z: _square(u) - _square(w) + _square(v) - _square(v - np.log(z)),
        f=lambda u, v, w, z: _square(u) + _square(w) + _square(v - np.log(z)),
        v=(-1.0, 1.0),
        z=(1 / math.e, math.e),
        point=lambda s: (0, 0, 0, math.exp(-1 / math.sqrt(s.r))),
        G=lambda u, v, w, z: 1 / math.sqrt(v.shape[1]) + np.log(z) - v,
        g=lambda u, v, w, z: _column(1.0 - _square(v - np.log(z))),
    ),
    12: Definition(
        F=lambda u, v, w, z: _F10(u, v, w, z) + _total(np.tan(np.abs(z))),
        f=_f10,
        v=(-1.0, 1.0),
        z=(-math.pi / 4 + MARGIN, math.pi / 4 - MARGIN),
        point=_point12,
        G=lambda u, v, w, z: np.concatenate([_G10(u, v, w, z), np.tan(z) - v], axis=1),
        g=_g12,
        least_q=2,
    ),
    13: Definition(F=_F13, f=_f13, v=(-10.0, 2.3026), z=(MARGIN, 10.0), point=_at(1, 0, 0, 1)),
    14: Definition(F=_F14, f=_f14, v=WIDE, z=WIDE, point=_at(1, 0, 0, 0)),
}


def smd(number: int, m: int, n: int) -> Problem:
    """Make problem SMD`number` with m upper and n lower variables."""
    return defined(SMD[number], f"smd{number}", m, n)


def defined(definition: Definition, name: str, m: int, n: int) -> Problem:
    """Make the problem of a definition with m upper and n lower variables."""
    sizes = Sizes.of(m, n)
    if m < 2 or sizes.q < definition.least_q:
        raise ValueError(
            f"{name} needs m >= 2 and n >= floor(m/2) + {definition.least_q}, "
            f"such as (2, 3), (5, 5) or (10, 10); got m={m}, n={n}"
        )
    p, r, q = sizes
    F, f = _joined(definition.F, p, q), _joined(definition.f, p, q)
    return Problem(
        F,
        f,
        [WIDE] * p + [definition.v] * r,
        [WIDE] * q + [definition.z] * r,
        G=None if definition.G is None else _joined(definition.G, p, q),
        g=None if definition.g is None else _joined(definition.g, p, q),
        vectorized=True,
        name=name,
        optimum=_optimum(definition, sizes, F, f),
        response=None if definition.z_of is None else _response(definition, sizes),
    )


def _joined(function: Parts, p: int, q: int) -> Function:
    """Turn a function of (u, v, w, z) into a function of (x, y)."""
    u, v, w, z = np.s_[:, :p], np.s_[:, p:], np.s_[:, :q], np.s_[:, q:]

    def call(x: FloatArray, y: FloatArray) -> FloatArray:
        return function(x[u], x[v], y[w], y[z])

    return call


def _optimum(definition: Definition, sizes: Sizes, F: Function, f: Function) -> Optimum | None:
    point = definition.point(sizes)
    if point is None:
        return None
    u, v, w, z = point
    x = np.repeat([float(u), float(v)], [sizes.p, sizes.r])
    y = np.repeat([float(w), float(z)], [sizes.q, sizes.r])
    return Optimum(float(F(x[None], y[None])[0]), float(f(x[None], y[None])[0]), x, y)


def _response(definition: Definition, sizes: Sizes) -> Callable[[FloatArray], FloatArray]:
    """Return the function y*(x), which gives the follower's answers.

    They are NaN where SMD9's lower constraint excludes the unconstrained answer.
    """

    def respond(x: FloatArray) -> FloatArray:
        assert definition.z_of is not None
        u, v = x[:, : sizes.p], x[:, sizes.p :]
        z = definition.z_of(v)
        w = np.full((len(x), sizes.q), definition.w_star)
        y = np.concatenate([w, z], axis=1)
        if definition.g is not None:
            y[(definition.g(u, v, w, z) > 0).any(axis=1)] = np.nan
        return y

    return respond
