"""Gathering rows of NumPy arrays and of pandas frames by position, the fastest way for each dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

Index = npt.NDArray[np.integer]

# pyarrow gathers these faster than NumPy does, and its result buffer can be handed on writable.
_ARROW_TAKES = frozenset("iuf")
_ARROW_TAKES_FROM = 1 << 15


def take_array(values: npt.NDArray[Any], index: Index) -> npt.NDArray[Any]:
    """Gather rows of a 1-D array into a new writable array; the fastest way for each dtype."""
    dtype = values.dtype
    if dtype.names:
        # Whole rows, whatever their fields are.
        return values.view(f"V{dtype.itemsize}").take(index).view(dtype)
    if (
        len(index) < _ARROW_TAKES_FROM
        or isinstance(values, np.ma.MaskedArray)
        or not dtype.isnative
        or not values.flags.c_contiguous
    ):
        return values.take(index)
    if dtype.kind in "mM":
        return take_array(values.view(np.int64), index).view(dtype)
    if dtype.kind not in _ARROW_TAKES or dtype.itemsize not in (1, 2, 4, 8) or dtype == np.float16:
        return values.take(index)
    taken = pc.take(pa.array(values), pa.array(index), boundscheck=False)
    return np.frombuffer(taken.buffers()[1], dtype=dtype, count=len(taken))


def take_pandas(block: Any, index: Index, labels: bool) -> Any:
    """Gather rows of a frame or series into a new one, with their labels or numbered 0, 1, ..."""
    if type(block) is pd.Series:
        taken = pd.Series(_take_column(block, index), name=block.name, dtype=block.dtype, copy=False)
    elif type(block) is pd.DataFrame:
        columns = {i: _take_column(block.iloc[:, i], index) for i in range(block.shape[1])}
        taken = pd.DataFrame(columns, index=pd.RangeIndex(len(index)), copy=False)
        taken.columns = block.columns
    else:
        return block.take(index)
    if labels:
        taken.index = _take_index(block.index, index)
    taken.attrs.update(block.attrs)
    taken.flags.allows_duplicate_labels = block.flags.allows_duplicate_labels
    return taken


def _take_column(column: pd.Series, index: Index) -> Any:
    values = column.array
    if column.dtype.kind == "O" and isinstance(column.dtype, np.dtype):
        # A bare array of objects would have its dtype inferred anew.
        return pd.Series(column.to_numpy(copy=False).take(index), dtype=object, copy=False)
    if isinstance(column.dtype, np.dtype):
        return take_array(column.to_numpy(copy=False), index)
    return values.take(index)


def _take_index(labels: pd.Index, index: Index) -> pd.Index:
    if type(labels) is pd.Index and isinstance(labels.dtype, np.dtype) and labels.dtype != object:
        return pd.Index(take_array(labels.to_numpy(copy=False), index), name=labels.name, copy=False)
    return labels.take(index)
