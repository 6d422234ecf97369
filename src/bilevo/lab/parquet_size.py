"""Estimate, from its headers alone, how much memory a Parquet file takes when it is read.

A few megabytes can become gigabytes: pages are compressed, and a repeated value is stored once. The
footer says how many rows there are and where the pages of each column begin. The header of a page
says how many values it has and how long it is when uncompressed. Footer and headers are in Thrift's
compact protocol. The footer's own sums are not used, since no reader checks them.

https://parquet.apache.org/docs/file-format/ and apache/thrift, thrift-compact-protocol.md
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

MAGIC = b"PAR1"
MAX_FOOTER = 2**22  # The longest footer, in bytes.
MAX_PAGE_HEADER = 2**12  # The longest header of a page, in bytes.
MAX_PAGES = 100_000  # The most pages of a file.
MAX_DEPTH = 16  # How deep structures may be nested.
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # Bytes of a value by type; others take 16.
LEVELS = 8  # Bytes that describe a value's place in nested lists.
# Kinds of values in Thrift's compact protocol. Those from 4 to 6 are whole numbers.
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12


class Size(NamedTuple):
    """The rows of a file, and about how many bytes they take in memory."""

    rows: int
    memory: int


def size_of(file: BinaryIO) -> Size:
    """Measure an open Parquet file; raise ValueError if its headers make no sense."""
    try:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _measured(data)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"its headers are damaged: {type(error).__name__}") from None


def _measured(data: mmap.mmap) -> Size:
    length = int.from_bytes(data[-8:-4], "little")
    if data[-4:] != MAGIC or data[:4] != MAGIC or not 0 < length <= min(len(data), MAX_FOOTER):
        raise ValueError("it is not in Parquet's format")
    footer = _Compact(data[-8 - length : -8]).struct()
    columns = (column[3] for group in footer.get(4, []) for column in group[1])
    memory = 0
    for number, size in enumerate(chain.from_iterable(_pages(data, one) for one in columns), 1):
        memory += size
        if number > MAX_PAGES:
            raise ValueError(f"it has more than {MAX_PAGES:,} pages")
    return Size(max(0, footer[3]), memory)


def _pages(data: mmap.mmap, about: dict[int, Any]) -> Iterator[int]:
    """Yield the size of each page of a column: the bytes of its values, and of the page itself.

    `about` is the column's part of the footer. Its keys, like those of page headers, are the field
    numbers of Parquet's format.
    """
    at, left = min(about[key] for key in (9, 11) if key in about), about[5]
    width = WIDTHS.get(about[1], 16) + LEVELS
    while left > 0:
        page = _Compact(data[at : at + MAX_PAGE_HEADER])
        header = page.struct()
        values = sum(header[key][1] for key in (5, 8) if key in header)
        words = header.get(7, {}).get(1, 0)
        if min(values, words, header[2], header[3]) < 0:
            raise ValueError("a page has a negative size")
        yield header[2] + width * (values + words)
        left -= values
        at += page.at + header[3]


class _Compact:
    """Reads structures of Thrift's compact protocol into dictionaries, keyed by field number."""

    def __init__(self, data: Any) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a structure, up to the byte that ends it."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._signed()
            fields[number] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("its headers are too deep")
        if kind in (TRUE, FALSE, BYTE):  # in a list, a truth value takes a byte
            return self._byte()
        if kind < DOUBLE:
            return self._signed()
        if kind in (DOUBLE, BINARY):
            return self._skipped(8 if kind == DOUBLE else self._unsigned())
        if kind in (LIST, SET):
            return self._items(depth)
        if kind == MAP:
            return self._pairs(depth)
        if kind == STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"its headers have a value of kind {kind}")

    def _items(self, depth: int) -> list[Any]:
        head = self._byte()
        count = self._unsigned() if head >> 4 == 15 else head >> 4
        return [self._value(head & 15, depth + 1) for _ in range(count)]

    def _pairs(self, depth: int) -> None:
        if count := self._unsigned():
            kinds = self._byte()
            for _ in range(count):
                self._value(kinds >> 4, depth + 1)
                self._value(kinds & 15, depth + 1)

    def _byte(self) -> int:
        value: int = self.data[self.at]
        self.at += 1
        return value

    def _unsigned(self) -> int:
        value = shift = 0
        while (part := self._byte()) & 128:
            value |= (part & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("its headers have a number that is too long")
        return value | part << shift

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)

    def _skipped(self, length: int) -> None:
        if self.at + length > len(self.data):
            raise IndexError(length)
        self.at += length
