"""Sorting files larger than memory in one process.

    pieces -> sorted runs -> run files      -> cuts               -> slabs -> parts
              in memory      Arrow IPC, -T     few keys, read        merged   streamed

Both halves work in units that fit the memory given: a run is as many neighbouring pieces of the input as one unit
holds; a slab is an equal share of the output, small enough that the slices of all runs that make it fit one unit. The
cuts of all slabs are exact and found before anything is merged, so every row is read once, spilled once, read back
once and written once, whatever the ratio of input to memory. Threads each work on a unit of their own.

`budget` says how large a unit may be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from distsort import blocks, search
from distsort.cuts import IntArray, regular_positions
from distsort.files.budget import Budget
from distsort.files.parts import Read, Tally, WritePart, Written
from distsort.io.checksum import table_checksum
from distsort.io.commit import explain
from distsort.io.sink import keys_with_nan
from distsort.io.source import Source, join_neighbours, to_frame, to_table
from distsort.local import Run, Sample, Spec, make_run, order_of
from distsort.merge import merge_runs
from distsort.progress import Progress
from distsort.search import Cuts

T = TypeVar("T")

# Samples of each run, taken while it is in memory: one in a few hundred rows.
SAMPLES = 4096
# Probes of a boundary in each run, in the one round between samples and the last.
PROBES = 16
# Rows from which that round pays.
ROUND_ROWS = 1 << 20
# Bytes of a record batch in a run file: a slice reads up to two of them in vain.
BATCH_BYTES = 1 << 17


@dataclass(frozen=True)
class DiskRun:
    """A sorted run in a file.

    It is an Arrow IPC file of small record batches, all of one length. Rows are read, not mapped: mapped pages count as
    memory of the process, and large page-cache folios map far more than is touched.

    Attributes
    ----------
    path
        The file.
    length
        Its rows.
    batch
        Rows of a record batch, but for the last.
    sample
        Keys at regular positions.
    nan
        Keys in which a NaN stands.
    """

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
        """Read the keys at some positions, ascending; only the batches that hold them, and of these only the keys."""
        numbers, inverse = np.unique(positions // self.batch, return_inverse=True)
        table = self._batches(numbers.tolist(), [str(key.name) for key in spec.order.keys])
        # Batches that were not read are not there: count positions from the start of those that were.
        return blocks.key_columns(to_frame(table.take(inverse * self.batch + positions % self.batch)), spec.order)

    def _batches(self, numbers: Iterable[int], columns: list[str] | None) -> pa.Table:
        with pa.OSFile(str(self.path)) as file:
            options = pa.ipc.IpcReadOptions(use_threads=False)
            with pa.ipc.open_file(file) as whole:
                schema = whole.schema
            if columns is not None:
                options.included_fields = sorted({schema.get_field_index(name) for name in columns})
            with pa.ipc.open_file(file, options=options) as reader:
                return pa.Table.from_batches([reader.get_batch(number) for number in numbers], reader.schema)


class External:
    """One sort in one process; its steps share a budget, a folder and the way to stop."""

    def __init__(self, source: Source, spec: Spec, write: WritePart, budget: Budget, folder: Path) -> None:
        self.source = source
        self.spec = spec
        self.write = write
        self.budget = budget
        self.folder = folder
        self.progress = Progress()
        self._stopped = threading.Event()

    def run(self, progress: Progress) -> tuple[list[Read], list[Written], int]:
        """Sort; nothing is published.

        Returns
        -------
        list of Read
            One for each group of pieces.
        list of Written
            One for each part.
        int
            Bytes spilled.
        """
        self.progress = progress
        # A piece that is in order is a run; two of them together need not be.
        unit = 0 if self.spec.presorted else self.budget.unit
        groups = join_neighbours(self.source.pieces, self.source.sizes, unit, 1)
        progress.expect({"sort": len(groups)})
        sorted_groups = self._all(lambda number: self._sort_group(number, groups[number]), len(groups))
        runs = [run for found, _ in sorted_groups for run in found]
        with progress.stage("cuts"):
            cuts = self.find_cuts(runs)
        nan = {name for run in runs for name in run.nan}
        progress.expect({"merge": self.budget.parts * self.budget.slabs, "write": self.budget.parts})
        written = self._all(lambda number: self._write_part(runs, cuts, nan, number), self.budget.parts)
        spilled = sum(run.sample.nbytes for run in runs)
        return [read for _, read in sorted_groups], written, spilled

    def find_cuts(self, runs: Sequence[DiskRun]) -> Cuts:
        """Cut all runs into slabs of equal size, exactly."""
        slabs = self.budget.parts * self.budget.slabs
        if len(runs) == 1:
            return search.cut_one(runs[0].length, slabs)
        budget = PROBES * len(runs) if sum(run.length for run in runs) >= ROUND_ROWS else None
        state = search.bracket([run.sample for run in runs], self.spec, slabs, budget)
        if budget is not None:
            state = search.narrow(state, self._keys(runs, state), self.spec, None)
        return search.close(state, self._keys(runs, state), self.spec)

    def _keys(self, runs: Sequence[DiskRun], state: search.Search) -> list[tuple[Any, ...]]:
        return [run.keys_at(state.probes.positions_of(number), self.spec) for number, run in enumerate(runs)]

    def _all(self, work: Callable[[int], T], count: int) -> list[T]:
        """Do all pieces of work on the threads of the budget; the first error ends them."""
        with ThreadPoolExecutor(self.budget.threads, thread_name_prefix="distsort") as pool:
            futures: list[Future[T]] = [pool.submit(work, number) for number in range(count)]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in futures]

    def _sort_group(self, number: int, pieces: Sequence[Any]) -> tuple[list[DiskRun], Read]:
        """Read neighbouring pieces and sort them into a run, or into two where they are larger than was thought."""
        runs: list[DiskRun] = []
        held: list[pa.Table] = []
        size = 0
        tally, began, reading = Tally(), time.time(), 0.0
        for piece in pieces:
            self._go_on()
            start = time.time()
            table = self.source.reader(piece)
            seen = table.select(self.write.written.names)
            tally += Tally(seen.num_rows, seen.nbytes, table_checksum(seen))
            reading += time.time() - start
            if held and size + table.nbytes > 1.2 * self.budget.unit:
                runs.append(self._spill(f"{number:06d}-{len(runs)}", held))
                held, size = [], 0
            held.append(table)
            size += table.nbytes
            del table, seen
        runs.append(self._spill(f"{number:06d}-{len(runs)}", held))
        self.progress.ran("sort", began, time.time())
        return runs, Read(tally, began, began + reading)

    def _spill(self, name: str, tables: list[pa.Table]) -> DiskRun:
        """Sort tables and write them as one run; the list is emptied on the way, so that they are not held twice."""
        table = pa.concat_tables(tables)
        tables.clear()
        frame = to_frame(table)
        del table
        rows = make_run(frame, self.spec).rows
        del frame
        positions = regular_positions(len(rows), SAMPLES)
        ordered = to_table(rows, self.source.schema)
        sample = Sample(len(rows), positions, Run(rows).keys_at(positions, self.spec), ordered.nbytes)
        path = self.folder / f"run-{name}.arrow"
        batch = max(64, min(1 << 16, int(BATCH_BYTES / self.budget.row)))
        try:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ordered.schema) as writer:
                for start in range(0, len(rows), batch):
                    # Chunks end where they will; batches must all have one length, so that rows can be found.
                    writer.write_batch(ordered.slice(start, batch).combine_chunks().to_batches()[0])
        except OSError as error:
            raise explain(str(self.folder), error) from error
        nan = frozenset(keys_with_nan(ordered, self.spec.order))
        del rows, ordered
        pa.default_memory_pool().release_unused()
        return DiskRun(path, sample.length, batch, sample, nan)

    def _write_part(self, runs: Sequence[DiskRun], cuts: Cuts, nan: set[str], number: int) -> Written:
        slabs = self.budget.slabs
        first, last = number * slabs, (number + 1) * slabs
        start = time.time()
        rows = cuts.first(last) - cuts.first(first)
        frames = (self._merge(runs, cuts, slab) for slab in range(first, last))
        above = self._row_before(runs, cuts, first) if self.write.unique else None
        written = self.write.stream(frames, rows, number, nan, above)
        self.progress.ran("write", start, time.time())
        return written

    def _row_before(self, runs: Sequence[DiskRun], cuts: Cuts, slab: int) -> pd.DataFrame | None:
        """Return the keys of the row before a slab: the greatest of those that end just before its cuts."""
        ends = [(run, int(table[slab]) - 1) for run, table in zip(runs, cuts.table, strict=True) if table[slab] > 0]
        if not ends:
            return None
        found = [run.keys_at(np.array([place]), self.spec) for run, place in ends]
        last = found[int(order_of(found, self.spec)[-1])]
        names = [key.name for key in self.spec.order.keys]
        return pd.DataFrame(dict(zip(names, last, strict=True))).reset_index(drop=True)

    def _merge(self, runs: Sequence[DiskRun], cuts: Cuts, slab: int) -> pd.DataFrame:
        """Merge the slices of one slab."""
        self._go_on()
        start = time.time()
        pa.default_memory_pool().release_unused()
        slices = []
        for run, table in zip(runs, cuts.table, strict=True):
            low, high = int(table[slab]), int(table[slab + 1])
            if high > low or run is runs[0]:
                slices.append(Run(to_frame(run.read(low, high))))
        merged = merge_runs(slices, self.spec)
        self.progress.ran("merge", start, time.time())
        assert isinstance(merged, pd.DataFrame)
        return merged

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise InterruptedError("another thread of the sort failed")


def sort_external(
    source: Source, spec: Spec, write: WritePart, budget: Budget, folder: Path, progress: Progress
) -> tuple[list[Read], list[Written], int]:
    """Sort a source within a budget, spilling to a folder; see `External.run`."""
    return External(source, spec, write, budget, folder).run(progress)
