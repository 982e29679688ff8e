"""Blocks of the device that are kept in host memory, and brought back: cupy as NumPy, cudf as pandas."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import pandas as pd
import pyarrow as pa

from distsort import blocks
from distsort.backends.cupy_ipc import to_host
from distsort.blocks import Block
from distsort.columns import Columns
from distsort.device_memory import device_work

DTYPES = "distsort dtypes"
"""Where pandas keeps, by the names of columns, what their dtypes were in cudf; slices have it too."""


def park(block: Block) -> Block:
    """Copy a block from the device to the host: cupy to NumPy in pinned memory, cudf to pandas with Arrow's types."""
    if isinstance(block, Columns):
        return block.map(park)
    if blocks.is_series(block):
        return _parked(block)
    if blocks.is_frame(block):
        columns = [_parked(block.iloc[:, i]) for i in range(block.shape[1])]
        arrays = {i: column.array for i, column in enumerate(columns)}
        made = pd.DataFrame(arrays, index=block.index.to_pandas(), copy=False)
        made.columns = block.columns
        made.attrs[DTYPES] = {name: dtype for column in columns for name, dtype in column.attrs[DTYPES].items()}
        return made
    if blocks.library(block) == "cudf":
        return block.to_pandas()
    flat = cupy.ascontiguousarray(block)
    (host,) = to_host([flat.reshape(-1).view(np.uint8)])
    return host.view(flat.dtype).reshape(flat.shape)


def _parked(column: Any) -> Any:
    """Copy a cudf series to the host; categories have no Arrow type in pandas, and need none to keep their nulls."""
    category = str(column.dtype) == "category"
    made = column.to_pandas(arrow_type=not category)
    made.attrs[DTYPES] = {} if category else {column.name: column.dtype}
    return made


def unpark(block: Block) -> Block:
    """Copy a parked block, or a slice of one, back to the device."""
    if isinstance(block, Columns):
        return block.map(unpark)
    if isinstance(block, np.ndarray):
        with device_work(True):
            return cupy.asarray(block)
    import cudf

    if isinstance(block, pd.Index):
        return cudf.from_pandas(block)
    # By way of an Arrow table, which has no say in dtypes: cudf would keep those that pandas calls Arrow's.
    series = blocks.is_series(block)
    columns = [block] if series else [block.iloc[:, i] for i in range(block.shape[1])]
    if series or columns:
        names = [str(i) for i in range(len(columns))]
        made = cudf.DataFrame.from_arrow(pa.Table.from_arrays([pa.array(c) for c in columns], names=names))
    else:
        made = cudf.DataFrame(index=range(len(block)))
    kept = block.attrs.get(DTYPES, {})
    for at, name in enumerate([block.name] if series else block.columns):
        dtype = kept.get(name)
        if dtype is not None and made[str(at)].dtype != dtype:
            made[str(at)] = made[str(at)].astype(dtype)
    made.index = cudf.from_pandas(block.index)
    if series:
        return made["0"].rename(block.name)
    made.columns = block.columns
    return made
