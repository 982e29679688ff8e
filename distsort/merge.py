"""One part: the slices that were cut for it from all runs, merged stably, the earlier run first on ties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from distsort import blocks
from distsort.backends import get_backend
from distsort.blocks import Block
from distsort.device_memory import device_work
from distsort.local import Run, Spec


def merge_runs(
    pieces: list[Run],
    spec: Spec,
    first: int = 0,
    starts: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
) -> Block:
    """Merge the slices of one part.

    Parameters
    ----------
    pieces
        One slice per run, in the order of the runs; empty ones allowed. Emptied, so that slices in host memory can go
        once their rows stand together: a part then takes a copy less.
    spec
        The sort.
    first
        The rank of the first row of the part, for ``ignore_index``.
    starts
        Where each run begins in the input, in rows, for ``what="index"``.
    lengths
        Rows of each run of which the pieces are views, where they are. A part of one slice is copied then, unless that
        is the whole run: the view would keep all of the run for as long as there is the part.

    Returns
    -------
    block
        The rows of the part in order, of the kind of the pieces.
    """
    with device_work(blocks.on_device(pieces[0].rows)):
        filled = [i for i, piece in enumerate(pieces) if len(piece)] or [0]
        if lengths is not None and len(filled) == 1 and len(pieces[filled[0]]) < lengths[filled[0]]:
            pieces[filled[0]] = Run(blocks.detached(pieces[filled[0]].rows), None)
        whole = blocks.put_together(_merged(pieces, spec, starts))
    return blocks.with_running_index(whole, first) if spec.ignore_index else whole


def co_ranks(runs: Sequence[Run], spec: Spec, start: int, stop: int) -> npt.NDArray[np.int64] | None:
    """Find how many rows of each run are before two ranks of the merged result, all runs in the memory of one device.

    Returns
    -------
    int64, shape (R, 2)
        None where that must be searched for by reading keys.
    """
    if len(spec.order) != 1:
        return None
    held = [run.keys or blocks.key_columns(run.rows, spec.order) for run in runs]
    if any(blocks.library(column) != "cupy" for (column,) in held):
        return None
    from distsort.backends import cupy_merge

    with device_work(True):
        return cupy_merge.co_ranks([column for (column,) in held], spec.order, start, stop)


def _merged(pieces: list[Run], spec: Spec, starts: Sequence[int] | None) -> Block:
    if spec.what == "index":
        offsets = starts if starts is not None else [0] * len(pieces)
        pieces[:] = [Run(p.rows + at, p.keys) for p, at in zip(pieces, offsets, strict=True)]
    filled = [p for p in pieces if len(p)] or pieces[:1]
    if not blocks.on_device(filled[0].rows):
        pieces.clear()
    if len(filled) == 1:
        return filled[0].rows
    if spec.what == "values":
        return get_backend(spec.backend, filled[0].rows).merge([p.rows for p in filled], spec.descending)
    return _merge_rows(filled, spec)


def _merge_rows(pieces: list[Run], spec: Spec) -> Block:
    first = pieces[0].rows
    bare = [spec.bare(p.rows) for p in pieces]
    if all(values is not None for values in bare):
        return blocks.with_values(first, get_backend(spec.backend, first).merge(bare, spec.descending))
    labels = spec.what != "rows" or spec.labels(first)
    rows = blocks.concat([p.rows for p in pieces], labels)
    bounds = np.cumsum([0, *(len(p) for p in pieces)])
    backend = get_backend(spec.backend, rows)
    if pieces[0].keys is None:
        columns = blocks.key_columns(rows, spec.order)
    else:
        held = [p.keys or () for p in pieces]
        columns = tuple(blocks.concat_columns(column) for column in zip(*held, strict=True))
        del held
    if not blocks.on_device(first):
        pieces.clear()
        rows = blocks.in_one_piece(rows)
    del first
    return blocks.take(rows, backend.merge_order(columns, bounds, spec.order), labels)
