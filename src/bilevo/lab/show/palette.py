"""Colours and dashes of methods, which are the same in every figure, in print and on a screen.

The hues are those of M. Okabe and K. Ito, "Color universal design" (2008), which people who are
colour-blind can tell apart; grey and wine red replace black and yellow. COLOURS are for white
paper, and NIGHT_COLOURS for dark pages: each has a contrast of at least 3 to what is behind it. If
there are more methods than colours, dashes tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bilevo.lab.analysis.samples import base_method, registered_methods
from bilevo.registry import DEFAULT_METHOD

COLOURS = ("#0072B2", "#D55E00", "#008F68", "#B8578F", "#A67100", "#3B97D3", "#6E6E6E", "#882255")
NIGHT_COLOURS = (
    *("#4AA3E0", "#F0803C", "#1FBF8F", "#DB8FBB"),
    *("#E9AE2C", "#8ED1F7", "#A0A0A0", "#D0689B"),
)
DASHES = ("solid", "dashdot", "dot", "longdashdot")  # The names are those of plotly.
FORM = "dash"  # The dashes of a form of a method, such as "drc-cma-es/plain".
DEFAULT_PLACE = 3  # The default has a colour of its own: the fourth.
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
    known = [name for name in registered_methods() if name != DEFAULT_METHOD]
    known.insert(DEFAULT_PLACE, DEFAULT_METHOD)
    bases = {name: base_method(name) for name in methods}
    places = known + sorted(set(bases.values()) - set(known))
    found = {}
    for name, base in bases.items():
        lap, colour = divmod(places.index(base), len(COLOURS))
        dash = DASHES[lap % len(DASHES)] if name == base else FORM
        found[name] = Style(COLOURS[colour], dash)
    return found


def page_styles(labels: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the styles of methods for the charts of a page; `labels` has their names there."""
    return {
        method: {
            "label": labels[method],
            "light": look.colour,
            "dark": NIGHT_COLOURS[COLOURS.index(look.colour)],
            "dash": look.dash,
        }
        for method, look in styles(labels).items()
    }


def short_name(name: str) -> str:
    """Return a name for a figure, cut to MAX_NAME and with only printable letters."""
    text = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name
    )
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"
