"""Grids of settings: in a plan, the name of a grid stands for forms of a method, one per setting.

    methods = ["drc-cma-es", "discount", "weights"]

    [grids.discount]
    method = "drc-cma-es"
    settings = { gamma = [0.0, 0.25, 0.75, 1.0] }  # several lists: all combinations

    [grids.weights]
    method = "drc-cma-es"
    shares = ["w_base", "w_performance", "w_potential"]  # all that sum to 1, in quarters
    steps = 4

A form is named by its settings, such as "drc-cma-es/gamma=0.25". `settings_of` reads them from this
name, so that runs of other programs can be imported and shown in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise, product
from typing import Any

from bilevo import registry
from bilevo.core.budget import require_count

MAX_FORMS = 1000  # The most settings of a grid.
KEYS = ("method", "settings", "shares", "steps")
WORD = re.compile(r"[^\s,/=]+")  # A value that can be a part of a form's name.
Setting = int | float | str | bool


def forms_of_grid(name: str, table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the forms of a grid by their names; a form has its method and its settings."""
    for key in table:
        if key not in KEYS:
            hint = registry.suggestion(str(key)[:60], list(KEYS))
            raise ValueError(f"the grid {name!r} has no key {str(key)[:60]!r}{hint}")
    method = table.get("method")
    if not isinstance(method, str):
        raise ValueError(f"the grid {name!r} needs a method")
    points = [*_points(name, table)]
    return {form_name(method, point): {"method": method, **point} for point in points}


def form_name(method: str, point: Mapping[str, Setting]) -> str:
    """Return the name of a form: "drc-cma-es/gamma=0.25", with spaces between several settings."""
    written = (f"{key}={_written(value)}" for key, value in point.items())
    return f"{method}/{' '.join(written)}"


def settings_of(form: str) -> dict[str, Setting]:
    """Return the settings in a form's name, or an empty dict if it does not name any."""
    words = form.partition("/")[2].split(" ")
    pairs = [word.partition("=") for word in words]
    if not all(key and value for key, _, value in pairs):
        return {}
    return {key: _read(value) for key, _, value in pairs}


def _written(value: Setting) -> str:
    """Write a value in a form's name; six digits of a number tell settings apart."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _read(text: str) -> Setting:
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _points(name: str, table: Mapping[str, Any]) -> Iterator[dict[str, Setting]]:
    """Yield the settings of each form of a grid."""
    lists, shares = table.get("settings", {}), table.get("shares", [])
    _require_lists(name, lists)
    mixtures = [*_mixtures(name, shares, table.get("steps"))]
    if not lists and not shares:
        raise ValueError(f"the grid {name!r} needs settings or shares")
    if twice := [key for key in shares if key in lists]:
        raise ValueError(f"the grid {name!r} has {twice[0]!r} both in settings and in shares")
    size = len(mixtures)
    for values in lists.values():
        size *= len(values)
    if size > MAX_FORMS:
        raise ValueError(f"a grid has at most {MAX_FORMS} settings; {name!r} has {size}")
    for mixture, values in product(mixtures, product(*lists.values())):
        yield {**mixture, **dict(zip(lists, values, strict=True))}


def _require_lists(name: str, lists: Any) -> None:
    """Refuse settings that are not lists of different numbers, texts or truth values."""
    if not isinstance(lists, dict):
        raise ValueError(f"settings of the grid {name!r} must be a table, got {lists!r}")
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{key} of the grid {name!r} must be a list of values, got {values!r}")
        for value in values:
            is_word = isinstance(value, str) and WORD.fullmatch(value)
            if not (is_word or isinstance(value, int | float)):
                raise ValueError(
                    f"{key} of the grid {name!r} has the value {value!r}; it should be a number, "
                    "true, false, or a text without spaces, commas, '/' and '='"
                )
        if len(set(map(_written, values))) < len(values):
            raise ValueError(f"{key} of the grid {name!r} has a value twice: {values!r}")


def _mixtures(name: str, shares: Any, steps: Any) -> Iterator[dict[str, Setting]]:
    """Yield all shares that sum to 1, in multiples of 1 / steps; one empty dict without shares."""
    if not shares:
        if steps is not None:
            raise ValueError(f"the grid {name!r} has steps without shares")
        yield {}
        return
    texts = isinstance(shares, list) and all(isinstance(key, str) for key in shares)
    if not texts or not 1 < len(set(shares)) == len(shares):
        raise ValueError(
            f"shares of the grid {name!r} must be two or more different names, got {shares!r}"
        )
    require_count(f"steps of the grid {name!r}", steps, optional=False)
    if steps + len(shares) > MAX_FORMS:
        raise ValueError(f"steps of the grid {name!r} are too many: {steps}")
    places = range(steps + len(shares) - 1)
    for bars in combinations(places, len(shares) - 1):
        ends = (-1, *bars, len(places))
        parts = [right - left - 1 for left, right in pairwise(ends)]
        yield {key: part / steps for key, part in zip(shares, parts, strict=True)}
