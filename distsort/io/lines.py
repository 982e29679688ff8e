"""Lines of text as GNU sort reads them under LC_ALL=C: compared byte by byte.

A line ends at a line feed. In memory it stays behind the line, so that lines are written as they were read; it is no
part of the key, nor of what is hashed. Parts are written with a line feed after each line: cat of all parts is the
sorted file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distsort import config
from distsort.io.checksum import strings_checksum
from distsort.io.raw import Bytes, Index, Raw, RawReader, Span, source_of
from distsort.io.source import Source
from distsort.io.storage import Store
from distsort.keys.text import Text

LINE = "line"
_FEED = ord("\n")
_WINDOW = 1 << 16
# Bytes looked through at a time: what is found out about each of them stays in the cache.
_SEARCHED = 1 << 18
# A line in a table has an offset beside its bytes; texts are read twice over while their line ends are taken out.
_LINE_GROWTH = 2.0


@dataclass(frozen=True)
class Lines(Raw):
    """Lines with their line feeds; see `Raw`.

    Attributes
    ----------
    data
        uint8: the bytes.
    places
        int64, shape (n + 1,): line i is ``data[places[i]:places[i + 1]]``, the last of which is its line feed.
    """

    data: Bytes
    places: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places) - 1

    def edges(self) -> Index:
        """See `Raw`."""
        return self.places

    @property
    def nbytes(self) -> int:
        """See `Raw`."""
        return int(self.data.nbytes + self.places.nbytes)

    def keys(self) -> Text:
        """See `Raw`."""
        return Text(self.data, self.places[:-1], self._lengths().astype(np.int32 if len(self.data) < 1 << 31 else None))

    def key_table(self) -> pa.Table:
        """See `Raw`; the bytes are copied."""
        edges = self.places - self.places[0] - np.arange(len(self.places))
        text = np.delete(self.data[self.places[0] : self.places[-1]], self.places[1:] - 1 - self.places[0])
        return pa.table({LINE: _binary(text, edges)})

    def checksum(self) -> int:
        """See `Raw`."""
        return strings_checksum(self.data, self.places[:-1], self._lengths())

    def take(self, index: Index) -> Lines:
        """See `Raw`."""
        taken = pc.take(_binary(self.data, self.places), pa.array(index), boundscheck=False)
        if not len(index):
            return Lines(np.empty(0, np.uint8), np.zeros(1, np.int64))
        _, edges, data = taken.buffers()
        found = np.frombuffer(edges, np.int64, len(index) + 1)
        return Lines(np.frombuffer(data, np.uint8, int(found[-1])), found)

    def join(self, other: Lines) -> Lines:
        """See `Raw`."""
        edges = np.concatenate([self.places, other.places[1:] + self.places[-1]])
        return Lines(np.concatenate([self.data, other.data]), edges)

    def steps(self, order: Index, size: int) -> list[int]:
        """See `Raw`."""
        ends = np.diff(self.places).take(order)
        np.cumsum(ends, out=ends)
        marks = np.arange(size, int(ends[-1]) if len(ends) else 0, size)
        cuts: list[int] = np.unique([0, *(np.searchsorted(ends, marks) + 1), len(order)]).tolist()
        return cuts

    def _lengths(self) -> npt.NDArray[np.int64]:
        lengths = np.diff(self.places)
        lengths -= 1
        return lengths


@dataclass(frozen=True)
class LineReader(RawReader):
    """Reads lines.

    Attributes
    ----------
    mean
        About how many bytes a line has, with its line feed.
    """

    mean: float = 16.0

    def __call__(self, span: Span) -> pa.Table:
        """Return the lines of a span, without their line feeds."""
        data = np.empty(span.stop - span.start + 1, np.uint8)
        data = data[: self.read_into(span, data)]
        return self.rows(data, np.concatenate([[0], self.ends(data)])).key_table()

    @property
    def schema(self) -> pa.Schema:
        """The line."""
        return pa.schema([(LINE, pa.large_binary())])

    @property
    def width(self) -> int:
        """See `RawReader`."""
        return 0

    def ends(self, data: Bytes) -> Index:
        """See `RawReader`."""
        found = [np.empty(0, np.int64)]
        for start in range(0, len(data), _SEARCHED):
            feeds = np.flatnonzero(data[start : start + _SEARCHED] == _FEED)
            feeds += start + 1
            found.append(feeds)
        return np.concatenate(found)

    def rows(self, data: Bytes, edges: Index) -> Lines:
        """See `RawReader`."""
        return Lines(data, edges)

    def read_into(self, span: Span, data: Bytes) -> int:
        """See `RawReader`; the last line of a file may lack its line feed, here it gets one."""
        size = super().read_into(span, data)
        if size and data[size - 1] != _FEED:
            data[size] = _FEED
            size += 1
        return size


def scan_lines(files: Sequence[tuple[Store, str, str]], *, part_size: int | None = None) -> Source:
    """Cut files of text into pieces of whole lines."""
    target = config.get_bytes("files.part-size") if part_size is None else part_size
    step = max(1, int(target / _LINE_GROWTH))
    spans, stored = [], 0
    seen = feeds = 0
    for store, path, _ in files:
        size = store.size(path)
        edges = [0]
        with store.open(path) as file:
            if not seen:
                window = file.read(_WINDOW)
                seen, feeds = len(window), window.count(b"\n")
            while edges[-1] < size:
                end, window = _line_end(file, min(edges[-1] + step, size), size)
                edges.append(end)
                seen, feeds = seen + len(window), feeds + window.count(b"\n")
        spans += [Span(store, path, a, b) for a, b in pairwise(edges)]
        stored += size
    reader = LineReader(seen / max(feeds, 1))
    sizes = tuple(int((span.stop - span.start) * _LINE_GROWTH) for span in spans)
    return source_of("text", files, spans, reader, reader.schema, sizes, stored, None, ".txt")


def _line_end(file: IO[bytes], place: int, size: int) -> tuple[int, bytes]:
    """Return where the line that holds the byte before `place` ends, and what stands around there."""
    place = max(place - 1, 0)
    window = b""
    while place < size:
        file.seek(place)
        window = file.read(_WINDOW)
        found = window.find(b"\n")
        if found >= 0:
            return place + found + 1, window
        place += len(window)
    return size, window


def _binary(data: Any, edges: Index) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(edges)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(edges) - 1, buffers)
