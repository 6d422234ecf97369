"""Harder variants of SMD, whose problems are smooth, free of noise and nearly separable.

The variants keep the known optima and the sizes of the SMD problems they are made of:

- `smd1-rot` to `smd10-rot`: x and y are rotated about the optimum, so that no variable can be
  searched by itself. SMD11 is not rotated: its optimum is on a bound, and beyond that bound the
  follower would have other answers. Nor are SMD12, whose optimum is known at few sizes, and the
  rarely used SMD13-14.
- `smd1-abs`, `smd2-abs`, `smd5-abs`, `smd1-max`: f has the sum of absolute values, or the largest
  of them, in place of a sum of squares. F and the follower's answers stay the same.
- `smd1-noise6`, `smd1-noise3`, ... for SMD1-8: f has a relative error of up to 1e-6 or 1e-3. The
  error is a hash of the point, so that runs repeat and resume. F is exact; the optimum and the
  follower's answers are those without noise.

The box of a rotated problem excludes the answers of some followers. The optimum (x*, y*) stays the
best pair: y* is in the box, so at any x the follower's best answer in the box has an f of at most
f(x, y*). In SMD1-10 no y with such an f has an F below F*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import numpy as np

from bilevo.core.arrays import FloatArray, frozen, row_dots
from bilevo.core.bounds import Bounds
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Function, Problem, Response
from bilevo.core.streams import stream
from bilevo.problems.smd import MARGIN, SMD, defined, smd

# SMD4's optimum has z = 0 on its bound, but a rotation needs it inside. For z < 0 f is larger, as
# |v| - log(1 + z) is above |v|, so that the answers stay the same with a bound near -1.
_ROTATED = {number: SMD[number] for number in range(1, 11)}
_ROTATED[4] = replace(SMD[4], z=(-1 + MARGIN, math.e))


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """The map of t in [-reach, reach]^d to the points c + D Q t of a level.

    D holds the distances from the centre c to the nearer bounds, and Q (`turn`) is orthogonal. The
    cube of t is the largest whose image stays within the bounds. `row_dots` computes each row by
    itself, because a product of matrices may round a row differently in another batch.
    """

    centre: FloatArray
    distance: FloatArray
    turn: FloatArray
    reach: float

    @classmethod
    def about(cls, centre: FloatArray, bounds: Bounds, name: str) -> Rotation:
        """Make a rotation about the centre; `name` seeds the random matrix Q."""
        distance = np.minimum(centre - bounds.lower, bounds.upper - centre)
        normal = stream(0, name).standard_normal((centre.size, centre.size))
        turn, triangle = np.linalg.qr(normal)
        turn = turn * np.sign(np.diag(triangle))  # so that no direction is favoured
        # Cut to six digits, so that rounding takes no image out of the bounds.
        reach = math.floor(1e6 / np.abs(turn).sum(axis=1).max()) / 1e6
        return cls(frozen(centre), frozen(distance), frozen(turn), reach)

    @property
    def bounds(self) -> Bounds:
        return Bounds(np.full(self.centre.size, -self.reach), np.full(self.centre.size, self.reach))

    def there(self, rows: FloatArray) -> FloatArray:
        """Map rows t to points of the problem that is rotated."""
        return np.asarray(self.centre + self.distance * row_dots(rows[:, None, :], self.turn))

    def back(self, points: FloatArray) -> FloatArray:
        """Map points back to rows t; rows outside the cube become NaN."""
        rows = row_dots(((points - self.centre) / self.distance)[:, None, :], frozen(self.turn.T))
        rows[~(np.abs(rows) <= self.reach).all(axis=1)] = np.nan
        return rows


def rotated(number: int, m: int, n: int) -> Problem:
    """Make SMD`number` with x and y rotated about its optimum, each by a matrix of its own."""
    name = f"smd{number}-rot"
    plain = defined(_ROTATED[number], name, m, n)
    best = plain.optimum
    assert best is not None and best.x is not None and best.y is not None
    upper = Rotation.about(best.x, plain.x_bounds, f"{name}/{m},{n}/x")
    lower = Rotation.about(best.y, plain.y_bounds, f"{name}/{m},{n}/y")

    def turned(function: Function) -> Function:
        return lambda x, y: function(upper.there(x), lower.there(y))

    def respond(response: Response) -> Response:
        return lambda x: lower.back(response(upper.there(x)))

    return Problem(
        turned(plain.F),
        turned(plain.f),
        upper.bounds,
        lower.bounds,
        G=None if plain.G is None else turned(plain.G),
        g=None if plain.g is None else turned(plain.g),
        vectorized=True,
        name=name,
        optimum=Optimum(best.F, best.f, np.zeros(m), np.zeros(n)),
        response=None if plain.response is None else respond(plain.response),
    )


# The terms that the follower brings to zero, as functions of v, w and z.
Terms = Callable[[FloatArray, FloatArray, FloatArray], Sequence[FloatArray]]
_TERMS: dict[int, Terms] = {
    1: lambda v, w, z: (w, v - np.tan(z)),
    2: lambda v, w, z: (w, v - np.log(z)),
    5: lambda v, w, z: (w[:, 1:] - w[:, :-1] * w[:, :-1], w[:, :-1] - 1.0, np.abs(v) - z * z),
}
_JOINED = {"abs": np.add.reduce, "max": np.maximum.reduce}


def nonsmooth(number: int, kind: str, m: int, n: int) -> Problem:
    """Make SMD`number` with the sum or the largest of |terms| in f, not the sum of squares."""
    terms, join = _TERMS[number], _JOINED[kind]

    def f(u: FloatArray, v: FloatArray, w: FloatArray, z: FloatArray) -> FloatArray:
        sizes = np.abs(np.concatenate(terms(v, w, z), axis=1))
        return np.asarray(row_dots(u, u) + join(sizes, axis=1))

    return defined(replace(SMD[number], f=f), f"smd{number}-{kind}", m, n)


def noisy(number: int, digit: int, m: int, n: int) -> Problem:
    """Make SMD`number` with f + 10^-digit (1 + |f|) u, where u in [-1, 1] is a hash of x and y."""
    problem = smd(number, m, n)
    exact, size = problem.f, 10.0**-digit
    problem.name = f"smd{number}-noise{digit}"
    key = problem.name.encode()

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        value = exact(x, y)
        return np.asarray(value + size * (1.0 + np.abs(value)) * _hashed(x, y, key))

    problem.f = f
    return problem


def _hashed(x: FloatArray, y: FloatArray, key: bytes) -> FloatArray:
    """Return a number in [-1, 1] for each row of x and y; equal rows give equal numbers."""
    # Adding 0 makes -0 and 0 the same point. The byte order is the same on all machines.
    rows = (np.concatenate([x, y], axis=1) + 0.0).astype("<f8")
    digests = [blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in rows]
    return np.frombuffer(b"".join(digests), "<u8") / 2.0**63 - 1.0


VARIANTS: dict[str, Callable[[int, int], Problem]] = {
    **{f"smd{number}-rot": partial(rotated, number) for number in _ROTATED},
    **{f"smd{number}-abs": partial(nonsmooth, number, "abs") for number in _TERMS},
    "smd1-max": partial(nonsmooth, 1, "max"),
    **{
        f"smd{number}-noise{digit}": partial(noisy, number, digit)
        for number in range(1, 9)
        for digit in (6, 3)
    },
}
