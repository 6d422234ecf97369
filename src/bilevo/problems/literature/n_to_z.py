"""Problems of the literature, by the name of the first author: Nie to Zlobec."""

from __future__ import annotations

import math

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.problems.literature.formulas import Formulas, squares

_CORNER = 2 / 0.667  # where the two constraints of Outrata's followers meet, in y1 and y2
_GOLDEN = (math.sqrt(5) - 1) / 2  # y1 of NieWangYe2017Ex54, where both constraints of g are active
_HALF = math.sqrt(_GOLDEN / 2)


def _outrata(y1: FloatArray, y2: FloatArray) -> list[FloatArray]:
    """Return the constraints that most followers of Outrata have."""
    return [y2 - 0.333 * y1 - 2, y1 - 0.333 * y2 - 2]


def _curved(x: FloatArray, y1: FloatArray, y2: FloatArray) -> FloatArray:
    """Return f of Outrata1993Ex31 and of Outrata1994Ex31."""
    return y1 * ((0.1 * x + 0.5) * y1 - 1.333 * x - 3) + y2 * ((0.05 * x + 0.5) * y2 - x)


def _wave(*xy: FloatArray) -> FloatArray:
    """Return f of TP9. It is infinite where its exponent is too large for floating point."""
    x, y = xy[:10], xy[10:]
    waves = [np.cos(column / math.sqrt(i)) for i, column in enumerate(y, start=1)]
    with np.errstate(over="ignore"):
        exponent = squares(*x) * (squares(*y) / 4000 + 1 - np.multiply.reduce(waves))
        return np.asarray(np.exp(exponent))


def _quotient(x: FloatArray, y1: FloatArray, y2: FloatArray) -> FloatArray:
    """Return F of Zlobec2001a. It is not finite at x = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return -y1 / x


N_TO_Z = {
    "niewangye2017ex34": Formulas(
        x=[(2, 3)],
        y=[(0, 10), (-10, 10)],
        F=lambda x, y1, y2: x + y1 + y2,
        f=lambda x, y1, y2: x * (y1 + y2),
        g=lambda x, y1, y2: [y2 * y2 - y1 * y1 + squares(squares(y1, y2))],
        best=((2,), (0, 0)),
    ),
    "niewangye2017ex54": Formulas(
        x=[(-10, 10)] * 4,
        y=[(-10, 10)] * 4,
        F=lambda x1, x2, x3, x4, y1, y2, y3, y4: (
            x1 * x1 * y1 + x2 * y2 + x3 * y3 * y3 + x4 * y4 * y4
        ),
        f=lambda x1, x2, x3, x4, y1, y2, y3, y4: y1 * y1 - y2 * (x1 + x2) - (x3 + x4) * (y3 + y4),
        G=lambda x1, x2, x3, x4, y1, y2, y3, y4: [
            squares(x1, x2, x3, x4) - 1,
            y1 * y2 - x1,
            y3 * y4 - x3 * x3,
        ],
        g=lambda x1, x2, x3, x4, y1, y2, y3, y4: [
            squares(y1, y2, y3, y4) - 1,
            squares(y2, y3, y4) - y1,
        ],
        best=((0, 0, -math.sqrt(0.5), -math.sqrt(0.5)), (_GOLDEN, 0, -_HALF, -_HALF)),
    ),
    "niewangye2017ex58": Formulas(
        x=[(-10, 10)] * 4,
        y=[(-10, 10)] * 4,
        F=lambda x1, x2, x3, x4, y1, y2, y3, y4: (x1 + x2 + x3 + x4) * (y1 + y2 + y3 + y4),
        f=lambda x1, x2, x3, x4, y1, y2, y3, y4: x1 * y1 + x2 * y2 + 0.1 * y3 + 0.5 * y4 - y3 * y4,
        G=lambda x1, x2, x3, x4, y1, y2, y3, y4: [
            squares(x1, x2, x3, x4) - 1,
            y3 * y3 - x4,
            y2 * y4 - x1,
        ],
        g=lambda x1, x2, x3, x4, y1, y2, y3, y4: [
            y1 * y1 + 2 * y2 * y2 + 3 * y3 * y3 + 4 * y4 * y4 - x1 * x1 - x2 - x3 * x3 - x4,
            y2 * y3 - y1 * y4,
        ],
        best=(
            (0.5135470203738204, 0.5049900351717831, 0.48820494480309035, 0.49285946689931015),
            (-0.8346441661719678, -0.41036844739581757, -0.21059096079656658, -0.2887226370876742),
        ),
    ),
    "outrata1990ex1a": Formulas(
        x=[(-10, 10)] * 2,
        y=[(0, 10)] * 2,
        F=lambda x1, x2, y1, y2: 0.1 * squares(x1, x2) + 0.5 * squares(y1, y2) - 3 * y1 - 4 * y2,
        f=lambda x1, x2, y1, y2: y1 * (0.5 * y1 - 2 * y2 - x1) + y2 * (2.5 * y2 - x2),
        g=lambda x1, x2, y1, y2: _outrata(y1, y2),
        best=(
            (1.0315664589423776, 3.0977971740011276),
            (2.597047923876049, 1.7929367083364822),
        ),
    ),
    "outrata1990ex1c": Formulas(
        x=[(-10, 31), (-10, 65)],
        y=[(0, 10)] * 2,
        F=lambda x1, x2, y1, y2: 0.5 * squares(y1, y2) - 3 * y1 - 4 * y2,
        f=lambda x1, x2, y1, y2: y1 * (0.5 * y1 + 3 * y2 - x1) + y2 * (5 * y2 - x2),
        g=lambda x1, x2, y1, y2: _outrata(y1, y2),
        best=((4 * _CORNER + 0.667, 13 * _CORNER + 0.667), (_CORNER, _CORNER)),
    ),
    "outrata1990ex1e": Formulas(
        x=[(-10, 10)] * 2,
        y=[(0, 10)] * 2,
        F=lambda x1, x2, y1, y2: 0.1 * squares(x1, x2) + 0.5 * squares(y1, y2) - 3 * y1 - 4 * y2,
        f=lambda x1, x2, y1, y2: (
            y1 * (0.5 * y1 + 3 * y2 + x1 - 2 * x2) + y2 * (5 * y2 - 3 * x1 + 3 * x2)
        ),
        g=lambda x1, x2, y1, y2: _outrata(y1, y2),
        best=((-0.4, 0.8), (2, 0)),
    ),
    "outrata1990ex2b": Formulas(
        x=[(0, 10)],
        y=[(0, 10)] * 2,
        F=lambda x, y1, y2: 0.5 * squares(y1 - 3, y2 - 4),
        f=lambda x, y1, y2: y1 * (0.5 * (1 + x) * y1 - 3 - 1.333 * x) - x * y2,
        g=lambda x, y1, y2: _outrata(y1, y2),
        best=((0,), (_CORNER, _CORNER)),
    ),
    "outrata1990ex2d": Formulas(
        x=[(0, 10)],
        y=[(0, 10)] * 2,
        F=lambda x, y1, y2: 0.5 * squares(y1 - 3, y2 - 4),
        f=lambda x, y1, y2: y1 * (0.5 * y1 - 3 - 1.333 * x) + y2 * (0.5 * y2 - x),
        g=lambda x, y1, y2: [
            y2 + (0.1 * x - 0.333) * y1 - x,
            y1 - (0.1 * x + 0.333) * y2 - 2,
        ],
        best=((2.856343046863164,), (3.8807455721982294, 3.0401572592258335)),
    ),
    "outrata1993ex31": Formulas(
        x=[(0, 10)],
        y=[(0, 10)] * 2,
        F=lambda x, y1, y2: 0.5 * squares(y1 - 3, y2 - 4),
        f=_curved,
        g=lambda x, y1, y2: [
            y2 + (0.1 * x - 0.333) * y1 + 0.1 * x - 2,
            y1 - (0.1 * x + 0.333) * y2 + 0.1 * x - 2,
        ],
        best=((1.9095179688940402,), (2.978587865236068, 2.2321512571744058)),
    ),
    "outrata1994ex31": Formulas(
        x=[(0, 10)],
        y=[(0, 10)] * 2,
        F=lambda x, y1, y2: 0.5 * squares(y1 - 3, y2 - 4),
        f=_curved,
        g=lambda x, y1, y2: [
            y2 - 0.333 * y1 + 0.1 * x - 1,
            squares(y1, y2) - 0.1 * x - 9,
        ],
        best=((4.060406427902146,), (2.682244429583152, 1.4871467522609751)),
    ),
    "paulaviciusadjiman2017a": Formulas(
        x=[(-1, 1)],
        y=[(-1, 1)],
        F=squares,
        f=lambda x, y: y * y * (x - 0.5 * y * y),
        best=((0.5,), (0,)),
    ),
    "sahinciric1998ex2": Formulas(
        x=[(0, 8)],
        y=[(-10, 10)],
        F=lambda x, y: squares(x - 3, y - 2),
        f=lambda x, y: squares(y - 5),
        g=lambda x, y: [-2 * x + y - 1, x - 2 * y + 2, x + 2 * y - 14],
        best=((1,), (3,)),
    ),
    "shimizuaiyoshi1981ex2": Formulas(
        x=[(-10, 30), (-10, 15)],
        y=[(0, 10)] * 2,
        F=lambda x1, x2, y1, y2: squares(x1 - 30, x2 - 20) - 20 * y1 + 20 * y2,
        f=lambda x1, x2, y1, y2: squares(x1 - y1, x2 - y2),
        G=lambda x1, x2, y1, y2: [30 - x1 - 2 * x2, x1 + x2 - 25],
        best=((20, 5), (10, 5)),
    ),
    "shimizuetal1997b": Formulas(
        x=[(0, 17)],
        y=[(0, 50)],
        F=lambda x, y: 16 * x * x + 9 * y * y,
        f=lambda x, y: squares(squares(x + y - 20)),
        G=lambda x, y: [y - 4 * x],
        g=lambda x, y: [4 * x + y - 50],
        best=((11.25,), (5,)),
    ),
    "sinhamalodeb2014tp3": Formulas(
        x=[(0, 10)] * 2,
        y=[(0, 10)] * 2,
        F=lambda x1, x2, y1, y2: -x1 * x1 - 3 * x2 * x2 - 4 * y1 + y2 * y2,
        f=lambda x1, x2, y1, y2: 2 * x1 * x1 + y1 * y1 - 5 * y2,
        G=lambda x1, x2, y1, y2: [x1 * x1 + 2 * x2 - 4],
        g=lambda x1, x2, y1, y2: [
            -x2 - 3 * y1 + 4 * y2 + 4,
            -x1 * x1 + 2 * x1 - x2 * x2 + 2 * y1 - y2 - 3,
        ],
        best=((0, 2), (15 / 8, 29 / 32)),
    ),
    "sinhamalodeb2014tp7": Formulas(
        x=[(0, 10)] * 2,
        y=[(0, 10)] * 2,
        F=lambda x1, x2, y1, y2: -(x1 + y1) * (x2 + y2) / (1 + x1 * y1 + x2 * y2),
        f=lambda x1, x2, y1, y2: (x1 + y1) * (x2 + y2) / (1 + x1 * y1 + x2 * y2),
        G=lambda x1, x2, y1, y2: [x1 - x2, squares(x1, x2) - 100],
        g=lambda x1, x2, y1, y2: [y1 - x1, y2 - x2],
        best=((math.sqrt(50), math.sqrt(50)), (0, math.sqrt(50))),
    ),
    "sinhamalodeb2014tp9": Formulas(
        x=[(-10, 10)] * 10,
        y=[(-math.pi, math.pi)] * 10,
        F=lambda *xy: squares(*(x - 1 for x in xy[:10]), *xy[10:]),
        f=_wave,
        best=([1] * 10, [0] * 10),
    ),
    "vogel2012": Formulas(
        x=[(-3, 2)],
        y=[(-10, 10)],
        F=lambda x, y: squares(y + 1),
        f=lambda x, y: y * (y * y - 3),
        g=lambda x, y: [x - y],
        best=((-2,), (-2,)),
    ),
    "yezhu2010ex42": Formulas(
        x=[(-3, 2)],
        y=[(-10, 10)],
        F=lambda x, y: squares(x - 1, y),
        f=lambda x, y: y * (y * y - 3),
        g=lambda x, y: [x - y],
        best=((1,), (1,)),
    ),
    "yezza1996ex31": Formulas(
        x=[(0, 1)],
        y=[(0, 1)],
        F=lambda x, y: 2 * x + y * (3 - 4 * x) + 1,
        f=lambda x, y: 4 * x * y - 2 * x - y - 2,
        best=((0.25,), (0,)),
    ),
    "zlobec2001a": Formulas(  # without an optimum: F falls without bound as x > 0 goes to 0
        x=[(-10, 10)],
        y=[(0, 1000)] * 2,
        F=_quotient,
        f=lambda x, y1, y2: -y1 - y2,
        g=lambda x, y1, y2: [x * y2 + y1 - 1],
    ),
}
