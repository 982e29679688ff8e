"""Sorting files larger than memory in one process.

    pieces -> sorted runs -> run files      -> cuts               -> slabs -> parts
              in memory      in -T             few keys, read        merged   streamed

Both halves work in units that fit the memory given: a run is as many neighbouring pieces of the input as one unit
holds; a slab is an equal share of the output, small enough that the slices of all runs that make it fit one unit. The
cuts of all slabs are exact and found before anything is merged, so every row is read once, spilled once, read back
once and written once, whatever the ratio of input to memory. Threads each work on a unit of their own.

`budget` says how large a unit may be, `runs` how rows are held and where runs lie.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from distsort import search
from distsort.blocks import Block
from distsort.files.budget import Budget
from distsort.files.parts import Read, WritePart, Written
from distsort.files.raw_runs import RawForm
from distsort.files.runs import DiskRun, Form, Tables
from distsort.files.seen import Tally
from distsort.io.commit import explain
from distsort.io.raw import RawReader
from distsort.io.records import key_table
from distsort.io.source import Source, join_neighbours, to_frame
from distsort.local import Spec, order_of
from distsort.progress import Progress
from distsort.search import Cuts

T = TypeVar("T")

# Probes of a boundary in each run, in the one round between samples and the last.
PROBES = 16
# Rows from which that round pays.
ROUND_ROWS = 1 << 20


class External:
    """One sort in one process; its steps share a budget, a folder and the way to stop."""

    def __init__(self, source: Source, spec: Spec, write: WritePart, budget: Budget, folder: Path) -> None:
        self.source = source
        self.spec = spec
        self.write = write
        self.budget = budget
        self.folder = folder
        reader = source.reader
        self.form: Form = (
            RawForm(reader, budget.unit / budget.row)
            if isinstance(reader, RawReader)
            else Tables(source, write.written.names, budget.row)
        )
        self.progress = Progress()
        # The same threads to the end: they keep what they work with.
        self.pool = ThreadPoolExecutor(budget.threads, thread_name_prefix="distsort")
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._finished: set[int] = set()

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
        # From the last part to the first, so that run files can be shortened on the way.
        last = self.budget.parts - 1
        written = self._all(lambda number: self._write_part(runs, cuts, nan, last - number), self.budget.parts)
        spilled = sum(run.sample.nbytes for run in runs)
        return [read for _, read in sorted_groups], written[::-1], spilled

    def find_cuts(self, runs: Sequence[DiskRun]) -> Cuts:
        """Cut all runs into slabs of equal size, exactly."""
        slabs = self.budget.parts * self.budget.slabs
        if len(runs) == 1:
            return search.cut_one(runs[0].length, slabs)
        budget = PROBES * len(runs) if sum(run.length for run in runs) >= ROUND_ROWS else None
        seen = [run.sample for run in runs]
        state = search.bracket(seen, self.spec, search.between_parts(seen, slabs), budget)
        if budget is not None:
            state = search.narrow(state, self._keys(runs, state), self.spec, None)
        return search.close(state, self._keys(runs, state), self.spec)

    def _keys(self, runs: Sequence[DiskRun], state: search.Search) -> list[tuple[Any, ...]]:
        return [run.keys_at(state.probes.positions_of(number), self.spec) for number, run in enumerate(runs)]

    def _all(self, work: Callable[[int], T], count: int) -> list[T]:
        """Do all pieces of work on the threads of the budget; the first error ends them."""
        futures: list[Future[T]] = [self.pool.submit(work, number) for number in range(count)]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            self._stopped.set()
            self.pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]

    def _sort_group(self, number: int, pieces: Sequence[Any]) -> tuple[list[DiskRun], Read]:
        """Read neighbouring pieces and sort them into a run, or into two where they are larger than was thought."""
        runs: list[DiskRun] = []
        tally, began, reading = Tally(), time.time(), 0.0
        blocks = self.form.read(pieces, self.budget.unit, self._go_on)
        while True:
            start = time.time()
            found = next(blocks, None)
            reading += time.time() - start
            if found is None:
                break
            rows, seen = found
            del found
            tally += seen
            try:
                runs.append(self.form.make_run(self.folder / f"run-{number:06d}-{len(runs)}", rows, self.spec))
            except OSError as error:
                raise explain(str(self.folder), error) from error
            del rows
            pa.default_memory_pool().release_unused()
        self.progress.ran("sort", began, time.time())
        return runs, Read(tally, began, began + reading)

    def _write_part(self, runs: Sequence[DiskRun], cuts: Cuts, nan: set[str], number: int) -> Written:
        slabs = self.budget.slabs
        first, last = number * slabs, (number + 1) * slabs
        start = time.time()
        rows = cuts.first(last) - cuts.first(first)
        frames = itertools.chain.from_iterable(self._merge(runs, cuts, slab) for slab in range(first, last))
        above = self._row_before(runs, cuts, first) if self.write.unique else None
        written = self.write.stream(frames, rows, number, nan, above)
        self._forget(runs, cuts, number)
        self.progress.ran("write", start, time.time())
        return written

    def _forget(self, runs: Sequence[DiskRun], cuts: Cuts, number: int) -> None:
        """Free the rows of a part that is written, once all parts above it are."""
        with self._lock:
            self._finished.add(number)
            lowest = self.budget.parts
            while lowest - 1 in self._finished:
                lowest -= 1
            if lowest < self.budget.parts:
                for run, table in zip(runs, cuts.table, strict=True):
                    run.forget(int(table[lowest * self.budget.slabs]))

    def _row_before(self, runs: Sequence[DiskRun], cuts: Cuts, slab: int) -> pd.DataFrame | None:
        """Return the keys of the row before a slab: the greatest of those that end just before its cuts."""
        ends = [(run, int(table[slab]) - 1) for run, table in zip(runs, cuts.table, strict=True) if table[slab] > 0]
        if not ends:
            return None
        found = [run.keys_at(np.array([place]), self.spec) for run, place in ends]
        last = found[int(order_of(found, self.spec)[-1])]
        if isinstance(last[0], np.ndarray):
            return to_frame(key_table(last[0]))
        names = [key.name for key in self.spec.order.keys]
        return pd.DataFrame(dict(zip(names, last, strict=True))).reset_index(drop=True)

    def _merge(self, runs: Sequence[DiskRun], cuts: Cuts, slab: int) -> Iterator[Block]:
        """Merge the slices of one slab."""
        self._go_on()
        start = time.time()
        pa.default_memory_pool().release_unused()
        ends = [(run, int(table[slab]), int(table[slab + 1])) for run, table in zip(runs, cuts.table, strict=True)]
        for number, block in enumerate(
            self.form.merge([one for one in ends if one[2] > one[1]] or ends[:1], self.spec)
        ):
            if not number:
                self.progress.ran("merge", start, time.time())
            yield block

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise InterruptedError("another thread of the sort failed")


def sort_external(
    source: Source, spec: Spec, write: WritePart, budget: Budget, folder: Path, progress: Progress
) -> tuple[list[Read], list[Written], int]:
    """Sort a source within a budget, spilling to a folder; see `External.run`."""
    external = External(source, spec, write, budget, folder)
    with external.pool:
        return external.run(progress)
