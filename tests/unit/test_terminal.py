"""Text that a terminal shows and does not obey."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilevo.core.terminal import on_one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("smd1", "smd1"),
        ("naïve 中文", "naïve 中文"),
        ("a\n\tb", "a\n\tb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\r\x00\x7f\x9b", "\\x0d\\x00\\x7f\\x9b"),
        ("\u202egnp.exe\u2069", "\\u202egnp.exe\\u2069"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_a_terminal_obeys_or_hides_becomes_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_white_space_becomes_one_space_where_a_line_is_meant() -> None:
    assert on_one_line("a\n\n b\r\n\x1b[31mc") == "a b \\x1b[31mc"


@given(st.text(st.characters()))
def test_nothing_but_newline_and_tab_is_left_of_control_and_format_characters(text: str) -> None:
    shown = printable(text)
    assert not {"Cc", "Cf", "Cs", "Zl", "Zp"} & {
        unicodedata.category(c) for c in shown if c not in "\n\t"
    }
    shown.encode()
    assert printable(shown) == shown
