"""Constructions with known answers. Their kinds say what may hide a wrong answer of the follower.

    from benchmarks.known.constructions import NAMES, construct, constructions
    known = construct("penalty/wall-1e+12", seed=1)
    verdict = judge(known, bilevo.minimize(known.problem))

A seed draws the parameters of all constructions. Each construction has its own random stream, so
that it does not depend on the others. The generators below give the constructions of one kind: the
name and the factory of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from zlib import crc32

import numpy as np

from benchmarks.known import shapes, singles
from benchmarks.known.construction import Construction
from benchmarks.known.singles import Factory, shaped
from bilevo.core.arrays import FloatArray

Entry = tuple[str, Factory]


def power(x: FloatArray) -> float:
    return float(10.0 ** x[0])


def penalties() -> Iterator[Entry]:
    """Give penalties and stiff terms, which hide differences of f that matter."""
    for weight in (1e3, 1e6, 1e9, 1e12):
        yield f"wall-{weight:.0e}", shaped(shapes.walled_ripples(weight))
    for weight in (1e4, 1e8, 1e12):
        yield f"jump-{weight:.0e}", shaped(shapes.walled_ripples(weight, jump=True))
    for weight in (1e3, 1e6, 1e10):
        yield f"kink-{weight:.0e}", shaped(shapes.pressed(weight, kink=True))
    for weight in (1e4, 1e8):
        yield f"pressed-{weight:.0e}", shaped(shapes.pressed(weight, kink=False))
    for weight in (1e4, 1e6, 1e8, 1e10, 1e12):
        yield f"stiff-{weight:.0e}", shaped(shapes.stiff(weight))
    for weight in (1e6, 1e10):
        yield f"stiff-rotated-{weight:.0e}", shaped(shapes.stiff(weight, True, 3), m=2)


def scales() -> Iterator[Entry]:
    """Give scales of f, of F and of y, and scales of f that change with x."""
    for scale in (1e-8, 1e-4, 1e4, 1e8):
        yield f"f-{scale:.0e}", shaped(shapes.ripples(), factor=lambda x, s=scale: s)
        yield f"bowl-{scale:.0e}", shaped(shapes.bowl(2), m=2, factor=lambda x, s=scale: s)
    yield "exp-10", singles.response_scaled
    yield "exp-5", shaped(shapes.bowl(2), factor=lambda x: math.exp(x @ x), m=2, reach=5)
    yield "power", shaped(shapes.bowl(), factor=power, reach=6)
    yield "power-ripples", shaped(shapes.ripples(), factor=power, reach=6)
    for scale in (1e-6, 1e6):
        yield f"F-{scale:.0e}", shaped(shapes.ripples(), F_factor=scale)
        yield f"unit-{scale:.0e}", shaped(shapes.ripples(), unit=scale)


def offsets() -> Iterator[Entry]:
    """Give constants that are added to f, up to 1e10."""
    for height in (1e3, 1e6, 1e8, 1e10):
        yield f"bowl+{height:.0e}", shaped(shapes.bowl(2), offset=lambda x, h=height: h)
    for height in (1e6, 1e10, -1e8):
        made = shaped(shapes.ripples(), offset=lambda x, h=height: h)
        yield f"ripples{height:+.0e}", made
    moving = shaped(shapes.ripples(), m=2, offset=lambda x: 1e6 * float(x @ x))
    yield "moving", moving


def basins() -> Iterator[Entry]:
    """Give second basins: narrow and deep, nearly equal, moving, or changing places."""
    for width in (0.03, 0.05, 0.08):
        yield f"ambush-{width:.0%}", singles.ambush(width)
    for width in (0.03, 0.06, 0.1):
        yield f"well-{width:.0%}", shaped(shapes.gaussian_well(width))
        yield f"swap-{width:.0%}", shaped(shapes.wells(1, width, swap=True))
    yield "wells-2", shaped(shapes.wells(2, 0.1), m=2)
    yield "wells-swap-2", shaped(shapes.wells(2, 0.1, swap=True))
    yield "wells-3", shaped(shapes.wells(3, 0.2))
    for difference in (1e-1, 1e-2, 1e-3):
        yield f"twins-{difference:.0e}", shaped(shapes.near_twins(difference))
    yield "moving-well", shaped(shapes.moving_well(1.0))
    yield "moving-narrow-well", shaped(shapes.moving_well(6.0))
    yield "exchange", singles.exchange
    yield "cubic", singles.cubic


def rippled() -> Iterator[Entry]:
    """Give many basins."""
    for n, height in ((1, 10.0), (2, 3.0), (3, 1.0)):
        yield f"ripples-{n}", shaped(shapes.ripples(n, height))
    yield "ripples-rotated", shaped(shapes.ripples(2, 3.0, rotated=True), m=2)
    yield "ackley", shaped(shapes.ackley(2))


def ties() -> Iterator[Entry]:
    """Give followers with several answers: two, a ball, a sphere, a face."""
    for n, count in ((1, 1), (2, 2), (3, 1)):
        yield f"twins-{n}", shaped(shapes.twins(n, count))
    for n in (1, 2, 3):
        yield f"plateau-{n}", shaped(shapes.plateau(n))
    for n in (2, 3):
        yield f"sphere-{n}", shaped(shapes.sphere(n))
        yield f"face-{n}", shaped(shapes.indifferent(n, 1))
        yield f"face-rotated-{n}", shaped(shapes.indifferent(n, n - 1, rotated=True))


def kinks() -> Iterator[Entry]:
    """Give kinks and cusps."""
    for n in (1, 3):
        yield f"absolute-{n}", shaped(shapes.pointed(lambda d: abs(d).sum(), n))
    yield "cusp-0.4", shaped(shapes.pointed(lambda d: abs(d[0]) ** 0.4, 1))
    yield "cusp-2", shaped(shapes.pointed(lambda d: (abs(d) ** 0.4).sum(), 2))
    yield "cusp-and-basin", singles.cusp
    yield "largest", shaped(shapes.pointed(lambda d: abs(d).max(), 2), m=2)
    yield "uneven", shaped(shapes.pointed(lambda d: max(d[0], -30 * d[0]), 1))
    bent = shapes.pointed(lambda d: abs(d[0]) + 100 * abs(d[1] - d[0]), 2)
    yield "bent-valley", shaped(bent)


def valleys() -> Iterator[Entry]:
    """Give narrow valleys."""
    for weight in (1e2, 1e3, 1e4):
        yield f"rosenbrock-{weight:.0e}", singles.rosenbrock(weight)
    yield "rosenbrock-3", singles.rosenbrock(100.0, 3)
    yield "ellipsoid-1e6", shaped(shapes.ellipsoid(3, 1e6), m=2)


def constrained() -> Iterator[Entry]:
    """Give constraints of both levels: active, equalities, in parts, thin."""
    for n in (1, 2, 3):
        yield f"half-space-{n}", shaped(shapes.half_space(n), m=n)
    for n in (2, 3):
        yield f"equality-{n}", shaped(shapes.half_space(n, equality=True))
        yield f"ball-{n}", shaped(shapes.in_ball(n))
    yield "circle", shaped(shapes.in_ball(2, surface=True))
    for n, radius in ((1, 0.4), (2, 0.6)):
        yield f"outside-{n}", shaped(shapes.outside_ball(n))
        yield f"islands-{n}", shaped(shapes.islands(n, radius))
    for thickness in (1e-2, 1e-4):
        yield f"band-{thickness:.0e}", shaped(shapes.band(thickness))
    yield "coupled", singles.coupled
    for m in (1, 2):
        yield f"leader-plane-{m}", singles.leader_plane(m)
    yield "leader-equality", singles.leader_plane(2, equality=True)


def bounded() -> Iterator[Entry]:
    """Give answers on bounds and in corners."""
    for n in (1, 2, 3):
        yield f"concave-{n}", singles.corner(n, concave=True)
        yield f"beyond-{n}", singles.beyond(n, m=n)
    yield "linear", singles.corner(2, concave=False)


def roundings() -> Iterator[Entry]:
    """Give followers that round y to whole numbers."""
    for n in (1, 2, 3):
        yield f"rounded-{n}", singles.rounded(n, leader_rounds=True)
    yield "rounded-range", singles.rounded(1, leader_rounds=False)
    yield "rounded-2-2", singles.rounded(2, leader_rounds=True, m=2)
    yield "knapsack", singles.knapsack


def failing() -> Iterator[Entry]:
    """Give functions that are NaN in a part of the box."""
    yield "half", shaped(shapes.holed(1, lambda d: d[0] < -1.5))
    yield "ball", shaped(shapes.holed(2, lambda d: 0.5 < d @ d < 0.9))
    yield "logarithm", shaped(shapes.barrier())
    yield "leader", shaped(shapes.bowl(2), m=2, hole=lambda x: x[0] > 1.3)


def sizes() -> Iterator[Entry]:
    """Give more variables."""
    yield "bowl-5-5", shaped(shapes.bowl(5), m=5)
    yield "bowl-1-5", shaped(shapes.bowl(5))
    yield "ripples-3-3", shaped(shapes.ripples(3, 1.0), m=3)
    yield "stiff-5", shaped(shapes.stiff(1e6, True, 5), m=3)
    yield "bowl-3-1", shaped(shapes.bowl(1), m=3)


KINDS = {
    "penalty": penalties,
    "scale": scales,
    "offset": offsets,
    "basin": basins,
    "ripple": rippled,
    "tie": ties,
    "kink": kinks,
    "valley": valleys,
    "constraint": constrained,
    "bound": bounded,
    "rounding": roundings,
    "failure": failing,
    "size": sizes,
}
FACTORIES = {f"{kind}/{name}": make for kind, give in KINDS.items() for name, make in give()}
NAMES = tuple(FACTORIES)


def construct(name: str, seed: int) -> Construction:
    """Return a construction by its name, such as "penalty/wall-1e+06"."""
    parts = FACTORIES[name](np.random.default_rng([seed, crc32(name.encode())]))
    parts["problem"].name = name
    return Construction(name, name.split("/", maxsplit=1)[0], **parts)


def constructions(seed: int) -> list[Construction]:
    """Return all constructions, with parameters that the seed draws."""
    return [construct(name, seed) for name in NAMES]
