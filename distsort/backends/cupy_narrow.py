"""Sorted integers as offsets: what crosses to another GPU in the place of the keys, where they are dense.

owner     keys --narrow--> offsets of 2 or 4 bytes, of the share of the run that a reader will want (merge_narrow.cu)
reader    offsets are copied; the merge makes keys of them, and reads what does not fit one over the link (narrow.cuh);
          stretches for the most part without offsets are copied as keys (cupy_copies)
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from distsort.kernels import policy
from distsort.kernels.instances import narrow_name
from distsort.kernels.loader import kernels

FILE = "merge_narrow.cu"

STEPS = 64
"""Steps through a run by which its density is told."""


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


def width_of(keys: Any, share: tuple[float, float]) -> int | None:
    """Return the bytes of an offset for a share of a run.

    Parameters
    ----------
    keys
        Contiguous cupy array, shape (n,), in order.
    share
        Where the share begins and ends, of the whole run; 0 to 1.

    Returns
    -------
    int
        2 or 4. None for keys that are no integers of 4 or 8 bytes, for a share that crosses faster than it becomes
        narrow, and where keys are far apart: twice the mean distance in the widest of some steps through the run must
        fit, so that no more blocks can do without offsets than offsets save.
    """
    size, (start, stop) = keys.dtype.itemsize, _rows(keys, share)
    if keys.dtype.kind not in "iu" or (stop - start) * size < policy.NARROW_LEAST or keys.data.ptr % 16:
        return None
    step = max((len(keys) - 1) // STEPS, 1)  # the last step ends where the run does, but for some rows
    seen = keys[::step].get().tolist()
    widest = max(abs(b - a) for a, b in itertools.pairwise(seen))
    return next((w for w in (2, 4) if w < size and 2 * widest * policy.NARROW_ROWS < step << 8 * w), None)


def offsets_for(keys: Any, down: bool, share: tuple[float, float], width: int) -> Offsets:
    """Return memory for the offsets of a share of a run, which `narrow` fills.

    Parameters
    ----------
    keys, share
        As of `width_of`; keys are the beginning of an allocation.
    down
        Whether the run descends.
    width
        Bytes of an offset.
    """
    start, stop = _rows(keys, share)
    values, ends = cupy.empty(stop - start, f"u{width}"), cupy.empty(2 * _blocks(start, stop), keys.dtype)
    return Offsets(values, ends, start, stop, down)


def narrow(keys: Any, known: Offsets) -> None:
    """Fill the offsets of a run, on the current stream."""
    name = narrow_name(keys.dtype.itemsize, known.values.dtype.itemsize, known.down)
    (kernel,) = kernels(FILE, (name,))
    rows = map(np.uint64, (known.start, known.stop))
    kernel(len(known.ends) // 2, policy.NARROW_THREADS, (keys, *rows, known.values, known.ends))


def _rows(keys: Any, share: tuple[float, float]) -> tuple[int, int]:
    """Return first and last row of a share, in whole blocks from the first on."""
    n = len(keys)
    start = int(share[0] * n) // policy.NARROW_ROWS * policy.NARROW_ROWS
    return start, min(math.ceil(share[1] * n), n)


def _blocks(start: int, stop: int) -> int:
    """Return how many blocks of rows ``[start, stop)`` touches."""
    return (stop - 1) // policy.NARROW_ROWS - start // policy.NARROW_ROWS + 1
