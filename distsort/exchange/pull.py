"""The pull exchange: runs stay where they were made, parts come for their slices.

The plain graph moves R x P slices with R x P tasks. Here the tasks pass handles of a few kilobytes, and rows move
between workers only when a part asks for them::

    block r --> run r --> tick r --+                              R tasks and R ticks
                  |                v
                  |              cuts  <-- asks the stores,       1 barrier
                  v                |       two or three rounds
              [ store ]            +--> part 0  ......+           P parts
              [ store ] <-------------- part 1        |
              [ store ]   slices, packed, in messages |
                          of 8 to 32 MiB  <...........+

* `make` announces a run, sorts a block, puts the run into the worker's store, and returns its handle.
* `find_cuts` narrows the brackets of all boundaries at once: one question a worker and round, answered by reading keys
  where the runs lie.
* `make_part` pulls the slices of one part from all stores and merges them.

On GPUs a hop from task to task takes as long as a pass over all keys. There a run is promised: its handle comes when
the sort begins, so that barrier and parts are in place when it ends. Of few runs on one host each part then maps all,
finds its own two boundaries by co-ranks that it reads over NVLink, and merges what lies between them::

    make       | sort of the block ............... |
    find_cuts    | nothing to do |
    make_part          | waits for the runs ....... | co-ranks | copy and merge ... |

A task that cannot read a run tells the scheduler first, which undoes what was lost (see `distsort.exchange.scheduler`),
and only then asks to be run again. Outside a cluster there is no store: then the handles carry the runs themselves, and
the same tasks give the same result on threads, processes or in one thread.
"""

from __future__ import annotations

import sys
import threading
from asyncio import CancelledError as LoopCancelled
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from distsort import blocks
from distsort.blocks import Block, Column
from distsort.cuts import IntArray, Probes, regular_positions
from distsort.exchange.handles import Handle, Options, PullTask, Routes, Source, task_in
from distsort.local import Run, Sample, Spec, make_run, sample
from distsort.merge import co_ranks, merge_runs
from distsort.needs import probes_of
from distsort.search import Cuts, Ranks, aim, between_parts, bracket, close, cut_one, narrow

T = TypeVar("T")

Read = Callable[[Sequence[IntArray]], list[tuple[Column, ...]]]
"""Reads keys of all runs, each at some positions."""

DEVICE_SAMPLES = 8
"""A run on a GPU is long and one of few: it is asked for so many times the samples, and the cuts take a round less."""

LENT_RUNS = 8
"""So many runs at most are mapped by every part: their co-ranks are found at once."""

SHARE_MARGIN = 1 / 64
"""What a part says beforehand that it will want of each run is larger than its share of the ranks by so much of it, on
either side: runs are alike, but not the same."""


def make(block: Block, spec: Spec, meta: Block | None, options: Options) -> Handle:
    """Sort a block and keep the run on this worker."""
    service = _service()
    if service is not None and promises(block):
        nbytes = blocks.nbytes(block) + (8 * len(block) if spec.what == "index" else 0)
        return service.promise(len(block), nbytes, spec, lambda: make_run(block, spec, meta))
    if service is not None:
        service.require("a partition of the input", blocks.nbytes(block))
    key, attempt = service.begin() if service is not None else (None, "")
    run = make_run(block, spec, meta)
    seen = sample(run, spec, options.samples)
    if service is None:
        return Handle(Source(None, "", "", run.nbytes / max(len(run), 1), held=run), len(run), run.nbytes, seen)
    return service.keep(key, attempt, run, spec, seen)


def promises(block: Block) -> bool:
    """Whether the run of a block is handed out before it is made."""
    return blocks.on_device(block)


def tick(handle: Handle) -> Handle:
    """Hand a handle on."""
    return handle


def find_cuts(handles: Sequence[Handle], spec: Spec, parts: int, options: Options, spread: bool = False) -> Routes:
    """Find where every run is cut.

    `spread` is for the scheduler, which then deals the parts out (see `distsort.exchange.placing`).
    """
    service = _service()
    barrier = service.worker.get_current_task() if service is not None else None
    sources = tuple(h.source for h in handles)
    ranks = Ranks(tuple(h.length for h in handles), parts)
    routes = Routes(ranks, None, sources, options, barrier)
    if service is not None and not sources[0].host:
        service.require("a partition of the result", sum(h.nbytes for h in handles) / parts)
    if len(handles) == 1:
        return replace(routes, cuts=cut_one(handles[0].length, parts))
    if len(handles) <= LENT_RUNS and all(h.lent and h.source.host == sources[0].host for h in handles):
        return routes
    limit = None if service is None else service.size.limit
    probes = options.probes if limit is None else min(options.probes, probes_of(len(sources), parts, limit))

    def read(positions: Sequence[IntArray]) -> list[tuple[Column, ...]]:
        held = [s.held for s in sources]
        if held[0] is not None:
            return [run.keys_at(p, spec) for run, p in zip(held, positions, strict=True) if run is not None]
        return _reading(routes, lambda: service.reader.probe(sources, positions, options))

    known = [h.sample for h in handles if h.sample is not None]
    seen = known if len(known) == len(handles) else _samples(ranks.lengths, options, read)
    return replace(routes, cuts=_search(seen, spec, between_parts(seen, parts), probes, read))


def _samples(lengths: Sequence[int], options: Options, read: Read) -> list[Sample]:
    """Read the samples of runs that did not come with their handles."""
    positions = [regular_positions(n, options.samples * DEVICE_SAMPLES) for n in lengths]
    return [Sample(n, p, keys, 0) for n, p, keys in zip(lengths, positions, read(positions), strict=True)]


def _search(seen: Sequence[Sample], spec: Spec, ranks: IntArray, probes: int, read: Read) -> Cuts:
    """Find the cuts at some ranks, asking for keys until the brackets can be read whole."""

    def ask(wanted: Probes) -> list[tuple[Column, ...]]:
        return read([wanted.positions_of(r) for r in range(len(seen))])

    search = bracket(seen, spec, ranks, probes)
    before = search.width + 1
    while probes < search.width < before:
        before = search.width
        search = narrow(search, ask(search.probes), spec, probes)
    search = aim(search, None)
    return close(search, ask(search.probes), spec)


def make_part(routes: Routes, part: int, spec: Spec) -> Block:
    """Pull the slices of one part and merge them."""
    _look_at_memory(routes)
    with ExitStack() as until_merged:
        if routes.cuts is None:
            pieces, runs = _borrowed(routes, part, spec, until_merged)
        else:
            pieces, runs = _pulled(routes, routes.cuts.table[:, part : part + 2], until_merged)
        starts, lengths = routes.ranks.starts, _viewed(routes, pieces, runs)
        made = merge_runs(pieces, spec, routes.ranks.first(part), [starts[r] for r in runs], lengths)
    _look_at_memory(routes)
    return made


def _viewed(routes: Routes, pieces: Sequence[Run], runs: Sequence[int]) -> list[int]:
    """Return the rows of what each piece is a view of: of its run if that lies here, else of what was fetched."""
    service = _service()
    here = "" if service is None else service.address
    of = zip(pieces, runs, strict=True)
    return [routes.ranks.lengths[r] if routes.sources[r].address == here else len(piece) for piece, r in of]


def _look_at_memory(routes: Routes) -> None:
    """Give back host memory before and after rows come; those of GPUs take none, and a look takes a millisecond."""
    service = _service()
    if service is not None and not routes.sources[0].host:
        service.excess()


def _borrowed(routes: Routes, part: int, spec: Spec, until_merged: ExitStack) -> tuple[list[Run], list[int]]:
    """Map all runs; return the slices of a part, and of which runs they are."""
    from distsort.exchange.borrow import borrow

    reader = _service().reader
    leases = until_merged.enter_context(ExitStack())
    share = routes.ranks.share(part, SHARE_MARGIN)
    borrowed = _reading(routes, lambda: leases.enter_context(borrow(reader, routes.sources, routes.options, share)))
    lent = borrowed.runs
    table = _own_cuts(routes, part, spec, lent)
    filled = _filled(table)
    if lent is None or len(filled) == 1:  # a slice that is a part by itself is copied
        leases.close()
        return _pulled(routes, table, until_merged)
    _reading(routes, borrowed.complete)
    until_merged.enter_context(reader.reading())
    pieces = [lent[r].cut(*table[r].tolist()) for r in filled]
    reader.count(pieces, [routes.sources[r] for r in filled])
    return pieces, filled


def _pulled(routes: Routes, table: IntArray, until_merged: ExitStack) -> tuple[list[Run], list[int]]:
    """Bring the slices of a part here; return them, and of which runs they are."""
    filled = _filled(table)
    bounds = [(routes.sources[r], *table[r].tolist()) for r in filled]
    if bounds[0][0].held is not None:
        return [source.held.cut(start, stop) for source, start, stop in bounds if source.held is not None], filled
    from distsort.exchange.transport import Slice

    service = _service()
    slices = [Slice(*b) for b in bounds]
    pieces: list[Run] = _reading(
        routes, lambda: until_merged.enter_context(service.reader.pull(slices, routes.options))
    )
    _look_at_memory(routes)
    return pieces, filled


def _filled(table: IntArray) -> list[int]:
    """Return the runs of which a part has rows; one must come to say what an empty part is made of."""
    return [r for r, (start, stop) in enumerate(table) if stop > start] or [0]


def _own_cuts(routes: Routes, part: int, spec: Spec, lent: Sequence[Run] | None) -> IntArray:
    """Find where the runs, lent or not, are cut for one part: int64, shape (R, 2)."""
    start, stop = routes.ranks.first(part), routes.ranks.first(part + 1)
    found = None if lent is None else co_ranks(lent, spec, start, stop)
    if found is not None:
        return found

    def read(positions: Sequence[IntArray]) -> list[tuple[Column, ...]]:
        if lent is not None:
            return [run.keys_at(p, spec) for run, p in zip(lent, positions, strict=True)]
        return _reading(routes, lambda: _service().reader.probe(routes.sources, positions, routes.options))

    seen = _samples(routes.ranks.lengths, routes.options, read)
    return _search(seen, spec, np.array([start, stop]), routes.options.probes, read).table[:, 1:3]


def _reading(routes: Routes, read: Callable[[], T]) -> T:
    """Read from stores; on trouble tell the scheduler, then have this task run again."""
    from distributed import Reschedule

    from distsort.exchange.reader import Trouble

    try:
        return read()
    except Trouble as trouble:
        _service().reader.report_trouble(trouble, routes.barrier, routes.options)
        raise Reschedule from None
    except (CancelledError, LoopCancelled):
        raise Reschedule from None


def _service() -> Any:
    """Return the service of the worker that runs this task, or None outside a worker.

    Where a task computes a sort with another scheduler, in its own thread or in others, that is outside, too.
    """
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return None
    key = worker.active_threads.get(threading.get_ident())
    task = worker.state.tasks.get(key)
    if key is None or (task is not None and task.run_spec is not None and task_in(task.run_spec, PullTask) is None):
        return None
    from distsort.exchange.worker import service_of

    return service_of(worker)
