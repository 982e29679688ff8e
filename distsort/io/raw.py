"""Bytes without a schema, as rows: what records of a fixed width and lines of text have in common.

    data    |row 0 ......|row 1 .....|row 2 ........|       one buffer, as it stands in files
    edges   0            13          25             40      where rows begin and end

Such rows need no columns. They are read into the place where they are sorted, move as whole rows, and are written as
they were read. What tells the two kinds apart, where rows begin and which of their bytes are the key, is all that
`records` and `lines` add.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distsort.errors import InputError
from distsort.io.source import Source
from distsort.io.storage import Store
from distsort.order import Order

Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Span:
    """Some bytes of a file: whole records or lines."""

    store: Store
    path: str
    start: int
    stop: int


class Raw(abc.ABC):
    """Rows in one buffer.

    Attributes
    ----------
    data
        uint8: the rows, one after the other, as they stand in files.
    """

    data: Bytes

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return how many rows there are."""

    @property
    def num_rows(self) -> int:
        """The same, as Arrow's tables say it."""
        return len(self)

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """Bytes in memory."""

    @abc.abstractmethod
    def edges(self) -> Index:
        """Return where rows begin, and where the last of them ends."""

    @abc.abstractmethod
    def keys(self) -> Any:
        """Return the keys as a column that `distsort.keys.encode` takes, without a copy."""

    @abc.abstractmethod
    def key_table(self) -> pa.Table:
        """Return the keys as a table of one column."""

    @abc.abstractmethod
    def checksum(self) -> int:
        """Return `distsort.io.checksum.table_checksum` of the rows."""

    @abc.abstractmethod
    def take(self, index: Index) -> Self:
        """Gather rows by position."""

    @abc.abstractmethod
    def join(self, other: Self) -> Self:
        """Put the rows of another below these."""

    @abc.abstractmethod
    def steps(self, order: Index, size: int) -> list[int]:
        """Return where to cut an order of these rows, so that about `size` bytes at once are gathered."""

    def filter(self, mask: Any) -> Self:
        """Return the rows for which a mask holds."""
        return self.take(np.flatnonzero(np.asarray(mask)))


class RawReader(abc.ABC):
    """Reads rows as they stand in files."""

    @property
    @abc.abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of a table of rows."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Bytes of every row, or 0 where they differ."""

    @abc.abstractmethod
    def __call__(self, span: Span) -> pa.Table:
        """Return the rows of a span as a table."""

    @abc.abstractmethod
    def ends(self, data: Bytes) -> Index:
        """Return where each of the rows in a buffer ends, int64."""

    @abc.abstractmethod
    def rows(self, data: Bytes, edges: Index) -> Raw:
        """Return rows that lie in a buffer; `edges` are 0 and their ends."""

    def read_into(self, span: Span, data: Bytes) -> int:
        """Read a span to the begin of a buffer, which may have one byte more, and return the bytes that are used."""
        where = span.store.url(span.path)
        size = span.stop - span.start
        try:
            with span.store.open(span.path) as file:
                file.seek(span.start)
                fill(file, data[:size], where)
        except OSError as error:
            raise InputError(f"{where}: cannot be read ({error})") from error
        return size


def fill(file: IO[bytes], data: Bytes, where: str) -> None:
    """Fill an array from where a file stands."""
    left = data.data
    while left:
        count = file.readinto(left)  # type: ignore[attr-defined]
        if not count:
            raise InputError(f"{where}: became shorter while it was read")
        left = left[count:]


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

    def write(self, rows: pa.Table | Raw) -> None:
        if isinstance(rows, Raw):
            self.file.write(rows.data.data)
            return
        for chunk in rows.column(0).chunks:
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


def join_lines(lines: pa.LargeBinaryArray) -> Bytes:
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


def source_of(
    name: str,
    files: Sequence[tuple[Store, str, str]],
    spans: list[Span],
    reader: RawReader,
    written: pa.Schema,
    sizes: tuple[int, ...],
    stored: int,
    rows: int | None,
    suffix: str,
) -> Source:
    """Return what was found in files as a source."""
    if not spans:
        store, path, _ = files[0]
        spans, sizes = [Span(store, path, 0, 0)], (0,)
    pieces, nbytes = tuple(spans), sum(sizes)
    sink = RawSink(suffix)
    return Source(name, pieces, reader, reader.schema, written, {}, rows, nbytes, stored, len(files), (), sizes, sink)
