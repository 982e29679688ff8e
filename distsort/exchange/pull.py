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

A task that cannot read a run tells the scheduler first, which undoes what was lost (see `distsort.exchange.scheduler`),
and only then asks to be run again. Outside a cluster there is no store: then the handles carry the runs themselves, and
the same tasks give the same result on threads, processes or in one thread.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError as LoopCancelled
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import Any, TypeVar

from distsort import blocks
from distsort.blocks import Block
from distsort.cuts import Probes
from distsort.exchange.handles import Handle, Options, Routes, Source
from distsort.local import Run, Spec, make_run, sample
from distsort.merge import merge_runs
from distsort.needs import probes_of
from distsort.search import aim, bracket, close, cut_one, narrow

T = TypeVar("T")

DEVICE_SAMPLES = 8
"""A run on a GPU is long and one of few: it sends so many times the samples, and the cuts take one round less."""


def make(block: Block, spec: Spec, meta: Block | None, options: Options) -> Handle:
    """Sort a block and keep the run on this worker."""
    service = _service()
    if service is not None and not blocks.on_device(block):
        service.require("a partition of the input", blocks.nbytes(block))
    key, attempt = service.begin() if service is not None else (None, "")
    run = make_run(block, spec, meta)
    seen = sample(run, spec, options.samples * (DEVICE_SAMPLES if blocks.on_device(run.rows) else 1))
    if service is None:
        return Handle(Source(None, "", "", run.nbytes / max(len(run), 1), held=run), seen)
    return service.keep(key, attempt, run, spec, seen)


def tick(handle: Handle) -> Handle:
    """Hand a handle on."""
    return handle


def find_cuts(handles: Sequence[Handle], spec: Spec, parts: int, options: Options, spread: bool = False) -> Routes:
    """Find where every run is cut.

    `spread` is for the scheduler, which then deals the parts out evenly.
    """
    service = _service()
    barrier = service.worker.get_current_task() if service is not None else None
    sources = tuple(h.source for h in handles)
    samples = [h.sample for h in handles]
    if service is not None and not sources[0].host:
        service.require("a partition of the result", sum(seen.nbytes for seen in samples) / parts)
    if len(handles) == 1:
        return Routes(cut_one(samples[0].length, parts), sources, options, barrier)

    def ask(probes: Probes) -> list[Any]:
        positions = [probes.positions_of(r) for r in range(len(sources))]
        held = [s.held for s in sources]
        if held[0] is not None:
            return [run.keys_at(p, spec) for run, p in zip(held, positions, strict=True) if run is not None]
        return _reading(service, barrier, options, lambda: service.reader.probe(sources, positions, options))

    limit = None if service is None else service.size.limit
    probes = options.probes if limit is None else min(options.probes, probes_of(len(sources), parts, limit))
    search = bracket(samples, spec, parts, probes)
    before = search.width + 1
    while probes < search.width < before:
        before = search.width
        search = narrow(search, ask(search.probes), spec, probes)
    search = aim(search, None)
    return Routes(close(search, ask(search.probes), spec), sources, options, barrier)


def make_part(routes: Routes, part: int, spec: Spec) -> Block:
    """Pull the slices of one part and merge them."""
    table = routes.cuts.table[:, part : part + 2]
    # Empty slices stay away, but one piece must come to say what an empty part is made of.
    filled = [r for r, (start, stop) in enumerate(table) if stop > start] or [0]
    bounds = [(routes.sources[r], int(table[r, 0]), int(table[r, 1])) for r in filled]
    starts = routes.cuts.starts
    service = _service()
    if service is not None:
        service.excess()
    with ExitStack() as until_merged:
        if bounds[0][0].held is not None:
            pieces = [source.held.cut(start, stop) for source, start, stop in bounds if source.held is not None]
        else:
            pieces = _pull(bounds, routes, until_merged)
            service.excess()
        made = merge_runs(pieces, spec, routes.cuts.first(part), [starts[r] for r in filled])
    if service is not None:
        service.excess()
    return made


def _pull(bounds: Sequence[tuple[Source, int, int]], routes: Routes, stack: ExitStack) -> list[Run]:
    from distsort.exchange.transport import Slice

    slices = [Slice(*b) for b in bounds]
    service = _service()

    def read() -> list[Run]:
        return stack.enter_context(service.reader.pull(slices, routes.options))

    return _reading(service, routes.barrier, routes.options, read)


def _reading(service: Any, barrier: Any, options: Options, read: Callable[[], T]) -> T:
    """Read from stores; on trouble tell the scheduler, then have this task run again."""
    from distributed import Reschedule

    from distsort.exchange.reader import Trouble

    try:
        return read()
    except Trouble as trouble:
        service.reader.report_trouble(trouble, barrier, options)
        raise Reschedule from None
    except (CancelledError, LoopCancelled):
        raise Reschedule from None


def _service() -> Any:
    """Return the service of the worker that runs this task, or None outside a worker."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return None
    from distsort.exchange.worker import service_of

    return service_of(worker)
