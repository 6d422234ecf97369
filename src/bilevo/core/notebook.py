"""How notebooks show our objects: small pieces of HTML, in which all text is escaped.

There is no style sheet, so that a notebook's own styles and colours are used, light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, EDGE = 240, 48, 3  # size and margin of a small curve, in pixels
MAX_POINTS = 240  # curves with more points are thinned; the last point is kept


def table(title: str, rows: Mapping[str, str]) -> str:
    """Return an HTML table with a row for each name and its text."""
    lines = "".join(
        f'<tr><th style="text-align: right">{escape(name)}</th>'
        f'<td style="text-align: left">{escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{lines}</tbody></table>"


def sparkline(values: Sequence[float], title: str) -> str:
    """Return a curve of values as inline SVG, or no text if fewer than two values are finite."""
    last = max(1, len(values) - 1)
    chosen = [i for i in range(len(values)) if i % (1 + last // MAX_POINTS) == 0 or i == last]
    drawn = [(i, values[i]) for i in chosen if math.isfinite(values[i])]
    if len(drawn) < 2:
        return ""
    low, high = (side(value for _, value in drawn) for side in (min, max))
    unit = high / 2 - low / 2 or 1.0  # the difference of halves cannot overflow

    def at(i: int, value: float) -> str:
        x = EDGE + (WIDTH - 2 * EDGE) * i / last
        y = EDGE + (HEIGHT - 2 * EDGE) * ((high / 2 - value / 2) / unit)
        return f"{x:.1f},{y:.1f}"

    line = " ".join(at(*point) for point in drawn)
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img"><title>{escape(title)}</title>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
