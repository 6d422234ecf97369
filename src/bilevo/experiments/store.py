"""The folder of a campaign: one row per run, with the run's compact history, in Parquet.

A row is written as soon as its run has ended, as a file of its own, under its name only when it is
whole; now and then small files are merged. A file is called after the range of files it stands for,
so runs-000001-000256.parquet makes runs-000007-000007.parquet void: a kill between writing the one
and deleting the other costs nothing, and whoever reads meanwhile sees every run once.

The history of a run is in its row, as columns of lists; `history` unfolds them.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevo.core.extras import need

if TYPE_CHECKING:
    import polars as pl
else:
    pl = need("stored runs", "polars", "bench")

KEY = ("problem", "m", "n", "method", "budget", "target", "number")  # of a run
FAILED = "failed"  # the status of a run that raised, died or took too long
MERGE_AT = 256  # small files
TRIES = 10  # to read a folder whose files are being merged
SEGMENT = re.compile(r"runs-(\d{6,})-(\d{6,})\.parquet")

# Columns and their types, in the order of files and tables. Numbers are NaN, not null, where there
# is none.
RUNS: dict[str, Any] = {
    **{"problem": pl.String, "m": pl.Int64, "n": pl.Int64, "method": pl.String},
    **{"budget": pl.Int64, "target": pl.Boolean, "number": pl.Int64, "seed": pl.Int64},
    **dict.fromkeys(("F", "f", "violation", "Acc_u", "Acc_l"), pl.Float64),
    **dict.fromkeys(("F_verified", "verified", "follower_gap"), pl.Float64),
    **dict.fromkeys(("violation_verified", "F_star", "f_star"), pl.Float64),
    **dict.fromkeys(("nfev_upper", "nfev_lower", "nit", "near"), pl.Int64),
    "time": pl.Float64,
    **dict.fromkeys(("status", "error", "form"), pl.String),
    "revision": pl.Int64,
    **dict.fromkeys(("version", "kernel", "machine"), pl.String),
    **dict.fromkeys(("x", "y"), pl.List(pl.Float64)),
}
HISTORY: dict[str, Any] = {  # beside the run's key
    **dict.fromkeys(("generation", "nfev_upper", "nfev_lower"), pl.Int64),
    **dict.fromkeys(("F", "f", "violation"), pl.Float64),
    **{"executions": pl.List(pl.Int32), "survived": pl.List(pl.Boolean)},
}
COLUMNS = {**RUNS, "history": pl.Struct({name: pl.List(kind) for name, kind in HISTORY.items()})}


@dataclass(frozen=True, slots=True)
class Segment:
    """A file, and the range of files it stands for."""

    path: Path
    first: int
    last: int

    def covers(self, other: Segment) -> bool:
        within = self.first <= other.first and other.last <= self.last
        return within and (self.first, self.last) != (other.first, other.last)


def segments(folder: Path) -> list[Segment]:
    """The files of a folder that count, in order."""
    found = [
        Segment(path, *map(int, match.groups()))
        for path in folder.glob("runs-*.parquet")
        if (match := SEGMENT.fullmatch(path.name))
    ]
    valid = [one for one in found if not any(other.covers(one) for other in found)]
    return sorted(valid, key=lambda segment: segment.first)


class Store:
    """The one writer of a folder: `with Store(folder) as store`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ValueError(f"another campaign is writing to {folder}") from None
        self._next = max((segment.last for segment in segments(folder)), default=0) + 1
        self._small = 0

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def add(self, rows: pl.DataFrame) -> None:
        """Store runs that are not there yet, whole or not at all."""
        self._write(rows, self._next, self._next)
        self._next += 1
        self._small += 1
        if self._small >= MERGE_AT:
            self.merge(segments(self.folder)[-self._small :])

    def merge(self, chosen: list[Segment] | None = None) -> None:
        """One file for many; by default for all."""
        found = segments(self.folder) if chosen is None else chosen
        if len(found) > 1:
            self._replace(found, _joined(found))
        self._small = 0

    def forget(self, keys: pl.DataFrame) -> None:
        """Drop runs by their keys, so that they can be made or imported again."""
        found = segments(self.folder)
        if found and len(keys):
            kept = _joined(found).join(keys, on=list(KEY), how="anti", maintain_order="left")
            self._next += 1  # a range of its own, also when there is one file only
            self._replace(found, kept)

    def _replace(self, old: list[Segment], rows: pl.DataFrame) -> None:
        self._write(rows, old[0].first, max(old[-1].last, self._next - 1))
        for segment in old:
            segment.path.unlink()

    def _write(self, rows: pl.DataFrame, first: int, last: int) -> None:
        path = self.folder / f"runs-{first:06d}-{last:06d}.parquet"
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            rows.write_parquet(file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)


def frame(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame of all columns; what a row lacks is null, or its history is empty."""
    return pl.DataFrame(list(rows), schema=COLUMNS)


def runs(path: Path) -> pl.DataFrame:
    """The runs of a campaign folder, of a Parquet file or of a CSV file, one row each, in order."""
    if path.suffix == ".csv":
        from bilevo.experiments.exchange import import_csv

        found = import_csv(path)
    else:
        found = _read(path, list(RUNS))
    return in_order(found).with_columns(pl.selectors.float().fill_null(float("nan")))


def history(path: Path) -> pl.DataFrame:
    """The compact histories, one row per kept generation; none for CSV files."""
    keys = [*KEY, "seed"]
    if path.suffix == ".csv":
        return pl.DataFrame(schema={**{name: RUNS[name] for name in keys}, **HISTORY})
    rows = in_order(_read(path, [*keys, "history"])).unnest("history")
    unfolded = rows.explode(list(HISTORY))
    return unfolded.filter(pl.col("generation").is_not_null())


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """By method, size and problem, with smd2 before smd10, then by number."""
    stem = pl.col("problem").str.replace("[0-9]+$", "")
    digits = pl.col("problem").str.extract("([0-9]{1,9})$").cast(pl.Int64).fill_null(0)
    order = ["method", "budget", "target", "m", "n", stem, digits, "number"]
    return rows.sort(order, maintain_order=True)


def _read(path: Path, columns: list[str]) -> pl.DataFrame:
    """Some columns of a folder or file; once more when files were merged while it read."""
    if not path.exists():
        raise ValueError(f"{path} does not exist; it should be a campaign's folder or a CSV file")
    tries = TRIES
    while True:
        found = segments(path) if path.is_dir() else [Segment(path, 1, 1)]
        if not found:
            raise ValueError(f"{path} has no stored runs (files runs-*.parquet)")
        try:
            return pl.concat([_one(segment.path, columns) for segment in found])
        except FileNotFoundError:
            tries -= 1
            if not tries:
                raise


def _one(path: Path, columns: list[str]) -> pl.DataFrame:
    try:
        found = pl.read_parquet(path, columns=columns)
    except FileNotFoundError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} is no file of stored runs: {reason}") from None
    for name, kind in found.schema.items():
        if kind != COLUMNS[name]:
            raise ValueError(f"{path} is no file of stored runs: {name} is {kind}")
    return found


def _joined(found: list[Segment]) -> pl.DataFrame:
    return pl.concat([_one(segment.path, list(COLUMNS)) for segment in found])
