"""Bytes without a schema: records of a fixed width, and lines of text as GNU sort reads them.

A record is `length` bytes, its key the `key_length` bytes at `key_offset`; the sort benchmark's records have 100 bytes
and their key in the first 10. A line ends at a line feed, which is not part of it; keys and lines are compared byte by
byte (GNU sort's order under LC_ALL=C). Parts are written as they were read: cat of all parts is the sorted file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distsort import config
from distsort.errors import InputError, OptionError
from distsort.io.source import Source
from distsort.io.storage import Store
from distsort.order import Order

RecordArray = npt.NDArray[np.void]

KEY, RECORD, LINE = "key", "record", "line"
_WINDOW = 1 << 16
# A line in memory has an offset beside its bytes; texts are read twice over while their line ends are taken out.
_LINE_GROWTH = 2.0


@dataclass(frozen=True)
class Layout:
    """Where things are in a record, in bytes."""

    length: int = 100
    key_offset: int = 0
    key_length: int = 10

    def __post_init__(self) -> None:
        if self.length < 1 or self.key_length < 1 or self.key_offset < 0:
            raise OptionError(f"records of {self.length} bytes with a key of {self.key_length}: both must be positive")
        if self.key_offset + self.key_length > self.length:
            raise OptionError(
                f"a key of {self.key_length} bytes at {self.key_offset} does not lie within records of "
                f"{self.length} bytes"
            )


@dataclass(frozen=True)
class Span:
    """Some bytes of a file: whole records or lines."""

    store: Store
    path: str
    start: int
    stop: int


@dataclass(frozen=True)
class RecordReader:
    """Reads records to their keys and themselves."""

    layout: Layout

    def __call__(self, span: Span) -> pa.Table:
        """Return the records of a span, and their keys in a column of their own."""
        rows = self.empty((span.stop - span.start) // self.layout.length)
        self.read_into(span, rows)
        return pa.Table.from_arrays([*key_table(rows[KEY]).columns, *self.table(rows).columns], schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        """Key and record."""
        return pa.schema([(KEY, pa.binary(self.layout.key_length)), (RECORD, pa.binary(self.layout.length))])

    def empty(self, count: int) -> RecordArray:
        """Return an array for so many records, of any content; its one field is the key."""
        place, size = self.layout.key_offset, self.layout.key_length
        field: Any = {"names": [KEY], "formats": [f"S{size}"], "offsets": [place], "itemsize": self.layout.length}
        return np.empty(count, np.dtype(field))

    def read_into(self, span: Span, rows: RecordArray) -> None:
        """Read the records of a span into an array."""
        where = span.store.url(span.path)
        try:
            with span.store.open(span.path) as file:
                file.seek(span.start)
                self.fill(file, rows, where)
        except OSError as error:
            raise InputError(f"{where}: cannot be read ({error})") from error

    @staticmethod
    def fill(file: IO[bytes], rows: RecordArray, where: str) -> None:
        """Fill an array from where a file stands."""
        left = rows.view(np.uint8).data
        while left:
            count = file.readinto(left)  # type: ignore[attr-defined]
            if not count:
                raise InputError(f"{where}: became shorter while it was read")
            left = left[count:]

    @staticmethod
    def table(rows: RecordArray) -> pa.Table:
        """Return whole records as a table of one column, which shares their memory."""
        return pa.table({RECORD: _fixed(rows.view(np.uint8), rows.itemsize)})


def key_table(keys: npt.NDArray[np.bytes_]) -> pa.Table:
    """Return the keys of records, dtype S and shape (n,), as a table of one column; NUL bytes at the end count."""
    return pa.table({KEY: _fixed(np.ascontiguousarray(keys), keys.itemsize)})


@dataclass(frozen=True)
class LineReader:
    """Reads lines."""

    def __call__(self, span: Span) -> pa.Table:
        """Return the lines of a span, without their line feeds."""
        data = np.frombuffer(_read(span), np.uint8)
        feeds = data == ord("\n")
        ends = np.flatnonzero(feeds)
        if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
            # The last line of a file may lack its line feed.
            ends = np.append(ends, len(data))
        offsets = np.zeros(len(ends) + 1, np.int64)
        offsets[1:] = ends - np.arange(len(ends))
        text = data[~feeds]
        array = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        )
        return pa.Table.from_arrays([array], schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        """The line."""
        return pa.schema([(LINE, pa.large_binary())])


def scan_records(
    files: Sequence[tuple[Store, str, str]], layout: Layout | None = None, *, part_size: int | None = None
) -> Source:
    """Cut files of records into pieces.

    Raises
    ------
    InputError
        The length of a file is no multiple of the record's.
    """
    layout = layout or Layout()
    target = config.get_bytes("files.part-size") if part_size is None else part_size
    step = max(1, target // (layout.length + layout.key_length)) * layout.length
    spans, stored = [], 0
    for store, path, _ in files:
        size = store.size(path)
        if size % layout.length:
            raise InputError(
                f"{store.url(path)}: has {size:,} bytes, which is no multiple of the {layout.length} of a record: "
                "give --record-length, or is the file whole?"
            )
        spans += [Span(store, path, start, min(start + step, size)) for start in range(0, size, step)]
        stored += size
    reader = RecordReader(layout)
    written = pa.schema([reader.schema.field(RECORD)])
    wide = 1 + layout.key_length / layout.length
    sizes = tuple(int((span.stop - span.start) * wide) for span in spans)
    return _source("records", files, spans, reader, written, sizes, stored, stored // layout.length, RawSink(".rec"))


def scan_lines(files: Sequence[tuple[Store, str, str]], *, part_size: int | None = None) -> Source:
    """Cut files of text into pieces of whole lines."""
    target = config.get_bytes("files.part-size") if part_size is None else part_size
    step = max(1, int(target / _LINE_GROWTH))
    spans, stored = [], 0
    for store, path, _ in files:
        size = store.size(path)
        edges = [0]
        with store.open(path) as file:
            while edges[-1] < size:
                edges.append(_line_end(file, min(edges[-1] + step, size), size))
        spans += [Span(store, path, a, b) for a, b in pairwise(edges)]
        stored += size
    reader = LineReader()
    sizes = tuple(int((span.stop - span.start) * _LINE_GROWTH) for span in spans)
    return _source("text", files, spans, reader, reader.schema, sizes, stored, None, RawSink(".txt"))


@dataclass(frozen=True)
class RawSink:
    """Parts as the bytes of records, or of lines with a line feed after each."""

    suffix: str

    def open(self, file: IO[bytes], schema: pa.Schema, rows: int | None, sorted_by: Order | None) -> Any:
        """Begin a file."""
        return _Writer(file)

    def count(self, file: IO[bytes], size: int, schema: pa.Schema) -> int | None:
        """Return the number of records in `size` bytes."""
        kind = schema.field(0).type
        return size // kind.byte_width if pa.types.is_fixed_size_binary(kind) else None


@dataclass(frozen=True)
class _Writer:
    file: IO[bytes]

    def write(self, table: pa.Table) -> None:
        for chunk in table.column(0).chunks:
            if not len(chunk):
                continue
            if pa.types.is_fixed_size_binary(chunk.type):
                width = chunk.type.byte_width
                data = np.frombuffer(chunk.buffers()[1], np.uint8)
                self.file.write(data[chunk.offset * width : (chunk.offset + len(chunk)) * width].data)
            else:
                self.file.write(join_lines(chunk).data)

    def close(self) -> None:
        pass


def join_lines(lines: pa.LargeBinaryArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of lines, a line feed after each."""
    offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
    buffer = lines.buffers()[2]
    text = np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]] if buffer is not None else np.empty(0, np.uint8)
    feeds = offsets[1:] - offsets[0] + np.arange(len(lines))
    joined = np.empty(len(text) + len(lines), np.uint8)
    inside = np.ones(len(joined), np.bool_)
    inside[feeds] = False
    joined[inside] = text
    joined[feeds] = ord("\n")
    return joined


def generate(file: IO[bytes], rows: int, first: int = 0, seed: int = 0, distinct: int | None = None) -> None:
    """Write records of 100 bytes: a key of 10, the row's number in 32 hexadecimal digits, and filler.

    Parameters
    ----------
    file
        Gets the records.
    rows
        How many.
    first
        Number of the first row; files made with consecutive numbers make one data set.
    seed
        Of the keys; a row's key depends on it and on the row's number block only.
    distinct
        Draw keys from this many different ones; all ten bytes are random if None.
    """
    for start in range(0, rows, _WINDOW):
        count = min(_WINDOW, rows - start)
        rng = np.random.default_rng([seed, first + start])
        block = np.full((count, 100), ord("."), np.uint8)
        if distinct is None:
            block[:, :10] = rng.integers(0, 256, (count, 10), np.uint8)
        else:
            block[:, :10] = np.random.default_rng(seed).integers(0, 256, (distinct, 10), np.uint8)[
                rng.integers(0, distinct, count)
            ]
        numbers = np.array([f"{first + start + i:032X}" for i in range(count)], "S32")
        block[:, 12:44] = numbers.view(np.uint8).reshape(count, 32)
        block[:, 98:] = (13, 10)
        file.write(block.tobytes())


def _source(
    name: str,
    files: Sequence[tuple[Store, str, str]],
    spans: list[Span],
    reader: Any,
    written: pa.Schema,
    sizes: tuple[int, ...],
    stored: int,
    rows: int | None,
    sink: RawSink,
) -> Source:
    if not spans:
        store, path, _ = files[0]
        spans, sizes = [Span(store, path, 0, 0)], (0,)
    pieces = tuple(spans)
    nbytes = sum(sizes)
    return Source(name, pieces, reader, reader.schema, written, {}, rows, nbytes, stored, len(files), (), sizes, sink)


def _line_end(file: IO[bytes], place: int, size: int) -> int:
    """Return where the line that holds the byte before `place` ends."""
    place = max(place - 1, 0)
    while place < size:
        file.seek(place)
        window = file.read(_WINDOW)
        found = window.find(b"\n")
        if found >= 0:
            return place + found + 1
        place += len(window)
    return size


def _read(span: Span) -> bytes:
    try:
        with span.store.open(span.path) as file:
            file.seek(span.start)
            data = file.read(span.stop - span.start)
    except OSError as error:
        raise InputError(f"{span.store.url(span.path)}: cannot be read ({error})") from error
    if len(data) != span.stop - span.start:
        raise InputError(f"{span.store.url(span.path)}: became shorter while it was read")
    return data


def _fixed(data: Any, width: int) -> pa.Array:
    buffer = pa.py_buffer(data)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), buffer.size // width, [None, buffer])
