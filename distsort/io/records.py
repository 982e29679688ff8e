"""Records of a fixed width.

A record is `length` bytes, its key the `key_length` bytes at `key_offset`; the sort benchmark's records have 100 bytes
and their key in the first 10. Keys are compared byte by byte. Parts are written as they were read: cat of all parts is
the sorted file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distsort import config
from distsort.errors import InputError, OptionError
from distsort.io.checksum import table_checksum
from distsort.io.raw import Bytes, Index, Raw, RawReader, Span, source_of
from distsort.io.source import Source
from distsort.io.storage import Store

KEY, RECORD = "key", "record"
_WINDOW = 1 << 16


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
class Records(Raw):
    """Records; see `Raw`."""

    data: Bytes
    layout: Layout

    def __len__(self) -> int:
        return len(self.data) // self.layout.length

    @property
    def nbytes(self) -> int:
        """See `Raw`."""
        return int(self.data.nbytes)

    def edges(self) -> Index:
        """See `Raw`."""
        return np.arange(0, len(self.data) + 1, self.layout.length)

    def keys(self) -> npt.NDArray[np.bytes_]:
        """See `Raw`."""
        place, size = self.layout.key_offset, self.layout.key_length
        field: Any = {"names": [KEY], "formats": [f"S{size}"], "offsets": [place], "itemsize": self.layout.length}
        keys: npt.NDArray[np.bytes_] = self.data.view(np.dtype(field))[KEY]
        return keys

    def key_table(self) -> pa.Table:
        """See `Raw`."""
        return key_table(self.keys())

    def table(self) -> pa.Table:
        """Return whole records as a table of one column, which shares their memory."""
        return pa.table({RECORD: _fixed(self.data, self.layout.length)})

    def checksum(self) -> int:
        """See `Raw`."""
        return table_checksum(self.table())

    def take(self, index: Index) -> Records:
        """See `Raw`."""
        return Records(self.data.view(f"V{self.layout.length}").take(index).view(np.uint8), self.layout)

    def join(self, other: Records) -> Records:
        """See `Raw`."""
        return Records(np.concatenate([self.data, other.data]), self.layout)

    def steps(self, order: Index, size: int) -> list[int]:
        """See `Raw`."""
        return [*range(0, len(order), max(1, size // self.layout.length)), len(order)]


def key_table(keys: npt.NDArray[np.bytes_]) -> pa.Table:
    """Return the keys of records, dtype S and shape (n,), as a table of one column; NUL bytes at the end count."""
    return pa.table({KEY: _fixed(np.ascontiguousarray(keys), keys.itemsize)})


@dataclass(frozen=True)
class RecordReader(RawReader):
    """Reads records to their keys and themselves."""

    layout: Layout

    def __call__(self, span: Span) -> pa.Table:
        """Return the records of a span, and their keys in a column of their own."""
        data = np.empty(span.stop - span.start, np.uint8)
        self.read_into(span, data)
        rows = Records(data, self.layout)
        return pa.Table.from_arrays([*rows.key_table().columns, *rows.table().columns], schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        """Key and record."""
        return pa.schema([(KEY, pa.binary(self.layout.key_length)), (RECORD, pa.binary(self.layout.length))])

    @property
    def width(self) -> int:
        """See `RawReader`."""
        return self.layout.length

    def ends(self, data: Bytes) -> Index:
        """See `RawReader`."""
        return np.arange(self.width, len(data) + 1, self.width)

    def rows(self, data: Bytes, edges: Index) -> Records:
        """See `RawReader`."""
        return Records(data, self.layout)


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
    return source_of("records", files, spans, reader, written, sizes, stored, stored // layout.length, ".rec")


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


def _fixed(data: Any, width: int) -> pa.Array:
    buffer = pa.py_buffer(data)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), buffer.size // width, [None, buffer])
