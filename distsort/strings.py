"""Dask's conversion of object columns to Arrow strings, held to columns that are strings.

With ``dataframe.convert-string`` on (its default), Dask casts every object column to text where a dataframe is made:
Decimals, dates and mixed values too. Sorted as text, -1.00 and 10.00 change places. So a sort looks below that cast
and casts for itself, block by block, only columns that hold nothing but strings.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
from dask._task_spec import Task, TaskRef
from dask.dataframe.dask_expr._expr import ArrowStringConversion, Blockwise, Expr
from dask.dataframe.dask_expr.io import FromPandas

_TEXT = ("string", "empty")


class StringsOnly(Blockwise):
    """The frame below, with its columns of strings as Arrow strings, and the dtypes that Dask promised."""

    _parameters = ["frame", "promised"]

    @functools.cached_property
    def _meta(self) -> Any:
        return self.promised

    @functools.cached_property
    def _name(self) -> str:
        return f"sort-strings-{self.deterministic_token}"

    def _divisions(self) -> tuple[Any, ...]:
        return tuple(self.frame.divisions)

    def _task(self, name: Any, index: int) -> Task:
        return Task(name, convert_text, TaskRef((self.frame._name, index)))


def below_conversion(expr: Expr) -> Expr:
    """Return the frame with only its strings converted, where Dask would cast all objects to text."""
    meta = expr._meta
    if isinstance(expr, ArrowStringConversion):
        raw = expr.frame
    elif isinstance(expr, FromPandas) and expr.pyarrow_strings_enabled:
        raw = expr.substitute_parameters({"pyarrow_strings_enabled": False})
    else:
        return expr
    return StringsOnly(raw, meta) if _has_objects(raw._meta) else expr


def convert_text(block: Any) -> Any:
    """Cast the object columns of a pandas block that hold only strings, and the labels likewise."""
    from dask.dataframe._pyarrow import to_pyarrow_string

    keep = {
        i: column.to_numpy(copy=False)
        for i, column in enumerate(_columns(block))
        if _is_object(column.dtype) and pd.api.types.infer_dtype(column, skipna=True) not in _TEXT
    }
    if not keep:
        return to_pyarrow_string(block)
    if block.ndim == 1:
        return block
    names, labels = block.columns, block.copy(deep=False)
    labels.columns = range(len(names))
    done = to_pyarrow_string(labels.drop(columns=list(keep)))
    for i, values in keep.items():
        done[i] = pd.Series(values, index=done.index, dtype=object, copy=False)
    done = done[list(range(len(names)))]
    done.columns = names
    return done


def _columns(block: Any) -> list[Any]:
    return [block] if block.ndim == 1 else [block.iloc[:, i] for i in range(block.shape[1])]


def _has_objects(meta: Any) -> bool:
    return meta.ndim in (1, 2) and any(_is_object(c.dtype) for c in _columns(meta))


def _is_object(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind == "O"
