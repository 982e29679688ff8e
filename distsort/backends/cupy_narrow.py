"""Sorted integers as offsets: what crosses to another GPU in the place of the keys, where they are dense.

owner     keys --narrow--> offsets of 2 or 4 bytes, of the share of the run that a reader will want
reader    offsets are copied; --widen--> keys, with what does not fit an offset read over the link (merge_narrow.cu)
"""

from __future__ import annotations

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
    start, stop
        Rows; start is a multiple of `policy.NARROW_ROWS`.
    down
        Whether the run descends.
    """

    values: Any
    start: int
    stop: int
    down: bool


def narrow(keys: Any, down: bool, share: tuple[float, float]) -> Offsets | None:
    """Return the offsets of a share of a run.

    Parameters
    ----------
    keys
        Contiguous cupy array, shape (n,), in order.
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
    stop = min(-int(-share[1] * n // 1), n)
    if keys.dtype.kind not in "iu" or (stop - start) * size < policy.NARROW_LEAST:
        return None
    reach = abs(int(keys[-1]) - int(keys[0])) / n * policy.NARROW_ROWS
    width = next((w for w in (2, 4) if w < size and 2 * reach < 1 << 8 * w), None)
    if width is None:
        return None
    values = cupy.empty(stop - start, f"u{width}")
    (kernel,) = kernels(FILE, (narrow_name("narrow", size, width, down),))
    kernel(_blocks(start, stop), policy.NARROW_THREADS, (keys, np.uint64(start), np.uint64(stop), values))
    return Offsets(values, start, stop, down)


def widen(known: Offsets, copied: Any, first: int, keys: Any, n: int, rows: tuple[int, int], out: Any) -> None:
    """Make keys of offsets that were copied here.

    Parameters
    ----------
    known
        What the owner says of its offsets.
    copied, first
        Some of them, in memory of this GPU, and the row of the first.
    keys, n
        The run as it lies on the other GPU, and how many rows it has.
    rows
        ``[from, to)``, the rows that are wanted.
    out
        Where they go: contiguous, the dtype of the run, shape (to - from,).
    """
    size, width = keys.dtype.itemsize, copied.dtype.itemsize
    (kernel,) = kernels(FILE, (narrow_name("widen", size, width, known.down),))
    arguments = (keys, np.uint64(n), copied, *map(np.uint64, (first, first + len(copied), *rows)), out)
    kernel(_blocks(*rows), policy.NARROW_THREADS, arguments)


def _blocks(start: int, stop: int) -> int:
    """Return how many blocks of rows ``[start, stop)`` touches."""
    return (stop - 1) // policy.NARROW_ROWS - start // policy.NARROW_ROWS + 1
