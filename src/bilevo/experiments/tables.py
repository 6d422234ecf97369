"""Tables of medians from stored runs, beside published ones: `scripts/tables`.

Nothing is run here. Ours are medians over the rows that campaigns have stored; the DRC paper's are
the values it prints (paper.json); "program" are medians of the authors' public programs, run under
GNU Octave (peers.json says how). Failed runs are counted, and left out of medians.

A document holds a table between two marks, and only what stands between them is replaced:

    <!-- table: methods 2,3 -->
    <!-- end -->
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from bilevo import registry
from bilevo.experiments.campaign import NEAR, Row, read
from bilevo.experiments.plans import FIELD, PAIRS, PLANS, PRINTED

DATA = Path("docs/data")
FLOOR = 1e-6  # the paper prints accuracies below this as this
ACCURACIES = ("Acc_u", "verified", "Acc_l")
NAMES = {key: key for key in (*ACCURACIES, "total")}  # columns of tables and of stored rows
NAMES |= {"FEs_u": "nfev_upper", "FEs_l": "nfev_lower"}
LEVELS = ("FEs_u", "FEs_l")  # the paper prints them at (2,3), elsewhere totals only
OTHERS = ("paper", "ratio", "program", "program's runs")  # columns that may have nothing to show
SOLVED = (1e-4, 1e-6)
FACTORS = (1.1, 1.5, 2.0)

Lines = list[list[str]]


def marked(name: str) -> re.Pattern[str]:
    """What a document has for a table: a mark with the table's name, a pattern, to its end."""
    return re.compile(rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


MARKED = marked(r"(\w+) (\d+),(\d+)")


@dataclass(frozen=True, slots=True)
class Medians:
    """Over the completed rows of a method on a problem; NaN when there are none."""

    rows: list[Row]
    failed: int
    values: dict[str, float]

    @classmethod
    def of(cls, rows: list[Row]) -> Medians:
        done = [row for row in rows if not row.failed]
        medians = {
            key: float(np.median([getattr(row, name) for row in done])) if done else np.nan
            for key, name in NAMES.items()
        }
        return cls(done, len(rows) - len(done), medians)

    @property
    def runs(self) -> str:
        """How many there are, and what is wrong with some."""
        infeasible = sum(row.violation > 0 for row in self.rows)
        parts = [str(len(self.rows))]
        parts += [f"{infeasible} infeasible"] if infeasible else []
        parts += [f"{self.failed} failed"] if self.failed else []
        return ", ".join(parts)

    def solved(self, accuracy: float) -> float:
        """The share of runs within an accuracy; a failed or infeasible one is not."""
        good = sum(row.Acc_u <= accuracy and row.violation == 0 for row in self.rows)
        return good / (len(self.rows) + self.failed)

    @property
    def until_near(self) -> float:
        """Evaluations per run that came near the optimum, with those of other completed runs."""
        near = sum(row.near > 0 for row in self.rows)
        return sum(row.near or row.total for row in self.rows) / near if near else math.inf


Groups = dict[tuple[str, str], Medians]  # by method and problem


def grouped(rows: Iterable[Row]) -> Groups:
    """Medians per method and problem, in the order of the rows."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.method, row.problem), []).append(row)
    return {key: Medians.of(group) for key, group in groups.items()}


@cache
def _reference(name: str) -> Any:
    return json.loads((files("bilevo.experiments") / name).read_text(encoding="utf-8"))


def column(method: str) -> str:
    """A method's name in the paper and its programs."""
    return {"bleaq2": "BLEAQ-II"}.get(method, method.upper())


def paper_values(problem: str, size: str, method: str) -> dict[str, float]:
    """What the paper prints: all at (2,3), totals elsewhere, nothing for other methods."""
    tables, name, printed = _reference("paper.json"), problem.upper(), column(method)
    total = tables["total_evaluations"].get(name, {}).get(size, {}).get(printed)
    if total is None:
        return {}
    values = {"total": float(total)}
    if size == "2,3":
        found = {**tables["accuracy_m2_n3"][name], **tables["evaluations_m2_n3"][name]}
        values |= {key: float(found[key][printed]["median"]) for key in found}
    return values


def program_values(problem: str, size: str, method: str) -> dict[str, float]:
    """Medians of the authors' program, where it was run."""
    found = _reference("peers.json")["medians"].get(column(method), {}) if size == "2,3" else {}
    return dict(found.get(problem, {}))


def status(method: str) -> str:
    """How close a method is to its authors' program; what is not registered is our own."""
    known = registry.methods().get(method)
    return str(known.status if known else registry.Status.OWN)


def label(method: str) -> str:
    """A method's name; a reconstruction is called one wherever its figures stand."""
    rebuilt = status(method) == registry.Status.RECONSTRUCTION
    return f"{method} ({registry.Status.RECONSTRUCTION})" if rebuilt else method


def method_table(method: str, groups: Groups, size: str) -> Lines:
    """One method's medians beside the paper's and its program's, with ratios to the paper's."""
    counts = LEVELS if size == "2,3" else ("total",)
    header = [f"{method} ({status(method)})", "runs"]
    for key in ACCURACIES:
        header += [key, "paper", "program"]
    for key in counts:
        header += [key, "paper", "ratio", "program"]
    lines = [[*header, "program's runs"]]
    for problem, group in _of(method, groups).items():
        paper = paper_values(problem, size, method)
        program = program_values(problem, size, method)
        line = [problem, group.runs]
        for key in ACCURACIES:
            line += [_accuracy(v.get(key, np.nan)) for v in (group.values, paper, program)]
        for key in counts:
            ours, theirs = group.values[key], paper.get(key, np.nan)
            line += [_count(ours), _count(theirs), _ratio(ours, theirs)]
            line += [_count(program.get(key, np.nan))]
        lines.append([*line, _count(program.get("runs", np.nan))])
    return _without_empty_columns(lines)


def summary_table(groups: Groups, size: str) -> Lines:
    """Per method of the paper, on how many problems its median evaluations are near the paper's."""
    factors = ", ".join(f"{factor:g}" for factor in FACTORS)
    keys = LEVELS if size == "2,3" else ("total",)
    header = ["method", "status", "problems", *(f"{key} within {factors}" for key in keys)]
    lines = [[*header, "sum of totals", "paper", "ratio", f"Acc_u <= {SOLVED[0]:.0e}", "paper"]]
    for method in PRINTED:
        ours, theirs, solved = [], [], 0
        for problem, group in _of(method, groups).items():
            if paper := paper_values(problem, size, method):
                ours.append(group.values)
                theirs.append(paper)
                solved += group.solved(SOLVED[0]) > 0.5
        if not ours:
            continue
        line = [method, status(method), str(len(ours))]
        for key in keys:
            line += [_nearness([(o[key], t[key]) for o, t in zip(ours, theirs, strict=True)])]
        totals = [sum(values["total"] for values in side) for side in (ours, theirs)]
        line += [*map(_count, totals), _ratio(*totals), str(solved), _solved(theirs)]
        lines.append(line)
    return _without_empty_columns(lines)


def ablation_table(rows: Iterable[Row]) -> Lines:
    """Each pair of optimisers in DRC against its plain form, on the same numbers of runs."""
    plan = PLANS["ablation"]
    groups = grouped(row for row in rows if row.number < plan.runs)
    header = ["method", "problem", "runs"]
    header += [f"evaluations to {NEAR:.0e}", "plain", "ratio", "total", "plain", "ratio"]
    for accuracy in SOLVED:
        header += [f"Acc_u <= {accuracy:.0e}", "plain"]
    lines = [[*header, "verified", "plain"]]
    for pair in PAIRS:
        whole, plain = _of(pair, groups), _of(f"{pair}/plain", groups)
        sums = [0.0, 0.0]
        for problem in plan.problems:
            if problem in whole and problem in plain:
                both = (whole[problem], plain[problem])
                line = [label(pair), problem, " / ".join(group.runs for group in both)]
                for counts in (
                    [group.until_near for group in both],
                    [group.values["total"] for group in both],
                ):
                    line += [*map(_count, counts), _ratio(*counts)]
                for accuracy in SOLVED:
                    line += [f"{100 * group.solved(accuracy):.0f}%" for group in both]
                lines.append([*line, *(_accuracy(group.values["verified"]) for group in both)])
                sums = [old + new for old, new in zip(sums, counts, strict=True)]
        if sums[0]:
            line = [label(pair), "sum", *[""] * 4, *map(_count, sums), _ratio(*sums)]
            lines.append([*line, *[""] * (len(lines[0]) - len(line))])
    return lines


def show(lines: Lines, markdown: bool) -> str:
    if markdown:
        rule = ["---"] * len(lines[0])
        return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def block(kind: str, rows: list[Row], size: str) -> str:
    """The Markdown of one kind of table; empty without stored runs for it."""
    groups = grouped(rows)
    if kind == "summary":
        tables = [summary_table(groups, size)]
    elif kind == "methods":
        tables = [method_table(method, groups, size) for method in FIELD]
    elif kind == "ablation":
        tables = [ablation_table(rows)]
    else:
        raise ValueError(f"unknown kind of table {kind!r}; known are summary, methods, ablation")
    return "\n\n".join(show(lines, markdown=True) for lines in tables if len(lines) > 1)


def replaced(text: str, data: Path) -> str:
    """A document with its tables made anew; one without stored runs stays as it is."""

    def made(kind: str, m: str, n: str) -> str:
        return block(kind, list(read(data / f"runs_{m}_{n}.csv").values()), f"{m},{n}")

    return filled(text, MARKED, made, like="methods 2,3")


def filled(text: str, pattern: re.Pattern[str], made: Callable[..., str], like: str) -> str:
    """A document with its `marked` tables made from their names; where nothing is made, it stays.

    `like` is a name that the pattern matches, to show where a mark is not right.
    """

    def fill(match: re.Match[str]) -> str:
        begin, *name, _, end = match.groups()
        new = made(*name)
        return f"{begin}\n{new}\n\n{end}" if new else match.group()

    new, count = pattern.subn(fill, text)
    if count != text.count("<!-- table:"):
        raise ValueError(f"a table has no end, or its mark is not like <!-- table: {like} -->")
    return new


def write_tables(document: Path = Path("docs/reproduction.md"), data: Path = DATA) -> None:
    """Write the tables of a document from stored runs.

    Parameters
    ----------
    document
        A Markdown file with marks for tables.
    data
        The folder of stored runs.
    """
    document.write_text(replaced(document.read_text(encoding="utf-8"), data), encoding="utf-8")


def _of(method: str, groups: Groups) -> dict[str, Medians]:
    """A method's medians by problem."""
    return {problem: group for (name, problem), group in groups.items() if name == method}


def _without_empty_columns(lines: Lines) -> Lines:
    """Without columns of others' figures where there are none."""
    header, *rest = lines
    kept = [
        i for i, name in enumerate(header) if name not in OTHERS or any(r[i] != "-" for r in rest)
    ]
    return [[line[i] for i in kept] for line in lines]


def _nearness(pairs: list[tuple[float, float]]) -> str:
    """How many of ours are within each factor of the paper's."""
    apart = [max(ours / theirs, theirs / max(ours, 1)) for ours, theirs in pairs]
    return ", ".join(str(sum(x <= factor for x in apart)) for factor in FACTORS)


def _solved(medians: list[dict[str, float]]) -> str:
    """On how many problems the median accuracy is good."""
    known = [values["Acc_u"] for values in medians if "Acc_u" in values]
    return str(sum(accuracy <= SOLVED[0] for accuracy in known)) if known else "-"


def _accuracy(value: float) -> str:
    return "-" if np.isnan(value) else f"{max(value, FLOOR):.1e}"


def _count(value: float) -> str:
    if math.isinf(value):
        return "never"
    return "-" if np.isnan(value) else f"{value:.0f}"


def _ratio(ours: float, theirs: float) -> str:
    return "-" if np.isnan(ours / theirs) else f"{ours / theirs:.2f}"


if __name__ == "__main__":
    from cyclopts import run

    run(write_tables)
