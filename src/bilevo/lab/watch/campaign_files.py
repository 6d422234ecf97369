"""A campaign that is followed: its files are read once each, while others are added or merged.

Files of stored runs are never changed, so a file that was read is read. Of histories only the rows
are kept at which the best pair changed: curves need no others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from bilevo import problems
from bilevo.core.terminal import on_one_line
from bilevo.lab import store
from bilevo.lab.campaign import SETTINGS, read_settings
from bilevo.lab.frames import pl
from bilevo.lab.plans import MAX_RUNS, Run, members
from bilevo.lab.progress import EXPECTED, expected_cost
from bilevo.lookup import named_problem, require_sizes
from bilevo.run.lock import is_held

MAX_CELLS = 100_000  # The most cells of a plan that are counted.
MAX_SIZES = 100  # The most sizes of an experiment.
MAX_ERROR = 500  # The longest message of an error.
RECENT = 50  # The number of runs over which the rate of a campaign is measured.
CURVES = ("generation", "nfev_upper", "nfev_lower", "F", "violation")  # kept of a history
UNUSED = ("x", "y", "form", "machine", "version", "kernel")  # columns that the page does not show


class Cell(NamedTuple):
    """A part of a plan: some runs of a method on a problem of one size, with one limit."""

    problem: str
    m: int  # 0 if the size is not known: a user's own problem is not imported to look
    n: int
    method: str
    budget: int
    target: bool


class _Part(NamedTuple):
    runs: pl.DataFrame
    history: pl.DataFrame


class FollowedCampaign:
    """A campaign's directory that is read again and again; `read` reads what is new.

    Nothing that a directory holds raises an exception. Instead `error` says what is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.error = ""
        self.running: bool | None = False
        self.planned: dict[Cell, int] = {}  # the number of runs of each cell
        self.unread = 0  # the number of files that are yet to be read
        self.runs = pl.DataFrame(schema=store.RUNS).drop(UNUSED)
        self.changes = 0  # how often something new was read
        self._parts: dict[tuple[str, int, int], _Part] = {}
        self._settings_seen: tuple[int, int] | None = None
        self._wrong_plan = ""

    def read(self, seconds: float = 0.1) -> bool:
        """Read what is new, for about this many seconds; return True if anything has changed."""
        before = self.error, self.running, self.changes
        try:
            self.running = _is_locked(self.folder)
            self._read_settings()
            self._read_files(perf_counter() + seconds)
            self.error = self._wrong_plan
        except FileNotFoundError:
            self.unread = 1  # files were merged meanwhile: look again
        except Exception as error:  # a foreign file can be wrong in any way
            self.error, self.unread = on_one_line(str(error))[:MAX_ERROR], 0
        return before != (self.error, self.running, self.changes)

    def copied(self) -> FollowedCampaign:
        """Return a copy that stays as it is while this object reads on."""
        other = copy(self)
        other._parts = dict(self._parts)
        return other

    def _read_settings(self) -> None:
        try:
            status = os.stat(self.folder / SETTINGS)
        except FileNotFoundError:
            return
        seen = status.st_mtime_ns, status.st_size
        if seen == self._settings_seen:
            return
        self._settings_seen, self._wrong_plan, self.planned = seen, "", {}
        self.changes += 1
        try:
            self.planned = planned_cells(read_settings(self.folder))
        except Exception as error:  # a foreign file can be wrong in any way
            self._wrong_plan = on_one_line(f"its plan is not known: {error}")[:MAX_ERROR]

    def _read_files(self, until: float) -> None:
        found = {_identity(one.path): one.path for one in store.segments(self.folder)}
        missing = [name for name in found if name not in self._parts]
        gone = [name for name in self._parts if name not in found]
        done = 0
        for name in missing:
            self._parts[name] = _read_part(found[name])
            done += 1
            if perf_counter() > until:
                break
        self.unread = len(missing) - done
        if (missing or gone) and not self.unread:
            self._parts = {name: self._parts[name] for name in found if name in self._parts}
            rows = [part.runs for part in self._parts.values()]
            self.runs = store.latest(pl.concat(rows)) if rows else self.runs.clear()
            self.changes += 1

    def history(self) -> pl.DataFrame:
        """Return the histories of the runs, with a row for each change of the best pair."""
        keys = list(store.KEY)
        columns = {name: store.RUNS[name] for name in keys}
        columns |= {name: store.HISTORY[name] for name in CURVES}
        kept = [pl.DataFrame(schema=columns)]
        later = self.runs.select(keys).clear()
        twice = sum(part.runs.height for part in self._parts.values()) > self.runs.height
        for part in reversed(self._parts.values()):
            new = part.history.join(later, on=keys, how="anti") if twice else part.history
            kept.append(new)
            later = pl.concat([later, part.runs.select(keys)]) if twice else later
        return pl.concat(kept)

    def cost_left(self) -> float:
        """Estimate the evaluations of the runs that are not made yet."""
        made = self.made()
        return sum(
            _cost(cell) * max(0, runs - made.get(cell, 0)) for cell, runs in self.planned.items()
        )

    def made(self) -> dict[Cell, int]:
        """Return the number of stored runs of each cell of the plan."""
        keys = ["problem", "m", "n", "method", "budget", "target"]
        counts: dict[Cell, int] = {}
        for *key, count in self.runs.group_by(keys).len().iter_rows():
            cell = Cell(*key)
            if cell not in self.planned:
                cell = cell._replace(m=0, n=0)
            counts[cell] = counts.get(cell, 0) + count
        return counts

    def seconds_left(self, now: float) -> float | None:
        """Estimate how long a running campaign goes on, from the rate of its last runs."""
        if not self.running or not self.planned:
            return None
        recent = self.runs.filter(pl.col("made").is_not_null()).sort("made").tail(RECENT)
        if recent.height < 2:
            return None
        began = _timestamp(recent["made"][0])
        if began is None or began >= now:
            return None
        cells = recent.select("problem", "m", "n", "method", "budget", "target")[1:].rows()
        cost = sum(_cost(Cell(*row)) for row in cells)
        return self.cost_left() * (now - began) / cost if cost else None


def _read_part(path: Path) -> _Part:
    """Read a file, and keep of it what the page shows."""
    rows = store.read_file(path, list(store.COLUMNS)).lazy()
    missing = pl.selectors.float().fill_null(float("nan"))
    runs = rows.drop("history", *UNUSED).with_columns(missing)
    keys = list(store.KEY)
    same = pl.all_horizontal(
        pl.col(name).eq_missing(pl.col(name).shift(1).over(keys)) for name in ("F", "violation")
    )
    history = (
        rows.select(*keys, *(pl.col("history").struct.field(name) for name in CURVES))
        .explode(list(CURVES))
        .filter(pl.col("generation").is_not_null())
        .filter(~same)
    )
    return _Part(*pl.collect_all([runs, history]))


def _identity(path: Path) -> tuple[str, int, int]:
    status = os.stat(path)
    return path.name, status.st_size, status.st_mtime_ns


def _is_locked(folder: Path) -> bool | None:
    """Tell whether a campaign is writing to a directory."""
    file = os.open(folder, os.O_RDONLY)
    try:
        return is_held(file)
    finally:
        os.close(file)


def _timestamp(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _cost(cell: Cell) -> float:
    if not cell.m + cell.n:
        return min(5 * EXPECTED, cell.budget or 5 * EXPECTED)
    return expected_cost(Run(cell.problem, cell.m, cell.n, cell.method, 0, cell.budget))


def planned_cells(settings: Mapping[str, Any]) -> dict[Cell, int]:
    """Return how many runs of each cell a campaign's settings ask for.

    Settings may come from anybody, so no problem of the form module:object is imported.
    """
    cells: dict[Cell, int] = {}
    for part in settings.get("experiments", []):
        runs, target = part["runs"], part["target"]
        if type(runs) is not int or not 0 < runs <= MAX_RUNS or type(target) is not bool:
            raise ValueError("an experiment has no sensible number of runs, or no target")
        limits = part.get("max_evals", part.get("budgets", [0]))  # budgets: the name until 0.1.0
        lists = (part["problems"], part["sizes"], part["methods"], limits)
        if len(cells) + _product(lists) > MAX_CELLS:
            raise ValueError(f"it has more than {MAX_CELLS:,} cells")
        for problem in members(part["problems"]):
            for m, n in _sizes(problem, part["sizes"]):
                for method in part["methods"]:
                    for limit in limits:
                        cell = Cell(str(problem), m, n, str(method), int(limit), target)
                        cells[cell] = max(runs, cells.get(cell, 0))
    return cells


def _product(lists: tuple[Any, ...]) -> int:
    count = 1
    for one in lists:
        if not isinstance(one, list):
            raise ValueError(f"an experiment has {str(one)[:100]} in place of a list")
        count *= len(one)
    return count


def _sizes(problem: str, sizes: list[list[int]]) -> list[tuple[int, int]]:
    """Return the sizes of a problem; (0, 0) for one that is not ours."""
    if len(sizes) > MAX_SIZES:
        raise ValueError(f"it has more than {MAX_SIZES} sizes")
    if problem in problems.scalable():
        for m, n in sizes:
            require_sizes(m, n)
        return list({(named_problem(problem, *size).m, int(size[1])): None for size in sizes})
    if problem in problems.names():
        own = named_problem(problem)
        return [(own.m, own.n)]
    return [(0, 0)]
