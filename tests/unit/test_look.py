"""The look of pages: what is written can be read, by day and by night."""

from __future__ import annotations

import re
from itertools import product

import pytest

from bilevo.lab.show.page import look
from bilevo.lab.show.page.look import DARK, LIGHT, contrast
from bilevo.lab.show.palette import COLOURS, NIGHT_COLOURS

THEMES = {"light": LIGHT, "dark": DARK}


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # a known near miss
    assert contrast("#0072B2", "#0072B2") == 1


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("text", "ground"), [*product(look.TEXTS, look.GROUNDS)])
def test_texts_can_be_read(theme: str, text: str, ground: str) -> None:
    colours = THEMES[theme]
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("edge", "ground"), [*product(look.EDGES, ("paper", "raised"))])
def test_edges_of_controls_can_be_seen(theme: str, edge: str, ground: str) -> None:
    colours = THEMES[theme]
    assert contrast(colours[edge], colours[ground]) >= 3.0


@pytest.mark.parametrize(
    ("colour", "paper"),
    [*product(COLOURS, [LIGHT["paper"]]), *product(NIGHT_COLOURS, [DARK["paper"]])],
)
def test_lines_of_methods_can_be_seen(colour: str, paper: str) -> None:
    assert contrast(colour, paper) >= 3.0


def test_colours_that_charts_have_of_their_own_can_be_seen() -> None:
    chart = look.page_file("charts.js")
    [bar] = re.findall(r'const BAR = "(#\w{6})"', chart)
    [survived] = re.findall(r'const SURVIVED = { light: "(#\w{6})", dark: "(#\w{6})" }', chart)
    pairs = [(bar, LIGHT), (bar, DARK), (survived[0], LIGHT), (survived[1], DARK)]
    for colour, theme in pairs:
        assert contrast(colour, theme["paper"]) >= 3.0
    assert set(re.findall(r"#\w{6}\b", chart)) == {bar, *survived}


def test_every_colour_has_a_form_for_the_night() -> None:
    assert len(set(NIGHT_COLOURS)) == len(set(COLOURS)) == len(COLOURS)
    assert DARK.keys() == LIGHT.keys()


def test_styles_use_only_colours_that_are_checked() -> None:
    """A colour in a style sheet itself would escape the tests above; shadows may be black."""
    sheet = look.page_file("page.css")
    assert "#" not in "".join(part.split(";")[0] for part in sheet.split("color:")[1:])
    used = {part.partition(")")[0] for part in sheet.split("var(--")[1:]}
    assert used <= LIGHT.keys()
