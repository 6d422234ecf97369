"""Problems of the literature, by the name of the first author: Hatz to Muu."""

from __future__ import annotations

import math

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.problems.literature.formulas import Formulas, squares


def _steps(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return f of MorganPatrone2006b: its slope in y is 0 for |x| < 0.25, and changes sign."""
    return np.asarray(y * np.where(x > 0, np.maximum(x - 0.25, 0), np.minimum(x + 0.25, 0)))


def _hill(own: FloatArray, height: FloatArray, other: FloatArray) -> list[FloatArray]:
    """Return a level's constraints in LuDebSinha2016d, in which both levels are alike."""
    slope = other / 14 + 16 / 7
    away = own - other / 14
    return [
        height - slope * squares(own - 2),
        12.5 * slope * (own - 5) - height,
        height - 5 * (away + 12 / 7) * (away + 40 / 7),
    ]


H_TO_M = {
    "hatzetal2013": Formulas(
        x=[(-10, 10)],
        y=[(0, 10)] * 2,
        F=lambda x, y1, y2: -x + 2 * y1 + y2,
        f=lambda x, y1, y2: squares(x - y1, y2),
        best=((0,), (0, 0)),
    ),
    "henrionsurowiec2011": Formulas(
        x=[(-10, 10)],
        y=[(-10, 10)],
        F=lambda x, y: x * x,
        f=lambda x, y: y * (0.5 * y - x),
        best=((0,), (0,)),
    ),
    "kleniatiadjiman2014ex3": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: x - y,
        f=lambda x, y: x * y * y * (0.5 - y),
        best=((0,), (1,)),
    ),
    "lampariellosagratella2017ex23": Formulas(
        x=[(-1, 1)],
        y=[(-10, 10), (0, 10)],
        F=lambda x, y1, y2: x,
        f=lambda x, y1, y2: squares(x - y1, y2 + 1),
        g=lambda x, y1, y2: [y1 * y1 * y1 - y2],
        best=((-1,), (-1, 0)),
    ),
    "lampariellosagratella2017ex32": Formulas(
        x=[(-10, 10)],
        y=[(-10, 10)],
        F=squares,
        f=lambda x, y: squares(x + y - 1),
        best=((0.5,), (0.5,)),
    ),
    "lampariellosagratella2017ex35": Formulas(
        x=[(-1, 1)],
        y=[(0, 1)],
        F=squares,
        f=lambda x, y: -y,
        g=lambda x, y: [2 * x + y - 2],
        best=((0.8,), (0.4,)),
    ),
    "ludebsinha2016b": Formulas(  # a power of 2/5 is the fifth root of a square, for any sign
        x=[(0, 1)],
        y=[(0, 2)],
        F=lambda x, y: squares(x - 0.5, y - 1),
        f=lambda x, y: (
            2
            - 0.8 * np.exp(-squares(2 * x + 4 * y - 6))
            - np.exp(-((np.abs(300 * y - 200 * x) / 11) ** 0.4))
        ),
        best=((0.5 + 4 / 13,), (7 / 13,)),
    ),
    "ludebsinha2016d": Formulas(  # the box decides the optimum, which no paper states
        x=[(-4, 10), (-100, 200)],
        y=[(-4, 10), (-100, 200)],
        F=lambda x1, x2, y1, y2: -x2,
        f=lambda x1, x2, y1, y2: -y2,
        G=lambda x1, x2, y1, y2: _hill(x1, x2, y1),
        g=lambda x1, x2, y1, y2: _hill(y1, y2, x1),
    ),
    "ludebsinha2016f": Formulas(  # no paper states the optimum
        x=[(-80, 200), (-100, 200)],
        y=[(2, 4)],
        F=lambda x1, x2, y: -x2,
        f=lambda x1, x2, y: squares(x1 - 50) / 784 + 25 * squares(y - 2.5),
        G=lambda x1, x2, y: [
            x2 - y * squares(x1 / 20 - 2),
            12.5 * y * (x1 / 20 - 5) - x2,
            x2 - 5 * (x1 / 20 - y + 4) * (x1 / 20 - y + 8),
        ],
    ),
    "macalhurter1997": Formulas(
        x=[(-10, 16)],
        y=[(-1500, 500)],
        F=lambda x, y: squares(x - 1, y - 1),
        f=lambda x, y: y * (0.5 * y - 50 * x + 500),
        best=((25051 / 2501,), (50 * 41 / 2501,)),
    ),
    "mitsosbarton2006ex310": Formulas(
        x=[(0.1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: y,
        f=lambda x, y: x * ((((16 * y + 2) * y - 8) * y - 1.5) * y + 0.5),
        best=((0.1,), (0.5,)),
    ),
    "mitsosbarton2006ex312": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: x * y - x + 10 * y * y,
        f=lambda x, y: y * y * (0.5 * y * y - x),
        best=((0,), (0,)),
    ),
    "mitsosbarton2006ex314": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: squares(x - 0.25, y),
        f=lambda x, y: y * (y * y / 3 - x),
        best=((0.25,), (0.5,)),
    ),
    "mitsosbarton2006ex316": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: 2 * x + y,
        f=lambda x, y: -y * y * (2 * x + y * y) / 4,
        best=((-1,), (0,)),
    ),
    "mitsosbarton2006ex318": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: y * y - x * x,
        f=lambda x, y: y * y * (x - 0.5 * y * y),
        best=((1,), (0,)),
    ),
    "mitsosbarton2006ex320": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: squares(x - 0.25, y),
        f=lambda x, y: y * (y * y / 3 - x * x),
        best=((0.5,), (0.5,)),
    ),
    "mitsosbarton2006ex322": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=lambda x, y: squares(x + 0.6, y),
        f=lambda x, y: (
            (((y + (2 - 2 * x) / 15) * y - 0.02 * x * x + 0.16 * x - 0.4) * y) * y
            + x * (0.004 * x * x - 0.036 * x + 0.08) * y
        ),
        g=lambda x, y: [0.01 * (1 + x * x) - y * y],
        best=((-56 / 101,), (46 / 101,)),
    ),
    "mitsosbarton2006ex324": Formulas(
        x=[(0, 1)],
        y=[(0, 3)],
        F=lambda x, y: x * x - y,
        f=lambda x, y: squares(squares(y - 1 - 0.1 * x) - 0.5 - 0.5 * x),
        best=((0.2106621340234129,), (1.799096461536504,)),
    ),
    "mitsosbarton2006ex326": Formulas(
        x=[(-1, 1)] * 2,
        y=[(-1, 1)] * 3,
        F=lambda x1, x2, y1, y2, y3: x1 * y1 + x2 * y2 * y2 + x1 * x2 * y3 * y3 * y3,
        f=lambda x1, x2, y1, y2, y3: x1 * y1 * y1 + x2 * y2 * y2 + (x1 - x2) * y3 * y3,
        G=lambda x1, x2, y1, y2, y3: [
            0.1 - x1 * x1,
            1.5 - squares(y1, y2, y3),
            squares(y1, y2, y3) - 2.5,
        ],
        best=((-1, -1), (1, 1, -math.sqrt(0.5))),
    ),
    "mitsosbarton2006ex328": Formulas(
        x=[(-1, 1)] * 5,
        y=[(-1, 1)] * 5,
        F=lambda *all_variables: -squares(*all_variables),
        f=lambda x1, x2, x3, x4, x5, y1, y2, y3, y4, y5: (
            y1 * y1 * y1 + y2 * y2 * (x1 + x2) + 0.1 * y3 + x3 * x4 * x5 * squares(y4, y5)
        ),
        G=lambda x1, x2, x3, x4, x5, y1, y2, y3, y4, y5: [
            y1 * y2 - x1,
            x1 + y3 - np.exp(x2),
            x2 * y1 * y1,
        ],
        g=lambda x1, x2, x3, x4, x5, y1, y2, y3, y4, y5: [
            y1 * y2 - 0.3,
            x1 - y3 * y3 - 0.2,
            y4 * y5 - np.exp(y3) - 0.1,
        ],
        best=((1, -1, -1, -1, -1), (-1, 1, -1, 1, -1)),
    ),
    "mitsosbarton2006ex39": Formulas(
        x=[(-10, 10)],
        y=[(-1, 1)],
        F=lambda x, y: x,
        f=lambda x, y: y * y * y,
        G=lambda x, y: [y - x],
        best=((-1,), (-1,)),
    ),
    "morganpatrone2006b": Formulas(
        x=[(-0.5, 0.5)],
        y=[(-1, 1)],
        F=lambda x, y: -x - y,
        f=_steps,
        best=((0.25,), (1,)),
    ),
    "muuquy2003ex1": Formulas(
        x=[(0, 2)],
        y=[(0, 10)] * 2,
        F=lambda x, y1, y2: x * x - 4 * x + squares(y1, y2),
        f=lambda x, y1, y2: y1 * (y1 + y2 - 3 * x + 1) + y2 * (0.5 * y2 + x + 1),
        g=lambda x, y1, y2: [2 * y1 + y2 - 2 * x - 1],
        best=((11 / 13,), (10 / 13, 0)),
    ),
}
