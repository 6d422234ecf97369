"""Problems of the literature, by the name of the first author: Aiyoshi to Gumus."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.problems.literature.formulas import Formulas, squares

# CalamaiVicente1994c: the linear forms of x that the follower's two variables depend on.
_VICENTE_1 = (13.24, 1.08, -4.32, -1.44)
_VICENTE_2 = (1.08, 10.36, -1.44, -0.48)


def _dot(weights: Sequence[float], *columns: FloatArray) -> FloatArray:
    return np.asarray(sum(w * column for w, column in zip(weights, columns, strict=True)))


def _vicente(a: FloatArray, b: FloatArray, y1: FloatArray, y2: FloatArray) -> list[FloatArray]:
    """Return g of CalamaiVicente1994c; a and b are the linear forms of x."""
    return [
        a - 10 * y1 - 1,
        b - 10 * y2 - 1,
        a + 10 * y1 - 1.5,
        b + 10 * y2 - 3,
        1 - a - 10 * y1,
        1 - b - 10 * y2,
    ]


A_TO_G = {
    "aiyoshishimizu1984ex2": Formulas(
        x=[(0, 50)] * 2,
        y=[(-10, 20)] * 2,
        F=lambda x1, x2, y1, y2: 2 * x1 + 2 * x2 - 3 * y1 - 3 * y2 - 60,
        f=lambda x1, x2, y1, y2: squares(y1 - x1 + 20, y2 - x2 + 20),
        G=lambda x1, x2, y1, y2: [x1 + x2 + y1 - 2 * y2 - 40],
        g=lambda x1, x2, y1, y2: [10 - x1 + 2 * y1, 10 - x2 + 2 * y2],
        best=((0, 30), (-10, 10)),
    ),
    "anetal2009": Formulas(
        x=[(0, 10)] * 2,
        y=[(0, 10)] * 2,
        F=lambda x1, x2, y1, y2: (
            (-1.9 * x1 + 4.4 * x2 + 1.2 * y1 - 2.2 * y2 + 935.74474) * x1
            + (-1.1 * x2 + 0.6 * y1 + 1.8 * y2 + 87.53654) * x2
            + (0.4 * y2 + 121.96196) * y1
            + 299.24825 * y2
        ),
        f=lambda x1, x2, y1, y2: (
            (-17.85 * x1 + 6.575 * x2 + 10.55102 * y1 + 11.81633 * y2 - 18.21053) * y1
            + (30.325 * x1 + 30.325 * x2 - 7.22449 * y2 + 13.05263) * y2
        ),
        G=lambda x1, x2, y1, y2: [
            3.88889 * x2 + 4.88889 * y1 + 7.44444 * y2 - 61.57778,
            -2 * x1 + 8.77778 * x2 - 5.11111 * y1 + 0.88889 * y2 - 0.8,
        ],
        g=lambda x1, x2, y1, y2: [
            5 * x1 + 7.44444 * x2 + 3.88889 * y1 + 1.77778 * y2 - 39.62222,
            -8.33333 * x1 + 3 * x2 + 6.88889 * y1 + 6.11111 * y2 - 60,
            -8.66667 * x1 - 8.55556 * x2 - 5.33333 * y1 - 7 * y2 + 72.37778,
            6.44444 * x1 - 5.11111 * x2 + 1.44444 * y1 + 4.44444 * y2 - 17.28889,
        ],
        best=((0.20000088978178523, 1.9999971517188306), (3.9999982889723658, 4.600004540381478)),
    ),
    "bard1988ex2": Formulas(
        x=[(0, 10), (0, 5), (0, 15), (0, 20)],
        y=[(0, 20), (0, 20), (0, 40), (0, 40)],
        F=lambda x1, x2, x3, x4, y1, y2, y3, y4: (
            (y1 + y3) * (y1 + y3 - 200) - (y2 + y4) * (160 - y2 - y4)
        ),
        f=lambda x1, x2, x3, x4, y1, y2, y3, y4: squares(y1 - 4, y2 - 13, y3 - 35, y4 - 2),
        G=lambda x1, x2, x3, x4, y1, y2, y3, y4: [x1 + x2 + x3 + x4 - 40],
        g=lambda x1, x2, x3, x4, y1, y2, y3, y4: [
            0.4 * y1 + 0.7 * y2 - x1,
            0.6 * y1 + 0.3 * y2 - x2,
            0.4 * y3 + 0.7 * y4 - x3,
            0.6 * y3 + 0.3 * y4 - x4,
        ],
        best=((7, 3, 12, 18), (0, 10, 30, 0)),
    ),
    "bard1991ex1": Formulas(
        x=[(2, 4)],
        y=[(0, 10)] * 2,
        F=lambda x, y1, y2: x + y2,
        f=lambda x, y1, y2: x * y2 + 2 * y1,
        g=lambda x, y1, y2: [x - y1 - y2 + 4],
        best=((2,), (6, 0)),
    ),
    "calamaivicente1994a": Formulas(
        x=[(-10, 10)],
        y=[(-10, 10)],
        F=lambda x, y: squares(x - 1, y) / 2,
        f=lambda x, y: y * (0.5 - x),
        g=lambda x, y: [x - y - 1, 1 - x - y, x + y - 1],
        best=((1,), (0,)),
    ),
    "calamaivicente1994c": Formulas(
        x=[(-10, 10)] * 4,
        y=[(-10, 10)] * 2,
        F=lambda x1, x2, x3, x4, y1, y2: (
            (98.6 * x1 + 32.4 * x2 - 129.6 * x3 - 43.2 * x4 - 8.56) * x1
            + (55.4 * x2 - 43.2 * x3 - 14.4 * x4 - 9.52) * x2
            + (151.4 * x3 - 32.4 * x4 - 9.92) * x3
            + (194.6 * x4 - 16.64) * x4
            + 50 * squares(y1, y2)
            + 2
        ),
        f=lambda x1, x2, x3, x4, y1, y2: (
            (50 * y1 - 10 * _dot(_VICENTE_1, x1, x2, x3, x4)) * y1
            + (50 * y2 - 10 * _dot(_VICENTE_2, x1, x2, x3, x4)) * y2
        ),
        g=lambda x1, x2, x3, x4, y1, y2: _vicente(
            _dot(_VICENTE_1, x1, x2, x3, x4), _dot(_VICENTE_2, x1, x2, x3, x4), y1, y2
        ),
        best=((0.13085, 0.05195, 0.1022, 0.0674), (0.025, 0.05)),
    ),
    "clarkwesterberg1990a": Formulas(
        x=[(0, 8)],
        y=[(-10, 10)],
        F=lambda x, y: squares(x - 3, y - 2),
        f=lambda x, y: squares(y - 5),
        g=lambda x, y: [-2 * x + y - 1, x - 2 * y + 2, x + 2 * y - 14],
        best=((1,), (3,)),
    ),
    "colson2002bipa2": Formulas(
        x=[(0, 10)],
        y=[(0, 10)],
        F=lambda x, y: squares(x - 5, 2 * y + 1),
        f=lambda x, y: x * x * x - 1.5 * x * y + squares(y - 1),
        g=lambda x, y: [-3 * x + y + 3, x - 0.5 * y - 4, x + y - 7],
        best=((1,), (0,)),
    ),
    "colson2002bipa4": Formulas(
        x=[(0, 10)],
        y=[(0, 10)],
        F=lambda x, y: squares(x, y - 10),
        f=lambda x, y: x * x * x - x * x + x + 2 * y * y * y - 2 * y,
        G=lambda x, y: [x + 2 * y - 6],
        g=lambda x, y: [-x + 2 * y - 3],
        best=((0,), (1 / math.sqrt(3),)),
    ),
    "desilva1978": Formulas(
        x=[(-10, 10)] * 2,
        y=[(0.5, 1.5)] * 2,
        F=lambda x1, x2, y1, y2: squares(y1, y2, x1 - 1, x2 - 1) - 2,
        f=lambda x1, x2, y1, y2: squares(y1 - x1, y2 - x2),
        best=((0.5, 0.5), (0.5, 0.5)),
    ),
    "dempe1992b": Formulas(
        x=[(-10, 10)],
        y=[(-10, 10)],
        F=lambda x, y: squares(x - 3.5, y + 4),
        f=lambda x, y: squares(y - 3),
        g=lambda x, y: [y * y - x],
        best=((0,), (0,)),
    ),
    "dempedutta2012ex31": Formulas(  # the follower's two discs touch at the optimum
        x=[(0, 10)] * 2,
        y=[(-10, 10)] * 2,
        F=lambda x1, x2, y1, y2: -y2,
        f=lambda x1, x2, y1, y2: squares(y1, y2 + 1),
        G=lambda x1, x2, y1, y2: [y1 * y2, -y1 * y2],
        g=lambda x1, x2, y1, y2: [
            squares(y1 - x1, y2 - x1 - 1) - 1,
            squares(y1 + x2, y2 - x2 - 1) - 1,
        ],
        best=((1, 1), (0, 2)),
    ),
    "dempefranke2011ex41": Formulas(
        x=[(-1, 1), (-2, 0)],
        y=[(-10, 2), (0, 2)],
        F=lambda x1, x2, y1, y2: x1 + squares(y1, y2),
        f=lambda x1, x2, y1, y2: x1 * y1 + x2 * y2,
        G=lambda x1, x2, y1, y2: [-x2 - 1, x2 + 1],
        g=lambda x1, x2, y1, y2: [y2 - 2 * y1],
        best=((0, -1), (1, 2)),
    ),
    "dempefranke2014ex38": Formulas(
        x=[(-1, 1), (-1, -0.75)],
        y=[(-10, 2), (0, 2)],
        F=lambda x1, x2, y1, y2: 2 * x1 + x2 + 2 * y1 - y2,
        f=lambda x1, x2, y1, y2: x1 * y1 + x2 * y2,
        g=lambda x1, x2, y1, y2: [y2 - 2 * y1],
        best=((-1, -1), (2, 2)),
    ),
    "dempelohse2011ex31b": Formulas(
        x=[(-10, 10)] * 3,
        y=[(0, 10)] * 3,
        F=lambda x1, x2, x3, y1, y2, y3: squares(x1 - 0.5, x2 - 0.5, x3) - 3 * y1 - 3 * y2 - 6 * y3,
        f=lambda x1, x2, x3, y1, y2, y3: x1 * y1 + x2 * y2 + x3 * y3,
        g=lambda x1, x2, x3, y1, y2, y3: [y1 + y2 + y3 - 2, y2 - y1],
        best=((0.5, 0.5, 0), (0, 0, 2)),
    ),
    "floudasetal2013": Formulas(
        x=[(0, 50)] * 2,
        y=[(-10, 20)] * 2,
        F=lambda x1, x2, y1, y2: 2 * x1 + 2 * x2 - 3 * y1 - 3 * y2 - 60,
        f=lambda x1, x2, y1, y2: squares(y1 - x1 + 20, y2 - x2 + 20),
        g=lambda x1, x2, y1, y2: [
            10 - x1 + 2 * y1,
            10 - x2 + 2 * y2,
            x1 + x2 + y1 - 2 * y2 - 40,
        ],
        best=((0, 0), (-10, -10)),
    ),
    "gumusfloudas2001ex1": Formulas(
        x=[(0, 12.5)],
        y=[(0, 50)],
        F=lambda x, y: 16 * x * x + 9 * y * y,
        f=lambda x, y: squares(squares(x + y - 20)),
        G=lambda x, y: [y - 4 * x],
        g=lambda x, y: [4 * x + y - 50],
        best=((11.25,), (5,)),
    ),
    "gumusfloudas2001ex4": Formulas(
        x=[(0, 8)],
        y=[(0, 10)],
        F=lambda x, y: squares(x - 3, y - 2),
        f=lambda x, y: squares(y - 5),
        G=lambda x, y: [-2 * x + y - 1, x - 2 * y + 2, x + 2 * y - 14],
        best=((3,), (5,)),
    ),
}
