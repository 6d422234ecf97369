"""Colours and dashes of methods, which are the same in every figure, in print and on a screen.

Most colours are from M. Okabe and K. Ito, "Color universal design" (2008), and can be told apart by
people who are colour-blind. Grey and wine red replace black and yellow, because all colours must be
visible on white and on black. If there are more methods than colours, dashes tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bilevo.lab.analysis.samples import base_method, registered_methods

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#882255")
DASHES = ("solid", "dashdot", "dot", "longdashdot")  # The names are those of plotly.
FORM = "dash"  # The dashes of a form of a method, such as "drc-cma-es/plain".
MAX_NAME = 28  # The longest name in a figure, in letters.


class Style(NamedTuple):
    """The colour and the dashes of a method's lines."""

    colour: str
    dash: str


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Choose a style for each method. Registered methods have fixed styles.

    The styles of other methods depend on the order of their names. So give all methods of the data,
    even if a figure shows only some of them.
    """
    known = list(registered_methods())
    bases = {name: base_method(name) for name in methods}
    places = known + sorted(set(bases.values()) - set(known))
    found = {}
    for name, base in bases.items():
        lap, colour = divmod(places.index(base), len(COLOURS))
        dash = DASHES[lap % len(DASHES)] if name == base else FORM
        found[name] = Style(COLOURS[colour], dash)
    return found


def short_name(name: str) -> str:
    """Return a name for a figure, cut to MAX_NAME and with only printable letters."""
    text = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name
    )
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"
