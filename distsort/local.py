"""One run: a block sorted where it lies, and what may be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from distsort import blocks
from distsort.backends import get_backend
from distsort.blocks import Block, Column
from distsort.columns import Columns
from distsort.cuts import IntArray, regular_positions
from distsort.device_memory import device_work
from distsort.errors import NotSortedError
from distsort.order import Order


@dataclass(frozen=True)
class Spec:
    """What one sort does to its blocks; the same for every run and part.

    Attributes
    ----------
    order
        Keys, directions, null placement.
    what
        "values": 1-D arrays that are their own key. "index": the input positions that sort such arrays (argsort).
        "rows": frames and series.
    key
        pandas' ``key=`` function, or None.
    backend
        "numpy", "cupy" or None for what the blocks are made of.
    ignore_index
        Label the rows of the result 0, 1, 2, ... over all parts.
    presorted
        The blocks are runs already: check them, do not sort them.
    """

    order: Order
    what: Literal["values", "index", "rows"]
    key: Callable[[Any], Any] | None = None
    backend: str | None = None
    ignore_index: bool = False
    presorted: bool = False

    @property
    def descending(self) -> bool:
        """The direction of an array sort."""
        return self.order.keys[0].descending

    def labels(self, block: Block) -> bool:
        """Whether the index labels of a block must travel: they are kept, or are keys."""
        if isinstance(block, Columns):
            return block.frame.index is not None
        keys_in_columns = blocks.is_frame(block) and all(k.name in block.columns for k in self.order.keys)
        unnamed = blocks.is_series(block) and all(k.name is None for k in self.order.keys)
        return not (self.ignore_index and (keys_in_columns or unnamed))

    def bare(self, block: Block) -> Any:
        """Return the values of a block that is nothing but its key, to be sorted as an array; else None."""
        if self.what != "rows" or self.key is not None or self.labels(block):
            return None
        if self.backend == "cupy" and not blocks.on_device(block):
            return None
        return blocks.bare_values(block, self.order)


@dataclass(frozen=True)
class Run:
    """Sorted rows. A slice of a run is a run.

    Attributes
    ----------
    rows
        The block, in order.
    keys
        The key columns in the same order, where the rows do not hold them (argsort, ``key=``); else None.
    """

    rows: Block
    keys: tuple[Column, ...] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Memory of rows and keys, in bytes."""
        return blocks.nbytes(self.rows) + sum(int(k.nbytes) for k in self.keys or ())

    def cut(self, start: int, stop: int) -> Run:
        """Return rows ``[start, stop)``, a view where the block's library can."""
        keys = self.keys
        if keys is not None:
            keys = tuple(blocks.cut(k, start, stop) for k in keys)
        return Run(blocks.cut(self.rows, start, stop), keys)

    def each(self, move: Callable[[Block], Block]) -> Run:
        """Return a run of what a function makes of the rows and of each key."""
        return Run(move(self.rows), tuple(map(move, self.keys)) if self.keys is not None else None)

    def keys_at(self, positions: IntArray, spec: Spec) -> tuple[Column, ...]:
        """Read the keys at some positions, to host memory."""
        with device_work(blocks.on_device(self.rows)):
            if self.keys is not None:
                found = tuple(blocks.take(k, positions) for k in self.keys)
            else:
                found = blocks.key_columns(blocks.pick_keys(self.rows, positions, spec.order), spec.order)
            return tuple(blocks.to_host(k) for k in found)


@dataclass(frozen=True)
class Sample:
    """What a run tells about itself before anything is known: its length and regular samples of its keys.

    Attributes
    ----------
    length
        Rows in the run.
    positions
        int64, shape (s,).
    keys
        Key columns at those positions, each of length s, in host memory.
    nbytes
        Memory of the run, in bytes.
    """

    length: int
    positions: IntArray
    keys: tuple[Column, ...]
    nbytes: int


def make_run(block: Block, spec: Spec, meta: Block | None = None) -> Run:
    """Sort one block.

    Parameters
    ----------
    block
        The rows; never modified.
    spec
        What to sort by and what to keep.
    meta
        An empty block with the dtypes that the collection promises (frames).

    Returns
    -------
    Run

    Raises
    ------
    KeyTypeError
        A key has no order; the message names it.
    NotSortedError
        `spec.presorted` was said of a block that is not in order.
    """
    with device_work(blocks.on_device(block)):
        return _make_run(block, spec, meta)


def _make_run(block: Block, spec: Spec, meta: Block | None) -> Run:
    backend = get_backend(spec.backend, block)
    if spec.what == "values":
        if spec.presorted:
            refuse_unsorted((block,), spec, block)
            return Run(block)
        return Run(backend.sort(block, spec.descending))
    if spec.what == "rows" and meta is not None:
        block = blocks.conform(block, meta)
    if spec.what == "rows" and spec.key is None:
        block = blocks.take_apart(block, spec.labels(block))
    bare = None if spec.presorted else spec.bare(block)
    if bare is not None:
        return Run(blocks.with_values(block, backend.sort(bare, spec.descending)))
    columns = blocks.key_columns(block, spec.order, spec.key)
    if spec.presorted:
        refuse_unsorted(columns, spec, block)
        return Run(block, columns if spec.key else None)
    order = backend.argsort(columns, spec.order)
    if spec.what == "index":
        return Run(order, (blocks.take(block, order),))
    rows = blocks.take(block, order, spec.labels(block) if spec.what == "rows" else True)
    return Run(rows, tuple(blocks.take(c, order) for c in columns) if spec.key else None)


def sample(run: Run, spec: Spec, samples: int) -> Sample:
    """Read at most `samples` regularly spaced keys of a run."""
    positions = regular_positions(len(run), samples)
    return Sample(len(run), positions, run.keys_at(positions, spec), run.nbytes)


def order_of(keys: Sequence[tuple[Column, ...]], spec: Spec) -> npt.NDArray[np.integer]:
    """Return the stable order of keys that were read from several runs, run after run."""
    columns = tuple(blocks.concat_columns(column) for column in zip(*keys, strict=True))
    return get_backend("numpy", columns[0]).argsort(columns, spec.order)


def check_sorted(columns: tuple[Column, ...], spec: Spec, block: Block) -> int | None:
    """Return the first row that stands too late in its block, or None where all are in order."""
    order = get_backend(spec.backend, block).argsort(columns, spec.order)
    place = np.empty_like(order)
    place[order] = np.arange(len(order), like=order)
    falls = place[1:] < place[:-1]
    return int(falls.argmax()) + 1 if len(falls) and bool(falls.any()) else None


def refuse_unsorted(columns: tuple[Column, ...], spec: Spec, block: Block) -> None:
    """Raise `NotSortedError` for a block whose key columns do not ascend."""
    row = check_sorted(columns, spec, block)
    if row is not None:
        raise NotSortedError(
            f"the input is not sorted by {spec.order}: row {row} of a partition stands too late; "
            "use sort() or sort_values() for input that is not sorted"
        )
