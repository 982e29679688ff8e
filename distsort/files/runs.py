"""Sorted runs in files, and the two forms in which rows go through a sort in one process.

    form       in memory                          run file
    tables     pandas frames of Arrow columns     Arrow IPC of small record batches, all of one length
    raw        records or lines in one buffer     the same bytes in order (see `raw_runs`)

Any slice of a run can be read without what stands before it, and keys alone can be. Rows are read, not mapped: mapped
pages count as memory of the process, and large page-cache folios map far more than is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from distsort import blocks
from distsort.backends import get_backend
from distsort.blocks import Block
from distsort.cuts import IntArray, regular_positions
from distsort.files.seen import Tally
from distsort.io.sink import keys_with_nan
from distsort.io.source import Source, to_frame, to_table
from distsort.local import Run, Sample, Spec, make_run

# Samples of each run, taken while it is in memory: one in a few hundred rows.
SAMPLES = 4096
# Bytes of a record batch in a run file: a slice reads up to two of them in vain.
BATCH_BYTES = 1 << 17


class DiskRun(Protocol):
    """A sorted run in a file.

    Attributes
    ----------
    length
        Its rows.
    sample
        Keys at regular positions.
    nan
        Keys in which a NaN stands.
    """

    @property
    def length(self) -> int:
        """See above."""

    @property
    def sample(self) -> Sample:
        """See above."""

    @property
    def nan(self) -> frozenset[str]:
        """See above."""

    def keys_at(self, positions: IntArray, spec: Spec) -> tuple[Any, ...]:
        """Read the keys at some positions, in any order, and little else."""

    def forget(self, start: int) -> None:
        """Give the disk back what rows from `start` on take, where the file allows it: nobody will read them."""


Slice = tuple[Any, int, int]


class Form(Protocol):
    """How rows are held: see the table of this module."""

    def read(self, pieces: Sequence[Any], unit: int, go_on: Callable[[], None]) -> Iterator[tuple[Block, Tally]]:
        """Yield the rows of neighbouring pieces, as many at once as one unit of so many bytes may hold."""

    def make_run(self, path: Path, rows: Block, spec: Spec) -> DiskRun:
        """Sort rows that were read and write them as a run."""

    def merge(self, slices: Sequence[Slice], spec: Spec) -> Iterator[Block]:
        """Read rows ``[start, stop)`` of each run and merge them, the earlier run first on ties; block after block."""


@dataclass(frozen=True)
class Tables:
    """Rows as tables; they can be anything."""

    source: Source
    names: list[str]
    row: float

    def read(self, pieces: Sequence[Any], unit: int, go_on: Callable[[], None]) -> Iterator[tuple[Block, Tally]]:
        """See `Form`; pieces may turn out to be larger than was thought."""
        held: list[pa.Table] = []
        size, tally = 0, Tally()
        for piece in pieces:
            go_on()
            table = self.source.reader(piece)
            if held and size + table.nbytes > 1.2 * unit:
                yield _emptied(held), tally
                held, size, tally = [], 0, Tally()
            seen = table.select(self.names)
            tally += Tally.of(seen)
            held.append(table)
            size += table.nbytes
            del table, seen
        yield _emptied(held), tally

    def make_run(self, path: Path, rows: Block, spec: Spec) -> DiskRun:
        """See `Form`."""
        rows = make_run(rows, spec).rows
        ordered = to_table(rows, self.source.schema)
        sample = _sample(rows, spec, ordered.nbytes)
        batch = max(64, min(1 << 16, int(BATCH_BYTES / self.row)))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ordered.schema) as writer:
            for start in range(0, len(rows), batch):
                # Chunks end where they will; batches must all have one length, so that rows can be found.
                part = ordered.slice(start, batch)
                whole = part if all(column.num_chunks == 1 for column in part.columns) else part.combine_chunks()
                writer.write_batch(whole.to_batches()[0])
        return TableRun(path, sample.length, batch, sample, frozenset(keys_with_nan(ordered, spec.order)))

    def merge(self, slices: Sequence[Slice], spec: Spec) -> Iterator[Block]:
        """See `Form`."""
        rows = to_frame(pa.concat_tables([run.read(start, stop) for run, start, stop in slices]).combine_chunks())
        bounds = np.cumsum([0, *(stop - start for _, start, stop in slices)])
        columns = blocks.key_columns(rows, spec.order)
        order = get_backend(spec.backend, rows).merge_order(columns, bounds, spec.order)
        yield blocks.take(rows, order, labels=False)


@dataclass(frozen=True)
class TableRun:
    """A run as an Arrow IPC file of small record batches, all but the last of `batch` rows; see `DiskRun`."""

    path: Path
    length: int
    batch: int
    sample: Sample
    nan: frozenset[str]

    def read(self, start: int, stop: int) -> pa.Table:
        """Return rows ``[start, stop)``."""
        first = start // self.batch
        table = self._batches(range(first, -(-stop // self.batch)) if stop > start else range(0), None)
        return table.slice(start - first * self.batch, stop - start)

    def keys_at(self, positions: IntArray, spec: Spec) -> tuple[Any, ...]:
        """See `DiskRun`; reads the batches that hold the keys, and of these only the keys."""
        numbers, inverse = np.unique(positions // self.batch, return_inverse=True)
        table = self._batches(numbers.tolist(), [str(key.name) for key in spec.order.keys])
        # Batches that were not read are not there: count positions from the start of those that were.
        return blocks.key_columns(to_frame(table.take(inverse * self.batch + positions % self.batch)), spec.order)

    def forget(self, start: int) -> None:
        """See `DiskRun`: the file cannot be shortened, what it holds is listed at its end."""

    def _batches(self, numbers: Iterable[int], columns: list[str] | None) -> pa.Table:
        with pa.OSFile(str(self.path)) as file:
            options = pa.ipc.IpcReadOptions(use_threads=False)
            with pa.ipc.open_file(file) as whole:
                schema = whole.schema
            if columns is not None:
                options.included_fields = sorted({schema.get_field_index(name) for name in columns})
            with pa.ipc.open_file(file, options=options) as reader:
                return pa.Table.from_batches([reader.get_batch(number) for number in numbers], reader.schema)


def _sample(rows: Block, spec: Spec, nbytes: int) -> Sample:
    positions = regular_positions(len(rows), SAMPLES)
    return Sample(len(rows), positions, Run(rows).keys_at(positions, spec), nbytes)


def _emptied(tables: list[pa.Table]) -> Block:
    """Join tables to one frame; the list is emptied on the way, so that they are not held twice."""
    table = pa.concat_tables(tables)
    tables.clear()
    return to_frame(table)
