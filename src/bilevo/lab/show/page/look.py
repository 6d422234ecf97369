"""The look of pages: colours by day and by night, and the style sheet that uses them.

Colours are named by what they are for. tests/unit/test_look.py checks that each text can be read on
each ground (WCAG 2.2: a contrast of 4.5 for text, and of 3 for lines and the edges of controls).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

LIGHT = {
    **{"paper": "#ffffff", "raised": "#f5f7f8", "ink": "#1c2126", "quiet": "#59636d"},
    **{"rule": "#dfe3e7", "edge": "#7b858f", "accent": "#17694e", "tint": "#e0f2ea"},
    **{"warn": "#a33716", "warn-tint": "#fcebe5"},
}
DARK = {
    **{"paper": "#14171a", "raised": "#1d2125", "ink": "#e7eaed", "quiet": "#a3adb7"},
    **{"rule": "#333a41", "edge": "#78838d", "accent": "#62c7a3", "tint": "#1b3a30"},
    **{"warn": "#f5a488", "warn-tint": "#3b231b"},
}
TEXTS = ("ink", "quiet", "accent", "warn")  # The colours of texts.
GROUNDS = ("paper", "raised", "tint", "warn-tint")  # The colours behind texts.
EDGES = ("edge", "accent")  # The colours of the edges of controls, and of what has the focus.
TEXT_CONTRAST, LINE_CONTRAST = 4.5, 3.0


def style_sheet(*more: str) -> str:
    """Return the style of all pages, and then those of the files named in `more`.

    The page follows the system's choice of light or dark, unless its root has `data-theme`. On
    paper it is light.
    """
    dark = _variables(DARK)
    colours = (
        f":root {{{_variables(LIGHT)}}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{"
        f" :root:not([data-theme='light']) {{{dark}}} }}\n"
        f"@media screen {{ :root[data-theme='dark'] {{{dark}}} }}\n"
    )
    return colours + "".join(map(page_file, ("page.css", *more)))


def page_file(name: str) -> str:
    """Return the text of a style sheet, a script or a template."""
    return (files("bilevo.lab.show.page") / "files" / name).read_text(encoding="utf-8")


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours such as #1c2126, from 1 (none) to 21 (black on white)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance, as WCAG 2.2 defines it."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
