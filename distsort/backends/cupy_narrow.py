"""Sorted integers as offsets: what crosses to another GPU in the place of the keys, where they are dense.

owner     keys --narrow--> offsets of 2 or 4 bytes, of the share of the run that a reader will want
reader    offsets are copied; --widen--> keys, with what does not fit an offset read over the link (merge_narrow.cu)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from distsort.kernels import policy
from distsort.kernels.instances import narrow_name
from distsort.kernels.loader import kernels

FILE = "merge_narrow.cu"


@dataclass(frozen=True)
class Offsets:
    """Offsets of rows ``[start, stop)`` of a run.

    Attributes
    ----------
    values
        Contiguous cupy array of uint16 or uint32, shape (stop - start,).
    ends
        First and last key of each block of `policy.NARROW_ROWS` rows: the run's dtype, shape (2 * blocks,).
    start, stop
        Rows; start is a multiple of `policy.NARROW_ROWS`.
    down
        Whether the run descends.
    """

    values: Any
    ends: Any
    start: int
    stop: int
    down: bool


def narrow(keys: Any, down: bool, share: tuple[float, float]) -> Offsets | None:
    """Return the offsets of a share of a run.

    Parameters
    ----------
    keys
        Contiguous cupy array, shape (n,), in order, the beginning of an allocation.
    down
        Whether it descends.
    share
        Where the share begins and ends, of the whole run; 0 to 1.

    Returns
    -------
    Offsets
        None for keys that are no integers of 4 or 8 bytes, for a share that crosses faster than it becomes narrow, and
        where the mean distance of keys says that most would not fit.
    """
    n, size = len(keys), keys.dtype.itemsize
    start = int(share[0] * n) // policy.NARROW_ROWS * policy.NARROW_ROWS
    stop = min(math.ceil(share[1] * n), n)
    if keys.dtype.kind not in "iu" or (stop - start) * size < policy.NARROW_LEAST or keys.data.ptr % 16:
        return None
    first, last = keys[:: n - 1].get().tolist()
    reach = abs(last - first) / n * policy.NARROW_ROWS
    width = next((w for w in (2, 4) if w < size and 2 * reach < 1 << 8 * w), None)
    if width is None:
        return None
    blocks = _blocks(start, stop)
    values, ends = cupy.empty(stop - start, f"u{width}"), cupy.empty(2 * blocks, keys.dtype)
    (kernel,) = kernels(FILE, (narrow_name("narrow", size, width, down),))
    kernel(blocks, policy.NARROW_THREADS, (keys, np.uint64(start), np.uint64(stop), values, ends))
    return Offsets(values, ends, start, stop, down)


def widen(known: Offsets, first: int, keys: Any, begin: int, out: Any) -> None:
    """Make keys of offsets that were copied here.

    Parameters
    ----------
    known
        Offsets and ends; in memory of this GPU some of the offsets, from row `first` on.
    first
        A multiple of `policy.NARROW_ITEMS`.
    keys
        The run as it lies on the other GPU.
    begin
        The first row that is wanted, another such multiple.
    out
        Where they go: contiguous, of the dtype of the run, at a multiple of 16 bytes.
    """
    widener = Widener(known, keys.dtype.itemsize, keys.data.ptr, known.ends.data.ptr)
    rows = (first, first + len(known.values), begin, begin + len(out))
    widener(known.values.data.ptr, out.data.ptr, *rows)


class Widener:
    """Makes keys of the copied offsets of one run, stretch by stretch; all memory is told by its address.

    Parameters
    ----------
    known
        What the owner says of its offsets.
    size
        Bytes of a key.
    keys, ends
        The run as it lies on the other GPU; the ends of all its blocks, copied.
    """

    def __init__(self, known: Offsets, size: int, keys: int, ends: int) -> None:
        name = narrow_name("widen", size, known.values.dtype.itemsize, known.down)
        (self._kernel,) = kernels(FILE, (name,))
        self._keys, self._ends, self._base = np.uint64(keys), np.uint64(ends), np.uint64(known.start)

    def __call__(self, offsets: int, out: int, first: int, stop: int, begin: int, end: int) -> None:
        """Write rows ``[begin, end)`` to `out`, of which offsets of ``[first, stop)`` are there."""
        copied, wanted = map(np.uint64, (offsets, first, stop)), map(np.uint64, (begin, end, out))
        arguments = (self._keys, *copied, self._ends, self._base, *wanted)
        self._kernel(_blocks(begin, end), policy.NARROW_THREADS, arguments)


def _blocks(start: int, stop: int) -> int:
    """Return how many blocks of rows ``[start, stop)`` touches."""
    return (stop - 1) // policy.NARROW_ROWS - start // policy.NARROW_ROWS + 1
