"""One chunk or partition in memory: NumPy or cupy arrays, pandas or cudf frames and series.

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
import pyarrow.compute as pc

from distsort.errors import InputError
from distsort.order import Order

Block = Any
Column = Any
Index = npt.NDArray[np.integer]

# pyarrow gathers these faster than NumPy does, and its result buffer can be handed on writable.
_ARROW_TAKES = frozenset("iuf")
_ARROW_TAKES_FROM = 1 << 15


def library(block: Block) -> str:
    """Return "numpy", "cupy", "pandas" or "cudf"."""
    for kind in type(block).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("numpy", "cupy", "pandas", "cudf"):
            return root
    raise InputError(
        f"a block of type {type(block).__qualname__} cannot be sorted: use NumPy, cupy, pandas or cudf blocks"
    )


def on_device(block: Block) -> bool:
    """Whether the rows lie in GPU memory."""
    return library(block) in ("cupy", "cudf")


def is_frame(block: Block) -> bool:
    """Whether the block is a dataframe, pandas or cudf."""
    return hasattr(block, "columns")


def is_series(block: Block) -> bool:
    """Whether the block is a series, pandas or cudf."""
    return hasattr(block, "index") and not is_frame(block) and hasattr(block, "iloc")


def nbytes(block: Block) -> int:
    """Return the memory the rows take, in bytes; object values count as pointers."""
    if is_frame(block) or is_series(block):
        used = block.memory_usage(index=True, deep=False)
        return int(used.sum() if hasattr(used, "sum") else used)
    return int(block.nbytes)


def cut(block: Block, start: int, stop: int) -> Block:
    """Return rows ``[start, stop)`` as a view where the library can."""
    return block.iloc[start:stop] if hasattr(block, "iloc") else block[start:stop]


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
        return _take_pandas(block, index, labels)
    if kind == "cudf" and not labels:
        return _take_cudf(block, index)
    if kind == "cupy" or not hasattr(block, "iloc"):
        return block.take(index)
    return block.iloc[index]


def _take_cudf(block: Block, index: Any) -> Block:
    import cudf

    def gathered(column: Any) -> Any:
        if column.dtype.kind in "iuf" and not column.has_nulls:
            return cudf.Series(column.values.take(index))
        return column.iloc[index].reset_index(drop=True)

    if is_series(block):
        return gathered(block).rename(block.name)
    taken = cudf.DataFrame({i: gathered(block.iloc[:, i]) for i in range(block.shape[1])})
    taken.columns = block.columns
    return taken


def _take_pandas(block: Block, index: Index, labels: bool) -> Block:
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


def concat(blocks: Sequence[Block], labels: bool = True) -> Block:
    """Put blocks one under the other, in order, with or without their labels; a single one is returned as it is."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    kind = library(first)
    if kind in ("numpy", "cupy"):
        return _join_arrays(blocks)
    from dask.dataframe.dispatch import concat as concat_frames

    filled = [b for b in blocks if len(b)] or [first]
    if len(filled) == 1:
        return filled[0]
    whole = concat_frames(_agreed(filled) if kind == "pandas" else filled, ignore_index=not labels)
    if kind == "pandas":
        whole.attrs.update(first.attrs)
    return whole


def _join_arrays(arrays: Sequence[Any]) -> Any:
    masked = any(isinstance(a, np.ma.MaskedArray) for a in arrays)
    return np.ma.concatenate(arrays) if masked else np.concatenate(arrays)


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
    if isinstance(first, np.ndarray) or library(first) == "cupy":
        return _join_arrays(columns)
    if isinstance(first.dtype, pd.CategoricalDtype):
        _same_categories(columns)
    return concat([pd.Series(c) if isinstance(c, pd.Index) else c for c in columns])


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
    if is_frame(block):
        if name in block.columns:
            return block[name]
        return block.index.get_level_values(name)
    if is_series(block) and name is not None:
        return block.index.get_level_values(name)
    return block[name] if getattr(block.dtype, "names", None) else block


def pick_keys(block: Block, positions: Any, order: Order) -> Block:
    """Gather the key columns, with the index, by position; the other columns stay behind."""
    if is_frame(block):
        block = block[[k.name for k in order.keys if k.name in block.columns]]
    return take(block, positions)


def bare_values(block: Block, order: Order) -> Any:
    """Return the values of a frame or series that has nothing but its key, as an array; None for any other.

    Such rows need no order and no gather: they are sorted as an array is. Integers and floats without nulls beside NaN,
    and NaN at the end, which is the rule of arrays.
    """
    column = block
    if is_frame(block):
        if block.shape[1] != 1 or order.keys[0].name != block.columns[0]:
            return None
        column = block.iloc[:, 0]
    elif not is_series(block) or order.keys[0].name is not None:
        return None
    if len(order) != 1 or not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "iuf":
        return None
    if column.dtype.kind == "f" and order.keys[0].nulls_first:
        return None
    if library(block) == "cudf":
        return None if column.has_nulls else column.values
    return column.to_numpy(copy=False)


def with_values(block: Block, values: Any) -> Block:
    """Return a frame or series of one column like `block`, holding other values, labelled 0, 1, ..."""
    if is_series(block):
        return type(block)(values, name=block.name)
    made = type(block)({0: values})
    made.columns = block.columns
    if library(block) == "pandas":
        made.attrs.update(block.attrs)
    return made


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
    return column.to_pandas() if kind == "cudf" else column
