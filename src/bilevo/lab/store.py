"""The directory of a campaign, which keeps one row per run in Parquet files.

A row is written as soon as its run has ended, to its own file, which gets its name only when it is
complete. From time to time small files are merged. A file's name is the range of files that it
stands for: runs-000001-000256.parquet replaces runs-000007-000007.parquet. So a kill after the
large file is written and before the small ones are deleted loses nothing, and a reader sees every
run once. If a run is stored twice, the later row counts, so a run made again replaces the old one.

The history of a run is in its row, as columns of lists; `history` unfolds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bilevo.lab.frames import pl
from bilevo.lab.parquet_size import size_of
from bilevo.run.lock import take_alone
from bilevo.safe_files import opened, replacing

Row = dict[str, Any]  # some columns of RUNS, and "history"

KEY = ("problem", "m", "n", "method", "budget", "target", "number")  # The columns that name a run.
FAILED = "failed"  # The status of a run that raised, died or took too long.
IMPORTED = "imported"  # The status of a run from a file that gives no status.
MERGE_AT = 256  # Small files are merged when there are this many.
TRIES = 10  # How often to try to read a directory whose files are being merged.
MAX_FILE = 2**30  # The largest file of stored runs, in bytes.
MAX_ROWS = 1_000_000  # The most rows of a file.
MAX_MEMORY, PER_BYTE = 2**28, 200  # Reading may take MAX_MEMORY + PER_BYTE * file size, in bytes.
SEGMENT = re.compile(r"runs-(\d{6,})-(\d{6,})\.parquet")

# Columns and their types, in the order of files and tables. `runs` reads a missing float as NaN.
RUNS: dict[str, Any] = {
    **{"problem": pl.String, "m": pl.Int64, "n": pl.Int64, "method": pl.String},
    **{"budget": pl.Int64, "target": pl.Boolean, "number": pl.Int64, "seed": pl.Int64},
    **dict.fromkeys(("F", "f", "violation", "Acc_u", "Acc_l"), pl.Float64),
    **dict.fromkeys(("F_verified", "verified", "follower_gap"), pl.Float64),
    **dict.fromkeys(("violation_verified", "F_star", "f_star"), pl.Float64),
    **dict.fromkeys(("nfev_upper", "nfev_lower", "nit", "near"), pl.Int64),
    **dict.fromkeys(("time", "processor_time"), pl.Float64),
    **dict.fromkeys(("status", "error", "form"), pl.String),
    "revision": pl.Int64,
    **dict.fromkeys(("version", "kernel", "machine", "made"), pl.String),
    **dict.fromkeys(("x", "y"), pl.List(pl.Float64)),
}
HISTORY: dict[str, Any] = {  # the columns of a history, beside the run's key
    **dict.fromkeys(("generation", "nfev_upper", "nfev_lower"), pl.Int64),
    **dict.fromkeys(("F", "f", "violation"), pl.Float64),
    **{"executions": pl.List(pl.Int32), "survived": pl.List(pl.Boolean)},
}
ADDED = {"processor_time"}  # Columns that files of earlier versions lack.
COLUMNS = {**RUNS, "history": pl.Struct({name: pl.List(kind) for name, kind in HISTORY.items()})}


class Segment(NamedTuple):
    """A file, and the range of files that it stands for."""

    path: Path
    first: int
    last: int

    def covers(self, other: Segment) -> bool:
        """Tell whether this file replaces another one."""
        within = self.first <= other.first and other.last <= self.last
        return within and (self.first, self.last) != (other.first, other.last)


def segments(folder: Path) -> list[Segment]:
    """Return the files of a directory in order, without those that another file replaces."""
    widest, valid = None, []
    for one in sorted(_all_segments(folder), key=lambda segment: (segment.first, -segment.last)):
        if widest is None or not widest.covers(one):  # those before begin no later
            valid.append(one)
        if widest is None or one.last > widest.last:
            widest = one
    return valid


def _all_segments(folder: Path) -> list[Segment]:
    return [
        Segment(path, *map(int, match.groups()))
        for path in folder.glob("runs-*.parquet")
        if (match := SEGMENT.fullmatch(path.name))
    ]


class Store:
    """The only writer of a directory: `with Store(folder) as store`."""

    def __init__(self, folder: Path) -> None:
        try:
            import fcntl  # noqa: F401 (only to see whether it is there)
        except ImportError:
            raise OSError("campaigns need a POSIX system: they lock directories by fcntl") from None
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY)
        try:
            take_alone(self._lock)
            self._clear()
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise ValueError(f"another campaign is writing to {folder}") from None
            raise
        found = segments(folder)
        self._next = found[-1].last + 1 if found else 1
        self._small = [segment for segment in found if segment.first == segment.last]

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def add(self, rows: pl.DataFrame) -> None:
        """Store all of these runs or none; they replace runs of the same names."""
        self._small.append(self._write(rows, self._next, self._next))
        self._next += 1
        if len(self._small) >= MERGE_AT:
            self._merge(self._small)

    def merge(self) -> None:
        """Merge all files into one."""
        self._merge(segments(self.folder))

    def _merge(self, found: list[Segment]) -> None:
        if len(found) > 1:
            rows = pl.concat([read_file(segment.path, list(COLUMNS)) for segment in found])
            self._write(latest(rows), found[0].first, found[-1].last)
            for segment in found:
                segment.path.unlink()
        self._small = []

    def _write(self, rows: pl.DataFrame, first: int, last: int) -> Segment:
        path = self.folder / f"runs-{first:06d}-{last:06d}.parquet"
        with replacing(path) as file:
            rows.write_parquet(file, compression="zstd")
        return Segment(path, first, last)

    def _clear(self) -> None:
        """Delete files that a kill has left behind."""
        valid = {segment.path for segment in segments(self.folder)}
        left = {segment.path for segment in _all_segments(self.folder)} - valid
        for path in [*left, *self.folder.glob("runs-*.new")]:
            path.unlink()


def frame(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Make a frame of all columns from rows; a value that a row lacks is null."""
    return pl.DataFrame(list(rows), schema=COLUMNS)


def runs(path: Path) -> pl.DataFrame:
    """Read the runs of a campaign's directory, a Parquet file or a CSV file, in order."""
    if path.suffix == ".csv":
        from bilevo.lab.exchange import import_csv

        found = import_csv(path)
    else:
        found = _read(path, list(RUNS))
    return in_order(found).with_columns(pl.selectors.float().fill_null(float("nan")))


def whole_rows(folder: Path) -> pl.DataFrame:
    """Read the runs of a campaign's directory as they are stored, with their histories."""
    return _read(folder, list(COLUMNS)) if segments(folder) else frame([])


def history(path: Path) -> pl.DataFrame:
    """Read the histories, with a row for each stored generation; CSV files have none."""
    keys = [*KEY, "seed"]
    if path.suffix == ".csv":
        return pl.DataFrame(schema={**{name: RUNS[name] for name in keys}, **HISTORY})
    rows = in_order(_read(path, [*keys, "history"])).unnest("history").explode(list(HISTORY))
    return rows.filter(pl.col("generation").is_not_null())


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort runs by method, size, problem (smd2 before smd10) and number."""
    stem = pl.col("problem").str.replace("[0-9]+$", "")
    digits = pl.col("problem").str.extract("([0-9]{1,9})$").cast(pl.Int64).fill_null(0)
    order = ["method", "budget", "target", "m", "n", stem, digits, "number"]
    return rows.sort(order, maintain_order=True)


def latest(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep the last row of each run."""
    return rows.unique(KEY, keep="last", maintain_order=True)


def _read(path: Path, columns: list[str]) -> pl.DataFrame:
    """Read columns of a directory or file; try again if files were merged meanwhile."""
    if not path.exists():
        raise ValueError(f"{path} does not exist; give a campaign's directory or a CSV file")
    tries = TRIES
    while True:
        found = segments(path) if path.is_dir() else [Segment(path, 1, 1)]
        if not found:
            raise ValueError(f"{path} has no stored runs (files runs-*.parquet)")
        try:
            _refuse_gap(path, found)
            return latest(pl.concat([read_file(segment.path, columns) for segment in found]))
        except FileNotFoundError as error:
            tries -= 1
            if not tries:
                raise ValueError(f"{path} cannot be read: {error}") from None


def _refuse_gap(path: Path, found: list[Segment]) -> None:
    """Raise FileNotFoundError if the list has a gap.

    There may be a gap if files were merged while the list was made.
    """
    expected = 1
    for segment in found:
        if segment.first != expected:
            raise FileNotFoundError(f"{path} lacks runs-{expected:06d} to {segment.first - 1:06d}")
        expected = segment.last + 1


def read_file(path: Path, columns: list[str]) -> pl.DataFrame:
    """Read columns of one file of stored runs; raise ValueError if it is none."""
    try:
        with opened(path, MAX_FILE) as file:
            _require_moderate(file)
            there = pl.read_parquet_schema(file)
            file.seek(0)
            wanted = [name for name in columns if name in there or name not in ADDED]
            found = pl.read_parquet(file, columns=wanted)
    except FileNotFoundError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} is no file of stored runs: {reason}") from None
    for name, kind in found.schema.items():
        if kind != COLUMNS[name]:
            raise ValueError(f"{path} is no file of stored runs: {name} is {kind}")
        if name in KEY and found[name].has_nulls():
            raise ValueError(f"{path} is no file of stored runs: {name} is not always there")
    none = [pl.lit(None, COLUMNS[name]).alias(name) for name in columns if name not in wanted]
    return found.with_columns(none).select(columns)


def _require_moderate(file: BinaryIO) -> None:
    """Refuse a file that would take far more memory than disk; only its headers are read."""
    rows, memory = size_of(file)
    if rows > MAX_ROWS:
        raise ValueError(f"it has {rows:,} rows; at most {MAX_ROWS:,} are read")
    most = MAX_MEMORY + PER_BYTE * os.fstat(file.fileno()).st_size
    if memory > most:
        raise ValueError(f"it would take some {memory:,} bytes; at most {most:,} are read")
