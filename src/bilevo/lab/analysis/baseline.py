"""A baseline: published medians that tables show beside the medians of stored runs.

A baseline is a JSON file, which anybody can write from the tables of a paper:

    {
      "name": "Smith (2020)",
      "source": "J. Smith, A bilevel method, Journal of Examples 1, 2020",
      "runs": 21,
      "medians": [
        {"problem": "smd1", "m": 2, "n": 3, "method": "nblea", "FEs": 523000, "Acc_u": 3.47e-5},
        {"problem": "smd1", "m": 2, "n": 3, "method": "mine", "FEs": 410000, "marks": {"FEs": "-"}}
      ]
    }

`name` and `medians` are required. An entry names a problem, its sizes and a method, as stored runs
name them, and has some of INDICATORS. Its `marks` are results of the source's own tests against the
source's `reference` method, which is the first method unless the file names another. `max_evals`
and `target` say how the source's runs ended, as in a plan. By default there was no limit, and runs
ended at the known optimum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilevo import problems
from bilevo.lab.analysis.samples import ACCURACIES, EVALUATIONS, QUALITIES, Case
from bilevo.lab.plans import require_known_keys
from bilevo.safe_files import content

INDICATORS = (*QUALITIES, *EVALUATIONS)
MARKS = ("+", "-", "=")
MAX_BASELINE = 2**22  # The largest baseline file, in bytes.
MAX_TEXT = 500  # The longest name, in letters.
MAX_COUNT, MAX_NUMBER = 2**53, 1e300  # The largest whole number, and the largest other number.
PLACE = ("problem", "m", "n", "method")
KEYS = ("name", "source", "runs", "reference", "max_evals", "target", "medians")

Key = tuple[Case, str, str]  # a case, a method and an indicator


@dataclass(frozen=True, slots=True)
class Baseline:
    """Published medians, who published them, and how their runs ended."""

    name: str
    medians: Mapping[Key, float]
    marks: Mapping[Key, str]
    methods: tuple[str, ...]  # in the order of the file
    reference: str
    source: str = ""
    runs: int | None = None  # how many runs each median is taken from
    max_evals: int = 0  # the limit of every run, or 0 if there was none
    target: bool = True  # whether runs ended at the known optimum

    def __str__(self) -> str:
        return f"{self.name}: {self.source}" if self.source else self.name

    @property
    def capitalized(self) -> str:
        """Return the name with a capital first letter, to begin a sentence."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def left_out(self) -> str:
        """Say that the baseline is left out because its runs ended in another way."""
        limit = f"a limit of {self.max_evals} evaluations" if self.max_evals else "no limit"
        ended = "ended" if self.target else "did not end"
        return (
            f"The runs of {self.name} had {limit} and {ended} at the known optimum; these ended "
            "otherwise: its figures are left out."
        )


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file; a mistake raises ValueError with the file's name."""
    try:
        return baseline_of(json.loads(content(path, MAX_BASELINE)))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"baseline {path}: {error}") from None


def baseline_of(table: Any) -> Baseline:
    """Make a baseline from the content of a file."""
    if not isinstance(table, dict):
        raise ValueError('it should be an object: {"name": ..., "medians": [...]}')
    require_known_keys(table, KEYS, "a baseline")
    entries = table.get("medians")
    if not isinstance(entries, list) or not entries:
        raise ValueError('medians should be a list of objects such as {"problem": "smd1", ...}')
    medians: dict[Key, float] = {}
    marks: dict[Key, str] = {}
    for number, entry in enumerate(entries):
        try:
            _add_entry(entry, medians, marks)
        except ValueError as error:
            raise ValueError(f"medians[{number}]: {error}") from None
    methods = tuple(dict.fromkeys(method for _, method, _ in medians))
    reference = _text("reference", table.get("reference", methods[0]))
    if reference not in methods:
        raise ValueError(f"the reference {reference!r} is none of its methods {list(methods)}")
    target = table.get("target", True)
    if not isinstance(target, bool):
        raise ValueError(f"target should be true or false, got {target!r}")
    return Baseline(
        name=_text("name", table.get("name")),
        medians=medians,
        marks=marks,
        methods=methods,
        reference=reference,
        source=_text("source", table["source"]) if "source" in table else "",
        runs=_whole_number("runs", table["runs"], 1) if "runs" in table else None,
        max_evals=_whole_number("max_evals", table.get("max_evals", 0), 0),
        target=target,
    )


def _add_entry(entry: Any, medians: dict[Key, float], marks: dict[Key, str]) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"it should be an object, got {str(entry)[:60]}")
    require_known_keys(entry, (*PLACE, *INDICATORS, "marks"), "an entry")
    problem, method = (_text(key, entry.get(key)) for key in ("problem", "method"))
    known = problem.lower() in problems.names()
    sizes = (_whole_number(key, entry.get(key), 1) for key in ("m", "n"))
    case = Case(problem.lower() if known else problem, *sizes)
    found = {name: _median(name, entry[name]) for name in INDICATORS if name in entry}
    if not found:
        raise ValueError(f"it has no median; indicators are {', '.join(INDICATORS)}")
    signs = entry.get("marks", {})
    if not isinstance(signs, dict) or not all(sign in MARKS for sign in signs.values()):
        raise ValueError(f'marks should be like {{"FEs": "+"}}, with one of {" ".join(MARKS)}')
    require_known_keys(signs, tuple(found), "marks")
    for name, value in found.items():
        if (case, method, name) in medians:
            raise ValueError(f"{name} of {method} on {case.problem} {case.size} is given twice")
        medians[case, method, name] = value
    marks |= {(case, method, name): sign for name, sign in signs.items()}


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.strip()) <= len(value) <= MAX_TEXT:
        what = f"a text of 1 to {MAX_TEXT} letters"
        raise ValueError(f"{key} should be {what}, got {str(value)[:60]!r}")
    return value


def _whole_number(key: str, value: Any, least: int) -> int:
    if type(value) is not int or not least <= value <= MAX_COUNT:
        raise ValueError(f"{key} should be a whole number from {least}, got {str(value)[:60]!r}")
    return value


def _median(key: str, value: Any) -> float:
    least = 1 if key in EVALUATIONS else 0 if key in ACCURACIES else -MAX_NUMBER
    if type(value) not in (int, float) or not least <= value <= MAX_NUMBER:
        above = "" if least < 0 else f" from {least}"
        raise ValueError(f"{key} should be a number{above}, got {str(value)[:60]!r}")
    return float(value)
