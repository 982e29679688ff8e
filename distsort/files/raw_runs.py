"""Records and lines in a sort in one process: rows that move as whole bytes, and their run files.

    pieces  -- read -->  one buffer  -- order of keys -->  blocks, gathered in order  -->  run file or part

Nothing but the buffer and the order is as large as a unit of work: sorted rows are gathered a block at a time, which is
checked, hashed and written while it is in the cache. Each thread keeps its buffer: memory that is new has to be cleared
by the system first, which takes longer than the copy.

A run file holds the rows one after the other. Where rows begin is a multiplication for records; for lines it stands in
a second file beside the first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from distsort.backends import get_backend
from distsort.cuts import IntArray, regular_positions
from distsort.files.runs import SAMPLES, Slice
from distsort.files.seen import Tally
from distsort.io.raw import Bytes, Index, Raw, RawReader, fill
from distsort.io.source import to_frame
from distsort.local import Sample, Spec, refuse_unsorted

# Bytes of rows that are gathered at a time.
GATHERED = 1 << 21


class RawForm:
    """Rows as bytes; see `distsort.files.runs.Form`.

    Parameters
    ----------
    reader
        Of the source.
    rows
        As many rows as one unit is expected to have.
    """

    def __init__(self, reader: RawReader, rows: float) -> None:
        self.reader = reader
        self.most = 1.2 * rows
        self._buffers = threading.local()

    def read(self, pieces: Sequence[Any], unit: int, go_on: Callable[[], None]) -> Iterator[tuple[Raw, Tally]]:
        """See `Form`; fewer pieces at once where lines turn out to be shorter than was thought."""
        buffer = self._room(sum(piece.stop - piece.start + 1 for piece in pieces))
        found: list[Index] = []
        rows = done = 0
        for piece in pieces:
            go_on()
            size = self.reader.read_into(piece, buffer[done:])
            ends = self.reader.ends(buffer[done : done + size])
            if rows and rows + len(ends) > self.most:
                yield self._seen(buffer[:done], found)
                # What was read last is the first of the next run.
                buffer[:size] = buffer[done : done + size]
                found, rows, done = [], 0, 0
            ends += done
            found.append(ends)
            rows += len(ends)
            done += size
        yield self._seen(buffer[:done], found)

    def _seen(self, data: Bytes, ends: list[Index]) -> tuple[Raw, Tally]:
        rows = self.reader.rows(data, np.concatenate([np.zeros(1, np.int64), *ends]))
        ends.clear()
        return rows, Tally.of(rows)

    def make_run(self, path: Path, rows: Raw, spec: Spec) -> RawRun:
        """See `Form`."""
        columns = (rows.keys(),)
        if spec.presorted:
            refuse_unsorted(columns, spec, rows)
            order: Index = np.arange(len(rows))
        else:
            order = get_backend(spec.backend, rows).argsort(columns, spec.order)
        positions = regular_positions(len(rows), SAMPLES)
        sample = Sample(len(rows), positions, _keys(rows.take(order[positions])), len(rows.data))
        run = RawRun(path, self.reader, sample)
        done = 0
        with path.open("wb", buffering=0) as file, ExitStack() as stack:
            edges = None if self.reader.width else stack.enter_context(run.edges.open("wb"))
            for block in gathered(rows, order):
                left = block.data.data
                while left:
                    left = left[file.write(left) :]
                if edges is not None:
                    edges.write((block.edges()[:-1] + done).data)
                done += len(block.data)
            if edges is not None:
                edges.write(np.array([done]).data)
        return run

    def merge(self, slices: Sequence[Slice], spec: Spec) -> Iterator[Raw]:
        """See `Form`; all slices are read into one buffer."""
        edges = [run.edges_of(start, stop) for run, start, stop in slices]
        ends = np.cumsum([0, *(each[-1] - each[0] for each in edges)])
        buffer = self._room(int(ends[-1]))
        for (run, _, _), each, first, last in zip(slices, edges, ends, ends[1:], strict=False):
            run.read_into(int(each[0]), buffer[first:last])
            each += first - each[0]
        rows = self.reader.rows(buffer, np.concatenate([np.zeros(1, np.int64), *(each[1:] for each in edges)]))
        edges.clear()
        bounds = np.cumsum([0, *(stop - start for _, start, stop in slices)])
        yield from gathered(rows, get_backend(spec.backend, rows).merge_order((rows.keys(),), bounds, spec.order))

    def _room(self, size: int) -> Bytes:
        """Return this thread's buffer, whose content ends where the next use begins."""
        held: Bytes | None = getattr(self._buffers, "held", None)
        if held is None or len(held) < size:
            self._buffers.held = None
            self._buffers.held = held = np.empty(size, np.uint8)
        return held[:size]


@dataclass(frozen=True)
class RawRun:
    """A run as rows, one after the other; see `DiskRun`."""

    path: Path
    reader: RawReader
    sample: Sample
    nan: frozenset[str] = frozenset()

    @property
    def length(self) -> int:
        """See `DiskRun`."""
        return self.sample.length

    @property
    def edges(self) -> Path:
        """The file that says where rows begin, unless all have one width: int64, one more than there are rows."""
        return self.path.with_name(f"{self.path.name}.edges")

    def edges_of(self, start: int, stop: int) -> IntArray:
        """Return where rows ``[start, stop)`` begin, and where the last of them ends."""
        if self.reader.width:
            return np.arange(start, stop + 1) * self.reader.width
        return np.fromfile(self.edges, np.int64, stop - start + 1, offset=8 * start)

    def read_into(self, place: int, data: Bytes) -> None:
        """Read bytes from `place` on into an array."""
        with self.path.open("rb", buffering=0) as file:
            file.seek(place)
            fill(file, data, str(self.path))

    def forget(self, start: int) -> None:
        """See `DiskRun`."""
        os.truncate(self.path, int(self.edges_of(start, start)[0]))

    def keys_at(self, positions: IntArray, spec: Spec) -> tuple[Any, ...]:
        """See `DiskRun`."""
        with ExitStack() as stack:
            file = stack.enter_context(self.path.open("rb", buffering=0)).fileno()
            if self.reader.width:
                first = positions * self.reader.width
                last = first + self.reader.width
            else:
                edges = stack.enter_context(self.edges.open("rb", buffering=0)).fileno()
                pairs = b"".join([os.pread(edges, 16, 8 * place) for place in positions.tolist()])
                first, last = np.frombuffer(pairs, np.int64).reshape(-1, 2).T
            rows = [os.pread(file, b - a, a) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        places = np.concatenate([np.zeros(1, np.int64), np.cumsum(last - first)])
        return _keys(self.reader.rows(np.frombuffer(b"".join(rows), np.uint8), places))


def gathered(rows: Raw, order: Index) -> Iterator[Raw]:
    """Yield rows in an order, a block at a time."""
    for start, stop in pairwise(rows.steps(order, GATHERED)):
        yield rows.take(order[start:stop])


def _keys(rows: Raw) -> tuple[Any, ...]:
    """Return the keys of some rows as columns that can be joined with others."""
    keys = rows.keys()
    return (np.ascontiguousarray(keys) if isinstance(keys, np.ndarray) else to_frame(rows.key_table()).iloc[:, 0],)
