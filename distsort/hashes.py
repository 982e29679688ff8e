"""Hashes of the rows of arrays and dataframes: their sums tell whether two collections hold the same rows.

A hash is that of one row alone: in whatever block a row stands, and beside whatever others, it is the same. So how a
column is hashed depends on its type and never on what the block holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from distsort import blocks
from distsort.io import checksum

Words = npt.NDArray[np.uint64]


def row_hashes(block: Any, with_index: bool = True) -> Words:
    """Hash every row by its bits.

    Parameters
    ----------
    block
        An array, frame or series.
    with_index
        Whether the labels of a frame or series count.

    Returns
    -------
    uint64, shape (n,)
    """
    host = blocks.to_host(block)
    if isinstance(host, np.ndarray):
        return _hash_array(host)
    columns = [host] if blocks.is_series(host) else [host.iloc[:, i] for i in range(host.shape[1])]
    if with_index:
        columns += [host.index.get_level_values(i) for i in range(host.index.nlevels)]
    total = np.zeros(len(host), dtype=np.uint64)
    for column in columns:
        total = _mix(total + _hash_column(column))
    return total


def _mix(x: Words) -> Words:
    """Scatter bits (the finalizer of splitmix64; Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _hash_array(values: npt.NDArray[Any]) -> Words:
    flat = np.ascontiguousarray(values).ravel()
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    if flat.dtype.kind in "iufbmMc" and flat.dtype.itemsize <= 16:
        size = flat.dtype.itemsize
        if size == 16:
            halves = flat.view(np.uint64).reshape(-1, 2)
            return _mix(_mix(halves[:, 0] + np.uint64(1)) + halves[:, 1])
        return _mix(flat.view(f"u{size}").astype(np.uint64) + np.uint64(1))
    return _hash_objects(flat.astype(object))


def _hash_column(column: Any) -> Words:
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return _hash_array(column.to_numpy())
    if isinstance(dtype, pd.ArrowDtype):
        values = pa.array(column.array)
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return checksum.row_hashes(pa.record_batch([whole], ["column"]))
    if isinstance(dtype, pd.CategoricalDtype):
        known = np.append(_hash_column(dtype.categories), checksum.NULL)
        return known[np.asarray(column.array.codes)]
    if isinstance(dtype, (pd.StringDtype, pd.IntervalDtype, pd.SparseDtype)):
        return _hash_objects(column.to_numpy(dtype=object))
    return pd.util.hash_array(column.array, categorize=False)


def _hash_objects(values: npt.NDArray[np.object_]) -> Words:
    texts = np.empty(len(values), object)
    texts[:] = [value if isinstance(value, str) else _text(value) for value in values]
    return pd.util.hash_array(texts, categorize=False)


def _text(value: Any) -> str:
    """Write all of a value that is no string, so that it is none; what contains others with all of them."""
    if isinstance(value, np.ndarray):
        whole = _text(value.tolist()) if value.dtype.hasobject else value.tobytes().hex()
        return f"\0{value.dtype}{value.shape}{whole}"
    if isinstance(value, dict):
        return f"\0{{{','.join(f'{_inner(k)}:{_inner(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"\0{type(value).__name__}({','.join(map(_inner, value))})"
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "\0null"
    return f"\0{type(value).__name__} {value!r}"


def _inner(value: Any) -> str:
    return repr(value) if isinstance(value, str) else _text(value)
