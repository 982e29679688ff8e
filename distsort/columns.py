"""Rows of a cudf frame as bare arrays: what a sort holds between its input and its result.

cudf answers each question about a frame with allocations and checks of its own: to gather some rows writes the whole
index first, and to make a column of floats turns NaN into nulls. A sort asks hundreds of such questions, so a frame of
plain columns is taken apart once, and put together once for each part, without a copy either time::

    cudf frame  -->  Columns  --> sorted, spilled, sent, cut, merged -->  Columns  -->  cudf frame

Plain are booleans, integers and floats without nulls. Frames with other columns stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

Array = Any


@dataclass(frozen=True)
class Frame:
    """What is needed to make a frame of arrays again.

    Attributes
    ----------
    names
        Labels of the columns; of a series its name alone.
    series
        Whether it is a series.
    index
        The name of the index in a tuple of one, where the last array holds its labels; None where rows are numbered.
    """

    names: pd.Index
    series: bool
    index: tuple[Hashable] | None


@dataclass(frozen=True)
class Columns:
    """A block of arrays of equal length, cupy's on the device or NumPy's on the host.

    Attributes
    ----------
    arrays
        The columns, then the labels of the index where they are kept; shape (n,) each.
    frame
        What they make.
    """

    arrays: tuple[Array, ...]
    frame: Frame

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, rows: slice) -> Columns:
        return self.map(lambda array: array[rows])

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        return sum(int(array.nbytes) for array in self.arrays)

    def map(self, function: Callable[[Array], Array]) -> Columns:
        """Return the results of a function for each array."""
        return Columns(tuple(map(function, self.arrays)), self.frame)

    def column(self, name: Hashable) -> Array:
        """Return the array of a column, or of the index; None names the values of a series."""
        if not self.frame.series and name in self.frame.names:
            return self.arrays[self.frame.names.get_loc(name)]
        return self.arrays[0 if name is None else -1]

    def only(self, names: Iterable[Hashable]) -> Columns:
        """Return the arrays that are named, each once."""
        wanted = dict.fromkeys(names)
        arrays = tuple(self.column(name) for name in wanted)
        return Columns(arrays, Frame(pd.Index(list(wanted), dtype=object), False, None))

    def take(self, index: Any) -> Columns:
        """Gather rows by position, on the side where the arrays are."""
        return self.map(lambda array: array.take(index))

    def to_frame(self) -> Any:
        """Return the cudf frame or series; it shares the arrays' memory.

        Columns are made of memory as it is: by way of an array, cudf would turn NaN into nulls.
        """
        import cudf
        import pylibcudf

        frame, n = self.frame, len(self)
        made = [pylibcudf.Column.from_cuda_array_interface(array) for array in self.arrays]
        index = cudf.RangeIndex(n)
        if frame.index is not None:
            index = cudf.Index(cudf.Series.from_pylibcudf(made.pop()), name=frame.index[0])
        if frame.series:
            return cudf.Series.from_pylibcudf(made[0], {"name": frame.names[0], "index": index})
        whole = cudf.DataFrame.from_pylibcudf(pylibcudf.Table(made), {"columns": frame.names, "index": index})
        if not pd.api.types.is_string_dtype(frame.names):
            whole.columns = frame.names
        return whole


def concat(pieces: Sequence[Columns]) -> Columns:
    """Put blocks of the same columns one under the other."""
    arrays = zip(*(piece.arrays for piece in pieces), strict=True)
    return Columns(tuple(np.concatenate(column) for column in arrays), pieces[0].frame)


def take_apart(block: Any, labels: bool) -> Columns | None:
    """Return the arrays of a cudf frame or series, with the labels of its index or without.

    Returns
    -------
    Columns
        They share the block's memory. None where a column, or an index that is to be kept, is not plain.
    """
    import cudf

    series = isinstance(block, cudf.Series)
    names = pd.Index([block.name], dtype=object) if series else block.columns
    if not len(names) or isinstance(names, pd.MultiIndex) or names.name is not None or not names.is_unique:
        return None
    columns = [block] if series else [block[name] for name in names]
    if not all(_plain(column) for column in columns):
        return None
    arrays = [column.values for column in columns]
    kept = None
    if labels:
        index = block.index
        if isinstance(index, cudf.MultiIndex) or index.name in names or not _plain(index, "iu"):
            return None
        arrays.append(index.values)
        kept = (index.name,)
    return Columns(tuple(arrays), Frame(names, series, kept))


def _plain(column: Any, kinds: str = "biuf") -> bool:
    """Whether a cudf column or index holds numbers of a NumPy dtype and no nulls; NaN is a number."""
    dtype = column.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind not in kinds:
        return False
    return not (column.has_nulls if hasattr(column, "has_nulls") else column.hasnans)
