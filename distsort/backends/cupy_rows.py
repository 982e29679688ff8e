"""Sort and argsort along the last axis of two-dimensional arrays on a GPU: many short rows, or one.

    row of n keys     n <= 256: 1 to 32 lanes of a warp      n <= 8192: a block      longer: not here

One launch for all rows, no memory but the result. A single row of up to some thousand keys is a small array, and one
launch is the fastest sort for it. The kernels and how they keep NumPy's rules for floats: kernels/row_sort.cu.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from distsort.kernels import policy
from distsort.kernels.loader import kernels

FILE = "row_sort.cu"
_UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
_CODEC = np.dtype((np.void, 40))  # struct Codec of keys.cuh


def fits(dtype: np.dtype[Any], n: int, index: bool) -> bool:
    """Return whether rows of n values can be sorted here.

    Parameters
    ----------
    dtype
        Bool, integer or float of 1, 2, 4 or 8 bytes; others do not fit.
    n
        Length of a row.
    index
        Whether positions are wanted.
    """
    known = dtype.kind in "buif" and dtype.itemsize in _UNSIGNED
    return known and policy.row_shape(dtype.itemsize, index, n) is not None


def sort_rows(values: Any, descending: bool = False, out: Any = None) -> Any:
    """Return the values with each row sorted.

    Parameters
    ----------
    values
        C-contiguous cupy array of shape (rows, n) that `fits`.
    descending
        Largest first; NaN stays last.
    out
        Where to put the result, C-contiguous, of the same shape and dtype; may be `values`. None: a new array.

    Returns
    -------
    out
        Bits as of ``take_along_axis(values, argsort_rows(values))``.
    """
    import cupy

    out = cupy.empty_like(values) if out is None else out
    _launch(values, out, None, policy.codec(values.dtype.kind, values.dtype.itemsize, descending))
    return out


def argsort_rows(values: Any, descending: bool = False) -> Any:
    """Return the stable order of each row.

    Parameters
    ----------
    values
        C-contiguous cupy array of shape (rows, n) that `fits`.
    descending
        Largest first, ties still in input order; NaN stays last.

    Returns
    -------
    columns
        int64, shape (rows, n).
    """
    import cupy

    columns = cupy.empty(values.shape, np.int64)
    _launch(values, None, columns, policy.codec(values.dtype.kind, values.dtype.itemsize, descending, unified=True))
    return columns


def _launch(values: Any, out: Any, columns: Any, codec: policy.Codec) -> None:
    rows, n = values.shape
    if rows == 0 or n == 0:
        return
    index = columns is not None
    shape = policy.row_shape(values.dtype.itemsize, index, n, rows)
    if shape is None:
        raise ValueError(f"rows of {n} values of {values.dtype} do not fit one block")
    words = [codec.negative, codec.flip, codec.lift, codec.infinity, codec.nan]
    coded = np.array(words, np.uint64).view(_CODEC)
    (kernel,) = kernels(FILE, (kernel_name(values.dtype.itemsize, index, shape),))
    if shape.lanes:
        blocks = -(-rows * shape.lanes // shape.threads)
        kernel(
            blocks, shape.threads, (values, out, columns, np.uint64(rows), np.uint32(n), np.uint32(shape.lanes), coded)
        )
    else:
        kernel(rows, shape.threads, (values, out, columns, np.uint32(n), coded), shape.shared)


@functools.cache
def kernel_name(word: int, index: bool, shape: policy.RowShape) -> str:
    """Return the instantiation that sorts rows of words of that many bytes."""
    name = "sort_rows_by_lanes" if shape.lanes else "sort_rows_by_block"
    return f"{name}<{_UNSIGNED[word]}, {str(index).lower()}, {shape.items}, {shape.most_threads}>"
