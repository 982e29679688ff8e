"""Keys to codes: the one place that knows what the bits of every dtype mean.

    columns, order  --encode-->  Codes: unsigned words whose order is the order of the rows

Which dtype becomes what: this file asks, the rooms beside it answer.

    numbers    integers, bool, floats, complex, decimals, datetimes, timedeltas, periods, category codes
    text       strings and bytes
    arrow      Arrow arrays: the above from their buffers, dictionaries by the rank of their values
    objects    Python objects: converted where exact, compared in Python elsewhere
    codes      fields packed into words
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from distsort.errors import InputError, KeyTypeError
from distsort.keys import text as keys_text
from distsort.keys.arrow import arrow_fields, check_orderable
from distsort.keys.codes import Chain, Codes, Field, lay_word
from distsort.keys.numbers import complex_fields, float_fields, integer_fields, null_field, time_fields
from distsort.keys.objects import called, normalise
from distsort.order import Key, Order

__all__ = ["Codes", "Field", "encode", "lay_word"]

_MASKED = (
    pd.BooleanDtype,
    pd.Int8Dtype,
    pd.Int16Dtype,
    pd.Int32Dtype,
    pd.Int64Dtype,
    pd.UInt8Dtype,
    pd.UInt16Dtype,
    pd.UInt32Dtype,
    pd.UInt64Dtype,
    pd.Float32Dtype,
    pd.Float64Dtype,
)


def encode(columns: Sequence[Any], order: Order, squeeze: bool = True) -> Codes:
    """Encode key columns as order-preserving unsigned words.

    Parameters
    ----------
    columns
        One per key of `order`, all of length n: NumPy arrays of one dimension, pandas Series, Index or extension
        arrays, pyarrow Arrays or ChunkedArrays, or `keys.text.Text`.
    order
        Directions and places of nulls.
    squeeze
        Whether to look for fewer bits, which pays where rows are sorted and not where each is looked at once.

    Returns
    -------
    Codes
        Comparable among themselves only: the layout depends on the data, so concatenate first what must be compared.

    Raises
    ------
    KeyTypeError
        A key has values without an order; the message names the key, the types, and what to do.
    InputError
        The columns do not match the order or each other.

    Examples
    --------
    >>> from distsort.order import make_order
    >>> codes = encode([np.array([3, 1, 2]), np.array([b"b", b"a", b"a"])], make_order(["n", "s"], [False, True]))
    >>> codes.words
    (array([ 98, 609, 353], dtype=uint16),)
    """
    if len(columns) != len(order):
        raise InputError(f"{len(columns)} key columns were given for the {len(order)} keys of '{order}'")
    n = len(columns[0])
    fields: list[Field | Chain] = []
    for column, key in zip(columns, order.keys, strict=True):
        if len(column) != n:
            raise InputError(f"{called(key)} has {len(column)} rows, the first key has {n}: give columns of one table")
        fields += _fields(column, key, len(order) == 1)
    return Codes(n, fields, squeeze)


def _fields(column: Any, key: Key, lone: bool) -> Sequence[Field | Chain]:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        check_orderable(column.type, key)
        return arrow_fields(column, key, lone)
    if isinstance(column, np.ndarray):
        return _array_fields(column, key, lone, pandas=False)
    if isinstance(column, keys_text.Text):
        return column.fields(key.descending)
    if isinstance(column, (pd.Series, pd.Index)):
        if isinstance(column.dtype, np.dtype):
            return _array_fields(column.to_numpy(copy=False), key, lone, pandas=True)
        column = column.array
    if isinstance(column, pd.api.extensions.ExtensionArray):
        return _extension_fields(column, key, lone)
    raise KeyTypeError(
        f"{called(key)} is a {type(column).__name__}: give a NumPy array, a pandas column or a pyarrow array"
    )


def _extension_fields(column: Any, key: Key, lone: bool) -> Sequence[Field | Chain]:
    dtype = column.dtype
    if isinstance(dtype, _MASKED):
        plain: np.dtype[Any] = np.dtype(getattr(dtype, "numpy_dtype", bool))
        null = column.isna()
        values = column.to_numpy(dtype=plain, na_value=plain.type(0))
        return float_fields(values, null, key, "largest") if plain.kind == "f" else integer_fields(values, null, key)
    if isinstance(dtype, (pd.ArrowDtype, pd.StringDtype)):
        made = pa.array(column)
        check_orderable(made.type, key)
        return arrow_fields(made, key, lone)
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.codes
        return integer_fields(codes, codes < 0, key)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return time_fields(pd.DatetimeIndex(column).asi8, key)
    if isinstance(dtype, pd.PeriodDtype):
        return time_fields(pd.PeriodIndex(column).asi8, key)
    if isinstance(dtype, pd.IntervalDtype):
        return [*_fields(column.left, key, lone), *_fields(column.right, key, lone)]
    return _array_fields(np.asarray(column), key, lone, pandas=True)


def _array_fields(values: npt.NDArray[Any], key: Key, lone: bool, pandas: bool) -> Sequence[Field | Chain]:
    if values.ndim != 1:
        raise KeyTypeError(f"{called(key)} has {values.ndim} dimensions: a key has one value per row")
    null: npt.NDArray[np.bool_] | None = None
    if isinstance(values, np.ma.MaskedArray):
        null, values = np.ma.getmaskarray(values), np.asarray(values.data)
        if not null.any():
            null = None
    kind = values.dtype.kind
    if kind in "TO":
        values = values.astype(object, copy=null is not None)
        if null is not None:
            values[null] = None
        made, null = normalise(values, key)
        if isinstance(made, pa.Array):
            return arrow_fields(made, key, lone)
        values, kind = made, made.dtype.kind
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if kind in "iub":
        return integer_fields(values, null, key)
    if kind == "f":
        return float_fields(values, null, key)
    if kind == "c":
        return complex_fields(values, null, key, one_null=pandas)
    if kind in "mM":
        return time_fields(values.view(np.int64), key, null)
    if kind in "SU":
        if null is None:
            return keys_text.from_array(values).fields(key.descending)
        return [
            null_field(null, key),
            *keys_text.from_array(np.where(null, b"" if kind == "S" else "", values)).fields(key.descending),
        ]
    raise KeyTypeError(f"{called(key)} has the dtype {values.dtype}, which has no order: sort by one of its parts")
