"""Safe text for a terminal.

Names and messages from files may hold characters that a terminal would obey.
"""

from __future__ import annotations

LAYOUT = "\n\t"  # control characters that are printed as they are


def printable(text: str) -> str:
    r"""Replace characters that a terminal obeys or hides by visible escapes such as \x1b.

    These are control characters other than newline and tab, changes of the direction of writing,
    characters without a width, and whatever else Unicode does not call printable.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in LAYOUT else _escaped(c) for c in text)


def on_one_line(text: str) -> str:
    """Return the text in its printable form, with every run of white space as one space."""
    return printable(" ".join(text.split()))


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
