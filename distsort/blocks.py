"""One chunk or partition in memory: NumPy or cupy arrays, pandas or cudf frames and series, or a frame's bare columns.

Everything that must know which of these it holds stands here, so that the rooms above speak of rows only. A block of a
library that is not imported cannot exist, so its kind is read off the type's module and nothing is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from distsort import columns
from distsort.columns import Columns
from distsort.errors import InputError
from distsort.gather import take_array, take_pandas
from distsort.order import Order

Block = Any
Column = Any
Index = npt.NDArray[np.integer]


def library(block: Block) -> str:
    """Return "numpy", "cupy", "pandas", "cudf" or "columns"."""
    if isinstance(block, Columns):
        return "columns"
    root = _root(block)
    if root is None:
        raise InputError(
            f"a block of type {type(block).__qualname__} cannot be sorted: use NumPy, cupy, pandas or cudf blocks"
        )
    return root


def _root(block: Block) -> str | None:
    roots = (kind.__module__.partition(".")[0] for kind in type(block).__mro__)
    return next((root for root in roots if root in ("numpy", "cupy", "pandas", "cudf")), None)


def on_device(block: Block | Column) -> bool:
    """Whether the rows lie in GPU memory."""
    return _root(block.arrays[0] if isinstance(block, Columns) else block) in ("cupy", "cudf")


def is_frame(block: Block) -> bool:
    """Whether the block is a dataframe, pandas or cudf."""
    return hasattr(block, "columns")


def is_series(block: Block) -> bool:
    """Whether the block is a series, pandas or cudf."""
    return hasattr(block, "index") and not is_frame(block) and hasattr(block, "iloc")


def nbytes(block: Block) -> int:
    """Return the memory the rows take, in bytes; object values count as pointers."""
    if is_frame(block) and library(block) == "cudf":
        # Asked for all columns at once, cudf puts the answer on the device and waits until it can read it back.
        columns = sum(int(block[name].memory_usage(index=False)) for name in block.columns)
        return columns + int(block.index.memory_usage())
    if is_frame(block) or is_series(block):
        used = block.memory_usage(index=True, deep=False)
        return int(used.sum() if hasattr(used, "sum") else used)
    return int(block.nbytes)


def cut(block: Block, start: int, stop: int) -> Block:
    """Return rows ``[start, stop)`` as a view where the library can."""
    return block.iloc[start:stop] if hasattr(block, "iloc") else block[start:stop]


def take(block: Block, index: Any, labels: bool = True) -> Block:
    """Gather rows by position into a new block of the same kind.

    Parameters
    ----------
    block
        Any block.
    index
        Integer positions, on the device for device blocks.
    labels
        Whether the index of a frame or series is gathered too; if not, the result is labelled 0, 1, ...
    """
    kind = library(block)
    if kind == "numpy":
        return take_array(block, index) if block.ndim == 1 else block.take(index, axis=0)
    if kind == "pandas":
        return take_pandas(block, index, labels)
    taken = block.take(index) if kind in ("cupy", "columns") or not hasattr(block, "iloc") else block.iloc[index]
    return taken.reset_index(drop=True) if kind == "cudf" and not labels else taken


def concat(blocks: Sequence[Block], labels: bool = True) -> Block:
    """Put blocks one under the other, in order, with or without their labels; a single one is returned as it is."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    kind = library(first)
    if kind in ("numpy", "cupy"):
        return _join_arrays(blocks)
    if kind == "columns" and all(isinstance(b, Columns) for b in blocks):
        return columns.concat(blocks)
    blocks = [put_together(b) for b in blocks]
    filled = [b for b in blocks if len(b)] or blocks[:1]
    if len(filled) == 1:
        return filled[0]
    if all(_is_plain_column(b, filled[0]) for b in filled):
        return pd.concat(filled, ignore_index=not labels)
    # Dask knows what to do about categories, at the price of an import that takes longer than many a sort.
    from dask.dataframe.dispatch import concat as concat_frames

    whole = concat_frames(_agreed(filled) if kind == "pandas" else filled, ignore_index=not labels)
    if kind == "pandas":
        whole.attrs.update(first.attrs)
    return whole


def _is_plain_column(block: Block, first: Block) -> bool:
    """Whether a block is a series without attributes or categories, of the dtype of the first."""
    return (
        type(block) is pd.Series
        and type(block.index) in (pd.RangeIndex, pd.Index)
        and not isinstance(block.dtype, pd.CategoricalDtype)
        and block.dtype == first.dtype
        and not first.attrs
    )


def _join_arrays(arrays: Sequence[Any]) -> Any:
    masked = any(isinstance(a, np.ma.MaskedArray) for a in arrays)
    whole = np.ma.concatenate(arrays) if masked else np.concatenate(arrays)
    # NumPy makes the byte order that of the machine.
    dtype = arrays[0].dtype
    return whole.astype(dtype, copy=False) if all(a.dtype == dtype for a in arrays) else whole


def _agreed(frames: list[Block]) -> list[Block]:
    """Turn columns of Arrow strings back to objects where another block holds objects that are no strings."""
    if not is_frame(frames[0]):
        return frames
    dtypes = [list(f.dtypes) for f in frames]
    mixed = {
        i
        for i, column in enumerate(zip(*dtypes, strict=True))
        if any(d.kind == "O" and isinstance(d, np.dtype) for d in column)
        and any(isinstance(d, pd.StringDtype) for d in column)
    }
    return [_with_objects(f, [i for i in mixed if isinstance(f.dtypes.iloc[i], pd.StringDtype)]) for f in frames]


def _with_objects(frame: pd.DataFrame, columns: list[int]) -> pd.DataFrame:
    if not columns:
        return frame
    changed = frame.copy(deep=False)
    for i in columns:
        values = frame.iloc[:, i].to_numpy(dtype=object, na_value=None)
        changed.isetitem(i, pd.Series(values, index=frame.index, dtype=object))
    return changed


def in_one_piece(block: Block) -> Block:
    """Copy the chunks of Arrow columns, and no more of them than the block's rows, into one.

    To join Arrow columns copies nothing: the whole of what was joined stays. To gather rows puts the chunks together,
    but then they are there as well.
    """
    if library(block) != "pandas" or not is_frame(block):
        return block
    whole = block.copy(deep=False)
    for i, dtype in enumerate(block.dtypes):
        column = block.iloc[:, i].array
        if isinstance(column, pd.arrays.ArrowExtensionArray):
            chunks = column.__arrow_array__()
            # One alone would be handed back as it is.
            joined = pa.chunked_array([pa.concat_arrays([*chunks.chunks, pa.array([], chunks.type)])])
            made = type(column)(joined)
            if made.dtype != dtype:  # strings whose null is NaN
                made = type(column)(joined, dtype=dtype)
            whole.isetitem(i, pd.Series(made, index=whole.index, copy=False))
    return whole


def detached(block: Block) -> Block:
    """Copy rows that may be a view, so that what they are a view of can go."""
    if isinstance(block, Columns):
        return block.map(lambda column: column.copy())
    return in_one_piece(block.copy())


def concat_columns(columns: Sequence[Column]) -> Column:
    """Put key columns one under the other: arrays, series or indexes.

    Raises
    ------
    InputError
        Categorical columns whose categories or their order differ: their codes say different things.
    """
    first = columns[0]
    if len(columns) == 1:
        return first
    if all(isinstance(c, np.ndarray) for c in columns) or library(first) == "cupy":
        return _join_arrays(columns)
    if isinstance(first.dtype, pd.CategoricalDtype):
        _same_categories(columns)
    return concat([pd.Series(c) if isinstance(c, pd.Index | np.ndarray) else c for c in columns])


def _same_categories(columns: Sequence[Column]) -> None:
    listed = {tuple(c.dtype.categories) for c in columns if len(c)}
    if len(listed) > 1:
        raise InputError(
            f"the categories of {columns[0].name!r} differ between partitions, so they have no common order: "
            "give all the same with df[column].cat.set_categories(...), or cast the column to strings"
        )


def key_columns(block: Block, order: Order, key: Callable[[Any], Any] | None = None) -> tuple[Column, ...]:
    """Return the columns, index levels or values that an order names.

    Parameters
    ----------
    block
        Any block.
    order
        What to sort by; a key without a name means the values of an array or series.
    key
        Applied to each column, as pandas' ``key=`` is.

    Raises
    ------
    InputError
        `key` returned something of another length.
    """
    columns = tuple(_key_column(block, k.name) for k in order.keys)
    if key is None:
        return columns
    made = []
    for column, k in zip(columns, order.keys, strict=True):
        result = key(column)
        if not hasattr(result, "__len__") or len(result) != len(column):
            raise InputError(f"key= must return one value a row: for {k.name!r} it did not")
        made.append(result if hasattr(result, "dtype") else pd.Series(result))
    return tuple(made)


def _key_column(block: Block, name: Hashable) -> Column:
    if isinstance(block, Columns):
        return block.column(name)
    if is_frame(block):
        if name in block.columns:
            return block[name]
        return block.index.get_level_values(name)
    if is_series(block) and name is not None:
        return block.index.get_level_values(name)
    return block[name] if getattr(block.dtype, "names", None) else block


def pick_keys(block: Block, positions: Any, order: Order) -> Block:
    """Gather the key columns, with the index, by position; the other columns stay behind."""
    if isinstance(block, Columns):
        block = block.only(k.name for k in order.keys)
    elif is_frame(block):
        block = block[[k.name for k in order.keys if k.name in block.columns]]
    return take(block, positions)


def bare_values(block: Block, order: Order) -> Any:
    """Return the values of a frame or series that has nothing but its key, as an array; None for any other.

    Such rows need no order and no gather: they are sorted as an array is. Integers and floats without nulls beside NaN,
    and NaN at the end, which is the rule of arrays.
    """
    column = block
    if isinstance(block, Columns):
        column = block.arrays[0] if len(block.arrays) == 1 else None
    elif is_frame(block):
        column = block.iloc[:, 0] if block.shape[1] == 1 and order.keys[0].name == block.columns[0] else None
    elif order.keys[0].name is not None:
        return None
    if column is None or len(order) != 1 or not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "iuf":
        return None
    if (column.dtype.kind == "f" and order.keys[0].nulls_first) or library(column) == "cudf":
        return None
    return column.to_numpy(copy=False) if library(column) == "pandas" else column


def with_values(block: Block, values: Any) -> Block:
    """Return a block of one column like `block`, holding other values, labelled 0, 1, ..."""
    if isinstance(block, Columns):
        return block.map(lambda _: values)
    if is_series(block):
        return type(block)(values, name=block.name)
    made = type(block)({0: values})
    made.columns = block.columns
    made.attrs.update(block.attrs)
    return made


def take_apart(block: Block, labels: bool) -> Block:
    """Return the bare columns of a cudf block, with the labels of its index or without; any other block as it is."""
    apart = columns.take_apart(block, labels) if library(block) == "cudf" else None
    return block if apart is None else apart


def put_together(block: Block) -> Block:
    """Return the frame or series that bare columns make; any other block as it is."""
    return block.to_frame() if isinstance(block, Columns) else block


def with_running_index(block: Block, first: int) -> Block:
    """Return the rows under the index first, first + 1, ..."""
    if library(block) == "pandas":
        fresh = block.copy(deep=False)
        fresh.index = pd.RangeIndex(first, first + len(block))
        return fresh
    import cudf

    fresh = block.copy(deep=False)
    fresh.index = cudf.RangeIndex(first, first + len(block))
    return fresh


def conform(block: Block, meta: Block) -> Block:
    """Give all-null columns of a pandas block the dtype that the collection's meta promises.

    One partition whose column is all None would otherwise turn the whole column into objects.
    """
    if not (is_frame(block) and library(block) == "pandas") or len(block) == 0:
        return block
    changes = {
        name: meta.dtypes.iloc[i]
        for i, name in enumerate(block.columns)
        if i < len(meta.dtypes)
        and block.dtypes.iloc[i] != meta.dtypes.iloc[i]
        and block.dtypes.iloc[i].kind == "O"
        and meta.dtypes.iloc[i].kind not in "iub"
        and block.iloc[:, i].isna().all()
    }
    return block.astype(changes) if changes and block.columns.is_unique else block


def to_host(column: Column) -> Column:
    """Bring a key column to host memory: cupy to NumPy, cudf to pandas."""
    kind = library(column)
    if kind == "cupy":
        return column.get()
    if kind != "cudf":
        return column
    # Integers beside nulls would become floats, which cannot tell large ones apart.
    return column.to_pandas(nullable=True) if column.dtype.kind in "iu" and column.hasnans else column.to_pandas()
