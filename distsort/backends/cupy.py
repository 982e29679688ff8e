"""The cupy backend: sorts on a GPU with the kernels of this project.

    column on the device  -->  bits as they are; the kernels encode on their first load
    column on the host    -->  encoded there (distsort.keys), words go up, positions come back
    several keys or words -->  stable passes from the least significant word to the most (a cascade)

Rules for equal, null and special values are those of `distsort.keys`: the result is that of the numpy backend, bit for
bit. The stream that a result was made on is synchronised before it is returned, so that another thread, stream or
process may read it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from distsort import blocks
from distsort.backends import cupy_merge, cupy_radix, cupy_rows
from distsort.backends.cupy_keys import Coded, device_columns
from distsort.backends.cupy_radix import cascade
from distsort.kernels import policy
from distsort.order import Order, array_order

Array = Any


class CupyBackend:
    """See `distsort.backends.base.Backend`. Blocks may lie on the device (cupy, cudf) or the host (numpy, pandas)."""

    name = "cupy"

    def argsort(self, columns: Sequence[Any], order: Order) -> Any:
        """See `Backend`; positions are int64, on the side where the columns are."""
        return _beside(columns, cascade(device_columns(columns, order), len(columns[0])))

    def merge_order(
        self, columns: Sequence[Any], bounds: Sequence[int] | npt.NDArray[np.integer[Any]], order: Order
    ) -> Any:
        """See `Backend`; positions are int64, on the side where the columns are."""
        coded = device_columns(columns, order)
        return _beside(columns, cupy_merge.merge_order(coded, np.asarray(bounds, np.int64)))

    def sort(self, values: Array, descending: bool) -> Array:
        """See `Backend`."""
        if not blocks.on_device(values) or values.dtype.kind not in "buif":
            return blocks.take(values, self.argsort((values,), array_order(descending)))
        flat = cupy.ascontiguousarray(values)
        kind, size = flat.dtype.kind, flat.dtype.itemsize
        if 0 < flat.size <= ROW_ALONE and cupy_rows.fits(flat.dtype, flat.size, index=False):
            return _synchronised(cupy_rows.sort_rows(flat[None], descending)[0])
        return _synchronised(cupy_radix.sort_keys(flat, policy.codec(kind, size, descending)))

    def merge(self, runs: Sequence[Array], descending: bool) -> Array:
        """See `Backend`."""
        if blocks.on_device(runs[0]) and runs[0].dtype.kind in "buif":
            return _synchronised(cupy_merge.merge([cupy.ascontiguousarray(run) for run in runs], descending))
        whole = blocks.concat(list(runs))
        bounds = np.cumsum([0, *map(len, runs)])
        return blocks.take(whole, self.merge_order((whole,), bounds, array_order(descending)))

    def sort_lines(self, values: Array, descending: bool) -> Array:
        """See `Backend`."""
        if blocks.on_device(values) and cupy_rows.fits(values.dtype, values.shape[1], index=False):
            return _synchronised(cupy_rows.sort_rows(cupy.ascontiguousarray(values), descending))
        library = cupy if blocks.on_device(values) else np
        return library.take_along_axis(values, self.argsort_lines(values, descending), axis=-1)

    def argsort_lines(self, values: Array, descending: bool) -> Any:
        """See `Backend`; int64, on the side where the values are."""
        here = blocks.on_device(values)
        library = cupy if here else np
        lines, n = values.shape
        if here and cupy_rows.fits(values.dtype, n, index=True):
            return _synchronised(cupy_rows.argsort_rows(cupy.ascontiguousarray(values), descending))
        if lines == 0 or n == 0:
            return library.empty((lines, n), np.int64)
        if lines <= LINES_ALONE:
            order = array_order(descending)
            return library.stack([self.argsort((library.ascontiguousarray(line),), order) for line in values])
        # one sort of all values: the number of the line is one more key, in front
        line = library.repeat(library.arange(lines, dtype=np.uint32), n)
        words = device_columns((library.ascontiguousarray(values).ravel(),), array_order(descending))
        number = Coded(cupy.asarray(line), policy.codec("u", 4))
        order = cascade([number, *words], lines * n).reshape(lines, n)
        order -= cupy.arange(0, lines * n, n, dtype=np.int64)[:, None]
        return _beside((values,), order)


# Up to so many values one block is the fastest sort.
ROW_ALONE = 4096
# So few long lines are sorted one after the other.
LINES_ALONE = 16


def _synchronised(result: Any) -> Any:
    cupy.cuda.get_current_stream().synchronize()
    return result


def _beside(columns: Sequence[Any], index: Any) -> Any:
    """Return the index on the side where the columns are."""
    if blocks.on_device(columns[0]):
        return _synchronised(index)
    return index.get()


def warm_up() -> float:
    """Compile and load the kernels of the common sorts on the current device; return the seconds it took."""
    start = time.perf_counter()
    for name in ("i4", "i8", "f4", "f8"):
        kind, size = name[0], int(name[1])
        for n in WARM_SIZES:
            keys = cupy.arange(n, dtype=name)
            cupy_radix.sort_keys(keys, policy.codec(kind, size))
            cupy_radix.argsort_keys(keys, policy.codec(kind, size, unified=True))
    cupy.cuda.get_current_stream().synchronize()
    return time.perf_counter() - start


# One size for each row of the policy's tables that a chunk is likely to meet.
WARM_SIZES = (1 << 10, policy.SMALL_LIMIT + 1, 1 << 22)
