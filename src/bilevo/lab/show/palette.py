"""How methods look: the same colour and dashes in every figure, printed or on a screen.

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
LONGEST = 28  # characters of a name in a figure


class Style(NamedTuple):
    colour: str
    dash: str


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """A style for each method of the data: fixed for those of ours, in order of names for others.

    To be called with all methods of the data, also where a figure shows some of them only.
    """
    names = list(dict.fromkeys(methods))
    known = list(registered_methods())
    bases = {name: base_method(name) for name in names}
    places = known + sorted(set(bases.values()) - set(known))
    return {name: _style(places.index(bases[name]), form=name != bases[name]) for name in names}


def _style(place: int, form: bool) -> Style:
    lap, colour = divmod(place, len(COLOURS))
    return Style(COLOURS[colour], FORM if form else DASHES[lap % len(DASHES)])


def shown(name: str) -> str:
    """A name as figures have it: one line, not too long, nothing that cannot be printed."""
    text = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name
    )
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"
