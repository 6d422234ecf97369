"""Problems with several followers: markets in Nash equilibrium, and copies of SMD1's follower.

`oligopoly1` to `oligopoly10` are the ten Stackelberg-Cournot-Nash instances of F. H. Murphy, H. D.
Sherali and A. L. Soyster, "A mathematical programming approach for determining oligopolistic market
equilibrium", Mathematical Programming 24, 1982. A firm of five leads, and the other four answer in
equilibrium. A well-known file of these instances has a misprint (see docs/errata.md).

`cournot2`, `cournot5` and `cournot20` have a linear price and that many equal followers; their
solution has a closed form. In `smd1x2`, `smd1x5` and `smd1x10`, that many independent followers
solve SMD1's lower level, each for a leader that is shifted by its own d_i. One function returns the
values of all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Problem
from bilevo.core.several import INDEPENDENT, NASH, Follower
from bilevo.problems.smd import smd

UNIT_COST = np.array([10.0, 8.0, 6.0, 4.0, 2.0])
BETA = np.array([1.2, 1.1, 1.0, 0.9, 0.8])
K, DEMAND = 5.0, 5000.0
LEAST_SALES = 1e-9  # the price is finite also where nobody sells


class Instance(NamedTuple):
    """An oligopoly: the largest output, the demand's elasticity, and the leader's optimum."""

    largest: float
    gamma: float
    x: float
    F: float
    y: tuple[float, ...]


# The optima are from bisection on the total output; tests repeat it.
INSTANCES = (
    Instance(
        150,
        1.0,
        55.5512929,
        -343.3452599941,
        (
            50.1337845,
            50.5036847,
            47.8994898,
            42.9766309,
        ),
    ),
    Instance(
        150,
        1.1,
        42.5382459,
        -203.1550721856,
        (
            41.0772414,
            43.1158533,
            42.1950672,
            38.8238816,
        ),
    ),
    Instance(
        150,
        1.3,
        24.1450592,
        -68.1356501590,
        (
            27.6820849,
            32.0352606,
            33.5532542,
            32.4852154,
        ),
    ),
    Instance(
        150,
        1.5,
        12.3726993,
        -19.1540654222,
        (
            18.5140113,
            24.2391662,
            27.3566522,
            27.8796858,
        ),
    ),
    Instance(
        150,
        1.7,
        4.7535557,
        -3.1611808826,
        (
            12.0545902,
            18.5391930,
            22.7133121,
            24.3707657,
        ),
    ),
    Instance(
        50,
        1.0,
        50.0,
        -346.8931914651,
        (
            50.0,
            50.0,
            48.5818462,
            43.5019837,
        ),
    ),
    Instance(
        40,
        1.1,
        39.7914434,
        -224.0371967418,
        (
            40.0,
            40.0,
            40.0,
            39.6806549,
        ),
    ),
    Instance(
        30,
        1.3,
        24.2571265,
        -80.7859697063,
        (
            29.1284995,
            30.0,
            30.0,
            30.0,
        ),
    ),
    Instance(
        25,
        1.5,
        13.0196600,
        -22.8371155970,
        (
            19.2730914,
            24.8129632,
            25.0,
            25.0,
        ),
    ),
    Instance(
        20,
        1.7,
        6.0023411,
        -5.3491363165,
        (
            13.0703581,
            19.2873695,
            20.0,
            20.0,
        ),
    ),
)
COURNOT = (2, 5, 20)
COPIES = (2, 5, 10)
NAMES = (
    *(f"oligopoly{number}" for number in range(1, len(INSTANCES) + 1)),
    *(f"cournot{count}" for count in COURNOT),
    *(f"smd1x{count}" for count in COPIES),
)


def make(name: str) -> Problem:
    """Make one of the problems in `NAMES`."""
    if name.startswith("oligopoly"):
        return oligopoly(int(name.removeprefix("oligopoly")))
    if name.startswith("cournot"):
        return cournot(int(name.removeprefix("cournot")))
    return smd1_copies(int(name.removeprefix("smd1x")))


def cost(q: FloatArray) -> FloatArray:
    """Return the costs (k, 5) of all firms for their outputs q (k, 5)."""
    return np.asarray(
        UNIT_COST * q + BETA / (1 + BETA) * K ** (-1 / BETA) * q ** ((1 + BETA) / BETA)
    )


def oligopoly(number: int) -> Problem:
    """Make the Stackelberg-Cournot-Nash instance `number`, from 1 to 10."""
    largest, gamma, x, F, y = INSTANCES[number - 1]

    def losses(x: FloatArray, y: FloatArray) -> FloatArray:
        q = np.concatenate([x, y], axis=1)
        price = (DEMAND / np.maximum(q.sum(axis=1, keepdims=True), LEAST_SALES)) ** (1 / gamma)
        return np.asarray(cost(q) - price * q)

    box = [(0.0, largest)]
    return Problem(
        lambda x, y: losses(x, y)[:, 0],
        lambda x, y: losses(x, y)[:, 1:],
        box,
        vectorized=True,
        name=f"oligopoly{number}",
        optimum=Optimum(F, 0.0, np.array([x]), np.array(y)),
        followers=[Follower(y_bounds=box) for _ in range(4)],
        play=NASH,
    )


def cournot(count: int, a: float = 13.0, b: float = 1.0, c: float = 1.0) -> Problem:
    """Make a market with `count` equal followers, the price a - b Q, and the unit cost c."""

    def losses(x: FloatArray, y: FloatArray) -> FloatArray:
        q = np.concatenate([x, y], axis=1)
        return np.asarray((c - a + b * q.sum(axis=1, keepdims=True)) * q)

    box, Q = [(0.0, a / b)], (a - c) / (2 * b)
    best = -((a - c) ** 2) / (4 * b * (count + 1))
    return Problem(
        lambda x, y: losses(x, y)[:, 0],
        lambda x, y: losses(x, y)[:, 1:],
        box,
        vectorized=True,
        name=f"cournot{count}",
        optimum=Optimum(best, 0.0, np.array([Q]), np.full(count, Q / (count + 1))),
        followers=[Follower(y_bounds=box) for _ in range(count)],
        play=NASH,
    )


def shifts(count: int) -> FloatArray:
    """Return the shifts d_i (count, 2) of the copies; one copy is not shifted."""
    i, j = np.mgrid[0:count, 0:2]
    return np.asarray(0.5 * np.sin(1.0 + 3.0 * i + 2.0 * j)) if count > 1 else np.zeros((1, 2))


def smd1_copies(count: int) -> Problem:
    """Make the problem of `count` independent followers, copies of that of SMD1 at size (2, 3).

    Each copy answers with w = 0 and tan z = v, so F is the mean of |x - d_i|^2.
    """
    one, d = smd(1, 2, 3), shifts(count)

    def each(function: object, x: FloatArray, y: FloatArray) -> FloatArray:
        assert callable(function)
        blocks = np.split(y, count, axis=1)
        return np.stack([function(x - d[i], blocks[i]) for i in range(count)], axis=1)

    centre = d.mean(axis=0)
    best = float(((d - centre) ** 2).sum(axis=1).mean())
    z = np.arctan(centre[1] - d[:, 1])
    y = np.column_stack([np.zeros((count, 2)), z]).ravel()
    box = list(zip(one.y_bounds.lower, one.y_bounds.upper, strict=True))
    return Problem(
        lambda x, y: each(one.F, x, y).mean(axis=1),
        lambda x, y: each(one.f, x, y),
        one.x_bounds,
        vectorized=True,
        name=f"smd1x{count}",
        optimum=Optimum(best, float(((centre[0] - d[:, 0]) ** 2).sum()), centre, y),
        followers=[Follower(y_bounds=box) for _ in range(count)],
        play=INDEPENDENT,
    )
