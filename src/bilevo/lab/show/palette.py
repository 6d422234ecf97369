"""Colours and dashes of methods: the same in every figure, printed or on a screen.

Colours are those of M. Okabe and K. Ito, "Color universal design" (2008), which people who are
colour-blind can tell apart, with a grey and a wine red instead of black and yellow: they are seen
on white and on black. Methods that are left when colours have run out have other dashes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bilevo.lab.analysis.samples import base_method, registered_methods

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#882255")
DASHES = ("solid", "dashdot", "dot", "longdashdot")  # plotly's names
FORM = "dash"  # of a form of a method, such as "drc-cma-es/plain"
NAME_MOST = 28  # letters of a name in a figure


class Style(NamedTuple):
    """The colour and the dashes of a method's lines."""

    colour: str
    dash: str


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Choose a style for each method: fixed for registered ones, by order of names for others.

    Give all methods of the data, also where a figure shows some of them only.
    """
    names = list(dict.fromkeys(methods))
    known = list(registered_methods())
    bases = {name: base_method(name) for name in names}
    places = known + sorted(set(bases.values()) - set(known))
    return {name: _style(places.index(bases[name]), form=name != bases[name]) for name in names}


def _style(place: int, form: bool) -> Style:
    lap, colour = divmod(place, len(COLOURS))
    return Style(COLOURS[colour], FORM if form else DASHES[lap % len(DASHES)])


def short_name(name: str) -> str:
    """Return a name for a figure: one line, not too long, nothing that cannot be printed."""
    text = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name
    )
    return text if len(text) <= NAME_MOST else text[: NAME_MOST - 1] + "\N{HORIZONTAL ELLIPSIS}"
