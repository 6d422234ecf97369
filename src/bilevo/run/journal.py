"""The journal: an ordered, append-only log of what evaluations returned.

Rules:
- It is a log, not a cache. A run is resumed by running it again and taking the values of its
  requests from the log, in order, instead of from the functions.
- A file is one header line, `bilevo-journal-1 <crc> <json>`, and binary records. Each record ends
  with a chained crc, which covers the record and the crc before it. So a record is accepted
  only if the record, and all that is before it, is as it was written.
- A record is written by one call to the system, before its values are used. Records are forced to
  the disk at most once a second: when the next record is written or, if none follows, by a thread.
- A torn tail (the last records, cut or garbled by a crash) is cut off, and its points are evaluated
  again. Damage in front of an intact record is refused with `JournalCorrupt`.
- Within one request, records are in the order in which evaluations ended.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from time import perf_counter
from typing import IO, Any, NamedTuple
from zlib import crc32

from bilevo import safe_files
from bilevo.core.terminal import printable
from bilevo.run.errors import JournalCorrupt, RunMismatch
from bilevo.safe_files import explained

JOURNAL_FORMAT = "bilevo-journal-1"
SYNC_EVERY = 1.0  # Records are forced to the disk at most once in this many seconds.
MAX_HEADER = 2**20  # The longest header that is read, in bytes.
MAX_PAYLOAD = 2**28  # The longest payload of a record together with its crc, in bytes.
MAX_TAIL = 2**28  # The longest torn tail that a crash can leave, in bytes.
MAX_CHECKED = 16  # A search for records checks at most this many times the file's bytes.

_MARK = b"\xb1\x1e"
_HEAD = struct.Struct("<2sIBBHQId")  # mark, length, kind, level, points, number, digest, elapsed
_CRC = struct.Struct("<I")
_EVER = float("inf")


class RecordKind(IntEnum):
    VALUES = 0  # float64: objective (k,), then constraints (k, c)
    FAILURE = 1  # JSON: the error's text
    BEST = 2  # JSON: the best pair so far
    GENERATION = 3  # JSON: a row of the history
    STEP = 5  # JSON: the outcome of a step of the problem's own solver
    SLOPES = 6  # float64: objective (k, m), (k, n), then constraints (k, c, m), (k, c, n)
    SLOPES_FAILURE = 7  # JSON: the text of an error in a gradient
    JOINT = 8  # float64: c, then objective (k,), constraints (k, c), and both for the other level
    RECALLED = 9  # nothing: points of a level that were simulated before for the other one
    END = 4  # JSON: the result of a run that ended; a continued run adds more records


KINDS = tuple(sorted(RecordKind))  # by number; much faster than RecordKind(number)


class Record(NamedTuple):
    """One record: the answer to a piece of a batch, or an event.

    `number` is the number of the piece (see `answers.Journalled`), `points` how many points it has,
    `digest` a checksum of its request. `elapsed` is the seconds since the beginning of the run.
    """

    kind: RecordKind
    level: int
    points: int
    number: int
    digest: int
    elapsed: float
    payload: bytes


class Position(NamedTuple):
    """A place between two records: its offset in bytes, and the crc of all that is before it."""

    offset: int
    crc: int


def header_line(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, sort_keys=True)
    return f"{JOURNAL_FORMAT} {crc32(text.encode()):08x} {text}\n".encode()


class JournalFile:
    """A journal to read: its header, and its records up to a torn tail, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with safe_files.reading(path) as file:
            self.header, self.start = self._read_header(file.read(MAX_HEADER + 1))

    def _read_header(self, content: bytes) -> tuple[dict[str, Any], Position]:
        line, ended, _ = content.partition(b"\n")
        name, _, rest = line.partition(b" ")
        if name != JOURNAL_FORMAT.encode():
            if name.startswith(b"bilevo-journal-"):
                written = printable(name.decode(errors="replace")[:40])
                raise RunMismatch(
                    f"{self.path} has the format {written}, this version of bilevo has "
                    f"{JOURNAL_FORMAT}: continue it with the version that wrote it"
                )
            raise self.corrupt("it does not begin like a journal")
        crc, _, text = rest.partition(b" ")
        try:
            intact = ended and len(crc) == 8 and int(crc, 16) == crc32(text)
            header = json.loads(text) if intact else None
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise self.corrupt("its header is damaged")
        return header, Position(len(line) + 1, crc32(line + b"\n"))

    def corrupt(self, why: str) -> JournalCorrupt:
        return JournalCorrupt(
            f"{self.path} cannot be read: {printable(why)}. Nothing was changed; restore the file "
            "from a copy, or use another run_dir"
        )

    def records(
        self, start: Position | None = None, until: Position | None = None
    ) -> Iterator[tuple[Record, Position]]:
        """Yield the records from `start` on, each with the position after it.

        The records end at `until`, at the end of the file or at a torn tail. Damage before an
        intact record is an error.
        """
        position = start or self.start
        with safe_files.reading(self.path) as file:
            size = os.fstat(file.fileno()).st_size if until is None else until.offset
            file.seek(position.offset)
            while position.offset < size:
                found = _read_next(file, position, size)
                if found is None:
                    if self._intact_after(file, position.offset, size):
                        raise self.corrupt(
                            f"it is damaged at byte {position.offset}, and what follows is not; "
                            f"`truncate -s {position.offset}` would give that up"
                        )
                    return
                position = found[1]
                yield found

    def _intact_after(self, file: IO[bytes], offset: int, size: int) -> bool:
        """Tell whether an intact record follows somewhere after the offset.

        Each place that looks like the beginning of a record is checked by its crc. Return True also
        if there are too many bytes to check, or if the tail is longer than a crash can leave: the
        file then counts as damaged.
        """
        if size - offset > MAX_TAIL:
            return True
        file.seek(offset)
        tail = file.read(size - offset)
        at, patience = tail.find(_MARK, 1), MAX_CHECKED * size
        while at >= 0:
            if at >= _CRC.size and at + _HEAD.size < len(tail):
                (before,) = _CRC.unpack_from(tail, at - _CRC.size)
                if read_record(tail, at, Position(offset + at, before)) is not None:
                    return True
                length = _HEAD.unpack_from(tail, at)[1]
                patience -= length if at + length < len(tail) else 0
                if patience < 0:
                    return True
            at = tail.find(_MARK, at + 1)
        return False


def _read_next(file: IO[bytes], position: Position, size: int) -> tuple[Record, Position] | None:
    """Read the record at the file's present position; return None if it is not whole."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    rest = _HEAD.unpack(head)[1] + _CRC.size
    if rest > MAX_PAYLOAD or position.offset + _HEAD.size + rest > size:
        return None
    return read_record(head + file.read(rest), 0, position)


def read_record(content: bytes, at: int, position: Position) -> tuple[Record, Position] | None:
    """Return the record at `content[at]` and the position after it, or None if it is not whole."""
    if at + _HEAD.size + _CRC.size > len(content):
        return None
    mark, length, kind, level, points, number, digest, elapsed = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + length
    if mark != _MARK or end + _CRC.size > len(content) or kind >= len(KINDS):
        return None
    (stored,) = _CRC.unpack_from(content, end)
    if crc32(content[at:end], position.crc) != stored:
        return None
    payload = content[at + _HEAD.size : end]
    record = Record(KINDS[kind], level, points, number, digest, elapsed, payload)
    return record, Position(position.offset + end - at + _CRC.size, stored)


class Skimmed(NamedTuple):
    """Several records of values that follow each other, of which only the sums are kept."""

    end: int  # the place in the content after them
    position: Position
    records: int
    points: tuple[int, int]  # by level
    elapsed: float  # of the last record


def skim_values(content: bytes, at: int, position: Position, widths: dict[int, int]) -> Skimmed:
    """Check and count the records of values from `content[at]` on, up to one of another kind.

    `widths` has the number of values per point by level, as far as it is known, and is completed.
    A record that is not whole, or whose numbers make no sense, also ends them; `read_record` reads
    it then. This takes a quarter of the time that reading the records one by one takes.
    """
    unpack, unpack_crc, head, size = _HEAD.unpack_from, _CRC.unpack_from, _HEAD.size, len(content)
    records, counts, (offset, crc), last, start = 0, [0, 0], position, 0.0, at
    view = memoryview(content)
    while at + head <= size:
        mark, length, kind, level, points, _, _, elapsed = unpack(content, at)
        end = at + head + length
        if kind or mark != _MARK or level > 1 or not points or end + _CRC.size > size:
            break
        (stored,) = unpack_crc(content, end)
        if crc32(view[at:end], crc) != stored:
            break
        width = widths.get(level) or length // (8 * points)
        if not width or width * 8 * points != length or not 0 <= elapsed < _EVER:
            break
        widths[level] = width
        at, crc, last = end + _CRC.size, stored, elapsed
        counts[level] += points
        records += 1
    after = Position(offset + at - start, crc)
    return Skimmed(at, after, records, (counts[0], counts[1]), last)


def announced(content: bytes, at: int) -> int:
    """Return how many bytes the record at `content[at]` says it has; 0 if there is no record."""
    if at + _HEAD.size > len(content):
        return 0
    mark, length, *_ = _HEAD.unpack_from(content, at)
    return _HEAD.size + int(length) + _CRC.size if mark == _MARK else 0


class JournalWriter:
    """Appends records at a position; anything after that position is cut off."""

    def __init__(self, path: Path, position: Position) -> None:
        self._path = path
        self._offset, self._crc = position
        self._file = safe_files.open_plain(path, os.O_WRONLY | os.O_APPEND)
        if os.fstat(self._file).st_size != position.offset:
            os.ftruncate(self._file, position.offset)
        self._error: OSError | None = None  # an error in the thread; the next `append` raises it
        self._synced, self._waiting = 0.0, False  # the time of the last sync; whether records wait
        self._unsynced, self._closing = threading.Event(), threading.Event()
        self._syncing = threading.Thread(target=self._sync_when_idle, daemon=True)
        self._syncing.start()

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> JournalWriter:
        """Make a new journal; its header is on the disk before the file gets its name."""
        line = header_line(header)
        safe_files.write_whole(path, line)
        return cls(path, Position(len(line), crc32(line)))

    @property
    def position(self) -> Position:
        return Position(self._offset, self._crc)

    def append(self, record: Record) -> None:
        if self._error is not None:
            raise self._error
        kind, level, points, number, digest, elapsed, payload = record
        if len(payload) > MAX_PAYLOAD - _CRC.size:
            raise ValueError(f"a record of {len(payload)} bytes is too long for {self._path}")
        head = _HEAD.pack(_MARK, len(payload), kind, level, points, number, digest, elapsed)
        crc = crc32(payload, crc32(head, self._crc))
        content = head + payload + _CRC.pack(crc)
        try:
            written = os.write(self._file, content)
            while written < len(content):
                written += os.write(self._file, content[written:])
        except OSError as error:
            self._undo()
            raise explained(error, self._path) from error
        self._crc = crc
        self._offset += written
        if perf_counter() - self._synced >= SYNC_EVERY:
            self.sync()
        elif not self._waiting:
            self._waiting = True
            self._unsynced.set()

    def _undo(self) -> None:
        """Remove a half-written record if the disk allows it; if not, a torn tail does no harm."""
        try:
            os.ftruncate(self._file, self._offset)
        except OSError:
            return

    def sync(self) -> None:
        """Make sure that all written records are on the disk."""
        self._unsynced.clear()
        self._waiting = False
        self._synced = perf_counter()
        try:
            os.fsync(self._file)
        except OSError as error:
            raise explained(error, self._path) from error

    def _sync_when_idle(self) -> None:
        """Force the last records to the disk if no record follows within a second.

        A thread runs this function until the journal is closed.
        """
        while True:
            self._unsynced.wait()
            if self._closing.wait(max(0.0, self._synced + SYNC_EVERY - perf_counter())):
                return
            if self._waiting:
                try:
                    self.sync()
                except OSError as error:  # the system reports the error only once
                    self._error = error

    def close(self) -> None:
        """Make sure that all records are on the disk, and close the file."""
        self._closing.set()
        self._unsynced.set()
        self._syncing.join()
        try:
            self.sync()
        finally:
            os.close(self._file)
